/* picture.h - pictures as all rooms know them: what a family says of its towers and of the places
 * of their rows, and the arithmetic of sizes, patches, rows and positions.
 *
 * Only the rooms below `data` look at a picture itself: inputs makes it, towers (families, tape)
 * see it. Above them it is a count (sheaf__picture_counts) and a buffer of pixels, so that a new
 * way to see pictures is a file of inputs, one of the family, and what differs in these sums. */
#pragma once

#include "schema/config.h"

/* One tower: a picture at its size in, rows out. A model may have several, each of which sees every
 * image. */
typedef struct sheaf__tower {
    int64_t channels, height, width, patch; /* of an image, in pixels */
    int64_t patches;                        /* that it falls into */
    int64_t rows;    /* of one image while it is seen: the patches and a class row */
    int64_t gives;   /* rows it gives for one image, 0 where nothing reads them */
    int64_t columns; /* of what it gives */
    bool beside;     /* cross-attention looks at its rows; else they stand in the sequence */
    /* Each picture has its own size, a multiple of `patch` both ways; height, width, patches and
     * rows are then those of the largest ordinary one, which plans count with. */
    bool ragged;
    /* Of a ragged one: each is seen as long as the largest of its sequence, with black patches
     * behind its own (MiniCPM-V 2.5, where a config asks for it). */
    bool padded;
    /* Of a ragged one: so many frames of a video may be one group, which gives its rows together;
     * 0: it reads no videos. */
    int64_t frames;
    /* Of a ragged one that joins patches in squares of merge x merge: each square gives a row, and
     * `gives` is for the largest ordinary picture too. 0: every picture gives `gives`. */
    int64_t merge;
    /* Blocks with windows: the windows' side in such squares, from a picture's upper left corner
     * on; those at the edges may be smaller. 0: all see the whole picture. */
    int64_t window;
    /* A patch holds so many frames of a group, one behind the other, the last as often as some are
     * missing: a picture so many times; 0: once. */
    int64_t repeats;
    /* Columns behind the first config.hidden are added to the rows of pictures, as many at a time,
     * behind the first layers of the text model: of so many. */
    int64_t behind;
} sheaf__tower;

enum { SHEAF__MOST_TOWERS = 4 };

/* An image as one tower reads it. */
typedef struct sheaf__view {
    float *pixels; /* [channels, height, width], normalised */
    int64_t height, width;
} sheaf__view;

/* An image as each tower of the list reads it; all zero behind the last. Lists of them ascend by
 * row and by the place in it: a sequence may hold several, each of its own size. */
typedef struct sheaf__picture {
    sheaf__view of[SHEAF__MOST_TOWERS];
    int64_t row;   /* sequence of the batch that it stands in */
    int32_t frame; /* of a video: 1 + its number; 0: a picture */
    bool joins;    /* it gives its rows together with the one before it: frames of one group */
} sheaf__picture;

/* Counts of pictures: all that rooms above inputs know of them, but for their pixels. */
typedef struct sheaf__picture_counts {
    int64_t images; /* that towers see one by one: pictures, pieces of them, frames */
    int64_t groups; /* of these, what gives rows: all but frames that join the one before */
    int64_t patches[SHEAF__MOST_TOWERS]; /* that each tower sees, of all of them */
    int64_t behind[SHEAF__MOST_TOWERS];  /* of frames that lie in patches of those before them */
} sheaf__picture_counts;

/* How a .safetensors file of token ids says where its images are (data/data_tensors.h). */
typedef enum sheaf__image_file {
    SHEAF__IMAGES_MASKED, /* by masks of its positions, an image in each row */
    SHEAF__IMAGES_MARKED, /* by tokens: one that begins it, one for each row of it, one that ends it
                           */
    SHEAF__IMAGES_BOUND,  /* by a list of its bounds */
    SHEAF__IMAGES_FOLDED, /* by tokens: one that begins it, one for all rows of it, one that ends it
                           */
    SHEAF__IMAGES_GRID    /* by a token for each row of it; their grids are listed */
} sheaf__image_file;

enum { SHEAF__ANY_IMAGES = INT32_MAX }; /* no family of which this is `most` sets a limit */

/* Place of an image in a sequence: `before` positions that begin it, one for each row that the
 * tower gives for it, `after` that end it. */
typedef struct sheaf__image_place {
    int64_t before, after;
    int64_t most; /* images in one sequence */
    bool experts; /* all but those `after` it use the visual experts */
    sheaf__image_file file;
    bool one_position; /* its rows share one position id */
    bool needed;       /* no prompt goes without an image: cross-attention looks at it */
    bool pads;         /* its positions hold the pad id; else 0 */
} sheaf__image_place;

/* Tokens that stand around and for the rows of a picture. */
typedef enum sheaf__mark {
    SHEAF__MARK_BEGIN, /* a picture, or its overview: begin, a row each, end */
    SHEAF__MARK_ROW,
    SHEAF__MARK_END,
    SHEAF__MARK_SLICE,
    SHEAF__MARK_SLICE_END,
    SHEAF__MARK_NUMBER, /* around a picture's number, from 0 */
    SHEAF__MARK_NUMBER_END,
    SHEAF__MARK_FRAME, /* a row of frames, where it is another token */
    SHEAF__MARKS
} sheaf__mark;

/* How frames of a video are chosen, sized and placed; all zero: each is a picture that is not cut.
 */
typedef struct sheaf__video_form {
    double fps;        /* frames in a second, where nothing says it */
    double sampled;    /* of these so many in a second are taken, 0: all; */
    int64_t few, many; /* at least and at most so many; */
    bool whole;        /* at equal distances from the first to the last; else as many groups */
    int64_t least,
        most;       /* pixels of each frame, or (`whole`) of all of them together; 0: as pictures */
    int64_t slices; /* of a frame, where pictures have such */
    bool together;  /* all groups stand between one begin and end */
    bool timed;     /* a group stands behind the second it is of: "<0.5 seconds>" */
    int64_t steps;  /* positions in a second, 0: frames count in tenths of one */
    const char *refused; /* settings that are not supported, the config's; NULL or "": none */
} sheaf__video_form;

/* How pictures become pixels and stand in a conversation, and the defaults of its prompts. */
typedef struct sheaf__picture_form {
    struct {
        const char *token; /* as the tokenizer knows it; NULL: there is none */
        const char *key;   /* of the config for its id, where the vocabulary is bytes */
    } mark[SHEAF__MARKS];
    int64_t rows; /* of a picture, or of each of its pieces; 0: by its size */
    int64_t resolution,
        slices;          /* of slicing (inputs/slices.h); 0: resized to the tower's size, or */
    int64_t least, most; /* to a size of its own of so many pixels (inputs/slices.h); 0: not */
    sheaf__video_form video;
    /* The slices of a picture stand together between the marks of a slice, each between those of a
     * picture; else each stands between the marks of a slice. */
    bool together;
    bool joined;           /* in front of a message a picture stands without a line of its own */
    bool on_white;         /* transparency is laid on white; else dropped */
    float mean[3], std[3]; /* of pixels; std 0: CLIP's (inputs/image.h) */
    bool bos;              /* in front, also where the template writes none */
    bool thoughts_said; /* the template is told whether an answer has thoughts (inputs/chat/chat.h)
                         */
    const char *chat, *byte_chat; /* template where none is named or stored; of bytes */
    const char *system;           /* message, where a conversation has none; NULL */
    const char *end;  /* token that ends an answer where the template writes none; NULL: eos */
    const char *stop; /* a token that ends an answer, beside those that files name; NULL */
    double temperature, top_p, repetition_penalty; /* sampling, by default */
    int64_t top_k;
} sheaf__picture_form;

/* ---- the arithmetic ---- */

/* sheaf__towers_of - how many towers a model has, and which; 0: it reads no images. */
int sheaf__towers_of(sheaf__tower out[SHEAF__MOST_TOWERS], const sheaf_config *config);
/* sheaf__tower_beside - the one whose rows cross-attention looks at: its number in that list, -1
 * where there is none, or nothing reads it; *out is all zero then. */
int sheaf__tower_beside(sheaf__tower *out, const sheaf_config *config);
/* sheaf__patches_along - of a side of so many pixels: the last one may lie over the edge, where
 * there are zeros. */
static inline int64_t sheaf__patches_along(int64_t pixels, const sheaf__tower *tower)
{
    return (pixels + tower->patch - 1) / tower->patch;
}
/* sheaf__view_patches - into which a tower cuts an image. */
static inline int64_t sheaf__view_patches(const sheaf__view *view, const sheaf__tower *tower)
{
    return sheaf__patches_along(view->height, tower) * sheaf__patches_along(view->width, tower);
}
/* sheaf__picture_seen - patches that tower `t` of the list sees of picture i of n: its own, and
 * those behind them. */
int64_t sheaf__picture_seen(const sheaf__picture *picture, int64_t n, int64_t i,
                            const sheaf__tower *tower, int t);
/* sheaf__tower_numbers - of an image as this tower reads it. */
int64_t sheaf__tower_numbers(const sheaf__tower *tower);
/* sheaf__counts_ordinary - of images of the towers' own sizes, each for itself. */
sheaf__picture_counts sheaf__counts_ordinary(const sheaf_config *config, int64_t images);
/* sheaf__counts_see - adds a picture of a sequence; `largest`: of those before it there, which
 * begin at 0, by tower. */
void sheaf__counts_see(sheaf__picture_counts *counts, int64_t largest[SHEAF__MOST_TOWERS],
                       const sheaf__picture *picture, const sheaf__tower *tower, int towers);
/* sheaf__counts_of - of the pictures of a sequence. */
sheaf__picture_counts sheaf__counts_of(const sheaf__picture *picture, int64_t n,
                                       const sheaf_config *config);
/* sheaf__counts_add - adds n times what `of` has. sheaf__counts_reach - the smaller, or the larger,
 * of each number. */
void sheaf__counts_add(sheaf__picture_counts *to, const sheaf__picture_counts *of, int64_t n);
void sheaf__counts_reach(sheaf__picture_counts *to, const sheaf__picture_counts *of, bool larger);
/* sheaf__counts_give - rows that tower `t` of the list gives for them. sheaf__counts_numbers - of
 * their pixels, as it reads them. sheaf__counts_positions - that they take in sequences. */
int64_t sheaf__counts_give(const sheaf__picture_counts *counts, const sheaf__tower *tower, int t);
int64_t sheaf__counts_numbers(const sheaf__picture_counts *counts, const sheaf__tower *tower,
                              int t);
int64_t sheaf__counts_positions(const sheaf_config *config, const sheaf__picture_counts *counts);
/* sheaf__picture_place - n images of the towers' own sizes over `pixels`, of each tower
 * [n, channels, height, width] (or NULL). */
void sheaf__picture_place(sheaf__picture *out, int64_t n, float *const *pixels,
                          const sheaf__tower *tower, int towers);
/* sheaf__picture_room_like - the same, with their pixels behind them, tower by tower, in one block
 * to free(); of a ragged tower images of the sizes of like[0..n), whose pixels may be NULL. like
 * NULL: all are of the towers' own sizes. NULL: no memory. */
sheaf__picture *sheaf__picture_room_like(const sheaf__picture *like, int64_t n,
                                         const sheaf__tower *tower, int towers);
/* sheaf__view_numbers - of an image as it is for a tower. */
static inline int64_t sheaf__view_numbers(const sheaf__view *view, const sheaf__tower *tower)
{
    return tower->channels * view->height * view->width;
}
/* sheaf__picture_misfit - the first tower for which the image is missing or of another size (of a
 * ragged one: not of whole patches); -1: it fits all. */
int sheaf__picture_misfit(const sheaf__picture *picture, const sheaf__tower *tower, int towers);
/* sheaf__image_rows - of a tower's, that stand in a sequence for an image; 0: none are read. */
int64_t sheaf__image_rows(const sheaf_config *config);
/* sheaf__image_positions - that an image of the towers' own size takes in a sequence; 0 where none
 * are read. */
int64_t sheaf__image_positions(const sheaf_config *config);
/* sheaf__image_id - that its positions hold, where they are laid out by masks. */
int32_t sheaf__image_id(const sheaf_config *config);
/* sheaf__pictures_of - the family's `pictures`, of a model that has towers; NULL: it reads none, or
 * not in conversations. */
void (*sheaf__pictures_of(const sheaf_config *config))(sheaf__picture_form *, const sheaf_config *);
/* sheaf__image_shared_positions - of a sequence whose whole images stand where `embed` is not 0:
 * 0, 1, ..., but one for all rows of an image (image.one_position). */
void sheaf__image_shared_positions(int32_t *position, const uint8_t *embed, int64_t n,
                                   const sheaf_config *config);
/* sheaf__tower_gives - rows that so many images give, with so many patches in all. */
static inline int64_t sheaf__tower_gives(const sheaf__tower *tower, int64_t images, int64_t patches)
{
    return tower->merge > 0 ? patches / (tower->merge * tower->merge) : images * tower->gives;
}
/* sheaf__unit_of - what both sides of a ragged tower's pictures are multiples of. */
static inline int64_t sheaf__unit_of(const sheaf__tower *tower)
{
    return tower->patch * (tower->merge > 0 ? tower->merge : 1);
}
/* sheaf__view_fits - is an image of the tower's size, or, of a ragged one, of such sides? */
static inline bool sheaf__view_fits(const sheaf__view *view, const sheaf__tower *tower)
{
    const int64_t unit = sheaf__unit_of(tower);
    return tower->ragged ? view->height > 0 && view->width > 0 && view->height % unit == 0 &&
                               view->width % unit == 0
                         : view->height == tower->height && view->width == tower->width;
}
/* sheaf__picture_inside - does a frame lie in the patches of the one before it? */
static inline bool sheaf__picture_inside(const sheaf__picture *picture, const sheaf__tower *tower)
{
    return picture->joins && tower->repeats > 0;
}
/* sheaf__position_axes - of the positions of a model: 1, or the 3 of rotary embeddings with
 * sections. */
static inline int64_t sheaf__position_axes(const sheaf_config *config)
{
    return config->rope.section[0] > 0 ? 3 : 1;
}
/* sheaf__grid_positions - positions of n tokens on three axes, position[axis * stride + t]: text
 * counts up by one on all of them; the rows of a picture that begins at position c have (c, c +
 * row, c + column) of its grid of joined patches, and what follows goes on at c + the longer side.
 * Groups of frames whose rows follow one another are one video, while their numbers do not fall:
 * they have (c + frame, c + row, c + column), and what follows goes on behind all of these.
 * Returns the position of a token behind them.
 *   embed    [n] rows of pictures; NULL: none
 *   seen     [n] 0: a token that does not count, with position 0; NULL: all count
 *   picture  as many as there are, with their sizes */
int32_t sheaf__grid_positions(int32_t *position, int64_t stride, int64_t n, const uint8_t *embed,
                              const uint8_t *seen, const sheaf__picture *picture,
                              const sheaf__tower *tower);
/* sheaf__image_experts - of these, how many use the visual experts. */
int64_t sheaf__image_experts(const sheaf_config *config);
