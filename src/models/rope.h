/* rope.h - tables of the rotary embedding, for each of transformers' types. */
#pragma once

#include "models/model.h"

/* sheaf__rope_frequency - of pair j of `rot` channels, for sequences of `length` positions (0: of
 * any length the model was made for). */
float sheaf__rope_frequency(const sheaf_config *config, int64_t j, int64_t rot, int64_t length);
/* sheaf__rope_fill_pair - the columns of one pair: cos and sin of round(round(position) *
 * round(frequency)), times `attention`, rounded to dtype. SAT takes the angle in the compute dtype
 * (`angle`); the others in float32. */
void sheaf__rope_fill_pair(sheaf__rope_table *table, int64_t j, float frequency, float attention,
                           const sheaf__kernels *kernels, sheaf_dtype dtype, sheaf_dtype angle);
/* sheaf__rope_follows_length - do the angles of its type depend on the sequence's length? */
bool sheaf__rope_follows_length(const sheaf_config *config);
/* sheaf__rope_fill - cos and sin of every position, rounded to dtype. For types that depend on the
 * length it also sets table->lengthen, which needs space for a second table, and borrows config. */
void sheaf__rope_fill(sheaf__rope_table *table, const sheaf_config *config,
                      const sheaf__kernels *kernels, sheaf_dtype dtype);
/* sheaf__rope_fill_plain - the same for the default type, with this theta. */
void sheaf__rope_fill_plain(sheaf__rope_table *table, double theta, const sheaf__kernels *kernels,
                            sheaf_dtype dtype);
/* sheaf__rope_changes - do the angles of earlier positions change between these lengths, so that
 * cached keys are stale? */
bool sheaf__rope_changes(const sheaf_config *config, int64_t before, int64_t after);
