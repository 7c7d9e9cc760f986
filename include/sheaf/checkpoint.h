/* checkpoint.h - models, adapters and checkpoints of any program: looked at, verified, converted,
 * merged, compared, initialised.
 *
 * A path may be a Hugging Face folder, a PEFT adapter, a checkpoint of SAT, DeepSpeed, Megatron,
 * ColossalAI or PyTorch's DCP (docs/dialects.md), one of sheaf's own, the OUT of a training run, or
 * a .safetensors or PyTorch file. Tensors are undivided and have their canonical names, whatever
 * parts they lie in.
 *
 * Structs begin with their size: options.h. A dtype is SHEAF_F32,
 * SHEAF_BF16 or SHEAF_F16; 0 keeps what is stored. `threads` 0 is every core at hand. `events`
 * hears of notes, warnings and progress; with `control` an operation can be stopped
 * (SHEAF_E_STOPPED). What is written appears complete or not at all. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "sheaf/control.h"
#include "sheaf/dtype.h"
#include "sheaf/events.h"
#include "sheaf/finding.h"
#include "sheaf/options.h"
#include "sheaf/source.h"
#include "sheaf/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- what lies at a path, and its tensors ---- */

typedef struct sheaf_weights sheaf_weights;

typedef enum sheaf_weights_kind {
    SHEAF_WEIGHTS_MODEL,
    SHEAF_WEIGHTS_ADAPTER,
    SHEAF_WEIGHTS_CHECKPOINT, /* of training, sheaf's own */
    SHEAF_WEIGHTS_RUN,        /* the OUT of a run: no tensors; open OUT/checkpoints/step-N */
    SHEAF_WEIGHTS_FILE,
} sheaf_weights_kind;

typedef struct sheaf_weights_options {
    size_t size;
    const char *dialect; /* "hf", "sat", ..., where it is not recognised; NULL: recognise it */
    const char *config;  /* of the model, where its folder has none; NULL */
} sheaf_weights_options;

typedef struct sheaf_weights_facts {
    size_t size;
    sheaf_weights_kind kind;
    const char *dialect; /* static */
    const char *config;  /* path of config.json or its like, borrowed; NULL: none */
    bool tied;           /* a model whose output head is its embedding table */
    int64_t tensors, elements, bytes;
} sheaf_weights_facts;

/* sheaf_weights_open - reads headers alone, and proves that no part of a tensor is missing.
 * Errors: SHEAF_E_IO when nothing is there; SHEAF_E_UNSUPPORTED when it is not recognised; the
 * first defect of what is not whole. */
SHEAF_API sheaf_status *sheaf_weights_open(sheaf_weights **out, const char *path,
                                           const sheaf_weights_options *options);
/* sheaf_weights_close - accepts NULL. */
SHEAF_API void sheaf_weights_close(sheaf_weights *weights);

/* sheaf_weights_info - texts in *facts live as long as `weights`. Errors: SHEAF_E_ARG. */
SHEAF_API sheaf_status *sheaf_weights_info(sheaf_weights_facts *facts,
                                           const sheaf_weights *weights);
/* Tensors by number from 0, and by name; NULL where there is none. Borrowed from `weights`. */
SHEAF_API int64_t sheaf_weights_count(const sheaf_weights *weights);
SHEAF_API const sheaf_source_entry *sheaf_weights_entry(const sheaf_weights *weights,
                                                        int64_t index);
SHEAF_API const sheaf_source_entry *sheaf_weights_find(const sheaf_weights *weights,
                                                       const char *name);

/* sheaf_weights_read - rows [row0, row0 + rows) of a tensor, in its stored dtype, row-major. A row
 * is what one index of all axes but the last selects; of a vector, one element; a scalar is one
 * row.
 *   rows   -1: all from row0 on
 *   bytes  room at dst; it must be what the rows take
 * Thread-safe; reads no other bytes. Errors: SHEAF_E_ARG for a name that is none, rows out of range
 * and room of another size; those of reading. */
SHEAF_API sheaf_status *sheaf_weights_read(void *dst, size_t bytes, const sheaf_weights *weights,
                                           const char *name, int64_t row0, int64_t rows);

typedef struct sheaf_path_info_options {
    size_t size;
    bool tensors; /* also the list of all tensors */
} sheaf_path_info_options;

/* sheaf_path_info - what a folder or file holds, as a JSON object with the keys of docs/cli.md: a
 * model or checkpoint of any program, an adapter, the folder of a run (does it run, how far is it),
 * its metrics.jsonl, or a .safetensors file; and what is odd about it. No data is read. The caller
 * frees *json. Errors: those of sheaf_weights_open() if nothing is known of it. */
SHEAF_API sheaf_status *sheaf_path_info(char **json, const char *path,
                                        const sheaf_path_info_options *options);

/* ---- verify ---- */

/* The findings about a checkpoint. */
typedef struct sheaf_verification sheaf_verification;

typedef struct sheaf_weights_verify_options {
    size_t size;
    bool quick;          /* its structure alone; else every byte is read, hashes and checksums are
                            compared, and NaN and Inf are found */
    const char *dialect; /* NULL: recognise it */
    const char *config;  /* of the model, where its folder has none; NULL */
    const char *const *also; /* further folders with parts of it, ends with NULL; or NULL */
    const char *base; /* of an adapter: the model to hold it against; NULL: the one that its config
                         names, where it is here */
    int threads;
    const sheaf_events *events;
    sheaf_control *control;
} sheaf_weights_verify_options;

typedef struct sheaf_verification_facts {
    size_t size;
    const char *path, *dialect;       /* borrowed */
    const char *model, *config;       /* "llama", ...; path of its config; NULL: not known */
    int tp, pp, dp;                   /* parallel sizes; 0: not known */
    int64_t step;                     /* -1: not known */
    int64_t vocab, padded_vocab;      /* rows of the tables: true, and as stored; -1: not known */
    int64_t tensors, elements, bytes; /* of weights and buffers */
    int64_t lora, moments;    /* tensors of LoRA that is not merged, and of optimizer state */
    int64_t read;             /* bytes that were read */
    bool sound;               /* no finding is a defect, and all parts lie in one place */
    bool full;                /* every byte was looked at */
    bool partial;             /* by a note, some parts cannot be known from files */
    bool adapter;             /* it is a PEFT adapter */
    const char *title;        /* the dialect in words */
    const int64_t *dtypes;    /* [SHEAF_DTYPE_COUNT] tensors of each, borrowed */
    const char *quantization; /* forms of tensors in 4 or 8 bits, whose dtype is that of their
                                 values; NULL: there are none */
} sheaf_verification_facts;

/* sheaf_weights_verify - whether it is complete, consistent and undamaged, and so is what lies
 * beside it in its folder and is opened with it (tokenizer, generation_config.json). Damage is no
 * error but a finding. Errors: those of reading where nothing can be looked at; SHEAF_E_ARG for an
 * unknown dialect. */
SHEAF_API sheaf_status *sheaf_weights_verify(sheaf_verification **out, const char *path,
                                             const sheaf_weights_verify_options *options);
SHEAF_API sheaf_status *sheaf_verification_info(sheaf_verification_facts *facts,
                                                const sheaf_verification *verification);
SHEAF_API bool sheaf_verification_sound(const sheaf_verification *verification);
SHEAF_API int64_t sheaf_verification_count(const sheaf_verification *verification);
/* sheaf_verification_finding - by number from 0, borrowed; NULL where there is none. */
SHEAF_API const sheaf_finding *sheaf_verification_finding(const sheaf_verification *verification,
                                                          int64_t index);
/* sheaf_weights_joint - whether the paths are parts of one checkpoint, of which the first is not
 * whole alone and all together are. Then they are verified as the first, the others in
 * options->also. Errors: SHEAF_E_MEMORY. */
SHEAF_API sheaf_status *sheaf_weights_joint(bool *joint, const char *const *paths, int count,
                                            const sheaf_weights_verify_options *options);
/* sheaf_verification_free - accepts NULL. */
SHEAF_API void sheaf_verification_free(sheaf_verification *verification);

/* ---- convert ---- */

typedef struct sheaf_weights_convert_options {
    size_t size;
    const char *src; /* the model to convert; also a run or a checkpoint of training, when `to` is
                        hf, sat, peft, gguf or gguf-lora; sheaf with `optimizer` */
    const char *const *also; /* further folders with parts of it, ends with NULL; or NULL */
    const char *dst;         /* must not exist, or be an empty folder; gguf, gguf-...: a file */
    const char *to;          /* "hf", "sat", "peft", "sheaf", "gguf", "gguf-lora" or
                                "gguf-mmproj" */
    const char *from;        /* dialect of src; NULL: recognise it */
    const char *config;      /* of the model, where src has none; NULL */
    const char *model_class; /* sat: "CogAgentModel", where the config names the wrong one; NULL */
    const char *adapter;     /* sat: a PEFT adapter of src, to be written as SAT's LoRA; NULL */
    const char *base;        /* of a run, or of gguf-lora's adapter: the model it was trained on;
                                NULL: as its settings say */
    double lora_alpha;       /* peft: of LoRA inside of src, where its config does not lie there */
    bool own_lora;           /* sat: LoRA of src's own is merged, into as many parts as src has */
    sheaf_dtype dtype;       /* SHEAF_BOOL, which is 0: as stored */
    int tp;                  /* sat: parts to write; 0: one */
    int slices;              /* sheaf: 0 is 8 */
    int64_t step;            /* to note in dst; 0: as in src */
    int64_t shard_bytes;     /* hf: of a file at most; 0: 50 GB */
    bool optimizer;          /* moments too: hf and sheaf */
    bool drop_unread;        /* tensors of kinds that are not read are left out, with a warning */
    int threads;
    const sheaf_events *events;
    sheaf_control *control;
    sheaf_quantize quantize; /* hf: linear layers in 4 or 8 bits, as bitsandbytes, GPTQ or AWQ
                                stores them; gguf: Q8_0, Q4_K_M, Q5_K_M or Q6_K */
    bool dequantize;         /* quantised weights of src as plain ones; else hf keeps them */
    bool modelfile;          /* gguf: Ollama's Modelfile in the folder of dst too */
    int64_t group_size;      /* GPTQ, AWQ: columns that share a scale, 32, 64 or 128; 0: 128 */
} sheaf_weights_convert_options;

typedef struct sheaf_weights_convert_report {
    size_t size;
    int64_t tensors, bytes; /* written, moments included */
    int64_t moments;        /* of them */
    int64_t merged;         /* weights that LoRA was merged into */
    int64_t adapted;        /* layers written with factors of the adapter */
    int64_t step;           /* -1: not known or not kept */
    const char *from;       /* the dialect of src, static */
    int parts;              /* sat: written */
    int64_t quantised;      /* weights written in 4 or 8 bits */
} sheaf_weights_convert_report;

/* sheaf_weights_convert - joins, divides, unpads, changes form and dtype; streaming, some megabytes
 * a thread. Errors: those of reading; the first defect of what is not whole (SHEAF_E_LAYOUT);
 * SHEAF_E_ARG or SHEAF_E_UNSUPPORTED for what the target cannot be; SHEAF_E_NUMBER when a finite
 * number would become Inf. */
SHEAF_API sheaf_status *sheaf_weights_convert(sheaf_weights_convert_report *report,
                                              const sheaf_weights_convert_options *options);

/* ---- merge ---- */

typedef enum sheaf_weights_merge_mode {
    SHEAF_MERGE_ROUND_ONCE,     /* all is added in float32 and rounded once */
    SHEAF_MERGE_LIKE_PEFT,      /* the bits of PEFT's merge_and_unload() */
    SHEAF_MERGE_LIKE_PEFT_SAFE, /* of merge_and_unload(safe_merge=True) */
} sheaf_weights_merge_mode;

typedef struct sheaf_weights_merge_options {
    size_t size;
    const char *base; /* the model; NULL: the one that the first run among the adapters names */
    const char *const *adapters; /* [nadapters] PEFT folders, runs or checkpoints of training;
                                    merged in this order */
    int nadapters;               /* at most 64 */
    const char *dst;             /* must not exist, or be an empty folder */
    const char *config;          /* the base's, where its folder has none; NULL */
    const char *combine;         /* "linear" or "cat": the adapters become one first; NULL */
    const double *weights;       /* [nadapters] for that; NULL: 1 each */
    bool adapter_only;           /* write the combined adapter: there is no base */
    sheaf_weights_merge_mode mode;
    const char *to;    /* "hf" or "sat"; NULL: hf */
    int tp;            /* sat: parts to write; 0: one */
    int peft_cpu;      /* like PEFT: on whose processor, as it counts above rank 192: 0 this one, 1
                          Intel's, 2 AMD's */
    sheaf_dtype dtype; /* SHEAF_BOOL, which is 0: each tensor's own */
    int threads;
    const sheaf_events *events;
    sheaf_control *control;
    sheaf_quantize quantize; /* a plain base is quantised while it is read, as training with this
                                option does; NONE: as a run among the adapters was trained */
    bool plain_base; /* base is the plain model of which the adapters' base was quantised: merge
                        onto it as it is; fingerprints are not compared */
    bool requantize; /* weights of a base in bitsandbytes' 4 or 8 bits stay so, changed ones are
                        quantised again; else they are written dequantised */
} sheaf_weights_merge_options;

typedef struct sheaf_weights_merge_report {
    size_t size;
    int64_t tensors, bytes;    /* written; of an adapter alone 0 */
    int64_t adapted, replaced; /* by a change that is added; by tensors or rows of the adapter */
    int64_t changed;           /* tensors with at least one other byte */
    int64_t elements_changed;
    double change_norm, base_norm; /* roots of sums of squares: of all changes; of the base values
                                      of changed tensors */
    int64_t rows_checked;          /* read back and computed again: equal */
    bool untied;                   /* a tied tensor became several */
    int64_t elements_adapted;      /* of tensors to which a change is added, and none is replaced */
    int64_t elements_kept;    /* of these, with the bits of the base: the change was rounded away */
    int64_t products_checked; /* rows of adapted weights whose product with a random vector was
                                 compared */
    double worst_product;     /* largest difference, in units of the rounding expected */
    char worst_tensor[256];   /* its tensor; "" when none was compared */
    bool whole;               /* a run trained whole tensors: they stand in place of the base's */
    int parts;              /* LoRA that lay in the base itself was merged, into so many; else 0 */
    int64_t base_quantised; /* weights of the base in 4 or 8 bits */
    int64_t requantised;    /* of them, those that were changed and quantised again, and */
    double requantise_worst, requantise_mean; /* the error of quantising again: the largest and the
                                                 mean |written - merged| of all their elements */
    char requantise_tensor[256];              /* the tensor with the largest */
} sheaf_weights_merge_report;

/* sheaf_weights_merge - W + s B A in bounded memory, for every variant of PEFT's (docs/merge.md),
 * read back and checked. Errors: SHEAF_E_ARG when dst is in use; SHEAF_E_LAYOUT when adapter and
 * base do not fit; SHEAF_E_UNSUPPORTED by name for kinds of adapters that are not known;
 * SHEAF_E_NUMBER when a finite weight would become infinite. */
SHEAF_API sheaf_status *sheaf_weights_merge(sheaf_weights_merge_report *report,
                                            const sheaf_weights_merge_options *options);

/* ---- compare ---- */

typedef enum sheaf_diff_kind {
    SHEAF_DIFF_VALUES,
    SHEAF_DIFF_SHAPE,
    SHEAF_DIFF_DTYPE, /* other type; values compared all the same */
    SHEAF_DIFF_ONLY_A,
    SHEAF_DIFF_ONLY_B,
    SHEAF_DIFF_CONFIG /* name is a key */
} sheaf_diff_kind;

/* One difference. */
typedef struct sheaf_diff_item {
    sheaf_diff_kind kind;
    const char *name;
    const sheaf_source_entry *a, *b; /* NULL where there is none */
    int64_t elements,
        differing;  /* elements whose values differ (or bytes, in types that are not numbers) */
    double largest; /* |a - b|; infinite where only one is a number */
    int64_t first;  /* index of the first differing element, row-major, -1 if none */
    const char *a_text, *b_text; /* of SHEAF_DIFF_CONFIG: JSON, NULL where there is none */
} sheaf_diff_item;

typedef struct sheaf_weights_diff_report {
    size_t size;
    int64_t tensors;     /* names in A or B */
    int64_t different;   /* of them */
    int64_t config_keys; /* that differ and mean something */
    double largest;      /* over all tensors */
    bool same;           /* all bytes of all tensors' values agree, and so do the configs */
    int64_t moments;     /* of `tensors`, those of optimizer state */
    int64_t moments_only_a, moments_only_b; /* beside the model of one side alone: not compared */
    int64_t forms; /* tensors in 4 or 8 bits on one side, and otherwise on the other: their values
                      were compared, dequantised */
} sheaf_weights_diff_report;

typedef struct sheaf_weights_diff_options {
    size_t size;
    /* Called for each difference, tensors in name order, with an item that is valid during the
     * call; may be NULL. */
    void (*on_item)(void *context, const sheaf_diff_item *item);
    void *context;
    sheaf_control *control;
    const sheaf_events *events;
} sheaf_weights_diff_options;

/* sheaf_weights_diff - compares the undivided tensors at two paths by name: weights, factors of
 * LoRA that is not merged, and moments of an optimizer where both have some. Errors: those of
 * sheaf_weights_open(); SHEAF_E_ARG for a run, or kinds that cannot be compared. */
SHEAF_API sheaf_status *sheaf_weights_diff(sheaf_weights_diff_report *report, const char *a,
                                           const char *b,
                                           const sheaf_weights_diff_options *options);

/* ---- begin ---- */

typedef struct sheaf_weights_init_options {
    size_t size;
    const char *spec; /* path of a config.json or SAT's model_config.json, a folder with one, or a
                         built-in name (sheaf_weights_init_name) */
    const char *dst;  /* must not exist, or be an empty folder; becomes a Hugging Face folder */
    uint64_t seed;
    sheaf_dtype dtype; /* SHEAF_BOOL, which is 0: what the config says */
    int threads;
    const sheaf_events *events;
    sheaf_control *control;
    sheaf_quantize quantize; /* linear layers in 4 or 8 bits, as bitsandbytes stores them */
} sheaf_weights_init_options;

typedef struct sheaf_weights_init_report {
    size_t size;
    int64_t tensors, parameters, bytes;
    sheaf_dtype dtype;
    int64_t quantised; /* weights in 4 or 8 bits */
} sheaf_weights_init_report;

/* sheaf_weights_init - a new model with random weights, each number a function of the seed, the
 * tensor's name and its place alone. Errors: SHEAF_E_ARG for an unknown name or a dst in use; those
 * of the config. */
SHEAF_API sheaf_status *sheaf_weights_init(sheaf_weights_init_report *report,
                                           const sheaf_weights_init_options *options);
/* sheaf_weights_init_name - the built-in name number `i`, from 0, and in *what a few words about
 * it; both NULL after the last. Static. */
SHEAF_API const char *sheaf_weights_init_name(const char **what, int i);

#ifdef __cplusplus
}
#endif
