/* yaml.h - a YAML file of settings as a list of keys and values. */
#pragma once

#include "sheaf/status.h"

typedef struct cli_yaml_entry {
    char *key;   /* "learning_rate"; of nested maps and lists "datasets[0].path" */
    char *value; /* as it is written; a list of plain values joined by commas; "" for null */
    int line;    /* of the key, from 1 */
} cli_yaml_entry;

typedef struct cli_yaml {
    cli_yaml_entry *entry;
    int count;
} cli_yaml;

/* cli_yaml_read - in file order. Release also after a failure. Errors: SHEAF_E_IO; SHEAF_E_DATA
 * with the line for what is no YAML, a key given twice, an anchor or alias, and a file that is no
 * map or is larger or deeper than settings are. */
sheaf_status *cli_yaml_read(cli_yaml *out, const char *path);
void cli_yaml_release(cli_yaml *yaml);

/* cli_yaml_program - the program whose settings these are, "LLaMA-Factory" or "Axolotl", by the
 * keys that its files have; NULL. */
const char *cli_yaml_program(const cli_yaml *yaml);
/* cli_yaml_translate - `st`, with `sheaf translate` as what to try where the file at `path` is one
 * of such a program. */
sheaf_status *cli_yaml_translate(sheaf_status *st, const char *path);
