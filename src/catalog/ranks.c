/* ranks.c - are the parts of one checkpoint of one run? By the tensors of which each part has a
 * copy.
 *
 * Copies are equal; or they drifted: where a program lets ranks train copies apart, as SAT does,
 * all of them differ a little, and each is near each other one; or they have nothing in common:
 * then parts of several runs lie together. Parts whose copies are equal in all bits are of one run
 * or step. Where some are and others differ, that is no drift: the greater number is right, and of
 * equal numbers none; unless no more than a few elements differ, as where copies drifted by less
 * than they are rounded.
 *
 * What files say of their bytes (piece.digest) is believed; else a sample of each copy is read.
 * Copies that differ are classified by samples: by their correlation, and not by distance, as a
 * part that drifted far is still of its run. */
#include <math.h>

#include "base/base.h"
#include "catalog/private.h"
#include "ops/kernels.h"

enum {
    SAMPLE = 1024,       /* elements of a copy */
    MOST_GROUPS = 64,    /* that are held against each other in pairs */
    MOST_COMPARED = 256, /* tensors of which pairs are held against each other */
    LEAST_MATRIX = 256,
    LEAST_SMALL = 64,
    LEAST_FACTORS = 200, /* elements that carry information */
};
#define NEAR 0.02 /* squared distance by the sum of the squares: what little training moves */
#define UNRELATED                                                                                  \
    0.25 /* four standard deviations of the correlation of LEAST_MATRIX unrelated numbers */
#define UNRELATED_FACTORS 0.05 /* those of LoRA begin random, are equal at first and drift far */
#define FEW 0.05               /* of a tensor's elements: drift that rounding hides in most */
#define GAP 4.0 /* times as far from the others as they are from each other: not by drift */

typedef struct pool {
    double n, sum;
} pool; /* elements, and by each their correlation */

typedef struct pair {
    double apart;                       /* sum of squared distances by the tensors' squares */
    int near, unrelated, all_unrelated; /* matrices; the last: that show no two parts equal */
    pool small, factors;
} pair;

typedef struct part {
    int rank;
    const char *path; /* path of its first copy that differs */
    uint64_t chain;   /* of the digests of all its copies */
    uint64_t digest;  /* of one */
    int group;        /* parts with equal copies are one */
} part;

typedef struct copies {
    sheaf_catalog *c;
    part *part;
    int count, groups;
    int64_t *tensor, tensors;    /* that each part has a copy of */
    int64_t differing, replicas; /* those that differ; and those without LoRA's factors */
    bool *differs;               /* by tensors */
    int first[MOST_GROUPS];
    bool many;  /* in some tensor more than a few elements differ */
    pair *pair; /* groups x groups, below the diagonal */
    char *raw;
    float *sample; /* groups x SAMPLE */
} copies;

static bool is_copied(const sheaf_logical *t)
{
    return (t->replicated || t->drifted) && t->npieces > 1 &&
           (t->kind == SHEAF_WEIGHT || t->kind == SHEAF_LORA) &&
           sheaf_dtype_bytes(t->entry.dtype) > 0;
}

/* ---- parts and tensors ---- */

static int ranks_of(const sheaf_logical *t)
{
    int n = 0;
    for (int64_t i = 0; i < t->npieces; i++)
        n += i == 0 || t->piece[i].rank != t->piece[i - 1].rank;
    return n;
}

/* The first piece of a part's copy; -1 = it has none. */
static int64_t piece_of(const sheaf_logical *t, int rank)
{
    for (int64_t i = 0; i < t->npieces; i++)
        if (t->piece[i].rank == rank)
            return i;
    return -1;
}

static sheaf_status *list(copies *k)
{
    const sheaf_catalog *c = k->c;
    const sheaf_logical *widest = NULL;
    for (int64_t i = 0; i < c->count; i++)
        if (is_copied(&c->tensor[i])) {
            const int n = ranks_of(&c->tensor[i]);
            k->tensors++;
            widest = n > k->count ? &c->tensor[i] : widest;
            k->count = n > k->count ? n : k->count;
        }
    k->part = calloc((size_t)k->count + 1, sizeof *k->part);
    k->tensor = calloc((size_t)k->tensors + 1, sizeof *k->tensor);
    k->differs = calloc((size_t)k->tensors + 1, sizeof *k->differs);
    k->raw = malloc(SAMPLE * 8);
    if (k->part == NULL || k->tensor == NULL || k->differs == NULL || k->raw == NULL)
        return sheaf__no_memory(c->root);
    int at = 0;
    for (int64_t i = 0; widest != NULL && i < widest->npieces; i++)
        if (i == 0 || widest->piece[i].rank != widest->piece[i - 1].rank)
            k->part[at++].rank = widest->piece[i].rank;
    k->tensors = 0;
    for (int64_t i = 0; i < c->count; i++) {
        bool all = is_copied(&c->tensor[i]);
        for (int r = 0; all && r < k->count; r++)
            all = piece_of(&c->tensor[i], k->part[r].rank) >= 0;
        if (all)
            k->tensor[k->tensors++] = i;
    }
    return NULL;
}

/* ---- a sample ---- */

/* Some elements of a part's copy into k->raw, the same for each part; *n = 0 where they cannot be
 * had, which another finding says. */
static sheaf_status *read_sample(int64_t *n, copies *k, int64_t tensor, int rank)
{
    const sheaf_logical *t = &k->c->tensor[tensor];
    const int64_t first = piece_of(t, rank), below = t->drifted ? t->piece[first].size[0] : 0;
    int64_t rows, cols, got = 0;
    sheaf__catalog_view(&rows, &cols, t);
    rows = t->drifted ? below : rows; /* side by side along axis 0 */
    const int64_t w = cols < SAMPLE ? cols : SAMPLE, most = w > 0 ? SAMPLE / w : 0,
                  h = rows < most ? rows : most;
    const uint64_t place = sheaf__fnv(SHEAF__FNV, t->entry.name, strlen(t->entry.name));
    *n = 0;
    if (w < 1 || h < 1)
        return NULL;
    const int64_t row =
        (int64_t)(place % (uint64_t)(rows - h + 1)) + (t->drifted ? t->piece[first].begin[0] : 0);
    const int64_t col = (int64_t)(place / 7 % (uint64_t)(cols - w + 1));
    for (int64_t i = first; i < t->npieces && t->piece[i].rank == rank; i++) {
        int64_t some = 0;
        sheaf_status *st =
            t->piece[i].dtype != t->entry.dtype
                ? NULL
                : sheaf__piece_read(&some, k->c, t, &t->piece[i], row, h, col, w, k->raw);
        got += st == NULL ? some : 0;
        if ((st = sheaf__only_memory(st)) != NULL)
            return st;
    }
    *n = got == h * w ? got : 0;
    return NULL;
}

static bool is_constant(const char *raw, int64_t n, size_t each)
{
    return n < 2 || memcmp(raw, raw + each, (size_t)(n - 1) * each) == 0;
}

/* Digests of the copies of one tensor, into k->digest; *usable: of all of them. */
static sheaf_status *digests_of(bool *usable, copies *k, int64_t tensor)
{
    const sheaf_logical *t = &k->c->tensor[tensor];
    const size_t each = sheaf_dtype_bytes(t->entry.dtype);
    bool known = true;
    *usable = true;
    for (int r = 0; r < k->count; r++)
        known = (k->part[r].digest = t->piece[piece_of(t, k->part[r].rank)].digest) != 0 && known;
    for (int r = 0; *usable && r < k->count; r++) {
        int64_t n = 0;
        if (known && (r > 0 || k->c->copies_vary))
            break;
        sheaf_status *st = read_sample(&n, k, tensor, k->part[r].rank);
        if (st != NULL)
            return st;
        *usable = known || n > 0;
        k->c->copies_vary |= n > 0 && !is_constant(k->raw, n, each);
        k->part[r].digest =
            known ? k->part[r].digest : sheaf__fnv(SHEAF__FNV, k->raw, (size_t)n * each);
    }
    return NULL;
}

/* Sets k->differs of one tensor and goes on with the parts' chains. */
static sheaf_status *compare(copies *k, int64_t index)
{
    const sheaf_logical *t = &k->c->tensor[k->tensor[index]];
    bool usable;
    sheaf_status *st = digests_of(&usable, k, k->tensor[index]);
    if (st != NULL || !usable)
        return st;
    for (int r = 0; r < k->count; r++) {
        k->differs[index] |= k->part[r].digest != k->part[0].digest;
        k->part[r].chain =
            sheaf__fnv(k->part[r].chain, &k->part[r].digest, sizeof k->part[r].digest);
    }
    for (int r = 0; r < k->count; r++)
        if (k->part[r].path == NULL || (k->differs[index] && k->differing == 0))
            k->part[r].path = k->c->file[t->piece[piece_of(t, k->part[r].rank)].file].path;
    k->differing += k->differs[index];
    k->replicas += k->differs[index] && t->replicated;
    return NULL;
}

static void make_groups(copies *k)
{
    for (int r = 0; r < k->count; r++) {
        k->part[r].group = -1;
        for (int o = 0; o < r && k->part[r].group < 0; o++)
            if (k->part[o].chain == k->part[r].chain)
                k->part[r].group = k->part[o].group;
        if (k->part[r].group >= 0)
            continue;
        if (k->groups < MOST_GROUPS)
            k->first[k->groups] = r;
        k->part[r].group = k->groups++;
    }
}

/* ---- pairs ---- */

static pair *pair_of(const copies *k, int a, int b)
{
    return &k->pair[a > b ? a * (a - 1) / 2 + b : b * (b - 1) / 2 + a];
}

static bool as_floats(float *to, const char *raw, sheaf_dtype dtype, int64_t n)
{
    const sheaf__kernels *kernels = sheaf__kernels_for("ref");
    if (dtype == SHEAF_F64)
        for (int64_t i = 0; i < n; i++) {
            double x;
            memcpy(&x, raw + i * 8, 8);
            to[i] = (float)x;
        }
    else if (dtype == SHEAF_F32 || dtype == SHEAF_BF16 || dtype == SHEAF_F16)
        kernels->convert(to, SHEAF_F32, raw, dtype, n);
    else
        return false;
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(to[i]))
            return false;
    return true;
}

/* Between -1 and 1, or 1 where the two are near or one of them tells nothing; *apart, by the
 * squares of both. */
static double likeness(double *apart, const float *x, const float *y, int64_t n)
{
    double mx = 0, my = 0, xx = 0, yy = 0, xy = 0, squares = 0, far = 0;
    for (int64_t i = 0; i < n; i++) {
        mx += x[i];
        my += y[i];
    }
    mx /= (double)n;
    my /= (double)n;
    for (int64_t i = 0; i < n; i++) {
        const double a = x[i] - mx, b = y[i] - my, d = (double)x[i] - y[i];
        xx += a * a;
        yy += b * b;
        xy += a * b;
        far += d * d;
        squares += (double)x[i] * x[i] + (double)y[i] * y[i];
    }
    *apart = squares > 0 ? far / squares : 0;
    return *apart <= NEAR || !(xx > 0) || !(yy > 0) ? 1 : xy / sqrt(xx * yy);
}

static bool is_matrix(const sheaf_logical *t)
{
    int wide = 0;
    for (int d = 0; d < t->entry.ndim; d++)
        wide += t->entry.shape[d] > 1;
    return wide > 1;
}

/* Differ more than a few elements of the samples from the first group's? */
static bool differ_much(const copies *k, int64_t n)
{
    for (int g = 1; g < k->groups; g++) {
        int64_t differ = 0;
        for (int64_t i = 0; i < n; i++)
            differ += k->sample[(int64_t)g * SAMPLE + i] != k->sample[i];
        if ((double)differ > FEW * (double)n)
            return true;
    }
    return false;
}

/* Holds the copies of one tensor against each other, a part of each group. */
static sheaf_status *weigh(copies *k, int64_t tensor)
{
    const sheaf_logical *t = &k->c->tensor[tensor];
    double like[MOST_GROUPS * (MOST_GROUPS - 1) / 2], far[MOST_GROUPS * (MOST_GROUPS - 1) / 2];
    int64_t n = 0;
    bool usable = true, all = k->groups > 2;
    for (int g = 0; usable && g < k->groups; g++) {
        sheaf_status *st = read_sample(&n, k, tensor, k->part[k->first[g]].rank);
        if (st != NULL)
            return st;
        usable = n > 0 && as_floats(k->sample + (size_t)g * SAMPLE, k->raw, t->entry.dtype, n);
    }
    k->many = k->many || (n > 0 && (!usable || differ_much(k, n)));
    for (int a = 1, i = 0; usable && a < k->groups; a++)
        for (int b = 0; b < a; b++, i++) {
            like[i] = likeness(&far[i], k->sample + (size_t)a * SAMPLE,
                               k->sample + (size_t)b * SAMPLE, n);
            k->pair[i].apart += far[i];
            all = all && like[i] < UNRELATED;
        }
    const bool factor = t->kind == SHEAF_LORA,
               matrix = !factor && is_matrix(t) && n >= LEAST_MATRIX;
    for (int i = 0; usable && i < k->groups * (k->groups - 1) / 2; i++) {
        pair *p = &k->pair[i];
        pool *in = factor ? &p->factors : &p->small;
        if (far[i] == 0)
            continue; /* they differ elsewhere, or not at all */
        if (matrix && like[i] < UNRELATED)
            (*(all ? &p->all_unrelated : &p->unrelated))++;
        else if (matrix)
            p->near++;
        else {
            in->n += (double)n;
            in->sum += (double)n * like[i];
        }
    }
    return NULL;
}

static bool unrelated(const pair *p)
{
    const double few = p->factors.n > 0 ? 3 / sqrt(p->factors.n)
                                        : 1; /* three standard deviations of unrelated ones */
    if (p->unrelated > 0 || (p->all_unrelated > 0 && p->near == 0))
        return true;
    if (p->factors.n >= LEAST_FACTORS &&
        p->factors.sum / p->factors.n < (few > UNRELATED_FACTORS ? few : UNRELATED_FACTORS))
        return true;
    return p->near == 0 && p->small.n >= LEAST_SMALL && p->small.sum / p->small.n < UNRELATED;
}

/* ---- which parts belong together ---- */

static void join(copies *k, int from, int to)
{
    for (int r = 0; r < k->count; r++)
        k->part[r].group = k->part[r].group == from ? to : k->part[r].group;
}

/* Numbers the groups anew from 0, in the order of their first parts. */
static void number_groups(copies *k)
{
    k->groups = 0;
    for (int r = 0; r < k->count; r++) {
        bool known = false;
        for (int o = 0; o < r; o++)
            known = known || k->part[o].group == k->part[r].group;
        if (!known)
            join(k, k->part[r].group, k->count + k->groups++);
    }
    for (int r = 0; r < k->count; r++)
        k->part[r].group -= k->count;
}

/* Each part stands alone: those that have something in common are one group. Of all unrelated
 * factors of LoRA, which drifted further than they were long, nothing follows. */
static void group_related(copies *k)
{
    const int n = k->groups;
    bool related = false;
    for (int a = 1; a < n; a++)
        for (int b = 0; b < a; b++)
            related = related || !unrelated(pair_of(k, a, b));
    bool by_factors = n > 2 && !related;
    for (int i = 0; i < n * (n - 1) / 2; i++)
        by_factors = by_factors && k->pair[i].unrelated == 0 && k->pair[i].all_unrelated == 0 &&
                     k->pair[i].small.n < LEAST_SMALL;
    for (int a = 1; a < n; a++)
        for (int b = 0; b < a; b++)
            if (by_factors || !unrelated(pair_of(k, a, b)))
                join(k, k->part[k->first[a]].group, k->part[k->first[b]].group);
    number_groups(k);
}

/* All drifted, but one or some further from the rest than those are from each other: groups again.
 * The nearest pairs are joined first, until two groups are left. */
static void group_by_gap(copies *k, int n)
{
    int of[MOST_GROUPS];
    double widest = 0, gap = INFINITY;
    for (int a = 0; a < n; a++)
        of[a] = a;
    for (int left = n; left > 2; left--) {
        int x = -1, y = -1;
        for (int a = 1; a < n; a++)
            for (int b = 0; b < a; b++)
                if (of[a] != of[b] &&
                    (x < 0 || pair_of(k, a, b)->apart < pair_of(k, x, y)->apart)) {
                    x = a;
                    y = b;
                }
        const int from = of[x], to = of[y];
        for (int a = 0; a < n; a++)
            of[a] = of[a] == from ? to : of[a];
    }
    for (int a = 1; a < n; a++)
        for (int b = 0; b < a; b++) {
            const double apart = sqrt(pair_of(k, a, b)->apart);
            if (of[a] == of[b])
                widest = apart > widest ? apart : widest;
            else
                gap = apart < gap ? apart : gap;
        }
    if (gap <= GAP * widest)
        return;
    for (int a = 0; a < n; a++)
        k->part[k->first[a]].group = of[a];
    number_groups(k);
}

/* alone: no two parts have equal copies. */
static sheaf_status *separate(copies *k, bool alone)
{
    const int n = k->groups < MOST_GROUPS ? k->groups : MOST_GROUPS;
    k->pair = calloc((size_t)(n * n), sizeof *k->pair);
    k->sample = calloc((size_t)n, SAMPLE * sizeof *k->sample);
    if (k->pair == NULL || k->sample == NULL)
        return sheaf__no_memory(k->c->root);
    const int64_t apart = k->differing > MOST_COMPARED ? k->differing / MOST_COMPARED : 1;
    sheaf_status *st = NULL;
    for (int r = 0; r < k->count; r++) /* more than are held against each other go with the first */
        k->part[r].group = k->part[r].group < n ? k->part[r].group : 0;
    k->groups = n;
    for (int64_t i = 0, seen = 0; st == NULL && i < k->tensors; i++)
        if (k->differs[i] && seen++ % apart == 0)
            st = weigh(k, k->tensor[i]);
    if (st == NULL && !k->many)
        for (int g = 1; g < n; g++)
            join(k, g, 0);
    if (st == NULL && !k->many)
        number_groups(k);
    if (st != NULL || !k->many || !alone)
        return st;
    group_related(k);
    if (k->groups == 1 && n > 3)
        group_by_gap(k, n);
    return NULL;
}

/* ---- findings ---- */

/* "part 3", "parts 0 to 3", "parts 1, 4, 5" */
static void add_parts(sheaf_text *text, const copies *k, int group)
{
    int n = 0, last = -1, first = -1;
    for (int r = 0; r < k->count; r++)
        if (k->part[r].group == group) {
            first = first < 0 ? r : first;
            last = r;
            n++;
        }
    const bool run = n > 2 && last - first == n - 1;
    sheaf__text_add(text, n > 1 ? "parts %d" : "part %d", k->part[first].rank);
    for (int r = first + 1; !run && r <= last; r++)
        if (k->part[r].group == group)
            sheaf__text_add(text, ", %d", k->part[r].rank);
    if (run)
        sheaf__text_add(text, " to %d", k->part[last].rank);
}

static int size_of(const copies *k, int group)
{
    int n = 0;
    for (int r = 0; r < k->count; r++)
        n += k->part[r].group == group;
    return n;
}

/* One finding for each part that is not of the greater number. */
static sheaf_status *report_foreign(copies *k, int right, bool drift)
{
    sheaf_text expected = { 0 };
    sheaf_status *st = NULL;
    sheaf__text_add(&expected, "a part of the save of ");
    add_parts(&expected, k, right);
    sheaf__text_add(&expected, drift ? ", whose copies of common tensors are near each other"
                                     : ", whose copies of common tensors agree");
    for (int r = 0; st == NULL && !expected.failed && r < k->count; r++)
        if (k->part[r].group != right)
            st = sheaf__defect(
                k->c, "foreign", k->part[r].path, "", expected.at,
                "put the part of the same save here",
                "part %d has other values in tensors of which each part has a copy (%" PRId64
                " of %" PRId64 " differ somewhere): it is of another run or step, or was changed",
                k->part[r].rank, k->differing, k->tensors);
    TRY(st, expected.failed ? sheaf__no_memory(k->c->root) : NULL);
    sheaf__text_release(&expected);
    return st;
}

static sheaf_status *report_groups(copies *k)
{
    enum { NAMED = 8 };
    sheaf_text found = { 0 };
    for (int g = 0; g < k->groups && g < NAMED; g++) {
        if (g > 0)
            sheaf__text_add(&found, g == k->groups - 1 ? " and " : ", ");
        add_parts(&found, k, g);
    }
    if (k->groups > NAMED)
        sheaf__text_add(&found, " and %d groups more", k->groups - NAMED);
    sheaf__text_add(&found,
                    " are of different runs or steps: of the %" PRId64
                    " tensors of which each part has a copy, %" PRId64
                    " differ between them; it is unknown which parts are right",
                    k->tensors, k->differing);
    sheaf_status *st = found.failed
                           ? sheaf__no_memory(k->c->root)
                           : sheaf__defect(k->c, "conflict", k->c->root, "", "parts of one save",
                                           "put the parts of one save together", "%s", found.at);
    sheaf__text_release(&found);
    return st;
}

/* The defect, where there is more than one group. */
static sheaf_status *report(copies *k, bool drift)
{
    int best = 0;
    for (int g = 1; g < k->groups; g++)
        best = size_of(k, g) > size_of(k, best) ? g : best;
    k->c->copies_contradict = k->groups > 1;
    if (k->groups > 1)
        return 2 * size_of(k, best) > k->count ? report_foreign(k, best, drift) : report_groups(k);
    if (k->replicas == 0)
        return NULL; /* reported with LoRA's factors */
    return sheaf__warning(
        k->c, "replica", k->c->root, "", "the same copies in every part", "",
        "copies of %" PRId64 " of %" PRId64
        " tensors differ from part to part, but are near each other: ranks let them "
        "drift in training; those of part %d are used",
        k->replicas, k->tensors, k->part[0].rank);
}

static void release(copies *k)
{
    free(k->part);
    free(k->tensor);
    free(k->differs);
    free(k->raw);
    free(k->pair);
    free(k->sample);
}

sheaf_status *sheaf__catalog_ranks(sheaf_catalog *c)
{
    copies k = { .c = c };
    sheaf_status *st = list(&k);
    for (int64_t i = 0; st == NULL && i < k.tensors; i++)
        st = compare(&k, i);
    c->copies = k.tensors;
    make_groups(&k);
    const bool alone = k.groups == k.count;
    TRY(st, k.groups > 1 ? separate(&k, alone) : NULL);
    TRY(st, k.differing > 0 ? report(&k, alone) : NULL);
    release(&k);
    return st;
}
