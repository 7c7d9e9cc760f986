/* prompts_rows.c - rows of a .safetensors file as prompts: sheaf__prompts_rows() of prompts.h. */
#include "base/base.h"
#include "infer/prompts.h"
#include "schema/family.h"

/* One row of a data set, and space for it. */
typedef struct one_row {
    sheaf_batch batch;
    int64_t seq, begin, context; /* tokens [begin, context) are the prompt; before them padding */
    int64_t image_rows;          /* positions of its images */
    int64_t expert_rows;
} one_row;

/* All arrays in one block, which begins with the tokens. */
static sheaf_status *make_row(one_row *r, const sheaf_data *data)
{
    const size_t n = (size_t)sheaf_data_seq(data);
    int32_t *all = malloc(n * (6 * sizeof *all + 1) + 1);
    *r = (one_row){ .seq = (int64_t)n };
    if (all == NULL)
        return sheaf_fail(SHEAF_E_MEMORY, "a row of %zu tokens", n);
    r->batch = (sheaf_batch){ .tokens = all,
                              .labels = all + n,
                              .position = all + 2 * n,
                              .image_row = all + 3 * n,
                              .stream = { all + 4 * n, all + 5 * n },
                              .mask = (uint8_t *)(all + 6 * n) };
    return NULL;
}

/* Labels are of the token behind them. Rows with an image have places for it, which padding before
 * them would move. */
static sheaf_status *find_context(one_row *r)
{
    int64_t n = 0;
    while (n < r->seq && r->batch.labels[n] < 0)
        n++;
    r->begin = 0;
    r->context = n + 1;
    if (n == r->seq) /* without labels all of the row is the question */
        for (r->context = r->seq; r->context > 1 && r->batch.mask[r->context - 1] == 0;)
            r->context--;
    while (r->image_rows == 0 && r->begin < r->context - 1 && r->batch.mask[r->begin] == 0)
        r->begin++;
    for (int64_t t = r->begin; t < r->context; t++)
        if (r->batch.mask[t] == 0)
            return sheaf_found(
                sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "attention_mask"), "no padding %s",
                               r->image_rows > 0 ? "before the answer"
                                                 : "between the tokens of the prompt"),
                "0 at position %" PRId64, t + 1);
    return NULL;
}

/* Sizes of its images, ids, position, embed and expert of the prompt, in one block. */
static sheaf_status *copy_context(sheaf__prompt *out, void **block, const one_row *r,
                                  const sheaf_config *config, const sheaf_data *data, int64_t row)
{
    const size_t n = (size_t)(r->context - r->begin);
    int64_t rows = 0; /* of images before the answer */
    while (rows < r->image_rows && r->batch.image_row[rows] < r->context)
        rows++;
    const bool any = r->image_rows > 0,
               sizes = sheaf__family_for(config)->image.most > 1 && rows > 0;
    const int64_t images = sizes ? rows / sheaf__image_positions(config) : 0;
    sheaf__picture *picture = malloc((size_t)images * sizeof *picture + n * 10);
    if (picture == NULL)
        return sheaf_fail(SHEAF_E_MEMORY, "a prompt of %zu tokens", n);
    int32_t *ids = (int32_t *)(picture + images);
    uint8_t *embed = (uint8_t *)(ids + 2 * n), *expert = embed + n;
    memcpy(ids, r->batch.tokens + r->begin, n * 4);
    const int32_t shift = r->begin > 0 ? r->batch.position[r->begin] : 0;
    for (size_t i = 0; i < n; i++) /* padding before it shifts no position */
        ids[n + i] = r->batch.position[r->begin + (int64_t)i] - shift;
    memset(embed, 0, 2 * n);
    for (int64_t i = 0; i < rows; i++)
        embed[r->batch.image_row[i]] = 1;
    for (int64_t i = 0; i < r->expert_rows; i++)
        if (r->batch.stream[1][i] < r->context)
            expert[r->batch.stream[1][i]] = 1;
    sheaf_data_row_sizes(picture, images, data, row);
    *out = (sheaf__prompt){ .ids = ids,
                            .n = (int64_t)n,
                            .position = ids + n,
                            .embed = rows > 0 ? embed : NULL,
                            .expert = any ? expert : NULL,
                            .picture = images > 0 ? picture : NULL,
                            .pictures = images };
    *block = picture;
    return NULL;
}

/* The labels from the first one on, up to the end of the answer, which says too whether a template
 * laid the row out. */
static sheaf_status *expected_text(char **out, bool *laid_out, const one_row *r,
                                   const sheaf__wording *w)
{
    int64_t first = 0, n = 0;
    while (first < r->seq && r->batch.labels[first] < 0)
        first++;
    const int32_t *label = r->batch.labels + first;
    while (first + n < r->seq && label[n] >= 0 && !sheaf__wording_ends(w, label[n], true))
        n++;
    *laid_out = first + n < r->seq && w->end >= 0 && label[n] == w->end;
    sheaf_status *st = first == r->seq ? NULL : sheaf__wording_decode(out, w, label, n);
    char *end =
        st == NULL && *out != NULL && w->end_text != NULL ? strstr(*out, w->end_text) : NULL;
    if (end != NULL) {
        *laid_out = true;
        *end = '\0';
    }
    return st;
}

static sheaf_status *add_row(sheaf__prompts *out, one_row *r, const sheaf__wording *w,
                             const sheaf_data *data, int64_t row)
{
    const sheaf_batch_images images = sheaf_data_images(data, &row, 1);
    sheaf__prompt prompt;
    sheaf__prompt_about about = { 0 };
    bool laid_out = false;
    sheaf_status *st = sheaf_data_batch(&r->batch, data, &row, 1);
    r->image_rows = images.images * sheaf__image_positions(w->config);
    r->expert_rows = images.image_rows;
    TRY(st, find_context(r));
    TRY(st, expected_text(&about.expected, &laid_out, r, w));
    TRY(st, copy_context(&prompt, &about.block, r, w->config, data, row));
    prompt.laid_out = laid_out;
    if (st == NULL)
        return sheaf__prompts_put(out, &prompt, &about);
    free(about.expected);
    return st;
}

sheaf_status *sheaf__prompts_rows(sheaf__prompts *out, const sheaf__wording *w,
                                  const sheaf_data *data)
{
    one_row r;
    if (sheaf_data_is_packed(data)) {
        sheaf_status *st = sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "position_ids"),
                                          "one record in each row that is to be answered");
        return sheaf_try_this(sheaf_found(st, "positions that restart within a row"),
                              "write each record in a row of its own");
    }
    sheaf_status *st = make_row(&r, data);
    out->rows = data;
    for (int64_t row = 0; row < sheaf_data_rows(data) && st == NULL; row++)
        st = sheaf_in(add_row(out, &r, w, data, row), "row %" PRId64, row + 1);
    free(r.batch.tokens);
    return st;
}
