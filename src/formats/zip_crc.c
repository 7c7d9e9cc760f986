/* zip_crc.c - see zip_crc.h.
 *
 * Folding by carry-less multiplication: Gopal et al., "Fast CRC computation for generic
 * polynomials using PCLMULQDQ", Intel 2009; the constants are x^n mod P of its figures, reflected.
 */
#include "zip_crc.h"

#include <stdbool.h>
#ifndef SHEAF_NO_X86
#include <immintrin.h>
#endif

#define POLYNOMIAL 0xedb88320u

/* The register (not inverted) after these bytes. */
static uint32_t feed_plain(uint32_t crc, const unsigned char *p, size_t n)
{
    static const uint32_t nibble[16] = {
        0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac, 0x76dc4190, 0x6b6b51f4,
        0x4db26158, 0x5005713c, 0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c,
        0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c,
    };
    for (size_t i = 0; i < n; i++) {
        crc ^= p[i];
        crc = crc >> 4 ^ nibble[crc & 15];
        crc = crc >> 4 ^ nibble[crc & 15];
    }
    return crc;
}

#ifndef SHEAF_NO_X86
__attribute__((target("pclmul,sse4.1"))) static __m128i fold(__m128i x, __m128i by, __m128i next)
{
    const __m128i low = _mm_clmulepi64_si128(x, by, 0x00), high = _mm_clmulepi64_si128(x, by, 0x11);
    return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

/* At least 64 bytes, a multiple of 16. */
__attribute__((target("pclmul,sse4.1"))) static uint32_t
feed_folding(uint32_t crc, const unsigned char *p, size_t n)
{
    const __m128i by4 = _mm_set_epi64x(0x1c6e41596, 0x154442bd4),
                  by1 = _mm_set_epi64x(0x0ccaa009e, 0x1751997d0);
    const __m128i *in = (const __m128i *)p;
    __m128i x0 = _mm_xor_si128(_mm_loadu_si128(in), _mm_cvtsi32_si128((int)crc));
    __m128i x1 = _mm_loadu_si128(in + 1), x2 = _mm_loadu_si128(in + 2),
            x3 = _mm_loadu_si128(in + 3);
    for (in += 4, n -= 64; n >= 64; in += 4, n -= 64) {
        x0 = fold(x0, by4, _mm_loadu_si128(in));
        x1 = fold(x1, by4, _mm_loadu_si128(in + 1));
        x2 = fold(x2, by4, _mm_loadu_si128(in + 2));
        x3 = fold(x3, by4, _mm_loadu_si128(in + 3));
    }
    x0 = fold(fold(fold(x0, by1, x1), by1, x2), by1, x3);
    for (; n >= 16; in++, n -= 16)
        x0 = fold(x0, by1, _mm_loadu_si128(in));
    /* 128 bits to 64, then Barrett's reduction to 32. */
    const __m128i words = _mm_setr_epi32(~0, 0, ~0, 0);
    x0 = _mm_xor_si128(_mm_srli_si128(x0, 8), _mm_clmulepi64_si128(x0, by1, 0x10));
    x1 = _mm_clmulepi64_si128(_mm_and_si128(x0, words), _mm_set_epi64x(0, 0x163cd6124), 0x00);
    x0 = _mm_xor_si128(_mm_srli_si128(x0, 4), x1);
    const __m128i reduce = _mm_set_epi64x(0x1f7011641, 0x1db710641);
    x1 = _mm_clmulepi64_si128(_mm_and_si128(x0, words), reduce, 0x10);
    x1 = _mm_clmulepi64_si128(_mm_and_si128(x1, words), reduce, 0x00);
    return (uint32_t)_mm_extract_epi32(_mm_xor_si128(x0, x1), 1);
}
#endif

static uint32_t feed(uint32_t crc, const unsigned char *p, size_t n)
{
#ifndef SHEAF_NO_X86
    if (n >= 64 && __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1")) {
        const size_t most = n / 16 * 16;
        crc = feed_folding(crc, p, most);
        p += most;
        n -= most;
    }
#endif
    return feed_plain(crc, p, n);
}

uint32_t sheaf__crc32(uint32_t crc, const void *bytes, size_t size)
{
    return ~feed(~crc, bytes, size);
}

uint32_t sheaf__crc32_plain(uint32_t crc, const void *bytes, size_t size)
{
    return ~feed_plain(~crc, bytes, size);
}

/* a * b mod P; bit 31 is x^0. */
static uint32_t multiply(uint32_t a, uint32_t b)
{
    uint32_t product = 0;
    for (; a != 0; a <<= 1) {
        if (a >> 31)
            product ^= b;
        b = b & 1 ? b >> 1 ^ POLYNOMIAL : b >> 1;
    }
    return product;
}

/* The register after `zeros` more zero bytes: times x^(8 zeros). */
static uint32_t shift(uint32_t crc, uint64_t zeros)
{
    for (uint32_t square = 1u << (31 - 8); zeros != 0 && crc != 0;
         zeros >>= 1, square = multiply(square, square))
        if (zeros & 1)
            crc = multiply(crc, square);
    return crc;
}

uint32_t sheaf__crc32_part(const void *bytes, size_t size, uint64_t after)
{
    return shift(feed(0, bytes, size), after);
}

uint32_t sheaf__crc32_whole(uint32_t parts, uint64_t size)
{
    return ~(parts ^ shift(~0u, size));
}
