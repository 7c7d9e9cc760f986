/* reference.c - the sums of an objective's reference: made once, and kept in OUT/reference, so that
 * a run which goes on need not make them again; or in a folder that several runs share, in a file
 * with the name of the key. There they are of all rows, so that other steps, batches and orders
 * find them, unless mismatched answers are read, which follow from these.
 *
 * The file: 32 hex digits, the hash of all that the sums follow from, then the sums, doubles
 * whose first byte is the lowest: of the rows to train on, of mismatched answers by sample, of the
 * rows of evaluations. */
#include "base/base.h"
#include "base/file.h"
#include "base/hash.h"
#include "checkpoint/store/manifest.h"
#include "schema/config_text.h"
#include "train/origin.h"
#include "train/rank.h"

enum { KEY = 32 };

/* The lists of a run; each may be empty. */
typedef struct sums {
    int64_t rows, mixed, eval;
    int64_t samples, drawn; /* that the run draws; 0: every row is read */
    size_t bytes;           /* of all */
    char key[KEY + 1];
} sums;

static void put_numbers(sheaf_text *to, const double *number, int64_t n)
{
    uint64_t bits;
    for (int64_t i = 0; i < n; i++) {
        memcpy(&bits, &number[i], sizeof bits);
        sheaf__text_little(to, bits, sizeof bits);
    }
}

static sheaf_status *describe(sums *out, const sheaf__rank *rank, const sheaf__job *job,
                              const char *origin)
{
    const sheaf_train_options *o = job->options;
    const sheaf__objective *objective = &job->objective;
    const int64_t each = o->micro_batch * o->accumulate;
    const bool wraps = o->steps > sheaf__subset_rows(&job->train) / each,
               shared = sheaf__is_given(objective->cache) && !objective->mismatched;
    *out = (sums){ .samples = shared ? 0 : o->steps * each,
                   .drawn = wraps || shared ? 0 : o->steps * each,
                   .rows = sheaf_data_rows(job->train.data) };
    out->mixed = objective->mismatched ? out->samples : 0;
    out->eval = job->eval.data == NULL ? 0 : sheaf_data_rows(job->eval.data);
    out->bytes = (size_t)(out->rows + out->mixed + out->eval) * sizeof(double);
    const double numbers[] = { SHEAF__CONTRACT,
                               (double)out->samples,
                               (double)out->drawn,
                               shared ? 0 : (double)o->micro_batch,
                               shared ? 0 : (double)o->shuffle,
                               (double)o->dtype,
                               (double)o->slices,
                               (double)objective->base,
                               objective->ld_alpha,
                               o->eval_split,
                               (double)o->quantize };
    const char *const texts[] = { origin, job->other == NULL ? "" : job->other->origin,
                                  sheaf_data_hash(job->train.data),
                                  out->eval == 0 ? "" : sheaf_data_hash(job->eval.data),
                                  sheaf__sums_text(rank->device->sums) };
    sheaf_text all = { 0 };
    put_numbers(&all, numbers, sizeof numbers / sizeof *numbers);
    sheaf__text_little(&all, o->seed, sizeof o->seed);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        sheaf__text_bytes(&all, texts[i], strlen(texts[i]) + 1);
    sheaf_status *st = all.failed ? sheaf__no_memory("hash of a reference") : NULL;
    if (st == NULL)
        sheaf__hash_text(out->key, sheaf__hash(all.at, all.size));
    sheaf__text_release(&all);
    return st;
}

/* *found: the file was there, and of this run. */
static void read(bool *found, double *into, const sums *of, const char *path)
{
    char *at = NULL;
    size_t size = 0;
    sheaf_status_free(sheaf__file_read_all(&at, &size, path, KEY + of->bytes));
    *found = at != NULL && size == KEY + of->bytes && memcmp(at, of->key, KEY) == 0;
    for (size_t i = 0; *found && i < of->bytes / sizeof *into; i++) {
        const uint64_t bits =
            sheaf__little((unsigned char *)at + KEY + i * sizeof bits, sizeof bits);
        memcpy(&into[i], &bits, sizeof bits);
    }
    free(at);
}

static sheaf_status *write_all(const double *from, const sums *of, const char *path)
{
    sheaf_text file = { 0 };
    sheaf__text_bytes(&file, of->key, KEY);
    put_numbers(&file, from, (int64_t)(of->bytes / sizeof *from));
    sheaf_status *st =
        file.failed ? sheaf__no_memory(path) : sheaf__file_write_whole(path, file.at, file.size);
    sheaf__text_release(&file);
    return st;
}

/* Its weights take the places of the run's, which computes by its own config. Which tokens begin
 * and end texts does not count: the reference gets ids; nor what no forward pass reads. */
static sheaf_status *check_config(const sheaf_config *other, const sheaf_config *own)
{
    sheaf_config is = *other;
    char *text[2] = { NULL, NULL }, found[SHEAF__LINE_VALUE];
    sheaf__line_change d;
    is.bos = own->bos;
    is.pad = own->pad;
    is.neos = own->neos;
    memcpy(is.eos, own->eos, sizeof is.eos);
    is.byte_vocab = own->byte_vocab;
    is.json = own->json;
    is.router_loss = own->router_loss;
    if (own->rope.type != SHEAF_ROPE_DYNAMIC)
        is.max_position = own->max_position;
    sheaf_status *st = sheaf__config_text(&text[0], own);
    TRY(st, sheaf__config_text(&text[1], &is));
    if (st == NULL && sheaf__lines_differ(&d, text[0], text[1], ':')) {
        st = sheaf_fail(SHEAF_E_LAYOUT, "config.json: '%.*s'", (int)d.key, d.line);
        sheaf_expected(st, "%s, as of the model that is trained", sheaf__line_value(found, d.was));
        sheaf_found(st, "%s", sheaf__line_value(found, d.is));
    }
    free(text[0]);
    free(text[1]);
    return st;
}

sheaf_status *sheaf__reference_check(const sheaf_schema *other, const sheaf_schema *own)
{
    for (int64_t i = 0; i < own->count; i++) {
        const sheaf_tensor *is = &own->tensor[i], *was = sheaf_schema_find(other, is->name);
        if (was == NULL || was->ndim != is->ndim ||
            memcmp(was->shape, is->shape, (size_t)is->ndim * sizeof *is->shape) != 0)
            return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_LAYOUT, "'%s'", is->name),
                                              "the tensors of the model that is trained"),
                               was == NULL ? "no such tensor" : "another shape");
    }
    for (int64_t i = 0; i < other->count; i++)
        if (sheaf_schema_find(own, other->tensor[i].name) == NULL)
            return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_LAYOUT, "`reference`"),
                                              "the tensors of the model that is trained"),
                               "'%s' beside them", other->tensor[i].name);
    return check_config(&other->config, &own->config);
}

enum { TEXT = 512 };

static const char *module_text(char out[TEXT], const sheaf_lora *lora, int i)
{
    const sheaf_lora_module *m = i < lora->nmodules ? &lora->module[i] : NULL;
    if (m == NULL)
        snprintf(out, TEXT, "no more than %d modules", i);
    else
        snprintf(out, TEXT, "'%s' of rank %" PRId64 ", alpha %.17g, scale %.9g%s%s", m->base->name,
                 m->rank, m->alpha, (double)m->scale, m->dense && m->parts > 1 ? ", in one" : "",
                 m->m_name != NULL ? ", DoRA" : "");
    return out;
}

/* An adapter's factors take the places of the run's. */
static sheaf_status *check_modules(const sheaf_lora *other, const sheaf_lora *own)
{
    char is[TEXT], was[TEXT];
    sheaf_status *st = NULL;
    const int own_modules = own == NULL ? 0 : own->nmodules;
    if (own == NULL)
        st = sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_LAYOUT, "`reference`"),
                                        "a model, as this run trains no adapter"),
                         "an adapter");
    for (int i = 0; st == NULL && (i < other->nmodules || i < own_modules); i++)
        if (strcmp(module_text(is, other, i), module_text(was, own, i)) != 0)
            st = sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_LAYOUT, "`reference`: its modules"),
                                            "those of the adapter that is trained: %s", was),
                             "%s", is);
    return st == NULL ? NULL
                      : sheaf_try_this(st, "an adapter with its `lora-targets`, `lora-rank` and "
                                           "`lora-alpha`, or `reference` with what this makes: "
                                           "sheaf merge MODEL ADAPTER COPY");
}

/* For the key: every byte of a model; of an adapter its own, as its base is the run's. */
static sheaf_status *hash_other(sheaf__other *out, const char *folder)
{
    sheaf__origin origin;
    sheaf_status *st =
        out->opened.adapter != NULL ? NULL : sheaf__hashed_all(out->opened.hashed, 0);
    sheaf__hashed_stop(out->opened.hashed);
    if (st != NULL)
        return st;
    st = sheaf__origin_begin(&origin, &out->opened, &(sheaf__origin_from){ .model = folder });
    TRY(st, out->opened.adapter != NULL ? NULL : sheaf__origin_end(&origin));
    TRY(st, sheaf__origin_text(&out->origin, &origin));
    sheaf__origin_release(&origin);
    return st;
}

sheaf_status *sheaf__other_open(sheaf__other *out, const sheaf__job *job)
{
    const sheaf_train_options *o = job->options;
    const char *folder = job->objective.folder;
    const bool adapter = sheaf__path_has(folder, "adapter_config.json", SHEAF_PATH_FILE);
    sheaf_status *st = sheaf__open_model(
        &out->opened, &(sheaf__open_options){ .model = adapter ? o->model : folder,
                                              .config = adapter ? o->config : NULL,
                                              .adapter = adapter ? folder : NULL,
                                              .as_stored = adapter && o->resume,
                                              .slices = o->slices,
                                              .hashed = true,
                                              .for_training = true });
    TRY(st, sheaf__reference_check(out->opened.schema, job->schema));
    TRY(st, adapter ? check_modules(out->opened.lora, job->lora) : NULL);
    TRY(st, sheaf__opened_quantise(&out->opened, o->quantize,
                                   job->selection == NULL ? NULL : sheaf__selected,
                                   (void *)job->selection));
    return sheaf_in(TRY(st, hash_other(out, folder)), "%s", folder);
}

void sheaf__other_release(sheaf__other *other)
{
    sheaf__opened_close(&other->opened);
    free(other->origin);
    *other = (sheaf__other){ 0 };
}

/* Of another reference than the model as it begins: that, of which the adapter was left out. */
static sheaf_status *begin(sheaf__rank *rank, const sheaf__job *job)
{
    return job->objective.folder != NULL || (job->objective.base && job->adapter != NULL)
               ? sheaf__model_load(rank->model, job->base, job->adapter)
               : NULL;
}

static sheaf_status *make(sheaf__rank *rank, const sheaf__job *job, const sums *of,
                          const sheaf__evaluate_options *how)
{
    const sheaf__references *r = rank->reference;
    const sheaf__pair_reading train = { rank->model, &job->train, &job->objective, job->options,
                                        how },
                              eval = { rank->model, &job->eval, &job->objective, job->options,
                                       how };
    sheaf_status *st = NULL;
    if (job->other != NULL) /* its weights in the place of the run's */
        st = sheaf__agree_groups(
            rank->model->context,
            sheaf__model_load(rank->model, job->other->opened.weights, job->other->opened.adapter));
    if (!r[0].given)
        TRY(st, sheaf__pairs_sums(r[0].row, &train, of->drawn));
    if (of->mixed > 0)
        TRY(st, sheaf__pairs_mixed(r[0].mixed, &train, of->samples));
    if (of->eval > 0 && !r[1].given)
        TRY(st, sheaf__pairs_sums(r[1].row, &eval, 0));
    return TRY(st, begin(rank, job));
}

static sheaf_status *take(sheaf__rank *rank, const sheaf__job *job, const sums *of,
                          const char *path, const sheaf__evaluate_options *how)
{
    const sheaf__context *c = rank->model->context;
    double *all = malloc(of->bytes);
    bool found = false;
    sheaf__references *r = rank->reference;
    r[0].row = all;
    r[0].mixed = of->mixed > 0 ? all + of->rows : NULL;
    r[1].row = of->eval > 0 ? all + of->rows + of->mixed : NULL;
    sheaf_status *st = all == NULL ? sheaf__no_memory("sums of the reference") : NULL;
    TRY(st, sheaf__pairs_given(&r[0].given, r[0].row, job->train.data));
    if (of->eval > 0)
        TRY(st, sheaf__pairs_given(&r[1].given, r[1].row, job->eval.data));
    st = sheaf__agree_groups(c, st);
    if (st != NULL)
        return st;
    read(&found, all, of, path);
    st = sheaf__agree_groups(c, found ? NULL : sheaf_fail(SHEAF_E_IO, "%s", path));
    if (st == NULL) /* and the model is not the reference any more */
        return sheaf__agree_groups(c, begin(rank, job));
    sheaf_status_free(st); /* all make them then */
    st = make(rank, job, of, how);
    if (st == NULL && c->rank == 0 && c->group == 0)
        st = write_all(all, of, path);
    return sheaf__agree_groups(c, st);
}

sheaf_status *sheaf__rank_refer(sheaf__rank *rank, const sheaf__job *job, const char *origin,
                                const sheaf__evaluate_options *how)
{
    sums of;
    char path[SHEAF_PATH_SIZE];
    const char *cache = job->objective.cache;
    const bool shared = sheaf__is_given(cache);
    if (job->objective.grouped) { /* it keeps the factors, as its completions are not known */
        sheaf__batch_refer(sheaf__stepper_batch(rank->stepper));
        return sheaf_in(sheaf__agree_groups(rank->model->context, begin(rank, job)),
                        "the reference");
    }
    sheaf_status *st = describe(&of, rank, job, origin);
    if (st == NULL && shared && rank->context.rank + rank->context.group == 0)
        st = sheaf__make_dirs(cache);
    sheaf__path_in(path, shared ? cache : job->options->out, shared ? of.key : "reference");
    st = sheaf__agree_groups(rank->model->context, st);
    TRY(st, take(rank, job, &of, path, how));
    sheaf__stepper_refer(rank->stepper, rank->reference[0]);
    return sheaf_in(st, "the reference");
}
