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

#define ENDING ".recipe"

/* The folder of the recipes that come with sheaf (malloc'd); NULL: there is none. */
static char *shipped_folder(void)
{
    static const char *const beside[] = { "../share/sheaf/recipes", "../../../recipes" };
    const char *own = getenv("SHEAF_RECIPES");
    char binary[PATH_MAX] = "", *folder = NULL;
    if (own != NULL && *own != '\0')
        return strdup(own);
    if (readlink("/proc/self/exe", binary, sizeof binary - 1) < 0 || strrchr(binary, '/') == NULL)
        return NULL;
    *strrchr(binary, '/') = '\0';
    for (size_t i = 0; i < sizeof beside / sizeof *beside; i++) {
        if (asprintf(&folder, "%s/%s", binary, beside[i]) < 0)
            return NULL;
        if (sheaf__path_kind(folder) == SHEAF_PATH_DIR)
            return folder;
        free(folder);
    }
    return NULL;
}

static sheaf_status *not_found(const char *name, const char *folder)
{
    sheaf_status *st = sheaf_fail(SHEAF_E_IO, "%s", name);
    sheaf_text list = { 0 };
    char **names = NULL;
    int64_t count = 0, n = 0;
    sheaf_expected(st, "a file, or the name of a recipe that comes with sheaf");
    if (folder != NULL)
        sheaf_status_free(sheaf__list_dir(&names, &count, folder));
    for (int64_t i = 0; i < count; i++) { /* recipes to the front, without their ending */
        char *const one = names[i];
        if (!sheaf__ends_with(one, ENDING))
            continue;
        one[strlen(one) - strlen(ENDING)] = '\0';
        sheaf__text_add(&list, "%s%s", n == 0 ? "" : ", ", one);
        names[i] = names[n];
        names[n++] = one;
    }
    const char *near = n == 0 ? NULL : sheaf__nearest(name, (const char *const *)names, (int)n);
    if (near != NULL)
        sheaf_try_this(st, "did you mean %s", near);
    else if (list.at != NULL)
        sheaf_try_this(st, "one of: %s", list.at);
    else
        sheaf_try_this(st,
                       "the path of a file, or SHEAF_RECIPES=DIR with DIR the folder recipes of "
                       "sheaf's sources");
    sheaf__text_release(&list);
    sheaf__names_free(names, count);
    return sheaf_found(st, "nothing of that name%s%s", folder == NULL ? "" : " here or in ",
                       folder == NULL ? "" : folder);
}

sheaf_status *cli_recipe_find(char **path, const char *name)
{
    const sheaf_path_kind kind = sheaf__path_kind(name); /* a folder may well be a run's */
    const bool here =
        (kind != SHEAF_PATH_NONE && kind != SHEAF_PATH_DIR) || strchr(name, '/') != NULL;
    *path = here ? strdup(name) : NULL; /* reading it reports its faults */
    if (here)
        return *path == NULL ? sheaf__no_memory("--recipe") : NULL;
    char *folder = shipped_folder();
    for (int i = 0; i < 2 && folder != NULL && *path == NULL; i++)
        if (asprintf(path, "%s/%s%s", folder, name, i == 0 ? ENDING : "") < 0) {
            *path = NULL;
        } else if (sheaf__path_kind(*path) != SHEAF_PATH_FILE) {
            free(*path);
            *path = NULL;
        }
    sheaf_status *st = *path == NULL ? not_found(name, folder) : NULL;
    free(folder);
    return st;
}

enum { RECIPE_LIMIT = 1 << 20 }; /* bytes; a recipe of more is a mistake */

sheaf_status *cli_recipe_read(cli *cli, const cli_option *options, const char *name)
{
    char *path, *text = NULL;
    size_t size = 0;
    sheaf_status *st = cli_recipe_find(&path, name);
    TRY(st, sheaf__file_read_all(&text, &size, path, RECIPE_LIMIT));
    if (st == NULL && strlen(text) != size) {
        free(text);
        st = sheaf_expected(sheaf_fail(SHEAF_E_ARG, "%s", path),
                            "a text file of `key: value` lines");
    }
    if (st != NULL) {
        free(path);
        return sheaf_in(st, "--recipe");
    }
    cli->settings.named_recipe = strcmp(path, name) != 0;
    st = sheaf__settings_read(&cli->settings, options, text, path);
    if (st != NULL)
        sheaf__peer_advise_file(st, path);
    free(path);
    return st;
}
