/* space.h - hands out offsets of one address range, lowest first. Arithmetic only:
 * it never touches the range, so a device with memory and one without get the
 * same offsets for the same requests. All of its records lie elsewhere. */
#pragma once

#include "base/base.h"

#define SHEAF__SMALL_UNIT ((size_t)64)   /* a cache line */
#define SHEAF__LARGE_UNIT ((size_t)4096) /* blocks of SHEAF__LARGE_BLOCK and more */
#define SHEAF__LARGE_BLOCK ((size_t)16384)

enum { SHEAF__HOLE_SIZES = 64 };

typedef struct sheaf__hole {
    size_t begin, end;
} sheaf__hole;

typedef struct sheaf__used {
    size_t begin, bytes; /* bytes 0: an empty place of the table */
    int tag;
} sheaf__used;

typedef struct sheaf__space {
    size_t capacity;
    size_t top;        /* end of the highest block in use */
    size_t mark;       /* highest top so far */
    sheaf__hole *hole; /* below top, ascending, never adjacent */
    size_t holes, hole_capacity;
    size_t below[SHEAF__HOLE_SIZES]; /* [c]: holes that begin lower have fewer than 2^c bytes */
    sheaf__used *used; /* hash table by begin, linear probing, capacity a power of two */
    size_t blocks, used_capacity;
} sheaf__space;

typedef enum sheaf__alloc { SHEAF__TAKEN, SHEAF__NO_SPACE, SHEAF__NO_RECORD } sheaf__alloc;

void sheaf__space_init(sheaf__space *space, size_t capacity);
void sheaf__space_release(sheaf__space *space);

/* sheaf__space_size - what a request of `bytes` occupies; 0 when it overflows. */
size_t sheaf__space_size(size_t bytes);
/* sheaf__space_take - first hole that fits. NO_SPACE: the range is full; NO_RECORD:
 * malloc failed. Nothing changes unless TAKEN. */
sheaf__alloc sheaf__space_take(sheaf__space *space, size_t bytes, int tag, size_t *begin);
/* sheaf__space_give - returns the occupied bytes and the tag; cannot fail. An
 * offset that is not in use is our own mistake (assert). */
size_t sheaf__space_give(sheaf__space *space, size_t begin, int *tag);
/* sheaf__space_find - the same of a block that stays. */
size_t sheaf__space_find(const sheaf__space *space, size_t begin, int *tag);
