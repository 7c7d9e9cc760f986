/* tensors_folded.c - images of a .safetensors file by tokens, as for GLM-4V: one that begins an
 * image, one that stands for all its rows, one that ends it. `images` is as in tensors_marked.c.
 *
 * A row is read as the model sees it: the token in the middle is repeated for each row of the
 * image, at one position and without labels, so that what is behind moves. Rows with fewer images
 * than others are padded at their ends. */
#include "base/base.h"
#include "data/data_tensors.h"

static sheaf_status *check_image(const sheaf__tensors *in, int64_t row, int64_t t)
{
    const int64_t begin = in->config->image_mark.begin, end = in->config->image_mark.end;
    const int32_t *token = in->data->token + row * in->length;
    if (token[t] == begin && t + 2 < in->length && token[t + 2] == end)
        return NULL;
    sheaf_status *st = sheaf__tensors_bad_value(in, "input_ids", row * in->length + t, token[t]);
    sheaf_expected(st,
                   "an image as %" PRId64 ", one token for all its rows, %" PRId64
                   " (boi_token_id and eoi_token_id of config.json)",
                   begin, end);
    return st;
}

static sheaf_status *find_in_row(sheaf__tensors *in, int64_t row)
{
    const sheaf_config *c = in->config;
    const int32_t *token = in->data->token + row * in->length;
    sheaf_status *st = NULL;
    for (int64_t t = 0; t < in->length && st == NULL; t++) {
        if (token[t] != c->image_mark.begin && token[t] != c->image_mark.end)
            continue;
        st = check_image(in, row, t);
        TRY(st, sheaf__tensors_image_add(in, row, t + 1));
        t += 2;
    }
    return st;
}

/* ---- rows as the model sees them ---- */

typedef struct unfolded {
    int32_t *token, *label, *position;
    uint8_t *mask;        /* NULL: the file has none, and no row is padded here */
    int64_t length, more; /* of a row; positions that an image takes beside its own three */
} unfolded;

static void put(unfolded *u, int64_t to, const sheaf__tensors *in, int64_t from, bool labelled)
{
    const sheaf_data *data = in->data;
    u->token[to] = data->token[from];
    u->label[to] = labelled ? data->label[from] : SHEAF__NO_LABEL;
    u->position[to] = data->position == NULL ? (int32_t)(from % in->length) : data->position[from];
    if (u->mask != NULL)
        u->mask[to] = data->mask == NULL ? 1 : data->mask[from];
}

static void unfold_row(unfolded *u, sheaf__tensors *in, int64_t row, int64_t *image)
{
    const int32_t pad = in->config->pad < 0 ? 0 : (int32_t)in->config->pad;
    int64_t to = row * u->length;
    const int64_t end = to + u->length;
    for (int64_t t = 0; t < in->length; t++) {
        sheaf__found_image *of = &in->image[*image];
        const bool inside = *image < in->images && of->row == row && of->begin == t;
        const int64_t times = inside ? u->more + 1 : 1;
        if (inside) {
            of->begin = to - row * u->length;
            ++*image;
        }
        for (int64_t i = 0; i < times; i++)
            put(u, to++, in, row * in->length + t, !inside);
    }
    for (; to < end; to++) {
        u->token[to] = pad;
        u->label[to] = SHEAF__NO_LABEL;
        u->position[to] = u->position[to - 1];
        u->mask[to] = 0;
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

static sheaf_status *unfold(sheaf__tensors *in)
{
    sheaf_data *data = in->data;
    bool uneven;
    unfolded u = { .more = data->images->tower[0].gives - 1 };
    u.length = in->length + most_images(&uneven, in) * u.more;
    if (u.length > INT32_MAX)
        return sheaf__data_no_memory(u.length);
    const size_t total = (size_t)(in->rows * u.length);
    const bool masked = data->mask != NULL || uneven;
    u.token = malloc(total * sizeof *u.token);
    u.label = malloc(total * sizeof *u.label);
    u.position = malloc(total * sizeof *u.position);
    u.mask = masked ? malloc(total) : NULL;
    const bool made =
        u.token != NULL && u.label != NULL && u.position != NULL && (!masked || u.mask != NULL);
    int64_t image = 0;
    for (int64_t r = 0; r < in->rows && made; r++)
        unfold_row(&u, in, r, &image);
    int32_t *const numbers[] = { made ? data->token : u.token, made ? data->label : u.label,
                                 made ? data->position : u.position };
    for (int i = 0; i < 3; i++)
        free(numbers[i]);
    free(made ? data->mask : u.mask);
    if (!made)
        return sheaf__data_no_memory((int64_t)total);
    data->token = u.token;
    data->label = u.label;
    data->position = u.position;
    data->mask = u.mask;
    data->tokens = data->token_capacity = (int64_t)total;
    in->length = u.length;
    for (int64_t r = 0; r <= in->rows; r++)
        data->begin[r] = r * in->length;
    return NULL;
}

sheaf_status *sheaf__folded_find(sheaf__tensors *in)
{
    sheaf_status *st = NULL;
    for (int64_t r = 0; r < in->rows && st == NULL; r++)
        st = find_in_row(in, r);
    TRY(st, sheaf__marked_pixels(in));
    return st != NULL || in->images == 0 ? st : unfold(in);
}
