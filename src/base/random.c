/* random.c - see random.h. Everything here is Philox with different counters. */
#include "base/random.h"

#include <math.h>
#include <string.h>

#include "base/cpu.h"
#include "base/elementary.h"
#include "base/hash.h"
#include "base/normals.h"
#include "base/normals_of.h"
#include "base/philox.h"

/* So that a tensor's and a permutation's numbers never share a key with the rest. */
#define TENSOR_TAG UINT64_C(0x726f736e6574) /* "tensor" */
#define ORDER_TAG UINT64_C(0x726564726f)    /* "order" */

void sheaf__philox(uint32_t out[4], const uint32_t counter[4], const uint32_t key[2])
{
    sheaf__philox_of(out, counter, key);
}

void sheaf__random_row_key(uint32_t key[2], uint64_t seed, uint64_t purpose, uint64_t a, uint64_t b,
                           uint64_t c)
{
    const uint64_t row = sheaf__philox_row(seed, purpose, a, b, c);
    key[0] = (uint32_t)row, key[1] = (uint32_t)(row >> 32);
}

uint32_t sheaf__random_u32(uint64_t seed, uint64_t purpose, uint64_t a, uint64_t b, uint64_t c,
                           uint64_t d)
{
    uint32_t word[4];
    sheaf__philox_draw(word, d / 64 * 16 + d % 16, 0, sheaf__philox_row(seed, purpose, a, b, c));
    return word[d / 16 % 4];
}

uint64_t sheaf__name_key(const char *name)
{
    return sheaf__fnv(SHEAF__FNV, name, strlen(name));
}

uint32_t sheaf__random_tensor_u32(uint64_t seed, uint64_t name_key, uint64_t index)
{
    uint32_t word[4];
    sheaf__philox_draw(word, index, name_key, seed ^ TENSOR_TAG);
    return word[0];
}

float sheaf__unit_float(uint32_t u)
{
    return ((float)(u >> 9) + 0.5f) * 0x1p-23f;
}

float sheaf__random_normal(uint64_t seed, uint64_t name_key, uint64_t index)
{
    uint32_t word[4];
    sheaf__philox_draw(word, index, name_key, seed ^ TENSOR_TAG);
    const double u = ((double)word[0] + 0.5) * 0x1p-32;
    const double turn = ((double)word[1] + 0.5) * 0x1p-32;
    return (float)(sqrt(-2 * sheaf__log_d(u)) * sheaf__cos_d(turn * 0x1.921fb54442d18p+2));
}

void sheaf__random_normals(float *out, uint64_t seed, uint64_t name_key, uint64_t first, int64_t n)
{
    int64_t done = 0;
#ifndef SHEAF_NO_X86
    const int64_t groups = n - n % SHEAF__NORMALS;
    const bool fma3 = SHEAF__CPU_HAS("fma");
    if (fma3 && sheaf__cpu_has_avx512())
        sheaf__normals_avx512(out, seed ^ TENSOR_TAG, name_key, first, done = groups);
    else if (fma3 && SHEAF__CPU_HAS("avx2"))
        sheaf__normals_avx2(out, seed ^ TENSOR_TAG, name_key, first, done = groups);
#endif
    for (; done < n; done++)
        out[done] = sheaf__random_normal(seed, name_key, first + (uint64_t)done);
}

/* A keyed bijection of [0, 2^(2 half)): eight Feistel rounds. */
static uint64_t feistel(uint64_t x, int half, uint64_t key)
{
    const uint64_t mask = (UINT64_C(1) << half) - 1;
    uint64_t left = x >> half, right = x & mask;
    for (uint64_t round = 0; round < 8; round++) {
        uint32_t word[4];
        sheaf__philox_draw(word, right, round, key);
        const uint64_t next = (left ^ sheaf__philox_key(word)) & mask;
        left = right;
        right = next;
    }
    return left << half | right;
}

/* The same rounds, last to first. */
static uint64_t feistel_back(uint64_t x, int half, uint64_t key)
{
    const uint64_t mask = (UINT64_C(1) << half) - 1;
    uint64_t left = x >> half, right = x & mask;
    for (uint64_t round = 8; round-- > 0;) {
        uint32_t word[4];
        sheaf__philox_draw(word, left, round, key);
        const uint64_t before = (right ^ sheaf__philox_key(word)) & mask;
        right = left;
        left = before;
    }
    return left << half | right;
}

/* Walking the cycle of a value inside [0, n) comes back inside [0, n), and is again a bijection. At
 * most one in four values lies inside: few steps. */
static uint64_t walk(uint64_t (*next)(uint64_t x, int half, uint64_t key), uint64_t i, uint64_t n,
                     uint64_t seed, uint64_t epoch)
{
    uint32_t word[4];
    int half = 1;
    while (half < 31 && UINT64_C(1) << (2 * half) < n)
        half++;
    sheaf__philox_draw(word, epoch, 0, seed ^ ORDER_TAG);
    do
        i = next(i, half, sheaf__philox_key(word));
    while (i >= n);
    return i;
}

uint64_t sheaf__permute(uint64_t i, uint64_t n, uint64_t seed, uint64_t epoch)
{
    return walk(feistel, i, n, seed, epoch);
}

uint64_t sheaf__permute_back(uint64_t at, uint64_t n, uint64_t seed, uint64_t epoch)
{
    return walk(feistel_back, at, n, seed, epoch);
}
