/* status.h - what a fallible function returns: NULL for success, or why not.
 *
 * A status says where it happened, what was expected, what was found and what
 * to try; it names a field of the caller's by "`lora-rank`", and with a value
 * by "`lora-rank 8`". The library never prints or exits; the command prints a status with
 * sheaf_status_print() and turns its code into an exit code. */
#pragma once

#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SHEAF_API __attribute__((visibility("default")))
#define SHEAF_PRINTF(fmt, first) __attribute__((format(printf, fmt, first)))

typedef enum sheaf_code {
    SHEAF_E_ARG = 1,     /* the caller's argument or flag is wrong: usage, exit 2 */
    SHEAF_E_MEMORY,      /* an allocation failed */
    SHEAF_E_IO,          /* the system refused to open, read, write, sync or rename */
    SHEAF_E_FORMAT,      /* bytes do not follow their file format */
    SHEAF_E_LAYOUT,      /* shapes, names or parts contradict the model or each other */
    SHEAF_E_UNSUPPORTED, /* understood, and refused: sheaf does not do this (yet) */
    SHEAF_E_DATA,        /* training data or prompt is bad */
    SHEAF_E_NUMBER,      /* a loss or weight is not finite */
    SHEAF_E_PEER,        /* another rank failed; the text names it */
    SHEAF_E_STOPPED,     /* it was asked to stop (control.h); training has saved its state */
    SHEAF_E_UNSAFE,  /* a pickle wants to call something; the text names it. Nothing was called */
    SHEAF_E_CHANGED, /* a file was written to while it was read: neither sound nor damaged */
} sheaf_code;

typedef struct sheaf_status sheaf_status;

/* sheaf_fail - a new failure. `where` is a printf format naming the place or
 * fact ("axis 0", "header length"). Never returns NULL: if no memory is left
 * it returns a static out-of-memory status that may be freed like any other. */
SHEAF_API sheaf_status *sheaf_fail(sheaf_code code, const char *where, ...) SHEAF_PRINTF(2, 3);

/* Each adds one line to `st` and returns it; a second call replaces the first. */
SHEAF_API sheaf_status *sheaf_expected(sheaf_status *st, const char *fmt, ...) SHEAF_PRINTF(2, 3);
SHEAF_API sheaf_status *sheaf_found(sheaf_status *st, const char *fmt, ...) SHEAF_PRINTF(2, 3);
SHEAF_API sheaf_status *sheaf_try_this(sheaf_status *st, const char *fmt, ...) SHEAF_PRINTF(2, 3);

/* sheaf_in - puts context before the place: sheaf_in(st, "%s", file). NULL
 * stays NULL, so `return sheaf_in(f(...), "%s", path);` is the usual line. */
SHEAF_API sheaf_status *sheaf_in(sheaf_status *st, const char *fmt, ...) SHEAF_PRINTF(2, 3);

/* sheaf_status_copy - an independent copy (to hand one rank's failure to all). */
SHEAF_API sheaf_status *sheaf_status_copy(const sheaf_status *st);

/* sheaf_status_code - of a failure: here and below `st` is not NULL, unless it says so. */
SHEAF_API sheaf_code sheaf_status_code(const sheaf_status *st);
/* sheaf_status_errno - the error of the operating system behind `st` (errno), 0 where there is
 * none. */
SHEAF_API int sheaf_status_errno(const sheaf_status *st);
/* Borrowed strings; empty when the line was never set. */
SHEAF_API const char *sheaf_status_where(const sheaf_status *st);
SHEAF_API const char *sheaf_status_expected(const sheaf_status *st);
SHEAF_API const char *sheaf_status_found(const sheaf_status *st);
SHEAF_API const char *sheaf_status_try(const sheaf_status *st);
/* sheaf_status_print - "sheaf: where\n  expected: ...\n  found: ...\n  try: ...\n". */
SHEAF_API void sheaf_status_print(const sheaf_status *st, FILE *to);
/* sheaf_status_free - accepts NULL. */
SHEAF_API void sheaf_status_free(sheaf_status *st);

#ifdef __cplusplus
}
#endif
