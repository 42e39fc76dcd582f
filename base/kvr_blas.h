/* kvr_blas.h -- products of float matrices, by OpenBLAS.
 *
 * The library is opened when the first product is about to be asked for, not
 * when the program starts: it would start a thread for each processor, each
 * asking again and again for 128 MiB of address space, so that under a limit
 * (ulimit -v) not even --version came to an end. Opened here it has no threads
 * of its own, and its buffers are had before it can wait for them.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef KVR_BLAS_H
#define KVR_BLAS_H

#include "kvr_error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* So many more threads may be in a product at a time. Opens the library and
 * takes their buffers. KVR_ERR_MEMORY where those are not to be had,
 * KVR_ERR_UNSUPPORTED where the library is not. From any thread. */
enum kvr_status kvr_blas_hold(uint32_t threads,
                              struct kvr_error *err) KVR_MUST_CHECK;
/* What was held no longer is; the buffers stay for those that come. */
void kvr_blas_release(uint32_t threads);

/* Memory that so many threads' buffers really take. */
uint64_t kvr_blas_bytes(uint32_t threads);

/* c[m][n] = alpha * a[m][k] * b + beta * c; b is [k][n], or [n][k] where it is
 * turned. The steps are from one row to the next. */
struct kvr_product {
    size_t m, n, k;
    const float *a, *b;
    float *c;
    size_t a_step, b_step, c_step;
    bool b_turned;
    float alpha, beta;
};

/* Under a hold. */
void kvr_blas_matrix(const struct kvr_product *p);

/* y = alpha * a * x, a[rows][cols] with rows one after another; turned: y =
 * alpha * x * a. Under a hold. */
struct kvr_vector_product {
    size_t rows, cols;
    const float *a, *x;
    float *y;
    bool turned;
    float alpha;
};

void kvr_blas_vector(const struct kvr_vector_product *p);

#ifdef __cplusplus
}
#endif

#endif
