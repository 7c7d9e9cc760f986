/* rows.c - operations that move rows and add them up, see tensor.h. */
#include "ops/call.h"
#include "ops/tensor/tensor.h"

static void move_part(const sheaf__kernels *k, const void *arg, int64_t begin, int64_t end)
{
    const sheaf__move *m = arg;
    const size_t bytes = (size_t)m->cols * sheaf_dtype_bytes(m->dtype);
    for (int64_t r = begin; r < end; r++) {
        const int64_t wide = sheaf__row_map_at(&m->map, r);
        char *to = sheaf__at(m->to, (m->gather ? r : wide) * m->cols, m->dtype);
        const char *from =
            m->from == NULL ? NULL : sheaf__at(m->from, (m->gather ? wide : r) * m->cols, m->dtype);
        if (m->row != NULL)
            k->round(to, m->dtype, m->row, m->cols);
        else if (from == NULL)
            memset(to, 0, bytes);
        else if (m->add)
            k->accumulate(to, from, m->cols, m->dtype);
        else
            memcpy(to, from, bytes);
    }
}

/* Entries of the map's list, or rows of the wide matrix where it has none, that `rows` reach. */
static int64_t reach(const sheaf__row_map *p, int64_t rows)
{
    if (rows == 0)
        return 0;
    const int64_t last = rows - 1;
    return last / p->n * (p->before + p->n + p->after) + p->before + last % p->n + 1;
}

void sheaf__op_move_rows(sheaf__device *device, sheaf__move m)
{
    const size_t row = (size_t)m.cols * sheaf_dtype_bytes(m.dtype);
    const size_t narrow = (size_t)m.rows * row,
                 wide = (size_t)(m.map.list == NULL ? reach(&m.map, m.rows) : m.map.wide) * row;
    const sheaf__operand operand[] = {
        SHEAF__WRITES(m.to, m.gather ? narrow : wide),
        SHEAF__READS(m.from, m.gather ? wide : narrow),
        SHEAF__READS(m.row, (size_t)m.cols * sizeof(float)),
        SHEAF__READS(m.map.list, (size_t)reach(&m.map, m.rows) * sizeof(int32_t)),
    };
    sheaf__run(device, &(sheaf__call){ SHEAF__OP_MOVE_ROWS, &m, SHEAF__OPERANDS(operand), move_part,
                                       m.rows, 32 });
}

static void sums_part(const sheaf__kernels *k, const void *arg, int64_t begin, int64_t end)
{
    const sheaf__columns *s = arg;
    k->column_sums(s->grad + begin, sheaf__at(s->dy, begin, s->dtype), s->ld, s->rows, end - begin,
                   s->dtype);
}

void sheaf__op_column_sums(sheaf__device *device, float *grad, const void *dy, int64_t ld,
                           int64_t rows, int64_t cols, sheaf_dtype dtype)
{
    sheaf__columns c = { grad, dy, ld, rows, cols, dtype };
    const sheaf__operand operand[] = { SHEAF__WRITES(c.grad, (size_t)cols * sizeof(float)),
                                       SHEAF__READS(c.dy, sheaf__extent(rows, ld, cols, dtype)) };
    sheaf__run(device, &(sheaf__call){ SHEAF__OP_COLUMN_SUMS, &c, SHEAF__OPERANDS(operand),
                                       sums_part, cols, 256 });
}

static void box_part(const sheaf__kernels *k, const void *arg, int64_t begin, int64_t end)
{
    const sheaf__boxes *b = arg;
    const size_t bytes = (size_t)b->cols * sheaf_dtype_bytes(b->dtype);
    for (int64_t row = begin, n; row < end; row += n) { /* box by box: rows may be short */
        const int64_t box = row / b->count[2], first = row % b->count[2],
                      left = b->count[2] - first;
        const int64_t at[3] = { box / b->count[1], box % b->count[1], first };
        int64_t to = 0, from = 0;
        for (int i = 0; i < 3; i++) {
            to += at[i] * b->ld_dst[i];
            from += at[i] * b->ld_src[i];
        }
        n = end - row < left ? end - row : left;
        for (int64_t r = 0; r < n; r++, to += b->ld_dst[2], from += b->ld_src[2])
            memcpy(sheaf__at(b->dst, to, b->dtype), sheaf__at(b->src, from, b->dtype), bytes);
    }
}

static size_t box_bytes(const sheaf__boxes *b, const int64_t ld[3])
{
    int64_t last = 0;
    for (int i = 0; i < 3; i++)
        last += (b->count[i] - 1) * ld[i];
    return (size_t)(last + b->cols) * sheaf_dtype_bytes(b->dtype);
}

void sheaf__op_copy_boxes(sheaf__device *device, sheaf__boxes b)
{
    const int64_t rows = b.count[0] * b.count[1] * b.count[2];
    if (rows == 0 || b.cols == 0)
        return;
    const sheaf__operand operand[] = { SHEAF__WRITES(b.dst, box_bytes(&b, b.ld_dst)),
                                       SHEAF__READS(b.src, box_bytes(&b, b.ld_src)) };
    sheaf__run(device, &(sheaf__call){ SHEAF__OP_COPY_BOXES, &b, SHEAF__OPERANDS(operand), box_part,
                                       rows, 64 });
}

void sheaf__op_copy_box(sheaf__device *device, void *dst, int64_t ld_dst, const void *src,
                        int64_t ld_src, int64_t rows, int64_t cols, sheaf_dtype dtype)
{
    sheaf__op_copy_boxes(device, (sheaf__boxes){ .dtype = dtype,
                                                 .dst = dst,
                                                 .src = src,
                                                 .count = { 1, 1, rows },
                                                 .ld_dst = { 0, 0, ld_dst },
                                                 .ld_src = { 0, 0, ld_src },
                                                 .cols = cols });
}

static void transpose_part(const sheaf__kernels *k, const void *arg, int64_t begin, int64_t end)
{
    const sheaf__transposed *t = arg;
    for (int64_t c = begin; c < end; c++)
        for (int64_t r = 0; r < t->rows; r++)
            t->to[c * t->rows + r] = t->from[r * t->cols + c];
}

void sheaf__op_transpose(sheaf__device *device, float *to, const float *from, int64_t rows,
                         int64_t cols)
{
    sheaf__transposed t = { to, from, rows, cols };
    const size_t bytes = (size_t)(rows * cols) * sizeof(float);
    const sheaf__operand operand[] = { SHEAF__WRITES(t.to, bytes), SHEAF__READS(t.from, bytes) };
    sheaf__run(device, &(sheaf__call){ SHEAF__OP_TRANSPOSE, &t, SHEAF__OPERANDS(operand),
                                       transpose_part, cols, 1 });
}
