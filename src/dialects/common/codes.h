/* codes.h - the tensors that quantizers leave in files, put together: "X.weight" out of its codes,
 * scales and zeros.
 *
 * They are recognised by their names, as transformers loads them, and by quantization_config (or
 * quantize_config.json beside it) where names do not say how; layers that are not quantized lie
 * among them as they are. */
#pragma once

#include "catalog/catalog.h"

/* sheaf__catalog_codes - what is quantized in a form that sheaf reads becomes one logical tensor
 * each, with `coded`; its dtype is the one that its program dequantises to. The catalog's config
 * has no quantization_config any more, catalog->quantization has it. What contradicts is a finding,
 * and sets *damaged: a tensor that could not be made is no missing one. Other quantizers' tensors
 * stay as they are. */
sheaf_status *sheaf__catalog_codes(bool *damaged, sheaf_catalog *catalog);
/* sheaf__catalog_forms - "NF4, blocks of 64, doubled scales; 14 of 17 tensors quantized", of
 * several forms with the number of each; nothing where *coded, their number, is 0. */
void sheaf__catalog_forms(sheaf_text *out, int64_t *coded, const sheaf_catalog *catalog);
