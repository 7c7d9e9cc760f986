/* made_sat.h - small models made for tests of SAT's dialect: any class, sizes, seed and dtype. */
#pragma once

#include "tests/files.h"
#include "tests/findings.h"
#include "tests/golden.h"
#include "tests/same_sources.h"
#include "tests/torch_made.h"

#include "base/status.h"
#include "dialects/common/dialects.h"
#include "dialects/sat/write.h"
#include "schema/schema.h"

typedef struct made {
    sheaf_source source; /* first */
    bool agent;
    int64_t layers, heads, head, ffn, vocab, vit_layers, vit_heads, vit_head, vit_ffn, cross;
    sheaf_dtype dtype;
    uint64_t seed;
    const char *twist; /* a tensor whose values are another seed's; NULL */
    char *json;
    sheaf_config config;
    sheaf_schema *schema;
    sheaf_source_entry *entry;
} made;

static inline uint64_t made_mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* Numbers of a picture between -1 and 1. */
static inline void made_pixels(float *x, int64_t n, int64_t seed)
{
    for (int64_t i = 0; x != NULL && i < n; i++)
        x[i] = (float)(made_mix((uint64_t)(i + 1000 * seed)) % 200) / 100 - 1;
}

/* The key of a tensor's values. Each block of CogAgent's second tower has a copy of one table. */
static inline uint64_t made_key(const char *name, uint64_t seed)
{
    const char *copy = strstr(name, ".attn.rope.freqs_");
    if (copy != NULL)
        name = copy + strlen(".attn");
    else if ((copy = strstr(name, ".rope.freqs_")) != NULL)
        name = copy;
    for (; *name != '\0'; name++)
        seed = made_mix(seed ^ (unsigned char)*name);
    return seed;
}

/* Values between -1 and 1 that every dtype holds. */
static inline void made_value(void *dst, sheaf_dtype dtype, uint64_t key, int64_t i)
{
    const uint64_t h = made_mix(key + (uint64_t)i * 0x632be59bd9b4e019u);
    const float x = ((float)(h % 255) - 127) / 128;
    uint32_t bits;
    memcpy(&bits, &x, 4);
    uint16_t half = (uint16_t)(dtype == SHEAF_F16 ? (h >> 32 & 0x83ff) | 0x3400 : bits >> 16);
    memcpy(dst, dtype == SHEAF_F32 ? (void *)&bits : (void *)&half, sheaf_dtype_bytes(dtype));
}

static inline const sheaf_source_entry *made_find(sheaf_source *self, const char *name)
{
    const made *m = (made *)self;
    for (int64_t i = 0; i < m->schema->count; i++)
        if (strcmp(m->entry[i].name, name) == 0)
            return &m->entry[i];
    return NULL;
}

static inline int64_t made_count(sheaf_source *self)
{
    return ((made *)self)->schema->count;
}
static inline const sheaf_source_entry *made_entry(sheaf_source *self, int64_t i)
{
    return &((made *)self)->entry[i];
}

static inline sheaf_status *made_read(sheaf_source *self, const char *name, int64_t row0,
                                      int64_t rows, int64_t col0, int64_t cols, void *dst)
{
    const made *m = (made *)self;
    const sheaf_source_entry *e = made_find(self, name);
    const int64_t width = e->ndim > 1 ? e->shape[e->ndim - 1] : 1;
    const uint64_t key =
        made_key(name, m->seed + (m->twist != NULL && strcmp(m->twist, name) == 0 ? 77 : 0));
    char *to = dst;
    for (int64_t r = row0; r < row0 + rows; r++)
        for (int64_t c = col0; c < col0 + cols; c++, to += sheaf_dtype_bytes(e->dtype))
            made_value(to, e->dtype, key, r * width + c);
    return NULL;
}

static inline void made_close(sheaf_source *self)
{
}

/* Sizes that are zero get small ones. Ends with made_release(). */
static inline void made_init(made *m)
{
    int64_t *const size[] = { &m->layers,     &m->heads,     &m->head,     &m->ffn,     &m->vocab,
                              &m->vit_layers, &m->vit_heads, &m->vit_head, &m->vit_ffn, &m->cross };
    static const int64_t small[] = { 2, 4, 4, 12, 1000, 2, 4, 2, 8, 6 };
    for (size_t i = 0; i < ARRAY_LEN(size); i++)
        *size[i] = *size[i] > 0 ? *size[i] : small[i];
    if (m->dtype == SHEAF_BOOL)
        m->dtype = SHEAF_F32;
    char agent[300] = "";
    if (m->agent)
        snprintf(
            agent, sizeof agent,
            "\"is_decoder\": true, \"cross_attn_hidden_size\": 8, \"cross_hidden_size_per_attention_head\": %d, "
            "\"cross_image_pix\": 28, \"encoder_override\": {\"embed_dim\": 3, \"layers\": 2, \"width\": 8, \"head_width\": 4, \"mlp_ratio\": 1.3},",
            (int)m->cross);
    if (asprintf(
            &m->json,
            "{\"model_class\": \"%s\", \"num_layers\": %d, \"hidden_size\": %d, \"num_attention_heads\": %d, \"vocab_size\": %d,\n"
            "\"layernorm_order\": \"pre\", \"model_parallel_size\": 1, \"max_sequence_length\": 64, \"use_bias\": false,\n"
            "\"inner_hidden_size\": %d, \"image_length\": 4, \"my_own_key\": [1e-06, \"x\"], %s\n"
            "\"eva_args\": {\"model_class\": \"EVA2CLIPModel\", \"num_layers\": %d, \"hidden_size\": %d, \"num_attention_heads\": %d,\n"
            "\"vocab_size\": 1, \"layernorm_order\": \"post\", \"model_parallel_size\": 1, \"max_sequence_length\": 5,\n"
            "\"inner_hidden_size\": %d, \"use_final_layernorm\": false, \"layernorm_epsilon\": 1e-06, \"image_size\": [28, 28],\n"
            "\"pre_len\": 1, \"post_len\": 0, \"in_channels\": 3, \"patch_size\": 14},\n"
            "\"bos_token_id\": 1, \"eos_token_id\": 2, \"pad_token_id\": 0}\n",
            m->agent ? "CogAgentModel" : "CogVLMModel", (int)m->layers, (int)(m->heads * m->head),
            (int)m->heads, (int)m->vocab, (int)m->ffn, agent, (int)m->vit_layers,
            (int)(m->vit_heads * m->vit_head), (int)m->vit_heads, (int)m->vit_ffn) < 0)
        fail();
    CHECK_OK(sheaf_config_parse(&m->config, m->json, strlen(m->json)));
    CHECK_OK(sheaf_schema_new(&m->schema, &m->config, 1));
    m->entry = calloc((size_t)m->schema->count, sizeof *m->entry);
    for (int64_t i = 0; i < m->schema->count; i++) {
        const sheaf_tensor *t = &m->schema->tensor[i];
        m->entry[i] = (sheaf_source_entry){ t->name, m->dtype, t->ndim, { 0 } };
        memcpy(m->entry[i].shape, t->shape, (size_t)t->ndim * sizeof *t->shape);
    }
    m->source = (sheaf_source){ made_find, made_count, made_entry, made_read, made_close };
}

static inline void made_release(made *m)
{
    free(m->entry);
    sheaf_schema_free(m->schema);
    sheaf_config_release(&m->config);
    free(m->json);
}

/* A whole checkpoint: each byte of the source is read once. */
static inline sheaf_status *sheaf_sat_write(const char *dst, sheaf_source *source,
                                            const sheaf_sat_write_options *how)
{
    sheaf_sat_writer *w = NULL;
    sheaf_status *st = sheaf_sat_begin(&w, dst, source, how);
    if (st != NULL)
        return st;
    for (int64_t i = 0; st == NULL && i < sheaf_sat_count(w); i++) {
        const sheaf_source_entry *e = source->find(source, sheaf_sat_name(w, i));
        int64_t rows = 1, cols = 1;
        for (int d = 0; d < e->ndim; d++)
            *(d > 0 && d == e->ndim - 1 ? &cols : &rows) *= e->shape[d];
        void *bytes = malloc((size_t)(rows * cols) * sheaf_dtype_bytes(e->dtype));
        st = source->read(source, e->name, 0, rows, 0, cols, bytes);
        TRY(st, sheaf_sat_put(w, i, 0, rows, 0, cols, bytes));
        free(bytes);
    }
    if (st == NULL)
        return sheaf_sat_commit(w);
    sheaf_sat_abandon(w);
    return st;
}

static inline void made_write(made *m, const char *dst, int ways, int64_t step)
{
    CHECK_OK(sheaf_sat_write(dst, &m->source,
                             &(sheaf_sat_write_options){
                                 .config = m->json, .ways = ways, .step = step, .replace = true }));
}

/* A tensor of a part, copied into another. */
static inline void made_copy(made_file *f, sheaf_pickle *dict, const char *name,
                             const sheaf_torch *file, const sheaf_pickle_tensor *t)
{
    size_t bytes = sheaf_dtype_bytes(t->dtype);
    for (int d = 0; d < t->ndim; d++)
        bytes *= (size_t)t->shape[d];
    void *data = malloc(bytes + 1);
    CHECK_OK(sheaf__torch_read(file, t, data, bytes));
    sheaf__pickle_set(f->doc, dict, name, made_put(f, t->dtype, t->ndim, t->shape, data));
}

/* Reads and checks; findings are in the catalog. */
static inline sheaf_catalog *sat_read_with(const char *path, const sheaf_dialect_hints *hints)
{
    static const sheaf_dialect_hints none;
    sheaf_catalog *c = NULL;
    if (!sheaf__dialect_sat.is(path))
        fail_msg("%s is not SAT's", path);
    CHECK_OK(sheaf__dialect_read(&c, &sheaf__dialect_sat, path, hints != NULL ? hints : &none));
    CHECK_OK(sheaf__catalog_check(c));
    return c;
}
static inline sheaf_catalog *sat_read_at(const char *path)
{
    return sat_read_with(path, NULL);
}

/* The catalog's weights, with the findings allowed to be there; closes it. */
static inline sheaf_source *as_source(sheaf_catalog *c)
{
    sheaf_source *source = NULL;
    want_defects(c, 0);
    CHECK_OK(sheaf__catalog_source(&source, c, false));
    return source;
}

static inline void equals(const char *path, sheaf_source *want)
{
    sheaf_source *source = as_source(sat_read_at(path));
    same_sources(want, source, 0);
    source->close(source);
}
