/* reference.c - the sums of an objective's reference: made once, and kept in OUT/reference, so that
 * a run which goes on need not make them again.
 *
 * The file: 32 hex digits, the hash of all that the sums follow from, then the sums, doubles
 * whose first byte is the lowest: of the rows to train on, of mismatched answers by sample, of the
 * rows of evaluations. */
#include "base/base.h"
#include "base/file.h"
#include "base/hash.h"
#include "models/open.h"
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
    const bool wraps = o->steps > sheaf__subset_rows(&job->train) / each;
    *out = (sums){ .samples = o->steps * each,
                   .drawn = wraps ? 0 : o->steps * each,
                   .rows = sheaf_data_rows(job->train.data) };
    out->mixed = objective->mismatched ? out->samples : 0;
    out->eval = job->eval.data == NULL ? 0 : sheaf_data_rows(job->eval.data);
    out->bytes = (size_t)(out->rows + out->mixed + out->eval) * sizeof(double);
    const double numbers[] = { (double)out->samples,    (double)out->drawn,  (double)o->micro_batch,
                               (double)o->shuffle,      (double)o->dtype,    (double)o->slices,
                               (double)objective->base, objective->ld_alpha, o->eval_split };
    const char *const texts[] = { origin, sheaf_data_hash(job->train.data),
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
    return NULL;
}

/* Another model's weights in the place of the run's, or another adapter's, of the same rank and
 * targets. */
static sheaf_status *load_other(sheaf__opened *other, sheaf__rank *rank, const sheaf__job *job)
{
    const sheaf_train_options *o = job->options;
    const char *folder = job->objective.folder;
    const bool adapter = sheaf__path_has(folder, "adapter_config.json", SHEAF_PATH_FILE);
    sheaf_status *st =
        sheaf__open_model(other, &(sheaf__open_options){ .model = adapter ? o->model : folder,
                                                         .config = adapter ? o->config : NULL,
                                                         .adapter = adapter ? folder : NULL,
                                                         .slices = o->slices,
                                                         .for_training = true });
    TRY(st, sheaf__reference_check(other->schema, job->schema));
    TRY(st,
        sheaf__opened_quantise(other, o->quantize, job->selection == NULL ? NULL : sheaf__selected,
                               (void *)job->selection));
    TRY(st, sheaf__model_load(rank->model, other->weights, other->adapter));
    st = sheaf_in(st, "%s", folder);
    return sheaf__agree_groups(rank->model->context, st);
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
    const sheaf__objective *objective = &job->objective;
    const sheaf__references *r = rank->reference;
    sheaf__opened other = { 0 };
    sheaf_status *st = objective->folder == NULL ? NULL : load_other(&other, rank, job);
    TRY(st, sheaf__pairs_sums(r[0].row, rank->model, &job->train, objective, job->options,
                              of->drawn, how));
    if (of->mixed > 0)
        TRY(st, sheaf__pairs_mixed(r[0].mixed, rank->model, &job->train, objective, job->options,
                                   of->samples, how));
    if (of->eval > 0)
        TRY(st,
            sheaf__pairs_sums(r[1].row, rank->model, &job->eval, objective, job->options, 0, how));
    TRY(st, begin(rank, job));
    sheaf__opened_close(&other);
    return st;
}

static sheaf_status *take(sheaf__rank *rank, const sheaf__job *job, const sums *of,
                          const char *path, const sheaf__evaluate_options *how)
{
    const sheaf__context *c = rank->model->context;
    double *all = malloc(of->bytes);
    bool found = false;
    rank->reference[0] = (sheaf__references){ all, of->mixed > 0 ? all + of->rows : NULL };
    rank->reference[1].row = of->eval > 0 ? all + of->rows + of->mixed : NULL;
    sheaf_status *st =
        sheaf__agree_groups(c, all == NULL ? sheaf__no_memory("sums of the reference") : NULL);
    if (st != NULL)
        return st;
    read(&found, all, of, path);
    st = sheaf__agree_groups(c, found ? NULL : sheaf_fail(SHEAF_E_IO, "%s", path));
    if (st == NULL) /* and the model is not the reference any more */
        return begin(rank, job);
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
    char *path = NULL;
    sheaf_status *st = NULL;
    if (job->objective.grouped) { /* which keeps the factors, as its completions are not known */
        sheaf__batch_refer(sheaf__stepper_batch(rank->stepper));
        return sheaf_in(begin(rank, job), "the reference");
    }
    st = describe(&of, rank, job, origin);
    TRY(st, sheaf__path_join(&path, job->options->out, "reference"));
    st = sheaf__agree_groups(rank->model->context, st);
    TRY(st, take(rank, job, &of, path, how));
    free(path);
    sheaf__stepper_refer(rank->stepper, rank->reference[0]);
    return sheaf_in(st, "the reference");
}
