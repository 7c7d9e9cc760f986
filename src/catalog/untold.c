/* untold.c - what files cannot tell of the parts they hold; see catalog.h. */
#include "base/base.h"
#include "catalog/private.h"

/* Files that hold pieces of divided tensors. */
static sheaf_status *count_parts(int *parts, const sheaf_catalog *c)
{
    bool *seen = calloc((size_t)c->nfiles + 1, sizeof *seen);
    *parts = 0;
    if (seen == NULL)
        return sheaf__no_memory(c->root);
    for (int64_t i = 0; i < c->count; i++)
        for (int64_t k = 0;
             !c->tensor[i].replicated && c->tensor[i].npieces > 1 && k < c->tensor[i].npieces;
             k++) {
            const int file = c->tensor[i].piece[k].file;
            *parts += !seen[file];
            seen[file] = true;
        }
    free(seen);
    return NULL;
}

sheaf_status *sheaf__catalog_rank_notes(bool *any, sheaf_catalog *c)
{
    int parts = 0;
    sheaf_status *st = c->dialect->whole ? NULL : count_parts(&parts, c);
    *any = st == NULL && (c->tensors_by_names || (parts > 1 && !c->copies_contradict));
    if (st == NULL && c->tensors_by_names)
        st = sheaf__note(
            c, "inferred", c->root, "", "files that say themselves which tensor they hold", "",
            "by the names of files and folders alone; files of one shape that were swapped would not be noticed");
    if (st != NULL || parts < 2)
        return st;
    if (c->by_names)
        st = sheaf__note(
            c, "inferred", c->root, "", "parts that say themselves which rank's they are", "",
            "by the names of files and folders alone; parts that were swapped would not be noticed");
    if (st != NULL || c->copies_contradict)
        return st;
    const char *one_run = "parts that say themselves of which run they are";
    if (c->copies == 0)
        return sheaf__note(
            c, "inferred", c->root, "", one_run, "",
            "by names, steps and shapes alone: there is no tensor of which each part has a copy");
    if (!c->copies_vary)
        return sheaf__note(c, "inferred", c->root, "", one_run, "",
                           "by names, steps and shapes alone: the copies of %" PRId64
                           " tensors that each part has are one number throughout, "
                           "as fresh norms are, and tell nothing",
                           c->copies);
    return sheaf__note(
        c, "inferred", c->root, "", one_run, "",
        "by the copies of %" PRId64
        " tensors that each part has; a part of another run that began with the same values and left "
        "them as they were would not be noticed",
        c->copies);
}
