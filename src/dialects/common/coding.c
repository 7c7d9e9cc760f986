/* coding.c - one tensor that is put together out of the parts that a quantizer left
 * (codes_private.h).
 */
#include <stdarg.h>

#include "base/base.h"
#include "catalog/boxes.h"
#include "dialects/common/codes_private.h"

enum { MOST_WRONG = 200 };

/* What can lie beside codes, in whatever form. */
static const char *const parts[] = {
    ".weight.absmax",
    ".weight.quant_map",
    ".weight.nested_absmax",
    ".weight.nested_quant_map",
    ".weight.quant_state.bitsandbytes__nf4",
    ".weight.quant_state.bitsandbytes__fp4",
    ".SCB",
    ".weight_format",
    ".qweight",
    ".qzeros",
    ".scales",
    ".g_idx",
    ".weight_packed",
    ".weight_scale",
    ".weight_zero_point",
    ".weight_shape",
    ".weight_g_idx",
    ".weight_scale_inv",
};

static bool is_packed(sheaf_dtype d)
{
    return d == SHEAF_U8 || d == SHEAF_I8 || d == SHEAF_I32 || d == SHEAF_F8_E4M3;
}

bool sheaf__coding_is_part(const sheaf_logical *t)
{
    bool part = is_packed(t->entry.dtype) && sheaf__ends_with(t->entry.name, ".weight");
    for (size_t k = 0; !part && k < sizeof parts / sizeof *parts; k++)
        part = sheaf__ends_with(t->entry.name, parts[k]);
    return part && t->kind == SHEAF_WEIGHT && t->coded == NULL;
}

sheaf_logical *sheaf__coding_find(const sheaf__coding *g, const char *suffix)
{
    char name[SHEAF__CODED_NAME + 64];
    snprintf(name, sizeof name, "%s%s", g->stem, suffix);
    sheaf_logical *t = sheaf__catalog_find(g->x->c, name);
    return t != NULL && t->kind == SHEAF_WEIGHT ? t : NULL;
}

sheaf_status *sheaf__coding_wrong(sheaf__coding *g, const char *code, const sheaf_logical *part,
                                  const char *expected, const char *cure, const char *found, ...)
{
    sheaf_catalog *c = g->x->c;
    char *text = NULL;
    va_list args;
    g->wrong = true;
    va_start(args, found);
    const int n = vasprintf(&text, found, args);
    va_end(args);
    if (n < 0)
        return sheaf__no_memory(c->root);
    sheaf_status *st = sheaf__catalog_defects(c) >= MOST_WRONG
                           ? NULL
                           : sheaf__defect(c, code, sheaf__catalog_path_of(c, part),
                                           part->entry.name, expected, cure, "%s", text);
    free(text);
    return st;
}

static sheaf_status *missing(sheaf__coding *g, const sheaf_logical *beside, const char *suffix)
{
    char name[SHEAF__CODED_NAME + 64];
    snprintf(name, sizeof name, "%s%s, which belongs to it", g->stem, suffix);
    if (g->x->damaged) { /* it may be in what could not be read */
        g->wrong = true;
        return NULL;
    }
    return sheaf__coding_wrong(g, "missing", beside, name,
                               "download or copy the files of this model again",
                               "no tensor of this name");
}

sheaf_status *sheaf__coding_need(sheaf_logical **out, sheaf__coding *g, const char *suffix)
{
    const sheaf_logical *beside = NULL;
    *out = sheaf__coding_find(g, suffix);
    for (size_t i = 0; beside == NULL && i < sizeof parts / sizeof *parts; i++)
        beside = sheaf__coding_find(g, parts[i]);
    return *out != NULL || beside == NULL ? NULL : missing(g, beside, suffix);
}

sheaf_status *sheaf__coding_take(sheaf__coding *g, int part, sheaf_logical *t)
{
    sheaf_status *st = sheaf__coded_take(g->q, part, g->x->c, t);
    if (st == NULL && strcmp(t->entry.name, g->weight) != 0)
        t->kind = SHEAF_TAKEN;
    if (!sheaf__catalog_is_finding(st))
        return st;
    g->wrong = true;
    return sheaf__catalog_defect(g->x->c, sheaf__catalog_path_of(g->x->c, t), st);
}

sheaf_status *sheaf__coding_shape(sheaf__coding *g, const sheaf_logical *t, uint64_t dtypes,
                                  int ndim, int64_t d0, int64_t d1)
{
    char want[128], is[128];
    sheaf_text text = { 0 };
    const int64_t shape[2] = { d0, d1 };
    const bool type = (dtypes >> t->entry.dtype & 1) != 0;
    if (type && sheaf__same_shape(t->entry.ndim, t->entry.shape, ndim, shape))
        return NULL;
    for (int d = 0; d < SHEAF_DTYPE_COUNT; d++)
        if ((dtypes >> d & 1) != 0)
            sheaf__text_add(&text, "%s%s", text.size > 0 ? " or " : "",
                            sheaf_dtype_name((sheaf_dtype)d));
    sheaf__text_add(&text, " %s", sheaf__show_shape(want, ndim, shape));
    sheaf_status *st =
        text.failed ? sheaf__no_memory(g->x->c->root)
                    : sheaf__coding_wrong(g, type ? "shape" : "dtype", t, text.at,
                                          "download or copy the files of this model again; do not "
                                          "mix those of two quantizations",
                                          "%s %s", sheaf_dtype_name(t->entry.dtype),
                                          sheaf__show_shape(is, t->entry.ndim, t->entry.shape));
    sheaf__text_release(&text);
    return st;
}

sheaf_dtype sheaf__scales_dtype(const sheaf__coding *g, sheaf_dtype scales)
{
    return scales == SHEAF_F32 ? g->x->dtype : scales;
}

void sheaf__coding_drop(sheaf__coding *g)
{
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        sheaf_logical *t = sheaf__coding_find(g, parts[i]);
        if (t != NULL)
            t->kind = SHEAF_TAKEN;
    }
    sheaf_logical *t = sheaf__coding_find(g, ".weight");
    if (t != NULL && t->coded == NULL && (is_packed(t->entry.dtype) || t->npieces == 0))
        t->kind = SHEAF_TAKEN;
    g->x->failed = true;
}
