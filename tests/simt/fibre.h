/* fibre.h -- stacks that a host thread changes between.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef SIMT_FIBRE_H
#define SIMT_FIBRE_H

#include <cstddef>

namespace simt
{

struct fibre {
    void *top = nullptr;   /* stack pointer while it does not run */
    char *stack = nullptr; /* lowest address */
    std::size_t bytes = 0;
    unsigned colour = 0;   /* bytes from its end to where it begins */
    bool borrowed = false; /* the stack is a thread's own */
    void *fake = nullptr;  /* the address sanitizer's */

    fibre() = default;
    fibre(const fibre &) = delete;
    fibre &operator=(const fibre &) = delete;
    ~fibre();
};

/* Makes the fibre begin in entry(), which calls arrived() first and never
 * returns; what it did before is forgotten. */
void start(fibre &f, void (*entry)());
void arrived(fibre &f);

/* The stack of the host thread itself. */
void arrive_home(fibre &home);

/* Leaves `from`, which runs, for `to`. Last: `from` will not go on. */
void change(fibre &from, fibre &to, bool last);

/* It will not go on, although it has not reached its end. */
void abandon(fibre &f);

/* Lets the address sanitizer object to accesses to [begin, end), or not;
 * without it nothing happens, and fences() is false. */
void fence(const char *begin, const char *end, bool up);
bool fences();

} // namespace simt

#endif
