/* slices.c - see slices.h.
 *
 * Upstream computes in double precision, and so does this, step by step. The one function of libm
 * there is the logarithm, by which grids are compared; here it is computed with integers, so that
 * every machine chooses the same grid. It matters where two grids are equally near: a square
 * picture of six slices is 3 x 2, since log(3/2) is a bit smaller than -log(2/3) after rounding. */
#include "inputs/slices.h"

#include <math.h>

#include "base/base.h"

/* ---- the logarithm ---- */

typedef unsigned __int128 wide;

/* Bits behind the point. A double's are not enough: log(7/5) is within 0.005 of its last bit of the
 * middle between two. */
enum { FRACTION = 74 };
static const wide LN2 = (wide)UINT64_C(95265423098) << 37 | UINT64_C(31103299368);

static wide times(wide a, wide b) /* both below 2 */
{
    const wide high_a = a >> 64, high_b = b >> 64, low_a = (uint64_t)a, low_b = (uint64_t)b;
    return (high_a * high_b << (128 - FRACTION)) +
           ((high_a * low_b + low_a * high_b) >> (FRACTION - 64)) + (low_a * low_b >> FRACTION);
}

/* Of a positive number: ln x = e ln 2 + 2 artanh((m - 1) / (m + 1)), x = m 2^e, m from 1 to 2. */
static double logarithm(double x)
{
    int e;
    const wide one = (wide)1 << 52, m = (uint64_t)ldexp(frexp(x, &e), 53); /* exact */
    const wide s = ((m - one) << FRACTION) / (m + one), square = times(s, s);
    wide sum = 0, power = s;
    for (uint64_t k = 1; power != 0; k += 2) {
        sum += power / k;
        power = times(power, square);
    }
    const __int128 all = (e - 1) * (__int128)LN2 + 2 * (__int128)sum;
    return ldexp((double)all, -FRACTION);
}

/* ---- sizes ---- */

/* ensure_divide() */
static int64_t multiple(double length, int64_t unit)
{
    const int64_t n = sheaf__rounded(length / (double)unit) * unit;
    return n < unit ? unit : n;
}

/* find_best_resize() */
static void fit(int64_t *out_width, int64_t *out_height, double width, double height,
                const sheaf__slicing *how, bool enlarge)
{
    const double side = (double)how->resolution;
    if (width * height > side * side || enlarge) {
        const double shape = width / height;
        height = floor(side / sqrt(shape));
        width = floor(height * shape);
    }
    *out_width = multiple(width, how->patch);
    *out_height = multiple(height, how->patch);
}

/* ---- the grid ---- */

/* The grid with the nearest aspect ratio of those with n - 1, n or n + 1 slices; the first of
 * equals. */
static void choose_grid(sheaf__sliced *s, double shape, int64_t n, int64_t most)
{
    const double wanted = logarithm(shape);
    double least = INFINITY;
    s->columns = s->rows = 1;
    for (int64_t slices = n - 1; slices <= n + 1; slices++)
        for (int64_t columns = 1; slices != 1 && slices <= most && columns <= slices; columns++) {
            if (slices % columns != 0)
                continue;
            const int64_t rows = slices / columns;
            const double error = fabs(wanted - logarithm((double)columns / (double)rows));
            if (error < least) {
                least = error;
                s->columns = columns;
                s->rows = rows;
            }
        }
}

static sheaf_status *check_sides(const sheaf__sliced *s, int64_t width, int64_t height)
{
    const int64_t most = SHEAF_IMAGE_MAX_SIDE;
    if (s->width <= most && s->height <= most && s->columns * s->slice_width <= most &&
        s->rows * s->slice_height <= most)
        return NULL;
    sheaf_status *st = sheaf_fail(SHEAF_E_UNSUPPORTED, "image");
    sheaf_expected(st, "a shape whose longer side stays below %" PRId64 " pixels once resized",
                   most + 1);
    sheaf_found(st, "%" PRId64 " x %" PRId64, width, height);
    return sheaf_try_this(st, "cut the picture into pieces of a usual shape");
}

sheaf_status *sheaf__slice(sheaf__sliced *out, int64_t width, int64_t height,
                           const sheaf__slicing *how)
{
    const double w = (double)width, h = (double)height;
    const double area = (double)(how->resolution * how->resolution);
    const double ratio = ceil(w * h / area);
    const int64_t n = ratio < (double)how->most ? (int64_t)ratio : how->most;
    *out = (sheaf__sliced){ 0 };
    fit(&out->width, &out->height, w, h, how, n <= 1);
    if (n > 1) {
        choose_grid(out, w / h, n, how->most);
        const int64_t c = out->columns, r = out->rows;
        fit(&out->slice_width, &out->slice_height, (double)(multiple(w, c) / c),
            (double)(multiple(h, r) / r), how, true);
    }
    return check_sides(out, width, height);
}

/* ---- a size of its own ---- */

enum { MOST_RATIO = 200 };

static int64_t at_least(int64_t unit, double n)
{
    return n < 1 ? unit : (int64_t)n * unit;
}

/* Frames count together, and are made as large as a unit first. */
sheaf_status *sheaf__fit_pixels(sheaf__sliced *out, int64_t width, int64_t height,
                                const sheaf__fitting *how)
{
    const double side = (double)how->unit, n = how->frames > 0 ? (double)how->frames : 1;
    const int64_t counted =
        how->frames > 0 ? sheaf__rounded(n / (double)how->group) * how->group : 1;
    double w = (double)width, h = (double)height;
    if (how->frames > 0 && (width < how->unit || height < how->unit)) {
        const double by = side / h > side / w ? side / h : side / w;
        w = floor(w * by);
        h = floor(h * by);
    }
    *out = (sheaf__sliced){ .width = sheaf__rounded(w / side) * how->unit,
                            .height = sheaf__rounded(h / side) * how->unit };
    if (w > MOST_RATIO * h || h > MOST_RATIO * w)
        return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "image"),
                                          "sides of which none is more than %d times the other",
                                          MOST_RATIO),
                           "%" PRId64 " x %" PRId64, width, height);
    if (counted * out->width * out->height > how->most) {
        const double by = sqrt(n * h * w / (double)how->most);
        out->width = at_least(how->unit, floor(w / by / side));
        out->height = at_least(how->unit, floor(h / by / side));
    } else if (counted * out->width * out->height < how->least) {
        const double by = sqrt((double)how->least / (n * h * w));
        out->width = (int64_t)ceil(w * by / side) * how->unit;
        out->height = (int64_t)ceil(h * by / side) * how->unit;
    }
    if (out->width == 0 || out->height == 0) /* no area is requested */
        return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "image"),
                                          "sides of at least %" PRId64 " pixels",
                                          (how->unit + 1) / 2),
                           "%" PRId64 " x %" PRId64, width, height);
    return check_sides(out, width, height);
}

/* ---- pixels ---- */

/* Copies a slice from the resized picture, whose rows have `bytes` bytes. */
static uint8_t *cut(uint8_t *out, const uint8_t *from, int64_t bytes, const sheaf__sliced *s)
{
    const size_t line = (size_t)s->slice_width * 3;
    for (int64_t y = 0; y < s->slice_height; y++, out += line)
        memcpy(out, from + y * bytes, line);
    return out;
}

sheaf_status *sheaf__slice_image(uint8_t *out, const sheaf_image *image, const sheaf__sliced *s)
{
    sheaf_status *st = sheaf_image_resize(out, image, s->width, s->height);
    if (st != NULL || s->columns == 0)
        return st;
    out += s->width * s->height * 3;
    const int64_t width = s->columns * s->slice_width, height = s->rows * s->slice_height;
    uint8_t *all = malloc((size_t)(width * height) * 3);
    if (all == NULL)
        return sheaf_fail(SHEAF_E_MEMORY, "image of %" PRId64 " x %" PRId64 ": out of memory",
                          width, height);
    st = sheaf_image_resize(all, image, width, height);
    for (int64_t r = 0; r < s->rows && st == NULL; r++)
        for (int64_t c = 0; c < s->columns; c++)
            out = cut(out, all + (r * s->slice_height * width + c * s->slice_width) * 3, width * 3,
                      s);
    free(all);
    return st;
}
