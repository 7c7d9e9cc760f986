/* dialogue.h - what was said so far, about one picture or none, and the same as a file. Where
 * pictures stand in conversations (a codec that is `placed`) there may be several: each stands in
 * front of the question that follows it, or where that says "<image>".
 *
 * Each prompt holds all of it anew, as far as the template has a place for it, so its length bounds
 * what is remembered. The file is one JSON object, a record of training data (docs/data.md), whose
 * paths are seen from its folder:
 *
 *   {"messages": [{"role": "user", "content": "..."}, ...], "image": "a.jpg"}
 *   {"messages": [{"role": "user", "content": "<image>\n..."}, ...], "images": ["a.jpg"]}   placed
 */
#pragma once

#include "base/hash.h"
#include "data/record_pictures.h"
#include "infer/codec.h"

/* The place of a picture in what a user says. */
#define SHEAF__PICTURE_HERE "<image>"

typedef struct sheaf__dialogue {
    const sheaf__codec *codec; /* borrowed; templated */
    sheaf__message *said;      /* [count] owned texts; a system message, if there is one, first,
                               then user and assistant by turns */
    int64_t count;
    sheaf__picture *picture; /* with its pixels behind it; NULL without */
    char *image;             /* its whole path */
    /* Placed: all of them, by whole paths and called "<image>"; `picture` are their `pieces` then,
     * and the last `waiting` of them stand in no question yet. */
    sheaf__record_pictures shown;
    int64_t pieces, waiting;
    int64_t look;    /* its number */
    char *file;      /* the one that sheaf__dialogue_load() read or _save() wrote last; NULL */
    sheaf_hash held; /* what it held then */
} sheaf__dialogue;

/* sheaf__dialogue_picture - another picture; what was said is forgotten, but for the system
 * message; placed: one more, and nothing is. NULL: none; placed: those that wait are taken back.
 * `number` is its own (sheaf__prompt.look). On failure nothing changes. Errors: those of the
 * picture; SHEAF_E_ARG where there is none to take back. */
sheaf_status *sheaf__dialogue_picture(sheaf__dialogue *d, const char *path, int64_t number);
/* sheaf__dialogue_system - the system message, or none (NULL or empty); what was said is forgotten.
 * Errors: SHEAF_E_UNSUPPORTED for a template without a place for it. */
sheaf_status *sheaf__dialogue_system(sheaf__dialogue *d, const char *text);
/* sheaf__dialogue_reset - forgets what was said; picture and system message stay. */
void sheaf__dialogue_reset(sheaf__dialogue *d);
void sheaf__dialogue_release(sheaf__dialogue *d);

/* sheaf__dialogue_ask - the prompt of a question; free() *block after its use. The picture
 * of *out is the dialogue's. Errors: those of sheaf__codec_messages(); placed: SHEAF_E_DATA for
 * another number of "<image>" than of pictures that wait, but for none. */
sheaf_status *sheaf__dialogue_ask(sheaf__prompt *out, void **block, const sheaf__dialogue *d,
                                  const char *query);
/* sheaf__dialogue_ask_alone - the prompt that it would be if nothing had been said before. Errors:
 * the same. */
sheaf_status *sheaf__dialogue_ask_alone(sheaf__prompt *out, void **block, const sheaf__dialogue *d,
                                        const char *query);
/* sheaf__dialogue_add_turn - the turn is over. */
sheaf_status *sheaf__dialogue_add_turn(sheaf__dialogue *d, const char *query, const char *answer);

/* sheaf__dialogue_save - to a new file, or in place of the one it was saved to or loaded from,
 * which is as it was until the new one is complete; without pictures that wait. Errors: SHEAF_E_ARG
 * where something else is, and for a picture's path that is not UTF-8; SHEAF_E_DATA where somebody
 * else wrote that file since. */
sheaf_status *sheaf__dialogue_save(sheaf__dialogue *d, const char *path);
/* sheaf__dialogue_load - in place of what was said; the pictures are those of the file, or none:
 * placed in any form of data/record_pictures.h, each where its name stands, else one by its path.
 * On failure nothing changes. Errors: SHEAF_E_DATA that names the message or the field; those of
 * the pictures. */
sheaf_status *sheaf__dialogue_load(sheaf__dialogue *d, const char *path, int64_t number);
