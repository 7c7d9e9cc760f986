/* tower.h - a vision transformer with a resampler behind it, before a decoder of Llama's kin
 * (OmniLMM, MiniCPM-V): names of its tensors, building and recording.
 *
 *   tower      x = [class;] patches + positions
 *              x += proj(attention(qkv LN1 x));  x += fc2(gelu(fc1 LN2 x));  or norms behind:
 *              x += LN1(proj(attention(qkv x)));  x += LN2(fc2(gelu(fc1 x)))
 *              LN x, without the class row
 *   resampler  see models/resampler.h */
#pragma once

#include "families/llama/llama.h"
#include "models/resampler.h"
#include "tape/pictures.h"

typedef struct sheaf__tower_names {
    const char *tower, *resampler; /* prefixes of their names */
    const char *patch[2], *class_token /* NULL: none */, *positions, *norm;
    bool table;        /* positions are a table [rows, width], not [1, rows, width] */
    const char *block; /* "blocks.%lld." */
    const char *norm1, *norm2, *q[2], *k[2], *v[2], *proj[2]; /* weight and bias; NULL: none */
    bool fused; /* q, k and v are one weight, and one bias if k has one */
    bool norms_after;
    bool tanh;                       /* GELU with tanh */
    sheaf__position_kind grid, keys; /* of the tower's positions; of the resampler's keys */
    const char *size_key;            /* config key: side of the pictures it was trained on */
    bool drops;              /* "drop_vision_last_layer": the last block may be left out of files */
    const char *queries_key; /* config key: number of the resampler's queries */
    bool queries;            /* the positions of the resampler's queries are in the files */
} sheaf__tower_names;

typedef struct sheaf__tower_block sheaf__tower_block;
struct sheaf__towers {
    sheaf__linear patch;
    sheaf__vector class_token, positions;
    sheaf__tower_block *block;
    sheaf__layernorm norm;
    sheaf__resampler resampler;
};

/* ---- its config ---- */

/* Keys of an object that describes a tower: timm's, or those of transformers' SigLIP. */
typedef struct sheaf__tower_keys {
    const char *depth, *width, *heads, *channels, *image;
    bool timm;
    int64_t least; /* blocks */
} sheaf__tower_keys;
enum { SHEAF__TOWER_MOST_SIDE = 1 << 10 }; /* patches */

/* sheaf__tower_config - config.vit, at the size of the pictures it was trained on: all blocks, and
 * a position for each patch. */
void sheaf__tower_config(sheaf_json_reader *r, sheaf_vit *v, const sheaf__tower_keys *keys);
/* sheaf__tower_is_named - does `key` begin with the name of timm's tower `name`? If not, fails with
 * `expected`. */
bool sheaf__tower_is_named(sheaf_json_reader *r, const char *key, const char *name,
                           const char *expected);
/* sheaf__resampler_config - config.resampler, after config.hidden; `queries` is the key of their
 * number. square: why that must be a square number, or NULL. */
void sheaf__resampler_config(sheaf_json_reader *r, sheaf_config *c, const char *queries,
                             const char *square);

/* ---- fields of the descriptor of a family with such a tower before a decoder of Llama's kin ----
 */

/* sheaf__tower_rows - of decoder, tower and resampler. */
sheaf_status *sheaf__tower_rows(sheaf_schema *schema);
/* sheaf__tower_build - m->towers; all parts are on the first stage. Called by sheaf__llama_build().
 */
sheaf_status *sheaf__tower_build(sheaf__model *m);
sheaf__value *sheaf__tower_encode(sheaf__model *m, sheaf__tape *tape, const sheaf__pass *pass,
                                  int tower);
void sheaf__tower_place(sheaf__model *m, sheaf__tape *tape, sheaf__value *x, sheaf__value *image,
                        const sheaf__pass *pass);
/* sheaf__tower_spare - is it a tensor of the tower's last block, which is not run? */
bool sheaf__tower_spare(const char *name, const sheaf_config *c);
bool sheaf__tower_idle(const char *name, bool (*has)(const void *self, const char *begin),
                       const void *self);
float sheaf__tower_buffer(const sheaf_tensor *t, const sheaf_config *c, int64_t index);
sheaf_status *sheaf__tower_advise(sheaf_status *st, const sheaf_config *c, const char *name,
                                  const int64_t *shape, int ndim);

#define SHEAF__LIKE_TOWER                                                                          \
    .position_key = "max_position_embeddings", .rows = sheaf__tower_rows,                          \
    .idle = sheaf__tower_idle, .advise = sheaf__tower_advise, .buffer = sheaf__tower_buffer,       \
    .build = sheaf__llama_build, .encode = sheaf__tower_encode, .place = sheaf__tower_place
