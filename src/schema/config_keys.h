/* config_keys.h - the three lists of config.json keys (docs/formats.md, "config.json"). */
#pragma once

#include <jansson.h>
#include <stdbool.h>

/* What a known but unsupported key may hold without meaning anything. null always may. */
typedef enum sheaf_neutral {
    SHEAF_NEUTRAL_NULL,  /* nothing but null */
    SHEAF_NEUTRAL_ZERO,  /* 0, 0.0 or false */
    SHEAF_NEUTRAL_ONE,   /* 1 or 1.0 */
    SHEAF_NEUTRAL_EMPTY, /* {}, [] or false */
    SHEAF_NEUTRAL_TRUE,  /* true alone: null is taken for false */
} sheaf_neutral;

typedef struct sheaf_unsupported_key {
    const char *key;
    sheaf_neutral neutral;
    const char *why; /* what it would change */
} sheaf_unsupported_key;

bool sheaf__config_key_is_read(const char *key);
bool sheaf__config_key_is_harmless(const char *key);
/* NULL when the key is not in that list. */
const sheaf_unsupported_key *sheaf__config_key_unsupported(const char *key);
enum { SHEAF__QUANTIZATION = 64 };
/* sheaf__quantization_name - how a quantization_config says that weights are quantized, "GPTQ, 4
 * bits"; "" where it does not say. */
void sheaf__quantization_name(char name[SHEAF__QUANTIZATION], const json_t *value);
/* sheaf__quantization_by_names - the same by the names of a file's tensors, name(self, 0..count):
 * those that quantized ones hold beside, or in place of, X.weight. NULL: there are none. */
const char *sheaf__quantization_by_names(const char *(*name)(const void *self, int64_t i),
                                         const void *self, int64_t count);
bool sheaf__config_value_is_neutral(sheaf_neutral neutral, const json_t *value);
const char *sheaf__neutral_text(sheaf_neutral neutral);
