/* data_safetensors.c - pre-tokenised rows.
 *
 * input_ids, labels and optionally attention_mask, each [rows, length], int32 or
 * int64, and nothing else: an input that is not known here may change the meaning
 * of the others. A row's own padding is kept as it is (it shows in saved logits);
 * only positions at the end with mask 0 and no label may fall outside --seq. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "formats/safetensors.h"
#include "train/data_rows.h"

enum { CHUNK = 1 << 16 }; /* elements converted at a time */

typedef struct reader {
    sheaf_safetensors *file;
    sheaf_data *data;
    int64_t rows, length;
    void *chunk; /* CHUNK int64 */
} reader;

static sheaf_status *bad_tensor(const char *name, const char *expected)
{
    return sheaf_expected(sheaf_fail(SHEAF_E_DATA, "'%s'", name), "%s", expected);
}

static sheaf_status *bad_value(const reader *in, const char *name, int64_t index, int64_t value)
{
    return sheaf_found(sheaf_fail(SHEAF_E_DATA, "'%s': row %" PRId64 ", position %" PRId64, name,
                                  index / in->length + 1, index % in->length + 1), "%" PRId64, value);
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

static sheaf_status *check_tensors(reader *in)
{
    static const char *const known[] = { "input_ids", "labels", "attention_mask" };
    for (int64_t i = 0; i < in->file->header.count; i++) {
        const char *name = in->file->header.entry[i].name;
        if (strcmp(name, known[0]) != 0 && strcmp(name, known[1]) != 0 && strcmp(name, known[2]) != 0) {
            sheaf_status *st = bad_tensor(name, "input_ids, labels and optionally attention_mask");
            return sheaf_try_this(sheaf_found(st, "a tensor of this name"), "remove it from the file");
        }
    }
    for (int k = 0; k < 3; k++) {
        const sheaf_safetensors_entry *entry = sheaf__safetensors_find(in->file, known[k]);
        if (k == 2 && entry == NULL)
            continue;
        sheaf_status *st = check_entry(entry, known[k]);
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
        return sheaf_found(bad_tensor(known[0], "at least one row of two tokens, and fewer than 2^31 tokens a row"),
                           "[%" PRId64 ", %" PRId64 "]", in->rows, in->length);
    return NULL;
}

/* ---- values ---- */

/* Calls take(in, index, value) for every element. */
static sheaf_status *each(reader *in, const char *name,
                          sheaf_status *(*take)(reader *in, const char *name, int64_t index, int64_t value))
{
    const sheaf_safetensors_entry *entry = sheaf__safetensors_find(in->file, name);
    const int64_t item = entry->dtype == SHEAF_I64 ? 8 : 4, total = in->rows * in->length;
    for (int64_t done = 0; done < total; done += CHUNK) {
        const int64_t n = total - done < CHUNK ? total - done : CHUNK;
        sheaf_status *st = sheaf__safetensors_read(in->file, entry, done * item, in->chunk, n * item);
        for (int64_t i = 0; i < n && st == NULL; i++)
            st = take(in, name, done + i, item == 8 ? ((const int64_t *)in->chunk)[i]
                                                    : ((const int32_t *)in->chunk)[i]);
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
        return sheaf_expected(bad_value(in, name, index, value), "-100 or a token id from 0 to %" PRId64,
                              in->data->vocab - 1);
    in->data->label[index] = (int32_t)value;
    return NULL;
}

static sheaf_status *take_mask(reader *in, const char *name, int64_t index, int64_t value)
{
    if (value != 0 && value != 1)
        return sheaf_expected(bad_value(in, name, index, value), "0 or 1");
    in->data->mask[index] = (uint8_t)value;
    return NULL;
}

/* A position that attends to nothing has nothing to predict from. */
static sheaf_status *check_hidden(const reader *in)
{
    const sheaf_data *data = in->data;
    for (int64_t i = 0; i < in->rows * in->length && data->mask != NULL; i++)
        if (i % in->length > 0 && data->mask[i - 1] == 0 && data->label[i] != SHEAF__NO_LABEL) {
            sheaf_status *st = bad_value(in, "labels", i, data->label[i]);
            sheaf_expected(st, "-100, because attention_mask hides the position before, which would predict it");
            return sheaf_try_this(st, "pad on the right, or set the label after each hidden position to -100");
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

static sheaf_status *check_length(const reader *in)
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
    return count == 0 ? NULL : sheaf__data_too_long(seq, count, "row", first, first_tokens, longest);
}

/* ---- the file ---- */

static sheaf_status *make_rows(reader *in)
{
    sheaf_data *data = in->data;
    const size_t total = (size_t)(in->rows * in->length); /* the file holds as many */
    data->rows = data->room = in->rows;
    data->tokens = data->token_room = (int64_t)total;
    data->begin = malloc(((size_t)in->rows + 1) * sizeof *data->begin);
    data->token = malloc(total * sizeof *data->token);
    data->label = malloc(total * sizeof *data->label);
    if (sheaf__safetensors_find(in->file, "attention_mask") != NULL)
        data->mask = malloc(total);
    in->chunk = malloc(CHUNK * sizeof(int64_t));
    const bool mask_failed = sheaf__safetensors_find(in->file, "attention_mask") != NULL && data->mask == NULL;
    if (data->begin == NULL || data->token == NULL || data->label == NULL || mask_failed || in->chunk == NULL)
        return sheaf__data_no_memory((int64_t)total);
    for (int64_t r = 0; r <= in->rows; r++)
        data->begin[r] = r * in->length;
    return NULL;
}

/* Statuses of read() name the file already; those of the checks do not. */
static sheaf_status *read_rows(reader *in, const char *path)
{
    sheaf_status *st = check_tensors(in);
    if (st != NULL)
        return sheaf_in(st, "%s", path);
    st = make_rows(in);
    if (st == NULL)
        st = each(in, "input_ids", take_token);
    if (st == NULL)
        st = each(in, "labels", take_label);
    if (st == NULL && in->data->mask != NULL)
        st = each(in, "attention_mask", take_mask);
    if (st == NULL && in->data->seq == 0)
        in->data->seq = in->length;
    if (st == NULL)
        st = check_hidden(in);
    if (st == NULL)
        st = check_length(in);
    return st != NULL && sheaf_status_code(st) == SHEAF_E_DATA ? sheaf_in(st, "%s", path) : st;
}

sheaf_status *sheaf__data_read_safetensors(sheaf_data *data, const char *path,
                                           const sheaf_data_options *options)
{
    reader in = { .data = data };
    sheaf_status *st = sheaf__safetensors_open(&in.file, path);
    if (st != NULL)
        return st;
    st = read_rows(&in, path);
    sheaf__safetensors_close(in.file);
    free(in.chunk);
    return st;
}
