/* codes_parts.c - one tensor that is put together out of the parts that a quantizer left
 * (codes_private.h).
 */
#include <stdarg.h>

#include "base/base.h"
#include "catalog/boxes.h"
#include "dialects/common/codes_private.h"

enum { MOST_WRONG = 200 };

/* The i-th name that a part can have in whatever form; NULL: there are no more. */
static const char *name_of(int i)
{
    for (int k = 0; k < sheaf__packings_count * SHEAF__PARTS; k++) {
        const char *suffix = sheaf__packings[k / SHEAF__PARTS].suffix[k % SHEAF__PARTS];
        if (suffix != NULL && strcmp(suffix, ".weight") != 0 && i-- == 0)
            return suffix;
    }
    return NULL;
}

static bool is_packed(sheaf_dtype d)
{
    return d == SHEAF_U8 || d == SHEAF_I8 || d == SHEAF_I32 || d == SHEAF_F8_E4M3;
}

bool sheaf__codes_is_part(const sheaf_logical *t)
{
    bool part = is_packed(t->entry.dtype) && sheaf__ends_with(t->entry.name, ".weight");
    const char *name;
    for (int i = 0; !part && (name = name_of(i)) != NULL; i++)
        part = sheaf__ends_with(t->entry.name, name);
    return part && t->kind == SHEAF_WEIGHT && t->coded == NULL;
}

sheaf_logical *sheaf__codes_find(const sheaf__codes_weight *g, const char *suffix)
{
    char name[SHEAF__CODES_NAME + 64];
    snprintf(name, sizeof name, "%s%s", g->stem, suffix);
    sheaf_logical *t = sheaf__catalog_find(g->x->c, name);
    return t != NULL && t->kind == SHEAF_WEIGHT ? t : NULL;
}

sheaf_status *sheaf__codes_wrong(sheaf__codes_weight *g, const char *code,
                                 const sheaf_logical *part, const char *expected, const char *cure,
                                 const char *found, ...)
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

static sheaf_status *missing(sheaf__codes_weight *g, const sheaf_logical *beside,
                             const char *suffix)
{
    char name[SHEAF__CODES_NAME + 64];
    snprintf(name, sizeof name, "%s%s, which belongs to it", g->stem, suffix);
    if (g->x->damaged) { /* it may be in what could not be read */
        g->wrong = true;
        return NULL;
    }
    return sheaf__codes_wrong(g, "missing", beside, name,
                              "download or copy the files of this model again",
                              "no tensor of this name");
}

sheaf_status *sheaf__codes_need(sheaf__codes_weight *g, int part)
{
    const char *suffix = g->packing->suffix[part], *name;
    const sheaf_logical *beside = NULL;
    g->part[part] = sheaf__codes_find(g, suffix);
    for (int i = 0; beside == NULL && (name = name_of(i)) != NULL; i++)
        beside = sheaf__codes_find(g, name);
    return g->part[part] != NULL || beside == NULL ? NULL : missing(g, beside, suffix);
}

/* Of a part that cannot be read or taken. */
static sheaf_status *settle(sheaf__codes_weight *g, int part, sheaf_status *st)
{
    if (!sheaf__catalog_is_finding(st))
        return st;
    g->wrong = true;
    return sheaf__catalog_defect(g->x->c, sheaf__catalog_path_of(g->x->c, g->part[part]), st);
}

sheaf_status *sheaf__codes_take(sheaf__codes_weight *g, int part)
{
    sheaf_status *st = sheaf__coded_take(g->q, part, g->x->c, g->part[part]);
    if (st == NULL && strcmp(g->part[part]->entry.name, g->weight) != 0)
        g->part[part]->kind = SHEAF_TAKEN;
    return settle(g, part, st);
}

sheaf_status *sheaf__codes_read(void *dst, sheaf__codes_weight *g, int part, int64_t begin,
                                int64_t size)
{
    return settle(g, part, sheaf__part_bytes(dst, g->x->c, g->part[part], begin, size));
}

sheaf_status *sheaf__codes_shape(sheaf__codes_weight *g, const sheaf_logical *t, uint64_t dtypes,
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
                    : sheaf__codes_wrong(g, type ? "shape" : "dtype", t, text.at,
                                         "download or copy the files of this model again; do not "
                                         "mix those of two quantizations",
                                         "%s %s", sheaf_dtype_name(t->entry.dtype),
                                         sheaf__show_shape(is, t->entry.ndim, t->entry.shape));
    sheaf__text_release(&text);
    return st;
}

void sheaf__codes_drop(sheaf__codes_weight *g)
{
    const char *name;
    sheaf_logical *t;
    for (int i = 0; (name = name_of(i)) != NULL; i++)
        if ((t = sheaf__codes_find(g, name)) != NULL)
            t->kind = SHEAF_TAKEN;
    t = sheaf__codes_find(g, ".weight");
    if (t != NULL && t->coded == NULL && (is_packed(t->entry.dtype) || t->npieces == 0))
        t->kind = SHEAF_TAKEN;
    g->x->failed = true;
}
