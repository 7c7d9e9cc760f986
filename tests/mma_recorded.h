/* mma_recorded.h - recorded results of tensor cores: results.bin of tests/data/mma, and golden.bin
 * of $SHEAF_RECORDINGS/mma where that is set. Each case is a chain of k elements from c. */
#pragma once

#include <stdio.h>
#include <stdlib.h>

#include "tests/check.h"

/* One instruction. type: 0 float16, 1 bfloat16, others; kept: F; least: the floor; result: fraction
 * bits of the result; size: bytes of an element (ops/matmul/mma.h). */
typedef struct mma_header {
    char name[24];
    int32_t type, kept, length, least, result, k, cases, size;
} mma_header;

typedef struct mma_record {
    mma_header of;
    uint16_t *a, *b; /* [cases][k], of `size` bytes each */
    uint32_t *c, *want;
} mma_record;

static inline void *mma_read(FILE *file, size_t bytes)
{
    void *data = malloc(bytes);
    assert_non_null(data);
    assert_int_equal(fread(data, 1, bytes, file), bytes);
    return data;
}

/* Returns the sum of what `compare` does: the cases that were compared. */
static inline int64_t mma_each_record(const char *path, int64_t (*compare)(const mma_record *))
{
    mma_record r;
    int64_t compared = 0;
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        fail_msg("%s is not there", path);
    while (fread(&r.of, sizeof r.of, 1, file) == 1) {
        const size_t n = (size_t)r.of.cases, bytes = n * (size_t)r.of.k * (size_t)r.of.size;
        r.a = mma_read(file, bytes);
        r.b = mma_read(file, bytes);
        r.c = mma_read(file, n * 4);
        r.want = mma_read(file, n * 4);
        compared += compare(&r);
        free(r.a);
        free(r.b);
        free(r.c);
        free(r.want);
    }
    fclose(file);
    return compared;
}

static inline void mma_compare_recorded(int64_t (*compare)(const mma_record *))
{
    char path[600];
    const char *root = getenv("SHEAF_SOURCE_ROOT"), *all = getenv("SHEAF_RECORDINGS");
    snprintf(path, sizeof path, "%s/tests/data/mma/results.bin", root == NULL ? "." : root);
    assert_int_equal(mma_each_record(path, compare), 4 * 165);
    if (all != NULL && *all != '\0') {
        snprintf(path, sizeof path, "%s/mma/golden.bin", all);
        assert_true(mma_each_record(path, compare) >= 13 * 660);
    }
}
