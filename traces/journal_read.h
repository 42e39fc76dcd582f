/* journal_read.h -- an open journal's insides.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef JOURNAL_READ_H
#define JOURNAL_READ_H

#include "journal.h"
#include "kvr_journal.h"

struct kvr_journal {
    char *path;
    int fd;
    struct content *content; /* of the closed steps */
    struct codec *codec;
    struct kvr_journal_facts facts;
    uint8_t *payload; /* of the record read last */
    size_t capacity;
};

#endif
