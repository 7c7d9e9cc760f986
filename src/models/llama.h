/* llama.h - Llama, Mistral and Qwen2: one decoder, from config to tape.
 *
 * A model holds the slices its rank owns, packed for the matmul op, and what a run
 * trains. It reads tensors from a sheaf_source and knows no files. */
#ifndef SHEAF_MODELS_LLAMA_H
#define SHEAF_MODELS_LLAMA_H

#include "lora/adapter.h"
#include "sheaf/schema.h"
#include "sheaf/source.h"
#include "tape/head.h"
#include "tape/layers.h"
#include "tape/linear.h"

typedef struct sheaf__layer {
    sheaf__norm norm_in, norm_post;
    sheaf__linear q, k, v, o, gate, up, down;
} sheaf__layer;

typedef struct sheaf__model_options {
    const sheaf_lora *lora;    /* adapter to train or use, NULL = none; borrowed */
    bool train_lora;           /* its factors (and saved tensors) are trained */
    /* Which base tensors are trained besides (methods full, head); NULL = none. */
    bool (*trains)(void *self, const sheaf_tensor *tensor);
    void *self;
    bool backward;             /* a backward pass will run: pack for it */
    bool pack_back;            /* keep a second packed copy for the backward products */
    int64_t positions;         /* length of the rotary table */
    uint64_t seed;             /* of fresh LoRA factors */
} sheaf__model_options;

typedef struct sheaf__model {
    sheaf__context *context;     /* borrowed */
    const sheaf_schema *schema;  /* borrowed */
    sheaf__model_options options;
    sheaf__table embedding;
    sheaf__layer *layer;
    sheaf__norm norm;
    sheaf__linear head;
    sheaf__rope_table rope;
    sheaf__trained_set *trained; /* empty when nothing is trained */
    sheaf__lora_part *lora;      /* [options.lora->nmodules] */
} sheaf__model;

/* sheaf__model_new - allocates everything on the device; on dry that is all there is. */
sheaf_status *sheaf__model_new(sheaf__model **out, sheaf__context *context, const sheaf_schema *schema,
                               const sheaf__model_options *options);
/* sheaf__model_load - reads the owned slices. adapter NULL: fresh LoRA factors (A uniform in
 * +-1/sqrt(in), B zero), each a function of (seed, tensor name, logical index). */
sheaf_status *sheaf__model_load(sheaf__model *model, sheaf_source *base, sheaf_source *adapter);
void sheaf__model_free(sheaf__model *model);
/* sheaf__model_refresh - compute copies from the masters, after an update or a resume. */
void sheaf__model_refresh(sheaf__model *model);

/* sheaf__model_record - the whole pass over `batch` sequences of `queries` tokens onto `tape`.
 * cache NULL, or one per layer. Borrowed pointers are read when the tape runs. */
void sheaf__model_record(sheaf__model *model, sheaf__tape *tape, int64_t batch, int64_t queries,
                         const sheaf__rows_in *in, const sheaf__step_info *info,
                         sheaf__head_run *head, const sheaf__cache *cache);
/* Owned key/value heads, for making caches. */
int64_t sheaf__model_kv_heads(const sheaf__model *model);

#endif
