/* grammar.h - which tokens may come next in an answer that must be JSON of a schema.
 *
 * A schema becomes a program over bytes (json_schema.c) for a machine with a stack (grammar.c):
 * calls, returns, alternatives, which are followed side by side, and counters. A state is the set
 * of stacks that the bytes so far lead to; states and their successors are found once and kept. The
 * tokens that a state allows are found by a walk over the tokens in the order of their bytes
 * (token_bytes.h), where tokens that begin the same share the way. */
#pragma once

#include "infer/token_bytes.h"

typedef enum sheaf__grammar_op {
    SHEAF__G_BYTE,   /* this `byte` */
    SHEAF__G_STRING, /* characters and the closing quote: min to max of them (max -1: any number);
                        names: none of name[first .. first + names), and no backslash */
    SHEAF__G_NUMBER, /* `byte` with SHEAF__G_WHOLE: an integer */
    SHEAF__G_BLANK,  /* a blank or tab, or nothing */
    SHEAF__G_CALL,   /* part `to` */
    SHEAF__G_RETURN,
    SHEAF__G_SPLIT,   /* go on here, or at `to` */
    SHEAF__G_JUMP,    /* to `to` */
    SHEAF__G_COUNT,   /* one more item, of min to max */
    SHEAF__G_NOTHING, /* a dead end */
    SHEAF__G_MORE,    /* another item here, if there may be one; at `to`, if there may be none */
} sheaf__grammar_op;

/* STRING and NUMBER have several steps, each at a place of its own: `step` counts them. */
enum { SHEAF__G_STRING_STEPS = 17, SHEAF__G_NUMBER_STEPS = 9, SHEAF__G_WHOLE = 1 };

typedef struct sheaf__grammar_code {
    uint8_t op, byte, step;
    int32_t to, min, max, first, names;
} sheaf__grammar_code;

typedef struct sheaf__grammar_program {
    sheaf__grammar_code *code; /* [n]; it begins at part 0 */
    int64_t n, capacity;
    int32_t *part; /* [parts] where each begins */
    int64_t parts, parts_capacity;
    char **name; /* [names] properties */
    int64_t names, names_capacity;
} sheaf__grammar_program;

/* The form of an answer. */
typedef struct sheaf__answer_form {
    const char *schema;         /* JSON Schema as text; NULL: anything */
    const char *before, *after; /* texts around the value; NULL: none. 0xFF stands before the
                                   name of a special token */
    const sheaf__token_bytes *tokens;
} sheaf__answer_form;

/* sheaf__grammar_compile - release also after a failure. Errors: SHEAF_E_FORMAT for no JSON;
 * SHEAF_E_UNSUPPORTED for a keyword that is not followed here, and SHEAF_E_DATA for one that is
 * wrong, or that no value satisfies: by its path. */
sheaf_status *sheaf__grammar_compile(sheaf__grammar_program *out, const sheaf__answer_form *form);
void sheaf__grammar_program_release(sheaf__grammar_program *program);

/* ---- the machine, of one thread ---- */

typedef struct sheaf__grammar sheaf__grammar;

/* The place of an answer in its grammar. All zero: at its beginning. */
typedef struct sheaf__grammar_place {
    int32_t state, age;
    int64_t read; /* tokens */
} sheaf__grammar_place;

/* sheaf__grammar_open - errors: those of compiling. *out is NULL after a failure. */
sheaf_status *sheaf__grammar_open(sheaf__grammar **out, const sheaf__answer_form *form);
void sheaf__grammar_close(sheaf__grammar *grammar); /* accepts NULL */
/* sheaf__grammar_read - ids[0..n) are the answer so far. *over: it is complete, and nothing can
 * follow. */
sheaf_status *sheaf__grammar_read(bool *over, sheaf__grammar *grammar, sheaf__grammar_place *place,
                                  const int32_t *ids, int64_t n);
/* sheaf__grammar_mask - sets the logits of all tokens to -inf that cannot follow; those of
 * stop[nstop], which end an answer, where it is complete. Errors: SHEAF_E_DATA where none can. */
sheaf_status *sheaf__grammar_mask(float *logits, int64_t vocab, sheaf__grammar *grammar,
                                  const sheaf__grammar_place *place, const int64_t *stop,
                                  int nstop);
