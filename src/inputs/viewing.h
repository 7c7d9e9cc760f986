/* viewing.h - a picture's file as a model's towers read it: its pieces and their pixels. */
#pragma once

#include "base/hash.h"
#include "inputs/image.h"
#include "inputs/slices.h"
#include "schema/family.h"

/* The file of a picture that is in memory. */
typedef struct sheaf__picture_bytes {
    const void *at; /* borrowed; NULL: the file at its path */
    size_t size;
} sheaf__picture_bytes;

/* Pixels of several pictures together, as their files say. */
typedef struct sheaf__pixel_budget {
    int64_t most, used; /* most 0: no limit */
} sheaf__pixel_budget;

typedef struct sheaf__viewing {
    sheaf__picture_form form;               /* all zero if the family has none */
    sheaf__tower tower[SHEAF__MOST_TOWERS]; /* each tower reads the whole picture */
    int towers;
    sheaf_image_scale scale;
    /* lock of parallel readers (sheaf_image_decoding); NULL: a single one */
    pthread_mutex_t *large;
    /* The next file of sheaf__view_file(), if it is in memory: the path is its name then, and it is
     * decoded only when its pixels are wanted. */
    sheaf__picture_bytes bytes;
    sheaf__pixel_budget *budget;  /* of those; NULL: no limit */
    bool (*unwanted)(void *self); /* of sheaf_image_decoding */
    void *self;
    int64_t frames; /* of a video whose frames are sized together; 0: each for itself */
} sheaf__viewing;

/* One picture: its file with the hash at the first reading, and its pieces, at least one. */
typedef struct sheaf__viewed {
    char *path; /* owned */
    sheaf_hash hash;
    sheaf__picture_bytes bytes; /* in place of path and hash */
    uint8_t *pixels;            /* of sheaf__view_keep(), owned; NULL: not kept */
    sheaf__sliced pieces;
    int32_t frame; /* of a video, which has one piece, as in sheaf__picture */
    bool joins;
    double second; /* of a video, at which it stands */
    double fps;    /* of a video of which all frames were taken by it; else 0 */
} sheaf__viewed;

/* sheaf__viewing_of - without a lock. */
void sheaf__viewing_of(sheaf__viewing *out, const sheaf_config *config);
/* sheaf__view_divide - the pieces of a picture of this size. Errors: those of sheaf__slice()
 * and sheaf__fit_pixels(). */
sheaf_status *sheaf__view_divide(sheaf__sliced *out, int64_t width, int64_t height,
                                 const sheaf__viewing *viewing);
/* sheaf__view_gives - rows that a picture of these pieces gives, where that depends on its size;
 * else 0. */
static inline int64_t sheaf__view_gives(const sheaf__sliced *s, const sheaf__viewing *viewing)
{
    const sheaf__tower *tower = &viewing->tower[0];
    const sheaf__view view = { .height = s->height, .width = s->width };
    return tower->merge == 0 ? 0 : sheaf__tower_gives(tower, 1, sheaf__view_patches(&view, tower));
}
/* sheaf__view_piece - the size of a piece, as the first tower sees it. */
static inline sheaf__picture sheaf__view_piece(const sheaf__sliced *s, int64_t piece)
{
    return (sheaf__picture){ .of[0] = { .height = sheaf__sliced_height(s, piece),
                                        .width = sheaf__sliced_width(s, piece) } };
}
/* sheaf__view_file - `path` is copied. Errors: those of sheaf_image_load() and sheaf__slice(), with
 * the path; SHEAF_E_UNSUPPORTED beyond the budget. */
sheaf_status *sheaf__view_file(sheaf__viewed *out, const char *path, const sheaf__viewing *viewing);
void sheaf__viewed_release(sheaf__viewed *viewed);
/* sheaf__view_size - size in bytes of all pieces, for all towers. */
size_t sheaf__view_size(const sheaf__viewed *viewed, const sheaf__viewing *viewing);
/* sheaf__view_bytes - reads the file again: the bytes of all pieces one after the other, each
 * [height, width, 3]. sheaf__view_show - normalises them into picture[0..pieces).
 * sheaf__view_pixels - both; sheaf__view_keep - the first, once for all that read its pixels later.
 * Errors: as above; SHEAF_E_DATA for a file that changed. */
sheaf_status *sheaf__view_bytes(uint8_t *out, const sheaf__viewed *viewed,
                                const sheaf__viewing *viewing);
void sheaf__view_show(const sheaf__picture *picture, const uint8_t *bytes,
                      const sheaf__viewed *viewed, const sheaf__viewing *viewing);
sheaf_status *sheaf__view_pixels(const sheaf__picture *picture, const sheaf__viewed *viewed,
                                 const sheaf__viewing *viewing);
sheaf_status *sheaf__view_keep(sheaf__viewed *viewed, const sheaf__viewing *viewing);
