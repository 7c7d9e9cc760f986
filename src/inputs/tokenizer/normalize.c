/* normalize.c - the normalizers Replace and Prepend. */
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "kinds.h"
#include "pattern.h"
#include "rewrite.h"
#include "unicode.h"

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

/* As `tokenizers` does it: what is put in takes the place of the first character, which itself is
 * put in behind. */
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
    sheaf__pattern_close(s->pattern);
    free(s->content);
    free(s->literal);
    free(s);
}

/* An empty pattern would match between any two characters. */
static sheaf_status *open_pattern(sheaf__replacing *s, sheaf_json_reader *r)
{
    const json_t *object = sheaf__json_object(r, "pattern");
    const json_t *regex = json_object_get(object, "Regex"),
                 *literal = json_object_get(object, "String");
    const json_t *text = regex != NULL ? regex : literal;
    if (!json_is_string(text) || json_object_size(object) != 1 || json_string_length(text) == 0) {
        sheaf__json_fail(r, SHEAF_E_UNSUPPORTED, "pattern",
                         "an object with a Regex or a String that is not empty");
        return NULL;
    }
    if (regex != NULL)
        return sheaf__pattern_open(&s->pattern, json_string_value(text), json_string_length(text),
                                   false);
    s->literal = strdup(json_string_value(text));
    s->literal_size = json_string_length(text);
    return s->literal == NULL ? sheaf__no_memory("Replace") : NULL;
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
    const char *content = sheaf__json_string(r, "content");
    if (content == NULL) {
        sheaf__json_fail(r, SHEAF_E_FORMAT, "content", "a string");
        return NULL;
    }
    s->content = strdup(content);
    s->size = strlen(content);
    return s->content == NULL ? sheaf__no_memory("Replace") : open_pattern(s, r);
}

sheaf_status *sheaf__replacing_next(const sheaf__replacing *s, sheaf__matches *m, bool *found,
                                    size_t *begin, size_t *end)
{
    if (s->pattern != NULL)
        return sheaf__matches_next(m, found, begin, end);
    const char *at = m->size - m->at < s->literal_size ? NULL
                     : s->literal_size == 1
                         ? memchr(m->text + m->at, s->literal[0], m->size - m->at)
                         : memmem(m->text + m->at, m->size - m->at, s->literal, s->literal_size);
    *found = at != NULL;
    if (*found) {
        *begin = (size_t)(at - m->text);
        m->at = *end = *begin + s->literal_size;
    }
    return NULL;
}

static sheaf_status *rewrite_replace(const void *state, sheaf__edit *e)
{
    const sheaf__replacing *s = state;
    sheaf__matches m = {
        .pattern = s->pattern, .text = e->bytes, .size = e->size, .matching = &e->p->matching
    };
    sheaf_status *st = NULL;
    for (bool found = true; st == NULL && found;) {
        size_t begin, end;
        st = sheaf__replacing_next(s, &m, &found, &begin, &end);
        if (st != NULL || !found)
            break;
        sheaf__edit_keep(e, begin - e->at);
        sheaf__edit_skip(e, end - begin);
        sheaf__edit_insert(e, s->content, s->size); /* the origin of the last byte skipped */
    }
    sheaf__edit_keep(e, e->size - e->at);
    return st;
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
    return step->kind == &sheaf__replace && s->pattern == NULL && strcmp(s->literal, " ") == 0 &&
           strcmp(s->content, bar) == 0;
}
