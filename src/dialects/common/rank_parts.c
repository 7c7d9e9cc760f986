/* rank_parts.c - tensors of single tensor-parallel ranks, joined; see whole.h.
 *
 * The schema gives the divided axis by name. The rank of a part follows from the name of its file
 * or folder, else from the padding, which is at the end of the last rank's table, else it is the
 * only rank left. Parts of another save are recognised by contradicting values. */
#include "base/base.h"
#include "base/file.h"
#include "catalog/boxes.h"
#include "catalog/private.h"
#include "dialects/common/model.h"
#include "dialects/common/partition.h"
#include "dialects/common/save.h"
#include "dialects/common/vocabulary.h"
#include "dialects/common/whole.h"

enum { MOST_PARTS = 256, COMPARE_BYTES = 1 << 20 };

typedef struct part {
    int rank;    /* -1: unknown yet */
    bool padded; /* its table ends with zeros, as the last rank's does */
    sheaf_catalog *held;
} part;

typedef struct joining {
    sheaf_catalog *c;
    int64_t vocab; /* -1 = unknown */
    int ways;      /* 0 = unknown */
    int count;
    part part[MOST_PARTS];
    sheaf_schema *cuts;
    bool from_nothing; /* the catalog was empty: it gets only the parts */
    int npaths;
    const char *path[MOST_PARTS];
    char row[COMPARE_BYTES];
} joining;

/* ---- names ---- */

/* The divided axis, as the schema cuts it; -1 = replicated; -2 = unknown. */
static int axis_of(const joining *j, const char *name, int ndim)
{
    const sheaf_tensor *t = sheaf__partition_find(j->cuts, name);
    if (t == NULL)
        return ndim <= 1 || strstr(name, "norm") != NULL ? -1 : -2;
    return t->cut.nparts == 0 || t->cut.axis >= ndim ? -1 : t->cut.axis;
}

/* "tp_rank_01.safetensors", "rank1", "tp-rank-1": 1; else -1. The last such number in the name. */
static int rank_of_name(const char *path)
{
    int rank = -1;
    for (const char *p = strstr(sheaf__last_part(path), "rank"); p != NULL;
         p = strstr(p + 1, "rank")) {
        const char *digits = p + 4 + strspn(p + 4, "_-");
        const size_t n = strspn(digits, "0123456789");
        if (n > 0 && n < 5)
            rank = atoi(digits);
    }
    return rank;
}

/* ---- opening ---- */

static sheaf_status *add_part(joining *j, const char *path, int rank)
{
    if (j->count == MOST_PARTS)
        return sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "%s", path), "at most %d parts",
                              MOST_PARTS);
    part *p = &j->part[j->count];
    *p = (part){ .rank = rank };
    sheaf_status *st = sheaf__catalog_new(&p->held, j->c->dialect, path);
    if (st != NULL)
        return st;
    j->count++;
    const sheaf__whole whole = { .c = p->held, .rank = rank };
    bool damaged = false;
    if (sheaf__path_kind(path) == SHEAF_PATH_DIR) {
        sheaf__names names = { 0 };
        sheaf__whole folder = whole;
        st = sheaf__list_dir(&names.at, &names.count, path);
        TRY(st, sheaf__whole_folder(&damaged, &folder, path, &names));
        sheaf__names_free(names.at, names.count);
    } else
        st = sheaf__whole_file(&damaged, &whole, path); /* true: it was read */
    for (int64_t i = 0; st == NULL && i < p->held->nfindings; i++) {
        const sheaf_finding *f = &p->held->finding[i];
        st = sheaf__finding(j->c, f->severity, f->code, f->path, f->tensor, f->expected, f->cure,
                            "%s", f->found);
    }
    return st;
}

/* A folder of tp_rank_XX files is as many parts as it has files. */
static sheaf_status *add_path(joining *j, const char *path)
{
    sheaf__names names = { 0 };
    bool ranks = false;
    sheaf_status *st = NULL;
    if (sheaf__path_kind(path) == SHEAF_PATH_DIR)
        st = sheaf__list_dir(&names.at, &names.count, path);
    else if (sheaf__path_kind(path) == SHEAF_PATH_NONE)
        return sheaf__defect(j->c, "missing", path, "", "a folder or file", "", "nothing there");
    for (int64_t i = 0; st == NULL && i < names.count; i++) {
        char inner[SHEAF_PATH_SIZE];
        if (strncmp(names.at[i], "tp_rank_", 8) != 0 || sheaf__ends_with(names.at[i], ".json"))
            continue;
        ranks = true;
        sheaf__path_in(inner, path, names.at[i]);
        st = add_part(j, inner, rank_of_name(inner));
    }
    sheaf__names_free(names.at, names.count);
    return st != NULL || ranks ? st : add_part(j, path, rank_of_name(path));
}

/* ---- sources that are no parts ---- */

static const sheaf_logical *a_table(const sheaf_catalog *c)
{
    for (int64_t i = 0; i < c->count; i++)
        if (c->tensor[i].kind == SHEAF_WEIGHT && c->tensor[i].entry.ndim == 2 &&
            sheaf__is_vocabulary(c->tensor[i].entry.name))
            return &c->tensor[i];
    return NULL;
}

/* A part that is given twice, or that the catalog was read from, would be taken for another
 * rank's. */
static sheaf_status *check_twice(bool *twice, joining *j)
{
    for (int i = 0; i < j->npaths; i++) {
        const char *before = NULL, *path = j->path[i];
        for (int k = 0; k < i && before == NULL; k++)
            before = sheaf__path_same(j->path[k], path) ? j->path[k] : NULL;
        if (before == NULL && !j->from_nothing && sheaf__path_same(j->c->root, path))
            before = j->c->root;
        for (int k = 0; k < j->c->nfiles && before == NULL; k++)
            before = sheaf__path_same(j->c->file[k].path, path) ? j->c->root : NULL;
        if (before == NULL)
            continue;
        *twice = true;
        const bool so = strcmp(before, path) == 0;
        return sheaf__defect(j->c, "duplicate", path, "", "each part of a checkpoint once",
                             "name it once", "it is given %s%s", so ? "twice" : "already, with ",
                             so ? "" : before);
    }
    return NULL;
}

/* Does the catalog have all rows of its vocabulary, and no name a rank? Then no part is missing. */
static bool is_whole(const joining *j)
{
    const sheaf_logical *t = a_table(j->c);
    return !j->from_nothing && j->ways < 2 && j->vocab > 0 && t != NULL &&
           t->entry.shape[0] >= j->vocab;
}

/* ---- comparing ---- */

/* Do all elements from row `row0` on have one value: zero, or that of the first? */
static sheaf_status *one_value(bool *yes, joining *j, const sheaf_catalog *held,
                               const sheaf_logical *t, int64_t row0, bool zero)
{
    const int64_t bytes = (int64_t)sheaf_dtype_bytes(t->entry.dtype);
    char one[16] = { 0 };
    int64_t rows, cols;
    sheaf__catalog_view(&rows, &cols, t);
    *yes = bytes > 0;
    for (int64_t r = row0; *yes && r < rows; r++)
        for (int64_t k = 0; *yes && k < cols; k += COMPARE_BYTES / bytes) {
            const int64_t w = cols - k < COMPARE_BYTES / bytes ? cols - k : COMPARE_BYTES / bytes;
            sheaf_status *st = sheaf__catalog_read(held, t, r, 1, k, w, j->row);
            if (st != NULL)
                return st;
            if (!zero && r == row0 && k == 0)
                memcpy(one, j->row, (size_t)bytes);
            for (int64_t i = 0; *yes && i < w; i++)
                *yes = memcmp(one, j->row + i * bytes, (size_t)bytes) == 0;
        }
    return NULL;
}

/* ---- finding the ranks ---- */

static int parts_with(const joining *j, int rank)
{
    int n = 0;
    for (int i = 0; i < j->count; i++)
        n += j->part[i].rank == rank;
    return n;
}

static sheaf_status *note_rank(joining *j, const part *p, const char *how)
{
    return sheaf__note(j->c, "inferred", p->held->root, "", "", "", "part of rank %d of %d: %s",
                       p->rank, j->ways, how);
}

static sheaf_status *find_padding(joining *j)
{
    sheaf_status *st = NULL;
    for (int i = 0; st == NULL && i < j->count && j->vocab > 0 && j->ways > 1; i++) {
        part *p = &j->part[i];
        const sheaf_logical *t = a_table(p->held);
        const int64_t rows = t == NULL ? 0 : t->entry.shape[0] * j->ways - j->vocab;
        if (rows > 0 && rows <= t->entry.shape[0])
            st = one_value(&p->padded, j, p->held, t, t->entry.shape[0] - rows, true);
    }
    return st;
}

/* Unnamed ranks: the last one by its padding; then the only one that is left. */
static sheaf_status *place_ranks(joining *j)
{
    const int base = j->from_nothing ? 0 : 1; /* rank 0 is the catalog itself */
    sheaf_status *st = find_padding(j);
    for (int i = 0; st == NULL && i < j->count; i++)
        if (j->part[i].rank < 0 && j->part[i].padded && parts_with(j, j->ways - 1) == 0) {
            j->part[i].rank = j->ways - 1;
            st = note_rank(j, &j->part[i], "the padding at the end of its table");
        }
    for (int i = 0; st == NULL && i < j->count && j->ways > 1; i++) {
        part *p = &j->part[i];
        int left = -1, free_ranks = 0;
        if (p->rank >= 0)
            continue;
        for (int r = base; r < j->ways; r++)
            if (parts_with(j, r) == 0) {
                left = r;
                free_ranks++;
            }
        if (free_ranks == 1) {
            p->rank = left;
            st = note_rank(j, p, "it is the one that is left");
        } else
            st = sheaf__defect(j->c, "conflict", p->held->root, "",
                               "a rank in its name, as tp_rank_01.safetensors",
                               "rename it by its rank and give it again",
                               "the rank of this part is unknown");
    }
    return st;
}

/* The padding is at the end of the last rank's table. If another rank's table ends with it, the
 * names were swapped. */
static sheaf_status *check_padding(joining *j)
{
    const part *p = NULL;
    int many = 0;
    for (int i = 0; i < j->count; i++)
        if (j->part[i].padded) {
            p = &j->part[i];
            many++;
            if (p->rank == j->ways - 1)
                return NULL;
        }
    if (many != 1 || parts_with(j, j->ways - 1) == 0)
        return NULL;
    return sheaf__defect(
        j->c, "conflict", p->held->root, a_table(p->held)->entry.name,
        "the padding of the vocabulary in the part of the last rank",
        "give the parts back their names",
        "it ends the table of the part that is named rank %d of %d: the parts changed names",
        p->rank, j->ways);
}

/* ---- joining ---- */

static sheaf_status *take_pieces(joining *j, sheaf_logical *to, const part *p,
                                 const sheaf_logical *from, const int64_t *begin)
{
    sheaf_status *st = NULL;
    const sheaf_catalog *held = p->held; /* `to` stays valid: no tensor is added meanwhile */
    for (int64_t i = 0; st == NULL && i < from->npieces; i++) {
        sheaf_piece piece = from->piece[i];
        st = sheaf__catalog_file(&piece.file, j->c, held->file[piece.file].path,
                                 &held->file[piece.file].mark);
        piece.rank = p->rank;
        for (int d = 0; d < to->entry.ndim; d++)
            piece.begin[d] += begin[d];
        TRY(st, sheaf__catalog_piece(j->c, to, &piece));
    }
    return st;
}

static const part *part_of(const joining *j, int rank)
{
    for (int i = 0; i < j->count; i++)
        if (j->part[i].rank == rank)
            return &j->part[i];
    return NULL;
}

/* Adds the rows that the catalog's table lacks, from the parts of ranks 1 to ways - 1. */
static sheaf_status *complete_table(joining *j, const char *name)
{
    sheaf_logical *t = sheaf__catalog_find(j->c, name);
    const int64_t rows = t->entry.shape[0];
    t->entry.shape[0] = rows * j->ways;
    for (int r = 1; r < j->ways; r++) {
        const part *p = part_of(j, r);
        const sheaf_logical *more = p != NULL ? sheaf__catalog_find(p->held, name) : NULL;
        const int64_t begin[SHEAF_CATALOG_MAX_DIMS] = { rows * r };
        sheaf_status *st = NULL;
        if (more == NULL || more->entry.ndim != 2 || more->entry.shape[0] != rows ||
            more->entry.shape[1] != t->entry.shape[1] || more->entry.dtype != t->entry.dtype)
            st = sheaf__defect(j->c, "missing", p != NULL ? p->held->root : j->c->root, name,
                               "the rows of every rank", "give the part of that rank too",
                               "no part of rank %d of %d with rows %" PRId64 "..%" PRId64, r,
                               j->ways, rows * r, rows * (r + 1) - 1);
        else
            st = take_pieces(j, t, p, more, begin);
        if (st != NULL)
            return st;
    }
    return NULL;
}

/* Values that the catalog has already must be equal in the part, else it is of another save. */
static sheaf_status *compare_part(joining *j, const part *p)
{
    int64_t compared = 0, differ = 0;
    const char *first = "";
    sheaf_status *st = NULL;
    for (int64_t i = 0; st == NULL && i < p->held->count; i++) {
        const sheaf_logical *is = &p->held->tensor[i],
                            *whole = sheaf__catalog_find(j->c, is->entry.name);
        const int axis = axis_of(j, is->entry.name, is->entry.ndim);
        bool same = true;
        int64_t row0 = 0, col0 = 0;
        if (whole == NULL || axis == -2 || whole->entry.ndim != is->entry.ndim ||
            is->entry.ndim < 1 || is->entry.ndim > 2)
            continue;
        const bool divided =
            axis >= 0 && is->entry.shape[axis] * j->ways == whole->entry.shape[axis];
        const bool other_axis = is->entry.ndim == 1 || axis < 0 ||
                                is->entry.shape[1 - axis] == whole->entry.shape[1 - axis];
        const bool all = memcmp(is->entry.shape, whole->entry.shape, sizeof is->entry.shape) == 0;
        if ((!all && !(divided && other_axis)) || (all && sheaf__is_vocabulary(is->entry.name)))
            continue;
        if (sheaf__is_vocabulary(is->entry.name) && p->rank != 0)
            continue; /* the catalog's values are from this part */
        *(axis == 1 ? &col0 : &row0) = all ? 0 : is->entry.shape[axis] * p->rank;
        st = sheaf__catalog_same(&same, j->c, whole, row0, col0, p->held, is);
        compared++;
        first = !same && differ++ == 0 ? is->entry.name : first;
    }
    if (st != NULL || differ == 0)
        return st;
    return sheaf__defect(j->c, "stale", p->held->root, first, "the values of the same save",
                         "give the parts of one save",
                         "%" PRId64 " of %" PRId64
                         " tensors that both have differ: it is of another step or run",
                         differ, compared);
}

/* Do all parts have the same values, other than a constant (biases of zero)? Then the tensor was
 * not divided. */
static sheaf_status *check_divided(bool *whole, joining *j, const char *name)
{
    const sheaf_catalog *held = part_of(j, 0)->held;
    const sheaf_logical *first = sheaf__catalog_find(held, name);
    bool one = false;
    sheaf_status *st = NULL;
    *whole = sheaf__elements(first->entry.ndim, first->entry.shape) > 0 &&
             sheaf_dtype_bytes(first->entry.dtype) > 0;
    for (int r = 1; st == NULL && *whole && r < j->ways; r++) {
        const sheaf_catalog *other = part_of(j, r)->held;
        const sheaf_logical *t = sheaf__catalog_find(other, name);
        *whole = memcmp(t->entry.shape, first->entry.shape, sizeof t->entry.shape) == 0;
        if (*whole)
            st = sheaf__catalog_same(whole, held, first, 0, 0, other, t);
    }
    TRY(st, *whole ? one_value(&one, j, held, first, 0, false) : NULL);
    *whole = *whole && !one;
    return st;
}

/* Joins one tensor of all parts into an empty catalog. */
static sheaf_status *join_tensor(joining *j, const char *name)
{
    const part *p0 = part_of(j, 0);
    const sheaf_logical *first = sheaf__catalog_find(p0->held, name);
    int64_t shape[SHEAF_CATALOG_MAX_DIMS] = { 0 }, begin[SHEAF_CATALOG_MAX_DIMS] = { 0 };
    const int axis = axis_of(j, name, first->entry.ndim);
    int uneven = 0;
    if (axis == -2)
        return sheaf__defect(j->c, "unsupported", p0->held->root, name,
                             "a tensor of the Llama family", "",
                             "how this one is divided is unknown");
    memcpy(shape, first->entry.shape, sizeof first->entry.shape);
    for (int r = 1; r < j->ways; r++) {
        const sheaf_logical *t = sheaf__catalog_find(part_of(j, r)->held, name);
        bool fits =
            t != NULL && t->entry.ndim == first->entry.ndim && t->entry.dtype == first->entry.dtype;
        for (int d = 0; fits && d < first->entry.ndim; d++)
            fits = d == axis || t->entry.shape[d] == first->entry.shape[d];
        if (!fits)
            return sheaf__defect(j->c, t == NULL ? "missing" : "shape", part_of(j, r)->held->root,
                                 name, "the same tensor in every part",
                                 "give the parts of one save", "%s in the part of rank %d",
                                 t == NULL ? "none" : "one that does not fit", r);
        if (axis >= 0 && __builtin_add_overflow(shape[axis], t->entry.shape[axis], &shape[axis]))
            return sheaf_fail(SHEAF_E_UNSUPPORTED, "%s: too large", name);
        uneven = axis >= 0 && uneven == 0 && t->entry.shape[axis] != first->entry.shape[axis]
                     ? r
                     : uneven;
    }
    sheaf_logical *to = NULL;
    sheaf_status *st = NULL;
    if (uneven > 0 && !sheaf__is_vocabulary(name)) /* tables without padding are uneven too */
        st = sheaf__warning(j->c, "shape", part_of(j, uneven)->held->root, name,
                            "parts of one size", "give the config.json of this model with `config`",
                            "%" PRId64 " %s in the part of rank 0, %" PRId64 " in that of rank %d",
                            first->entry.shape[axis], axis == 0 ? "rows" : "columns",
                            sheaf__catalog_find(part_of(j, uneven)->held, name)->entry.shape[axis],
                            uneven);
    bool whole = false;
    TRY(st, axis >= 0 ? check_divided(&whole, j, name) : NULL);
    if (st == NULL && whole)
        st = sheaf__defect(j->c, "conflict", p0->held->root, name,
                           "another part of the tensor in each file",
                           "join the files by the rule of the program that wrote them",
                           "the same values in all of them: it was not divided");
    TRY(st, sheaf__catalog_tensor(&to, j->c, name, first->entry.dtype, first->entry.ndim, shape));
    if (st == NULL)
        to->replicated = axis < 0;
    for (int r = 0; st == NULL && r < j->ways; r++) {
        const sheaf_logical *t = sheaf__catalog_find(part_of(j, r)->held, name);
        st = take_pieces(j, to, part_of(j, r), t, begin);
        if (axis >= 0)
            begin[axis] += t->entry.shape[axis];
    }
    return sheaf__catalog_defect(j->c, p0->held->root, st);
}

static sheaf_status *join_all(joining *j)
{
    sheaf_status *st = NULL;
    for (int r = 0; r < j->ways; r++)
        if (parts_with(j, r) != 1)
            return sheaf__defect(j->c, parts_with(j, r) == 0 ? "missing" : "duplicate", j->c->root,
                                 "", "one part of each rank",
                                 "name the file of each rank once, as sources of sheaf convert",
                                 "%d parts of rank %d of %d", parts_with(j, r), r, j->ways);
    for (int r = 0; r < j->ways; r++) {
        const sheaf_catalog *held = part_of(j, r)->held;
        for (int64_t i = 0; st == NULL && i < held->count; i++) {
            const char *name = held->tensor[i].entry.name;
            bool before = false;
            for (int k = 0; k < r && !before; k++)
                before = sheaf__catalog_find(part_of(j, k)->held, name) != NULL;
            if (r == 0)
                st = join_tensor(j, name);
            else if (!before) /* it would be dropped silently */
                st = sheaf__defect(j->c, "missing", part_of(j, 0)->held->root, name,
                                   "the same tensor in every part", "give the parts of one save",
                                   "none in the part of rank 0; rank %d has one", r);
        }
    }
    j->c->tp = j->ways;
    const sheaf_logical *table = a_table(j->c);
    if (st == NULL && j->vocab < 0 && table != NULL) {
        j->c->padded_vocab = table->entry.shape[0];
        st = sheaf__warning(
            j->c, "padded", j->c->root, table->entry.name, "the true size of the vocabulary",
            "give the path of the model's config.json with `config`",
            "no config: all %" PRId64 " rows are kept, the last of which may be padding; nothing "
            "shows whether ranks follow rank %d",
            table->entry.shape[0], j->ways - 1);
    }
    return st;
}

/* ---- joining all ---- */

/* The number of ranks: by the highest number, or by the rows of a table. */
static void count_ways(joining *j)
{
    int64_t padded;
    const sheaf_logical *t = a_table(j->from_nothing && j->count > 0 ? j->part[0].held : j->c);
    for (int i = 0; i < j->count; i++)
        j->ways = j->part[i].rank >= j->ways ? j->part[i].rank + 1 : j->ways;
    const int by_rows = t != NULL && j->vocab > 0
                            ? sheaf__vocabulary_ways(t->entry.shape[0], j->vocab, &padded)
                            : 0;
    if (by_rows > j->ways)
        j->ways = by_rows;
    if (j->ways < 2 && j->from_nothing)
        j->ways = j->count;
}

static sheaf_status *complete_all(joining *j)
{
    sheaf_status *st = NULL;
    const int64_t count = j->c->count;
    bool completed = false;
    if (is_whole(j))
        return sheaf__defect(
            j->c, "foreign", j->part[0].held->root, "", "one model, whose parts lie in one folder",
            "give each model alone; an adapter goes into its base with sheaf merge",
            "it is no part of %s, which lacks nothing: another model, or a copy", j->c->root);
    for (int i = 0; st == NULL && i < j->count; i++)
        if (j->part[i].rank > 0 && parts_with(j, j->part[i].rank) > 1)
            return sheaf__defect(j->c, "duplicate", j->part[i].held->root, "",
                                 "one part of each rank", "leave one of them out",
                                 "%d parts of rank %d", parts_with(j, j->part[i].rank),
                                 j->part[i].rank);
    for (int64_t i = 0; st == NULL && i < count; i++) {
        const sheaf_logical *t = &j->c->tensor[i];
        if (t->kind == SHEAF_WEIGHT && t->entry.ndim == 2 && sheaf__is_vocabulary(t->entry.name) &&
            j->vocab > 0 && sheaf__vocabulary_part(t->entry.shape[0], j->vocab, j->ways)) {
            st = complete_table(j, t->entry.name);
            completed = true;
        }
    }
    for (int i = 0; st == NULL && i < j->count; i++)
        if (j->part[i].rank >= 0)
            st = compare_part(j, &j->part[i]);
    if (st == NULL && !completed)
        st = sheaf__warning(j->c, "foreign", j->part[0].held->root, "",
                            "parts that complete something", "leave it out",
                            "nothing in it was needed");
    if (completed)
        j->c->tp = j->ways;
    return st;
}

static int64_t vocabulary_of(const sheaf_catalog *c)
{
    sheaf_config config;
    if (c->config == NULL)
        return -1;
    sheaf_status *st = sheaf_config_parse(&config, c->config, strlen(c->config));
    const int64_t vocab = st == NULL ? config.vocab : -1;
    if (st == NULL)
        sheaf_config_release(&config);
    sheaf_status_free(st);
    return vocab;
}

static sheaf_status *join(joining *j)
{
    bool twice = false;
    sheaf_status *st = sheaf__partition_new(&j->cuts, NULL);
    TRY(st, check_twice(&twice, j));
    for (int i = 0; st == NULL && !twice && i < j->npaths; i++)
        st = add_path(j, j->path[i]);
    if (st == NULL)
        count_ways(j);
    TRY(st, j->count > 0 ? place_ranks(j) : NULL);
    j->c->by_names = j->ways > 1;
    TRY(st, check_padding(j));
    if (j->count > 0)
        TRY(st, j->from_nothing ? join_all(j) : complete_all(j));
    for (int i = 0; i < j->count; i++)
        sheaf__catalog_free(j->part[i].held);
    sheaf_schema_free(j->cuts);
    return st;
}

sheaf_status *sheaf__rank_parts_join(sheaf_catalog *c, const char *first, const char *const *also,
                                     bool (*is_other)(const char *path))
{
    joining *j = calloc(1, sizeof *j);
    if (j == NULL)
        return sheaf__no_memory(c->root);
    j->c = c;
    j->from_nothing = c->count == 0;
    j->vocab = vocabulary_of(c);
    if (first != NULL)
        j->path[j->npaths++] = first;
    for (; also != NULL && *also != NULL && j->npaths < MOST_PARTS; also++)
        if (is_other == NULL || !is_other(*also))
            j->path[j->npaths++] = *also;
    sheaf_status *st = also != NULL && *also != NULL
                           ? sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "%s", *also),
                                            "at most %d parts", MOST_PARTS)
                           : NULL;
    TRY(st, j->npaths > 0 ? join(j) : NULL);
    free(j);
    return st;
}
