/* matmul_pack.c - weights into panels, for x W^T: W[row][col] is in block col/256, panel row/32; or
 * into rows, as a device has them that wants no panels.
 *
 * Padding, and the odd half of a last pair, is zero. All conversions work on
 * bits, so DAZ and FTZ of the calling thread do not matter. */
#include "ops/matmul/matmul_quant.h"
#include "ops/matmul/matmul_transpose.h"

size_t sheaf__packed_bytes(sheaf_dtype dtype, int64_t n, int64_t k)
{
    return (size_t)mm_words_ahead(dtype, n, k) * sizeof(uint32_t);
}

size_t sheaf__packed_size(const sheaf__packed *w)
{
    if (w->quantised)
        return sheaf__mm_quant_size(w);
    return w->row_major ? (size_t)(mm_rows_ahead(w) * w->k * mm_size(w->dtype))
                        : sheaf__packed_bytes(w->dtype, mm_rows_ahead(w), w->k);
}

sheaf__packed sheaf__packed_on(const sheaf__device *device, sheaf_dtype dtype, int64_t n, int64_t k)
{
    return (
        sheaf__packed){ .dtype = dtype, .n = n, .k = k, .row_major = device->planned->row_major };
}

sheaf__packed sheaf__packed_part(const sheaf__packed *w, int64_t row0, int64_t n)
{
    return (sheaf__packed){ .dtype = w->dtype,
                            .n = n,
                            .k = w->k,
                            .row0 = w->row0 + row0,
                            .rows = mm_rows_ahead(w),
                            .ahead = w->ahead,
                            .code = w->code,
                            .row_major = w->row_major,
                            .quantised = w->quantised,
                            .quant = w->quant,
                            .box = w->box,
                            .offset = w->offset };
}

static void convert(void *dst, sheaf_dtype to, const void *src, sheaf_dtype from, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        mm_put(dst, i, sheaf__load(src, i, from), to);
}

/* A piece of W in w->dtype: `rows` rows from `row`, all in one panel, `cols` columns from `col`,
 * all in one block. */
typedef struct piece {
    const char *src;
    int64_t step; /* bytes between rows */
    int64_t row, rows, col, cols;
} piece;

static void write_panel(uint32_t *to, const sheaf__packed *w, const piece *p)
{
    const bool pairs = w->dtype != SHEAF_F32;
    mm_transpose(to, MM_PANEL, p->src, p->step, p->rows, pairs ? p->cols / 2 : p->cols, 0);
    if (pairs && p->cols % 2)
        for (int64_t r = 0; r < p->rows; r++) {
            uint16_t last;
            memcpy(&last, p->src + r * p->step + (p->cols - 1) * 2, 2);
            to[p->cols / 2 * MM_PANEL + r] = last;
        }
}

static void write_ahead(const sheaf__packed *w, const piece *p)
{
    if (w->code == NULL) {
        write_panel((uint32_t *)w->ahead + mm_ahead_at(w, p->row, p->col), w, p);
        return;
    }
    uint32_t box[MM_PANEL * (MM_BLOCK / 2 + 1)];
    if (p->rows < MM_PANEL)
        memset(box, 0, sizeof box);
    write_panel(box, w, p);
    sheaf__mm_compress(w, p->row, p->col, box);
}

/* The rows of the last ahead panel that nothing has; W's last row is the last one there is. */
static void clear_padding(const sheaf__packed *w)
{
    const int64_t used = (w->row0 + w->n) % MM_PANEL;
    for (int64_t k0 = 0; used && k0 < w->k; k0 += MM_BLOCK) {
        uint32_t *panel = (uint32_t *)w->ahead + mm_ahead_at(w, w->n - 1, k0) - (used - 1);
        for (int64_t s = 0; s < mm_steps(w->dtype, mm_min(MM_BLOCK, w->k - k0)); s++)
            memset(panel + s * MM_PANEL + used, 0, (size_t)(MM_PANEL - used) * sizeof *panel);
    }
}

void sheaf__mm_rows_as(void *dst, const sheaf__packed *w, const void *src, sheaf_dtype from,
                       int64_t ld, int64_t count)
{
    for (int64_t r = 0; r < count; r++) {
        char *to = (char *)dst + r * w->k * mm_size(w->dtype);
        const char *at = (const char *)src + r * ld * mm_size(from);
        if (from == w->dtype)
            memcpy(to, at, (size_t)(w->k * mm_size(from)));
        else
            convert(to, w->dtype, at, from, w->k);
    }
}

void sheaf__pack(sheaf__packed *w, const void *src, sheaf_dtype from, int64_t ld, int64_t first,
                 int64_t count)
{
    float buffer[MM_PANEL][MM_BLOCK];
    assert(!w->quantised);
    if (w->row_major) {
        sheaf__mm_rows_as(mm_row_at(w, first), w, src, from, ld, count);
        return;
    }
    assert(w->code == NULL ||
           (first % MM_PANEL == 0 && ((first + count) % MM_PANEL == 0 || first + count == w->n)));
    const int64_t size = mm_size(w->dtype), size_from = mm_size(from), end = first + count;
    for (int64_t r = first, rows; r < end; r += rows) {
        rows = mm_min(end - r, MM_PANEL - (w->row0 + r) % MM_PANEL);
        for (int64_t c = 0; c < w->k; c += MM_BLOCK) {
            piece p = { .row = r, .rows = rows, .col = c, .cols = mm_min(MM_BLOCK, w->k - c) };
            const char *at = (const char *)src + ((r - first) * ld + c) * size_from;
            if (from == w->dtype) {
                p.src = at;
                p.step = ld * size;
            } else {
                for (int64_t i = 0; i < rows; i++)
                    convert(buffer[i], w->dtype, at + i * ld * size_from, from, p.cols);
                p.src = (const char *)buffer;
                p.step = sizeof buffer[0];
            }
            write_ahead(w, &p);
        }
    }
    if (count > 0 && w->row0 + end == mm_rows_ahead(w) && w->code == NULL)
        clear_padding(w);
}

void sheaf__packed_row(void *dst, const sheaf__packed *w, int64_t row)
{
    if (w->quantised) {
        const mm_codes l = sheaf__mm_codes(w);
        for (int64_t k = 0; k < w->k; k++)
            mm_put(dst, k, sheaf__mm_value(&l, row, k, false), w->dtype);
        return;
    }
    if (w->code != NULL) {
        for (int64_t k = 0; k < w->k; k++)
            ((uint16_t *)dst)[k] = sheaf__mm_code_half(w, row, k);
        return;
    }
    if (w->row_major)
        memcpy(dst, mm_row_at(w, row), (size_t)(w->k * mm_size(w->dtype)));
    for (int64_t k0 = 0; k0 < w->k && !w->row_major; k0 += MM_BLOCK) {
        const int64_t count = mm_min(MM_BLOCK, w->k - k0);
        const uint32_t *src = (const uint32_t *)w->ahead + mm_ahead_at(w, row, k0);
        if (w->dtype != SHEAF_F32)
            for (int64_t c = 0; c < count; c++)
                ((uint16_t *)dst)[k0 + c] = (uint16_t)(src[c / 2 * MM_PANEL] >> (c % 2 * 16));
        else
            for (int64_t c = 0; c < count; c++)
                ((uint32_t *)dst)[k0 + c] = src[c * MM_PANEL];
    }
}
