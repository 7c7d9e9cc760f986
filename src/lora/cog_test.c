/* cog_test.c - which layers of CogVLM and CogAgent an adapter means, and its factors of fused
 * layers. */
#include "tests/fake_source.h"
#include "tests/resolved.h"

static sheaf_config config(sheaf_family family)
{
    sheaf_config c = {
        .family = family,
        .vocab = 1100,
        .hidden = 32,
        .ffn = 48,
        .layers = 3,
        .heads = 4,
        .kv_heads = 4,
        .head_dim = 8,
        .rope = { .partial = 1 },
        .patches = 9,
        .experts = 3,
        .cross_head_dim = 6,
        .cross_width = 16,
        .vit = { .layers = 2,
                 .hidden = 24,
                 .heads = 4,
                 .ffn = 40,
                 .vocab = 1,
                 .positions = 10,
                 .patch = 14,
                 .channels = 3 },
        .encoder = { .layers = 3,
                     .width = 16,
                     .head_width = 8,
                     .ffn = 20,
                     .embed = 5,
                     .image = 56,
                     .patch = 14,
                     .channels = 3 },
    };
    if (family == SHEAF_COGAGENT)
        c.cross_layers[0] = 1 << 0 | 1 << 2; /* not in layer 1 */
    return c;
}

static const sheaf_schema *cog(sheaf_family family, int slices)
{
    return schema_of(config(family), slices);
}

static const sheaf_lora_module *module_of(const sheaf_lora *lora, const char *path)
{
    for (int i = 0; i < lora->nmodules; i++)
        if (strcmp(lora->module[i].base->module, path) == 0)
            return &lora->module[i];
    fail_msg("%s is not adapted", path);
    return NULL;
}

/* ---- which layers ---- */

#define QKV "transformer.layers.0.attention.query_key_value"
#define VIT "mixins.eva.vit_model."
#define TOWER "mixins.encoder.vit.model."

/* Targets, and the number of their modules. */
static const struct {
    sheaf_family family;
    const char *targets, *exclude, *layers;
    int count;
} selections[] = {
    { SHEAF_COGVLM, "sat", NULL, NULL, 3 * 2 },
    { SHEAF_COGVLM, "sat-vit", NULL, NULL, 3 * 2 + 2 * 2 },
    { SHEAF_COGAGENT, "sat", NULL, NULL, 3 * 2 + 2 * 3 },
    { SHEAF_COGAGENT, "sat-vit", NULL, "1", 2 + 2 },
    /* text 4 + gate, experts 5, adapter 4, ViT 4 */
    { SHEAF_COGVLM, "all-linear", NULL, NULL, 3 * 5 + 3 * 5 + 4 + 2 * 4 },
    /* and cross-attention, and 7 in each block of the tower but the last */
    { SHEAF_COGAGENT, "all-linear", NULL, NULL, 3 * 5 + 3 * 5 + 4 + 2 * 4 + 2 * 3 + 2 * 7 },
    { SHEAF_COGAGENT, "attention.query_key_value", NULL, NULL, 3 + 2 },
    { SHEAF_COGAGENT, "cross_attention.dense", NULL, NULL, 2 },
    { SHEAF_COGAGENT, "cross_attention.dense", NULL, "1,2", 1 },
    { SHEAF_COGVLM, QKV, NULL, NULL, 1 }, /* not the ViT's, whose path ends with it */
    { SHEAF_COGVLM, VIT QKV, NULL, NULL, 1 },
    { SHEAF_COGVLM, QKV ",attention.dense", NULL, "2",
      1 + 1 },                                        /* a whole path counts in any layer */
    { SHEAF_COGVLM, "gate_proj", NULL, NULL, 3 + 1 }, /* the number at the end does not count */
    { SHEAF_COGVLM, "mlp.gate_proj", NULL, "0", 1 },
    { SHEAF_COGVLM, "vision_query_key_value_list,vision_dense_list", NULL, NULL, 6 },
    { SHEAF_COGVLM, "mixins.mlp.gate_proj.2", NULL, NULL, 1 },
    { SHEAF_COGVLM, "lm_head", NULL, NULL, 1 },
    { SHEAF_COGAGENT, "q_proj,w3", NULL, NULL, 2 * 2 },
    { SHEAF_COGAGENT, "mixins\\.encoder\\..*", NULL, NULL,
      2 * 7 }, /* norms and tables are passed over */
    { SHEAF_COGVLM, "all-linear", "mixins\\..*", NULL, 3 * 4 },
    { SHEAF_COGVLM, "sat-vit", QKV, NULL, 6 + 4 - 1 },
};

TEST(test_cog__selections)
{
    for (size_t i = 0; i < ARRAY_LEN(selections); i++) {
        const sheaf_schema *schema = cog(selections[i].family, 8);
        sheaf_lora_options *o = options_of(selections[i].targets);
        CHECK_OK(sheaf__lora_set_exclude(o, selections[i].exclude));
        CHECK_OK(sheaf__lora_set_layers(o, selections[i].layers));
        sheaf_lora *lora = resolved(schema, o);
        if (lora->nmodules != selections[i].count)
            fail_msg("%s: %d modules", selections[i].targets, lora->nmodules);
        sheaf_lora *again = resolved(schema, &lora->options); /* spelled out, they mean the same */
        assert_int_equal(again->nmodules, lora->nmodules);
        for (int m = 0; m < lora->nmodules; m++)
            assert_ptr_equal(again->module[m].base, lora->module[m].base);
    }
}

static const struct {
    sheaf_family family;
    const char *targets, *saved, *layers;
    sheaf_code code;
    const char *part;
} wrong[] = {
    { SHEAF_COGVLM, "q_proj", NULL, NULL, SHEAF_E_ARG, "target 'q_proj'" },
    { SHEAF_COGVLM, "attention.dnse", NULL, NULL, SHEAF_E_ARG, "no module of that name" },
    { SHEAF_COGVLM, "query_key_valeu", NULL, NULL, SHEAF_E_ARG, "| query_key_value" },
    { SHEAF_COGVLM, "vision_dens_list", NULL, NULL, SHEAF_E_ARG, "| vision_dense_list" },
    { SHEAF_COGVLM, "transformer.word_embeddings", NULL, NULL, SHEAF_E_UNSUPPORTED,
      "modules_to_save" },
    { SHEAF_COGVLM, "sat,input_layernorm", NULL, NULL, SHEAF_E_ARG, "target 'sat'" },
    { SHEAF_COGVLM, "input_layernorm", NULL, NULL, SHEAF_E_UNSUPPORTED, "which is none" },
    { SHEAF_COGAGENT, TOWER "head", NULL, NULL, SHEAF_E_UNSUPPORTED, "never executes" },
    { SHEAF_COGAGENT, TOWER "blocks.2.attn.proj", NULL, NULL, SHEAF_E_UNSUPPORTED,
      "never executes" },
    { SHEAF_COGVLM, "cross_attention.query", NULL, NULL, SHEAF_E_ARG, "no module" },
    { SHEAF_COGVLM, ".*q_proj", NULL, NULL, SHEAF_E_ARG, "no layer is adapted" },
    { SHEAF_COGVLM, "sat", NULL, "3", SHEAF_E_ARG, "0 to 2" },
    { SHEAF_COGVLM, "sat", "mixins.eva.boy", NULL, SHEAF_E_ARG, "| mixins.eva.boi" },
    { SHEAF_COGVLM, "sat", "inv_freq", NULL, SHEAF_E_ARG, "module to save" },
};

TEST(test_cog__what_cannot_be_is_named)
{
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        const sheaf_schema *schema = cog(wrong[i].family, 4);
        sheaf_lora_options *o = options_of(wrong[i].targets);
        CHECK_OK(sheaf__lora_set_saved(o, wrong[i].saved));
        CHECK_OK(sheaf__lora_set_layers(o, wrong[i].layers));
        sheaf_lora *lora;
        CHECK_FAILS(sheaf_lora_resolve(&lora, schema, o), wrong[i].code, wrong[i].part);
    }
    const sheaf_schema *schema = schema_of(small_config(SHEAF_LLAMA, 64, 16, 16, 1, 2, 2, 8), 1);
    sheaf_lora *lora;
    CHECK_FAILS(sheaf_lora_resolve(&lora, schema, options_of("sat")), SHEAF_E_ARG,
                "CogVLM or CogAgent");
}

/* ---- ranks, shapes, cuts ---- */

static void check_module(const sheaf_lora_module *m, int parts, int64_t rank, const int64_t want[4],
                         float scale)
{
    const char *path = m->base->module;
    if (m->parts != parts || m->rank != rank || m->file_rank != parts * rank || m->dense ||
        m->scale != scale)
        fail_msg("%s: %d parts of rank %d, scale %g", path, m->parts, (int)m->rank, m->scale);
    if (m->a_shape[0] != want[0] || m->a_shape[1] != want[1] || m->b_shape[0] != want[2] ||
        m->b_shape[1] != want[3])
        fail_msg("%s: A [%d, %d], B [%d, %d]", path, (int)m->a_shape[0], (int)m->a_shape[1],
                 (int)m->b_shape[0], (int)m->b_shape[1]);
    if (m->b_cut.nparts > 0)
        CHECK_OK(sheaf_cut_check(&m->b_cut, m->b_shape[0]));
    if (m->a_cut.nparts > 0)
        CHECK_OK(sheaf_cut_check(&m->a_cut, m->a_shape[1]));
}

TEST(test_cog__fused_layers_have_factors_for_each_part)
{
    /* the last two are scales between two floats, which roots of 2 and 3 could push to the other
     * one */
    static const struct {
        int64_t rank;
        double alpha;
        bool rslora;
    } cases[] = {
        { 5, 0.7, false },
        { 5, 0.7, true },
        { 1, 0x1.6ee61dp-1, true },
        { 1, 0x1.d81fa9p-1, true },
    };
    for (size_t k = 0; k < ARRAY_LEN(cases); k++) {
        const bool rslora = cases[k].rslora;
        const int64_t rank = cases[k].rank;
        const sheaf_schema *schema = cog(SHEAF_COGAGENT, 8);
        sheaf_lora_options *o = options_of("sat-vit");
        o->rank = rank, o->alpha = cases[k].alpha, o->rslora = rslora;
        CHECK_OK(sheaf__lora_set_pattern(
            &o->rank_pattern,
            "layers.2.cross_attention.key_value=3,^transformer.layers.0.attention.query_key_value=6",
            true));
        sheaf_lora *lora = resolved(schema, o);
        const float scale = sheaf_lora_scale(o->alpha, rank, rslora),
                    three = sheaf_lora_scale(o->alpha, 3, rslora);
        const sheaf_lora_module *qkv = module_of(lora, QKV),
                                *kv = module_of(lora,
                                                "transformer.layers.2.cross_attention.key_value");
        const sheaf_lora_module *dense =
            module_of(lora, "transformer.layers.0.cross_attention.dense");
        check_module(qkv, 3, 6, (int64_t[]){ 18, 32, 96, 6 },
                     sheaf_lora_scale(o->alpha, 6, rslora));
        check_module(kv, 2, 3, (int64_t[]){ 6, 16, 48, 3 }, three);
        check_module(dense, 1, rank, (int64_t[]){ rank, 24, 32, rank }, scale);
        check_module(module_of(lora, VIT QKV), 3, rank, (int64_t[]){ 3 * rank, 24, 72, rank },
                     scale);
        assert_true(qkv->b_cut.nparts == 3 && qkv->b_cut.axis == 0 && qkv->a_cut.nparts == 0);
        assert_true(kv->b_cut.nparts == 2 && kv->b_cut.part[1].units == 4 &&
                    kv->b_cut.part[1].rows_per_unit == 6);
        assert_true(dense->b_cut.nparts == 0 && dense->a_cut.nparts == 1 && dense->a_cut.axis == 1);
        assert_string_equal(qkv->a_name, "base_model.model." QKV ".lora_A.weight");
        /* a file gives the same modules, with the same scale bit for bit */
        sheaf_lora *read = resolved(schema, &lora->options);
        for (int i = 0; i < lora->nmodules; i++) {
            const sheaf_lora_module *m = &lora->module[i];
            check_module(&read->module[i], m->parts, m->rank,
                         (int64_t[]){ m->a_shape[0], m->a_shape[1], m->b_shape[0], m->b_shape[1] },
                         m->scale);
        }
    }
}

TEST(test_cog__a_rank_that_does_not_divide_is_dense)
{
    const sheaf_schema *schema = cog(SHEAF_COGVLM, 4);
    sheaf_lora_options *o = options_of("sat");
    o->rank = 8, o->alpha = 4, o->whole_rank = true;
    sheaf_lora *lora = resolved(schema, o);
    const sheaf_lora_module *qkv = module_of(lora, QKV);
    assert_true(qkv->dense && qkv->rank == 8 && qkv->scale == 0.5f && qkv->a_shape[0] == 8 &&
                qkv->b_shape[1] == 8);
    CHECK_FAILS(sheaf_lora_check_trainable(lora), SHEAF_E_UNSUPPORTED, "train a new adapter");
    o = options_of("sat");
    o->rank = 21846; /* of three parts too many */
    CHECK_FAILS(sheaf_lora_resolve(&lora, schema, o), SHEAF_E_ARG, "1 to 21845");
}

/* ---- saved whole ---- */

TEST(test_cog__saved_tensors_keep_their_names)
{
    static const struct {
        const char *saved;
        int count;
        const char *first;
    } cases[] = {
        { "mixins.eva.boi", 1, "base_model.model.mixins.eva.boi" },
        { "boi,eoi", 2, "base_model.model.mixins.eva.boi" },
        { "patch_embed", 2, "base_model.model." TOWER "patch_embed.proj.weight" },
        { "attn.q_bias", 2, "base_model.model." TOWER "blocks.0.attn.q_bias" },
        { "vision_dense_list", 3, "base_model.model.mixins.rotary.vision_dense_list.0.weight" },
        { "transformer.word_embeddings", 1,
          "base_model.model.transformer.word_embeddings.weight" }, /* not the ViT's */
        { "mixins.encoder.vit.model.rope,boi", 1,
          "base_model.model.mixins.eva.boi" }, /* buffers are not trained */
        { "vit.model", 4 + 2 * 21, NULL },
    };
    const sheaf_schema *schema = cog(SHEAF_COGAGENT, 4);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        sheaf_lora_options *o = options_of("attention.dense");
        CHECK_OK(sheaf__lora_set_saved(o, cases[i].saved));
        o->tolerant = true;
        sheaf_lora *lora = resolved(schema, o);
        if (lora->nsaved != cases[i].count)
            fail_msg("%s: %d tensors", cases[i].saved, lora->nsaved);
        if (cases[i].first != NULL)
            assert_string_equal(lora->saved_name[0], cases[i].first);
    }
}

/* ---- a file ---- */

typedef struct fake {
    fake_source it;
    uint16_t *data[FAKE_MOST]; /* BF16 */
    bool closed;
} fake;

static sheaf_status *fake_read(sheaf_source *self, const char *name, int64_t row0, int64_t rows,
                               int64_t col0, int64_t cols, void *dst)
{
    fake *f = (fake *)self;
    const int i = fake_index(&f->it, name);
    assert_true(i >= 0 && row0 >= 0 && col0 >= 0 && row0 + rows <= f->it.entry[i].shape[0] &&
                col0 + cols <= f->it.entry[i].shape[1]);
    for (int64_t r = 0; r < rows; r++)
        memcpy((uint16_t *)dst + r * cols, f->data[i] + (row0 + r) * f->it.entry[i].shape[1] + col0,
               (size_t)cols * 2);
    return NULL;
}
static void fake_close(sheaf_source *self)
{
    fake *f = (fake *)self;
    for (int i = 0; i < f->it.n; i++)
        free(f->data[i]);
    f->it.n = 0;
    f->closed = true;
}

static uint16_t value(int tensor, int64_t row, int64_t col)
{
    return (uint16_t)(0x3f80 + tensor * 97 + row * 13 + col * 5);
}

/* A of any values; B compact ones, spread over its blocks. */
static void fake_of(fake *f, const sheaf_lora *lora)
{
    *f = (fake){ .it.source = { fake_find, fake_count, fake_entry, fake_read, fake_close } };
    for (int i = 0; i < lora->nmodules; i++) {
        const sheaf_lora_module *m = &lora->module[i];
        const int64_t shape[2][2] = { { m->file_rank, m->a_shape[1] },
                                      { m->b_shape[0], m->file_rank } };
        for (int b = 0; b < 2; b++, f->it.n++) {
            f->it.entry[f->it.n] = (sheaf_source_entry){
                b ? m->b_name : m->a_name, SHEAF_BF16, 2, { shape[b][0], shape[b][1] }
            };
            f->data[f->it.n] = calloc((size_t)(shape[b][0] * shape[b][1]), 2);
            const int64_t block = m->b_shape[0] / m->parts;
            for (int64_t r = 0; r < shape[b][0]; r++)
                for (int64_t c = 0; c < (b ? m->rank : shape[b][1]); c++)
                    f->data[f->it.n][r * shape[b][1] + c + (b ? r / block * m->rank : 0)] =
                        value(f->it.n, r, c);
        }
    }
}

static void check_tensor(sheaf_source *source, const char *name, int tensor, const int64_t shape[2])
{
    const sheaf_source_entry *e = source->find(source, name);
    assert_non_null(e);
    assert_true(e->shape[0] == shape[0] && e->shape[1] == shape[1]);
    uint16_t *x = room((size_t)(shape[0] * shape[1]) * 2 + 2);
    for (int64_t row0 = 0; row0 < shape[0]; row0 += 7) { /* boxes across the parts */
        const int64_t rows = shape[0] - row0 < 11 ? shape[0] - row0 : 11, cols = shape[1] - 1;
        CHECK_OK(source->read(source, name, row0, rows, 1, cols, x));
        for (int64_t r = 0; r < rows; r++)
            for (int64_t c = 0; c < cols; c++)
                if (x[r * cols + c] != value(tensor, row0 + r, c + 1))
                    fail_msg("%s: row %d", name, (int)(row0 + r));
    }
}

TEST(test_fit__b_is_compact_where_the_file_is_block_diagonal)
{
    const sheaf_schema *schema = cog(SHEAF_COGAGENT, 8);
    sheaf_lora_options *o = options_of("sat");
    o->rank = 2;
    fake f;
    sheaf_lora *lora = resolved(schema, o);
    fake_of(&f, lora);
    f.data[1][2 * 6 + 5] = 0x8000; /* -0 off the blocks is a zero too */
    sheaf_source *adapter = &f.it.source;
    CHECK_OK(sheaf_lora_check(lora, adapter));
    CHECK_OK(sheaf_lora_fit(&adapter, lora));
    CHECK_OK(sheaf_lora_check_trainable(lora));
    assert_int_equal(adapter->count(adapter), 2 * lora->nmodules);
    for (int i = 0; i < lora->nmodules; i++) {
        const sheaf_lora_module *m = &lora->module[i];
        assert_false(m->dense);
        check_tensor(adapter, m->a_name, 2 * i, m->a_shape);
        check_tensor(adapter, m->b_name, 2 * i + 1, m->b_shape);
        const sheaf_source_entry *e = adapter->entry(adapter, 2 * i + 1);
        assert_true(strcmp(e->name, m->b_name) == 0 && e->shape[1] == m->rank);
    }
    char buffer[8];
    CHECK_FAILS(adapter->read(adapter, lora->module[0].b_name, 0, 1, 1, 2, buffer), SHEAF_E_ARG,
                "outside");
    /* written again, B is what the file had */
    const sheaf_lora_module *qkv = module_of(lora, QKV);
    uint16_t compact[20 * 2], spread[20 * 6];
    CHECK_OK(adapter->read(adapter, qkv->b_name, 20, 20, 0, 2, compact));
    sheaf_lora_spread(spread, compact, qkv, 20, 20, 2);
    const int at = fake_index(&f.it, qkv->b_name);
    CHECK_BYTES("B of a file", spread, f.data[at] + 20 * 6, sizeof spread);
    adapter->close(adapter);
    assert_true(f.closed);
    resolved(schema, &lora->options);
}

TEST(test_fit__a_dense_b_runs_but_is_not_trained)
{
    const sheaf_schema *schema = cog(SHEAF_COGVLM, 8);
    for (int where = 0; where < 3;
         where++) { /* before the block of its row, after it, in the last row */
        sheaf_lora_options *o = options_of(QKV ",attention.dense");
        o->rank = 6, o->alpha = 3, o->whole_rank = true;
        fake f;
        sheaf_lora *lora = resolved(schema, o);
        fake_of(&f, lora);
        const sheaf_lora_module *qkv = module_of(lora, QKV);
        assert_true(!qkv->dense && qkv->rank == 2 && qkv->scale == 0.5f && qkv->alpha == 1);
        const int b = fake_index(&f.it, qkv->b_name);
        static const int at[] = { 40 * 6 + 1, 5 * 6 + 3, 95 * 6 + 0 };
        f.data[b][at[where]] = 1;
        sheaf_source *adapter = &f.it.source;
        CHECK_OK(sheaf_lora_fit(&adapter, lora));
        assert_true(qkv->dense && qkv->rank == 6 && qkv->b_shape[1] == 6 && qkv->a_shape[0] == 6 &&
                    qkv->scale == 0.5f && qkv->alpha == 3);
        assert_int_equal(adapter->find(adapter, qkv->b_name)->shape[1], 6);
        CHECK_FAILS(sheaf_lora_check_trainable(lora), SHEAF_E_UNSUPPORTED, QKV);
        adapter->close(adapter);
    }
}

TEST(test_fit__a_file_of_another_rank_is_refused)
{
    const sheaf_schema *schema = cog(SHEAF_COGVLM, 8);
    sheaf_lora_options *o = options_of("sat");
    fake f;
    sheaf_lora *lora = resolved(schema, o);
    fake_of(&f, lora);
    f.it.entry[1].shape[1] = 8; /* of one part */
    sheaf_source *adapter = &f.it.source;
    CHECK_FAILS(sheaf_lora_fit(&adapter, lora), SHEAF_E_LAYOUT, "shape [96, 24] | shape [96, 8]");
    assert_true(adapter == &f.it.source && !f.closed);
    adapter->close(adapter);
}
