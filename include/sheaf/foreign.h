/* foreign.h - settings of LLaMA-Factory and Axolotl, and what they are in a recipe for `sheaf
 * train`: the rules by which sheaf answers their flags, and by which `python3 -m sheaf translate`
 * makes a recipe of their files. */
#pragma once

#include "sheaf/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum sheaf_foreign_kind {
    SHEAF_FOREIGN_COPY,    /* the value translated by `words`; "" is left out */
    SHEAF_FOREIGN_ONLY,    /* all of a list must be among `words`, and are then ignored */
    SHEAF_FOREIGN_IGNORED, /* does not change the result: logging, display, memory */
} sheaf_foreign_kind;

/* "from=to|from=to"; "off=..." for false and its synonyms; "*=..." for any other value; without a
 * match the value itself is copied. "from=to#why": a comment above the line; "from=!why": refused,
 * for this reason ("": there is no such thing). */
typedef struct sheaf_foreign_rule {
    const char *keys; /* theirs, "a|b|c"; "*" at the end of a name: any that begin so; "[*]" any
                         number */
    sheaf_foreign_kind kind;
    const char *setting; /* of sheaf; NULL where there is none */
    const char *words;   /* NULL: any value is copied */
    const char *note;    /* written beside it; NULL */
} sheaf_foreign_rule;

/* A default of a program that differs from sheaf's. */
typedef struct sheaf_foreign_default {
    const char *setting;
    const char *value;  /* NULL: twice the rank */
    const char *unless; /* their key that disables the default, even without a value; NULL */
} sheaf_foreign_default;

typedef struct sheaf_foreign_program {
    const char *name;                    /* "LLaMA-Factory" or "Axolotl" */
    const char *signs;                   /* keys that only its files have */
    const sheaf_foreign_rule *rule;      /* ends with keys NULL; the first that matches counts */
    const sheaf_foreign_default *always; /* ends with setting NULL */
} sheaf_foreign_program;

/* sheaf_foreign_program_of - the program whose files alone have this key, of nested maps and lists
 * "datasets[0].path"; NULL: none. Static, as are the rules. */
SHEAF_API const sheaf_foreign_program *sheaf_foreign_program_of(const char *key);
/* sheaf_foreign_rule_of - the rule for a key of this program, NULL: of any; NULL: none. */
SHEAF_API const sheaf_foreign_rule *sheaf_foreign_rule_of(const sheaf_foreign_program *program,
                                                          const char *key);

#ifdef __cplusplus
}
#endif
