/* pieces.h - the pictures of a recording (pictures/N.png) as the model reads them: for the parity
 * tests of families whose pictures stand in conversations. */
#pragma once

#include "data/record_pictures.h"
#include "infer/prompts.h"
#include "tests/parity/trial.h"

typedef struct pieces {
    sheaf__picture *picture; /* [n], with pixels */
    int64_t n;
} pieces;

/* The pieces of pictures number[0..count) of a folder, one picture after the other. */
static inline pieces pieces_of(const char *dir, const sheaf_config *config, const int64_t *number,
                               int64_t count)
{
    sheaf__viewing viewing;
    sheaf__viewed viewed[16];
    pieces p;
    sheaf__picture *like;
    assert_true(count <= (int64_t)ARRAY_LEN(viewed));
    sheaf__viewing_of(&viewing, config);
    for (int64_t i = 0; i < count; i++) {
        const char *path = textf("%s/pictures/%d.png", dir, (int)number[i]);
        CHECK_OK(sheaf__view_file(&viewed[i], path, &viewing));
    }
    CHECK_OK(sheaf__prompts_pieces(&like, &p.n, viewed, count));
    p.picture = kept(sheaf__picture_room_like(like, p.n, viewing.tower, viewing.towers), free);
    sheaf__picture *next = p.picture;
    for (int64_t i = 0; i < count; i++) {
        CHECK_OK(sheaf__view_pixels(next, &viewed[i], &viewing));
        next += sheaf__sliced_count(&viewed[i].pieces);
        sheaf__viewed_release(&viewed[i]);
    }
    free(like);
    return p;
}

/* The numbers of a list, at most 16. */
static inline int64_t picture_numbers(int64_t number[16], const json_t *list)
{
    const size_t n = json_array_size(list);
    assert_true(n <= 16);
    for (size_t i = 0; i < n; i++)
        number[i] = json_integer_value(json_array_get(list, i));
    return (int64_t)n;
}
