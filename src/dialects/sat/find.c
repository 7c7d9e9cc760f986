/* find.c - where the parts of a SAT checkpoint lie; see parts.h. By the names of files (names.c),
 * and where DeepSpeed gives the same ones by what is in the first. */
#include "base/base.h"
#include "base/json.h"
#include "dialects/common/save.h"
#include "dialects/sat/parts.h"

/* ---- what a folder holds ---- */

/* Only want of memory stops a look into a folder; one that cannot be read holds nothing. */
static sheaf_status *names_in(char ***names, int64_t *n, const char *dir)
{
    *names = NULL;
    *n = 0;
    return sheaf__only_memory(sheaf__list_dir(names, n, dir));
}

/* Parts directly in `dir`, and no file of DeepSpeed's ZeRO, which SAT never leaves? */
static sheaf_status *holds_parts(bool *yes, const char *dir)
{
    char **names;
    int64_t n, parts = 0;
    bool foreign = false;
    sheaf_status *st = names_in(&names, &n, dir);
    for (int64_t i = 0; st == NULL && i < n; i++) {
        parts += sheaf__sat_rank_of(names[i]) >= 0;
        foreign = foreign || strstr(names[i], "zero_pp_rank_") != NULL;
    }
    sheaf__names_free(names, n);
    *yes = st == NULL && parts > 0 && !foreign;
    return st;
}

static sheaf_status *has_file(bool *yes, const char *dir, const char *name)
{
    char *path = NULL;
    sheaf_status *st = sheaf__path_join(&path, dir, name);
    *yes = st == NULL &&
           sheaf__path_kind(path) !=
               SHEAF_PATH_NONE; /* reading a pipe or a folder fails, which is a finding */
    free(path);
    return st;
}

/* Is the first of the parts in `dir` one of DeepSpeed's own? */
static sheaf_status *by_deepspeed(bool *yes, const char *dir)
{
    char **names, *path = NULL;
    int64_t n;
    sheaf_status *st = names_in(&names, &n, dir);
    *yes = false;
    for (int64_t i = 0; st == NULL && path == NULL && i < n; i++)
        if (sheaf__sat_rank_of(names[i]) >= 0)
            st = sheaf__path_join(&path, dir, names[i]);
    TRY(st, path != NULL ? sheaf__sat_by_deepspeed(yes, path) : NULL);
    sheaf__names_free(names, n);
    free(path);
    return st;
}

/* The subfolder of SAVE with parts whose name is a step: the one that `latest` names, or the
 * greatest. NULL: none. */
static sheaf_status *newest_step(char **out, const char *save, const char *latest)
{
    char **names;
    int64_t n, best_step = -2;
    sheaf_status *st = names_in(&names, &n, save);
    *out = NULL;
    for (int64_t i = 0; st == NULL && i < n; i++) {
        const int64_t step = sheaf__sat_step_of(names[i]);
        char *path = NULL;
        bool parts = false;
        const bool wins = latest != NULL && strcmp(names[i], latest) == 0;
        if (step == -2 || (!wins && step <= best_step))
            continue;
        st = sheaf__path_join(&path, save, names[i]);
        TRY(st, holds_parts(&parts, path));
        free(path);
        if (st != NULL || !parts)
            continue;
        free(*out);
        *out = strdup(names[i]);
        best_step = wins ? INT64_MAX : step;
        st = *out != NULL ? NULL : sheaf__no_memory(save);
    }
    sheaf__names_free(names, n);
    if (st != NULL) {
        free(*out);
        *out = NULL;
    }
    return st;
}

static sheaf_status *is_save(bool *yes, const char *dir)
{
    char *latest, *step = NULL, *path = NULL;
    bool config = false, other = false;
    sheaf_status *st = sheaf__tracked(&latest, dir, "latest");
    TRY(st, newest_step(&step, dir, latest));
    TRY(st, step != NULL ? has_file(&config, dir, "model_config.json") : NULL);
    TRY(st, step != NULL && !config ? sheaf__path_join(&path, dir, step) : NULL);
    TRY(st, path != NULL ? by_deepspeed(&other, path) : NULL);
    *yes = step != NULL && !other;
    free(path);
    free(latest);
    free(step);
    return st;
}

static sheaf_status *is_parent(bool *yes, const char *dir)
{
    char **names;
    int64_t n;
    sheaf_status *st = names_in(&names, &n, dir);
    *yes = false;
    for (int64_t i = 0; st == NULL && !*yes && i < n; i++) {
        char *path = NULL;
        if (!sheaf__sat_stamp_of(names[i]).has)
            continue;
        st = sheaf__path_join(&path, dir, names[i]);
        TRY(st, is_save(yes, path));
        free(path);
    }
    sheaf__names_free(names, n);
    return st;
}

/* Is `dir` the folder of one step of SAT: parts in it, and either model_config.json in or above it
 * or a number for a name and nothing in the first part that tells of DeepSpeed alone? */
static sheaf_status *is_step_folder(bool *yes, const char *dir)
{
    char *full = NULL, *above = NULL;
    bool other = false;
    sheaf_status *st = holds_parts(yes, dir);
    if (st != NULL || !*yes)
        return st;
    full = realpath(dir, NULL);
    st = has_file(yes, dir, "model_config.json");
    TRY(st, !*yes ? sheaf__path_parent(&above, full != NULL ? full : dir) : NULL);
    TRY(st, !*yes ? has_file(yes, above, "model_config.json") : NULL);
    if (st == NULL && !*yes &&
        sheaf__sat_step_of(sheaf__last_part(full != NULL ? full : dir)) != -2) {
        st = by_deepspeed(&other, dir);
        *yes = !other;
    }
    free(full);
    free(above);
    return st;
}

bool sheaf__sat_is(const char *path)
{
    char *dir = NULL;
    bool yes = false;
    sheaf_status *st = NULL;
    if (sheaf__path_kind(path) == SHEAF_PATH_DIR) {
        st = is_step_folder(&yes, path);
        TRY(st, !yes ? is_save(&yes, path) : NULL);
        TRY(st, !yes ? is_parent(&yes, path) : NULL);
    } else if (sheaf__path_kind(path) == SHEAF_PATH_FILE &&
               sheaf__sat_rank_of(sheaf__last_part(path)) >= 0) {
        st = sheaf__path_parent(&dir, path);
        TRY(st, is_step_folder(&yes, dir));
        free(dir);
    }
    const bool sure = st == NULL && yes;
    sheaf_status_free(st);
    return sure;
}

/* ---- folders and parts into the set ---- */

static void folder_release(sheaf__sat_folder *f)
{
    free(f->save);
    free(f->dir);
    free(f->config);
    free(f->name);
    free(f->tag);
}

void sheaf__sat_set_release(sheaf__sat_set *set)
{
    for (int i = 0; i < set->nfolders; i++)
        folder_release(&set->folder[i]);
    for (int i = 0; i < set->nparts; i++)
        sheaf__sat_part_release(&set->part[i]);
    free(set->folder);
    free(set->part);
    *set = (sheaf__sat_set){ 0 };
}

/* Two numbers of the config, to tell parts of two models from each other; faults are findings when
 * it is read. */
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

/* The folder SAVE/tag; tag NULL: parts lie in SAVE itself. */
static sheaf_status *describe(sheaf__sat_folder *f, const char *save, const char *tag)
{
    char *full = realpath(save, NULL);
    bool config = false;
    *f = (sheaf__sat_folder){ .save = strdup(save),
                              .name = strdup(sheaf__last_part(full != NULL ? full : save)),
                              .tag = strdup(tag != NULL ? tag : ""),
                              .step = -1 };
    free(full);
    if (f->save == NULL || f->name == NULL || f->tag == NULL)
        return sheaf__no_memory(save);
    if (sheaf__sat_step_of(f->tag) >= 0)
        f->step = sheaf__sat_step_of(f->tag);
    f->stamp = sheaf__sat_stamp_of(f->name);
    sheaf_status *st = NULL;
    if (tag != NULL)
        st = sheaf__path_join(&f->dir, save, tag);
    else if ((f->dir = strdup(save)) == NULL)
        st = sheaf__no_memory(save);
    TRY(st, has_file(&config, save, "model_config.json"));
    TRY(st, config ? sheaf__path_join(&f->config, save, "model_config.json") : NULL);
    TRY(st, config ? read_numbers(f) : NULL);
    return st;
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

/* `only`: the one file that was asked for; NULL = all. */
static sheaf_status *add_folder(sheaf__sat_set *set, sheaf_catalog *c, const char *save,
                                const char *tag, const char *only)
{
    sheaf__sat_folder f = { 0 };
    char **names = NULL;
    int64_t n = 0;
    sheaf_status *st = describe(&f, save, tag);
    for (int i = 0; st == NULL && i < set->nfolders; i++)
        if (only == NULL && sheaf__path_same(set->folder[i].dir, f.dir)) { /* named twice */
            folder_release(&f);
            return NULL;
        }
    sheaf__sat_folder *more =
        st == NULL ? realloc(set->folder, (size_t)(set->nfolders + 1) * sizeof *more) : NULL;
    TRY(st, more == NULL ? sheaf__no_memory(save) : NULL);
    if (st != NULL) {
        folder_release(&f);
        return st;
    }
    set->folder = more;
    set->folder[set->nfolders++] = f;
    st = sheaf__list_dir(&names, &n, f.dir);
    for (int64_t i = 0; st == NULL && i < n; i++) {
        if (only != NULL && strcmp(names[i], only) != 0)
            continue;
        if (sheaf__sat_rank_of(names[i]) >= 0)
            st = add_part(set, c, set->nfolders - 1, names[i]);
        else if (strncmp(names[i], "mp_rank_", 8) == 0)
            st = sheaf__warning(c, "foreign", f.dir, "", "mp_rank_NN_model_states.pt", "",
                                "'%.200s', which is no part by its name and is not read", names[i]);
    }
    sheaf__names_free(names, n);
    return st;
}

static sheaf_status *note_missing_step(sheaf_catalog *c, const char *save, const char *latest,
                                       const char *tag)
{
    char *cure = NULL;
    if (asprintf(&cure, "give {}/%s, which is there, or write %s into {}/latest", tag, tag) < 0)
        return sheaf__no_memory(save);
    sheaf_status *st = sheaf__defect(
        c, "missing", save, "", "the step that 'latest' names", cure,
        "latest says '%.100s', of which there are no parts; step %s is the greatest there is",
        latest, tag);
    free(cure);
    return st;
}

/* SAVE with the step to be read, and what is odd about `latest`. */
static sheaf_status *add_save(sheaf__sat_set *set, sheaf_catalog *c, const char *save)
{
    char *latest = NULL, *tag = NULL;
    sheaf_status *st = sheaf__tracked(&latest, save, "latest");
    TRY(st, newest_step(&tag, save, latest));
    if (st == NULL && tag == NULL)
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
    free(tag);
    return st;
}

static sheaf_status *add_step_folder(sheaf__sat_set *set, sheaf_catalog *c, const char *dir,
                                     const char *only)
{
    char *full = realpath(dir, NULL), *save = NULL;
    bool flat = false;
    sheaf_status *st =
        full == NULL ? sheaf__no_memory(dir) : has_file(&flat, dir, "model_config.json");
    flat = flat || (full != NULL && sheaf__sat_step_of(sheaf__last_part(full)) == -2);
    TRY(st, flat ? add_folder(set, c, dir, NULL, only) : NULL);
    if (st == NULL && !flat) {
        /* "20" and "./20" name their parent well; "." does not. */
        const bool plain = strcmp(sheaf__last_part(dir), sheaf__last_part(full)) == 0;
        st = sheaf__path_parent(&save, plain ? dir : full);
        TRY(st, add_folder(set, c, save, sheaf__last_part(full), only));
    }
    free(full);
    free(save);
    return st;
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
        char *save = NULL, *dir = NULL;
        bool yes = false;
        st = sheaf__path_join(&save, parent, names[i]);
        TRY(st, tag != NULL ? sheaf__path_join(&dir, save, tag) : NULL);
        TRY(st, tag == NULL ? is_save(&yes, save) : holds_parts(&yes, dir));
        if (st == NULL && yes)
            st = tag == NULL ? add_save(set, c, save) : add_folder(set, c, save, tag, NULL);
        free(save);
        free(dir);
    }
    sheaf__names_free(names, n);
    return st;
}

static sheaf_status *look_beside(sheaf__sat_set *set, sheaf_catalog *c)
{
    const sheaf__sat_folder f = set->folder[set->anchor];
    char *parent = NULL, *full = NULL;
    if (!f.stamp.has || f.tag[0] == '\0')
        return NULL;
    const bool plain = strcmp(sheaf__last_part(f.save), f.name) == 0;
    if (!plain && (full = realpath(f.save, NULL)) == NULL)
        return sheaf__no_memory(f.save);
    sheaf_status *st = sheaf__path_parent(&parent, plain ? f.save : full);
    TRY(st, add_siblings(set, c, parent, f.name, f.stamp.stem, &f.stamp, f.tag));
    free(parent);
    free(full);
    return st;
}

/* ---- all of it ---- */

static sheaf_status *add_path(sheaf__sat_set *set, sheaf_catalog *c, const char *path,
                              bool one_file)
{
    char *dir = NULL;
    bool parts = false, save = false;
    sheaf_status *st = NULL;
    switch (sheaf__path_kind(path)) {
    case SHEAF_PATH_FILE:
        st = sheaf__path_parent(&dir, path);
        TRY(st, add_step_folder(set, c, dir, one_file ? sheaf__last_part(path) : NULL));
        break;
    case SHEAF_PATH_DIR:
        st = holds_parts(&parts, path);
        TRY(st, !parts ? is_save(&save, path) : NULL);
        TRY(st, parts  ? add_step_folder(set, c, path, NULL)
                : save ? add_save(set, c, path)
                       : add_siblings(set, c, path, NULL, 0, NULL, NULL));
        break;
    default:
        st = sheaf_expected(sheaf_fail(SHEAF_E_IO, "%s: nothing there", path),
                            "a folder or part of a SAT checkpoint");
    }
    free(dir);
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
