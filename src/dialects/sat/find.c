/* find.c - where the parts of a SAT checkpoint lie; see parts.h. By the names of files (names.c),
 * and by the contents of the first one where DeepSpeed uses the same names. */
#include "base/base.h"
#include "base/json.h"
#include "dialects/common/save.h"
#include "dialects/sat/parts.h"

/* ---- contents of a folder ---- */

/* Fails only for lack of memory; an unreadable folder counts as empty. */
static sheaf_status *names_in(char ***names, int64_t *n, const char *dir)
{
    *names = NULL;
    *n = 0;
    return sheaf__only_memory(sheaf__list_dir(names, n, dir));
}

/* Parts directly in `dir`, and no file of DeepSpeed's ZeRO, which SAT never leaves? `first` is the
 * first of them. */
static sheaf_status *holds_parts(bool *yes, char first[SHEAF_PATH_SIZE], const char *dir)
{
    char **names;
    int64_t n;
    bool foreign = false;
    sheaf_status *st = names_in(&names, &n, dir);
    *yes = false;
    for (int64_t i = 0; i < n; i++) {
        if (!*yes && sheaf__sat_rank_of(names[i]) >= 0) {
            sheaf__path_in(first, dir, names[i]);
            *yes = true;
        }
        foreign = foreign || strstr(names[i], "zero_pp_rank_") != NULL;
    }
    sheaf__names_free(names, n);
    *yes = *yes && !foreign;
    return st;
}

/* True for a pipe or a folder too: reading it fails with a finding. */
static bool has_config(const char *dir)
{
    return sheaf__path_has(dir, "model_config.json", SHEAF_PATH_NONE);
}

/* The subfolder of SAVE with parts whose name is a step, and the first of them: the one that
 * `latest` names, or the greatest; "": none. */
static sheaf_status *newest_step(char out[SHEAF_SAT_STEP_SIZE], char first[SHEAF_PATH_SIZE],
                                 const char *save, const char *latest)
{
    char **names;
    int64_t n, best = -2;
    sheaf_status *st = names_in(&names, &n, save);
    out[0] = '\0';
    for (int64_t i = 0; st == NULL && i < n; i++) {
        int64_t step = sheaf__sat_step_of(names[i]);
        char dir[SHEAF_PATH_SIZE], part[SHEAF_PATH_SIZE];
        bool parts = false;
        if (step != -2 && latest != NULL && strcmp(names[i], latest) == 0)
            step = INT64_MAX;
        if (step <= best)
            continue;
        st = holds_parts(&parts, part, sheaf__path_in(dir, save, names[i]));
        if (!parts)
            continue;
        memcpy(first, part, sizeof part);
        snprintf(out, SHEAF_SAT_STEP_SIZE, "%s", names[i]);
        best = step;
    }
    sheaf__names_free(names, n);
    return st;
}

static sheaf_status *is_save(bool *yes, const char *dir)
{
    char *latest, step[SHEAF_SAT_STEP_SIZE], part[SHEAF_PATH_SIZE];
    bool other = false;
    sheaf_status *st = sheaf__tracker_read(&latest, dir, "latest");
    TRY(st, newest_step(step, part, dir, latest));
    *yes = st == NULL && step[0] != '\0';
    if (*yes && !has_config(dir))
        st = sheaf__sat_by_deepspeed(&other, part);
    *yes = *yes && !other;
    free(latest);
    return st;
}

static sheaf_status *is_parent(bool *yes, const char *dir)
{
    char **names;
    int64_t n;
    sheaf_status *st = names_in(&names, &n, dir);
    *yes = false;
    for (int64_t i = 0; st == NULL && !*yes && i < n; i++) {
        char path[SHEAF_PATH_SIZE];
        if (sheaf__sat_stamp_of(names[i]).has)
            st = is_save(yes, sheaf__path_in(path, dir, names[i]));
    }
    sheaf__names_free(names, n);
    return st;
}

/* Is `dir` the folder of one step of SAT: parts in it, and either model_config.json in or above it
 * or a number for a name and nothing in the first part that only DeepSpeed writes? */
static sheaf_status *is_step_folder(bool *yes, const char *dir)
{
    char full[SHEAF_PATH_SIZE], above[SHEAF_PATH_SIZE], part[SHEAF_PATH_SIZE];
    bool other = false;
    sheaf_status *st = holds_parts(yes, part, dir);
    sheaf__sat_full_path(full, dir);
    if (!*yes || has_config(dir) || has_config(sheaf__path_above(above, full)))
        return st;
    *yes = sheaf__sat_step_of(sheaf__last_part(full)) != -2;
    TRY(st, *yes ? sheaf__sat_by_deepspeed(&other, part) : NULL);
    *yes = *yes && !other;
    return st;
}

bool sheaf__sat_is(const char *path)
{
    char dir[SHEAF_PATH_SIZE];
    bool yes = false;
    sheaf_status *st = NULL;
    if (sheaf__path_kind(path) == SHEAF_PATH_DIR) {
        st = is_step_folder(&yes, path);
        TRY(st, !yes ? is_save(&yes, path) : NULL);
        TRY(st, !yes ? is_parent(&yes, path) : NULL);
    } else if (sheaf__path_kind(path) == SHEAF_PATH_FILE &&
               sheaf__sat_rank_of(sheaf__last_part(path)) >= 0)
        st = is_step_folder(&yes, sheaf__path_above(dir, path));
    const bool sure = st == NULL && yes;
    sheaf_status_free(st);
    return sure;
}

/* ---- folders and parts into the set ---- */

void sheaf__sat_set_release(sheaf__sat_set *set)
{
    for (int i = 0; i < set->nparts; i++)
        sheaf__sat_part_release(&set->part[i]);
    free(set->folder);
    free(set->part);
    *set = (sheaf__sat_set){ 0 };
}

/* Two numbers of the config, to distinguish parts of two models; errors are reported when it is
 * read. */
static sheaf_status *read_numbers(sheaf__sat_folder *f)
{
    json_t *object = NULL;
    sheaf_status *st = sheaf__json_load(&object, f->config);
    if (st != NULL)
        return sheaf__only_memory(st);
    const int64_t vocab = json_integer_value(json_object_get(object, "vocab_size")),
                  ways = json_integer_value(json_object_get(object, "model_parallel_size"));
    f->vocab = vocab < 0 ? 0 : vocab;
    f->ways = ways < 0 || ways > SHEAF_SAT_MOST_RANKS ? 0 : ways;
    json_decref(object);
    return NULL;
}

/* The folder SAVE/tag; tag "": parts lie in SAVE itself. */
static sheaf_status *describe(sheaf__sat_folder *f, const char *save, const char *tag)
{
    char full[SHEAF_PATH_SIZE];
    const int64_t step = sheaf__sat_step_of(tag);
    *f = (sheaf__sat_folder){ .step = step >= 0 ? step : -1 };
    snprintf(f->save, sizeof f->save, "%s", save);
    snprintf(f->name, sizeof f->name, "%s", sheaf__last_part(sheaf__sat_full_path(full, save)));
    snprintf(f->tag, sizeof f->tag, "%s", tag);
    if (*tag != '\0')
        sheaf__path_in(f->dir, save, tag);
    else
        memcpy(f->dir, f->save, sizeof f->dir);
    f->stamp = sheaf__sat_stamp_of(f->name);
    if (!has_config(save))
        return NULL;
    sheaf__path_in(f->config, save, "model_config.json");
    return read_numbers(f);
}

static sheaf_status *add_part(sheaf__sat_set *set, sheaf_catalog *c, int folder, const char *name)
{
    if (set->nparts == SHEAF_SAT_MOST_PARTS)
        return sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "%s", c->root), "at most %d parts",
                              SHEAF_SAT_MOST_PARTS);
    if (!SHEAF_GROW(&set->part, &set->parts_capacity, set->nparts + 1))
        return sheaf__no_memory(c->root);
    sheaf__sat_part *part = &set->part[set->nparts];
    *part = (sheaf__sat_part){ .folder = folder, .rank = sheaf__sat_rank_of(name) };
    sheaf_status *st = sheaf__path_join(&part->path, set->folder[folder].dir, name);
    if (st != NULL)
        return st;
    set->nparts++;
    return sheaf__sat_part_open(part);
}

/* `only`: the single file to add; NULL = all. */
static sheaf_status *add_folder(sheaf__sat_set *set, sheaf_catalog *c, const char *save,
                                const char *tag, const char *only)
{
    char **names = NULL;
    int64_t n = 0;
    if (!SHEAF_GROW(&set->folder, &set->folders_capacity, set->nfolders + 1))
        return sheaf__no_memory(save);
    sheaf__sat_folder *f = &set->folder[set->nfolders];
    sheaf_status *st = describe(f, save, tag);
    for (int i = 0; st == NULL && i < set->nfolders; i++)
        if (only == NULL && sheaf__path_same(set->folder[i].dir, f->dir)) /* given twice */
            return NULL;
    set->nfolders++;
    TRY(st, sheaf__list_dir(&names, &n, f->dir));
    for (int64_t i = 0; st == NULL && i < n; i++) {
        if (only != NULL && strcmp(names[i], only) != 0)
            continue;
        if (sheaf__sat_rank_of(names[i]) >= 0)
            st = add_part(set, c, set->nfolders - 1, names[i]);
        else if (strncmp(names[i], "mp_rank_", 8) == 0)
            st = sheaf__warning(c, "foreign", f->dir, "", "mp_rank_NN_model_states.pt", "",
                                "'%.200s', which is no part by its name and is not read", names[i]);
    }
    sheaf__names_free(names, n);
    return st;
}

static sheaf_status *note_missing_step(sheaf_catalog *c, const char *save, const char *latest,
                                       const char *tag)
{
    char cure[128];
    snprintf(cure, sizeof cure, "give {}/%s, which is there, or write %s into {}/latest", tag, tag);
    return sheaf__defect(
        c, "missing", save, "", "the step that 'latest' names", cure,
        "latest says '%.100s', a step without parts; step %s is the greatest there is", latest,
        tag);
}

/* Adds SAVE with the step to read, and findings about `latest`. */
static sheaf_status *add_save(sheaf__sat_set *set, sheaf_catalog *c, const char *save)
{
    char *latest = NULL, tag[SHEAF_SAT_STEP_SIZE], part[SHEAF_PATH_SIZE];
    sheaf_status *st = sheaf__tracker_read(&latest, save, "latest");
    TRY(st, newest_step(tag, part, save, latest));
    if (st == NULL && tag[0] == '\0')
        st = sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "%s", save),
                                        "parts of a SAT checkpoint"),
                         "none");
    else if (st == NULL && latest == NULL)
        st = sheaf__note(c, "inferred", save, "", "a file 'latest' that names the step", "",
                         "no such file; step %s is the greatest there is", tag);
    else if (st == NULL && strcmp(latest, tag) != 0)
        st = note_missing_step(c, save, latest, tag);
    TRY(st, add_folder(set, c, save, tag, NULL));
    free(latest);
    return st;
}

static sheaf_status *add_step_folder(sheaf__sat_set *set, sheaf_catalog *c, const char *dir,
                                     const char *only)
{
    char full[SHEAF_PATH_SIZE], save[SHEAF_PATH_SIZE];
    const char *tag = sheaf__last_part(sheaf__sat_full_path(full, dir));
    if (has_config(dir) || sheaf__sat_step_of(tag) == -2)
        return add_folder(set, c, dir, "", only);
    /* "20" and "./20" name their parent well; "." does not. */
    const bool plain = strcmp(sheaf__last_part(dir), tag) == 0;
    return add_folder(set, c, sheaf__path_above(save, plain ? dir : full), tag, only);
}

/* ---- folders with other stamps ---- */

/* Children of `parent` whose names have the stem (`size` characters; NULL: any stamp), at most
 * `minutes` from `near` (NULL: any), that have a folder `tag` (NULL: their newest step). */
static sheaf_status *add_siblings(sheaf__sat_set *set, sheaf_catalog *c, const char *parent,
                                  const char *stem, size_t size, const sheaf__sat_stamp *near,
                                  const char *tag)
{
    char **names = NULL;
    int64_t n = 0;
    sheaf_status *st = sheaf__list_dir(&names, &n, parent);
    for (int64_t i = 0; st == NULL && i < n; i++) {
        const sheaf__sat_stamp stamp = sheaf__sat_stamp_of(names[i]);
        if (!stamp.has ||
            (stem != NULL && (stamp.stem != size || strncmp(names[i], stem, size) != 0)) ||
            (near != NULL && sheaf__sat_minutes(&stamp, near) > SHEAF_SAT_NEAR_MINUTES))
            continue;
        char save[SHEAF_PATH_SIZE], dir[SHEAF_PATH_SIZE], part[SHEAF_PATH_SIZE];
        bool yes = false;
        sheaf__path_in(save, parent, names[i]);
        st = tag == NULL ? is_save(&yes, save)
                         : holds_parts(&yes, part, sheaf__path_in(dir, save, tag));
        if (st == NULL && yes)
            st = tag == NULL ? add_save(set, c, save) : add_folder(set, c, save, tag, NULL);
    }
    sheaf__names_free(names, n);
    return st;
}

static sheaf_status *look_beside(sheaf__sat_set *set, sheaf_catalog *c)
{
    const sheaf__sat_folder f = set->folder[set->anchor]; /* a copy, as the list grows */
    char parent[SHEAF_PATH_SIZE];
    if (!f.stamp.has || f.tag[0] == '\0')
        return NULL;
    return add_siblings(set, c, sheaf__sat_parent(parent, &f), f.name, f.stamp.stem, &f.stamp,
                        f.tag);
}

/* ---- all of it ---- */

static sheaf_status *add_path(sheaf__sat_set *set, sheaf_catalog *c, const char *path,
                              bool one_file)
{
    char dir[SHEAF_PATH_SIZE], part[SHEAF_PATH_SIZE];
    bool parts = false, save = false;
    sheaf_status *st = NULL;
    switch (sheaf__path_kind(path)) {
    case SHEAF_PATH_FILE:
        st = add_step_folder(set, c, sheaf__path_above(dir, path),
                             one_file ? sheaf__last_part(path) : NULL);
        break;
    case SHEAF_PATH_DIR:
        st = holds_parts(&parts, part, path);
        TRY(st, !parts ? is_save(&save, path) : NULL);
        TRY(st, parts  ? add_step_folder(set, c, path, NULL)
                : save ? add_save(set, c, path)
                       : add_siblings(set, c, path, NULL, 0, NULL, NULL));
        break;
    default:
        st = sheaf_expected(sheaf_fail(SHEAF_E_IO, "%s: nothing there", path),
                            "a folder or part of a SAT checkpoint");
    }
    return st;
}

sheaf_status *sheaf__sat_find(sheaf__sat_set *set, sheaf_catalog *c, const char *path,
                              const char *const *also)
{
    const bool several = also != NULL && also[0] != NULL;
    *set = (sheaf__sat_set){ .anchor = -1, .named = several };
    sheaf_status *st = add_path(set, c, path, several);
    for (int i = 0; several && st == NULL && also[i] != NULL; i++)
        st = add_path(set, c, also[i], true);
    if (st == NULL && set->nparts == 0)
        st = sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "%s", path),
                                        "parts of a SAT checkpoint"),
                         "none");
    if (st == NULL && set->nfolders == 1) {
        set->anchor = 0;
        if (!several && !sheaf__sat_complete(set))
            st = look_beside(set, c);
    }
    return st != NULL ? st : sheaf__sat_choose(set, c);
}
