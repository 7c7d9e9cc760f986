/* plan.h - what each tensor of a merged model is made of. No values move here. */
#pragma once

#include "checkpoint/merge/rows.h"
#include "checkpoint/merge/ties.h"
#include "formats/safetensors.h"
#include "base/json.h"
#include "lora/adapter.h"

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
/* sheaf__merge_untie - the text of the config of what is written with every name. */
sheaf_status *sheaf__merge_untie(char **out, const char *json, const sheaf__merge_plan *plan);
/* sheaf__merge_set_vocabulary - its size, where the config has it: at the top or in text_config. */
sheaf_status *sheaf__merge_set_vocabulary(char **out, const char *json,
                                          const sheaf__merge_plan *plan);
/* sheaf__merge_is_other - is it a name other than the first of its tensor? */
bool sheaf__merge_is_other(const sheaf__merge_plan *plan, const sheaf__merge_tensor *tensor);
