/* metaspace.c - Metaspace: blanks become a character that can be seen, and pieces begin with it
 * (Kudo and Richardson 2018). */

#include "kinds.h"
#include "unicode.h"
#include "base/base.h"

typedef struct metaspace {
    enum { ALWAYS, FIRST, NEVER } prepend;
    bool split;
    char bytes[5]; /* the character */
    size_t size;
} metaspace;

uint32_t sheaf__json_character(sheaf_json_reader *r, const char *key)
{
    const char *text = sheaf__json_string(r, key);
    size_t n = 0;
    const uint32_t c =
        text == NULL || text[0] == '\0' ? 0 : sheaf__unicode_take(text, strlen(text), &n);
    if (text == NULL || n == 0 || text[n] != '\0')
        sheaf__json_fail(r, SHEAF_E_FORMAT, key, "one character");
    return c;
}

static void read_scheme(metaspace *m, sheaf_json_reader *r)
{
    static const char *const names[] = { "always", "first", "never" };
    const char *scheme = sheaf__json_string(r, "prepend_scheme");
    int i = 0;
    while (scheme != NULL && i < 3 && strcmp(scheme, names[i]) != 0)
        i++;
    m->prepend = i;
    if (i == 3)
        sheaf__json_fail(r, SHEAF_E_UNSUPPORTED, "prepend_scheme", "always, first or never");
    /* the old name of never; `tokenizers` refuses it beside another scheme */
    if (!sheaf__json_bool(r, "add_prefix_space", true) && m->prepend != NEVER)
        sheaf__json_fail(r, SHEAF_E_FORMAT, "add_prefix_space",
                         "true, unless prepend_scheme is never");
}

static sheaf_status *open_metaspace(void *state, sheaf_json_reader *r, sheaf__opening *how)
{
    metaspace *m = state;
    m->size = sheaf__unicode_put(m->bytes, sheaf__json_character(r, "replacement"));
    m->split = sheaf__json_bool(r, "split", true);
    read_scheme(m, r);
    how->needs_origin = how->needs_origin || m->prepend == FIRST;
    return NULL;
}

static bool is_here(const metaspace *m, const char *bytes, size_t size)
{
    return size >= m->size && memcmp(bytes, m->bytes, m->size) == 0;
}

static sheaf_status *rewrite(const void *state, sheaf__edit *e)
{
    const metaspace *m = state;
    size_t first = 0;
    if (e->bytes[0] != ' ' && !is_here(m, e->bytes, e->size) &&
        (m->prepend == ALWAYS || (m->prepend == FIRST && e->origin == 0))) {
        sheaf__edit_prepend(e, m->bytes, m->size);
        first = e->at;
    }
    for (size_t at = first; at < e->size;) {
        const char *blank = memchr(e->bytes + at, ' ', e->size - at);
        if (blank == NULL)
            break;
        at = (size_t)(blank - e->bytes);
        sheaf__edit_keep(e, at - e->at);
        sheaf__edit_replace(e, 1, m->bytes, m->size);
        at++;
    }
    sheaf__edit_keep(e, e->size - e->at);
    return NULL;
}

/* Each part begins where the character stands. */
static sheaf_status *split(const void *state, sheaf__prepared *text, const sheaf__piece *piece)
{
    const metaspace *m = state;
    const char *bytes = text->now.bytes;
    size_t begin = piece->begin;
    for (size_t at = begin + 1; at < piece->end;) {
        const char *next = memchr(bytes + at, m->bytes[0], piece->end - at);
        if (next == NULL)
            break;
        at = (size_t)(next - bytes);
        if (is_here(m, next, piece->end - at)) {
            sheaf__prepared_put(text, piece, begin, at, -1);
            begin = at;
        }
        at++;
    }
    sheaf__prepared_put(text, piece, begin, piece->end, -1);
    return NULL;
}

static sheaf_status *run(const void *state, sheaf__prepared *text)
{
    const metaspace *m = state;
    sheaf_status *st = sheaf__prepared_rewrite(text, m, rewrite);
    return st != NULL || !m->split ? st : sheaf__prepared_split(text, m, split);
}

const sheaf__step_kind sheaf__metaspace = {
    "Metaspace", "replacement prepend_scheme split add_prefix_space str_rep", sizeof(metaspace),
    open_metaspace, run
};
