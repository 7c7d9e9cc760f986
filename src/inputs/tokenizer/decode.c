/* decode.c - ids to a text. */

#include "parts.h"
#include "base/base.h"

static void add_bytes(sheaf__strings *s, const char *bytes, size_t size)
{
    s->grown = s->grown || (s->most > 0 && s->bytes.size + size > s->most);
    if (!s->grown)
        sheaf__text_bytes(&s->bytes, bytes, size);
    s->failed = s->failed || s->grown || s->bytes.failed;
}

void sheaf__strings_add(sheaf__strings *s, const char *bytes, size_t size)
{
    add_bytes(s, bytes, size);
    s->failed = s->failed || !SHEAF_GROW(&s->end, &s->capacity, s->count + 1);
    if (!s->failed)
        s->end[s->count++] = s->bytes.size;
}

void sheaf__strings_append(sheaf__strings *s, const char *bytes, size_t size)
{
    add_bytes(s, bytes, size);
    if (!s->failed && s->count > 0)
        s->end[s->count - 1] = s->bytes.size;
}

static void strings_clear(sheaf__strings *s)
{
    s->bytes.size = s->most = 0;
    s->count = 0;
    s->grown = false;
}

void sheaf__strings_release(sheaf__strings *s)
{
    sheaf__text_release(&s->bytes);
    free(s->end);
    *s = (sheaf__strings){ 0 };
}

/* ---- the strings of ids ---- */

const char *sheaf__string_of(const sheaf__tokenizer *t, int32_t id, bool skip_special, size_t *size)
{
    const sheaf__added_token *added = sheaf__added_of(&t->added, id);
    if (added == NULL)
        return sheaf__vocab_token(&t->vocab, id, size);
    /* `tokenizers` asks whether the string is that of a special token. */
    const sheaf__added_token *same =
        added->normal == added->content
            ? added
            : sheaf__added_find(&t->added, added->normal, added->normal_size);
    if (skip_special && same != NULL && same->special)
        return NULL;
    *size = added->normal_size;
    return added->normal;
}

sheaf_status *sheaf__check_id(int32_t id, int64_t at)
{
    if (id >= 0)
        return NULL;
    sheaf_status *st = sheaf_fail(SHEAF_E_DATA, "id %" PRId64, at + 1);
    return sheaf_found(sheaf_expected(st, "a token"), "%" PRId32, id);
}

static sheaf_status *run_decoders(const sheaf__tokenizer *t, sheaf__strings *s)
{
    sheaf__strings next = { 0 };
    sheaf_status *st = s->failed ? sheaf__no_memory("a text") : NULL;
    const size_t most = sheaf__growth(s->bytes.size);
    for (int64_t i = 0; st == NULL && i < t->decoder.count; i++) {
        strings_clear(&next);
        next.most = most;
        st = t->decoder.step[i].kind->decode(t->decoder.step[i].state, &next, s);
        if (st == NULL && next.failed)
            st = next.grown ? sheaf__grown(t->decoder.step[i].kind->name, most)
                            : sheaf__no_memory("a text");
        const sheaf__strings before = *s;
        *s = next;
        next = before;
    }
    sheaf__strings_release(&next);
    return st;
}

sheaf_status *sheaf__decode_to(sheaf__strings *s, const sheaf__tokenizer *t, const int32_t *ids,
                               int64_t n, bool skip_special)
{
    strings_clear(s);
    for (int64_t i = 0; i < n; i++) {
        size_t size;
        const char *string = sheaf__string_of(t, ids[i], skip_special, &size);
        if (string == NULL)
            continue;
        if (!t->has_decoder && s->count > 0)
            sheaf__strings_append(s, " ", 1);
        sheaf__strings_add(s, string, size);
    }
    return run_decoders(t, s);
}

sheaf_status *sheaf__tokenizer_decode(char **text, size_t *size, const sheaf__tokenizer *t,
                                      const int32_t *ids, int64_t n, bool skip_special)
{
    sheaf__strings s = { 0 };
    sheaf_status *st = NULL;
    for (int64_t i = 0; st == NULL && i < n; i++)
        st = sheaf__check_id(ids[i], i);
    TRY(st, sheaf__decode_to(&s, t, ids, n, skip_special));
    const size_t bytes = s.bytes.size;
    TRY(st, sheaf__text_take(text, &s.bytes));
    if (st == NULL && size != NULL)
        *size = bytes;
    sheaf__strings_release(&s);
    return st;
}
