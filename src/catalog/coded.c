/* coded.c - see coded.h: parts, and what a tensor has as a whole. */
#include "catalog/coded.h"

#include <math.h>

#include "base/base.h"
#include "catalog/boxes.h"
#include "catalog/private.h"

int64_t sheaf__coded_bytes(const sheaf__coded *q)
{
    int64_t bytes = 0;
    for (int i = 0; i < SHEAF__PARTS; i++)
        if (q->part[i].npieces > 0)
            bytes += sheaf__elements(q->part[i].entry.ndim, q->part[i].entry.shape) *
                     (int64_t)sheaf_dtype_bytes(q->part[i].entry.dtype);
    return bytes;
}

static bool is_dense(const sheaf_logical *t)
{
    int64_t stride = 1;
    if (sheaf__elements(t->entry.ndim, t->entry.shape) == 0)
        return true;
    if (t->npieces != 1 || t->piece[0].dtype != t->entry.dtype)
        return false;
    for (int i = t->entry.ndim - 1; i >= 0; i--) {
        if (t->piece[0].size[i] != t->entry.shape[i] ||
            (t->entry.shape[i] != 1 && t->piece[0].stride[i] != stride))
            return false;
        stride *= t->entry.shape[i];
    }
    return true;
}

sheaf_status *sheaf__coded_take(sheaf__coded *q, int part, const sheaf_catalog *c, sheaf_logical *t)
{
    if (!is_dense(t)) {
        sheaf_status *st = sheaf_fail(SHEAF_E_UNSUPPORTED, "tensor '%s'", t->entry.name);
        sheaf_found(sheaf_expected(st, "a part of a quantized tensor, dense and in one place"),
                    "another order of its elements, or several places");
        return sheaf_try_this(st, "save it with .contiguous()");
    }
    sheaf_logical *to = &q->part[part];
    *to = *t;
    to->entry.name = strdup(t->entry.name);
    if (to->entry.name == NULL) {
        *to = (sheaf_logical){ 0 };
        return sheaf__no_memory(c->root);
    }
    t->piece = NULL;
    t->npieces = t->capacity = 0;
    return NULL;
}

sheaf_status *sheaf__part_bytes(void *dst, const sheaf_catalog *c, const sheaf_logical *t,
                                int64_t begin, int64_t size)
{
    const int64_t all =
        sheaf__elements(t->entry.ndim, t->entry.shape) * (int64_t)sheaf_dtype_bytes(t->entry.dtype);
    if (size == 0)
        return NULL;
    if (!is_dense(t) || begin < 0 || size < 0 || begin > all - size) {
        sheaf_status *st = sheaf_fail(SHEAF_E_LAYOUT, "tensor '%s'", t->entry.name);
        sheaf_expected(st, "bytes up to %" PRId64, begin + size);
        return sheaf_found(st, "%" PRId64 " bytes", all);
    }
    const sheaf_catalog_file *file = &c->file[t->piece[0].file];
    int fd;
    sheaf_status *st = sheaf__catalog_open(&fd, file);
    TRY(st, sheaf__file_read_at(fd, dst, (size_t)size, t->piece[0].offset + begin, file->path));
    return sheaf__catalog_done(fd, file, st);
}

void sheaf__form_text(sheaf_text *out, const sheaf__coded *q)
{
    const sheaf__quant *f = &q->form;
    if (f->codes == SHEAF__INT4 || f->codes == SHEAF__INT8)
        sheaf__text_add(out, "%s, %d bits", sheaf__quantizer_name(q->packing->by),
                        sheaf__code_bits(f->codes));
    else
        sheaf__text_add(out, "%s", sheaf__codes_name(f->codes));
    if (q->packing->squares)
        sheaf__text_add(out, ", blocks of %" PRId64 " x %" PRId64, q->block_rows, f->block);
    else if (f->grouping == SHEAF__GROUPS_INDEXED)
        sheaf__text_add(out, ", groups of %" PRId64 " by g_idx", q->group);
    else if (f->block > 0)
        sheaf__text_add(out, ", %s of %" PRId64,
                        f->grouping == SHEAF__GROUPS_FLAT ? "blocks" : "groups", f->block);
    else
        sheaf__text_add(out, ", a scale for each row");
    if (f->doubled)
        sheaf__text_add(out, ", doubled scales");
    if (f->zeros)
        sheaf__text_add(out, ", zeros");
}

sheaf_status *sheaf__coded_whole(const sheaf_catalog *c, const sheaf_logical *t,
                                 sheaf__quant_whole *to)
{
    const sheaf__coded *q = t->coded;
    to->offset = q->offset;
    if (q->index != NULL)
        memcpy(to->index, q->index, (size_t)q->in * sizeof *to->index);
    const int64_t n = sheaf__quant_nested(&q->form, q->out * q->in);
    sheaf_status *st = n == 0 ? NULL
                              : sheaf__part_bytes(to->nested, c, &q->part[SHEAF__NESTED_PART], 0,
                                                  n * (int64_t)sizeof(float));
    for (int64_t i = 0; st == NULL && i < n; i++)
        if (!isfinite(to->nested[i]) || to->nested[i] < 0) {
            st = sheaf_fail(SHEAF_E_NUMBER, "%s: scale %" PRId64,
                            q->part[SHEAF__NESTED_PART].entry.name, i);
            sheaf_found(sheaf_expected(st, "a finite number, 0 or more"), "%g",
                        (double)to->nested[i]);
            sheaf_try_this(st, "download or copy this model again, or quantize it anew");
        }
    return sheaf_in(st, "tensor '%s'", t->entry.name);
}
