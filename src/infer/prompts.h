/* prompts.h - prompts from a text, a list of ids or a file, as tokens; with their images' paths. */
#pragma once

#include <jansson.h>

#include "data/data.h"
#include "data/record_pictures.h"
#include "infer/generate.h"
#include "infer/codec.h"
#include "data/text_record.h"

/* What is known of a prompt beside its tokens; all owned. */
typedef struct sheaf__prompt_about {
    char *text;     /* as given, NULL for ids */
    char *expected; /* the answer of a record, NULL without */
    char *image;    /* path, NULL without */
    void *block;    /* what ids, position, embed and expert lie in */
    /* Of a codec that is `placed`: its pictures as they stand in the text, and their pieces. */
    sheaf__viewed *viewed;
    int64_t nviewed;
    sheaf__picture *picture;
} sheaf__prompt_about;

typedef struct sheaf__prompts {
    const sheaf_config *config; /* borrowed */
    int64_t count, capacity;
    sheaf__prompt *prompt;
    sheaf__prompt_about *about;
    bool laid_out;          /* some are conversations, by a chat template */
    const sheaf_data *rows; /* the data set whose rows they are; NULL: they are none */
    sheaf_data *own;        /* that, where it was opened for them */
} sheaf__prompts;

/* sheaf__prompts_read - every record, and every image, is looked at. `rows`: the data are open
 * already (these, where they are .safetensors), were looked at and warned of; NULL: they are not.
 * Files hold: *.txt a prompt a line; else JSON Lines or a JSON array, or a folder of such files, of
 * texts, of objects in any form that data sets have (data/text_record.h), with pictures as
 * data/record_pictures.h has them, or with "tokens" ([ids]); for CogVLM and CogAgent the files and
 * folders of data/records.h; .safetensors. Errors: SHEAF_E_ARG for options that do not go together;
 * SHEAF_E_DATA naming line and field (with images: all bad records); an id outside the table; those
 * of the images and of sheaf__codec_prompt(). Release also after a failure. */
sheaf_status *sheaf__prompts_read(sheaf__prompts *out, const sheaf__codec *codec,
                                  const sheaf_prompts_options *from, const sheaf_data *rows);
void sheaf__prompts_release(sheaf__prompts *prompts);

/* sheaf__prompts_add_pictures - one more, of messages and pictures, which it takes; of a codec that
 * is `placed`. */
sheaf_status *sheaf__prompts_add_pictures(sheaf__prompts *prompts, const sheaf__codec *codec,
                                          const sheaf__message *said, int64_t n,
                                          const char *expected, sheaf__record_pictures *pictures);
/* sheaf__prompts_pieces - the pieces of pictures as a list (free() it) of their sizes, without
 * pixels; *n of them. */
sheaf_status *sheaf__prompts_pieces(sheaf__picture **out, int64_t *n, const sheaf__viewed *viewed,
                                    int64_t pictures);
/* One more, with pictures image[0..images): a conversation of which said[n - 1] is to be answered
 * (`text`: which is a text, laid out only where the codec is templated), a text, the messages of
 * a record (data/text_record.h), turns of CogVLM's and CogAgent's templates (the last answer is
 * expected), or ids, as a list or as text, "1,2,3". `expected` is the answer to compare with; it
 * and `system` may be NULL. Errors: SHEAF_E_UNSUPPORTED for more pictures than the model reads. */
sheaf_status *sheaf__prompts_add(sheaf__prompts *prompts, const sheaf__codec *codec,
                                 const sheaf__message *said, int64_t n, bool text,
                                 const char *expected, const char *const *image, int64_t images);
sheaf_status *sheaf__prompts_add_text(sheaf__prompts *prompts, const sheaf__codec *codec,
                                      const char *text, const char *system,
                                      const char *const *image, int64_t images);
sheaf_status *sheaf__prompts_messages(sheaf__prompts *prompts, const sheaf__codec *codec,
                                      json_t *record, const char *system, const char *const *image,
                                      int64_t images);
sheaf_status *sheaf__prompts_add_turns(sheaf__prompts *prompts, const sheaf__codec *codec,
                                       const sheaf__turn *turn, int64_t turns, const char *image);
sheaf_status *sheaf__prompts_add_ids(sheaf__prompts *prompts, const json_t *list,
                                     const char *expected);
sheaf_status *sheaf__prompts_add_list(sheaf__prompts *prompts, const char *list);
/* sheaf__prompts_check_picture - what cannot be loaded is better known before a token is made. */
sheaf_status *sheaf__prompts_check_picture(const char *path);

/* sheaf__prompts_append - one more; takes what `about` owns in any case. */
sheaf_status *sheaf__prompts_append(sheaf__prompts *prompts, const sheaf__prompt *prompt,
                                    const sheaf__prompt_about *about);

/* sheaf__prompts_load - the image of a prompt, as sheaf__generate_options.load; self is the
 * prompts. Thread-safe. */
sheaf_status *sheaf__prompts_load(void *self, int64_t prompt, const sheaf__picture *picture,
                                  int64_t n);
/* sheaf__prompts_picture - a file, over the pixels of `picture` at the sizes it says. */
sheaf_status *sheaf__prompts_picture(const sheaf__picture *picture, const char *path);
