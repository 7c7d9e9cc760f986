/* attention_arguments.h - what the operations of attention are given (call.h): of a forward pass
 * the first ones. */
#pragma once

#include "ops/attention/attention.h"

typedef struct sheaf__attention_arguments {
    sheaf__attention shape;
    void *o;
    float *stats;
    const void *q, *k, *v, *d_o;
    void *dq, *dk, *dv;
    bool fused;        /* backward: one task makes dq, dk and dv, */
    char *room;        /* in this, or (NULL) in a thread's scratch */
    size_t room_bytes; /* of each thread */
    int64_t chunk;
} sheaf__attention_arguments;
