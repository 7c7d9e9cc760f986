/* pictures.h - the ops of towers that see pictures of their own sizes, any number of them in a
 * pass: patches, positions on a grid, class rows, attention inside each picture.
 *
 * Rows of picture i lie right behind those of picture i - 1: its patches row by row, before them a
 * class row where there is one. So nothing is padded, and pictures are independent. All sums
 * over pictures take them in their order. */
#pragma once

#include "tape/linear.h"
#include "tape/scaled.h"
#include "tape/vision.h"

/* The pictures of a pass as one tower sees them. What `in` points to is read when the tape runs;
 * where that, or in->picture, is NULL, pictures are as if they were equally large. */
typedef struct sheaf__pictures {
    const sheaf__images_in *in;
    int64_t images, patches; /* pictures, and patches of all of them */
    sheaf__tower tower;
    int number;     /* of the tower in its family's list */
    bool class_row; /* the rows of each begin with one */
    /* Attention sees all frames of a group as one picture (sheaf__picture.joins): so many groups;
     * 0: each by itself. */
    int64_t groups;
    bool windows;   /* attention stays within windows (tape/windows.h) */
    int64_t listed; /* of in->picture, with frames inside patches of others; 0: images */
} sheaf__pictures;

/* sheaf__pictures_rows - rows of all: patches, and class rows where there are such. */
static inline int64_t sheaf__pictures_rows(const sheaf__pictures *p)
{
    return p->patches + (p->class_row ? p->images : 0);
}

/* sheaf__record_picture_patches - [patches, channels * frames * patch * patch] in the compute
 * dtype, each in the order of a convolution's weight (channel, frame, y, x); p->class_row is not
 * looked at. No gradient. Running fails with SHEAF_E_ARG for a picture whose size the tower does
 * not take, and where the pictures do not have p->patches in all. */
sheaf__value *sheaf__record_picture_patches(sheaf__tape *tape, const sheaf__pictures *pictures);

/* The position of row r, column c of a picture of h x w patches: */
typedef enum sheaf__position_kind {
    SHEAF__GRID_AS_IS,        /* row r * w + c of the table, which has h x w */
    SHEAF__GRID_CUBIC,        /* torch's bicubic, a = -0.75, clamped, corners not aligned */
    SHEAF__GRID_CUBIC_SMOOTH, /* its antialiased one, a = -0.5: taps outside are dropped, the others
                                 divided by their sum */
    SHEAF__GRID_BUCKETS,      /* row b(r, h) * cols + b(c, w): NaViT's, see pictures_grid.c */
    SHEAF__GRID_LINEAR,       /* bilinear, corners aligned: row r is at r (n - 1) / (h - 1) */
    SHEAF__GRID_SINCOS,       /* no table: sin(c f), cos(c f), sin(r f), cos(r f), a quarter each */
    SHEAF__GRID_FRAMES, /* no table: sin(n f), cos(n f) of the frame's number, a half each; nothing
                           for a picture */
} sheaf__position_kind;

typedef struct sheaf__position_grid {
    sheaf__position_kind kind;
    sheaf__vector *table; /* NULL with SINCOS and FRAMES */
    int64_t rows, cols;   /* of the table's grid */
    bool class_row;       /* the table begins with a row for class rows; then the grid's */
    bool strip; /* a picture's patches are as if they stood in one row, one behind the other */
} sheaf__position_grid;

/* sheaf__record_grid_positions - round(x + round(position)), x [sheaf__pictures_rows, width]; a
 * class row gets the table's class row, or nothing where the table has none. A table that is
 * trained gets the gradient of every row it was taken from, weighted as it was. Pictures of as many
 * rows and columns as the table get it as it is, with either bicubic. Running fails with
 * SHEAF_E_ARG for AS_IS and a picture of another grid. */
sheaf__value *sheaf__record_grid_positions(sheaf__tape *tape, sheaf__value *x,
                                           const sheaf__pictures *pictures,
                                           const sheaf__position_grid *grid);

/* sheaf__record_class_rows - x [patches, width] with class_token (one row) before the patches of
 * each picture; p->class_row is not looked at. */
sheaf__value *sheaf__record_class_rows(sheaf__tape *tape, sheaf__value *x,
                                       const sheaf__pictures *pictures, sheaf__vector *class_token);
/* sheaf__record_without_class - drops them again. */
sheaf__value *sheaf__record_without_class(sheaf__tape *tape, sheaf__value *x,
                                          const sheaf__pictures *pictures);

/* sheaf__record_vector - a whole vector [rows, width] as a value; trained where it is. */
sheaf__value *sheaf__record_vector(sheaf__tape *tape, sheaf__vector *vector);
/* sheaf__record_repeat - n copies of x one after the other; their gradients are added in order. */
sheaf__value *sheaf__record_repeat(sheaf__tape *tape, sheaf__value *x, int64_t n);

/* sheaf__record_picture_attention - full attention inside each picture, or each window, no mask. k,
 * v [sheaf__pictures_rows, owned]; queries_each 0: q too, each row of a picture sees all rows of
 * it; else q holds queries_each rows for each picture, one picture after the other, and so does the
 * result. Of heads only kv_heads, group, head_dim and scalar are read. */
sheaf__value *sheaf__record_picture_attention(sheaf__tape *tape, sheaf__value *q, sheaf__value *k,
                                              sheaf__value *v, const sheaf__heads *heads,
                                              const sheaf__pictures *pictures,
                                              int64_t queries_each);
