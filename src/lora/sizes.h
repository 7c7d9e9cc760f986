/* sizes.h - how much of an adapter is LoRA, and how much is full copies of base tensors. */
#pragma once

#include "base/text.h"
#include "lora/adapter.h"

enum { SHEAF__LORA_COPIES = 8 };

/* Base tensors that are saved in full under one entry of modules_to_save. */
typedef struct sheaf__lora_copy {
    const char *name; /* the entry, borrowed; "biases", or "others" for single tensors */
    int64_t elements;
} sheaf__lora_copy;

typedef struct sheaf__lora_sizes {
    int64_t factors;      /* elements of all A and B in the file */
    int64_t copies;       /* elements of base tensors saved in full, trained or not */
    int64_t bytes;        /* of the tensors of its file, which is float32 */
    int64_t copies_bytes; /* of these, the copies */
    int n;
    sheaf__lora_copy copy[SHEAF__LORA_COPIES]; /* largest first; the last one sums the rest */
} sheaf__lora_sizes;

/* sheaf__lora_sizes_of - of the adapter that a run will write.
 *   trains  as for sheaf_lora_save_also(): more tensors that are trained in full, before that is
 *           called; NULL: none */
void sheaf__lora_sizes_of(sheaf__lora_sizes *out, const sheaf_lora *lora,
                          const sheaf_schema *schema,
                          bool (*trains)(void *self, const sheaf_tensor *tensor), void *self);
/* sheaf__lora_sizes_text - "the adapter takes 3.86 GiB: 0.15 GiB of LoRA, and full copies of
 * embed_tokens (543.6 million), ...": "" where there is no copy. */
void sheaf__lora_sizes_text(sheaf_text *text, const sheaf__lora_sizes *sizes);
