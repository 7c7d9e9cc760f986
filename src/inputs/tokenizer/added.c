/* added.c - see added.h. */
#include "added.h"

#include "unicode.h"
#include "base/base.h"

typedef struct sheaf__trie_node {
    int32_t child, sibling; /* 0: none */
    int32_t id;             /* of the string that ends here; -1: none */
    unsigned char byte;
} sheaf__trie_node;

void sheaf__added_release(sheaf__added *a)
{
    for (int64_t i = 0; i < a->count; i++) {
        if (a->token[i].normal != a->token[i].content)
            free(a->token[i].normal);
        free(a->token[i].content);
    }
    free(a->token);
    sheaf__vocab_release(&a->names);
    free(a->plain.node);
    free(a->normalized.node);
    *a = (sheaf__added){ 0 };
}

const sheaf__added_token *sheaf__added_of(const sheaf__added *a, int32_t id)
{
    for (int64_t low = 0, high = a->count; low < high;) {
        const int64_t middle = low + (high - low) / 2;
        if (a->token[middle].id == id)
            return &a->token[middle];
        if (a->token[middle].id < id)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

const sheaf__added_token *sheaf__added_find(const sheaf__added *a, const char *token, size_t size)
{
    const int32_t id = sheaf__vocab_find(&a->names, token, size);
    return id >= 0 ? sheaf__added_of(a, id) : NULL;
}

sheaf_status *sheaf__added_put(sheaf__added *a)
{
    const sheaf__added_token *token = &a->token[a->count];
    sheaf_status *st =
        sheaf__vocab_add(&a->names, token->content, token->size, (uint64_t)token->id);
    a->count += st == NULL;
    return st;
}

/* ---- the tries ---- */

static int32_t child_of(const sheaf__trie *t, int32_t node, unsigned char byte)
{
    int32_t at = t->node[node].child;
    while (at != 0 && t->node[at].byte != byte)
        at = t->node[at].sibling;
    return at;
}

static int32_t add_node(sheaf__trie *t, int32_t parent, unsigned char byte)
{
    if (!SHEAF_GROW(&t->node, &t->capacity, t->nodes + 1))
        return -1;
    const int32_t at = (int32_t)t->nodes++;
    t->node[at] = (sheaf__trie_node){ .id = -1, .byte = byte };
    if (at != 0) {
        t->node[at].sibling = t->node[parent].child;
        t->node[parent].child = at;
    }
    return at;
}

static bool add_string(sheaf__trie *t, const char *bytes, size_t size, int32_t id)
{
    int32_t at = 0;
    if (t->nodes == 0 && add_node(t, 0, 0) < 0)
        return false;
    for (size_t i = 0; i < size; i++) {
        const int32_t next = child_of(t, at, (unsigned char)bytes[i]);
        at = next != 0 ? next : add_node(t, at, (unsigned char)bytes[i]);
        if (at < 0)
            return false;
    }
    if (size > 0) {
        t->first[(unsigned char)bytes[0]] = true;
        t->node[at].id = id;
    }
    return true;
}

static int by_id(const void *a, const void *b)
{
    const int32_t x = ((const sheaf__added_token *)a)->id, y = ((const sheaf__added_token *)b)->id;
    return x < y ? -1 : x > y;
}

sheaf_status *sheaf__added_index(sheaf__added *a)
{
    if (a->count > 0)
        qsort(a->token, (size_t)a->count, sizeof *a->token, by_id);
    for (int64_t i = 0; i < a->count; i++) {
        const sheaf__added_token *token = &a->token[i];
        sheaf__trie *trie = token->normalized ? &a->normalized : &a->plain;
        if (!add_string(trie, token->normal, token->normal_size, token->id))
            return sheaf__no_memory("added tokens");
    }
    return NULL;
}

/* The longest string that begins at `text`; its length, 0: none does. */
static size_t longest(const sheaf__trie *t, const char *text, size_t left, int32_t *id)
{
    size_t found = 0;
    int32_t at = 0;
    for (size_t i = 0; i < left; i++) {
        at = child_of(t, at, (unsigned char)text[i]);
        if (at == 0)
            break;
        if (t->node[at].id >= 0) {
            *id = t->node[at].id;
            found = i + 1;
        }
    }
    return found;
}

/* ---- the search ---- */

static size_t character_before(const char *text, size_t at)
{
    do
        at--;
    while (at > 0 && ((unsigned char)text[at] & 0xc0) == 0x80);
    return at;
}

static bool has_class(const char *text, size_t at, size_t size, unsigned class)
{
    return (sheaf__unicode_class(sheaf__unicode_take(text + at, size - at, NULL)) & class) != 0;
}

static bool is_single_word(const char *text, size_t size, size_t begin, size_t end)
{
    if (begin > 0 && has_class(text, character_before(text, begin), size, SHEAF__WORD))
        return false;
    return end == size || !has_class(text, end, size, SHEAF__WORD);
}

static void take_spaces(sheaf__added_match *m, const sheaf__added_token *token, const char *text,
                        size_t size, size_t done)
{
    if (token->lstrip && m->begin < done)
        m->begin = done;
    if (token->lstrip)
        while (m->begin > done) {
            const size_t before = character_before(text, m->begin);
            if (!has_class(text, before, size, SHEAF__SPACE))
                break;
            m->begin = before;
        }
    while (token->rstrip && m->end < size && has_class(text, m->end, size, SHEAF__SPACE)) {
        size_t length;
        sheaf__unicode_take(text + m->end, size - m->end, &length);
        m->end += length;
    }
}

bool sheaf__added_next(sheaf__added_match *out, const sheaf__added *a, const sheaf__trie *trie,
                       const char *text, size_t size, size_t from, size_t done,
                       sheaf__is_plain *plain, const void *context)
{
    if (trie->nodes == 0)
        return false;
    for (size_t at = from; at < size;) {
        int32_t id = -1;
        if (!trie->first[(unsigned char)text[at]]) {
            at++;
            continue;
        }
        const size_t length = longest(trie, text + at, size - at, &id);
        if (length == 0) {
            at++;
            continue;
        }
        const sheaf__added_token *token = sheaf__added_of(a, id);
        const size_t text_until =
            token->special && plain != NULL ? plain(context, at, at + length) : 0;
        if (text_until > 0) {
            at = text_until < at + length ? text_until : at + length;
            continue;
        }
        if (token->single_word && !is_single_word(text, size, at, at + length)) {
            at += length;
            continue;
        }
        *out = (sheaf__added_match){ at, at + length, at + length, id };
        take_spaces(out, token, text, size, done);
        if (out->begin < out->end)
            return true;
        at += length; /* spaces that are a token, and that the token before took */
    }
    return false;
}
