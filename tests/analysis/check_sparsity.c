/* check_sparsity.c -- sparsity and concentration against plain definitions.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "kvr_concentration.h"
#include "kvr_random.h"
#include "kvr_sparsity.h"

#include "suite.h"
#include "values.h"

#include <math.h>
#include <string.h>

static struct kvr_error err;

enum { T = 150, P = 40 };

struct matrix {
    float weight[T][T];
};

static enum kvr_status read_matrix(void *ud, uint32_t first, uint32_t n,
                                   float *out, size_t stride,
                                   struct kvr_error *e)
{
    const struct matrix *m = ud;

    (void)e;
    for (uint32_t r = 0; r < n; r++)
        for (uint32_t i = 0; i < stride; i++)
            out[r * stride + i] = i <= first + r ? m->weight[first + r][i] : 0;
    return KVR_OK;
}

static bool sees(const struct kvr_head *head, uint32_t t, uint32_t i)
{
    if (i > t)
        return false;
    if (head->mask == KVR_MASK_WINDOW)
        return i + head->span > t;
    if (head->mask == KVR_MASK_CHUNK)
        return i / head->span == t / head->span;
    return true;
}

/* Multiples of 2^-17 with peaks, zeros and ties. */
static void fill(struct matrix *m, const struct kvr_head *head, uint32_t seed)
{
    const struct kvr_random stream = {.seed = seed, .purpose = KVR_RANDOM_TEST};

    memset(m, 0, sizeof *m);
    for (uint32_t t = 0; t < T; t++) {
        double sum = 0, row[T];
        for (uint32_t i = 0; i <= t; i++) {
            const double u = kvr_random_real(&stream, t, i, 0);
            row[i] = i == 0 && u < 0.7 ? exp(8) : exp(floor(12 * u * u));
            sum += sees(head, t, i) ? row[i] : 0;
        }
        for (uint32_t i = 0; i <= t; i++)
            if (sees(head, t, i))
                m->weight[t][i] =
                    (float)ldexp(floor(ldexp(row[i] / sum, 17)), -17);
    }
}

static int falling(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x < y) - (x > y);
}

/* One row by the book: *below and *zero are shares of visible entries. */
struct row_facts {
    double below, zero, n, support, keys95, sum;
    bool first_is_largest;
};

static struct row_facts row_facts(const struct matrix *m,
                                  const struct kvr_head *head, uint32_t t)
{
    struct row_facts f = {0};
    double row[T], largest = 0, entropy = 0, held = 0;
    uint32_t n = 0;

    for (uint32_t i = 0; i <= t; i++)
        if (sees(head, t, i))
            row[n++] = (double)m->weight[t][i];
    f.n = n;
    for (uint32_t i = 0; i < n; i++) {
        f.sum += row[i];
        largest = fmax(largest, row[i]);
    }
    for (uint32_t i = 0; i < n; i++) {
        f.below += row[i] < 0.01 * largest;
        f.zero += row[i] == 0;
        if (row[i] > 0)
            entropy -= row[i] / f.sum * log(row[i] / f.sum);
    }
    f.support = exp(entropy);
    qsort(row, n, sizeof *row, falling);
    while (held < 0.95 * f.sum)
        held += row[(uint32_t)f.keys95++];
    f.first_is_largest = (double)m->weight[t][0] == largest;
    return f;
}

static void check_head(const struct matrix *m, const struct kvr_head *head)
{
    struct kvr_sparsity s;
    double below = 0, zero = 0, visible = 0, rows = 0, decode = 0, argmax = 0;
    double support = 0, keys = 0, seen = 0, first = 0, first4 = 0;

    must(kvr_sparsity_of(&s, head, &err));
    for (uint32_t t = 0; t < T; t++) {
        const struct row_facts f = row_facts(m, head, t);
        ck_assert(f.sum > 0);
        below += f.below;
        zero += f.zero;
        visible += f.n;
        rows += f.below / f.n;
        if (t < P)
            continue;
        decode += f.below / f.n;
        argmax += f.first_is_largest;
        support += f.support;
        keys += f.keys95;
        seen += f.n;
        for (uint32_t i = 0; i < 4; i++)
            first4 += (double)m->weight[t][i];
        first += (double)m->weight[t][0];
    }
    const double n = T - P;
    ck_assert(values_near(s.row_mean, rows / T, 1e-13));
    ck_assert(values_near(s.decode_row_mean, decode / n, 1e-13));
    ck_assert(s.pooled_causal == below / visible);
    ck_assert(s.pooled_square ==
              (below + (double)T * T - visible) / ((double)T * T));
    ck_assert(s.zeros == zero / visible);
    ck_assert(values_near(s.effective_support, support / n, 1e-12));
    ck_assert(s.keys95 == keys / n);
    ck_assert(s.visible == seen / n);
    ck_assert(values_near(s.mass_first, first / n, 1e-13) || first == 0);
    ck_assert(values_near(s.mass_first4, first4 / n, 1e-13) || first4 == 0);
    ck_assert(s.argmax_first == argmax / n);
    ck_assert(s.empty_rows == 0);
}

START_TEST(every_variant_is_as_defined)
{
    static struct matrix m;
    struct kvr_head head = {
        .n_token = T, .prompt_len = P, .read = read_matrix, .ud = &m};
    const uint32_t spans[] = {0, 17, 32};

    for (uint32_t seed = 0; seed < 5; seed++)
        for (int mask = 0; mask < 3; mask++) {
            head.mask = (enum kvr_mask)mask;
            head.span = spans[mask];
            fill(&m, &head, seed);
            check_head(&m, &head);
        }
}
END_TEST

START_TEST(threshold_is_strict_and_row_0_is_dense)
{
    static struct matrix m;
    const struct kvr_head head = {
        .n_token = 2, .prompt_len = 1, .read = read_matrix, .ud = &m};
    struct kvr_sparsity s;

    m.weight[0][0] = 1;
    m.weight[1][0] = 100;
    m.weight[1][1] = 1;
    must(kvr_sparsity_of(&s, &head, &err));
    ck_assert(s.row_mean == 0 && s.pooled_square == 0.25);
    m.weight[1][1] = 0.999f;
    must(kvr_sparsity_of(&s, &head, &err));
    ck_assert(s.row_mean == 0.25 && s.decode_row_mean == 0.5);
    ck_assert(s.pooled_causal == 1.0 / 3 && s.pooled_square == 0.5);
    ck_assert(s.zeros == 0);
}
END_TEST

START_TEST(without_decode_rows_there_is_no_number)
{
    static struct matrix m;
    const struct kvr_head head = {
        .n_token = 3, .prompt_len = 3, .read = read_matrix, .ud = &m};
    struct kvr_sparsity s;

    must(kvr_sparsity_of(&s, &head, &err));
    ck_assert(isnan(s.decode_row_mean) && isnan(s.effective_support));
    ck_assert(isnan(s.gini) && s.empty_rows == 3 && s.zeros == 1);
    ck_assert(s.row_mean == 0);
}
END_TEST

START_TEST(uniform_attention_has_the_null_concentration)
{
    json_t *root = json_load_file(KVR_TEST_DATA "/golden/powerlaw/unit.json",
                                  JSON_DECODE_INT_AS_REAL, NULL);
    const json_t *null = json_object_get(root, "uniform_causal_null");
    const struct kvr_head head = {.n_token = 1024};
    double sum[1024];

    ck_assert(values_get(null, "T") == 1024);
    kvr_head_uniform_sums(sum, &head);
    ck_assert(values_near(sum[0], values_get(null, "first"), 1e-14));
    ck_assert(sum[1023] == values_get(null, "last"));
    kvr_sort_values(sum, 1024);
    ck_assert(
        values_near(kvr_gini(sum, 1024), values_get(null, "gini"), 1e-13));
    ck_assert(values_near(kvr_top_share(sum, 1024, 0.05),
                          values_get(null, "top5"), 1e-13));
    ck_assert(values_near(kvr_top_share(sum, 1024, 0.2),
                          values_get(null, "top20"), 1e-13));
    json_decref(root);
}
END_TEST

START_TEST(uniform_sums_follow_the_mask)
{
    struct kvr_head head = {.n_token = T};

    for (int mask = 0; mask < 3; mask++) {
        double fast[T], slow[T] = {0};
        head.mask = (enum kvr_mask)mask;
        head.span = mask == 0 ? 0 : 13;
        kvr_head_uniform_sums(fast, &head);
        for (uint32_t t = 0; t < T; t++)
            for (uint32_t i = kvr_head_from(&head, t); i <= t; i++)
                slow[i] += 1.0 / (t + 1 - kvr_head_from(&head, t));
        for (uint32_t i = 0; i < T; i++)
            ck_assert(values_near(fast[i], slow[i], 1e-12));
    }
}
END_TEST

START_TEST(sums_count_the_rows_that_see_a_key)
{
    static struct matrix m;
    const struct kvr_head head = {.n_token = T,
                                  .prompt_len = P,
                                  .span = 20,
                                  .mask = KVR_MASK_WINDOW,
                                  .read = read_matrix,
                                  .ud = &m};
    double sum[T];
    uint32_t seen[T];

    fill(&m, &head, 3);
    must(kvr_head_sums(sum, seen, &head, P, &err));
    for (uint32_t i = 0; i < T; i++) {
        double expected = 0;
        uint32_t rows = 0;
        for (uint32_t t = P; t < T; t++)
            if (sees(&head, t, i)) {
                expected += (double)m.weight[t][i];
                rows++;
            }
        ck_assert(sum[i] == expected && seen[i] == rows);
    }
}
END_TEST

START_TEST(gini_and_entropy_equal_the_reference)
{
    json_t *root = json_load_file(KVR_TEST_DATA "/golden/powerlaw/unit.json",
                                  JSON_DECODE_INT_AS_REAL, NULL);
    const json_t *list = json_object_get(root, "gini");
    const json_t *entropy = json_object_get(root, "entropy");
    float weight[8];
    size_t n;

    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i);
        double *x = values_list(&n, json_object_get(item, "x"));
        kvr_sort_values(x, n);
        ck_assert(fabs(kvr_gini(x, n) - values_get(item, "gini")) < 1e-15);
        free(x);
    }
    double *p = values_list(&n, json_object_get(entropy, "p"));
    for (size_t i = 0; i < n; i++)
        weight[i] = (float)p[i];
    ck_assert(values_near(kvr_effective_support(weight, n),
                          values_get(entropy, "effective_support"), 1e-14));
    free(p);
    json_decref(root);
}
END_TEST

START_TEST(top_share_rounds_its_count_up)
{
    const double x[] = {1, 2, 3, 4, 10};

    ck_assert(kvr_top_share(x, 5, 0.2) == 0.5);
    ck_assert(kvr_top_share(x, 5, 0.21) == 0.7);
    ck_assert(kvr_top_share(x, 5, 0.05) == 0.5);
    ck_assert(kvr_top_share(x, 5, 1) == 1);
    ck_assert(isnan(kvr_gini(x, 0)));
}
END_TEST

KVR_SUITE("sparsity", every_variant_is_as_defined,
          threshold_is_strict_and_row_0_is_dense,
          without_decode_rows_there_is_no_number,
          uniform_attention_has_the_null_concentration,
          uniform_sums_follow_the_mask, sums_count_the_rows_that_see_a_key,
          gini_and_entropy_equal_the_reference, top_share_rounds_its_count_up)
