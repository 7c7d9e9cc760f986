/* plan.h - shared by the files of a merge: the plan of each tensor of the output (plan.c), its
 * arithmetic (rows.c, norms.c), the output (output.c), and its checks (check.c).
 *
 * A tensor is rows along its first axis and columns along all others, so that its change is always
 * L R with a narrow left factor: of W [out, in] L is B and R is A; of a table or a Conv1D weight
 * [in, out] L is the transpose of A and R that of B. */
#pragma once

#include <stdatomic.h>

#include "base/json.h"
#include "checkpoint/merge/merge.h"
#include "dialects/common/coded_write.h"
#include "dialects/sat/write.h"
#include "formats/safetensors.h"
#include "lora/adapter.h"
#include "lora/delta.h"
#include "ops/kernels.h"
#include "ops/pool.h"
#include "sheaf/source.h"

/* ---- the arithmetic, a tile of one tensor at a time ---- */

enum {
    SHEAF__MERGE_TILE = 1 << 16,  /* elements of a tile */
    SHEAF__MERGE_LEFT = 1 << 16,  /* elements of the left factors of a tile */
    SHEAF__MERGE_RIGHT = 1 << 22, /* elements of the right factors of a panel of columns */
    SHEAF__MERGE_RANKS = 1 << 16, /* largest sum of the ranks of one tensor */
};

typedef struct sheaf__merge_pick {
    int64_t row, from;
} sheaf__merge_pick; /* a trained row, and its index in the adapter's tensor */

/* The change that one adapter makes to one tensor. Entries are borrowed from the adapter. */
typedef struct sheaf__merge_step {
    enum { SHEAF__MERGE_DELTA, SHEAF__MERGE_BIAS, SHEAF__MERGE_PICKS } kind;
    int number; /* of the adapter, from 0 */
    sheaf_source *adapter;
    const sheaf_source_entry *a, *b, *magnitude; /* magnitude: DoRA, else NULL */
    const sheaf_source_entry *values;            /* of a bias on B, or of trained rows */
    int64_t rank;
    float scale;
    bool across;   /* the tensor is stored [in, out] */
    bool square;   /* both orientations fit, so `across` is a decision */
    bool rounded;  /* PEFT rounds the change of a table before it adds it */
    float *factor; /* DoRA: magnitude over norm of each row, or column where `across`; owned */
    int64_t npicks;
    sheaf__merge_pick *pick; /* ascending by row */
} sheaf__merge_step;

/* One tensor of the output and its sources. */
typedef struct sheaf__merge_tensor {
    const char *name; /* in the output; borrowed from the base or the plan */
    const sheaf_source_entry *base;
    sheaf_source *whole_from; /* the adapter whose tensor replaces the base's, or NULL */
    const sheaf_source_entry *whole;
    int whole_number;         /* of that adapter */
    bool saved;               /* `whole` was trained (not just PEFT's copy of the base) */
    bool table;               /* has a row for each token, as far as names and shapes show */
    bool made;                /* stored under another name only, that of the entry `base` */
    bool twice;               /* stored under this name too */
    const sheaf__quant *form; /* the base's, in 4 or 8 bits; NULL: it is plain */
    bool kept;                /* with a form: written as the base's files have it, */
    bool requantised;         /* or in its form again: out_dtype is what is quantised, float32 */
    sheaf_dtype out_dtype;
    int ndim;
    int64_t shape[8];
    int64_t rows, cols;
    int nsteps;
    sheaf__merge_step *step; /* in the order of the adapters */
    int64_t ranks;           /* of all steps together */
    int64_t panel, chunk;    /* columns and rows of a tile */
} sheaf__merge_tensor;

/* sheaf__merge_make_tensor - an unchanged entry of the base. */
sheaf__merge_tensor sheaf__merge_make_tensor(const char *name, const sheaf_source_entry *entry);
void sheaf__merge_release_tensor(sheaf__merge_tensor *tensor);
/* sheaf__merge_is_float - can an adapter change numbers of this type? */
bool sheaf__merge_is_float(sheaf_dtype dtype);
/* sheaf__merge_touched - is the tensor changed, not just copied? */
bool sheaf__merge_touched(const sheaf__merge_tensor *t);
/* Shared by the threads that work on one tensor. */
typedef struct sheaf__merge_rows {
    sheaf_source *base;
    sheaf_source *files; /* the base as its files have it, where it is quantised again; or NULL */
    const sheaf__kernels *kernels;
    void (*delta)(float *d, const float *b, const float *packed, int64_t rows, int64_t cols,
                  int64_t rank, int64_t block);
    sheaf_weights_merge_mode mode;
    sheaf_peft_cpu cpu; /* the processor's order of sums; never SHEAF_PEFT_CPU_THIS */
    const sheaf__merge_tensor *t;
    int64_t col0, cols; /* the current panel */
    float *right;       /* the panel's right factors, packed, one step after another */
    void *stored;       /* scratch to read them */
    float *numbers;
    atomic_bool *other_copy; /* set when PEFT's copy of the base differs from the base */
} sheaf__merge_rows;

sheaf_status *sheaf__merge_rows_init(sheaf__merge_rows *m, sheaf_source *base,
                                     sheaf_weights_merge_mode mode, sheaf_peft_cpu cpu);
/* sheaf__merge_has_kernel - is its weight a convolution with a kernel of more than one element? */
bool sheaf__merge_has_kernel(const sheaf__merge_step *step);
void sheaf__merge_rows_release(sheaf__merge_rows *m);
/* sheaf__merge_rows_panel - computes the right factors of the panel of m->t that begins at column
 * `col0`. */
sheaf_status *sheaf__merge_rows_panel(sheaf__merge_rows *m, int64_t col0);

/* Scratch of one thread; all zero is empty. */
typedef struct sheaf__merge_scratch {
    void *stored, *was, *out; /* tile as read, the base's in the output's dtype, result */
    float *w, *d, *left;
    void *left_stored;
    double *sums; /* [tile] for checks; start of the one allocation */
} sheaf__merge_scratch;

sheaf_status *sheaf__merge_scratch_init(sheaf__merge_scratch *s);
void sheaf__merge_scratch_release(sheaf__merge_scratch *s);

/* sheaf__merge_tile - the output rows [row0, row0 + rows) of the panel, in s->out. */
sheaf_status *sheaf__merge_tile(sheaf__lora_change *change, sheaf__merge_scratch *s,
                                sheaf__merge_rows *m, int64_t row0, int64_t rows);
/* sheaf__merge_sum - the rows before step `step`, whose factor is not known yet: float32 in s->w.
 */
sheaf_status *sheaf__merge_sum(sheaf__merge_scratch *s, sheaf__merge_rows *m, int64_t row0,
                               int64_t rows, int step);
/* sheaf__merge_left - the left factors of a step for some rows, [rows, rank] in s->left. */
sheaf_status *sheaf__merge_left(sheaf__merge_scratch *s, const sheaf__merge_rows *m,
                                const sheaf__merge_step *step, int64_t row0, int64_t rows);
/* sheaf__merge_start - a tile of the tensor before all steps, rounded as the mode says: float32 in
 * s->w. */
sheaf_status *sheaf__merge_start(sheaf__merge_scratch *s, sheaf__merge_rows *m, int64_t row0,
                                 int64_t rows);

/* ---- the plan ---- */

typedef struct sheaf__merge_adapter {
    const char *path;
    sheaf_lora_options options;
    sheaf_source *source;
    char base_print[33];  /* "": not known */
    bool made;            /* made by --combine: its config is ours, not the user's */
    sheaf_schema *schema; /* of the base, and the adapter on it, where it is on parameters of
                             several tensors (parameters.c); else NULL */
    sheaf_lora *lora;
    int at; /* of lora->module: the last one that was looked up */
} sheaf__merge_adapter;

/* The tensor that is the table of embeddings and the head in transformers' language models and in
 * those that see pictures. A file holds it once. If a merge splits it, each name must be written,
 * or transformers fills the missing one with random values. */
typedef struct sheaf__ties {
    const char *table, *head; /* names as in memory; "": nothing is tied */
    const char *classes;      /* the classes with these ties, separated by blanks */
    bool unsaid;              /* tied if the config has no tie_word_embeddings */
} sheaf__ties;

/* sheaf__ties_of - the ties of a class in config.json's `architectures`; NULL: not known.
 *   own_code  the config has auto_map: the class may differ from transformers' of that name */
const sheaf__ties *sheaf__ties_of(const char *architecture, bool own_code);

/* The two names of one tensor, the table of embeddings first. */
typedef struct sheaf__merge_tie {
    const char *first, *other;
} sheaf__merge_tie;

typedef struct sheaf__merge_plan {
    sheaf_source *base;
    bool checked;        /* the dialect has checked the base against its config */
    char *config;        /* text of config.json; NULL: there is none */
    unsigned file_names; /* of the base's catalog */
    char *config_path;   /* its path; NULL: there is none, or it was generated */
    char *model_type;    /* "" if absent */
    char quantized[64]; /* quantization method of the base; "" = none stated, or one that is read */
    int64_t nquantised; /* weights of the base in 4 or 8 bits that are read */
    bool requantise;    /* they stay so */
    sheaf_source *files; /* then: the base as its files have it */
    char *quantization;  /* quantization_config of such weights, which `config` lacks; or NULL */
    int nread;           /* number of adapters given */
    sheaf__merge_adapter *read;
    sheaf__merge_adapter combined; /* of all adapters; source NULL: they are merged in turn */
    char architecture[128];        /* "" if absent in config.json */
    const sheaf__ties *ties;       /* of the architecture; NULL: not known */
    sheaf__ties own_ties;
    bool said_yes, said_no; /* tie_word_embeddings, in any part of the config */
    bool tied_inside; /* only a nested config says so: transformers 5 reads the outer value, 4 the
                         nested one */
    bool tied;        /* the base has its table under two names */
    sheaf__merge_tie tie;       /* first NULL: none, also once both turned out equal */
    char *made_name;            /* of the one that the files lack */
    int64_t vocabulary, layers; /* from the config; 0: not stated */
    int64_t resized;            /* rows of the embedding table if an adapter resizes it; else 0 */
    int64_t count, capacity;
    sheaf__merge_tensor *tensor;
    /* parallel to `tensor`; set by sheaf__merge_plan_finish() */
    sheaf_safetensors_spec *specs;
} sheaf__merge_plan;

/* sheaf__merge_plan_open - reads configs and headers, and matches the adapters with the base.
 * Tensors ascend by name. Errors as sheaf_merge(). */
sheaf_status *sheaf__merge_plan_open(sheaf__merge_plan *plan,
                                     const sheaf_weights_merge_options *options);
/* sheaf__merge_plan_finish - orders the tensors for the shards, and makes the specs. */
sheaf_status *sheaf__merge_plan_finish(sheaf__merge_plan *plan);
void sheaf__merge_plan_close(sheaf__merge_plan *plan);
/* sheaf__merge_find - NULL when the output has no such tensor. Before
 * sheaf__merge_plan_finish(). */
sheaf__merge_tensor *sheaf__merge_find(sheaf__merge_plan *plan, const char *name);

/* sheaf__merge_score - makes the base that of a reward model where an adapter is one's (task_type
 * SEQ_CLS): p->base and p->config are those of transformers' class for it. */
sheaf_status *sheaf__merge_score(sheaf__merge_plan *plan,
                                 const sheaf_weights_merge_options *options);
/* sheaf__merge_find_quantized - fills plan->quantized; config NULL: from the tensors alone. */
void sheaf__merge_find_quantized(sheaf__merge_plan *plan, const json_t *config);
/* sheaf__merge_refuse_quantized - the error that a tensor of a quantized base cannot be changed. */
sheaf_status *sheaf__merge_refuse_quantized(const sheaf__merge_plan *plan, const char *name);

/* sheaf__merge_check_dst - does the output lie outside of all inputs? Errors: SHEAF_E_ARG. */
sheaf_status *sheaf__merge_check_dst(const sheaf_weights_merge_options *options);
/* sheaf__merge_spread_parameters - gives each tensor that the adapter's target_parameters mean
 * factors of its own. Takes the base's schema, NULL where it is not known. Errors:
 * SHEAF_E_UNSUPPORTED for parameters that are not experts. */
sheaf_status *sheaf__merge_spread_parameters(sheaf__merge_adapter *adapter, sheaf_schema *schema);
/* sheaf__merge_refuse_parameters - the error for what this does not cover. */
sheaf_status *sheaf__merge_refuse_parameters(const sheaf__merge_adapter *adapter, const char *what);
/* sheaf__merge_parameter - the module at this path, where target_parameters names it; NULL: none.
 */
const sheaf_lora_module *sheaf__merge_parameter(sheaf__merge_adapter *adapter, const char *path);
/* sheaf__merge_open_adapters - opens the options' adapters into `read`, and checks each on its own.
 */
sheaf_status *sheaf__merge_open_adapters(sheaf__merge_plan *plan,
                                         const sheaf_weights_merge_options *options);
/* sheaf__merge_combine - combines them into `combined`; without a base they are first checked
 * against each other. */
sheaf_status *sheaf__merge_combine(sheaf__merge_plan *plan,
                                   const sheaf_weights_merge_options *options);
/* sheaf__merge_match - matches the tensors of one adapter with the output. Errors: SHEAF_E_LAYOUT,
 * SHEAF_E_UNSUPPORTED. */
sheaf_status *sheaf__merge_match(sheaf__merge_plan *plan, sheaf__merge_adapter *adapter,
                                 int number);

/* ---- tied names (tied.c): one tensor, which a merge may split ---- */

/* sheaf__merge_find_ties - finds the ties from the config; names that the files lack are added to
 * the tensors. config NULL: nothing is known. Errors: SHEAF_E_LAYOUT if two names hold different
 * values and the config ties them. */
sheaf_status *sheaf__merge_find_ties(sheaf__merge_plan *plan, const json_t *config);
/* sheaf__merge_settle_ties - after an adapter was matched: applies its changes to tied names that
 * it does not list. */
sheaf_status *sheaf__merge_settle_ties(sheaf__merge_plan *plan, const sheaf__merge_adapter *adapter,
                                       int number);
/* sheaf__merge_check_tables - after all were matched: a resized vocabulary must be the size of
 * every table, and a base whose ties are not known must not have its tables changed. */
sheaf_status *sheaf__merge_check_tables(sheaf__merge_plan *plan);
/* sheaf__merge_drop_names - all tied names turned out equal: each tensor is written once and stays
 * tied. */
void sheaf__merge_drop_names(sheaf__merge_plan *plan);
/* sheaf__merge_untie - edits a config's text for an output in which every name is written. */
sheaf_status *sheaf__merge_untie(char **json);
/* sheaf__merge_set_vocabulary - sets vocab_size where the config has it: at the top or in
 * text_config. */
sheaf_status *sheaf__merge_set_vocabulary(char **json, const sheaf__merge_plan *plan);
/* sheaf__merge_is_other - is it the second name of a tied tensor? */
bool sheaf__merge_is_other(const sheaf__merge_plan *plan, const sheaf__merge_tensor *tensor);

/* ---- the output: a Hugging Face folder, or the parts of SAT ---- */

/* Tensors of the base's files that are written unchanged, where weights stay in 4 or 8 bits: those
 * of weights that no adapter changes. */
typedef struct sheaf__merge_kept {
    sheaf_source_entry *entry; /* of plan->files */
    int64_t count;
} sheaf__merge_kept;

/* All zero is none. */
typedef struct sheaf__merge_output {
    sheaf_folder *folder;
    sheaf__packer *quantising; /* weights are quantised again; else NULL */
    sheaf__merge_kept kept;
    sheaf_sat_writer *sat;
    int64_t *index; /* number of each tensor of the plan in SAT's parts, or to be quantised */
} sheaf__merge_output;

/* sheaf__merge_requantise_open - plan->files; can what is changed be quantised again? Errors:
 * SHEAF_E_ARG, SHEAF_E_UNSUPPORTED, those of reading. */
sheaf_status *sheaf__merge_requantise_open(sheaf__merge_plan *plan,
                                           const sheaf_weights_merge_options *options);
/* sheaf__merge_requantise_begin - out->quantising, kept and index. */
sheaf_status *sheaf__merge_requantise_begin(sheaf__merge_output *out,
                                            const sheaf__merge_plan *plan);
/* sheaf__merge_kept_put - a `put` of a copy of kept.entry; its context is the output. */
sheaf_status *sheaf__merge_kept_put(void *output, int64_t index, int64_t row0, int64_t rows,
                                    int64_t col0, int64_t cols, const void *src);

/* sheaf__merge_output_begin - after sheaf__merge_plan_finish(). config: the merged model's; NULL:
 * none. */
sheaf_status *sheaf__merge_output_begin(sheaf__merge_output *out, const sheaf__merge_plan *plan,
                                        const char *config,
                                        const sheaf_weights_merge_options *options);
/* sheaf__merge_put - a box of a tensor's view (sheaf_source.read), dense. Thread-safe for boxes
 * that do not overlap. */
sheaf_status *sheaf__merge_put(const sheaf__merge_output *out, int64_t tensor, int64_t row0,
                               int64_t rows, int64_t col0, int64_t cols, const void *src);
/* sheaf__merge_output_finish - completes the files, so that they can be read. A slow sync is left
 * for sheaf__merge_output_sync(), which another thread may run while the output is read. */
sheaf_status *sheaf__merge_output_finish(sheaf__merge_output *out);
sheaf_status *sheaf__merge_output_sync(sheaf__merge_output *out);
/* sheaf__merge_output_open - opens the uncommitted output for reading. */
sheaf_status *sheaf__merge_output_open(sheaf_source **written, const sheaf__merge_output *out);
/* sheaf__merge_output_commit - renames the output into place. `out` is empty afterwards, also on
 * failure. */
sheaf_status *sheaf__merge_output_commit(sheaf__merge_output *out);
void sheaf__merge_output_abandon(sheaf__merge_output *out);

/* ---- the work on a planned tensor ---- */

typedef struct sheaf__merge_workers {
    sheaf__pool *pool;
    int threads;
    sheaf__merge_scratch *scratch; /* [threads] */
    sheaf__merge_rows rows;        /* of the current tensor */
    atomic_bool other_copy;
    const atomic_int *stop;
} sheaf__merge_workers;

sheaf_status *sheaf__merge_workers_init(sheaf__merge_workers *workers,
                                        const sheaf__merge_plan *plan,
                                        const sheaf_weights_merge_options *options);
void sheaf__merge_workers_release(sheaf__merge_workers *workers);

/* sheaf__merge_norms - the factors of all DoRA steps of workers->rows.t: m / |V|, V the weight
 * before the step, its squares summed in float32 in torch's order; with `across` in
 * SHEAF_MERGE_ROUND_ONCE in double, in an order that does not depend on threads. Does nothing for
 * other tensors. */
sheaf_status *sheaf__merge_norms(sheaf__merge_workers *workers, sheaf__merge_tensor *t);

/* sheaf__merge_check_rows - computes first, middle and last rows of every tensor of `written` again
 * and compares the bits. */
sheaf_status *sheaf__merge_check_rows(sheaf__merge_workers *workers, const sheaf__merge_plan *plan,
                                      sheaf_source *written, sheaf_weights_merge_report *report);
/* sheaf__merge_check_products - W' x against (W + s B A) x in double, x random signs, for every
 * adapted weight. Errors: SHEAF_E_NUMBER when one differs by more than rounding explains. */
sheaf_status *sheaf__merge_check_products(sheaf__merge_workers *workers,
                                          const sheaf__merge_plan *plan, sheaf_source *written,
                                          sheaf_weights_merge_report *report);
/* sheaf__merge_check_requantised - computes weights that were quantised again once more: codes must
 * be the written ones; and notes in the report how far the written values are from the merged
 * ones. */
sheaf_status *sheaf__merge_check_requantised(sheaf__merge_workers *workers,
                                             const sheaf__merge_plan *plan, sheaf_source *written,
                                             sheaf_weights_merge_report *report);
