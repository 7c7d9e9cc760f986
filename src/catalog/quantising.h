/* quantising.h - a source over plain weights that hands out codes in place of some of them.
 *
 * It quantises what is read, as bitsandbytes does on a processor (ops/quant), from the stored
 * values; the type that codes are dequantised to is the stored one. read() gives dequantised
 * values, so that copying from it needs no special case. Nothing is held but, of the last few
 * tensors with doubled scales, these: they need a pass over all of the tensor. */
#pragma once

#include <stdbool.h>

#include "ops/quant/quant.h"
#include "sheaf/options.h"
#include "sheaf/source.h"

/* sheaf__quantised_as - the form that a tensor of this dtype gets. */
sheaf__quant sheaf__quantised_as(sheaf_quantize as, sheaf_dtype stored);

/* sheaf__quantise - replaces *source, of which the new one is the owner, by one that quantises its
 * matrices that `chosen` names; on failure *source is unchanged. `chosen` is called now, not later.
 * Errors: SHEAF_E_UNSUPPORTED, if a chosen tensor is quantised already, has not two axes, or is of
 * integers. */
sheaf_status *sheaf__quantise(sheaf_source **source, sheaf_quantize as,
                              bool (*chosen)(void *self, const char *name), void *self);

/* sheaf__codes_room - bytes of the host's memory that a base whose codes are loaded by `threads`
 * threads takes of its own for a tensor [out, in] in such a form, whether it is stored so
 * (coded.h) or quantised here, whichever is more. */
size_t sheaf__codes_room(const sheaf__quant *quant, int64_t out, int64_t in, int64_t threads);

/* sheaf__quantised_twice - the status of a base that is quantised already, by one of its tensors.
 */
sheaf_status *sheaf__quantised_twice(const char *name);
/* sheaf__quantise_unknown - the status of a model whose linear layers are not known;
 * config: its text, or NULL. */
sheaf_status *sheaf__quantise_unknown(const char *path, const char *config);
