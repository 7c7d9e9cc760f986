/* prompts.h - tokens of prompts from a text, a list of ids or a file, and the paths of their
 * images. */
#pragma once

#include <jansson.h>

#include "data/data.h"
#include "data/record_pictures.h"
#include "infer/generate.h"
#include "infer/codec.h"
#include "data/text_record.h"

/* The rest of a prompt; all owned. */
typedef struct sheaf__prompt_about {
    char *text;            /* as given, NULL for ids */
    char *expected;        /* the answer of a record, NULL without */
    char *image;           /* path, NULL without */
    void *block;           /* memory of ids, position, embed and expert */
    sheaf__viewed *viewed; /* pictures as they stand in the text; NULL: see `image` */
    int64_t nviewed;
    sheaf__picture *picture; /* of a codec that is `placed`: their pieces */
    /* [messages] of a record's conversation, in one block, where the codec keeps them; else NULL */
    sheaf__message *message;
    int64_t messages;
} sheaf__prompt_about;

typedef struct sheaf__prompts {
    const sheaf_config *config; /* borrowed */
    int64_t count, capacity;
    sheaf__prompt *prompt;
    sheaf__prompt_about *about;
    bool laid_out;          /* some are conversations, laid out by a chat template */
    const sheaf_data *rows; /* the data set whose rows they are; NULL: none */
    sheaf_data *own;        /* the same, if it was opened for them */
    /* The pictures that the next sheaf__prompts_add...() names are these, in memory; NULL: files.
     * Their sizes alone are read before sheaf__prompts_decode(). */
    const sheaf__picture_bytes *bytes;
    const sheaf__frames
        *video; /* [videos] of these that are frames: `first` and `count` say which */
    int64_t videos;
    sheaf__pixel_budget budget;
} sheaf__prompts;

/* sheaf__prompts_read - reads and checks every record and image. Files hold: *.txt a prompt a line;
 * else JSON Lines or a JSON array, or a folder of such files, of texts, of objects in any form that
 * data sets have (data/text_record.h), with pictures as data/record_pictures.h has them, or with
 * "tokens" ([ids]); for CogVLM and CogAgent the files and folders of data/records.h; .safetensors.
 * Errors: SHEAF_E_ARG for options that exclude each other; SHEAF_E_DATA naming line and field (with
 * images: all bad records); an id outside the table; those of the images and of
 * sheaf__codec_prompt(). Release also after a failure. */
sheaf_status *sheaf__prompts_read(sheaf__prompts *out, const sheaf__codec *codec,
                                  const sheaf_prompts_options *from);
void sheaf__prompts_release(sheaf__prompts *prompts);

/* sheaf__prompts_add_pictures - appends messages with pictures, which it takes over; for a codec
 * that is `placed`. */
sheaf_status *sheaf__prompts_add_pictures(sheaf__prompts *prompts, const sheaf__codec *codec,
                                          const sheaf__message *message, int64_t n,
                                          const char *expected, sheaf__record_pictures *pictures);
/* sheaf__prompts_pieces - a list (free() it) of the *n pieces of the pictures: sizes without
 * pixels. */
sheaf_status *sheaf__prompts_pieces(sheaf__picture **out, int64_t *n, const sheaf__viewed *viewed,
                                    int64_t pictures);
/* sheaf__prompts_add... - append a prompt with pictures image[0..images): a conversation that ends
 * with the question message[n - 1] (`text`: a single text, laid out only if the codec is
 * templated), a text, turns of CogVLM's and CogAgent's templates (the last answer is expected), or
 * ids, as a list or as text, "1,2,3". `expected` is the answer to compare with; it and `system` may
 * be NULL. Errors: SHEAF_E_UNSUPPORTED for more pictures than the model reads. */
sheaf_status *sheaf__prompts_add(sheaf__prompts *prompts, const sheaf__codec *codec,
                                 const sheaf__message *message, int64_t n, bool text,
                                 const char *expected, const char *const *image, int64_t images);
sheaf_status *sheaf__prompts_add_text(sheaf__prompts *prompts, const sheaf__codec *codec,
                                      const char *text, const char *system,
                                      const char *const *image, int64_t images);
/* sheaf__prompts_messages - those of a record (data/text_record.h); `whole`: as OpenAI's clients
 * send them, all to the template: the last is answered, whoever wrote it. That changes arguments of
 * calls in `record`: sheaf__chat_open_arguments(). */
sheaf_status *sheaf__prompts_messages(sheaf__prompts *prompts, const sheaf__codec *codec,
                                      json_t *record, bool whole, const char *system,
                                      const char *const *image, int64_t images);
sheaf_status *sheaf__prompts_add_turns(sheaf__prompts *prompts, const sheaf__codec *codec,
                                       const sheaf__turn *turn, int64_t turns, const char *image);
sheaf_status *sheaf__prompts_add_ids(sheaf__prompts *prompts, const json_t *list,
                                     const char *expected);
sheaf_status *sheaf__prompts_add_list(sheaf__prompts *prompts, const char *list);

/* sheaf__prompts_append - appends a prompt; takes over what `about` owns, also on failure. */
sheaf_status *sheaf__prompts_append(sheaf__prompts *prompts, const sheaf__prompt *prompt,
                                    const sheaf__prompt_about *about);

/* sheaf__prompts_load - reads the images of a prompt, as sheaf__generate_options.load; self is the
 * prompts. Thread-safe. */
sheaf_status *sheaf__prompts_load(void *self, int64_t prompt, const sheaf__picture *picture,
                                  int64_t n);
/* sheaf__prompts_decode - reads the pictures, once for all loads, while they are not `unwanted`
 * (sheaf_image_decoding). Errors: as sheaf__prompts_load(); SHEAF_E_STOPPED.
 * sheaf__prompts_pixels - the bytes that this keeps. */
sheaf_status *sheaf__prompts_decode(sheaf__prompts *prompts, bool (*unwanted)(void *self),
                                    void *self);
size_t sheaf__prompts_pixels(const sheaf__prompts *prompts);
/* sheaf__prompts_picture - reads a file into the pixels of `picture`, whose size is set; of one
 * without pixels it only looks whether that can be done. */
sheaf_status *sheaf__prompts_picture(const sheaf__picture *picture, const char *path);
