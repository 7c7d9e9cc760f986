/* wording_decode.c - tokens back to texts, and the answer in them: see wording.h. */
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "infer/wording.h"

static sheaf_status *decode_bytes(char **out, const int32_t *ids, int64_t n)
{
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

void sheaf__wording_without_nul(sheaf_text *text, const char *bytes, size_t size)
{
    while (size > 0) {
        const size_t n = strnlen(bytes, size);
        sheaf__text_bytes(text, bytes, n);
        if (n == size)
            return;
        sheaf__text_bytes(text, "\xEF\xBF\xBD", 3);
        bytes += n + 1;
        size -= n + 1;
    }
}

/* NUL cannot stand in a C string. */
static sheaf_status *decode_text(char **out, const sheaf__wording *w, const int32_t *ids, int64_t n)
{
    char *text = NULL;
    size_t size = 0;
    sheaf_status *st = sheaf__tokenizer_decode(&text, &size, w->tokenizer, ids, n, true);
    if (st == NULL && strlen(text) < size) {
        sheaf_text whole = { 0 };
        sheaf__wording_without_nul(&whole, text, size);
        free(text);
        return sheaf__text_take(out, &whole);
    }
    *out = text;
    return st;
}

sheaf_status *sheaf__wording_decode(char **out, const sheaf__wording *w, const int32_t *ids,
                                    int64_t n)
{
    *out = NULL;
    if (w->model != NULL)
        return sheaf__sentencepiece_decode(out, w->model, ids, n);
    if (w->tokenizer != NULL)
        return decode_text(out, w, ids, n);
    return w->config->byte_vocab ? decode_bytes(out, ids, n) : NULL;
}

static bool is_blank(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static size_t trimmed(const char **text)
{
    size_t n = strlen(*text);
    while (n > 0 && is_blank((*text)[n - 1]))
        n--;
    while (n > 0 && is_blank(**text)) {
        (*text)++;
        n--;
    }
    return n;
}

sheaf_status *sheaf__wording_answer(char **out, const sheaf__wording *w, const int32_t *ids,
                                    int64_t n)
{
    char *text = NULL;
    sheaf_status *st = sheaf__wording_decode(&text, w, ids, n);
    *out = NULL;
    if (st == NULL && text != NULL)
        st = sheaf__wording_answer_in(out, w, text);
    free(text);
    return st;
}

sheaf_status *sheaf__wording_answer_in(char **out, const sheaf__wording *w, const char *text)
{
    if (w->templated && w->chat == NULL)
        return sheaf__template_answer(out, w->version, text);
    if (w->templated) {
        const size_t n = trimmed(&text);
        *out = strndup(text, n);
        return *out == NULL ? sheaf_fail(SHEAF_E_MEMORY, "an answer") : NULL;
    }
    *out = strdup(text);
    return *out == NULL ? sheaf_fail(SHEAF_E_MEMORY, "an answer") : NULL;
}

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c + 'a' - 'A') : c;
}

bool sheaf__same_answer(const char *a, const char *b, bool any_case)
{
    const size_t n = trimmed(&a);
    if (trimmed(&b) != n)
        return false;
    for (size_t i = 0; i < n; i++)
        if (any_case ? lower(a[i]) != lower(b[i]) : a[i] != b[i])
            return false;
    return true;
}
