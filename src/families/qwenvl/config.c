/* config.c - config.json of Qwen2.5-VL and Qwen3-VL: the text model's keys in an object
 * "text_config", or (as 2.5 was published) beside the others, and an object "vision_config". */
#include "base/base.h"
#include "families/qwenvl/qwenvl.h"
#include "schema/config_keys.h"
#include "schema/config_text.h"
#include "schema/grid.h"

/* Sizes beyond any model in sight; every product of two of them fits int64_t. */
enum { MOST_HEADS = 1 << 16, MOST_WIDTH = 1 << 24, MOST_PIXELS = 1 << 16, MOST_SIDE = 1 << 10 };
/* Side of the pictures that plans count with, unless they are given a size: files do not say one.
 */
enum { ORDINARY = 896 };

const char sheaf__qwenvl_keys[] =
    "image_token_id mrope_section text_config use_image_id video_token_id vision_config "
    "vision_end_token_id vision_start_token_id vision_token_id";
static const char vision_keys[] =
    "attention_dropout deepstack_visual_indexes depth dtype fullatt_block_indexes hidden_act "
    "hidden_size in_channels in_chans initializer_range intermediate_size model_type num_heads "
    "num_position_embeddings out_hidden_size patch_size rope_parameters spatial_merge_size "
    "spatial_patch_size temporal_patch_size tokens_per_second torch_dtype window_size";

bool sheaf__qwen2_5_vl_claims(const json_t *object)
{
    return sheaf__config_names(object, "qwen2_5_vl", "Qwen2_5_VLForConditionalGeneration");
}

bool sheaf__qwen3_vl_claims(const json_t *object)
{
    return sheaf__config_names(object, "qwen3_vl", "Qwen3VLForConditionalGeneration");
}

/* ---- the text model ---- */

/* Keys of the whole that hold for the text model where its object has none. */
static const char *const shared_keys[] = {
    "bos_token_id", "dtype", "eos_token_id", "pad_token_id", "torch_dtype", "sheaf_tokenizer", NULL
};

static bool is_true(const json_t *object, const char *key)
{
    return json_is_true(json_object_get(object, key));
}

/* As Llama's reader takes it. The whole says whether the head is tied; of 2.5 its text model may
 * too. */
static json_t *text_object(const json_t *root, const json_t *inner, const char *family)
{
    static const char tied[] = "tie_word_embeddings";
    json_t *out = sheaf__config_text_object(root, inner, shared_keys, family);
    if (out == NULL || inner == NULL)
        return out;
    const bool yes =
        is_true(root, tied) || (strcmp(family, "qwen2_5_vl") == 0 && is_true(inner, tied));
    if (json_object_set_new(out, tied, json_boolean(yes)) == 0)
        return out;
    json_decref(out);
    return NULL;
}

static void check_text_type(sheaf_json_reader *r, const char *family)
{
    const char *type = sheaf__json_string(r, "model_type");
    char wanted[64];
    snprintf(wanted, sizeof wanted, "%s_text", family);
    if (r->st == NULL && type != NULL && strcmp(type, wanted) != 0 && strcmp(type, family) != 0)
        sheaf_found(sheaf__json_fail(r, SHEAF_E_LAYOUT, "model_type", "\"%s\"", wanted),
                    "\"%.100s\"", type);
}

static void read_text(sheaf_json_reader *all, sheaf_config *c, const char *family,
                      sheaf_text *unknown)
{
    const json_t *inner = sheaf__json_object(all, "text_config");
    json_t *object = all->st == NULL ? text_object(all->object, inner, family) : NULL;
    if (object == NULL) {
        if (all->st == NULL)
            all->st = sheaf__no_memory("out of memory for a config");
        return;
    }
    sheaf_json_reader r = { inner, inner != NULL ? "text_config." : NULL, NULL };
    if (inner != NULL)
        check_text_type(&r, family);
    r.object = object;
    if (r.st == NULL)
        sheaf__llama_config(&r, c, unknown);
    sheaf__config_leave(all, &r);
    json_decref(object);
}

/* Of the whole, where the text model has an object of its own. */
static void check_root(sheaf_json_reader *r, sheaf_text *unknown)
{
    sheaf__key_lists lists = sheaf__transformers_keys;
    lists.own = sheaf__qwenvl_keys;
    if (json_is_object(json_object_get(r->object, "text_config")))
        sheaf__config_keys(r, &lists, unknown);
}

/* ---- the tower ---- */

static void check_act(sheaf_json_reader *r, const sheaf_config *c)
{
    sheaf__config_want_word(r, "hidden_act",
                            sheaf__qwenvl_is_third(c) ? "gelu_pytorch_tanh" : "silu");
    if (sheaf__json_real(r, "attention_dropout", 0, 1, 0) != 0)
        sheaf__json_fail(r, SHEAF_E_UNSUPPORTED, "attention_dropout",
                         "0: another value drops attention weights in training");
}

static void read_theta(sheaf_json_reader *all, sheaf_qwen_vit *q)
{
    sheaf_json_reader r = { sheaf__json_object(all, "rope_parameters"), "rope_parameters.", NULL };
    q->theta = 10000;
    if (r.object == NULL)
        return;
    const char *type = sheaf__json_string(&r, "rope_type");
    if (type != NULL && strcmp(type, "axial") != 0 && strcmp(type, "default") != 0)
        sheaf__json_fail(&r, SHEAF_E_UNSUPPORTED, "rope_type", "\"axial\"");
    q->theta = sheaf__json_real(&r, "rope_theta", 1e-3, 1e18, q->theta);
    sheaf__config_leave(all, &r);
}

/* The numbers of blocks in a list; absent: `none` says which. Returns how many, -1 after a
 * failure. */
static int64_t read_blocks(sheaf_json_reader *r, const char *key, int64_t layers, const int *none,
                           int64_t *out, int64_t most)
{
    const json_t *list = sheaf__json_list(r, key);
    int64_t n = 0;
    if (list == NULL) {
        for (; r->st == NULL && none[n] >= 0; n++)
            out[n] = none[n];
        return n;
    }
    if ((int64_t)json_array_size(list) > most) {
        sheaf__json_fail(r, SHEAF_E_UNSUPPORTED, key, "at most %" PRId64 " blocks", most);
        return -1;
    }
    for (; n < (int64_t)json_array_size(list); n++) {
        const json_t *block = json_array_get(list, (size_t)n);
        out[n] = json_integer_value(block);
        if (!json_is_integer(block) || out[n] < 0 || out[n] >= layers) {
            sheaf__json_fail(r, SHEAF_E_LAYOUT, key, "numbers of blocks, 0 to %" PRId64,
                             layers - 1);
            return -1;
        }
    }
    return n;
}

static void read_windows(sheaf_json_reader *r, sheaf_config *c)
{
    static const int none[] = { 7, 15, 23, 31, -1 };
    sheaf_qwen_vit *q = &c->qwen_vit;
    int64_t full[SHEAF_MAX_LAYERS];
    const int64_t unit = c->vit.patch * q->merge,
                  size = sheaf__json_int(r, "window_size", 1, MOST_PIXELS, 112),
                  n = read_blocks(r, "fullatt_block_indexes", c->vit.layers, none, full,
                                  SHEAF_MAX_LAYERS);
    if (r->st == NULL && size < unit)
        sheaf__json_fail(r, SHEAF_E_LAYOUT, "window_size",
                         "at least %" PRId64 ", the pixels of a square of joined patches", unit);
    if (r->st != NULL)
        return;
    q->window = size / q->merge / c->vit.patch;
    for (int64_t i = 0; i < n; i++)
        sheaf__layer_add(q->full_blocks, full[i]);
}

static void read_deep(sheaf_json_reader *r, sheaf_config *c)
{
    static const int none[] = { 8, 16, 24, -1 };
    sheaf_qwen_vit *q = &c->qwen_vit;
    const int64_t n =
        read_blocks(r, "deepstack_visual_indexes", c->vit.layers, none, q->deep_at, SHEAF_MAX_DEEP);
    for (int64_t i = 1; i < n; i++)
        if (q->deep_at[i] <= q->deep_at[i - 1])
            sheaf__json_fail(r, SHEAF_E_UNSUPPORTED, "deepstack_visual_indexes",
                             "ascending numbers of blocks");
    if (r->st == NULL && n > c->layers)
        sheaf__json_fail(r, SHEAF_E_LAYOUT, "deepstack_visual_indexes",
                         "at most as many blocks as the text model has layers, %" PRId64,
                         c->layers);
    q->deep = n < 0 ? 0 : n;
}

static void read_positions(sheaf_json_reader *r, sheaf_vit *v)
{
    v->positions = sheaf__json_int(r, "num_position_embeddings", 1, MOST_SIDE * MOST_SIDE, 2304);
    const int64_t side = sheaf__square_side(v->positions);
    if (r->st == NULL && side * side != v->positions)
        sheaf__json_fail(r, SHEAF_E_LAYOUT, "num_position_embeddings",
                         "a square number: they lie on a grid");
}

/* Sizes that absent keys of 5.x leave to the class. */
static void read_sizes(sheaf_json_reader *r, sheaf_config *c)
{
    const bool third = sheaf__qwenvl_is_third(c);
    sheaf_vit *v = &c->vit;
    sheaf_qwen_vit *q = &c->qwen_vit;
    const char *channels =
        json_object_get(r->object, "in_channels") != NULL ? "in_channels" : "in_chans";
    v->layers = sheaf__json_int(r, "depth", 1, SHEAF_MAX_LAYERS, third ? 27 : 32);
    v->hidden = sheaf__json_int(r, "hidden_size", 1, MOST_WIDTH, third ? 1152 : 3584);
    v->heads = sheaf__json_int(r, "num_heads", 1, MOST_HEADS, 16);
    v->ffn = sheaf__json_int(r, "intermediate_size", 1, MOST_WIDTH, third ? 4304 : 3420);
    v->patch = sheaf__json_int(r, "patch_size", 1, MOST_PIXELS, third ? 16 : 14);
    v->channels = sheaf__json_int(r, channels, 1, 1024, 3);
    v->norm_eps = 1e-6;
    q->merge = sheaf__json_int(r, "spatial_merge_size", 1, 64, 2);
    q->frames = sheaf__json_int(r, "temporal_patch_size", 1, 64, 2);
    q->steps = third ? 0 : sheaf__json_int(r, "tokens_per_second", 1, 1 << 20, 4);
    const int64_t out = sheaf__json_int(r, "out_hidden_size", 1, MOST_WIDTH, c->hidden);
    if (r->st != NULL)
        return;
    if (v->hidden % v->heads != 0 || v->hidden / v->heads % 4 != 0)
        sheaf__json_fail(r, SHEAF_E_LAYOUT, "num_heads",
                         "a number that divides hidden_size %" PRId64
                         " into heads of a multiple of 4: rows and columns turn pairs of each",
                         v->hidden);
    else if (out != c->hidden)
        sheaf_found(sheaf__json_fail(r, SHEAF_E_LAYOUT, "out_hidden_size",
                                     "%" PRId64 ", the width of the text model", c->hidden),
                    "%" PRId64, out);
}

static void read_vision(sheaf_json_reader *all, sheaf_config *c, sheaf_text *unknown)
{
    static const char key[] = "vision_config";
    sheaf_json_reader r = { sheaf__json_object(all, key), "vision_config.", NULL };
    if (all->st == NULL && r.object == NULL)
        sheaf_found(
            sheaf__json_fail(all, SHEAF_E_FORMAT, key, "an object that describes the tower"),
            "no such key");
    if (all->st != NULL)
        return;
    sheaf__config_keys(&r, &(sheaf__key_lists){ .read = vision_keys }, unknown);
    check_act(&r, c);
    read_sizes(&r, c);
    if (r.st == NULL)
        read_theta(&r, &c->qwen_vit);
    if (r.st == NULL && sheaf__qwenvl_is_third(c)) {
        read_positions(&r, &c->vit);
        read_deep(&r, c);
    } else if (r.st == NULL) {
        read_windows(&r, c);
    }
    const int64_t unit = r.st == NULL ? c->vit.patch * c->qwen_vit.merge : 1;
    c->vit.height = c->vit.width = ORDINARY < unit ? unit : ORDINARY / unit * unit;
    if (r.st == NULL)
        c->patches = c->vit.height / c->vit.patch * (c->vit.width / c->vit.patch);
    sheaf__config_leave(all, &r);
}

/* ---- the whole ---- */

/* As published where a key is absent. */
static int64_t read_mark(sheaf_json_reader *r, const sheaf_config *c, const char *key,
                         int64_t published)
{
    return json_object_get(r->object, key) != NULL || published >= c->vocab
               ? sheaf__config_read_id(r, key, c->vocab)
               : published;
}

void sheaf__qwenvl_config(sheaf_json_reader *r, sheaf_config *c, sheaf_text *unknown)
{
    const char *family = sheaf__qwen3_vl_claims(r->object) ? "qwen3_vl" : "qwen2_5_vl";
    check_root(r, unknown);
    if (r->st == NULL)
        read_text(r, c, family, unknown);
    if (r->st == NULL)
        read_vision(r, c, unknown);
    if (r->st != NULL)
        return;
    c->image_mark.begin = read_mark(r, c, "vision_start_token_id", 151652);
    c->image_mark.end = read_mark(r, c, "vision_end_token_id", 151653);
    c->image_mark.patch = read_mark(r, c, "image_token_id", 151655);
    c->image_mark.video = read_mark(r, c, "video_token_id", 151656);
}

void sheaf__qwenvl_text(sheaf_text *t, const sheaf_config *c)
{
    const sheaf_vit *v = &c->vit;
    const sheaf_qwen_vit *q = &c->qwen_vit;
    sheaf__llama_text(t, c);
    sheaf__config_whole(t, "vision_start_token_id", c->image_mark.begin);
    sheaf__config_whole(t, "vision_end_token_id", c->image_mark.end);
    sheaf__config_whole(t, "image_token_id", c->image_mark.patch);
    sheaf__config_whole(t, "vision_config.depth", v->layers);
    sheaf__config_whole(t, "vision_config.hidden_size", v->hidden);
    sheaf__config_whole(t, "vision_config.num_heads", v->heads);
    sheaf__config_whole(t, "vision_config.intermediate_size", v->ffn);
    sheaf__config_whole(t, "vision_config.patch_size", v->patch);
    sheaf__config_whole(t, "vision_config.in_channels", v->channels);
    sheaf__config_whole(t, "vision_config.spatial_merge_size", q->merge);
    sheaf__config_whole(t, "vision_config.temporal_patch_size", q->frames);
    sheaf__config_whole(t, "vision_config.tokens_per_second", q->steps);
    sheaf__config_real(t, "vision_config.rope_theta", q->theta);
    sheaf__config_whole(t, "vision_config, squares of a window", q->window);
    for (int64_t i = 0; i < v->layers; i++)
        if (sheaf__layer_in(q->full_blocks, i))
            sheaf__config_whole(t, "vision_config.fullatt_block_indexes", i);
    sheaf__config_whole(t, "vision_config.num_position_embeddings", v->positions);
    for (int64_t i = 0; i < q->deep; i++)
        sheaf__config_whole(t, "vision_config.deepstack_visual_indexes", q->deep_at[i]);
}
