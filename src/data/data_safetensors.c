/* data_safetensors.c - pre-tokenised rows.
 *
 * input_ids, labels and optionally attention_mask and position_ids, each [rows, length],
 * int32 or int64; for a model with images also what data_images.h lists; and nothing else:
 * an input that is not known here may change the meaning of the others. A row's own padding is kept
 * as it is (it shows in saved logits); only positions at the end with mask 0 and no label may fall
 * outside --seq. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "formats/safetensors.h"
#include "ops/kernels.h"
#include "data/data_images.h"
#include "data/data_read.h"

enum { CHUNK = 1 << 16 }; /* elements converted at a time */

typedef struct reader {
    sheaf_safetensors *file;
    sheaf_data *data;
    int64_t rows, length;
    bool prompts;  /* as sheaf_data_options has it */
    uint8_t *mask; /* where take_mask() writes */
    void *chunk;   /* CHUNK int64 */
} reader;

static sheaf_status *bad_tensor(const char *name, const char *expected)
{
    return sheaf_expected(sheaf_fail(SHEAF_E_DATA, "'%s'", name), "%s", expected);
}

static sheaf_status *bad_value(const reader *in, const char *name, int64_t index, int64_t value)
{
    return sheaf_found(sheaf_fail(SHEAF_E_DATA, "'%s': row %" PRId64 ", position %" PRId64, name,
                                  index / in->length + 1, index % in->length + 1),
                       "%" PRId64, value);
}

/* ---- which tensors there are ---- */

static sheaf_status *check_entry(const sheaf_safetensors_entry *entry, const char *name)
{
    if (entry == NULL) {
        sheaf_status *st = bad_tensor(name, "input_ids, labels and optionally attention_mask");
        return sheaf_found(st, "no such tensor");
    }
    if (entry->dtype != SHEAF_I32 && entry->dtype != SHEAF_I64)
        return sheaf_found(bad_tensor(name, "I32 or I64"), "%s", sheaf_dtype_name(entry->dtype));
    if (entry->ndim != 2)
        return sheaf_found(bad_tensor(name, "two axes, [rows, length]"), "%d", entry->ndim);
    return NULL;
}

static sheaf_status *check_shape(const reader *in, const sheaf_safetensors_entry *entry)
{
    if (entry->shape[0] == in->rows && entry->shape[1] == in->length)
        return NULL;
    sheaf_status *st = sheaf_fail(SHEAF_E_DATA, "'%s'", entry->name);
    sheaf_expected(st, "[%" PRId64 ", %" PRId64 "], the shape of input_ids", in->rows, in->length);
    return sheaf_found(st, "[%" PRId64 ", %" PRId64 "]", entry->shape[0], entry->shape[1]);
}

/* Tensors of [rows, length]; an image's come last. */
static const struct {
    const char *name;
    bool needed, image;
} known[] = {
    { "input_ids", true },
    { "labels", true }, /* but for prompts */
    { "attention_mask" },
    { "position_ids" },
    { "image_embed_mask", .image = true },
    { "token_type_ids", .image = true },
    { "vision_expert_mask", .image = true },
    { "image_rope_mask", .image = true },
};
enum { LABELS = 1, KNOWN = sizeof known / sizeof *known };

/* What holds the images, as each tower reads them. */
static const char *const images_of[] = { "vision_image", "cross_image" };
enum { MOST_IMAGES = sizeof images_of / sizeof *images_of };

static bool is_known(const reader *in, const char *name)
{
    const sheaf__data_images *images = in->data->images;
    for (int k = 0; k < KNOWN; k++)
        if (strcmp(name, known[k].name) == 0)
            return !known[k].image || images != NULL;
    for (int t = 0; images != NULL && t < images->towers && t < MOST_IMAGES; t++)
        if (strcmp(name, images_of[t]) == 0)
            return true;
    return images != NULL && strcmp(name, "context_length") == 0;
}

static sheaf_status *check_pixels(const reader *in, const char *name, const sheaf__tower *tower)
{
    const sheaf_safetensors_entry *e = sheaf__safetensors_find(in->file, name);
    const int64_t channels = tower->channels, height = tower->height, width = tower->width;
    if (e == NULL)
        return sheaf_found(bad_tensor(name, "the images of the rows, normalised"),
                           "no such tensor");
    if (e->dtype != SHEAF_F32 && e->dtype != SHEAF_BF16 && e->dtype != SHEAF_F16)
        return sheaf_found(bad_tensor(name, "F32, BF16 or F16"), "%s", sheaf_dtype_name(e->dtype));
    if (e->ndim == 4 && e->shape[0] == in->rows && e->shape[1] == channels &&
        e->shape[2] == height && e->shape[3] == width)
        return NULL;
    sheaf_status *st = sheaf_expected(sheaf_fail(SHEAF_E_DATA, "'%s'", name),
                                      "[%" PRId64 ", %" PRId64 ", %" PRId64 ", %" PRId64 "]",
                                      in->rows, channels, height, width);
    if (e->ndim != 4)
        return sheaf_found(st, "%d axes", e->ndim);
    return sheaf_found(st, "[%" PRId64 ", %" PRId64 ", %" PRId64 ", %" PRId64 "]", e->shape[0],
                       e->shape[1], e->shape[2], e->shape[3]);
}

/* Does the file mark an image's positions at all? */
static const char *embed_name(const reader *in)
{
    if (sheaf__safetensors_find(in->file, "image_embed_mask") != NULL)
        return "image_embed_mask";
    return sheaf__safetensors_find(in->file, "token_type_ids") != NULL ? "token_type_ids" : NULL;
}

static sheaf_status *check_tensors(reader *in)
{
    for (int64_t i = 0; i < in->file->header.count; i++) {
        const char *name = in->file->header.entry[i].name;
        if (!is_known(in, name)) {
            sheaf_status *st =
                bad_tensor(name, in->data->images == NULL
                                     ? "input_ids, labels and optionally attention_mask"
                                     : "input_ids, labels, masks and images (docs/data.md)");
            return sheaf_try_this(sheaf_found(st, "a tensor of this name"),
                                  "remove it from the file");
        }
    }
    for (int k = 0; k < KNOWN; k++) {
        const sheaf_safetensors_entry *entry = sheaf__safetensors_find(in->file, known[k].name);
        if (entry == NULL && (!known[k].needed || (in->prompts && k == LABELS)))
            continue;
        sheaf_status *st = check_entry(entry, known[k].name);
        if (st == NULL && k == 0) {
            in->rows = entry->shape[0];
            in->length = entry->shape[1];
        }
        if (st == NULL)
            st = check_shape(in, entry);
        if (st != NULL)
            return st;
    }
    if (in->rows < 1 || in->length < 2 || in->length > INT32_MAX)
        return sheaf_found(
            bad_tensor(known[0].name,
                       "at least one row of two tokens, and fewer than 2^31 tokens a row"),
            "[%" PRId64 ", %" PRId64 "]", in->rows, in->length);
    sheaf_status *st = NULL;
    const sheaf__data_images *images = in->data->images;
    if (images != NULL && images->towers > MOST_IMAGES)
        return sheaf_found(bad_tensor(images_of[0], "images of at most two towers"), "%d",
                           images->towers);
    for (int t = 0; embed_name(in) != NULL && t < images->towers && st == NULL; t++)
        st = check_pixels(in, images_of[t], &images->tower[t]);
    return st;
}

/* ---- values ---- */

/* Calls take(in, index, value) for every element. */
static sheaf_status *each(reader *in, const char *name,
                          sheaf_status *(*take)(reader *in, const char *name, int64_t index,
                                                int64_t value))
{
    const sheaf_safetensors_entry *entry = sheaf__safetensors_find(in->file, name);
    const int64_t item = entry->dtype == SHEAF_I64 ? 8 : 4, total = in->rows * in->length;
    for (int64_t done = 0; done < total; done += CHUNK) {
        const int64_t n = total - done < CHUNK ? total - done : CHUNK;
        sheaf_status *st =
            sheaf__safetensors_read(in->file, entry, done * item, in->chunk, n * item);
        for (int64_t i = 0; i < n && st == NULL; i++)
            st =
                take(in, name, done + i,
                     item == 8 ? ((const int64_t *)in->chunk)[i] : ((const int32_t *)in->chunk)[i]);
        if (st != NULL)
            return st;
    }
    return NULL;
}

static sheaf_status *take_token(reader *in, const char *name, int64_t index, int64_t value)
{
    if (value < 0 || value >= in->data->vocab)
        return sheaf_expected(bad_value(in, name, index, value), "a token id from 0 to %" PRId64,
                              in->data->vocab - 1);
    in->data->token[index] = (int32_t)value;
    return NULL;
}

static sheaf_status *take_label(reader *in, const char *name, int64_t index, int64_t value)
{
    if (value != SHEAF__NO_LABEL && (value < 0 || value >= in->data->vocab))
        return sheaf_expected(bad_value(in, name, index, value),
                              "-100 or a token id from 0 to %" PRId64, in->data->vocab - 1);
    in->data->label[index] = (int32_t)value;
    return NULL;
}

static sheaf_status *take_mask(reader *in, const char *name, int64_t index, int64_t value)
{
    if (value != 0 && value != 1)
        return sheaf_expected(bad_value(in, name, index, value), "0 or 1");
    in->mask[index] = (uint8_t)value;
    return NULL;
}

static sheaf_status *take_position(reader *in, const char *name, int64_t index, int64_t value)
{
    if (value < 0 || value > index % in->length)
        return sheaf_expected(bad_value(in, name, index, value),
                              "0 to %" PRId64 ", the number of tokens before it",
                              index % in->length);
    in->data->position[index] = (int32_t)value;
    return NULL;
}

static sheaf_status *read_mask(reader *in, const char *name, uint8_t *mask)
{
    in->mask = mask;
    return each(in, name, take_mask);
}

/* Masks that the file leaves out follow from those it has. */
static sheaf_status *read_image_masks(reader *in)
{
    sheaf_data *data = in->data;
    sheaf__data_images *images = data->images;
    sheaf_status *st = sheaf__data_images_rows_new(data);
    if (st == NULL && embed_name(in) != NULL)
        st = read_mask(in, embed_name(in), images->embed);
    const bool expert = sheaf__safetensors_find(in->file, "vision_expert_mask") != NULL;
    if (st == NULL && expert)
        st = read_mask(in, "vision_expert_mask", images->expert);
    for (int64_t i = 0; i < data->tokens && st == NULL && !expert; i++) /* all but EOI, the last */
        images->expert[i] = images->embed[i] && (i + 1) % in->length != 0 && images->embed[i + 1];
    if (st != NULL || data->position != NULL || embed_name(in) == NULL)
        return st;
    uint8_t *patch = malloc((size_t)data->tokens + 1);
    data->position = malloc((size_t)data->tokens * sizeof *data->position + 1);
    if (patch == NULL || data->position == NULL)
        st = sheaf__data_no_memory(data->tokens);
    else if (sheaf__safetensors_find(in->file, "image_rope_mask") != NULL)
        st = read_mask(in, "image_rope_mask", patch);
    else
        for (int64_t i = 0; i < data->tokens; i++) /* those that use experts, but BOI, the first */
            patch[i] = images->expert[i] && i % in->length != 0 && images->expert[i - 1];
    for (int64_t r = 0; r < in->rows && st == NULL; r++)
        sheaf__data_images_positions(data->position + r * in->length, patch + r * in->length,
                                     in->length);
    free(patch);
    return st;
}

/* ---- images, read when they are needed ---- */

typedef struct pixels {
    sheaf_safetensors *file;
    const sheaf__kernels *kernels;
    const sheaf__data_images *images;
} pixels;

static sheaf_status *read_pixels(const pixels *p, const char *name, int64_t row, int64_t n,
                                 float *dst)
{
    const sheaf_safetensors_entry *e = sheaf__safetensors_find(p->file, name);
    const int64_t bytes = n * (int64_t)sheaf_dtype_bytes(e->dtype);
    if (e->dtype == SHEAF_F32)
        return sheaf__safetensors_read(p->file, e, row * bytes, dst, bytes);
    void *half = malloc((size_t)bytes);
    sheaf_status *st = half == NULL ? sheaf__data_no_memory(n)
                                    : sheaf__safetensors_read(p->file, e, row * bytes, half, bytes);
    if (st == NULL)
        p->kernels->convert(dst, SHEAF_F32, half, e->dtype, n);
    free(half);
    return st;
}

static sheaf_status *load_pixels(void *self, int64_t row, const sheaf__picture *picture)
{
    const pixels *p = self;
    sheaf_status *st = NULL;
    for (int t = 0; t < p->images->towers && st == NULL; t++)
        st = read_pixels(p, images_of[t], row, sheaf__tower_numbers(&p->images->tower[t]),
                         picture->of[t].pixels);
    return st;
}

static void close_pixels(void *self)
{
    pixels *p = self;
    sheaf__safetensors_close(p->file);
    free(p);
}

/* Takes the file over; hashes every image. */
static sheaf_status *keep_pixels(reader *in)
{
    sheaf__data_images *images = in->data->images;
    pixels *p = calloc(1, sizeof *p);
    if (p == NULL)
        return sheaf__data_no_memory(0);
    *p = (pixels){ in->file, sheaf__kernels_for(NULL), images };
    in->file = NULL;
    images->self = p;
    images->load = load_pixels;
    images->close = close_pixels;
    int64_t n = 0; /* numbers of an image, for all towers */
    for (int t = 0; t < images->towers; t++)
        n += sheaf__tower_numbers(&images->tower[t]);
    sheaf__picture *room = sheaf__picture_room(1, images->tower, images->towers);
    sheaf_status *st = room == NULL ? sheaf__data_no_memory(n) : NULL;
    for (int64_t r = 0; r < in->rows && st == NULL; r++) {
        st = load_pixels(p, r, room);
        if (st == NULL)
            images->hash[r] = sheaf__hash(room->of[0].pixels, (size_t)n * sizeof(float));
    }
    free(room);
    return st;
}

/* A position that attends to nothing has nothing to predict from. */
static sheaf_status *check_hidden(const reader *in)
{
    const sheaf_data *data = in->data;
    for (int64_t i = 0; i < in->rows * in->length && data->mask != NULL; i++)
        if (i % in->length > 0 && data->mask[i - 1] == 0 && data->label[i] != SHEAF__NO_LABEL) {
            sheaf_status *st = bad_value(in, "labels", i, data->label[i]);
            sheaf_expected(
                st,
                "-100, because attention_mask hides the position before, which would predict it");
            return sheaf_try_this(
                st, "pad on the right, or set the label after each hidden position to -100");
        }
    return NULL;
}

/* Tokens of a row up to the last that is seen or trained. */
static int64_t needed(const reader *in, int64_t row)
{
    const sheaf_data *data = in->data;
    int64_t n = in->length;
    for (int64_t i = data->begin[row + 1] - 1; n > 0 && data->mask != NULL; i--, n--)
        if (data->mask[i] != 0 || data->label[i] != SHEAF__NO_LABEL)
            break;
    return n;
}

static sheaf_status *check_length(const reader *in, const sheaf_data_options *options)
{
    const int64_t seq = in->data->seq;
    int64_t count = 0, first = 0, first_tokens = 0, longest = 0;
    for (int64_t r = 0; r < in->rows && seq < in->length; r++) {
        const int64_t n = needed(in, r);
        longest = n > longest ? n : longest;
        if (n > seq && count++ == 0) {
            first = r + 1;
            first_tokens = n;
        }
    }
    return count == 0 ? NULL
                      : sheaf__data_too_long(options, count, "row", first, first_tokens, longest);
}

/* ---- the file ---- */

static sheaf_status *make_rows(reader *in)
{
    sheaf_data *data = in->data;
    const size_t total = (size_t)(in->rows * in->length); /* the file holds as many */
    data->rows = data->capacity = in->rows;
    data->tokens = data->token_capacity = (int64_t)total;
    data->begin = malloc(((size_t)in->rows + 1) * sizeof *data->begin);
    data->token = malloc(total * sizeof *data->token);
    data->label = malloc(total * sizeof *data->label);
    if (sheaf__safetensors_find(in->file, "attention_mask") != NULL)
        data->mask = malloc(total);
    in->chunk = malloc(CHUNK * sizeof(int64_t));
    const bool mask_failed =
        sheaf__safetensors_find(in->file, "attention_mask") != NULL && data->mask == NULL;
    const bool placed = sheaf__safetensors_find(in->file, "position_ids") != NULL;
    if (placed)
        data->position = malloc(total * sizeof *data->position);
    if ((placed && data->position == NULL) || data->begin == NULL || data->token == NULL ||
        data->label == NULL || mask_failed || in->chunk == NULL)
        return sheaf__data_no_memory((int64_t)total);
    for (int64_t r = 0; r <= in->rows; r++)
        data->begin[r] = r * in->length;
    for (size_t i = 0; i < total && in->prompts; i++) /* where the file has none */
        data->label[i] = SHEAF__NO_LABEL;
    return NULL;
}

/* Statuses of read() name the file already; those of the checks do not. */
static sheaf_status *read_rows(reader *in, const char *path, const sheaf_data_options *options)
{
    sheaf_status *st = check_tensors(in);
    if (st != NULL)
        return sheaf_in(st, "%s", path);
    st = make_rows(in);
    if (st == NULL)
        st = each(in, "input_ids", take_token);
    if (st == NULL && sheaf__safetensors_find(in->file, "labels") != NULL)
        st = each(in, "labels", take_label);
    if (st == NULL && in->data->mask != NULL)
        st = read_mask(in, "attention_mask", in->data->mask);
    if (st == NULL && in->data->position != NULL)
        st = each(in, "position_ids", take_position);
    if (st == NULL && in->data->images != NULL)
        st = read_image_masks(in);
    if (st == NULL && in->data->seq == 0)
        in->data->seq = in->length;
    if (st == NULL)
        st = check_hidden(in);
    if (st == NULL)
        st = check_length(in, options);
    if (st == NULL && in->data->images != NULL && embed_name(in) != NULL)
        st = keep_pixels(in);
    return st != NULL && sheaf_status_code(st) == SHEAF_E_DATA ? sheaf_in(st, "%s", path) : st;
}

sheaf_status *sheaf__data_read_safetensors(sheaf_data *data, const char *path,
                                           const sheaf_data_options *options)
{
    reader in = { .data = data, .prompts = options->prompts };
    sheaf_status *st = sheaf__safetensors_open(&in.file, path);
    if (st != NULL)
        return st;
    st = read_rows(&in, path, options);
    if (in.file != NULL)
        sheaf__safetensors_close(in.file);
    free(in.chunk);
    return st;
}
