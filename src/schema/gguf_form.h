/* gguf_form.h - how llama.cpp has the models of a family in GGUF files: their architecture and the
 * names of their tensors, and those of the tower in a file of its own. The table of a text model is
 * used in both directions (dialects/gguf). */
#pragma once

#include "schema/spelling.h"

/* Keys of an architecture that llama.cpp reads beyond the common ones. */
enum {
    SHEAF__GGUF_VOCAB_SIZE = 1, /* vocab_size */
    SHEAF__GGUF_ROPE_SIZE = 2,  /* rope.dimension_count */
    SHEAF__GGUF_HEAD_SIZE = 4,  /* attention.key_length, attention.value_length, always */
    SHEAF__GGUF_SCALES = 8,     /* embedding_scale, residual_scale, logit_scale */
    SHEAF__GGUF_WINDOW = 16,    /* attention.sliding_window: layers with a window follow its rule */
    /* the same, and 0 where there is none; with rope.scaling.original_context_length */
    SHEAF__GGUF_WINDOW_OR_0 = 32,
    /* Angles that are not powers of one number: rope_freqs.weight (Llama 3), or rope_factors_long
     * and rope_factors_short (LongRoPE). */
    SHEAF__GGUF_ROPE_FREQS = 64,
    SHEAF__GGUF_ROPE_FACTORS = 128,
    SHEAF__GGUF_TIED = 256,    /* its head is always the table */
    SHEAF__GGUF_CHATGLM = 512, /* its config has ChatGLM's keys, and angles without scaling */
};

typedef struct sheaf__gguf_form {
    const char *architecture; /* general.architecture, with which other keys begin */
    /* Hugging Face's beginnings of names and GGUF's, '#' for the layer: what follows is the same.
     * A name of Hugging Face's that no rule holds for is not written. */
    const sheaf__name_rule *names;
    /* Of a mixture: what stands between layer and number of an expert in its names ("mlp.experts.")
     * and rules for what follows ("gate_proj.", "ffn_gate_exps."): experts of a layer are one
     * tensor there, whose last axis counts them. NULL: none. */
    const char *experts;
    const sheaf__name_rule *expert_names;
    unsigned keys; /* SHEAF__GGUF_... */
    /* In each head's rows of q and k the two of a pair that turns together are neighbours there and
     * half a head apart here: row 2 i + j is row i + j d / 2, of weights and biases. */
    bool neighbours;
    bool norms_plus_one; /* norms hold 1 + w */
    const char *pre; /* name of its tokenizer's patterns, where they are Llama 3's; NULL: Llama's */
    /* Layers that this architecture has with no window, or (no_rope) without rotary embedding:
     * every so many-th one; 0: not its business. */
    int every_full, every_no_rope;
} sheaf__gguf_form;

/* A tensor in the file of a tower and its resampler, in its order there. */
typedef struct sheaf__gguf_piece {
    const char *name; /* '#' for the block of the tower, of which one list follows the other; NULL
                         ends the list */
    const char *from; /* Hugging Face's name; NULL: sines and cosines of the tower's grid
                         (schema/grid.h), which resamplers add to their keys */
    int third;        /* 1, 2 or 3: these rows of it; 0: all */
    bool turned;      /* with rows and columns exchanged */
} sheaf__gguf_piece;

typedef struct sheaf__gguf_projector {
    const sheaf__gguf_piece *pieces;
    int32_t version;  /* clip.minicpmv_version */
    bool places_lost; /* llama.cpp gives patches other rows of the table of positions */
} sheaf__gguf_projector;
