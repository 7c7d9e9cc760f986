/* translate_rules.h - what the settings of other trainers are in a recipe of sheaf. */
#pragma once

#include <stdbool.h>

typedef enum sheaf__translate_kind {
    TRANSLATE_COPY,    /* the value by `words`; "" and none in the recipe */
    TRANSLATE_ONLY,    /* all of a list must be among `words`, which then change nothing */
    TRANSLATE_IGNORED, /* changes no result: how it logs, shows, or uses memory */
} sheaf__translate_kind;

/* "from=to|from=to"; "off=..." for false and what is like it; "*=..." for any other value; without
 * a match the value itself is copied. "from=to#why": a comment above the line; "from=!why":
 * refused, for this reason ("": there is no such thing). */
typedef struct sheaf__translate_rule {
    const char *keys; /* theirs, as sheaf__translate_is() has them */
    sheaf__translate_kind kind;
    const char *setting; /* ours; NULL where there is none */
    const char *words;
    const char *note; /* written beside it; NULL */
} sheaf__translate_rule;

/* What a program does where its file says nothing, and sheaf would do otherwise. */
typedef struct sheaf__translate_default {
    const char *setting;
    const char *value;  /* NULL: twice the rank */
    const char *unless; /* their key that counts even without a value, or with none we take; NULL */
} sheaf__translate_default;

typedef struct sheaf__translate_program {
    const char *name;
    const char *signs;                      /* keys that its files alone have */
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
