/* tape_pictures.h - pictures of several sizes for the tests of pictures.h: what is run (on the
 * problems of tests/tape_problem.h) and the sets of sizes, with class rows and without. */
#pragma once

#include "tape/pictures.h"
#include "tests/tape_problem.h"

enum { MOST = 6 };

/* Sizes in patches of PATCH pixels; of equal ones all are the first. */
typedef struct picture_env {
    int64_t images, down[MOST], across[MOST];
    bool class_row, ragged, padded; /* to the largest */
    sheaf__position_grid grid;
    int64_t queries_each, kv_heads, group, head_dim, times;
    int32_t frame[MOST]; /* as in sheaf__picture */
    bool joins[MOST];
    int64_t groups; /* that attention sees as one each; 0: pictures */
    sheaf__picture picture[MOST];
    sheaf__images_in in;
} picture_env;

enum { PATCH = 2, CHANNELS = 3 };

static inline int64_t patches_of(const picture_env *e, int64_t i)
{
    return e->down[i] * e->across[i];
}

static inline int64_t seen_of(const picture_env *e, int64_t i)
{
    int64_t most = patches_of(e, i);
    for (int64_t k = 0; k < e->images && e->padded; k++)
        most = patches_of(e, k) > most ? patches_of(e, k) : most;
    return most;
}

static inline int64_t rows_of(const picture_env *e)
{
    int64_t n = 0;
    for (int64_t i = 0; i < e->images; i++)
        n += seen_of(e, i) + e->class_row;
    return n;
}

static inline sheaf__pictures pictures_of(picture_env *e)
{
    int64_t patches = 0;
    for (int64_t i = 0; i < e->images; i++) {
        e->picture[i].of[1].height = e->down[i] * PATCH;
        e->picture[i].of[1].width = e->across[i] * PATCH;
        e->picture[i].frame = e->frame[i];
        e->picture[i].joins = e->joins[i];
        patches += seen_of(e, i);
    }
    e->in = (sheaf__images_in){ .picture = e->picture };
    return (sheaf__pictures){ .in = &e->in,
                              .images = e->images,
                              .patches = patches,
                              .tower = { .channels = CHANNELS,
                                         .height = e->down[0] * PATCH,
                                         .width = e->across[0] * PATCH,
                                         .patch = PATCH,
                                         .patches = patches_of(e, 0),
                                         .ragged = e->ragged,
                                         .padded = e->padded },
                              .number = 1,
                              .class_row = e->class_row,
                              .groups = e->groups };
}

static const picture_env sets[] = {
    { .images = 4, .down = { 2, 3, 3, 1 }, .across = { 3, 1, 1, 5 }, .ragged = true },
    { .images = 4,
      .down = { 2, 3, 3, 1 },
      .across = { 3, 1, 1, 5 },
      .ragged = true,
      .class_row = true },
    { .images = 3, .down = { 2, 2, 2 }, .across = { 3, 3, 3 } },
    { .images = 3, .down = { 2, 2, 2 }, .across = { 3, 3, 3 }, .class_row = true },
    { .images = 1, .down = { 4 }, .across = { 4 }, .ragged = true, .class_row = true },
};
