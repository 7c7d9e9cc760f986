/* data_safetensors.c - pre-tokenised rows.
 *
 * input_ids, labels and optionally attention_mask and position_ids, each [rows, length], int32 or
 * int64 (masks BOOL, too), labels_shifted in place of labels; for a model with images also what
 * data_images.h lists; and nothing else, except for families whose files hold further tensors: an
 * unknown input may change the meaning of the others. A row's own padding is kept (it affects saved
 * logits); only trailing positions with mask 0 and no label may exceed --seq. */
#include <math.h>

#include "base/base.h"
#include "data/data_rows.h"
#include "data/data_tensors.h"
#include "data/preference.h"

/* ---- the tensors ---- */

static sheaf_status *check_entry(const sheaf_safetensors_entry *entry, const char *name, bool mask)
{
    const bool byte =
        mask && entry != NULL && (entry->dtype == SHEAF_BOOL || entry->dtype == SHEAF_U8);
    if (entry == NULL) {
        sheaf_status *st =
            sheaf__tensors_bad(name, "input_ids, labels and optionally attention_mask");
        return sheaf_found(st, "no such tensor");
    }
    if (!sheaf__tensors_whole(entry) && !byte)
        return sheaf_found(sheaf__tensors_bad(name, mask ? "BOOL, I32 or I64" : "I32 or I64"), "%s",
                           sheaf_dtype_name(entry->dtype));
    if (entry->ndim != 2)
        return sheaf_found(sheaf__tensors_bad(name, "two axes, [rows, length]"), "%d", entry->ndim);
    return NULL;
}

static sheaf_status *check_shape(const sheaf__tensors *in, const sheaf_safetensors_entry *entry)
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
    bool mask, image;
} known[] = {
    { "input_ids" },
    { "labels" },
    { "labels_shifted" },
    { "attention_mask", .mask = true },
    { "position_ids" },
    { "image_embed_mask", .mask = true, .image = true },
    { "token_type_ids", .mask = true, .image = true },
    { "vision_expert_mask", .mask = true, .image = true },
    { "image_rope_mask", .mask = true, .image = true },
};
enum { IDS, LABELS, SHIFTED, MASK, POSITIONS, KNOWN = sizeof known / sizeof *known };

#define JUDGEMENT "label" /* [rows] 1: the answer is desirable */

static bool is_known(const sheaf__tensors *in, const char *name)
{
    for (int k = 0; k < KNOWN; k++)
        if (strcmp(name, known[k].name) == 0)
            return !known[k].image || in->data->images != NULL;
    return (in->judged && strcmp(name, JUDGEMENT) == 0) || sheaf__tensors_image_known(in, name);
}

/* Is this tensor required? Labels may be shifted already, and prompts have none. */
static bool is_needed(const sheaf__tensors *in, int k)
{
    return k == IDS || (k == LABELS && !in->prompts &&
                        sheaf__safetensors_find(in->file, known[SHIFTED].name) == NULL);
}

static sheaf_status *check_tensors(sheaf__tensors *in)
{
    for (int64_t i = 0; i < in->file->header.count; i++) {
        const char *name = in->file->header.entry[i].name;
        if (!is_known(in, name)) {
            sheaf_status *st = sheaf__tensors_bad(
                name, in->data->images == NULL
                          ? "input_ids, labels and optionally attention_mask"
                          : "input_ids, labels, masks and images (docs/data.md)");
            return sheaf_try_this(sheaf_found(st, "a tensor of this name"),
                                  "remove it from the file");
        }
    }
    for (int k = 0; k < KNOWN; k++) {
        const sheaf_safetensors_entry *entry = sheaf__safetensors_find(in->file, known[k].name);
        if (entry == NULL && !is_needed(in, k))
            continue;
        if (known[k].image && in->data->images->place.file != SHEAF__IMAGES_MASKED)
            continue;
        if (k == POSITIONS && sheaf__position_axes(in->config) > 1)
            continue; /* compared with those of the pictures */
        sheaf_status *st = check_entry(entry, known[k].name, known[k].mask);
        if (st == NULL && k == 0) {
            in->rows = entry->shape[0];
            in->length = entry->shape[1];
        }
        TRY(st, check_shape(in, entry));
        if (st != NULL)
            return st;
    }
    if (in->rows < 1 || in->length < 2 || in->length > INT32_MAX)
        return sheaf_found(
            sheaf__tensors_bad(known[0].name,
                               "at least one row of two tokens, and fewer than 2^31 tokens a row"),
            "[%" PRId64 ", %" PRId64 "]", in->rows, in->length);
    return sheaf__tensors_image_check(in);
}

/* ---- values ---- */

static sheaf_status *take_token(sheaf__tensors *in, const char *name, int64_t index, int64_t value)
{
    if (value < 0 || value >= in->data->vocab)
        return sheaf_expected(sheaf__tensors_bad_value(in, name, index, value),
                              "a token id from 0 to %" PRId64, in->data->vocab - 1);
    in->data->token[index] = (int32_t)value;
    return NULL;
}

static sheaf_status *check_label(const sheaf__tensors *in, const char *name, int64_t index,
                                 int64_t value)
{
    if (value == SHEAF__NO_LABEL || (value >= 0 && value < in->data->vocab))
        return NULL;
    return sheaf_expected(sheaf__tensors_bad_value(in, name, index, value),
                          "-100 or a token id from 0 to %" PRId64, in->data->vocab - 1);
}

static sheaf_status *take_label(sheaf__tensors *in, const char *name, int64_t index, int64_t value)
{
    in->data->label[index] = (int32_t)value;
    return check_label(in, name, index, value);
}

/* labels_shifted: position t holds the label that it predicts. It must agree with labels, if there
 * are any. */
static sheaf_status *take_shifted(sheaf__tensors *in, const char *name, int64_t index,
                                  int64_t value)
{
    sheaf_data *data = in->data;
    const bool last = (index + 1) % in->length == 0,
               both = sheaf__safetensors_find(in->file, known[LABELS].name) != NULL;
    if (both && !last && data->label[index + 1] != value)
        return sheaf_expected(sheaf__tensors_bad_value(in, name, index, value),
                              "%" PRId32 ", the label of the position behind it",
                              data->label[index + 1]);
    if (both && last)
        return NULL;
    sheaf_status *st = check_label(in, name, index, value);
    if (!last)
        data->label[index + 1] = (int32_t)value;
    if (st != NULL || !last)
        return st;
    if (value != SHEAF__NO_LABEL && data->label_after == NULL) {
        data->label_after = malloc((size_t)in->rows * sizeof *data->label_after);
        for (int64_t r = 0; r < in->rows && data->label_after != NULL; r++)
            data->label_after[r] = SHEAF__NO_LABEL;
        if (data->label_after == NULL)
            return sheaf__data_no_memory(in->rows);
    }
    if (data->label_after != NULL)
        data->label_after[index / in->length] = (int32_t)value;
    return NULL;
}

static sheaf_status *take_position(sheaf__tensors *in, const char *name, int64_t index,
                                   int64_t value)
{
    if (value < 0 || value > index % in->length)
        return sheaf_expected(sheaf__tensors_bad_value(in, name, index, value),
                              "0 to %" PRId64 ", the number of tokens before it",
                              index % in->length);
    in->data->position[index] = (int32_t)value;
    return NULL;
}

/* A hidden position cannot predict anything. */
static sheaf_status *check_hidden(const sheaf__tensors *in)
{
    const sheaf_data *data = in->data;
    for (int64_t r = 0; r < in->rows && data->mask != NULL && data->label_after != NULL; r++)
        if (data->mask[data->begin[r + 1] - 1] == 0 && data->label_after[r] != SHEAF__NO_LABEL)
            return sheaf_expected(sheaf__tensors_bad_value(in, known[SHIFTED].name,
                                                           data->begin[r + 1] - 1,
                                                           data->label_after[r]),
                                  "-100, because attention_mask hides this position");
    for (int64_t i = 0; i < in->rows * in->length && data->mask != NULL; i++)
        if (i % in->length > 0 && data->mask[i - 1] == 0 && data->label[i] != SHEAF__NO_LABEL) {
            sheaf_status *st = sheaf__tensors_bad_value(in, "labels", i, data->label[i]);
            sheaf_expected(
                st,
                "-100, because attention_mask hides the position before, which would predict it");
            return sheaf_try_this(
                st, "pad on the right, or set the label after each hidden position to -100");
        }
    return NULL;
}

static sheaf_status *refuse_restart(const sheaf__tensors *in, int64_t index, int32_t before)
{
    const bool pictures = in->data->images != NULL;
    sheaf_status *st =
        sheaf__tensors_bad_value(in, "position_ids", index, in->data->position[index]);
    sheaf_expected(st, "more than %" PRId32 ", the one before it: %s", before,
                   pictures ? "models that read pictures have one record a row"
                            : "only without attention_mask records of one row are kept apart");
    return sheaf_try_this(
        st, "%swrite a record in each row",
        pictures ? "" : "leave attention_mask out, with labels of -100 at padding; or ");
}

/* Padding at the end of a row, all of whose positions are 0 (MiniCPM-V's data collator). */
static bool is_padding(const sheaf__tensors *in, int64_t index)
{
    int64_t i = index;
    while (i < (index / in->length + 1) * in->length && in->data->position[i] == 0 &&
           (i == index || in->data->label[i] == SHEAF__NO_LABEL))
        i++;
    return i % in->length == 0;
}

/* Records that share a row, as transformers has them: without a mask each position that does not
 * increase by one begins another record, without attention to those before it. With a mask, or with
 * pictures, the original programs do not separate them, which is surely not intended. */
static sheaf_status *find_records(const sheaf__tensors *in, const sheaf_events *events)
{
    sheaf_data *data = in->data;
    const bool joins = data->mask == NULL && data->images == NULL;
    int64_t across = 0;
    int32_t before = 0;
    for (int64_t i = 0; i < in->rows * in->length && data->position != NULL; i++) {
        const int32_t now = data->position[i];
        if (i % in->length == 0)
            before = now - 1;
        if (data->mask != NULL && data->mask[i] == 0)
            continue;
        if (!joins && now < before && !is_padding(in, i))
            return refuse_restart(in, i, before);
        if (joins && now != before + 1) {
            data->joined = true;
            across += data->label[i] != SHEAF__NO_LABEL;
        }
        before = now;
    }
    if (across > 0)
        sheaf_warn(events,
                   "%" PRId64 " labels stand where position_ids restart: as in transformers, the "
                   "last token of the record before learns to predict them; -100 there prevents it",
                   across);
    return NULL;
}

/* Tokens of a row up to the last with mask 1 or a label. */
static int64_t needed(const sheaf__tensors *in, int64_t row)
{
    const sheaf_data *data = in->data;
    int64_t n = in->length;
    for (int64_t i = data->begin[row + 1] - 1; n > 0 && data->mask != NULL; i--, n--)
        if (data->mask[i] != 0 || data->label[i] != SHEAF__NO_LABEL)
            break;
    return n;
}

static sheaf_status *check_length(const sheaf__tensors *in, const sheaf_data_options *options)
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
    return count == 0
               ? NULL
               : sheaf__data_too_long(options, count, "row", first, first_tokens, longest, false);
}

/* ---- the file ---- */

static sheaf_status *make_rows(sheaf__tensors *in)
{
    sheaf_data *data = in->data;
    const size_t total = (size_t)(in->rows * in->length); /* the file holds as many */
    data->rows = data->capacity = in->rows;
    data->tokens = data->token_capacity = (int64_t)total;
    data->begin = malloc(((size_t)in->rows + 1) * sizeof *data->begin);
    data->token = malloc(total * sizeof *data->token);
    data->label = malloc(total * sizeof *data->label);
    in->chunk = malloc(SHEAF__TENSORS_CHUNK * sizeof(int64_t));
    const bool masked = sheaf__safetensors_find(in->file, "attention_mask") != NULL,
               placed = sheaf__safetensors_find(in->file, known[POSITIONS].name) != NULL &&
                        sheaf__position_axes(in->config) == 1;
    data->mask = masked ? malloc(total) : NULL;
    data->position = placed ? malloc(total * sizeof *data->position) : NULL;
    if ((placed && data->position == NULL) || (masked && data->mask == NULL) ||
        data->begin == NULL || data->token == NULL || data->label == NULL || in->chunk == NULL)
        return sheaf__data_no_memory((int64_t)total);
    for (int64_t r = 0; r <= in->rows; r++)
        data->begin[r] = r * in->length;
    for (size_t i = 0; i < total; i++) /* if the file has none */
        data->label[i] = SHEAF__NO_LABEL;
    return NULL;
}

/* A row is a prompt and its answer. */
static sheaf_status *check_padding(const sheaf__tensors *in)
{
    const uint8_t *mask = in->data->mask;
    for (int64_t i = 0; i + 1 < in->rows * in->length && mask != NULL; i++)
        if (mask[i] == 0 && mask[i + 1] != 0 && (i + 1) % in->length > 0)
            return sheaf_try_this(
                sheaf_expected(sheaf__tensors_bad_value(in, "attention_mask", i, 0),
                               "1, but for padding at the end"),
                "pad on the right");
    return NULL;
}

static sheaf_status *read_judgements(sheaf__tensors *in)
{
    const sheaf_safetensors_entry *e = sheaf__safetensors_find(in->file, JUDGEMENT);
    int64_t value = 0;
    if (!in->judged)
        return NULL;
    if (e == NULL || e->ndim != 1 || e->shape[0] != in->rows ||
        (!sheaf__tensors_whole(e) && e->dtype != SHEAF_BOOL && e->dtype != SHEAF_U8))
        return sheaf_found(
            sheaf__tensors_bad(JUDGEMENT, "one 0 or 1 for each row, of BOOL, I32 or I64"), "%s",
            e == NULL ? "no such tensor" : "another form");
    sheaf_status *st = NULL;
    if (in->data->position != NULL)
        return sheaf_try_this(
            sheaf_expected(sheaf_fail(SHEAF_E_DATA, "'%s'", known[POSITIONS].name),
                           "none beside '%s': a row is one prompt and its answer", JUDGEMENT),
            "remove it from the file");
    in->data->mark = malloc((size_t)in->rows * sizeof *in->data->mark);
    if (in->data->mark == NULL)
        return sheaf__data_no_memory(in->rows);
    for (int64_t r = 0; r < in->rows && st == NULL; r++) {
        st = sheaf__tensors_numbers_in(&value, in, e, r, 1);
        in->data->mark[r] = value != 0;
        if (st == NULL && value != 0 && value != 1)
            st = sheaf_found(sheaf__tensors_bad(JUDGEMENT, "0 or 1"), "%" PRId64 " at row %" PRId64,
                             value, r + 1);
    }
    return st;
}

/* Statuses of read() name the file; those of the checks do not. */
static sheaf_status *read_rows(sheaf__tensors *in, const char *path,
                               const sheaf_data_options *options)
{
    sheaf_status *st = check_tensors(in);
    if (st != NULL)
        return sheaf_in(st, "%s", path);
    st = make_rows(in);
    TRY(st, sheaf__tensors_each(in, "input_ids", take_token));
    if (st == NULL && sheaf__safetensors_find(in->file, "labels") != NULL)
        st = sheaf__tensors_each(in, "labels", take_label);
    if (st == NULL && sheaf__safetensors_find(in->file, known[SHIFTED].name) != NULL)
        st = sheaf__tensors_each(in, known[SHIFTED].name, take_shifted);
    if (st == NULL && in->data->mask != NULL)
        st = sheaf__tensors_mask(in, "attention_mask", in->data->mask);
    if (st == NULL && in->data->position != NULL)
        st = sheaf__tensors_each(in, "position_ids", take_position);
    TRY(st, sheaf__tensors_image_places(in));
    if (st == NULL && in->data->seq == 0)
        in->data->seq = in->length;
    TRY(st, read_judgements(in));
    if (in->answers)
        TRY(st, check_padding(in));
    TRY(st, check_hidden(in));
    TRY(st, find_records(in, options->events));
    TRY(st, check_length(in, options));
    TRY(st, sheaf__tensors_image_keep(in));
    return st != NULL && sheaf_status_code(st) == SHEAF_E_DATA ? sheaf_in(st, "%s", path) : st;
}

static sheaf_status *read_file(sheaf__tensors *in, const char *path,
                               const sheaf_data_options *options)
{
    sheaf_status *st = read_rows(in, path, options);
    free(in->chunk);
    free(in->image);
    return st;
}

/* ---- pairs ----
 *
 * chosen.input_ids, chosen.labels and the same of rejected, with attention masks or without: rows
 * of both, which need not be of one length, in turns; F32 [rows] of a reward model margin, and of
 * objectives with a reference its S, ref_chosen_logps and ref_rejected_logps.
 */

static const char *const sides[] = { "chosen.", "rejected." };

/* The tensors of one side under their usual names; release only its two lists. */
static sheaf_status *take_side(sheaf_safetensors *out, const sheaf_safetensors *file, int side)
{
    const sheaf_safetensors_header *all = &file->header;
    const size_t n = strlen(sides[side]);
    *out = *file;
    out->header.count = 0;
    out->header.entry = calloc((size_t)all->count + 1, sizeof *out->header.entry);
    out->header.by_name = calloc((size_t)all->count + 1, sizeof *out->header.by_name);
    if (out->header.entry == NULL || out->header.by_name == NULL)
        return sheaf__data_no_memory(0);
    for (int64_t i = 0; i < all->count; i++) { /* by name: the rest of the names ascends, too */
        const sheaf_safetensors_entry *e = &all->entry[all->by_name[i].index];
        const int64_t k = out->header.count;
        if (strncmp(e->name, sides[side], n) != 0)
            continue;
        out->header.entry[k] = *e;
        out->header.entry[k].name = e->name + n;
        out->header.by_name[k] = (sheaf__named){ e->name + n, k };
        out->header.count++;
    }
    return NULL;
}

static const char margin_name[] = "margin";
static const char *const reference_names[] = { "ref_chosen_logps", "ref_rejected_logps" };

static sheaf_status *check_sides(const sheaf_safetensors *file, bool scores, bool judged)
{
    static const char *const names[] = { "input_ids", "labels", "attention_mask" };
    for (int64_t i = 0; i < file->header.count; i++) {
        const char *name = file->header.entry[i].name, *dot = strchr(name, '.');
        bool is_known = (scores && strcmp(name, margin_name) == 0) ||
                        (!judged && (strcmp(name, reference_names[0]) == 0 ||
                                     strcmp(name, reference_names[1]) == 0));
        for (size_t k = 0; k < 6 && dot != NULL; k++)
            is_known = is_known || (strncmp(name, sides[k % 2], strlen(sides[k % 2])) == 0 &&
                                    strcmp(dot + 1, names[k / 2]) == 0);
        if (!is_known)
            return sheaf_found(sheaf__tensors_bad(name, "chosen.input_ids, chosen.labels, the same "
                                                        "of rejected, and attention_mask of both"),
                               "a tensor of this name");
    }
    return NULL;
}

/* Up to its last label: what stands behind it has no part in the loss; a score is of all. */
static sheaf_status *put_row(sheaf_data *data, const sheaf_data *from, int64_t row, int side,
                             bool judged)
{
    static const char *const labels[] = { "chosen.labels", "rejected.labels" };
    const int64_t begin = from->begin[row];
    int64_t n = from->begin[row + 1] - begin;
    while (n > 0 && (data->scores ? sheaf__data_mask_at(from, row, n - 1) == 0
                                  : from->label[begin + n - 1] == SHEAF__NO_LABEL))
        n--;
    if (n < 2) /* the first token is never predicted */
        return sheaf_found(
            sheaf__tensors_bad(labels[side], "a label in every row, behind its first position"),
            "none in row %" PRId64, row + 1);
    const bool marked = judged || data->scores;
    sheaf_status *st =
        sheaf__data_reserve(data, n, SHEAF__WITH_LABEL | (marked ? SHEAF__WITH_MARK : 0));
    if (st != NULL)
        return st;
    if (marked)
        data->mark[data->rows] = judged && side == 0;
    memcpy(data->token + data->tokens, from->token + begin, (size_t)n * sizeof *data->token);
    memcpy(data->label + data->tokens, from->label + begin, (size_t)n * sizeof *data->label);
    data->label_after[data->rows] = SHEAF__NO_LABEL;
    data->tokens += n;
    data->begin[++data->rows] = data->tokens;
    return NULL;
}

static sheaf_status *join_sides(sheaf_data *data, const sheaf_data *const side[2], bool judged)
{
    const int64_t rows = side[0]->rows, block = judged ? SHEAF__UNPAIRED : 1;
    sheaf_status *st = NULL;
    if (side[0]->rows != side[1]->rows)
        return sheaf_found(
            sheaf__tensors_bad("rejected.input_ids", "as many rows as chosen.input_ids"),
            "%" PRId64 " and %" PRId64, side[1]->rows, side[0]->rows);
    for (int64_t first = 0; first < rows; first += block)
        for (int k = 0; k < 2; k++)
            for (int64_t r = first; r < rows && r < first + block; r++)
                TRY(st, put_row(data, side[k], r, k, judged));
    return st;
}

/* A tensor of a number for each pair, into to[0], to[2], ... */
static sheaf_status *read_numbers(float *to, const sheaf_safetensors *file, const char *name,
                                  int64_t pairs)
{
    const sheaf_safetensors_entry *e = sheaf__safetensors_find(file, name);
    const int64_t bytes = sizeof *to;
    sheaf_status *st = NULL;
    if (e == NULL || e->dtype != SHEAF_F32 || e->ndim != 1 || e->shape[0] != pairs)
        return sheaf_found(sheaf__tensors_bad(name, "F32, one number for each pair"),
                           e == NULL ? "no such tensor" : "another form");
    for (int64_t i = 0; i < pairs && st == NULL; i++) {
        st = sheaf__safetensors_read(file, e, i * bytes, &to[2 * i], bytes);
        if (st == NULL && !isfinite(to[2 * i]))
            st = sheaf_found(sheaf__tensors_bad(name, "finite numbers"), "another in row %" PRId64,
                             i + 1);
    }
    return st;
}

/* Margins and the reference's sums, where the file has them. */
static sheaf_status *read_beside(sheaf_data *data, const sheaf_safetensors *file)
{
    const int64_t pairs = data->rows / 2;
    const bool margins = data->scores && sheaf__safetensors_find(file, margin_name) != NULL,
               refers = sheaf__safetensors_find(file, reference_names[0]) != NULL ||
                        sheaf__safetensors_find(file, reference_names[1]) != NULL;
    sheaf_status *st = NULL;
    if (refers && (data->reference = malloc((size_t)data->rows * sizeof *data->reference)) == NULL)
        st = sheaf__data_no_memory(data->tokens);
    for (int k = 0; k < 2 && st == NULL; k++) {
        st = margins ? read_numbers(data->mark + k, file, margin_name, pairs) : NULL;
        TRY(st, refers ? read_numbers(data->reference + k, file, reference_names[k], pairs) : NULL);
    }
    return st;
}

static void drop_side(sheaf_data *side)
{
    free(side->begin);
    free(side->token);
    free(side->label);
    free(side->mask);
}

/* Pixels would lie beside the rows of one side. */
static sheaf_status *no_pictures(void)
{
    sheaf_status *st = sheaf_fail(SHEAF_E_UNSUPPORTED, "pairs of token ids");
    sheaf_expected(st, "JSON records of pairs, of a model that reads pictures");
    return st;
}

static sheaf_status *read_sides(sheaf_data *data, const sheaf_safetensors *file, const char *path,
                                const sheaf_data_options *options)
{
    sheaf_data of[2] = { { .vocab = data->vocab }, { .vocab = data->vocab } };
    sheaf_status *st = sheaf_in(
        data->images != NULL ? no_pictures() : check_sides(file, data->scores, options->judged),
        "%s", path);
    for (int k = 0; k < 2 && st == NULL; k++) {
        sheaf_safetensors part = { 0 };
        sheaf__tensors in = {
            .file = &part, .data = &of[k], .config = options->config, .answers = true
        };
        of[k].seq = options->seq;
        st = take_side(&part, file, k);
        TRY(st,
            sheaf_in(read_file(&in, path, options), "%.*s", (int)strlen(sides[k]) - 1, sides[k]));
        free(part.header.entry);
        free(part.header.by_name);
        data->seq = of[k].seq > data->seq ? of[k].seq : data->seq;
    }
    const sheaf_data *const both[2] = { &of[0], &of[1] };
    TRY(st, sheaf_in(join_sides(data, both, options->judged), "%s", path));
    TRY(st, sheaf_in(read_beside(data, file), "%s", path));
    drop_side(&of[0]);
    drop_side(&of[1]);
    return st;
}

sheaf_status *sheaf__data_read_safetensors(sheaf_data *data, const char *path,
                                           const sheaf_data_options *options)
{
    sheaf__tensors in = { .data = data,
                          .config = options->config,
                          .prompts = options->prompts,
                          .judged = options->judged,
                          .answers = options->judged };
    sheaf_status *st = sheaf__safetensors_open(&in.file, path);
    if (st != NULL)
        return st;
    const bool pairs =
        options->pairs ||
        (options->judged && sheaf__safetensors_find(in.file, "chosen.input_ids") != NULL);
    st = pairs ? read_sides(data, in.file, path, options) : read_file(&in, path, options);
    if (in.file != NULL)
        sheaf__safetensors_close(in.file);
    return st;
}
