/* conversation.c - see conversation.h. */
#include "infer/conversation.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/text.h"
#include "infer/prompts.h"
#include "schema/family.h"

/* ---- the picture ---- */

sheaf_status *sheaf__conversation_look(sheaf__conversation *c, const char *path)
{
    const sheaf_config *config = c->wording->config;
    sheaf__tower tower[SHEAF__MOST_TOWERS];
    const int towers = sheaf__towers_of(tower, config);
    if (!c->wording->images)
        return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "%s", path),
                                          "no image: %s has no vision tower",
                                          sheaf_family_name(config->family)),
                           "one");
    sheaf__picture *picture = sheaf__picture_room(1, tower, towers);
    sheaf_status *st = picture == NULL ? sheaf_fail(SHEAF_E_MEMORY, "%s", path)
                                       : sheaf__prompts_picture(picture, path);
    if (st != NULL) {
        free(picture);
        return st;
    }
    sheaf__conversation_release(c);
    c->picture = picture;
    c->pictures++;
    return NULL;
}

/* ---- turns ---- */

void sheaf__conversation_reset(sheaf__conversation *c)
{
    for (int64_t i = 0; i < c->turns; i++) {
        free((char *)c->turn[i].query);
        free((char *)c->turn[i].answer);
    }
    free(c->turn);
    c->turn = NULL;
    c->turns = 0;
}

void sheaf__conversation_release(sheaf__conversation *c)
{
    sheaf__conversation_reset(c);
    free(c->picture);
    c->picture = NULL;
}

sheaf_status *sheaf__conversation_ask(sheaf__prompt *out, void **block,
                                      const sheaf__conversation *c, const char *query)
{
    sheaf__turn *turn = malloc((size_t)(c->turns + 1) * sizeof *turn);
    if (turn == NULL)
        return sheaf_fail(SHEAF_E_MEMORY, "conversation");
    if (c->turns > 0)
        memcpy(turn, c->turn, (size_t)c->turns * sizeof *turn);
    turn[c->turns] = (sheaf__turn){ query, NULL };
    sheaf_status *st =
        sheaf__wording_prompt(out, block, c->wording, turn, c->turns + 1, c->picture != NULL);
    if (st == NULL) {
        out->picture = c->picture;
        out->pictures = c->picture != NULL;
    }
    free(turn);
    return st;
}

sheaf_status *sheaf__conversation_keep(sheaf__conversation *c, const char *query,
                                       const char *answer)
{
    if (!sheaf__template_has_history(c->wording->version))
        return NULL;
    if (!SHEAF_GROW(&c->turn, NULL, c->turns + 1))
        return sheaf_fail(SHEAF_E_MEMORY, "conversation");
    sheaf__turn *turn = &c->turn[c->turns];
    *turn = (sheaf__turn){ strdup(query), strdup(answer) };
    if (turn->query == NULL || turn->answer == NULL) {
        free((char *)turn->query);
        free((char *)turn->answer);
        return sheaf_fail(SHEAF_E_MEMORY, "conversation");
    }
    c->turns++;
    return NULL;
}

/* ---- an answer as it comes ---- */

static bool is_blank(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* Bytes of `text` that later tokens cannot change: without the last three U+FFFD, each of which may
 * be a byte of a character whose others are still to come, and without blanks, which an answer does
 * not end with. */
static size_t certain(const char *text, size_t size)
{
    for (int i = 0; i < 3 && size >= 3 && memcmp(text + size - 3, "\xEF\xBF\xBD", 3) == 0; i++)
        size -= 3;
    while (size > 0 && is_blank(text[size - 1]))
        size--;
    return size;
}

sheaf_status *sheaf__spoken_more(char **out, sheaf__spoken *s, const int32_t *ids, int64_t n)
{
    char *text = NULL;
    sheaf_text more = { 0 };
    sheaf_status *st = sheaf__wording_decode(&text, s->wording, ids, n);
    if (st != NULL)
        return st;
    const char *from = text;
    while (is_blank(*from))
        from++;
    const size_t size = certain(from, strlen(from));
    if (size > s->size && (s->size == 0 || memcmp(from, s->said, s->size) == 0)) {
        sheaf__text_bytes(&more, from + s->size, size - s->size);
        if (!SHEAF_GROW(&s->said, NULL, (int64_t)size))
            more.failed = true;
        else
            memcpy(s->said, from, s->size = size);
    }
    free(text);
    return sheaf__text_take(out, &more);
}

sheaf_status *sheaf__spoken_end(char **out, char **answer, sheaf__spoken *s, const int32_t *ids,
                                int64_t n)
{
    sheaf_text more = { 0 };
    sheaf_status *st = sheaf__wording_answer(answer, s->wording, ids, n);
    if (st != NULL)
        return st;
    const size_t size = strlen(*answer);
    if (size >= s->size && (s->size == 0 || memcmp(*answer, s->said, s->size) == 0))
        sheaf__text_add(&more, "%s", *answer + s->size);
    else
        sheaf__text_add(&more, "\n%s", *answer);
    st = sheaf__text_take(out, &more);
    if (st != NULL) {
        free(*answer);
        *answer = NULL;
    }
    return st;
}

void sheaf__spoken_release(sheaf__spoken *s)
{
    free(s->said);
    s->said = NULL;
    s->size = 0;
}
