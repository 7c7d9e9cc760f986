/* jinja.h - runs chat templates: Jinja 3.1 without what needs files or other languages, with the
 * settings of transformers (trim_blocks, lstrip_blocks, a sandbox in which nothing changes).
 *
 *   {% for a, b in x if c %} .. {% else %} .. {% endfor %}   loop.index, first, last, ...;
 * recursive if elif else, set (values, several names, blocks, members of a namespace), macro, call,
 * filter, with, generation, break, continue, raw, comments, - and + at marks numbers, strings,
 * lists, tuples, dicts, slices, .name [..] (..) |filter, is test, a if b else c, f(*a, **b),
 * varargs and kwargs of macros; range, dict, namespace, joiner, raise_exception, strftime_now;
 * tests, filters and methods but those that docs/templates.md lists
 *
 * Anything else is refused by name when it is reached: the output equals Jinja's, or there is an
 * error. Templates are untrusted programs: work, memory and depth are bounded (jinja_core.h).
 * strftime_now() writes the date that it is given (date.h). */
#pragma once

#include <jansson.h>

#include "base/base.h"
#include "inputs/chat/date.h"
#include "sheaf/status.h"

typedef struct sheaf__jinja sheaf__jinja;

/* sheaf__jinja_parse - free *out, which is NULL after a failure. Errors, with the line:
 * SHEAF_E_FORMAT for a syntax error, SHEAF_E_UNSUPPORTED for refused statements and for a template
 * that is too large; SHEAF_E_MEMORY. */
sheaf_status *sheaf__jinja_parse(sheaf__jinja **out, const char *text, size_t size);
void sheaf__jinja_free(sheaf__jinja *program);

/* sheaf__jinja_has_marks - does it have {% generation %} blocks? */
bool sheaf__jinja_has_marks(const sheaf__jinja *program);

/* A part of a text that comes from a message; `message` counts from 0. */
typedef struct sheaf__jpiece {
    size_t begin, end;
    int64_t message;
} sheaf__jpiece;

typedef struct sheaf__jinja_text {
    char *text; /* ended by NUL */
    size_t size;
    sheaf__jpiece *piece; /* [pieces] ascending: bytes that come from `messages`, except roles */
    int64_t pieces;
    sheaf__jpiece *mark; /* [marks] ascending: output of {% generation %} blocks; message -1 */
    int64_t marks;
    size_t *cut; /* [cuts]: ends of the iterations of outermost loops */
    int64_t cuts, cut_capacity;
    bool lacks_eos;              /* the program reads eos_token, which is not defined */
    char date[SHEAF__DATE_SIZE]; /* last output of strftime_now(), or "" */
} sheaf__jinja_text;

/* sheaf__jinja_render - `variables` is an object; `today` NULL: strftime_now() is refused. *out is
 * empty after a failure. Errors, with the line: SHEAF_E_DATA where the template raises an
 * exception, as it does in Jinja; SHEAF_E_UNSUPPORTED for unsupported features, and beyond the
 * bounds; SHEAF_E_MEMORY. Thread-safe. */
sheaf_status *sheaf__jinja_render(sheaf__jinja_text *out, const sheaf__jinja *program,
                                  const json_t *variables, const sheaf__date *today);
void sheaf__jinja_text_release(sheaf__jinja_text *t);
