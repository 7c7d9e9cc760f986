/* tools.h - calls of tools in answers: how a chat template writes them is read off a call that it
 * renders, so that a family needs no row here. */
#pragma once

#include <jansson.h>

#include "infer/codec.h"

/* A call is {"NAME": name, "ARGUMENTS": {...}} between two texts, perhaps in a list; or, with
 * `lines`, the name, a line feed and the arguments alone. */
typedef struct sheaf__tool_form {
    char *before, *after;   /* owned; NULL: the template's calls have no form that is known here */
    char *name, *arguments; /* owned: keys */
    bool list, lines;
    bool unmarked; /* in the answer's text nothing stands before a call: `before` is blank, or a
                      special token, which is `mark` */
    int32_t mark;  /* -1: it is none */
} sheaf__tool_form;

/* sheaf__tool_form_read - of calls by the template of `codec`. Release also after a failure.
 * Errors: those of the template, which may know no tools. */
sheaf_status *sheaf__tool_form_read(sheaf__tool_form *out, const sheaf__codec *codec,
                                    const json_t *tools);
void sheaf__tool_form_release(sheaf__tool_form *form);
/* sheaf__tool_forced - *schema: of the value that calls one of `tools`, or that of this name;
 * *before, *after: as of sheaf__answer_form. All malloc'd, set also after a failure. Errors:
 * SHEAF_E_DATA for a name that no tool has; SHEAF_E_UNSUPPORTED where calls have no known form, or
 * for what strict parameters have that is not followed. */
sheaf_status *sheaf__tool_forced(char **schema, char **before, char **after,
                                 const sheaf__tool_form *form, const sheaf__codec *codec,
                                 const json_t *tools, const char *name);
/* sheaf__tool_sure - bytes at the beginning of an answer that are no part of a call, whatever
 * follows. */
size_t sheaf__tool_sure(const sheaf__tool_form *form, const char *text, size_t size);
/* sheaf__tool_calls - *out: [{"name": ..., "arguments": text}, ...] of a whole answer, whose first
 * *content bytes are text; NULL: it has none. Errors: SHEAF_E_MEMORY. */
sheaf_status *sheaf__tool_calls(json_t **out, size_t *content, const sheaf__tool_form *form,
                                const json_t *tools, const char *text);
/* sheaf__tool_call_ids - gives calls an "id": Mistral's templates demand 9 letters and digits, and
 * no two of a reply are the same. */
void sheaf__tool_call_ids(json_t *calls, uint64_t reply, int64_t answer);
