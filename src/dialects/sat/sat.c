/* sat.c - checkpoints of SwissArmyTransformer: CogVLM and CogAgent, training and inference layout.
 *
 * Canonical names are SAT's names at model-parallel size 1; of an adapted linear layer X,
 * X.original.weight is X.weight. Its factors, kind SHEAF_LORA:
 *   X.matrix_A.p [r, in], X.matrix_B.p [out of part p, r]   of the p-th part of the weight, cut as
 *                                                           it is cut
 * The factor that is not cut (A of a weight divided along its output, B of one divided along its
 * input) is one copy; or, where SAT let the copies drift apart, those of all ranks side by side:
 * [N*r, in], [out, N*r].
 *
 * This file makes pieces of the parts. */
#include "base/base.h"
#include "dialects/common/dialects.h"

#include "catalog/boxes.h"
#include "dialects/sat/parts.h"

enum { LEAST_SPLIT_VOCAB = 1000 }; /* SAT keeps smaller tables whole on every rank */

typedef struct reading {
    sheaf_catalog *c;
    sheaf__sat_set *set;
    sheaf__sat_part **part; /* the chosen and readable ones, by rank */
    int nparts;
    int64_t vocab; /* by the config; 0 = not known */
} reading;

static const sheaf_pickle_tensor *tensor_in(const sheaf__sat_part *part, const char *name)
{
    return sheaf__pickle_tensor(part->file->doc, sheaf__pickle_get(part->module, name));
}

/* ---- the pieces of a part ---- */

/* Is the table whole in each part? `rows` of it are in one part. */
static bool table_is_copied(const reading *r, const char *name, int64_t rows)
{
    const sheaf__family *family = sheaf__sat_family(false); /* same names in both families */
    const bool text = strcmp(name, family->table) == 0;
    int64_t vocab = text ? r->vocab : 0;
    if (text && vocab == 0) { /* the head is always divided */
        const sheaf_pickle_tensor *head = tensor_in(r->part[0], family->head);
        vocab = head != NULL && head->ndim == 2 && head->shape[0] <= INT32_MAX
                    ? head->shape[0] * r->set->ways
                    : 0;
    }
    return rows == vocab ||
           (rows < LEAST_SPLIT_VOCAB / r->set->ways && rows != vocab / r->set->ways);
}

/* Are the factors of all parts the same? They are small: read whole. */
static sheaf_status *same_everywhere(bool *same, const reading *r, const sheaf__sat_part *part,
                                     const char *name, const sheaf_pickle_tensor *t)
{
    int64_t n = (int64_t)sheaf_dtype_bytes(t->dtype);
    *same = true;
    for (int i = 0; i < t->ndim; i++)
        if (__builtin_mul_overflow(n, t->shape[i], &n) || n > INT32_MAX)
            return sheaf_fail(SHEAF_E_UNSUPPORTED, "tensor '%s': a LoRA factor of this size", name);
    char *one = malloc((size_t)n + 1), *two = malloc((size_t)n + 1);
    sheaf_status *st = one == NULL || two == NULL ? sheaf__no_memory(r->c->root) : NULL;
    TRY(st, sheaf__torch_read(part->file, t, one, (size_t)n));
    for (int i = 0; st == NULL && *same && i < r->nparts; i++) {
        const sheaf_pickle_tensor *other = tensor_in(r->part[i], name);
        *same = other != NULL && other->dtype == t->dtype &&
                sheaf__same_shape(other->ndim, other->shape, t->ndim, t->shape);
        if (*same)
            st = sheaf__torch_read(r->part[i]->file, other, two, (size_t)n);
        *same = *same && st == NULL && memcmp(one, two, (size_t)n) == 0;
    }
    free(one);
    free(two);
    return st;
}

/* The rule of one tensor of the file, factors of LoRA included. parts 0: a copy in each part. */
static sheaf_status *rule_of(sheaf_sat_rule *rule, const reading *r, const sheaf__sat_part *part,
                             const sheaf__sat_name *what, const char *name,
                             const sheaf_pickle_tensor *t)
{
    *rule = what->rule;
    sheaf_status *st = NULL;
    const bool factor = what->kind != SHEAF_SAT_PLAIN && rule->parts > 0;
    if (r->set->ways == 1 || !what->known)
        rule->parts = 0;
    else if (factor && (what->kind == SHEAF_SAT_A) == (rule->axis == 0)) {
        bool same; /* a copy in each part, or one of its own: then side by side along the rank */
        st = same_everywhere(&same, r, part, name, t);
        rule->parts = st == NULL && !same;
    } else if (factor)
        rule->parts = 1;
    else if (rule->table && t->ndim == 2 && table_is_copied(r, what->logical, t->shape[0]))
        rule->parts = 0;
    return st;
}

static sheaf_status *wrong_shape(const reading *r, const sheaf__sat_part *part, const char *name,
                                 const char *expected, const sheaf_pickle_tensor *t)
{
    char shape[128];
    return sheaf__defect(r->c, "shape", part->path, name, expected, "", "%s in part %d",
                         sheaf__show_shape(shape, t->ndim, t->shape), part->rank);
}

/* The pieces of one tensor in one part: one for each block of its axis. */
static sheaf_status *add_pieces(reading *r, const sheaf__sat_part *part, const char *name,
                                const sheaf_sat_rule *rule, sheaf_kind kind, bool drifted,
                                const sheaf_pickle_tensor *t, int file)
{
    const int axis = rule->axis, blocks = rule->parts;
    int64_t shape[SHEAF_PICKLE_MAX_DIMS] = { 0 };
    sheaf_logical *logical = NULL;
    memcpy(shape, t->shape, (size_t)t->ndim * sizeof *shape);
    if (blocks > 0 && (axis >= t->ndim || shape[axis] % blocks != 0))
        return wrong_shape(r, part, name, "an axis that falls into its blocks", t);
    if (blocks > 0 && __builtin_mul_overflow(shape[axis], (int64_t)r->set->ways, &shape[axis]))
        return wrong_shape(r, part, name, "fewer rows", t);
    sheaf_status *st = sheaf__catalog_tensor(&logical, r->c, name, t->dtype, t->ndim, shape);
    if (st != NULL)
        return st;
    if (!sheaf__same_shape(logical->entry.ndim, logical->entry.shape, t->ndim, shape))
        return wrong_shape(r, part, name, "the shape it has in the other parts", t);
    logical->kind = kind;
    logical->replicated = blocks == 0 && r->set->ways > 1;
    logical->drifted = drifted;
    const sheaf_piece all = sheaf__piece_of(file, part->rank, part->file, t);
    const int64_t local = blocks > 0 ? t->shape[axis] / blocks : 0;
    int64_t from[SHEAF_PICKLE_MAX_DIMS] = { 0 }, to[SHEAF_PICKLE_MAX_DIMS] = { 0 },
            size[SHEAF_PICKLE_MAX_DIMS];
    memcpy(size, all.size, sizeof size);
    for (int j = 0; st == NULL && j < (blocks > 0 ? blocks : 1); j++) {
        sheaf_piece piece = all;
        if (blocks > 0) {
            from[axis] = j * local;
            size[axis] = local;
            to[axis] = (j * (int64_t)r->set->ways + part->rank) * local;
            sheaf__piece_move(&piece, &all, t->ndim, from, size, to);
        } else
            piece.digest = sheaf__torch_digest(part->file, t);
        st = sheaf__catalog_defect(r->c, part->path, sheaf__catalog_piece(r->c, logical, &piece));
    }
    return st;
}

/* A name that neither model has: kept if undivided, else refused, as its cut is unknown. */
static sheaf_status *stranger(reading *r, const sheaf__sat_part *part, const char *name)
{
    if (part != r->part[0])
        return NULL;
    const bool one = r->set->ways == 1;
    return sheaf__finding(r->c, one ? SHEAF_WARNING : SHEAF_DEFECT, "foreign", part->path, name,
                          "tensors of CogVLM or CogAgent", "", "%s",
                          one ? "a tensor that neither has; it is kept as it is"
                              : "a tensor that neither has, so how it is divided is not known");
}

static sheaf_status *add_tensor(reading *r, const sheaf__sat_part *part, int file, int64_t i)
{
    const char *name = sheaf__pickle_text(sheaf__pickle_key(part->module, i));
    const sheaf_pickle *value = sheaf__pickle_value(part->module, i);
    const sheaf_pickle_tensor *t = sheaf__pickle_tensor(part->file->doc, value);
    sheaf__sat_name what;
    sheaf_sat_rule rule;
    if (name == NULL || !sheaf__sat_name_of(&what, name))
        return sheaf__defect(r->c, "damaged", part->path, "", "names of tensors", "",
                             "a key of \"module\" that is no name");
    if (t == NULL) {
        bool noted;
        sheaf_status *st = sheaf__dialect_unread(&noted, r->c, part->path, name, value);
        return st != NULL || noted ? st
                                   : sheaf__warning(r->c, "foreign", part->path, name, "a tensor",
                                                    "", "a value that is none and is left out");
    }
    sheaf_status *st = rule_of(&rule, r, part, &what, name, t);
    if (st != NULL)
        return sheaf__catalog_defect(r->c, part->path, st);
    const sheaf_kind kind = what.kind != SHEAF_SAT_PLAIN ? SHEAF_LORA
                            : rule.buffer                ? SHEAF_BUFFER
                                                         : SHEAF_WEIGHT;
    st = what.known ? NULL : stranger(r, part, name);
    const bool drifted =
        what.kind == SHEAF_SAT_A && rule.axis == 0 && rule.parts > 0; /* all were equal initially */
    return st != NULL ? st : add_pieces(r, part, what.logical, &rule, kind, drifted, t, file);
}

/* ---- the parts ---- */

static int by_rank(const void *a, const void *b)
{
    const sheaf__sat_part *p = *(sheaf__sat_part *const *)a, *q = *(sheaf__sat_part *const *)b;
    return p->rank - q->rank;
}

/* Takes p->why. */
static sheaf_status *report_unreadable(reading *r, sheaf__sat_part *p)
{
    sheaf_status *why = sheaf_in(p->why, "part %d", p->rank);
    p->why = NULL;
    return sheaf__catalog_defect_as(r->c, p->path, why,
                                    sheaf_status_code(why) == SHEAF_E_LAYOUT ? "foreign" : NULL,
                                    "copy or download the file again");
}

/* Opens a chosen part again; it must be the same file. */
static sheaf_status *open_again(sheaf__sat_part *p)
{
    int64_t size = 0;
    sheaf_status *st = sheaf__file_open_read(&p->file->fd, &size, p->path);
    if (st != NULL)
        p->file->fd = -1;
    if (st == NULL && size != p->file->size)
        st = sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_FORMAT, "%s", p->path),
                                        "%" PRId64 " bytes, as a moment ago", p->file->size),
                         "%" PRId64, size);
    return st;
}

static sheaf_status *pick_parts(reading *r)
{
    sheaf_status *st = NULL;
    r->part = calloc((size_t)r->set->nparts + 1, sizeof *r->part);
    if (r->part == NULL)
        return sheaf__no_memory(r->c->root);
    for (int i = 0; st == NULL && i < r->set->nparts; i++) {
        sheaf__sat_part *p = &r->set->part[i];
        if (p->chosen && p->rank < r->set->ways && p->file != NULL) {
            st = open_again(p);
            r->part[r->nparts++] = p;
        } else if (p->chosen && p->file == NULL)
            st = report_unreadable(r, p);
    }
    if (r->nparts > 0)
        qsort(r->part, (size_t)r->nparts, sizeof *r->part, by_rank);
    return st;
}

/* The config of rank 0's folder, else any other. */
static const sheaf__sat_folder *config_folder(const reading *r)
{
    for (int i = 0; i < r->nparts; i++)
        if (*r->set->folder[r->part[i]->folder].config != '\0')
            return &r->set->folder[r->part[i]->folder];
    if (r->set->anchor >= 0 && *r->set->folder[r->set->anchor].config != '\0')
        return &r->set->folder[r->set->anchor];
    return NULL;
}

static sheaf_status *add_parts(reading *r)
{
    sheaf_status *st = NULL;
    for (int i = 0; st == NULL && i < r->nparts; i++) {
        const sheaf__sat_part *part = r->part[i];
        const int64_t n = sheaf__pickle_count(part->module);
        int file;
        st = sheaf__catalog_file(&file, r->c, part->path, &part->file->mark);
        for (int64_t k = 0; st == NULL && k < n; k++)
            st = add_tensor(r, part, file, k);
    }
    return st;
}

/* Reports copies that some parts lack. */
static sheaf_status *check_copies(reading *r)
{
    sheaf_status *st = NULL;
    for (int64_t i = 0; st == NULL && i < r->c->count; i++) {
        const sheaf_logical *t = &r->c->tensor[i];
        if (t->replicated && t->npieces < r->nparts)
            st = sheaf__warning(r->c, "missing", r->c->root, t->entry.name, "a copy in each part",
                                "", "%" PRId64 " copies in %d parts", t->npieces, r->nparts);
    }
    return st;
}

static sheaf_status *sat_read(sheaf_catalog *c, const char *path, const sheaf_dialect_hints *hints)
{
    sheaf__sat_set set = { 0 };
    reading r = { .c = c, .set = &set };
    sheaf_status *st = sheaf__sat_find(&set, c, path, hints->also);
    TRY(st, pick_parts(&r));
    const sheaf__sat_folder *folder = st == NULL ? config_folder(&r) : NULL;
    r.vocab = folder != NULL ? folder->vocab : 0;
    c->tp = set.ways;
    TRY(st, set.ways > 1 ? sheaf__sat_check_order(c, r.part, r.nparts) : NULL);
    TRY(st, add_parts(&r));
    TRY(st, check_copies(&r));
    if (st == NULL && set.ways > 0)
        st = sheaf__sat_check(c, &set,
                              hints->config != NULL ? hints->config
                              : folder != NULL      ? folder->config
                                                    : NULL,
                              hints);
    free(r.part);
    sheaf__sat_set_release(&set);
    return st;
}

const sheaf_dialect sheaf__dialect_sat = {
    .name = "sat",
    .title = "SwissArmyTransformer (SAT)",
    .is = sheaf__sat_is,
    .read = sat_read,
    .config = "model_config.json",
    .writes = SHEAF_WRITES_MODEL | SHEAF_WRITES_RANKS,
    .folders = true,
    .own_lora = true,
};
