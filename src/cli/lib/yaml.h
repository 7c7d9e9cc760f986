/* yaml.h - a YAML file of settings as a list of keys and values. */
#pragma once

#include "sheaf/recipe.h"

typedef struct cli_yaml {
    sheaf_foreign_setting *entry; /* texts are owned */
    int count;
} cli_yaml;

/* cli_yaml_read - in file order. Release also after a failure. Errors: SHEAF_E_IO; SHEAF_E_DATA
 * with the line for what is no YAML, a key given twice, an anchor or alias, and a file that is no
 * map or is larger or deeper than settings are. */
sheaf_status *cli_yaml_read(cli_yaml *out, const char *path);
void cli_yaml_release(cli_yaml *yaml);

/* cli_yaml_translate - `st`, with `sheaf translate` as what to try where the file at `path` is one
 * of LLaMA-Factory or Axolotl. */
sheaf_status *cli_yaml_translate(sheaf_status *st, const char *path);
