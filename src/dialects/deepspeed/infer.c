/* infer.c - how tensors are divided when no file states it.
 *
 * The cuts of the Llama family by name, the shapes, the config where there is one, and whether the
 * values of the ranks are equal decide, and a finding says so. What cannot be decided is refused.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "base/text.h"
#include "dialects/common/wrapped.h"
#include "dialects/deepspeed/rule.h"

typedef enum names_say { SAY_NOTHING, SAY_ROWS, SAY_COLUMNS, SAY_COPIES, SAY_TABLE } names_say;

/* What the schema says of a name; of any other norm, what it says of all that it has. */
static names_say say(const ds_rules *rules, const char *name)
{
    char plain[SHEAF__PLAIN_NAME];
    name = sheaf__plain_name(plain, name);
    const sheaf_tensor *t = sheaf__partition_find(rules->cuts, name);
    if (t == NULL)
        return sheaf__ends_with(name, "norm.weight") ? SAY_COPIES : SAY_NOTHING;
    if (t->role == SHEAF_EMBED || t->role == SHEAF_HEAD)
        return SAY_TABLE;
    return t->cut.nparts == 0 ? SAY_COPIES : t->cut.axis == 0 ? SAY_ROWS : SAY_COLUMNS;
}

/* All ranks that are here hold the same bytes. No when one of them is not all there. */
static sheaf_status *all_same(bool *same, const ds_rules *rules, const ds_local *l, int n)
{
    int first = -1;
    sheaf_status *st = NULL;
    *same = true;
    for (int r = 0; st == NULL && *same && r < n; r++) {
        if (l[r].of == NULL)
            continue;
        if (first >= 0)
            st = sheaf__catalog_same(same, rules->r->part[first], l[first].of, 0, 0,
                                     rules->r->part[r], l[r].of);
        else
            first = r;
    }
    if (st == NULL || sheaf_status_code(st) == SHEAF_E_MEMORY)
        return st;
    sheaf_status_free(st);
    return NULL;
}

/* The axis along which the parts' sizes add up to the config's shape, -1 when each part is of that
 * shape, -2 otherwise. A vocabulary may be padded: then the sum is more along axis 0. */
static int axis_by_config(const sheaf_tensor *want, const ds_local *l, int n, bool table)
{
    const sheaf_source_entry *t = &sheaf__ds_some(l, n)->of->told;
    if (want->ndim != t->ndim)
        return -2;
    for (int axis = -1; axis < t->ndim; axis++) {
        bool fits = sheaf__ds_same_but(l, n, axis);
        for (int i = 0; fits && i < t->ndim; i++) {
            int64_t sum = 0;
            for (int r = 0; fits && i == axis && r < n; r++)
                fits = sheaf__ds_add(&sum, l[r].of != NULL ? l[r].of->told.shape[i] : t->shape[i]);
            if (!fits)
                break;
            fits = i != axis ? t->shape[i] == want->shape[i]
                             : sum == want->shape[i] || (table && i == 0 && sum > want->shape[i]);
        }
        if (fits)
            return axis;
    }
    return -2;
}

/* Is the weight of a bias a copy in every rank? Biases are often zero, so their values tell
 * nothing. */
static sheaf_status *weight_is_copy(bool *copy, ds_rules *rules, const char *name)
{
    char *weight = NULL;
    const size_t n = strlen(name);
    ds_local *l = calloc((size_t)rules->r->tp, sizeof *l);
    sheaf_status *st = NULL;
    *copy = false;
    if (l == NULL || asprintf(&weight, "%.*sweight", (int)(n - 4), name) < 0)
        st = sheaf_fail(SHEAF_E_MEMORY, "%s", name);
    if (st == NULL)
        sheaf__ds_collect(l, rules, weight);
    if (st == NULL && sheaf__ds_some(l, rules->r->tp) != NULL &&
        sheaf__ds_same_but(l, rules->r->tp, -1))
        st = all_same(copy, rules, l, rules->r->tp);
    free(weight);
    free(l);
    return st;
}

/* Query, key and value in one tensor, or gate and up. */
static bool is_fused(const char *name)
{
    return strstr(name, "qkv_proj.") != NULL || strstr(name, "gate_up_proj.") != NULL ||
           strstr(name, "query_key_value.") != NULL;
}

/* A rank holds the rows of its units of each part, part after part: so AutoTP divides Phi-3's
 * tensors, and so do Megatron's. The units are whole, as the schema has them, but their numbers
 * need not be even: the size of each rank's tensor tells them. */
static sheaf_status *make_parts(ds_rule *rule, bool *refused, ds_rules *rules, const char *name,
                                const ds_local *l, const sheaf_cut *cut)
{
    int64_t width[SHEAF_MAX_PARTS], unit = 0, units = 0, *by_rank;
    char text[256];
    bool whole = true;
    for (int k = 0; k < cut->nparts; k++) {
        width[k] = cut->part[k].rows_per_unit;
        unit += width[k];
        whole &= cut->part[k].units == cut->part[0].units;
    }
    by_rank = calloc((size_t)(cut->nparts * rule->nranks), sizeof *by_rank);
    if (by_rank == NULL)
        return sheaf_fail(SHEAF_E_MEMORY, "%s", name);
    for (int r = 0; r < rule->nranks; r++) {
        const ds_local *of = l[r].of != NULL ? &l[r] : sheaf__ds_some(l, rule->nranks);
        const int64_t rows = of->of->told.shape[cut->axis];
        whole &= rows % unit == 0;
        units += rows / unit;
        for (int k = 0; k < cut->nparts; k++)
            by_rank[k * rule->nranks + r] = rows / unit * width[k];
    }
    sheaf_status *st =
        whole && units == cut->part[0].units
            ? sheaf__ds_make_subs(rule, refused, rules, name, l, cut->axis, cut->nparts, by_rank)
            : sheaf__ds_refuse(refused, rules, "unsupported", name,
                               "whole heads or columns in every part",
                               sheaf__ds_tell_shapes(text, l, rule->nranks));
    free(by_rank);
    return st;
}

static sheaf_status *infer(ds_rule *rule, bool *refused, ds_rules *rules, const char *name,
                           const ds_local *l)
{
    const names_say word = say(rules, name);
    char plain[SHEAF__PLAIN_NAME];
    const sheaf_tensor *want =
        rules->r->schema == NULL
            ? NULL
            : sheaf_schema_find(rules->r->schema, sheaf__plain_name(plain, name));
    const bool one_shape = sheaf__ds_same_but(l, rule->nranks, -1);
    bool copy = false;
    char text[256];
    sheaf_status *st = NULL;
    if (want != NULL) {
        const int axis = axis_by_config(want, l, rule->nranks, word == SAY_TABLE);
        if (axis == -2)
            return sheaf__ds_refuse(refused, rules, "shape", name,
                                    "parts that add up to the shape in the model's config",
                                    sheaf__ds_tell_shapes(text, l, rule->nranks));
        rules->by_config++;
        if (axis >= 0 && want->cut.nparts > 1 && axis == want->cut.axis)
            return make_parts(rule, refused, rules, name, l, &want->cut);
        return axis < 0 ? sheaf__ds_make_copies(rule, refused, rules, name, l)
                        : sheaf__ds_make_cut(rule, refused, rules, name, l, axis,
                                             word == SAY_TABLE ? want->shape[0] : -1);
    }
    if (one_shape && word != SAY_COPIES)
        st = sheaf__ends_with(name, ".bias") && word == SAY_ROWS
                 ? weight_is_copy(&copy, rules, name)
                 : all_same(&copy, rules, l, rule->nranks);
    if (st != NULL)
        return st;
    if (copy || word == SAY_COPIES) {
        rules->copies++;
        return sheaf__ds_make_copies(rule, refused, rules, name, l);
    }
    if (word == SAY_COLUMNS) {
        rules->columns++;
        return sheaf__ds_make_cut(rule, refused, rules, name, l, 1, -1);
    }
    if (word != SAY_NOTHING) {
        rules->rows++;
        return sheaf__ds_make_cut(rule, refused, rules, name, l, 0, -1);
    }
    for (int axis = 0; !one_shape && !is_fused(name) && axis < rule->ndim; axis++)
        if (sheaf__ds_same_but(l, rule->nranks, axis)) {
            rules->by_shape++;
            return sheaf__ds_make_cut(rule, refused, rules, name, l, axis, -1);
        }
    return sheaf__ds_refuse(
        refused, rules, "unsupported", name,
        is_fused(name)
            ? "universal_checkpoint_info or a config.json: only they tell the parts of a "
              "fused tensor, which each rank has a share of"
            : "universal_checkpoint_info, a config.json, or a name that tells how it is cut",
        sheaf__ds_tell_shapes(text, l, rule->nranks));
}

sheaf_status *sheaf__ds_rule_make(ds_rule *out, bool *refused, ds_rules *rules, const char *name)
{
    const int n = rules->r->tp;
    ds_local *l = calloc((size_t)n, sizeof *l);
    *out = (ds_rule){ .nranks = n, .rank = calloc((size_t)n, sizeof *out->rank) };
    *refused = false;
    sheaf_status *st =
        l == NULL || out->rank == NULL ? sheaf_fail(SHEAF_E_MEMORY, "%s", name) : NULL;
    if (st == NULL)
        sheaf__ds_collect(l, rules, name);
    const ds_local *first = st == NULL ? sheaf__ds_some(l, n) : NULL;
    if (st == NULL && first == NULL)
        st = sheaf__ds_refuse(refused, rules, "missing", name, "a tensor", "none");
    else if (st == NULL) {
        out->ndim = first->of->told.ndim;
        char text[256];
        if (!sheaf__ds_same_but(l, n, -1) && out->ndim == 0)
            st = sheaf__ds_refuse(refused, rules, "conflict", name, "one shape",
                                  sheaf__ds_tell_shapes(text, l, n));
        else if (n == 1 || out->ndim == 0)
            st = sheaf__ds_make_copies(out, refused, rules, name, l);
        else
            st = rules->info != NULL ? sheaf__ds_make_stated(out, refused, rules, name, l)
                                     : infer(out, refused, rules, name, l);
        if (st == NULL && !*refused && n > 1 && sheaf__ds_exhausted(rules))
            st = sheaf__ds_refuse(refused, rules, "unsupported", name,
                                  "patterns that can be matched",
                                  "patterns in universal_checkpoint_info that take too long");
        if (n == 1)
            out->replicated = false;
    }
    free(l);
    return st;
}

sheaf_status *sheaf__ds_rules_tell(ds_rules *rules)
{
    sheaf_catalog *c = rules->r->catalog;
    if (rules->by_config > 0)
        return sheaf__catalog_notef(c, SHEAF_NOTE, "inferred", rules->r->tag, "", "", "",
                                    "universal_checkpoint_info is absent: how %" PRId64
                                    " tensors are cut follows from their shapes and the "
                                    "config; %" PRId64 " others from their names and values",
                                    rules->by_config,
                                    rules->rows + rules->columns + rules->copies + rules->by_shape);
    if (rules->rows + rules->columns + rules->copies + rules->by_shape > 0)
        return sheaf__catalog_notef(c, SHEAF_NOTE, "inferred", rules->r->tag, "", "", "",
                                    "universal_checkpoint_info is absent: %" PRId64
                                    " tensors are joined by rows and %" PRId64
                                    " by columns, as their names say, %" PRId64
                                    " are copies (norms, and what has equal values in all "
                                    "parts), %" PRId64 " differ along one axis only",
                                    rules->rows, rules->columns, rules->copies, rules->by_shape);
    return NULL;
}
