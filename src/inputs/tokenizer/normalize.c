/* normalize.c - the normalizers Replace and Prepend, and what all steps have: keys and an end. */

#include "kinds.h"
#include "unicode.h"
#include "base/base.h"

void sheaf__steps_close(sheaf__steps *steps)
{
    for (int64_t i = 0; i < steps->count; i++)
        if (steps->step[i].kind->close != NULL)
            steps->step[i].kind->close(steps->step[i].state);
    steps->count = 0;
}

void sheaf__only_keys(sheaf_json_reader *r, const char *const *known)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)r->object, key, value)
    {
        bool found = strcmp(key, "type") == 0 || json_is_null(value);
        for (const char *const *k = known; !found && *k != NULL; k++)
            found = strcmp(key, *k) == 0;
        if (!found)
            sheaf__json_fail(r, SHEAF_E_UNSUPPORTED, key, "no such option, or null");
    }
}

sheaf_status *sheaf__open_plain(void **state, sheaf_json_reader *r, sheaf__opening *how)
{
    static const char *const keys[] = { NULL };
    (void)how;
    *state = NULL;
    sheaf__only_keys(r, keys);
    return NULL;
}

/* ---- Prepend ---- */

typedef struct string {
    size_t size;
    char bytes[];
} string;

static sheaf_status *open_string(void **state, sheaf_json_reader *r, const char *key)
{
    const char *text = sheaf__json_string(r, key);
    const size_t size = text == NULL ? 0 : strlen(text);
    string *s = malloc(sizeof *s + size + 1);
    *state = s;
    if (s == NULL)
        return sheaf__no_memory("a string");
    s->size = size;
    memcpy(s->bytes, text == NULL ? "" : text, size + 1);
    if (text == NULL)
        sheaf__json_fail(r, SHEAF_E_FORMAT, key, "a string");
    return NULL;
}

static sheaf_status *open_prepend(void **state, sheaf_json_reader *r, sheaf__opening *how)
{
    static const char *const keys[] = { "prepend", NULL };
    (void)how;
    sheaf__only_keys(r, keys);
    return open_string(state, r, "prepend");
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
    const string *s = state;
    sheaf__edit_prepend(e, s->bytes, s->size);
    sheaf__edit_keep(e, e->size - e->at);
    return NULL;
}

static sheaf_status *run_prepend(const void *state, sheaf__prepared *text)
{
    return sheaf__prepared_rewrite(text, state, rewrite_prepend);
}

const sheaf__step_kind sheaf__prepend = { "Prepend", open_prepend, run_prepend, free };

static const char bar[] = "\xe2\x96\x81";

bool sheaf__prepends_bar(const sheaf__step *step)
{
    const string *s = step->state;
    return step->kind == &sheaf__prepend && s->size == sizeof bar - 1 &&
           memcmp(s->bytes, bar, s->size) == 0;
}

/* ---- Replace ---- */

void sheaf__replacing_close(void *state)
{
    sheaf__replacing *s = state;
    if (s == NULL)
        return;
    free(s->content);
    free(s->literal);
    free(s);
}

sheaf_status *sheaf__replacing_open(void **state, sheaf_json_reader *r, sheaf__opening *how)
{
    static const char *const keys[] = { "pattern", "content", NULL };
    sheaf__replacing *s = calloc(1, sizeof *s);
    (void)how;
    *state = s;
    if (s == NULL)
        return sheaf__no_memory("Replace");
    sheaf__only_keys(r, keys);
    const char *content = sheaf__json_string(r, "content"),
               *literal =
                   json_string_value(json_object_get(sheaf__json_object(r, "pattern"), "String"));
    if (content == NULL)
        sheaf__json_fail(r, SHEAF_E_FORMAT, "content", "a string");
    else if (literal == NULL || literal[0] == '\0') /* which is between any two characters */
        sheaf__json_fail(r, SHEAF_E_UNSUPPORTED, "pattern",
                         "an object with a String that is not empty");
    if (r->st != NULL)
        return NULL;
    s->content = strdup(content);
    s->size = strlen(content);
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

const sheaf__step_kind sheaf__replace = { "Replace", sheaf__replacing_open, run_replace,
                                          sheaf__replacing_close };

bool sheaf__replaces_blanks(const sheaf__step *step)
{
    const sheaf__replacing *s = step->state;
    return step->kind == &sheaf__replace && strcmp(s->literal, " ") == 0 &&
           strcmp(s->content, bar) == 0;
}
