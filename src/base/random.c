/* random.c - see random.h. Everything here is Philox with different counters. */
#include "base/random.h"

#include <math.h>
#include <string.h>

#include "base/elementary.h"
#include "base/hash.h"

/* So that a tensor's and a permutation's numbers never share a key with the rest. */
#define TENSOR_TAG UINT64_C(0x726f736e6574) /* "tensor" */
#define ORDER_TAG UINT64_C(0x726564726f)    /* "order" */

void sheaf__philox(uint32_t out[4], const uint32_t counter[4], const uint32_t key[2])
{
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; round++) {
        const uint64_t p0 = UINT64_C(0xD2511F53) * c0, p1 = UINT64_C(0xCD9E8D57) * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9; /* golden ratio */
        k1 += 0xBB67AE85; /* sqrt(3) - 1 */
    }
    out[0] = c0, out[1] = c1, out[2] = c2, out[3] = c3;
}

/* Four words for counter (low, high) under a 64-bit key. */
static void draw(uint32_t out[4], uint64_t low, uint64_t high, uint64_t key)
{
    const uint32_t counter[4] = { (uint32_t)low, (uint32_t)(low >> 32), (uint32_t)high,
                                  (uint32_t)(high >> 32) };
    const uint32_t words[2] = { (uint32_t)key, (uint32_t)(key >> 32) };
    sheaf__philox(out, counter, words);
}

static uint64_t first_two(const uint32_t word[4])
{
    return (uint64_t)word[1] << 32 | word[0];
}

void sheaf__random_row_key(uint32_t key[2], uint64_t seed, uint64_t purpose, uint64_t a, uint64_t b,
                           uint64_t c)
{
    uint32_t word[4];
    draw(word, purpose, a, seed);
    draw(word, b, c, first_two(word));
    key[0] = word[0], key[1] = word[1];
}

uint32_t sheaf__random_u32(uint64_t seed, uint64_t purpose, uint64_t a, uint64_t b, uint64_t c,
                           uint64_t d)
{
    uint32_t key[2], word[4];
    sheaf__random_row_key(key, seed, purpose, a, b, c);
    draw(word, d / 64 * 16 + d % 16, 0, (uint64_t)key[1] << 32 | key[0]);
    return word[d / 16 % 4];
}

uint64_t sheaf__name_key(const char *name)
{
    return sheaf__fnv(SHEAF__FNV, name, strlen(name));
}

uint32_t sheaf__random_tensor_u32(uint64_t seed, uint64_t name_key, uint64_t index)
{
    uint32_t word[4];
    draw(word, index, name_key, seed ^ TENSOR_TAG);
    return word[0];
}

float sheaf__unit_float(uint32_t u)
{
    return ((float)(u >> 9) + 0.5f) * 0x1p-23f;
}

float sheaf__random_normal(uint64_t seed, uint64_t name_key, uint64_t index)
{
    uint32_t word[4];
    draw(word, index, name_key, seed ^ TENSOR_TAG);
    const double u = ((double)word[0] + 0.5) * 0x1p-32;
    const double turn = ((double)word[1] + 0.5) * 0x1p-32;
    return (float)(sqrt(-2 * sheaf__log_d(u)) * sheaf__cos_d(turn * 0x1.921fb54442d18p+2));
}

/* A keyed bijection of [0, 2^(2 half)): eight Feistel rounds. */
static uint64_t feistel(uint64_t x, int half, uint64_t key)
{
    const uint64_t mask = (UINT64_C(1) << half) - 1;
    uint64_t left = x >> half, right = x & mask;
    for (uint64_t round = 0; round < 8; round++) {
        uint32_t word[4];
        draw(word, right, round, key);
        const uint64_t next = (left ^ first_two(word)) & mask;
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
        draw(word, left, round, key);
        const uint64_t before = (right ^ first_two(word)) & mask;
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
    draw(word, epoch, 0, seed ^ ORDER_TAG);
    do
        i = next(i, half, first_two(word));
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
