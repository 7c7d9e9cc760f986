/* adapter.h - which modules of a model carry LoRA, of what rank and scale, and how
 * PEFT names that on disk. No arithmetic of training here, and no file reading beyond
 * adapter_config.json; tensors come through a sheaf_source. */
#pragma once

#include "base/events.h"
#include "schema/schema.h"
#include "sheaf/source.h"

typedef struct sheaf_pattern {
    char *key;
    double value;
    bool plain; /* known to be a plain name: sheaf__lora_is_plain() */
} sheaf_pattern;

typedef struct sheaf_patterns {
    sheaf_pattern *at;
    int n;
} sheaf_patterns; /* JSON order kept */

/* A list of names, or a regular expression instead; or nothing. */
typedef struct sheaf_lora_names {
    char **list;
    int n;
    char *regex; /* matches the whole path */
} sheaf_lora_names;

/* trainable_token_indices of one table: the rows that the file holds, in this order. */
typedef struct sheaf_lora_tokens {
    char *module;
    int64_t *row;
    int64_t nrows;
} sheaf_lora_tokens; /* module NULL: the input embedding */

/* The layers that SAT adapts by default, as a set of targets. */
typedef enum sheaf_sat_set {
    SHEAF_SAT_SET_NONE,
    SHEAF_SAT_SET_TEXT, /* attention and cross-attention of the text model, not the visual experts
                         */
    SHEAF_SAT_SET_VIT,  /* and the attention of the ViT */
} sheaf_sat_set;

/* How new factors begin (start.h). A is uniform within 1 / sqrt(in) and B zero, but as said. Those
 * from ORTHOGONAL on are made of whole matrices; from PISSA on the start is kept beside the
 * factors, whose rank is twice the one given, and W + s (B A - B0 A0) is trained. */
typedef enum sheaf_lora_init {
    SHEAF_LORA_DEFAULT,
    SHEAF_LORA_RANDOM,   /* B is uniform within 1 / sqrt(rank) */
    SHEAF_LORA_GAUSSIAN, /* A is normal, of deviation 1 / rank */
    SHEAF_LORA_ORTHOGONAL,
    SHEAF_LORA_PISSA,
    SHEAF_LORA_OLORA,
} sheaf_lora_init;

/* What adapter_config.json or the flags of `train` ask for. Strings owned. */
typedef struct sheaf_lora_options {
    int64_t rank;    /* r, default 8 */
    bool whole_rank; /* ranks and alphas are those of a file: of a fused layer as a whole; else of
                        each part */
    double alpha;    /* default 8 */
    bool rslora, fan_in_fan_out;
    double dropout;
    sheaf_lora_names targets, exclude;
    sheaf_lora_names parameters; /* target_parameters: paths of parameters, never an expression */
    bool all_linear;
    sheaf_sat_set sat_set; /* CogVLM and CogAgent only */
    int64_t *layers;
    int64_t nlayers;
    sheaf_lora_names layers_pattern; /* never an expression by itself */
    sheaf_patterns rank_pattern, alpha_pattern;
    sheaf_lora_names modules_to_save; /* also full names of tensors, "a.b.weight", which may have
                                         factors too; never an expression */
    enum { SHEAF_BIAS_NONE, SHEAF_BIAS_ALL, SHEAF_BIAS_LORA_ONLY } bias;
    bool scores;          /* task_type SEQ_CLS: of a reward model */
    bool keep_tie;        /* ensure_weight_tying: a saved embedding is also the tied head */
    bool dora;            /* DoRA: outputs have magnitudes */
    sheaf_lora_init init; /* of training, or of a file: sheaf__lora_options_started() */
    bool lora_bias;       /* this and tokens: merge only */
    sheaf_lora_tokens *tokens;
    int ntokens;
    bool tolerant; /* read from a file: list entries and patterns that match nothing are ignored, as
                      in PEFT; from flags they are errors */
    char *base_name;    /* base_model_name_or_path, a hint */
    char *peft_version; /* that wrote the file; NULL: it does not say */
    char *unknown_keys; /* unknown keys of the file whose values are not null, false or empty; comma
                           separated, NULL if none */
} sheaf_lora_options;

/* A fused layer (its cut has several parts along out) has factors for each part. B is compact: row
 * i belongs to the same part p as row i of the weight and multiplies rows [p r, p r + r) of A. A
 * file stores one module of rank parts * r, whose B has these blocks on its diagonal and zeros
 * elsewhere. If a file's B has another form, the layer is `dense`: r is the file's rank, and every
 * part multiplies all rows of A. In families whose adapters are PEFT's own (Phi-3) fused layers are
 * always dense, as PEFT does not treat them specially. */
typedef struct sheaf_lora_module {
    const sheaf_tensor *base; /* the weight, borrowed from the schema */
    int64_t rank;             /* r */
    double alpha;
    float scale; /* alpha/r or alpha/sqrt(r), computed in double, rounded */
    int parts;   /* 1 = not fused */
    bool dense; /* see above; known after sheaf_lora_fit(). Not trainable if only the file's B makes
                   it so: sheaf_lora_check_trainable() */
    bool always_dense; /* in this family */
    int64_t file_rank; /* parts * r, and an alpha of the same scale, for adapter_config.json */
    double file_alpha;
    char *a_name, *b_name; /* in the PEFT file: base_model.model.<module>.lora_A.weight; for a table
                              .lora_embedding_A */
    char *m_name;          /* of DoRA's magnitudes [out], which are cut as B is; else NULL */
    int64_t a_shape[2], b_shape[2]; /* [parts * r, in], [out, r]; dense: [r, in], [out, r] */
    const char
        *parameter; /* target_parameters names it by this path, borrowed; NULL: by its layer */
    /* LoRA on a parameter of transformers 5 (sheaf_tensor.stack, stacked.h): base is one of the
     * matrices in it, or a part of its rows. */
    bool stacked;
    const struct sheaf_lora_module *a_of; /* the module whose A is this one's too; NULL: its own */
    sheaf_cut a_cut, b_cut; /* a: axis 1 where the base's in axis is cut; b: axis 0 where out is,
                               with all its parts */
} sheaf_lora_module;

typedef struct sheaf_lora {
    sheaf_lora_options options; /* as written to adapter_config.json; for CogVLM and CogAgent with
                                   the path of every module */
    int nmodules;
    sheaf_lora_module *module; /* schema order */
    int nsaved;
    const sheaf_tensor **saved; /* modules_to_save and trained biases: full tensors, schema order */
    char **saved_name;          /* in the PEFT file */
    char *twin_name;            /* in the PEFT file: a second copy of a tied table, which is
                                   saved; or NULL */
} sheaf_lora;

/* sheaf_lora_options_read - reads options of every kind that can be merged. Unknown keys that
 * switch something on are refused, other unknown keys give a warning. */
sheaf_status *sheaf_lora_options_read(sheaf_lora_options *out, const char *adapter_config_path,
                                      const sheaf_events *events);
/* sheaf__lora_options_started - the same, also of adapters with PiSSA or OLoRA that are not
 * converted, which it refuses: `init` says so, and is for sheaf__lora_take_start(). */
sheaf_status *sheaf__lora_options_started(sheaf_lora_options *out, const char *adapter_config_path,
                                          const sheaf_events *events);
/* sheaf_lora_check_runs - SHEAF_E_UNSUPPORTED for kinds that sheaf can only merge: a bias on B,
 * trained token rows. */
sheaf_status *sheaf_lora_check_runs(const sheaf_lora_options *options);
void sheaf_lora_options_release(sheaf_lora_options *options);
/* sheaf__lora_try_base - `st`, which says that an adapter does not fit, with the advice to give the
 * base model it was made for, by its name where the adapter has one; `more` behind it. */
sheaf_status *sheaf__lora_try_base(sheaf_status *st, const sheaf_lora_options *options,
                                   const char *more);
/* sheaf_lora_options_json - adapter_config.json as PEFT 0.21 writes it (malloc'd text). */
sheaf_status *sheaf_lora_options_json(char **out, const sheaf_lora_options *options);
/* sheaf_lora_unties - do the options name embed_tokens, lm_head or both of a tied model? Then
 * training and merging treat them as two tensors, as PEFT does: set config.tied to false before
 * making the schema. False for a model that is not tied, and with keep_tie. */
bool sheaf_lora_unties(const sheaf_lora_options *options, const sheaf_config *config);
/* sheaf_lora_resolve - matches the options with the model. Copies the options. Errors: SHEAF_E_ARG
 * for a target, or a pattern of a rank or an alpha, that matches nothing, with the nearest module
 * name, SHEAF_E_UNSUPPORTED for a target sheaf cannot train (a norm, a table with DoRA, ...). */
sheaf_status *sheaf_lora_resolve(sheaf_lora **out, const sheaf_schema *schema,
                                 const sheaf_lora_options *options);
/* sheaf_lora_check_exclude - does each module to exclude match a module with weights? For new runs:
 * PEFT ignores the others. Errors: SHEAF_E_ARG, with the nearest name. */
sheaf_status *sheaf_lora_check_exclude(const sheaf_schema *schema,
                                       const sheaf_lora_options *options);
/* sheaf_lora_save_also - adds base tensors that are trained in full beside the factors to `saved`
 * and to the options: modules_to_save names a module if all of its tensors are trained (as in
 * PEFT), other tensors by their full name.
 *   trains  called for every tensor of the schema that `lora` was made for
 * Errors: SHEAF_E_MEMORY. */
sheaf_status *sheaf_lora_save_also(sheaf_lora *lora, const sheaf_schema *schema,
                                   bool (*trains)(void *self, const sheaf_tensor *tensor),
                                   void *self);
void sheaf_lora_free(sheaf_lora *lora);
/* sheaf_lora_scale - alpha/r, or alpha/sqrt(r), in double, rounded once as PEFT does. */
float sheaf_lora_scale(double alpha, int64_t rank, bool rslora);
/* sheaf_lora_check - does `adapter`, as stored, hold exactly the tensors of `lora`, with these
 * shapes? Copies of base weights that PEFT adds beside a targeted table (`.base_layer.weight`) are
 * accepted. Errors: SHEAF_E_LAYOUT naming the tensor (adapter for another base, missing,
 * unexpected). */
sheaf_status *sheaf_lora_check(const sheaf_lora *lora, sheaf_source *adapter);

/* sheaf__lora_adapts - does the module with this path have factors? */
bool sheaf__lora_adapts(const sheaf_lora *lora, const char *path, size_t length);
/* sheaf__lora_is_saved, _save - is the tensor in `saved`; adds it, in schema order, under this name
 * in the file, which `lora` owns from then on. */
bool sheaf__lora_is_saved(const sheaf_lora *lora, const sheaf_tensor *tensor);
void sheaf__lora_save(sheaf_lora *lora, const sheaf_tensor *tensor, char *name);

/* ---- tables that PEFT saves by itself (tables.c) ---- */

/* sheaf_lora_take_tables - adds the embedding and the head that the file stores in full without
 * naming them in its config (PEFT does that after a vocabulary was resized, and for
 * save_embedding_layers) to `saved`, as PEFT loads them, but not to the options. sheaf_lora_check()
 * checks their shapes.
 *   taken  name of one of them, borrowed from `lora`; NULL: there are none
 * Errors: SHEAF_E_LAYOUT where the model ties them and the file has two different ones. */
sheaf_status *sheaf_lora_take_tables(const char **taken, sheaf_lora *lora,
                                     const sheaf_schema *schema, sheaf_source *adapter);
/* sheaf_lora_take_copies - does the same with PEFT's copies of adapted weights,
 * `.base_layer.weight`, that differ from the base's, as PEFT loads them.
 *   untied  the base has one table for both uses (sheaf_lora_unties()), and so is its copy for both
 */
sheaf_status *sheaf_lora_take_copies(const char **taken, sheaf_lora *lora,
                                     const sheaf_schema *schema, sheaf_source *adapter,
                                     sheaf_source *base, bool untied);
/* sheaf__same_numbers - are two existing tensors equal in shape and numbers? Their dtypes may
 * differ if both are F32, BF16 or F16. */
sheaf_status *sheaf__same_numbers(bool *same, sheaf_source *a, const char *a_name, sheaf_source *b,
                                  const char *b_name);
/* sheaf_lora_refuse_table - the error for training, which would train these tables and name them
 * when it saves. */
sheaf_status *sheaf_lora_refuse_table(const char *name);

/* ---- fused layers (fused.c) ---- */

/* sheaf_lora_fit - sheaf_lora_check(), then determines which fused layers are dense and changes
 * their shapes in `lora`. First drops biases "X_bias" from `saved` if the file has none of them.
 *   adapter  in: as stored. Out: a source that owns it and has every tensor in the shape
 *            of `lora`, B compact; the same source when no layer is fused. Unchanged on
 *            failure. */
sheaf_status *sheaf_lora_fit(sheaf_source **adapter, sheaf_lora *lora);
/* sheaf_lora_check_trainable - errors: SHEAF_E_UNSUPPORTED for a dense layer. */
sheaf_status *sheaf_lora_check_trainable(const sheaf_lora *lora);
/* sheaf_lora_spread - rows [row0, row0 + rows) of B as a file has them, [rows, file_rank], from the
 * same rows of the compact B; elements of `bytes` bytes. */
void sheaf_lora_spread(void *dst, const void *compact, const sheaf_lora_module *module,
                       int64_t row0, int64_t rows, size_t bytes);

/* ---- options from flags (options.c) ---- */

/* PEFT's defaults: rank 8, alpha 8, nothing targeted. Never fails today. */
sheaf_status *sheaf__lora_options_default(sheaf_lora_options *out);
/* sheaf__lora_has_name - is `name` in the list? sheaf__lora_add_name - adds it if it is not; false:
 * no memory. */
bool sheaf__lora_has_name(const sheaf_lora_names *names, const char *name);
bool sheaf__lora_add_name(sheaf_lora_names *names, const char *name);
sheaf_status *sheaf__lora_options_copy(sheaf_lora_options *out, const sheaf_lora_options *from);

/* Each sets options from the text of a flag; NULL or "" clears them. A text with one of \ * + ? ( )
 * [ ] { } | ^ $ is a regular expression, anything else a comma list. Errors: SHEAF_E_ARG. */
sheaf_status *sheaf__lora_set_targets(sheaf_lora_options *out,
                                      const char *text); /* or "all-linear", "sat", "sat-vit" */
sheaf_status *sheaf__lora_set_exclude(sheaf_lora_options *out, const char *text);
sheaf_status *sheaf__lora_set_layers(sheaf_lora_options *out, const char *text); /* "0,2" */
sheaf_status *sheaf__lora_set_saved(sheaf_lora_options *out, const char *text);
/* By PEFT's init_lora_weights, also "default" and "random": true and false there. */
sheaf_status *sheaf__lora_set_init(sheaf_lora_options *out, const char *text);
/* sheaf__lora_double - twice the rank with the same scale, for SHEAF_LORA_PISSA and those after it.
 */
void sheaf__lora_double(sheaf_lora_options *options);
/* "PATTERN=VALUE,PATTERN=VALUE"; a comma inside a pattern is fine. `whole`: ranks. */
sheaf_status *sheaf__lora_set_pattern(sheaf_patterns *out, const char *text, bool whole);
