/* values.h -- numbers from the files of the tests.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef VALUES_H
#define VALUES_H

#include <jansson.h>
#include <stddef.h>

/* One number a line; KVR_TEST_DATA/folder/name. free() the result. */
double *values_read(size_t *n, const char *folder, const char *name);

/* A JSON list; null is NaN, "inf" is infinity. free() the result. */
double *values_list(size_t *n, const json_t *list);

/* Member of an object as a double. The test fails if it is not there. */
double values_get(const json_t *object, const char *key);

/* |a - b| <= tolerance |b|. */
int values_near(double a, double b, double tolerance);

#endif
