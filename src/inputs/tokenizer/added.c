/* added.c - see added.h. */
#include "added.h"

#include "unicode.h"
#include "base/base.h"

void sheaf__added_release(sheaf__added *a)
{
    for (int64_t i = 0; i < a->count; i++) {
        if (a->token[i].normal != a->token[i].content)
            free(a->token[i].normal);
        free(a->token[i].content);
    }
    free(a->token);
    sheaf__vocab_release(&a->names);
    free(a->plain.item);
    free(a->normalized.item);
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

/* ---- the lists ---- */

static int by_id(const void *a, const void *b)
{
    const int32_t x = ((const sheaf__added_token *)a)->id, y = ((const sheaf__added_token *)b)->id;
    return x < y ? -1 : x > y;
}

/* Compares a token's string with a text; a prefix of the text comes before it. */
static int order(const sheaf__added_token *token, const char *text, size_t size)
{
    const size_t n = token->normal_size;
    const int first = memcmp(token->normal, text, n < size ? n : size);
    return first != 0 ? first : (n > size) - (n < size);
}

static int by_string(const void *a, const void *b)
{
    const sheaf__added_token *x = ((const struct sheaf__added_item *)a)->token,
                             *y = ((const struct sheaf__added_item *)b)->token;
    const int first = order(x, y->normal, y->normal_size);
    return first != 0 ? first : by_id(x, y); /* the last of equals wins */
}

/* The longest prefix of the text among this token and its prefixes; -1: none. */
static int64_t beginning(const sheaf__added_list *list, int64_t i, const char *text, size_t left)
{
    for (; i >= 0; i = list->item[i].shorter) {
        const sheaf__added_token *token = list->item[i].token;
        if (token->normal_size <= left && memcmp(token->normal, text, token->normal_size) == 0)
            break;
    }
    return i;
}

sheaf_status *sheaf__added_index(sheaf__added *a)
{
    sheaf__added_list *const lists[] = { &a->plain, &a->normalized };
    if (a->count > 0)
        qsort(a->token, (size_t)a->count, sizeof *a->token, by_id);
    for (int64_t i = 0; i < a->count; i++) {
        const sheaf__added_token *token = &a->token[i];
        sheaf__added_list *list = lists[token->normalized];
        if (!SHEAF_GROW(&list->item, &list->capacity, list->count + 1))
            return sheaf__no_memory("added tokens");
        list->first[(unsigned char)token->normal[0]] = true;
        list->item[list->count++].token = token;
    }
    for (int k = 0; k < 2; k++) {
        if (lists[k]->count > 0)
            qsort(lists[k]->item, (size_t)lists[k]->count, sizeof *lists[k]->item, by_string);
        for (int64_t i = 0; i < lists[k]->count; i++) {
            const sheaf__added_token *token = lists[k]->item[i].token;
            lists[k]->item[i].shorter =
                beginning(lists[k], i - 1, token->normal, token->normal_size);
        }
    }
    return NULL;
}

/* The longest token that begins at `text`; NULL: none does. */
static const sheaf__added_token *longest(const sheaf__added_list *list, const char *text,
                                         size_t left)
{
    int64_t low = 0, high = list->count;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (order(list->item[middle].token, text, left) <= 0)
            low = middle + 1;
        else
            high = middle;
    }
    const int64_t found = beginning(list, low - 1, text, left);
    return found < 0 ? NULL : list->item[found].token;
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

bool sheaf__added_next(sheaf__added_match *out, const sheaf__added_list *list, const char *text,
                       size_t size, size_t from, size_t done, sheaf__is_plain *plain,
                       const void *context)
{
    for (size_t at = from; list->count > 0 && at < size;) {
        const sheaf__added_token *token =
            list->first[(unsigned char)text[at]] ? longest(list, text + at, size - at) : NULL;
        if (token == NULL) {
            at++;
            continue;
        }
        const size_t end = at + token->normal_size,
                     until = token->special && plain != NULL ? plain(context, at, end) : 0;
        *out = (sheaf__added_match){ at, end, end, token->id };
        if (until == 0 && (!token->single_word || is_single_word(text, size, at, end))) {
            take_spaces(out, token, text, size, done);
            if (out->begin < out->end) /* else the previous token took its spaces */
                return true;
        }
        at = until > 0 && until < end ? until : end;
    }
    return false;
}
