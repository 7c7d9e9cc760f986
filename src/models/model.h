/* model.h - a model on one rank, of any family.
 *
 * A model holds the slices its rank owns, packed for the matmul op, and what a run
 * trains. It reads tensors from a sheaf_source and knows no files. All families share
 * one decoder (decoder.c); what differs is which tensors it is built of (families/)
 * and that vision-language models put an image's rows into the sequence. */
#pragma once

#include "lora/adapter.h"
#include "models/placement.h"
#include "schema/family.h"
#include "schema/schema.h"
#include "sheaf/source.h"
#include "tape/head.h"
#include "tape/layers.h"
#include "tape/linear.h"
#include "tape/pictures.h"
#include "tape/vision.h"

/* The linear layers of a decoder layer; visual experts are a second set. */
typedef struct sheaf__expert {
    sheaf__linear q, k, v, o, gate, up, down;
} sheaf__expert;

/* In place of an MLP: experts, of which each row takes those that the router likes most. */
typedef struct sheaf__mixture {
    int64_t num_experts, top_k;
    sheaf__linear router;
    struct {
        sheaf__linear gate, up, down;
    } expert[];
} sheaf__mixture;

enum { SHEAF__TEXT, SHEAF__IMAGE, SHEAF__STREAMS };
/* What the rows of a linear layer are: those of a stream, or an image's: inside a tower of the
 * family's list (the class row first), its patches after that, and the rows that are given for it
 * (a resampler's). */
enum {
    SHEAF__KINDS_OF_TOWER = 3,
    SHEAF__ROW_KINDS = SHEAF__STREAMS + SHEAF__KINDS_OF_TOWER * SHEAF__MOST_TOWERS
};
static inline int sheaf__rows_inside(int tower)
{
    return SHEAF__STREAMS + SHEAF__KINDS_OF_TOWER * tower;
}
static inline int sheaf__rows_after(int tower)
{
    return SHEAF__STREAMS + SHEAF__KINDS_OF_TOWER * tower + 1;
}
static inline int sheaf__rows_given(int tower)
{
    return SHEAF__STREAMS + SHEAF__KINDS_OF_TOWER * tower + 2;
}

/* What a family has none of has no name. Its builder says what a layer is; decoder.c reads it. */
typedef struct sheaf__layer {
    sheaf__norm norm_in, norm_post; /* before attention, before the MLP */
    sheaf__layernorm norm_after[2]; /* of what attention and the MLP add to the residual stream */
    sheaf__norm norm_q, norm_k;     /* of each head */
    sheaf__layernorm whole_q, whole_k; /* of all heads together, cut as they are */
    sheaf__rope_table *rope;           /* NULL: nothing turns */
    bool gelu;                         /* gates by gelu, not silu */
    int64_t window;                    /* keys that a query sees, 0 = all */
    sheaf__expert
        expert[SHEAF__STREAMS]; /* of an image's tokens, in layers that have it; else the text's */
    sheaf__mixture *mixture;    /* NULL: an MLP */
    bool has_expert, has_cross;
    sheaf__norm norm_cross;
    sheaf__linear cross_q, cross_k, cross_v, cross_o;
} sheaf__layer;

typedef struct sheaf__model_options {
    const sheaf_lora *lora; /* adapter to train or use, NULL = none; borrowed */
    bool train_lora;        /* its factors (and saved tensors) are trained */
    /* Which base tensors are trained besides (methods full, head); NULL = none. */
    bool (*trains)(void *self, const sheaf_tensor *tensor);
    void *self;
    bool divided;      /* groups share what is trained (tape/trained.h) */
    bool backward;     /* a backward pass will run: pack for it */
    int64_t positions; /* length of the rotary table */
    int64_t sequences; /* that are generated together at most, or 0: for so few, weights may be held
                          compressed (ops/matmul/matmul.h) */
    uint64_t seed;     /* of fresh LoRA factors */
    /* which layers lie on which stage, NULL = all here; borrowed. Only for inference */
    const sheaf__placement *place;
} sheaf__model_options;

/* One thing that is loaded and refreshed: see build.h. */
typedef struct sheaf__module sheaf__module;
/* One block of its device memory, but those of what is trained, and the tensor that it is for. */
typedef struct sheaf__block {
    const char *name;
    void *at;
} sheaf__block;
/* The vision towers, as their family keeps them. */
typedef struct sheaf__towers sheaf__towers;

/* The trained tensors of one LoRA module, which the parts of a fused layer share. */
typedef struct sheaf__factors {
    sheaf__trained *a, *b;
    sheaf__lora_part *part; /* [parts] */
    int parts;
} sheaf__factors;

typedef struct sheaf__model {
    sheaf__context *context;    /* borrowed */
    const sheaf_schema *schema; /* borrowed */
    sheaf__model_options options;
    sheaf__table embedding;
    sheaf__layer *layer; /* of all; built are [first_layer, end_layer), those of this stage */
    int64_t first_layer, end_layer;
    bool begins,
        ends; /* this stage has the embedding and the towers; the final norm and the head */
    sheaf__norm norm;
    sheaf__linear head;
    float scale;  /* the embedding's rows are multiplied by it, rounded as they are; 0: not */
    float times;  /* the same, in float32 (tape/scaled.h) */
    float branch; /* what a layer adds to the residual stream is multiplied by it; 0: it is not */
    float divide; /* the head reads rows divided by it; 0: as they are */
    sheaf__rope_table rope;  /* of the layers that turn */
    sheaf__rope_table local; /* of those with a window, where they have their own */
    sheaf__towers *towers; /* may be NULL on a stage without them; see sheaf__model_has_images() */
    sheaf__trained_set *trained; /* empty when nothing is trained */
    sheaf__factors *lora;        /* [options.lora->nmodules] */
    sheaf__module *module;       /* in the order of building */
    sheaf__block *block;
    int64_t module_capacity, nblocks, block_capacity;
    int nmodules;
} sheaf__model;

/* Keys and values of earlier tokens, and of the images: what generation keeps between runs. */
typedef struct sheaf__kv_cache {
    sheaf__cache *self, *cross; /* one per layer; cross: k NULL where a layer has none */
    int64_t layers;
} sheaf__kv_cache;

/* What the towers made of the pictures of one sequence, kept by each rank that has them. */
typedef struct sheaf__image_cache {
    /* rows of each, NULL where nothing reads them; compute dtype */
    void *given[SHEAF__MOST_TOWERS];
    bool full; /* a run has filled it: the next ones leave the towers out. Set by the caller, on all
                  ranks alike */
} sheaf__image_cache;

/* Observes values on the way, for tests and for looking into a model: called when they are
 * recorded, in both streams where rows are in two (see SHEAF__TEXT), so that it may pin them. */
typedef struct sheaf__stages {
    void (*on_value)(void *self, sheaf__tape *tape, const char *stage, int layer, int stream,
                     sheaf__value *value);
    void *self;
} sheaf__stages;

/* What is run. Borrowed pointers are read when the tape runs. */
typedef struct sheaf__pass {
    int64_t batch, queries; /* sequences, and tokens of each */
    const sheaf__rows_in *in;
    /* [SHEAF__ROW_KINDS]; of a model without images only that of SHEAF__TEXT is read */
    const sheaf__step_info *info;
    sheaf__head_run *head;
    const sheaf__kv_cache *kv_cache; /* NULL: nothing is kept */
    int64_t images; /* whose rows are among these tokens; 0 without, and after the first run */
    int64_t patches[SHEAF__MOST_TOWERS]; /* of all of them, by tower */
    int64_t image_rows;                  /* rows that use the visual experts */
    const sheaf__images_in *images_in;
    const sheaf__image_cache *image_cache; /* of these images, or NULL: filled, or used when it is
                                  full; their pixels are not read then */
    bool image_rows_unread;       /* the head reads none of them: their last MLP is left out */
    const sheaf__noise_in *noise; /* on the embedding's rows; NULL: none */
    const sheaf__stages *stages;  /* may be NULL */
} sheaf__pass;

/* sheaf__model_has_images - does it read images, on whichever stage the towers are? */
static inline bool sheaf__model_has_images(const sheaf__model *model)
{
    return sheaf__image_positions(&model->schema->config) > 0;
}

/* sheaf__model_new - allocates everything on the device; on dry that is all there is. Errors:
 * SHEAF_E_UNSUPPORTED for heads that are wider than attention takes. */
sheaf_status *sheaf__model_new(sheaf__model **out, sheaf__context *context,
                               const sheaf_schema *schema, const sheaf__model_options *options);
/* sheaf__model_load - reads the owned slices. `base` is borrowed for as long as the model lives:
 * rows of a frozen vocabulary table are read from it when a token needs them. adapter NULL: fresh
 * LoRA factors (A uniform in +-1/sqrt(in), B zero; of a table A zero, B normal), each a function of
 * (seed, tensor name, logical index). */
sheaf_status *sheaf__model_load(sheaf__model *model, sheaf_source *base, sheaf_source *adapter);
void sheaf__model_free(sheaf__model *model);
/* sheaf__model_set_sequences - `sequences` will be generated together: where weights are compressed
 * for fewer, they no longer are. Same results. */
void sheaf__model_set_sequences(sheaf__model *model, int64_t sequences);
/* sheaf__model_refresh - compute copies from the masters, after an update or a resume; those of a
 * divided set from what sheaf__trained_publish() left. */
void sheaf__model_refresh(sheaf__model *model);
/* sheaf__model_bad_weight - the first tensor, in the order of building, of which some rank holds
 * a number that is not finite; its name, borrowed, or NULL. Collective. */
sheaf_status *sheaf__model_bad_weight(const char **name, const sheaf__model *model);
/* sheaf__model_record - the whole pass onto `tape`. */
void sheaf__model_record(sheaf__model *model, sheaf__tape *tape, const sheaf__pass *pass);

/* sheaf__kv_cache_new - caches of `length` positions for `batch` sequences; release also after a
 * failure. */
sheaf_status *sheaf__kv_cache_new(sheaf__kv_cache *out, sheaf__model *model, int64_t batch,
                                  int64_t length);
void sheaf__kv_cache_release(sheaf__kv_cache *kv_cache, sheaf__model *model);

/* sheaf__image_cache_new - empty, for so many images; on ranks without the towers nothing is taken.
 * Release also after a failure. */
sheaf_status *sheaf__image_cache_new(sheaf__image_cache *out, sheaf__model *model, int64_t images);
void sheaf__image_cache_release(sheaf__image_cache *image_cache, sheaf__model *model);
