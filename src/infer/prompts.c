/* prompts.c - see prompts.h. */
#include "infer/prompts.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
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
    p->count++;
    return NULL;
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

static sheaf_status *add_record(sheaf__prompts *p, const sheaf_config *config, const char *line, size_t size)
{
    json_error_t error;
    json_t *record = json_loadb(line, size, JSON_REJECT_DUPLICATES, &error);
    sheaf_status *st;
    const json_t *prompt = json_object_get(record, "prompt"), *tokens = json_object_get(record, "tokens");
    const char *expected = json_string_value(json_object_get(record, "completion"));
    if (record == NULL)
        st = sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_DATA, "column %d", error.column), "a JSON object"), "%s", error.text);
    else if (json_is_string(prompt))
        st = add_text(p, config, json_string_value(prompt), expected);
    else if (json_is_array(tokens))
        st = add_array(p, config, tokens, expected);
    else
        st = sheaf_expected(sheaf_fail(SHEAF_E_DATA, "record"), "a string 'prompt' or a list 'tokens'");
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

/* Length of the UTF-8 sequence at s (n bytes left), 0 if there is none. */
static size_t utf8_length(const unsigned char *s, size_t n)
{
    json_t *whole = NULL;
    for (size_t k = 1; k <= 4 && k <= n; k++) {
        whole = json_stringn((const char *)s, k); /* jansson checks the encoding */
        if (whole != NULL) {
            json_decref(whole);
            return k;
        }
    }
    return 0;
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
        const size_t k = bytes[i] == 0 ? 0 : utf8_length(bytes + i, size - i);
        sheaf__text_bytes(&text, k == 0 ? "\xEF\xBF\xBD" : (const char *)bytes + i, k == 0 ? 3 : k);
        i += k == 0 ? 1 : k;
    }
    free(bytes);
    return sheaf__text_take(out, &text);
}
