/* write.c - the writers of the targets of a conversion: Hugging Face, SAT, sheaf's own, PEFT; see
 * convert.h.
 *
 * Each orders the tensors for its form, opens the form's writer and streams with sheaf__copy_all().
 */
#include "base/base.h"
#include "checkpoint/convert/convert.h"

#include "base/file.h"
#include "base/json.h"
#include "base/output.h"
#include "base/json_write.h"
#include "checkpoint/store/probe.h"
#include "dialects/hf/hf.h"
#include "dialects/peft/peft.h"
#include "dialects/sat/lora.h"
#include "dialects/sat/write.h"
#include "formats/safetensors.h"
#include "lora/check_file.h"

void sheaf__convert_count(sheaf__converter *k)
{
    for (int64_t i = 0; i < k->source->count(k->source); i++) {
        const sheaf_source_entry *e = k->source->entry(k->source, i);
        k->report->bytes += sheaf__entry_bytes(e);
        k->report->tensors++;
        k->report->moments += sheaf__is_moment(e->name);
    }
    k->total = k->report->bytes;
}

/* ---- copying ---- */

/* Tensors of the source, in the order in which they are written. */
typedef struct listing {
    sheaf_safetensors_spec *spec;
    int64_t count;
} listing;

static sheaf_status *list_new(listing *l, const sheaf__converter *k)
{
    *l = (listing){ calloc((size_t)k->source->count(k->source) + 1, sizeof *l->spec), 0 };
    return l->spec == NULL ? sheaf__no_memory(k->o->src) : NULL;
}

static void list_add(listing *l, const sheaf_source_entry *e)
{
    l->spec[l->count++] = *e;
}

sheaf_status *sheaf__convert_copy(sheaf__converter *k, sheaf_copy_job job)
{
    job.threads = k->o->threads;
    job.stop = sheaf__control_stop(k->o->control);
    job.command = "convert";
    job.events = k->o->events;
    job.done = &k->done;
    job.total = k->total;
    job.what = "bytes converted";
    return sheaf__copy_all(&job);
}

typedef sheaf_status *put(void *context, int64_t index, int64_t row0, int64_t rows, int64_t col0,
                          int64_t cols, const void *src);

static sheaf_status *copy_all(sheaf__converter *k, const listing *l, put *to, void *context)
{
    return sheaf__convert_copy(k, (sheaf_copy_job){ .source = k->source,
                                                    .entry = l->spec,
                                                    .count = l->count,
                                                    .put = to,
                                                    .context = context });
}

static sheaf_status *put_in_file(void *context, int64_t index, int64_t row0, int64_t rows,
                                 int64_t col0, int64_t cols, const void *src)
{
    return sheaf__safetensors_write_box(context, index, row0, rows, col0, cols, src);
}

static sheaf_status *put_in_parts(void *context, int64_t index, int64_t row0, int64_t rows,
                                  int64_t col0, int64_t cols, const void *src)
{
    return sheaf_sat_put(context, index, row0, rows, col0, cols, src);
}

/* Writes the tensors of `l`, which is freed, to a folder and completes it; no folder is left after
 * a failure, also an earlier one. */
static sheaf_status *fill_folder(sheaf__converter *k, listing *l, sheaf_folder *folder,
                                 sheaf_status *st)
{
    if (k->quantising != NULL) {
        TRY(st, sheaf__packer_begin(k->quantising, folder));
        TRY(st, copy_all(k, l, sheaf__packer_put, k->quantising));
    } else {
        TRY(st, copy_all(k, l, sheaf__copy_to_folder, folder));
    }
    free(l->spec);
    return sheaf__folder_end(folder, st);
}

/* ---- Hugging Face ---- */

/* Tensors in the order of the model; those that the schema does not have (a tied head) after
 * them. */
static sheaf_status *order_tensors(listing *l, sheaf__converter *k)
{
    sheaf_source *source = k->source;
    sheaf_safetensors_spec *model = NULL;
    int64_t n = 0;
    sheaf_status *st = list_new(l, k);
    if (st == NULL && k->schema != NULL)
        st = sheaf_hf_specs(&model, &n, k->schema, source, SHEAF_F32);
    for (int64_t i = 0; st == NULL && i < n; i++) {
        const sheaf_source_entry *e = source->find(source, model[i].name);
        if (e != NULL)
            list_add(l, e);
    }
    for (int64_t i = 0; st == NULL && i < source->count(source); i++) {
        const sheaf_source_entry *e = source->entry(source, i);
        if (!sheaf__is_moment(e->name) &&
            (k->schema == NULL || sheaf_schema_find(k->schema, e->name) == NULL))
            list_add(l, e);
    }
    free(model);
    return st;
}

static sheaf_status *hf_config(char **out, const sheaf__converter *k)
{
    char *edited = NULL;
    sheaf_status *st = NULL;
    if (k->has_config)
        st = sheaf_hf_config_whole(out, k->config, &k->parsed, k->report->merged == 0);
    else if ((*out = strdup(k->config)) == NULL)
        st = sheaf__no_memory(k->o->src);
    if (st == NULL && k->o->dtype != SHEAF_BOOL)
        st = sheaf_hf_config_with_dtype(&edited, *out, k->o->dtype);
    if (edited != NULL) {
        free(*out);
        *out = edited;
    }
    if (k->quantising != NULL)
        TRY(st, sheaf__packer_set_config(out, k->quantising, k->schema));
    return st;
}

/* optimizer.safetensors beside the model, in the folder that is being written. */
static sheaf_status *write_moments(sheaf__converter *k, const char *dir)
{
    listing l;
    sheaf_safetensors_writer *file = NULL;
    char path[SHEAF_PATH_SIZE], step[32];
    snprintf(step, sizeof step, "%" PRId64, k->step);
    char format_key[] = "format", format[] = "pt", step_key[] = "step";
    const sheaf_safetensors_pair pairs[] = { { format_key, format }, { step_key, step } };
    sheaf_status *st = list_new(&l, k);
    for (int64_t i = 0; st == NULL && i < k->source->count(k->source); i++) {
        const sheaf_source_entry *e = k->source->entry(k->source, i);
        if (sheaf__is_moment(e->name))
            list_add(&l, e);
    }
    const int npairs = k->step >= 0 ? 2 : 1;
    TRY(st, sheaf__safetensors_begin(&file, sheaf__path_in(path, dir, "optimizer.safetensors"),
                                     l.spec, l.count, pairs, npairs));
    TRY(st, copy_all(k, &l, put_in_file, file));
    if (st == NULL)
        st = sheaf__safetensors_finish(file);
    else
        sheaf__safetensors_abandon(file);
    free(l.spec);
    return st;
}

static sheaf_status *begin_folder(sheaf_folder **out, sheaf__converter *k,
                                  const sheaf_safetensors_spec *specs, int64_t count)
{
    const sheaf_weights_convert_options *o = k->o;
    char *config = NULL;
    if (k->config == NULL) {
        const sheaf_folder_options options = { .stem = "model",
                                               .shard_bytes = o->shard_bytes > 0 ? o->shard_bytes
                                                                                 : 50000000000 };
        sheaf_warn(o->events, "%s: no config: the output has none either (`config` names one)",
                   o->src);
        return sheaf__folder_begin(out, o->dst, specs, count, &options);
    }
    const bool *late = NULL;
    sheaf_status *st = hf_config(&config, k);
    if (k->quantising != NULL)
        specs = sheaf__packer_specs(&count, &late, k->quantising);
    TRY(st, sheaf_hf_begin(out, o->dst, config, specs, count,
                           &(sheaf_folder_options){ .shard_bytes = o->shard_bytes,
                                                    .file_names = k->file_names,
                                                    .late = late }));
    free(config);
    return st;
}

/* The status for a folder that holds only optimizer state: it names what is there. */
static sheaf_status *write_moments_alone(sheaf__converter *k)
{
    sheaf_output *output = NULL;
    sheaf_status *st = sheaf__output_begin(&output, k->o->dst, false);
    TRY(st, write_moments(k, sheaf__output_dir(output)));
    if (st == NULL && k->config != NULL)
        st = sheaf__output_write(output, "config.json", k->config, strlen(k->config));
    if (st == NULL)
        return sheaf__output_commit(output);
    sheaf__output_abandon(output);
    return st;
}

sheaf_status *sheaf__convert_to_hf(sheaf__converter *k)
{
    listing l;
    sheaf_folder *folder = NULL;
    if (k->nweights == 0)
        return write_moments_alone(k);
    sheaf_status *st = order_tensors(&l, k);
    if (k->o->quantize != SHEAF_QUANTIZE_NONE)
        TRY(st, sheaf__convert_quantise(k, l.spec, l.count));
    TRY(st, begin_folder(&folder, k, l.spec, l.count));
    TRY(st, sheaf_hf_copy_extras(folder, k->root, NULL));
    TRY(st, k->nmoments > 0 ? write_moments(k, sheaf__folder_dir(folder)) : NULL);
    return fill_folder(k, &l, folder, st);
}

/* ---- SAT ---- */

sheaf_status *sheaf__convert_to_sat(sheaf__converter *k)
{
    listing l = { 0 };
    sheaf_sat_writer *writer = NULL;
    const sheaf_sat_write_options how = {
        .config = k->config, .ways = k->report->parts, .lora_rank = k->lora_rank, .step = k->step
    };
    k->report->step = k->step > 0 ? k->step : 1;
    sheaf_status *st = list_new(&l, k);
    TRY(st, sheaf_sat_begin(&writer, k->o->dst, k->source, &how));
    for (int64_t i = 0; st == NULL && i < sheaf_sat_count(writer); i++)
        list_add(&l, k->source->find(k->source, sheaf_sat_name(writer, i)));
    TRY(st, copy_all(k, &l, put_in_parts, writer));
    free(l.spec);
    if (st != NULL) {
        sheaf_sat_abandon(writer);
        return st;
    }
    st = sheaf_sat_commit(writer);
    if (st == NULL && sheaf_hf_has_tokenizer(k->root))
        sheaf_note(
            k->o->events,
            "the tokenizer stays in %s: SAT has none beside a model (`tokenizer %s`; of SAT's "
            "programs, --local_tokenizer)",
            k->root, k->root);
    return st;
}

/* ---- sheaf's own ---- */

/* A training checkpoint has the loop's progress here, a converted model its config. No source path:
 * equal models give equal files. */
static sheaf_status *own_progress(char **out, const sheaf__converter *k)
{
    sheaf_json_writer j = { 0 };
    sheaf__json_begin(&j);
    sheaf__json_put_bool(&j, "converted", true);
    if (k->step < 0)
        sheaf__json_put_bool(&j, "step_unknown", true);
    if (k->model != NULL)
        sheaf__json_put_text(&j, "model", k->model);
    if (k->config != NULL)
        sheaf__json_put_text(&j, "config", k->config);
    sheaf__json_end(&j);
    return sheaf__text_take(out, &j.text);
}

sheaf_status *sheaf__convert_to_sheaf(sheaf__converter *k)
{
    char *progress = NULL;
    sheaf_status *st = own_progress(&progress, k);
    TRY(st, sheaf__slices_write(
                k->o->dst, &(sheaf_slices_write){
                               .source = k->source,
                               .schema = k->schema,
                               .slices = k->o->slices > 0 ? k->o->slices : SHEAF__CONVERT_SLICES,
                               .step = k->step > 0 ? k->step : 0,
                               .progress = progress,
                               .threads = k->o->threads,
                               .stop = sheaf__control_stop(k->o->control),
                               .events = k->o->events,
                               .done = &k->done,
                               .total = k->total }));
    free(progress);
    return st;
}

/* ---- PEFT ---- */

static sheaf_status *write_adapter(sheaf__converter *k)
{
    listing l;
    sheaf_folder *folder = NULL;
    sheaf_status *st = order_tensors(&l, k);
    TRY(st, sheaf_peft_begin(&folder, k->o->dst, k->config != NULL ? k->config : "{}", NULL, l.spec,
                             l.count, false));
    if (k->dialect->adapter) /* the tokenizer that knows the rows of its tables */
        TRY(st, sheaf_hf_copy_tokenizer(folder, k->root));
    return fill_folder(k, &l, folder, st);
}

static sheaf_status *write_sat_adapter(sheaf__converter *k)
{
    sheaf_sat_lora *lora = NULL;
    sheaf_status *st = sheaf__catalog_refusal(k->catalog);
    TRY(st, sheaf_sat_lora_open(&lora, k->catalog));
    TRY(st, sheaf_sat_adapter(&k->source, lora));
    free(k->config);
    k->config = NULL;
    TRY(st, sheaf_sat_adapter_config(&k->config, lora));
    if (st == NULL) {
        sheaf__convert_count(k);
        st = write_adapter(k);
    }
    sheaf_sat_lora_free(lora);
    return st;
}

/* An adapter of another kind, or a variant of LoRA that sheaf does not know, is copied as it is. */
static sheaf_status *check_adapter(sheaf_source *adapter, const char *config,
                                   const sheaf_weights_convert_options *o)
{
    sheaf_lora_options options;
    sheaf_status *st = config != NULL ? sheaf_lora_options_read(&options, config, o->events)
                                      : sheaf_fail(SHEAF_E_UNSUPPORTED, "%s", o->src);
    if (st == NULL) {
        st = sheaf_in(sheaf_lora_check_file(&options, adapter), "%s", o->src);
        sheaf_lora_options_release(&options);
    } else if (sheaf_status_code(st) == SHEAF_E_UNSUPPORTED) {
        sheaf_status_free(st);
        st = NULL;
    }
    return st;
}

static sheaf_status *take_adapter(sheaf__converter *k)
{
    sheaf_source *inner = NULL;
    sheaf_catalog *c = k->catalog;
    char *config = c->config_path != NULL ? strdup(c->config_path) : NULL;
    k->catalog = NULL;
    sheaf_status *st = sheaf__catalog_source(&inner, c, true);
    if (st == NULL && (st = check_adapter(inner, config, k->o)) != NULL)
        inner->close(inner);
    free(config);
    return st != NULL ? st : sheaf__convert_cast(k, inner);
}

sheaf_status *sheaf__convert_to_peft(sheaf__converter *k)
{
    sheaf_status *st = NULL;
    const bool inside =
        sheaf__catalog_finding(k->catalog, "unmerged") != NULL && !k->dialect->own_lora;
    if (k->o->lora_alpha > 0 && !inside)
        return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "`lora-alpha`"),
                                          "a checkpoint with PEFT's LoRA beside the weights"),
                           "a scale that SRC says itself, or no such LoRA");
    if (k->dialect->own_lora)
        return write_sat_adapter(k);
    if (!k->dialect->adapter && !inside)
        return sheaf_try_this(
            sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "`to peft`"),
                                       "a PEFT adapter, or a checkpoint with LoRA"),
                        "a checkpoint of %s", k->dialect->name),
            "an adapter that sheaf trained lies in OUT/adapter");
    st = inside ? sheaf__convert_inside(k) : take_adapter(k);
    if (st != NULL)
        return st;
    sheaf__convert_count(k);
    return write_adapter(k);
}
