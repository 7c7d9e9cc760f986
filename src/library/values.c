/* values.c - a setting by its name, and text to its value and back. */
#include <errno.h>
#include <math.h>
#include <strings.h>

#include "base/base.h"
#include "library/settings.h"

const sheaf__setting *sheaf__setting_find(const sheaf__setting *options, const char *name)
{
    const sheaf__setting *found = NULL;
    for (const sheaf__setting *o = options; o->name != NULL && found == NULL; o++)
        if (strcmp(o->name, name) == 0)
            found = o;
    for (const sheaf__setting *o = options; o->name != NULL && found != NULL; o++)
        if (o->instead != NULL && strcmp(o->instead, name) == 0 && o->value == found->value)
            return o;
    return found;
}

void sheaf__settings_append(sheaf__setting *table, const sheaf__setting *rows)
{
    while (table->name != NULL)
        table++;
    do
        *table++ = *rows;
    while ((rows++)->name != NULL);
}

static sheaf_status *refuse(const char *text, const char *from)
{
    sheaf_status *st = sheaf_fail(SHEAF_E_ARG, "%s", from);
    return sheaf_found(st, "%s", *text == '\0' ? "nothing" : text);
}

/* "a whole number, at least 1", "a number above 0 and below 1" */
static sheaf_status *expect_number(sheaf_status *st, const sheaf__setting *o, const char *what)
{
    char range[96] = "";
    const char *low = o->above ? "above" : "at least", *high = o->below ? "below" : "at most";
    if (o->max != 0)
        snprintf(range, sizeof range, ", %s %.12g and %s %.12g", low, o->min, high, o->max);
    else
        snprintf(range, sizeof range, ", %s %.12g", low, o->min);
    sheaf_expected(st, "%s%s", what, range);
    return o->advice != NULL ? sheaf_try_this(st, "%s", o->advice) : st;
}

static bool in_range(const sheaf__setting *o, double value)
{
    if (o->above ? !(value > o->min) : !(value >= o->min))
        return false;
    return o->max == 0 || (o->below ? value < o->max : value <= o->max);
}

static sheaf_status *set_whole(const sheaf__setting *o, const char *text, const char *from)
{
    const bool is_int = (o->kind & SHEAF__IS_KIND) == SHEAF__IS_INT;
    char *end;
    errno = 0;
    const long long value = strtoll(text, &end, 10);
    const bool clean =
        *text != '\0' && (*text == '-' || (*text >= '0' && *text <= '9')) && *end == '\0';
    if (!clean || errno != 0 || !in_range(o, (double)value) ||
        (is_int && (value > INT32_MAX || value < INT32_MIN)))
        return expect_number(refuse(text, from), o, "a whole number");
    if (is_int)
        *(int *)o->value = (int)value;
    else
        *(int64_t *)o->value = value;
    return NULL;
}

static sheaf_status *set_seed(const sheaf__setting *o, const char *text, const char *from)
{
    char *end;
    errno = 0;
    const unsigned long long value = strtoull(text, &end, 10);
    if (!(*text >= '0' && *text <= '9') || *end != '\0' || errno != 0)
        return sheaf_expected(refuse(text, from), "a whole number, 0 to %" PRIu64, UINT64_MAX);
    *(uint64_t *)o->value = value;
    return NULL;
}

static sheaf_status *set_number(const sheaf__setting *o, const char *text, const char *from)
{
    char *end;
    const double value = strtod(text, &end);
    /* strtod also takes spaces, hexadecimal, "inf" and "nan" */
    const bool clean =
        *text != '\0' && *end == '\0' && strspn(text, "0123456789+-.eE") == strlen(text);
    if (!clean || !isfinite(value) || !in_range(o, value))
        return expect_number(refuse(text, from), o, "a number");
    *(double *)o->value = value == 0 && (o->kind & SHEAF__IS_ZERO) ? -1 : value;
    return NULL;
}

/* Numbers with a unit each, larger units first; one number without a unit is seconds. */
static sheaf_status *set_time(const sheaf__setting *o, const char *text, const char *from)
{
    static const char units[] = "dhms";
    static const double seconds[] = { 86400, 3600, 60, 1 };
    double sum = 0;
    bool sound = *text != '\0';
    for (const char *at = text, *last = NULL; *at != '\0' && sound;) {
        const size_t digits = strspn(at, "0123456789.");
        const bool ends = at[digits] == '\0';
        const char *unit = ends ? units + 3 : strchr(units, at[digits]);
        char *end;
        const double value = strtod(at, &end);
        sound = digits > 0 && end == at + digits && unit != NULL && (!ends || at == text) &&
                (last == NULL || unit > last);
        if (sound)
            sum += value * seconds[unit - units];
        last = unit;
        at += digits + !ends;
    }
    if (!sound || !in_range(o, sum))
        return sheaf_expected(refuse(text, from), "a time%s: seconds, or 90s, 15m, 2h30m, 1d12h",
                              o->above ? ", above 0" : "");
    *(double *)o->value = sum;
    return NULL;
}

static sheaf_status *set_flag(const sheaf__setting *o, const char *text, const char *from)
{
    static const char *const yes[] = { "true", "yes", "on", "1" }, *const no[] = { "false", "no",
                                                                                   "off", "0" };
    for (size_t i = 0; i < sizeof yes / sizeof *yes; i++)
        if (strcmp(text, yes[i]) == 0 || strcmp(text, no[i]) == 0) {
            *(bool *)o->value = strcmp(text, yes[i]) == 0;
            return NULL;
        }
    return sheaf_expected(refuse(text, from), "true or false");
}

/* The short names of dtypes, as other programs have them. */
static const char *whole_name(const char *text)
{
    static const char *const names[][2] = { { "bf16", "bfloat16" },
                                            { "fp16", "float16" },
                                            { "half", "float16" },
                                            { "fp32", "float32" },
                                            { "float", "float32" } };
    const char *name = strncmp(text, "torch.", 6) == 0 ? text + 6 : text;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcasecmp(names[i][0], name) == 0)
            return names[i][1];
    return name;
}

static sheaf_status *set_choice(const sheaf__setting *o, const char *text, const char *from)
{
    const char *names[32];
    int n = 0;
    for (const sheaf__choice *c = o->choices; c->name != NULL; c++) {
        if (strcmp(c->name, text) == 0 || strcmp(c->name, whole_name(text)) == 0) {
            *(int *)o->value = c->value;
            return NULL;
        }
        if (n < 32)
            names[n++] = c->name;
    }
    sheaf_text all = { 0 };
    for (int i = 0; i < n; i++)
        sheaf__text_add(&all, "%s%s", i == 0 ? "" : i == n - 1 ? " or " : ", ", names[i]);
    sheaf_status *st =
        sheaf_expected(refuse(text, from), "%s", all.failed ? "one of its choices" : all.at);
    sheaf__text_release(&all);
    const char *near = sheaf__nearest(text, names, n);
    return near != NULL        ? sheaf_try_this(st, "%s", near)
           : o->advice != NULL ? sheaf_try_this(st, "%s", o->advice)
                               : st;
}

static sheaf_status *add_text(const sheaf__setting *o, const char *text, const char *from)
{
    sheaf__texts *texts = o->value;
    if (*text == '\0' || !sheaf__is_utf8(text))
        return sheaf_expected(refuse(text, from), *text == '\0' ? "a text" : "a text in UTF-8");
    if (texts->n == SHEAF__MAX_TEXTS) {
        sheaf_status *st = sheaf_fail(SHEAF_E_ARG, "%s", from);
        sheaf_found(sheaf_expected(st, "at most %d of them", SHEAF__MAX_TEXTS), "one more, '%.60s'",
                    text);
        return o->advice == NULL ? st : sheaf_try_this(st, "%s", o->advice);
    }
    texts->at[texts->n++] = text;
    return NULL;
}

sheaf_status *sheaf__setting_set(const sheaf__setting *option, const char *text, const char *from)
{
    switch (option->kind & SHEAF__IS_KIND) {
    case SHEAF__IS_FLAG: return set_flag(option, text, from);
    case SHEAF__IS_INT:
    case SHEAF__IS_COUNT: return set_whole(option, text, from);
    case SHEAF__IS_SEED: return set_seed(option, text, from);
    case SHEAF__IS_NUMBER: return set_number(option, text, from);
    case SHEAF__IS_TIME: return set_time(option, text, from);
    case SHEAF__IS_CHOICE: return set_choice(option, text, from);
    case SHEAF__IS_TEXTS: return add_text(option, text, from);
    case SHEAF__IS_PATH:
        if (*text == '\0')
            return sheaf_expected(refuse(text, from), "a path");
        break;
    case SHEAF__IS_TEXT: /* a text with a default cannot be unset: settings do not hold what is
                            empty */
        if (*text == '\0' && option->min > 0)
            return sheaf_expected(refuse(text, from), "a text");
        if (!sheaf__is_utf8(
                text)) /* it would be in the way of everything that is written as JSON */
            return sheaf_expected(refuse(text, from), "a text in UTF-8");
        break;
    default: break;
    }
    *(const char **)option->value = text;
    return NULL;
}

/* With as few digits as give the same number back. */
static char *show_real(double value, const char *format, int most)
{
    char text[400];
    for (int digits = 0; digits <= most; digits++) {
        snprintf(text, sizeof text, format, digits, value);
        if (strtod(text, NULL) == value)
            break;
    }
    return strdup(text);
}

char *sheaf__setting_show(const sheaf__setting *option)
{
    char *text = NULL;
    switch (option->kind & SHEAF__IS_KIND) {
    case SHEAF__IS_FLAG: return strdup(*(const bool *)option->value ? "true" : "false");
    case SHEAF__IS_INT: return asprintf(&text, "%d", *(const int *)option->value) < 0 ? NULL : text;
    case SHEAF__IS_COUNT:
        return asprintf(&text, "%" PRId64, *(const int64_t *)option->value) < 0 ? NULL : text;
    case SHEAF__IS_SEED:
        return asprintf(&text, "%" PRIu64, *(const uint64_t *)option->value) < 0 ? NULL : text;
    case SHEAF__IS_TIME: return show_real(*(const double *)option->value, "%.*f", 30);
    case SHEAF__IS_NUMBER:
        if ((option->kind & SHEAF__IS_ZERO) && *(const double *)option->value < 0)
            return strdup("0");
        return show_real(*(const double *)option->value, "%.*g", 17);
    case SHEAF__IS_CHOICE:
        for (const sheaf__choice *c = option->choices; c->name != NULL; c++)
            if (c->value == *(const int *)option->value)
                return strdup(c->name);
        return strdup(""); /* a value without a name is not written down */
    case SHEAF__IS_TEXTS: return strdup("");
    default: break;
    }
    const char *value = *(const char *const *)option->value;
    return strdup(value == NULL ? "" : value);
}

bool sheaf__setting_fixes(const sheaf__setting *o)
{
    if ((o->kind & SHEAF__IS_FIXED) && (o->kind & SHEAF__IS_KIND) == SHEAF__IS_CHOICE)
        for (const sheaf__choice *c = o->choices; c->name != NULL; c++)
            if (c->value == *(const int *)o->value)
                return !c->equivalent;
    return (o->kind & SHEAF__IS_FIXED) != 0;
}

bool sheaf__setting_silent(const sheaf__setting *o)
{
    if (!(o->kind & SHEAF__IS_LATE))
        return false;
    switch (o->kind & SHEAF__IS_KIND) {
    case SHEAF__IS_FLAG: return !*(const bool *)o->value;
    case SHEAF__IS_CHOICE:
    case SHEAF__IS_INT: return *(const int *)o->value == 0;
    case SHEAF__IS_COUNT: return *(const int64_t *)o->value == 0;
    case SHEAF__IS_SEED: return *(const uint64_t *)o->value == 0;
    case SHEAF__IS_TIME:
    case SHEAF__IS_NUMBER: return *(const double *)o->value == 0;
    default: return false; /* an unset text shows nothing */
    }
}
