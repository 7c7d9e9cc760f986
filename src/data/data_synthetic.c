/* data_synthetic.c - rows of synthetic tokens, and images of one colour where a model reads them:
 * as much work as real ones, to measure steps without data. */
#include "base/base.h"
#include "data/data_images.h"
#include "data/data_rows.h"

static sheaf_status *load_gray(void *self, int64_t row, const sheaf__picture *picture)
{
    const sheaf__data_images *images = self;
    for (int t = 0; t < images->towers; t++)
        for (int64_t i = 0; i < sheaf__tower_numbers(&images->tower[t]); i++)
            picture->of[t].pixels[i] = 0.25f; /* each is of the tower's own size */
    return NULL;
}

/* After the first token of each row; its rows have no labels. */
static sheaf_status *place_images(sheaf_data *data, const sheaf_config *config)
{
    sheaf__data_images *images = data->images;
    const int64_t whole = sheaf__image_positions(config), experts = sheaf__image_experts(config);
    sheaf_status *st = sheaf__data_images_rows_new(data);
    for (int64_t r = 0; st == NULL && r < data->rows; r++)
        for (int64_t i = 1; i < whole + 1 && i < data->seq; i++) {
            const int64_t at = r * data->seq + i;
            images->embed[at] = 1;
            images->expert[at] = i < experts + 1;
            if (i + 1 < data->seq && (images->expert[at] || experts == 0))
                data->label[at + 1] = SHEAF__NO_LABEL;
        }
    images->self = images;
    images->load = load_gray;
    TRY(st, sheaf__data_images_share_positions(data, config));
    return st == NULL ? sheaf__data_images_check(data, config) : st;
}

static sheaf_status *fill(sheaf_data *data, int64_t rows, int64_t seq)
{
    const size_t all = (size_t)(rows * seq);
    uint64_t state = 1;
    data->rows = data->capacity = rows;
    data->seq = seq;
    data->tokens = data->token_capacity = rows * seq;
    data->begin = malloc(((size_t)rows + 1) * sizeof *data->begin);
    data->token = malloc(all * sizeof *data->token);
    data->label = malloc(all * sizeof *data->label);
    if (data->begin == NULL || data->token == NULL || data->label == NULL)
        return sheaf__data_no_memory(data->tokens);
    for (int64_t r = 0; r <= rows; r++)
        data->begin[r] = r * seq;
    for (size_t i = 0; i < all; i++) {
        state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        data->label[i] = data->token[i] = (int32_t)((state >> 33) % (uint64_t)data->vocab);
    }
    return NULL;
}

sheaf_status *sheaf_data_synthetic(sheaf_data **out, const sheaf_config *config, int64_t rows,
                                   int64_t seq)
{
    sheaf_data *data = calloc(1, sizeof *data);
    if (data == NULL)
        return sheaf__data_no_memory(0);
    data->vocab = config->vocab;
    sheaf_status *st = sheaf__data_images_new(&data->images, config);
    TRY(st, fill(data, rows, seq));
    if (st == NULL && data->images != NULL)
        st = place_images(data, config);
    TRY(st, sheaf__data_count(data, true));
    if (st != NULL) {
        sheaf_data_close(data);
        return st;
    }
    *out = data;
    return NULL;
}
