/* pattern.c - see pattern.h. */
#include "train/pattern.h"

#include "base/base.h"

enum { MOST_DIGITS = 9 };

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* A number of up to MOST_DIGITS digits at *at, which moves behind it; -1 when there is none. */
static int64_t number(const char **at)
{
    int64_t n = 0;
    const char *p = *at;
    for (; is_digit(*p); p++) {
        if (p - *at == MOST_DIGITS)
            return -1;
        n = n * 10 + (*p - '0');
    }
    if (p == *at)
        return -1;
    *at = p;
    return n;
}

/* One "5" or "5..7" of a {...}; *at moves behind it. */
static bool range(const char **at, int64_t *first, int64_t *last)
{
    *first = *last = number(at);
    if (*first >= 0 && strncmp(*at, "..", 2) == 0) {
        *at += 2;
        *last = number(at);
    }
    return *first >= 0 && *last >= *first;
}

sheaf_status *sheaf__pattern_check(const char *pattern)
{
    bool sound = *pattern != '\0';
    for (const char *p = pattern; *p != '\0' && sound; p++) {
        if (*p != '{') {
            sound = *p != '}';
            continue;
        }
        int64_t first, last;
        do {
            p++;
            sound = range(&p, &first, &last) && (*p == ',' || *p == '}');
        } while (sound && *p == ',');
        if (!sound)
            break;
    }
    if (sound)
        return NULL;
    sheaf_status *st = sheaf_fail(SHEAF_E_ARG, "pattern '%s'", pattern);
    sheaf_expected(st, "letters, * and ?, and numbers as {46..54} or {0,2,5..7}");
    return *pattern == '\0' ? sheaf_found(st, "nothing between two commas") : st;
}

/* Is n in the {...} that begins at `set`? */
static bool holds(const char *set, int64_t n)
{
    int64_t first, last;
    bool found = false;
    do {
        set++;
        if (!range(&set, &first, &last))
            return false;
        found = found || (n >= first && n <= last);
    } while (*set == ',');
    return found;
}

/* One item of the pattern that is no star, at *p, with what stands at *s; both move behind it. */
static bool step(const char **p, const char **s, const char *name, bool any_number)
{
    if (**p == '{') {
        const char *digits = *s;
        if (digits > name && is_digit(digits[-1]))
            return false;
        const int64_t n = number(s);
        if (n < 0 || (!any_number && !holds(*p, n)))
            return false;
        *p = strchr(*p, '}') + 1;
        return true;
    }
    if (**s == '\0' || (**p != '?' && **p != **s))
        return false;
    (*p)++;
    (*s)++;
    return true;
}

/* What follows the last star is tried at each later place: earlier stars need no second look. */
bool sheaf__pattern_match(const char *p, const char *name, bool any_number)
{
    const char *after_star = NULL, *retry = NULL, *s = name;
    while (*s != '\0' || *p != '\0') {
        if (*p == '*') {
            after_star = ++p;
            retry = s;
            continue;
        }
        if (*p != '\0' && step(&p, &s, name, any_number))
            continue;
        if (after_star == NULL || *retry == '\0')
            return false;
        p = after_star;
        s = ++retry;
    }
    return true;
}

size_t sheaf__pattern_length(const char *list)
{
    size_t n = 0;
    for (bool inside = false; list[n] != '\0' && (inside || list[n] != ','); n++)
        inside = list[n] == '{' || (inside && list[n] != '}');
    return n;
}
