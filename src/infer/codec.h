/* codec.h - encodes texts and conversations as tokens and decodes tokens: tokenizer and prompt
 * template.
 *
 * Text models use a given tokenizer or that of their folder, as transformers chooses it; if the
 * config says so, tokens are the bytes of the text. CogVLM and CogAgent have a sentencepiece file
 * and templates of their own (inputs/template.h). Their prompts, conversations, and all prompts if
 * a template is named, are laid out by a template; other prompts are plain text to continue.
 * Special tokens in users' texts are text. */
#pragma once

#include "base/events.h"
#include "base/text.h"
#include "data/record_pictures.h"
#include "infer/generate.h"
#include "inputs/chat/stored.h"
#include "inputs/chat_encoder.h"
#include "inputs/template.h"
#include "inputs/tokenizer/tokenizer.h"
#include "schema/config.h"

#define SHEAF__SYSTEM "system"
#define SHEAF__DEVELOPER "developer" /* OpenAI's name of it since 2024 */
#define SHEAF__USER "user"
#define SHEAF__ASSISTANT "assistant"

/* Ids that end an answer: the config's, the tokenizer's, the family's and the template's. */
enum { SHEAF__MOST_STOPS = SHEAF_MAX_EOS + 3 };

typedef struct sheaf__codec {
    const sheaf_config *config; /* borrowed */
    /* NULL: bytes, or no tokenizer, see sheaf__codec_check_tokenizer(). */
    sheaf__tokenizer *tokenizer;
    sheaf__stored_chat stored;  /* with the tokenizer */
    bool images;                /* the model has a vision tower */
    bool templated;             /* plain texts are laid out too, not only conversations */
    bool by_default;            /* only because texts are questions: prompts of ids are not */
    sheaf__chat_template *chat; /* of conversations; NULL: `version`, where templated */
    sheaf__template version;
    bool dated;           /* a date was given */
    bool today;           /* `chat` writes today's */
    int32_t end;          /* the token that ends an answer by `chat`; -1 = none */
    const char *end_text; /* if that is not a token: the text that ends it; NULL = none */
    int64_t stop[SHEAF__MOST_STOPS - 1]; /* [nstop] ids that end any answer */
    int nstop;
    int64_t max_length;               /* of prompt and answer in positions, 0 = no limit */
    int64_t bos, eos;                 /* the config's, else the tokenizer's; -1 = none */
    bool specials;                    /* special tokens in users' texts are tokens */
    sheaf__chat_encoder chat_encoder; /* of `chat`, with a tokenizer or where `placed` */
    bool placed;   /* pictures have places in conversations, as the family defines */
    bool keeps;    /* prompts keep their messages, for reward models */
    bool borrowed; /* its pointers belong to another codec */
} sheaf__codec;

typedef struct sheaf__codec_options {
    const char *folder;    /* the model's, searched for a tokenizer; may be NULL */
    const char *tokenizer; /* a file, or a folder; NULL = as above */
    const char *version;   /* of the template by name; NULL = for images the config's
                              "text_processor_version", else base; of text the one that the
                              tokenizer stores */
    const char *chat; /* folder of an adapter, whose chat_template.jinja goes before; or NULL */
    int asks;         /* see sheaf_model_open_options */
    bool of_run; /* named by a run's settings, not by a flag: then the tokenizer's stored template
                    must still be the same */
    const char *date; /* date for the chat template; NULL = its own */
    bool strict;   /* a faulty tokenizer in the folder is an error, not a warning, though token ids
                      need none */
    bool today;    /* use today's date if the template has none; else laying out is an error */
    bool specials; /* as above */
    int64_t max_length;
    /* notes the choice of the template; may be NULL */
    const sheaf_events *events;
} sheaf__codec_options;

/* sheaf__codec_open - errors: those of template and tokenizer; SHEAF_E_LAYOUT for a tokenizer
 * with more pieces than the model has rows. A missing tokenizer is not an error here: see
 * sheaf__codec_check_tokenizer(). Close also after a failure. */
sheaf_status *sheaf__codec_open(sheaf__codec *out, const sheaf_config *config,
                                const sheaf__codec_options *options);
void sheaf__codec_close(sheaf__codec *codec);
/* sheaf__codec_open_chat - the same for a conversation, which needs a template; if none is named or
 * stored, `chat` for a byte vocabulary. `codec` is borrowed while *out is used; events as in the
 * options. Errors: those of the template; SHEAF_E_ARG if there is none. */
sheaf_status *sheaf__codec_open_chat(sheaf__codec *out, const sheaf__codec *codec,
                                     const sheaf_events *events);

/* sheaf__codec_set_today - sets today's date if the template writes one and none was given, for a
 * codec opened without `today`. */
sheaf_status *sheaf__codec_set_today(sheaf__codec *codec);
/* sheaf__codec_note_date - notes that today's date is written, or that a given date is not used.
 *   used  prompts are laid out */
void sheaf__codec_note_date(const sheaf__codec *codec, bool used, const sheaf_events *events);

/* sheaf__codec_check_tokenizer - NULL if text can be encoded, else SHEAF_E_UNSUPPORTED with the
 * missing flag. */
sheaf_status *sheaf__codec_check_tokenizer(const sheaf__codec *codec);

/* sheaf__codec_prompt - turn[turns - 1].query, after the turns before it, is to be answered.
 *   out    its ids, position, embed and expert are in *block (free() it); picture is left NULL
 *   image  an image stands before the text
 * Errors: SHEAF_E_DATA for a prompt that leaves no space within max_length, for an empty one, for
 * turns that the template does not support and for errors of the tokenizer; SHEAF_E_UNSUPPORTED for
 * an image without a vision tower, for a missing required image, and without a tokenizer. */
sheaf_status *sheaf__codec_prompt(sheaf__prompt *out, void **block, const sheaf__codec *codec,
                                  const sheaf__turn *turn, int64_t turns, bool image);

/* sheaf__codec_messages - a prompt of messages, the last of which is to be answered. Errors: as
 * sheaf__codec_prompt(); those of sheaf__codec_check_messages() and sheaf__codec_check_system();
 * SHEAF_E_ARG for more than one question without a template. */
sheaf_status *sheaf__codec_messages(sheaf__prompt *out, void **block, const sheaf__codec *codec,
                                    const sheaf__message *message, int64_t n, bool image);
/* sheaf__codec_text - the same for a single text, perhaps after a system message, laid out only if
 * the codec is templated. */
sheaf_status *sheaf__codec_text(sheaf__prompt *out, void **block, const sheaf__codec *codec,
                                const sheaf__message *message, int64_t n, bool image);
/* sheaf__codec_messages_with_pictures - the same for messages with pictures and a codec that is
 * `placed`: out->embed marks their places, which hold pictures number order[0..pictures->count). */
sheaf_status *sheaf__codec_messages_with_pictures(sheaf__prompt *out, void **block, int64_t *order,
                                                  const sheaf__codec *codec,
                                                  const sheaf__message *message, int64_t n,
                                                  const sheaf__record_pictures *pictures);
/* sheaf__codec_check_turns - errors: SHEAF_E_DATA for messages that are not user and assistant by
 * turns, perhaps after a system message, that call tools or that hold a NUL; they name the message,
 * from 1. sheaf__codec_check_messages - the same, and a user's at the end; where a chat template
 * judges the order, only for a NUL. */
sheaf_status *sheaf__codec_check_turns(const sheaf__message *message, int64_t n);
sheaf_status *sheaf__codec_check_messages(const sheaf__codec *codec, const sheaf__message *message,
                                          int64_t n);
/* sheaf__codec_open_arguments - sheaf__chat_open_arguments() by its template, if it has one. */
sheaf_status *sheaf__codec_open_arguments(const sheaf__codec *codec, json_t *messages,
                                          const sheaf__message *message, int64_t n);
/* sheaf__codec_check_system - NULL if the template has a place for a system message, else
 * SHEAF_E_UNSUPPORTED with a flag that helps. */
sheaf_status *sheaf__codec_check_system(const sheaf__codec *codec);
/* sheaf__codec_keeps_turns - does a prompt contain the earlier turns? */
bool sheaf__codec_keeps_turns(const sheaf__codec *codec);
/* sheaf__codec_template - the template's name; NULL: there is none. */
const char *sheaf__codec_template(const sheaf__codec *codec);

/* sheaf__codec_decode - the text (malloc'd) of tokens; a byte vocabulary stops at the first special
 * token, and invalid UTF-8 becomes U+FFFD. *out is NULL for a model without text. */
sheaf_status *sheaf__codec_decode(char **out, const sheaf__codec *codec, const int32_t *ids,
                                  int64_t n);
/* sheaf__codec_add_without_nul - appends text in which a NUL is U+FFFD: texts are C strings here.
 */
void sheaf__codec_add_without_nul(sheaf_text *text, const char *bytes, size_t size);
/* sheaf__codec_add_utf8 - the same of any bytes: each that is no part of UTF-8 is U+FFFD, too. */
void sheaf__codec_add_utf8(sheaf_text *text, const char *bytes, size_t size);

/* The end of an answer, its text, and equality of two.
 *   sheaf__codec_set_stops - sets the ids that end any answer, in place of the config's; the token
 *   that training appends to texts stays one.
 *   sheaf__codec_stops - as sheaf__generate_options has them: stop[nstop + nturn].
 *   sheaf__codec_is_stop - is `id` one of them?
 *   sheaf__codec_answer - the answer in decoded text, without the token that ended it: for a
 *   laid-out prompt (always, if the codec is templated) without blanks at both ends and without the
 *   empty block of thoughts that a template writes.
 *   sheaf__codec_answer_span - the same within an incomplete text; *more: it may be the beginning
 *   of an empty block of thoughts. sheaf__codec_expected - a record's answer as a model would give
 *   it, if special tokens in texts are tokens (malloc'd): without them, and cut at the first that
 *   ends an answer. NULL: `text` unchanged. sheaf__codec_answers_equal - equal, ignoring blanks at
 *   both ends and, if the template has thoughts, the blanks around them; any_case: also ignoring
 *   ASCII case. NULL equals nothing. */
void sheaf__codec_set_stops(sheaf__codec *codec, const int64_t *id, int n);
void sheaf__codec_stops(int64_t stop[SHEAF__MOST_STOPS], int *nstop, int *nturn,
                        const sheaf__codec *codec);
bool sheaf__codec_is_stop(const sheaf__codec *codec, int64_t id, bool laid_out);
sheaf_status *sheaf__codec_answer(char **out, const sheaf__codec *codec, bool laid_out,
                                  const char *text);
sheaf__text_piece sheaf__codec_answer_span(bool *more, const sheaf__codec *codec, const char *text,
                                           size_t size);
sheaf_status *sheaf__codec_expected(char **out, const sheaf__codec *codec, bool laid_out,
                                    const char *text);
bool sheaf__codec_answers_equal(const sheaf__codec *codec, const char *a, const char *b,
                                bool any_case);
