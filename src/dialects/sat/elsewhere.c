/* elsewhere.c - the folder around a save, and where else a part of a rank lies; see parts.h. */
#include "base/base.h"
#include "base/file.h"
#include "dialects/common/save.h"
#include "dialects/sat/parts.h"

const char *sheaf__sat_full_path(char full[SHEAF_PATH_SIZE], const char *path)
{
    if (realpath(path, full) == NULL)
        snprintf(full, SHEAF_PATH_SIZE, "%s", path);
    return full;
}

const char *sheaf__sat_parent(char parent[SHEAF_PATH_SIZE], const sheaf__sat_folder *f)
{
    char full[SHEAF_PATH_SIZE];
    const bool plain = strcmp(sheaf__last_part(f->save), f->name) == 0;
    return sheaf__path_above(parent, plain ? f->save : sheaf__sat_full_path(full, f->save));
}

/* A part of this rank in SAVE/tag? */
static bool has_part(const char *save, const char *tag, int rank)
{
    char dir[SHEAF_PATH_SIZE], name[40];
    snprintf(name, sizeof name, "mp_rank_%02d_model_states.pt", rank);
    return sheaf__has_file(sheaf__path_in(dir, save, tag), name);
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
    char **names = NULL, parent[SHEAF_PATH_SIZE];
    int64_t n = 0;
    *found = NULL;
    if (set->anchor < 0 || set->folder[set->anchor].tag[0] == '\0')
        return NULL;
    const sheaf__sat_folder *f = &set->folder[set->anchor];
    sheaf_status *st = other_steps(text, f, rank);
    TRY(st, sheaf__list_dir(&names, &n, sheaf__sat_parent(parent, f)));
    for (int64_t i = 0; st == NULL && i < n; i++) {
        char save[SHEAF_PATH_SIZE];
        if (strcmp(names[i], f->name) == 0 || !sheaf__sat_stamp_of(names[i]).has ||
            !has_part(sheaf__path_in(save, parent, names[i]), f->tag, rank))
            continue;
        sheaf__text_add(text, "; a part %d of the same step lies in %s/%s", rank, save, f->tag);
        if (*found == NULL && (*found = strdup(save)) == NULL)
            st = sheaf__no_memory(save);
    }
    sheaf__names_free(names, n);
    return st;
}
