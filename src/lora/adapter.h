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
    bool plain; /* known to be a name: sheaf__lora_is_plain() */
} sheaf_pattern;

typedef struct sheaf_patterns {
    sheaf_pattern *at;
    int n;
} sheaf_patterns; /* JSON order kept */

/* A list of names, or an expression that stands in its place; or nothing. */
typedef struct sheaf_lora_names {
    char **list;
    int n;
    char *regex; /* matches the whole path */
} sheaf_lora_names;

/* trainable_token_indices of one table: which of its rows are in the file, in this order. */
typedef struct sheaf_lora_tokens {
    char *module;
    int64_t *row;
    int64_t nrows;
} sheaf_lora_tokens; /* module NULL: the input embedding */

/* The layers that SAT adapts by itself, as a set of targets. */
typedef enum sheaf_sat_set {
    SHEAF_SAT_SET_NONE,
    SHEAF_SAT_SET_TEXT, /* attention and cross-attention of the text model, not the visual experts
                         */
    SHEAF_SAT_SET_VIT,  /* and the attention of the ViT */
} sheaf_sat_set;

/* What adapter_config.json or the flags of `train` ask for. Strings owned. */
typedef struct sheaf_lora_options {
    int64_t rank;    /* r, default 8 */
    bool whole_rank; /* ranks and alphas as in a file: of a fused layer those of all parts together;
                        else of each part */
    double alpha;    /* default 8 */
    bool rslora, fan_in_fan_out;
    double dropout;
    sheaf_lora_names targets, exclude;
    bool all_linear;
    sheaf_sat_set sat_set; /* CogVLM and CogAgent only */
    int64_t *layers;
    int64_t nlayers;
    sheaf_lora_names layers_pattern; /* never an expression by itself */
    sheaf_patterns rank_pattern, alpha_pattern;
    sheaf_lora_names modules_to_save; /* also full names of tensors, "a.b.weight", which may be
                                         adapted too; never an expression */
    enum { SHEAF_BIAS_NONE, SHEAF_BIAS_ALL, SHEAF_BIAS_LORA_ONLY } bias;
    bool keep_tie;        /* ensure_weight_tying: a saved embedding is the tied head too */
    bool dora, lora_bias; /* these and tokens only for a merge */
    sheaf_lora_tokens *tokens;
    int ntokens;
    bool tolerant;      /* read from a file: entries of a list and patterns that match nothing are
                           passed over, as PEFT does; from flags they are errors */
    char *base_name;    /* base_model_name_or_path, a hint */
    char *unknown_keys; /* keys of the file that sheaf does not know and that are not
                           null, false or empty; comma separated, NULL if none */
} sheaf_lora_options;

/* A fused layer (its cut has several parts along out) has factors for each part. B is compact: row
 * i of it belongs to the part that row i of the weight belongs to, and meets rows [p r, p r + r) of
 * A. A file has them as one module of rank parts * r, whose B has the compact one's blocks on its
 * diagonal and is zero elsewhere. Where a file's B is not like that, the layer is `dense`: r is the
 * file's rank, and every part meets all rows of A. Of families whose adapters are PEFT's own
 * (Phi-3) a fused layer always is: to PEFT it is a layer like any other. */
typedef struct sheaf_lora_module {
    const sheaf_tensor *base; /* the weight, borrowed from the schema */
    int64_t rank;             /* r */
    double alpha;
    float scale; /* alpha/r or alpha/sqrt(r), computed in double, rounded */
    int parts;   /* 1 = not fused */
    bool dense;  /* see above; known after sheaf_lora_fit(). If only the file made it so, not to
                    be trained: sheaf_lora_check_trainable() */
    bool always_dense; /* by the family */
    int64_t file_rank; /* parts * r, and an alpha that gives the same scale: what
                          adapter_config.json says */
    double file_alpha;
    char *a_name, *b_name; /* in the PEFT file: base_model.model.<module>.lora_A.weight; of a
                          table .lora_embedding_A */
    int64_t a_shape[2], b_shape[2]; /* [parts * r, in], [out, r]; dense: [r, in], [out, r] */
    sheaf_cut a_cut, b_cut; /* a: axis 1 where the base's in axis is cut; b: axis 0 where out is,
                               with all its parts */
} sheaf_lora_module;

typedef struct sheaf_lora {
    sheaf_lora_options options; /* as adapter_config.json is to say them; of CogVLM and CogAgent
                                   with every module by its path */
    int nmodules;
    sheaf_lora_module *module; /* schema order */
    int nsaved;
    const sheaf_tensor **saved; /* modules_to_save and trained biases: full tensors, schema order */
    char **saved_name;          /* in the PEFT file */
    char *twin_name; /* in the PEFT file: a second copy of a tied table, the same; or NULL */
} sheaf_lora;

/* sheaf_lora_options_read - of any kind that is merged. Keys that switch on what sheaf does not
 * know are refused, other unknown ones are a warning. */
sheaf_status *sheaf_lora_options_read(sheaf_lora_options *out, const char *adapter_config_path,
                                      const sheaf_events *events);
/* sheaf_lora_check_runs - SHEAF_E_UNSUPPORTED for kinds that sheaf can only merge: DoRA, a bias on
 * B, trained token rows. */
sheaf_status *sheaf_lora_check_runs(const sheaf_lora_options *options);
void sheaf_lora_options_release(sheaf_lora_options *options);
/* sheaf_lora_options_json - adapter_config.json as PEFT 0.21 writes it (malloc'd text). */
sheaf_status *sheaf_lora_options_json(char **out, const sheaf_lora_options *options);
/* sheaf_lora_unties - do the options name a use of a tied table (embed_tokens, lm_head or
 * both)? Then training and merging treat them as two tensors, as PEFT does: set
 * config.tied to false before making the schema. False for a model that is not tied, and
 * with keep_tie. */
bool sheaf_lora_unties(const sheaf_lora_options *options, const sheaf_config *config);
/* sheaf_lora_resolve - matches the options with the model. Takes a copy of options.
 * Errors: SHEAF_E_ARG for a target, or a pattern of a rank or an alpha, that matches nothing
 * (nearest module name offered), SHEAF_E_UNSUPPORTED for a target sheaf cannot train (a
 * norm, DoRA, ...). */
sheaf_status *sheaf_lora_resolve(sheaf_lora **out, const sheaf_schema *schema,
                                 const sheaf_lora_options *options);
/* sheaf_lora_check_exclude - does each module to exclude mean a module of the model that has
 * weights? For new runs: PEFT passes over the others. Errors: SHEAF_E_ARG, with the nearest name.
 */
sheaf_status *sheaf_lora_check_exclude(const sheaf_schema *schema,
                                       const sheaf_lora_options *options);
/* sheaf_lora_save_also - base tensors that are trained whole beside the factors, adapted or not,
 * join `saved`, and the options say so: modules_to_save names a module all of whose tensors are (as
 * PEFT does), other tensors by their full name.
 *   trains  is called for every tensor of the schema that `lora` was made for
 * Errors: SHEAF_E_MEMORY. */
sheaf_status *sheaf_lora_save_also(sheaf_lora *lora, const sheaf_schema *schema,
                                   bool (*trains)(void *self, const sheaf_tensor *tensor),
                                   void *self);
void sheaf_lora_free(sheaf_lora *lora);
/* sheaf_lora_scale - alpha/r, or alpha/sqrt(r), in double, rounded once as PEFT does. */
float sheaf_lora_scale(double alpha, int64_t rank, bool rslora);
/* sheaf_lora_check - does `adapter`, as it lies in a file, hold exactly the tensors of `lora`, with
 * these shapes? Copies of base weights that PEFT adds beside a targeted table
 * (`.base_layer.weight`) are let pass. Errors: SHEAF_E_LAYOUT naming the tensor (adapter for
 * another base, missing, unexpected). */
sheaf_status *sheaf_lora_check(const sheaf_lora *lora, sheaf_source *adapter);

/* sheaf__lora_adapts - has the module with this path factors? */
bool sheaf__lora_adapts(const sheaf_lora *lora, const char *path, size_t length);
/* sheaf__lora_is_saved, _save - of `saved`: is a tensor there; it joins, in schema order, under
 * this name in the file, which is taken over. */
bool sheaf__lora_is_saved(const sheaf_lora *lora, const sheaf_tensor *tensor);
void sheaf__lora_save(sheaf_lora *lora, const sheaf_tensor *tensor, char *name);

/* ---- tables that PEFT saves unasked (tables.c) ---- */

/* sheaf_lora_take_tables - the table of tokens and the head that lie whole in the file though its
 * config does not name them (PEFT adds them where the vocabulary was resized, and for
 * save_embedding_layers) join `saved`, as PEFT loads them; the options do not say so. Their shapes
 * are sheaf_lora_check()'s to look at.
 *   taken  a name of those in the file, borrowed from `lora`; NULL: there are none
 * Errors: SHEAF_E_LAYOUT where a model ties them and the file's two differ. */
sheaf_status *sheaf_lora_take_tables(const char **taken, sheaf_lora *lora,
                                     const sheaf_schema *schema, sheaf_source *adapter);
/* sheaf_lora_take_copies - PEFT's copies of adapted weights, `.base_layer.weight`, that are others
 * than the base's join `saved` likewise, as PEFT loads them. untied  the base has one table for
 * both uses (sheaf_lora_unties()); a copy of it is of both too */
sheaf_status *sheaf_lora_take_copies(const char **taken, sheaf_lora *lora,
                                     const sheaf_schema *schema, sheaf_source *adapter,
                                     sheaf_source *base, bool untied);
/* sheaf__same_numbers - are two tensors that are there equal, shape and numbers? Their types may
 * differ where both are F32, BF16 or F16. */
sheaf_status *sheaf__same_numbers(bool *same, sheaf_source *a, const char *a_name, sheaf_source *b,
                                  const char *b_name);
/* sheaf_lora_refuse_table - for training, which would train them, and name them when it saves:
 * the error. */
sheaf_status *sheaf_lora_refuse_table(const char *name);

/* ---- fused layers (fused.c) ---- */

/* sheaf_lora_fit - sheaf_lora_check(), then finds out which fused layers are dense: their shapes in
 * `lora` change. Biases "X_bias" that the file has none of leave `saved` first.
 *   adapter  in: as it lies in a file. Out: a source that owns it and has every tensor in the shape
 *            `lora` says, B compact; the same source when no layer is fused. Left as it was on
 *            failure. */
sheaf_status *sheaf_lora_fit(sheaf_source **adapter, sheaf_lora *lora);
/* sheaf_lora_check_trainable - errors: SHEAF_E_UNSUPPORTED for a dense layer. */
sheaf_status *sheaf_lora_check_trainable(const sheaf_lora *lora);
/* sheaf_lora_spread - rows [row0, row0 + rows) of B as a file has them, [rows, file_rank], from the
 * same rows of the compact B; elements of `bytes` bytes. */
void sheaf_lora_spread(void *dst, const void *compact, const sheaf_lora_module *module,
                       int64_t row0, int64_t rows, size_t bytes);

/* ---- options from words (options.c) ---- */

/* PEFT's defaults: rank 8, alpha 8, nothing targeted. Never fails today. */
sheaf_status *sheaf__lora_options_default(sheaf_lora_options *out);
/* sheaf__lora_has_name - is `name` in the list? sheaf__lora_add_name - it is then; false: there is
 * no memory. */
bool sheaf__lora_has_name(const sheaf_lora_names *names, const char *name);
bool sheaf__lora_add_name(sheaf_lora_names *names, const char *name);
sheaf_status *sheaf__lora_options_copy(sheaf_lora_options *out, const sheaf_lora_options *from);

/* Each takes the text of a flag, in place of what was there; NULL or "" names nothing. A text with
 * one of \ * + ? ( ) [ ] { } | ^ $ is a regular expression, anything else a comma list. Errors:
 * SHEAF_E_ARG. */
sheaf_status *sheaf__lora_set_targets(sheaf_lora_options *out,
                                      const char *text); /* or "all-linear", "sat", "sat-vit" */
sheaf_status *sheaf__lora_set_exclude(sheaf_lora_options *out, const char *text);
sheaf_status *sheaf__lora_set_layers(sheaf_lora_options *out, const char *text); /* "0,2" */
sheaf_status *sheaf__lora_set_saved(sheaf_lora_options *out, const char *text);
/* "PATTERN=VALUE,PATTERN=VALUE"; a comma inside a pattern is fine. `whole`: ranks. */
sheaf_status *sheaf__lora_set_pattern(sheaf_patterns *out, const char *text, bool whole);
