/* init.c - see init.h. */
#include "checkpoint/tools/init.h"

#include "base/base.h"
#include "base/json.h"
#include "base/control.h"
#include "base/json.h"
#include "base/random.h"
#include "catalog/boxes.h"
#include "catalog/over_source.h"
#include "checkpoint/store/stream.h"
#include "dialects/common/coded_write.h"
#include "dialects/hf/hf.h"
#include "ops/kernels.h"
#include "schema/quantization.h"

/* The new model as a source that computes its values on reading. */
typedef struct maker {
    sheaf__over_source over; /* first member; it has only its own tensors */
    sheaf_config config;
    sheaf_schema *schema;
    sheaf_safetensors_spec *specs;
    int64_t count;
    sheaf_folder *folder;
    sheaf__packer *quantising; /* NULL: weights are plain */
    const sheaf__kernels *kernels;
    uint64_t seed;
    sheaf_dtype dtype;
} maker;

/* ---- SPEC: a path, or the name of a model of a family ---- */

static const sheaf__family *family_of(int *which, int i)
{
    const sheaf__family *family;
    for (int f = 0; (family = sheaf__family_at(f)) != NULL; f++)
        for (*which = 0; family->specs != NULL && family->specs[*which].name != NULL; (*which)++)
            if (i-- == 0)
                return family;
    return NULL;
}

const sheaf__family_spec *sheaf__init_spec_at(int i)
{
    int which;
    const sheaf__family *family = family_of(&which, i);
    return family == NULL ? NULL : &family->specs[which];
}

sheaf_status *sheaf__init_config(char **out, const char *name)
{
    const char *config = sheaf__spec_config(name);
    *out = config == NULL ? NULL : strdup(config);
    return config != NULL && *out == NULL ? sheaf__no_memory("config") : NULL;
}

static sheaf_status *unknown_spec(const char *spec)
{
    const char *names[32];
    int n = 0;
    const sheaf__family_spec *s;
    for (; n < 32 && (s = sheaf__init_spec_at(n)) != NULL; n++)
        names[n] = s->name;
    sheaf_text all = { 0 };
    for (int i = 0; i < n; i++)
        sheaf__text_add(&all, "%s%s", i == 0 ? "" : ", ", names[i]);
    sheaf_status *st = sheaf_fail(SHEAF_E_ARG, "%s", spec);
    sheaf_expected(st, "a config.json, a folder with one, or a built-in name: %s",
                   all.failed ? "" : all.at);
    sheaf__text_release(&all);
    const char *near = sheaf__nearest(spec, names, n);
    return near != NULL ? sheaf_try_this(st, "%s", near) : st;
}

static sheaf_status *read_spec(char **json, const char *spec)
{
    const sheaf_path_kind kind = sheaf__path_kind(spec);
    char path[SHEAF_PATH_SIZE];
    size_t size;
    sheaf_status *st = sheaf__init_config(json, spec);
    if (st != NULL || *json != NULL)
        return st;
    if (kind == SHEAF_PATH_FILE)
        return sheaf__file_read_all(json, &size, spec, 1 << 24);
    if (kind != SHEAF_PATH_DIR)
        return unknown_spec(spec);
    const bool sat = !sheaf__path_has(spec, "config.json", SHEAF_PATH_NONE);
    sheaf__path_in(path, spec, sat ? "model_config.json" : "config.json");
    return sheaf__file_read_all(json, &size, path, 1 << 24);
}

/* ---- values ---- */

/* Numbers [first, first + n) of a tensor, in the order of its memory. */
static void make_values(float *out, const sheaf_tensor *t, const sheaf_config *c, uint64_t seed,
                        int64_t first, int64_t n)
{
    const float range = (float)c->initializer_range;
    const uint64_t key = sheaf__name_key(t->name);
    const bool zero = t->bias || t->zero, constant = zero || sheaf__is_norm(t->role);
    const float value = zero ? 0 : 1;
    const sheaf__family *family = sheaf__family_for(c);
    if (!t->buffer && !constant)
        sheaf__random_normals(out, seed, key, (uint64_t)first, n);
    for (int64_t i = 0; i < n; i++)
        out[i] = t->buffer ? family->buffer(t, c, first + i) : constant ? value : out[i] * range;
}

static sheaf_status *made_read(sheaf_source *self, const char *name, int64_t row0, int64_t rows,
                               int64_t col0, int64_t cols, void *dst)
{
    const maker *m = (maker *)self;
    const sheaf_tensor *t = sheaf_schema_find(m->schema, name);
    int64_t all, width;
    sheaf__safetensors_view(&all, &width, t->ndim, t->shape);
    float *values = malloc((size_t)(rows * cols) * sizeof *values);
    if (values == NULL)
        return sheaf__no_memory("init");
    const int64_t runs = cols == width ? 1 : rows, n = rows * cols / runs;
    for (int64_t r = 0; r < runs; r++)
        make_values(values + r * n, t, &m->config, m->seed, (row0 + r) * width + col0, n);
    m->kernels->convert(dst, m->dtype, values, SHEAF_F32, rows * cols);
    free(values);
    return NULL;
}

/* generation_config.json has the ids that transformers' generate() would otherwise guess. */
static sheaf_status *write_generation(maker *m)
{
    const sheaf_config *c = &m->config;
    sheaf_text text = { 0 };
    sheaf__text_add(&text, "{\n");
    if (c->bos >= 0)
        sheaf__text_add(&text, "  \"bos_token_id\": %" PRId64 ",\n", c->bos);
    for (int i = 0; i < c->neos; i++)
        sheaf__text_add(&text, "%s%" PRId64,
                        i > 0         ? ", "
                        : c->neos > 1 ? "  \"eos_token_id\": ["
                                      : "  \"eos_token_id\": ",
                        c->eos[i]);
    if (c->neos > 0)
        sheaf__text_add(&text, "%s,\n", c->neos > 1 ? "]" : "");
    if (c->pad >= 0)
        sheaf__text_add(&text, "  \"pad_token_id\": %" PRId64 ",\n", c->pad);
    sheaf__text_add(&text, "  \"_from_model_config\": true\n}\n");
    char *written = NULL;
    sheaf_status *st = sheaf__text_take(&written, &text);
    TRY(st, sheaf__folder_text(m->folder, "generation_config.json", written));
    free(written);
    return st;
}

/* Without what the model of the spec was quantised by: it is not how this one is stored. */
static sheaf_status *leave_quantization(char **config)
{
    json_t *root = NULL;
    const char *part = NULL;
    char *edited = NULL;
    sheaf_status *st = sheaf__json_parse(&root, *config, strlen(*config));
    if (st == NULL && sheaf__quantization_of(root, &part) != NULL)
        st = sheaf_hf_config_edit(&edited, *config, part, "quantization_config", NULL);
    if (edited != NULL) {
        free(*config);
        *config = edited;
    }
    json_decref(root);
    return st;
}

static sheaf_status *begin_folder(maker *m, char **config, const char *dst)
{
    sheaf_folder_options how = { 0 };
    if (m->quantising == NULL)
        return sheaf_hf_begin(&m->folder, dst, *config, m->specs, m->count, &how);
    int64_t count = 0;
    const sheaf_safetensors_spec *specs = sheaf__packer_specs(&count, &how.late, m->quantising);
    sheaf_status *st = sheaf__packer_set_config(config, m->quantising, m->schema);
    TRY(st, sheaf_hf_begin(&m->folder, dst, *config, specs, count, &how));
    return TRY(st, sheaf__packer_begin(m->quantising, m->folder));
}

static sheaf_status *begin(maker *m, const sheaf_weights_init_options *o)
{
    char *json = NULL, *whole = NULL, *with_dtype = NULL;
    sheaf_status *st = sheaf__output_check(o->dst);
    TRY(st, read_spec(&json, o->spec));
    TRY(st, sheaf_in(sheaf_config_parse(&m->config, json, strlen(json)), "%s", o->spec));
    m->dtype = o->dtype != SHEAF_BOOL ? o->dtype : m->config.dtype;
    if (st == NULL && m->dtype != SHEAF_F32 && m->dtype != SHEAF_BF16 && m->dtype != SHEAF_F16)
        st = sheaf_expected(
            sheaf_fail(SHEAF_E_UNSUPPORTED, "%s: dtype %s", o->spec, sheaf_dtype_name(m->dtype)),
            "float32, bfloat16 or float16");
    TRY(st, sheaf_schema_new(&m->schema, &m->config, 1));
    TRY(st, sheaf_hf_specs(&m->specs, &m->count, m->schema, NULL, m->dtype));
    if (o->quantize != SHEAF_QUANTIZE_NONE)
        TRY(st,
            sheaf__packer_of_model(&m->quantising, m->specs, m->count, m->schema, o->quantize, 0));
    TRY(st, sheaf_hf_config_whole(&whole, json, &m->config, false));
    TRY(st, sheaf_hf_config_with_dtype(&with_dtype, whole, m->dtype));
    TRY(st, sheaf__output_sweep(o->dst, o->events));
    TRY(st, leave_quantization(&with_dtype));
    TRY(st, begin_folder(m, &with_dtype, o->dst));
    TRY(st, write_generation(m));
    free(json);
    free(whole);
    free(with_dtype);
    return st;
}

static sheaf_status *make_all(maker *m, sheaf_weights_init_report *report,
                              const sheaf_weights_init_options *o)
{
    _Atomic int64_t done = 0;
    const bool quantises = m->quantising != NULL;
    sheaf_status *st = sheaf__over_init(&m->over, m->count);
    m->over.source.read = made_read;
    for (int64_t i = 0; i < m->count && st == NULL; i++) {
        st = sheaf__over_add(&m->over, strdup(m->specs[i].name), m->specs[i]);
        report->parameters += sheaf__elements(m->specs[i].ndim, m->specs[i].shape);
        report->quantised +=
            m->quantising != NULL && sheaf__packer_tensor(m->quantising, i) != NULL;
    }
    report->tensors = m->count;
    report->dtype = m->dtype;
    const int64_t total = report->parameters * (int64_t)sheaf_dtype_bytes(m->dtype);
    report->bytes = m->quantising != NULL ? sheaf__packer_bytes(m->quantising) : total;
    TRY(st, sheaf__copy_all(
                &(sheaf_copy_job){ .source = &m->over.source,
                                   .entry = m->over.own,
                                   .count = m->count,
                                   .put = quantises ? sheaf__packer_put : sheaf__copy_to_folder,
                                   .context = quantises ? (void *)m->quantising : (void *)m->folder,
                                   .threads = o->threads,
                                   .stop = sheaf__control_stop(o->control),
                                   .command = "init",
                                   .events = o->events,
                                   .done = &done,
                                   .total = total,
                                   .what = "bytes made" }));
    return st;
}

sheaf_status *sheaf_init(sheaf_weights_init_report *report,
                         const sheaf_weights_init_options *options)
{
    maker m = { .seed = options->seed, .kernels = sheaf__kernels_for(NULL) };
    *report = (sheaf_weights_init_report){ 0 };
    if (m.kernels == NULL)
        return sheaf_fail(SHEAF_E_UNSUPPORTED, "this processor has no AVX2, FMA and F16C");
    sheaf_status *st = begin(&m, options);
    TRY(st, make_all(&m, report, options));
    st = sheaf__folder_end(m.folder, st);
    sheaf__over_release(&m.over);
    sheaf__packer_free(m.quantising);
    free(m.specs);
    sheaf_schema_free(m.schema);
    sheaf_config_release(&m.config);
    return st;
}
