/* recipe.h - settings of other trainers as a recipe for `sheaf train`. */
#pragma once

#include <stdint.h>

#include "sheaf/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A setting of a file of LLaMA-Factory or Axolotl. */
typedef struct sheaf_foreign_setting {
    const char *key;   /* "learning_rate"; of nested maps and lists "datasets[0].path" */
    const char *value; /* as it is written; a list of plain values joined by commas; "" for null */
    int line;          /* of the file, for messages */
} sheaf_foreign_setting;

typedef struct sheaf_translation sheaf_translation;

/* sheaf_translation_new - what these settings are in a recipe.
 *   setting  [count], in the order of the file; borrowed until the translation is freed
 * Errors: SHEAF_E_DATA for the settings of neither program. */
SHEAF_API sheaf_status *sheaf_translation_new(sheaf_translation **out,
                                              const sheaf_foreign_setting *setting, int64_t count);
/* sheaf_translation_free - accepts NULL. */
SHEAF_API void sheaf_translation_free(sheaf_translation *translation);
/* "LLaMA-Factory" or "Axolotl"; static. */
SHEAF_API const char *sheaf_translation_program(const sheaf_translation *translation);
/* The recipe, lines of `key: value`; borrowed. */
SHEAF_API const char *sheaf_translation_recipe(const sheaf_translation *translation);
/* sheaf_translation_lost - by number from 0: a setting that has no place in the recipe, with the
 * reason ("line 7: use_dora: true: DoRA is merged, not trained"); borrowed. NULL: no more. */
SHEAF_API const char *sheaf_translation_lost(const sheaf_translation *translation, int64_t i);

#ifdef __cplusplus
}
#endif
