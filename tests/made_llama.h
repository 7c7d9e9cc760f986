/* made_llama.h - for tests of dialects: a small model with known values, and a reading held against
 * them. */
#pragma once

#include "tests/files.h"
#include "tests/findings.h"
#include "tests/golden.h"
#include "tests/torch_made.h"

#include <dirent.h>
#include <inttypes.h>
#include <unistd.h>

#include "dialects/common/dialects.h"
#include "formats/safetensors.h"
#include "formats/torch.h"

/* ---- reading ---- */

static inline sheaf_catalog *read_made(const sheaf_dialect *dialect, const char *path,
                                       const char *config)
{
    const sheaf_dialect_hints hints = { .config = config };
    sheaf_catalog *c = NULL;
    CHECK_OK(sheaf__dialect_read(&c, dialect, path, &hints));
    CHECK_OK(sheaf__catalog_check(c));
    return c;
}

/* The tensor's bytes, dense; the caller frees. */
static inline void *bytes_of(const sheaf_catalog *c, const sheaf_logical *t, int64_t *size)
{
    int64_t rows = 1, cols = 1;
    for (int i = 0; i < t->entry.ndim; i++)
        *(i > 0 && i == t->entry.ndim - 1 ? &cols : &rows) *= t->entry.shape[i];
    *size = rows * cols * (int64_t)sheaf_dtype_bytes(t->entry.dtype);
    void *buffer = malloc((size_t)*size + 1);
    assert_non_null(buffer);
    CHECK_OK(sheaf__catalog_read(c, t, 0, rows, 0, cols, buffer));
    return buffer;
}

/* Every tensor of the file is in the catalog, bit for bit. `rows`: of a table with more rows only
 * these are compared. */
static inline int64_t check_against(const sheaf_catalog *c, const char *path, bool rows)
{
    sheaf_safetensors *file = NULL;
    CHECK_OK(sheaf__safetensors_open(&file, path));
    const int64_t count = file->header.count;
    for (int64_t i = 0; i < count; i++) {
        const sheaf_safetensors_entry *e = &file->header.entry[i];
        const sheaf_logical *t = sheaf__catalog_find(c, e->name);
        int64_t size;
        if (t == NULL)
            fail_msg("%s: no '%s'", c->root, e->name);
        if (t->entry.ndim != e->ndim || t->entry.dtype != e->dtype)
            fail_msg("%s: '%s' of another form", c->root, e->name);
        for (int k = 0; k < e->ndim; k++)
            if (rows && k == 0 ? t->entry.shape[k] < e->shape[k] : t->entry.shape[k] != e->shape[k])
                fail_msg("%s: '%s' axis %d: %" PRId64 " for %" PRId64, c->root, e->name, k,
                         t->entry.shape[k], e->shape[k]);
        char *got = bytes_of(c, t, &size), *want = malloc((size_t)e->bytes + 1);
        assert_true(want != NULL && size >= e->bytes);
        CHECK_OK(sheaf__safetensors_read(file, e, 0, want, e->bytes));
        CHECK_BYTES(e->name, got, want, e->bytes);
        free(got);
        free(want);
    }
    sheaf__safetensors_close(file);
    return count;
}

/* ---- making ---- */

enum { MADE_TENSORS = 256 };

typedef struct made_tensor {
    char name[96];
    int ndim, axis; /* along which ranks divide it; -1: each has a copy */
    int64_t units;  /* things along that axis that stay whole */
    int64_t shape[2];
    float *data;
} made_tensor;

typedef struct made_model {
    int64_t vocab, hidden, ffn, layers, heads, groups, width;
    int count;
    made_tensor tensor[MADE_TENSORS];
} made_model;

static inline int64_t made_elements(const made_tensor *t)
{
    return t->ndim == 2 ? t->shape[0] * t->shape[1] : t->shape[0];
}

/* Values that differ everywhere, with more digits than bfloat16 holds. `seed` tells kinds of values
 * apart. */
static inline float made_value(const char *name, int64_t i, unsigned seed)
{
    uint64_t h = 0xcbf29ce484222325u + seed;
    for (; *name != '\0'; name++)
        h = (h ^ (unsigned char)*name) * 0x100000001b3u;
    h = (h ^ (uint64_t)i) * 0x9e3779b97f4a7c15u;
    h ^= h >> 29;
    h *= 0xbf58476d1ce4e5b9u;
    return (float)(int64_t)(h >> 40) / (1 << 23) - 1.0f;
}

static inline void made_add(made_model *m, const char *name, int64_t rows, int64_t cols, int axis,
                            int64_t units)
{
    made_tensor *t = &m->tensor[m->count++];
    assert_true(m->count <= MADE_TENSORS);
    *t = (made_tensor){
        .ndim = cols > 0 ? 2 : 1, .axis = axis, .units = units, .shape = { rows, cols }
    };
    snprintf(t->name, sizeof t->name, "%s", name);
    t->data = malloc((size_t)made_elements(t) * sizeof *t->data);
    assert_non_null(t->data);
    for (int64_t i = 0; i < made_elements(t); i++)
        t->data[i] = made_value(name, i, 0);
}

/* A model of the Llama family; the table is cut as Megatron does when `table` is set, else each
 * rank has a copy. */
static inline made_model *made_llama(int64_t vocab, int64_t hidden, int64_t ffn, int64_t layers,
                                     int64_t heads, int64_t groups, int64_t width, bool table)
{
    made_model *m = calloc(1, sizeof *m);
    assert_non_null(m);
    *m = (made_model){ vocab, hidden, ffn, layers, heads, groups, width, 0, { { { 0 } } } };
    made_add(m, "model.embed_tokens.weight", vocab, hidden, table ? 0 : -1, vocab);
    for (int l = 0; l < layers; l++) {
        const struct {
            const char *name;
            int64_t rows, cols;
            int axis;
            int64_t units;
        } parts[] = {
            { "self_attn.q_proj.weight", heads * width, hidden, 0, groups },
            { "self_attn.k_proj.weight", groups * width, hidden, 0, groups },
            { "self_attn.v_proj.weight", groups * width, hidden, 0, groups },
            { "self_attn.o_proj.weight", hidden, heads * width, 1, groups },
            { "mlp.gate_proj.weight", ffn, hidden, 0, ffn },
            { "mlp.up_proj.weight", ffn, hidden, 0, ffn },
            { "mlp.down_proj.weight", hidden, ffn, 1, ffn },
            { "input_layernorm.weight", hidden, 0, -1, 0 },
            { "post_attention_layernorm.weight", hidden, 0, -1, 0 },
        };
        for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
            char name[96];
            snprintf(name, sizeof name, "model.layers.%d.%s", l, parts[i].name);
            made_add(m, name, parts[i].rows, parts[i].cols, parts[i].axis, parts[i].units);
        }
    }
    made_add(m, "model.norm.weight", hidden, 0, -1, 0);
    made_add(m, "lm_head.weight", vocab, hidden, 0, vocab);
    return m;
}

/* Every value is another run's, anywhere between the same bounds. */
static inline void made_again(made_model *m, unsigned run)
{
    for (int t = 0; t < m->count; t++)
        for (int64_t i = 0; i < made_elements(&m->tensor[t]); i++)
            m->tensor[t].data[i] = made_value(m->tensor[t].name, i, 1000 + run);
}

static inline void made_free(made_model *m)
{
    for (int i = 0; i < m->count; i++)
        free(m->tensor[i].data);
    free(m);
}

/* The box of a rank: the first units % ranks of them have one unit more. */
static inline void made_box(const made_tensor *t, int rank, int ranks, int64_t begin[2],
                            int64_t size[2])
{
    begin[0] = begin[1] = 0;
    size[0] = t->shape[0];
    size[1] = t->ndim == 2 ? t->shape[1] : 1;
    if (t->axis < 0)
        return;
    const int64_t each = t->shape[t->axis] / t->units, rest = t->units % ranks;
    begin[t->axis] = (t->units / ranks * rank + (rank < rest ? rank : rest)) * each;
    size[t->axis] = (t->units / ranks + (rank < rest)) * each;
}

/* The elements of a box, dense; `value` instead of the tensor's own when seed is not 0. */
static inline float *made_slice(const made_tensor *t, const int64_t begin[2], const int64_t size[2],
                                unsigned seed)
{
    float *out = malloc((size_t)(size[0] * size[1] + 1) * sizeof *out);
    const int64_t cols = t->ndim == 2 ? t->shape[1] : 1;
    assert_non_null(out);
    for (int64_t r = 0; r < size[0]; r++)
        for (int64_t c = 0; c < size[1]; c++) {
            const int64_t i = (begin[0] + r) * cols + begin[1] + c;
            out[r * size[1] + c] = seed == 0 ? t->data[i] : made_value(t->name, i, seed);
        }
    return out;
}

/* Every tensor (seed 0), or "PREFIX.NAME" with the values of `seed`, is there, whole. */
static inline void check_made(const sheaf_catalog *c, const made_model *m, const char *prefix,
                              unsigned seed)
{
    for (int i = 0; i < m->count; i++) {
        const made_tensor *t = &m->tensor[i];
        const char *name = textf("%s%s", prefix, t->name);
        int64_t size, begin[2] = { 0, 0 }, all[2] = { t->shape[0], t->ndim == 2 ? t->shape[1] : 1 };
        const sheaf_logical *l = sheaf__catalog_find(c, name);
        if (l == NULL || l->entry.ndim != t->ndim || l->entry.shape[0] != t->shape[0] ||
            (t->ndim == 2 && l->entry.shape[1] != t->shape[1]))
            fail_msg("%s: '%s' is missing or of another shape", c->root, name);
        assert_int_equal(l->kind, seed == 0 ? SHEAF_WEIGHT : SHEAF_MOMENT);
        float *got = bytes_of(c, l, &size), *want = made_slice(t, begin, all, seed);
        assert_int_equal(l->entry.dtype, SHEAF_F32);
        CHECK_BYTES(name, got, want, size);
        free(got);
        free(want);
    }
}

/* What was read has no defect, `count` tensors (0: any number), and the model's weights. Frees
 * `c`. */
static inline void check_gives(sheaf_catalog *c, const made_model *m, int64_t count)
{
    CHECK_SOUND(c);
    if (count > 0)
        assert_int_equal(c->count, count);
    check_made(c, m, "", 0);
    sheaf__catalog_free(c);
}

/* ---- files of torch ---- */

/* Megatron's args of the model, as a save of `tp` ranks and `pp` stages has them in the file. */
static inline sheaf_pickle *made_args(made_file *f, const made_model *m, int tp, int pp,
                                      int64_t padded)
{
    sheaf_pickle *args = made_set(f, f->root, "args", SHEAF_PICKLE_DICT);
    const struct {
        const char *key;
        int64_t value;
    } numbers[] = {
        { "num_layers", m->layers },          { "hidden_size", m->hidden },
        { "ffn_hidden_size", m->ffn },        { "num_attention_heads", m->heads },
        { "num_query_groups", m->groups },    { "kv_channels", m->width },
        { "tensor_model_parallel_size", tp }, { "pipeline_model_parallel_size", pp },
        { "padded_vocab_size", padded },
    };
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++)
        made_set_int(f, args, numbers[i].key, numbers[i].value);
    sheaf__pickle_set(f->doc, args, "swiglu", sheaf__pickle_make_bool(f->doc, true));
    sheaf__pickle_set(f->doc, args, "untie_embeddings_and_output_weights",
                      sheaf__pickle_make_bool(f->doc, true));
    sheaf__pickle_set(f->doc, args, "normalization", sheaf__pickle_make_string(f->doc, "RMSNorm"));
    return args;
}

/* Rounded to nearest even; in place of `data`, which is freed. */
static inline void *made_bf16(float *data, int64_t n)
{
    uint16_t *out = malloc((size_t)n * sizeof *out + 1);
    assert_non_null(out);
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &data[i], sizeof bits);
        out[i] = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    }
    free(data);
    return out;
}

/* ---- harm ---- */

typedef enum harm { NO_HARM, REMOVED, CUT_SHORT, SWAPPED } harm;

/* Does this to file `a`, which changes places with `b`. */
static inline void do_harm(harm what, const char *a, const char *b)
{
    if (what == REMOVED)
        assert_int_equal(unlink(a), 0);
    else if (what == CUT_SHORT)
        cut_file(a, 0.6);
    else if (what == SWAPPED)
        swap_files(a, b);
}

/* ---- recordings ---- */

/* For each recorded folder under `where` whose name holds `mark`: the name goes on with that of the
 * model it was made from ("tp2_legacy_tiny_llama" after "_legacy_": tiny_llama/hf). */
static inline void each_golden(const char *where, const char *mark,
                               void (*check)(const char *path, const char *hf))
{
    char root[600];
    int found = 0;
    snprintf(root, sizeof root, "%s", golden(where));
    DIR *list = opendir(root);
    if (list == NULL && !golden_is_full())
        skip();
    assert_non_null(list);
    for (struct dirent *entry; (entry = readdir(list)) != NULL;) {
        char path[1200], hf[1200];
        const char *name = strstr(entry->d_name, mark);
        if (entry->d_name[0] == '.' || name == NULL)
            continue;
        snprintf(path, sizeof path, "%s/%s", root, entry->d_name);
        snprintf(hf, sizeof hf, "%s/../%s/hf", root, name + strlen(mark));
        check(path, hf);
        found++;
    }
    closedir(list);
    assert_true(found >= 1);
}
