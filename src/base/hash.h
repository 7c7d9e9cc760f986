/* hash.h - XXH3-128 with seed 0, as fast as this processor hashes; and FNV-1a for short keys. */
#pragma once

#include "base/base.h"

/* In the order of its canonical form: `high` comes first, each big-endian. */
typedef struct sheaf_hash {
    uint64_t high, low;
} sheaf_hash;

static inline bool sheaf__hash_equal(sheaf_hash a, sheaf_hash b)
{
    return a.high == b.high && a.low == b.low;
}

sheaf_hash sheaf__hash(const void *bytes, size_t size);
/* The same of bytes that come one after the other. NULL: no memory. */
typedef struct sheaf_hasher sheaf_hasher;
sheaf_hasher *sheaf__hasher_new(void);
void sheaf__hasher_add(sheaf_hasher *hasher, const void *bytes, size_t size);
sheaf_hash sheaf__hasher_end(sheaf_hasher *hasher); /* and begins anew */
void sheaf__hasher_free(sheaf_hasher *hasher);      /* accepts NULL */
/* The same values, of code for AVX2. */
sheaf_hash sheaf__hash_avx2(const void *bytes, size_t size);
void sheaf__hasher_add_avx2(sheaf_hasher *hasher, const void *bytes, size_t size);

/* The canonical form: in memory, and as 32 digits. */
void sheaf__hash_bytes(unsigned char out[16], sheaf_hash hash);
const char *sheaf__hash_text(char out[33], sheaf_hash hash);

/* sheaf__fnv - 64-bit FNV-1a of what `hash` stands for, SHEAF__FNV for nothing, and these bytes. */
#define SHEAF__FNV UINT64_C(0xcbf29ce484222325)
static inline uint64_t sheaf__fnv(uint64_t hash, const void *bytes, size_t size)
{
    const unsigned char *byte = bytes;
    for (size_t i = 0; i < size; i++)
        hash = (hash ^ byte[i]) * UINT64_C(0x100000001b3);
    return hash;
}
