/* infer.c - infers how tensors are divided when no file states it.
 *
 * The cuts of the Llama family by name, the shapes, the config where there is one, and whether the
 * values of the ranks are equal decide, with a finding. Undecidable tensors are refused. */
#include "base/base.h"
#include "dialects/common/wrapped.h"
#include "dialects/deepspeed/private.h"

typedef enum names_say { SAY_NOTHING, SAY_ROWS, SAY_COLUMNS, SAY_COPIES, SAY_TABLE } names_say;

/* The schema's rule for a name; for unknown norms its rule for norms. */
static names_say rule_for_name(const ds_rules *rules, const char *name)
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

/* Do all available ranks hold the same bytes? False if one is incomplete. */
static sheaf_status *all_same(bool *same, const ds_making *m)
{
    sheaf_catalog *const *part = m->rules->r->part;
    int first = -1;
    sheaf_status *st = NULL;
    *same = true;
    for (int r = 0; st == NULL && *same && r < m->rules->r->tp; r++) {
        if (m->of[r] == NULL)
            continue;
        if (first >= 0)
            st = sheaf__catalog_same(same, part[first], m->of[first], 0, 0, part[r], m->of[r]);
        else
            first = r;
    }
    return sheaf__only_memory(st);
}

/* The axis along which the parts' sizes add up to the config's shape, -1 when each part is of that
 * shape, -2 otherwise. A vocabulary may be padded: then the sum is more along axis 0. */
static int axis_by_config(const sheaf_tensor *want, const ds_making *m, bool table)
{
    const sheaf_source_entry *t = &sheaf__ds_some(m)->entry;
    if (want->ndim != t->ndim)
        return -2;
    for (int axis = -1; axis < t->ndim; axis++) {
        bool fits = sheaf__ds_same_but(m, axis);
        for (int i = 0; fits && i < t->ndim; i++) {
            int64_t sum = 0;
            for (int r = 0; fits && i == axis && r < m->rule->nranks; r++)
                fits = sheaf__ds_add(&sum, sheaf__ds_size(m, r, i));
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

/* Is the weight of a bias a copy in every rank? Biases are often zero, so their values are no
 * evidence. */
static sheaf_status *weight_is_copy(bool *copy, const ds_making *m)
{
    char *weight = NULL;
    ds_making w = { .rules = m->rules, .of = calloc((size_t)m->rules->r->tp, sizeof *w.of) };
    sheaf_status *st = NULL;
    *copy = false;
    if (w.of == NULL || asprintf(&weight, "%.*sweight", (int)strlen(m->name) - 4, m->name) < 0)
        st = sheaf__no_memory(m->name);
    w.name = weight;
    if (st == NULL)
        sheaf__ds_collect(&w);
    TRY(st, sheaf__ds_some(&w) != NULL && sheaf__ds_same_but(&w, -1) ? all_same(copy, &w) : NULL);
    free(weight);
    free(w.of);
    return st;
}

/* Query, key and value in one tensor, or gate and up. */
static bool is_fused(const char *name)
{
    return strstr(name, "qkv_proj.") != NULL || strstr(name, "gate_up_proj.") != NULL ||
           strstr(name, "query_key_value.") != NULL;
}

/* A rank holds the rows of its units of each part, part after part: as AutoTP divides Phi-3's
 * tensors, and Megatron its own. Units stay whole, as in the schema, but ranks may have different
 * numbers of them, by the sizes of their tensors. */
static sheaf_status *make_parts(ds_making *m, const sheaf_cut *cut)
{
    const int n = m->rule->nranks;
    int64_t width[SHEAF_MAX_PARTS], unit = 0, units = 0, *by_rank;
    bool whole = true;
    for (int k = 0; k < cut->nparts; k++) {
        width[k] = cut->part[k].rows_per_unit;
        unit += width[k];
        whole &= cut->part[k].units == cut->part[0].units;
    }
    by_rank = calloc((size_t)(cut->nparts * n), sizeof *by_rank);
    if (by_rank == NULL)
        return sheaf__no_memory(m->name);
    for (int r = 0; r < n; r++) {
        const int64_t rows = sheaf__ds_size(m, r, cut->axis);
        whole &= rows % unit == 0;
        units += rows / unit;
        for (int k = 0; k < cut->nparts; k++)
            by_rank[k * n + r] = rows / unit * width[k];
    }
    sheaf_status *st =
        whole && units == cut->part[0].units
            ? sheaf__ds_make_subs(m, cut->axis, cut->nparts, by_rank, -1)
            : sheaf__ds_refuse(m, "unsupported", "whole heads or columns in every part", NULL);
    free(by_rank);
    return st;
}

static sheaf_status *make_by_config(ds_making *m, const sheaf_tensor *want, bool table)
{
    const int axis = axis_by_config(want, m, table);
    if (axis == -2)
        return sheaf__ds_refuse(m, "shape", "parts that add up to the shape in the model's config",
                                NULL);
    m->rules->by_config++;
    if (axis >= 0 && want->cut.nparts > 1 && axis == want->cut.axis)
        return make_parts(m, &want->cut);
    return axis < 0 ? sheaf__ds_make_copies(m)
                    : sheaf__ds_make_cut(m, axis, table ? want->shape[0] : -1);
}

static sheaf_status *infer(ds_making *m)
{
    ds_rules *rules = m->rules;
    const char *name = m->name;
    const names_say word = rule_for_name(rules, name);
    char plain[SHEAF__PLAIN_NAME];
    const sheaf_tensor *want =
        rules->r->schema == NULL
            ? NULL
            : sheaf_schema_find(rules->r->schema, sheaf__plain_name(plain, name));
    const bool one_shape = sheaf__ds_same_but(m, -1);
    bool copy = word == SAY_COPIES;
    sheaf_status *st = NULL;
    if (want != NULL)
        return make_by_config(m, want, word == SAY_TABLE);
    if (one_shape && !copy)
        st = sheaf__ends_with(name, ".bias") && word == SAY_ROWS ? weight_is_copy(&copy, m)
                                                                 : all_same(&copy, m);
    if (st != NULL)
        return st;
    rules->copies += copy;
    rules->columns += !copy && word == SAY_COLUMNS;
    rules->rows += !copy && (word == SAY_ROWS || word == SAY_TABLE);
    if (copy)
        return sheaf__ds_make_copies(m);
    if (word != SAY_NOTHING)
        return sheaf__ds_make_cut(m, word == SAY_COLUMNS ? 1 : 0, -1);
    for (int axis = 0; !one_shape && !is_fused(name) && axis < m->rule->ndim; axis++)
        if (sheaf__ds_same_but(m, axis)) {
            rules->by_shape++;
            return sheaf__ds_make_cut(m, axis, -1);
        }
    return sheaf__ds_refuse(
        m, "unsupported",
        is_fused(name)
            ? "universal_checkpoint_info or a config.json: only they have the parts of a "
              "fused tensor, which each rank has a share of"
            : "universal_checkpoint_info, a config.json, or a name with a known cut",
        NULL);
}

static sheaf_status *make(ds_making *m)
{
    sheaf__ds_collect(m);
    const sheaf_logical *first = sheaf__ds_some(m);
    const int n = m->rule->nranks;
    if (first == NULL)
        return sheaf__ds_refuse(m, "missing", "a tensor", "none");
    m->rule->ndim = first->entry.ndim;
    if (!sheaf__ds_same_but(m, -1) && m->rule->ndim == 0)
        return sheaf__ds_refuse(m, "conflict", "one shape", NULL);
    sheaf_status *st = n == 1 || m->rule->ndim == 0 ? sheaf__ds_make_copies(m)
                       : m->rules->info != NULL     ? sheaf__ds_make_stated(m)
                                                    : infer(m);
    if (n == 1)
        m->rule->replicated = false;
    return st == NULL && !m->refused && n > 1 && sheaf__ds_exhausted(m->rules)
               ? sheaf__ds_refuse(m, "unsupported", "patterns that can be matched",
                                  "patterns in universal_checkpoint_info that take too long")
               : st;
}

sheaf_status *sheaf__ds_rule_make(ds_rule *out, bool *refused, ds_rules *rules, const char *name)
{
    const size_t n = (size_t)rules->r->tp;
    *out = (ds_rule){ .nranks = (int)n, .rank = calloc(n, sizeof *out->rank) };
    ds_making m = { .rules = rules, .name = name, .rule = out, .of = calloc(n, sizeof *m.of) };
    sheaf_status *st = m.of == NULL || out->rank == NULL ? sheaf__no_memory(name) : make(&m);
    *refused = m.refused;
    free(m.of);
    return st;
}

sheaf_status *sheaf__ds_rules_report(ds_rules *rules)
{
    sheaf_catalog *c = rules->r->c;
    if (rules->by_config > 0)
        return sheaf__note(c, "inferred", rules->r->tag, "", "", "",
                           "universal_checkpoint_info is absent: how %" PRId64
                           " tensors are cut follows from their shapes and the "
                           "config; %" PRId64 " others from their names and values",
                           rules->by_config,
                           rules->rows + rules->columns + rules->copies + rules->by_shape);
    if (rules->rows + rules->columns + rules->copies + rules->by_shape > 0)
        return sheaf__note(c, "inferred", rules->r->tag, "", "", "",
                           "universal_checkpoint_info is absent: %" PRId64
                           " tensors are joined by rows and %" PRId64
                           " by columns, as their names say, %" PRId64
                           " are copies (norms, and tensors with equal values in all "
                           "parts), %" PRId64 " differ along one axis only",
                           rules->rows, rules->columns, rules->copies, rules->by_shape);
    return NULL;
}
