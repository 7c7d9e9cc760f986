/* hash.h - XXH3-128 with seed 0, as fast as this processor hashes. */
#ifndef SHEAF_BASE_HASH_H
#define SHEAF_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

/* In the order of its canonical form: `high` comes first, each big-endian. */
typedef struct sheaf_hash {
    uint64_t high, low;
} sheaf_hash;

sheaf_hash sheaf__hash(const void *bytes, size_t size);
/* The same values; compiled for AVX2, where the library at hand may be compiled for less. */
sheaf_hash sheaf__hash_avx2(const void *bytes, size_t size);
/* The canonical form: in memory, and as 32 digits. */
void sheaf__hash_bytes(unsigned char out[16], sheaf_hash hash);
const char *sheaf__hash_text(char out[33], sheaf_hash hash);

#endif
