/* colossalai.c - saves of ColossalAI's booster, also incomplete ones.
 *
 *   model-00001.safetensors ..., model.safetensors.index.json      gathered over the ranks; the
 *                                                                  name has no "-of-"
 *   model-stage-00001-shard-00001.safetensors ...                  with pipeline stages
 *   tmp_index_files/                                               left by a killed save
 *   pytorch_optim-00001.bin ..., pytorch_optim.bin.index.json,     moments by number, not by name
 *     pytorch_optim_group.bin
 *   modeling/, optimizer/, running_states.json                     folders of its training examples
 *   tp_rank_00.safetensors ...                                     the ranks' own tensors, saved by
 *                                                                  hand
 *
 * A complete model is in Hugging Face's form. Versions 0.3.7 to 0.4.7 wrote rank 0's rows of the
 * two vocabulary tables as if they were all; the other ranks' rows, given as further folders,
 * complete them.
 *
 * Moments are stored by number. A parameter's number is its place in the optimizer's groups, one
 * group after the other. Which parameters a group holds is not stored: those with weight decay (all
 * but norms and biases) come first or last, or there is one group of all, each in the model's own
 * order. Number of members and every shape must fit one of these; nothing is guessed. */
#include <math.h>

#include "base/base.h"
#include "base/file.h"
#include "base/json.h"
#include "catalog/boxes.h"
#include "dialects/common/dialects.h"
#include "dialects/common/model.h"
#include "dialects/common/model_folder.h"
#include "dialects/common/whole.h"
#include "dialects/common/save.h"
#include "dialects/common/vocabulary.h"
#include "formats/torch.h"

/* ---- names of files ---- */

static bool numbered(const char *name, const char *begin, const char *end)
{
    const size_t n = strlen(begin);
    if (strncmp(name, begin, n) != 0)
        return false;
    const size_t digits = strspn(name + n, "0123456789");
    return digits > 0 && strcmp(name + n + digits, end) == 0;
}

static bool is_rank(const char *name)
{
    return numbered(name, "tp_rank_", ".safetensors") || numbered(name, "tp_rank_", ".bin") ||
           numbered(name, "tp_rank_", ".pt");
}

static bool is_model(const char *name)
{
    return numbered(name, "model-", ".safetensors") || numbered(name, "pytorch_model-", ".bin") ||
           strncmp(name, "model-stage-", 12) == 0 || strncmp(name, "pytorch_model-stage-", 20) == 0;
}

static bool is_optimizer(const char *name)
{
    return strcmp(name, "pytorch_optim.bin.index.json") == 0 ||
           strcmp(name, "pytorch_optim_group.bin") == 0 ||
           numbered(name, "pytorch_optim-", ".bin") ||
           strncmp(name, "pytorch_optim-stage-", 20) == 0;
}

static bool is_ours(const char *name)
{
    return is_rank(name) || is_model(name) || is_optimizer(name) ||
           strcmp(name, "tmp_index_files") == 0;
}

static bool colossalai_is(const char *path)
{
    if (sheaf__path_kind(path) != SHEAF_PATH_DIR)
        return is_rank(sheaf__last_part(path));
    return sheaf__holds_file(path, is_ours) || (sheaf__has_file(path, "running_states.json") &&
                                                sheaf__path_has(path, "modeling", SHEAF_PATH_NONE));
}

enum { MOST_PARAMETERS = 1 << 20 };

static const char *const keys[] = { "exp_avg", "exp_avg_sq" };
enum { KEYS = 2 };

typedef struct reading {
    sheaf_catalog *c;
    const char *dir;
    int64_t count, nfirst; /* parameters in all groups; in the first group */
    int groups;
    int64_t *at; /* [count] index into spec by number; NULL = names are unknown */
    sheaf_schema *schema;
    sheaf_safetensors_spec *spec;
} reading;

/* ---- the groups ---- */

static sheaf_status *open_group(reading *r, const sheaf__names *names)
{
    char path[SHEAF_PATH_SIZE];
    sheaf_torch *file = NULL;
    if (!sheaf__names_has(names, "pytorch_optim_group.bin"))
        return sheaf__warning(r->c, "missing", r->dir, "", "pytorch_optim_group.bin", "copy it too",
                              "no groups of parameters");
    sheaf_status *st =
        sheaf__torch_open(&file, sheaf__path_in(path, r->dir, "pytorch_optim_group.bin"));
    if (st != NULL)
        return sheaf__catalog_defect(r->c, path, st);
    const sheaf_pickle *root = file->doc->root;
    int64_t next = 0;
    bool odd = !sheaf__pickle_is(root, SHEAF_PICKLE_LIST) || sheaf__pickle_count(root) > 64;
    for (int64_t g = 0; !odd && g < sheaf__pickle_count(root); g++) {
        const sheaf_pickle *params = sheaf__pickle_get(sheaf__pickle_item(root, g), "params");
        const int64_t n = sheaf__pickle_count(params);
        for (int64_t i = 0; !odd && i < n; i++) {
            int64_t id;
            odd = !sheaf__pickle_int(&id, sheaf__pickle_item(params, i)) || id != next++ ||
                  next > MOST_PARAMETERS;
        }
        r->nfirst = g == 0 ? n : r->nfirst;
        r->groups++;
    }
    r->count = odd ? 0 : next;
    if (odd)
        st = sheaf__defect(r->c, "damaged", path, "", "groups whose parameters count from 0", "",
                           "something else");
    sheaf__torch_close(file);
    return st;
}

/* ---- names of moments ---- */

typedef enum order { ONE_GROUP, DECAYED_FIRST, DECAYED_LAST, ORDERS } order;
static const char *const order_text[] = { "one group in the model's order",
                                          "first the decayed group, then norms and biases",
                                          "first norms and biases, then the decayed group" };

/* Fills r->at; false when the numbers of members do not fit. */
static bool arrange(reading *r, order how)
{
    int64_t n = 0, first = 0;
    for (int pass = 0; pass < 2; pass++)
        for (int64_t i = 0; i < r->count; i++) {
            const bool now = how == ONE_GROUP
                                 ? pass == 0
                                 : (r->spec[i].ndim > 1) == ((how == DECAYED_FIRST) == (pass == 0));
            if (now)
                r->at[n++] = i;
            first += now && pass == 0;
        }
    return how == ONE_GROUP ? r->groups == 1 : r->groups == 2 && first == r->nfirst;
}

static sheaf_status *find_names(reading *r)
{
    sheaf_config config;
    int64_t n = 0;
    if (r->c->config == NULL || r->count == 0)
        return NULL;
    sheaf_status *st = sheaf_config_parse(&config, r->c->config, strlen(r->c->config));
    if (st != NULL) {
        sheaf_status_free(st); /* reported by the check of the weights */
        return NULL;
    }
    st = sheaf_schema_new(&r->schema, &config, 1);
    sheaf_config_release(&config);
    TRY(st, sheaf_hf_specs(&r->spec, &n, r->schema, NULL, SHEAF_F32));
    if (st != NULL)
        return sheaf__catalog_defect(r->c, r->dir, st);
    if (n != r->count)
        return sheaf__defect(r->c, "conflict", r->dir, "",
                             "a moment for each parameter of the config",
                             "give the path of this model's config.json with `config`",
                             "%" PRId64 " parameters for %" PRId64, r->count, n);
    r->at = calloc((size_t)n, sizeof *r->at);
    return r->at == NULL ? sheaf__no_memory(r->dir) : NULL;
}

/* ---- values ---- */

static sheaf_status *take_step(reading *r, const sheaf_torch *file, const sheaf_pickle *state)
{
    double step;
    if (!sheaf__torch_number(&step, file, sheaf__pickle_get(state, "step")) ||
        !(step >= 0 && step < 1e15) || step != floor(step))
        return NULL;
    if (r->c->step < 0)
        r->c->step = (int64_t)step;
    if (r->c->step == (int64_t)step)
        return NULL;
    char expected[40];
    snprintf(expected, sizeof expected, "step %" PRId64, r->c->step);
    return sheaf__defect(r->c, "stale", file->path, "", expected, "take all files of one save",
                         "moments of step %" PRId64, (int64_t)step);
}

/* Moments by number, "exp_avg.7", until they are named. */
static sheaf_status *take_state(reading *r, const sheaf_torch *file, int64_t id,
                                const sheaf_pickle *state)
{
    sheaf_status *st = take_step(r, file, state);
    for (int k = 0; st == NULL && k < KEYS; k++) {
        const sheaf_pickle_tensor *t =
            sheaf__pickle_tensor(file->doc, sheaf__pickle_get(state, keys[k]));
        char name[64];
        snprintf(name, sizeof name, "%s.%" PRId64, keys[k], id);
        if (t == NULL || sheaf__catalog_find(r->c, name) != NULL)
            st = sheaf__defect(r->c, t == NULL ? "missing" : "duplicate", file->path, name,
                               "one such moment", "copy the files of one save again", "%s",
                               t == NULL ? "none" : "it is in another file too");
        else
            st = sheaf__catalog_defect(r->c, file->path,
                                       sheaf__catalog_put(r->c, SHEAF_MOMENT, name, file, t, -1));
    }
    return st;
}

static sheaf_status *take_file(reading *r, const char *path)
{
    sheaf_torch *file = NULL;
    sheaf_status *st = sheaf__torch_open(&file, path);
    if (st != NULL)
        return sheaf__catalog_defect(r->c, path, st);
    const sheaf_pickle *root = file->doc->root;
    for (int64_t i = 0; st == NULL && i < sheaf__pickle_count(root); i++) {
        int64_t id;
        if (sheaf__pickle_int(&id, sheaf__pickle_key(root, i)))
            st = take_state(r, file, id, sheaf__pickle_value(root, i));
    }
    sheaf__torch_close(file);
    return st;
}

/* ---- naming the moments ---- */

static sheaf_logical *moment(const reading *r, int key, int64_t id)
{
    char name[64];
    snprintf(name, sizeof name, "%s.%" PRId64, keys[key], id);
    return sheaf__catalog_find(r->c, name);
}

/* Could this be the moment of that parameter? Rows of a vocabulary are checked later. */
static bool fits(const sheaf_logical *t, const sheaf_safetensors_spec *s)
{
    bool same = t->entry.ndim == s->ndim;
    for (int d = 0; same && d < s->ndim; d++)
        same = t->entry.shape[d] == s->shape[d] || (d == 0 && sheaf__is_vocabulary(s->name));
    return same;
}

static bool all_fit(reading *r, order how)
{
    bool yes = arrange(r, how);
    for (int64_t id = 0; yes && id < r->count; id++) {
        const sheaf_safetensors_spec *s = &r->spec[r->at[id]];
        for (int k = 0; yes && k < KEYS; k++) {
            const sheaf_logical *t = moment(r, k, id);
            yes = t == NULL || fits(t, s);
        }
    }
    return yes;
}

static sheaf_status *rename_all(reading *r)
{
    sheaf_status *st = NULL;
    for (int64_t id = 0; st == NULL && id < r->count; id++)
        for (int k = 0; st == NULL && k < KEYS; k++) {
            sheaf_logical *t = moment(r, k, id);
            sheaf_text text = { 0 };
            char *name = NULL, number[32];
            if (t == NULL) {
                snprintf(number, sizeof number, "number %" PRId64, id);
                st = sheaf__defect(r->c, "missing", r->dir, r->spec[r->at[id]].name, keys[k],
                                   "copy the other files of this save too", "%s", number);
                continue;
            }
            sheaf__text_add(&text, "%s.%s", keys[k], r->spec[r->at[id]].name);
            st = sheaf__text_take(&name, &text);
            if (st != NULL)
                continue;
            free((char *)t->entry
                     .name); /* its slot in the table of names goes stale until the sort below */
            t->entry.name = name;
        }
    return st != NULL ? st : sheaf__catalog_sort(r->c);
}

static sheaf_status *check_tables(reading *r)
{
    sheaf_status *st = NULL;
    for (int64_t i = 0; st == NULL && i < r->c->count; i++) {
        sheaf_logical *t = &r->c->tensor[i];
        if (t->kind == SHEAF_MOMENT && sheaf__is_vocabulary(t->entry.name) &&
            t->entry.shape[0] != r->schema->config.vocab)
            st = sheaf__catalog_check_rows(r->c, t, r->schema->config.vocab);
    }
    return st;
}

/* The numbers in the groups must be exactly those of the moments, with or without names (missing
 * ones are reported by name if there are names). */
static sheaf_status *check_numbers(reading *r)
{
    sheaf_status *st = NULL;
    for (int64_t i = 0; st == NULL && r->count > 0 && i < r->c->count; i++) {
        const sheaf_logical *t = &r->c->tensor[i];
        const char *digits = t->kind == SHEAF_MOMENT ? strrchr(t->entry.name, '.') : NULL;
        if (digits != NULL && strspn(digits + 1, "0123456789") == strlen(digits + 1) &&
            strtoll(digits + 1, NULL, 10) >= r->count)
            st = sheaf__defect(
                r->c, "foreign", t->npieces > 0 ? r->c->file[t->piece[0].file].path : r->dir,
                t->entry.name, "the parameters of the groups", "copy the files of one save again",
                "one more, where the groups have %" PRId64, r->count);
    }
    for (int64_t id = 0; st == NULL && r->at == NULL && id < r->count; id++)
        for (int k = 0; st == NULL && k < KEYS; k++)
            if (moment(r, k, id) == NULL)
                st = sheaf__defect(r->c, "missing", r->dir, "",
                                   "moments of every parameter of the groups",
                                   "copy the other files of this save too",
                                   "no %s of number %" PRId64, keys[k], id);
    return st;
}

/* A file that the index names and that is not here. */
static sheaf_status *check_index(const reading *r, const sheaf__names *names)
{
    static const char index[] = "pytorch_optim.bin.index.json";
    char path[SHEAF_PATH_SIZE];
    json_t *root = NULL, *listed = json_object();
    if (listed == NULL)
        return sheaf__no_memory(r->dir);
    sheaf__path_in(path, r->dir, index);
    sheaf_status *st = sheaf__names_has(names, index)
                           ? sheaf__catalog_defect(r->c, path, sheaf__json_load(&root, path))
                           : NULL;
    const char *number;
    json_t *value;
    json_object_foreach(json_object_get(root, "weight_map"), number, value)
    {
        const char *file = json_string_value(value);
        if (st != NULL || file == NULL || sheaf__names_has(names, file) ||
            json_object_get(listed, file) != NULL)
            continue;
        st = sheaf__defect(r->c, "missing", path, "", "every file that the index names",
                           "copy the other files of this save too", "no %.200s", file);
        TRY(st,
            json_object_set_new(listed, file, json_true()) != 0 ? sheaf__no_memory(path) : NULL);
    }
    json_decref(listed);
    json_decref(root);
    return st;
}

static sheaf_status *name_moments(reading *r)
{
    if (r->at == NULL)
        return r->c->config != NULL
                   ? NULL
                   : sheaf__warning(r->c, "missing", r->dir, "", "the model's config.json",
                                    sheaf__config_cure(r->c),
                                    "names of parameters are not in these files, only numbers");
    for (order how = ONE_GROUP; how < ORDERS; how++) {
        if (!all_fit(r, how))
            continue;
        sheaf_status *st = sheaf__note(r->c, "inferred", r->dir, "", "", "", "%s", order_text[how]);
        TRY(st, rename_all(r));
        return st != NULL ? st : check_tables(r);
    }
    return sheaf__defect(
        r->c, "conflict", r->dir, "", "groups of the parameters that the config describes",
        "give the path of this model's config.json with `config`", "shapes that fit in no order");
}

/* The moments in `dir`, named by the order of the model's parameters; sets the step. */
static sheaf_status *read_optimizer(sheaf_catalog *c, const char *dir, const sheaf__names *names)
{
    reading r = { .c = c, .dir = dir };
    sheaf_status *st = open_group(&r, names);
    TRY(st, find_names(&r));
    for (int64_t i = 0; st == NULL && i < names->count; i++) {
        char path[SHEAF_PATH_SIZE];
        if (!is_optimizer(names->at[i]) || !sheaf__ends_with(names->at[i], ".bin") ||
            strcmp(names->at[i], "pytorch_optim_group.bin") == 0)
            continue;
        st = take_file(&r, sheaf__path_in(path, dir, names->at[i]));
    }
    TRY(st, check_index(&r, names));
    TRY(st, check_numbers(&r));
    TRY(st, name_moments(&r));
    free(r.at);
    free(r.spec);
    sheaf_schema_free(r.schema);
    return st;
}

/* ---- reading ---- */

static sheaf_status *note_leftovers(sheaf_catalog *c, const char *dir, const sheaf__names *names)
{
    char path[SHEAF_PATH_SIZE];
    if (!sheaf__names_has(names, "tmp_index_files"))
        return NULL;
    const bool merged = sheaf__names_has(names, "model.safetensors.index.json") ||
                        sheaf__names_has(names, "pytorch_model.bin.index.json");
    return sheaf__warning(c, "stale", sheaf__path_in(path, dir, "tmp_index_files"), "",
                          "no such folder once a save is complete",
                          merged ? "delete it" : "sheaf convert {} {+indexed} --to hf{config}",
                          "left by a save that was killed%s",
                          merged ? "; the index is there all the same"
                                 : " before it wrote its index");
}

/* The weights and the optimizer in one folder. */
static sheaf_status *read_dir(bool *damaged, sheaf_catalog *c, const char *dir,
                              const sheaf_dialect_hints *hints, bool config)
{
    sheaf__whole whole = { .c = c, .rank = -1 };
    sheaf__names names = { 0 };
    bool weights = false, optimizer = false;
    sheaf_status *st = sheaf__list_dir(&names.at, &names.count, dir);
    for (int64_t i = 0; i < names.count; i++) {
        const bool moments = is_optimizer(names.at[i]);
        optimizer = optimizer || moments;
        weights = weights || (!moments && !is_rank(names.at[i]) &&
                              (is_model(names.at[i]) || strncmp(names.at[i], "model.", 6) == 0 ||
                               strncmp(names.at[i], "pytorch_model", 13) == 0));
    }
    if (st == NULL && config && c->config == NULL)
        st = sheaf__catalog_find_config(c, hints, dir, "config.json");
    if (st == NULL && (weights || !optimizer))
        st = sheaf__whole_folder(damaged, &whole, dir, &names);
    TRY(st, note_leftovers(c, dir, &names));
    TRY(st, optimizer ? read_optimizer(c, dir, &names) : NULL);
    sheaf__names_free(names.at, names.count);
    return st;
}

static sheaf_status *read_step(sheaf_catalog *c, const char *path)
{
    json_t *root = NULL;
    sheaf_status *st = sheaf__json_load(&root, path);
    if (st != NULL)
        return sheaf__catalog_defect(c, path, st);
    const json_t *step = json_object_get(root, "step");
    if (c->step < 0 && json_is_integer(step) && json_integer_value(step) >= 0)
        c->step = json_integer_value(step);
    json_decref(root);
    return NULL;
}

/* modeling/, optimizer/, running_states.json */
static sheaf_status *read_training(bool *damaged, sheaf_catalog *c, const char *path,
                                   const sheaf_dialect_hints *hints)
{
    char inner[SHEAF_PATH_SIZE];
    sheaf_status *st = read_dir(damaged, c, sheaf__path_in(inner, path, "modeling"), hints, true);
    if (st == NULL && sheaf__path_has(path, "optimizer", SHEAF_PATH_DIR))
        st = read_dir(damaged, c, sheaf__path_in(inner, path, "optimizer"), hints, false);
    if (st == NULL && sheaf__has_file(path, "running_states.json"))
        st = read_step(c, sheaf__path_in(inner, path, "running_states.json"));
    return st;
}

static sheaf_status *read_ranks(sheaf_catalog *c, const char *path,
                                const sheaf_dialect_hints *hints)
{
    char above[SHEAF_PATH_SIZE];
    const bool folder = sheaf__path_kind(path) == SHEAF_PATH_DIR;
    sheaf_status *st = sheaf__catalog_find_config(
        c, hints, folder ? path : sheaf__path_above(above, path), "config.json");
    return TRY(st, sheaf__rank_parts_join(c, path, hints->also, NULL));
}

static bool is_optimizers(const char *path)
{
    return sheaf__path_kind(path) == SHEAF_PATH_DIR && sheaf__holds_file(path, is_optimizer);
}

/* Further folders: an optimizer's, or other ranks' parts. */
static sheaf_status *read_also(bool *damaged, sheaf_catalog *c, const sheaf_dialect_hints *hints)
{
    sheaf_status *st = NULL;
    for (const char *const *also = hints->also; st == NULL && *also != NULL; also++)
        if (is_optimizers(*also))
            st = read_dir(damaged, c, *also, hints, false);
    return TRY(st, sheaf__rank_parts_join(c, NULL, hints->also, is_optimizers));
}

static sheaf_status *colossalai_read(sheaf_catalog *c, const char *path,
                                     const sheaf_dialect_hints *hints)
{
    bool damaged = false;
    sheaf_status *st;
    if (sheaf__holds_file(path, is_rank)) {
        st = read_ranks(c, path, hints);
        return st != NULL ? st : sheaf__catalog_check_model(c, false);
    }
    st = sheaf__path_has(path, "modeling", SHEAF_PATH_DIR)
             ? read_training(&damaged, c, path, hints)
             : read_dir(&damaged, c, path, hints, true);
    TRY(st, hints->also != NULL ? read_also(&damaged, c, hints) : NULL);
    bool weights = false;
    for (int64_t i = 0; i < c->count; i++)
        weights = weights || c->tensor[i].kind == SHEAF_WEIGHT;
    return st != NULL || (!weights && !damaged) ? st : sheaf__catalog_check_model(c, damaged);
}

const sheaf_dialect sheaf__dialect_colossalai = {
    .name = "colossalai",
    .title = "ColossalAI",
    .is = colossalai_is,
    .read = colossalai_read,
    .folders = true,
    .hf_config = true,
};
