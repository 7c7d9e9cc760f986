/* said.h - what an answer has said so far: thoughts, content, calls of tools. */
#pragma once

#include "infer/answer.h"
#include "serve/tools.h"

/* The marks of thoughts. */
#define SHEAF__THINK "<think>"
#define SHEAF__THOUGHT "</think>"

/* How the answers of a request are read. */
typedef struct sheaf__said_rules {
    const sheaf__codec *codec;
    sheaf__tool_form form; /* owned; of calls, with `tools` */
    const json_t *tools;   /* that the model sees; NULL: none */
    bool one_call;         /* of several calls the first counts */
    bool thoughts;         /* answers may have some */
    bool begun;            /* their mark ends the prompt */
    bool whole;            /* nothing is given before an answer is over */
} sheaf__said_rules;

/* All zero at the beginning of an answer. */
typedef struct sheaf__said {
    sheaf__text_piece thoughts, content; /* of `text`: what later tokens cannot change */
    json_t *calls;                       /* as of sheaf__tool_calls(), once it is over; owned */
    sheaf_text text;
    int64_t unmarked; /* tokens before the special token that begins a call, of those seen */
    size_t sure;      /* bytes of the text before that token */
    bool marked;      /* there is one */
} sheaf__said;

/* sheaf__said_prompt - sets rules->begun by the end of a prompt. */
sheaf_status *sheaf__said_prompt(sheaf__said_rules *rules, const sheaf__prompt *prompt);
/* sheaf__said_more - errors: SHEAF_E_MEMORY, those of decoding. */
sheaf_status *sheaf__said_more(sheaf__said *said, const sheaf__said_rules *rules,
                               const sheaf__delta *delta, bool over);
/* sheaf__said_unsent - what of a text lies behind its first *sent bytes, which are then all of it;
 * malloc'd; NULL: nothing. */
char *sheaf__said_unsent(sheaf__text_piece text, size_t *sent);
void sheaf__said_release(sheaf__said *said);
