/* clock.c -- the time that a trace says it was made.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "kvr_trace.h"

#include "kvr_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum kvr_status kvr_trace_time(char out[KVR_TIME_TEXT], struct kvr_error *err)
{
    const char *epoch = getenv("SOURCE_DATE_EPOCH");
    uint64_t seconds = (uint64_t)time(NULL);
    struct tm tm;

    if (epoch != NULL && (!kvr_parse_u64(&seconds, epoch, strlen(epoch)) ||
                          seconds > (uint64_t)253402300799))
        return kvr_fail(err, KVR_ERR_USAGE,
                        "SOURCE_DATE_EPOCH: expected seconds since 1970, to "
                        "the year 9999, found '%s'",
                        epoch);
    const time_t t = (time_t)seconds;
    out[0] = '\0';
    if (gmtime_r(&t, &tm) != NULL)
        strftime(out, KVR_TIME_TEXT, "%Y-%m-%dT%H:%M:%SZ", &tm);
    return KVR_OK;
}
