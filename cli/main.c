/* main.c -- kvreplay: the table of commands.
 *
 * A command is one file cmd_*.c and one row of commands.def; usage is printed
 * from the rows.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "cli.h"

#include "kvr_isa.h"

#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COMMAND(symbol) extern const struct cli_command kvr__##symbol;
#include "commands.def"
#undef COMMAND

static const struct cli_command *const commands[] = {
#define COMMAND(symbol) &kvr__##symbol,
#include "commands.def"
#undef COMMAND
};

enum { N_COMMAND = sizeof commands / sizeof commands[0] };

static char *command_line;

const char *kvr__cli_command_line(void)
{
    return command_line;
}

/* Letters that no shell looks at. */
static bool is_plain(const char *word)
{
    return *word != '\0' &&
           word[strspn(word, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuv"
                             "wxyz0123456789_-+=.,:/%@")] == '\0';
}

/* One word, in single quotes where a shell would change it. */
static char *put_word(char *to, const char *word)
{
    if (is_plain(word))
        return stpcpy(to, word);
    *to++ = '\'';
    for (; *word != '\0'; word++)
        if (*word == '\'')
            to = stpcpy(to, "'\\''");
        else
            *to++ = *word;
    *to++ = '\'';
    *to = '\0';
    return to;
}

static bool keep_command_line(int argc, char **argv)
{
    size_t room = sizeof "kvreplay";

    for (int i = 1; i < argc; i++)
        room += 4 * strlen(argv[i]) + 3;
    command_line = malloc(room);
    if (command_line == NULL)
        return false;
    char *to = stpcpy(command_line, "kvreplay");
    for (int i = 1; i < argc; i++) {
        *to++ = ' ';
        to = put_word(to, argv[i]);
    }
    return true;
}

static void print_overview(FILE *out)
{
    const char *group = "";

    fputs("usage: kvreplay COMMAND [options]   "
          "(kvreplay COMMAND --help for each)\n",
          out);
    for (size_t i = 0; i < N_COMMAND; i++) {
        if (strcmp(group, commands[i]->group) != 0) {
            group = commands[i]->group;
            fprintf(out, "\n%s\n", group);
        }
        fprintf(out, "  %-12s %s\n", commands[i]->name, commands[i]->summary);
    }
}

/* Text on standard output that could not be delivered is a failure too. */
static int delivered(int code)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return code;
    perror("kvreplay: standard output");
    return code != 0 ? code : 3;
}

static int run(const struct cli_command *command, int argc, char **argv)
{
    struct kvr_error err = {0};
    enum kvr_status status = kvr_isa_init(&err);

    if (status == KVR_OK)
        status = command->run(command, argc, argv, &err);
    if (status != KVR_OK && err.message[0] != '\0')
        fprintf(stderr, "kvreplay: %s\n", err.message);
    else if (status != KVR_OK && status != KVR_ERR_NO)
        fprintf(stderr, "kvreplay: %s\n", kvr_status_text(status));
    return delivered(kvr_status_exit_code(status));
}

/* Set when it is we who end the program. Libraries may call exit, too, when
 * they get no memory (libgfortran does), with codes that mean other things
 * here. */
static bool ended;

static void judge_exit(void)
{
    static const char text[] = "kvreplay: a library has ended the program; "
                               "there may be too little memory\n";

    if (ended)
        return;
    fputs(text, stderr);
    _exit(4);
}

static int dispatch(int argc, char **argv)
{
    if (argc < 2) {
        print_overview(stderr);
        return 2;
    }
    if (strcmp(argv[1], "--version") == 0) {
        puts("kvreplay " KVREPLAY_VERSION);
        return delivered(0);
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
        strcmp(argv[1], "help") == 0) {
        print_overview(stdout);
        return delivered(0);
    }
    for (size_t i = 0; i < N_COMMAND; i++)
        if (strcmp(argv[1], commands[i]->name) == 0)
            return run(commands[i], argc - 2, argv + 2);
    fprintf(stderr,
            "kvreplay: unknown command '%s'; kvreplay help lists them\n",
            argv[1]);
    return 2;
}

int main(int argc, char **argv)
{
    /* A file-size limit must be an error of write(), not a kill. */
    signal(SIGXFSZ, SIG_IGN);
    if (!keep_command_line(argc, argv)) {
        fputs("kvreplay: out of memory\n", stderr);
        return 4;
    }
    if (atexit(judge_exit) != 0) {
        fputs("kvreplay: out of memory\n", stderr);
        return 4;
    }
    const int code = dispatch(argc, argv);

    ended = true;
    free(command_line);
    return code;
}
