/* matmul_quant_load.c - quantised weights on a device: filled from what a source reads, in cells
 * (matmul_quant.h), or row by row (quant_layout.h). */
#include "ops/call.h"
#include "ops/matmul/matmul_quant.h"
#include "ops/matmul/matmul_weight.h"
#include "ops/quant/quantise.h"

sheaf__packed sheaf__packed_quantised(const sheaf__device *device, sheaf_dtype dtype,
                                      const sheaf__quant *quant, const sheaf__quant_box *box)
{
    sheaf__packed w = sheaf__packed_on(device, dtype, box->rows, box->cols);
    w.quantised = true;
    w.quant = *quant;
    w.box = *box;
    return w;
}

/* ---- into cells ---- */

/* The parts of one row: NULL, of a row that fills up the last panel. */
typedef struct row_parts {
    const uint8_t *codes, *zeros, *scale_codes;
    const float *scales;
} row_parts;

static row_parts parts_of(const mm_load_codes *load, int64_t row)
{
    const int64_t groups = sheaf__quant_groups(&load->w.quant, &load->w.box), at = row * groups;
    const sheaf__quant_parts *p = &load->parts;
    row_parts out = { .codes = p->codes + row * load->w.k };
    if (load->w.quant.zeros)
        out.zeros = p->zeros + at;
    if (load->w.quant.doubled)
        out.scale_codes = p->scale_codes + at;
    else
        out.scales = p->scales + at * sheaf__quant_floats(&load->w.quant);
    return out;
}

/* A unit's codes of 4 bits. */
static uint32_t eight_codes(const uint8_t *codes)
{
    uint32_t word = 0;
    for (int c = 0; c < MM_UNIT; c++)
        word |= (uint32_t)codes[c] << (c % 2 * 16 + mm_code_shift(4, c / 2));
    return word;
}

/* Row r's codes in a block. */
static void put_codes(uint32_t *to, const sheaf__quant *q, int64_t r, const uint8_t *codes,
                      int64_t cols)
{
    const int64_t words = sheaf__code_bits(q->codes) / 4;
    for (int64_t u = 0; u < cols; u += MM_UNIT) {
        const int64_t n = codes == NULL ? 0 : mm_min(MM_UNIT, cols - u);
        uint32_t *unit = &to[(u / MM_UNIT * MM_PANEL + r) * words];
        memset(unit, 0, (size_t)words * sizeof *to);
        if (words == 1 && n == MM_UNIT) {
            *unit = eight_codes(codes + u);
            continue;
        }
        for (int64_t c = u; c < u + n; c++) {
            int shift;
            const int64_t word = mm_code_word(q, r, c, &shift);
            to[word] |= (uint32_t)codes[c] << shift;
        }
    }
}

/* Groups [g, g + n) of a row, `held` of which are there, as groups [0, n) of a cell or of the
 * panel. */
static void put_groups(char *scales, uint8_t *zeros, const sheaf__packed *w, const row_parts *from,
                       int64_t g, int64_t n, int64_t held)
{
    const int64_t floats = sheaf__quant_floats(&w->quant);
    for (int64_t i = 0; i < n; i++) {
        const bool have = from->codes != NULL && i < held;
        if (w->quant.doubled)
            ((uint8_t *)scales)[i * MM_PANEL] = have ? from->scale_codes[g + i] : 0;
        for (int64_t k = i * floats; k < (i + 1) * floats && !w->quant.doubled; k++)
            ((float *)scales)[k * MM_PANEL] = have ? from->scales[g * floats + k] : 0;
        if (w->quant.zeros)
            zeros[i * MM_PANEL] = have ? from->zeros[g + i] : 0;
    }
}

static void put_row(const mm_codes *l, int64_t row, const row_parts *from)
{
    const sheaf__packed *w = l->w;
    const sheaf__quant *q = &w->quant;
    const int64_t at = w->row0 + row, r = at % MM_PANEL, size = mm_scale_bytes(q);
    char *all = w->ahead;
    for (int64_t k0 = 0; k0 < w->k; k0 += MM_BLOCK) {
        const int64_t cols = mm_min(MM_BLOCK, w->k - k0), groups = mm_cell_groups(l, cols);
        char *cell = all + mm_cell_at(l, row, k0);
        int64_t first = 0, held = 1;
        if (q->block > 0 && q->grouping != SHEAF__GROUPS_INDEXED) {
            const int64_t phase = sheaf__quant_phase(q, &w->box, at);
            first = (phase + k0) / q->block;
            held = (phase + k0 + cols - 1) / q->block - first + 1;
        }
        put_groups(cell + r * (q->doubled ? 1 : 4), (uint8_t *)cell + groups * MM_PANEL * size + r,
                   w, from, first, groups, held);
        put_codes((uint32_t *)(cell + mm_cell_head(l, cols)), q, r,
                  from->codes == NULL ? NULL : from->codes + k0, cols);
    }
    if (q->grouping == SHEAF__GROUPS_INDEXED) {
        const int64_t before = at / MM_PANEL * q->groups * MM_PANEL + r;
        put_groups(all + l->scales + before * size, (uint8_t *)all + l->zeros + before, w, from, 0,
                   q->groups, q->groups);
    }
}

static void load_codes(sheaf__device *device, void *arguments)
{
    const mm_load_codes *load = arguments;
    const mm_codes l = sheaf__mm_codes(&load->w);
    const int64_t end = load->first + load->count;
    for (int64_t r = 0; r < load->count; r++) {
        const row_parts from = parts_of(load, r);
        put_row(&l, load->first + r, &from);
    }
    if (load->count > 0 && load->w.row0 + end == mm_rows_ahead(&load->w))
        for (int64_t r = end; (load->w.row0 + r) % MM_PANEL != 0; r++)
            put_row(&l, r, &(row_parts){ 0 });
}

static void load_whole(sheaf__device *device, void *arguments)
{
    const mm_load_whole *load = arguments;
    const sheaf__packed *w = &load->w;
    const mm_codes l = sheaf__mm_codes(w);
    char *all = w->ahead;
    int64_t first;
    if (load->index != NULL)
        memcpy(all + l.index, load->index, (size_t)(2 * w->k));
    if (!w->quant.doubled)
        return;
    memcpy(all + l.nested, load->nested, (size_t)mm_quant_nested(&first, &w->quant, &w->box) * 4);
    sheaf__dynamic_map((float *)(all + l.map), true);
}

/* ---- row by row ---- */

static sheaf_status *upload(sheaf__device *device, const sheaf__packed *w, int64_t at,
                            const void *from, int64_t bytes)
{
    return bytes == 0 ? NULL
                      : device->class->upload(device->reserved, (char *)w->ahead + at, from,
                                              (size_t)bytes);
}

static void pack_row(uint8_t *to, const sheaf__quant *q, const uint8_t *codes, int64_t cols)
{
    if (sheaf__code_bits(q->codes) == 8) {
        memcpy(to, codes, (size_t)cols);
        return;
    }
    for (int64_t c = 0; c < cols; c++)
        to[c / 2] |= (uint8_t)(codes[c] << c % 2 * 4);
}

static sheaf_status *upload_scales(sheaf__device *device, const sheaf__packed *w,
                                   const mm_quant_rows *l, const sheaf__quant_parts *parts,
                                   int64_t row, int64_t count)
{
    const int64_t each = l->groups * mm_scale_bytes(&w->quant);
    const void *from = w->quant.doubled ? (const void *)parts->scale_codes : parts->scales;
    return upload(device, w, l->scales + row * each, from, count * each);
}

static sheaf_status *upload_codes(sheaf__device *device, const sheaf__packed *w,
                                  const sheaf__quant_parts *parts, int64_t first, int64_t count)
{
    const mm_quant_rows l = mm_quant_rows_of(&w->quant, &w->box);
    const int64_t row = w->row0 + first;
    if (device->class->counts || count == 0)
        return NULL;
    uint8_t *rows = calloc((size_t)count, (size_t)l.row_bytes + 1);
    if (rows == NULL)
        return sheaf__no_memory("rows of a weight");
    for (int64_t r = 0; r < count; r++)
        pack_row(rows + r * l.row_bytes, &w->quant, parts->codes + r * w->k, w->k);
    sheaf_status *st = upload(device, w, row * l.row_bytes, rows, count * l.row_bytes);
    free(rows);
    TRY(st, upload_scales(device, w, &l, parts, row, count));
    if (w->quant.zeros)
        TRY(st, upload(device, w, l.zeros + row * l.groups, parts->zeros, count * l.groups));
    return st;
}

static sheaf_status *upload_whole(sheaf__device *device, const mm_load_whole *load)
{
    const sheaf__packed *w = &load->w;
    const mm_quant_rows l = mm_quant_rows_of(&w->quant, &w->box);
    float map[256];
    sheaf_status *st = NULL;
    if (device->class->counts)
        return NULL;
    if (load->index != NULL)
        st = upload(device, w, l.index, load->index, 2 * w->k);
    if (!w->quant.doubled)
        return st;
    sheaf__dynamic_map(map, true);
    TRY(st, upload(device, w, l.nested_at, load->nested, 4 * l.nested));
    TRY(st, upload(device, w, l.map, map, sizeof map));
    return st;
}

/* ---- the operations ---- */

void sheaf__weight_load_codes(sheaf__device *device, sheaf__packed *w,
                              const sheaf__quant_parts *parts, int64_t first, int64_t count)
{
    if (w->row_major) {
        sheaf__device_fail(device, upload_codes(device, w, parts, first, count));
        return;
    }
    mm_load_codes l = { *w, *parts, first, count };
    const sheaf__operand operand = SHEAF__WRITES(l.w.ahead, sheaf__packed_size(w));
    sheaf__run(device, &(sheaf__call){ .operation = SHEAF__OP_WEIGHT_CODES,
                                       .arguments = &l,
                                       .operand = &operand,
                                       .operands = 1,
                                       .whole = load_codes });
}

void sheaf__weight_load_whole(sheaf__device *device, sheaf__packed *w,
                              const sheaf__quant_whole *whole)
{
    int64_t first;
    w->offset = whole->offset;
    mm_quant_nested(&first, &w->quant, &w->box);
    mm_load_whole l = { .w = *w };
    if (w->quant.grouping == SHEAF__GROUPS_INDEXED)
        l.index = whole->index + w->box.col0;
    if (w->quant.doubled)
        l.nested = whole->nested + first;
    if (w->row_major) {
        sheaf__device_fail(device, upload_whole(device, &l));
        return;
    }
    const sheaf__operand operand = SHEAF__WRITES(l.w.ahead, sheaf__packed_size(w));
    sheaf__run(device, &(sheaf__call){ .operation = SHEAF__OP_WEIGHT_WHOLE,
                                       .arguments = &l,
                                       .operand = &operand,
                                       .operands = 1,
                                       .whole = load_whole });
}

/* ---- from rows to cells ---- */

static void unpack_row(uint8_t *to, const sheaf__quant *q, const uint8_t *row, int64_t cols)
{
    const bool four = sheaf__code_bits(q->codes) == 4;
    for (int64_t c = 0; c < cols; c++)
        to[c] = four ? row[c / 2] >> c % 2 * 4 & 15 : row[c];
}

sheaf_status *sheaf__mm_rows_to_cells(sheaf__packed *to, const sheaf__packed *rows)
{
    const sheaf__quant *q = &rows->quant;
    const mm_quant_rows l = mm_quant_rows_of(q, &rows->box);
    const char *all = rows->ahead;
    const int64_t group = rows->row0 * l.groups;
    int64_t first;
    *to = *rows;
    to->row_major = false;
    to->row0 = to->rows = 0;
    to->box.row0 += rows->row0;
    to->box.rows = rows->n;
    mm_quant_nested(&first, q, &to->box);
    to->ahead = aligned_alloc(64, mm_up((int64_t)sheaf__packed_size(to), 64) + 64);
    uint8_t *codes = malloc((size_t)(rows->n * rows->k) + 1);
    if (to->ahead == NULL || codes == NULL) {
        free(codes);
        free(to->ahead);
        to->ahead = NULL;
        return sheaf__no_memory("codes of a weight");
    }
    for (int64_t r = 0; r < rows->n; r++)
        unpack_row(codes + r * rows->k, q, (const uint8_t *)all + (rows->row0 + r) * l.row_bytes,
                   rows->k);
    mm_load_whole whole = { *to, NULL, NULL };
    if (q->grouping == SHEAF__GROUPS_INDEXED)
        whole.index = (const uint16_t *)(all + l.index);
    if (q->doubled)
        whole.nested = (const float *)(all + l.nested_at) + first - l.first_nested;
    load_whole(NULL, &whole);
    mm_load_codes load = { *to,
                           { .codes = codes,
                             .scales = (float *)(all + l.scales) + group * sheaf__quant_floats(q),
                             .scale_codes = (uint8_t *)all + l.scales + group,
                             .zeros = (uint8_t *)all + l.zeros + group },
                           0,
                           rows->n };
    load_codes(NULL, &load);
    free(codes);
    return NULL;
}
