/* gguf.c - a model, or an adapter, as a GGUF file for llama.cpp; see gguf.h and docs/gguf.md. */
#include "checkpoint/convert/gguf.h"

#include <math.h>

#include "base/base.h"
#include "base/file.h"
#include "dialects/common/model_folder.h"
#include "dialects/open.h"
#include "dialects/peft/peft.h"
#include "lora/adapter.h"
#include "lora/check_file.h"
#include "lora/renamed.h"
#include "schema/quantization.h"

/* ---- what both have ---- */

/* general.name: what SRC is called, or, where that is a passing folder beside DST, DST. */
static sheaf_status *name_of(char **out, const sheaf__converter *k)
{
    const size_t dst = strlen(k->o->dst);
    const bool passing = strncmp(k->root, k->o->dst, dst) == 0 && k->root[dst] == '.';
    sheaf_status *st = sheaf__path_name(out, passing ? k->o->dst : k->root);
    if (st == NULL && passing && sheaf__ends_with(*out, ".gguf"))
        (*out)[strlen(*out) - strlen(".gguf")] = '\0';
    return st;
}

/* Rows of a head in q and k whose pairs become neighbours. */
static int64_t head_of(const sheaf_tensor *t, const sheaf_config *c)
{
    const bool turned = t->role == SHEAF_Q || t->role == SHEAF_K;
    return turned && sheaf__gguf_form_of(c)->neighbours ? c->head_dim : 0;
}

sheaf_status *sheaf__gguf_needs_model(const sheaf__converter *k)
{
    sheaf_status *st = k->schema == NULL ? sheaf__quantization_refusal(k->config) : NULL;
    if (k->schema != NULL || st != NULL)
        return sheaf_in(st, "%s: `to %s`", k->o->src, k->o->to);
    return sheaf_found(
        sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "%s: `to %s`", k->o->src, k->o->to),
                       "a model that sheaf knows by its config.json"),
        k->config == NULL ? "no config" : "another one");
}

/* ---- a model ---- */

/* As requested; else as the first matrix is stored. */
static sheaf__gguf_file file_of(const sheaf__converter *k, const sheaf_safetensors_spec *spec,
                                int64_t n)
{
    sheaf_dtype dtype = k->o->dtype;
    if (k->o->quantize == SHEAF_QUANTIZE_Q8_0)
        return SHEAF__GGUF_FILE_Q8_0;
    if (k->o->quantize == SHEAF_QUANTIZE_Q4_K_M)
        return SHEAF__GGUF_FILE_Q4_K_M;
    if (k->o->quantize == SHEAF_QUANTIZE_Q5_K_M)
        return SHEAF__GGUF_FILE_Q5_K_M;
    if (k->o->quantize == SHEAF_QUANTIZE_Q6_K)
        return SHEAF__GGUF_FILE_Q6_K;
    for (int64_t i = 0; i < n && dtype == SHEAF_BOOL; i++)
        if (spec[i].ndim == 2)
            dtype = spec[i].dtype;
    return dtype == SHEAF_BF16  ? SHEAF__GGUF_FILE_BF16
           : dtype == SHEAF_F16 ? SHEAF__GGUF_FILE_F16
                                : SHEAF__GGUF_FILE_F32;
}

typedef struct listing {
    const sheaf__converter *k;
    sheaf__gguf_view *view;
    sheaf__gguf_file file;
    bool head;           /* the model has one of its own */
    int64_t left_out;    /* tensors that llama.cpp has no place for */
    const char *example; /* one of these */
} listing;

/* An expert's tensor becomes a part of the tensor of all experts of its layer. */
static sheaf_status *add_expert(listing *l, const sheaf_tensor *t, const char *name)
{
    const sheaf_config *c = &l->k->parsed;
    const int64_t shape[] = { 1, t->shape[0], t->shape[1] };
    sheaf__gguf_made made = { .type =
                                  sheaf__gguf_type_for(l->file, name, 3, t->shape[1], c, l->head) };
    sheaf_status *st = sheaf__gguf_view_has(l->view, name)
                           ? NULL
                           : sheaf__gguf_view_add(l->view, name, 3, shape, made);
    return TRY(st, sheaf__gguf_view_part(l->view, name, t->name));
}

static sheaf_status *add_tensor(listing *l, const sheaf_tensor *t)
{
    char name[SHEAF__SPELLED];
    int64_t expert;
    const sheaf_config *c = &l->k->parsed;
    const sheaf__gguf_form *form = sheaf__gguf_form_of(c);
    if (t->buffer)
        return NULL;
    if (!sheaf__gguf_name(name, &expert, form, t->name)) {
        l->example = t->name;
        l->left_out++;
        return NULL;
    }
    if (expert >= 0)
        return add_expert(l, t, name);
    sheaf__gguf_made made = { .head = head_of(t, c),
                              .plus_one = form->norms_plus_one && sheaf__is_norm(t->role),
                              .type = sheaf__gguf_type_for(l->file, name, t->ndim,
                                                           t->shape[t->ndim - 1], c, l->head) };
    sheaf_status *st = sheaf__gguf_view_add(l->view, name, t->ndim, t->shape, made);
    return TRY(st, sheaf__gguf_view_part(l->view, name, t->name));
}

static sheaf_status *add_factors(listing *l)
{
    sheaf_status *st = NULL;
    for (int which = 0; which < 3 && st == NULL; which++) {
        const char *name;
        float *values = calloc(SHEAF_MAX_ROPE_PAIRS, sizeof *values);
        if (values == NULL)
            return sheaf__no_memory("rotary embedding");
        const int64_t n = sheaf__gguf_rope_factors(values, &name, &l->k->parsed, which);
        if (n > 0)
            st = sheaf__gguf_view_add(
                l->view, name, 1, &n,
                (sheaf__gguf_made){ .values = values, .type = SHEAF__GGML_F32 });
        else
            free(values);
    }
    return st;
}

static sheaf_status *list_model(listing *l, const sheaf_safetensors_spec *spec, int64_t n)
{
    sheaf_status *st = sheaf__gguf_view_new(&l->view, l->k->source, n + 3);
    TRY(st, add_factors(l));
    for (int64_t i = 0; i < n && st == NULL; i++)
        st = add_tensor(l, sheaf_schema_find(l->k->schema, spec[i].name));
    if (st == NULL && l->left_out > 0)
        sheaf_warn(l->k->o->events,
                   "%s: %" PRId64
                   " tensors are left out, which are no part of the text model: '%s' "
                   "is one%s",
                   l->k->o->src, l->left_out, l->example,
                   sheaf__gguf_projector_of(&l->k->parsed) != NULL
                       ? "; `to gguf-mmproj` writes the tower for pictures"
                       : "");
    return st;
}

/* "Modelfile" in the folder of DST; one that is there is not replaced. */
static sheaf_status *make_modelfile(sheaf__gguf_beside *out, const sheaf__converter *k)
{
    char above[SHEAF_PATH_SIZE];
    const char *slash = strrchr(k->o->dst, '/');
    sheaf_status *st =
        sheaf__path_join(&out->path, sheaf__path_above(above, k->o->dst), "Modelfile");
    if (st == NULL && sheaf__path_kind(out->path) != SHEAF_PATH_NONE)
        st = sheaf_try_this(sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "%s", out->path),
                                                       "nothing there, with `modelfile`"),
                                        "%s", sheaf__path_what(out->path)),
                            "DST in a folder of its own");
    return TRY(st, sheaf__gguf_modelfile(&out->text, slash == NULL ? k->o->dst : slash + 1,
                                         &k->parsed, k->root));
}

static void release_beside(sheaf__gguf_beside *b)
{
    free(b->path);
    free(b->text);
}

sheaf_status *sheaf__convert_to_gguf(sheaf__converter *k)
{
    sheaf__gguf_keys keys = { 0 };
    sheaf_safetensors_spec *spec = NULL;
    sheaf__gguf_beside modelfile = { 0 };
    char *name = NULL;
    int64_t n = 0;
    sheaf_status *st = sheaf__gguf_needs_model(k);
    TRY(st, sheaf_in(sheaf__gguf_can(&k->parsed, k->o->events), "%s", k->o->src));
    TRY(st, name_of(&name, k));
    TRY(st, k->o->modelfile ? make_modelfile(&modelfile, k) : NULL);
    TRY(st, sheaf_hf_specs(&spec, &n, k->schema, k->source, SHEAF_F32));
    listing l = { .k = k, .head = !k->parsed.tied };
    if (st == NULL) {
        l.file = file_of(k, spec, n);
        st = list_model(&l, spec, n);
    }
    if (st == NULL) {
        sheaf__gguf_model_keys(&keys, &k->parsed, name, l.file);
        st = sheaf__gguf_tokenizer_keys(&keys, &k->parsed, k->root, k->o->events);
    }
    TRY(st, sheaf__gguf_view_write(k, l.view, &keys, &modelfile));
    sheaf__gguf_view_free(l.view);
    sheaf__gguf_keys_release(&keys);
    free(spec);
    free(name);
    release_beside(&modelfile);
    return st;
}

/* ---- an adapter ---- */

/* The base's config.json: --config, or of the folder --base, or of the one that the adapter names.
 */
static sheaf_status *base_config(sheaf_config *out, const sheaf__converter *k,
                                 const sheaf_lora_options *options)
{
    sheaf_catalog *c = NULL;
    const char *base = k->o->base != NULL ? k->o->base : options->base_name;
    if (k->o->config != NULL)
        return sheaf_config_read(out, k->o->config);
    if (base == NULL || *base == '\0' || sheaf__path_kind(base) == SHEAF_PATH_NONE)
        return sheaf_try_this(
            sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "%s: `to gguf-lora`", k->o->src),
                                       "the base's config, which says how its tensors are named"),
                        "%s", base == NULL || *base == '\0' ? "no base" : base),
            "`base DIR`, the model that the adapter was trained on");
    sheaf_status *st = sheaf__open(&c, base, &(sheaf_dialect_hints){ .config_only = true });
    TRY(st, sheaf__open_config(out, c));
    sheaf__catalog_free(c);
    return st;
}

static double scale_of(const sheaf_lora_module *m, bool rslora)
{
    const double rank = (double)m->file_rank;
    return m->file_alpha / (rslora ? sqrt(rank) : rank);
}

static sheaf_status *refuse_factors(const sheaf_lora_module *m, const char *found)
{
    sheaf_status *st = sheaf_fail(SHEAF_E_UNSUPPORTED, "adapter of '%s'", m->base->module);
    sheaf_expected(st, "factors of linear layers, which llama.cpp adds");
    return sheaf_try_this(
        sheaf_found(st, "%s", found),
        "sheaf merge BASE ADAPTER MERGED, then sheaf convert MERGED DST --to gguf");
}

static sheaf_status *check_module(const sheaf_lora_module *m)
{
    if (m->stacked && m->base->stack.ndim > 2)
        return refuse_factors(m, "factors of all experts");
    if (!sheaf__is_linear(m->base->role))
        return refuse_factors(m, "factors of a table");
    if (m->m_name != NULL)
        return refuse_factors(m, "DoRA's magnitudes beside them");
    if (m->parts > 1 && !m->dense)
        return refuse_factors(m, "factors for each part of a fused layer");
    if (m->file_alpha != 0)
        return NULL;
    /* llama.cpp would take it for alpha = rank */
    sheaf_status *st = sheaf_fail(SHEAF_E_UNSUPPORTED, "adapter of '%s'", m->base->module);
    sheaf_found(sheaf_expected(st, "an alpha above 0, as llama.cpp has no scale of 0"), "0");
    return sheaf_try_this(st, "the base alone: without a scale these factors change nothing");
}

/* llama.cpp multiplies all by alpha over a module's rank; B makes up for what differs. */
static sheaf_status *add_module(sheaf__gguf_view *v, const sheaf_lora_module *m,
                                const sheaf_config *c, double factor, sheaf__gguf_type type)
{
    char name[SHEAF__SPELLED], whole[SHEAF__SPELLED + 8];
    int64_t expert;
    sheaf_status *st = check_module(m);
    if (st == NULL && !sheaf__gguf_name(name, &expert, sheaf__gguf_form_of(c), m->base->name))
        st = sheaf_found(
            sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "adapter of '%s'", m->base->module),
                           "layers of the text model: llama.cpp has no factors elsewhere"),
            "another layer");
    if (st == NULL && expert >= 0)
        st = refuse_factors(m, "factors of one expert");
    for (int b = 0; b < 2 && st == NULL; b++) {
        sheaf__gguf_made made = { .head = b ? head_of(m->base, c) : 0,
                                  .factor = b && factor != 1 ? factor : 0,
                                  .type = type };
        snprintf(whole, sizeof whole, "%s.lora_%c", name, b ? 'b' : 'a');
        st = sheaf__gguf_view_add(v, whole, 2, b ? m->b_shape : m->a_shape, made);
        TRY(st, sheaf__gguf_view_part(v, whole, b ? m->b_name : m->a_name));
    }
    return st;
}

static sheaf_status *list_adapter(sheaf__gguf_view **out, double *alpha, sheaf__converter *k,
                                  const sheaf_lora *lora, const sheaf_config *c)
{
    const bool rslora = lora->options.rslora;
    const sheaf__gguf_type type = k->o->dtype == SHEAF_BF16  ? SHEAF__GGML_BF16
                                  : k->o->dtype == SHEAF_F16 ? SHEAF__GGML_F16
                                                             : SHEAF__GGML_F32;
    if (lora->nsaved > 0)
        return sheaf_try_this(
            sheaf_found(
                sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "%s: `to gguf-lora`", k->o->src),
                               "factors alone: llama.cpp replaces no weights"),
                "'%s', trained in full", lora->saved[0]->name),
            "merge it: sheaf convert RUN DST --to gguf, of a run; else sheaf merge BASE ADAPTER "
            "MERGED, then sheaf convert MERGED DST --to gguf");
    *alpha = scale_of(&lora->module[0], rslora) * (double)lora->module[0].file_rank;
    sheaf_status *st = sheaf__gguf_view_new(out, k->source, 2 * (int64_t)lora->nmodules);
    for (int i = 0; i < lora->nmodules && st == NULL; i++) {
        const sheaf_lora_module *m = &lora->module[i];
        const double factor = scale_of(m, rslora) * (double)m->file_rank / *alpha;
        st = add_module(*out, m, c, factor, type);
    }
    return st;
}

static void adapter_keys(sheaf__gguf_keys *keys, const sheaf_config *c, const char *name,
                         double alpha)
{
    sheaf__gguf_put_text(keys, "general.architecture", sheaf__gguf_form_of(c)->architecture);
    sheaf__gguf_put_text(keys, "general.type", "adapter");
    sheaf__gguf_put_text(keys, "adapter.type", "lora");
    sheaf__gguf_put_f32(keys, "adapter.lora.alpha", alpha);
    sheaf__gguf_put_text(keys, "general.name", name);
}

/* The adapter's tensors, as k->source, and its modules. */
static sheaf_status *open_lora(sheaf_lora **out, sheaf__converter *k, sheaf_schema **schema,
                               sheaf_config *config)
{
    sheaf_lora_options options = { 0 };
    const char *table = NULL;
    char *path = NULL;
    sheaf_status *st = sheaf_peft_config_path(&path, k->o->src);
    TRY(st, sheaf_lora_options_read(&options, path, k->o->events));
    TRY(st, sheaf_lora_check_runs(&options));
    TRY(st, base_config(config, k, &options));
    TRY(st, sheaf__gguf_can(config, k->o->events));
    TRY(st, sheaf_schema_new(schema, config, 1));
    TRY(st, sheaf__open_source(
                &k->source, k->o->src,
                &(sheaf_dialect_hints){ .want = SHEAF_WANT_ADAPTER, .as_stored = true }));
    TRY(st, sheaf__lora_rename_for(&options, &k->source, k->o->src, config, k->o->events));
    TRY(st, sheaf_lora_check_file(&options, k->source));
    TRY(st, sheaf_lora_resolve(out, *schema, &options));
    TRY(st, sheaf_lora_take_tables(&table, *out, *schema, k->source));
    TRY(st, sheaf_lora_fit(&k->source, *out));
    sheaf_lora_options_release(&options);
    free(path);
    return st;
}

sheaf_status *sheaf__convert_to_gguf_lora(sheaf__converter *k)
{
    sheaf__gguf_keys keys = { 0 };
    sheaf__gguf_view *view = NULL;
    sheaf_lora *lora = NULL;
    sheaf_schema *schema = NULL;
    sheaf_config config = { 0 };
    char *name = NULL;
    double alpha = 0;
    if (!k->dialect->adapter)
        return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "%s: `to gguf-lora`", k->o->src),
                                          "a PEFT adapter; `to gguf` writes a model"),
                           "a checkpoint of %s", k->dialect->name);
    if (k->o->quantize != SHEAF_QUANTIZE_NONE)
        return sheaf_expected(sheaf_fail(SHEAF_E_ARG, "`dtype`"),
                              "float32, bfloat16 or float16 for factors");
    sheaf_status *st = sheaf_in(open_lora(&lora, k, &schema, &config), "%s", k->o->src);
    TRY(st, name_of(&name, k));
    TRY(st, list_adapter(&view, &alpha, k, lora, &config));
    if (st == NULL)
        adapter_keys(&keys, &config, name, alpha);
    TRY(st, sheaf__gguf_view_write(k, view, &keys, &(sheaf__gguf_beside){ 0 }));
    sheaf__gguf_view_free(view);
    sheaf__gguf_keys_release(&keys);
    sheaf_lora_free(lora);
    sheaf_schema_free(schema);
    sheaf_config_release(&config);
    free(name);
    return st;
}
