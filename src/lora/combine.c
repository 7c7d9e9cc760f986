/* combine.c - see combine.h. */
#include "lora/combine.h"

#include <math.h>

#include "base/base.h"
#include "catalog/over_source.h"
#include "lora/match.h"
#include "lora/names.h"
#include "ops/kernels.h"

typedef struct part {
    sheaf_source *from;
    const sheaf_source_entry *entry;
    float by, then; /* times `by`, then times `then`, a rounding each */
    int64_t begin;  /* cat: its first row (A) or column (B) */
    int64_t rank;
} part;

typedef struct item {
    sheaf_source_entry *entry;
    bool a, copy; /* copy: of the base's table, passed on */
    int nparts;
    part *part;
} item;

typedef struct combined {
    sheaf__over_source over; /* first; all tensors are its own */
    const sheaf__kernels *kernels;
    sheaf_combine how;
    item *item; /* of each */
} combined;

sheaf_status *sheaf__lora_read_view(sheaf_source *source, const sheaf_source_entry *e, int64_t row0,
                                    int64_t rows, int64_t col0, int64_t cols, void *dst)
{
    if (e->ndim <= 2)
        return source->read(source, e->name, row0, rows, col0, cols, dst);
    const int64_t last = e->shape[e->ndim - 1];
    int64_t inner = 1; /* rows of the source under one of ours */
    for (int i = 1; i < e->ndim - 1; i++)
        inner *= e->shape[i];
    if (col0 == 0 && cols == inner * last)
        return source->read(source, e->name, row0 * inner, rows * inner, 0, last, dst);
    sheaf_status *st = NULL;
    for (int64_t r = 0; r < rows && st == NULL; r++)
        st = source->read(source, e->name, (row0 + r) * inner + col0 / last, cols / last, 0, last,
                          (char *)dst + (size_t)(r * cols) * sheaf_dtype_bytes(e->dtype));
    return st;
}

/* ---- as a source ---- */

static void source_close(sheaf_source *self)
{
    combined *c = (combined *)self;
    for (int64_t i = 0; c->item != NULL && i < c->over.count; i++)
        free(c->item[i].part);
    free(c->item);
    sheaf__over_release(&c->over);
    free(c);
}

static sheaf_status *read_part(float *out, const combined *c, const part *p, bool b, int64_t row0,
                               int64_t rows, int64_t col0, int64_t cols)
{
    void *stored = malloc((size_t)(rows * cols) * 4 + 1);
    if (stored == NULL)
        return sheaf_fail(SHEAF_E_MEMORY, "'%s'", p->entry->name);
    sheaf_status *st = b ? sheaf__lora_read_view(p->from, p->entry, row0, rows, col0, cols, stored)
                         : p->from->read(p->from, p->entry->name, row0, rows, col0, cols, stored);
    if (st == NULL)
        c->kernels->convert(out, SHEAF_F32, stored, p->entry->dtype, rows * cols);
    free(stored);
    for (int64_t i = 0; i < rows * cols && st == NULL; i++) {
        const float once = out[i] * p->by;
        out[i] = once * p->then;
    }
    return st;
}

static sheaf_status *read_sum(float *dst, const combined *c, const item *it, float *buffer,
                              int64_t row0, int64_t rows, int64_t col0, int64_t cols)
{
    sheaf_status *st = read_part(dst, c, &it->part[0], !it->a, row0, rows, col0, cols);
    for (int i = 1; i < it->nparts && st == NULL; i++) {
        st = read_part(buffer, c, &it->part[i], !it->a, row0, rows, col0, cols);
        for (int64_t k = 0; k < rows * cols && st == NULL; k++)
            dst[k] += buffer[k];
    }
    return st;
}

/* The overlap of [first, first + n) with the part's [begin, begin + size). */
static int64_t overlap(int64_t *from, int64_t first, int64_t n, int64_t begin, int64_t size)
{
    const int64_t end = first + n < begin + size ? first + n : begin + size;
    *from = first > begin ? first : begin;
    return end - *from;
}

static sheaf_status *read_joined(float *dst, const combined *c, const item *it, float *buffer,
                                 int64_t row0, int64_t rows, int64_t col0, int64_t cols)
{
    int64_t inner = 1; /* rows of the source for each of the rank */
    for (int i = 1; i < it->entry->ndim - 1; i++)
        inner *= it->entry->shape[i];
    sheaf_status *st = NULL;
    memset(dst, 0, (size_t)(rows * cols) * sizeof *dst); /* PEFT pads with zeros */
    for (int i = 0; i < it->nparts && st == NULL; i++) {
        const part *p = &it->part[i];
        int64_t from;
        if (it->a) {
            const int64_t n = overlap(&from, row0, rows, p->begin * inner, p->rank * inner);
            if (n > 0)
                st = read_part(dst + (from - row0) * cols, c, p, false, from - p->begin * inner, n,
                               col0, cols);
            continue;
        }
        const int64_t n = overlap(&from, col0, cols, p->begin, p->rank);
        if (n <= 0)
            continue;
        st = read_part(buffer, c, p, true, row0, rows, from - p->begin, n);
        for (int64_t r = 0; r < rows && st == NULL; r++)
            memcpy(dst + r * cols + from - col0, buffer + r * n, (size_t)n * sizeof *dst);
    }
    return st;
}

static sheaf_status *source_read(sheaf_source *self, const char *name, int64_t row0, int64_t rows,
                                 int64_t col0, int64_t cols, void *dst)
{
    const combined *c = (combined *)self;
    const int64_t at = sheaf__over_find(&c->over, name);
    if (at < 0)
        return sheaf_found(sheaf_fail(SHEAF_E_LAYOUT, "tensor '%s'", name),
                           "no tensor of this name");
    const item *it = &c->item[at];
    if (it->copy)
        return it->part[0].from->read(it->part[0].from, it->part[0].entry->name, row0, rows, col0,
                                      cols, dst);
    float *buffer = malloc((size_t)(rows * cols) * sizeof *buffer + 1);
    if (buffer == NULL)
        return sheaf_fail(SHEAF_E_MEMORY, "'%s'", name);
    sheaf_status *st = c->how == SHEAF_COMBINE_LINEAR
                           ? read_sum(dst, c, it, buffer, row0, rows, col0, cols)
                           : read_joined(dst, c, it, buffer, row0, rows, col0, cols);
    free(buffer);
    return st;
}

/* ---- the tensors ---- */

static sheaf_status *refuse_tensor(const sheaf_source_entry *e, const char *what)
{
    sheaf_status *st = sheaf_fail(SHEAF_E_UNSUPPORTED, "'%s'", e->name);
    sheaf_found(sheaf_expected(st, "A and B of LoRA, which can be combined"), "%s", what);
    return sheaf_try_this(st, "merge the adapters in turn, without `combine`");
}

/* The names in all adapters. */
static sheaf_status *list_tensors(combined *c, sheaf_source *const *sources, int n)
{
    int64_t most = 0;
    for (int i = 0; i < n; i++)
        most += sources[i]->count(sources[i]);
    sheaf_status *st = sheaf__over_init(&c->over, most);
    c->item = calloc((size_t)most + 1, sizeof *c->item);
    TRY(st, c->item == NULL ? sheaf__no_memory("combine") : NULL);
    for (int i = 0; i < n; i++)
        for (int64_t k = 0; k < sources[i]->count(sources[i]) && st == NULL; k++) {
            const sheaf_source_entry *e = sources[i]->entry(sources[i], k);
            bool met = false;
            for (int before = 0; before < i && !met; before++)
                met = sources[before]->find(sources[before], e->name) != NULL;
            c->item[c->over.count].entry = &c->over.own[c->over.count];
            st = met ? NULL : sheaf__over_add(&c->over, strdup(e->name), *e);
        }
    if (st == NULL)
        sheaf__over_sort(&c->over);
    return st;
}

static sheaf_status *add_part(item *it, sheaf_source *from, const sheaf_source_entry *e,
                              const part *scaled)
{
    if (!SHEAF_GROW(&it->part, NULL, it->nparts + 1))
        return sheaf_fail(SHEAF_E_MEMORY, "'%s'", e->name);
    it->part[it->nparts] = *scaled;
    it->part[it->nparts].from = from;
    it->part[it->nparts++].entry = e;
    return NULL;
}

static sheaf_status *scales(part *p, bool a, const char *path, size_t length,
                            const sheaf_lora_options *o, double weight, sheaf_combine how)
{
    char *module = strndup(path, length);
    double rank = 0, alpha = 0;
    if (module == NULL)
        return sheaf__no_memory("combine");
    sheaf_status *st = sheaf__lora_pattern_value(&rank, &o->rank_pattern, module, (double)o->rank);
    TRY(st, sheaf__lora_pattern_value(&alpha, &o->alpha_pattern, module, o->alpha));
    free(module);
    const double scale = o->rslora ? alpha / sqrt(rank) : alpha / rank;
    *p = (part){ .by = 1, .then = 1 };
    if (how == SHEAF_COMBINE_LINEAR)
        p->by = (float)((a && weight < 0 ? -1 : 1) * sqrt(fabs(weight * scale)));
    else if (a) {
        p->by = (float)weight;
        p->then = (float)scale;
    }
    return st;
}

static sheaf_status *add_tensor(combined *c, sheaf_source *from, const sheaf_source_entry *e,
                                const sheaf_lora_options *o, double weight)
{
    const char *path;
    size_t length;
    part p = { 0 };
    const int64_t at = sheaf__over_find(&c->over, e->name);
    if (at < 0) /* a source that names others than it did */
        return refuse_tensor(e, "a tensor that was not listed");
    item *it = &c->item[at];
    const sheaf_lora_part kind = sheaf__lora_part(&path, &length, e->name);
    const bool a = it->a = kind == SHEAF_PART_A || kind == SHEAF_PART_TABLE_A;
    if (kind == SHEAF_PART_COPY || (kind == SHEAF_PART_BIAS && o->bias == SHEAF_BIAS_NONE)) {
        if (it->nparts > 0)
            return NULL;
        it->copy = true;
        return add_part(it, from, e, &p);
    }
    if (kind == SHEAF_PART_WHOLE || kind == SHEAF_PART_BIAS)
        return refuse_tensor(e, "a tensor that was trained as a whole");
    if (kind == SHEAF_PART_MAGNITUDE)
        return refuse_tensor(e, "a magnitude of DoRA");
    if (!a && kind != SHEAF_PART_B && kind != SHEAF_PART_TABLE_B)
        return refuse_tensor(e,
                             kind == SHEAF_PART_TOKENS ? "trained token rows" : "something else");
    if (e->ndim < 2 || (e->dtype != SHEAF_F32 && e->dtype != SHEAF_BF16 && e->dtype != SHEAF_F16))
        return refuse_tensor(e, "another shape or type");
    sheaf_status *st = scales(&p, a, path, length, o, weight, c->how);
    return st != NULL ? st : add_part(it, from, e, &p);
}

/* ---- shapes ---- */

static sheaf_status *differ(const part *x, const part *y, bool rank)
{
    sheaf_status *st = sheaf_fail(SHEAF_E_LAYOUT, "'%s'", x->entry->name);
    if (rank) {
        sheaf_expected(st, "one rank in all adapters, for linear");
        sheaf_found(st, "%" PRId64 " and %" PRId64, x->rank, y->rank);
        return sheaf_try_this(st, "`combine cat`, which adds the ranks up and is exact");
    }
    return sheaf_try_this(sheaf_expected(st, "the same shape in all adapters"),
                          "adapters of one base model");
}

static sheaf_status *set_shape(item *it, sheaf_combine how)
{
    int64_t sum = 0;
    for (int i = 0; i < it->nparts; i++) {
        part *p = &it->part[i];
        const sheaf_source_entry *e = p->entry, *first = it->part[0].entry;
        p->rank = it->a ? e->shape[0] : e->shape[1];
        bool same = e->ndim == first->ndim;
        for (int d = 0; d < e->ndim && same; d++)
            same = d == (it->a ? 0 : 1) || e->shape[d] == first->shape[d];
        for (int d = 2; d < e->ndim && !it->a; d++)
            same = same && e->shape[d] == 1;
        if (!same || p->rank < 1)
            return differ(&it->part[0], p, false);
        if (how == SHEAF_COMBINE_LINEAR && p->rank != it->part[0].rank)
            return differ(&it->part[0], p, true);
        p->begin = sum;
        if (__builtin_add_overflow(sum, p->rank, &sum) || sum > 65536)
            return sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "'%s'", e->name),
                                  "ranks of at most 65536 in all");
    }
    it->entry->dtype = SHEAF_F32;
    it->entry->shape[it->a ? 0 : 1] = how == SHEAF_COMBINE_LINEAR ? it->part[0].rank : sum;
    if (!it->a)
        it->entry->ndim = 2; /* a convolution's B [out, r, 1, 1] as well */
    return NULL;
}

/* ---- the config ---- */

/* As PEFT: the union of names, or "(one)|(other)" of expressions. */
static sheaf_status *join_targets(sheaf_lora_options *out, const sheaf_lora_options *from, int n)
{
    int expressions = 0;
    sheaf_text text = { 0 };
    for (int i = 0; i < n; i++) {
        out->all_linear |= from[i].all_linear;
        if (from[i].targets.regex != NULL)
            sheaf__text_add(&text, "%s(%s)", expressions++ > 0 ? "|" : "", from[i].targets.regex);
    }
    if (expressions == n && !out->all_linear)
        return sheaf__text_take(&out->targets.regex, &text);
    sheaf__text_release(&text);
    if (expressions > 0) {
        sheaf_status *st = sheaf_fail(SHEAF_E_UNSUPPORTED, "target_modules");
        sheaf_expected(st, "lists of names in all adapters, or expressions in all");
        return sheaf_try_this(st, "merge the adapters in turn, without `combine`");
    }
    for (int i = 0; i < n && !out->all_linear; i++)
        for (int k = 0; k < from[i].targets.n; k++)
            if (!sheaf__lora_add_name(&out->targets, from[i].targets.list[k]))
                return sheaf__no_memory("combine");
    return NULL;
}

/* r of the new adapter: PEFT's, or more if a pattern gives a module more. */
static int64_t new_rank(const combined *c, const sheaf_lora_options *from, int n, sheaf_combine how)
{
    int64_t rank = 0, most = 0;
    for (int i = 0; i < n; i++)
        rank = how == SHEAF_COMBINE_CAT ? rank + from[i].rank
               : from[i].rank > rank    ? from[i].rank
                                        : rank;
    for (int64_t i = 0; i < c->over.count; i++)
        if (c->item[i].a && c->item[i].entry->shape[0] > most)
            most = c->item[i].entry->shape[0];
    return how == SHEAF_COMBINE_LINEAR || most > rank ? most : rank;
}

static sheaf_status *make_options(sheaf_lora_options *out, combined *c,
                                  const sheaf_lora_options *from, int n, sheaf_combine how)
{
    *out = (sheaf_lora_options){ .tolerant = true,
                                 .whole_rank = true,
                                 .fan_in_fan_out = from[0].fan_in_fan_out,
                                 .dropout = from[0].dropout };
    out->rank = new_rank(c, from, n, how);
    out->alpha = (double)out->rank;
    for (int i = 0; i < n; i++)
        out->keep_tie |= from[i].keep_tie;
    for (int64_t i = 0; i < c->over.count; i++) {
        item *it = &c->item[i];
        int64_t *axis = &it->entry->shape[it->a ? 0 : 1];
        if (it->copy || *axis == out->rank)
            continue;
        if (how == SHEAF_COMBINE_LINEAR) {
            sheaf_status *st = sheaf_fail(SHEAF_E_LAYOUT, "'%s'", it->entry->name);
            sheaf_expected(st, "one rank for all modules, for linear");
            return sheaf_try_this(
                sheaf_found(st, "%" PRId64 ", and %" PRId64 " elsewhere", *axis, out->rank),
                "`combine cat`");
        }
        *axis = out->rank; /* the rest is zeros */
    }
    sheaf_status *st = join_targets(out, from, n);
    if (st == NULL && from[0].base_name != NULL &&
        (out->base_name = strdup(from[0].base_name)) == NULL)
        st = sheaf__no_memory("combine");
    return st;
}

sheaf_status *sheaf_lora_combine(sheaf_source **out, sheaf_lora_options *options,
                                 sheaf_source *const *sources, const sheaf_lora_options *from,
                                 const double *weights, int n, sheaf_combine how)
{
    combined *c = calloc(1, sizeof *c);
    *options = (sheaf_lora_options){ 0 };
    if (c == NULL)
        return sheaf__no_memory("combine");
    c->how = how;
    c->kernels = sheaf__kernels_for("ref");
    sheaf_status *st = list_tensors(c, sources, n);
    c->over.source.read = source_read;
    c->over.source.close = source_close;
    for (int i = 0; i < n && st == NULL; i++)
        for (int64_t k = 0; k < sources[i]->count(sources[i]) && st == NULL; k++)
            st = sheaf_in(
                add_tensor(c, sources[i], sources[i]->entry(sources[i], k), &from[i], weights[i]),
                "adapter %d", i + 1);
    for (int64_t i = 0; i < c->over.count && st == NULL; i++)
        st = c->item[i].copy ? NULL : set_shape(&c->item[i], how);
    TRY(st, make_options(options, c, from, n, how));
    if (st != NULL) {
        sheaf_lora_options_release(options);
        source_close(&c->over.source);
        return st;
    }
    *out = &c->over.source;
    return NULL;
}

sheaf_status *sheaf_combine_parse(sheaf_combine *out, const char *text)
{
    static const char others[] =
        "svd linear_svd ties ties_svd dare_linear dare_ties dare_linear_svd dare_ties_svd "
        "magnitude_prune magnitude_prune_svd";
    const bool other = sheaf__is_listed(others, text, strlen(text));
    sheaf_status *st;
    if (strcmp(text, "linear") == 0 || strcmp(text, "cat") == 0) {
        *out = *text == 'l' ? SHEAF_COMBINE_LINEAR : SHEAF_COMBINE_CAT;
        return NULL;
    }
    st = sheaf_fail(other ? SHEAF_E_UNSUPPORTED : SHEAF_E_ARG, "combination '%s'", text);
    sheaf_expected(st, "linear or cat");
    return other ? sheaf_try_this(st, "combine with PEFT's add_weighted_adapter and save that "
                                      "adapter; sheaf merges it")
                 : st;
}
