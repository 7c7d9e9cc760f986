/* run_paths.c - see train_settings.h. */
#include "library/train_settings.h"

#include <unistd.h>

#include "base/base.h"
#include "base/file.h"
#include "data/complaints.h"
#include "data/data_sets.h"
#include "library/reward.h"

static bool is_relative(const char *path)
{
    return path != NULL && path[0] != '\0' && path[0] != '/';
}

/* The settings that are paths, or texts that may hold some. */
static bool is_path(const sheaf__setting *o)
{
    return o->from != NULL || ((o->kind & SHEAF__IS_KIND) == SHEAF__IS_PATH &&
                               (o->kind & SHEAF__IS_CONTENT) && strcmp(o->name, "out") != 0);
}

/* Does the value mean another place in another folder? One of several may. */
static bool moves(const sheaf__setting *o, const char *value)
{
    return is_relative(value) || ((o->kind & SHEAF__IS_LIST || o->from == sheaf__rewards_from) &&
                                  value != NULL && strpbrk(value, ",;") != NULL);
}

static sheaf_status *path_from(char **out, bool *there, const char *folder, const char *value)
{
    sheaf_status *st = sheaf__path_join(out, folder, value);
    *there = st == NULL && sheaf__path_kind(*out) != SHEAF_PATH_NONE;
    return st;
}

sheaf_status *sheaf__reference_from(char **out, bool *there, const char *folder, const char *value)
{
    if (strcmp(value, "start") != 0 && strcmp(value, "base") != 0)
        return path_from(out, there, folder, value);
    *there = true;
    *out = strdup(value);
    return *out == NULL ? sheaf__no_memory(value) : NULL;
}

sheaf_status *sheaf__cache_from(char **out, bool *there, const char *folder, const char *value)
{
    *there = true;
    return sheaf__path_join(out, folder, value);
}

/* Rewards, of which reward models are in `folder`: *there, any of them. Rules and commands stay as
 * they are. */
sheaf_status *sheaf__rewards_from(char **out, bool *there, const char *folder, const char *value)
{
    sheaf_text all = { 0 };
    sheaf_status *st = NULL;
    *there = false;
    for (const char *at = value; st == NULL; at++) {
        const char *begin = at + strspn(at, " \t\n");
        char *one = NULL, path[SHEAF_PATH_SIZE];
        bool rule;
        st = sheaf__reward_entry(&one, &rule, &at);
        const bool model =
            st == NULL && !rule && is_relative(one) && sheaf__path_has(folder, one, SHEAF_PATH_DIR);
        *there |= model;
        if (model)
            sheaf__text_add(&all, "%s", sheaf__path_in(path, folder, one));
        else
            sheaf__text_bytes(&all, begin, (size_t)(at - begin));
        free(one);
        sheaf__text_bytes(&all, ";", *at == ';');
        if (*at == '\0')
            break;
    }
    return sheaf__first_of(st, sheaf__text_take(out, &all));
}

/* The setting's value from `folder` (malloc'd). *there: something has that name. */
static sheaf_status *value_in(char **out, bool *there, const char *folder, const sheaf__setting *o)
{
    return (o->from != NULL            ? o->from
            : o->kind & SHEAF__IS_LIST ? sheaf__data_list_in
                                       : path_from)(out, there, folder, *(const char **)o->value);
}

sheaf_status *sheaf__run_paths_begin(sheaf__settings *state, const sheaf__setting *table,
                                     sheaf_train_options *o)
{
    char *here = getcwd(NULL, 0); /* NULL: a folder that is gone */
    sheaf_status *st = here == NULL ? NULL : sheaf__settings_hold(state, here);
    o->base_name = o->model;
    if (st != NULL || here == NULL)
        return st;
    if (!o->resume || o->folder == NULL || o->folder[0] == '\0')
        o->folder = here;
    for (const sheaf__setting *x = table; x->name != NULL && strcmp(o->folder, here) != 0; x++) {
        const char **value = x->value;
        char *whole = NULL;
        bool there;
        if (!is_path(x) || !state->given[x - table] || !moves(x, *value))
            continue;
        st = value_in(&whole, &there, here, x);
        TRY(st, sheaf__settings_hold(state, whole));
        if (st != NULL)
            return st;
        *value = whole;
    }
    return NULL;
}

/* *found: the setting's value relative to `folder`, or NULL if nothing is there. */
static sheaf_status *look(char **found, const char *folder, const sheaf__setting *x)
{
    bool there;
    *found = NULL;
    if (folder == NULL || folder[0] == '\0')
        return NULL;
    sheaf_status *st = value_in(found, &there, folder, x);
    if (st == NULL && !there) {
        free(*found);
        *found = NULL;
    }
    return st;
}

static sheaf_status *nowhere(const sheaf__setting *x, const char *value, const char *folder,
                             const char *out)
{
    sheaf_status *st = sheaf_fail(SHEAF_E_IO, "`%s %s`, as the run started", x->name, value);
    sheaf_text word = { 0 };
    sheaf__text_word(&word, out);
    if (folder != NULL && folder[0] != '\0')
        sheaf_expected(st, "it in %s, where the run began, in this folder, or beside the run",
                       folder);
    else
        sheaf_expected(st, "it in this folder, or beside the run");
    sheaf_found(st, "nothing there");
    if (x->kind & SHEAF__IS_FIXED)
        sheaf_try_this(st, "it in its place again");
    else
        sheaf_try_this(st, "say where it lies now: sheaf train --resume --out %s --%s PATH",
                       word.at == NULL ? out : word.at, x->name);
    sheaf__text_release(&word);
    return st;
}

/* Searches OUT and its parents, innermost first. */
static sheaf_status *look_beside(char **found, const char *out, const sheaf__setting *x)
{
    char *folder = realpath(out, NULL);
    sheaf_status *st = NULL;
    while (st == NULL && folder != NULL && *found == NULL) {
        char *parent = NULL;
        st = look(found, folder, x);
        if (st == NULL && strcmp(folder, "/") != 0)
            st = sheaf__path_parent(&parent, folder);
        free(folder);
        folder = parent;
    }
    free(folder);
    return st;
}

static sheaf_status *find_path(sheaf__settings *state, const sheaf__setting *x,
                               const sheaf_train_options *o, const char *out, bool needed)
{
    const char **value = x->value;
    char *found = NULL;
    sheaf_status *st = look(&found, o->folder, x);
    if (st == NULL && found == NULL)
        st = look(&found, ".", x);
    if (st == NULL && found == NULL)
        st = look_beside(&found, out, x);
    if (st == NULL && found == NULL && needed &&
        (x->kind & SHEAF__IS_KIND) == SHEAF__IS_PATH) /* not commands */
        st = nowhere(x, *value, o->folder, out);
    if (st == NULL && found != NULL) {
        *value = found;
        st = sheaf__settings_hold(state, found);
    }
    return st;
}

sheaf_status *sheaf__run_paths_find(sheaf__settings *state, const sheaf__setting *table,
                                    const sheaf_train_options *o, const char *out, bool needed)
{
    sheaf_status *st = NULL;
    for (const sheaf__setting *x = table; x->name != NULL && st == NULL; x++)
        if (is_path(x) && state->from_file[x - table] && !state->given[x - table] &&
            moves(x, *(const char **)x->value))
            st = find_path(state, x, o, out, needed);
    return st;
}

/* ---- no run ---- */

/* The run in `parent` whose name is nearly `name`, joined (malloc'd); NULL where there is none. */
static char *nearest_run(const char *parent, const char *name)
{
    char **names = NULL, *path = NULL, folder[SHEAF_PATH_SIZE];
    int64_t n = 0;
    int runs = 0;
    sheaf_status_free(sheaf__list_dir(&names, &n, parent));
    const char **run = calloc((size_t)n + 1, sizeof *run);
    for (int64_t i = 0; i < n && run != NULL; i++)
        if (sheaf__path_has(sheaf__path_in(folder, parent, names[i]), "settings", SHEAF_PATH_FILE))
            run[runs++] = names[i];
    const char *nearest = runs > 0 ? sheaf__nearest(name, run, runs) : NULL;
    if (nearest != NULL && strcmp(parent, ".") == 0)
        path = strdup(nearest);
    else if (nearest != NULL)
        sheaf_status_free(sheaf__path_join(&path, parent, nearest));
    free(run);
    sheaf__names_free(names, n);
    return path;
}

sheaf_status *sheaf__run_paths_none(const char *out)
{
    char *name = strdup(out), *parent = NULL, *nearest = NULL;
    for (size_t n = name == NULL ? 0 : strlen(name); n > 1 && name[n - 1] == '/'; n--)
        name[n - 1] = '\0';
    if (name != NULL)
        sheaf_status_free(sheaf__path_parent(&parent, name));
    if (parent != NULL)
        nearest = nearest_run(parent, strrchr(name, '/') != NULL ? strrchr(name, '/') + 1 : name);
    sheaf_status *st = sheaf_fail(SHEAF_E_ARG, "`resume` `out %s`", out);
    sheaf_expected(st, "the folder of a run, which holds its settings and checkpoints");
    sheaf_found(st, sheaf__path_kind(out) == SHEAF_PATH_NONE ? "nothing there" : "no run in it");
    if (nearest != NULL)
        sheaf__try_path(st, "sheaf train --resume --out ", nearest, "");
    else
        sheaf_try_this(st, "the `out` that the run began with; a new one begins without `resume`");
    free(nearest);
    free(parent);
    free(name);
    return st;
}
