/* matmul_weight.c - packed weights on a device: filled from a file's rows, or from masters. */
#include "ops/matmul/matmul_weight.h"

#include "ops/call.h"
#include "ops/matmul/matmul_private.h"

static void pack(sheaf__device *device, void *arguments)
{
    mm_load *l = arguments;
    sheaf__pack(&l->w, l->src, l->from, l->ld, l->first, l->count);
}

/* Rows go straight where they belong; several threads bring some. As where weights are packed,
 * their bytes are not counted. */
static sheaf_status *upload_rows(sheaf__device *device, const sheaf__packed *w, const void *src,
                                 sheaf_dtype from, int64_t ld, int64_t first, int64_t count)
{
    const size_t bytes = (size_t)(count * w->k * mm_size(w->dtype));
    if (device->class->counts || bytes == 0)
        return NULL;
    if (from == w->dtype && (ld == w->k || count == 1))
        return device->class->upload(device->reserved, mm_row_at(w, first), src, bytes);
    void *rows = malloc(bytes + 1);
    if (rows == NULL)
        return sheaf__no_memory("rows of a weight");
    sheaf__mm_rows_as(rows, w, src, from, ld, count);
    sheaf_status *st = device->class->upload(device->reserved, mm_row_at(w, first), rows, bytes);
    free(rows);
    return st;
}

void sheaf__weight_load(sheaf__device *device, sheaf__packed *w, const void *src, sheaf_dtype from,
                        int64_t ld, int64_t first, int64_t count)
{
    if (w->row_major) {
        sheaf__device_fail(device, upload_rows(device, w, src, from, ld, first, count));
        return;
    }
    mm_load l = { *w, src, from, ld, first, count };
    const sheaf__operand operand = SHEAF__WRITES(l.w.ahead, sheaf__packed_size(w));
    sheaf__run(device, &(sheaf__call){ .operation = SHEAF__OP_WEIGHT_LOAD,
                                       .arguments = &l,
                                       .operand = &operand,
                                       .operands = 1,
                                       .whole = pack });
}

/* By panels, over threads. */
static void refresh_part(const sheaf__kernels *k, const void *arg, int64_t begin, int64_t end)
{
    const mm_load *l = arg;
    sheaf__packed w = l->w;
    const int64_t row = begin * MM_PANEL, last = mm_min(end * MM_PANEL, w.n);
    sheaf__pack(&w, (const float *)l->src + row * w.k, SHEAF_F32, w.k, row, last - row);
}

void sheaf__weight_refresh(sheaf__device *device, sheaf__packed *w, const float *master)
{
    mm_load l = { .w = *w, .src = master };
    const sheaf__operand operand[] = { SHEAF__WRITES(l.w.ahead, sheaf__packed_size(w)),
                                       SHEAF__READS(l.src, (size_t)(w->n * w->k) * sizeof(float)) };
    sheaf__run(device, &(sheaf__call){ .operation = SHEAF__OP_WEIGHT_REFRESH,
                                       .arguments = &l,
                                       .operand = operand,
                                       .operands = 2,
                                       .part = refresh_part,
                                       .rows = mm_div_up(w->n, MM_PANEL),
                                       .grain = 1 });
}

/* ---- rows by token ---- */

/* A row stored narrower than x is laid at the end of x and widened from there: writing never
 * overtakes reading. */
static void row_to(const sheaf__kernels *k, void *x, sheaf_dtype dtype, const sheaf__packed *w,
                   int64_t row)
{
    const size_t wide = sheaf_dtype_bytes(dtype), narrow = sheaf_dtype_bytes(w->dtype);
    char *at = (char *)x + (size_t)w->k * (wide - narrow);
    enum { PART = 256 };
    uint32_t part[PART];
    sheaf__packed_row(at, w, row);
    for (int64_t i = 0, n; w->dtype != dtype && i < w->k; i += n) {
        n = mm_min(w->k - i, PART);
        memcpy(part, at + (size_t)i * narrow, (size_t)n * narrow);
        k->convert(sheaf__at(x, i, dtype), dtype, part, w->dtype, n);
    }
}

static void rows_part(const sheaf__kernels *k, const void *arg, int64_t begin, int64_t end)
{
    const mm_lookup *l = arg;
    for (int64_t i = begin; i < end; i++) {
        const int64_t id = l->tokens.id[i];
        const int piece = sheaf__pieces_find(&l->pieces, id);
        if (piece >= 0)
            row_to(k, sheaf__at(l->x, i * l->w[piece].k, l->dtype), l->dtype, &l->w[piece],
                   id - l->pieces.begin[piece]);
    }
}

void sheaf__op_packed_rows(sheaf__device *device, void *x, sheaf_dtype dtype,
                           const sheaf__packed *w, const sheaf__pieces *pieces,
                           sheaf__tokens tokens)
{
    mm_lookup l = { .pieces = *pieces, .tokens = tokens, .x = x, .dtype = dtype };
    sheaf__operand operand[2 * SHEAF_MAX_SLICES + 2] = {
        SHEAF__READS(l.tokens.id, (size_t)tokens.n * sizeof(int32_t)),
        SHEAF__WRITES(l.x, (size_t)(tokens.n * w[0].k) * sheaf_dtype_bytes(dtype)),
    };
    int n = 2;
    for (int i = 0; i < pieces->count; i++) {
        l.w[i] = w[i];
        operand[n++] = SHEAF__READS(l.w[i].ahead, sheaf__packed_size(&w[i]));
        operand[n++] = SHEAF__READS(l.w[i].code, sizeof(mm_code)); /* it lies there, too */
    }
    sheaf__run(device, &(sheaf__call){ .operation = SHEAF__OP_PACKED_ROWS,
                                       .arguments = &l,
                                       .operand = operand,
                                       .operands = n,
                                       .part = rows_part,
                                       .rows = tokens.n,
                                       .grain = 32 });
}
