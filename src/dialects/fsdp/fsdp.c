/* fsdp.c - the state dict of each rank of PyTorch's FSDP in a file of its own, as verl leaves it.
 *
 *   model_world_size_N_rank_R.pt    {name: DTensor}: shape and placements of the whole tensor, and
 *                                   the rank's rows
 *   optim_world_size_N_rank_R.pt, extra_state_world_size_N_rank_R.pt    are not read
 *   huggingface/config.json, or config.json
 *
 * A DTensor in a pickle is _rebuild_wrapper_subclass(DTensor, dtype, sizes, strides, ...) with the
 * state (None, {_local_tensor, _spec: {mesh, placements}}). Shard(d) divides axis d as torch.chunk:
 * ceil(n / ranks) for each rank, less or nothing for the last ones. A mesh of several axes (HSDP:
 * Replicate, Shard; FSDP over tensor parallelism: _StridedShard, Shard) counts its ranks row by
 * row; its placements divide from left to right, _StridedShard after them all. */
#include "base/base.h"
#include "dialects/common/dialects.h"

#include "base/file.h"
#include "catalog/boxes.h"
#include "dialects/common/model.h"
#include "dialects/common/save.h"
#include "formats/torch.h"

enum { MOST_RANKS = 8192, MOST_AXES = 4 };

typedef struct reading {
    sheaf_catalog *c;
    const char *dir;
    int ranks;
    bool here[MOST_RANKS];
} reading;

/* ---- files ---- */

static bool read_name(int *ranks, int *rank, const char *name)
{
    return sheaf__take_word(&name, "model_world_size_") && sheaf__take_number(ranks, &name) &&
           sheaf__take_word(&name, "_rank_") && sheaf__take_number(rank, &name) &&
           strcmp(name, ".pt") == 0 && *ranks > 0 && *ranks <= MOST_RANKS && *rank < *ranks;
}

static bool is_ranks(const char *name)
{
    int ranks, rank;
    return read_name(&ranks, &rank, name);
}

static bool fsdp_is(const char *path)
{
    return sheaf__holds_file(path, is_ranks);
}

/* The number of ranks that most files are of; a finding for those of another save. */
static sheaf_status *find_ranks(reading *r, char *const *names, int64_t n)
{
    int64_t most = 0;
    sheaf_status *st = NULL;
    for (int64_t i = 0; i < n; i++) {
        int ranks, rank, other, unused;
        int64_t same = 0;
        if (!read_name(&ranks, &rank, names[i]))
            continue;
        for (int64_t k = 0; k < n; k++)
            same += read_name(&other, &unused, names[k]) && other == ranks;
        if (same > most) {
            most = same;
            r->ranks = ranks;
        }
    }
    for (int64_t i = 0; st == NULL && i < n; i++) {
        int ranks, rank;
        char path[SHEAF_PATH_SIZE];
        if (read_name(&ranks, &rank, names[i]) && ranks != r->ranks)
            st = sheaf__defect(r->c, "stale", sheaf__path_in(path, r->dir, names[i]), "",
                               "files of one save", "move it away",
                               "one of %d ranks, beside others of %d; it is not read", ranks,
                               r->ranks);
    }
    return st;
}

/* ---- tensors ---- */

static sheaf_status *misfit(reading *r, const char *path, const char *name, const char *found)
{
    return sheaf__defect(r->c, "conflict", path, name,
                         "the rows of this rank, as its placements divide the tensor",
                         "put the files of one save together", "%s", found);
}

/* The sizes of the mesh's n axes. */
static bool mesh_of(int64_t size[MOST_AXES], const reading *r, const sheaf_pickle_doc *doc,
                    const sheaf_pickle *mesh, int64_t n)
{
    const sheaf_pickle_tensor *t = sheaf__pickle_tensor(doc, sheaf__pickle_get(mesh, "mesh"));
    const sheaf_pickle *axes = sheaf__pickle_path(mesh, "_layout", "axes", NULL);
    int64_t all = 1;
    for (int64_t i = 0; i < n; i++) {
        if (t != NULL && t->ndim == n)
            size[i] = t->shape[i];
        else if (n == 1)
            size[i] = r->ranks;
        else if (!sheaf__pickle_int(
                     &size[i], sheaf__pickle_item(
                                   sheaf__pickle_get(sheaf__pickle_item(axes, i), "shape"), 0)))
            return false;
        if (size[i] < 1 || size[i] > r->ranks)
            return false;
        all *= size[i];
    }
    return all == r->ranks;
}

/* The box of rank `rank`: *copy when an axis of the mesh replicates it and this is not its first.
 */
static bool box_of(int64_t begin[SHEAF_CATALOG_MAX_DIMS], int64_t size[SHEAF_CATALOG_MAX_DIMS],
                   bool *copy, bool *whole, const reading *r, const sheaf_pickle_doc *doc,
                   const sheaf_pickle *spec, int rank)
{
    const sheaf_pickle *placements = sheaf__pickle_get(spec, "placements");
    const int64_t n = sheaf__pickle_count(placements);
    int64_t mesh[MOST_AXES], at[MOST_AXES], rest = rank, axis;
    *copy = false;
    *whole = true;
    if (n < 1 || n > MOST_AXES || !mesh_of(mesh, r, doc, sheaf__pickle_get(spec, "mesh"), n))
        return false;
    for (int64_t i = n - 1; i >= 0; rest /= mesh[i--])
        at[i] = rest % mesh[i];
    for (int64_t k = 0; k < 2 * n; k++) {
        const int64_t i = k % n;
        const sheaf_pickle *p = sheaf__pickle_item(placements, i);
        const bool last = sheaf__pickle_is_object(p, NULL, "_StridedShard");
        if (sheaf__pickle_is_object(p, NULL, "Replicate")) {
            *copy = *copy || at[i] > 0;
            continue;
        }
        if ((!last && !sheaf__pickle_is_object(p, NULL, "Shard")) ||
            !sheaf__pickle_int(&axis, sheaf__pickle_get(p, "dim")) || axis < 0 ||
            axis >= SHEAF_CATALOG_MAX_DIMS)
            return false;
        *whole = false;
        if (last != (k >= n))
            continue;
        const int64_t all = size[axis], each = (all + mesh[i] - 1) / mesh[i],
                      from = at[i] * each < all ? at[i] * each : all;
        begin[axis] += from;
        size[axis] = all - from < each ? all - from : each;
    }
    return true;
}

static sheaf_status *add(reading *r, const sheaf_torch *torch, const char *name, int ndim,
                         const int64_t *shape, const int64_t *begin, bool whole, int rank,
                         const sheaf_pickle_tensor *t)
{
    sheaf_logical *out;
    int file;
    sheaf_status *st = sheaf__catalog_file(&file, r->c, torch->path, &torch->mark);
    TRY(st, sheaf__catalog_tensor(&out, r->c, name, t->dtype, ndim, shape));
    if (st != NULL)
        return st;
    if (!sheaf__same_shape(out->entry.ndim, out->entry.shape, ndim, shape))
        return misfit(r, torch->path, name, "a tensor of another shape than in the other files");
    out->replicated = whole && r->ranks > 1;
    sheaf_piece p = sheaf__piece_of(file, rank, torch, t);
    memcpy(p.begin, begin, sizeof p.begin);
    return sheaf__catalog_piece(r->c, out, &p);
}

static sheaf_status *read_tensor(reading *r, const sheaf_torch *torch, const char *name,
                                 const sheaf_pickle *value, int rank)
{
    const sheaf_pickle_tensor *t = sheaf__pickle_tensor(torch->doc, value);
    int64_t begin[SHEAF_CATALOG_MAX_DIMS] = { 0 }, size[SHEAF_CATALOG_MAX_DIMS] = { 0 },
            shape[SHEAF_PICKLE_MAX_DIMS];
    bool copy = false, whole = true;
    int ndim;
    if (t != NULL)
        return add(r, torch, name, t->ndim, t->shape, begin, true, rank, t);
    if (!sheaf__pickle_is_object(value, "torch._utils", "_rebuild_wrapper_subclass"))
        return sheaf__dialect_unread(NULL, r->c, torch->path, name, value);
    const sheaf_pickle *fields = value->as.object->state; /* a dict before it had slots */
    if (!sheaf__pickle_is(fields, SHEAF_PICKLE_DICT))
        fields = sheaf__pickle_item(fields, 1);
    t = sheaf__pickle_tensor(torch->doc, sheaf__pickle_get(fields, "_local_tensor"));
    if (t == NULL ||
        !sheaf__pickle_shape(&ndim, shape, sheaf__pickle_item(value->as.object->args, 2)) ||
        ndim != t->ndim)
        return sheaf__dialect_unread(NULL, r->c, torch->path, name, value);
    memcpy(size, shape, (size_t)ndim * sizeof *shape);
    if (!box_of(begin, size, &copy, &whole, r, torch->doc, sheaf__pickle_get(fields, "_spec"),
                rank))
        return sheaf__defect(
            r->c, "unsupported", torch->path, name,
            "Shard along an axis, Replicate, and a mesh of as many ranks as there are files",
            "save it whole in the program that wrote it: full_tensor() of each DTensor",
            "other placements");
    if (memcmp(size, t->shape, (size_t)ndim * sizeof *size) != 0)
        return misfit(r, torch->path, name, "other sizes");
    return copy && !whole ? NULL /* one more of the same rows */
                          : add(r, torch, name, ndim, shape, begin, whole, rank, t);
}

/* The zip file has the name that it was saved under. */
static sheaf_status *check_stem(reading *r, const char *path, int rank)
{
    char stem[128], name[160];
    int ranks, was;
    sheaf__torch_stem(stem, path);
    snprintf(name, sizeof name, "%s.pt", stem);
    r->c->by_names = r->c->by_names || stem[0] == '\0';
    if (!read_name(&ranks, &was, name) || (was == rank && ranks == r->ranks))
        return NULL;
    return sheaf__defect(r->c, "conflict", path, "", "a file that was saved under this name",
                         "give the files back the names they were saved under",
                         "it was saved as %s", name);
}

static sheaf_status *read_file(reading *r, const char *name, int rank)
{
    char path[SHEAF_PATH_SIZE];
    sheaf_torch *torch = NULL;
    sheaf_status *st = sheaf__torch_open(&torch, sheaf__path_in(path, r->dir, name));
    if (st != NULL)
        return sheaf__catalog_defect(r->c, path, st);
    const sheaf_pickle *root = torch->doc->root;
    st = check_stem(r, path, rank);
    for (int64_t i = 0; st == NULL && i < sheaf__pickle_count(root); i++) {
        const char *key = sheaf__pickle_text(sheaf__pickle_key(root, i));
        if (key != NULL)
            st = sheaf__catalog_defect(
                r->c, path, read_tensor(r, torch, key, sheaf__pickle_value(root, i), rank));
    }
    sheaf__torch_close(torch);
    return st;
}

static sheaf_status *report_missing(reading *r)
{
    enum { LISTED = 64 };
    sheaf_status *st = NULL;
    for (int rank = 0, listed = 0; st == NULL && rank < r->ranks && listed < LISTED; rank++) {
        if (r->here[rank])
            continue;
        st = sheaf__missing_file(r->c, "", "a file of every rank",
                                 "%s/model_world_size_%d_rank_%d.pt", r->dir, r->ranks, rank);
        listed++;
    }
    return st;
}

/* ---- all of it ---- */

static sheaf_status *read_all(reading *r, const sheaf_dialect_hints *hints)
{
    char **names = NULL, config[SHEAF_PATH_SIZE], above[SHEAF_PATH_SIZE];
    const char *rest = "";
    int64_t n = 0, others = 0;
    sheaf_status *st = sheaf__list_dir(&names, &n, r->dir);
    sheaf__path_in(config, r->dir, "huggingface");
    TRY(st, sheaf__catalog_read_model(NULL, r->c, hints,
                                      (const char *const[]){ config, r->dir, NULL }));
    TRY(st, find_ranks(r, names, n));
    for (int64_t i = 0; st == NULL && i < n; i++) {
        int ranks, rank;
        others += strncmp(names[i], "optim_world_size_", 17) == 0;
        if (!read_name(&ranks, &rank, names[i]) || ranks != r->ranks)
            continue;
        r->here[rank] = true;
        st = read_file(r, names[i], rank);
    }
    TRY(st, report_missing(r));
    if (st == NULL && others > 0)
        st = sheaf__note(r->c, "unsupported", r->dir, "", "", "",
                         "%" PRId64 " files of the optimizer are not read", others);
    r->c->dp = r->ranks;
    const int64_t step =
        sheaf__step_of_name(&rest, sheaf__path_above(above, r->dir), "global_step_");
    r->c->step = *rest == '\0' ? step : -1;
    sheaf__names_free(names, n);
    return st != NULL ? st : sheaf__catalog_recognise(r->c);
}

static sheaf_status *fsdp_read(sheaf_catalog *c, const char *path, const sheaf_dialect_hints *hints)
{
    char above[SHEAF_PATH_SIZE];
    const bool file = sheaf__path_kind(path) == SHEAF_PATH_FILE;
    reading r = { .c = c, .dir = file ? sheaf__path_above(above, path) : path };
    return read_all(&r, hints);
}

const sheaf_dialect sheaf__dialect_fsdp = {
    .name = "fsdp",
    .title = "PyTorch FSDP, a file for each rank (verl)",
    .is = fsdp_is,
    .read = fsdp_read,
    .training = true,
};
