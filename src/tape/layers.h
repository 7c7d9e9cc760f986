/* layers.h - the ops of a decoder layer besides its linear layers: embedding, RMSNorm (of rows, of
 * heads), rotary embedding, attention (with or without a cache), SwiGLU. */
#pragma once

#include "ops/matmul/matmul.h"
#include "schema/config.h"
#include "tape/stored_rows.h"
#include "tape/tape.h"
#include "tape/trained.h"

/* Inputs of one run besides the weights; pointers are read when the tape runs. */
typedef struct sheaf__rows_in {
    const int32_t *ids;      /* [rows] token ids, checked against the table by the caller */
    const int32_t *position; /* [rows] for the rotary embedding */
    const uint8_t *key_mask; /* [batch, mask_ld] or NULL */
    /* The same where the host can read them. ids NULL: a plan does not know them. */
    struct {
        const int32_t *ids, *position;
        const uint8_t *key_mask;
    } host;
    int64_t mask_ld;
    int64_t keys; /* keys per sequence including the new ones (cache) */
    /* [batch] the same where sequences differ, none above `keys`, the host's; NULL: they do not.
     * Read with a cache only */
    const int64_t *keys_of;
    /* [batch] which of the cache's sequences each is, none twice, the host's; NULL: those from the
     * first on. Read with a cache only */
    const int64_t *place_of;
    /* Sequences packed end to end, as sheaf__attention has them; NULL: they are not. Read without a
     * cache only */
    const int64_t *segment;
    int64_t segments;
} sheaf__rows_in;

/* A vocabulary table [vocab, width], cut by rows. Values come from one of four places. */
typedef struct sheaf__table {
    const char *name;
    int64_t vocab, width;
    sheaf_cut cut;
    sheaf__stored_rows stored;   /* the model's files, where `print` is set; or */
    const sheaf__packed *packed; /* by slice: a tied head's panels; or */
    sheaf__trained *trained; /* its masters; of a divided set with `rows` or `packed` beside them */
    void *rows;              /* owned rows, in the compute dtype */
    bool panels;             /* trained, and `packed` is read all the same */
    struct sheaf__lora_part *lora; /* factors beside it (A by tokens, cut as it is), or NULL */
    int64_t padding; /* 1 + the row whose lookups teach nothing (torch's padding_idx); 0: none */
} sheaf__table;

typedef struct sheaf__norm {
    const char *name;
    int64_t width;
    float eps;
    bool once;     /* y = round(w * n), not round(w * round(n)) */
    bool one;      /* its factor is 1 + weight, added in float32 */
    float *weight; /* [width], rounded to the compute dtype; the factor */
    sheaf__trained *trained;
} sheaf__norm;

typedef struct sheaf__rope_table {
    int64_t positions, rot; /* rot: how many channels of a head turn */
    float *cos, *sin;       /* [positions, angles], rounded to the compute dtype or not */
    /* Of a type whose angles depend on the length of a sequence: called with its last position plus
     * 1, padding left out, before its rows turn. NULL: they do not. */
    sheaf_status *(*lengthen)(struct sheaf__rope_table *table, sheaf__device *device,
                              int64_t length);
    const sheaf_config *config;   /* of lengthen */
    sheaf_dtype dtype;            /* that its numbers are rounded to */
    int64_t length;               /* that the table is for; 0: as it was made */
    float *other_cos, *other_sin; /* the table used before; its length, -1: none */
    int64_t other_length;
    bool pairs; /* neighbours (2j, 2j + 1) turn, not halves (j, j + rot / 2); each angle is there
                   twice */
} sheaf__rope_table;

/* sheaf__rope_angles - of one position in the table. */
static inline int64_t sheaf__rope_angles(const sheaf__rope_table *table)
{
    return table->pairs ? table->rot : table->rot / 2;
}

struct sheaf__linear;

/* Keys and values of earlier tokens of one layer: of its own attention [batch, owned heads, length,
 * head_dim], of one to pictures [batch, length, owned width]. */
typedef struct sheaf__cache {
    void *k, *v;
    int64_t length;
} sheaf__cache;

typedef struct sheaf__heads {
    int64_t batch, queries;
    int64_t kv_heads, group, head_dim; /* owned key/value heads */
    int64_t window;
    double scalar; /* scores are divided by its square root; 0: head_dim */
    float cap;     /* as sheaf__attention has it */
} sheaf__heads;

sheaf__value *sheaf__record_embedding(sheaf__tape *tape, const sheaf__table *table, int64_t rows,
                                      const sheaf__rows_in *in);
/* sheaf__record_embedding_lora - x, the rows of the table, and what table->lora adds to them. The
 * table itself is not trained. */
sheaf__value *sheaf__record_embedding_lora(sheaf__tape *tape, sheaf__value *x,
                                           const sheaf__table *table, const sheaf__rows_in *in);
sheaf__value *sheaf__record_rmsnorm(sheaf__tape *tape, sheaf__value *x, sheaf__norm *norm);
/* sheaf__record_head_norm - of each head of x [rows, owned heads * norm->width] by itself, with one
 * weight for all. The weight's gradient is summed over the slices of the heads: `like` is the layer
 * cut along its output that gave x. */
sheaf__value *sheaf__record_head_norm(sheaf__tape *tape, sheaf__value *x, sheaf__norm *norm,
                                      const struct sheaf__linear *like);
/* Turns x [rows, heads * head_dim] in place; queries: rows of a sequence. */
void sheaf__record_rope(sheaf__tape *tape, sheaf__value *x, sheaf__rope_table *table, int64_t heads,
                        int64_t head_dim, int64_t queries, const sheaf__rows_in *in);
/* cache NULL: keys are this run's own. Otherwise k, v are appended at keys - queries first, those
 * of each sequence behind its own. */
sheaf__value *sheaf__record_attention(sheaf__tape *tape, sheaf__value *q, sheaf__value *k,
                                      sheaf__value *v, const sheaf__heads *heads,
                                      const sheaf__rows_in *in, const sheaf__cache *cache);
/* sheaf__record_swiglu - or with `gelu` GeGLU, by tanh. */
sheaf__value *sheaf__record_swiglu(sheaf__tape *tape, sheaf__value *gate, sheaf__value *up,
                                   bool gelu);

/* NEFTune: noise on the embedding's rows while a model is trained; the gradient passes unchanged.
 * Pointers are read when the tape runs. */
typedef struct sheaf__noise_in {
    const struct sheaf__step_info *info; /* of the rows of x: seed, step, sample and position */
    const float *half;                   /* [rows] the largest noise of each row */
} sheaf__noise_in;

/* sheaf__record_noise - x [rows, width] = round(x + half[row] * t), t uniform in (-1, 1). */
void sheaf__record_noise(sheaf__tape *tape, sheaf__value *x, const sheaf__noise_in *in);

/* sheaf__noise_half - alpha / sqrt(tokens * width), as the paper has it (Jain et al. 2023); 0 for a
 * row of no tokens. */
float sheaf__noise_half(double alpha, int64_t tokens, int64_t width);

/* sheaf__table_refresh - rows, where it has some beside its masters, and factors. */
void sheaf__table_refresh(sheaf__context *context, const sheaf__table *table);
/* sheaf__norm_refresh - weight from the masters. */
void sheaf__norm_refresh(sheaf__context *context, sheaf__norm *norm);
/* sheaf__owners - of n rows of a cut table, by token.
 *   owner  out: [n]
 *   known  [n] tokens that the table has; one below 0 is rank 0's. NULL, of a plan: not known; as
 *          if they were spread evenly */
void sheaf__owners(const sheaf__context *context, int32_t *owner, const sheaf_cut *cut,
                   const int32_t *known, int64_t n);
