/* options.h - the options of a fine-tuning run: the flags of `sheaf train` (their table is in
 * src/library/train_settings.c) as one struct.
 *
 * Strings are borrowed: from argv, a recipe, or the caller's literals. An empty
 * or NULL string means "not given". Zero is a value here; start from
 * sheaf_train_options_default(), which has the defaults of the Hugging Face
 * Trainer and of PEFT. */
#pragma once

#include "base/base.h"
#include "base/events.h"
#include "comm/comm.h"
#include "data/data.h"
#include "lora/adapter.h"
#include "models/open.h"
#include "sheaf/dtype.h"
#include "tape/tape.h"
#include "train/objective.h"
#include "train/schedule.h"

enum { SHEAF__DEFAULT_SLICES = 8 };
typedef enum sheaf_optimizer { SHEAF_OPTIMIZER_ADAMW, SHEAF_OPTIMIZER_ADAMW8BIT } sheaf_optimizer;
typedef enum sheaf_add_tokens_init {
    SHEAF_ADD_TOKENS_MEAN,
    SHEAF_ADD_TOKENS_RANDOM
} sheaf_add_tokens_init;
typedef enum sheaf_method { SHEAF_METHOD_LORA, SHEAF_METHOD_HEAD, SHEAF_METHOD_FULL } sheaf_method;

typedef struct sheaf_train_options {
    /* inputs and output */
    const char *model;  /* folder of the base model */
    const char *config; /* its config.json, where the folder has none */
    const char *data;
    const char *tokenizer; /* for texts: file or folder; default the model's folder */
    /* base, chat, vqa, chat_old; default the config's, else base. Of texts: a chat template;
     * default the tokenizer's */
    const char *prompt_template;
    const char *date;       /* for the chat template; default the template's own */
    const char *query;      /* question about every image of a folder */
    sheaf_loss_on loss_on;  /* for texts: the tokens to learn */
    sheaf_on_bad on_bad;    /* bad records: an error or skipped */
    const char *fields;     /* other names for fields of records (data/fields.h); NULL: none */
    sheaf_on_long on_long;  /* records that are too long: an error, cut or skipped */
    bool specials;          /* special tokens that are written in texts are tokens */
    bool pack, by_length;   /* several records in a row; micro-batches of rows of similar length */
    const char *data_cache; /* folder of tokenised texts; NULL: of large data OUT/cache */
    const char *out;
    const char *tensorboard; /* folder for its files of events; NULL: none */
    int metrics_port;        /* of numbers for Prometheus; 0: none */
    const char *adapter;     /* PEFT adapter to start from */
    const char *folder;      /* start of the run: its relative paths begin there */
    const char *base_name; /* the model's path as given, for the result's adapter_config.json; NULL
                              = model */

    /* how many devices; never changes a byte of the result */
    int tp, dp;
    sheaf_transport transport;
    const char *mpi; /* name or path of an MPI; NULL: the launcher's, or the one found */
    const char *hosts, *hostfile; /* hosts to start processes on; NULL: this one */
    int threads;                  /* compute threads in all, 0 = every core this process may use */
    bool checkpointing;           /* the flag: another name of `kept` NONE, which alone is read */
    const char *offload;          /* offloaded between uses: "weights,moments" */
    const char *offload_dir; /* folder of files for that; NULL: OUT; of a GPU, its host's memory */
    sheaf__kept kept;        /* kept for the backward pass; INT8 changes the result */
    bool kept_given;         /* by the caller: else pairs may be kept, too, where they fit */
    /* "ref", "avx2", "avx512", "avx512bf16", "amx"; NULL = the best here (for tests) */
    const char *isa;
    const char *device; /* docs/devices.md; NULL: cpu */

    /* the trained tensors */
    int slices; /* S */
    sheaf_method method;
    const char *train; /* tensor-name patterns (select.h), comma separated: trained beside LoRA, or
                          alone by method head; NULL = nothing beside LoRA, the output head */
    const char *lr_scale; /* "PATTERN=X,...": learning-rate scales by tensor name */
    double lora_plus;     /* LoRA+: the learning rate of B beside that of A; 0: the same */
    int64_t lora_rank;
    double lora_alpha;
    const char *lora_targets; /* "a,b,c", a regular expression, "all-linear", "sat" or "sat-vit";
                                 NULL = the model's default */
    const char *lora_exclude; /* list or regular expression */
    const char *lora_layers;  /* "0,1,5": layers that carry LoRA; NULL = all */
    const char *lora_rank_pattern;  /* "PATTERN=RANK,..." */
    const char *lora_alpha_pattern; /* "PATTERN=ALPHA,..." */
    double lora_dropout;
    bool lora_rslora, lora_dora;
    const char *init;                      /* how a new adapter begins (lora/adapter.h) */
    int lora_bias;                         /* SHEAF_BIAS_NONE, _ALL, _LORA_ONLY */
    const char *modules_to_save;           /* "a,b": trained in full beside LoRA */
    const char *add_tokens;                /* file of tokens that the tokenizer gets; NULL: none */
    sheaf_add_tokens_init add_tokens_init; /* how their rows begin */
    const char *tokens_in; /* folder of the tokenizer, in place of both above: of the run itself */

    /* the steps */
    int64_t steps;       /* optimizer steps in all; 0: as `epochs` says */
    double epochs;       /* passes over the rows that are trained on, in place of steps; 0 = none */
    int64_t micro_batch; /* rows of one forward */
    int64_t accumulate;  /* micro-batches of one step, over all groups */
    int accumulators;    /* G; 0: as the method has it */
    int64_t seq;         /* longest row kept, 0 = the model's own limit */
    bool shuffle;
    double lr;
    sheaf_schedule_kind schedule;
    int64_t warmup;      /* steps */
    double warmup_ratio; /* the same as a share of all steps, 0 = use `warmup` */
    double min_lr_ratio; /* end of cosine, wsd and sat-cosine; 0 = the default of each */
    int64_t decay_steps; /* of wsd, its last */
    sheaf_optimizer optimizer;
    double weight_decay, beta1, beta2, eps;
    double clip; /* largest gradient norm, 0 = no clipping */
    /* share of each label that is spread over the vocabulary; of pairs, of those that are the wrong
     * way round */
    double label_smoothing;
    sheaf__objective_options objective;
    double neftune_alpha;    /* noise on the embedding, alpha / sqrt(tokens * width); 0 = none */
    sheaf_dtype dtype;       /* of activations and products */
    sheaf_sums sums;         /* for types that have several */
    sheaf_quantize quantize; /* frozen weights of a plain base, while they are loaded */
    /* float16: how the loss is scaled (scaler.h); zeros are the defaults */
    const char *loss_scale; /* "dynamic", or a scale that stays; NULL = dynamic */
    double loss_scale_init, loss_scale_min;
    int64_t loss_scale_window, loss_scale_hysteresis;
    uint64_t seed;

    /* state on disk */
    int64_t save_every;   /* steps, 0 = only at the end */
    int64_t export_every; /* steps between OUT/exports/step-N, the form of the result; 0 = none */
    int64_t keep;         /* newest checkpoints kept, 0 = all */
    bool resume;

    /* while it trains */
    const char *eval_data; /* data for evaluations; or */
    double eval_split;     /* this share of the data, held out from training; 0 = none */
    int64_t eval_every;    /* steps between evaluations, 0 = only at the end */
    int64_t patience;      /* evaluations without a better loss before the run ends, 0 = no limit */
    double min_delta;      /* least decrease of the loss that resets patience */
    bool use_best;         /* the result is the best step's, not the last one's */
    double max_time;       /* seconds after which it saves and stops, 0 = never */

    /* failures (comm/watch/watch.h) */
    double heartbeat;  /* seconds of silence after which a process counts as dead, 0 = hang_after */
    double hang_after; /* seconds without progress, 0 = never */
    int64_t restarts;  /* how often the run is restarted */

    /* the command's own */
    const char *recipe;
    unsigned yields; /* SHEAF__YIELDS_...: what sheaf__sets_open() may lower for little data */
    bool force;      /* start even if memory does not suffice */
    bool json;
} sheaf_train_options;

void sheaf_train_options_default(sheaf_train_options *options);

enum {
    SHEAF__YIELDS_PACK = 1,
    SHEAF__YIELDS_ACCUMULATE = 2,
    SHEAF__YIELDS_MICRO_BATCH = 4,
    SHEAF__YIELDS_WARMUP = 8,
};

enum {
    SHEAF__OFFLOADS_WEIGHTS = 1,
    SHEAF__OFFLOADS_MOMENTS = 2,
    SHEAF__OFFLOADS_ACTIVATIONS = 4,
    SHEAF__OFFLOADS_ALL = 7,
};
/* sheaf__offloads - options->offload as a sum of these. Errors: SHEAF_E_ARG. */
sheaf_status *sheaf__offloads(unsigned *out, const char *offload);
/* sheaf__offloads_text - as --offload takes them; static. */
const char *sheaf__offloads_text(unsigned offloads);

/* The schedule in the options. */
sheaf_schedule sheaf_train_options_schedule(const sheaf_train_options *options);

/* sheaf_train_options_lora - the LoRA options for lora/adapter.h (owned by the caller,
 * sheaf_lora_options_release()). With --adapter the adapter's own config decides instead: read it
 * with sheaf_lora_options_read(). Errors: SHEAF_E_ARG naming the flag. */
sheaf_status *sheaf_train_options_lora(sheaf_lora_options *out, const sheaf_train_options *options);

/* sheaf__train_options_open - how to open the model of a run: its folder and slices, and with
 * method lora the adapter it starts from or a new one. The caller sets the purpose. `fresh` gets
 * the new adapter, which `out` points to; always release it. Errors: those of
 * sheaf_train_options_lora(). */
sheaf_status *sheaf__train_options_open(sheaf__open_options *out, sheaf_lora_options *fresh,
                                        const sheaf_train_options *options);

/* sheaf__warmup_yield - drops a warm-up that yields, where no step would learn or, with --epochs,
 * there are three at most. False: it stays. */
bool sheaf__warmup_yield(sheaf_train_options *options);
/* sheaf__rates_check - for a run with a known number of steps: warns of a warm-up that takes all of
 * it, or most of a few steps. Errors: SHEAF_E_ARG if every rate is 0. */
sheaf_status *sheaf__rates_check(const sheaf_train_options *options, const sheaf_events *events);

/* sheaf__rates_resumed - for a run that is resumed after `done` steps with other options than
 * `was`: warns if the steps are done already, and if the schedule changes. */
void sheaf__rates_resumed(const sheaf_train_options *options, const sheaf_train_options *was,
                          int64_t done, const sheaf_events *events);
