/* build.h - the parts a model is made of, from the schema's tensors: memory, cuts, LoRA and what is
 * trained. Each part is noted in model->module, which load, refresh and free iterate over. */
#pragma once

#include "models/model.h"

typedef enum sheaf__module_kind {
    SHEAF__LINEAR,
    SHEAF__RMSNORM,
    SHEAF__LAYERNORM,
    SHEAF__VECTOR,
    SHEAF__TABLE,
} sheaf__module_kind;

struct sheaf__module {
    sheaf__module_kind kind;
    void *part;                        /* a sheaf__linear, ... inside the model */
    const sheaf_tensor *weight, *bias; /* bias may be NULL */
    int piece;                         /* index of the part of a fused weight */
    bool shared; /* its matrices, or rows, are those of options.like, which has loaded them */
};

/* sheaf__build_parts - `count` structs of `size` bytes into the pointer at `out`, zeros, which the
 * model owns. */
sheaf_status *sheaf__build_parts(void *out, sheaf__model *m, int64_t count, size_t size);

/* The tensor that the family's rows call so. Errors: SHEAF_E_LAYOUT if the schema has none. */
sheaf_status *sheaf__build_find(const sheaf_tensor **out, const sheaf__model *m, const char *name);

/* A linear layer; bias may be NULL, `piece` of a fused weight (0 otherwise). */
sheaf_status *sheaf__build_linear(sheaf__model *m, sheaf__linear *l, const sheaf_tensor *weight,
                                  const sheaf_tensor *bias, int piece);
/* `once`: see sheaf__norm. */
sheaf_status *sheaf__build_norm(sheaf__model *m, sheaf__norm *norm, const sheaf_tensor *weight,
                                double eps, bool once);
/* bias NULL: an RMSNorm, `plain` (tape/vision.h). */
sheaf_status *sheaf__build_layernorm(sheaf__model *m, sheaf__layernorm *norm,
                                     const sheaf_tensor *weight, const sheaf_tensor *bias,
                                     double eps);
/* A small tensor as a matrix [rows, width], whole on every rank. */
sheaf_status *sheaf__build_vector(sheaf__model *m, sheaf__vector *v, const sheaf_tensor *t,
                                  int64_t width);
/* The embedding; head: the layer whose panels it shares when the model is tied, or NULL. */
sheaf_status *sheaf__build_table(sheaf__model *m, sheaf__table *table, const sheaf_tensor *t,
                                 const sheaf__linear *head);
/* Memory of a rotary table for options.positions; t->pairs is set. */
sheaf_status *sheaf__build_rope(sheaf__model *m, sheaf__rope_table *t, int64_t rot);

/* The same by the names of their tensors, `prefix` and what is given: bias NULL: none; piece of a
 * fused weight, else 0. */
sheaf_status *sheaf__named_linear(sheaf__model *m, sheaf__linear *l, const char *prefix,
                                  const char *weight, const char *bias, int piece);
/* Of NAME.weight. */
sheaf_status *sheaf__named_rmsnorm(sheaf__model *m, sheaf__norm *norm, const char *prefix,
                                   const char *name, double eps);
/* These of NAME.weight and NAME.bias. */
sheaf_status *sheaf__named_biased(sheaf__model *m, sheaf__linear *l, const char *prefix,
                                  const char *name, int piece);
sheaf_status *sheaf__named_layernorm(sheaf__model *m, sheaf__layernorm *norm, const char *prefix,
                                     const char *name, double eps);
sheaf_status *sheaf__named_vector(sheaf__model *m, sheaf__vector *v, const char *prefix,
                                  const char *name, int64_t width);

/* sheaf__build_reallocate - replaces the block of the model at *block by one of `bytes`. */
sheaf_status *sheaf__build_reallocate(sheaf__model *m, void *block, size_t bytes,
                                      sheaf_memory kind);
void sheaf__build_free(sheaf__model *m);
/* sheaf__fresh_factors - new ones, of random numbers and zeros, but those that are made of whole
 * matrices, by sheaf__model_start(). */
sheaf_status *sheaf__fresh_factors(const sheaf__model *m, const sheaf_lora_module *module,
                                   const sheaf__factors *f);
/* sheaf__model_start - new factors that are made of whole matrices (start.c). Collective: `st`, of
 * what was loaded before, is that of the ranks together then. */
sheaf_status *sheaf__model_start(sheaf__model *m, sheaf_source *base, sheaf_status *st);
/* sheaf__model_start_bytes - the host's memory that it takes meanwhile; 0: there is nothing to
 * make. */
size_t sheaf__model_start_bytes(const sheaf__model *m);
/* sheaf__load_codes - what load.c does for a layer whose weight is quantised (load_codes.c). */
sheaf_status *sheaf__load_codes(sheaf__context *c, sheaf_source *base, sheaf__linear *l);
/* sheaf__linear_is_quantised - are a layer's matrices codes? */
bool sheaf__linear_is_quantised(const sheaf__linear *l);

/* sheaf__build_away - once all is built, the memory for weights that are away. */
sheaf_status *sheaf__build_away(sheaf__model *m);

/* ---- the pass ---- */

/* sheaf__stage - passes a value to pass->stages. */
void sheaf__stage(const sheaf__pass *pass, sheaf__tape *tape, const char *stage, int layer,
                  int stream, sheaf__value *value);
/* sheaf__decoder_record - from embedded rows to logits; image: what the tower gave, of which layers
 * may be given columns (sheaf__tower.behind); image_memory: the source of cross-attention. */
void sheaf__decoder_record(sheaf__model *m, sheaf__tape *tape, sheaf__value *x, sheaf__value *image,
                           sheaf__value *image_memory, const sheaf__pass *pass);
