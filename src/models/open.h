/* open.h - a model's folder, and perhaps an adapter's, opened and checked against each
 * other: what train, eval, generate and plan begin with. */
#pragma once

#include "base/events.h"
#include "comm/comm.h"
#include "lora/adapter.h"
#include "models/hashed.h"
#include "models/widened.h"
#include "schema/schema.h"
#include "sheaf/options.h"
#include "sheaf/source.h"

typedef struct sheaf__opened {
    sheaf_config config;
    sheaf_schema *schema;
    sheaf_source *base;    /* NULL when only the config was opened */
    sheaf_lora *lora;      /* NULL without an adapter, fresh or read */
    sheaf_source *adapter; /* NULL when there is none to read */
    int64_t base_vocab;    /* rows of the base's tables; config.vocab, but for tokens added to it */
    sheaf_source *widened; /* base with made rows of added tokens; NULL: none are made */
    sheaf_source *weights; /* base, with the adapter's full tensors (modules_to_save, biases) in
                              place of the base's; same as base without an adapter */
    sheaf__hashed *hashed; /* if requested: base is its source, which hashes all reads; else NULL */
    sheaf_source *stored;  /* source of `hashed`; else NULL */
    sheaf_source *forms;   /* if only the config was opened: lists the quantised tensors, and has
                              nothing to read; NULL: none */
    char base_print[33];   /* fingerprint of the base stored in the adapter, to be compared after
                              loading; "": none */
    char *model, *carrier; /* paths of the base and of that adapter, where there is one */
    bool as_stored;        /* see sheaf__open_options.as_stored */
    bool has_codes;        /* with it: the base is stored quantised, and not quantised again */
    char *config_text;     /* with `hashed`: sheaf__config_text() of the stored config */
    unsigned file_names;   /* as the base's catalog has them */
    char **file;           /* [nfiles] paths of the files that hold the base's tensors */
    int64_t nfiles;        /* 0: not known */
} sheaf__opened;

typedef struct sheaf__open_options {
    sheaf_comm *all;    /* the processes; NULL: a single process */
    const char *model;  /* folder, or a single .safetensors file */
    const char *config; /* its config.json where the folder has none; NULL = the folder's */
    bool config_only;   /* weights are not needed (planning) */
    bool weights_only;  /* no rows are read: settings for pictures are not looked at */
    int slices;
    int64_t layers;      /* at most, in each stack: a shorter model for measurements; 0: all. With
                            config_only */
    const char *adapter; /* PEFT folder, NULL = none */
    /* `adapter` began so: half of its ranks stay as they are */
    sheaf_lora_init init;
    bool new_run;    /* modules that `fresh` excludes must exist */
    bool base_known; /* the adapter is known to be the base's; else opened->base_print is to be
                        compared, which turns `hashed` on */
    bool hashed;     /* compute the fingerprint of the base, its config and its files */
    /* quantise the frozen linear layers of a plain base while it is read. For training see
     * sheaf__opened_quantise() */
    sheaf_quantize quantize;
    bool as_stored;    /* a base that is stored quantised is not refused beside it: of a run, whose
                          fingerprint says whether it is the right one */
    bool scores;       /* of a new reward model: its score head is made where the base has none, by
                          added.seed; an adapter to read must have one */
    bool for_training; /* refuse unmerged LoRA in the model's own files; else SAT's is merged on
                          reading */
    const sheaf_events *events; /* get notes on decisions; may be NULL */
    sheaf__added_rows added;    /* with `fresh`: new tokens, whose rows are made and trained */
    /* options of a new adapter, when adapter is NULL; NULL = none. Without targets it gets the
     * family's default, with a note: q_proj and v_proj as PEFT, "sat" as SAT */
    const sheaf_lora_options *fresh;
} sheaf__open_options;

/* Release with sheaf__opened_close also after a failure. */
sheaf_status *sheaf__open_model(sheaf__opened *out, const sheaf__open_options *options);
void sheaf__opened_close(sheaf__opened *opened);

/* sheaf__opened_quantise - before anything is read of a base for training, of which `trains` (NULL:
 * nothing is) says what is trained: quantises what is frozen. NONE: checks that nothing is trained
 * that the base stores quantised. Errors: SHEAF_E_UNSUPPORTED. */
sheaf_status *sheaf__opened_quantise(sheaf__opened *opened, sheaf_quantize as,
                                     bool (*trains)(void *self, const sheaf_tensor *tensor),
                                     void *self);
/* sheaf__opened_tokenizer - `adapter`, the folder of its adapter, where that has tables of its own
 * and a tokenizer, which knows their rows; else NULL. */
const char *sheaf__opened_tokenizer(const sheaf__opened *opened, const char *adapter);
/* sheaf__opened_forms - a source that says which tensors are quantised, for
 * sheaf__model_options.forms; NULL: none. Borrowed. */
sheaf_source *sheaf__opened_forms(const sheaf__opened *opened);

/* sheaf__adapters_base - is this the base whose fingerprint is stored in each of n adapters? Opens
 * and reads the base only where one stores a fingerprint, quantised `as`. `config`: of the base,
 * where its folder has none, or NULL. A base that sheaf does not run has no fingerprint: a warning.
 * Errors: SHEAF_E_LAYOUT. */
sheaf_status *sheaf__adapters_base(const char *base, const char *config, sheaf_quantize as,
                                   const char *const *adapters, int n, const sheaf_events *events);
/* sheaf__opened_compare - the same for the opened base, whose fingerprint is `is`. */
sheaf_status *sheaf__opened_compare(const sheaf__opened *opened, const char *is);
/* sheaf__opened_check - the same, with the hashes of loading; first reads what no rank has read.
 * Collective over all ranks, after loading; NULL: this one is alone. */
sheaf_status *sheaf__opened_check(const sheaf__opened *opened, sheaf_comm *all);

/* sheaf__fingerprint - 32 hex digits from names, dtypes, shapes and the first and last row of
 * every tensor of the schema: tells one base from another without reading all of it. */
sheaf_status *sheaf__fingerprint(char out[33], const sheaf_schema *schema, sheaf_source *source);
