/* image.h - pictures from files to the numbers a vision model reads.
 *
 * JPEG, PNG and WebP, recognised by their content, become 8-bit RGB as Pillow's
 * ImageOps.exif_transpose(Image.open(path)).convert("RGB") gives it; the resize is Pillow's
 * bicubic, bit for bit; the normalisation is torchvision's ToTensor and Normalize. docs/images.md
 * lists what is read, the limits, and what is refused although Pillow accepts it. No floating-point
 * function of libm takes part: every machine gives the same bytes. */
#pragma once

#include <pthread.h>

#include "base/base.h"
#include "sheaf/status.h"

/* Pillow's bound: more pixels are an error in Pillow too. */
#define SHEAF_IMAGE_MAX_PIXELS 178956970
/* A larger width or height is an error. */
#define SHEAF_IMAGE_MAX_SIDE 65535
/* The most bytes of a picture's file. */
#define SHEAF_IMAGE_MAX_FILE ((size_t)256 << 20)

typedef struct sheaf_image {
    int64_t width, height;
    uint8_t *pixels; /* [height, width, 3] red, green, blue; owned; NULL: its size alone */
} sheaf_image;

/* Mean and standard deviation that pixels are normalised by, per channel. */
typedef struct sheaf_image_scale {
    float mean[3], std[3];
} sheaf_image_scale;

/* sheaf_image_clip_scale - CLIP's, which CogVLM, CogAgent and OmniLMM use. */
extern const sheaf_image_scale sheaf_image_clip_scale;

/* sheaf_image_load - reads a picture (sheaf__image_bytes()) and turns it upright as its EXIF
 * orientation says.
 *
 *   out  untouched on failure; sheaf_image_release() it
 *
 * Decodes the first frame of an animation; drops transparency without blending. Memory meanwhile:
 * the file, and 3 bytes a pixel; 3 more when the picture is turned; 2 more per channel for a
 * progressive JPEG, 4 more for a lossless WebP and for transparency. Errors: SHEAF_E_IO;
 * SHEAF_E_FORMAT for a damaged file or one that is no picture, with what was found;
 * SHEAF_E_UNSUPPORTED for other image formats and for more pixels than allowed; SHEAF_E_MEMORY.
 * Thread-safe. */
sheaf_status *sheaf_image_load(sheaf_image *out, const char *path);
/* sheaf__image_is_data - is a picture's path none, but the picture: "data:image/png;base64,..."? */
bool sheaf__image_is_data(const char *path);
/* sheaf__image_shown - the bytes of a picture's path that a message shows, for "%.*s". */
int sheaf__image_shown(const char *path);
/* sheaf__image_bytes - the picture of a path, as a file has it (malloc'd). Errors: SHEAF_E_IO;
 * SHEAF_E_DATA for data that are no base64 text; SHEAF_E_MEMORY. */
sheaf_status *sheaf__image_bytes(char **bytes, size_t *size, const char *path);
/* A picture with more pixels is large. */
#define SHEAF_IMAGE_COMMON_PIXELS (1 << 24)
typedef struct sheaf_image_decoding {
    int64_t max_pixels; /* 0: SHEAF_IMAGE_MAX_PIXELS, which is also the most */
    /* Transparency (alpha, tRNS) is laid on white, as Pillow's alpha_composite() does it after
     * convert("RGBA"); else it is dropped. */
    bool on_white;
    /* Width and height alone, from the headers: pixels stay NULL, and damage behind them unseen. */
    bool size_only;
    /* NULL: it is. Else called between rows of a PNG or JPEG; true ends it with SHEAF_E_STOPPED. */
    bool (*unwanted)(void *self);
    void *self;
    /* A lock of threads that decode in parallel: one large picture at a time, with it held, as each
     * takes 3 bytes a pixel and more. NULL: no other thread decodes. */
    pthread_mutex_t *large;
} sheaf_image_decoding;
/* sheaf_image_decode - the same from a file's bytes.
 *   how  NULL: all zero */
sheaf_status *sheaf_image_decode(sheaf_image *out, const void *bytes, size_t size,
                                 const sheaf_image_decoding *how);
/* sheaf_image_release - all zero is fine. */
void sheaf_image_release(sheaf_image *image);

/* sheaf_image_resize - Image.resize((width, height), BICUBIC) of Pillow.
 *
 *   out  [height, width, 3], given by the caller; must not be image->pixels
 *
 * Errors: SHEAF_E_ARG for a size below 1 or above SHEAF_IMAGE_MAX_SIDE; SHEAF_E_MEMORY. */
sheaf_status *sheaf_image_resize(uint8_t *out, const sheaf_image *image, int64_t width,
                                 int64_t height);

/* sheaf_image_normalise - out[c,y,x] = (pixels[y,x,c] / 255 - mean[c]) / std[c], each step rounded
 * to float32.
 *
 *   out     [3, count]
 *   pixels  [count, 3] */
void sheaf_image_normalise(float *out, const uint8_t *pixels, int64_t count,
                           const sheaf_image_scale *scale);

/* sheaf_image_prepare - resizes to width x height, ignoring the aspect ratio, and normalises: the
 * input of a vision tower.
 *
 *   out  [3, height, width]
 *
 * Errors: those of sheaf_image_resize(). */
sheaf_status *sheaf_image_prepare(float *out, const sheaf_image *image, int64_t width,
                                  int64_t height, const sheaf_image_scale *scale);
