/* talk_pictures.h - the pictures that a record of a conversation names:
 *
 *   "image": PATH                         "<image>" in a user's message stands for it
 *   "image": {"<image_00>": PATH, ...}    each stands where its name does, as upstream has it
 *   "image": [PATH, ...]                  "<image>" stands for each in turn
 *
 * "images" is the same. */
#ifndef SHEAF_DATA_TALK_PICTURES_H
#define SHEAF_DATA_TALK_PICTURES_H

#include <jansson.h>

#include "inputs/places.h"
#include "inputs/viewing.h"

typedef struct sheaf__talk_pictures {
    sheaf__shown *shown; /* [count], as they are listed; names are borrowed from the record */
    sheaf__viewed *viewed;
    int64_t count;
    bool own_names; /* each has its own: upstream gives it a line */
} sheaf__talk_pictures;

/* sheaf__talk_pictures_read - paths are relative to `folder` (NULL: to where the process is).
 * Errors: SHEAF_E_DATA with the field; those of sheaf__view_file(). Release also after a failure.
 */
sheaf_status *sheaf__talk_pictures_read(sheaf__talk_pictures *out, const json_t *record,
                                        const char *folder, const sheaf__viewing *viewing);
/* sheaf__talk_pictures_add - one more that "<image>" stands for. */
sheaf_status *sheaf__talk_pictures_add(sheaf__talk_pictures *pictures, const char *path,
                                       const sheaf__viewing *viewing);
/* sheaf__talk_pictures_from - all came with this message. */
void sheaf__talk_pictures_from(sheaf__talk_pictures *pictures, int64_t message);
void sheaf__talk_pictures_release(sheaf__talk_pictures *pictures);

#endif
