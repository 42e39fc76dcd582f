/* values.c -- see values.h.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "values.h"

#include "suite.h"

#include <math.h>

double *values_read(size_t *n, const char *folder, const char *name)
{
    char path[512], line[256];
    size_t capacity = 1024;
    double *values = malloc(capacity * sizeof *values);

    snprintf(path, sizeof path, "%s/%s/%s", KVR_TEST_DATA, folder, name);
    FILE *f = fopen(path, "r");
    ck_assert_msg(f != NULL, "%s is missing", path);
    *n = 0;
    while (fgets(line, sizeof line, f) != NULL) {
        if (*n == capacity) {
            capacity *= 2;
            values = realloc(values, capacity * sizeof *values);
        }
        values[(*n)++] = strtod(line, NULL);
    }
    fclose(f);
    return values;
}

double *values_list(size_t *n, const json_t *list)
{
    *n = json_array_size(list);
    double *values = malloc((*n + 1) * sizeof *values);

    for (size_t i = 0; i < *n; i++) {
        const json_t *item = json_array_get(list, i);
        values[i] = json_is_number(item)   ? json_number_value(item)
                    : json_is_string(item) ? INFINITY
                                           : NAN;
    }
    return values;
}

double values_get(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);

    ck_assert_msg(json_is_number(value), "no number '%s'", key);
    return json_number_value(value);
}

int values_near(double a, double b, double tolerance)
{
    return fabs(a - b) <= tolerance * fabs(b);
}
