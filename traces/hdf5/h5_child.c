/* h5_child.c -- a child with limits, and its last words.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#define _GNU_SOURCE /* close_range, pipe2 */
#include "h5_child.h"

#include "kvr_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* The sanitizers and valgrind (KVR_WATCHED) map much, and slow all calls down.
 */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || \
    defined(KVR_WATCHED)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

enum {
    STEP_MS = SANITIZED ? 10000 : 600, /* of processor time */
    SILENCE_SECONDS = 60,
    MORE_MEMORY = 512 << 20, /* than is mapped where the child begins */
};

void kvr__child_step(const struct child *child, const char *what,
                     const char *name)
{
    const struct itimerval limit = {
        .it_value = {.tv_sec = STEP_MS / 1000,
                     .tv_usec = STEP_MS % 1000 * 1000}};

    (void)snprintf(child->doing, CHILD_DOING, "%s%s", what, name);
    (void)setitimer(ITIMER_PROF, &limit, NULL);
}

/* ---- the child ---- */

/* Pages that this process has mapped; 0: not known. */
static uint64_t mapped_pages(void)
{
    char text[64] = "";
    uint64_t pages = 0;
    const int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return 0;
    const ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    for (ssize_t i = 0; i < n && text[i] >= '0' && text[i] <= '9'; i++)
        pages = 10 * pages + (uint64_t)(text[i] - '0');
    return pages;
}

static void lower_limit(int which, uint64_t most)
{
    struct rlimit limit;

    if (getrlimit(which, &limit) != 0 || limit.rlim_cur <= most)
        return;
    limit.rlim_cur = most;
    (void)setrlimit(which, &limit);
}

/* Those of the terminal are the parent's business: it dies, the child with
 * it. */
static void reset_signals(void)
{
    static const int ignored[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM};
    sigset_t none;

    for (int i = 1; i < NSIG; i++)
        if (i != SIGKILL && i != SIGSTOP)
            (void)signal(i, SIG_DFL);
    for (size_t i = 0; i < sizeof ignored / sizeof ignored[0]; i++)
        (void)signal(ignored[i], SIG_IGN);
    sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
}

/* Descriptors 0 to 2 lead nowhere, 3 is the pipe, 4 what is kept. */
static bool keep_files(int out, int keep)
{
    const int nowhere = open("/dev/null", O_RDWR | O_CLOEXEC);
    const int high_out = fcntl(out, F_DUPFD_CLOEXEC, 16);
    const int high_keep = fcntl(keep, F_DUPFD_CLOEXEC, 16);

    if (nowhere < 0 || high_out < 0 || high_keep < 0)
        return false;
    for (int i = 0; i < 3; i++)
        if (dup2(nowhere, i) < 0)
            return false;
    if (dup2(high_out, 3) < 0 || dup2(high_keep, 4) < 0)
        return false;
    (void)close_range(5, ~0u, 0);
    return true;
}

static void be_child(pid_t parent, struct child child, kvr__child_fn fn,
                     void *ud)
{
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);

    reset_signals();
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent ||
        !keep_files(child.out, child.keep))
        _exit(1);
    child.out = 3;
    child.keep = 4;
    lower_limit(RLIMIT_CORE, 0);
    const uint64_t pages = SANITIZED ? 0 : mapped_pages();
    if (pages != 0)
        lower_limit(RLIMIT_AS, pages * page + MORE_MEMORY);
    kvr__child_step(&child, "", "");
    fn(&child, ud);
    _exit(0);
}

/* ---- the parent ---- */

static int64_t now_ms(void)
{
    struct timespec t = {0};

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

enum hearing { HEARD_ALL, HEARD_NOTHING, HEARD_TOO_MUCH, NOT_HEARD, NO_ROOM };

/* More of what the child says, until the pipe ends. */
static enum hearing hear(struct bytes *said, int in, uint64_t most)
{
    enum { BLOCK = 1 << 16 };
    int64_t deadline = now_ms() + SILENCE_SECONDS * 1000;

    for (;;) {
        struct pollfd p = {.fd = in, .events = POLLIN};
        const int64_t left = deadline - now_ms();
        if (left <= 0)
            return HEARD_NOTHING;
        const int ready = poll(&p, 1, (int)left);
        if (ready < 0 && errno != EINTR)
            return NOT_HEARD;
        if (ready <= 0)
            continue;
        uint8_t *at = kvr__put_space(said, BLOCK);
        if (at == NULL)
            return NO_ROOM;
        const ssize_t n = read(in, at, BLOCK);
        said->n -= (size_t)(BLOCK - (n > 0 ? n : 0));
        if (n == 0)
            return HEARD_ALL;
        if (n < 0 && errno != EINTR && errno != EAGAIN)
            return NOT_HEARD;
        if (said->n > most)
            return HEARD_TOO_MUCH;
        deadline = now_ms() + SILENCE_SECONDS * 1000;
    }
}

/* How the child ended; 0 too where somebody else reaped it: what it said
 * then tells whether it was done. */
static int reap(pid_t pid)
{
    int end = 0;

    while (waitpid(pid, &end, 0) < 0)
        if (errno != EINTR)
            return 0;
    return end;
}

/* " at attribute 'x'", or "". The child may have written anything there. */
static void place_text(char out[CHILD_DOING + 16], const char *doing)
{
    const size_t n = strnlen(doing, CHILD_DOING - 1);

    snprintf(out, CHILD_DOING + 16, "%s%.*s", n > 0 ? " at " : "", (int)n,
             doing);
    for (char *c = out; *c != '\0'; c++)
        if ((unsigned char)*c < 32 || *c == 127)
            *c = '?';
}

static enum kvr_status judge_end(int end, const char *path, const char *doing,
                                 struct kvr_error *err)
{
    char at[CHILD_DOING + 16];

    place_text(at, doing);
    if (WIFSIGNALED(end) && WTERMSIG(end) == SIGPROF)
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: the HDF5 library did not come to an end reading "
                        "this file%s: damaged",
                        path, at);
    if (WIFSIGNALED(end))
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: the HDF5 library crashed (signal %d) reading this "
                        "file%s: damaged",
                        path, WTERMSIG(end), at);
    if (WIFEXITED(end) && WEXITSTATUS(end) == CHILD_NO_MEMORY)
        return kvr_fail(err, KVR_ERR_MEMORY, "%s: no memory for its index",
                        path);
    if (end != 0)
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: the process that reads this file with the HDF5 "
                        "library gave up%s (exit code %d)",
                        path, at, WIFEXITED(end) ? WEXITSTATUS(end) : -1);
    return KVR_OK;
}

static enum kvr_status judge_hearing(enum hearing hearing, const char *path,
                                     uint64_t most, int code,
                                     struct kvr_error *err)
{
    switch (hearing) {
    case HEARD_ALL:
        break;
    case HEARD_NOTHING:
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: the HDF5 library did not come to an end reading "
                        "this file: silent for %d seconds",
                        path, SILENCE_SECONDS);
    case HEARD_TOO_MUCH:
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: the HDF5 library finds more in this file than "
                        "%llu bytes can tell: damaged",
                        path, (unsigned long long)most);
    case NOT_HEARD:
        return kvr_fail(err, KVR_ERR_IO, "%s: a pipe cannot be read: %s", path,
                        strerror(code));
    case NO_ROOM:
        return kvr_no_memory(err, "a file's index", (size_t)most);
    }
    return KVR_OK;
}

static pid_t start(const struct child *child, kvr__child_fn fn, void *ud)
{
    const pid_t parent = getpid();
    sigset_t all, before;

    /* handlers of ours are not to run in the child */
    sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    const pid_t pid = fork();
    if (pid == 0)
        be_child(parent, *child, fn, ud);
    const int code = errno;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = code;
    return pid;
}

/* Hears the child out and judges how it ended. */
static enum kvr_status attend(struct bytes *said, pid_t pid, int in,
                              const char *path, uint64_t most,
                              const char *doing, struct kvr_error *err)
{
    const enum hearing hearing = hear(said, in, most);
    const int code = errno;

    if (hearing != HEARD_ALL)
        (void)kill(pid, SIGKILL);
    const int end = reap(pid);
    const enum kvr_status status =
        judge_hearing(hearing, path, most, code, err);
    return status != KVR_OK ? status : judge_end(end, path, doing, err);
}

enum kvr_status kvr__child_run(struct bytes *said, const char *path,
                               uint64_t most, kvr__child_fn fn, int keep,
                               void *ud, struct kvr_error *err)
{
    enum kvr_status status;
    int pipes[2];
    void *doing = mmap(NULL, CHILD_DOING, PROT_READ | PROT_WRITE,
                       MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (doing == MAP_FAILED)
        return kvr_no_memory(err, "a child process", CHILD_DOING);
    if (pipe2(pipes, O_CLOEXEC) != 0) {
        status =
            kvr_fail(err, KVR_ERR_IO, "%s: no pipe: %s", path, strerror(errno));
        (void)munmap(doing, CHILD_DOING);
        return status;
    }
    const struct child child = {.out = pipes[1], .keep = keep, .doing = doing};
    const pid_t pid = start(&child, fn, ud);
    status = pid >= 0
                 ? KVR_OK
                 : kvr_fail(err, KVR_ERR_IO, "%s: no process to read it in: %s",
                            path, strerror(errno));
    close(pipes[1]);
    if (pid >= 0)
        status = attend(said, pid, pipes[0], path, most, doing, err);
    close(pipes[0]);
    (void)munmap(doing, CHILD_DOING);
    return status;
}
