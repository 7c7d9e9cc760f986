/* names.h - the kinds of tensors in a PEFT adapter, by name. */
#pragma once

#include "base/base.h"

typedef enum sheaf_lora_part {
    SHEAF_PART_A,
    SHEAF_PART_B, /* M.lora_A.weight [r, in, ...], M.lora_B.weight [out, r, ...] */
    SHEAF_PART_TABLE_A,
    SHEAF_PART_TABLE_B,   /* M.lora_embedding_A [r, vocabulary], M.lora_embedding_B [width, r] */
    SHEAF_PART_B_BIAS,    /* M.lora_B.bias [out]: added, scaled, to M.bias */
    SHEAF_PART_MAGNITUDE, /* M.lora_magnitude_vector: DoRA */
    SHEAF_PART_TOKENS,    /* M.token_adapter.trainable_tokens_delta [rows, width]: values of rows of
                             M.weight */
    SHEAF_PART_COPY,      /* M.base_layer.weight: PEFT's copy of a targeted table; with trained rows
                             M.token_adapter.base_layer.weight */
    SHEAF_PART_BIAS,  /* M.base_layer.bias: a trained bias that replaces M.bias; or PEFT's copy, of
                         a targeted head */
    SHEAF_PART_WHOLE, /* any other name: that tensor of the base, replaced */
    SHEAF_PART_FOREIGN, /* begins like LoRA, but is of no known kind */
} sheaf_lora_part;

#define SHEAF_PEFT_PREFIX "base_model.model."

/* sheaf__lora_part - the kind of `name`, which is spelled as by sheaf__peft_name(). *path and
 * *length are the module M in it (for a whole tensor: the full name). */
sheaf_lora_part sheaf__lora_part(const char **path, size_t *length, const char *name);

/* sheaf__lora_is_table - is it, by its name, a tensor of the embedding or the head? PEFT adds these
 * to an adapter without naming them in its config if the vocabulary was resized before training. */
bool sheaf__lora_is_table(const char *name, int ndim);
