/* rows.c - the tensors of CogVLM and CogAgent, as SAT names them; names.c has the hub's names. The
 * rows below are the table of names, shapes and SAT's partition (docs/layouts.md, "CogVLM and
 * CogAgent"), in the order of SAT's files. */
#include "base/base.h"
#include "families/cog/cog.h"
#include "families/common/rows.h"
#include "schema/paths.h"

enum { LEAST_SPLIT_VOCAB = 1000 }; /* SAT keeps smaller tables whole on every rank */

/* Sizes that rows refer to. */
typedef enum size_of {
    NONE,
    ONE,
    HIDDEN,
    QKV,
    HEADS,
    FFN,
    VOCAB,
    HALF_HEAD,
    PATCHES,
    CROSS,
    CROSS_KV,
    CROSS_IN,
    VIT,
    VIT_QKV,
    VIT_HEADS,
    VIT_FFN,
    VIT_VOCAB,
    VIT_POSITIONS,
    VIT_PATCH,
    VIT_CHANNELS,
    ENC,
    ENC_HEADS,
    ENC_HEAD,
    ENC_FFN,
    ENC_EMBED,
    ENC_TOKENS,
    ENC_POSITIONS,
    ENC_PATCH,
    ENC_CHANNELS,
    SIZES
} size_of;

/* How SAT divides a tensor: copies; along axis 0 in 1, 2 or 3 parts; along axis 1; or as a table.
 * sheaf also divides the layers of the adapter and of the tower (`own`). */
typedef enum split {
    REP = SHEAF__WHOLE,
    COL = SHEAF__BY_OUT,
    COL2 = SHEAF__BY_OUT2,
    COL3 = SHEAF__BY_OUT3,
    ROW = SHEAF__BY_IN,
    TABLE
} split;

typedef enum when { ALWAYS, AGENT, CROSS_LAYER } when;

typedef struct row {
    const char *name; /* '#' stands for the layer's number */
    size_of shape[4];
    split split;
    size_of units; /* things that stay whole; NONE: each row is one */
    sheaf_role role;
    when when;
    bool buffer, idle, zero;
    split own; /* how sheaf divides a tensor of which SAT makes copies; REP: not */
} row;

#define LIN .role = SHEAF_LINEAR
#define ANY .role = SHEAF_OTHER
#define NORM .role = SHEAF_NORM
#define EVA "mixins.eva.vit_model."
#define ADAPTER "mixins.eva.linear_proj."
#define TOWER "mixins.encoder.vit.model."

static const row head[] = {
    { "mixins.lm.lm_head.weight", { VOCAB, HIDDEN }, COL, .role = SHEAF_HEAD },
    { "mixins.eva.boi", { ONE, ONE, HIDDEN }, REP, ANY },
    { "mixins.eva.eoi", { ONE, ONE, HIDDEN }, REP, ANY },
    { "mixins.eva.pos_embed", { PATCHES, VIT }, REP, ANY, .when = AGENT, .zero = true },
    { EVA "mixins.patch_embedding.proj.weight",
      { VIT, VIT_CHANNELS, VIT_PATCH, VIT_PATCH },
      REP,
      ANY },
    { EVA "mixins.patch_embedding.proj.bias", { VIT }, REP, ANY },
    { EVA "transformer.word_embeddings.weight", { VIT_VOCAB, VIT }, TABLE, ANY },
    { EVA "transformer.position_embeddings.weight", { VIT_POSITIONS, VIT }, REP, ANY },
};

#define VIT_LAYER EVA "transformer.layers.#."
static const row vit_layer[] = {
    { VIT_LAYER "input_layernorm.weight", { VIT }, REP, NORM },
    { VIT_LAYER "input_layernorm.bias", { VIT }, REP, NORM },
    { VIT_LAYER "attention.query_key_value.weight", { VIT_QKV, VIT }, COL3, VIT_HEADS, LIN },
    { VIT_LAYER "attention.query_key_value.bias", { VIT_QKV }, COL3, VIT_HEADS, LIN },
    { VIT_LAYER "attention.dense.weight", { VIT, VIT }, ROW, VIT_HEADS, LIN },
    { VIT_LAYER "attention.dense.bias", { VIT }, REP, LIN },
    { VIT_LAYER "post_attention_layernorm.weight", { VIT }, REP, NORM },
    { VIT_LAYER "post_attention_layernorm.bias", { VIT }, REP, NORM },
    { VIT_LAYER "mlp.dense_h_to_4h.weight", { VIT_FFN, VIT }, COL, LIN },
    { VIT_LAYER "mlp.dense_h_to_4h.bias", { VIT_FFN }, COL, LIN },
    { VIT_LAYER "mlp.dense_4h_to_h.weight", { VIT, VIT_FFN }, ROW, LIN },
    { VIT_LAYER "mlp.dense_4h_to_h.bias", { VIT }, REP, LIN },
};

static const row adapter[] = {
    { ADAPTER "linear_proj.weight", { HIDDEN, VIT }, REP, LIN, .own = ROW },
    { ADAPTER "norm1.weight", { HIDDEN }, REP, NORM },
    { ADAPTER "norm1.bias", { HIDDEN }, REP, NORM },
    { ADAPTER "dense_h_to_4h.weight", { FFN, HIDDEN }, REP, LIN, .own = COL },
    { ADAPTER "gate_proj.weight", { FFN, HIDDEN }, REP, LIN, .own = COL },
    { ADAPTER "dense_4h_to_h.weight", { HIDDEN, FFN }, REP, LIN, .own = ROW },
};

static const row text_gate[] = { { "mixins.mlp.gate_proj.#.weight", { FFN, HIDDEN }, COL, LIN } };
static const row vision_up[] = {
    { "mixins.mlp.vision_dense_h_to_4h_list.#.weight", { FFN, HIDDEN }, COL, LIN }
};
static const row vision_down[] = {
    { "mixins.mlp.vision_dense_4h_to_h_list.#.weight", { HIDDEN, FFN }, ROW, LIN }
};
static const row vision_gate[] = {
    { "mixins.mlp.vision_gate_proj.#.weight", { FFN, HIDDEN }, COL, LIN }
};
static const row frequencies[] = {
    { "mixins.rotary.rotary_emb.inv_freq", { HALF_HEAD }, REP, ANY, .buffer = true },
};
static const row vision_qkv[] = {
    { "mixins.rotary.vision_query_key_value_list.#.weight", { QKV, HIDDEN }, COL3, HEADS, LIN },
};
static const row vision_dense[] = {
    { "mixins.rotary.vision_dense_list.#.weight", { HIDDEN, HIDDEN }, ROW, HEADS, LIN }
};

static const row tower_begin[] = {
    { "mixins.encoder.pos_embed", { ENC_TOKENS, ENC }, REP, ANY, .zero = true },
    { TOWER "cls_token", { ONE, ONE, ENC }, REP, ANY },
    { TOWER "pos_embed", { ONE, ENC_POSITIONS, ENC }, REP, ANY },
    { TOWER "patch_embed.proj.weight", { ENC, ENC_CHANNELS, ENC_PATCH, ENC_PATCH }, REP, ANY },
    { TOWER "patch_embed.proj.bias", { ENC }, REP, ANY },
    { TOWER "rope.freqs_cos", { ENC_TOKENS, ENC_HEAD }, REP, ANY, .buffer = true },
    { TOWER "rope.freqs_sin", { ENC_TOKENS, ENC_HEAD }, REP, ANY, .buffer = true },
};

#define BLOCK TOWER "blocks.#."
static const row tower_block[] = {
    { BLOCK "norm1.weight", { ENC }, REP, NORM },
    { BLOCK "norm1.bias", { ENC }, REP, NORM },
    { BLOCK "attn.q_bias", { ENC }, REP, ENC_HEADS, ANY, .own = COL, .zero = true },
    { BLOCK "attn.v_bias", { ENC }, REP, ENC_HEADS, ANY, .own = COL, .zero = true },
    { BLOCK "attn.q_proj.weight", { ENC, ENC }, REP, ENC_HEADS, LIN, .own = COL },
    { BLOCK "attn.k_proj.weight", { ENC, ENC }, REP, ENC_HEADS, LIN, .own = COL },
    { BLOCK "attn.v_proj.weight", { ENC, ENC }, REP, ENC_HEADS, LIN, .own = COL },
    { BLOCK "attn.inner_attn_ln.weight", { ENC }, REP, ENC_HEADS, NORM, .own = COL },
    { BLOCK "attn.inner_attn_ln.bias", { ENC }, REP, ENC_HEADS, NORM, .own = COL },
    { BLOCK "attn.proj.weight", { ENC, ENC }, REP, ENC_HEADS, LIN, .own = ROW },
    { BLOCK "attn.proj.bias", { ENC }, REP, LIN },
    { BLOCK "attn.rope.freqs_cos", { ENC_TOKENS, ENC_HEAD }, REP, ANY, .buffer = true },
    { BLOCK "attn.rope.freqs_sin", { ENC_TOKENS, ENC_HEAD }, REP, ANY, .buffer = true },
    { BLOCK "norm2.weight", { ENC }, REP, NORM },
    { BLOCK "norm2.bias", { ENC }, REP, NORM },
    { BLOCK "mlp.w1.weight", { ENC_FFN, ENC }, REP, LIN, .own = COL },
    { BLOCK "mlp.w1.bias", { ENC_FFN }, REP, LIN, .own = COL },
    { BLOCK "mlp.w2.weight", { ENC_FFN, ENC }, REP, LIN, .own = COL },
    { BLOCK "mlp.w2.bias", { ENC_FFN }, REP, LIN, .own = COL },
    { BLOCK "mlp.ffn_ln.weight", { ENC_FFN }, REP, NORM, .own = COL },
    { BLOCK "mlp.ffn_ln.bias", { ENC_FFN }, REP, NORM, .own = COL },
    { BLOCK "mlp.w3.weight", { ENC, ENC_FFN }, REP, LIN, .own = ROW },
    { BLOCK "mlp.w3.bias", { ENC }, REP, LIN },
};

static const row tower_end[] = {
    { TOWER "norm.weight", { ENC }, REP, NORM, .idle = true },
    { TOWER "norm.bias", { ENC }, REP, NORM, .idle = true },
    { TOWER "head.weight", { ENC_EMBED, ENC }, REP, LIN, .idle = true },
    { TOWER "head.bias", { ENC_EMBED }, REP, LIN, .idle = true },
};

static const row table[] = {
    { "transformer.word_embeddings.weight", { VOCAB, HIDDEN }, TABLE, .role = SHEAF_EMBED },
};

#define LAYER "transformer.layers.#."
static const row layer[] = {
    { LAYER "input_layernorm.weight", { HIDDEN }, REP, .role = SHEAF_NORM_IN },
    { LAYER "attention.query_key_value.weight", { QKV, HIDDEN }, COL3, HEADS, LIN },
    { LAYER "attention.dense.weight", { HIDDEN, HIDDEN }, ROW, HEADS, LIN },
    { LAYER "post_attention_layernorm.weight", { HIDDEN }, REP, .role = SHEAF_NORM_POST },
    { LAYER "cross_attention.query.weight",
      { CROSS, HIDDEN },
      COL,
      HEADS,
      LIN,
      .when = CROSS_LAYER },
    { LAYER "cross_attention.key_value.weight",
      { CROSS_KV, CROSS_IN },
      COL2,
      HEADS,
      LIN,
      .when = CROSS_LAYER },
    { LAYER "cross_attention.dense.weight",
      { HIDDEN, CROSS },
      ROW,
      HEADS,
      LIN,
      .when = CROSS_LAYER },
    { LAYER "post_cross_attention_layernorm.weight", { HIDDEN }, REP, NORM, .when = CROSS_LAYER },
    { LAYER "mlp.dense_h_to_4h.weight", { FFN, HIDDEN }, COL, .role = SHEAF_UP },
    { LAYER "mlp.dense_4h_to_h.weight", { HIDDEN, FFN }, ROW, .role = SHEAF_DOWN },
};
static const row final[] = {
    { "transformer.final_layernorm.weight", { HIDDEN }, REP, .role = SHEAF_NORM_FINAL }
};

#define ROWS(a) a, sizeof a / sizeof *a

typedef enum stack { ONCE, TEXT, EXPERTS, VIT_STACK, ENC_STACK, STACKS } stack;

static const struct block {
    const row *rows;
    size_t nrows;
    stack over; /* repeated for each layer of */
    when when;
    stack hub; /* on the hub; ONCE: the same */
} blocks[] = {
    { ROWS(head), ONCE },
    { ROWS(vit_layer), VIT_STACK },
    { ROWS(adapter), ONCE },
    { ROWS(text_gate), TEXT },
    { ROWS(vision_up), EXPERTS },
    { ROWS(vision_down), EXPERTS },
    { ROWS(vision_gate), EXPERTS },
    { ROWS(frequencies), ONCE, .hub = TEXT },
    { ROWS(vision_qkv), EXPERTS },
    { ROWS(vision_dense), EXPERTS },
    { ROWS(tower_begin), ONCE, AGENT },
    { ROWS(tower_block), ENC_STACK, AGENT },
    { ROWS(tower_end), ONCE, AGENT },
    { ROWS(table), ONCE },
    { ROWS(layer), TEXT },
    { ROWS(final), ONCE },
};
enum { BLOCKS = sizeof blocks / sizeof *blocks };

/* Is `name` the pattern with a number, written plainly, for its '#'? */
static bool matches(const char *pattern, const char *name)
{
    const char *hash = strchr(pattern, '#');
    if (hash == NULL)
        return strcmp(pattern, name) == 0;
    const size_t before = (size_t)(hash - pattern),
                 digits =
                     strncmp(pattern, name, before) == 0 ? strspn(name + before, "0123456789") : 0;
    return digits > 0 && digits < 10 && (digits == 1 || name[before] != '0') &&
           strcmp(name + before + digits, hash + 1) == 0;
}

bool sheaf__cog_sat_rule(sheaf_sat_rule *out, const char *name)
{
    for (int i = 0; i < BLOCKS; i++)
        for (size_t r = 0; r < blocks[i].nrows; r++) {
            const row *row = &blocks[i].rows[r];
            if (!matches(row->name, name))
                continue;
            *out = (sheaf_sat_rule){ .axis = row->split == ROW,
                                     .parts = row->split > COL3 ? 1 : (int)row->split,
                                     .table = row->split == TABLE,
                                     .buffer = row->buffer,
                                     .tower = blocks[i].when == AGENT || row->when == AGENT,
                                     .cross = row->when == CROSS_LAYER };
            return true;
        }
    return false;
}

typedef struct builder {
    sheaf_schema *schema;
    int64_t size[SIZES];
    int64_t repeat[STACKS];
} builder;

static bool wanted(const sheaf_config *c, when when, int64_t layer)
{
    if (when == AGENT)
        return sheaf__cog_is_agent(c);
    return when == ALWAYS || sheaf__layer_in(c->cross_layers, layer);
}

/* sheaf's own cut is SAT's where SAT divides, and `own` where it copies; other tensors are whole on
 * every rank. A small table is divided here, though SAT would copy it. */
static sheaf_status *add(builder *b, const row *row, int64_t layer, bool idle)
{
    sheaf_schema *schema = b->schema;
    const bool table = row->split == TABLE;
    const split split = row->split == REP          ? row->own
                        : !table                   ? row->split
                        : row->role == SHEAF_EMBED ? COL
                                                   : REP;
    char name[128], own[SHEAF__SPELLED], back[SHEAF__SPELLED];
    const sheaf__name_rule *spelling = sheaf__family_for(&schema->config)->spelling;
    const char *spelled = sheaf__numbered_name(name, sizeof name, row->name, layer);
    if (spelling != NULL) {
        sheaf__respell(own, spelling, false, spelled, layer);
        sheaf__respell(back, spelling, true, own, 0);
        if (strcmp(back, spelled) != 0)
            return NULL; /* another row has this spelling: it is stored once */
        spelled = own;
    }
    sheaf__tensor_row is = { .name = spelled,
                             .role = row->role,
                             .split = (sheaf__split)split,
                             .units = b->size[row->units],
                             .zero = row->zero,
                             .buffer = row->buffer };
    for (int i = 0; i < 4; i++)
        is.shape[i] = b->size[row->shape[i]];
    sheaf_status *st = sheaf__rows_add(schema, "", (int)layer, &is, 1);
    if (st != NULL)
        return st;
    sheaf_tensor *t = &schema->tensor[schema->count - 1];
    t->idle = idle;
    t->sat_split =
        split != REP && row->split != REP && (!table || t->shape[0] >= LEAST_SPLIT_VOCAB);
    return NULL;
}

static void set_sizes(builder *b)
{
    const sheaf_config *c = &b->schema->config;
    const sheaf_vit *v = &c->vit;
    const sheaf_encoder *e = &c->encoder;
    const int64_t size[SIZES] = {
        [ONE] = 1,
        [HIDDEN] = c->hidden,
        [HEADS] = c->heads,
        [FFN] = c->ffn,
        [VOCAB] = c->vocab,
        [PATCHES] = c->patches,
        [CROSS_IN] = c->cross_width,
        [VIT] = v->hidden,
        [VIT_HEADS] = v->heads,
        [VIT_FFN] = v->ffn,
        [VIT_VOCAB] = v->vocab,
        [VIT_POSITIONS] = v->positions,
        [VIT_PATCH] = v->patch,
        [VIT_CHANNELS] = v->channels,
        [ENC] = e->width,
        [ENC_HEAD] = e->head_width,
        [ENC_FFN] = e->ffn,
        [ENC_EMBED] = e->embed,
        [ENC_PATCH] = e->patch,
        [ENC_CHANNELS] = e->channels,
    };
    int64_t *s = b->size;
    const int64_t side = e->patch > 0 ? e->image / e->patch : 0;
    memcpy(s, size, sizeof size);
    s[QKV] = 3 * s[HIDDEN];
    s[HALF_HEAD] = c->head_dim / 2;
    s[CROSS] = c->heads * c->cross_head_dim;
    s[CROSS_KV] = 2 * s[CROSS];
    s[VIT_QKV] = 3 * s[VIT];
    s[ENC_HEADS] = s[ENC_HEAD] > 0 ? s[ENC] / s[ENC_HEAD] : 0;
    s[ENC_TOKENS] = side * side;
    s[ENC_POSITIONS] = side * side + 1;
    b->repeat[ONCE] = 1;
    b->repeat[TEXT] = c->layers;
    b->repeat[EXPERTS] = c->experts;
    b->repeat[VIT_STACK] = v->layers;
    b->repeat[ENC_STACK] = e->layers;
}

/* The reader has checked what the config says; the sizes of the tower may be those of tensors. */
static sheaf_status *check_tower(const sheaf_config *c)
{
    const sheaf_encoder *e = &c->encoder;
    const struct {
        const char *name;
        int64_t value, most;
    } rows[] = {
        { "encoder.layers", e->layers, SHEAF_MAX_COG_LAYERS },
        { "encoder.width", e->width, 1 << 24 },
        { "encoder.head_width", e->head_width, 1 << 16 },
        { "encoder.ffn", e->ffn, INT64_C(1) << 31 },
        { "encoder.embed", e->embed, 1 << 24 },
        { "encoder.image", e->image, 1 << 16 },
        { "encoder.patch", e->patch, 1 << 16 },
        { "encoder.channels", e->channels, 1 << 10 },
    };
    sheaf_status *st = NULL;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        TRY(st, sheaf__rows_size(rows[i].name, rows[i].value, rows[i].most));
    if (st != NULL)
        return st;
    if (e->width % e->head_width != 0 || e->head_width % 4 != 0)
        return sheaf_expected(sheaf_fail(SHEAF_E_LAYOUT, "config: encoder.head_width"),
                              "whole heads, of a width that 4 divides");
    if (sheaf__has_cross(c) && c->cross_width != e->width) {
        st = sheaf_fail(SHEAF_E_LAYOUT, "config: cross_attn_hidden_size");
        sheaf_expected(
            st,
            "%" PRId64
            ", the width of the high-resolution tower, whose output cross-attention reads",
            e->width);
        sheaf_found(st, "%" PRId64, c->cross_width);
        return sheaf_try_this(
            st, "correct it, or tell the tower's sizes: the key encoder_override (docs/sat.md)");
    }
    if (e->image % e->patch != 0)
        return sheaf_expected(sheaf_fail(SHEAF_E_LAYOUT, "config: encoder.image"), "whole patches");
    return NULL;
}

sheaf_status *sheaf__cog_rows(sheaf_schema *schema)
{
    builder b = { schema };
    sheaf_status *st = sheaf__cog_is_agent(&schema->config) ? check_tower(&schema->config) : NULL;
    if (st == NULL)
        set_sizes(&b);
    for (int i = 0; i < BLOCKS && st == NULL; i++) {
        const struct block *block = &blocks[i];
        if (!wanted(&schema->config, block->when, 0))
            continue;
        const stack over =
            sheaf__cog_is_hub(&schema->config) && block->hub != ONCE ? block->hub : block->over;
        for (int64_t n = 0; n < b.repeat[over] && st == NULL; n++)
            for (size_t r = 0; r < block->nrows && st == NULL; r++)
                if (wanted(&schema->config, block->rows[r].when, n))
                    /* The tower's last block is never run. */
                    st = add(&b, &block->rows[r], over == ONCE ? -1 : n,
                             block->rows[r].idle ||
                                 (over == ENC_STACK && n + 1 == b.repeat[ENC_STACK]));
    }
    return st;
}
