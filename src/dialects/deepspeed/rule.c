/* rule.c - the places of the tensor-parallel ranks' tensors in the whole tensor.
 *
 * Newer files state it (universal_checkpoint_info): affine_map gives each rank's boxes; lists of
 * regular expressions name the tensors that are copies, cut along axis 1, or made of several parts;
 * all others are cut along axis 0. Older files state nothing: infer.c. */
#include "base/base.h"
#include "dialects/deepspeed/private.h"

/* Limits for hostile patterns: steps of one match, matches that needed more, matches in all, bytes
 * of a pattern. */
enum { MATCH_STEPS = 10000, MATCH_COSTLY = 100, MATCH_CALLS = 50000000, MATCH_BYTES = 4096 };
enum { MAX_PIECES = 256 }; /* of one tensor in one rank */

/* ---- patterns ---- */

static void patterns_release(patterns *p)
{
    for (int64_t i = 0; i < p->count; i++)
        pcre2_code_free(p->at[i].code);
    free(p->at);
}

/* Compiles more patterns: a list of strings, which all get `value`, or the keys of a dict. Python's
 * re.match: from the beginning. */
static sheaf_status *patterns_read(patterns *out, ds_rules *rules, const sheaf_pickle *list,
                                   const sheaf_pickle *value)
{
    const bool dict = sheaf__pickle_is(list, SHEAF_PICKLE_DICT);
    sheaf_status *st = NULL;
    for (int64_t i = 0; st == NULL && i < sheaf__pickle_count(list); i++) {
        int code = 0;
        size_t at;
        if (!SHEAF_GROW(&out->at, &out->capacity, out->count + 1))
            return sheaf__no_memory(rules->path);
        pattern *p = &out->at[out->count];
        p->text =
            sheaf__pickle_text(dict ? sheaf__pickle_key(list, i) : sheaf__pickle_item(list, i));
        p->value = dict ? sheaf__pickle_value(list, i) : value;
        p->code = p->text == NULL || strlen(p->text) > MATCH_BYTES
                      ? NULL
                      : pcre2_compile((PCRE2_SPTR)p->text, PCRE2_ZERO_TERMINATED, PCRE2_ANCHORED,
                                      &code, &at, NULL);
        if (p->code == NULL && sheaf__regex_starved(code))
            return sheaf__no_memory(rules->path);
        if (p->code != NULL)
            out->count++;
        else
            st = sheaf__defect(rules->r->c, "damaged", rules->path, "", "a regular expression", "",
                               "'%s' in universal_checkpoint_info",
                               p->text == NULL ? "no text" : p->text);
    }
    return st;
}

bool sheaf__ds_exhausted(const ds_rules *rules)
{
    return rules->costly > MATCH_COSTLY || rules->calls > MATCH_CALLS;
}

static const pattern *match(ds_rules *rules, int which, const char *name)
{
    const patterns *list = &rules->list[which];
    for (int64_t i = 0; i < list->count && !sheaf__ds_exhausted(rules); i++) {
        const int n = pcre2_match(list->at[i].code, (PCRE2_SPTR)name, strlen(name), 0, 0,
                                  rules->data, rules->context);
        rules->calls++;
        rules->costly += n < 0 && n != PCRE2_ERROR_NOMATCH;
        rules->starved = rules->starved || sheaf__regex_starved(n);
        if (n >= 0)
            return &list->at[i];
    }
    return NULL;
}

/* ---- statements of the files ---- */

static const sheaf_pickle *info_of(const ds_file *f)
{
    const sheaf_pickle *info =
        f->torch == NULL ? NULL
                         : sheaf__pickle_get(f->torch->doc->root, "universal_checkpoint_info");
    return sheaf__pickle_count(info) > 0 ? info : NULL;
}

static sheaf_status *find_info(ds_rules *rules)
{
    sheaf_status *st = NULL;
    for (int64_t i = 0; st == NULL && i < rules->r->nfiles; i++) {
        const ds_file *f = &rules->r->file[i];
        const sheaf_pickle *info = f->what == DS_MODEL && !rules->r->layered ? info_of(f) : NULL;
        if (info == NULL)
            continue;
        if (rules->info == NULL) {
            rules->info = info;
            rules->path = f->path;
        } else if (!sheaf__values_equal(info, rules->info)) {
            st = sheaf__defect(rules->r->c, "conflict", f->path, "",
                               "the same universal_checkpoint_info in every part",
                               "put the parts of one save together", "it differs from that of %s",
                               rules->path);
        }
    }
    return st;
}

sheaf_status *sheaf__ds_rules_new(ds_rules **out, ds_reading *r)
{
    ds_rules *rules = *out = calloc(1, sizeof *rules);
    if (rules == NULL)
        return sheaf__no_memory(r->tag);
    rules->r = r;
    rules->path = r->tag;
    rules->original_vocab = -1;
    rules->data = pcre2_match_data_create(1, NULL);
    rules->context = pcre2_match_context_create(NULL);
    if (rules->data == NULL || rules->context == NULL)
        return sheaf__no_memory(r->tag);
    pcre2_set_match_limit(rules->context, MATCH_STEPS);
    sheaf_status *st = sheaf__partition_new(&rules->cuts, NULL);
    TRY(st, find_info(rules));
    if (st != NULL || rules->info == NULL)
        return st;
    sheaf__pickle_int(&rules->original_vocab,
                      sheaf__pickle_get(rules->info, "original_vocab_size"));
    static const char *const keys[] = {
        [UNSUPPORTED] = "autotp_unsupported_parameter_patterns",
        [REPLICATED] = "tp_replicated_parameter_patterns",
        [AVERAGE] = "parameter_to_average_patterns",
        [HALVES] = "parameter_with_2_sub_params_cat_dim_0",
        [ROW] = "parameter_with_row_parallelism_patterns",
        [VOCABULARY] = "vocabulary_parameter_patterns",
    };
    for (size_t i = 0; st == NULL && i < sizeof keys / sizeof *keys; i++)
        st = patterns_read(&rules->list[i], rules, sheaf__pickle_get(rules->info, keys[i]), NULL);
    TRY(st, patterns_read(&rules->list[AFFINE], rules,
                          sheaf__pickle_path(rules->info, "affine_map", "params", NULL), NULL));
    /* [{patterns, shape, partition_dim}]: each pattern keeps its dict */
    const sheaf_pickle *subs = sheaf__pickle_get(rules->info, "parameter_with_sub_params");
    for (int64_t i = 0; st == NULL && i < sheaf__pickle_count(subs); i++) {
        const sheaf_pickle *one = sheaf__pickle_item(subs, i);
        st = patterns_read(&rules->list[SUBS], rules, sheaf__pickle_get(one, "patterns"), one);
    }
    return st;
}

void sheaf__ds_rules_free(ds_rules *rules)
{
    if (rules == NULL)
        return;
    for (int i = 0; i < LISTS; i++)
        patterns_release(&rules->list[i]);
    sheaf_schema_free(rules->cuts);
    pcre2_match_data_free(rules->data);
    pcre2_match_context_free(rules->context);
    free(rules);
}

/* ---- making rules ---- */

void sheaf__ds_rule_release(ds_rule *rule)
{
    for (int i = 0; rule->rank != NULL && i < rule->nranks; i++)
        free(rule->rank[i].at);
    free(rule->rank);
    *rule = (ds_rule){ 0 };
}

/* Adds a move of a rank: its box [from, from + size) to `to`; NULL `from` and `to` are the
 * beginning. */
static sheaf_status *add_move(ds_rule *rule, int rank, const int64_t *from, const int64_t *size,
                              const int64_t *to)
{
    ds_rank_moves *m = &rule->rank[rank];
    if (!SHEAF_GROW(&m->at, &m->capacity, m->count + 1))
        return sheaf__no_memory("moves of a tensor");
    ds_move *v = &m->at[m->count++];
    *v = (ds_move){ { 0 } };
    for (int i = 0; i < rule->ndim; i++) {
        v->from[i] = from == NULL ? 0 : from[i];
        v->size[i] = size[i];
        v->to[i] = to == NULL ? 0 : to[i];
    }
    return NULL;
}

/* "[130, 48], [129, 48]" into `text`. */
static const char *show_shapes(char text[256], const ds_making *m)
{
    size_t at = 0;
    text[0] = '\0';
    for (int r = 0; r < m->rule->nranks && at < 200; r++) {
        const sheaf_logical *t = m->of[r];
        at += (size_t)snprintf(text + at, 256 - at, "%s", r > 0 ? ", " : "");
        if (t == NULL)
            at += (size_t)snprintf(text + at, 256 - at, "missing");
        for (int i = 0; t != NULL && i < t->entry.ndim && at < 200; i++)
            at += (size_t)snprintf(text + at, 256 - at, "%s%" PRId64 "%s", i == 0 ? "[" : ", ",
                                   t->entry.shape[i], i + 1 == t->entry.ndim ? "]" : "");
    }
    return text;
}

sheaf_status *sheaf__ds_refuse(ds_making *m, const char *code, const char *expected,
                               const char *found)
{
    char text[256];
    m->refused = true;
    return sheaf__defect(m->rules->r->c, code, m->rules->path, m->name, expected, "", "%s",
                         found != NULL ? found : show_shapes(text, m));
}

const sheaf_logical *sheaf__ds_some(const ds_making *m)
{
    for (int r = 0; r < m->rules->r->tp; r++)
        if (m->of[r] != NULL)
            return m->of[r];
    return NULL;
}

int64_t sheaf__ds_size(const ds_making *m, int rank, int axis)
{
    return (m->of[rank] != NULL ? m->of[rank] : sheaf__ds_some(m))->entry.shape[axis];
}

bool sheaf__ds_same_but(const ds_making *m, int axis)
{
    const sheaf_source_entry *a = &sheaf__ds_some(m)->entry;
    for (int r = 0; r < m->rules->r->tp; r++)
        for (int i = 0; m->of[r] != NULL && i < a->ndim; i++)
            if (m->of[r]->entry.ndim != a->ndim ||
                (i != axis && m->of[r]->entry.shape[i] != a->shape[i]))
                return false;
    return true;
}

sheaf_status *sheaf__ds_make_copies(ds_making *m)
{
    ds_rule *rule = m->rule;
    if (!sheaf__ds_same_but(m, -1))
        return sheaf__ds_refuse(m, "conflict", "a copy of one shape in every part", NULL);
    rule->replicated = true;
    memcpy(rule->shape, sheaf__ds_some(m)->entry.shape, sizeof rule->shape);
    sheaf_status *st = NULL;
    for (int r = 0; st == NULL && r < rule->nranks; r++)
        st = add_move(rule, r, NULL, rule->shape, NULL);
    return st;
}

sheaf_status *sheaf__ds_make_subs(ds_making *m, int axis, int64_t nsubs, const int64_t *width,
                                  int64_t cut)
{
    const int n = m->rule->nranks;
    int64_t from[SHEAF_CATALOG_MAX_DIMS] = { 0 }, to[SHEAF_CATALOG_MAX_DIMS] = { 0 },
            size[SHEAF_CATALOG_MAX_DIMS];
    sheaf_status *st = NULL;
    if (axis < 0 || axis >= m->rule->ndim || !sheaf__ds_same_but(m, axis))
        return sheaf__ds_refuse(m, "conflict", "parts that differ along one axis at most", NULL);
    memcpy(size, sheaf__ds_some(m)->entry.shape, sizeof size);
    memcpy(m->rule->shape, size, sizeof size);
    for (int64_t s = 0; st == NULL && s < nsubs; s++)
        for (int r = 0; st == NULL && r < n; r++) {
            const int64_t wide = width != NULL ? width[s * n + r] : sheaf__ds_size(m, r, axis),
                          stored = m->of[r] != NULL ? m->of[r]->entry.shape[axis] : -1,
                          left = cut >= 0 && cut - to[axis] < wide ? cut - to[axis] : wide;
            from[axis] = 0;
            for (int64_t k = 0; k < s; k++)
                from[axis] += width[k * n + r];
            if (wide < 0 || (stored >= 0 && wide > stored - from[axis]) ||
                (stored >= 0 && s + 1 == nsubs && from[axis] + wide != stored))
                return sheaf__ds_refuse(m, "conflict", "sub-parameters that fill each part", NULL);
            size[axis] = left < 0 ? 0 : left;
            st = add_move(m->rule, r, from, size, to);
            if (!sheaf__ds_add(&to[axis], wide))
                return sheaf__ds_refuse(m, "damaged", "sizes", NULL);
        }
    m->rule->shape[axis] = cut >= 0 && cut < to[axis] ? cut : to[axis];
    return st;
}

static sheaf_status *make_halves(ds_making *m)
{
    const int n = m->rule->nranks;
    int64_t *width = calloc((size_t)n * 2, sizeof *width);
    if (width == NULL)
        return sheaf__no_memory(m->name);
    for (int r = 0; r < n; r++) {
        const int64_t rows = sheaf__ds_size(m, r, 0);
        width[r] = (rows + 1) / 2; /* as torch.chunk does */
        width[n + r] = rows - width[r];
    }
    sheaf_status *st = sheaf__ds_make_subs(m, 0, 2, width, -1);
    free(width);
    return st;
}

/* {patterns, shape, partition_dim}: shape[partition_dim] is a tuple of widths, or their number;
 * sub_param_shard_widths may say how each falls into ranks, else evenly. */
static sheaf_status *make_stated_subs(ds_making *m, const pattern *p)
{
    const int ranks = m->rule->nranks;
    int64_t axis = -1, number = 0, whole = 0;
    sheaf__pickle_int(&axis, sheaf__pickle_get(p->value, "partition_dim"));
    const sheaf_pickle *sizes = sheaf__pickle_item(sheaf__pickle_get(p->value, "shape"), axis);
    const sheaf_pickle *stated =
        sheaf__pickle_path(m->rules->info, "sub_param_shard_widths", p->text, NULL);
    const int64_t n = sheaf__pickle_int(&number, sizes) ? number : sheaf__pickle_count(sizes);
    if (axis < 0 || axis >= m->rule->ndim || n < 1 || n > 64 ||
        (stated != NULL && sheaf__pickle_count(stated) != n))
        return sheaf__ds_refuse(m, "unsupported", "sub-parameters along one axis",
                                "another description of sub-parameters");
    int64_t *width = calloc((size_t)(n * ranks), sizeof *width);
    if (width == NULL)
        return sheaf__no_memory(m->name);
    bool good = true;
    for (int r = 0; r < ranks; r++)
        good &= sheaf__ds_add(&whole, sheaf__ds_size(m, r, (int)axis));
    for (int64_t s = 0; s < n; s++) {
        int64_t size = whole / n;
        good &=
            number > 0 ? whole % n == 0 : sheaf__pickle_int(&size, sheaf__pickle_item(sizes, s));
        for (int r = 0; r < ranks; r++) {
            int64_t *w = &width[s * ranks + r];
            good &= stated != NULL
                        ? sheaf__pickle_int(w, sheaf__pickle_item(sheaf__pickle_item(stated, s), r))
                        : size % ranks == 0;
            if (stated == NULL)
                *w = size / ranks;
            good &= *w >= 0 && *w < INT64_MAX / 65536 / 64;
        }
    }
    sheaf_status *st =
        good ? sheaf__ds_make_subs(m, (int)axis, n, width, -1)
             : sheaf__ds_refuse(m, "unsupported", "sub-parameters whose widths are stated or even",
                                "others");
    free(width);
    return st;
}

/* ---- affine_map ---- */

/* (offset, strides) into a row-major tensor of `shape`: the index where it begins. */
static bool place(int64_t *begin, const sheaf_pickle *at, int ndim, const int64_t *shape)
{
    int64_t offset, stride, under = 1;
    const sheaf_pickle *strides = sheaf__pickle_item(at, 1);
    if (!sheaf__pickle_int(&offset, sheaf__pickle_item(at, 0)) || offset < 0 ||
        sheaf__pickle_count(strides) != ndim)
        return false;
    for (int i = ndim - 1; i >= 0; i--) {
        if (!sheaf__pickle_int(&stride, sheaf__pickle_item(strides, i)) ||
            (stride != under && shape[i] > 1))
            return false;
        begin[i] = i == 0 ? offset : shape[i] > 0 ? offset % shape[i] : 0;
        offset = shape[i] > 0 ? offset / shape[i] : 0;
        if (__builtin_mul_overflow(under, shape[i] > 0 ? shape[i] : 1, &under))
            return false;
    }
    return true;
}

/* One rank's pieces of an entry of affine_map. A piece that several ranks hold belongs to the first
 * of them. */
static sheaf_status *affine_rank(ds_rule *rule, bool *good, const sheaf_pickle *entry, int rank,
                                 const sheaf_logical *of)
{
    int ndim;
    int64_t shard[SHEAF_PICKLE_MAX_DIMS];
    const sheaf_pickle *ranks = sheaf__pickle_get(entry, "ranks"), *mine = NULL, *pieces;
    for (int64_t i = 0, key; i < sheaf__pickle_count(ranks); i++)
        if (sheaf__pickle_int(&key, sheaf__pickle_key(ranks, i)) && key == rank)
            mine = sheaf__pickle_value(ranks, i);
    *good = sheaf__pickle_shape(&ndim, shard, sheaf__pickle_get(mine, "shard_shape")) &&
            ndim == rule->ndim &&
            (of == NULL || memcmp(shard, of->entry.shape, (size_t)ndim * sizeof *shard) == 0);
    pieces = sheaf__pickle_get(mine, "pieces");
    *good = *good && sheaf__pickle_count(pieces) <= MAX_PIECES;
    for (int64_t i = 0; *good && i < sheaf__pickle_count(pieces); i++) {
        const sheaf_pickle *one = sheaf__pickle_item(pieces, i),
                           *where = sheaf__pickle_get(one, "locations");
        int64_t size[SHEAF_PICKLE_MAX_DIMS], from[SHEAF_PICKLE_MAX_DIMS] = { 0 },
                                             to[SHEAF_PICKLE_MAX_DIMS] = { 0 }, owner = rank;
        *good =
            sheaf__pickle_shape(&ndim, size, sheaf__pickle_get(one, "shape")) && ndim == rule->ndim;
        bool empty = false;
        for (int k = 0; *good && k < ndim; k++)
            empty |= size[k] == 0;
        if (!*good || empty)
            continue;
        *good = place(to, sheaf__pickle_get(one, "source"), ndim, rule->shape) &&
                place(from, sheaf__pickle_get(one, "dest"), ndim, shard);
        for (int k = 0; *good && k < ndim; k++)
            *good = size[k] <= rule->shape[k] - to[k] && size[k] <= shard[k] - from[k];
        sheaf__pickle_int(&owner, sheaf__pickle_item(where, 0));
        if (*good && (rule->replicated || owner == rank)) {
            sheaf_status *st = add_move(rule, rank, from, size, to);
            if (st != NULL)
                return st;
        }
    }
    return NULL;
}

static sheaf_status *make_affine(ds_making *m, const pattern *p)
{
    ds_rule *rule = m->rule;
    const sheaf_pickle *entry = p->value, *ranks = sheaf__pickle_get(entry, "ranks");
    int ndim = 0;
    bool good =
        sheaf__pickle_shape(&ndim, rule->shape, sheaf__pickle_get(entry, "logical_shape")) &&
        ndim == rule->ndim && sheaf__pickle_count(ranks) == rule->nranks;
    rule->replicated = good;
    for (int64_t i = 0; good && i < sheaf__pickle_count(ranks);
         i++) { /* is each rank's first piece all of it, and everywhere? */
        const sheaf_pickle *pieces = sheaf__pickle_get(sheaf__pickle_value(ranks, i), "pieces"),
                           *first = sheaf__pickle_item(pieces, 0);
        int64_t size[SHEAF_PICKLE_MAX_DIMS];
        rule->replicated &=
            sheaf__pickle_count(pieces) == 1 &&
            sheaf__pickle_shape(&ndim, size, sheaf__pickle_get(first, "shape")) &&
            ndim == rule->ndim && memcmp(size, rule->shape, (size_t)ndim * sizeof *size) == 0 &&
            sheaf__pickle_count(sheaf__pickle_get(first, "locations")) == rule->nranks;
    }
    sheaf_status *st = NULL;
    for (int r = 0; st == NULL && good && r < rule->nranks; r++)
        st = affine_rank(rule, &good, entry, r, m->of[r]);
    if (st != NULL || good)
        return st;
    return sheaf__ds_refuse(m, "conflict", "parts as affine_map in universal_checkpoint_info says",
                            NULL);
}

/* ---- the rule ---- */

void sheaf__ds_collect(ds_making *m)
{
    const ds_reading *r = m->rules->r;
    for (int k = 0; k < r->tp; k++)
        m->of[k] = r->part[k] == NULL ? NULL : sheaf__catalog_find(r->part[k], m->name);
}

static sheaf_status *make_stated(ds_making *m)
{
    ds_rules *rules = m->rules;
    const char *name = m->name;
    const pattern *p = match(rules, UNSUPPORTED, name);
    if (p != NULL)
        return sheaf__ds_refuse(m, "unsupported", "a tensor that AutoTP can convert",
                                "one that it says it cannot");
    if ((p = match(rules, AFFINE, name)) != NULL)
        return make_affine(m, p);
    if (match(rules, REPLICATED, name) != NULL || match(rules, AVERAGE, name) != NULL)
        return sheaf__ds_make_copies(m);
    if (match(rules, HALVES, name) != NULL)
        return make_halves(m);
    if ((p = match(rules, SUBS, name)) != NULL)
        return make_stated_subs(m, p);
    if (match(rules, ROW, name) != NULL)
        return sheaf__ds_make_cut(m, 1, -1);
    const bool table = match(rules, VOCABULARY, name) != NULL;
    return sheaf__ds_make_cut(m, 0, table ? rules->original_vocab : -1);
}

sheaf_status *sheaf__ds_make_stated(ds_making *m)
{
    sheaf_status *st = make_stated(m);
    return st == NULL && m->rules->starved ? sheaf__no_memory(m->rules->path) : st;
}
