/* plan.h - between the files of a merge: what each tensor of the output is made of (plan.c), its
 * arithmetic (rows.c, norms.c), where it goes (output.c), and whether it is right (check.c).
 *
 * A tensor is seen as rows of its first axis, everything behind it being columns, so that
 * its change is always L R with a left factor of some columns a row: of W [out, in] L is B
 * and R is A; of a table or a Conv1D weight [in, out] L is the transpose of A and R that of B. */
#pragma once

#include <stdatomic.h>

#include "base/json.h"
#include "checkpoint/merge/merge.h"
#include "checkpoint/merge/ties.h"
#include "dialects/common/folder.h"
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
    SHEAF__MERGE_LEFT = 1 << 16,  /* numbers of left factors of a tile */
    SHEAF__MERGE_RIGHT = 1 << 22, /* numbers of right factors of a panel of columns */
    SHEAF__MERGE_RANKS = 1 << 16, /* the most that the ranks of one tensor may add up to */
};

typedef struct sheaf__merge_pick {
    int64_t row, from;
} sheaf__merge_pick; /* a trained row, and where it lies */

/* What one adapter does to one tensor. Entries are borrowed from the adapter. */
typedef struct sheaf__merge_step {
    enum { SHEAF__MERGE_DELTA, SHEAF__MERGE_BIAS, SHEAF__MERGE_PICKS } kind;
    int number; /* of the adapter, from 0 */
    sheaf_source *adapter;
    const sheaf_source_entry *a, *b, *magnitude; /* magnitude: DoRA, else NULL */
    const sheaf_source_entry *values;            /* of a bias on B, or of trained rows */
    int64_t rank;
    float scale;
    bool across;   /* the tensor is stored [in, out] */
    bool square;   /* both ways fit, so `across` is a decision */
    bool rounded;  /* PEFT rounds the change of a table before it adds it */
    float *factor; /* DoRA: magnitude over norm of each row, or column where `across`; owned */
    int64_t npicks;
    sheaf__merge_pick *pick; /* ascending by row */
} sheaf__merge_step;

/* Where one tensor of the output comes from. */
typedef struct sheaf__merge_tensor {
    const char *name;  /* in the output; borrowed from the base or the plan */
    const char *alias; /* borrowed from the matcher that has aliases */
    const sheaf_source_entry *base;
    sheaf_source *whole_from; /* the adapter that has a tensor in place of the base's, or NULL */
    const sheaf_source_entry *whole;
    int whole_number; /* of that adapter */
    bool saved;       /* `whole` was trained (not just PEFT's copy of the base) */
    bool table;       /* has a row for each token, as far as is known */
    bool made;        /* the files hold it under another name, whose entry `base` is */
    bool twice;       /* they hold it under this name too */
    sheaf_dtype out_dtype;
    int ndim;
    int64_t shape[8];
    int64_t rows, cols;
    int nsteps;
    sheaf__merge_step *step; /* in the order of the adapters */
    int64_t ranks;           /* of all steps together */
    int64_t panel, chunk;    /* columns and rows of a tile */
} sheaf__merge_tensor;

/* sheaf__merge_make_tensor - of an entry of the base, nothing done to it yet. */
sheaf__merge_tensor sheaf__merge_make_tensor(const char *name, const sheaf_source_entry *entry);
void sheaf__merge_release_tensor(sheaf__merge_tensor *tensor);
/* sheaf__merge_touched - does anything happen to the tensor beside being copied? */
bool sheaf__merge_touched(const sheaf__merge_tensor *t);
/* What all threads share while they work on one tensor. */
typedef struct sheaf__merge_rows {
    sheaf_source *base;
    const sheaf__kernels *kernels;
    void (*delta)(float *d, const float *b, const float *packed, int64_t rows, int64_t cols,
                  int64_t rank, int64_t block);
    sheaf_weights_merge_mode mode;
    sheaf_peft_cpu cpu; /* whose order of sums counts; never SHEAF_PEFT_CPU_THIS */
    const sheaf__merge_tensor *t;
    int64_t col0, cols; /* the panel at hand */
    float *right;       /* the panel's right factors, packed, one step after another */
    void *stored;       /* for reading them */
    float *numbers;
    atomic_bool *other_copy; /* set when PEFT's copy of the base is not what the base holds */
} sheaf__merge_rows;

sheaf_status *sheaf__merge_rows_init(sheaf__merge_rows *m, sheaf_source *base,
                                     sheaf_weights_merge_mode mode, sheaf_peft_cpu cpu);
/* sheaf__merge_has_kernel - is it of a convolution whose kernel has more than one element? */
bool sheaf__merge_has_kernel(const sheaf__merge_step *step);
void sheaf__merge_rows_release(sheaf__merge_rows *m);
/* sheaf__merge_rows_panel - right factors for the columns from `col0` of m->t; its panel
 * follows. */
sheaf_status *sheaf__merge_rows_panel(sheaf__merge_rows *m, int64_t col0);

/* Scratch of one thread; all zero is empty. */
typedef struct sheaf__merge_scratch {
    void *stored, *was, *out; /* a tile as read, the base's in the output's dtype, the result */
    float *w, *d, *left;
    void *left_stored;
    double *sums; /* [tile] for checks; it begins the memory of all */
} sheaf__merge_scratch;

sheaf_status *sheaf__merge_scratch_init(sheaf__merge_scratch *s);
void sheaf__merge_scratch_release(sheaf__merge_scratch *s);

/* sheaf__merge_tile - rows [row0, row0 + rows) of the panel as they are to be written, in
 * s->out. */
sheaf_status *sheaf__merge_tile(sheaf__lora_change *change, sheaf__merge_scratch *s,
                                sheaf__merge_rows *m, int64_t row0, int64_t rows);
/* sheaf__merge_sum - the same up to step `step`, which has no factor yet: float32 in s->w. */
sheaf_status *sheaf__merge_sum(sheaf__merge_scratch *s, sheaf__merge_rows *m, int64_t row0,
                               int64_t rows, int step);
/* sheaf__merge_left - the left factors of a step for some rows, [rows, rank] in s->left. */
sheaf_status *sheaf__merge_left(sheaf__merge_scratch *s, const sheaf__merge_rows *m,
                                const sheaf__merge_step *step, int64_t row0, int64_t rows);
/* sheaf__merge_start - the tensor before all steps, as the mode takes it: a tile as float32 in
 * s->w. */
sheaf_status *sheaf__merge_start(sheaf__merge_scratch *s, sheaf__merge_rows *m, int64_t row0,
                                 int64_t rows);

/* ---- what each tensor is made of ---- */

typedef struct sheaf__merge_adapter {
    const char *path;
    sheaf_lora_options options;
    sheaf_source *source;
    char base_print[33]; /* "": not known */
    bool made;           /* combined here: its config was not anybody's wish */
} sheaf__merge_adapter;

/* Names of one tensor; tokens are looked up in the first. */
typedef struct sheaf__merge_tie {
    const char *first, *other;
} sheaf__merge_tie;

typedef struct sheaf__merge_plan {
    sheaf_source *base;
    bool checked;       /* its dialect has held the base against its config */
    char *config;       /* text of config.json; NULL: there is none */
    char *config_path;  /* where it lies; NULL: there is none, or it was put together */
    char *model_type;   /* "" when it does not say */
    char quantized[64]; /* how the base's weights are; "" = they are not, as far as it says */
    int nread;          /* adapters as given */
    sheaf__merge_adapter *read;
    sheaf__merge_adapter combined; /* of all; source NULL: they are merged in turn */
    char architecture[128];        /* "" when config.json does not say */
    const sheaf__ties *ties;       /* of it; NULL: not known */
    sheaf__ties own_ties;
    char *own_groups;
    bool said_yes, said_no; /* tie_word_embeddings, in any part of the config */
    bool tied_inside; /* only a part says so: transformers 5 looks at the whole's, 4 at that */
    bool tied;        /* the base has tensors of several names */
    int nties;        /* 0 also once all of them came out alike */
    sheaf__merge_tie tie[SHEAF__TIES_MOST];
    int nmade;
    char *made_name[SHEAF__TIES_MOST];
    int64_t vocabulary, layers; /* as the config says; 0: it does not */
    int64_t resized; /* rows of the table, where an adapter brings one of another size; else 0 */
    int64_t count, capacity;
    sheaf__merge_tensor *tensor;
    /* one for each, in the same order; after sheaf__merge_plan_finish() */
    sheaf_safetensors_spec *specs;
} sheaf__merge_plan;

/* sheaf__merge_plan_open - reads configs and headers, matches everything with everything. Tensors
 * ascend by name. Errors as sheaf_merge(). */
sheaf_status *sheaf__merge_plan_open(sheaf__merge_plan *plan,
                                     const sheaf_weights_merge_options *options);
/* sheaf__merge_plan_finish - orders the tensors as they are to be divided into shards, and makes
 * the specs. */
sheaf_status *sheaf__merge_plan_finish(sheaf__merge_plan *plan);
void sheaf__merge_plan_close(sheaf__merge_plan *plan);
/* sheaf__merge_find - NULL when the output has no such tensor. Before
 * sheaf__merge_plan_finish(). */
sheaf__merge_tensor *sheaf__merge_find(sheaf__merge_plan *plan, const char *name);

/* sheaf__merge_find_quantized - fills plan->quantized; config NULL: by the tensors alone. */
void sheaf__merge_find_quantized(sheaf__merge_plan *plan, const json_t *config);
/* sheaf__merge_refuse_quantized - the status that this tensor of a quantized base cannot be
 * changed. */
sheaf_status *sheaf__merge_refuse_quantized(const sheaf__merge_plan *plan, const char *name);

/* sheaf__merge_check_dst - does the output lie outside of what is read? Errors: SHEAF_E_ARG. */
sheaf_status *sheaf__merge_check_dst(const sheaf_weights_merge_options *options);
/* sheaf__merge_open_adapters - reads `read` from the options' folders; each is whole by itself. */
sheaf_status *sheaf__merge_open_adapters(sheaf__merge_plan *plan,
                                         const sheaf_weights_merge_options *options);
/* sheaf__merge_combine - makes `combined` of them; without a base they are held against each other
 * first. */
sheaf_status *sheaf__merge_combine(sheaf__merge_plan *plan,
                                   const sheaf_weights_merge_options *options);
/* sheaf__merge_match - gives the tensors of one adapter their places. Errors: SHEAF_E_LAYOUT,
 * SHEAF_E_UNSUPPORTED. */
sheaf_status *sheaf__merge_match(sheaf__merge_plan *plan, const sheaf__merge_adapter *adapter,
                                 int number, const sheaf_events *events);

/* ---- names of one tensor (tied.c), which a merge may make several ---- */

/* sheaf__merge_find_ties - by what the config says of the base's tensors; names that the files lack
 * join the tensors. config NULL: nothing is known. Errors: SHEAF_E_LAYOUT where two names hold
 * different values and the config says that they are one. */
sheaf_status *sheaf__merge_find_ties(sheaf__merge_plan *plan, const json_t *config);
/* sheaf__merge_settle_ties - after an adapter was matched: what it does to names that it does not
 * name. */
sheaf_status *sheaf__merge_settle_ties(sheaf__merge_plan *plan, const sheaf__merge_adapter *adapter,
                                       int number);
/* sheaf__merge_check_tables - after all were: a vocabulary of another size is that of every table,
 * and of a base whose ties are not known no table is changed. */
sheaf_status *sheaf__merge_check_tables(sheaf__merge_plan *plan);
/* sheaf__merge_drop_names - all come out alike: each tensor is written once, the tie stays. */
void sheaf__merge_drop_names(sheaf__merge_plan *plan);
/* sheaf__merge_untie - the text of a config becomes that of what is written with every name. */
sheaf_status *sheaf__merge_untie(char **json, const sheaf__merge_plan *plan);
/* sheaf__merge_set_vocabulary - its size, where the config has it: at the top or in text_config. */
sheaf_status *sheaf__merge_set_vocabulary(char **json, const sheaf__merge_plan *plan);
/* sheaf__merge_is_other - is it a name other than the first of its tensor? */
bool sheaf__merge_is_other(const sheaf__merge_plan *plan, const sheaf__merge_tensor *tensor);

/* ---- where it goes: a Hugging Face folder, or the parts of SAT ---- */

/* All zero is none. */
typedef struct sheaf__merge_output {
    sheaf_folder *folder;
    sheaf_sat_writer *sat;
    int64_t *index; /* SAT's number of each tensor of the plan */
} sheaf__merge_output;

/* sheaf__merge_output_begin - after sheaf__merge_plan_finish(). config: of the merged model; NULL:
 * there is none. */
sheaf_status *sheaf__merge_output_begin(sheaf__merge_output *out, const sheaf__merge_plan *plan,
                                        const char *config,
                                        const sheaf_weights_merge_options *options);
/* sheaf__merge_put - a box of a tensor's view (sheaf_source.read), dense. Thread-safe for boxes
 * that do not overlap. */
sheaf_status *sheaf__merge_put(const sheaf__merge_output *out, int64_t tensor, int64_t row0,
                               int64_t rows, int64_t col0, int64_t cols, const void *src);
/* sheaf__merge_output_finish - everything is written: what a reader needs is in place. Where it is
 * slow to sync, that is left for sheaf__merge_output_sync(), which another thread may call while
 * the output is read. */
sheaf_status *sheaf__merge_output_finish(sheaf__merge_output *out);
sheaf_status *sheaf__merge_output_sync(sheaf__merge_output *out);
/* sheaf__merge_output_open - what was written, as it lies there. */
sheaf_status *sheaf__merge_output_open(sheaf_source **written, const sheaf__merge_output *out);
/* sheaf__merge_output_commit - it gets its name. `out` is empty then, whatever comes of it. */
sheaf_status *sheaf__merge_output_commit(sheaf__merge_output *out);
void sheaf__merge_output_abandon(sheaf__merge_output *out);

/* ---- what is done with a planned tensor ---- */

typedef struct sheaf__merge_workers {
    sheaf__pool *pool;
    int threads;
    sheaf__merge_scratch *scratch; /* [threads] */
    sheaf__merge_rows rows;        /* of the tensor at hand */
    atomic_bool other_copy;
    const atomic_int *stop;
} sheaf__merge_workers;

sheaf_status *sheaf__merge_workers_init(sheaf__merge_workers *workers,
                                        const sheaf__merge_plan *plan,
                                        const sheaf_weights_merge_options *options);
void sheaf__merge_workers_release(sheaf__merge_workers *workers);

/* sheaf__merge_norms - the factors of all DoRA steps of workers->rows.t: m / |V|, V as the step
 * finds it, its squares summed in float32 in torch's order; across in SHEAF_MERGE_ROUND_ONCE in
 * double, in an order that does not depend on threads. Nothing to do for other tensors. */
sheaf_status *sheaf__merge_norms(sheaf__merge_workers *workers, sheaf__merge_tensor *t);

/* sheaf__merge_check_rows - first, middle and last rows of every tensor of `written`, computed
 * again: the same bits. */
sheaf_status *sheaf__merge_check_rows(sheaf__merge_workers *workers, const sheaf__merge_plan *plan,
                                      sheaf_source *written, sheaf_weights_merge_report *report);
/* sheaf__merge_check_products - W' x against (W + s B A) x in double, x random signs, for every
 * adapted weight. Errors: SHEAF_E_NUMBER when one differs by more than rounding explains. */
sheaf_status *sheaf__merge_check_products(sheaf__merge_workers *workers,
                                          const sheaf__merge_plan *plan, sheaf_source *written,
                                          sheaf_weights_merge_report *report);
