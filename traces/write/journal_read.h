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
    /* A call that failed: no memory, or the system cannot read. What comes
     * behind is not known, so it is neither damage nor the journal's end. */
    enum kvr_status failed;
    struct kvr_error why;
};

#endif
