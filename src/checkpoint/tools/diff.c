/* diff.c - see verify.h. Compares undivided tensors by name: shards, slices and the order in files
 * do not matter. A tied lm_head that one side does not store is its embed_tokens. Factors of LoRA
 * that is not merged are tensors like others. So are moments of an optimizer where both sides have
 * some, and in a checkpoint of sheaf's own or a bare file, where they lie among the tensors; those
 * that lie beside the model of one side alone are counted, and not compared. Of the two forms of
 * one model, SAT's and the hub's, tensors are compared under SAT's names, and configs are not. */
#include "checkpoint/tools/verify.h"

#include <math.h>

#include "base/base.h"
#include "base/control.h"
#include "base/numeric_env.h"
#include "base/json.h"
#include "checkpoint/store/checkpoint.h"
#include "checkpoint/store/stream.h"
#include "dialects/common/dialects.h"
#include "dialects/common/model.h"
#include "dialects/common/other_form.h"
#include "lora/stacked.h"
#include "schema/config_text.h"
#include "ops/math/round.h"
#include "ops/quant/quant.h"
#include "schema/config.h"

enum { CHUNK = 1 << 20 }; /* elements */

typedef struct differ {
    sheaf_probe a, b;
    sheaf_weights_diff_report *report;
    const sheaf_weights_diff_options *how;
    bool no_moments;                  /* only one side has them, stored beside its model */
    bool coded;                       /* one of them has tensors in 4 or 8 bits */
    const sheaf__name_rule *spelling; /* of one side, where they are the two forms of a model */
    void *x, *y;                      /* a chunk of each */
    _Atomic int64_t done;             /* bytes of A, of... */
    int64_t total;
} differ;

static void note_bytes(differ *d, int64_t bytes)
{
    sheaf__copy_progress(d->how->events, "bytes compared", &d->done, bytes, d->total);
}

static void report(const differ *d, const sheaf_diff_item *item)
{
    if (d->how->on_item == NULL)
        return;
    sheaf__numeric_env before = sheaf__callback_env();
    d->how->on_item(d->how->context, item);
    sheaf__numeric_env_restore(&before);
}

/* ---- values ---- */

/* Element i as a number; false for other types. */
static bool number(double *out, const void *data, int64_t i, sheaf_dtype dtype)
{
    const int64_t size = (int64_t)sheaf_dtype_bytes(dtype);
    switch (dtype) {
    case SHEAF_F32:
    case SHEAF_F16:
    case SHEAF_BF16: *out = sheaf__load(data, i, dtype); return true;
    case SHEAF_F64: *out = ((const double *)data)[i]; return true;
    case SHEAF_BOOL:
    case SHEAF_U8:
    case SHEAF_U16:
    case SHEAF_U32:
    case SHEAF_U64:
        *out = (double)sheaf__little((const uint8_t *)data + i * size, (int)size);
        return true;
    case SHEAF_I8:
    case SHEAF_I16:
    case SHEAF_I32:
    case SHEAF_I64:
        *out = (double)((int64_t)(sheaf__little((const uint8_t *)data + i * size, (int)size)
                                  << (64 - 8 * size)) >>
                        (64 - 8 * size));
        return true;
    default: return false;
    }
}

/* Elements with different bytes may be equal numbers (0 and -0, two NaNs, large integers that round
 * to one double): they count as different, by 0. */
static void compare_elements(sheaf_diff_item *item, const differ *d, int64_t at, int64_t n)
{
    const sheaf_dtype p = item->a->dtype, q = item->b->dtype;
    const size_t size = sheaf_dtype_bytes(p);
    for (int64_t i = 0; i < n; i++) {
        double x = 0, y = 0;
        const bool numbers = number(&x, d->x, i, p) && number(&y, d->y, i, q);
        if (p == q &&
            memcmp((const char *)d->x + i * size, (const char *)d->y + i * size, size) == 0)
            continue;
        if (p != q && numbers && (x == y || (isnan(x) && isnan(y))))
            continue;
        const double by = !numbers || x == y || (isnan(x) && isnan(y)) ? 0
                          : isfinite(x) && isfinite(y)                 ? fabs(x - y)
                                                                       : INFINITY;
        item->largest = by > item->largest ? by : item->largest;
        item->first = item->differing++ == 0 ? at + i : item->first;
    }
}

static sheaf_status *compare_values(differ *d, sheaf_diff_item *item, int64_t rows, int64_t cols)
{
    const int64_t most = CHUNK / cols, chunk = most < 1 ? 1 : most < rows ? most : rows;
    const size_t p = sheaf_dtype_bytes(item->a->dtype), q = sheaf_dtype_bytes(item->b->dtype);
    if (p == 0 || q == 0)
        return sheaf_fail(SHEAF_E_UNSUPPORTED, "'%s': elements smaller than a byte", item->name);
    d->x = malloc((size_t)(chunk * cols) * p + 1);
    d->y = malloc((size_t)(chunk * cols) * q + 1);
    sheaf_status *st = d->x != NULL && d->y != NULL ? NULL : sheaf__no_memory(item->name);
    for (int64_t row = 0; row < rows && st == NULL; row += chunk) {
        const int64_t n = rows - row < chunk ? rows - row : chunk;
        st = sheaf__stopped(sheaf__control_stop(d->how->control), "diff");
        TRY(st, d->a.source->read(d->a.source, item->a->name, row, n, 0, cols, d->x));
        TRY(st, d->b.source->read(d->b.source, item->b->name, row, n, 0, cols, d->y));
        if (st == NULL &&
            (item->a->dtype != item->b->dtype || memcmp(d->x, d->y, (size_t)(n * cols) * p) != 0))
            compare_elements(item, d, row * cols, n * cols);
        note_bytes(d, n * cols * (int64_t)p);
    }
    free(d->x);
    free(d->y);
    return st;
}

/* ---- moments ---- */

static bool begins_as_moment(const char *name, char separator)
{
    const sheaf_state_group group = sheaf__state_group_of(&name, name, separator);
    return group != SHEAF_STATE_MASTER && group != SHEAF_STATE_GROUPS;
}

/* As catalogs name them, and as training checkpoints do. */
static bool is_moment(const char *name)
{
    return begins_as_moment(name, '.') || begins_as_moment(name, '/');
}

static int64_t count_moments(sheaf_source *source)
{
    int64_t n = 0;
    for (int64_t i = 0; i < source->count(source); i++)
        n += is_moment(source->entry(source, i)->name);
    return n;
}

/* A model is the same without the optimizer that lies beside it: after a conversion without
 * --optimizer nothing is lost of the model. What is not compared is counted. */
static void look_for_moments(differ *d)
{
    const int64_t a = count_moments(d->a.source), b = count_moments(d->b.source);
    if (b == 0 && d->a.kind == SHEAF_WEIGHTS_MODEL)
        d->report->moments_only_a = a;
    if (a == 0 && d->b.kind == SHEAF_WEIGHTS_MODEL)
        d->report->moments_only_b = b;
    d->no_moments = d->report->moments_only_a + d->report->moments_only_b > 0;
}

/* ---- tensors ---- */

/* Are both plain, or codes of one form? */
static void compare_forms(differ *d, const char *a, const char *b)
{
    const sheaf__quant *p = sheaf__source_form(d->a.source, a),
                       *q = sheaf__source_form(d->b.source, b);
    d->coded = d->coded || p != NULL || q != NULL;
    if (p != q)
        d->report->forms +=
            p == NULL || q == NULL || !sheaf__quant_alike(p, q) || p->groups != q->groups;
}

static sheaf_status *compare_tensor(differ *d, const char *name, const sheaf_source_entry *a,
                                    const sheaf_source_entry *b)
{
    sheaf_diff_item item = { .name = name, .a = a, .b = b, .first = -1 };
    sheaf_status *st = NULL;
    bool same = false;
    d->report->tensors++;
    d->report->moments += is_moment(name);
    if (a == NULL || b == NULL) {
        item.kind = a == NULL ? SHEAF_DIFF_ONLY_B : SHEAF_DIFF_ONLY_A;
    } else if (!sheaf__same_shape(a->ndim, a->shape, b->ndim, b->shape)) {
        item.kind = SHEAF_DIFF_SHAPE;
    } else {
        int64_t rows, cols;
        compare_forms(d, a->name, b->name);
        sheaf__entry_view(&rows, &cols, a);
        item.elements = rows * cols;
        item.kind = a->dtype != b->dtype ? SHEAF_DIFF_DTYPE : SHEAF_DIFF_VALUES;
        st = cols > 0 ? compare_values(d, &item, rows, cols) : NULL;
        same = item.kind == SHEAF_DIFF_VALUES && item.differing == 0;
        d->report->largest = item.largest > d->report->largest ? item.largest : d->report->largest;
    }
    if (a != NULL && item.elements == 0)
        note_bytes(d, sheaf__entry_bytes(a));
    if (st != NULL || same)
        return st;
    d->report->different++;
    d->report->same = false;
    report(d, &item);
    return NULL;
}

/* The tensor of one side for `name`. */
static const sheaf_source_entry *find_meant(const differ *d, const sheaf_probe *probe,
                                            const char *name)
{
    char spelled[SHEAF__SPELLED];
    const sheaf_source_entry *e = probe->source->find(probe->source, name);
    if (e == NULL && d->spelling != NULL && sheaf__respell(spelled, d->spelling, false, name, 0))
        e = probe->source->find(probe->source, spelled);
    if (e == NULL && probe->tied && strcmp(name, "lm_head.weight") == 0)
        e = probe->source->find(probe->source, "model.embed_tokens.weight");
    return e;
}

/* Are these the two forms of one model? */
static void look_for_forms(differ *d)
{
    const sheaf__tensor_names a = sheaf__source_names(d->a.source),
                              b = sheaf__source_names(d->b.source);
    const sheaf__family *p = sheaf__family_by_names(&a), *q = sheaf__family_by_names(&b);
    if (p != NULL && q != NULL && sheaf__other_family(p) == q)
        d->spelling = p->spelling != NULL ? p->spelling : q->spelling;
}

/* A name to compare by (malloc'd). */
static char *name_of(const differ *d, const char *name)
{
    char spelled[SHEAF__SPELLED];
    const bool other = d->spelling != NULL && sheaf__respell(spelled, d->spelling, true, name, 0);
    return strdup(other ? spelled : name);
}

static sheaf_status *add_names(char **names, int64_t *n, const differ *d, sheaf_source *of)
{
    for (int64_t i = 0; i < of->count(of); i++)
        if ((names[(*n)++] = name_of(d, of->entry(of, i)->name)) == NULL) {
            --*n;
            return sheaf__no_memory("list of tensors");
        }
    return NULL;
}

static sheaf_status *compare_all(differ *d)
{
    sheaf_source *a = d->a.source, *b = d->b.source;
    char **names = calloc((size_t)(a->count(a) + b->count(b)) + 1, sizeof *names);
    if (names == NULL)
        return sheaf__no_memory("list of tensors");
    int64_t n = 0;
    sheaf_status *st = add_names(names, &n, d, a);
    TRY(st, add_names(names, &n, d, b));
    qsort(names, (size_t)n, sizeof *names, sheaf__by_name);
    for (int64_t i = 0; i < a->count(a); i++)
        if (!(d->no_moments && is_moment(a->entry(a, i)->name)))
            d->total += sheaf__entry_bytes(a->entry(a, i));
    for (int64_t i = 0; i < n && st == NULL; i++)
        if ((i == 0 || strcmp(names[i], names[i - 1]) != 0) &&
            !(d->no_moments && is_moment(names[i])))
            st = compare_tensor(d, names[i], find_meant(d, &d->a, names[i]),
                                find_meant(d, &d->b, names[i]));
    for (int64_t i = 0; i < n; i++)
        free(names[i]);
    free(names);
    return st;
}

/* ---- configs ---- */

/* Keys about origin, not content. */
static bool is_provenance(const char *key)
{
    static const char keys[] = "base_model_name_or_path _name_or_path transformers_version "
                               "peft_version revision inference_mode task_type auto_mapping "
                               "use_cache _attn_implementation_autoset";
    return sheaf__is_listed(keys, key, strlen(key));
}

static sheaf_status *report_key(differ *d, const char *key, const json_t *x, const json_t *y)
{
    char *p = NULL, *q = NULL;
    sheaf_status *st = x == NULL ? NULL : sheaf__json_text(&p, x, JSON_COMPACT | JSON_SORT_KEYS);
    if (st == NULL && y != NULL)
        st = sheaf__json_text(&q, y, JSON_COMPACT | JSON_SORT_KEYS);
    const sheaf_diff_item item = {
        .kind = SHEAF_DIFF_CONFIG, .name = key, .a_text = p, .b_text = q, .first = -1
    };
    if (st == NULL)
        report(d, &item);
    free(p);
    free(q);
    d->report->config_keys++;
    d->report->same = false;
    return sheaf_in(st, "'%s'", key);
}

/* Lists of names that mean a set: in any order. */
static bool same_value(const json_t *x, const json_t *y)
{
    const json_t *null = json_null();
    if (x == NULL || y == NULL) /* absent and null are one */
        return json_equal(x == NULL ? null : x, y == NULL ? null : y) != 0;
    if (!json_is_array(x) || !json_is_array(y) || json_array_size(x) != json_array_size(y))
        return json_equal(x, y) != 0;
    for (size_t i = 0; i < json_array_size(x); i++) {
        bool there = false;
        for (size_t j = 0; j < json_array_size(y) && !there; j++)
            there = json_equal(json_array_get(x, i), json_array_get(y, j));
        if (!there)
            return false;
    }
    return true;
}

/* Of adapters on experts the version tells how their factors are read. */
static sheaf_status *compare_versions(differ *d, const json_t *x, const json_t *y)
{
    static const char key[] = "peft_version";
    const json_t *p = json_object_get(x, key), *q = json_object_get(y, key);
    return json_array_size(json_object_get(x, "target_parameters")) == 0 ||
                   sheaf__lora_order_of(json_string_value(p)) ==
                       sheaf__lora_order_of(json_string_value(q))
               ? NULL
               : report_key(d, key, p, q);
}

static sheaf_status *compare_objects(differ *d, const json_t *x, const json_t *y)
{
    const char *key;
    json_t *value;
    sheaf_status *st = compare_versions(d, x, y);
    json_object_foreach((json_t *)x, key, value) if (st == NULL && !is_provenance(key) &&
                                                     !same_value(value, json_object_get(y, key)))
        st = report_key(d, key, value, json_object_get(y, key));
    json_object_foreach((json_t *)y, key, value) if (st == NULL && !is_provenance(key) &&
                                                     json_object_get(x, key) == NULL &&
                                                     !json_is_null(value)) st =
        report_key(d, key, NULL, value);
    return st;
}

static sheaf_status *compare_numbers(differ *d, const char *key, int64_t x, int64_t y)
{
    if (x == y)
        return NULL;
    json_t *p = json_integer(x), *q = json_integer(y);
    sheaf_status *st = report_key(d, key, p, q);
    json_decref(p);
    json_decref(q);
    return st;
}

/* Do the configs have the same kind of keys? SAT's and Hugging Face's do not. */
static bool same_config_form(const sheaf_probe *a, const sheaf_probe *b)
{
    const sheaf_dialect *x = sheaf__dialect_named(a->dialect),
                        *y = sheaf__dialect_named(b->dialect);
    return x == y || (x != NULL && y != NULL && x->hf_config && y->hf_config);
}

/* Keys about the partition and SAT's training, not about the model. Unmerged LoRA shows in the
 * tensors. */
static sheaf_status *drop_division(json_t *config)
{
    static const char *const keys[] = { "model_parallel_size", "pre_seq_len",
                                        "use_ptuning",         "use_lora",
                                        "use_qlora",           "lora_rank",
                                        "layer_range" };
    static const char *const prefixes[] = { "FineTuneTrain", "FineTuneTest" };
    json_t *tower = json_object_get(config, "eva_args");
    const char *class = json_string_value(json_object_get(config, "model_class"));
    if (class != NULL) /* SAT's, then: Hugging Face has no such key */
        for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
            json_object_del(config, keys[i]);
    if (json_is_object(tower))
        json_object_del(tower, "model_parallel_size");
    for (size_t i = 0; class != NULL && i < sizeof prefixes / sizeof *prefixes; i++)
        if (strncmp(class, prefixes[i], strlen(prefixes[i])) == 0) {
            json_t *plain = json_string(class + strlen(prefixes[i]));
            if (json_object_set_new(config, "model_class", plain) != 0)
                return sheaf__no_memory("model_class");
            break;
        }
    return NULL;
}

/* Sizes of a tower that SAT's own files do not state: one side may have them. */
static void drop_override(json_t *x, json_t *y)
{
    if (json_object_get(x, "encoder_override") == NULL ||
        json_object_get(y, "encoder_override") == NULL) {
        json_object_del(x, "encoder_override");
        json_object_del(y, "encoder_override");
    }
}

static sheaf_status *compare_ropes(bool *same, const sheaf_config *a, const sheaf_config *b)
{
    sheaf_text x = { 0 }, y = { 0 };
    sheaf__config_rope(&x, a);
    sheaf__config_rope(&y, b);
    *same = !x.failed && !y.failed && strcmp(x.at, y.at) == 0;
    sheaf_status *st = x.failed || y.failed ? sheaf__no_memory("config.json") : NULL;
    sheaf__text_release(&x);
    sheaf__text_release(&y);
    return st;
}

/* transformers 4 and 5 spell the rotary embedding and the dtype with other keys: they are not
 * compared if both configs mean the same. */
static void drop_spellings(json_t *x, json_t *y, const sheaf_probe *a, const sheaf_probe *b)
{
    static const char *const rope[] = { "rope_theta", "rope_scaling", "rope_parameters" };
    static const char *const dtype[] = { "dtype", "torch_dtype" };
    sheaf_config p = { 0 }, q = { 0 };
    sheaf_status *st = sheaf_config_read(&p, a->config);
    TRY(st, sheaf_config_read(&q, b->config));
    const bool read = st == NULL;
    bool same_rope = false;
    if (read)
        st = compare_ropes(&same_rope, &p, &q);
    for (size_t i = 0; read && same_rope && i < sizeof rope / sizeof *rope; i++) {
        json_object_del(x, rope[i]);
        json_object_del(y, rope[i]);
    }
    for (size_t i = 0; read && p.dtype == q.dtype && i < sizeof dtype / sizeof *dtype; i++) {
        json_object_del(x, dtype[i]);
        json_object_del(y, dtype[i]);
    }
    sheaf_status_free(st); /* configs of models that sheaf does not run are compared key by key */
    sheaf_config_release(&p);
    sheaf_config_release(&q);
}

static sheaf_status *compare_configs(differ *d)
{
    json_t *x = NULL, *y = NULL;
    sheaf_status *st = NULL;
    if (d->a.checkpoint != NULL && d->b.checkpoint != NULL) {
        const char *p = d->a.checkpoint->manifest->progress,
                   *q = d->b.checkpoint->manifest->progress;
        st = compare_numbers(d, "slices", d->a.checkpoint->manifest->slices,
                             d->b.checkpoint->manifest->slices);
        TRY(st, compare_numbers(d, "step", d->a.checkpoint->manifest->step,
                                d->b.checkpoint->manifest->step));
        TRY(st, sheaf__json_parse(&x, p, strlen(p)));
        TRY(st, sheaf__json_parse(&y, q, strlen(q)));
    } else if (d->spelling == NULL && d->a.config != NULL && d->b.config != NULL &&
               same_config_form(&d->a, &d->b)) {
        st = sheaf__json_load(&x, d->a.config);
        TRY(st, sheaf__json_load(&y, d->b.config));
        if (st == NULL && json_is_object(x) && json_is_object(y)) {
            st = drop_division(x);
            TRY(st, drop_division(y));
            drop_override(x, y);
            if (d->coded) { /* its values were compared */
                json_object_del(x, "quantization_config");
                json_object_del(y, "quantization_config");
            }
            if (st == NULL && d->a.kind == SHEAF_WEIGHTS_MODEL && d->b.kind == SHEAF_WEIGHTS_MODEL)
                drop_spellings(x, y, &d->a, &d->b);
        }
    }
    if (st == NULL && x != NULL && y != NULL)
        st = compare_objects(d, x, y);
    json_decref(x);
    json_decref(y);
    return st;
}

static sheaf_status *refuse_run(const sheaf_probe *probe, const char *path)
{
    if (probe->kind != SHEAF_WEIGHTS_RUN)
        return NULL;
    sheaf_status *st = sheaf_fail(SHEAF_E_ARG, "%s", path);
    sheaf_expected(st, "a model, an adapter, a checkpoint or a .safetensors file");
    sheaf_found(st, "the folder of a run");
    return sheaf_try_this(st, "%s/adapter, %s/model or one of %s/checkpoints/", path, path, path);
}

sheaf_status *sheaf_diff(sheaf_weights_diff_report *report, const char *a, const char *b,
                         const sheaf_weights_diff_options *options)
{
    differ d = { .report = report, .how = options };
    *report = (sheaf_weights_diff_report){ .same = true };
    sheaf_status *st = sheaf_probe_open(&d.a, a, true);
    TRY(st, sheaf_probe_open(&d.b, b, true));
    TRY(st, refuse_run(&d.a, a));
    TRY(st, refuse_run(&d.b, b));
    if (st == NULL) {
        look_for_moments(&d);
        look_for_forms(&d);
    }
    TRY(st, compare_all(&d));
    TRY(st, compare_configs(&d));
    sheaf_probe_close(&d.a);
    sheaf_probe_close(&d.b);
    return st;
}
