/* join.c - which parts belong together; see parts.h.
 *
 * Parts of one save have the same step, names, dtypes and shapes, and the same values in replicated
 * tensors. Where those differ from rank to rank (SAT lets copies drift in some trainings) they are
 * no evidence, and only an unambiguous choice is taken. */
#include "base/base.h"
#include "dialects/sat/parts.h"

/* ---- how many parts ---- */

static int64_t any_vocab(const sheaf__sat_set *set, int folder)
{
    int64_t vocab = set->folder[folder].vocab;
    for (int i = 0; vocab == 0 && i < set->nfolders; i++)
        vocab = set->folder[i].vocab;
    return vocab;
}

/* The number of parts of a part's save: by its shapes, its own value, or the config. 0 =
 * unknown. */
static int ways_of(const sheaf__sat_set *set, const sheaf__sat_part *part)
{
    int ways = sheaf__sat_ways_by_shape(part, any_vocab(set, part->folder));
    if (ways == 0)
        ways = (int)part->ways;
    if (ways == 0)
        ways = (int)set->folder[part->folder].ways;
    for (int i = 0; ways == 0 && i < set->nfolders; i++)
        ways = (int)set->folder[i].ways;
    return ways;
}

static int greatest_rank(const sheaf__sat_set *set, int folder)
{
    int rank = -1;
    for (int i = 0; i < set->nparts; i++)
        if ((folder < 0 || set->part[i].folder == folder) && set->part[i].rank > rank)
            rank = set->part[i].rank;
    return rank;
}

static const sheaf__sat_part *first_readable(const sheaf__sat_set *set, int folder)
{
    for (int i = 0; i < set->nparts; i++)
        if ((folder < 0 || set->part[i].folder == folder) && set->part[i].file != NULL)
            return &set->part[i];
    return NULL;
}

static int ways_of_folder(const sheaf__sat_set *set, int folder)
{
    const sheaf__sat_part *part = first_readable(set, folder);
    const int ways =
        part == NULL ? (folder >= 0 ? (int)set->folder[folder].ways : 0) : ways_of(set, part);
    return ways > 0 ? ways : greatest_rank(set, folder) + 1;
}

/* Does the folder have each rank once? */
static bool is_full(const sheaf__sat_set *set, int folder, int ways)
{
    int count[SHEAF_SAT_MOST_RANKS] = { 0 };
    for (int i = 0; i < set->nparts; i++)
        count[set->part[i].rank] += set->part[i].folder == folder;
    for (int r = 0; r < ways; r++)
        if (count[r] != 1)
            return false;
    return ways > 0;
}

bool sheaf__sat_complete(const sheaf__sat_set *set)
{
    const int f = set->anchor;
    if (*set->folder[f].config == '\0' || !is_full(set, f, ways_of_folder(set, f)))
        return false;
    const sheaf__sat_part *first = first_readable(set, f);
    for (int i = 0; i < set->nparts; i++) {
        const sheaf__sat_part *p = &set->part[i];
        if (p->folder == f && p->file != NULL &&
            (p->names != first->names || p->copies != first->copies))
            return false; /* two runs may have written into one folder */
    }
    return true;
}

/* ---- parts that agree in everything ---- */

/* By the names of their folders; parts without a step's folder match any. */
static bool same_step(const sheaf__sat_set *set, const sheaf__sat_part *a, const sheaf__sat_part *b)
{
    const char *one = set->folder[a->folder].tag, *two = set->folder[b->folder].tag;
    return *one == '\0' || *two == '\0' || strcmp(one, two) == 0;
}

static bool agree(const sheaf__sat_set *set, const sheaf__sat_part *a, const sheaf__sat_part *b)
{
    return a->file != NULL && b->file != NULL && same_step(set, a, b) && a->names == b->names &&
           a->copies == b->copies;
}

typedef struct group {
    int ways;
    bool complete; /* each rank once */
    bool anchored; /* a part is in the folder given by the user */
} group;

/* The parts that agree with `first`. */
static group group_of(const sheaf__sat_set *set, const sheaf__sat_part *first)
{
    int count[SHEAF_SAT_MOST_RANKS] = { 0 };
    group g = { .ways = ways_of(set, first) };
    for (int i = 0; i < set->nparts; i++)
        if (agree(set, &set->part[i], first)) {
            count[set->part[i].rank]++;
            g.anchored |= set->part[i].folder == set->anchor;
        }
    if (g.ways == 0)
        g.ways = greatest_rank(set, first->folder) + 1;
    g.complete = g.ways > 0;
    for (int r = 0; r < SHEAF_SAT_MOST_RANKS; r++)
        g.complete = g.complete && count[r] == (r < g.ways);
    return g;
}

static bool is_first(const sheaf__sat_set *set, int part)
{
    for (int i = 0; i < part; i++)
        if (agree(set, &set->part[i], &set->part[part]))
            return false;
    return set->part[part].file != NULL;
}

/* The first part, from `part` on, of a candidate group: a complete one in the folder given by the
 * user; -1: none. */
static int next_group(const sheaf__sat_set *set, int part)
{
    for (; part < set->nparts; part++) {
        if (!is_first(set, part))
            continue;
        const group g = group_of(set, &set->part[part]);
        if (g.complete && (set->anchor < 0 || g.anchored))
            return part;
    }
    return -1;
}

static void add_word(sheaf_text *text, const char *word)
{
    sheaf__text_add(text, " ");
    sheaf__text_word(text, word);
}

/* Reports one of several candidates, with the command that joins it if it is `complete`; frees the
 * texts. */
static sheaf_status *note_choice(sheaf_catalog *c, sheaf_text *found, sheaf_text *sources,
                                 int number, bool complete)
{
    sheaf_text cure = { 0 };
    if (complete)
        sheaf__text_add(&cure, "sheaf convert%s {+joined-%d} --to sat --tp 1",
                        sources->at != NULL ? sources->at : "", number);
    sheaf_status *st =
        sources->failed || found->failed || cure.failed
            ? sheaf__no_memory(c->root)
            : sheaf__defect(c, "conflict", c->root, "", "one checkpoint", cure.at, "%s", found->at);
    sheaf__text_release(found);
    sheaf__text_release(sources);
    sheaf__text_release(&cure);
    return st;
}

/* Reports several complete saves in shared folders, one by one. */
static sheaf_status *list_groups(const sheaf__sat_set *set, sheaf_catalog *c)
{
    sheaf_status *st = NULL;
    int number = 0;
    for (int i = next_group(set, 0); i >= 0 && st == NULL; i = next_group(set, i + 1)) {
        sheaf_text files = { 0 }, found = { 0 };
        for (int k = 0; k < set->nparts; k++)
            if (agree(set, &set->part[k], &set->part[i]))
                add_word(&files, set->part[k].path);
        sheaf__text_add(&found, "several complete ones; number %d has %d parts:%s", ++number,
                        group_of(set, &set->part[i]).ways, files.at != NULL ? files.at : "");
        st = note_choice(c, &found, &files, number, true);
    }
    return st;
}

/* ---- one candidate for each rank ---- */

/* Counts parts of `rank` that could belong to `like`; *part is the last of them. With `not_full`,
 * none from complete folders. */
static int candidates(int *part, const sheaf__sat_set *set, const sheaf__sat_part *like, int rank,
                      int ways, bool not_full)
{
    int n = 0;
    for (int i = 0; i < set->nparts; i++) {
        const sheaf__sat_part *p = &set->part[i];
        if (p->rank != rank || (like != NULL && !same_step(set, p, like)) ||
            (p->file != NULL && like != NULL && p->names != like->names) ||
            (not_full && p->folder != set->anchor && is_full(set, p->folder, ways)))
            continue;
        *part = i;
        n++;
    }
    return n;
}

/* Chooses unambiguous parts; a finding for each rank with several candidates. */
static sheaf_status *choose_each(bool *doubt, sheaf__sat_set *set, sheaf_catalog *c)
{
    const sheaf__sat_part *like = first_readable(set, set->anchor);
    sheaf_status *st = NULL;
    *doubt = false;
    for (int r = 0; r < set->ways && st == NULL; r++) {
        int part = -1, all = 0;
        for (int i = 0; set->anchor >= 0 && part < 0 && i < set->nparts; i++)
            part = set->part[i].folder == set->anchor && set->part[i].rank == r ? i : -1;
        if (part < 0)
            all = candidates(&part, set, like, r, set->ways, false);
        if (all > 1 ? candidates(&part, set, like, r, set->ways, true) == 1 : part >= 0)
            set->part[part].chosen = true;
        else if (all > 1) {
            sheaf_text where = { 0 };
            *doubt = true;
            for (int i = 0; i < set->nparts; i++)
                if (set->part[i].rank == r)
                    sheaf__text_add(&where, "%s%s", where.size > 0 ? ", " : "", set->part[i].path);
            st =
                where.failed
                    ? sheaf__no_memory(c->root)
                    : sheaf__defect(
                          c, "conflict", c->root, "",
                          "one part of each rank, identified by step, names, shapes and replicated tensors",
                          "name the folders of one run, and no others, as sources of sheaf convert",
                          "part %d could be any of: %s", r, where.at != NULL ? where.at : "");
            sheaf__text_release(&where);
        }
    }
    return st;
}

/* Do copies agree within one folder and differ from those in another? Then the folders are of two
 * runs. *a, *b: a part of each. */
static bool contradict(const sheaf__sat_part **a, const sheaf__sat_part **b,
                       const sheaf__sat_set *set)
{
    for (int f = 0; f < set->nfolders; f++) {
        int n = 0;
        bool uniform = true;
        *a = NULL;
        for (int i = 0; i < set->nparts; i++) {
            const sheaf__sat_part *p = &set->part[i];
            if (!p->chosen || p->folder != f || p->file == NULL)
                continue;
            n++;
            uniform = uniform && (*a == NULL || (*a)->copies == p->copies);
            *a = *a == NULL ? p : *a;
        }
        for (int i = 0; n >= 2 && uniform && i < set->nparts; i++) {
            *b = &set->part[i];
            if ((*b)->chosen && (*b)->folder != f && (*b)->file != NULL &&
                (*b)->copies != (*a)->copies)
                return true;
        }
    }
    return false;
}

static sheaf_status *refuse_foreign(sheaf__sat_set *set, sheaf_catalog *c, const sheaf__sat_part *a,
                                    const sheaf__sat_part *b)
{
    const int keep = set->anchor >= 0 ? set->anchor : a->folder;
    sheaf_status *st = sheaf__defect(
        c, "foreign", b->path, "", "the values that the parts of one save have in common", "",
        "other values in replicated tensors than in %s: it is of another run", a->path);
    for (int i = 0; i < set->nparts; i++)
        set->part[i].chosen = set->part[i].chosen && set->part[i].folder == keep;
    return st;
}

/* ---- several saves in one folder ---- */

static bool near(const sheaf__sat_folder *a, const sheaf__sat_folder *b)
{
    return a->stamp.has && b->stamp.has && a->stamp.stem == b->stamp.stem &&
           strncmp(a->name, b->name, a->stamp.stem) == 0 && strcmp(a->tag, b->tag) == 0 &&
           sheaf__sat_minutes(&a->stamp, &b->stamp) <= SHEAF_SAT_NEAR_MINUTES;
}

/* Gives this number to folder `i` and, transitively, to folders near it. */
static void number_from(sheaf__sat_set *set, int i, int number)
{
    set->folder[i].number = number;
    for (int k = 0; k < set->nfolders; k++)
        if (set->folder[k].number == 0 && near(&set->folder[i], &set->folder[k]))
            number_from(set, k, number);
}

/* Numbers the saves, groups of folders near in time with one name and step; returns how many. */
static int number_saves(sheaf__sat_set *set)
{
    int n = 0;
    for (int i = 0; i < set->nfolders; i++)
        if (set->folder[i].number == 0)
            number_from(set, i, ++n);
    return n;
}

/* Lists several saves; none is chosen. */
static sheaf_status *list_saves(sheaf__sat_set *set, sheaf_catalog *c, int n)
{
    sheaf_status *st = NULL;
    for (int k = 1; k <= n && st == NULL; k++) {
        sheaf_text folders = { 0 }, found = { 0 };
        int parts = 0, ways = 0;
        for (int f = 0; f < set->nfolders; f++) {
            if (set->folder[f].number != k)
                continue;
            add_word(&folders, set->folder[f].save);
            ways = ways > 0 ? ways : ways_of_folder(set, f);
            for (int i = 0; i < set->nparts; i++)
                parts += set->part[i].folder == f;
        }
        sheaf__text_add(&found, "%d checkpoints lie here; number %d has %d of %d parts in:%s", n, k,
                        parts, ways, folders.at != NULL ? folders.at : "");
        st = note_choice(c, &found, &folders, k, parts == ways);
    }
    return st;
}

/* ---- the result ---- */

static sheaf_status *report_joined(sheaf__sat_set *set, sheaf_catalog *c, bool by_copies)
{
    sheaf_text cure = { 0 }, which = { 0 };
    int first = -1;
    sheaf__text_add(&cure, "sheaf convert");
    for (int f = 0; f < set->nfolders; f++) {
        bool any = false;
        for (int i = 0; i < set->nparts; i++)
            if (set->part[i].chosen && set->part[i].folder == f) {
                sheaf__text_add(&which,
                                any              ? ", %d"
                                : which.size > 0 ? "; part %d"
                                                 : "part %d",
                                set->part[i].rank);
                any = true;
            }
        if (!any)
            continue;
        sheaf__text_add(&which, " in %s", set->folder[f].save);
        add_word(&cure, set->folder[f].save);
        set->joined |= first >= 0;
        first = first < 0 ? f : first;
    }
    sheaf__text_add(&cure, " {+joined} --to sat --tp 1");
    sheaf_status *st = NULL;
    if (cure.failed || which.failed)
        st = sheaf__no_memory(c->root);
    else if (set->joined && !set->named)
        st = sheaf__warning(
            c, "time-stamp", c->root, "", "all parts in one folder", cure.at,
            "each rank put its own clock into the folder's name: %s; joined, as step, names and shapes "
            "agree%s",
            which.at,
            by_copies ? ", and so do the replicated tensors"
                      : ", and there is no other part to choose");
    sheaf__text_release(&cure);
    sheaf__text_release(&which);
    return st;
}

enum { NAMED = 16 }; /* missing parts that are named; others are counted */

/* Reports a missing part, with the places where it may be. */
static sheaf_status *report_part(const sheaf__sat_set *set, sheaf_catalog *c, const char *dir,
                                 int rank)
{
    sheaf_text text = { 0 }, cure = { 0 };
    char expected[40], path[40], *save = NULL;
    snprintf(expected, sizeof expected, "parts 0 to %d", set->ways - 1);
    snprintf(path, sizeof path, "mp_rank_%02d_model_states.pt", rank);
    sheaf__text_add(&text, "no %s", path);
    sheaf_status *st = sheaf__sat_elsewhere(&text, &save, set, rank);
    if (save != NULL) {
        sheaf__text_add(&cure, "sheaf convert {} ");
        sheaf__text_word(&cure, save);
        sheaf__text_add(&cure, " {+joined} --to sat --tp 1");
    } else {
        sheaf__text_add(&cure, "put %s of the same save into ", path);
        sheaf__text_word(&cure, dir);
    }
    if (st == NULL && (text.failed || cure.failed))
        st = sheaf__no_memory(c->root);
    TRY(st, sheaf__defect(c, "missing", dir, "", expected, cure.at, "%s", text.at));
    sheaf__text_release(&text);
    sheaf__text_release(&cure);
    free(save);
    return st;
}

static sheaf_status *report_missing(const sheaf__sat_set *set, sheaf_catalog *c, bool doubt)
{
    sheaf_status *st = NULL;
    int missing = 0;
    for (int r = 0; r < set->ways && st == NULL; r++) {
        bool there = false;
        for (int i = 0; i < set->nparts; i++)
            there = there || (set->part[i].chosen && set->part[i].rank == r) ||
                    (doubt && set->part[i].rank == r);
        if (there || missing++ >= NAMED)
            continue;
        const sheaf__sat_folder *f = &set->folder[set->anchor >= 0 ? set->anchor : 0];
        st = report_part(set, c, f->dir, r);
    }
    if (st == NULL && missing > NAMED)
        st = sheaf__defect(c, "missing", c->root, "", "", "", "%d more parts", missing - NAMED);
    return st;
}

/* Reports parts that were not chosen, in the folders of chosen ones. */
static sheaf_status *report_left(const sheaf__sat_set *set, sheaf_catalog *c)
{
    sheaf_status *st = NULL;
    for (int i = 0; i < set->nparts && st == NULL; i++) {
        const sheaf__sat_part *p = &set->part[i];
        if (p->chosen || (p->folder != set->anchor && !set->named))
            continue;
        bool twice = false, stale = false;
        for (int k = 0; k < set->nparts; k++) {
            twice = twice || (set->part[k].chosen && set->part[k].rank == p->rank);
            stale = stale || (set->part[k].chosen && !same_step(set, &set->part[k], p));
        }
        if (stale)
            st = sheaf__warning(c, "stale", p->path, "", "parts of one step", "",
                                "a part of step %s, not used", set->folder[p->folder].tag);
        else if (p->rank >= set->ways)
            st = sheaf__warning(c, "foreign", p->path, "", "", "", "part %d of a save in %d parts",
                                p->rank, set->ways);
        else if (twice)
            st = sheaf__warning(c, "duplicate", p->path, "", "one part of each rank", "",
                                "another part %d, not used", p->rank);
    }
    return st;
}

sheaf_status *sheaf__sat_choose(sheaf__sat_set *set, sheaf_catalog *c)
{
    const sheaf__sat_part *a = NULL, *b = NULL;
    bool doubt = false;
    sheaf_status *st = sheaf__sat_drop_same(set, c);
    const int saves = set->anchor >= 0 || set->named ? 1 : number_saves(set);
    if (st != NULL || saves > 1)
        return st != NULL ? st : list_saves(set, c, saves);
    const int first = next_group(set, 0);
    if (first >= 0 && next_group(set, first + 1) >= 0)
        return list_groups(set, c);
    if (first >= 0) {
        set->ways = group_of(set, &set->part[first]).ways;
        for (int i = 0; i < set->nparts; i++)
            set->part[i].chosen = agree(set, &set->part[i], &set->part[first]);
    } else {
        set->ways = ways_of_folder(set, set->anchor);
        st = choose_each(&doubt, set, c);
        TRY(st, !set->named && contradict(&a, &b, set) ? refuse_foreign(set, c, a, b) : NULL);
    }
    TRY(st, report_joined(set, c, first >= 0));
    TRY(st, report_missing(set, c, doubt));
    return st != NULL ? st : report_left(set, c);
}
