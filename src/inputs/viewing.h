/* viewing.h - how a model sees a picture's file: into which pieces it falls, and their numbers. */
#pragma once

#include "base/hash.h"
#include "inputs/image.h"
#include "inputs/slices.h"
#include "schema/family.h"

typedef struct sheaf__viewing {
    sheaf__picture_form form;               /* all zero where the family has none */
    sheaf__tower tower[SHEAF__MOST_TOWERS]; /* of several each sees all of the picture */
    int towers;
    /* of those who look at once (see sheaf_image_decode_in_turn()); NULL: one does */
    pthread_mutex_t *large;
} sheaf__viewing;

/* One picture: its file as it was looked at, and its pieces, of which one may be all there is. */
typedef struct sheaf__viewed {
    char *path; /* owned */
    sheaf_hash hash;
    sheaf__sliced pieces;
} sheaf__viewed;

/* sheaf__viewing_of - without a lock. */
void sheaf__viewing_of(sheaf__viewing *out, const sheaf_config *config);
/* sheaf__view_divide - the pieces of a picture of this size. Errors: those of sheaf__slice(). */
sheaf_status *sheaf__view_divide(sheaf__sliced *out, int64_t width, int64_t height,
                                 const sheaf__viewing *viewing);
/* sheaf__view_file - `path` is copied. Errors: those of sheaf_image_load() and sheaf__slice(), with
 * the path. */
sheaf_status *sheaf__view_file(sheaf__viewed *out, const char *path, const sheaf__viewing *viewing);
void sheaf__viewed_release(sheaf__viewed *viewed);
/* sheaf__view_size - bytes of all pieces, for all towers. */
size_t sheaf__view_size(const sheaf__viewed *viewed, const sheaf__viewing *viewing);
/* sheaf__view_bytes - reads the file again: the bytes of all pieces, one behind the other, each
 * [height, width, 3]. sheaf__view_show - their pixels, over as many of `picture` as there are
 * pieces. sheaf__view_pixels - both. Errors: as above; SHEAF_E_DATA for a file that changed. */
sheaf_status *sheaf__view_bytes(uint8_t *out, const sheaf__viewed *viewed,
                                const sheaf__viewing *viewing);
void sheaf__view_show(const sheaf__picture *picture, const uint8_t *bytes,
                      const sheaf__viewed *viewed, const sheaf__viewing *viewing);
sheaf_status *sheaf__view_pixels(const sheaf__picture *picture, const sheaf__viewed *viewed,
                                 const sheaf__viewing *viewing);
