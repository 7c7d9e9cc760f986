/* balance.h - how evenly a number of ranks shares what stays whole: the heads of attention. */
#pragma once

#include "base/events.h"
#include "schema/schema.h"

/* One kind of heads over the ranks. */
typedef struct sheaf__share {
    const char *what;    /* "attention", "cross-attention", "the ViT", "the tower": static */
    int64_t heads;       /* in all; key/value heads, which their query heads follow */
    int64_t least, most; /* of one rank */
    int idle;            /* ranks that have none */
} sheaf__share;

enum { SHEAF__SHARES = 4 };

/* sheaf__shares - fills share[SHEAF__SHARES]; the number of kinds this model has. 1 <= ranks <=
 * slices. */
int sheaf__shares(sheaf__share *share, const sheaf_schema *schema, int ranks);
/* sheaf__balance_note - one note when some rank has no head of a kind, or ranks differ by more than
 * one. Such a size works and gives the same bytes; ranks wait for the fullest. */
void sheaf__balance_note(const sheaf_schema *schema, int ranks, const sheaf_events *events);
