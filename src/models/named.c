/* named.c - see named.h. */
#include "models/named.h"
#include "base/status.h"

#include <stdio.h>

static sheaf_status *find(const sheaf_tensor **out, const sheaf__model *m, const char *prefix,
                          const char *name, const char *end)
{
    char whole[256];
    snprintf(whole, sizeof whole, "%s%s%s", prefix, name, end);
    return sheaf__build_find(out, m, whole);
}

sheaf_status *sheaf__named_linear(sheaf__model *m, sheaf__linear *l, const char *prefix,
                                  const char *weight, const char *bias, int piece)
{
    const sheaf_tensor *w = NULL, *b = NULL;
    sheaf_status *st = find(&w, m, prefix, weight, "");
    if (st == NULL && bias != NULL)
        st = find(&b, m, prefix, bias, "");
    return st == NULL ? sheaf__build_linear(m, l, w, b, piece) : st;
}

sheaf_status *sheaf__named_layernorm(sheaf__model *m, sheaf__layernorm *norm, const char *prefix,
                                     const char *name, double eps)
{
    const sheaf_tensor *w = NULL, *b = NULL;
    sheaf_status *st = find(&w, m, prefix, name, ".weight");
    TRY(st, find(&b, m, prefix, name, ".bias"));
    return st == NULL ? sheaf__build_layernorm(m, norm, w, b, eps) : st;
}

sheaf_status *sheaf__named_vector(sheaf__model *m, sheaf__vector *v, const char *prefix,
                                  const char *name, int64_t width)
{
    const sheaf_tensor *t = NULL;
    sheaf_status *st = find(&t, m, prefix, name, "");
    return st == NULL ? sheaf__build_vector(m, v, t, width) : st;
}
