/* work.h - what a run of the tape consists of: each op with its shapes, how often it runs, how many
 * operations its products have, and on a device with memory how long it takes.
 *
 * Two runs have the same entry where name, way, shapes and operations are the same. So a list from
 * the dry device can be priced with the seconds of one that was measured. */
#ifndef SHEAF_TAPE_WORK_H
#define SHEAF_TAPE_WORK_H

#include <stdbool.h>
#include <stdint.h>

#include "sheaf/status.h"

typedef enum sheaf__work_kind {
    SHEAF__WORK_PRODUCTS, /* of weights and of LoRA's factors, with what is added and rounded there
                           */
    SHEAF__WORK_ATTENTION,
    SHEAF__WORK_HEAD,     /* with the loss and the gradients of both */
    SHEAF__WORK_ELEMENTS, /* norms, rotary embedding, activations, tables */
    SHEAF__WORK_KINDS
} sheaf__work_kind;

typedef enum sheaf__work_way {
    SHEAF__WORK_FORWARD,
    SHEAF__WORK_AGAIN, /* forward once more: for --checkpointing, or as it costs little */
    SHEAF__WORK_BACKWARD,
    SHEAF__WORK_WAYS
} sheaf__work_way;

enum { SHEAF__WORK_NAME = 96, SHEAF__WORK_SHAPE = 320 };

typedef struct sheaf__work_entry {
    char name[SHEAF__WORK_NAME];   /* of the op, with "*" in place of a layer's number */
    char shape[SHEAF__WORK_SHAPE]; /* of its values: "1024x512:9 ...", the use in hexadecimal */
    sheaf__work_kind kind;
    sheaf__work_way way;
    double flops;   /* of one run; 0 where they are known only when rows have been chosen */
    double bytes;   /* of its values, each once */
    int64_t count;  /* runs */
    double seconds; /* of all of them */
    double waiting; /* of these, in calls of a group of ranks */
} sheaf__work_entry;

typedef struct sheaf__work {
    sheaf__work_entry *entry;
    int64_t n, capacity;
    bool processor; /* given: seconds are this thread's of the processor, not the clock's */
    double update;  /* seconds from the last gradient to the end of the step */
    double update_waiting;
    bool no_memory;
} sheaf__work;

/* sheaf__work_clear - no entries; its memory and `processor` stay. */
void sheaf__work_clear(sheaf__work *work);
void sheaf__work_release(sheaf__work *work);
/* sheaf__work_now - seconds on its clock. */
double sheaf__work_now(const sheaf__work *work);
/* sheaf__work_add - entry->count runs more; entries that agree become one. A failure is remembered
 * in no_memory. */
void sheaf__work_add(sheaf__work *work, const sheaf__work_entry *entry);
/* sheaf__work_name - `name` with "*" for each part that is a number. */
void sheaf__work_name(char out[SHEAF__WORK_NAME], const char *name);

/* Static names, stable JSON keys: "products", ...; "forward", "forward again", "backward". */
const char *sheaf__work_kind_name(sheaf__work_kind kind);
const char *sheaf__work_way_name(sheaf__work_way way);

#endif
