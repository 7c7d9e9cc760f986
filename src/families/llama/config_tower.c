/* config_tower.c - what configs say of the tower and the resampler of tower.h. */
#include "base/base.h"
#include "families/llama/tower.h"
#include "schema/config_keys.h"
#include "schema/grid.h"

/* Sizes beyond any model in sight; every product of two of them fits int64_t. */
enum {
    MOST_HEADS = 1 << 16,
    MOST_QUERIES = 1 << 20,
    MOST_WIDTH = 1 << 24,
    MOST_PIXELS = 1 << 16,
};
enum { RESAMPLER_HEAD = 128 }; /* width of its heads, fixed in upstream's code */

void sheaf__resampler_config(sheaf_json_reader *r, sheaf_config *c, const char *queries,
                             const char *square)
{
    sheaf_resampler *s = &c->resampler;
    const int64_t heads = c->hidden / RESAMPLER_HEAD;
    s->queries = sheaf__json_int(r, queries, 1, MOST_QUERIES, SHEAF_JSON_NEEDED);
    s->heads = sheaf__json_int(r, "resampler_num_heads", 1, MOST_HEADS,
                               heads > 0 ? heads : SHEAF_JSON_NEEDED);
    s->norm_eps = sheaf__json_real(r, "resampler_ln_eps", 0, 1, 1e-6);
    if (r->st != NULL)
        return;
    const int64_t side = sheaf__square_side(s->queries);
    if (square != NULL && side * side != s->queries)
        sheaf__json_fail(r, SHEAF_E_LAYOUT, queries, "a square number: %s", square);
    else if (c->hidden % s->heads != 0)
        sheaf__json_fail(r, SHEAF_E_LAYOUT, "resampler_num_heads",
                         "a number that divides hidden_size, %" PRId64, c->hidden);
    else if (c->hidden % 4 != 0)
        sheaf__json_fail(r, SHEAF_E_LAYOUT, "hidden_size",
                         "a multiple of 4: positions of the resampler have four parts");
}

bool sheaf__tower_is_named(sheaf_json_reader *r, const char *key, const char *name,
                           const char *expected)
{
    const char *is = sheaf__json_string(r, key);
    if (r->st != NULL)
        return false;
    if (is != NULL && strncmp(is, name, strlen(name)) == 0)
        return true;
    sheaf_status *st =
        sheaf__json_fail(r, is == NULL ? SHEAF_E_FORMAT : SHEAF_E_UNSUPPORTED, key, "%s", expected);
    if (is == NULL)
        sheaf_found(st, "no such key");
    else
        sheaf_found(st, "\"%.100s\"", is);
    return false;
}

/* Blocks in the files: all, or all but the last. */
static void check_blocks(sheaf_json_reader *r, int64_t depth)
{
    const int64_t n = sheaf__json_int(r, "blocks_present", 1, SHEAF_MAX_LAYERS, depth);
    if (r->st == NULL && n != depth && n != depth - 1)
        sheaf_found(sheaf__json_fail(r, SHEAF_E_LAYOUT, "blocks_present",
                                     "%" PRId64 ", the tower's blocks, or one less", depth),
                    "%" PRId64, n);
}

void sheaf__tower_config(sheaf_json_reader *r, sheaf_vit *v, const sheaf__tower_keys *k)
{
    double ratio = 1;
    v->layers = sheaf__json_int(r, k->depth, k->least, SHEAF_MAX_LAYERS, SHEAF_JSON_NEEDED);
    v->hidden = sheaf__json_int(r, k->width, 1, MOST_WIDTH, SHEAF_JSON_NEEDED);
    v->heads = sheaf__json_int(r, k->heads, 1, MOST_HEADS, SHEAF_JSON_NEEDED);
    v->patch = sheaf__json_int(r, "patch_size", 1, MOST_PIXELS, k->timm ? 14 : SHEAF_JSON_NEEDED);
    v->channels = sheaf__json_int(r, k->channels, 1, 1024, 3);
    v->norm_eps = sheaf__json_real(r, "layer_norm_eps", 0, 1, 1e-6);
    v->vocab = 1;
    if (k->timm)
        ratio = sheaf__json_real(r, "mlp_ratio", 1e-3, 64, SHEAF_JSON_NEEDED_REAL);
    else
        v->ffn = sheaf__json_int(r, "intermediate_size", 1, MOST_WIDTH, SHEAF_JSON_NEEDED);
    const int64_t image = sheaf__json_int(r, k->image, 1, MOST_PIXELS, SHEAF_JSON_NEEDED);
    if (k->timm)
        check_blocks(r, v->layers);
    if (r->st != NULL)
        return;
    if (k->timm)
        v->ffn = (int64_t)((double)v->hidden * ratio); /* as Python's int() */
    const int64_t side = image / v->patch;
    v->positions = side * side;
    v->height = v->width = side * v->patch;
    if (side < 1 || side > SHEAF__TOWER_MOST_SIDE)
        sheaf__json_fail(r, SHEAF_E_LAYOUT, k->image, "1 to %d patches of %" PRId64 " pixels",
                         SHEAF__TOWER_MOST_SIDE, v->patch);
    else if (v->hidden % v->heads != 0)
        sheaf__json_fail(r, SHEAF_E_LAYOUT, k->heads,
                         "a number that divides the tower's width, %" PRId64, v->hidden);
    else if (v->ffn < 1)
        sheaf__json_fail(r, SHEAF_E_LAYOUT, "mlp_ratio", "an MLP of at least one row");
}
