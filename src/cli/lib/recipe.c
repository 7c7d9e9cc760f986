/* recipe.c - settings from a file. */
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "base/file.h"
#include "cli.h"
#include "yaml.h"

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
