/* codec.h - how a model's texts become tokens and its tokens text: tokenizer and prompt template.
 *
 * Models of text have the tokenizer of their folder, as transformers chooses it, or one that is
 * given; where the config says so the bytes of a text are its tokens. Vision-language models have a
 * sentencepiece file and templates of their own (inputs/template.h). These, models for which a
 * template is named and conversations get their prompts from a template; others continue the text.
 * What people write is text, also where it looks like a special token. */
#pragma once

#include "base/events.h"
#include "base/text.h"
#include "data/record_pictures.h"
#include "infer/generate.h"
#include "inputs/chat/stored.h"
#include "inputs/sentencepiece.h"
#include "inputs/chat_encoder.h"
#include "inputs/template.h"
#include "inputs/tokenizer/tokenizer.h"
#include "schema/config.h"

#define SHEAF__SYSTEM "system"
#define SHEAF__USER "user"
#define SHEAF__ASSISTANT "assistant"

typedef struct sheaf__codec {
    const sheaf_config *config; /* borrowed */
    /* One of them, or neither: bytes, or nothing at all, see sheaf__codec_check_tokenizer(). */
    sheaf__sentencepiece *model;
    sheaf__tokenizer *tokenizer;
    sheaf__stored_chat stored;  /* with the tokenizer */
    bool images;                /* the model has a vision tower */
    bool templated;             /* texts are laid out too, not conversations alone */
    sheaf__chat_template *chat; /* of conversations; NULL: `version`, where templated */
    sheaf__template version;
    bool dated;                      /* a date was given */
    bool today;                      /* `chat` writes today's */
    int32_t end;                     /* the token that ends an answer by `chat`; -1 = none */
    const char *end_text;            /* where that is no token: the text that does; NULL = none */
    int64_t stop[SHEAF_MAX_EOS + 1]; /* [nstop] ids that end any answer */
    int nstop;
    int64_t max_length;               /* of prompt and answer in positions, 0 = no limit */
    int64_t bos, eos;                 /* the config's, else the tokenizer's; -1 = none */
    bool specials;                    /* special tokens that people write are tokens, not text */
    sheaf__chat_encoder chat_encoder; /* of `chat`, with a tokenizer or where `placed` */
    bool placed;                      /* pictures stand in conversations, by the family's form */
    bool borrowed;                    /* what it points to is another codec's */
} sheaf__codec;

typedef struct sheaf__codec_options {
    const char *folder;    /* of the model, where a tokenizer is looked for; may be NULL */
    const char *tokenizer; /* a file, or a folder; NULL = as above */
    const char *version;   /* of the template by name; NULL = for images the config's
                              "text_processor_version", else base; of text the one that the
                              tokenizer stores */
    bool of_run;           /* a run's settings name it, no flag does: then it is held to the program
                              that the tokenizer stores, where that is it */
    const char *date;      /* that a chat template writes; NULL = its own */
    bool strict;           /* what is wrong with the folder's tokenizer is an error, not a warning
                              after which token ids go without */
    bool today;            /* and today's where it has none; else to lay out is an error */
    bool specials;         /* as above */
    int64_t max_length;
    /* notes which template it is, where there is a choice; may be NULL */
    const sheaf_events *events;
} sheaf__codec_options;

/* sheaf__codec_open - errors: those of template and tokenizer; SHEAF_E_LAYOUT for a tokenizer
 * with more pieces than the model has rows. No tokenizer at all is none:
 * sheaf__codec_check_tokenizer() says so. Close also after a failure. */
sheaf_status *sheaf__codec_open(sheaf__codec *out, const sheaf_config *config,
                                const sheaf__codec_options *options);
void sheaf__codec_close(sheaf__codec *codec);
/* sheaf__codec_open_chat - the same for a conversation, which is always by a template; without one
 * that is named or stored, `chat` for a vocabulary of bytes. `codec` is borrowed as long as *out
 * is used. events  as of the options. Errors: those of the template; SHEAF_E_ARG where there is
 * none. */
sheaf_status *sheaf__codec_open_chat(sheaf__codec *out, const sheaf__codec *codec,
                                     const sheaf_events *events);

/* sheaf__codec_set_today - today's date where the template writes one and none was given, for a
 * codec that was opened without. */
sheaf_status *sheaf__codec_set_today(sheaf__codec *codec);
/* sheaf__codec_note_date - notes that today's date is written, or that one that was given is not.
 *   used  prompts are laid out */
void sheaf__codec_note_date(const sheaf__codec *codec, bool used, const sheaf_events *events);

/* sheaf__codec_check_tokenizer - NULL when text can be read, else SHEAF_E_UNSUPPORTED with what to
 * give. */
sheaf_status *sheaf__codec_check_tokenizer(const sheaf__codec *codec);

/* sheaf__codec_prompt - turn[turns - 1].query, after the turns before it, is to be answered.
 *   out    its ids, position, embed and expert lie in *block (free() it); picture is left NULL
 *   image  an image stands before the text
 * Errors: SHEAF_E_DATA for a prompt that leaves no space within max_length, for an empty one, for
 * turns that the template has no place for and for what the tokenizer refuses; SHEAF_E_UNSUPPORTED
 * for an image the model cannot see, none where it must, and without a tokenizer. */
sheaf_status *sheaf__codec_prompt(sheaf__prompt *out, void **block, const sheaf__codec *codec,
                                  const sheaf__turn *turn, int64_t turns, bool image);

/* sheaf__codec_messages - a prompt of messages, the last of which, a user's, is to be answered:
 * user and assistant by turns, perhaps a system message before them. Errors: as
 * sheaf__codec_prompt(); those of sheaf__codec_check_system(); SHEAF_E_ARG for more than a question
 * where there is no template.
 */
sheaf_status *sheaf__codec_messages(sheaf__prompt *out, void **block, const sheaf__codec *codec,
                                    const sheaf__message *said, int64_t n, bool image);
/* sheaf__codec_text - the same of one text, perhaps with a system message before it, which is
 * laid out only where the codec is templated. */
sheaf_status *sheaf__codec_text(sheaf__prompt *out, void **block, const sheaf__codec *codec,
                                const sheaf__message *said, int64_t n, bool image);
/* sheaf__codec_messages_with_pictures - the same of messages with pictures, of a codec that is
 * `placed`: of out embed says where they are, in the order of order[0..pictures->count) (each a
 * number of theirs). sheaf__codec_messages() is this without pictures. */
sheaf_status *sheaf__codec_messages_with_pictures(sheaf__prompt *out, void **block, int64_t *order,
                                                  const sheaf__codec *codec,
                                                  const sheaf__message *said, int64_t n,
                                                  const sheaf__record_pictures *pictures);
/* sheaf__codec_check_turns - errors: SHEAF_E_DATA for messages that are not user and assistant by
 * turns, perhaps after a system message, or that hold a NUL; they name the message, from 1. */
sheaf_status *sheaf__codec_check_turns(const sheaf__message *said, int64_t n);
/* sheaf__codec_check_system - NULL when prompts have a place for a system message, else
 * SHEAF_E_UNSUPPORTED with what to give. */
sheaf_status *sheaf__codec_check_system(const sheaf__codec *codec);
/* sheaf__codec_keeps_turns - does a prompt hold the turns before? */
bool sheaf__codec_keeps_turns(const sheaf__codec *codec);
/* sheaf__codec_template - the template's name; NULL: there is none. */
const char *sheaf__codec_template(const sheaf__codec *codec);

/* sheaf__codec_decode - text (malloc'd) of tokens; of bytes up to the first special one, what is
 * not UTF-8 becomes U+FFFD. *out is NULL for a model without text. */
sheaf_status *sheaf__codec_decode(char **out, const sheaf__codec *codec, const int32_t *ids,
                                  int64_t n);
/* sheaf__codec_add_without_nul - appends text in which a NUL is U+FFFD: texts are C strings here.
 */
void sheaf__codec_add_without_nul(sheaf_text *text, const char *bytes, size_t size);

/* Where an answer ends, what its text is, and when two are equal.
 *   sheaf__codec_set_stops - these ids end any answer, in place of the config's; besides, the one
 * that training writes behind texts does.
 *   sheaf__codec_stops - as sheaf__generate_options has them: stop[nstop + nturn].
 *   sheaf__codec_is_stop - is `id` one of them?
 *   sheaf__codec_answer - the answer in text that was decoded, without the token that ended it:
 * of a prompt that is laid out (as all are where the codec is templated) without blanks around,
 * and without the thoughts that a template writes where an answer has none.
 *   sheaf__codec_answer_span - that of a text so far; *more: it may be the beginning of no
 * thoughts. sheaf__codec_expected - what the model answers that says what a record does, where
 * special tokens in texts are tokens (malloc'd): they are not in it, and the first that ends an
 * answer ends it. NULL: `text` as it is. sheaf__codec_answers_equal - equal, apart from blanks at
 * both ends, and from how thoughts are set off where the template sets them off; any_case: also
 * apart from the case of letters of ASCII. NULL equals nothing. */
void sheaf__codec_set_stops(sheaf__codec *codec, const int64_t *id, int n);
void sheaf__codec_stops(int64_t stop[SHEAF_MAX_EOS + 2], int *nstop, int *nturn,
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
