/* image_resize.c - Pillow's bicubic resize and torchvision's normalisation; see image.h.
 *
 * Pillow (src/libImaging/Resample.c) filters each axis on its own, with 8 bits between the two: out
 * = clip((half + sum of pixel * weight) >> 22), weights in fixed point of 22 bits. Where the
 * picture shrinks, the kernel is stretched by the same factor. An axis whose length does not change
 * is skipped. The order of the axes changes the last bit: see rows_first(). */
#include "base/base.h"
#include "inputs/image.h"

enum { PRECISION_BITS = 32 - 8 - 2 };

/* For each place of the result: the first place of the source, how many, and their weights. */
typedef struct taps {
    int64_t most; /* weights allocated for each place */
    int32_t *first, *count;
    int32_t *weight; /* [places, most] */
} taps;

static void taps_release(taps *t)
{
    free(t->first);
    free(t->count);
    free(t->weight);
    *t = (taps){ 0 };
}

/* Keys' cubic with a = -0.5, in Pillow's order of operations. */
static double bicubic(double x)
{
    const double a = -0.5;
    if (x < 0.0)
        x = -x;
    if (x < 1.0)
        return ((a + 2.0) * x - (a + 3.0)) * x * x + 1;
    if (x < 2.0)
        return (((x - 5) * x + 8) * x - 4) * a;
    return 0.0;
}

static int32_t fixed(double weight)
{
    return (int32_t)((weight < 0 ? -0.5 : 0.5) + weight * (1 << PRECISION_BITS));
}

static int64_t whole_above(double x) /* ceil() of a positive number */
{
    const int64_t n = (int64_t)x;
    return (double)n < x ? n + 1 : n;
}

/* The weights of place `at`, in `buffer`, then in t. */
static void place_taps(taps *t, int64_t at, double *buffer, int64_t from, double scale)
{
    const double filter_scale = scale < 1.0 ? 1.0 : scale, support = 2.0 * filter_scale;
    const double centre = ((double)at + 0.5) * scale, step = 1.0 / filter_scale;
    int64_t first = (int64_t)(centre - support + 0.5), end = (int64_t)(centre + support + 0.5);
    first = first < 0 ? 0 : first;
    end = end > from ? from : end;
    double sum = 0.0;
    for (int64_t i = first; i < end; i++) {
        buffer[i - first] = bicubic(((double)i - centre + 0.5) * step);
        sum += buffer[i - first];
    }
    for (int64_t i = first; i < end; i++)
        t->weight[at * t->most + i - first] =
            fixed(sum != 0.0 ? buffer[i - first] / sum : buffer[i - first]);
    t->first[at] = (int32_t)first;
    t->count[at] = (int32_t)(end - first);
}

/* From a side of `from` to one of `to`; both at most SHEAF_IMAGE_MAX_SIDE, so that at most
 * 4 * from + 3 * to weights are held. */
static sheaf_status *taps_init(taps *t, int64_t from, int64_t to)
{
    const double scale = (double)from / (double)to;
    t->most = whole_above(2.0 * (scale < 1.0 ? 1.0 : scale)) * 2 + 1;
    t->first = malloc((size_t)to * sizeof *t->first);
    t->count = malloc((size_t)to * sizeof *t->count);
    t->weight = malloc((size_t)(to * t->most) * sizeof *t->weight);
    double *buffer = malloc((size_t)t->most * sizeof *buffer);
    sheaf_status *st = NULL;
    if (t->first == NULL || t->count == NULL || t->weight == NULL || buffer == NULL)
        st = sheaf__no_memory("image resize: out of memory");
    for (int64_t i = 0; st == NULL && i < to; i++)
        place_taps(t, i, buffer, from, scale);
    free(buffer);
    return st;
}

static uint8_t clipped(int32_t sum)
{
    sum >>= PRECISION_BITS; /* arithmetic, as gcc and clang do it */
    return (uint8_t)(sum < 0 ? 0 : sum > 255 ? 255 : sum);
}

/* out[rows, width, 3] from in[rows, in_width, 3]. */
static void filter_columns(uint8_t *out, const uint8_t *in, int64_t rows, int64_t width,
                           int64_t in_width, const taps *t)
{
    for (int64_t y = 0; y < rows; y++, in += in_width * 3)
        for (int64_t x = 0; x < width; x++, out += 3) {
            const int32_t *weight = t->weight + x * t->most;
            const uint8_t *p = in + (int64_t)t->first[x] * 3;
            int32_t sum[3] = { 1 << (PRECISION_BITS - 1), 1 << (PRECISION_BITS - 1),
                               1 << (PRECISION_BITS - 1) };
            for (int32_t i = 0; i < t->count[x]; i++, p += 3)
                for (int c = 0; c < 3; c++)
                    sum[c] += p[c] * weight[i];
            for (int c = 0; c < 3; c++)
                out[c] = clipped(sum[c]);
        }
}

/* out[height, bytes] from rows [first, ...) of a picture, in[..., bytes]; sum: space for bytes
 * numbers. */
static void filter_rows(uint8_t *out, const uint8_t *in, int64_t first, int64_t height,
                        int64_t bytes, const taps *t, int32_t *sum)
{
    for (int64_t y = 0; y < height; y++, out += bytes) {
        const uint8_t *row = in + (t->first[y] - first) * bytes;
        for (int64_t x = 0; x < bytes; x++)
            sum[x] = 1 << (PRECISION_BITS - 1);
        for (int32_t i = 0; i < t->count[y]; i++, row += bytes) {
            const int32_t weight = t->weight[y * t->most + i];
            for (int64_t x = 0; x < bytes; x++)
                sum[x] += row[x] * weight;
        }
        for (int64_t x = 0; x < bytes; x++)
            out[x] = clipped(sum[x]);
    }
}

/* The axis that Pillow filters first when both change: since 13.0 the rows, if the height shrinks
 * by more than twice as many pixels as the width; else, and always before 13.0, the columns. */
static bool rows_first(const sheaf_image *image, int64_t width, int64_t height)
{
    return height < image->height && image->height - height > 2 * (image->width - width);
}

/* Resizes the rows, and the columns unless `across` is NULL. Filters only the columns of rows that
 * are needed. */
static sheaf_status *filter_both(uint8_t *out, const sheaf_image *image, int64_t width,
                                 int64_t height, const taps *across, const taps *down)
{
    const bool down_first = across == NULL || rows_first(image, width, height);
    const int64_t first = down->first[0], end = down->first[height - 1] + down->count[height - 1];
    const int64_t between_width = down_first ? image->width : width;
    uint8_t *between = malloc((size_t)((down_first ? height : end - first) * between_width * 3));
    int32_t *sum = malloc((size_t)(between_width * 3) * sizeof *sum);
    sheaf_status *st = NULL;
    if (between == NULL || sum == NULL) {
        st = sheaf__no_memory("image resize: out of memory");
    } else if (down_first) {
        filter_rows(across == NULL ? out : between, image->pixels, 0, height, image->width * 3,
                    down, sum);
        if (across != NULL)
            filter_columns(out, between, height, width, image->width, across);
    } else {
        filter_columns(between, image->pixels + first * image->width * 3, end - first, width,
                       image->width, across);
        filter_rows(out, between, first, height, width * 3, down, sum);
    }
    free(between);
    free(sum);
    return st;
}

static sheaf_status *check_size(int64_t width, int64_t height)
{
    if (width >= 1 && height >= 1 && width <= SHEAF_IMAGE_MAX_SIDE &&
        height <= SHEAF_IMAGE_MAX_SIDE)
        return NULL;
    sheaf_status *st = sheaf_fail(SHEAF_E_ARG, "image resize");
    sheaf_expected(st, "sides of 1 to %d", SHEAF_IMAGE_MAX_SIDE);
    return sheaf_found(st, "%" PRId64 " x %" PRId64, width, height);
}

sheaf_status *sheaf_image_resize(uint8_t *out, const sheaf_image *image, int64_t width,
                                 int64_t height)
{
    sheaf_status *st = check_size(width, height);
    if (st != NULL)
        return st;
    const bool same_width = width == image->width, same_height = height == image->height;
    taps across = { 0 }, down = { 0 };
    if (!same_width)
        st = taps_init(&across, image->width, width);
    if (st == NULL && !same_height)
        st = taps_init(&down, image->height, height);
    if (st == NULL && same_width && same_height)
        memcpy(out, image->pixels, (size_t)(width * height * 3));
    else if (st == NULL && same_height)
        filter_columns(out, image->pixels, height, width, image->width, &across);
    else if (st == NULL)
        st = filter_both(out, image, width, height, same_width ? NULL : &across, &down);
    taps_release(&across);
    taps_release(&down);
    return st;
}

/* ---- to floats ---- */

const sheaf_image_scale sheaf_image_clip_scale = {
    { 0.48145466f, 0.4578275f, 0.40821073f },
    { 0.26862954f, 0.26130258f, 0.27577711f },
};

void sheaf_image_normalise(float *out, const uint8_t *pixels, int64_t count,
                           const sheaf_image_scale *scale)
{
    for (int c = 0; c < 3; c++, out += count) {
        float value[256]; /* of each byte */
        for (int v = 0; v < 256; v++)
            value[v] = ((float)v / 255.0f - scale->mean[c]) / scale->std[c];
        for (int64_t i = 0; i < count; i++)
            out[i] = value[pixels[3 * i + c]];
    }
}

sheaf_status *sheaf_image_prepare(float *out, const sheaf_image *image, int64_t width,
                                  int64_t height, const sheaf_image_scale *scale)
{
    sheaf_status *st = check_size(width, height);
    uint8_t *pixels = st == NULL ? malloc((size_t)(width * height) * 3) : NULL;
    if (st == NULL && pixels == NULL)
        st = sheaf__no_memory("image resize: out of memory");
    TRY(st, sheaf_image_resize(pixels, image, width, height));
    if (st == NULL)
        sheaf_image_normalise(out, pixels, width * height, scale);
    free(pixels);
    return st;
}
