/* generate.h - a model that answers: loaded once, on any number of ranks, asked as often as wanted.
 *
 * The tokens are the same at any number of ranks and threads. */
#ifndef SHEAF_GENERATE_H
#define SHEAF_GENERATE_H

#include <stdbool.h>
#include <stdint.h>

#include "sheaf/control.h"
#include "sheaf/events.h"
#include "sheaf/options.h"
#include "sheaf/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- the model ---- */

typedef struct sheaf_model sheaf_model;

typedef struct sheaf_model_open_options {
    size_t size;
    const char *model;     /* folder of the model, or of a training run, or a checkpoint in it */
    const char *adapter;   /* PEFT adapter, or a training run, to use with it; NULL */
    const char *config;    /* its config.json, where the folder has none; NULL */
    const char *tokenizer; /* sentencepiece file; NULL: the run's, else tokenizer.model in the
                              model's folder, else bytes */
    const char *prompt_template; /* how a question is put: base, chat, vqa or chat_old; NULL: the
                                    run's, else the model's */
    const char *dtype;           /* of activations and products: "float32", "bfloat16" or
                                    "float16"; NULL: the first */
    int tp;                      /* ranks that share the model; 0: one */
    int threads;                 /* compute threads in all; 0: every core at hand */
    const char *place; /* layers over stages of `tp` ranks each (docs/generate.md); NULL */
    int64_t positions; /* most of prompt (image included) and answer; 0: what the model was made
                          for, but at most 4096 */
    bool force;        /* load also what memory does not suffice for, by the planner */
    const sheaf_events *events; /* until the model is closed; may be NULL */
} sheaf_model_open_options;

/* sheaf_model_open - loads it; its ranks are threads, which wait until they are asked. Needs a
 * processor with AVX2 and FMA. Errors: those of the folders; SHEAF_E_LAYOUT for a base that is not
 * the run's; SHEAF_E_MEMORY when the planner says that memory does not suffice. */
SHEAF_API sheaf_status *sheaf_model_open(sheaf_model **out,
                                         const sheaf_model_open_options *options);
/* sheaf_model_close - accepts NULL. */
SHEAF_API void sheaf_model_close(sheaf_model *model);

/* ---- one prompt ---- */

/* What a model answered. */
typedef struct sheaf_answer sheaf_answer;

typedef struct sheaf_model_generate_options {
    size_t size;
    /* One of these: a text to continue, or a question that the template puts; ids of tokens. */
    const char *text;
    const int32_t *tokens; /* [ntokens] */
    int64_t ntokens;
    const char *image;         /* picture that the text asks about; NULL */
    int64_t max_new;           /* tokens; 0: 64 */
    double temperature;        /* divides the logits; 0: always the most probable token */
    int64_t top_k;             /* sample among the k largest; 0: all */
    double top_p;              /* among the fewest with this much probability; 0: all */
    double repetition_penalty; /* divides logits of tokens that were there; 0: none */
    uint64_t seed;             /* of sampling: equal seeds give equal tokens */
    /* Called as tokens come, by another thread: the id. May be NULL. */
    void (*told)(void *context, int32_t token);
    void *context;
    sheaf_control *control; /* stops it (SHEAF_E_STOPPED); may be NULL */
} sheaf_model_generate_options;

/* sheaf_model_generate - one call after the other: it waits for one that runs. Errors: SHEAF_E_DATA
 * for a prompt that is too long, empty or cannot be read; SHEAF_E_ARG; SHEAF_E_UNSUPPORTED for a
 * text without a tokenizer, and for an image the model cannot see. */
SHEAF_API sheaf_status *sheaf_model_generate(sheaf_answer **out, sheaf_model *model,
                                             const sheaf_model_generate_options *options);

/* The new tokens, borrowed; *n of them. */
SHEAF_API const int32_t *sheaf_answer_tokens(const sheaf_answer *answer, int64_t *n);
/* Their text, borrowed; NULL for a model without text. */
SHEAF_API const char *sheaf_answer_text(const sheaf_answer *answer);
/* sheaf_answer_free - accepts NULL. */
SHEAF_API void sheaf_answer_free(sheaf_answer *answer);

/* ---- a conversation ---- */

/* Questions and answers about one picture, or none: each prompt holds what was said before, as far
 * as the template has a place for it. */
typedef struct sheaf_chat sheaf_chat;

/* sheaf_chat_open - the model is borrowed until the chat is closed; one model may have several
 * chats. image  NULL: none Errors: SHEAF_E_UNSUPPORTED for a model without text; those of the
 * picture. */
SHEAF_API sheaf_status *sheaf_chat_open(sheaf_chat **out, sheaf_model *model, const char *image);
/* sheaf_chat_close - accepts NULL. */
SHEAF_API void sheaf_chat_close(sheaf_chat *chat);
/* sheaf_chat_look - another picture; what was said is forgotten. On failure nothing changes. */
SHEAF_API sheaf_status *sheaf_chat_look(sheaf_chat *chat, const char *image);
/* sheaf_chat_reset - forgets what was said; the picture stays. */
SHEAF_API void sheaf_chat_reset(sheaf_chat *chat);
/* sheaf_chat_ask - the answer to a question, which is remembered with it.
 *   options  as of sheaf_model_generate(), without text, tokens and image; NULL: the defaults
 * Errors: as sheaf_model_generate(); then nothing is remembered. */
SHEAF_API sheaf_status *sheaf_chat_ask(sheaf_answer **out, sheaf_chat *chat, const char *question,
                                       const sheaf_model_generate_options *options);

#ifdef __cplusplus
}
#endif

#endif
