/* ranks.c - see ranks.h. The tokens that stand for no bytes are in tokenizer_config.json. */
#include "ranks.h"

#include "kinds.h"
#include "tokenizer_config.h"
#include "unicode.h"
#include "vocab.h"
#include "base/base.h"

enum { LINE_MOST = 4096, TOKEN_MOST = LINE_MOST / 4 * 3 };

/* One line as bytes and rank; false: it is something else. */
static bool read_line(unsigned char out[TOKEN_MOST], size_t *bytes, int64_t *rank, const char *line,
                      size_t size)
{
    const char *blank = memchr(line, ' ', size);
    const size_t digits = blank == NULL ? 0 : (size_t)(blank - line);
    size_t at = digits + 1;
    *rank = 0;
    *bytes = digits > LINE_MOST ? 0 : sheaf__base64_decode(out, line, digits);
    if (*bytes == 0 || at == size || size - at > 8)
        return false;
    for (; at < size && line[at] >= '0' && line[at] <= '9'; at++)
        *rank = *rank * 10 + (line[at] - '0');
    return at == size;
}

/* Without its end, also of Windows. */
static size_t line_size(size_t *next, const char *text, size_t left)
{
    const char *end = memchr(text, '\n', left);
    size_t n = end == NULL ? left : (size_t)(end - text);
    *next = end == NULL ? left : n + 1;
    return n > 0 && text[n - 1] == '\r' ? n - 1 : n;
}

bool sheaf__ranks_are(const char *text, size_t size)
{
    unsigned char bytes[TOKEN_MOST];
    size_t next, n;
    int64_t rank;
    return read_line(bytes, &n, &rank, text, line_size(&next, text, size));
}

/* A token by the characters of the byte-level alphabet. */
static sheaf_status *add_token(sheaf__vocab *vocab, sheaf_text *json, const unsigned char *bytes,
                               size_t size, int64_t rank)
{
    char text[4 * TOKEN_MOST];
    size_t n = 0;
    for (size_t i = 0; i < size; i++)
        n += sheaf__unicode_put(text + n, sheaf__byte_char(bytes[i]));
    sheaf__text_add(json, vocab->count > 0 ? "," : "");
    sheaf__text_json_bytes(json, text, n);
    sheaf__text_add(json, ":%" PRId64, rank);
    return sheaf__vocab_add(vocab, text, n, (uint64_t)rank);
}

static sheaf_status *read_lines(sheaf__vocab *vocab, sheaf_text *json, const char *text,
                                size_t size)
{
    sheaf_status *st = NULL;
    int64_t line = 0;
    for (size_t at = 0, next; at < size && st == NULL; at += next) {
        unsigned char bytes[TOKEN_MOST];
        size_t n;
        int64_t rank;
        const size_t length = line_size(&next, text + at, size - at);
        line++;
        if (length == 0)
            continue;
        if (!read_line(bytes, &n, &rank, text + at, length))
            st = sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_FORMAT, "ranks"),
                                            "a token in base64, a blank and its rank"),
                             "'%.*s'", length > 80 ? 80 : (int)length, text + at);
        else
            st = add_token(vocab, json, bytes, n, rank);
        st = sheaf_in(st, "line %" PRId64, line);
    }
    return st;
}

sheaf_status *sheaf__ranks_convert(sheaf_text *json, const char *text, size_t size)
{
    sheaf__vocab vocab = { 0 };
    sheaf__text_add(json, "{");
    sheaf__put_byte_level(json, &(sheaf__byte_level_form){ .pattern = sheaf__llama3_pattern });
    /* tiktoken looks a whole piece up before it merges */
    sheaf__text_add(json, ",\"model\":{\"type\":\"BPE\",\"ignore_merges\":true,\"vocab\":{");
    sheaf_status *st = read_lines(&vocab, json, text, size);
    sheaf__text_add(json, "}}}");
    sheaf__vocab_release(&vocab);
    return st == NULL && json->failed ? sheaf__no_memory("tokenizer.model") : st;
}
