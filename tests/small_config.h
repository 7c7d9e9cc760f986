/* small_config.h - for tests: the config of a small model of Llama's kind, and what a config.json
 * says. */
#pragma once

#include "schema/config.h"
#include "schema/schema.h"
#include "tests/check.h"

static inline sheaf_config small_config(sheaf_family family, int64_t vocab, int64_t hidden,
                                        int64_t ffn, int64_t layers, int64_t heads,
                                        int64_t kv_heads, int64_t head_dim)
{
    return (sheaf_config){ family,   vocab,    hidden,
                           ffn,      layers,   heads,
                           kv_heads, head_dim, .rope = { .partial = 1 } };
}

static inline sheaf_status *parse_config(sheaf_config *c, const char *text)
{
    return sheaf_config_parse(c, text, strlen(text));
}

/* Of a config that has only keys that are known. */
static inline sheaf_schema *parse_schema(const char *text)
{
    sheaf_config c;
    sheaf_schema *schema = NULL;
    CHECK_OK(parse_config(&c, text));
    assert_null(c.unknown_keys);
    CHECK_OK(sheaf_schema_new(&schema, &c, 8));
    sheaf_config_release(&c);
    return schema;
}
