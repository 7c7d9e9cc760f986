/* quantization.h - the quantization_config of a model's config: how its weights are stored. */
#pragma once

#include "base/json.h"
#include "sheaf/dtype.h"

/* The packings of compressed-tensors, a row for each `format`: types and strategies of its weights,
 * the size of groups (0: any), and how a refusal says so. */
/* clang-format off */
#define SHEAF__COMPRESSED(FORMAT)                                                                  \
    FORMAT(COMPRESSED_TENSORS_4, "pack-quantized", "int", "group channel", 0,                      \
           "weights of 4 bits, type int, strategy group or channel")                               \
    FORMAT(MXFP4, "mxfp4-pack-quantized", "float", "group", 32,                                    \
           "weights of 4 bits, type float, groups of 32")
/* clang-format on */

typedef enum sheaf__quantizer {
    SHEAF__NO_QUANTIZER,
    SHEAF__BITSANDBYTES, /* its tensors say how */
    SHEAF__GPTQ_4,
    SHEAF__GPTQ_8, /* symmetric */
    SHEAF__AWQ_4,
    SHEAF__FP8_BLOCKS,
    SHEAF__OTHER_QUANTIZER, /* not read */
#define FORMAT(id, ...) SHEAF__##id,
    SHEAF__COMPRESSED(FORMAT)
#undef FORMAT
} sheaf__quantizer;

typedef struct sheaf__quantization {
    sheaf__quantizer by;
    int64_t group;    /* neighbours that share a scale; 0: all of a row, or it does not say */
    int64_t block[2]; /* FP8_BLOCKS: rows and columns */
    bool symmetric;   /* GPTQ: all zeros are 8. compressed-tensors: no zeros are stored, or it does
                         not say */
    bool act_order;   /* GPTQ: groups by g_idx */
    bool less_one;    /* GPTQ's first format, which stores zeros less one */
    /* Settings of single modules, by names and patterns; borrowed from the value, NULL: none. Those
     * of gptqmodel's `dynamic`, or of auto-round's `extra_config`. */
    const json_t *modules;
    bool auto_round;
} sheaf__quantization;

static inline bool sheaf__is_gptq(sheaf__quantizer by)
{
    return by == SHEAF__GPTQ_4 || by == SHEAF__GPTQ_8;
}

/* sheaf__quantizer_name - "GPTQ"; NULL for none and for another. Two can have one name. */
const char *sheaf__quantizer_name(sheaf__quantizer by);

/* sheaf__quantization_read - the value of `quantization_config`. Errors: SHEAF_E_UNSUPPORTED with
 * the quantizer's name for one that sheaf does not read (out->by says so, too); SHEAF_E_FORMAT. */
sheaf_status *sheaf__quantization_read(sheaf__quantization *out, const json_t *value);

/* sheaf__quantization_of_module - of a module by its path in the files,
 * "model.layers.0.mlp.up_proj": group, symmetric and act_order. Errors: SHEAF_E_ARG for a pattern
 * that takes too long. */
sheaf_status *sheaf__quantization_of_module(sheaf__quantization *out, const sheaf__quantization *of,
                                            const char *module);

/* sheaf__quantization_of - the value in a config: at the top, or of its text model, whose key is
 * then *part. NULL: it has none, or null. */
const json_t *sheaf__quantization_of(const json_t *config, const char **part);

/* sheaf__quantization_refusal - why sheaf does not read the weights of the model with this config
 * (a text, or NULL), as sheaf__quantization_read() says it; NULL where it reads them. */
sheaf_status *sheaf__quantization_refusal(const char *config);

enum { SHEAF__QUANTIZATION = 64 };
/* sheaf__quantization_name - how a quantization_config says that weights are quantized, "GPTQ, 4
 * bits"; "" where it does not say. */
void sheaf__quantization_name(char name[SHEAF__QUANTIZATION], const json_t *value);
/* sheaf__quantization_by_names - the same by the names of a file's tensors, name(self, 0..count):
 * those that quantized ones hold beside, or in place of, X.weight. NULL: there are none. */
const char *sheaf__quantization_by_names(const char *(*name)(const void *self, int64_t i),
                                         const void *self, int64_t count);
