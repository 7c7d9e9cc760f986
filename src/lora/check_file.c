/* check_file.c - see check_file.h. */
#include "lora/check_file.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "lora/combine.h"
#include "lora/match.h"
#include "lora/names.h"

enum { BLOCK = 1 << 16, NAMED = 64 };

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

/* The tensor of module PATH that ends so; NULL: none. */
static const sheaf_source_entry *part_of(sheaf_source *adapter, const char *path, size_t length,
                                         const char *end)
{
    char *name = NULL;
    if (asprintf(&name, SHEAF_PEFT_PREFIX "%.*s%s", (int)length, path, end) < 0)
        return NULL;
    const sheaf_source_entry *e = adapter->find(adapter, name);
    free(name);
    return e;
}

static bool is_adapted(sheaf_source *adapter, const char *path, size_t length)
{
    return part_of(adapter, path, length, ".lora_A.weight") != NULL ||
           part_of(adapter, path, length, ".lora_embedding_A") != NULL;
}

/* ---- does the config ask for it? ---- */

static sheaf_status *targeted(bool *yes, const sheaf_lora_options *o, const char *path,
                              size_t length)
{
    sheaf_hit hit = SHEAF_HIT_NONE;
    *yes = o->all_linear || (o->target_regex == NULL && o->ntargets == 0) ||
           (o->keep_tie && sheaf__ends_with_item(path, length, "lm_head"));
    if (*yes)
        return NULL;
    char *module = strndup(path, length);
    if (module == NULL)
        return sheaf_fail(SHEAF_E_MEMORY, "adapter");
    sheaf_status *st = sheaf__lora_hit(&hit, o, module);
    *yes = hit == SHEAF_HIT_TARGET;
    free(module);
    return st;
}

static bool saved_whole(const sheaf_lora_options *o, const char *name)
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
    case SHEAF_PART_TABLE_B: return targeted(yes, o, path, length);
    case SHEAF_PART_B_BIAS: *yes = o->lora_bias && is_adapted(adapter, path, length); return NULL;
    case SHEAF_PART_MAGNITUDE: *yes = o->dora && is_adapted(adapter, path, length); return NULL;
    case SHEAF_PART_TOKENS: *yes = o->ntokens > 0; return NULL;
    case SHEAF_PART_COPY:
    case SHEAF_PART_BIAS:
        *yes = (is_adapted(adapter, path, length) ||
                part_of(adapter, path, length, ".token_adapter.trainable_tokens_delta") != NULL) &&
               (part == SHEAF_PART_COPY || o->bias != SHEAF_BIAS_NONE);
        return NULL;
    case SHEAF_PART_WHOLE:
        *yes = saved_whole(o, path) || sheaf__lora_is_table(path, e->ndim);
        return NULL;
    default: *yes = false; return NULL;
    }
}

static sheaf_status *check_asked(const sheaf_lora_options *o, sheaf_source *adapter)
{
    sheaf_text lost = { 0 };
    sheaf_status *st = NULL;
    const int64_t all = adapter->count(adapter);
    int64_t n = 0;
    for (int64_t i = 0; i < all && st == NULL; i++) {
        const char *name = adapter->entry(adapter, i)->name;
        bool yes = false;
        st = is_asked_for(&yes, o, adapter, adapter->entry(adapter, i));
        if (st == NULL && !yes && n++ < NAMED)
            sheaf__text_add(&lost, "%s%.200s", n > 1 ? ", " : "", name);
    }
    if (st == NULL && n > 0) {
        st =
            sheaf_fail(SHEAF_E_LAYOUT, "%" PRId64 " of %" PRId64 " tensors of the adapter", n, all);
        sheaf_expected(st, "tensors that adapter_config.json asks for");
        sheaf_found(st, n > NAMED ? "%s and more" : "%s", lost.at != NULL ? lost.at : "");
        sheaf_try_this(st, "the adapter_config.json that belongs to these tensors");
    }
    sheaf__text_release(&lost);
    return st;
}

/* ---- A and B ---- */

static int64_t behind(const sheaf_source_entry *e)
{
    int64_t n = 1;
    for (int i = 1; i < e->ndim; i++)
        n *= e->shape[i];
    return n;
}

static sheaf_status *check_type(const sheaf_source_entry *e)
{
    if (e->dtype == SHEAF_F32 || e->dtype == SHEAF_BF16 || e->dtype == SHEAF_F16)
        return NULL;
    return sheaf_found(
        sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "'%s'", e->name), "F32, BF16 or F16"), "%s",
        sheaf_dtype_name(e->dtype));
}

static sheaf_status *check_rank(const sheaf_lora_options *o, const sheaf_source_entry *a,
                                const sheaf_source_entry *b, const char *path, size_t length)
{
    if (a->ndim < 2 || a->shape[0] < 1)
        return sheaf_expected(sheaf_fail(SHEAF_E_LAYOUT, "'%s'", a->name),
                              "two axes or more, the first the rank");
    if (b->ndim < 2 || behind(b) != a->shape[0]) {
        sheaf_status *st =
            sheaf_expected(sheaf_fail(SHEAF_E_LAYOUT, "'%s'", b->name),
                           "one column for each row of A, whose rank is %" PRId64, a->shape[0]);
        sheaf_found(st, "%" PRId64 " columns", b->ndim < 2 ? 0 : behind(b));
        return sheaf_try_this(st, "are both of one adapter?");
    }
    char *module = strndup(path, length);
    double rank = 0;
    sheaf_status *st = module == NULL
                           ? sheaf_fail(SHEAF_E_MEMORY, "adapter")
                           : sheaf__lora_pattern_value(&rank, o->rank_pattern, o->nrank_pattern,
                                                       module, (double)o->rank);
    free(module);
    if (st != NULL || (int64_t)rank == a->shape[0])
        return st;
    st = sheaf_found(
        sheaf_expected(sheaf_fail(SHEAF_E_LAYOUT, "'%s'", a->name), "rank %" PRId64, (int64_t)rank),
        "rank %" PRId64, a->shape[0]);
    return sheaf_try_this(st, "the rank differs from r and rank_pattern in adapter_config.json");
}

static sheaf_status *check_factor(const sheaf_lora_options *o, sheaf_source *adapter,
                                  const sheaf_source_entry *e)
{
    const char *path;
    size_t length;
    const sheaf_lora_part part = sheaf__lora_part(&path, &length, e->name);
    const bool table = part == SHEAF_PART_TABLE_A || part == SHEAF_PART_TABLE_B;
    const char *const a_end = table ? ".lora_embedding_A" : ".lora_A.weight",
                      *const b_end = table ? ".lora_embedding_B" : ".lora_B.weight";
    if (part == SHEAF_PART_B || part == SHEAF_PART_TABLE_B)
        return part_of(adapter, path, length, a_end) == NULL
                   ? sheaf_lora_missing(path, length, a_end)
                   : NULL;
    if (part != SHEAF_PART_A && part != SHEAF_PART_TABLE_A)
        return NULL;
    const sheaf_source_entry *b = part_of(adapter, path, length, b_end);
    if (b == NULL)
        return sheaf_lora_missing(path, length, b_end);
    if (o->dora && part_of(adapter, path, length, ".lora_magnitude_vector") == NULL)
        return sheaf_lora_missing(path, length, ".lora_magnitude_vector");
    return check_rank(o, e, b, path, length);
}

/* ---- values ---- */

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

static sheaf_status *check_values(sheaf_source *adapter, const sheaf_source_entry *e, void *buffer)
{
    const int64_t rows = e->ndim > 0 ? e->shape[0] : 1, cols = behind(e),
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
                    "an adapter from before its training went wrong; sheaf verify names what else is not finite");
            }
        }
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
    sheaf_status *st = check_asked(o, adapter);
    void *buffer = st == NULL ? malloc((size_t)BLOCK * 4) : NULL;
    if (st == NULL && buffer == NULL)
        st = sheaf_fail(SHEAF_E_MEMORY, "adapter");
    for (int64_t i = 0; i < n && st == NULL; i++)
        st = check_factor(o, adapter, adapter->entry(adapter, i));
    for (int64_t i = 0; i < n && st == NULL; i++) {
        const sheaf_source_entry *e = adapter->entry(adapter, i);
        const char *path;
        size_t length;
        st = check_type(e);
        if (st == NULL && sheaf__lora_part(&path, &length, e->name) != SHEAF_PART_COPY)
            st = check_values(adapter, e, buffer);
    }
    free(buffer);
    return st;
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
        if (st == NULL && yes && !o->all_linear && (o->target_regex != NULL || o->ntargets > 0) &&
            !is_adapted(mine, path, length))
            st = sheaf_lora_missing(path, length,
                                    part == SHEAF_PART_A ? ".lora_A.weight" : ".lora_embedding_A");
    }
    return st;
}

/* Does a name of the adapter begin so? Entries ascend by name. */
static bool has_prefix(sheaf_source *adapter, const char *prefix)
{
    int64_t low = 0, high = adapter->count(adapter);
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (strcmp(adapter->entry(adapter, middle)->name, prefix) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low < adapter->count(adapter) &&
           strncmp(adapter->entry(adapter, low)->name, prefix, strlen(prefix)) == 0;
}

/* The factor as it is named in layer `to`; NULL: there is none. The layer's number is the first in
 * the name. */
static const sheaf_source_entry *in_layer(sheaf_source *adapter, const char *name,
                                          const char *number, int64_t to)
{
    char *other = NULL;
    if (asprintf(&other, "%.*s%" PRId64 "%s", (int)(number - name), name, to,
                 number + strspn(number, "0123456789")) < 0)
        return NULL;
    const sheaf_source_entry *e = adapter->find(adapter, other);
    free(other);
    return e;
}

static const char *layer_number(const char *name)
{
    const char *at = name;
    while ((at = strchr(at, '.')) != NULL && !isdigit((unsigned char)at[1]))
        at++;
    return at != NULL ? at + 1 : NULL;
}

/* Where the layer beside it is adapted at all, the same factor must be in it, of the same shape. */
static bool differs(sheaf_source *adapter, const sheaf_source_entry *e, const char *number,
                    int64_t to)
{
    char *layer = NULL;
    if (asprintf(&layer, "%.*s%" PRId64 ".", (int)(number - e->name), e->name, to) < 0)
        return false;
    const bool there = has_prefix(adapter, layer);
    const sheaf_source_entry *twin = there ? in_layer(adapter, e->name, number, to) : NULL;
    free(layer);
    return there && (twin == NULL || twin->ndim != e->ndim ||
                     memcmp(twin->shape, e->shape, sizeof e->shape) != 0);
}

static void compare_layers(const char *path, sheaf_source *adapter, const sheaf_events *events)
{
    const char *odd = NULL;
    int64_t n = 0;
    for (int64_t i = 0; i < adapter->count(adapter); i++) {
        const sheaf_source_entry *e = adapter->entry(adapter, i);
        const char *number = layer_number(e->name), *module;
        size_t length;
        const sheaf_lora_part part = sheaf__lora_part(&module, &length, e->name);
        if (number == NULL || (part != SHEAF_PART_A && part != SHEAF_PART_B))
            continue;
        const int64_t layer = strtoll(number, NULL, 10);
        if (differs(adapter, e, number, layer - 1) || differs(adapter, e, number, layer + 1))
            odd = n++ == 0 ? e->name : odd;
    }
    if (n > 0)
        sheaf_warn(
            events,
            "%s: '%s'%s not in every layer, or not of one shape; that is right only for a model whose layers differ",
            path, odd, n > 1 ? " and others are" : " is");
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
    for (int i = 0; i < n && st == NULL; i++)
        if (options[i].nlayers == 0)
            compare_layers(paths[i], adapters[i], events);
    return st;
}
