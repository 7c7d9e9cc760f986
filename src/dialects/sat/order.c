/* order.c - checks that parts have the names that they were saved under. See parts.h.
 *
 * The folder inside a zip file of torch is the name that it was written to:
 * mp_rank_01_model_states. A part that was renamed keeps it. Writers that name it "archive" give no
 * information. */
#include "base/base.h"
#include "catalog/boxes.h"
#include "dialects/sat/parts.h"

/* The rank that the file was saved as; -1: unknown. */
static int saved_rank(const sheaf__sat_part *p)
{
    char stem[128], name[160];
    sheaf__torch_stem(stem, p->path);
    snprintf(name, sizeof name, "%s.pt", stem);
    return stem[0] != '\0' ? sheaf__sat_rank_of(name) : -1;
}

/* Are the names permuted? Then renaming is enough. */
static bool is_permutation(sheaf__sat_part *const *part, const int *saved, int n)
{
    for (int i = 0; i < n; i++) {
        int takers = 0;
        for (int k = 0; k < n; k++)
            takers += saved[k] != part[k]->rank && saved[k] == part[i]->rank;
        if (saved[i] >= 0 && saved[i] != part[i]->rank && takers != 1)
            return false;
    }
    return true;
}

static void add_move(sheaf_text *text, const char *from, const char *to, bool back)
{
    char aside[SHEAF_PATH_SIZE + sizeof ".saved"];
    snprintf(aside, sizeof aside, "%s.saved", from);
    sheaf__text_add(text, text->size == 0 ? "mv " : " && mv ");
    sheaf__text_word(text, back ? aside : from);
    sheaf__text_add(text, " ");
    sheaf__text_word(text, back ? to : aside);
}

/* Commands that give the parts their names back: all aside, then each to its place. */
static void list_moves(sheaf_text *text, sheaf__sat_part *const *part, const int *saved, int n)
{
    for (int i = 0; i < n; i++)
        if (saved[i] >= 0 && saved[i] != part[i]->rank)
            add_move(text, part[i]->path, NULL, false);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < n; k++)
            if (saved[i] >= 0 && saved[i] != part[i]->rank && part[k]->rank == saved[i])
                add_move(text, part[i]->path, part[k]->path, true);
}

static sheaf_status *report_renamed(sheaf_catalog *c, sheaf__sat_part *const *part,
                                    const int *saved, int n)
{
    sheaf_text found = { 0 }, cure = { 0 };
    const char *path = NULL;
    for (int i = 0; i < n; i++)
        if (saved[i] >= 0 && saved[i] != part[i]->rank) {
            sheaf__text_add(&found,
                            path == NULL ? "part %d was saved as mp_rank_%02d_model_states.pt"
                                         : ", part %d as mp_rank_%02d_model_states.pt",
                            part[i]->rank, saved[i]);
            path = path != NULL ? path : part[i]->path;
        }
    if (path != NULL && is_permutation(part, saved, n))
        list_moves(&cure, part, saved, n);
    else if (path != NULL)
        sheaf__text_add(&cure, "copy part by part again from where the checkpoint was written");
    sheaf_status *st = NULL;
    if (found.failed || cure.failed)
        st = sheaf__no_memory(c->root);
    else if (path != NULL)
        st = sheaf__defect(c, "conflict", path, "",
                           "parts that lie under the names they were saved under", cure.at, "%s",
                           found.at);
    sheaf__text_release(&found);
    sheaf__text_release(&cure);
    return st;
}

sheaf_status *sheaf__sat_check_order(sheaf_catalog *c, sheaf__sat_part *const *part, int n)
{
    int *saved = n > 1 ? calloc((size_t)n, sizeof *saved) : NULL;
    if (n < 2)
        return NULL;
    if (saved == NULL)
        return sheaf__no_memory(c->root);
    for (int i = 0; i < n; i++) {
        saved[i] = saved_rank(part[i]);
        c->by_names = c->by_names || saved[i] < 0;
    }
    sheaf_status *st = report_renamed(c, part, saved, n);
    free(saved);
    return st;
}
