/* rope.h - tables of the rotary embedding, for each of transformers' types. */
#pragma once

#include "models/model.h"

/* sheaf__rope_frequency - of pair j of `rot` channels, for sequences of `length` positions (0: of
 * any length the model was made for). */
float sheaf__rope_frequency(const sheaf_config *config, int64_t j, int64_t rot, int64_t length);
/* sheaf__rope_borrow - the same table, cos and sin as the host's (ops/device.h: NULL on dry);
 * sheaf__rope_return - gives them back, and, if `writes`, what it was filled with. */
sheaf_status *sheaf__rope_borrow(sheaf__rope_table *host, const sheaf__rope_table *table,
                                 sheaf__device *device);
sheaf_status *sheaf__rope_return(const sheaf__rope_table *host, const sheaf__rope_table *table,
                                 sheaf__device *device, bool writes);
/* sheaf__rope_fill_pair - the columns of one pair: cos and sin of round(round(position) *
 * round(frequency)), times `attention`, rounded to dtype. SAT takes the angle in the compute dtype
 * (`angle`); the others in float32. */
void sheaf__rope_fill_pair(sheaf__rope_table *table, int64_t j, float frequency, float attention,
                           sheaf_dtype dtype, sheaf_dtype angle);
/* sheaf__rope_follows_length - is it a type whose angles depend on how long a sequence is? */
bool sheaf__rope_follows_length(const sheaf_config *config);
/* sheaf__rope_fill - cos and sin of every position, rounded to dtype. Of types that look at the
 * length the table also learns to follow it (table->lengthen), which needs space for a second one;
 * config is borrowed then. */
sheaf_status *sheaf__rope_fill(sheaf__rope_table *table, const sheaf_config *config,
                               sheaf__device *device, sheaf_dtype dtype);
/* sheaf__rope_fill_plain - the same of the default type, with this theta. */
sheaf_status *sheaf__rope_fill_plain(sheaf__rope_table *table, double theta, sheaf__device *device,
                                     sheaf_dtype dtype);
/* sheaf__rope_axes - of a config whose pairs turn by positions on three axes (rope.section), one
 * section behind the other, or interleaved: pair j by axis j % 3 as far as that has pairs, else by
 * the first. Errors: SHEAF_E_UNSUPPORTED for too many pairs. */
sheaf_status *sheaf__rope_axes(sheaf__angles *out, const sheaf_config *config, int64_t rot,
                               sheaf_dtype dtype);
/* sheaf__rope_changes - do the angles of earlier positions change between these lengths, so
 * that kept keys are no longer what the model would compute? */
bool sheaf__rope_changes(const sheaf_config *config, int64_t before, int64_t after);
