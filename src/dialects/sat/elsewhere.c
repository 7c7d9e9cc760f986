/* elsewhere.c - where else a part of a rank lies, for a hint; see parts.h. */
#include "base/base.h"
#include "base/file.h"
#include "dialects/common/save.h"
#include "dialects/sat/parts.h"

/* A part of this rank in SAVE/tag? For a hint, which does without when memory is short. */
static bool has_part(const char *save, const char *tag, int rank)
{
    char *path = NULL;
    const bool made = asprintf(&path, "%s/%s/mp_rank_%02d_model_states.pt", save, tag, rank) >= 0;
    const bool yes = made && sheaf__path_kind(path) == SHEAF_PATH_FILE;
    if (made)
        free(path);
    return yes;
}

static sheaf_status *other_steps(sheaf_text *text, const sheaf__sat_folder *f, int rank)
{
    char **names = NULL;
    int64_t n = 0;
    sheaf_status *st = sheaf__list_dir(&names, &n, f->save);
    for (int64_t i = 0; st == NULL && i < n; i++)
        if (sheaf__sat_step_of(names[i]) != -2 && strcmp(names[i], f->tag) != 0 &&
            has_part(f->save, names[i], rank))
            sheaf__text_add(text, "; a part %d of step %s lies in %s/%s and is stale", rank,
                            names[i], f->save, names[i]);
    sheaf__names_free(names, n);
    return st;
}

sheaf_status *sheaf__sat_elsewhere(sheaf_text *text, char **found, const sheaf__sat_set *set,
                                   int rank)
{
    char **names = NULL, *parent = NULL, *full = NULL;
    int64_t n = 0;
    *found = NULL;
    if (set->anchor < 0 || set->folder[set->anchor].tag[0] == '\0')
        return NULL;
    const sheaf__sat_folder *f = &set->folder[set->anchor];
    sheaf_status *st = other_steps(text, f, rank);
    if (st != NULL || (full = realpath(f->save, NULL)) == NULL)
        return st;
    st = sheaf__path_parent(&parent,
                            strcmp(sheaf__last_part(f->save), f->name) == 0 ? f->save : full);
    TRY(st, sheaf__list_dir(&names, &n, parent));
    for (int64_t i = 0; st == NULL && i < n; i++) {
        char *save = NULL;
        if (strcmp(names[i], f->name) == 0 || !sheaf__sat_stamp_of(names[i]).has)
            continue;
        st = sheaf__path_join(&save, parent, names[i]);
        if (st == NULL && has_part(save, f->tag, rank)) {
            sheaf__text_add(text, "; a part %d of the same step lies in %s/%s", rank, save, f->tag);
            if (*found == NULL) {
                *found = save;
                save = NULL;
            }
        }
        free(save);
    }
    sheaf__names_free(names, n);
    free(parent);
    free(full);
    return st;
}
