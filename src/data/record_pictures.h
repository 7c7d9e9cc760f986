/* record_pictures.h - the pictures that a record of a conversation names:
 *
 *   "image": PATH                         "<image>" in a user's message stands for it
 *   "image": {"<image_00>": PATH, ...}    each stands where its name does, as upstream
 *   "image": [PATH, ...]                  "<image>" stands for each in turn
 *
 *   "video": FOLDER                       of frames, in the order of their names; "<video>" stands
 *   "video": [PATH, ...]                  for them
 *   "video": {"frames": one of these, ...}  with the fields below in it, which else are beside it
 *   "videos": [VIDEO, ...]                "<video>" stands for each in turn
 *   "fps": NUMBER                         frames in a second; or
 *   "times": [0, 0.5, ...]                the second of each; without both the family's rate
 *   "target_fps": NUMBER                  so many in a second are taken, by the rule of the model's
 *                                         program; without it those that its settings say
 *   "temporal_ids": [[0, 3, 7], [12]]     numbers of the frames, of tenths of a second, group by
 *                                         group, of a model that is told them; without a video of
 *                                         the list of pictures, where [-1] is a picture, and
 *                                         "<image>" stands for each group
 *
 * "images" is the same as "image". A record without both may have PATHs in its messages, each of
 * which stands in its own: {"role": "user", "content": TEXT, "image": PATH}.
 *
 * Parts of a user's content have their places in it, in the forms of Qwen, TRL, OpenAI:
 *
 *   {"type": "image", "image": PATH}      also "path", "url", "base64"; "type" may be missing
 *   {"type": "image_url", "image_url": {"url": PATH}}
 *   {"type": "image"}                     the next of "images", as is "<image>" in a text
 *   {"type": "video", "video": VIDEO}     with the fields above beside it; alone: the next one
 *
 * Wherever PATH is: a file's path, "file://" before it or not, or data:image/png;base64,..., or an
 * object with "bytes" (base64), "path" or "url", as Hugging Face's data sets have pictures. */
#pragma once

#include <jansson.h>

#include "data/text_record.h"
#include "inputs/places.h"
#include "inputs/viewing.h"

typedef struct sheaf__record_pictures {
    /* [count], in the record's order; names are borrowed from the record */
    sheaf__chat_picture *shown;
    sheaf__viewed *viewed;
    int64_t count;
    bool own_names;     /* each picture has its own name: upstream gives it a line */
    bool parts;         /* they are parts of contents */
    int64_t listed;     /* messages of the list in which pictures have their own; 0: of none */
    const char *unread; /* of a record without pictures: a field that perhaps means one; borrowed,
                           or NULL */
} sheaf__record_pictures;

/* sheaf__record_pictures_read - paths are relative to `folder` (NULL: the working directory).
 * Errors: SHEAF_E_DATA with the field; those of sheaf__view_file(). Release also after a
 * failure. */
sheaf_status *sheaf__record_pictures_read(sheaf__record_pictures *out, const json_t *record,
                                          const char *folder, const sheaf__viewing *viewing);
/* Frames of a video. */
typedef struct sheaf__frames {
    int64_t first; /* of a longer list; 0 */
    const char *const *path;
    const sheaf__picture_bytes *bytes; /* [count] in place of files; NULL */
    int64_t count;
    const json_t *about[3]; /* objects with fps, times, target_fps, temporal_ids, or none of these,
                               of which the first that has a key counts: the video's own, which has
                               its frames, its part, the record; each may be NULL */
    const char *field;      /* that errors name */
    bool seen;              /* paths are seen from a folder */
} sheaf__frames;
/* sheaf__record_pictures_video - appends the frames of a video, or those of them that the model's
 * program would take. Errors: SHEAF_E_DATA with the field; those of the files. */
sheaf_status *sheaf__record_pictures_video(sheaf__record_pictures *pictures,
                                           const sheaf__frames *frames,
                                           const sheaf__viewing *viewing);
/* sheaf__picture_path - the path that a record's value gives (malloc'd), without "file://", as
 * sheaf__image_bytes() takes it. Errors: SHEAF_E_DATA for another form, and for an address. */
sheaf_status *sheaf__picture_path(char **out, const json_t *value, const char *field);
/* sheaf__picture_of_part - the value of a picture's part of a content; NULL: it names none. Errors:
 * SHEAF_E_DATA for a size of one picture alone. */
sheaf_status *sheaf__picture_of_part(const json_t **out, const json_t *part, const char *field);
/* sheaf__has_extension - is what a name has from its last dot on, in lower case, one of a list as
 * of sheaf__is_listed()? */
bool sheaf__has_extension(const char *name, const char *list);
#define SHEAF__OF_PICTURES ".jpg .jpeg .png .webp"
/* sheaf__record_pictures_add - appends a picture that `name` stands for, borrowed; NULL: none. */
sheaf_status *sheaf__record_pictures_add(sheaf__record_pictures *pictures, const char *name,
                                         const char *path, const sheaf__viewing *viewing);
/* sheaf__picture_shown - how a picture stands in texts: by `name`, which is borrowed, or with the
 * one before it. */
sheaf__chat_picture sheaf__picture_shown(const sheaf__viewed *viewed, const char *name,
                                         const sheaf__viewing *viewing);
/* sheaf__record_pictures_from - sets the first user message as that of all pictures that are in
 * none. */
void sheaf__record_pictures_from(sheaf__record_pictures *pictures, const sheaf__message *message,
                                 int64_t messages);
/* sheaf__record_pictures_place - puts the pictures into the messages: sheaf__place_pictures(). */
sheaf_status *sheaf__record_pictures_place(sheaf__placed *out, const sheaf__picture_form *form,
                                           const sheaf__message *message, int64_t messages,
                                           const sheaf__record_pictures *pictures, bool number_all);
/* sheaf__record_pictures_said - SHEAF_E_DATA where messages name pictures, but none of the user's:
 * other programs put one there. */
sheaf_status *sheaf__record_pictures_said(const sheaf__record_pictures *pictures,
                                          const sheaf__text_record *record);
/* sheaf__record_pictures_take - moves all of them out, in this order [count]; the caller releases
 * each and frees the list. Errors: SHEAF_E_MEMORY. */
sheaf_status *sheaf__record_pictures_take(sheaf__viewed **out, sheaf__record_pictures *pictures,
                                          const int64_t *order);
/* sheaf__record_pictures_meant - a field that perhaps means "image" or "images", in a record that
 * has neither; NULL: none. Borrowed from the record. */
const char *sheaf__record_pictures_meant(const json_t *record);
/* sheaf__record_pictures_spelled - does a question contain a picture as "<img>a.png</img>", the
 * form of other families' programs? It is read as text. */
bool sheaf__record_pictures_spelled(const json_t *record);
bool sheaf__record_pictures_spells(const char *text); /* the same of one text */
#define SHEAF__PICTURE_SPELLED "<img>"
#define SHEAF__PICTURE_IS_TEXT                                                                     \
    "'<img>...</img>' in a question is read as text: a picture stands in a field \"image\""
#define SHEAF__PICTURE_SAID "<image>"
#define SHEAF__PICTURE_SAID_IS_TEXT                                                                \
    "'<image>' in an answer is text, and learnt: pictures stand in messages of the user"
/* sheaf__picture_parts_of - how parts of contents are read for a family's form; NULL: for a model
 * without pictures in conversations. */
static inline sheaf__picture_parts sheaf__picture_parts_of(const sheaf__picture_form *form)
{
    return form == NULL   ? SHEAF__PARTS_NONE
           : form->joined ? SHEAF__PARTS_JOINED
                          : SHEAF__PARTS_LINES;
}
/* sheaf__record_pictures_field - the field of a record that gives a picture; NULL: none. */
const char *sheaf__record_pictures_field(const json_t *record);
void sheaf__record_pictures_release(sheaf__record_pictures *pictures);
