/* image_decode_png.c - PNG by libpng, with the conversions of Pillow; see image.h.
 *
 * A row of the result has space for libpng's output (1 byte a pixel for grey and palette, 2 for
 * 16-bit grey and for grey with alpha, 3 for colour), so rows are read in place, also in the passes
 * of an interlaced picture, and then widened; those of colour with alpha are 4 wide until then.
 *
 * libpng fails by longjmp. Everything that outlives the jump is in one struct, and setjmp is alone
 * in guarded(), so that no local variable is indeterminate afterwards. */
#include "inputs/image_decode.h"

#include <setjmp.h>

#include <png.h>
#include <zlib.h>

#include "base/base.h"

typedef struct picture {
    png_structp it;
    png_infop info;
    const sheaf__image_in *in;
    size_t at; /* of in->bytes */
    bool cut_short, no_memory, unwanted;
    sheaf_image *out;
    png_uint_32 row;
    int depth, colours; /* of the file; one of PNG_COLOR_TYPE_* */
    jmp_buf failed;
    char message[200];
} picture;

static void leave(png_structp it, png_const_charp message)
{
    picture *p = png_get_error_ptr(it);
    snprintf(p->message, sizeof p->message, "%s", message);
    longjmp(p->failed, 1);
}

static void say_nothing(png_structp it, png_const_charp message)
{
}

/* libpng allocates a chunk's stated length before it reads. No chunk is larger than the file, and
 * no row larger than ROW. */
static png_voidp allocate(png_structp it, png_alloc_size_t size)
{
    enum { ROW = 16 * (SHEAF_IMAGE_MAX_SIDE + 1) };
    picture *p = png_get_mem_ptr(it);
    if (size > p->in->size + ROW)
        return NULL;
    void *at = malloc(size);
    p->no_memory = p->no_memory || at == NULL;
    return at;
}

static void release(png_structp it, png_voidp at)
{
    free(at);
}

static void give(png_structp it, png_bytep to, size_t size)
{
    picture *p = png_get_io_ptr(it);
    if (size > p->in->size - p->at) {
        p->cut_short = true;
        png_error(it, "the file ends");
    }
    memcpy(to, p->in->bytes + p->at, size);
    p->at += size;
}

static bool guarded(picture *p, void (*work)(picture *))
{
    if (setjmp(p->failed) != 0)
        return false;
    work(p);
    return true;
}

/* Chunks without pixels are skipped unread, as some are compressed. orientation_of() finds EXIF
 * data. */
static void skip_ancillary(png_structp it)
{
    static const png_byte skipped[] =
        "bKGD\0cHRM\0eXIf\0gAMA\0hIST\0iCCP\0iTXt\0oFFs\0pCAL\0pHYs\0sBIT\0"
        "sCAL\0sPLT\0sRGB\0sTER\0tEXt\0tIME\0zTXt";
    png_set_keep_unknown_chunks(it, PNG_HANDLE_CHUNK_NEVER, NULL, 0);
    png_set_keep_unknown_chunks(it, PNG_HANDLE_CHUNK_NEVER, skipped, (int)(sizeof skipped / 5));
}

static void read_header(picture *p)
{
    p->it = png_create_read_struct_2(PNG_LIBPNG_VER_STRING, p, leave, say_nothing, p, allocate,
                                     release);
    p->info = p->it == NULL ? NULL : png_create_info_struct(p->it);
    if (p->info == NULL) {
        p->no_memory = true;
        longjmp(p->failed, 1);
    }
    png_set_read_fn(p->it, p, give);
    png_set_user_limits(p->it, 0x7fffffff, 0x7fffffff); /* sheaf__image_new() checks the size */
    png_set_chunk_malloc_max(p->it, p->in->size + 1); /* the default is too small for some files */
    png_set_check_for_invalid_index(p->it, 0);
    skip_ancillary(p->it);
    png_read_info(p->it, p->info);
    p->depth = png_get_bit_depth(p->it, p->info);
    p->colours = png_get_color_type(p->it, p->info);
}

/* Colour whose alpha is read too. */
static bool is_rgba(const picture *p)
{
    return p->in->on_white && p->colours == PNG_COLOR_TYPE_RGB_ALPHA;
}

static void read_rows(picture *p)
{
    if (p->colours == PNG_COLOR_TYPE_PALETTE)
        png_set_packing(p->it);
    else if (p->depth < 8)
        png_set_expand_gray_1_2_4_to_8(p->it);
    if (p->depth == 16 && p->colours != PNG_COLOR_TYPE_GRAY)
        png_set_strip_16(p->it);
    if ((p->colours & PNG_COLOR_MASK_ALPHA) && !p->in->on_white)
        png_set_strip_alpha(p->it);
    const int passes = png_set_interlace_handling(p->it);
    png_read_update_info(p->it, p->info);
    const size_t stride = (size_t)p->out->width * (is_rgba(p) ? 4 : 3);
    if (png_get_rowbytes(p->it, p->info) > stride)
        png_error(p->it, "rows longer than expected");
    for (int pass = 0; pass < passes; pass++)
        for (p->row = 0; p->row < p->out->height; p->row++) {
            if ((p->unwanted = sheaf__image_unwanted(p->in)))
                png_error(p->it, "unwanted");
            png_read_row(p->it, p->out->pixels + p->row * stride, NULL);
        }
    png_read_end(p->it, p->info);
}

/* The colour of a palette's index; beyond its end black, as in Pillow. */
static void palette_of(uint8_t rgb[256][3], const picture *p)
{
    png_colorp entry = NULL;
    png_bytep alpha = NULL;
    int n = 0, alphas = 0;
    png_get_PLTE(p->it, p->info, &entry, &n);
    if (p->in->on_white && p->colours == PNG_COLOR_TYPE_PALETTE)
        png_get_tRNS(p->it, p->info, &alpha, &alphas, NULL);
    memset(rgb, 0, 256 * sizeof *rgb);
    for (int i = 0; i < n && i < 256; i++)
        memcpy(rgb[i], (uint8_t[]){ entry[i].red, entry[i].green, entry[i].blue }, 3);
    for (int i = 0; i < 3 * alphas && i < 3 * 256; i++)
        rgb[i / 3][i % 3] = sheaf__image_laid(rgb[i / 3][i % 3], alpha[i / 3]);
}

/* The colour that tRNS makes transparent, on white. As Pillow compares: with the lower bytes of
 * what the file says, also where samples have 16 bits, or fewer than 8 and were scaled. */
static void lay_key(const picture *p)
{
    png_bytep alpha = NULL;
    png_color_16p key = NULL;
    int n = 0;
    if (!p->in->on_white ||
        (p->colours != PNG_COLOR_TYPE_GRAY && p->colours != PNG_COLOR_TYPE_RGB) ||
        png_get_tRNS(p->it, p->info, &alpha, &n, &key) == 0 || key == NULL)
        return;
    const bool grey = p->colours == PNG_COLOR_TYPE_GRAY;
    const uint8_t rgb[3] = { (uint8_t)(grey ? key->gray : key->red),
                             (uint8_t)(grey ? key->gray : key->green),
                             (uint8_t)(grey ? key->gray : key->blue) };
    uint8_t *at = p->out->pixels;
    for (int64_t i = 0; i < p->out->width * p->out->height; i++, at += 3)
        if (memcmp(at, rgb, 3) == 0)
            memset(at, 255, 3);
}

/* From the last pixel to the first, so that none is overwritten before it is read. */
static void widen(const picture *p)
{
    const bool grey = p->colours == PNG_COLOR_TYPE_GRAY || p->colours == PNG_COLOR_TYPE_GRAY_ALPHA;
    const bool wide = p->depth == 16 && p->colours == PNG_COLOR_TYPE_GRAY,
               alpha = p->in->on_white && p->colours == PNG_COLOR_TYPE_GRAY_ALPHA;
    const int64_t width = p->out->width;
    uint8_t rgb[256][3];
    if (!grey && p->colours != PNG_COLOR_TYPE_PALETTE)
        return;
    palette_of(rgb, p);
    for (int64_t y = 0; y < p->out->height; y++) {
        uint8_t *row = p->out->pixels + y * width * 3;
        for (int64_t x = width - 1; x >= 0; x--) {
            const uint8_t v = alpha             ? sheaf__image_laid(row[2 * x], row[2 * x + 1])
                              : !wide           ? row[x]
                              : row[2 * x] != 0 ? 255
                                                : row[2 * x + 1]; /* not scaled: cut at 255 */
            if (grey)
                memset(row + 3 * x, v, 3);
            else
                memcpy(row + 3 * x, rgb[v], 3);
        }
    }
}

static sheaf_status *damaged(const picture *p)
{
    if (p->no_memory)
        return sheaf__no_memory("out of memory");
    if (p->unwanted)
        return sheaf__image_stopped();
    if (p->cut_short)
        return sheaf__image_cut_short(p->in, p->row,
                                      p->info == NULL ? 0 : png_get_image_height(p->it, p->info));
    return sheaf__image_damaged("PNG", "libpng", p->message);
}

/* ---- orientation ---- */

/* How ImageMagick writes EXIF data without an eXIf chunk: a text chunk of this name with a line
 * break, two lines, and the data in hexadecimal digits, compressed or not. */
static const char profile[] = "Raw profile type exif";
enum { MOST_TEXT = 1 << 20 }; /* Pillow's bound of such a text */

/* Decodes the digits in place. */
static int orientation_of_text(char *text, size_t size)
{
    size_t at = 0, n = 0;
    for (int line = 0; line < 3 && at < size; at++)
        line += text[at] == '\n';
    for (; at < size; at++) {
        const int high = sheaf__hex_digit(text[at]),
                  low = at + 1 < size ? sheaf__hex_digit(text[at + 1]) : -1;
        if (high >= 0 && low >= 0) {
            text[n++] = (char)(high << 4 | low);
            at++;
        } else if (strchr(" \t\n\r\v\f", text[at]) == NULL) {
            return 1;
        }
    }
    return sheaf__image_orientation((const uint8_t *)text, n);
}

static sheaf_status *read_profile(int *orientation, const uint8_t *chunk, size_t size, bool packed)
{
    const uint8_t *from = chunk + sizeof profile;
    const size_t n = size - sizeof profile;
    uLongf room = packed ? MOST_TEXT : n;
    char *text = malloc(room + 1);
    if (text == NULL)
        return sheaf__no_memory("out of memory");
    bool good = true;
    if (packed) /* after the byte for the method */
        good = n > 0 && from[0] == 0 && uncompress((Bytef *)text, &room, from + 1, n - 1) == Z_OK;
    else
        memcpy(text, from, n);
    *orientation = good ? orientation_of_text(text, room) : 1;
    free(text);
    return NULL;
}

/* From the last eXIf, else from the last such text, which alone is unpacked: a file may hold
 * thousands. libpng does not read such texts and drops an eXIf that begins with "Exif\0\0", which
 * some programs write and Pillow reads. */
static sheaf_status *orientation_of(int *orientation, const sheaf__image_in *in)
{
    const uint8_t *own = NULL, *last = NULL; /* chunks, from their type */
    for (size_t at = 8; in->size - at >= 12;) {
        const uint8_t *type = in->bytes + at + 4, *chunk = type + 4;
        const size_t size = png_get_uint_32(in->bytes + at);
        if (size > in->size - at - 12 || memcmp(type, "IEND", 4) == 0)
            break;
        at += size + 12;
        const bool exif = memcmp(type, "eXIf", 4) == 0,
                   text = (memcmp(type, "zTXt", 4) == 0 || memcmp(type, "tEXt", 4) == 0) &&
                          size >= sizeof profile && memcmp(chunk, profile, sizeof profile) == 0;
        if ((exif || text) &&
            crc32(crc32(0, NULL, 0), type, (uInt)size + 4) == png_get_uint_32(chunk + size))
            *(exif ? &own : &last) = type;
    }
    if (own != NULL)
        *orientation = sheaf__image_orientation(own + 4, png_get_uint_32(own - 4));
    else if (last != NULL)
        return read_profile(orientation, last + 4, png_get_uint_32(last - 4), last[0] == 'z');
    return NULL;
}

static sheaf_status *decode(picture *p, int *orientation)
{
    if (!guarded(p, read_header))
        return damaged(p);
    sheaf_status *st = sheaf__image_new(p->out, png_get_image_width(p->it, p->info),
                                        png_get_image_height(p->it, p->info), p->in);
    if (st != NULL || p->in->size_only)
        return st == NULL ? orientation_of(orientation, p->in) : st;
    const int64_t pixels = p->out->width * p->out->height;
    if (is_rgba(p)) {
        free(p->out->pixels);
        p->out->pixels = malloc((size_t)pixels * 4);
        p->no_memory = p->out->pixels == NULL;
    }
    if (p->no_memory || !guarded(p, read_rows))
        return damaged(p);
    if (is_rgba(p))
        sheaf__image_lay(p->out->pixels, p->out->pixels, pixels);
    widen(p);
    lay_key(p);
    return orientation_of(orientation, p->in);
}

sheaf_status *sheaf__image_png(sheaf_image *out, int *orientation, const sheaf__image_in *in)
{
    picture *p = calloc(1, sizeof *p);
    if (p == NULL)
        return sheaf__no_memory("out of memory");
    p->in = in;
    p->out = out;
    sheaf_status *st = decode(p, orientation);
    png_destroy_read_struct(&p->it, &p->info, NULL);
    free(p);
    return st;
}
