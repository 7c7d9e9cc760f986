/* coded_values.c - see coded.h: values out of codes. */
#include "base/base.h"
#include "catalog/coded.h"
#include "catalog/private.h"
#include "ops/quant/quantise.h"

/* Elements that are dequantised at once: of tall boxes more, as coded_read.c reads the scales of
 * all groups for each where columns name theirs. */
enum { STRIP = 1 << 16, TALL = 512, TALL_STRIP = 1 << 20 };

/* Memory for a strip of rows and columns, wherever it lies. */
static sheaf_status *make(sheaf__dequantised *s, const sheaf_logical *t, int64_t rows, int64_t cols)
{
    const sheaf__coded *q = t->coded;
    const sheaf__quant_box box = { q->in, 0, rows, 0, cols };
    const size_t most = (size_t)(rows * (sheaf__quant_groups(&q->form, &box) + 1)),
                 nested = (size_t)sheaf__quant_nested(&q->form, q->out * q->in);
    *s = (sheaf__dequantised){ .quant = &q->form,
                               .what = SHEAF__VALUES_PROGRAM,
                               .to = t->entry.dtype };
    s->parts.codes = malloc((size_t)(rows * cols));
    s->parts.scales = q->form.doubled ? NULL : malloc(most * sizeof(float));
    s->parts.scale_codes = q->form.doubled ? malloc(most) : NULL;
    s->parts.zeros = q->form.zeros ? malloc(most) : NULL;
    s->whole.nested = q->form.doubled ? malloc(nested * sizeof(float) + 1) : NULL;
    s->whole.index = q->index != NULL ? malloc((size_t)q->in * sizeof *q->index) : NULL;
    const bool all = s->parts.codes != NULL &&
                     (q->form.doubled ? s->parts.scale_codes != NULL && s->whole.nested != NULL
                                      : s->parts.scales != NULL) &&
                     (!q->form.zeros || s->parts.zeros != NULL) &&
                     (q->index == NULL || s->whole.index != NULL);
    return all ? NULL : sheaf__no_memory(t->entry.name);
}

static void release(sheaf__dequantised *s)
{
    free(s->parts.codes);
    free(s->parts.scales);
    free(s->parts.scale_codes);
    free(s->parts.zeros);
    free(s->whole.nested);
    free(s->whole.index);
}

sheaf_status *sheaf__coded_values(const sheaf_catalog *c, const sheaf_logical *t, int64_t row0,
                                  int64_t rows, int64_t col0, int64_t cols, void *dst)
{
    const sheaf__coded *q = t->coded;
    const bool by_columns = q->packing->plane[SHEAF__CODES_PART].turned;
    const int64_t bytes = (int64_t)sheaf_dtype_bytes(t->entry.dtype);
    sheaf__dequantised s;
    sheaf_status *st = sheaf__safetensors_check_box(t->entry.name, t->entry.dtype, t->entry.ndim,
                                                    t->entry.shape, row0, rows, col0, cols);
    if (st != NULL || rows == 0 || cols == 0)
        return st;
    const int64_t high = least(rows, by_columns ? TALL : STRIP / least(cols, STRIP)),
                  wide = least(cols, (by_columns ? TALL_STRIP : STRIP) / high);
    st = make(&s, t, high, wide);
    TRY(st, sheaf__coded_whole(c, t, &s.whole));
    for (int64_t r = 0; st == NULL && r < rows; r += high)
        for (int64_t k = 0; st == NULL && k < cols; k += wide) {
            s.box = (sheaf__quant_box){ q->in, row0 + r, least(high, rows - r), col0 + k,
                                        least(wide, cols - k) };
            st = sheaf__coded_raw(c, t, s.box.row0, s.box.rows, s.box.col0, s.box.cols, &s.parts);
            if (st == NULL)
                sheaf__dequantise((char *)dst + (r * cols + k) * bytes, cols, &s, 0, s.box.rows);
        }
    release(&s);
    return st;
}
