/* normalize.c - the normalizers Replace and Prepend, and what all steps have: keys and an end. */

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
    if (literal == NULL || literal[0] == '\0') /* which is between any two characters */
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
