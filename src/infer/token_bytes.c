/* token_bytes.c - see token_bytes.h. */
#include "infer/token_bytes.h"

#include "base/base.h"
#include "infer/token_text.h"

enum { MOST_BYTES = 1024 }; /* of a token; longer ones count as none */

/* The bytes that an id adds behind other text, or 0xFF and its name. */
static sheaf_status *add_id(sheaf_text *to, sheaf__token_text *text, int32_t id)
{
    sheaf__text_piece bytes;
    sheaf_status *st = sheaf__token_text_next(&bytes, text, id);
    if (st != NULL)
        return st;
    const char *name = bytes.size == 0 ? sheaf__token_text_name(text, id) : NULL;
    if (name != NULL)
        sheaf__text_add(to, "\xFF%.*s", MOST_BYTES - 2, name);
    else if (bytes.size < MOST_BYTES && memchr(bytes.at, 0xFF, bytes.size) == NULL)
        sheaf__text_bytes(to, bytes.at, bytes.size);
    return NULL;
}

static sheaf_status *read_all(sheaf__token_bytes *t, const sheaf__codec *codec)
{
    sheaf__token_text text = { .codec = codec };
    sheaf_text all = { 0 };
    sheaf__text_piece first = { NULL, 0 };
    sheaf_status *st = NULL;
    for (int32_t id = 0; id < t->ids && first.size == 0 && st == NULL; id++)
        st = sheaf__token_text_next(&first, &text, id); /* its blank may be stripped */
    for (int32_t id = 0; id < t->ids && st == NULL; id++) {
        t->at[id] = (uint32_t)all.size;
        st = add_id(&all, &text, id);
        t->count += all.size > t->at[id];
    }
    t->at[t->ids] = (uint32_t)all.size;
    if (st == NULL && (all.failed || all.size > UINT32_MAX))
        st = sheaf__no_memory("the bytes of tokens");
    sheaf__token_text_release(&text);
    t->byte = (unsigned char *)all.at;
    return st;
}

static size_t size_of(const sheaf__token_bytes *t, int32_t id)
{
    return t->at[id + 1] - t->at[id];
}

static int by_bytes(const void *left, const void *right, void *self)
{
    const sheaf__token_bytes *t = self;
    const int32_t a = *(const int32_t *)left, b = *(const int32_t *)right;
    const size_t m = size_of(t, a), n = size_of(t, b);
    const int order = memcmp(t->byte + t->at[a], t->byte + t->at[b], m < n ? m : n);
    return order != 0 ? order : m != n ? (m < n ? -1 : 1) : a < b ? -1 : 1;
}

static uint8_t plain_of(const unsigned char *p, size_t size)
{
    uint8_t n = 0;
    for (size_t at = 0, one; at < size; at += one, n++) {
        one = sheaf__utf8_length(p + at, size - at);
        if (one == 0 || p[at] < 0x20 || p[at] == '"' || p[at] == '\\' || n == SHEAF__NOT_PLAIN - 1)
            return SHEAF__NOT_PLAIN;
    }
    return n;
}

sheaf_status *sheaf__token_bytes_open(sheaf__token_bytes *t, const sheaf__codec *codec)
{
    int64_t n = 0;
    *t = (sheaf__token_bytes){ 0 };
    sheaf_status *st = sheaf__codec_check_tokenizer(codec);
    if (st != NULL)
        return st;
    t->ids = codec->tokenizer == NULL ? 256 : sheaf__tokenizer_size(codec->tokenizer);
    t->at = malloc(((size_t)t->ids + 1) * sizeof *t->at);
    st = t->at == NULL ? sheaf__no_memory("the bytes of tokens") : read_all(t, codec);
    const size_t count = (size_t)t->count + 1;
    t->id = malloc(count * sizeof *t->id);
    t->same = malloc(count * sizeof *t->same);
    t->plain = malloc(count);
    if (st == NULL && (t->id == NULL || t->same == NULL || t->plain == NULL))
        st = sheaf__no_memory("the bytes of tokens");
    if (st != NULL)
        return st;
    for (int32_t id = 0; id < t->ids; id++)
        if (size_of(t, id) > 0)
            t->id[n++] = id;
    qsort_r(t->id, (size_t)n, sizeof *t->id, by_bytes, t);
    for (int64_t i = 0; i < n; i++) {
        const unsigned char *own = t->byte + t->at[t->id[i]],
                            *last = i == 0 ? own : t->byte + t->at[t->id[i - 1]];
        const size_t size = size_of(t, t->id[i]), most = i == 0 ? 0 : size_of(t, t->id[i - 1]);
        size_t same = 0;
        while (same < size && same < most && own[same] == last[same])
            same++;
        t->same[i] = (uint16_t)same;
        t->plain[i] = plain_of(own, size);
        t->longest = (int64_t)size > t->longest ? (int64_t)size : t->longest;
    }
    return NULL;
}

void sheaf__token_bytes_close(sheaf__token_bytes *t)
{
    free(t->byte);
    free(t->at);
    free(t->id);
    free(t->same);
    free(t->plain);
    *t = (sheaf__token_bytes){ 0 };
}
