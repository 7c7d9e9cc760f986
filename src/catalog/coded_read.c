/* coded_read.c - codes, scales and zeros of a box out of the bytes of files; see coded.h.
 *
 * What is asked for need not begin or end with a group, a word or a byte: whatever covers it is
 * read. Where a file has rows and columns exchanged (GPTQ, AWQ), neighbours of a column lie
 * together: tall boxes cost the fewest calls. Short pieces of its lines are read with what lies
 * between them, as a call costs what some KiB of the system's cache cost. */
#include <math.h>

#include "base/base.h"
#include "base/file.h"
#include "catalog/coded.h"
#include "catalog/private.h"
#include "ops/math/round.h"
#include "ops/quant/quantise.h"

enum {
    BUFFER = 1 << 16,                  /* bytes of a file that are unpacked at once */
    TILE = 64,                         /* columns that are, where columns of a file are rows */
    SPAN = SHEAF__CODED_ROOM - BUFFER, /* bytes with gaps that are read at once, */
    PIECE = 1 << 12,                   /* of pieces of at most so many */
    LINE = 1 << 13,                    /* in lines of at most so many */
};

/* A box that is being read. */
typedef struct reading {
    const sheaf_catalog *c;
    const sheaf__coded *q;
    const sheaf__quant_box *box;
    int64_t groups; /* of a row of the box */
    int fd[SHEAF__FURTHER_PARTS];
    uint8_t *buffer; /* [SHEAF__CODED_ROOM] */
} reading;

static const sheaf_catalog_file *file_of(const reading *r, int part)
{
    return &r->c->file[r->q->part[part].piece[0].file];
}

static bool has(const reading *r, int part)
{
    return r->q->part[part].entry.name != NULL && r->q->part[part].npieces > 0;
}

static sheaf_status *open_parts(reading *r)
{
    sheaf_status *st = NULL;
    for (int i = 0; i < SHEAF__FURTHER_PARTS; i++)
        r->fd[i] = -1;
    for (int i = 0; st == NULL && i < SHEAF__FURTHER_PARTS; i++)
        if (has(r, i))
            st = sheaf__catalog_open(&r->fd[i], file_of(r, i));
    return st;
}

static sheaf_status *close_parts(reading *r, sheaf_status *st)
{
    for (int i = 0; i < SHEAF__FURTHER_PARTS; i++)
        if (r->fd[i] >= 0)
            st = sheaf__catalog_done(r->fd[i], file_of(r, i), st);
    return st;
}

/* Bytes [begin, begin + size) of a part. */
static sheaf_status *take(reading *r, int part, int64_t begin, int64_t size, void *dst)
{
    const sheaf_logical *t = &r->q->part[part];
    return sheaf__file_read_at(r->fd[part], dst, (size_t)size, t->piece[0].offset + begin,
                               file_of(r, part)->path);
}

static uint32_t word_at(const uint8_t *bytes, int64_t i)
{
    const uint8_t *b = bytes + 4 * i;
    return b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

/* ---- codes ---- */

/* Elements [first, first + n) of a tensor with two in a byte. */
static sheaf_status *read_halves(reading *r, int64_t first, int64_t n, uint8_t *dst)
{
    sheaf_status *st = NULL;
    for (int64_t done = 0; st == NULL && done < n;) {
        const int64_t e = first + done, begin = e / 2, odd = e & 1;
        const int64_t count = least(n - done, 2 * BUFFER - odd);
        st = take(r, SHEAF__CODES_PART, begin, (e + count - 1) / 2 - begin + 1, r->buffer);
        if (st == NULL)
            sheaf__unpack4(dst + done, r->buffer, odd, count);
        done += count;
    }
    return st;
}

/* Bytes of rows [out, in] of a byte each. */
static sheaf_status *read_bytes(reading *r, int64_t first, int64_t n, uint8_t *dst)
{
    return take(r, SHEAF__CODES_PART, first, n, dst);
}

/* Rows of the tensor that are together in the file. */
static sheaf_status *read_rows(reading *r, uint8_t *dst,
                               sheaf_status *(*read)(reading *r, int64_t first, int64_t n,
                                                     uint8_t *dst))
{
    const sheaf__quant_box *b = r->box;
    const bool whole = b->cols == b->in;
    const int64_t runs = whole ? 1 : b->rows, each = whole ? b->rows * b->cols : b->cols;
    sheaf_status *st = NULL;
    for (int64_t i = 0; st == NULL && i < runs; i++)
        st = read(r, (b->row0 + i) * b->in + b->col0, each, dst + i * each);
    return st;
}

/* Words [at, at + n) of lines of `width` words each, [first, first + count) of the codes, one
 * line's after the other's to the buffer. */
static sheaf_status *take_lines(reading *r, int64_t width, int64_t first, int64_t count, int64_t at,
                                int64_t n)
{
    const bool gaps = n < width && 4 * n <= PIECE && 4 * width <= LINE;
    const int64_t most = n == width ? count : gaps ? SPAN / (4 * width) : 1;
    uint8_t *span = r->buffer + BUFFER;
    sheaf_status *st = NULL;
    for (int64_t i = 0; st == NULL && i < count; i += most) {
        const int64_t m = least(most, count - i);
        uint8_t *to = r->buffer + 4 * i * n;
        st = take(r, SHEAF__CODES_PART, 4 * ((first + i) * width + at), 4 * ((m - 1) * width + n),
                  gaps ? span : to);
        for (int64_t k = 0; st == NULL && gaps && k < m; k++)
            memcpy(to + 4 * k * n, span + 4 * k * width, (size_t)(4 * n));
    }
    return st;
}

static void unpack_word(uint8_t dst[8], uint32_t word)
{
    for (int j = 0; j < 8; j++)
        dst[j] = word >> 4 * j & 15;
}

/* [out, in / 8], eight of a row in a word. */
static sheaf_status *read_packed32(reading *r, uint8_t *dst)
{
    const sheaf__quant_box *b = r->box;
    const int64_t end = b->col0 + b->cols, words = (end - 1) / 8 - b->col0 / 8 + 1,
                  wide = least(words, BUFFER / 4), high = BUFFER / 4 / wide;
    sheaf_status *st = NULL;
    for (int64_t i = 0; st == NULL && i < b->rows; i += high)
        for (int64_t w = b->col0 / 8; st == NULL && 8 * w < end; w += wide) {
            const int64_t m = least(high, b->rows - i), n = least(wide, (end - 1) / 8 - w + 1);
            st = take_lines(r, (b->in + 7) / 8, b->row0 + i, m, w, n);
            for (int64_t k = 0; st == NULL && k < m * n; k++) {
                const int64_t c = 8 * (w + k % n), c0 = c > b->col0 ? c : b->col0;
                uint8_t code[8];
                unpack_word(code, word_at(r->buffer, k));
                memcpy(dst + (i + k / n) * b->cols + (c0 - b->col0), code + (c0 - c),
                       (size_t)(least(c + 8, end) - c0));
            }
        }
    return st;
}

/* [in / 8, out]: the word of eight columns has one row. */
static sheaf_status *read_gptq(reading *r, uint8_t *dst)
{
    const sheaf__quant_box *b = r->box;
    const int64_t end = b->col0 + b->cols, high = BUFFER / 4 / (TILE / 8);
    sheaf_status *st = NULL;
    for (int64_t i = 0; st == NULL && i < b->rows; i += high)
        for (int64_t w = b->col0 / 8; st == NULL && 8 * w < end; w += TILE / 8) {
            const int64_t n = least(b->rows - i, high),
                          lines = least(TILE / 8, (end - 1) / 8 - w + 1),
                          c0 = 8 * w > b->col0 ? 8 * w : b->col0, c1 = least(8 * w + TILE, end);
            st = take_lines(r, r->q->out, w, lines, b->row0 + i, n);
            for (int64_t k = 0; st == NULL && k < n; k++) {
                uint8_t code[TILE];
                for (int64_t l = 0; l < lines; l++)
                    unpack_word(code + 8 * l, word_at(r->buffer, l * n + k));
                memcpy(dst + (i + k) * b->cols + (c0 - b->col0), code + (c0 - 8 * w),
                       (size_t)(c1 - c0));
            }
        }
    return st;
}

/* Where element j of eight lies in a word of AWQ: the inverse of 0 2 4 6 1 3 5 7. */
static int awq_shift(int64_t j)
{
    static const int nibble[8] = { 0, 4, 1, 5, 2, 6, 3, 7 };
    return 4 * nibble[j & 7];
}

/* Words [first, first + n) of `lines` columns are in the buffer: codes of the rows from `row` to
 * `stop`, which these cover. */
static void unpack_awq(const reading *r, int64_t lines, int64_t first, int64_t n, int64_t row,
                       int64_t stop, uint8_t *dst)
{
    uint32_t word[TILE] = { 0 };
    for (int64_t w = first; w < first + n; w++) {
        for (int64_t l = 0; l < lines; l++)
            word[l] = word_at(r->buffer, l * n + w - first);
        for (; row < least(stop, 8 * w + 8); row++, dst += r->box->cols) {
            const int shift = awq_shift(row);
            uint8_t code[TILE];
            for (int l = 0; l < TILE; l++)
                code[l] = word[l] >> shift & 15;
            memcpy(dst, code, (size_t)lines);
        }
    }
}

/* [in, out / 8]: a word has eight rows of one column. */
static sheaf_status *read_awq(reading *r, uint8_t *dst)
{
    const sheaf__quant_box *b = r->box;
    const int64_t end = b->row0 + b->rows, most = BUFFER / 4 / TILE;
    sheaf_status *st = NULL;
    for (int64_t w = b->row0 / 8; st == NULL && 8 * w < end; w += most)
        for (int64_t c = 0; st == NULL && c < b->cols; c += TILE) {
            const int64_t n = least(most, (end - 1) / 8 - w + 1), lines = least(TILE, b->cols - c),
                          row = 8 * w > b->row0 ? 8 * w : b->row0;
            st = take_lines(r, r->q->out / 8, b->col0 + c, lines, w, n);
            if (st == NULL)
                unpack_awq(r, lines, w, n, row, least(end, 8 * (w + n)),
                           dst + (row - b->row0) * b->cols + c);
        }
    return st;
}

static sheaf_status *read_codes(reading *r, uint8_t *dst)
{
    switch (r->q->packing) {
    case SHEAF__BNB4: return read_rows(r, dst, read_halves);
    case SHEAF__PACKED32: return read_packed32(r, dst);
    case SHEAF__GPTQ: return read_gptq(r, dst);
    case SHEAF__AWQ: return read_awq(r, dst);
    case SHEAF__BNB8:
    case SHEAF__BLOCKS8: break;
    }
    return read_rows(r, dst, read_bytes);
}

/* ---- scales ---- */

/* The number, among those of a row, of the first group that the box has. */
static int64_t first_group(const reading *r)
{
    const sheaf__quant *f = &r->q->form;
    return f->grouping == SHEAF__GROUPS_OF_ROW && f->block > 0 ? r->box->col0 / f->block : 0;
}

static int64_t groups_of_row(const reading *r)
{
    const sheaf__quant *f = &r->q->form;
    return f->grouping == SHEAF__GROUPS_INDEXED ? f->groups
           : f->block == 0                      ? 1
                                                : (r->q->in + f->block - 1) / f->block;
}

/* Groups that row i of the box really has. */
static int64_t groups_at(const reading *r, int64_t row)
{
    const sheaf__quant *f = &r->q->form;
    if (f->grouping == SHEAF__GROUPS_INDEXED || f->block == 0)
        return r->groups;
    return (sheaf__quant_phase(f, r->box, row) + r->box->cols - 1) / f->block + 1;
}

/* `n` neighbours of the part of scales, from the first-th: to dst[0], dst[apart], ... */
static sheaf_status *scales(reading *r, int64_t first, int64_t n, float *dst, int64_t apart)
{
    const sheaf_dtype dtype = r->q->part[SHEAF__SCALES_PART].entry.dtype;
    const int64_t size = (int64_t)sheaf_dtype_bytes(dtype), most = BUFFER / 4;
    sheaf_status *st = NULL;
    for (int64_t done = 0; st == NULL && done < n; done += most) {
        const int64_t count = least(n - done, most);
        st = take(r, SHEAF__SCALES_PART, (first + done) * size, count * size, r->buffer);
        for (int64_t k = 0; st == NULL && k < count; k++)
            dst[(done + k) * apart] = sheaf__load(r->buffer, k, dtype);
    }
    return st;
}

/* Blocks of bitsandbytes, of floats, or bytes where scales are doubled. The blocks of neighbouring
 * rows lie together, and are read together where they are few. */
static sheaf_status *read_flat(reading *r, uint8_t *dst)
{
    const sheaf__quant *f = &r->q->form;
    const sheaf__quant_box *b = r->box;
    const int64_t first = sheaf__quant_first_group(f, b, 0), size = f->doubled ? 1 : 4,
                  span = sheaf__quant_first_group(f, b, b->rows - 1) + groups_at(r, b->rows - 1) -
                         first;
    const bool together = span * size <= BUFFER;
    sheaf_status *st = NULL;
    if (span == b->rows * r->groups) /* no row has fewer, none shares one */
        return take(r, SHEAF__SCALES_PART, first * size, span * size, dst);
    memset(dst, 0, (size_t)(b->rows * r->groups * size));
    if (together)
        st = take(r, SHEAF__SCALES_PART, first * size, span * size, r->buffer);
    for (int64_t i = 0; st == NULL && i < b->rows; i++) {
        const int64_t n = groups_at(r, i) * size, at = sheaf__quant_first_group(f, b, i);
        uint8_t *to = dst + i * r->groups * size;
        if (together)
            memcpy(to, r->buffer + (at - first) * size, (size_t)n);
        else
            st = take(r, SHEAF__SCALES_PART, at * size, n, to);
    }
    return st;
}

/* Scales [groups, out], as GPTQ and AWQ have them. */
static sheaf_status *read_by_group(reading *r, float *dst)
{
    sheaf_status *st = NULL;
    for (int64_t g = 0; st == NULL && g < r->groups; g++)
        st = scales(r, (first_group(r) + g) * r->q->out + r->box->row0, r->box->rows, dst + g,
                    r->groups);
    return st;
}

/* Scales [out, groups], or of blocks of rows. */
static sheaf_status *read_by_row(reading *r, float *dst)
{
    const int64_t all = groups_of_row(r),
                  step = r->q->packing == SHEAF__BLOCKS8 ? r->q->block_rows : 1;
    sheaf_status *st = NULL;
    if (step == 1 && r->groups == all)
        return scales(r, r->box->row0 * all, r->box->rows * all, dst, 1);
    for (int64_t i = 0; st == NULL && i < r->box->rows; i++) {
        const int64_t row = (r->box->row0 + i) / step;
        if (i > 0 && row == (r->box->row0 + i - 1) / step)
            memcpy(dst + i * r->groups, dst + (i - 1) * r->groups, (size_t)r->groups * sizeof *dst);
        else
            st = scales(r, row * all + first_group(r), r->groups, dst + i * r->groups, 1);
    }
    return st;
}

static sheaf_status *read_scales(reading *r, const sheaf__quant_parts *to)
{
    switch (r->q->packing) {
    case SHEAF__BNB4:
        return read_flat(r, r->q->form.doubled ? to->scale_codes : (uint8_t *)to->scales);
    case SHEAF__GPTQ:
    case SHEAF__AWQ: return read_by_group(r, to->scales);
    case SHEAF__PACKED32:
    case SHEAF__BNB8:
    case SHEAF__BLOCKS8: break;
    }
    return read_by_row(r, to->scales);
}

/* ---- zeros ---- */

/* [groups, out / 8] */
static sheaf_status *zeros_by_group(reading *r, uint8_t *dst)
{
    const int64_t width = r->q->out / 8, row0 = r->box->row0, end = row0 + r->box->rows;
    sheaf_status *st = NULL;
    for (int64_t g = 0; st == NULL && g < r->groups; g++)
        for (int64_t row = row0; st == NULL && row < end;) {
            const int64_t first = row / 8, stop = least(end, (first + BUFFER / 4) * 8),
                          words = (stop - 1) / 8 - first + 1;
            st = take(r, SHEAF__ZEROS_PART, ((first_group(r) + g) * width + first) * 4, words * 4,
                      r->buffer);
            for (; st == NULL && row < stop; row++) {
                const uint32_t word = word_at(r->buffer, row / 8 - first) +
                                      (r->q->less_one ? UINT32_C(0x11111111) : 0);
                dst[(row - row0) * r->groups + g] =
                    word >> (r->q->packing == SHEAF__AWQ ? awq_shift(row) : 4 * (row & 7)) & 15;
            }
        }
    return st;
}

/* [out / 8, groups] */
static sheaf_status *zeros_by_row(reading *r, uint8_t *dst)
{
    const int64_t all = groups_of_row(r), row0 = r->box->row0, most = BUFFER / 4;
    sheaf_status *st = NULL;
    for (int64_t i = 0; st == NULL && i < r->box->rows; i++)
        for (int64_t g = 0; st == NULL && g < r->groups; g += most) {
            const int64_t n = least(r->groups - g, most);
            st = take(r, SHEAF__ZEROS_PART, ((row0 + i) / 8 * all + first_group(r) + g) * 4, n * 4,
                      r->buffer);
            for (int64_t k = 0; st == NULL && k < n; k++)
                dst[i * r->groups + g + k] = word_at(r->buffer, k) >> 4 * ((row0 + i) & 7) & 15;
        }
    return st;
}

/* ---- all ---- */

static sheaf_status *bad_scale(const reading *r, int64_t i, float x)
{
    const int64_t row = r->box->row0 + i / r->groups,
                  first = r->q->form.grouping == SHEAF__GROUPS_FLAT
                              ? sheaf__quant_first_group(&r->q->form, r->box, i / r->groups)
                              : first_group(r);
    const bool sign = r->q->packing == SHEAF__BNB4 || r->q->packing == SHEAF__BNB8;
    sheaf_status *st =
        sheaf_fail(SHEAF_E_NUMBER, "%s: scale of row %" PRId64 ", block %" PRId64,
                   r->q->part[SHEAF__SCALES_PART].entry.name, row, first + i % r->groups);
    sheaf_expected(st, sign ? "a finite number, 0 or more" : "a finite number");
    sheaf_found(st, "%g", (double)x);
    return sheaf_try_this(st, "download or copy this model again, or quantize it anew: the weights "
                              "of that row are lost");
}

static sheaf_status *check_scales(const reading *r, const float *scale)
{
    const bool sign = r->q->packing == SHEAF__BNB4 || r->q->packing == SHEAF__BNB8;
    for (int64_t i = 0; i < r->box->rows * r->groups; i++)
        if (!isfinite(scale[i]) || (sign && scale[i] < 0))
            return bad_scale(r, i, scale[i]);
    return NULL;
}

/* A few rows at once; the codes stay in the file. */
static sheaf_status *check_all(reading *r, float *scale, int64_t at_once)
{
    const sheaf__quant_parts to = { .scales = scale };
    sheaf_status *st = open_parts(r);
    for (int64_t row = 0; st == NULL && row < r->q->out; row += at_once) {
        const sheaf__quant_box box = { r->q->in, row, least(at_once, r->q->out - row), 0,
                                       r->q->in };
        r->box = &box;
        st = read_scales(r, &to);
        TRY(st, check_scales(r, scale));
    }
    return close_parts(r, st);
}

sheaf_status *sheaf__coded_check(const sheaf_catalog *c, const sheaf_logical *t)
{
    enum { MOST = 1 << 16 }; /* scales at once */
    const sheaf__coded *q = t->coded;
    const sheaf__quant_box all = { q->in, 0, q->out, 0, q->in };
    const int64_t groups = sheaf__quant_groups(&q->form, &all),
                  nested = sheaf__quant_nested(&q->form, q->out * q->in),
                  at_once = groups > 0 && groups < MOST ? MOST / groups : 1;
    reading r = { .c = c, .q = q, .groups = groups, .buffer = malloc(SHEAF__CODED_ROOM) };
    float *scale =
        malloc((size_t)(q->form.doubled ? nested : at_once * groups) * sizeof *scale + 1);
    sheaf_status *st = r.buffer == NULL || scale == NULL ? sheaf__no_memory(t->entry.name) : NULL;
    if (st == NULL && q->form.doubled)
        st = sheaf__coded_whole(c, t, &(sheaf__quant_whole){ .nested = scale });
    else if (st == NULL && groups > 0)
        st = sheaf_in(check_all(&r, scale, at_once), "tensor '%s'", t->entry.name);
    free(r.buffer);
    free(scale);
    return st;
}

static sheaf_status *read_all(reading *r, const sheaf__quant_parts *to)
{
    sheaf_status *st = open_parts(r);
    TRY(st, read_codes(r, to->codes));
    TRY(st, read_scales(r, to));
    if (st == NULL && r->q->form.zeros)
        st = r->q->packing == SHEAF__PACKED32 ? zeros_by_row(r, to->zeros)
                                              : zeros_by_group(r, to->zeros);
    TRY(st, !r->q->form.doubled ? check_scales(r, to->scales) : NULL);
    return close_parts(r, st);
}

sheaf_status *sheaf__coded_raw(const sheaf_catalog *c, const sheaf_logical *t, int64_t row0,
                               int64_t rows, int64_t col0, int64_t cols,
                               const sheaf__quant_parts *to)
{
    const sheaf__coded *q = t->coded;
    const sheaf__quant_box box = { q->in, row0, rows, col0, cols };
    sheaf_status *st = sheaf__safetensors_check_box(t->entry.name, t->entry.dtype, t->entry.ndim,
                                                    t->entry.shape, row0, rows, col0, cols);
    if (st != NULL || rows == 0 || cols == 0)
        return st;
    reading r = { .c = c, .q = q, .box = &box, .groups = sheaf__quant_groups(&q->form, &box) };
    r.buffer = malloc(SHEAF__CODED_ROOM);
    st = r.buffer != NULL ? read_all(&r, to) : sheaf__no_memory(t->entry.name);
    free(r.buffer);
    return sheaf_in(st, "tensor '%s'", t->entry.name);
}

sheaf_status *sheaf__coded_read(const sheaf_catalog *c, const sheaf_logical *t, int64_t row0,
                                int64_t rows, int64_t col0, int64_t cols,
                                const sheaf__quant_parts *to)
{
    sheaf_status *st = sheaf__coded_raw(c, t, row0, rows, col0, cols, to);
    if (st == NULL && t->coded->packing == SHEAF__BNB8 && cols > 0)
        for (int64_t i = 0; i < rows; i++)
            to->scales[i] = sheaf__int8_scale(to->scales[i]);
    return st;
}
