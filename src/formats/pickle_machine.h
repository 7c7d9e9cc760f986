/* pickle_machine.h - the state of the stack machine that reads a pickle: its bytes, stack, marks
 * and memo; between pickle.c, which does the opcodes, and pickle_machine.c.
 *
 * Nothing here trusts the bytes: what is not there is an error, and memory that could not be had is
 * remembered. */
#pragma once

#include "formats/pickle_inner.h"

typedef struct sheaf__row {
    sheaf_pickle **at;
    int64_t count, capacity;
} sheaf__row;

typedef struct sheaf__machine {
    sheaf_pickle_doc *doc;
    const unsigned char *bytes;
    size_t size, pos;
    size_t op; /* where the opcode being done is */
    sheaf__row stack, memo;
    int64_t memoized; /* places of the memo that are filled */
    int64_t *mark, marks, marks_capacity;
    bool out_of_memory;
    bool stopped;
} sheaf__machine;

/* The status that says where, and what was expected there. */
sheaf_status *sheaf__machine_bad(const sheaf__machine *r, const char *expected);

/* `n` bytes, or NULL. */
const unsigned char *sheaf__machine_take(sheaf__machine *r, uint64_t n);
/* A number of `bytes` bytes, least significant first. */
sheaf_status *sheaf__machine_number(uint64_t *out, sheaf__machine *r, int bytes);
/* A count of `width` bytes, then as many bytes. */
sheaf_status *sheaf__machine_counted(const unsigned char **at, uint64_t *n, sheaf__machine *r,
                                     int width);
/* A line without its end. */
sheaf_status *sheaf__machine_line(sheaf_pickle_text *out, sheaf__machine *r);

/* NULL, from a maker that found no memory, is remembered by the document. */
void sheaf__machine_push(sheaf__machine *r, sheaf_pickle *value);
/* Values since the last mark. */
int64_t sheaf__machine_above(const sheaf__machine *r);
/* Are there so many? */
sheaf_status *sheaf__machine_need(const sheaf__machine *r, int64_t n);
/* After sheaf__machine_need(). */
sheaf_pickle *sheaf__machine_pop(sheaf__machine *r);
sheaf_pickle *sheaf__machine_top(const sheaf__machine *r);
sheaf_status *sheaf__machine_mark(sheaf__machine *r);
/* Values since the last mark, which goes: *from points at them on the stack, which is then *n
 * shorter. */
sheaf_status *sheaf__machine_pop_mark(sheaf_pickle ***from, int64_t *n, sheaf__machine *r);

/* What lies on top, into place `index` of the memo; and from there onto the stack. */
sheaf_status *sheaf__machine_put(sheaf__machine *r, uint64_t index);
sheaf_status *sheaf__machine_get(sheaf__machine *r, uint64_t index);
