/* image_decode.h - between image.c, which recognises the format, and the decoders. */
#pragma once

#include "inputs/image.h"

typedef struct sheaf__image_in {
    const uint8_t *bytes;
    size_t size;
    int64_t max_pixels;       /* not 0 */
    bool on_white, size_only; /* of sheaf_image_decoding */
    bool (*unwanted)(void *self);
    void *self;
} sheaf__image_in;

/* Each decodes bytes that begin like its format, and does not rotate the picture. The caller zeroes
 * *out before and releases it also after a failure, and sets *orientation to 1, which stays if the
 * file has none or an invalid one. */
sheaf_status *sheaf__image_jpeg(sheaf_image *out, int *orientation, const sheaf__image_in *in);
sheaf_status *sheaf__image_png(sheaf_image *out, int *orientation, const sheaf__image_in *in);
sheaf_status *sheaf__image_webp(sheaf_image *out, int *orientation, const sheaf__image_in *in);

/* sheaf__image_new - checks the size against the limits and, unless the size alone is read,
 * allocates out->pixels, not cleared. */
sheaf_status *sheaf__image_new(sheaf_image *out, int64_t width, int64_t height,
                               const sheaf__image_in *in);
/* sheaf__image_laid - a byte with this alpha on white, by the integers of Pillow's
 * alpha_composite(). */
static inline uint8_t sheaf__image_laid(uint8_t value, uint8_t alpha)
{
    const uint32_t sum = (uint32_t)value * alpha + 255u * (255u - alpha) + 128u;
    return (uint8_t)((sum + (sum >> 8)) >> 8);
}
/* sheaf__image_lay - pixels of red, green, blue and alpha on white; `out` may begin where `rgba`
 * does. */
void sheaf__image_lay(uint8_t *out, const uint8_t *rgba, int64_t pixels);
/* sheaf__image_unwanted - is the rest of the rows of no use? sheaf__image_stopped - the error. */
static inline bool sheaf__image_unwanted(const sheaf__image_in *in)
{
    return in->unwanted != NULL && in->unwanted(in->self);
}
sheaf_status *sheaf__image_stopped(void);
/* sheaf__image_damaged - the error with the message of the format's library. */
sheaf_status *sheaf__image_damaged(const char *kind, const char *library, const char *reason);
/* sheaf__image_cut_short - the file ends at `row` of `rows` (0: before they are known). */
sheaf_status *sheaf__image_cut_short(const sheaf__image_in *in, int64_t row, int64_t rows);
/* sheaf__image_orientation - from EXIF data (a TIFF header and its first directory), with or
 * without "Exif\0\0" before it. */
int sheaf__image_orientation(const uint8_t *exif, size_t size);
