/* tensors_marks.c - images of a .safetensors file by marks among its token ids:
 *   OmniLMM   a token that begins an image, one for each row of it, one that ends it
 *   GLM-4V    one that begins it, one of any id for all its rows, one that ends it
 *   Qwen-VL   one for each row of it, another of a group of frames; image_grid_thw and
 *             video_grid_thw say how many it has (tensors_grid.c)
 * Of the first two `images` [n, channels, height, width] holds the pixels in the order of the
 * marks, row after row.
 *
 * A row of GLM-4V is read as the model sees it: the token in the middle is repeated for each row of
 * the image, at one position and without labels, so that what is behind moves. Rows with fewer
 * images than others are padded at their ends. */
#include "base/base.h"
#include "data/data_tensors.h"

static const char pixels_of[] = "images";

typedef struct marks {
    int64_t begin, patch, end; /* -1: no such token; patch: any id where it stands for all rows */
    bool folded;
    sheaf__listed *listed; /* of this token, sizes and pixels; NULL: the tower's own size */
} marks;

static bool holds_pixels(const sheaf__tensors *in)
{
    return sheaf__safetensors_find(in->file, pixels_of) != NULL;
}

static sheaf_status *bad_mark(const sheaf__tensors *in, const marks *m, int64_t row, int64_t t,
                              int64_t rows)
{
    sheaf_status *st =
        sheaf_fail(SHEAF_E_DATA, "'input_ids': row %" PRId64 ", position %" PRId64, row + 1, t + 1);
    if (m->listed != NULL && m->listed->used == m->listed->count)
        return sheaf_expected(st, "no more images than %s lists, %" PRId64, m->listed->name,
                              m->listed->count);
    if (m->listed != NULL)
        return sheaf_expected(st, "%" PRId64 " image tokens, as many as %s says", rows,
                              m->listed->name);
    if (m->folded)
        return sheaf_expected(st,
                              "an image as %" PRId64 ", one token for all its rows, %" PRId64
                              " (boi_token_id and eoi_token_id of config.json)",
                              m->begin, m->end);
    return sheaf_expected(st, "an image as %" PRId64 ", %" PRId64 " times %" PRId64 ", %" PRId64,
                          m->begin, rows, m->patch, m->end);
}

/* The next image of the list: its size and its pixels. */
static sheaf__found_image next_image(const sheaf__tensors *in, const marks *m)
{
    const sheaf__tower *tower = &in->data->images->tower[0];
    const sheaf__listed *l = m->listed;
    if (l != NULL)
        return l->used < l->count ? l->image[l->used] : (sheaf__found_image){ 0 };
    return (
        sheaf__found_image){ .item = in->images, .height = tower->height, .width = tower->width };
}

/* The image whose first mark is at position *t, which becomes that of its last. */
static sheaf_status *take_image(sheaf__tensors *in, const marks *m, int64_t row, int64_t *t)
{
    const int32_t *token = in->data->token + row * in->length;
    const sheaf__tower *tower = &in->data->images->tower[0];
    sheaf__found_image of = next_image(in, m);
    const sheaf__view view = { .height = of.height, .width = of.width };
    const int64_t rows =
        m->folded ? 1 : sheaf__tower_gives(tower, 1, sheaf__view_patches(&view, tower));
    const int64_t first = *t + (m->begin >= 0), end = first + rows + (m->end >= 0);
    if (of.height == 0 || (token[*t] != m->begin && m->begin >= 0))
        return sheaf_found(bad_mark(in, m, row, *t, rows), "%" PRId32 " without a beginning",
                           token[*t]);
    for (int64_t i = first; i < end; i++) {
        const int64_t want = i < first + rows ? m->patch : m->end;
        if (i >= in->length)
            return sheaf_found(bad_mark(in, m, row, *t, rows),
                               "the end of the row after %" PRId64 " of these tokens", i - *t);
        if (token[i] != want && (i == end - 1 || !m->folded))
            return sheaf_found(bad_mark(in, m, row, *t, rows), "%" PRId32 " at position %" PRId64,
                               token[i], i + 1);
    }
    sheaf_status *st = NULL;
    *t = end - 1;
    do {
        of.row = row;
        of.begin = first;
        st = sheaf__tensors_image_add(in, &of);
        if (m->listed != NULL)
            m->listed->used++;
        of = next_image(in, m);
    } while (st == NULL && of.joins);
    return st;
}

static sheaf_status *find_in_row(sheaf__tensors *in, const marks *m, sheaf__listed *listed,
                                 int64_t row)
{
    const int32_t *token = in->data->token + row * in->length;
    marks own = *m;
    sheaf_status *st = NULL;
    for (int64_t t = 0; t < in->length && st == NULL; t++) {
        if (listed != NULL) {
            own.listed = &listed[token[t] == listed[1].token];
            own.patch = own.listed->token;
        }
        if (token[t] == own.begin || token[t] == own.end ||
            (token[t] == own.patch && own.patch >= 0 && !own.folded))
            st = take_image(in, &own, row, &t);
    }
    return st;
}

static sheaf_status *check_known(const sheaf__tensors *in, const marks *m, bool *known)
{
    *known = m->folded || (m->begin >= 0 && m->patch >= 0 && m->end >= 0 && m->begin != m->patch &&
                           m->patch != m->end && m->begin != m->end);
    if (*known || !holds_pixels(in))
        return NULL;
    return sheaf_try_this(
        sheaf_found(sheaf__tensors_bad(pixels_of, "a config with the ids of the three tokens "
                                                  "that mark an image"),
                    "none, so that no place of an image is known"),
        "im_start_token, im_patch_token and im_end_token in config.json");
}

sheaf_status *sheaf__marks_find(sheaf__tensors *in, sheaf__listed listed[2])
{
    const sheaf_config *c = in->config;
    const bool alone = listed != NULL;
    const marks m = { alone ? -1 : c->image_mark.begin, c->image_mark.patch,
                      alone ? -1 : c->image_mark.end,
                      in->data->images->place.file == SHEAF__IMAGES_FOLDED, NULL };
    bool known = alone;
    sheaf_status *st = alone ? NULL : check_known(in, &m, &known);
    for (int64_t r = 0; r < in->rows && known && st == NULL; r++)
        st = find_in_row(in, &m, listed, r);
    return st != NULL || alone || (in->images == 0 && !holds_pixels(in))
               ? st
               : sheaf__tensors_stack(in, pixels_of, 0, in->images,
                                      ", an image for each that "
                                      "input_ids marks");
}

/* ---- rows as the model sees them ---- */

/* The source of each position of a longer row, -1: padding; and whether it is an image's. */
static void spread_row(int64_t *from, uint8_t *inside, sheaf__tensors *in, int64_t row,
                       int64_t *image, int64_t length, int64_t more)
{
    int64_t to = 0;
    for (int64_t t = 0; t < in->length; t++) {
        sheaf__found_image *of = &in->image[*image];
        const bool is = *image < in->images && of->row == row && of->begin == t;
        const int64_t times = is ? more + 1 : 1;
        if (is) {
            of->begin = to;
            ++*image;
        }
        for (int64_t i = 0; i < times; i++, to++) {
            from[to] = row * in->length + t;
            inside[to] = is;
        }
    }
    for (; to < length; to++) {
        from[to] = -1;
        inside[to] = 0;
    }
}

/* The most images of a row; *uneven: others have fewer. */
static int64_t most_images(bool *uneven, const sheaf__tensors *in)
{
    int64_t most = 0, fewest = INT64_MAX, at = 0;
    for (int64_t r = 0; r < in->rows; r++) {
        int64_t n = 0;
        for (; at < in->images && in->image[at].row == r; at++)
            n++;
        most = n > most ? n : most;
        fewest = n < fewest ? n : fewest;
    }
    *uneven = fewest < most;
    return most;
}

/* Of n positions in all; the old arrays are replaced. */
static void spread(sheaf__tensors *in, int32_t *const to[3], uint8_t *mask, const int64_t *from,
                   const uint8_t *inside, int64_t n)
{
    sheaf_data *data = in->data;
    const int32_t pad = in->config->pad < 0 ? 0 : (int32_t)in->config->pad;
    for (int64_t i = 0; i < n; i++) {
        const int64_t at = from[i];
        to[0][i] = at < 0 ? pad : data->token[at];
        to[1][i] = at < 0 || inside[i] ? SHEAF__NO_LABEL : data->label[at];
        to[2][i] = at < 0                   ? to[2][i - 1]
                   : data->position == NULL ? (int32_t)(at % in->length)
                                            : data->position[at];
        if (mask != NULL)
            mask[i] = at >= 0 && (data->mask == NULL || data->mask[at] != 0);
    }
    int32_t **const old[] = { &data->token, &data->label, &data->position };
    for (int i = 0; i < 3; i++) {
        free(*old[i]);
        *old[i] = to[i];
    }
    free(data->mask);
    data->mask = mask;
    data->tokens = data->token_capacity = n;
    in->length = n / in->rows;
    for (int64_t r = 0; r <= in->rows; r++)
        data->begin[r] = r * in->length;
}

sheaf_status *sheaf__marks_unfold(sheaf__tensors *in)
{
    bool uneven;
    const int64_t more = in->data->images->tower[0].gives - 1,
                  length = in->length + most_images(&uneven, in) * more;
    if (in->images == 0)
        return NULL;
    if (length > INT32_MAX)
        return sheaf__data_no_memory(length);
    const size_t n = (size_t)(in->rows * length);
    const bool masked = in->data->mask != NULL || uneven;
    int32_t *to[3];
    for (int i = 0; i < 3; i++)
        to[i] = malloc(n * sizeof *to[i]);
    uint8_t *mask = masked ? malloc(n) : NULL, *inside = malloc(n);
    int64_t *from = malloc(n * sizeof *from), image = 0;
    const bool made = to[0] != NULL && to[1] != NULL && to[2] != NULL && inside != NULL &&
                      from != NULL && (!masked || mask != NULL);
    for (int64_t r = 0; r < in->rows && made; r++)
        spread_row(from + r * length, inside + r * length, in, r, &image, length, more);
    if (made)
        spread(in, to, mask, from, inside, (int64_t)n);
    for (int i = 0; i < 3 && !made; i++)
        free(to[i]);
    free(made ? NULL : mask);
    free(inside);
    free(from);
    return made ? NULL : sheaf__data_no_memory((int64_t)n);
}
