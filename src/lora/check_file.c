/* check_file.c - see check_file.h. */
#include "lora/check_file.h"

#include <ctype.h>

#include "base/base.h"
#include "catalog/boxes.h"
#include "lora/combine.h"
#include "lora/match.h"
#include "lora/names.h"

enum { NAMED = 64, BLOCK = 1 << 16 };

sheaf_status *sheaf_lora_missing(const char *path, size_t length, const char *end)
{
    sheaf_status *st =
        sheaf_fail(SHEAF_E_LAYOUT, "'" SHEAF_PEFT_PREFIX "%.*s%s'", (int)length, path, end);
    sheaf_found(sheaf_expected(st, "this tensor in the adapter"), "nothing of that name");
    if (*end == '\0') /* a whole module's */
        return sheaf_try_this(
            st,
            "training under DeepSpeed's ZeRO-3, and PEFT's old versions, saved adapters without the "
            "modules trained in full: look for them in the run's checkpoint (sheaf info PATH), or "
            "train again; where they were not trained, take them out of modules_to_save");
    return sheaf_try_this(st,
                          "is the file complete, and does its adapter_config.json belong to it?");
}

/* Bytes of a tensor's name at most, and of any that is made of it: another end, a longer prefix. */
enum { LONGEST_NAME = 3000, ANY_NAME = 4096 };

const sheaf_source_entry *sheaf__lora_find_part(sheaf_source *adapter, const char *path,
                                                size_t length, const char *end)
{
    char name[ANY_NAME]; /* not of memory, whose lack would look like the tensor's */
    const int n = snprintf(name, sizeof name, SHEAF_PEFT_PREFIX "%.*s%s", (int)length, path, end);
    return n < 0 || (size_t)n >= sizeof name ? NULL : adapter->find(adapter, name);
}

static bool is_adapted(sheaf_source *adapter, const char *path, size_t length)
{
    return sheaf__lora_find_part(adapter, path, length, ".lora_A.weight") != NULL ||
           sheaf__lora_find_part(adapter, path, length, ".lora_embedding_A") != NULL;
}

/* Is it a module of a parameter that target_parameters names? Its name ends with that of the
 * module; those of several parameters of one are told apart by "base_layer". */
static bool by_parameter(const sheaf_lora_options *o, const char *path, size_t length)
{
    static const char inner[] = ".base_layer";
    const size_t n = sizeof inner - 1;
    while (length > n && strncmp(path + length - n, inner, n) == 0)
        length -= n;
    for (int i = 0; i < o->parameters.n; i++) {
        const char *item = o->parameters.list[i], *dot = strrchr(item, '.');
        const size_t parent = dot == NULL ? 0 : (size_t)(dot - item);
        if (parent == 0 ||
            (parent <= length && strncmp(path + length - parent, item, parent) == 0 &&
             (parent == length || path[length - parent - 1] == '.')))
            return true;
    }
    return false;
}

/* ---- does the config name it? ---- */

static sheaf_status *targeted(bool *yes, const sheaf_lora_options *o, const char *path,
                              size_t length)
{
    sheaf_hit hit = SHEAF_HIT_NONE;
    *yes = o->all_linear || (o->targets.regex == NULL && o->targets.n == 0) ||
           (o->keep_tie && sheaf__ends_with_item(path, length, "lm_head"));
    if (*yes)
        return NULL;
    char *module = strndup(path, length);
    if (module == NULL)
        return sheaf__no_memory("adapter");
    sheaf_status *st = sheaf__lora_hit(&hit, o, module);
    *yes = hit == SHEAF_HIT_TARGET;
    free(module);
    return st;
}

bool sheaf__lora_asks_whole(const sheaf_lora_options *o, const char *name)
{
    const char *dot = strrchr(name, '.');
    if ((dot != NULL && sheaf__lora_saves_bias(o, name)) ||
        (o->keep_tie && sheaf__ends_with_item(name, strlen(name), "lm_head.weight")) ||
        dot == NULL || sheaf__lora_saves(o, name) || sheaf__lora_saves_tensor(o, name))
        return dot != NULL;
    char *module = strndup(name, (size_t)(dot - name));
    const bool yes = module != NULL && sheaf__lora_saves(o, module);
    free(module);
    return yes;
}

static sheaf_status *is_asked_for(bool *yes, const sheaf_lora_options *o, sheaf_source *adapter,
                                  const sheaf_source_entry *e)
{
    const char *path;
    size_t length;
    const sheaf_lora_part part = sheaf__lora_part(&path, &length, e->name);
    switch (part) {
    case SHEAF_PART_A:
    case SHEAF_PART_B:
    case SHEAF_PART_TABLE_A:
    case SHEAF_PART_TABLE_B:
        *yes = by_parameter(o, path, length);
        return *yes ? NULL : targeted(yes, o, path, length);
    case SHEAF_PART_B_BIAS: *yes = o->lora_bias && is_adapted(adapter, path, length); return NULL;
    case SHEAF_PART_MAGNITUDE: *yes = o->dora && is_adapted(adapter, path, length); return NULL;
    case SHEAF_PART_TOKENS: *yes = sheaf__lora_tokens(o, path, length) != NULL; return NULL;
    case SHEAF_PART_COPY:
    case SHEAF_PART_BIAS:
        *yes = (is_adapted(adapter, path, length) ||
                sheaf__lora_find_part(adapter, path, length,
                                      ".token_adapter.trainable_tokens_delta") != NULL) &&
               (part == SHEAF_PART_COPY || o->bias != SHEAF_BIAS_NONE ||
                sheaf__lora_find_part(adapter, path, length, ".base_layer.weight") != NULL);
        return NULL;
    case SHEAF_PART_WHOLE:
        *yes = sheaf__lora_asks_whole(o, path) || sheaf__lora_is_table(path, e->ndim);
        return NULL;
    default: *yes = false; return NULL;
    }
}

static sheaf_status *not_asked(const char *name)
{
    const char *path;
    size_t length;
    const bool kin = sheaf__lora_part(&path, &length, name) == SHEAF_PART_FOREIGN;
    sheaf_status *st = sheaf_fail(SHEAF_E_LAYOUT, "'%s'", name);
    sheaf_expected(st, kin ? "a part of LoRA that sheaf knows"
                           : "tensors that adapter_config.json asks for");
    sheaf_found(st, kin ? "a name like one" : "one that it does not ask for");
    return sheaf_try_this(st, "give the adapter_config.json that belongs to these tensors");
}

/* ---- A and B ---- */

sheaf_status *sheaf__lora_check_type(const sheaf_source_entry *e)
{
    if (e->dtype == SHEAF_F32 || e->dtype == SHEAF_BF16 || e->dtype == SHEAF_F16)
        return NULL;
    return sheaf_found(
        sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "'%s'", e->name), "F32, BF16 or F16"), "%s",
        sheaf_dtype_name(e->dtype));
}

static sheaf_status *check_name(const char *name)
{
    const size_t size = strlen(name);
    if (size <= LONGEST_NAME)
        return NULL;
    sheaf_status *st = sheaf_fail(SHEAF_E_UNSUPPORTED, "'%.60s...'", name);
    return sheaf_found(sheaf_expected(st, "names of at most %d bytes", LONGEST_NAME), "%zu", size);
}

static sheaf_status *check_columns(const sheaf_source_entry *a, const sheaf_source_entry *b)
{
    if (a->ndim < 2 || a->shape[0] < 1)
        return sheaf_expected(sheaf_fail(SHEAF_E_LAYOUT, "'%s'", a->name),
                              "two axes or more, the first the rank");
    const int64_t columns = b->ndim < 2 ? 0 : sheaf__elements(b->ndim - 1, b->shape + 1);
    if (columns == a->shape[0])
        return NULL;
    sheaf_status *st =
        sheaf_expected(sheaf_fail(SHEAF_E_LAYOUT, "'%s'", b->name),
                       "one column for each row of A, whose rank is %" PRId64, a->shape[0]);
    sheaf_found(st, "%" PRId64 " columns", columns);
    return sheaf_try_this(st, "are both of one adapter? Parts of several ranks cannot be one: join "
                              "the checkpoint that they came from");
}

static sheaf_status *check_rank(const sheaf_lora_options *o, const sheaf_source_entry *a,
                                const char *path, size_t length)
{
    char *module = strndup(path, length);
    double rank = 0;
    sheaf_status *st = module == NULL ? sheaf__no_memory("adapter")
                                      : sheaf__lora_pattern_value(&rank, &o->rank_pattern, module,
                                                                  (double)o->rank);
    free(module);
    if (st != NULL || (int64_t)rank == a->shape[0])
        return st;
    st = sheaf_found(
        sheaf_expected(sheaf_fail(SHEAF_E_LAYOUT, "'%s'", a->name), "rank %" PRId64, (int64_t)rank),
        "rank %" PRId64, a->shape[0]);
    return sheaf_try_this(st, "the rank differs from r and rank_pattern in adapter_config.json: "
                              "give the one that belongs to these factors");
}

typedef struct checking {
    const sheaf_lora_options *options;
    sheaf_source *adapter;
    sheaf_lora_report *report;
    void *self;
    bool shapes; /* layers are to have the same, too */
} checking;

static sheaf_status *report(const checking *x, const char *code, const char *tensor,
                            sheaf_status *wrong)
{
    if (wrong == NULL || sheaf_status_code(wrong) == SHEAF_E_MEMORY)
        return wrong;
    return x->report(x->self, code, tensor, wrong);
}

/* PATH + end is not in the adapter. */
static sheaf_status *lacks(const checking *x, const char *path, size_t length, const char *end)
{
    char *name = NULL;
    if (asprintf(&name, SHEAF_PEFT_PREFIX "%.*s%s", (int)length, path, end) < 0)
        return sheaf__no_memory("adapter");
    sheaf_status *st = report(x, "missing", name, sheaf_lora_missing(path, length, end));
    free(name);
    return st;
}

static sheaf_status *check_factor(const checking *x, const sheaf_source_entry *e)
{
    const char *path;
    size_t length;
    const sheaf_lora_options *o = x->options;
    const sheaf_lora_part part = sheaf__lora_part(&path, &length, e->name);
    const bool table = part == SHEAF_PART_TABLE_A || part == SHEAF_PART_TABLE_B;
    const char *const a_end = table ? ".lora_embedding_A" : ".lora_A.weight",
                      *const b_end = table ? ".lora_embedding_B" : ".lora_B.weight";
    if ((part == SHEAF_PART_B || part == SHEAF_PART_TABLE_B) &&
        sheaf__lora_find_part(x->adapter, path, length, a_end) == NULL)
        return lacks(x, path, length, a_end);
    if (part != SHEAF_PART_A && part != SHEAF_PART_TABLE_A)
        return NULL;
    const sheaf_source_entry *b = sheaf__lora_find_part(x->adapter, path, length, b_end);
    sheaf_status *st = b == NULL ? lacks(x, path, length, b_end)
                                 : report(x, "shape", b->name, check_columns(e, b));
    if (st == NULL && o->dora &&
        sheaf__lora_find_part(x->adapter, path, length, ".lora_magnitude_vector") == NULL)
        st = lacks(x, path, length, ".lora_magnitude_vector");
    if (st == NULL && o->lora_bias && !table &&
        sheaf__lora_find_part(x->adapter, path, length, ".lora_B.bias") == NULL)
        st = lacks(x, path, length, ".lora_B.bias");
    return st != NULL || e->ndim < 2 || by_parameter(o, path, length)
               ? st /* of parameters with several members the ranks of all of them */
               : report(x, "shape", e->name, check_rank(o, e, path, length));
}

/* Checks the rows of one table. For tied tables PEFT saves the rows once: a table without rows may
 * have those of the other. */
static sheaf_status *check_rows(const checking *x, const sheaf_lora_tokens *tokens)
{
    const sheaf_lora_options *o = x->options;
    const char *path;
    size_t length;
    bool there = false;
    sheaf_status *st = NULL;
    for (int64_t i = 0; i < x->adapter->count(x->adapter) && st == NULL; i++) {
        const sheaf_source_entry *e = x->adapter->entry(x->adapter, i);
        if (sheaf__lora_part(&path, &length, e->name) != SHEAF_PART_TOKENS)
            continue;
        const sheaf_lora_tokens *of = sheaf__lora_tokens(o, path, length);
        there |= of == tokens ||
                 (of != NULL && of->nrows == tokens->nrows &&
                  memcmp(of->row, tokens->row, (size_t)of->nrows * sizeof *of->row) == 0);
        if (of != tokens || (e->ndim == 2 && e->shape[0] == tokens->nrows))
            continue;
        sheaf_status *wrong = sheaf_fail(SHEAF_E_LAYOUT, "'%s'", e->name);
        sheaf_expected(wrong,
                       "%" PRId64 " rows, as adapter_config.json names in trainable_token_indices",
                       tokens->nrows);
        sheaf_found(wrong, "%" PRId64, e->ndim > 0 ? e->shape[0] : 0);
        st = report(x, "shape", e->name, wrong);
    }
    const char *const module = tokens->module != NULL ? tokens->module : "model.embed_tokens";
    return st != NULL || there || tokens->nrows == 0
               ? st
               : lacks(x, module, strlen(module), ".token_adapter.trainable_tokens_delta");
}

sheaf_status *sheaf_lora_check_parts(const sheaf_lora_options *o, sheaf_source *adapter,
                                     sheaf_lora_report *teller, void *self)
{
    const checking x = { o, adapter, teller, self };
    const int64_t n = adapter->count(adapter);
    sheaf_status *st = NULL;
    for (int64_t i = 0; i < n && st == NULL; i++) {
        const sheaf_source_entry *e = adapter->entry(adapter, i);
        bool yes = false;
        st = report(&x, "unsupported", e->name, check_name(e->name));
        TRY(st, is_asked_for(&yes, o, adapter, e));
        if (st == NULL && !yes)
            st = report(&x, "foreign", e->name, not_asked(e->name));
    }
    for (int i = 0; i < o->ntokens && st == NULL; i++)
        st = check_rows(&x, &o->tokens[i]);
    for (int64_t i = 0; i < n && st == NULL; i++)
        st = check_factor(&x, adapter->entry(adapter, i));
    for (int64_t i = 0; i < n && st == NULL; i++)
        st = report(&x, "unsupported", adapter->entry(adapter, i)->name,
                    sheaf__lora_check_type(adapter->entry(adapter, i)));
    return st;
}

/* ---- is every number finite? ---- */

/* The first of n numbers that is infinite or NaN; n: none. */
static int64_t first_wild(const void *at, sheaf_dtype dtype, int64_t n)
{
    const uint16_t exponent = dtype == SHEAF_BF16 ? 0x7f80 : 0x7c00;
    int64_t i = 0;
    if (dtype == SHEAF_F32)
        for (const uint32_t *x = at; i < n && (x[i] & 0x7f800000) != 0x7f800000; i++) {
        }
    else
        for (const uint16_t *x = at; i < n && (x[i] & exponent) != exponent; i++) {
        }
    return i;
}

static sheaf_status *check_numbers(sheaf_source *adapter, const sheaf_source_entry *e, void *buffer)
{
    const int64_t rows = e->ndim > 0 ? e->shape[0] : 1,
                  cols = sheaf__elements(e->ndim - 1, e->shape + 1),
                  last = e->ndim > 2 ? e->shape[e->ndim - 1] : 1;
    const int64_t wide = cols <= BLOCK               ? cols
                         : last > 0 && last <= BLOCK ? BLOCK / last * last
                                                     : 0,
                  high = wide > 0 ? BLOCK / wide : 0;
    sheaf_status *st = NULL;
    if (cols > 0 && rows > 0 && wide == 0)
        return sheaf_found(
            sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "'%s': last axis", e->name),
                           "at most %d elements", BLOCK),
            "%" PRId64, last);
    for (int64_t r = 0; r < rows && wide > 0 && st == NULL; r += high)
        for (int64_t c = 0; c < cols && st == NULL; c += wide) {
            const int64_t h = rows - r < high ? rows - r : high,
                          w = cols - c < wide ? cols - c : wide;
            st = sheaf__lora_read_view(adapter, e, r, h, c, w, buffer);
            const int64_t wild = st == NULL ? first_wild(buffer, e->dtype, h * w) : h * w;
            if (wild < h * w) {
                st = sheaf_fail(SHEAF_E_NUMBER, "'%s', row %" PRId64 ", column %" PRId64, e->name,
                                r + wild / w, c + wild % w);
                sheaf_found(sheaf_expected(st, "finite numbers"), "Inf or NaN");
                sheaf_try_this(
                    st,
                    "an adapter from before its training went wrong; sheaf verify names all numbers that are not finite");
            }
        }
    return st;
}

static sheaf_status *check_values(sheaf_source *adapter)
{
    void *buffer = malloc((size_t)BLOCK * 4);
    sheaf_status *st = buffer == NULL ? sheaf__no_memory("adapter") : NULL;
    for (int64_t i = 0; i < adapter->count(adapter) && st == NULL; i++) {
        const sheaf_source_entry *e = adapter->entry(adapter, i);
        const char *path;
        size_t length;
        if (sheaf__lora_part(&path, &length, e->name) != SHEAF_PART_COPY)
            st = check_numbers(adapter, e, buffer);
    }
    free(buffer);
    return st;
}

/* ---- the whole file ---- */

/* Keeps the first error; but all unexpected tensors, as these mean that the config is another
 * one. */
typedef struct first_wrong {
    sheaf_text lost;
    int64_t n;
} first_wrong;

static sheaf_status *take_first(void *self, const char *code, const char *tensor,
                                sheaf_status *wrong)
{
    first_wrong *f = self;
    const bool lost = strcmp(code, "foreign") == 0;
    if (!lost && f->n == 0)
        return wrong;
    sheaf_status_free(wrong);
    if (lost && f->n++ < NAMED)
        sheaf__text_add(&f->lost, "%s%.200s", f->n > 1 ? ", " : "", tensor);
    return NULL;
}

static sheaf_status *check_all_parts(const sheaf_lora_options *o, sheaf_source *adapter)
{
    first_wrong f = { 0 };
    sheaf_status *st = sheaf_lora_check_parts(o, adapter, take_first, &f);
    if (st == NULL && f.n > 0) {
        st = sheaf_fail(SHEAF_E_LAYOUT, "%" PRId64 " of %" PRId64 " tensors of the adapter", f.n,
                        adapter->count(adapter));
        sheaf_expected(st, "tensors that adapter_config.json asks for");
        sheaf_found(st, f.n > NAMED ? "%s and more" : "%s", f.lost.at != NULL ? f.lost.at : "");
        sheaf_try_this(st, "the adapter_config.json that belongs to these tensors");
    }
    sheaf__text_release(&f.lost);
    return st;
}

sheaf_status *sheaf_lora_check_file(const sheaf_lora_options *o, sheaf_source *adapter)
{
    const int64_t n = adapter->count(adapter);
    if (n == 0)
        return sheaf_try_this(
            sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_LAYOUT, "the adapter"),
                                       "factors of LoRA, or modules that were saved whole"),
                        "no tensor"),
            "use a complete copy of the adapter");
    sheaf_status *st = check_all_parts(o, adapter);
    return st != NULL ? st : check_values(adapter);
}

/* ---- one adapter without its base ---- */

/* The first name that is not below `prefix`. Entries ascend by name. */
static int64_t first_from(sheaf_source *adapter, const char *prefix)
{
    int64_t low = 0, high = adapter->count(adapter);
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (strcmp(adapter->entry(adapter, middle)->name, prefix) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The name of a factor in layer `to` (malloc'd); NULL: no memory. The layer's number is the first
 * in the name. */
static char *in_layer(const char *name, const char *number, int64_t to)
{
    char *other = NULL;
    return asprintf(&other, "%.*s%" PRId64 "%s", (int)(number - name), name, to,
                    number + strspn(number, "0123456789")) < 0
               ? NULL
               : other;
}

static const char *layer_number(const char *name)
{
    const char *at = name;
    while ((at = strchr(at, '.')) != NULL && !isdigit((unsigned char)at[1]))
        at++;
    return at != NULL ? at + 1 : NULL;
}

static bool has_target(sheaf_source *adapter, const char *item)
{
    bool met = false;
    for (int64_t i = 0; i < adapter->count(adapter) && !met; i++) {
        const char *path;
        size_t length;
        const sheaf_lora_part part =
            sheaf__lora_part(&path, &length, adapter->entry(adapter, i)->name);
        met = (part == SHEAF_PART_A || part == SHEAF_PART_TABLE_A) &&
              sheaf__ends_with_item(path, length, item);
    }
    return met;
}

static sheaf_status *check_target(const checking *x, const char *item)
{
    if (has_target(x->adapter, item))
        return NULL;
    sheaf_status *st = sheaf_fail(SHEAF_E_LAYOUT, "target_modules");
    sheaf_expected(st, "factors of '%s', which target_modules names", item);
    sheaf_found(st, "none");
    sheaf_try_this(st, "use a complete copy of the adapter; where the model has no module of this "
                       "name, take it out of target_modules");
    return report(x, "missing", item, st);
}

enum { DIRECT = 1, FURTHER_IN = 2 };

/* Counts the adapted modules in the parent of the module of `name`, in that layer, and those below
 * its modules. */
static int siblings(sheaf_source *adapter, const char *name, const char *number, int64_t layer)
{
    const char *path, *rest = number + strspn(number, "0123456789");
    size_t length;
    char *place = NULL;
    int kinds = 0;
    sheaf__lora_part(&path, &length, name);
    const char *end = path + length;
    while (end > rest && end[-1] != '.')
        end--;
    if (asprintf(&place, "%.*s%" PRId64 "%.*s", (int)(number - name), name, layer,
                 (int)(end - rest), rest) < 0)
        return 0;
    const size_t n = strlen(place);
    for (int64_t i = first_from(adapter, place); i < adapter->count(adapter); i++) {
        const char *other = adapter->entry(adapter, i)->name;
        if (strncmp(other, place, n) != 0)
            break;
        if (sheaf__lora_part(&path, &length, other) == SHEAF_PART_A)
            kinds |= memchr(other + n, '.', (size_t)(path + length - (other + n))) == NULL
                         ? DIRECT
                         : FURTHER_IN;
    }
    free(place);
    return kinds;
}

/* Is the parent of the same kind in both layers? Not if it has experts in only one of them. */
static bool is_same_kind(sheaf_source *adapter, const char *name, const char *number, int64_t to)
{
    const int here = siblings(adapter, name, number, strtoll(number, NULL, 10)),
              there = siblings(adapter, name, number, to);
    return (there & DIRECT) != 0 && (here & FURTHER_IN) == (there & FURTHER_IN);
}

/* Does layer `to` have the same factor, as it should? */
static sheaf_status *check_neighbour(const checking *x, const sheaf_source_entry *e,
                                     const char *number, int64_t to)
{
    const char *path;
    size_t length;
    bool yes = false;
    if (to < 0 || !is_same_kind(x->adapter, e->name, number, to))
        return NULL;
    char *other = in_layer(e->name, number, to);
    if (other == NULL)
        return sheaf__no_memory("adapter");
    sheaf__lora_part(&path, &length, other);
    const sheaf_source_entry *twin = x->adapter->find(x->adapter, other);
    sheaf_status *st = twin == NULL ? targeted(&yes, x->options, path, length) : NULL;
    if (twin != NULL && x->shapes &&
        !sheaf__same_shape(twin->ndim, twin->shape, e->ndim, e->shape)) {
        st = report(x, "shape", other, sheaf_fail(SHEAF_E_LAYOUT, "'%s'", other));
    } else if (st == NULL && yes) {
        st = sheaf_lora_missing(path, length, ".lora_A.weight");
        sheaf_try_this(st, "use a complete copy of the adapter; it is right only for a model whose "
                           "layers differ, as sheaf verify BASE ADAPTER shows");
        st = report(x, "missing", other, st);
    }
    free(other);
    return st;
}

static sheaf_status *check_layers(const checking *x)
{
    sheaf_status *st = NULL;
    for (int64_t i = 0; i < x->adapter->count(x->adapter) && st == NULL; i++) {
        const sheaf_source_entry *e = x->adapter->entry(x->adapter, i);
        const char *path, *number = layer_number(e->name);
        size_t length;
        const sheaf_lora_part part = sheaf__lora_part(&path, &length, e->name);
        if (number == NULL || (part != SHEAF_PART_A && (part != SHEAF_PART_B || !x->shapes)))
            continue;
        const int64_t layer = strtoll(number, NULL, 10);
        st = check_neighbour(x, e, number, layer + 1);
        TRY(st, check_neighbour(x, e, number, layer - 1));
    }
    return st;
}

sheaf_status *sheaf_lora_check_alone(const sheaf_lora_options *o, sheaf_source *adapter,
                                     sheaf_lora_report *teller, void *self)
{
    const checking x = { o, adapter, teller, self };
    sheaf_status *st = NULL;
    const bool excludes = o->exclude.n > 0 || o->exclude.regex != NULL; /* perhaps all of a name */
    for (int i = 0; i < o->targets.n && st == NULL && !excludes; i++)
        st = check_target(&x, o->targets.list[i]);
    return st != NULL ? st : check_layers(&x);
}

/* ---- several adapters of one base ---- */

static sheaf_status *check_other(const sheaf_lora_options *o, sheaf_source *mine,
                                 sheaf_source *other)
{
    sheaf_status *st = NULL;
    for (int64_t i = 0; i < other->count(other) && st == NULL; i++) {
        const char *path;
        size_t length;
        bool yes = false;
        const sheaf_lora_part part = sheaf__lora_part(&path, &length, other->entry(other, i)->name);
        if (part != SHEAF_PART_A && part != SHEAF_PART_TABLE_A)
            continue;
        st = targeted(&yes, o, path, length);
        if (st == NULL && yes && !o->all_linear && (o->targets.regex != NULL || o->targets.n > 0) &&
            !is_adapted(mine, path, length))
            st = sheaf_lora_missing(path, length,
                                    part == SHEAF_PART_A ? ".lora_A.weight" : ".lora_embedding_A");
    }
    return st;
}

typedef struct gaps {
    int64_t n;
    char first[256];
} gaps;

static sheaf_status *count_gap(void *self, const char *code, const char *tensor,
                               sheaf_status *wrong)
{
    gaps *g = self;
    if (g->n++ == 0)
        snprintf(g->first, sizeof g->first, "%s", tensor);
    sheaf_status_free(wrong);
    return NULL;
}

sheaf_status *sheaf_lora_check_modules(const sheaf_lora_options *options,
                                       sheaf_source *const *adapters, const char *const *paths,
                                       int n, const sheaf_events *events)
{
    sheaf_status *st = NULL;
    for (int i = 0; i < n && st == NULL; i++)
        for (int k = 0; k < n && st == NULL; k++)
            if (k != i)
                st = sheaf_in(check_other(&options[i], adapters[i], adapters[k]), "%s", paths[i]);
    for (int i = 0; i < n && st == NULL; i++) {
        gaps g = { 0 };
        if (options[i].nlayers == 0)
            st = check_layers(&(checking){ &options[i], adapters[i], count_gap, &g, true });
        if (g.n > 0) /* without the base it cannot be known whether that is right */
            sheaf_warn(
                events,
                "%s: '%s'%s missing, or of another shape than in the layer beside it; that is "
                "right only for a model whose layers differ",
                paths[i], g.first, g.n > 1 ? " and others are" : " is");
    }
    return st;
}
