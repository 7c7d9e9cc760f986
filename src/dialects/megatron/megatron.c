/* megatron.c - checkpoints of Megatron-LM in its legacy form (--ckpt-format torch); those of its
 * torch_dist form are read by dcp/.
 *
 *   latest_checkpointed_iteration.txt              a number, or "release"
 *   iter_0000005/mp_rank_TT[_PPP]/model_optim_rng.pt  {args, checkpoint_version, iteration, model
 *                                                     or model0.., ...}
 *
 * Tensors get the names of Hugging Face's Llama. docs/dialect-megatron.md has the layout. */
#include "base/base.h"
#include "dialects/common/dialects.h"

#include "base/file.h"
#include "catalog/boxes.h"
#include "dialects/common/megatron_model.h"
#include "dialects/common/save.h"
#include "dialects/common/vocabulary.h"

enum { MAX_CHUNKS = 256, MAX_NESTED = 8 };

typedef struct part {
    int tp, pp;
    bool staged;        /* the name has a stage */
    int64_t rank;       /* of the process that saved it, by args.rank; -1 = not known */
    char *path;         /* of model_optim_rng.pt, owned */
    sheaf_torch *torch; /* NULL: missing or damaged */
} part;

typedef struct reading {
    sheaf_catalog *c;
    const sheaf_dialect_hints *hints;
    const char *dir; /* iter_XXXXXXX */
    part *part;
    int64_t nparts;
    int tp, pp, vp;
    bool optimizer;  /* its parts lie in folders of their own */
    int64_t *layers; /* of chunk v of stage s: [v * pp + s]; -1 = not known */
    sheaf__megatron model;
} reading;

/* ---- names ---- */

/* mp_rank_TT, mp_rank_TT_PPP; *expert: one more number. */
static bool read_name(part *p, bool *expert, const char *name)
{
    int expert_rank;
    *p = (part){ 0 };
    *expert = false;
    if (!sheaf__take_word(&name, "mp_rank_") || !sheaf__take_number(&p->tp, &name))
        return false;
    p->staged = sheaf__take_word(&name, "_");
    if (p->staged && !sheaf__take_number(&p->pp, &name))
        return false;
    *expert = p->staged && sheaf__take_word(&name, "_");
    return (!*expert || sheaf__take_number(&expert_rank, &name)) && *name == '\0';
}

static bool is_part(const char *name)
{
    part p;
    bool expert;
    return read_name(&p, &expert, name);
}

static bool has_parts(const char *dir)
{
    return sheaf__path_kind(dir) == SHEAF_PATH_DIR && sheaf__holds_file(dir, is_part);
}

/* The folder of the parts for a file in it, a part's folder, the folder itself or the one above;
 * false when none fits. */
static bool folder_of(char dir[SHEAF_PATH_SIZE], const char *path)
{
    char next[SHEAF_PATH_SIZE];
    snprintf(dir, SHEAF_PATH_SIZE, "%s", path);
    for (int up = 0; up < 2 && !has_parts(dir); up++) {
        if (sheaf__path_kind(dir) != SHEAF_PATH_DIR || is_part(sheaf__last_part(dir)))
            sheaf__path_above(next, dir);
        else if (up > 0 || !sheaf__tracker_iteration(next, dir))
            return false;
        memcpy(dir, next, sizeof next);
    }
    return has_parts(dir);
}

/* The model with its optimizer's state; or, as the first distributed optimizer saved it, the model
 * alone, with the optimizer's parts in separate folders, mp_rank_TT[_PPP]_DDD/optim.pt, one for
 * each data-parallel rank. */
static const char *const model_names[] = { "model_optim_rng.pt", "model_rng.pt" };
enum { MODEL_NAMES = sizeof model_names / sizeof *model_names };

static bool megatron_is(const char *path)
{
    bool named = sheaf__path_kind(path) != SHEAF_PATH_FILE;
    for (int i = 0; i < MODEL_NAMES; i++)
        named = named || strcmp(sheaf__last_part(path), model_names[i]) == 0;
    char dir[SHEAF_PATH_SIZE];
    return named && folder_of(dir, path);
}

/* ---- files ---- */

/* The model's file in the folder `name`, existing or not. *moments: there is only an optimizer's
 * part. */
static const char *model_file(char path[SHEAF_PATH_SIZE], bool *moments, const reading *r,
                              const char *name)
{
    char folder[SHEAF_PATH_SIZE];
    sheaf__path_in(folder, r->dir, name);
    *moments = false;
    for (int i = 0; i < MODEL_NAMES; i++)
        if (sheaf__path_has(folder, model_names[i], SHEAF_PATH_NONE))
            return sheaf__path_in(path, folder, model_names[i]);
    *moments = sheaf__has_file(folder, "optim.pt");
    return sheaf__path_in(path, folder, model_names[0]);
}

static sheaf_status *find_parts(reading *r)
{
    char **names = NULL;
    int64_t n = 0;
    sheaf_status *st = sheaf__list_dir(&names, &n, r->dir);
    if (st == NULL && (r->part = calloc((size_t)n + 1, sizeof *r->part)) == NULL)
        st = sheaf__no_memory(r->dir);
    for (int64_t i = 0; st == NULL && i < n; i++) {
        part p;
        bool expert, moments;
        char path[SHEAF_PATH_SIZE];
        if (!read_name(&p, &expert, names[i]))
            continue;
        model_file(path, &moments, r, names[i]);
        if (moments)
            r->optimizer = true;
        else if (expert)
            st = sheaf__defect(r->c, "unsupported", path, "", "a model without experts", "",
                               "a part of expert parallelism");
        else if ((p.path = strdup(path)) == NULL)
            st = sheaf__no_memory(path);
        else
            r->part[r->nparts++] = p;
    }
    sheaf__names_free(names, n);
    return st;
}

static const sheaf_pickle *args_of(const part *p)
{
    return p->torch == NULL ? NULL : sheaf__pickle_get(p->torch->doc->root, "args");
}

static sheaf_status *open_parts(reading *r)
{
    sheaf_status *st = NULL;
    for (int64_t i = 0; st == NULL && i < r->nparts; i++) {
        part *p = &r->part[i];
        p->rank = -1;
        if (sheaf__path_kind(p->path) == SHEAF_PATH_NONE) {
            st = sheaf__missing_file(r->c, "", "the part's file", "%s", p->path);
            continue;
        }
        st = sheaf__catalog_defect(r->c, p->path, sheaf__torch_open(&p->torch, p->path));
        if (p->torch != NULL)
            sheaf__torch_close_file(p->torch);
        if (!sheaf__pickle_int(&p->rank, sheaf__pickle_get(args_of(p), "rank")) || p->rank < 0)
            p->rank = -1;
    }
    return st;
}

/* ---- agreement of the parts ---- */

static sheaf_status *check_versions(reading *r)
{
    sheaf_status *st = NULL;
    for (int64_t i = 0; st == NULL && i < r->nparts; i++) {
        double version = 0;
        if (r->part[i].torch == NULL)
            continue;
        sheaf__pickle_float(&version,
                            sheaf__pickle_get(r->part[i].torch->doc->root, "checkpoint_version"));
        if (!(version >= 2))
            st = sheaf__defect(
                r->c, "unsupported", r->part[i].path, "", "checkpoint_version 2 or later",
                "load and save it with a Megatron-LM that knows the old order of q, k and v",
                "checkpoint_version %g, whose q, k and v lie in another order", version);
    }
    return st;
}

static bool iteration_of(int64_t *step, const part *p)
{
    return p->torch != NULL &&
           sheaf__pickle_int(step, sheaf__pickle_get(p->torch->doc->root, "iteration"));
}

/* Iterations inside the files and in the folder's name. */
static sheaf_status *check_step(reading *r)
{
    const char *rest;
    const int64_t named = sheaf__step_of_name(&rest, r->dir, "iter_");
    int64_t newest = -1, step;
    sheaf_status *st = NULL;
    for (int64_t i = 0; i < r->nparts; i++)
        if (iteration_of(&step, &r->part[i]) && step > newest)
            newest = step;
    const int64_t want = named >= 0 ? named : newest;
    for (int64_t i = 0; st == NULL && i < r->nparts; i++) {
        char expected[64];
        if (!iteration_of(&step, &r->part[i]) || step == want)
            continue;
        snprintf(expected, sizeof expected, "iteration %" PRId64, want);
        st = sheaf__defect(r->c, "stale", r->part[i].path, "", expected,
                           "put the part of the same save here", "iteration %" PRId64, step);
    }
    r->c->step = want;
    return st;
}

/* Args that say the same in every part of one save. */
static sheaf_status *check_args(reading *r, const part *first)
{
    static const char *const keys[] = { "num_layers",
                                        "hidden_size",
                                        "ffn_hidden_size",
                                        "num_attention_heads",
                                        "num_query_groups",
                                        "kv_channels",
                                        "tensor_model_parallel_size",
                                        "pipeline_model_parallel_size",
                                        "padded_vocab_size",
                                        "rotary_base",
                                        "norm_epsilon",
                                        "params_dtype",
                                        "consumed_train_samples" };
    sheaf_status *st = NULL;
    for (int64_t i = 0; st == NULL && i < r->nparts; i++)
        for (size_t k = 0;
             st == NULL && k < sizeof keys / sizeof *keys && args_of(&r->part[i]) != NULL; k++) {
            const sheaf_pickle *a = sheaf__pickle_get(args_of(first), keys[k]),
                               *b = sheaf__pickle_get(args_of(&r->part[i]), keys[k]);
            if ((a != NULL || b != NULL) && !sheaf__values_equal(a, b))
                st = sheaf__defect(r->c, "conflict", r->part[i].path, "",
                                   "the args of the other parts",
                                   "put the parts of one save together",
                                   "another args.%s than in %s", keys[k], first->path);
        }
    return st;
}

/* Are ranks stated? Not if all readable parts state the same rank or none, as converters leave
 * them. */
static bool ranks_are_told(const reading *r)
{
    const part *first = NULL;
    bool several = false;
    for (int64_t i = 0; i < r->nparts; i++) {
        const part *p = &r->part[i];
        if (p->torch == NULL)
            continue;
        if (p->rank < 0)
            return false;
        first = first != NULL ? first : p;
        several = several || p->rank != first->rank;
    }
    return several;
}

/* args.rank is the process that saved the part: tensor-parallel ranks vary fastest, and later
 * stages have higher ranks. */
static sheaf_status *check_ranks(reading *r)
{
    sheaf_status *st = NULL;
    if (!ranks_are_told(r)) {
        r->c->by_names = r->nparts > 1;
        return NULL;
    }
    for (int64_t i = 0; st == NULL && i < r->nparts; i++) {
        const part *p = &r->part[i], *other = NULL;
        if (p->rank < 0)
            continue;
        for (int64_t k = 0; other == NULL && k < i; k++)
            if (r->part[k].rank == p->rank || (r->part[k].tp == p->tp && r->part[k].rank > p->rank))
                other = &r->part[k];
        if (other != NULL)
            st = sheaf__defect(r->c, other->rank == p->rank ? "duplicate" : "conflict", p->path, "",
                               "the part that another process saved, of a later rank",
                               other->rank == p->rank
                                   ? "copy part by part again from where the checkpoint was written"
                                   : "give the parts back their names",
                               "args.rank %" PRId64 ", where %s has %" PRId64, p->rank, other->path,
                               other->rank);
        else if (p->rank % r->tp != p->tp)
            st = sheaf__defect(r->c, "conflict", p->path, "",
                               "the part of this tensor-parallel rank",
                               "give the parts back their names",
                               "args.rank %" PRId64 ", whose tensor-parallel rank is %" PRId64,
                               p->rank, p->rank % r->tp);
    }
    return st;
}

static sheaf_status *report_missing_part(reading *r, int tp, int pp, bool staged)
{
    static const char every[] = "every part of the save";
    return staged ? sheaf__missing_file(r->c, "", every, "%s/mp_rank_%02d_%03d/model_optim_rng.pt",
                                        r->dir, tp, pp)
                  : sheaf__missing_file(r->c, "", every, "%s/mp_rank_%02d/model_optim_rng.pt",
                                        r->dir, tp);
}

static part *part_of(const reading *r, int tp, int pp)
{
    for (int64_t i = 0; i < r->nparts; i++)
        if (r->part[i].tp == tp && r->part[i].pp == pp)
            return &r->part[i];
    return NULL;
}

static sheaf_status *check_sizes(reading *r)
{
    int tp = 0, pp = 0;
    bool staged = false;
    sheaf_status *st = NULL;
    for (int64_t i = 0; i < r->nparts; i++) {
        tp = r->part[i].tp + 1 > tp ? r->part[i].tp + 1 : tp;
        pp = r->part[i].pp + 1 > pp ? r->part[i].pp + 1 : pp;
        staged |= r->part[i].staged;
    }
    r->tp = r->model.tp > 0 && r->model.tp < SHEAF__MOST_RANKS ? (int)r->model.tp : tp;
    r->pp = r->model.pp > 0 && r->model.pp < SHEAF__MOST_RANKS ? (int)r->model.pp : pp;
    if (tp > r->tp || pp > r->pp) {
        st = sheaf__defect(r->c, "conflict", r->dir, "", "as many parts as the args say", "",
                           "%d x %d parts in a save of %d tensor-parallel ranks and %d stages", tp,
                           pp, r->tp, r->pp);
        r->tp = tp > r->tp ? tp : r->tp;
        r->pp = pp > r->pp ? pp : r->pp;
    }
    for (int s = 0; st == NULL && s < r->pp; s++)
        for (int t = 0; st == NULL && t < r->tp; t++)
            if (part_of(r, t, s) == NULL)
                st = report_missing_part(r, t, s, staged || r->pp > 1);
    r->c->tp = r->tp;
    r->c->pp = r->pp;
    return st;
}

/* ---- layers of the stages ---- */

/* Virtual stage v: `model` where there is one, else `model0` ...; NULL when there are no more. */
static const sheaf_pickle *chunk_of(const part *p, int v)
{
    char key[32];
    const sheaf_pickle *one = sheaf__pickle_get(p->torch->doc->root, "model");
    if (one != NULL)
        return v == 0 ? one : NULL;
    snprintf(key, sizeof key, "model%d", v);
    return sheaf__pickle_get(p->torch->doc->root, key);
}

/* Calls `each` for every tensor of nested dicts, with its whole name. */
typedef sheaf_status *(*each_tensor)(reading *r, const part *p, const char *name,
                                     const sheaf_pickle_tensor *t, int64_t *state);

static sheaf_status *add_tensor(reading *r, const part *p, const char *name,
                                const sheaf_pickle_tensor *t, int64_t *first);

static sheaf_status *walk(reading *r, const part *p, const sheaf_pickle *dict, const char *prefix,
                          int depth, each_tensor each, int64_t *state)
{
    sheaf_status *st = NULL;
    for (int64_t i = 0; st == NULL && i < sheaf__pickle_count(dict); i++) {
        const char *key = sheaf__pickle_text(sheaf__pickle_key(dict, i));
        const sheaf_pickle *value = sheaf__pickle_value(dict, i);
        const sheaf_pickle_tensor *t = sheaf__pickle_tensor(p->torch->doc, value);
        char name[512];
        if (key == NULL || (size_t)snprintf(name, sizeof name, "%s%s%s", prefix,
                                            *prefix != '\0' ? "." : "", key) >= sizeof name)
            continue;
        if (t != NULL)
            st = each(r, p, name, t, state);
        else if (sheaf__pickle_is(value, SHEAF_PICKLE_DICT) && depth < MAX_NESTED)
            st = walk(r, p, value, name, depth + 1, each, state);
        else if (each == add_tensor)
            st = sheaf__dialect_unread(NULL, r->c, p->path, name, value);
    }
    return st;
}

static sheaf_status *count_layer(reading *r, const part *p, const char *name,
                                 const sheaf_pickle_tensor *t, int64_t *most)
{
    bool stacked;
    const int64_t n = sheaf__megatron_layer(name, &stacked) + 1;
    *most = n > *most ? n : *most;
    return NULL;
}

/* How many layers each chunk of each stage has: layers are counted anew in each. */
static sheaf_status *count_layers(reading *r)
{
    r->vp = 1;
    for (int64_t i = 0; i < r->nparts; i++)
        while (r->part[i].torch != NULL && r->vp < MAX_CHUNKS &&
               chunk_of(&r->part[i], r->vp) != NULL)
            r->vp++;
    const int64_t chunks = (int64_t)r->vp * r->pp;
    r->layers = calloc((size_t)chunks, sizeof *r->layers);
    if (r->layers == NULL)
        return sheaf__no_memory(r->dir);
    int64_t sum = 0, unknown = 0;
    for (int v = 0; v < r->vp; v++)
        for (int s = 0; s < r->pp; s++) {
            int64_t *n = &r->layers[v * r->pp + s];
            *n = -1;
            for (int t = 0; t < r->tp; t++) {
                const part *p = part_of(r, t, s);
                sheaf_status *st = p != NULL && p->torch != NULL
                                       ? walk(r, p, chunk_of(p, v), "", 0, count_layer, n)
                                       : NULL;
                if (st != NULL)
                    return st;
            }
            unknown += *n < 0;
            sum += *n > 0 ? *n : 0;
        }
    const int64_t left = r->model.layers > sum ? r->model.layers - sum : 0;
    for (int64_t i = 0; i < chunks; i++) /* a missing stage has the remaining layers */
        if (r->layers[i] < 0)
            r->layers[i] = left / unknown;
    if (unknown == 0 && sum != r->model.layers)
        return sheaf__defect(r->c, "conflict", r->dir, "", "as many layers as args.num_layers says",
                             "", "%" PRId64 " layers in the stages, %" PRId64 " in the args", sum,
                             r->model.layers);
    return NULL;
}

/* ---- tensors ---- */

static sheaf_status *add_tensor(reading *r, const part *p, const char *name,
                                const sheaf_pickle_tensor *t, int64_t *first)
{
    sheaf__megatron_targets targets = { 0 };
    sheaf__megatron_word word;
    bool stacked;
    const int64_t layer = sheaf__megatron_layer(name, &stacked);
    sheaf_status *st = sheaf__megatron_targets_of(&targets, &word, &r->model, name,
                                                  layer < 0 ? -1 : *first + layer, t->ndim,
                                                  t->shape, p->tp, r->tp);
    if (st == NULL && stacked && word == SHEAF_MEGATRON_MAPPED)
        word = SHEAF_MEGATRON_UNKNOWN;
    if (st == NULL && word == SHEAF_MEGATRON_UNKNOWN)
        st = sheaf__defect(r->c, "unsupported", p->path, name, "tensors of a Llama model", "",
                           "a tensor that it does not have");
    else if (st == NULL && word == SHEAF_MEGATRON_MISFIT) {
        char shape[128];
        st = sheaf__defect(r->c, "shape", p->path, name,
                           "the part of this rank by the sizes in the args", "", "%s",
                           sheaf__show_shape(shape, t->ndim, t->shape));
    } else if (st == NULL && word == SHEAF_MEGATRON_MAPPED && r->model.padded >= 0 &&
               sheaf__is_vocabulary(targets.at[0].name) && t->shape[0] * r->tp != r->model.padded)
        /* rows of the other ranks would be misplaced */
        st = sheaf__defect(r->c, "shape", p->path, name,
                           "this rank's rows of the tables, as the args and the other parts "
                           "say",
                           "put the parts of one save together",
                           "%" PRId64 " rows, in a save of %d ranks with %" PRId64 " rows in all",
                           t->shape[0], r->tp, r->model.padded);
    else if (st == NULL && word == SHEAF_MEGATRON_MAPPED) {
        int file;
        st = sheaf__catalog_file(&file, r->c, p->path, &p->torch->mark);
        const sheaf_piece piece = sheaf__piece_of(file, p->tp, p->torch, t);
        TRY(st, sheaf__megatron_add(r->c, &targets, &piece));
        if (sheaf__is_vocabulary(targets.at[0].name) && r->model.padded < 0)
            r->model.padded = t->shape[0] * r->tp;
    }
    free(targets.at);
    return sheaf__catalog_defect(r->c, p->path, st);
}

static sheaf_status *add_parts(reading *r)
{
    sheaf_status *st = NULL;
    for (int64_t i = 0; st == NULL && i < r->nparts; i++) {
        const part *p = &r->part[i];
        for (int v = 0; st == NULL && p->torch != NULL && v < r->vp; v++) {
            int64_t first = 0;
            for (int64_t k = 0; k < (int64_t)v * r->pp + p->pp; k++)
                first += r->layers[k];
            if (chunk_of(p, v) != NULL)
                st = walk(r, p, chunk_of(p, v), "", 0, add_tensor, &first);
            else
                st = sheaf__defect(r->c, "missing", p->path, "",
                                   "the model, or each of its virtual stages", "",
                                   "no virtual stage %d", v);
        }
    }
    return st;
}

/* The optimizer's masters and moments have no names. */
static sheaf_status *note_optimizer(reading *r)
{
    const char *path = r->optimizer ? r->dir : NULL;
    for (int64_t i = 0; path == NULL && i < r->nparts; i++)
        if (r->part[i].torch != NULL &&
            sheaf__pickle_get(r->part[i].torch->doc->root, "optimizer") != NULL)
            path = r->part[i].path;
    return path == NULL
               ? NULL
               : sheaf__note(
                     r->c, "unsupported", path, "", "", "",
                     "the optimizer's state has no names: it is not read, the weights are those of the model");
}

/* ---- all of it ---- */

static sheaf_status *read_all(reading *r)
{
    const part *first = NULL;
    sheaf_status *st = find_parts(r);
    TRY(st, open_parts(r));
    for (int64_t i = 0; i < r->nparts && first == NULL; i++)
        if (args_of(&r->part[i]) != NULL)
            first = &r->part[i];
    if (st == NULL && first == NULL)
        return sheaf__defect(r->c, "missing", r->dir, "", "a part with the args of the run", "",
                             "none that can be read");
    TRY(st, check_versions(r));
    TRY(st, check_step(r));
    TRY(st, sheaf__megatron_args(&r->model, r->c, args_of(first), first->path, r->hints->config));
    TRY(st, check_sizes(r));
    TRY(st, check_args(r, first));
    TRY(st, check_ranks(r));
    if (st == NULL && r->model.layers > 0) {
        st = count_layers(r);
        TRY(st, add_parts(r));
        TRY(st, note_optimizer(r));
        TRY(st, sheaf__megatron_complete(r->c, &r->model, r->dir));
    }
    return st;
}

static sheaf_status *megatron_read(sheaf_catalog *c, const char *path,
                                   const sheaf_dialect_hints *hints)
{
    char dir[SHEAF_PATH_SIZE];
    reading r = { .c = c, .hints = hints, .dir = dir };
    if (!folder_of(dir, path))
        return sheaf_expected(sheaf_fail(SHEAF_E_IO, "%s", path), "%s, or a folder with mp_rank_00",
                              sheaf__iteration_tracker);
    sheaf_status *st = read_all(&r);
    for (int64_t i = 0; i < r.nparts; i++) {
        free(r.part[i].path);
        sheaf__torch_close(r.part[i].torch);
    }
    sheaf__megatron_release(&r.model);
    free(r.part);
    free(r.layers);
    return st;
}

const sheaf_dialect sheaf__dialect_megatron = {
    .name = "megatron",
    .title = "Megatron-LM (legacy)",
    .is = megatron_is,
    .read = megatron_read,
    .training = true,
};
