/* spelling.c - see spelling.h. */
#include "schema/spelling.h"

/* The rest of `name` behind the beginning `rule`, and the number in place of '#', as text; NULL:
 * the name does not begin so. */
static const char *behind(const char *rule, const char *name, const char **digits, int *n)
{
    const char *hash = strchr(rule, '#');
    const size_t before = hash == NULL ? strlen(rule) : (size_t)(hash - rule);
    if (strncmp(rule, name, before) != 0)
        return NULL;
    name += before;
    if (hash == NULL)
        return name;
    *digits = name;
    *n = (int)strspn(name, "0123456789");
    const size_t after = strlen(hash + 1);
    return *n > 0 && strncmp(name + *n, hash + 1, after) == 0 ? name + *n + after : NULL;
}

const sheaf__name_rule *sheaf__respell(char out[SHEAF__SPELLED], const sheaf__name_rule *rules,
                                       bool back, const char *name, int64_t number)
{
    char text[24];
    const int size = snprintf(text, sizeof text, "%" PRId64, number);
    for (; rules->one != NULL; rules++) {
        const char *digits = text, *from = back ? rules->other : rules->one,
                   *to = back ? rules->one : rules->other;
        int n = size;
        const char *rest = behind(from, name, &digits, &n), *hash = strchr(to, '#');
        if (rest == NULL)
            continue;
        const int length = hash == NULL ? snprintf(out, SHEAF__SPELLED, "%s%s", to, rest)
                                        : snprintf(out, SHEAF__SPELLED, "%.*s%.*s%s%s",
                                                   (int)(hash - to), to, n, digits, hash + 1, rest);
        if (length < SHEAF__SPELLED)
            return rules;
        break;
    }
    snprintf(out, SHEAF__SPELLED, "%s", name);
    return NULL;
}

const sheaf__name_rule *sheaf__respell_as(char out[SHEAF__SPELLED], const sheaf__name_rule *rules,
                                          unsigned read, const char *name)
{
    const sheaf__name_rule *last = NULL;
    bool was_read = false;
    for (int i = 0; rules[i].one != NULL && !was_read; i++) {
        const sheaf__name_rule alone[2] = { rules[i] };
        if (sheaf__respell(out, alone, true, name, 0) == NULL)
            continue;
        last = &rules[i];
        was_read = (read >> i & 1) != 0;
    }
    return last == NULL ? NULL : sheaf__respell(out, last, true, name, 0);
}

bool sheaf__is_published(const sheaf__name_rule *rule)
{
    for (const sheaf__name_rule *r = rule + 1; r->one != NULL; r++)
        if (strncmp(r->other, rule->other, strlen(r->other)) == 0)
            return false;
    return true;
}
