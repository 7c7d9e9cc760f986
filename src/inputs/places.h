/* places.h - pictures in their places in a conversation: what a person wrote becomes the text that
 * a tokenizer reads, with the marks of each picture (schema/family.h) where it stands.
 *
 * A picture stands where its name does in a user's message: "<image>" for the one picture of a
 * conversation (or for each in turn, if all are called so), "<image_00>" where each has its own.
 * Pictures of which none is named stand in front of the message they came with, a line each. A
 * name in a user's message is never text: without its picture it is an error.
 *
 * What is written for one is upstream's, byte for byte:
 *   a picture        BEGIN ROW ... ROW END
 *   and its slices   SLICE BEGIN ROW ... END BEGIN ... END, a line each row of the grid, SLICE_END
 *   or (2.6)         SLICE ROW ... ROW SLICE_END SLICE ..., a line each row of the grid
 *   its number       NUMBER 0 NUMBER_END before all of that */
#pragma once

#include "inputs/chat/chat.h"
#include "schema/family.h"

/* A picture of a conversation. */
typedef struct sheaf__chat_picture {
    const char *name;      /* that stands for it in texts; NULL: it stands in front */
    int64_t message;       /* that it came with, a user's */
    int64_t columns, rows; /* of its slices; 0: it has none */
} sheaf__chat_picture;

typedef struct sheaf__place_options {
    bool lines; /* a line of its own for each: upstream's where pictures have names of their own */
    bool number_all;    /* else only those with slices have a number */
    const char *unread; /* a field that was perhaps meant to give the pictures; NULL: none */
} sheaf__place_options;

typedef struct sheaf__placed_mark {
    int64_t message;
    size_t begin, end; /* in its content */
    sheaf__mark mark;
} sheaf__placed_mark;

typedef struct sheaf__placed {
    sheaf__message *message; /* [messages]; contents are owned where pictures stand in them */
    char **owned;            /* [messages], or NULL */
    int64_t messages;
    sheaf__placed_mark *mark; /* [marks] ascending */
    int64_t marks;
    int64_t *order; /* [pictures] of the caller's pictures, as they stand in the text */
    int64_t pictures;
} sheaf__placed;

/* sheaf__place_pictures - `message` is borrowed as long as *out is used; release also after a
 * failure. Errors: SHEAF_E_DATA for a name without a picture, and for pictures of which only some
 * stand in the text; SHEAF_E_MEMORY. */
sheaf_status *sheaf__place_pictures(sheaf__placed *out, const sheaf__picture_form *form,
                                    const sheaf__message *message, int64_t messages,
                                    const sheaf__chat_picture *shown, int64_t pictures,
                                    const sheaf__place_options *options);
void sheaf__placed_release(sheaf__placed *placed);

/* sheaf__is_picture_name - "<image>", or "<image_" digits ">", at the beginning of `text`: its
 * length, or 0. */
size_t sheaf__is_picture_name(const char *text, size_t size);
/* sheaf__picture_names - how many of them stand in a text. */
int64_t sheaf__picture_names(const char *text);
/* sheaf__picture_name_remove - of models that read one picture, in front of all text: takes its
 * name out of a text that has one, and the blanks that are then at either end, as LLaVA's reader
 * does. */
void sheaf__picture_name_remove(char *text);
