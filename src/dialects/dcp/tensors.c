/* tensors.c - the tensors of .metadata under the names of their model.
 *
 * A key is the path of a value in the dict that was saved, joined by dots; planner_data keeps the
 * path. The dict of the model is its first component ("model" in {"model": model.state_dict(),
 * ...}) and no part of a tensor's name; there may be one dict around it and the optimizer's ("app"
 * in {"app": {"model": ..., "optim": ...}}). In an optimizer's dict the path ends in parameter,
 * exp_avg.
 * Without paths, "model." is taken away where every key has it and "model.model." or
 * "model.lm_head." shows that it comes twice. */
#include "base/base.h"
#include "dialects/dcp/private.h"

/* ---- keys ---- */

typedef enum role { ROLE_WEIGHT, ROLE_MOMENT, ROLE_OPTIMIZER, ROLE_OTHER } role;

static bool is_optimizer(const char *top)
{
    return top != NULL && (strncmp(top, "optim", 5) == 0 || strstr(top, "optimizer") != NULL);
}

/* The name behind "state" in an optimizer's key, and the moment: "NAME.exp_avg", or torch_dist's
 * "exp_avg.NAME". */
static role optimizer_role(const char **moment, const char **name, size_t *length, const char *key)
{
    static const char *const moments[] = { "exp_avg_sq", "exp_avg" };
    const char *at = strstr(key, "state.");
    if (at == NULL || (at != key && at[-1] != '.'))
        return ROLE_OPTIMIZER;
    at += strlen("state.");
    for (size_t i = 0; i < 2; i++) {
        const size_t n = strlen(at), m = strlen(moments[i]);
        if (n > m + 1 && at[n - m - 1] == '.' && strcmp(at + n - m, moments[i]) == 0) {
            *moment = moments[i];
            *name = at;
            *length = n - m - 1;
            return ROLE_MOMENT;
        }
    }
    return ROLE_OPTIMIZER;
}

static bool is_usual(const char *name)
{
    static const char *const usual[] = { "model", "module", "state_dict", "model_state_dict" };
    for (size_t k = 0; name != NULL && k < sizeof usual / sizeof *usual; k++)
        if (strcmp(name, usual[k]) == 0)
            return true;
    return false;
}

/* The component `i` of a path if it is a dict's name; NULL for the last one, which is a tensor's.
 */
static const char *dict_of(const sheaf_pickle *path, int64_t i)
{
    return sheaf__pickle_count(path) > i + 1 ? sheaf__pickle_text(sheaf__pickle_item(path, i))
                                             : NULL;
}

/* Finds the dict around those of model and optimizer, as in {"app": {"model": ..., "optim": ...}}
 * of PyTorch's tutorial: it contains an optimizer, or only dicts with a model's usual names.
 * Otherwise its dicts are modules of the model. */
void sheaf__dcp_wrapper(dcp_reading *r)
{
    enum { FEW = 64 }; /* top dicts checked: a save has a few */
    const sheaf_pickle *all = sheaf__pickle_get(r->meta->root, "state_dict_metadata");
    struct {
        const char *name;
        bool optimizer, usual, other; /* kinds of its dicts */
    } dict[FEW];
    int n = 0, k;
    for (int64_t i = 0; i < sheaf__pickle_count(all); i++) {
        const char *key = sheaf__pickle_text(sheaf__pickle_key(all, i));
        const sheaf_pickle *path = key == NULL ? NULL : sheaf__dcp_path(r, key);
        const char *first = dict_of(path, 0), *second = dict_of(path, 1);
        if (first == NULL || second == NULL || is_optimizer(first) ||
            sheaf__pickle_get(sheaf__pickle_value(all, i), "chunks") == NULL)
            continue;
        for (k = 0; k < n && strcmp(dict[k].name, first) != 0;)
            k++;
        if (k == FEW)
            continue;
        if (k == n) {
            memset(&dict[n], 0, sizeof *dict);
            dict[n++].name = first;
        }
        dict[k].optimizer |= is_optimizer(second);
        dict[k].usual |= is_usual(second);
        dict[k].other |= !is_usual(second);
    }
    for (k = 0; r->wrapper == NULL && k < n; k++)
        if (dict[k].optimizer || (dict[k].usual && !dict[k].other && !is_usual(dict[k].name)))
            r->wrapper = dict[k].name;
}

/* The dict of a tensor; NULL: none. `within`: inside the wrapper. */
static const char *top_of(bool *within, const dcp_reading *r, const sheaf_pickle *path)
{
    const char *first = dict_of(path, 0), *second = dict_of(path, 1);
    *within =
        first != NULL && second != NULL && r->wrapper != NULL && strcmp(first, r->wrapper) == 0;
    return *within ? second : first;
}

/* Finds the model's dict: that of all tensors outside of the optimizer; of several, "model" and the
 * like. */
static void find_top(dcp_reading *r, const sheaf_pickle *all)
{
    const char *only = NULL, *best = NULL;
    bool several = false, doubled = false, every = true, only_within = false, best_within = false;
    for (int64_t i = 0; i < sheaf__pickle_count(all); i++) {
        const char *key = sheaf__pickle_text(sheaf__pickle_key(all, i));
        const sheaf_pickle *path = key == NULL ? NULL : sheaf__dcp_path(r, key);
        if (key == NULL || sheaf__pickle_get(sheaf__pickle_value(all, i), "chunks") == NULL)
            continue;
        bool within;
        const char *top = top_of(&within, r, path);
        if (is_optimizer(top) || (top == NULL && is_optimizer(key)))
            continue;
        every &= strncmp(key, "model.", 6) == 0;
        doubled |= strncmp(key, "model.model.", 12) == 0 || strncmp(key, "model.lm_head.", 14) == 0;
        several |= only != NULL && (top == NULL || within != only_within || strcmp(top, only) != 0);
        if (only == NULL) {
            only = top;
            only_within = within;
        }
        if (best == NULL && is_usual(top)) {
            best = top;
            best_within = within;
        }
    }
    r->top = several ? best : only;
    r->top_within = several ? best_within : only_within;
    if (only == NULL && every && doubled)
        r->top = "model";
}

/* The key behind the dict `name`; NULL: another key. */
static const char *behind(const char *key, const char *name)
{
    const size_t n = strlen(name);
    return strncmp(key, name, n) == 0 && key[n] == '.' ? key + n + 1 : NULL;
}

/* The name of a key's tensor into `name`. */
static role name_of(char **name, const dcp_reading *r, const char *key)
{
    const sheaf_pickle *path = sheaf__dcp_path(r, key);
    bool within;
    const char *top = top_of(&within, r, path), *moment = NULL, *rest = NULL;
    size_t length = 0;
    *name = NULL;
    if (within && behind(key, r->wrapper) != NULL)
        key = behind(key, r->wrapper);
    if (is_optimizer(top != NULL ? top : key)) {
        const role is = optimizer_role(&moment, &rest, &length, key);
        if (is == ROLE_MOMENT && asprintf(name, "%s.%.*s", moment, (int)length, rest) < 0)
            *name = NULL;
        return is;
    }
    const char *own = r->top == NULL ? key : within == r->top_within ? behind(key, r->top) : NULL;
    if (own == NULL)
        return ROLE_OTHER;
    *name = strdup(own);
    return ROLE_WEIGHT;
}

/* ---- tensors ---- */

/* An entry of state_dict_metadata: shape and chunks; false, with a finding, when it is no
 * tensor. */
static bool tensor_of(int *ndim, int64_t *shape, const sheaf_pickle **chunks, sheaf_status **st,
                      dcp_reading *r, const char *key, const sheaf_pickle *value)
{
    *chunks = sheaf__pickle_get(value, "chunks");
    const bool yes =
        *chunks != NULL && sheaf__pickle_shape(ndim, shape, sheaf__pickle_get(value, "size"));
    *st = yes ? NULL
              : sheaf__defect(r->c, "damaged", r->dir, key, "a tensor's shape and chunks", "",
                              "something else in .metadata");
    return yes;
}

/* The dtype that .metadata says; F32 when it says none that is known. */
static sheaf_dtype dtype_of(const sheaf_pickle *value)
{
    const sheaf_pickle *properties = sheaf__pickle_get(value, "properties"),
                       *dtype = sheaf__pickle_get(properties, "dtype");
    if (dtype == NULL && sheaf__pickle_is(properties, SHEAF_PICKLE_OBJECT))
        dtype = sheaf__pickle_item(properties->as.object->state, 0);
    return sheaf__pickle_is(dtype, SHEAF_PICKLE_DTYPE) ? dtype->as.dtype : SHEAF_F32;
}

typedef sheaf_status *(*each_chunk)(dcp_reading *r, const char *key, const char *name, int ndim,
                                    const int64_t *shape, const sheaf_piece *piece);

/* Calls `each` for every existing chunk. */
static sheaf_status *walk_chunks(dcp_reading *r, const char *key, const char *name, int ndim,
                                 const int64_t *shape, const sheaf_pickle *chunks, each_chunk each)
{
    sheaf_status *st = NULL;
    for (int64_t i = 0; st == NULL && i < sheaf__pickle_count(chunks); i++) {
        const sheaf_pickle *one = sheaf__pickle_item(chunks, i);
        int n = 0, m = 0;
        int64_t offsets[SHEAF_PICKLE_MAX_DIMS], sizes[SHEAF_PICKLE_MAX_DIMS];
        bool good = sheaf__pickle_shape(&n, offsets, sheaf__pickle_get(one, "offsets")) &&
                    sheaf__pickle_shape(&m, sizes, sheaf__pickle_get(one, "sizes")) && n == ndim &&
                    m == ndim;
        for (int k = 0; good && k < ndim; k++)
            good = offsets[k] <= shape[k] - sizes[k];
        if (!good) {
            st = sheaf__defect(r->c, "damaged", r->dir, key, "chunks inside the tensor", "",
                               "another one in .metadata");
            continue;
        }
        bool found;
        sheaf_piece piece;
        sheaf_dtype dtype;
        st = sheaf__dcp_chunk(&piece, &found, r, key, ndim, offsets, sizes, &dtype);
        TRY(st, found ? each(r, key, name, ndim, shape, &piece) : NULL);
    }
    return st;
}

static sheaf_status *add_plain(dcp_reading *r, const char *key, const char *name, int ndim,
                               const int64_t *shape, const sheaf_piece *piece)
{
    return sheaf__catalog_piece(r->c, sheaf__catalog_find(r->c, name), piece);
}

static sheaf_status *read_plain(dcp_reading *r, const char *key, const char *name, role is,
                                const sheaf_pickle *value)
{
    int ndim;
    int64_t shape[SHEAF_PICKLE_MAX_DIMS];
    const sheaf_pickle *chunks;
    sheaf_logical *out;
    sheaf_status *st;
    if (!tensor_of(&ndim, shape, &chunks, &st, r, key, value))
        return st;
    if (sheaf__catalog_find(r->c, name) != NULL)
        return sheaf__defect(r->c, "duplicate", r->dir, key, "one tensor of each name", "",
                             "a second one");
    st = sheaf__catalog_tensor(&out, r->c, name, dtype_of(value), ndim, shape);
    if (st == NULL) {
        out->kind = is == ROLE_MOMENT                             ? SHEAF_MOMENT
                    : strstr(name, ".lora_") != NULL              ? SHEAF_LORA
                    : strstr(name, "rotary_emb.inv_freq") != NULL ? SHEAF_BUFFER
                                                                  : SHEAF_WEIGHT;
        st = walk_chunks(r, key, name, ndim, shape, chunks, add_plain);
    }
    return sheaf__catalog_defect(r->c, r->dir, st);
}

/* ---- Megatron ---- */

/* One layer of a piece whose first axis counts layers. */
static bool layer_of(sheaf_piece *out, const sheaf_piece *piece, int ndim, int64_t layer)
{
    if (layer < piece->begin[0] || layer >= piece->begin[0] + piece->size[0])
        return false;
    *out = *piece;
    out->offset +=
        (layer - piece->begin[0]) * piece->stride[0] * (int64_t)sheaf_dtype_bytes(piece->dtype);
    for (int i = 1; i < ndim; i++) {
        out->begin[i - 1] = piece->begin[i];
        out->size[i - 1] = piece->size[i];
        out->stride[i - 1] = piece->stride[i];
    }
    return true;
}

static sheaf_status *add_megatron(dcp_reading *r, const char *key, const char *name, int ndim,
                                  const int64_t *shape, const sheaf_piece *piece)
{
    bool stacked;
    const int64_t number = sheaf__megatron_layer(name, &stacked);
    const int skip = stacked ? 1 : 0;
    sheaf_status *st = NULL;
    for (int64_t layer = stacked ? piece->begin[0] : number;
         st == NULL && layer < (stacked ? piece->begin[0] + piece->size[0] : number + 1); layer++) {
        sheaf__megatron_targets targets = { 0 };
        sheaf__megatron_word word;
        sheaf_piece one = *piece;
        if (stacked && !layer_of(&one, piece, ndim, layer))
            continue;
        st = sheaf__megatron_targets_of(&targets, &word, &r->model, name, layer, ndim - skip,
                                        shape + skip, 0, 1);
        if (st == NULL && word == SHEAF_MEGATRON_MAPPED)
            st = sheaf__megatron_add(r->c, &targets, &one);
        free(targets.at);
    }
    return st;
}

static sheaf_status *read_megatron(dcp_reading *r, const char *key, const sheaf_pickle *value)
{
    int ndim;
    int64_t shape[SHEAF_PICKLE_MAX_DIMS];
    const sheaf_pickle *chunks;
    sheaf__megatron_targets targets = { 0 };
    sheaf__megatron_word word;
    bool stacked;
    sheaf_status *st;
    const char *name = strncmp(key, "model.", 6) == 0 ? key + 6 : key;
    const int64_t number = sheaf__megatron_layer(name, &stacked);
    if (strstr(name, "_extra_state") != NULL || strncmp(name, "rng_state", 9) == 0 ||
        strncmp(name, "rerun_state", 11) == 0)
        return NULL;
    if (is_optimizer(name) || strncmp(name, "chained_", 8) == 0) {
        r->optimizer++;
        return NULL;
    }
    if (!tensor_of(&ndim, shape, &chunks, &st, r, key, value))
        return st;
    if (stacked && (ndim < 2 || shape[0] != r->model.layers))
        return sheaf__defect(r->c, "shape", r->dir, key,
                             "all layers of the model along the first axis", "",
                             "another number of them");
    st = sheaf__megatron_targets_of(&targets, &word, &r->model, name, stacked ? 0 : number,
                                    ndim - (stacked ? 1 : 0), shape + (stacked ? 1 : 0), 0, 1);
    free(targets.at);
    if (st != NULL || word == SHEAF_MEGATRON_IGNORED)
        return st;
    if (word != SHEAF_MEGATRON_MAPPED)
        return sheaf__defect(
            r->c, word == SHEAF_MEGATRON_MISFIT ? "shape" : "unsupported", r->dir, key,
            "tensors of a Llama model with the sizes in the args, or in the config where there are none",
            "", "%s",
            word == SHEAF_MEGATRON_MISFIT ? "another shape" : "a tensor that it does not have");
    if (strstr(name, "word_embeddings.weight") != NULL)
        r->model.padded = shape[0];
    return sheaf__catalog_defect(r->c, r->dir,
                                 walk_chunks(r, key, name, ndim, shape, chunks, add_megatron));
}

/* ---- all of it ---- */

static sheaf_status *report_unread(dcp_reading *r)
{
    sheaf_status *st = NULL;
    if (r->optimizer > 0)
        st = sheaf__note(r->c, "unsupported", r->dir, "", "", "",
                         "%" PRId64 " tensors of the optimizer are not read", r->optimizer);
    if (st == NULL && r->others > 0)
        st = sheaf__warning(r->c, "foreign", r->dir, r->other,
                            "tensors of the model or its optimizer", "",
                            "%" PRId64 " others are not read", r->others);
    return st;
}

sheaf_status *sheaf__dcp_tensors(dcp_reading *r)
{
    const sheaf_pickle *all = sheaf__pickle_get(r->meta->root, "state_dict_metadata");
    sheaf_status *st = NULL;
    if (!r->megatron)
        find_top(r, all);
    for (int64_t i = 0; st == NULL && i < sheaf__pickle_count(all); i++) {
        const char *key = sheaf__pickle_text(sheaf__pickle_key(all, i));
        const sheaf_pickle *value = sheaf__pickle_value(all, i);
        char *name = NULL;
        if (key == NULL || sheaf__pickle_get(value, "chunks") == NULL)
            continue; /* bytes: not a tensor */
        if (r->megatron) {
            if (r->model.layers > 0)
                st = read_megatron(r, key, value);
            continue;
        }
        const role is = name_of(&name, r, key);
        r->optimizer += is == ROLE_OPTIMIZER;
        if (is == ROLE_OTHER && r->others++ == 0 && (r->other = strdup(key)) == NULL)
            st = sheaf__no_memory(r->dir);
        else if ((is == ROLE_WEIGHT || is == ROLE_MOMENT) && name == NULL)
            st = sheaf__no_memory(r->dir);
        else if (name != NULL)
            st = read_plain(r, key, name, is, value);
        free(name);
    }
    if (st == NULL && r->megatron && r->model.layers > 0)
        st = sheaf__megatron_complete(r->c, &r->model, r->dir);
    return st == NULL ? report_unread(r) : st;
}
