/* image_decode.c - helpers of all decoders; see image_decode.h. */
#include "inputs/image_decode.h"

sheaf_status *sheaf__image_new(sheaf_image *out, int64_t width, int64_t height,
                               const sheaf__image_in *in)
{
    if (width < 1 || height < 1) {
        sheaf_status *st = sheaf_fail(SHEAF_E_FORMAT, "image size");
        return sheaf_found(sheaf_expected(st, "at least 1 x 1"), "%" PRId64 " x %" PRId64, width,
                           height);
    }
    if (width > SHEAF_IMAGE_MAX_SIDE || height > SHEAF_IMAGE_MAX_SIDE ||
        width * height > in->max_pixels) {
        sheaf_status *st = sheaf_fail(SHEAF_E_UNSUPPORTED, "image size");
        sheaf_expected(st, "at most %" PRId64 " pixels, no side above %d", in->max_pixels,
                       SHEAF_IMAGE_MAX_SIDE);
        sheaf_found(st, "%" PRId64 " x %" PRId64, width, height);
        return sheaf_try_this(
            st, "make the picture smaller; a model reads at most a few million pixels of it");
    }
    uint8_t *pixels = in->size_only ? NULL : malloc((size_t)(width * height) * 3);
    if (pixels == NULL && !in->size_only)
        return sheaf_fail(SHEAF_E_MEMORY, "image of %" PRId64 " x %" PRId64 ": out of memory",
                          width, height);
    *out = (sheaf_image){ width, height, pixels };
    return NULL;
}

void sheaf__image_lay(uint8_t *out, const uint8_t *rgba, int64_t pixels)
{
    for (int64_t i = 0; i < pixels; i++, out += 3, rgba += 4)
        for (int c = 0; c < 3; c++)
            out[c] = sheaf__image_laid(rgba[c], rgba[3]);
}

sheaf_status *sheaf__image_stopped(void)
{
    return sheaf_found(sheaf_fail(SHEAF_E_STOPPED, "image data"), "its request was cancelled");
}

sheaf_status *sheaf__image_damaged(const char *kind, const char *library, const char *reason)
{
    sheaf_status *st = sheaf_fail(SHEAF_E_FORMAT, "image data");
    sheaf_expected(st, "a %s without damage", kind);
    return sheaf_found(st, "%s says: %s", library, reason);
}

sheaf_status *sheaf__image_cut_short(const sheaf__image_in *in, int64_t row, int64_t rows)
{
    sheaf_status *st = sheaf_expected(sheaf_fail(SHEAF_E_FORMAT, "image data"), "a whole file");
    if (rows == 0)
        return sheaf_found(st, "the end of the file after %zu bytes", in->size);
    return sheaf_found(st, "the end of the file after %zu bytes, at row %" PRId64 " of %" PRId64,
                       in->size, row, rows);
}

static uint32_t number(const uint8_t *p, int bytes, bool big)
{
    uint32_t n = 0;
    for (int i = 0; i < bytes; i++)
        n = n << 8 | p[i];
    return big ? n : (uint32_t)sheaf__little(p, bytes);
}

/* TIFF: "II" or "MM", 42, the offset of a directory; that is a count and entries of 12 bytes:
 * tag, type, number of values, value. */
int sheaf__image_orientation(const uint8_t *exif, size_t size)
{
    enum { TAG = 0x0112, SHORT = 3, LONG = 4, SBYTE = 6, SSHORT = 8, SLONG = 9 };
    int orientation = 1;
    if (size >= 6 && memcmp(exif, "Exif\0\0", 6) == 0) {
        exif += 6;
        size -= 6;
    }
    if (size < 8 || (memcmp(exif, "II*\0", 4) != 0 && memcmp(exif, "MM\0*", 4) != 0))
        return 1;
    const bool big = exif[0] == 'M';
    const size_t at = number(exif + 4, 4, big);
    if (at > size - 2)
        return 1;
    const size_t capacity = (size - at - 2) / 12, declared = number(exif + at, 2, big),
                 n = declared < capacity ? declared : capacity;
    for (size_t i = 0; i < n; i++) {
        const uint8_t *entry = exif + at + 2 + 12 * i;
        const uint32_t type = number(entry + 2, 2, big);
        const int bytes = type == SHORT || type == SSHORT ? 2
                          : type == LONG || type == SLONG ? 4
                          : type == SBYTE                 ? 1
                                                          : 0;
        const size_t all = (size_t)bytes * number(entry + 4, 4, big); /* of its values */
        const size_t from = all <= 4 ? (size_t)(entry + 8 - exif) : number(entry + 8, 4, big);
        if (number(entry, 2, big) != TAG || all == 0 || from > size || all > size - from)
            continue;
        const uint32_t value = number(exif + from, bytes, big); /* the first */
        orientation = value >= 1 && value <= 8 ? (int)value : 1;
    }
    return orientation;
}

void sheaf_image_release(sheaf_image *image)
{
    free(image->pixels);
    *image = (sheaf_image){ 0 };
}
