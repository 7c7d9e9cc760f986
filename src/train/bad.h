/* bad.h - messages about the origin of a number that is not finite. */
#pragma once

#include "base/text.h"
#include "comm/comm.h"
#include "tape/tape.h"
#include "tape/trained.h"

/* The advice: --lr cannot change when a run is resumed. */
#define SHEAF__BEGIN_ANEW                                                                           \
    "begin anew with a smaller `lr`, or with `clip`, from the start or from an earlier checkpoint " \
    "(docs/resume.md)"

/* sheaf__bad_trained - the first tensor of the set whose masters and moments, or `gradients`, are
 * not all finite, over the ranks of `comm` (NULL: this one); *name is the tensor's, NULL if there
 * is none. Collective.
 */
sheaf_status *sheaf__bad_trained(const char **name, const sheaf__trained_set *set, sheaf_comm *comm,
                                 bool gradients);

/* sheaf__bad_rows - "row 3" or "rows 3, 5, ...": the rows of a micro-batch without padding rows. */
void sheaf__bad_rows(sheaf_text *text, const int64_t *row, int64_t count);
/* sheaf__bad_describe - "the first value that is not finite is in layer 1, 'x'; the weight 'w'
 * ...". weight NULL: all are finite. */
void sheaf__bad_describe(sheaf_text *text, const sheaf__nonfinite *bad, const char *weight);
