/* lines.h - the lines of an untrusted file that may still grow. */
#pragma once

#include <jansson.h>

#include "base/base.h"

enum {
    SHEAF__LINE_MOST = 4 << 20, /* bytes of a line; that of a step of 64 ranks has 30 KB */
    SHEAF__LINE_LAST = 256
};

/* How far a file is read. All zero: not at all. */
typedef struct sheaf__lines_at {
    int64_t end, lines;          /* bytes and whole lines */
    char last[SHEAF__LINE_LAST]; /* the end of the last of these lines */
    size_t nlast;
    bool cut; /* the last line has no end: it is being written, or was */
} sheaf__lines_at;

/* Who reads its lines. */
typedef struct sheaf__lines_reader {
    void *self;
    void (*begin)(void *self); /* nothing is read yet, or any more */
    /* A line; value NULL: it is `odd`. */
    sheaf_status *(*take)(void *self, const json_t *value, int64_t number, const char *odd);
} sheaf__lines_reader;

/* sheaf__lines_read - gives the reader the lines that came since `at`; where the lines that were
 * read have changed, as after --resume, it begins anew, also after a failure. A missing file has
 * none. Errors: SHEAF_E_IO, SHEAF_E_MEMORY; never for the contents of the file. */
sheaf_status *sheaf__lines_read(sheaf__lines_at *at, const char *path,
                                const sheaf__lines_reader *reader);
