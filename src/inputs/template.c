/* template.c - see template.h. */
#include "inputs/template.h"

#include <string.h>

#include "base/text.h"

/* A prompt is open, then of each turn before: query, middle, answer, again; then the query and
 * close. */
static const struct {
    const char *name, *open, *middle, *again, *close;
    const char *separator; /* of the answer from what was before it */
} templates[SHEAF__TEMPLATES] = {
    [SHEAF__BASE] = { "base", "", NULL, NULL, "", "<unk>" },
    [SHEAF__CHAT] = { "chat", " [INST] ", " [/INST] ", " [INST] ", " [/INST] ", "[/INST]" },
    [SHEAF__VQA] = { "vqa", "Question: ", NULL, NULL, " Short answer:", " Short answer:" },
    [SHEAF__CHAT_OLD] = { "chat_old",
                          "Question: ", " Answer: ", "\nQuestion: ", " Answer:", " Answer:" },
};

sheaf_status *sheaf__template_find(sheaf__template *out, const char *name)
{
    const char *names[SHEAF__TEMPLATES];
    for (int i = 0; i < SHEAF__TEMPLATES; i++) {
        names[i] = templates[i].name;
        if (strcmp(name, names[i]) == 0) {
            *out = (sheaf__template)i;
            return NULL;
        }
    }
    sheaf_status *st = sheaf_fail(SHEAF_E_ARG, "prompt template");
    sheaf_expected(st, "base, chat, vqa or chat_old");
    sheaf_found(st, "'%s'", name);
    const char *near = sheaf__nearest(name, names, SHEAF__TEMPLATES);
    return near == NULL ? st : sheaf_try_this(st, "%s", near);
}

const char *sheaf__template_name(sheaf__template which)
{
    return templates[which].name;
}
bool sheaf__template_has_history(sheaf__template which)
{
    return templates[which].middle != NULL;
}

static void add(sheaf_text *text, const char *words)
{
    sheaf__text_bytes(text, words, strlen(words));
}

sheaf_status *sheaf__template_prompt(char **out, sheaf__template which, const sheaf__turn *history,
                                     int64_t turns, const char *query)
{
    sheaf_text text = { 0 };
    add(&text, templates[which].open);
    for (int64_t i = 0; i < turns && sheaf__template_has_history(which); i++) {
        add(&text, history[i].query);
        add(&text, templates[which].middle);
        add(&text, history[i].answer);
        add(&text, templates[which].again);
    }
    add(&text, query);
    add(&text, templates[which].close);
    return sheaf__text_take(out, &text);
}

/* ---- the answer ---- */

/* Bytes of the blank at `p` as Python's str.strip() counts them, or 0. */
static size_t blank(const char *p, size_t left)
{
    static const char *const wide[] = { "\xc2\x85", "\u00a0", "\u1680", "\u2000", "\u2001",
                                        "\u2002",   "\u2003", "\u2004", "\u2005", "\u2006",
                                        "\u2007",   "\u2008", "\u2009", "\u200a", "\u2028",
                                        "\u2029",   "\u202f", "\u205f", "\u3000" };
    if (left == 0)
        return 0;
    const unsigned char c = (unsigned char)*p;
    if (c == ' ' || (c >= 9 && c <= 13) || (c >= 0x1c && c <= 0x1f))
        return 1;
    for (size_t i = 0; i < sizeof wide / sizeof *wide; i++) {
        const size_t n = strlen(wide[i]);
        if (n <= left && memcmp(p, wide[i], n) == 0)
            return n;
    }
    return 0;
}

static size_t blank_before(const char *text, size_t end)
{
    for (size_t n = 1; n <= 3 && n <= end; n++)
        if (blank(text + end - n, n) == n)
            return n;
    return 0;
}

static void take_stripped(sheaf_text *text)
{
    size_t begin = 0, end = text->size;
    for (size_t n; (n = blank(text->at + begin, end - begin)) > 0;)
        begin += n;
    for (size_t n; end > begin && (n = blank_before(text->at, end)) > 0;)
        end -= n;
    memmove(text->at, text->at + begin, end - begin);
    text->size = end - begin;
    text->at[text->size] = '\0';
}

sheaf_status *sheaf__template_answer(char **out, sheaf__template which, const char *decoded)
{
    static const char eos[] = "</s>";
    const char *separator = templates[which].separator;
    sheaf_text text = { 0 };
    for (const char *p = decoded;;) { /* upstream removes the mark before it splits */
        const char *mark = strstr(p, eos);
        sheaf__text_bytes(&text, p, mark == NULL ? strlen(p) : (size_t)(mark - p));
        if (mark == NULL)
            break;
        p = mark + strlen(eos);
    }
    if (!text.failed && text.at != NULL) {
        const char *from = text.at;
        for (const char *at; (at = strstr(from, separator)) != NULL;)
            from = at + strlen(separator);
        text.size -= (size_t)(from - text.at);
        memmove(text.at, from, text.size + 1);
        take_stripped(&text);
    }
    return sheaf__text_take(out, &text);
}
