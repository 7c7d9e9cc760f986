/* image_decode_jpeg.c - JPEG by libjpeg-turbo, with the settings of Pillow; see image.h.
 *
 * libjpeg fails by longjmp. Everything that outlives the jump is in one struct, and setjmp is alone
 * in guarded(), so that no local variable is indeterminate afterwards. */
#include "inputs/image_decode.h"

#include <setjmp.h>

#include <jpeglib.h>
#include <jerror.h>

#include "base/base.h"

/* More scans are an attack: each costs a pass over the whole picture. Encoders write about ten. */
enum { MAX_SCANS = 100 };

typedef struct jpeg {
    struct jpeg_decompress_struct it;
    struct jpeg_error_mgr error;
    struct jpeg_progress_mgr progress;
    const sheaf__image_in *in;
    sheaf_image *out;
    uint8_t *row; /* of four channels, or NULL */
    bool too_many_scans, unwanted;
    jmp_buf failed;
    char message[JMSG_LENGTH_MAX];
} jpeg;

static void leave(j_common_ptr it)
{
    jpeg *j = it->client_data;
    it->err->format_message(it, j->message);
    longjmp(j->failed, 1);
}

/* A warning about lost pixels is a failure: libjpeg would invent them. */
static void warn(j_common_ptr it, int level)
{
    switch (level < 0 ? it->err->msg_code : 0) {
    case JWRN_JPEG_EOF:
    case JWRN_HIT_MARKER:
    case JWRN_HUFF_BAD_CODE:
    case JWRN_ARITH_BAD_CODE:
    case JWRN_MUST_RESYNC: leave(it);
    }
}

static void say_nothing(j_common_ptr it)
{
}

/* Between rows, also of a scan that gives none. */
static void count_scans(j_common_ptr it)
{
    jpeg *j = it->client_data;
    j->too_many_scans = j->it.input_scan_number > MAX_SCANS;
    j->unwanted = sheaf__image_unwanted(j->in);
    if (j->too_many_scans || j->unwanted)
        longjmp(j->failed, 1);
}

static bool guarded(jpeg *j, void (*work)(jpeg *))
{
    if (setjmp(j->failed) != 0)
        return false;
    work(j);
    return true;
}

static void read_header(jpeg *j)
{
    jpeg_create_decompress(&j->it);
    j->it.client_data = j;
    j->it.progress = &j->progress;
    jpeg_mem_src(&j->it, j->in->bytes, (unsigned long)j->in->size);
    jpeg_save_markers(&j->it, JPEG_APP0 + 1, 0xffff);
    jpeg_read_header(&j->it, TRUE);
}

static void spread_grey(uint8_t *row, int64_t width)
{
    for (int64_t x = width - 1; x >= 0; x--)
        row[3 * x] = row[3 * x + 1] = row[3 * x + 2] = row[x];
}

/* round(a * b / 255) */
static uint8_t scaled(int a, int b)
{
    const int n = a * b + 128;
    return (uint8_t)(((n >> 8) + n) >> 8);
}

/* Four channels are always taken as Adobe writes them: 255 is no ink. */
static void ink_to_rgb(uint8_t *rgb, const uint8_t *ink, int64_t width)
{
    for (int64_t x = 0; x < width; x++)
        for (int c = 0; c < 3; c++)
            rgb[3 * x + c] =
                (uint8_t)(ink[4 * x + 3] - scaled(255 - ink[4 * x + c], ink[4 * x + 3]));
}

static void read_rows(jpeg *j)
{
    const int64_t width = j->out->width;
    j->it.out_color_space = j->it.num_components == 1   ? JCS_GRAYSCALE
                            : j->it.num_components == 3 ? JCS_RGB
                                                        : JCS_CMYK;
    jpeg_start_decompress(&j->it);
    while (j->it.output_scanline < j->it.output_height) {
        uint8_t *to = j->out->pixels + (int64_t)j->it.output_scanline * width * 3;
        JSAMPROW row = j->row == NULL ? to : j->row;
        jpeg_read_scanlines(&j->it, &row, 1);
        if (j->it.num_components == 1)
            spread_grey(to, width);
        else if (j->it.num_components == 4)
            ink_to_rgb(to, j->row, width);
    }
    jpeg_finish_decompress(&j->it);
}

static sheaf_status *damaged(const jpeg *j)
{
    if (j->error.msg_code == JERR_OUT_OF_MEMORY)
        return sheaf__no_memory("out of memory");
    if (j->unwanted)
        return sheaf__image_stopped();
    if (j->too_many_scans)
        return sheaf_found(
            sheaf_expected(sheaf_fail(SHEAF_E_FORMAT, "image data"), "at most %d scans", MAX_SCANS),
            "more");
    if (j->error.msg_code == JWRN_JPEG_EOF)
        return sheaf__image_cut_short(j->in, j->it.output_scanline, j->it.image_height);
    return sheaf__image_damaged("JPEG", "libjpeg", j->message);
}

/* From the first EXIF data, which libjpeg frees at the end. */
static int orientation_of(const jpeg *j)
{
    for (jpeg_saved_marker_ptr m = j->it.marker_list; m != NULL; m = m->next)
        if (m->data_length >= 6 && memcmp(m->data, "Exif\0\0", 6) == 0)
            return sheaf__image_orientation(m->data, m->data_length);
    return 1;
}

static sheaf_status *decode(jpeg *j, int *orientation)
{
    if (!guarded(j, read_header))
        return damaged(j);
    const int channels = j->it.num_components;
    if (channels != 1 && channels != 3 && channels != 4) {
        sheaf_status *st = sheaf_fail(SHEAF_E_UNSUPPORTED, "channels");
        return sheaf_found(sheaf_expected(st, "1, 3 or 4"), "%d", channels);
    }
    *orientation = orientation_of(j);
    sheaf_status *st = sheaf__image_new(j->out, j->it.image_width, j->it.image_height, j->in);
    if (j->in->size_only)
        return st;
    if (st == NULL && channels == 4 && (j->row = malloc((size_t)j->it.image_width * 4)) == NULL)
        st = sheaf__no_memory("out of memory");
    if (st == NULL && !guarded(j, read_rows))
        st = damaged(j);
    return st;
}

sheaf_status *sheaf__image_jpeg(sheaf_image *out, int *orientation, const sheaf__image_in *in)
{
    jpeg *j = calloc(1, sizeof *j);
    if (j == NULL)
        return sheaf__no_memory("out of memory");
    j->in = in;
    j->out = out;
    j->it.err = jpeg_std_error(&j->error);
    j->it.client_data = j; /* kept by jpeg_create_decompress */
    j->error.error_exit = leave;
    j->error.emit_message = warn;
    j->error.output_message = say_nothing;
    j->progress.progress_monitor = count_scans;
    sheaf_status *st = decode(j, orientation);
    jpeg_destroy_decompress(&j->it);
    free(j->row);
    free(j);
    return st;
}
