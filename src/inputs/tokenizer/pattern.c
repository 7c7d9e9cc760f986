/* pattern.c - see pattern.h: any pattern, through PCRE2. */
#include "pattern.h"

#include "base/base.h"
#include "base/regex.h"

enum {
    MATCH_STEPS = 50000000, /* of one match: a hostile pattern stops here */
    STACK_LEAST = 32 << 10,
    STACK_MOST = 4 << 20,
};

struct sheaf__pattern {
    char *text;
    pcre2_code *code;
    sheaf__scanner *scanner;
};

struct sheaf__matching {
    pcre2_match_data *data;
    pcre2_match_context *context;
    pcre2_jit_stack *stack;
    char *shown; /* a text with stand-ins for some characters */
    int64_t capacity;
};

void sheaf__matching_free(sheaf__matching *m)
{
    if (m == NULL)
        return;
    pcre2_match_data_free(m->data);
    pcre2_match_context_free(m->context);
    pcre2_jit_stack_free(m->stack);
    free(m->shown);
    free(m);
}

static sheaf__matching *matching_new(void)
{
    sheaf__matching *m = calloc(1, sizeof *m);
    if (m == NULL)
        return NULL;
    m->data = pcre2_match_data_create(1, NULL);
    m->context = pcre2_match_context_create(NULL);
    m->stack = pcre2_jit_stack_create(STACK_LEAST, STACK_MOST, NULL);
    if (m->data == NULL || m->context == NULL) {
        sheaf__matching_free(m);
        return NULL;
    }
    pcre2_set_match_limit(m->context, MATCH_STEPS);
    if (m->stack != NULL) /* it is NULL too where PCRE2 has no compiler */
        pcre2_jit_stack_assign(m->context, NULL, m->stack);
    return m;
}

static sheaf_status *compile(sheaf__pattern *p, bool literal)
{
    int code;
    size_t at;
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    if (context == NULL)
        return sheaf__no_memory("pattern");
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    /* As Oniguruma: ^ and $ are about lines. */
    const uint32_t how = PCRE2_UTF | (literal ? PCRE2_LITERAL : PCRE2_UCP | PCRE2_MULTILINE);
    p->code = pcre2_compile((PCRE2_SPTR)p->text, PCRE2_ZERO_TERMINATED, how, &code, &at, context);
    pcre2_compile_context_free(context);
    if (p->code != NULL) {
        pcre2_jit_compile(p->code, PCRE2_JIT_COMPLETE); /* on failure matching is only slower */
        return NULL;
    }
    if (sheaf__regex_starved(code))
        return sheaf__no_memory("pattern");
    PCRE2_UCHAR message[128] = "";
    pcre2_get_error_message(code, message, sizeof message);
    sheaf_status *st = sheaf_fail(SHEAF_E_FORMAT, "pattern '%.200s'", p->text);
    return sheaf_found(sheaf_expected(st, "a regular expression"), "%s, at byte %zu",
                       (char *)message, at);
}

sheaf_status *sheaf__pattern_open(sheaf__pattern **out, const char *pattern, bool literal)
{
    sheaf__pattern *p = calloc(1, sizeof *p);
    if (p == NULL)
        return sheaf__no_memory("pattern");
    p->text = strdup(pattern);
    sheaf_status *st = p->text == NULL ? sheaf__no_memory("pattern") : NULL;
    if (!literal)
        TRY(st, sheaf__scanner_find(&p->scanner, p->text));
    if (p->scanner == NULL && !literal)
        TRY(st, sheaf__oniguruma_check(p->text));
    if (p->scanner == NULL)
        TRY(st, compile(p, literal));
    if (st != NULL)
        sheaf__pattern_close(p);
    else
        *out = p;
    return st;
}

void sheaf__pattern_close(sheaf__pattern *p)
{
    if (p == NULL)
        return;
    pcre2_code_free(p->code);
    free(p->scanner);
    free(p->text);
    free(p);
}

const sheaf__scanner *sheaf__pattern_scanner(const sheaf__pattern *p)
{
    return p->scanner;
}

const char *sheaf__pattern_text(const sheaf__pattern *p)
{
    return p->text;
}

/* The text with stand-ins for characters that PCRE2 may not know; most texts have none. */
static sheaf_status *begin_matches(sheaf__matches *m)
{
    if (*m->matching == NULL && (*m->matching = matching_new()) == NULL)
        return sheaf__no_memory("pattern");
    m->started = true;
    m->shown = m->text;
    for (size_t at = 0, n; at < m->size; at += n) {
        n = sheaf__utf8_ascii(m->text + at, m->size - at);
        if (n > 0)
            continue;
        const uint32_t code = sheaf__unicode_take(m->text + at, m->size - at, &n),
                       other = n < 3 ? code : sheaf__unicode_stand_in(code);
        if (other == code)
            continue;
        if (m->shown == m->text) {
            if (!SHEAF_GROW(&(*m->matching)->shown, &(*m->matching)->capacity, (int64_t)m->size))
                return sheaf__no_memory("pattern");
            memcpy((*m->matching)->shown, m->text, m->size);
            m->shown = (*m->matching)->shown;
        }
        sheaf__unicode_put((*m->matching)->shown + at, other);
    }
    return NULL;
}

static sheaf_status *search(sheaf__matches *m, bool *found, size_t *begin, size_t *end)
{
    const int n = pcre2_match(m->pattern->code, (PCRE2_SPTR)m->shown, m->size, m->at,
                              PCRE2_NO_UTF_CHECK, (*m->matching)->data, (*m->matching)->context);
    *found = n >= 0;
    if (n < 0 && n != PCRE2_ERROR_NOMATCH) {
        PCRE2_UCHAR message[128] = "";
        pcre2_get_error_message(n, message, sizeof message);
        sheaf_status *st = sheaf_fail(sheaf__regex_starved(n) ? SHEAF_E_MEMORY : SHEAF_E_DATA,
                                      "pattern '%.200s'", m->pattern->text);
        return sheaf_found(sheaf_expected(st, "a match, or none"), "%s", (char *)message);
    }
    if (*found) {
        const size_t *span = pcre2_get_ovector_pointer((*m->matching)->data);
        *begin = span[0] < span[1] ? span[0] : span[1]; /* \K can turn them round */
        *end = span[1];
    }
    return NULL;
}

sheaf_status *sheaf__matches_next(sheaf__matches *m, bool *found, size_t *begin, size_t *end)
{
    if (m->pattern->scanner != NULL) {
        *found = m->at < m->size;
        *begin = m->at;
        if (*found)
            *end = m->at = sheaf__scanner_next(m->pattern->scanner, m->text, m->size, m->at);
        return NULL;
    }
    sheaf_status *st = m->started ? NULL : begin_matches(m);
    if (st != NULL)
        return st;
    for (;;) {
        *found = false;
        if (m->at > m->size)
            return NULL;
        st = search(m, found, begin, end);
        if (st != NULL || !*found)
            return st;
        /* No empty match where the last one ended: from the next character on. */
        if (*begin == *end && m->any && m->last_end == *end) {
            size_t length = 1;
            if (m->at < m->size)
                sheaf__unicode_take(m->text + m->at, m->size - m->at, &length);
            m->at += length;
            continue;
        }
        m->at = m->last_end = *end;
        m->any = true;
        return NULL;
    }
}
