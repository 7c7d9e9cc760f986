/* translate_rules.h - rules from settings of other trainers to a recipe. */
#pragma once

#include <stdbool.h>

typedef enum sheaf__translate_kind {
    TRANSLATE_COPY,    /* the value translated by `words`; "" is left out */
    TRANSLATE_ONLY,    /* all of a list must be among `words`, and are then ignored */
    TRANSLATE_IGNORED, /* does not change the result: logging, display, memory */
} sheaf__translate_kind;

/* "from=to|from=to"; "off=..." for false and its synonyms; "*=..." for any other value; without a
 * match the value itself is copied. "from=to#why": a comment above the line; "from=!why": refused,
 * for this reason ("": there is no such thing). */
typedef struct sheaf__translate_rule {
    const char *keys; /* theirs, as sheaf__translate_is() has them */
    sheaf__translate_kind kind;
    const char *setting; /* ours; NULL where there is none */
    const char *words;
    const char *note; /* written beside it; NULL */
} sheaf__translate_rule;

/* A default of a program that differs from sheaf's. */
typedef struct sheaf__translate_default {
    const char *setting;
    const char *value;  /* NULL: twice the rank */
    const char *unless; /* their key that disables the default, even without a value; NULL */
} sheaf__translate_default;

typedef struct sheaf__translate_program {
    const char *name;
    const char *signs;                      /* keys that only its files have */
    const sheaf__translate_rule *rule;      /* ends with keys NULL; the first that matches counts */
    const sheaf__translate_default *always; /* ends with setting NULL */
} sheaf__translate_program;

extern const sheaf__translate_program sheaf__translate_programs[]; /* ends with name NULL */

/* sheaf__translate_is - is the key one of these, "a|b|c"? "*" at the end of a name: any that begin
 * so; "[*]" any number. */
bool sheaf__translate_is(const char *names, const char *key);
/* sheaf__translate_find - the rule for a key of this program; NULL: none. */
const sheaf__translate_rule *sheaf__translate_find(const sheaf__translate_program *program,
                                                   const char *key);
