/* generate.h - a model that answers: loaded once, on any number of ranks, for any number of
 * requests.
 *
 * The tokens are the same at any number of ranks and threads. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "sheaf/control.h"
#include "sheaf/dtype.h"
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
    const char *tokenizer; /* file or folder; NULL: the run's, else that in the model's folder, else
                              bytes */
    const char *prompt_template; /* name of the chat template (docs/templates.md; with images base,
                                    chat, vqa or chat_old); NULL: the run's, else the model's */
    sheaf_dtype dtype;           /* of activations and products: float32, bfloat16 or float16;
                                    SHEAF_BOOL, which is 0: the run's, else the model's own */
    int tp;                      /* ranks that share the model; 0: one */
    int threads;                 /* compute threads in all; 0: every core at hand */
    const char *place; /* layers over stages of `tp` ranks each (docs/generate.md); NULL */
    int64_t positions; /* most of prompt (image included) and answer; 0: what the model was made
                          for, but at most 4096 */
    bool force;        /* load also what memory does not suffice for, by the planner */
    const sheaf_events *events; /* until the model is closed; may be NULL */
    bool late;  /* its weights are read by sheaf_model_load(), or by the first request: then, with
                   positions 0, for as many as that takes */
    int slices; /* parts every tensor falls into, a power of two; 0: the run's, else 8 */
    sheaf_sums sums; /* of bfloat16; MMA8 and MMA16 of float16 too */
    const char *isa; /* kernels: "ref", "avx2", "avx512", "avx512bf16" or "amx"; NULL: the best that
                        this machine has */
    int dp;          /* groups of `tp` ranks, each with the whole model, that share the prompts of
                        sheaf_model_generate_all(); 0: one */
    const char *date; /* that a chat template writes (docs/templates.md); NULL: the run's, else the
                         template's own, else today's */
    int specials;     /* special tokens that are written in texts are text (-1) or tokens (1); 0: as
                         the run has them, else text */
    bool positions_fit; /* `positions` are no more than the model was made for */
    /* The processes that open it together, each with its rank (the command's --transport mpi): all
     * make the same calls, unless a function says otherwise. NULL: this one is alone. */
    struct sheaf_comm *processes;
    const char *evaluates;   /* the path of data, where sheaf_model_evaluate() of them is all
                                that is asked of it: what else it answers by is not read. NULL */
    const char *device;      /* cpu, gpu, ... (docs/devices.md); NULL: cpu */
    sheaf_quantize quantize; /* the linear layers of a plain model, while it is loaded; 0: as in the
                                run, else not */
    int asks; /* a text is a question, laid out by the template that the model stores, if any (1),
                 or is continued as it stands (-1); 0: a question where a template is named */
} sheaf_model_open_options;

/* sheaf_model_open - loads it; its ranks are threads, which wait for requests. On x86-64 it
 * needs AVX2 and FMA. Errors: those of the folders; SHEAF_E_LAYOUT for a base that is not
 * the run's; SHEAF_E_MEMORY when the planner says that memory does not suffice. */
SHEAF_API sheaf_status *sheaf_model_open(sheaf_model **out,
                                         const sheaf_model_open_options *options);
/* sheaf_model_load - what `late` put off; nothing when that is done. Errors: as above. */
SHEAF_API sheaf_status *sheaf_model_load(sheaf_model *model);
/* sheaf_model_close - accepts NULL. */
SHEAF_API void sheaf_model_close(sheaf_model *model);

typedef struct sheaf_model_facts {
    size_t size;
    const char *family; /* its name; static */
    const char *sums;   /* the order of its sums; static; NULL: its type has one only */
    int64_t positions;  /* most of prompt and answer; 0: as many as the first request takes */
    int64_t max_new;    /* of an answer, by the model's generation_config.json; 0: no such key */
    int64_t pictures;   /* that a conversation may show; 0: the model sees none; INT32_MAX: any */
} sheaf_model_facts;

SHEAF_API sheaf_status *sheaf_model_info(sheaf_model_facts *facts, const sheaf_model *model);

/* ---- prompts ---- */

/* The answers of a model. */
typedef struct sheaf_answer sheaf_answer;

/* Why an answer is over. */
typedef enum sheaf_ending {
    SHEAF_ENDS_LENGTH,  /* max_new, or the positions, are used up */
    SHEAF_ENDS_TOKEN,   /* a token that ends answers, by the model's configs or its template */
    SHEAF_ENDS_TEXT,    /* one of the texts in `stop` */
    SHEAF_ENDS_STOPPED, /* the control */
} sheaf_ending;

typedef struct sheaf_model_generate_options {
    size_t size;
    /* One of these: a text to continue, or a question that the template puts; ids of tokens. */
    const char *text;
    const int32_t *tokens; /* [ntokens] */
    int64_t ntokens;
    int64_t max_new;           /* tokens; 0: 64 */
    double temperature;        /* divides the logits; 0: always the most probable token */
    int64_t top_k;             /* sample among the k largest; 0: all; -1: all, whatever the model's
                                  own default is */
    double top_p;              /* among the fewest with this much probability; 0: all */
    double repetition_penalty; /* divides logits of tokens that were there; 0: none */
    uint64_t seed;             /* of sampling: equal seeds give equal tokens */
    /* Called as tokens come, by another thread: the id. May be NULL. */
    void (*on_token)(void *context, int32_t token);
    void *context;
    sheaf_control *control;  /* stops it (SHEAF_E_STOPPED); may be NULL */
    const char *const *stop; /* [nstop] texts that end the answer: it ends before them */
    int64_t nstop;
    bool logprobs;        /* keep the log of each token's probability: sheaf_answer_logprobs() */
    int64_t top_logprobs; /* and so many of the most probable tokens with theirs */
    const char *system;   /* system message, where the template has a place for it; NULL */
    /* Called as the text comes, by another thread: what is certain of it, never a part of a
     * character, nor of a text that ends the answer. Joined it is the answer's. `prompt` counts
     * from 0. May be NULL. */
    void (*on_text)(void *context, int64_t prompt, const char *text);
    bool model_defaults;  /* options above that are 0, from max_new to repetition_penalty, come from
                             the model's generation_config.json, by transformers' rules */
    bool as_long_as_fits; /* an answer ends where the model's positions do, instead of being refused
                             when max_new may go beyond them */
    bool partial;         /* stopped by the control, the tokens so far are the answer */
    int64_t batch;        /* of several prompts, run together; 0: 8 */
    /* [nimages] pictures that the text asks about: one, or of a model that reads several as many,
     * where "<image>" stands for each in turn, or all stand in front. */
    const char *const *images;
    int64_t nimages;
    int64_t max_length; /* most positions of prompt (image included) and answer, which ends there;
                           0: no limit */
    int sampled;        /* with model_defaults: 1: drawn, -1: always the most probable token; 0: as
                           the model says, or what is given above asks for */
    bool program_defaults; /* with model_defaults: what its file leaves open is, of prompts that are
                              texts, as the family's own program has it */
    bool sat_order; /* of steps: SwissArmyTransformer's in place of transformers' (docs/generate.md)
                     */
    const sheaf_events *events; /* progress over prompts, and what was chosen; NULL: the
                                   latter goes to the model's events */
    /* JSON Schema as text, which the answer must satisfy (docs/generate.md says what is followed);
     * "{}": any JSON. NULL: any text. */
    const char *json_schema;
} sheaf_model_generate_options;

/* One of several prompts. One of the first three is given. */
typedef struct sheaf_model_prompt {
    size_t size;
    const char *text;
    const char *messages;  /* JSON: a list of {"role": ..., "content": ...}, a user's the last */
    const int32_t *tokens; /* [ntokens] */
    int64_t ntokens;
    /* [nimages] pictures, as above; of messages "<image>" in a user's stands for each in turn, of
     * all of them, or they stand in front of the first */
    const char *const *images;
    int64_t nimages;
} sheaf_model_prompt;

/* sheaf_model_generate - one call after the other: it waits for one that runs. Errors: SHEAF_E_DATA
 * for a prompt that is too long, empty or cannot be read; SHEAF_E_ARG, also where `on_token` or
 * `on_text` of a running generation calls the same model; SHEAF_E_UNSUPPORTED for a text without a
 * tokenizer, for an image the model cannot see, and for more than it reads. */
SHEAF_API sheaf_status *sheaf_model_generate(sheaf_answer **out, sheaf_model *model,
                                             const sheaf_model_generate_options *options);

/* sheaf_model_generate_all - several prompts, in batches; each answer is what the prompt gets
 * alone, but that sampling also depends on its number, from 0.
 *   out      [count], each to be freed; all NULL after a failure
 *   prompt   [count] elements of prompt[0].size bytes each
 *   options  without text, tokens and images; `on_token` gets all prompts' tokens as they come
 * Errors: as sheaf_model_generate(); of several with the number of the prompt, from 1. */
SHEAF_API sheaf_status *sheaf_model_generate_all(sheaf_answer **out, sheaf_model *model,
                                                 const sheaf_model_prompt *prompt, int64_t count,
                                                 const sheaf_model_generate_options *options);

/* ---- prompts of a file ---- */

/* Read at once; the model is borrowed until they are closed. */
typedef struct sheaf_prompts sheaf_prompts;

typedef struct sheaf_prompts_options {
    size_t size;
    /* One of these three. */
    const char *text;
    const char *tokens; /* ids: "1,2,3" */
    const char *data; /* JSON Lines, or plain lines (.txt); a folder of images; .safetensors, whose
                         rows are prompts up to their first label (docs/data.md) */
    const char *const *images; /* [nimages] pictures that the text asks about */
    int64_t nimages;
    const char *system; /* system message of texts, and of messages without one; NULL */
    const char *query;  /* question about every image of a folder; NULL: the run's, else CAPTCHA: */
    const char *fields; /* names that the records have for fields; NULL */
    sheaf_on_bad on_bad;
    int64_t max_length; /* prompts are shorter: positions; 0: no limit */
    const sheaf_events *events;
} sheaf_prompts_options;

/* sheaf_prompts_open - errors: SHEAF_E_DATA, which names records and fields; those of
 * sheaf_model_generate(). */
SHEAF_API sheaf_status *sheaf_prompts_open(sheaf_prompts **out, sheaf_model *model,
                                           const sheaf_prompts_options *options);
/* sheaf_prompts_close - accepts NULL. */
SHEAF_API void sheaf_prompts_close(sheaf_prompts *prompts);
SHEAF_API int64_t sheaf_prompts_count(const sheaf_prompts *prompts);

/* All texts are borrowed. */
typedef struct sheaf_prompt_facts {
    size_t size;
    const char *text;     /* the question as it was given; NULL: tokens */
    const char *expected; /* the answer that the record has; NULL: none */
    bool laid_out;        /* by a template */
} sheaf_prompt_facts;

SHEAF_API sheaf_status *sheaf_prompts_info(sheaf_prompt_facts *facts, const sheaf_prompts *prompts,
                                           int64_t i);
/* sheaf_prompts_image - the path of image `k`, from 0, of prompt `i`; borrowed; NULL: no more. */
SHEAF_API const char *sheaf_prompts_image(const sheaf_prompts *prompts, int64_t i, int64_t k);
/* sheaf_prompts_match - whether the answer says what the record of prompt `i` does, apart from
 * blanks at both ends, from how thoughts are set off, and with any_case from capital letters. */
SHEAF_API bool sheaf_prompts_match(const sheaf_prompts *prompts, int64_t i,
                                   const sheaf_answer *answer, bool any_case);
/* sheaf_prompts_begin - how they are answered, and the model is loaded for them.
 *   options  as of sheaf_model_generate_all(); kept
 * Errors: SHEAF_E_DATA for a prompt that is longer than the model was made for, unless max_length
 * allows it; those of loading. */
SHEAF_API sheaf_status *sheaf_prompts_begin(sheaf_prompts *prompts,
                                            const sheaf_model_generate_options *options);
/* sheaf_prompts_answer - after that: out[i] answers prompt i; all NULL after a failure. */
SHEAF_API sheaf_status *sheaf_prompts_answer(sheaf_answer **out, sheaf_prompts *prompts);

/* ---- answers ---- */

/* The new tokens, borrowed; *n of them. */
SHEAF_API const int32_t *sheaf_answer_tokens(const sheaf_answer *answer, int64_t *n);
/* Their text, borrowed; NULL for a model without text. */
SHEAF_API const char *sheaf_answer_text(const sheaf_answer *answer);
/* Why it is over. */
SHEAF_API sheaf_ending sheaf_answer_ending(const sheaf_answer *answer);
/* The natural logarithm of each token's probability, borrowed, as many as there are tokens: by the
 * model alone, before penalty, temperature and cuts, in float32. NULL if it was not requested. */
SHEAF_API const float *sheaf_answer_logprobs(const sheaf_answer *answer);
/* The most probable tokens in place of token `i`, falling, of equals the smaller id first; *n of
 * them, borrowed, their logarithms in *logprobs. NULL if they were not requested, or i is none.
 */
SHEAF_API const int32_t *sheaf_answer_top(const sheaf_answer *answer, int64_t i, int64_t *n,
                                          const float **logprobs);
/* sheaf_answer_free - accepts NULL. */
SHEAF_API void sheaf_answer_free(sheaf_answer *answer);

/* ---- several processes ---- */

/* Of the processes of a model, which has been loaded, the first asks; the others compute with it.
 * sheaf_model_follow - of the others: until the first ends. Where `control` (may be NULL) asks to
 * stop, the first one's sheaf_model_wait() says so. Returns what the first ended with; SHEAF_E_PEER
 * where it is gone. */
SHEAF_API sheaf_status *sheaf_model_follow(sheaf_model *model, sheaf_control *control);
/* sheaf_model_wait - of the first, now and then without a request: *over: another process is
 * to end. Errors: SHEAF_E_PEER where one is gone. */
SHEAF_API sheaf_status *sheaf_model_wait(sheaf_model *model, bool *over);
/* sheaf_model_end - of the first: the others end too, with `st`, which is consumed. Returns it, or
 * what went wrong with them. */
SHEAF_API sheaf_status *sheaf_model_end(sheaf_model *model, sheaf_status *st);

/* ---- a conversation ---- */

/* Questions and answers about a picture, several or none: each prompt holds the conversation so
 * far, as far as the template has a place for it. What the model has read of it is kept: only what
 * is new is read. */
typedef struct sheaf_chat sheaf_chat;

typedef struct sheaf_chat_options {
    size_t size;
    const char *load;          /* go on with what was saved there, and with its pictures; NULL */
    const char *save;          /* checked here for a later sheaf_chat_save(): a new file, or the one
                                  of `load`; NULL: not checked */
    const char *system;        /* system message; NULL */
    const char *const *images; /* [nimages] pictures that the first question is about */
    int64_t nimages;
    const sheaf_model_generate_options *answers; /* how questions are answered; kept, but for its
                                                    texts, which are borrowed. NULL: the defaults */
} sheaf_chat_options;

/* sheaf_chat_open - the model is borrowed until the chat is closed, and loaded; one model may have
 * several chats. Of several processes the first alone needs the files, and goes on to ask; the
 * others call sheaf_model_follow(). Errors: SHEAF_E_UNSUPPORTED for a model without text; those of
 * files and pictures; SHEAF_E_ARG for `save` where something else is, SHEAF_E_IO where no file can
 * be made; those of sheaf_model_generate() for the options. */
SHEAF_API sheaf_status *sheaf_chat_open(sheaf_chat **out, sheaf_model *model,
                                        const sheaf_chat_options *options);
/* sheaf_chat_close - accepts NULL. */
SHEAF_API void sheaf_chat_close(sheaf_chat *chat);
/* sheaf_chat_show - another picture; clears the conversation. Of a model that reads several
 * (OmniLMM, MiniCPM-V, Qwen-VL) one more, which stands in front of the next question, or where that
 * says
 * "<image>"; the conversation stays. NULL: none, or (several) those that no question has shown are
 * taken back. On failure nothing changes. Errors: those of the picture; SHEAF_E_ARG where there is
 * none to take back. */
SHEAF_API sheaf_status *sheaf_chat_show(sheaf_chat *chat, const char *image);
/* sheaf_chat_reset - clears the conversation; picture and system message stay. */
SHEAF_API void sheaf_chat_reset(sheaf_chat *chat);
/* sheaf_chat_system - the system message, or none (NULL or empty); clears the conversation.
 * Errors: SHEAF_E_UNSUPPORTED for a template without a place for it; then nothing changes. */
SHEAF_API sheaf_status *sheaf_chat_system(sheaf_chat *chat, const char *text);
/* sheaf_chat_save - the conversation, as a JSON object {"messages": [...]}, which is training data
 * too. The file is new, or the one that this chat was saved to or loaded from last, which stays as
 * it was until the new one is complete. Errors: SHEAF_E_ARG where something else is; SHEAF_E_IO.
 * sheaf_chat_load - replaces the conversation and the picture by those of the file. Errors:
 * SHEAF_E_DATA that names the message, SHEAF_E_FORMAT, SHEAF_E_IO; then nothing changes. */
SHEAF_API sheaf_status *sheaf_chat_save(sheaf_chat *chat, const char *path);
SHEAF_API sheaf_status *sheaf_chat_load(sheaf_chat *chat, const char *path);
/* sheaf_chat_file - the one it was saved to or loaded from last, borrowed; NULL: none. */
SHEAF_API const char *sheaf_chat_file(const sheaf_chat *chat);
/* sheaf_chat_said - message `i`, from 0, borrowed until the chat changes, with its role in *role
 * ("system", "user" or "assistant"; may be NULL); NULL: there is none. */
SHEAF_API const char *sheaf_chat_said(const sheaf_chat *chat, int64_t i, const char **role);
/* sheaf_chat_ask - the answer to a question, which is remembered with it.
 *   options  as of sheaf_model_generate(), without text, tokens, images and system; NULL: those
 *            of sheaf_chat_open()
 * Errors: as sheaf_model_generate(); then nothing is remembered. */
SHEAF_API sheaf_status *sheaf_chat_ask(sheaf_answer **out, sheaf_chat *chat, const char *question,
                                       const sheaf_model_generate_options *options);

#ifdef __cplusplus
}
#endif
