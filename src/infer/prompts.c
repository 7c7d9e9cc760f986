/* prompts.c - see prompts.h. */
#include "infer/prompts.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/text.h"

enum { MAX_FILE = 1 << 30 };

static sheaf_status *check_id(const sheaf_config *config, long long id, const char *where)
{
    if (id >= 0 && id < config->vocab)
        return NULL;
    sheaf_status *st = sheaf_fail(SHEAF_E_DATA, "%s", where);
    sheaf_expected(st, "token ids from 0 to %lld, the rows of the table", (long long)config->vocab - 1);
    return sheaf_found(st, "%lld", id);
}

static sheaf_status *add(sheaf__prompts *p, int32_t *ids, int64_t n, const char *text, const char *expected)
{
    const size_t more = (size_t)p->count + 1;
    sheaf__prompt *prompt = realloc(p->prompt, more * sizeof *prompt);
    if (prompt != NULL)
        p->prompt = prompt;
    char **texts = realloc(p->text, more * sizeof *texts);
    if (texts != NULL)
        p->text = texts;
    char **expect = realloc(p->expected, more * sizeof *expect);
    if (expect != NULL)
        p->expected = expect;
    if (prompt == NULL || texts == NULL || expect == NULL || ids == NULL) {
        free(ids);
        return sheaf_fail(SHEAF_E_MEMORY, "prompts");
    }
    p->prompt[p->count] = (sheaf__prompt){ ids, n };
    p->text[p->count] = text == NULL ? NULL : strdup(text);
    p->expected[p->count] = expected == NULL ? NULL : strdup(expected);
    const bool lost = (text != NULL && p->text[p->count] == NULL) || (expected != NULL && p->expected[p->count] == NULL);
    p->count++;
    return lost ? sheaf_fail(SHEAF_E_MEMORY, "prompts") : NULL;
}

static sheaf_status *add_text(sheaf__prompts *p, const sheaf_config *config, const char *text, const char *expected)
{
    if (!config->byte_vocab) {
        sheaf_status *st = sheaf_fail(SHEAF_E_UNSUPPORTED, "a prompt as text");
        sheaf_expected(st, "a model with a byte vocabulary (\"sheaf_tokenizer\": \"bytes\" in its config.json)");
        return sheaf_try_this(st, "give token ids: --tokens 1,2,3, or \"tokens\" in the file");
    }
    const size_t n = strlen(text), bos = config->bos >= 0;
    int32_t *ids = malloc((n + bos + 1) * sizeof *ids);
    for (size_t i = 0; ids != NULL && i < n; i++)
        ids[bos + i] = (unsigned char)text[i];
    if (ids != NULL && bos)
        ids[0] = (int32_t)config->bos;
    if (n + bos == 0) {
        free(ids);
        return sheaf_expected(sheaf_fail(SHEAF_E_DATA, "prompt"), "at least one token");
    }
    return add(p, ids, (int64_t)(n + bos), text, expected);
}

static sheaf_status *add_list(sheaf__prompts *p, const sheaf_config *config, const char *list)
{
    int32_t *ids = malloc((strlen(list) + 1) * sizeof *ids);
    int64_t n = 0;
    sheaf_status *st = ids == NULL ? sheaf_fail(SHEAF_E_MEMORY, "--tokens") : NULL;
    for (const char *at = list; st == NULL;) {
        char *end;
        errno = 0;
        const long long id = strtoll(at, &end, 10);
        if (end == at || errno != 0 || (*end != ',' && *end != '\0')) {
            st = sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "--tokens"), "numbers with commas between them: 1,2,3"), "'%s'", list);
            break;
        }
        st = check_id(config, id, "--tokens");
        ids[n++] = (int32_t)id;
        if (*end == '\0')
            break;
        at = end + 1;
    }
    if (st != NULL) {
        free(ids);
        return st;
    }
    return add(p, ids, n, NULL, NULL);
}

static sheaf_status *add_array(sheaf__prompts *p, const sheaf_config *config, const json_t *array, const char *expected)
{
    const size_t n = json_array_size(array);
    int32_t *ids = malloc((n + 1) * sizeof *ids);
    sheaf_status *st = ids == NULL ? sheaf_fail(SHEAF_E_MEMORY, "prompts") : NULL;
    if (n == 0 && st == NULL)
        st = sheaf_expected(sheaf_fail(SHEAF_E_DATA, "field 'tokens'"), "at least one token id");
    for (size_t i = 0; i < n && st == NULL; i++) {
        const json_t *one = json_array_get(array, i);
        if (!json_is_integer(one))
            st = sheaf_expected(sheaf_fail(SHEAF_E_DATA, "field 'tokens', entry %zu", i), "an integer");
        else
            st = check_id(config, json_integer_value(one), "field 'tokens'");
        if (st == NULL)
            ids[i] = (int32_t)json_integer_value(one);
    }
    if (st != NULL) {
        free(ids);
        return st;
    }
    return add(p, ids, (int64_t)n, NULL, expected);
}

/* A string field; NULL when there is none. Prompts and answers are kept as C strings. */
static sheaf_status *string_field(const char **out, const json_t *record, const char *name)
{
    const json_t *value = json_object_get(record, name);
    *out = json_string_value(value);
    if (*out == NULL || strlen(*out) == json_string_length(value))
        return NULL;
    return sheaf_expected(sheaf_fail(SHEAF_E_DATA, "field '%s'", name), "text without NUL (\\u0000)");
}

static sheaf_status *add_fields(sheaf__prompts *p, const sheaf_config *config, const json_t *record)
{
    const json_t *tokens = json_object_get(record, "tokens");
    const char *prompt, *expected;
    sheaf_status *st = string_field(&prompt, record, "prompt");
    if (st == NULL)
        st = string_field(&expected, record, "completion");
    if (st != NULL)
        return st;
    if (prompt != NULL)
        return add_text(p, config, prompt, expected);
    if (json_is_array(tokens))
        return add_array(p, config, tokens, expected);
    return sheaf_expected(sheaf_fail(SHEAF_E_DATA, "record"), "a string 'prompt' or a list 'tokens'");
}

static sheaf_status *add_record(sheaf__prompts *p, const sheaf_config *config, const char *line, size_t size)
{
    json_t *record = NULL;
    sheaf_status *st = sheaf__json_parse_line(&record, line, size);
    if (st == NULL)
        st = add_fields(p, config, record);
    json_decref(record);
    return st;
}

static sheaf_status *add_file(sheaf__prompts *p, const sheaf_config *config, const char *path)
{
    char *text;
    size_t size;
    sheaf_status *st = sheaf__file_read_all(&text, &size, path, MAX_FILE);
    if (st != NULL)
        return st;
    long long number = 0;
    for (size_t at = 0; at < size && st == NULL;) {
        const char *end = memchr(text + at, '\n', size - at);
        const size_t n = end == NULL ? size - at : (size_t)(end - text) - at;
        number++;
        if (n > 0)
            st = sheaf_in(add_record(p, config, text + at, n), "%s: line %lld", path, number);
        at += n + 1;
    }
    if (st == NULL && p->count == 0)
        st = sheaf_expected(sheaf_fail(SHEAF_E_DATA, "%s", path), "at least one prompt");
    free(text);
    return st;
}

sheaf_status *sheaf__prompts_read(sheaf__prompts *out, const sheaf_config *config, const char *text,
                                  const char *tokens, const char *file)
{
    *out = (sheaf__prompts){ 0 };
    if ((text != NULL) + (tokens != NULL) + (file != NULL) != 1)
        return sheaf_expected(sheaf_fail(SHEAF_E_ARG, "prompts"), "one of --prompt TEXT, --tokens 1,2,3 and --data FILE");
    if (file != NULL)
        return add_file(out, config, file);
    return text != NULL ? add_text(out, config, text, NULL) : add_list(out, config, tokens);
}

void sheaf__prompts_release(sheaf__prompts *p)
{
    for (int64_t i = 0; i < p->count; i++) {
        free((int32_t *)p->prompt[i].ids);
        free(p->text[i]);
        free(p->expected[i]);
    }
    free(p->prompt);
    free(p->text);
    free(p->expected);
    *p = (sheaf__prompts){ 0 };
}

sheaf_status *sheaf__prompts_decode(char **out, const sheaf_config *config, const int32_t *ids, int64_t n)
{
    *out = NULL;
    if (!config->byte_vocab)
        return NULL;
    unsigned char *bytes = malloc((size_t)n + 1);
    size_t size = 0;
    sheaf_text text = { 0 };
    if (bytes == NULL)
        return sheaf_fail(SHEAF_E_MEMORY, "generated text");
    for (int64_t i = 0; i < n && ids[i] < 256; i++)
        bytes[size++] = (unsigned char)ids[i];
    for (size_t i = 0; i < size;) {
        const size_t k = bytes[i] == 0 ? 0 : sheaf__utf8_length(bytes + i, size - i);
        sheaf__text_bytes(&text, k == 0 ? "\xEF\xBF\xBD" : (const char *)bytes + i, k == 0 ? 3 : k);
        i += k == 0 ? 1 : k;
    }
    free(bytes);
    return sheaf__text_take(out, &text);
}
