/* limit.c -- what is needed against what --memory allows.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "kvr_memory.h"
#include "kvr_text.h"

enum kvr_status kvr_check_memory(struct kvr_error *err, const char *what,
                                 uint64_t need, uint64_t limit)
{
    char wanted[32], most[32];

    if (limit == 0 || need <= limit)
        return KVR_OK;
    kvr_format_bytes(wanted, need);
    kvr_format_bytes(most, limit);
    return kvr_fail(err, KVR_ERR_LIMIT,
                    "%s: about %s of memory are needed, the limit is %s "
                    "(--memory)",
                    what, wanted, most);
}
