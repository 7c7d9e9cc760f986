/* image.c - recognises image formats and rotates pictures upright; see image.h. */
#include "base/base.h"
#include "inputs/image_decode.h"

#include <limits.h>

#include "base/file.h"

/* ---- recognising formats ---- */

typedef sheaf_status *(*decoder)(sheaf_image *, int *, const sheaf__image_in *);

typedef struct magic {
    size_t at, n;
    const char *bytes;
    const char *kind;
    decoder decode; /* NULL: known but unsupported */
} magic;

static const magic known[] = {
    { 0, 2, "\xff\xd8", "JPEG", sheaf__image_jpeg },
    { 0, 4, "\x89PNG", "PNG", sheaf__image_png },
    { 8, 4, "WEBP", "WebP", sheaf__image_webp },
    { 0, 4, "GIF8", "a GIF image", NULL },
    { 0, 4, "II*\0", "a TIFF image", NULL },
    { 0, 4, "MM\0*", "a TIFF image", NULL },
    { 4, 4, "ftyp", "an AVIF, HEIC or MP4 file", NULL },
    { 4, 4, "jP  ", "a JPEG 2000 image", NULL },
    { 4, 4, "JXL ", "a JPEG XL image", NULL },
    { 0, 2, "\xff\x0a", "a JPEG XL image", NULL },
    { 0, 4, "8BPS", "a Photoshop file", NULL },
    { 0, 4, "PK\3\4", "a zip archive", NULL },
    { 0, 2, "\x1f\x8b", "a gzip file", NULL },
    { 0, 2, "BM", "a BMP image", NULL },
};

static const magic *kind_of(const sheaf__image_in *in)
{
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (in->size >= known[i].at + known[i].n &&
            memcmp(in->bytes + known[i].at, known[i].bytes, known[i].n) == 0)
            return &known[i];
    return NULL;
}

/* Does the beginning look like UTF-8 without control characters? */
static bool is_text(const sheaf__image_in *in)
{
    const size_t n = in->size < 512 ? in->size : 512;
    for (size_t i = 0; i < n;) {
        const uint8_t c = in->bytes[i];
        const size_t length = sheaf__utf8_length(in->bytes + i, in->size - i);
        if (length == 0 || c == 0x7f || (c < 0x20 && c != '\t' && c != '\n' && c != '\r'))
            return false;
        i += length;
    }
    return n > 0;
}

static sheaf_status *not_a_picture(const sheaf__image_in *in, const magic *kind)
{
    static const char lfs[] = "version https://git-lfs";
    sheaf_status *st = sheaf_fail(kind == NULL ? SHEAF_E_FORMAT : SHEAF_E_UNSUPPORTED, "image");
    sheaf_expected(st, "JPEG, PNG or WebP");
    if (in->size == 0)
        return sheaf_found(st, "an empty file");
    if (kind != NULL) {
        sheaf_found(st, "%s", kind->kind);
        return sheaf_try_this(st, "convert it to PNG");
    }
    if (is_text(in)) {
        size_t n = 0; /* of its first line, without a partial character */
        while (n < in->size && n < 40 && in->bytes[n] >= 0x20)
            n++;
        while (n > 0 && n < in->size && (in->bytes[n] & 0xc0) == 0x80)
            n--;
        sheaf_found(st, "text that begins '%.*s'", (int)n, (const char *)in->bytes);
        if (in->size >= sizeof lfs - 1 && memcmp(in->bytes, lfs, sizeof lfs - 1) == 0)
            sheaf_try_this(st, "git lfs pull; this is the pointer, not the picture");
        return st;
    }
    char hex[3 * 8 + 1] = "";
    for (size_t i = 0; i < in->size && i < 8; i++)
        snprintf(hex + 3 * i, 4, " %02x", in->bytes[i]);
    return sheaf_found(st, "bytes that begin%s", hex);
}

/* ---- upright ---- */

/* The pixel (x, y) of the upright picture is (a, b) of the stored one, where (a, b) is (x, y), or
 * (y, x) if swapped, each then counted from the other end if mirrored. By orientation. */
static const struct {
    bool swap, mirror_x, mirror_y;
} turns[9] = {
    [2] = { false, true, false }, [3] = { false, true, true }, [4] = { false, false, true },
    [5] = { true, false, false }, [6] = { true, false, true }, [7] = { true, true, true },
    [8] = { true, true, false },
};

static sheaf_status *turn(sheaf_image *image, int orientation, const sheaf__image_in *in)
{
    if (orientation == 1)
        return NULL;
    const int64_t w = image->width, h = image->height;
    const bool swap = turns[orientation].swap;
    const bool mirror_x = turns[orientation].mirror_x, mirror_y = turns[orientation].mirror_y;
    sheaf_image out;
    sheaf_status *st = sheaf__image_new(&out, swap ? h : w, swap ? w : h, in);
    if (st != NULL)
        return st;
    for (int64_t y = 0; y < out.height && !in->size_only; y++)
        for (int64_t x = 0; x < out.width; x++) {
            int64_t a = swap ? y : x, b = swap ? x : y;
            a = mirror_x ? w - 1 - a : a;
            b = mirror_y ? h - 1 - b : b;
            memcpy(out.pixels + (y * out.width + x) * 3, image->pixels + (b * w + a) * 3, 3);
        }
    free(image->pixels);
    *image = out;
    return NULL;
}

/* ---- the whole ---- */

static sheaf_status *decode(sheaf_image *out, const sheaf__image_in *in)
{
    const magic *kind = is_text(in) ? NULL : kind_of(in);
    if (kind == NULL || kind->decode == NULL)
        return not_a_picture(in, kind);
    sheaf_image image = { 0 };
    int orientation = 1;
    sheaf_status *st = sheaf_in(kind->decode(&image, &orientation, in), "%s", kind->kind);
    TRY(st, turn(&image, orientation, in));
    if (st != NULL)
        sheaf_image_release(&image);
    else
        *out = image;
    return st;
}

sheaf_status *sheaf_image_decode(sheaf_image *out, const void *bytes, size_t size,
                                 const sheaf_image_decoding *how)
{
    const sheaf_image_decoding o = how == NULL ? (sheaf_image_decoding){ 0 } : *how;
    const int64_t most = o.max_pixels <= 0 || o.max_pixels > SHEAF_IMAGE_MAX_PIXELS
                             ? SHEAF_IMAGE_MAX_PIXELS
                             : o.max_pixels;
    sheaf__image_in in = { bytes, size, most, o.on_white, o.size_only, o.unwanted, o.self };
    if (o.large == NULL || o.size_only || most <= SHEAF_IMAGE_COMMON_PIXELS)
        return decode(out, &in);
    in.max_pixels = SHEAF_IMAGE_COMMON_PIXELS;
    sheaf_status *st = decode(out, &in);
    if (st == NULL || sheaf_status_code(st) != SHEAF_E_UNSUPPORTED)
        return st;
    sheaf_status_free(st);
    in.max_pixels = most;
    pthread_mutex_lock(o.large);
    st = decode(out, &in);
    pthread_mutex_unlock(o.large);
    return st;
}

static const char data[] = "data:", base64[] = ";base64,";

bool sheaf__image_is_data(const char *path)
{
    return strncmp(path, data, sizeof data - 1) == 0;
}

int sheaf__image_shown(const char *path)
{
    enum { DATA = 40 };
    return sheaf__image_is_data(path) ? DATA : INT_MAX;
}

sheaf_status *sheaf__image_bytes(char **bytes, size_t *size, const char *path)
{
    if (!sheaf__image_is_data(path))
        return sheaf__file_read_all(bytes, size, path, SHEAF_IMAGE_MAX_FILE);
    const char *text = strstr(path, base64);
    const size_t n = text == NULL ? 0 : strlen(text += sizeof base64 - 1);
    if (n / 4 * 3 > SHEAF_IMAGE_MAX_FILE)
        return sheaf_expected(
            sheaf_fail(SHEAF_E_UNSUPPORTED, "%.*s", sheaf__image_shown(path), path),
            "a picture of at most %zu bytes", SHEAF_IMAGE_MAX_FILE);
    char *own = malloc(n / 4 * 3 + 1);
    if (own == NULL)
        return sheaf__no_memory("a picture");
    *size = sheaf__base64_decode((unsigned char *)own, text == NULL ? "" : text, n);
    if (*size > 0) {
        *bytes = own;
        return NULL;
    }
    free(own);
    return sheaf_expected(sheaf_fail(SHEAF_E_DATA, "%.*s", sheaf__image_shown(path), path),
                          "data:image/png;base64,... (or jpeg, webp), in whole groups of four");
}

sheaf_status *sheaf_image_load(sheaf_image *out, const char *path)
{
    char *bytes = NULL;
    size_t size = 0;
    sheaf_status *st = sheaf__image_bytes(&bytes, &size, path);
    if (st == NULL) /* earlier failures name the path */
        st = sheaf_in(sheaf_image_decode(out, bytes, size, NULL), "%.*s", sheaf__image_shown(path),
                      path);
    free(bytes);
    return st;
}
