/* placement.c - see placement.h. */
#include "models/placement.h"

#include <ctype.h>

#include "base/base.h"
#include "catalog/boxes.h"
#include "schema/family.h"

static sheaf_status *unreadable(const char *text)
{
    sheaf_status *st = sheaf_fail(SHEAF_E_ARG, "'%s'", text);
    sheaf_expected(st, "a number of stages (2), their memory (24,12) or their layers (0-10,11-31)");
    return sheaf_try_this(st, "2, for two stages of like size");
}

/* ---- explicit layers ---- */

/* A whole number of at most 9 digits at *p, which moves behind it; -1: none. */
static int64_t number(const char **p)
{
    int64_t n = 0;
    int digits = 0;
    for (; isdigit((unsigned char)**p) && digits < 10; digits++)
        n = n * 10 + *(*p)++ - '0';
    return digits == 0 || digits == 10 ? -1 : n;
}

static sheaf_status *read_layers(sheaf__placement *out, const char *text, int64_t layers)
{
    int64_t next = 0;
    for (const char *p = text;; p++) {
        const int64_t first = number(&p);
        if (first < 0 || *p++ != '-')
            return unreadable(text);
        const int64_t last = number(&p);
        if (last < 0 || (*p != ',' && *p != '\0') || out->stages == SHEAF_MAX_SLICES)
            return unreadable(text);
        if (first != next || last < first || last >= layers) {
            sheaf_status *st = sheaf_fail(SHEAF_E_ARG, "'%s'", text);
            sheaf_expected(st, "layers from %" PRId64 " on, ascending, up to %" PRId64, next,
                           layers - 1);
            return sheaf_found(st, "%" PRId64 "-%" PRId64, first, last);
        }
        next = out->begin[++out->stages] = last + 1;
        if (*p == '\0')
            break;
    }
    if (next == layers)
        return NULL;
    return sheaf_found(
        sheaf_expected(sheaf_fail(SHEAF_E_ARG, "'%s'", text), "all %" PRId64 " layers", layers),
        "%" PRId64, next);
}

/* ---- by memory ---- */

/* Elements of layer `layer` of the decoder; -1: of the tensors before the first, -2: after the
 * last. */
static double elements(const sheaf_schema *schema, int64_t layer)
{
    const sheaf__family *family = sheaf__family_for(&schema->config);
    double sum = 0;
    for (int64_t i = 0; i < schema->count; i++) {
        const sheaf_tensor *t = &schema->tensor[i];
        const sheaf_component part = sheaf__family_component(family, t->name);
        const bool tower =
            part == SHEAF_PLAN_VIT || part == SHEAF_PLAN_ADAPTER || part == SHEAF_PLAN_TOWER;
        const bool behind = t->role == SHEAF_HEAD || t->role == SHEAF_NORM_FINAL;
        const int64_t at = tower ? -1 : t->layer >= 0 ? t->layer : behind ? -2 : -1;
        if (at == layer)
            sum += (double)sheaf__elements(t->ndim, t->shape);
    }
    return sum;
}

/* Each stage ends where it is nearest to its share, by memory, of the layers that are left: a stage
 * that needs more (the towers are on the first) reduces all others equally. None is empty. */
static sheaf_status *divide(sheaf__placement *out, const double *memory, const sheaf_schema *schema)
{
    const int64_t layers = schema->config.layers;
    double *upto = malloc((size_t)(layers + 1) * sizeof *upto), all = 0;
    if (upto == NULL)
        return sheaf__no_memory("stages");
    upto[0] = elements(schema, -1);
    for (int64_t i = 0; i < layers; i++)
        upto[i + 1] = upto[i] + elements(schema, i);
    const double total = upto[layers] + elements(schema, -2);
    for (int s = 0; s < out->stages; s++)
        all += memory[s];
    for (int s = 0; s + 1 < out->stages; s++) {
        const double before = s == 0 ? 0 : upto[out->begin[s]],
                     upper = before + (total - before) * memory[s] / all;
        int64_t end = out->begin[s] + 1;
        while (end < layers - (out->stages - 2 - s) - 1 && upto[end] + upto[end + 1] < 2 * upper)
            end++;
        all -= memory[s];
        out->begin[s + 1] = end;
    }
    out->begin[out->stages] = layers;
    free(upto);
    return NULL;
}

static sheaf_status *read_memory(sheaf__placement *out, const char *text,
                                 const sheaf_schema *schema)
{
    double memory[SHEAF_MAX_SLICES];
    for (const char *p = text;;) {
        char *end;
        const double x = isdigit((unsigned char)*p) ? strtod(p, &end) : 0;
        if (!(x > 0 && x < 1e15) || (*end != ',' && *end != '\0') ||
            out->stages == SHEAF_MAX_SLICES)
            return unreadable(text);
        memory[out->stages++] = x;
        if (*end == '\0')
            break;
        p = end + 1;
    }
    if (out->stages == 1) { /* a number of equal stages */
        const double n = memory[0];
        if (n > SHEAF_MAX_SLICES || n != (double)(int)n)
            return unreadable(text);
        out->stages = (int)n;
        for (int s = 0; s < out->stages; s++)
            memory[s] = 1;
    }
    if (out->stages > schema->config.layers)
        return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "'%s'", text),
                                          "at most %" PRId64 " stages, one for each layer",
                                          schema->config.layers),
                           "%d", out->stages);
    return divide(out, memory, schema);
}

sheaf_status *sheaf__placement_read(sheaf__placement *out, const char *text,
                                    const sheaf_schema *schema)
{
    *out = (sheaf__placement){ 0 };
    sheaf_status *st = NULL;
    if (text == NULL || text[0] == '\0')
        *out = (sheaf__placement){ .stages = 1, .begin = { 0, schema->config.layers } };
    else if (strchr(text, '-') != NULL)
        st = read_layers(out, text, schema->config.layers);
    else
        st = read_memory(out, text, schema);
    out->head_stage = schema->config.tied ? 0 : out->stages - 1;
    return st;
}
