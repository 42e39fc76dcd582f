/* powerlaw_summary.h -- the last line under a table of fits.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef POWERLAW_SUMMARY_H
#define POWERLAW_SUMMARY_H

#include "kvr_error.h"

#include <jansson.h>
#include <stddef.h>

/* How many of the results were fitted, and what is typical of those. */
enum kvr_status kvr__cli_powerlaw_summary(char *out, size_t size,
                                          const json_t *results,
                                          struct kvr_error *err) KVR_MUST_CHECK;

#endif
