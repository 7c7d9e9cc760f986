/* coded_read.c - codes, scales and zeros of a box out of the bytes of files; see coded.h.
 *
 * A requested box need not begin or end with a group, a word or a byte: its covering is
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
    TILE = 64,                         /* columns that are, unless words lie along rows */
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

/* ---- a box of a matrix ---- */

/* Rows [row0, row0 + rows), columns [col0, col0 + cols) of the matrix [out, in] of a part, to bytes
 * or floats whose rows are `ld` apart. */
typedef struct area {
    int part;
    int64_t out, in, row0, rows, col0, cols;
    void *dst;
    int64_t ld;
} area;

/* Words in the buffer: those of `rows` rows of words from `row` on, and of `cols` columns. */
typedef struct chunk {
    const uint8_t *words;
    int64_t size, row, rows, col, cols;
} chunk;

static const sheaf__plane *plane_of(const reading *r, const area *a)
{
    return &r->q->packing->plane[a->part];
}

/* Words [at, at + n) of lines of `width` words each, lines [first, first + count), one line's after
 * the other's to the buffer. */
static sheaf_status *take_lines(reading *r, int part, int64_t size, int64_t width, int64_t first,
                                int64_t count, int64_t at, int64_t n)
{
    const bool gaps = n < width && size * n <= PIECE && size * width <= LINE;
    const int64_t most = n == width ? count : gaps ? SPAN / (size * width) : 1;
    uint8_t *span = r->buffer + BUFFER;
    sheaf_status *st = NULL;
    for (int64_t i = 0; st == NULL && i < count; i += most) {
        const int64_t m = least(most, count - i);
        uint8_t *to = r->buffer + size * i * n;
        st = take(r, part, size * ((first + i) * width + at), size * ((m - 1) * width + n),
                  gaps ? span : to);
        for (int64_t k = 0; st == NULL && gaps && k < m; k++)
            memcpy(to + size * k * n, span + size * k * width, (size_t)(size * n));
    }
    return st;
}

/* The elements of n words, `apart` words from each other. */
static inline __attribute__((always_inline)) void spread(uint8_t *dst, const uint8_t *words,
                                                         int64_t apart, int64_t n,
                                                         const sheaf__plane *p, const int word,
                                                         const int per)
{
    const sheaf__plane plane = *p;
    const uint32_t mask = word * 8 / per == 8 ? 255 : 15;
    for (int64_t i = 0; i < n; i++, words += apart * word, dst += per) {
        const uint32_t w = word == 4 ? word_at(words, 0) : *words;
        for (int j = 0; j < per; j++)
            dst[j] = (uint8_t)((w >> plane.shift[j] & mask) ^ plane.flip);
    }
}

static void spread_words(uint8_t *dst, const uint8_t *words, int64_t apart, int64_t n,
                         const sheaf__plane *p)
{
    if (p->per == 8)
        spread(dst, words, apart, n, p, 4, 8);
    else if (p->per == 4)
        spread(dst, words, apart, n, p, 4, 4);
    else
        spread(dst, words, apart, n, p, 1, 2);
}

/* n neighbours of a row from the skip-th of its first word on. */
static void unpack_row(uint8_t *dst, const uint8_t *words, int64_t apart, int64_t skip, int64_t n,
                       const sheaf__plane *p)
{
    uint8_t part[8];
    if (skip > 0) {
        const int64_t m = least(p->per - skip, n);
        spread_words(part, words, apart, 1, p);
        memcpy(dst, part + skip, (size_t)m);
        words += apart * p->word;
        dst += m;
        n -= m;
    }
    const int64_t rest = n % p->per;
    spread_words(dst, words, apart, n / p->per, p);
    if (rest > 0) {
        spread_words(part, words + n / p->per * apart * p->word, apart, 1, p);
        memcpy(dst + n - rest, part, (size_t)rest);
    }
}

/* Rows [row, end) of n columns, of words that have neighbours of a column: those of one row of
 * words, which has these rows. */
static void unpack_down(uint8_t *dst, int64_t ld, const uint8_t *words, int64_t apart, int64_t n,
                        int64_t row, int64_t end, const sheaf__plane *p, uint32_t add)
{
    uint32_t word[TILE] = { 0 };
    uint8_t code[TILE];
    for (int64_t c = 0; c < n; c++)
        word[c] = word_at(words, c * apart) + add;
    for (; row < end; row++, dst += ld) {
        const int shift = p->shift[row % p->per];
        for (int c = 0; c < TILE; c++)
            code[c] = word[c] >> shift & 15;
        memcpy(dst, code, (size_t)n);
    }
}

static float scale_at(const uint8_t *words, int64_t i, sheaf_dtype dtype)
{
    return dtype == SHEAF_U8 || dtype == SHEAF_F8_E8M0 ? sheaf__exponent_scale(words[i])
                                                       : sheaf__load(words, i, dtype);
}

/* The chunk's part of the area. */
static void unpack(const reading *r, const area *a, const chunk *k)
{
    const sheaf__plane *p = plane_of(r, a);
    const sheaf_dtype dtype = r->q->part[a->part].entry.dtype;
    const int64_t high = p->down ? p->per : 1, wide = p->down || p->per == 0 ? 1 : p->per,
                  row0 = k->row * high > a->row0 ? k->row * high : a->row0,
                  row1 = least(a->row0 + a->rows, (k->row + k->rows) * high),
                  col0 = k->col * wide > a->col0 ? k->col * wide : a->col0,
                  n = least(a->col0 + a->cols, (k->col + k->cols) * wide) - col0,
                  apart = p->turned ? k->rows : 1;
    const uint32_t add = a->part == SHEAF__ZEROS_PART && r->q->less_one ? UINT32_C(0x11111111) : 0;
    for (int64_t row = row0, end; row < row1; row = end) {
        const int64_t line = row / high - k->row, at = (row - a->row0) * a->ld + col0 - a->col0;
        const uint8_t *words = k->words + k->size * (p->turned ? line : line * k->cols);
        uint8_t *bytes = (uint8_t *)a->dst + at;
        end = least(row1, (row / high + 1) * high);
        for (int64_t c = 0; p->per == 0 && c < n; c++)
            ((float *)a->dst)[at + c] = scale_at(words, c * apart, dtype);
        if (p->down)
            unpack_down(bytes, a->ld, words, apart, n, row, end, p, add);
        else if (p->per > 0)
            unpack_row(bytes, words, apart, col0 - k->col * wide, n, p);
    }
}

/* Bytes that are codes themselves. */
static sheaf_status *read_bytes(reading *r, const area *a)
{
    const int64_t runs = a->cols == a->in ? 1 : a->rows, each = a->rows * a->cols / runs;
    sheaf_status *st = NULL;
    for (int64_t i = 0; st == NULL && i < runs; i++)
        st = take(r, a->part, (a->row0 + i) * a->in + a->col0, each, (uint8_t *)a->dst + i * each);
    return st;
}

static sheaf_status *read_area(reading *r, const area *a)
{
    const sheaf__plane *p = plane_of(r, a);
    const sheaf_dtype dtype = r->q->part[a->part].entry.dtype;
    const int64_t size = p->per > 0 ? p->word : (int64_t)sheaf_dtype_bytes(dtype),
                  high = p->down ? p->per : 1, wide = p->down || p->per == 0 ? 1 : p->per,
                  row1 = (a->row0 + a->rows - 1) / high + 1,
                  col1 = (a->col0 + a->cols - 1) / wide + 1,
                  narrow = p->down                   ? TILE
                           : p->turned && p->per > 0 ? 4 * TILE / wide
                           : p->turned               ? TILE
                                                     : BUFFER / size,
                  cols = least(col1 - a->col0 / wide, narrow), rows = BUFFER / size / cols;
    sheaf_status *st = NULL;
    if (p->per == 1)
        return read_bytes(r, a);
    for (int64_t i = a->row0 / high; st == NULL && i < row1; i += rows)
        for (int64_t c = a->col0 / wide; st == NULL && c < col1; c += cols) {
            const chunk k = { r->buffer, size, i, least(rows, row1 - i), c, least(cols, col1 - c) };
            st = p->turned ? take_lines(r, a->part, size, (a->out + high - 1) / high, k.col, k.cols,
                                        k.row, k.rows)
                           : take_lines(r, a->part, size, (a->in + wide - 1) / wide, k.row, k.rows,
                                        k.col, k.cols);
            if (st == NULL)
                unpack(r, a, &k);
        }
    return st;
}

/* ---- codes ---- */

static sheaf_status *read_codes(reading *r, uint8_t *dst)
{
    const sheaf__quant_box *b = r->box;
    const int64_t runs = b->cols == b->in ? 1 : b->rows, each = b->rows * b->cols / runs;
    sheaf_status *st = NULL;
    if (r->q->form.grouping != SHEAF__GROUPS_FLAT)
        return read_area(r, &(area){ SHEAF__CODES_PART, r->q->out, b->in, b->row0, b->rows, b->col0,
                                     b->cols, dst, b->cols });
    for (int64_t i = 0; st == NULL && i < runs; i++) /* words may have the ends of two rows */
        st = read_area(r, &(area){ SHEAF__CODES_PART, 1, r->q->out * b->in, 0, 1,
                                   (b->row0 + i) * b->in + b->col0, each, dst + i * each, each });
    return st;
}

/* ---- scales and zeros ---- */

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

/* Blocks of bitsandbytes, of floats, or bytes where scales are doubled. */
static sheaf_status *read_flat(reading *r, uint8_t *dst)
{
    const sheaf__quant *f = &r->q->form;
    const sheaf__quant_box *b = r->box;
    const int64_t size = f->doubled ? 1 : 4, last = b->rows - 1;
    int64_t at = sheaf__quant_first_group(f, b, 0), n;
    const int64_t span = sheaf__quant_first_group(f, b, last) - at +
                         (sheaf__quant_phase(f, b, last) + b->cols - 1) / f->block + 1;
    sheaf_status *st = NULL;
    if (span == b->rows * r->groups) /* no row has fewer, none shares one */
        return take(r, SHEAF__SCALES_PART, at * size, span * size, dst);
    memset(dst, 0, (size_t)(b->rows * r->groups * size));
    for (int64_t i = 0; st == NULL && i < b->rows; i++) {
        at = sheaf__quant_first_group(f, b, i);
        n = (sheaf__quant_phase(f, b, i) + b->cols - 1) / f->block + 1;
        st = take(r, SHEAF__SCALES_PART, at * size, n * size, dst + i * r->groups * size);
    }
    return st;
}

/* Scales or zeros of the box, of rows [row0, row0 + rows) of those that the file has. */
static sheaf_status *read_groups(reading *r, int part, void *dst, int64_t row0, int64_t rows)
{
    const int64_t step = part == SHEAF__SCALES_PART && r->q->block_rows > 0 ? r->q->block_rows : 1;
    return read_area(r, &(area){ part, (r->q->out + step - 1) / step, groups_of_row(r), row0, rows,
                                 first_group(r), r->groups, dst, r->groups });
}

static sheaf_status *read_scales(reading *r, const sheaf__quant_parts *to)
{
    const int64_t step = r->q->block_rows, row0 = r->box->row0, rows = r->box->rows;
    sheaf_status *st = NULL;
    if (r->q->form.grouping == SHEAF__GROUPS_FLAT)
        return read_flat(r, r->q->form.doubled ? to->scale_codes : (uint8_t *)to->scales);
    if (step <= 1)
        return read_groups(r, SHEAF__SCALES_PART, to->scales, row0, rows);
    for (int64_t i = 0; st == NULL && i < rows; i++) {
        float *row = to->scales + i * r->groups;
        if (i > 0 && (row0 + i) % step != 0)
            memcpy(row, row - r->groups, (size_t)r->groups * sizeof *row);
        else
            st = read_groups(r, SHEAF__SCALES_PART, row, (row0 + i) / step, 1);
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
    const bool sign = r->q->packing->sizes;
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
    const bool sign = r->q->packing->sizes;
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
        st = read_groups(r, SHEAF__ZEROS_PART, to->zeros, r->box->row0, r->box->rows);
    TRY(st, !r->q->form.doubled ? check_scales(r, to->scales) : NULL);
    return close_parts(r, st);
}

sheaf_status *sheaf__coded_read(const sheaf_catalog *c, const sheaf_logical *t, int64_t row0,
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
    for (int64_t i = 0; st == NULL && sheaf__quant_of_rows(&q->form) && !to->stored && i < rows;
         i++)
        to->scales[i] = sheaf__int8_scale(to->scales[i]);
    return sheaf_in(st, "tensor '%s'", t->entry.name);
}

/* ---- values ---- */

typedef struct of_catalog {
    const sheaf_catalog *c;
    const sheaf_logical *t;
} of_catalog;

static sheaf_status *read_parts(void *self, int64_t row0, int64_t rows, int64_t col0, int64_t cols,
                                const sheaf__quant_parts *to)
{
    const of_catalog *of = self;
    return sheaf__coded_read(of->c, of->t, row0, rows, col0, cols, to);
}

static sheaf_status *read_whole(void *self, sheaf__quant_whole *to)
{
    const of_catalog *of = self;
    return sheaf__coded_whole(of->c, of->t, to);
}

sheaf_status *sheaf__coded_values(const sheaf_catalog *c, const sheaf_logical *t, int64_t row0,
                                  int64_t rows, int64_t col0, int64_t cols, void *dst)
{
    const sheaf__coded *q = t->coded;
    sheaf_status *st = sheaf__safetensors_check_box(t->entry.name, t->entry.dtype, t->entry.ndim,
                                                    t->entry.shape, row0, rows, col0, cols);
    return TRY(st, sheaf__read_values(
                       dst,
                       &(sheaf__codes_reader){ .quant = &q->form,
                                               .out = q->out,
                                               .in = q->in,
                                               .to = t->entry.dtype,
                                               .tall = q->packing->plane[SHEAF__CODES_PART].turned,
                                               .self = &(of_catalog){ c, t },
                                               .read = read_parts,
                                               .whole = read_whole },
                       row0, rows, col0, cols));
}
