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
#include "tape/angles.h"
#include "tape/head.h"
#include "tape/layers.h"
#include "tape/linear.h"
#include "tape/pictures.h"
#include "tape/vision.h"

/* The linear layers of a decoder layer; visual experts are a second set. */
typedef struct sheaf__expert {
    sheaf__linear q, k, v, o, gate, up, down;
} sheaf__expert;

/* A mixture of experts in place of an MLP: the router selects top_k experts for each row. */
typedef struct sheaf__mixture {
    int64_t num_experts, top_k;
    int64_t number; /* among the layers with experts */
    bool
        of_all; /* weights are the probabilities themselves, not shares of those that were chosen */
    sheaf__linear router;
    struct {
        sheaf__linear gate, up, down;
    } expert[];
} sheaf__mixture;

enum { SHEAF__TEXT, SHEAF__IMAGE, SHEAF__STREAMS };
/* The rows of a linear layer: of a stream, or of images: inside a tower (the class row first), its
 * patches behind the tower, and the rows that it passes on (a resampler's). */
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

/* The family's builder fills it, decoder.c reads it; parts that the family lacks have no name. */
typedef struct sheaf__layer {
    sheaf__norm norm_in, norm_post; /* before attention, before the MLP */
    sheaf__layernorm
        norm_after[2]; /* on the outputs of attention and the MLP, before the residual sum */
    sheaf__norm norm_q, norm_k;           /* of each head */
    sheaf__layernorm whole_q, whole_k;    /* over all heads, cut as these are */
    sheaf__rope_table *rope;              /* NULL: no rotary embedding */
    bool gelu;                            /* gate with gelu, not silu */
    int64_t window;                       /* sliding window in keys, 0 = none */
    sheaf__expert expert[SHEAF__STREAMS]; /* for image rows, in layers that have a visual expert */
    sheaf__mixture *mixture;              /* NULL: an MLP */
    bool has_expert, has_cross;
    sheaf__norm norm_cross;
    sheaf__linear cross_q, cross_k, cross_v, cross_o;
} sheaf__layer;

typedef struct sheaf__model_options {
    const sheaf_lora *lora; /* adapter to train or use, NULL = none; borrowed */
    bool train_lora;        /* its factors (and saved tensors) are trained */
    /* Selects base tensors to train as well (methods full, head); NULL = none. */
    bool (*trains)(void *self, const sheaf_tensor *tensor);
    void *self;
    bool divided;      /* trained tensors are divided over groups (tape/trained.h) */
    bool eight_bits;   /* moments of the larger ones have 8 bits (there) */
    bool backward;     /* pack weights for a backward pass too */
    int64_t positions; /* length of the rotary table */
    int64_t sequences; /* most sequences generated together, 0: unknown; for few, weights may be
                          compressed (ops/matmul/matmul.h) */
    uint64_t seed;     /* of new LoRA factors */
    /* Frozen weights of linear layers, moments, and activations lie elsewhere between their uses:
     * in a file in `folder`, or, where that is NULL, in the host's memory (ops/offload.h). */
    bool away, moments_away, activations_away;
    const char *folder;
    /* says which tensors are quantised, and how (ops/quant/quant.h): those that are not trained
     * stay so; NULL = none. Borrowed for as long as the model is made; the source of loading says
     * the same */
    sheaf_source *forms;
    /* another one of the same base, made and loaded with the same options but `lora`, whose frozen
     * matrices this one reads too; NULL = none. Outlives it */
    const struct sheaf__model *like;
    /* layers of each stage, NULL = all here; borrowed. Only for inference */
    const sheaf__placement *place;
} sheaf__model_options;

/* One module that is loaded and refreshed: see build.h. */
typedef struct sheaf__module sheaf__module;
/* One block of device memory, of a tensor that is not trained. */
typedef struct sheaf__block {
    const char *name;
    void *at;
    bool host; /* of the host's memory */
} sheaf__block;
/* The vision towers; the family defines the struct. */
typedef struct sheaf__towers sheaf__towers;

/* The trained tensors of one LoRA module, which the parts of a fused layer share. */
typedef struct sheaf__factors {
    sheaf__trained *a, *b, *m;
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
    float scale;             /* factor on the embedding's rows, in their dtype; 0: none */
    float times;             /* the same, in float32 (tape/scaled.h) */
    float branch;            /* factor on what a layer adds to the residual stream; 0: none */
    float divide;            /* divisor of the rows that the head reads; 0: none */
    sheaf__rope_table rope;  /* of the layers with a rotary embedding */
    sheaf__rope_table local; /* of layers with a window, where they have their own */
    sheaf__angles angles;    /* of a model whose positions have three axes, in place of tables */
    sheaf__towers *towers; /* may be NULL on a stage without them; see sheaf__model_has_images() */
    sheaf__trained_set *trained; /* empty when nothing is trained */
    sheaf__factors *lora;        /* [options.lora->nmodules] */
    sheaf__module *module;       /* in the order of building */
    sheaf__block *block;
    struct sheaf__offload *away, *activations; /* or NULL; the context's, too */
    void **owned;                              /* from sheaf__build_parts() */
    int64_t module_capacity, nblocks, block_capacity, nowned, owned_capacity;
    int nmodules;
} sheaf__model;

/* The KV cache: keys and values of earlier tokens and of images, between runs of a generation. */
typedef struct sheaf__kv_cache {
    sheaf__cache *self, *cross; /* one per layer; cross: k NULL where a layer has none */
    int64_t layers;
} sheaf__kv_cache;

/* The towers' output for the pictures of one sequence, on each rank that has the towers. */
typedef struct sheaf__image_cache {
    /* rows by tower in the compute dtype, NULL where nothing reads them */
    void *given[SHEAF__MOST_TOWERS];
    bool full; /* filled by a run: the next ones skip the towers. Set by the caller, on all ranks */
} sheaf__image_cache;

/* Observes intermediate values, for tests and inspection: called when they are recorded, for each
 * stream (see SHEAF__TEXT), so that it may pin them. */
typedef struct sheaf__stages {
    void (*on_value)(void *self, sheaf__tape *tape, const char *stage, int layer, int stream,
                     sheaf__value *value);
    void *self;
} sheaf__stages;

/* A pass to record. Borrowed pointers are read when the tape runs. */
typedef struct sheaf__pass {
    int64_t batch, queries; /* sequences, and tokens of each */
    const sheaf__rows_in *in;
    /* [SHEAF__ROW_KINDS]; of a model without images only that of SHEAF__TEXT is read */
    const sheaf__step_info *info;
    sheaf__head_run *head;
    const sheaf__kv_cache *kv_cache; /* NULL: no cache */
    sheaf__picture_counts pictures;  /* their rows are among these tokens; 0 after the first run */
    int64_t image_rows;              /* rows that use the visual experts */
    const sheaf__images_in *images_in;
    const sheaf__image_cache *image_cache; /* of these images, or NULL: filled, or read in place of
                                              their pixels when it is full */
    bool image_rows_unread;       /* the head reads no image rows: their last MLP is skipped */
    const sheaf__noise_in *noise; /* on the embedding's rows; NULL: none */
    sheaf__kept kept;             /* as the tape will be compiled */
    const sheaf__stages *stages;  /* of all ranks or of none; may be NULL */
} sheaf__pass;

/* sheaf__model_has_images - does the model read images, whichever stage has the towers? */
static inline bool sheaf__model_has_images(const sheaf__model *model)
{
    return sheaf__image_positions(&model->schema->config) > 0;
}

/* sheaf__model_new - allocates everything on the device. Errors: SHEAF_E_UNSUPPORTED for heads that
 * are wider than attention takes. */
sheaf_status *sheaf__model_new(sheaf__model **out, sheaf__context *context,
                               const sheaf_schema *schema, const sheaf__model_options *options);
/* sheaf__model_load - reads the owned slices. `base` is borrowed for as long as the model lives:
 * rows of a frozen vocabulary table are read from it on demand. adapter NULL: new LoRA factors (A
 * uniform in +-1/sqrt(in), B zero; of a table A zero, B normal), each a function of (seed, tensor
 * name, logical index). Ranks exchange nothing while they read, so that one that fails leaves no
 * other waiting; only DoRA and factors made of whole weights exchange, once all has been read. */
sheaf_status *sheaf__model_load(sheaf__model *model, sheaf_source *base, sheaf_source *adapter);
void sheaf__model_free(sheaf__model *model);
/* sheaf__model_set_sequences - `sequences` will be generated together: expands weights that are
 * compressed for fewer. Same results. */
void sheaf__model_set_sequences(sheaf__model *model, int64_t sequences);
/* sheaf__model_refresh - updates the compute copies from the masters, after a step or a resume; of
 * a divided set from what sheaf__trained_publish() left. */
void sheaf__model_refresh(sheaf__model *model);
/* sheaf__model_bad_weight - the name of the first tensor, in the order of building, with a number
 * that is not finite on any rank; borrowed, or NULL. Collective. */
sheaf_status *sheaf__model_bad_weight(const char **name, const sheaf__model *model);
/* sheaf__model_record - the whole pass onto `tape`. */
void sheaf__model_record(sheaf__model *model, sheaf__tape *tape, const sheaf__pass *pass);

/* sheaf__kv_cache_new - caches of `length` positions for `batch` sequences; release also after a
 * failure. */
sheaf_status *sheaf__kv_cache_new(sheaf__kv_cache *out, sheaf__model *model, int64_t batch,
                                  int64_t length);
void sheaf__kv_cache_release(sheaf__kv_cache *kv_cache, sheaf__model *model);
/* sheaf__kv_cache_copy - the first rows of sequence `from` become those of `to`: of text. */
void sheaf__kv_cache_copy(const sheaf__kv_cache *kv_cache, const sheaf__model *model, int64_t to,
                          int64_t from, int64_t rows);

/* sheaf__image_cache_new - empty, for these pictures; allocates nothing on ranks without the
 * towers. Release also after a failure. */
sheaf_status *sheaf__image_cache_new(sheaf__image_cache *out, sheaf__model *model,
                                     const sheaf__picture_counts *pictures);
void sheaf__image_cache_release(sheaf__image_cache *image_cache, sheaf__model *model);
