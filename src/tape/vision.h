/* vision.h - the ops that only vision-language models have: images to patches, LayerNorm
 * (also on a cut width), GELU, positions on a grid, image rows in a sequence, two streams
 * of rows, cross-attention.
 *
 * Rows of a decoder fall into two streams: those of image tokens, which use the visual
 * experts, and the others. Each stream is a value of its own, so that an expert is an
 * ordinary linear layer on the rows of its stream; only attention and the end of the
 * decoder see the rows of the sequences in their order. */
#pragma once

#include "schema/family.h"
#include "tape/layers.h"

/* The images of one run; pointers are read when the tape runs. Lists of rows are the device's. */
typedef struct sheaf__images_in {
    const sheaf__picture *picture; /* [images] the host's; NULL: a plan knows none */
    const int32_t *image_row; /* [images * (patches + 2)] rows (of batch * queries) that hold BOI,
                                 patches, EOI; without the two where a family has none */
    /* rows of the text stream, rows of the image stream; each ascending */
    const int32_t *stream[2];
} sheaf__images_in;

/* A vector or table that is whole on every rank: class token, positions, BOI and EOI. */
typedef struct sheaf__vector {
    const char *name;
    int64_t rows, width;
    float *data;             /* [rows, width], rounded to the compute dtype */
    sheaf__trained *trained; /* or NULL */
} sheaf__vector;

/* Weight and bias of a LayerNorm, or with `plain` the weight of an RMSNorm: the mean and the bias
 * are zero, y = round(w * n). Of a cut width a rank holds its slices' columns one after the
 * other, at `begin` as in sheaf__linear; of a whole one all of it, and the tree is not read. */
typedef struct sheaf__layernorm {
    const char *name;
    int64_t width; /* logical */
    float eps;
    bool cut, plain;
    bool one;         /* plain: the factor is 1 + weight, as in sheaf__norm */
    int first, count; /* owned slices; whole: 0, 1 */
    int64_t begin[SHEAF_MAX_SLICES], extent[SHEAF_MAX_SLICES]; /* by slice; whole: [0] = 0, width */
    int64_t owned, logical0; /* columns held here, and the logical index of the first */
    sheaf_tree tree;         /* cut: of the slices that are not empty */
    float *weight, *bias;    /* [owned], rounded to the compute dtype; plain: zeros */
    sheaf__trained *weight_trained, *bias_trained; /* by slice as in trained.h; or NULL */
} sheaf__layernorm;

/* sheaf__record_patches - [images * patches, channels * patch * patch] in the compute dtype:
 * patches row by row, each in the order of a convolution's weight (channel, y, x). No gradient.
 * Reads in->picture[0..images)->of[number]. Running fails with SHEAF_E_ARG for an image whose size
 * is not the tower's. */
sheaf__value *sheaf__record_patches(sheaf__tape *tape, const sheaf__images_in *in, int64_t images,
                                    const sheaf__tower *tower, int number);
/* sheaf__record_tokens - [images * (patches + 1), width]: the class token (one row), then the
 * patches, each plus its row of `positions` [patches + 1, width]: round(x + position). */
sheaf__value *sheaf__record_tokens(sheaf__tape *tape, sheaf__value *patches, int64_t images,
                                   sheaf__vector *class_token, sheaf__vector *positions);
/* sheaf__record_grid - drops each image's class token; positions [patches, width] are added when
 * not NULL: round(x + position). */
sheaf__value *sheaf__record_grid(sheaf__tape *tape, sheaf__value *tokens, int64_t images,
                                 sheaf__vector *positions);

/* sheaf__record_blocks - [rows / side^2, width * side^2]: the patches of each square block of x,
 * whose rows are those of grids `across` wide, line by line and one grid behind the other. Blocks
 * go line by line too, each in the order of a convolution's weight (channel, y, x): a linear layer
 * behind it is a convolution of that kernel and stride. Height and width of a grid are multiples of
 * `side`. */
sheaf__value *sheaf__record_blocks(sheaf__tape *tape, sheaf__value *x, int64_t across,
                                   int64_t side);

/* sheaf__record_layernorm - round(w * n + b), and round(that + residual) when residual is given.
 * x is whole (norm->cut false) or cut like the norm; then residual must be NULL. */
sheaf__value *sheaf__record_layernorm(sheaf__tape *tape, sheaf__value *x, sheaf__layernorm *norm,
                                      sheaf__value *residual);
/* sheaf__record_gelu - by erf, or its approximation by tanh. */
sheaf__value *sheaf__record_gelu(sheaf__tape *tape, sheaf__value *x, bool tanh);
/* sheaf__record_rope_grid - turns x [images * (patches + 1), heads * head_dim] in place, the class
 * token left alone; cos, sin [patches, head_dim] borrowed. */
void sheaf__record_rope_grid(sheaf__tape *tape, sheaf__value *x, const float *cos, const float *sin,
                             int64_t images, int64_t heads, int64_t head_dim);

/* sheaf__record_place_images - writes boi, the image's rows of v [images * patches, width], and
 * eoi over the rows of x that in->image_row names, in place; their old values get no gradient.
 * boi, eoi NULL: there are no such rows, and images may have any number of them each.
 * Nothing may read x before: where it needed no gradient, it does from here on if v, boi or eoi do.
 */
void sheaf__record_place_images(sheaf__tape *tape, sheaf__value *x, sheaf__value *v, int64_t images,
                                sheaf__vector *boi, sheaf__vector *eoi, const sheaf__images_in *in);

/* sheaf__record_around - [images * (patches + 2), width]: of each image boi, its rows of v, eoi. */
sheaf__value *sheaf__record_around(sheaf__tape *tape, sheaf__value *v, int64_t images,
                                   sheaf__vector *boi, sheaf__vector *eoi);

/* sheaf__record_split - stream[i] = the rows of x that in->stream[i] names, rows[i] of them; every
 * row of x is in one stream. A stream without rows becomes NULL; with one stream only, it is x
 * itself (when in->stream is then NULL or the identity) and nothing is recorded. */
void sheaf__record_split(sheaf__tape *tape, sheaf__value *stream[2], sheaf__value *x,
                         const int64_t rows[2], const sheaf__images_in *in);
/* sheaf__record_join - its inverse. */
sheaf__value *sheaf__record_join(sheaf__tape *tape, sheaf__value *const stream[2],
                                 const int64_t rows[2], const sheaf__images_in *in);

/* sheaf__record_full_attention - every query of a sequence sees all `keys` of it: vision towers
 * (keys == queries) and cross-attention. heads->window is ignored. cache NULL: k, v are values
 * [batch * keys, owned]. With a cache of `length` == keys: k and v given: they are stored there
 * first; NULL: read from it. `in` says where each sequence lies in it; NULL: in order. */
sheaf__value *sheaf__record_full_attention(sheaf__tape *tape, sheaf__value *q, sheaf__value *k,
                                           sheaf__value *v, const sheaf__heads *heads, int64_t keys,
                                           const sheaf__rows_in *in, const sheaf__cache *cache);

/* Compute copies from the masters, after an update. */
void sheaf__layernorm_refresh(sheaf__context *context, sheaf__layernorm *norm);
void sheaf__vector_refresh(sheaf__context *context, sheaf__vector *vector);
