/* schema.h - the logical tensors of a model: names, shapes, axes, cuts. Data only. */
#pragma once

#include "schema/config.h"
#include "sheaf/cut.h"
#include "sheaf/schema.h"

typedef enum sheaf_role {
    SHEAF_EMBED,
    SHEAF_HEAD,
    SHEAF_Q,
    SHEAF_K,
    SHEAF_V,
    SHEAF_O,
    SHEAF_GATE,
    SHEAF_UP,
    SHEAF_DOWN,
    SHEAF_NORM_IN,
    SHEAF_NORM_POST,
    SHEAF_NORM_FINAL,
    SHEAF_QKV,     /* q, k and v in one weight, */
    SHEAF_GATE_UP, /* gate and up in one */
    SHEAF_NORM_Q,  /* of queries, of keys */
    SHEAF_NORM_K,
    SHEAF_NORM_AFTER_ATTENTION, /* of what a layer adds to the residual stream */
    SHEAF_NORM_AFTER_MLP,
    SHEAF_ROLES,
    /* CogVLM, CogAgent and Mixtral, where names say more: */
    SHEAF_LINEAR, /* any other linear layer; of Mixtral: the router, and those of experts */
    SHEAF_NORM,   /* weight or bias of any other norm */
    SHEAF_OTHER,  /* none: tables of positions, convolutions, vectors, buffers */
} sheaf_role;

typedef struct sheaf_tensor {
    char *name;   /* canonical = Hugging Face's, "model.layers.0.self_attn.q_proj.weight"; of CogVLM
                     and CogAgent SAT's, "transformer.layers.0.attention.query_key_value.weight" */
    char *module; /* name without ".weight" / ".bias" */
    sheaf_role role; /* of the weight; a bias has its weight's role */
    bool bias;
    bool buffer;    /* computed when the model is made, not trained */
    bool zero;      /* begins as zero in a new model: what it holds is added to a tower's rows */
    bool idle;      /* lies in the files, but no pass reads it: never trained */
    bool bare;      /* of a mixture, the router or an expert's matrix: transformers 5 has it as a
                       parameter without nn.Linear, which bitsandbytes would quantise */
    bool sat_split; /* each part of a SAT checkpoint holds its part of `cut`; false: a copy,
                       whatever `cut` says */
    int layer;      /* -1 outside layers; counted within its own stack (text, ViT, tower) */
    int ndim;
    int64_t shape[SHEAF_TENSOR_MAX_DIMS]; /* 1 from ndim on */
    int in_axis,
        out_axis;  /* of a weight, -1 when it has none (an embedding's in axis is 0, out 1) */
    sheaf_cut cut; /* nparts 0 = replicated */
    /* The parameter that transformers 5 holds it in, where that is not a tensor of the same name.
     * Those of all experts of a layer are one, [members, rows, columns], of which this is `member`,
     * rows [row, row + shape[0]); with members 1 and 2 axes it has another name alone. */
    struct {
        char *of; /* its path, "model.layers.0.mlp.experts.gate_up_proj"; NULL: there is none */
        int ndim;
        int64_t member, members, row, rows;
    } stack;
} sheaf_tensor;

struct sheaf_schema {
    sheaf_config config; /* a copy with borrowed strings set to NULL */
    int slices;
    int64_t count;
    sheaf_tensor
        *tensor;      /* model order: embedding, layers (input norm, q, k, v with biases, their
                         norms, o, norm after it, post norm, gate, up, down, norm after it; Mixtral: the
                         router and of each expert w1, w2, w3),
                         final norm, head. What a model lacks is absent, so is a tied head.
                         CogVLM, CogAgent: the order of SAT's files. */
    int64_t *by_name; /* indices sorted by name */
};

/* sheaf_schema_new - errors: SHEAF_E_LAYOUT when the config contradicts itself (heads not
 * a multiple of kv_heads, odd head_dim, ...). */
sheaf_status *sheaf_schema_new(sheaf_schema **out, const sheaf_config *config, int slices);
/* sheaf_schema_find - NULL if there is none of that name. */
const sheaf_tensor *sheaf_schema_find(const sheaf_schema *schema, const char *name);
/* sheaf__is_linear_weight - the weight of a linear layer, not of the head and no table? Parameters
 * without a layer of their own (in_proj_weight, the resampler's proj) are none, nor is out_proj of
 * nn.MultiheadAttention, which reads its weight itself. */
bool sheaf__is_linear_weight(const sheaf_tensor *tensor);
/* sheaf__is_quantisable - is this what bitsandbytes quantises? Of these all but bare ones. */
bool sheaf__is_quantisable(const sheaf_tensor *tensor);
/* sheaf_schema_get - by role; bias false = weight. NULL when absent (a tied head: use
 * SHEAF_EMBED). */
const sheaf_tensor *sheaf_schema_get(const sheaf_schema *schema, sheaf_role role, int layer,
                                     bool bias);
