/* pictures.h - small PNG files made by hand, for tests that need pictures. */
#pragma once

#include "tests/check.h"

#include "base/file.h"
#include "formats/zip.h"

static inline size_t png_number(uint8_t *to, uint32_t x)
{
    for (int i = 0; i < 4; i++)
        to[i] = (uint8_t)(x >> (24 - 8 * i));
    return 4;
}

static inline size_t png_chunk(uint8_t *to, const char *kind, const void *data, size_t size)
{
    png_number(to, (uint32_t)size);
    memcpy(to + 4, kind, 4);
    if (size > 0)
        memcpy(to + 8, data, size);
    png_number(to + 8 + size, sheaf__crc32(0, to + 4, size + 4));
    return size + 12;
}

/* put_pixels - width x height pixels of red, green and blue, not compressed (at most 65535 bytes).
 */
static inline void put_pixels(const char *path, int width, int height, const uint8_t *pixel)
{
    const size_t row = 3 * (size_t)width, size = (size_t)height * (1 + row);
    assert_true(size < 65536);
    uint8_t *file = malloc(size + 200), *raw = malloc(size + 20), head[13] = { 0 };
    assert_true(file != NULL && raw != NULL);
    uint32_t a = 1, b = 0;
    size_t at = 0, n = 0;
    static const uint8_t begin[2] = { 0x78, 0x01 };
    memcpy(raw, begin, 2);
    raw[2] = 1; /* the last block, stored */
    raw[3] = (uint8_t)size;
    raw[4] = (uint8_t)(size >> 8);
    raw[5] = (uint8_t)~raw[3];
    raw[6] = (uint8_t)~raw[4];
    for (at = 0; at < size; at++) {
        const uint8_t byte = at % (1 + row) == 0 ? 0 : *pixel++;
        raw[7 + at] = byte;
        a = (a + byte) % 65521;
        b = (b + a) % 65521;
    }
    png_number(raw + 7 + size, b << 16 | a);
    png_number(head, (uint32_t)width);
    png_number(head + 4, (uint32_t)height);
    head[8] = 8;
    head[9] = 2; /* red, green, blue */
    memcpy(file, "\x89PNG\r\n\x1a\n", 8);
    n = 8;
    n += png_chunk(file + n, "IHDR", head, 13);
    n += png_chunk(file + n, "IDAT", raw, size + 11);
    n += png_chunk(file + n, "IEND", NULL, 0);
    CHECK_OK(sheaf__file_write_whole(path, file, n));
    free(file);
    free(raw);
}

/* put_picture - pixels of noise that follows from the seed. */
static inline void put_picture(const char *path, int width, int height, uint32_t seed)
{
    uint8_t *pixel = malloc(3 * (size_t)width * (size_t)height), *to = pixel;
    assert_non_null(pixel);
    for (int at = 0; at < height * (1 + 3 * width); at++) {
        seed = seed * 1664525 + 1013904223;
        if (at % (1 + 3 * width) > 0)
            *to++ = (uint8_t)(seed >> 24);
    }
    put_pixels(path, width, height, pixel);
    free(pixel);
}
