/* fibre.cpp -- a change of stacks without a system call: the registers that a
 * function must preserve are pushed, the stack pointers exchanged.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "fibre.h"

#include <atomic>
#include <cstdint>
#include <new>
#include <pthread.h>
#include <sys/mman.h>

#if defined(__SANITIZE_ADDRESS__)
#define SIMT_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SIMT_ASAN 1
#endif
#endif
#if defined(SIMT_ASAN)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace simt
{

enum { STACK_BYTES = 128 * 1024, GUARD_BYTES = 64 * 1024 };

extern "C" void simt_change_stack(void **save, void *load);

#if defined(__x86_64__)
__asm__(".text\n"
        ".globl simt_change_stack\n"
        ".hidden simt_change_stack\n"
        ".type simt_change_stack,@function\n"
        "simt_change_stack:\n"
        "    pushq %rbp\n"
        "    pushq %rbx\n"
        "    pushq %r12\n"
        "    pushq %r13\n"
        "    pushq %r14\n"
        "    pushq %r15\n"
        "    movq %rsp, (%rdi)\n"
        "    movq %rsi, %rsp\n"
        "    popq %r15\n"
        "    popq %r14\n"
        "    popq %r13\n"
        "    popq %r12\n"
        "    popq %rbx\n"
        "    popq %rbp\n"
        "    ret\n"
        ".size simt_change_stack,.-simt_change_stack\n");
/* Six registers, the entry, and a word that keeps the entry's frame aligned
 * as after a call. */
enum { FRAME_WORDS = 8, ENTRY_WORD = 6 };
#elif defined(__aarch64__)
__asm__(".text\n"
        ".globl simt_change_stack\n"
        ".hidden simt_change_stack\n"
        ".type simt_change_stack,%function\n"
        "simt_change_stack:\n"
        "    sub sp, sp, #160\n"
        "    stp x19, x20, [sp]\n"
        "    stp x21, x22, [sp, #16]\n"
        "    stp x23, x24, [sp, #32]\n"
        "    stp x25, x26, [sp, #48]\n"
        "    stp x27, x28, [sp, #64]\n"
        "    stp x29, x30, [sp, #80]\n"
        "    stp d8, d9, [sp, #96]\n"
        "    stp d10, d11, [sp, #112]\n"
        "    stp d12, d13, [sp, #128]\n"
        "    stp d14, d15, [sp, #144]\n"
        "    mov x9, sp\n"
        "    str x9, [x0]\n"
        "    mov sp, x1\n"
        "    ldp x19, x20, [sp]\n"
        "    ldp x21, x22, [sp, #16]\n"
        "    ldp x23, x24, [sp, #32]\n"
        "    ldp x25, x26, [sp, #48]\n"
        "    ldp x27, x28, [sp, #64]\n"
        "    ldp x29, x30, [sp, #80]\n"
        "    ldp d8, d9, [sp, #96]\n"
        "    ldp d10, d11, [sp, #112]\n"
        "    ldp d12, d13, [sp, #128]\n"
        "    ldp d14, d15, [sp, #144]\n"
        "    add sp, sp, #160\n"
        "    ret\n"
        ".size simt_change_stack,.-simt_change_stack\n");
enum { FRAME_WORDS = 20, ENTRY_WORD = 11 };
#else
#error "no change of stacks is written for this machine"
#endif

#if defined(SIMT_ASAN) /* is told of every change of stack */
static void leaving(fibre &from, const fibre &to, bool last)
{
    __sanitizer_start_switch_fiber(last ? nullptr : &from.fake, to.stack,
                                   to.bytes);
}

static void landed(fibre &f)
{
    __sanitizer_finish_switch_fiber(f.fake, nullptr, nullptr);
}

static void forget_poison(const fibre &f)
{
    __asan_unpoison_memory_region(f.stack, f.bytes);
}

void fence(const char *begin, const char *end, bool up)
{
    if (up)
        __asan_poison_memory_region(begin, (size_t)(end - begin));
    else
        __asan_unpoison_memory_region(begin, (size_t)(end - begin));
}

bool fences()
{
    return true;
}

/* The sanitizer wants to know the bounds of the stack returned to. */
void arrive_home(fibre &home)
{
    pthread_attr_t attributes;
    void *stack;

    pthread_getattr_np(pthread_self(), &attributes);
    pthread_attr_getstack(&attributes, &stack, &home.bytes);
    pthread_attr_destroy(&attributes);
    home.stack = static_cast<char *>(stack);
    home.borrowed = true;
}
#else
static void leaving(fibre &, const fibre &, bool)
{
}

static void landed(fibre &)
{
}

static void forget_poison(const fibre &)
{
}

void fence(const char *, const char *, bool)
{
}

bool fences()
{
    return false;
}

void arrive_home(fibre &)
{
}
#endif

fibre::~fibre()
{
    if (stack != nullptr && !borrowed)
        munmap(stack - GUARD_BYTES, bytes + GUARD_BYTES);
}

/* Stacks begin at different places of a page: those that began at the same
 * would all want the same few lines of the first-level cache. */
static void new_stack(fibre &f)
{
    static std::atomic<unsigned> n_stacks;
    void *memory =
        mmap(nullptr, GUARD_BYTES + STACK_BYTES, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (memory == MAP_FAILED || mprotect(memory, GUARD_BYTES, PROT_NONE) != 0)
        throw std::bad_alloc();
    f.stack = static_cast<char *>(memory) + GUARD_BYTES;
    f.bytes = STACK_BYTES;
    f.colour = n_stacks++ * 320 % 8192;
}

void start(fibre &f, void (*entry)())
{
    if (f.stack == nullptr)
        new_stack(f);
    char *top = f.stack + f.bytes - f.colour;
    auto **frame = reinterpret_cast<void **>(top) - FRAME_WORDS;
    for (int i = 0; i < FRAME_WORDS; i++)
        frame[i] = nullptr;
    frame[ENTRY_WORD] = reinterpret_cast<void *>(entry);
    f.top = frame;
    f.fake = nullptr;
}

void arrived(fibre &f)
{
    landed(f);
}

void change(fibre &from, fibre &to, bool last)
{
    leaving(from, to, last);
    simt_change_stack(&from.top, to.top);
    landed(from);
}

void abandon(fibre &f)
{
    forget_poison(f);
}

} // namespace simt
