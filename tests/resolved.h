/* resolved.h - for tests: schemas of models, options of adapters, and what an adapter means for a
 * model; all stay until the program ends. */
#pragma once

#include "lora/adapter.h"
#include "tests/kept.h"
#include "tests/small_config.h"

static inline void free_schema(void *schema)
{
    sheaf_schema_free(schema);
}

static inline void release_options(void *options)
{
    sheaf_lora_options_release(options);
}

static inline void free_lora(void *lora)
{
    sheaf_lora_free(lora);
}

static inline const sheaf_schema *schema_of(sheaf_config c, int slices)
{
    sheaf_schema *schema;
    CHECK_OK(sheaf_schema_new(&schema, &c, slices));
    return kept(schema, free_schema);
}

/* As the flags of a run give them. */
static inline sheaf_lora_options *options_of(const char *targets)
{
    sheaf_lora_options *o = room(sizeof *o);
    CHECK_OK(sheaf__lora_options_default(o));
    CHECK_OK(sheaf__lora_set_targets(o, targets));
    return kept(o, release_options);
}

static inline sheaf_lora *resolved(const sheaf_schema *schema, const sheaf_lora_options *o)
{
    sheaf_lora *lora;
    CHECK_OK(sheaf_lora_resolve(&lora, schema, o));
    return kept(lora, free_lora);
}
