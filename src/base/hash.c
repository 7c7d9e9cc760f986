/* hash.c - see hash.h. Where there is hash_avx2.c, the library's own code is compiled in, here as
 * there, so that both take one form of state. */
#ifndef SHEAF_NO_X86
#define XXH_INLINE_ALL
#endif
#include <xxhash.h>

#include "base/hash.h"

#include "base/cpu.h"

#include <stdio.h>

#ifdef SHEAF_NO_X86
#define AVX2 false
#else
#define AVX2 SHEAF__CPU_HAS("avx2")
#endif

sheaf_hash sheaf__hash(const void *bytes, size_t size)
{
    if (AVX2)
        return sheaf__hash_avx2(bytes, size);
    const XXH128_hash_t hash = XXH3_128bits(bytes, size);
    return (sheaf_hash){ hash.high64, hash.low64 };
}

sheaf_hasher *sheaf__hasher_new(void)
{
    XXH3_state_t *state = XXH3_createState();
    if (state != NULL)
        XXH3_128bits_reset(state);
    return (sheaf_hasher *)state;
}

void sheaf__hasher_add(sheaf_hasher *hasher, const void *bytes, size_t size)
{
    if (AVX2)
        sheaf__hasher_add_avx2(hasher, bytes, size);
    else
        XXH3_128bits_update((XXH3_state_t *)hasher, bytes, size);
}

sheaf_hash sheaf__hasher_end(sheaf_hasher *hasher)
{
    const XXH128_hash_t hash = XXH3_128bits_digest((XXH3_state_t *)hasher);
    XXH3_128bits_reset((XXH3_state_t *)hasher);
    return (sheaf_hash){ hash.high64, hash.low64 };
}

void sheaf__hasher_free(sheaf_hasher *hasher)
{
    XXH3_freeState((XXH3_state_t *)hasher);
}

void sheaf__hash_bytes(unsigned char out[16], sheaf_hash hash)
{
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, (XXH128_hash_t){ .low64 = hash.low, .high64 = hash.high });
    for (int i = 0; i < 16; i++)
        out[i] = canonical.digest[i];
}

const char *sheaf__hash_text(char out[33], sheaf_hash hash)
{
    unsigned char bytes[16];
    sheaf__hash_bytes(bytes, hash);
    for (int i = 0; i < 16; i++)
        snprintf(out + 2 * i, 3, "%02x", bytes[i]);
    return out;
}
