/* recipe.c - settings from a file: where it lies, and its lines.
 *
 * Those that come with sheaf are looked for, in this order, in
 *   - $SHEAF_RECIPES, if it is set: instead of the others
 *   - BINARY's folder/../share/sheaf/recipes: installed
 *   - BINARY's folder/../../../recipes: in a build folder of the sources (BUILD/src/cli/sheaf) */
#include <limits.h>
#include <unistd.h>

#include "base/base.h"
#include "base/file.h"
#include "cli.h"
#include "yaml.h"

#define ENDING ".recipe"

static const char memory_for[] = "path of a recipe";

/* "DIR/name" with DIR the binary's folder. */
static sheaf_status *beside_binary(char **out, const char *name)
{
    char binary[PATH_MAX];
    const ssize_t n = readlink("/proc/self/exe", binary, sizeof binary - 1);
    if (n <= 0)
        return sheaf_expected(sheaf_fail(SHEAF_E_IO, "/proc/self/exe"), "a link to this program");
    binary[n] = '\0';
    char *dir = NULL;
    sheaf_status *st = sheaf__path_parent(&dir, binary);
    TRY(st, sheaf__path_join(out, dir, name));
    free(dir);
    return st;
}

/* The folder of the recipes that come with sheaf; *out NULL when there is none. */
static sheaf_status *shipped_folder(char **out)
{
    static const char *const beside[] = { "../share/sheaf/recipes", "../../../recipes" };
    const char *own = getenv("SHEAF_RECIPES");
    *out = NULL;
    if (own != NULL && *own != '\0')
        return (*out = strdup(own)) == NULL ? sheaf__no_memory(memory_for) : NULL;
    for (size_t i = 0; i < sizeof beside / sizeof *beside; i++) {
        sheaf_status *st = beside_binary(out, beside[i]);
        if (st != NULL)
            return st;
        if (sheaf__path_kind(*out) == SHEAF_PATH_DIR)
            return NULL;
        free(*out);
        *out = NULL;
    }
    return NULL;
}

static sheaf_status *not_found(const char *name, const char *folder)
{
    sheaf_status *st = sheaf_fail(SHEAF_E_IO, "%s", name);
    sheaf_expected(st, "a file, or the name of a recipe that comes with sheaf");
    char **names = NULL;
    int64_t count = 0, n = 0;
    if (folder != NULL)
        sheaf_status_free(sheaf__list_dir(&names, &count, folder));
    for (int64_t i = 0; i < count; i++) { /* recipes to the front, without their ending */
        if (!sheaf__ends_with(names[i], ENDING))
            continue;
        names[i][strlen(names[i]) - strlen(ENDING)] = '\0';
        char *const other = names[n];
        names[n++] = names[i];
        names[i] = other;
    }
    const char *near = n == 0 ? NULL : sheaf__nearest(name, (const char *const *)names, (int)n);
    if (near != NULL)
        sheaf_try_this(st, "did you mean %s", near);
    else if (n > 0) {
        sheaf_text text = { 0 };
        char *list = NULL;
        for (int64_t i = 0; i < n; i++)
            sheaf__text_add(&text, "%s%s", i == 0 ? "" : ", ", names[i]);
        sheaf_status_free(sheaf__text_take(&list, &text));
        if (list != NULL)
            sheaf_try_this(st, "one of: %s", list);
        free(list);
    } else
        sheaf_try_this(
            st,
            "the path of a file, or SHEAF_RECIPES=DIR with DIR the folder recipes of sheaf's sources");
    sheaf__names_free(names, count);
    return sheaf_found(st, "nothing of that name%s%s", folder == NULL ? "" : " here or in ",
                       folder == NULL ? "" : folder);
}

sheaf_status *cli_recipe_find(char **path, const char *name)
{
    *path = NULL;
    const sheaf_path_kind kind =
        sheaf__path_kind(name); /* a folder of that name may well be a run's */
    if ((kind != SHEAF_PATH_NONE && kind != SHEAF_PATH_DIR) || strchr(name, '/') != NULL)
        return (*path = strdup(name)) == NULL ? sheaf__no_memory(memory_for)
                                              : NULL; /* what is wrong with it, reading tells */
    char *folder = NULL;
    sheaf_status *st = shipped_folder(&folder);
    for (int i = 0; i < 2 && st == NULL && folder != NULL && *path == NULL; i++) {
        if (asprintf(path, "%s/%s%s", folder, name, i == 0 ? ENDING : "") < 0) {
            *path = NULL;
            st = sheaf__no_memory(memory_for);
        } else if (sheaf__path_kind(*path) != SHEAF_PATH_FILE) {
            free(*path);
            *path = NULL;
        }
    }
    if (st == NULL && *path == NULL)
        st = not_found(name, folder);
    free(folder);
    return st;
}

enum { RECIPE_LIMIT = 1 << 20 }; /* bytes; a recipe of more is a mistake */

static sheaf_status *read_text(char **out, const char *path)
{
    size_t size;
    sheaf_status *st = sheaf__file_read_all(out, &size, path, RECIPE_LIMIT);
    if (st == NULL && strlen(*out) != size) {
        free(*out);
        st = sheaf_expected(sheaf_fail(SHEAF_E_ARG, "%s", path),
                            "a text file of `key: value` lines");
    }
    return st;
}

sheaf_status *cli_recipe_read(cli *cli, const cli_option *options, const char *name)
{
    char *path, *text = NULL;
    sheaf_status *st = cli_recipe_find(&path, name);
    TRY(st, read_text(&text, path));
    if (st != NULL) {
        free(path);
        return sheaf_in(st, "--recipe");
    }
    st = sheaf__settings_take(&cli->settings, options, text, path);
    if (st != NULL)
        cli_yaml_translate(st, path);
    free(path);
    return st;
}
