/* tensors_marked.c - images of a .safetensors file by tokens, as for OmniLMM: one that begins an
 * image, one for each row of it, one that ends it. `images` [n, channels, height, width] holds
 * their pixels in the order of these marks, row after row. */
#include "base/base.h"
#include "data/data_tensors.h"

static const char pixels_of[] = "images";

typedef struct marks {
    int64_t begin, patch, end, rows;
} marks;

static sheaf_status *bad_mark(int64_t row, int64_t position, const marks *m)
{
    return sheaf_expected(sheaf_fail(SHEAF_E_DATA,
                                     "'input_ids': row %" PRId64 ", position %" PRId64, row + 1,
                                     position + 1),
                          "an image as %" PRId64 ", %" PRId64 " times %" PRId64 ", %" PRId64,
                          m->begin, m->rows, m->patch, m->end);
}

/* Is the image that begins at position t complete? */
static sheaf_status *check_image(const sheaf__tensors *in, const marks *m, int64_t row, int64_t t)
{
    const int32_t *token = in->data->token + row * in->length;
    for (int64_t i = 1; i <= m->rows + 1; i++) {
        const int64_t want = i <= m->rows ? m->patch : m->end;
        if (t + i >= in->length)
            return sheaf_found(bad_mark(row, t, m),
                               "the end of the row after %" PRId64 " of these tokens", i);
        if (token[t + i] != want)
            return sheaf_found(bad_mark(row, t, m), "%" PRId32 " at position %" PRId64,
                               token[t + i], t + i + 1);
    }
    return NULL;
}

static sheaf_status *find_in_row(sheaf__tensors *in, const marks *m, int64_t row)
{
    const int32_t *token = in->data->token + row * in->length;
    sheaf_status *st = NULL;
    for (int64_t t = 0; t < in->length && st == NULL; t++) {
        if (token[t] == m->patch || token[t] == m->end)
            return sheaf_found(bad_mark(row, t, m), "%" PRId32 " without a beginning", token[t]);
        if (token[t] != m->begin)
            continue;
        st = check_image(in, m, row, t);
        TRY(st, sheaf__tensors_image_add(in, row, t + 1));
        t += m->rows + 1;
    }
    return st;
}

sheaf_status *sheaf__marked_pixels(sheaf__tensors *in)
{
    const sheaf__tower *tower = &in->data->images->tower[0];
    const sheaf_safetensors_entry *e = sheaf__safetensors_find(in->file, pixels_of);
    if (e == NULL && in->images == 0)
        return NULL;
    for (int64_t i = 0; i < in->images; i++) {
        in->image[i].pixels[0] = e;
        in->image[i].item = i;
        in->image[i].height = tower->height;
        in->image[i].width = tower->width;
    }
    sheaf_status *st = e == NULL ? NULL : sheaf__pixels_check_type(e);
    if (st != NULL ||
        (e != NULL && e->ndim == 4 && e->shape[0] == in->images && e->shape[1] == tower->channels &&
         e->shape[2] == tower->height && e->shape[3] == tower->width))
        return st;
    st = sheaf_expected(sheaf_fail(SHEAF_E_DATA, "'%s'", pixels_of),
                        "[%" PRId64 ", %" PRId64 ", %" PRId64 ", %" PRId64
                        "], an image for each that input_ids marks",
                        in->images, tower->channels, tower->height, tower->width);
    return e == NULL ? sheaf_found(st, "no such tensor") : sheaf__tensors_shape(st, e);
}

sheaf_status *sheaf__marked_find(sheaf__tensors *in)
{
    const sheaf_config *c = in->config;
    const marks m = { c->image_mark.begin, c->image_mark.patch, c->image_mark.end,
                      in->data->images->tower[0].gives };
    const sheaf_safetensors_entry *e = sheaf__safetensors_find(in->file, pixels_of);
    const bool known = m.begin >= 0 && m.patch >= 0 && m.end >= 0 && m.begin != m.patch &&
                       m.patch != m.end && m.begin != m.end;
    sheaf_status *st = NULL;
    if (!known && e != NULL)
        return sheaf_try_this(
            sheaf_found(sheaf__tensors_bad(pixels_of, "a config with the ids of the three tokens "
                                                      "that mark an image"),
                        "none, so that no place of an image is known"),
            "im_start_token, im_patch_token and im_end_token in config.json");
    for (int64_t r = 0; r < in->rows && known && st == NULL; r++)
        st = find_in_row(in, &m, r);
    return TRY(st, sheaf__marked_pixels(in));
}
