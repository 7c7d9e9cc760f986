/* data_jsonl.c - JSON Lines, or a JSON array, for models whose vocabulary is bytes.
 *
 * One JSON object a line (RFC 8259, UTF-8; lines of blanks are skipped), or an entry of the array:
 *   {"prompt": P, "completion": C}   bos P... C... eos, trained from the first byte of C
 *   {"text": T}                      bos T... eos, all trained
 * Other fields are ignored and reported once. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/json.h"
#include "base/text.h"
#include "data/json_items.h"
#include "data/records.h"
#include "data/data_read.h"

typedef struct reader {
    sheaf_data *data;
    const sheaf_data_options *options;
    sheaf__json_items items;
    int64_t records;
    sheaf__complaints complaints;
    int64_t long_count, long_line, long_tokens, longest;
    char ignored[64]; /* name of the first ignored field */
    int64_t ignored_line;
} reader;

/* ---- errors of one record ---- */

static sheaf_status *bad(const char *field, const char *expected, const char *found, ...)
    SHEAF_PRINTF(3, 4);
static sheaf_status *bad(const char *field, const char *expected, const char *found, ...)
{
    sheaf_status *st = field == NULL ? sheaf_fail(SHEAF_E_DATA, "not a record")
                                     : sheaf_fail(SHEAF_E_DATA, "field '%s'", field);
    char text[512];
    va_list args;
    va_start(args, found);
    vsnprintf(text, sizeof text, found, args);
    va_end(args);
    return sheaf_found(sheaf_expected(st, "%s", expected), "%s", text);
}

static const char *kind_of(const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_OBJECT: return "an object";
    case JSON_ARRAY: return "an array";
    case JSON_STRING: return "a string";
    case JSON_INTEGER:
    case JSON_REAL: return "a number";
    case JSON_TRUE:
    case JSON_FALSE: return "a truth value";
    default: return "null";
    }
}

/* The first byte of `text` that is not UTF-8, or -1. */
static int64_t bad_utf8(const char *text, int64_t size)
{
    for (int64_t i = 0; i < size;) {
        const size_t n = sheaf__utf8_length(text + i, (size_t)(size - i));
        if (n == 0)
            return i;
        i += (int64_t)n;
    }
    return -1;
}

/* ---- storing a row ---- */

static sheaf_status *reserve(sheaf_data *data, int64_t tokens)
{
    if (data->rows == data->capacity) {
        const int64_t capacity = data->capacity * 2 + 1024;
        if (!SHEAF_GROW(&data->begin, NULL, capacity + 1) ||
            !SHEAF_GROW(&data->trained_from, NULL, capacity))
            return sheaf__data_no_memory(data->tokens);
        data->capacity = capacity;
        data->begin[0] = 0;
    }
    if (tokens > data->token_capacity - data->tokens) {
        const int64_t capacity = data->token_capacity + data->token_capacity / 2 + tokens + 4096;
        if (!SHEAF_GROW(&data->token, NULL, capacity))
            return sheaf__data_no_memory(data->tokens);
        data->token_capacity = capacity;
    }
    return NULL;
}

static void put_bytes(sheaf_data *data, const json_t *text)
{
    const unsigned char *byte = (const unsigned char *)json_string_value(text);
    for (size_t i = 0; i < json_string_length(text); i++)
        data->token[data->tokens++] = byte[i];
}

/* `prompt` is NULL for a {"text"} record. */
static sheaf_status *put_row(reader *in, const json_t *prompt, const json_t *text)
{
    sheaf_data *data = in->data;
    const sheaf_config *config = in->options->config;
    const size_t head = prompt == NULL ? 0 : json_string_length(prompt);
    const size_t size = head + json_string_length(text) + 2; /* bos and eos */
    if (size > INT32_MAX)
        return bad(prompt == NULL ? "text" : "completion", "fewer than 2^31 bytes", "%zu", size);
    const int64_t tokens = (int64_t)size - (config->bos < 0);
    in->longest = tokens > in->longest ? tokens : in->longest;
    if (tokens > sheaf__data_limit(in->options)) {
        if (in->long_count++ == 0) {
            in->long_line = in->items.place;
            in->long_tokens = tokens;
        }
        return NULL;
    }
    sheaf_status *st = reserve(data, tokens);
    if (st != NULL)
        return st;
    const int64_t begin = data->tokens;
    if (config->bos >= 0)
        data->token[data->tokens++] = (int32_t)config->bos;
    if (prompt != NULL)
        put_bytes(data, prompt);
    data->trained_from[data->rows] = prompt == NULL ? 0 : (int32_t)(data->tokens - begin);
    put_bytes(data, text);
    data->token[data->tokens++] = (int32_t)config->eos[0];
    data->begin[++data->rows] = data->tokens;
    return NULL;
}

/* ---- one line ---- */

static sheaf_status *string_field(const json_t *record, const char *name, bool may_be_empty)
{
    const json_t *value = json_object_get(record, name);
    if (value == NULL)
        return bad(name, "a record has \"prompt\" and \"completion\", or \"text\"",
                   "no such field");
    if (!json_is_string(value))
        return bad(name, "a string", "%s", kind_of(value));
    if (!may_be_empty && json_string_length(value) == 0)
        return bad(name, "at least one byte to train", "an empty string");
    return NULL;
}

static void note_other_fields(reader *in, json_t *record)
{
    const char *key;
    json_t *value;
    json_object_foreach(record, key, value)
    {
        if (in->ignored_line != 0)
            return;
        if (strcmp(key, "prompt") != 0 && strcmp(key, "completion") != 0 &&
            strcmp(key, "text") != 0) {
            snprintf(in->ignored, sizeof in->ignored, "%s", key);
            in->ignored_line = in->items.place;
        }
    }
}

static sheaf_status *take_record(reader *in, json_t *record)
{
    if (!json_is_object(record))
        return bad(NULL, "an object, {\"prompt\": ..., \"completion\": ...} or {\"text\": ...}",
                   "%s", kind_of(record));
    const bool text = json_object_get(record, "text") != NULL;
    const bool pair =
        json_object_get(record, "prompt") != NULL || json_object_get(record, "completion") != NULL;
    if (text && pair)
        return bad("text", "either \"text\", or \"prompt\" and \"completion\"",
                   "both in one record");
    sheaf_status *st =
        text ? string_field(record, "text", false) : string_field(record, "prompt", true);
    if (st == NULL && !text)
        st = string_field(record, "completion", false);
    if (st != NULL)
        return st;
    note_other_fields(in, record);
    return text ? put_row(in, NULL, json_object_get(record, "text"))
                : put_row(in, json_object_get(record, "prompt"),
                          json_object_get(record, "completion"));
}

static sheaf_status *take_text(reader *in, const char *text, size_t size)
{
    const int64_t wrong = bad_utf8(text, (int64_t)size);
    if (wrong >= 0)
        return bad(NULL, "UTF-8", "byte 0x%02X at column %" PRId64 "%s", (unsigned char)text[wrong],
                   wrong + 1, in->items.array ? "" : " of the line");
    json_t *record = NULL;
    sheaf_status *st = sheaf__json_parse_line(&record, text, size);
    if (st == NULL)
        st = take_record(in, record);
    json_decref(record);
    return st;
}

/* ---- the file ---- */

static sheaf_status *check_model(const sheaf_config *config)
{
    if (!config->byte_vocab) {
        sheaf_status *st = sheaf_fail(SHEAF_E_UNSUPPORTED, "text records");
        sheaf_expected(st, "a model whose vocabulary is bytes (\"sheaf_tokenizer\": \"bytes\")");
        sheaf_found(st, "a model of family %s that needs a tokenizer",
                    sheaf_family_name(config->family));
        return sheaf_try_this(
            st, "tokenise first and give a .safetensors file with input_ids and labels");
    }
    const int64_t eos = config->neos > 0 ? config->eos[0] : -1;
    if (config->vocab < 256 || eos < 0 || eos >= config->vocab || config->bos >= config->vocab) {
        sheaf_status *st = sheaf_fail(SHEAF_E_LAYOUT, "config.json: special tokens");
        sheaf_expected(
            st, "256 bytes and eos_token_id (and bos_token_id, if any) inside the vocabulary");
        return sheaf_found(
            st, "vocab_size %" PRId64 ", bos_token_id %" PRId64 ", eos_token_id %" PRId64,
            config->vocab, config->bos, eos);
    }
    return NULL;
}

static sheaf_status *verdict(reader *in, const char *path)
{
    sheaf_status *st = sheaf__complaints_verdict(&in->complaints, path, in->records);
    if (st != NULL)
        return st;
    if (in->long_count > 0)
        return sheaf_in(sheaf__data_too_long(in->options, in->long_count, in->items.unit,
                                             in->long_line, in->long_tokens, in->longest),
                        "%s", path);
    if (in->data->rows == 0)
        return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_DATA, "%s: empty data set", path),
                                          "at least one record"),
                           "none");
    if (in->ignored_line != 0)
        sheaf_warn(in->options->events,
                   "%s %" PRId64 ": field '%s' is not used; only prompt, "
                   "completion and text are read",
                   in->items.unit, in->ignored_line, in->ignored);
    return NULL;
}

/* What is no record at all says more about the file than the model's vocabulary does. */
static sheaf_status *look_at_first(reader *in)
{
    bool more = false;
    json_t *record = NULL;
    sheaf_status *st = sheaf__json_items_next(&more, &in->items);
    if (st != NULL || !more)
        return st;
    st = sheaf__json_parse_line(&record, in->items.text, in->items.size);
    if (st == NULL && !json_is_object(record))
        st = take_record(in, record);
    json_decref(record);
    return sheaf_in(st, "%s: %s %" PRId64, in->items.path, in->items.unit, in->items.place);
}

/* Bad records are told together; other failures end the reading. */
static sheaf_status *read_all(reader *in, const char *path)
{
    bool more = true;
    sheaf_status *st = in->options->config->byte_vocab ? NULL : look_at_first(in);
    if (st == NULL)
        st = sheaf_in(check_model(in->options->config), "%s", path);
    const char *tokenizer = in->options->tokenizer;
    if (st == NULL && tokenizer != NULL && tokenizer[0] != '\0')
        st = sheaf_found(
            sheaf_expected(sheaf_fail(SHEAF_E_ARG, "--tokenizer"),
                           "none: the vocabulary of this model is bytes, as its config says"),
            "%s", tokenizer);
    while (st == NULL && in->complaints.fatal == NULL &&
           (st = sheaf__json_items_next(&more, &in->items)) == NULL && more) {
        in->records++;
        sheaf__complain(&in->complaints, sheaf_in(take_text(in, in->items.text, in->items.size),
                                                  "%s %" PRId64, in->items.unit, in->items.place));
    }
    return st == NULL ? verdict(in, path) : st;
}

sheaf_status *sheaf__data_read_jsonl(sheaf_data *data, const char *path,
                                     const sheaf_data_options *options)
{
    reader in = { .data = data, .options = options };
    sheaf_status *st = sheaf__json_items_open(&in.items, path);
    if (st == NULL)
        st = read_all(&in, path);
    sheaf__json_items_close(&in.items);
    sheaf__complaints_release(&in.complaints);
    if (st == NULL && data->seq == 0)
        data->seq = in.longest;
    return st;
}
