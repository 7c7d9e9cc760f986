/* normalize.c - the steps Replace, Prepend and Metaspace, and what all steps share: keys and
 * closing. */

#include "kinds.h"
#include "unicode.h"
#include "base/base.h"

void sheaf__steps_close(sheaf__steps *steps)
{
    for (int64_t i = 0; i < steps->count; i++) {
        sheaf__step *step = &steps->step[i];
        if (step->kind->close != NULL && step->state != NULL)
            step->kind->close(step->state);
        free(step->state);
    }
    steps->count = 0;
}

sheaf_status *sheaf__steps_put(sheaf__steps *steps, const sheaf__step_kind *kind, void *state)
{
    sheaf__steps_close(steps);
    if (state != NULL && SHEAF_GROW(&steps->step, &steps->capacity, 1)) {
        steps->step[0] = (sheaf__step){ kind, state };
        steps->count = 1;
        return NULL;
    }
    if (state != NULL && kind->close != NULL)
        kind->close(state);
    free(state);
    return sheaf__no_memory("a step of a tokenizer");
}

void sheaf__only_keys(sheaf_json_reader *r, const char *known)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)r->object, key, value)
    {
        if (strcmp(key, "type") != 0 && !json_is_null(value) &&
            !sheaf__is_listed(known, key, strlen(key)))
            sheaf__json_fail(r, SHEAF_E_UNSUPPORTED, key, "no such option, or null");
    }
}

/* ---- Prepend ---- */

static char *copy_string(sheaf_json_reader *r, const char *key, size_t *size)
{
    const char *text = sheaf__json_string(r, key);
    if (text == NULL)
        sheaf__json_fail(r, SHEAF_E_FORMAT, key, "a string");
    *size = text == NULL ? 0 : strlen(text);
    return strdup(text == NULL ? "" : text);
}

static sheaf_status *open_prepend(void *state, sheaf_json_reader *r, sheaf__opening *how)
{
    sheaf__replacing *s = state;
    s->content = copy_string(r, "prepend", &s->size);
    return s->content == NULL ? sheaf__no_memory("Prepend") : NULL;
}

/* As `tokenizers` does it: the bytes replace the first character, which is inserted behind them. */
void sheaf__edit_prepend(sheaf__edit *e, const char *bytes, size_t size)
{
    size_t first, n;
    sheaf__unicode_take(e->bytes, e->size, &n);
    if (size == 0)
        return;
    sheaf__unicode_take(bytes, size, &first);
    sheaf__edit_replace(e, n, bytes, first);
    sheaf__edit_insert(e, bytes + first, size - first);
    sheaf__edit_insert(e, e->bytes, n);
}

static sheaf_status *rewrite_prepend(const void *state, sheaf__edit *e)
{
    const sheaf__replacing *s = state;
    sheaf__edit_prepend(e, s->content, s->size);
    sheaf__edit_keep(e, e->size - e->at);
    return NULL;
}

static sheaf_status *run_prepend(const void *state, sheaf__prepared *text)
{
    return sheaf__prepared_rewrite(text, state, rewrite_prepend);
}

const sheaf__step_kind sheaf__prepend = { "Prepend",    "prepend",   sizeof(sheaf__replacing),
                                          open_prepend, run_prepend, sheaf__replacing_close };

/* ---- Replace ---- */

void sheaf__replacing_close(void *state)
{
    const sheaf__replacing *s = state;
    free(s->content);
    free(s->literal);
}

sheaf_status *sheaf__replacing_open(void *state, sheaf_json_reader *r, sheaf__opening *how)
{
    sheaf__replacing *s = state;
    s->content = copy_string(r, "content", &s->size);
    const char *literal =
        json_string_value(json_object_get(sheaf__json_object(r, "pattern"), "String"));
    if (literal == NULL || literal[0] == '\0') /* an empty one matches everywhere */
        sheaf__json_fail(r, SHEAF_E_UNSUPPORTED, "pattern",
                         "an object with a String that is not empty");
    if (r->st != NULL)
        return NULL;
    s->literal = strdup(literal);
    s->literal_size = strlen(literal);
    return s->content == NULL || s->literal == NULL ? sheaf__no_memory("Replace") : NULL;
}

const char *sheaf__replacing_next(const sheaf__replacing *s, const char *text, size_t size)
{
    return size < s->literal_size ? NULL
           : s->literal_size == 1 ? memchr(text, s->literal[0], size)
                                  : memmem(text, size, s->literal, s->literal_size);
}

static sheaf_status *rewrite_replace(const void *state, sheaf__edit *e)
{
    const sheaf__replacing *s = state;
    for (const char *at;
         (at = sheaf__replacing_next(s, e->bytes + e->at, e->size - e->at)) != NULL;) {
        sheaf__edit_keep(e, (size_t)(at - e->bytes) - e->at);
        sheaf__edit_skip(e, s->literal_size);
        sheaf__edit_insert(e, s->content, s->size); /* the origin of the last byte skipped */
    }
    sheaf__edit_keep(e, e->size - e->at);
    return NULL;
}

static sheaf_status *run_replace(const void *state, sheaf__prepared *text)
{
    return sheaf__prepared_rewrite(text, state, rewrite_replace);
}

const sheaf__step_kind sheaf__replace = {
    "Replace",   "pattern content",     sizeof(sheaf__replacing), sheaf__replacing_open,
    run_replace, sheaf__replacing_close
};

/* ---- Metaspace, a pre-tokenizer: blanks become a visible character, and pieces begin with it
 * (Kudo and Richardson 2018) ---- */

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

static sheaf_status *rewrite_metaspace(const void *state, sheaf__edit *e)
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
static sheaf_status *split_metaspace(const void *state, sheaf__prepared *text,
                                     const sheaf__piece *piece)
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

static sheaf_status *run_metaspace(const void *state, sheaf__prepared *text)
{
    const metaspace *m = state;
    sheaf_status *st = sheaf__prepared_rewrite(text, m, rewrite_metaspace);
    return st != NULL || !m->split ? st : sheaf__prepared_split(text, m, split_metaspace);
}

const sheaf__step_kind sheaf__metaspace = {
    "Metaspace", "replacement prepend_scheme split add_prefix_space str_rep", sizeof(metaspace),
    open_metaspace, run_metaspace
};
