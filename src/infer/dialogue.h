/* dialogue.h - a conversation so far, with one picture or none, and its file. With a codec that is
 * `placed` there may be several pictures: each stands in front of the next question, or at
 * "<image>" in it.
 *
 * Each prompt contains the whole conversation, if the template has earlier turns, so the prompt's
 * limit bounds it. The file is one JSON object, a record of training data (docs/data.md), with
 * paths relative to its folder:
 *
 *   {"messages": [{"role": "user", "content": "..."}, ...], "image": "a.jpg"}
 *   {"messages": [{"role": "user", "content": "<image>\n..."}, ...], "images": ["a.jpg"]}   placed
 */
#pragma once

#include "base/hash.h"
#include "data/record_pictures.h"
#include "infer/codec.h"

typedef struct sheaf__dialogue {
    const sheaf__codec *codec; /* borrowed; templated */
    sheaf__message *message;   /* [count] owned texts; a system message, if there is one, first,
                            then user and assistant by turns */
    int64_t count;
    sheaf__picture *picture; /* followed by its pixels; NULL: none */
    char *image;             /* its absolute path */
    /* Placed: all pictures, by absolute paths and named "<image>"; `picture` are their `pieces`,
     * and the last `waiting` pictures belong to the next question. */
    sheaf__record_pictures shown;
    int64_t pieces, waiting;
    int64_t look;    /* its number */
    char *file;      /* the one that sheaf__dialogue_load() read or _save() wrote last; NULL */
    sheaf_hash held; /* its content then */
} sheaf__dialogue;

/* sheaf__dialogue_picture - replaces the picture and clears the conversation except for the system
 * message; placed, if the model
 * reads more than one: adds a picture and clears nothing. path NULL: no picture; placed: removes
 * those that wait. `number` is the picture's (sheaf__prompt.look). On failure nothing changes.
 * Errors: those of the picture; SHEAF_E_ARG if there is none to remove. */
sheaf_status *sheaf__dialogue_picture(sheaf__dialogue *d, const char *path, int64_t number);
/* sheaf__dialogue_system - sets the system message, or none (NULL or empty), and clears the
 * conversation. Errors: SHEAF_E_UNSUPPORTED for a template without a place for it. */
sheaf_status *sheaf__dialogue_system(sheaf__dialogue *d, const char *text);
/* sheaf__dialogue_reset - clears the conversation; picture and system message stay. */
void sheaf__dialogue_reset(sheaf__dialogue *d);
void sheaf__dialogue_release(sheaf__dialogue *d);

/* sheaf__dialogue_ask - the prompt of a question; free() *block after its use. The picture
 * of *out is the dialogue's. Errors: those of sheaf__codec_messages(); placed: SHEAF_E_DATA if the
 * question has "<image>", but not once for each picture that waits. */
sheaf_status *sheaf__dialogue_ask(sheaf__prompt *out, void **block, const sheaf__dialogue *d,
                                  const char *query);
/* sheaf__dialogue_ask_alone - the same without the earlier turns. Errors: the same. */
sheaf_status *sheaf__dialogue_ask_alone(sheaf__prompt *out, void **block, const sheaf__dialogue *d,
                                        const char *query);
/* sheaf__dialogue_add_turn - appends a question and its answer. */
sheaf_status *sheaf__dialogue_add_turn(sheaf__dialogue *d, const char *query, const char *answer);

/* sheaf__dialogue_save - writes a new file, or atomically replaces the one it was saved to or
 * loaded from; without pictures that wait. Errors: SHEAF_E_ARG if another file is there, and for a
 * picture's path that is not UTF-8; SHEAF_E_DATA if another program has written that file since. */
sheaf_status *sheaf__dialogue_save(sheaf__dialogue *d, const char *path);
/* sheaf__dialogue_load - replaces the conversation; the pictures are those of the file, or none:
 * placed in any form of data/record_pictures.h, each where its name stands, else one by its path.
 * On failure nothing changes. Errors: SHEAF_E_DATA that names the message or the field; those of
 * the pictures. */
sheaf_status *sheaf__dialogue_load(sheaf__dialogue *d, const char *path, int64_t number);
