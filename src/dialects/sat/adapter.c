/* adapter.c - SAT's LoRA as one A and one B for each layer, in PEFT's form; see lora.h.
 *
 * Block (p, k) of the adapter's rank, p-th part, k-th slice where factors differ by rank, is rows
 * (p*ways + k)*rank on of A. A and B of other blocks are zero there, so that B A is block by block
 * what SAT merges. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "base/json.h"
#include "base/text.h"
#include "catalog/over_source.h"
#include "dialects/sat/lora.h"
#include "schema/paths.h"

#define PREFIX "base_model.model."

typedef struct adapter {
    sheaf__over_source over; /* first; its own are A and B of each layer */
    const sheaf_sat_lora *lora;
} adapter;

static int64_t slices_of(const sheaf_sat_lora *lora, const sheaf_sat_lora_linear *l)
{
    return l->apart ? lora->ways : 1;
}

static int64_t most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}
static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* One row of A. Of a weight divided along its output: a row of A_p, the slice's own where it has
 * one. Along its input: the row of A, in the columns of the slice only. */
static sheaf_status *row_of_a(const sheaf_sat_lora *lora, const sheaf_sat_lora_linear *l,
                              int64_t row, int64_t col0, int64_t cols, char *dst)
{
    const int64_t bytes = (int64_t)sheaf_dtype_bytes(l->dtype), slices = slices_of(lora, l);
    const int64_t p = row / (slices * lora->rank), k = row / lora->rank % slices,
                  i = row % lora->rank;
    const sheaf_logical *a = sheaf__sat_factor(lora->catalog, l->name, 'A', (int)p);
    int64_t c0 = col0, c1 = col0 + cols;
    if (l->axis == 1 && slices > 1) {
        c0 = most(col0, k * (l->in / slices));
        c1 = least(col0 + cols, (k + 1) * (l->in / slices));
        memset(dst, 0, (size_t)(cols * bytes));
    }
    if (c0 >= c1)
        return NULL;
    const int64_t from =
        a->told.shape[0] > lora->rank ? k * lora->rank + i : i; /* its own A, or the copy */
    return sheaf__catalog_read(lora->catalog, a, from, 1, c0, c1 - c0, dst + (c0 - col0) * bytes);
}

/* One row of B, `row` of the weight: zero but in the block of its part and slice; along the input
 * it has all slices. */
static sheaf_status *row_of_b(const sheaf_sat_lora *lora, const sheaf_sat_lora_linear *l,
                              int64_t row, char *buffer, int64_t col0, int64_t cols, char *dst)
{
    const int64_t bytes = (int64_t)sheaf_dtype_bytes(l->dtype), slices = slices_of(lora, l),
                  block = l->out / l->parts;
    const int64_t p = row / block;
    const sheaf_logical *b = sheaf__sat_factor(lora->catalog, l->name, 'B', (int)p);
    const int64_t k = l->axis == 0 ? row % block / (block / slices) : 0, wide = b->told.shape[1];
    const int64_t begin = (p * slices + k) * lora->rank, c0 = most(col0, begin),
                  c1 = least(col0 + cols, begin + wide);
    memset(dst, 0, (size_t)(cols * bytes));
    if (c0 >= c1)
        return NULL;
    sheaf_status *st = sheaf__catalog_read(lora->catalog, b, row % block, 1, 0, wide, buffer);
    if (st == NULL)
        memcpy(dst + (c0 - col0) * bytes, buffer + (c0 - begin) * bytes,
               (size_t)((c1 - c0) * bytes));
    return st;
}

sheaf_status *sheaf__sat_factor_rows(const sheaf_sat_lora *lora, const sheaf_sat_lora_linear *l,
                                     char which, int64_t row0, int64_t rows, int64_t col0,
                                     int64_t cols, void *dst)
{
    const int64_t each = (int64_t)sheaf_dtype_bytes(l->dtype);
    char *buffer = malloc((size_t)(l->adapter_rank * each)), *to = dst;
    sheaf_status *st = buffer == NULL ? sheaf__no_memory(l->name) : NULL;
    for (int64_t r = row0; st == NULL && cols > 0 && r < row0 + rows; r++, to += cols * each)
        st = which == 'A' ? row_of_a(lora, l, r, col0, cols, to)
                          : row_of_b(lora, l, r, buffer, col0, cols, to);
    free(buffer);
    return st;
}

static sheaf_status *adapter_read(sheaf_source *self, const char *name, int64_t row0, int64_t rows,
                                  int64_t col0, int64_t cols, void *dst)
{
    const adapter *s = (adapter *)self;
    const int64_t i = sheaf__over_find(&s->over, name);
    const sheaf_source_entry *e = i >= 0 ? &s->over.own[i] : NULL;
    if (e == NULL)
        return sheaf_found(sheaf_fail(SHEAF_E_LAYOUT, "tensor '%s'", name),
                           "no tensor of this name");
    if (row0 < 0 || rows < 0 || row0 > e->shape[0] - rows || col0 < 0 || cols < 0 ||
        col0 > e->shape[1] - cols)
        return sheaf_fail(SHEAF_E_ARG, "tensor '%s': a box outside of it", name);
    return sheaf__sat_factor_rows(s->lora, &s->lora->linear[i / 2], i % 2 == 0 ? 'A' : 'B', row0,
                                  rows, col0, cols, dst);
}

static void adapter_close(sheaf_source *self)
{
    sheaf__over_release((sheaf__over_source *)self);
    free(self);
}

sheaf_status *sheaf_sat_adapter(sheaf_source **out, const sheaf_sat_lora *lora)
{
    if (lora->count == 0)
        return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_LAYOUT, "%s", lora->catalog->root),
                                          "factors of LoRA that are not merged"),
                           "none");
    adapter *s = calloc(1, sizeof *s);
    if (s == NULL)
        return sheaf__no_memory("adapter");
    sheaf_status *st = sheaf__over_init(&s->over, 2 * lora->count);
    s->over.source.read = adapter_read;
    s->over.source.close = adapter_close;
    s->lora = lora;
    for (int64_t i = 0; st == NULL && i < 2 * lora->count; i++) {
        const sheaf_sat_lora_linear *l = &lora->linear[i / 2];
        const bool a = i % 2 == 0;
        char *name = NULL;
        if (asprintf(&name, PREFIX "%s.lora_%c.weight", l->name, a ? 'A' : 'B') < 0)
            name = NULL;
        st = sheaf__over_add(&s->over, name,
                             (sheaf_source_entry){ .dtype = l->dtype,
                                                   .ndim = 2,
                                                   .shape = { a ? l->adapter_rank : l->out,
                                                              a ? l->in : l->adapter_rank } });
    }
    if (st == NULL)
        *out = &s->over.source;
    else
        adapter_close(&s->over.source);
    return st;
}

/* ---- adapter_config.json ---- */

/* Layers whose rank is not the first one's; `by` is what is written for each, ranks or alphas. "^",
 * because a layer of the text model has a path that ends one of the ViT's, and PEFT takes a key for
 * the end of any. */
static void patterns(sheaf_text *text, const sheaf_sat_lora *lora, int64_t by)
{
    bool any = false;
    for (int64_t i = 0; i < lora->count; i++) {
        const sheaf_sat_lora_linear *l = &lora->linear[i];
        if (l->adapter_rank == lora->linear[0].adapter_rank)
            continue;
        char key[560];
        snprintf(key, sizeof key, "^%s", l->name);
        sheaf__text_add(text, "%s\n    ", any ? "," : "");
        sheaf__text_json(text, key);
        sheaf__text_add(text, ": %" PRId64, l->adapter_rank / by);
        any = true;
    }
    sheaf__text_add(text, "%s", any ? "\n  " : "");
}

sheaf_status *sheaf_sat_adapter_config(char **out, const sheaf_sat_lora *lora)
{
    const int64_t r = lora->count > 0 ? lora->linear[0].adapter_rank : lora->rank;
    sheaf_text text = { 0 }, targets = { 0 };
    const char **path = calloc((size_t)lora->count + 1, sizeof *path);
    char *pattern = NULL;
    if (path == NULL)
        return sheaf__no_memory("adapter");
    for (int64_t i = 0; i < lora->count; i++)
        path[i] = lora->linear[i].name;
    sheaf__paths_pattern(&targets, path, lora->count);
    sheaf_status *st = sheaf__text_take(&pattern, &targets);
    free(path);
    sheaf__text_add(&text, "{\n  \"alpha_pattern\": {");
    patterns(&text, lora, lora->rank);
    sheaf__text_add(
        &text,
        "},\n  \"base_model_name_or_path\": null,\n  \"bias\": \"none\",\n  \"fan_in_fan_out\": false,\n"
        "  \"inference_mode\": true,\n  \"init_lora_weights\": true,\n  \"lora_alpha\": %" PRId64
        ",\n  \"lora_dropout\": 0.0,\n"
        "  \"modules_to_save\": null,\n  \"peft_type\": \"LORA\",\n  \"r\": %" PRId64
        ",\n  \"rank_pattern\": {",
        r / lora->rank, r);
    patterns(&text, lora, 1);
    sheaf__text_add(&text, "},\n  \"target_modules\": ");
    if (st == NULL)
        sheaf__text_json(&text, pattern);
    sheaf__text_add(
        &text, ",\n  \"task_type\": null,\n  \"use_dora\": false,\n  \"use_rslora\": false\n}\n");
    free(pattern);
    if (st == NULL)
        return sheaf__text_take(out, &text);
    sheaf__text_release(&text);
    return st;
}
