/* places.h - puts pictures in their places in a conversation: the text for the tokenizer, with the
 * marks of each picture (schema/family.h) where it stands.
 *
 * A picture stands where its name does in a user's message: "<image>" for the one picture of a
 * conversation (or for each in turn, if all are called so), "<image_00>" where each has its own
 * name. If no picture is named, all stand in front of the message they came with, a line each (or
 * joined to it, as the form says). A
 * name in a user's message is never text: without its picture it is an error.
 *
 * Frames of a video stand as one picture for each group of them; the name of a video, "<video>",
 * places all of its groups, a line each (or joined, or between one begin and end), and beside a
 * video no picture has a number.
 *
 * The text of one picture is upstream's, byte for byte:
 *   a picture        BEGIN ROW ... ROW END
 *   and its slices   SLICE BEGIN ROW ... END BEGIN ... END, a line each row of the grid, SLICE_END
 *   or (2.6)         SLICE ROW ... ROW SLICE_END SLICE ..., a line each row of the grid
 *   its number       NUMBER 0 NUMBER_END before all of these */
#pragma once

#include "inputs/chat/chat.h"
#include "schema/family.h"

/* A picture of a conversation. */
typedef struct sheaf__chat_picture {
    const char *name;      /* its name in texts; NULL: it stands in front */
    int64_t message;       /* the user's message that it came with */
    int64_t columns, rows; /* the grid of its slices; 0: none */
    bool frame;            /* of a video */
    double second;         /* of it, where the form says it */
    bool joins;            /* in the place of the one before it: a frame of its group */
    bool follows;          /* on a line behind the one before it: another group of its video */
    int64_t gives;         /* rows that it gives, where the form says no number */
} sheaf__chat_picture;

typedef struct sheaf__place_options {
    bool lines;         /* a line for each picture, as upstream where each has its own name */
    bool number_all;    /* number all pictures, not only those with slices */
    const char *unread; /* a field that perhaps means the pictures; NULL: none */
} sheaf__place_options;

typedef struct sheaf__placed_mark {
    int64_t message;
    size_t begin, end; /* in its content */
    sheaf__mark mark;
} sheaf__placed_mark;

typedef struct sheaf__placed {
    sheaf__message *message; /* [messages]; contents with pictures are owned */
    char **owned;            /* [messages], or NULL */
    int64_t messages;
    sheaf__placed_mark *mark; /* [marks] ascending */
    int64_t marks;
    int64_t *order; /* [pictures] numbers of the caller's pictures, in the order of the text */
    int64_t pictures;
} sheaf__placed;

/* sheaf__place_pictures - *out borrows `message`; release also after a failure. Errors:
 * SHEAF_E_DATA for a name without a picture, and if only some of the pictures are named;
 * SHEAF_E_MEMORY. */
sheaf_status *sheaf__place_pictures(sheaf__placed *out, const sheaf__picture_form *form,
                                    const sheaf__message *message, int64_t messages,
                                    const sheaf__chat_picture *shown, int64_t pictures,
                                    const sheaf__place_options *options);
void sheaf__placed_release(sheaf__placed *placed);

#define SHEAF__PICTURE_HERE "<image>"
#define SHEAF__VIDEO_HERE "<video>"
/* sheaf__shows_video - is it the first frame of one? */
static inline bool sheaf__shows_video(const sheaf__chat_picture *picture)
{
    return picture->name != NULL && strcmp(picture->name, SHEAF__VIDEO_HERE) == 0;
}
/* sheaf__is_picture_name - the length of "<image>" or "<image_" digits ">" at the beginning of
 * `text`, or 0. */
size_t sheaf__is_picture_name(const char *text, size_t size);
/* sheaf__picture_names_in, sheaf__picture_names - the number of such names in a text. */
int64_t sheaf__picture_names_in(const char *text, size_t size);
int64_t sheaf__picture_names(const char *text);
/* sheaf__picture_name_remove - for models with one picture, in front of all text: removes its name
 * from the text and then the blanks at both ends, as LLaVA's reader does. */
void sheaf__picture_name_remove(char *text);
