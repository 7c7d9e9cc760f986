/* adapter.h - a model and a PEFT adapter of it as the tensors of a SAT checkpoint with LoRA. */
#pragma once

#include "base/events.h"
#include "schema/schema.h"
#include "sheaf/source.h"

/* sheaf__adapted_source - what `base` has, tensors that the adapter holds whole in their places (in
 * the base's dtype), and X.matrix_A.p, X.matrix_B.p for part p of each adapted layer X, in the
 * adapter's dtype.
 *   rank    out: r, the same for all layers
 *   base    owned from now on, also after a failure
 *   schema  of the model; must outlive the source
 * SAT's scale is 1 / r. Where the adapter's is 2^k / r, B is multiplied by 2^k, which changes no
 * digit.
 * Errors: those of reading the adapter; SHEAF_E_UNSUPPORTED for what SAT cannot say, with the way
 * by a merge. */
sheaf_status *sheaf__adapted_source(sheaf_source **out, int64_t *rank, sheaf_source *base,
                                    const sheaf_schema *schema, const char *adapter,
                                    const sheaf_events *events);
