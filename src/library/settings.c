/* settings.c - settings as text: `key: value` lines, a small part of YAML.
 *
 *     # comment
 *     model: models/llama          (plain: to the end of the line or " #")
 *     lora-targets: '.*\.q_proj'   (single quotes: as it stands, '' is one quote)
 *
 * Keys are the names of flags; an underscore may stand for a dash. */

#include "library/settings.h"

#include "base/base.h"

bool sheaf__settings_given(const sheaf__settings *state, const sheaf__setting *options,
                           const char *name)
{
    const sheaf__setting *o = sheaf__setting_find(options, name);
    return o != NULL && state->given[o - options];
}

bool sheaf__settings_yields(const sheaf__settings *state, const sheaf__setting *options,
                            const char *name)
{
    const ptrdiff_t i = sheaf__setting_find(options, name) - options;
    return state->named_recipe && state->from_file[i] && !state->given[i];
}

bool sheaf__settings_named(const sheaf__settings *state, const sheaf__setting *options,
                           const char *name)
{
    const ptrdiff_t i = sheaf__setting_find(options, name) - options;
    return state->given[i] || state->from_file[i];
}

/* "`data`", "`model` and `data`", "`data` and `steps` (or `epochs`)"; a line of help for each. */
static void list_missing(sheaf_text *names, sheaf_text *help, const sheaf__setting *const *missing,
                         int n)
{
    for (int i = 0; i < n; i++) {
        const sheaf__setting *o = missing[i];
        sheaf__text_add(names, "%s`%s`", i == 0 ? "" : i + 1 == n ? " and " : ", ", o->name);
        if (n > 1 && o->instead != NULL)
            sheaf__text_add(names, " (or `%s`)", o->instead);
        if (n > 1)
            sheaf__text_add(help, "%s`%s`: ", i == 0 ? "" : "\n            ", o->name);
        sheaf__text_add(help, "%.*s", (int)strcspn(o->help, ";"), o->help);
    }
}

sheaf_status *sheaf__settings_required(const sheaf__settings *state, const sheaf__setting *options,
                                       bool needed_too)
{
    const unsigned kinds = SHEAF__IS_REQUIRED | (needed_too ? SHEAF__IS_NEEDED : 0);
    const sheaf__setting *missing[SHEAF__MAX_SETTINGS];
    int n = 0;
    for (const sheaf__setting *o = options; o->name != NULL; o++)
        if ((o->kind & kinds) && !sheaf__settings_named(state, options, o->name) &&
            (o->instead == NULL || !sheaf__settings_named(state, options, o->instead)))
            missing[n++] = o;
    if (n == 0)
        return NULL;
    sheaf_text names = { 0 }, help = { 0 };
    list_missing(&names, &help, missing, n);
    sheaf_status *st = sheaf_fail(SHEAF_E_ARG, "%s %s missing", names.failed ? "flags" : names.at,
                                  n == 1 ? "is" : "are");
    if (!help.failed)
        sheaf_expected(st, "%s", help.at);
    sheaf__text_release(&names);
    sheaf__text_release(&help);
    return st;
}

void sheaf__settings_release(sheaf__settings *state)
{
    for (int i = 0; i < state->nheld; i++)
        free(state->held[i]);
    *state = (sheaf__settings){ 0 };
}

/* Splits `line` in place into key and value; *key is NULL for an empty line. */
static sheaf_status *split_line(char **key, char **value, char *line, const char *from)
{
    *key = NULL;
    line += strspn(line, " \t");
    if (*line == '\0' || *line == '#' || strcmp(line, "---") == 0)
        return NULL;
    char *colon = strchr(line, ':');
    if (colon == NULL || colon == line || (colon[1] != '\0' && colon[1] != ' ' && colon[1] != '\t'))
        return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "%s", from), "key: value"), "%s",
                           line);
    char *end = colon;
    while (end > line && (end[-1] == ' ' || end[-1] == '\t'))
        end--;
    *end = '\0';
    char *v = colon + 1;
    v += strspn(v, " \t");
    *key = line;
    *value = v;
    if (*v != '\'') {
        char *comment = *v == '#' ? v : NULL;
        for (char *p = v; comment == NULL && *p != '\0'; p++)
            if (p[0] == '#' && (p[-1] == ' ' || p[-1] == '\t'))
                comment = p;
        end = comment != NULL ? comment : v + strlen(v);
        while (end > v && (end[-1] == ' ' || end[-1] == '\t'))
            end--;
        *end = '\0';
        if (*v == '[' && v[strlen(v) - 1] == ']')
            return sheaf_try_this(
                sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "%s: %s", from, line),
                                           "a list without brackets"),
                            "%s", v),
                "%s: %.*s", line, (int)strlen(v) - 2, v + 1);
        if (*v == '"' || *v == '[' || *v == '{' || *v == '|' || *v == '>')
            return sheaf_try_this(
                sheaf_found(
                    sheaf_expected(sheaf_fail(SHEAF_E_ARG, "%s: %s", from, line), "a plain value"),
                    "%s", v),
                "put it in single quotes: '...'");
        return NULL;
    }
    char *to = v;
    for (v++; *v != '\0'; v++) {
        if (v[0] == '\'' && v[1] != '\'')
            break;
        v += v[0] == '\'';
        *to++ = *v;
    }
    const char *rest = *v == '\'' ? v + 1 : NULL;
    const bool closed =
        rest != NULL && (rest[strspn(rest, " \t")] == '\0' || rest[strspn(rest, " \t")] == '#');
    *to = '\0';
    return closed ? NULL
                  : sheaf_expected(sheaf_fail(SHEAF_E_ARG, "%s: %s", from, line),
                                   rest == NULL ? "a closing single quote on the same line"
                                                : "nothing after a closing single quote");
}

/* For settings that sheaf stored itself. */
static sheaf_status *unknown_stored(const char *key, const char *from)
{
    sheaf_status *st = sheaf_fail(SHEAF_E_ARG, "%s: '%s'", from, key);
    sheaf_expected(st, "a setting that this sheaf knows, as runs write them down");
    return sheaf_try_this(st, "a newer sheaf: a later one may have written it");
}

static sheaf_status *unknown_key(const sheaf__setting *options, const char *key, const char *from)
{
    const char *names[SHEAF__MAX_SETTINGS];
    int n = 0;
    for (const sheaf__setting *x = options; x->name != NULL; x++)
        if (!(x->kind & (SHEAF__IS_HIDDEN | SHEAF__IS_UNSAVED)))
            names[n++] = x->name;
    sheaf_status *st = sheaf_fail(SHEAF_E_ARG, "%s: '%s'", from, key);
    const sheaf__setting *o = sheaf__setting_find(options, key);
    if (o != NULL && !(o->kind & SHEAF__IS_HIDDEN))
        return sheaf_try_this(sheaf_expected(st, "a setting of the run"),
                              "give `%s` on the command line", key);
    sheaf_expected(st, "the name of a flag, without dashes in front");
    if (sheaf__peer_advise(st, options, key, ""))
        return st;
    const char *near = sheaf__nearest(key, names, n);
    return near != NULL ? sheaf_try_this(st, "%s", near) : st;
}

/* The option `key` names; *off when it is the "no-" form of a flag. */
static const sheaf__setting *key_option(const sheaf__setting *options, char *key, bool *off)
{
    for (char *p = key; *p != '\0'; p++)
        if (*p == '_')
            *p = '-';
    *off = false;
    const sheaf__setting *o = sheaf__setting_find(options, key);
    if (o == NULL && strncmp(key, "no-", 3) == 0) {
        o = sheaf__setting_find(options, key + 3);
        *off = o != NULL && (o->kind & SHEAF__IS_KIND) == SHEAF__IS_FLAG;
        if (!*off)
            o = NULL;
    }
    return o != NULL && (o->kind & SHEAF__IS_UNSAVED) ? NULL : o;
}

/* A parsed line of a text. */
typedef struct line {
    char *value; /* NULL: no such line */
    int number;
    bool off; /* by the "no-" form of a flag */
} line;

/* Parses the lines of `text` in place, indexed by setting. `stored`: sheaf wrote it. */
static sheaf_status *read_lines(line of[SHEAF__MAX_SETTINGS], const sheaf__setting *options,
                                char *text, const char *name, bool stored)
{
    int number = 0;
    memset(of, 0, SHEAF__MAX_SETTINGS * sizeof *of);
    for (char *at = text, *next; at != NULL; at = next) {
        next = strchr(at, '\n');
        if (next != NULL)
            *next++ = '\0';
        at[strcspn(at, "\r")] = '\0';
        char from[4200], *key, *value;
        bool off;
        snprintf(from, sizeof from, "%s:%d", name, ++number);
        sheaf_status *st = split_line(&key, &value, at, from);
        if (st == NULL && key == NULL)
            continue;
        if (st != NULL)
            return st;
        const sheaf__setting *o = key_option(options, key, &off);
        if (o == NULL)
            return stored ? unknown_stored(key, from) : unknown_key(options, key, from);
        if (of[o - options].value != NULL)
            return sheaf_try_this(sheaf_fail(SHEAF_E_ARG, "%s: '%s'", from, key),
                                  "it stands twice; give it once");
        of[o - options] = (line){ value, number, off };
    }
    return NULL;
}

/* Sets the option to the line's value. */
static sheaf_status *set_line(const sheaf__setting *o, const line *l, const char *name)
{
    char from[4200];
    snprintf(from, sizeof from, "%s:%d: '%s%s'", name, l->number, l->off ? "no-" : "", o->name);
    sheaf_status *st = sheaf__setting_set(o, l->value, from);
    if (st == NULL && l->off)
        *(bool *)o->value = !*(bool *)o->value;
    return st;
}

sheaf_status *sheaf__settings_hold(sheaf__settings *state, char *text)
{
    if (state->nheld == (int)(sizeof state->held / sizeof *state->held)) {
        free(text);
        return sheaf_fail(SHEAF_E_ARG, "more settings than sheaf holds at once");
    }
    state->held[state->nheld++] = text;
    return NULL;
}

sheaf_status *sheaf__settings_read(sheaf__settings *state, const sheaf__setting *options,
                                   char *text, const char *name)
{
    line of[SHEAF__MAX_SETTINGS];
    const bool marked = strncmp(text, "\xef\xbb\xbf", 3) == 0; /* by an editor, as UTF-8 */
    sheaf_status *st = sheaf__settings_hold(state, text);
    TRY(st, read_lines(of, options, text + (marked ? 3 : 0), name, false));
    for (int i = 0; options[i].name != NULL && st == NULL; i++) {
        sheaf__setting o = options[i];
        union {
            int64_t i;
            double d;
            const char *s;
        } unused;
        if (of[i].value == NULL)
            continue;
        if (state->given[i]) /* a flag wins, but the line must be valid */
            o.value = &unused;
        st = set_line(&o, &of[i], name);
        state->from_file[i] |= !state->given[i];
    }
    return st;
}

static bool plain_in_yaml(const char *value)
{
    return value[strcspn(value, "#'\"[]{}|>&*!%@`?\\")] == '\0' &&
           strchr(" \t-", value[0]) == NULL && strstr(value, ": ") == NULL &&
           strchr(" \t:", value[strlen(value) - 1]) == NULL;
}

/* `name: value`, quoted if sheaf__settings_read() requires it. */
static void add_line(sheaf_text *text, const char *name, const char *value)
{
    if (plain_in_yaml(value)) {
        sheaf__text_add(text, "%s: %s\n", name, value);
        return;
    }
    sheaf__text_add(text, "%s: '", name);
    for (const char *p = value; *p != '\0'; p++)
        *p == '\'' ? sheaf__text_bytes(text, "''", 2) : sheaf__text_bytes(text, p, 1);
    sheaf__text_add(text, "'\n");
}

sheaf_status *sheaf__settings_text(char **out, const sheaf__setting *options, bool only_fixed)
{
    sheaf_text text = { 0 };
    sheaf_status *st = NULL;
    for (const sheaf__setting *o = options; o->name != NULL && st == NULL; o++) {
        if ((o->kind & SHEAF__IS_UNSAVED) || (only_fixed && !sheaf__setting_fixes(o)) ||
            sheaf__setting_silent(o))
            continue;
        char *value = sheaf__setting_show(o);
        if (value == NULL)
            text.failed = true;
        else if (strpbrk(value, "\n\r") != NULL)
            st = sheaf_expected(sheaf_fail(SHEAF_E_ARG, "`%s`", o->name), "one line of text");
        else if (*value != '\0')
            add_line(&text, o->name, value);
        free(value);
    }
    sheaf__text_bytes(&text, "", 0);
    if (st == NULL)
        return sheaf__text_take(out, &text);
    sheaf__text_release(&text);
    return st;
}

static bool is_equivalent(const sheaf__setting *o, const char *name)
{
    if ((o->kind & SHEAF__IS_KIND) == SHEAF__IS_CHOICE)
        for (const sheaf__choice *c = o->choices; c->name != NULL; c++)
            if (strcmp(c->name, name) == 0)
                return c->equivalent;
    return false;
}

/* Name of a choice's value, also of one that is not stored; else "nothing". */
static const char *choice_now(const sheaf__setting *o)
{
    if ((o->kind & SHEAF__IS_KIND) == SHEAF__IS_CHOICE)
        for (const sheaf__choice *c = o->choices; c->name != NULL; c++)
            if (c->value == *(const int *)o->value)
                return c->name;
    return "nothing";
}

static sheaf_status *refuse_change(const sheaf__setting *o, const char *stored)
{
    const bool silent = sheaf__setting_silent(o) || !sheaf__setting_fixes(o);
    char *mine = silent ? strdup("") : sheaf__setting_show(o);
    if (mine == NULL)
        return sheaf_fail(SHEAF_E_MEMORY, "`%s`", o->name);
    sheaf_status *st = NULL;
    if (is_equivalent(o, stored))
        stored = "";
    if (strcmp(mine, stored) != 0) {
        st = sheaf_fail(SHEAF_E_ARG, "`%s` cannot change when a run is resumed", o->name);
        const char *unset =
            (o->kind & SHEAF__IS_KIND) == SHEAF__IS_CHOICE ? o->choices[0].name : "nothing";
        sheaf_expected(st, "%s, as the run began", *stored == '\0' ? unset : stored);
        sheaf_found(st, "%s", *mine == '\0' ? choice_now(o) : mine);
        sheaf_try_this(st, "leave `%s` out, or begin a new run in another `out`", o->name);
    }
    free(mine);
    return st;
}

/* The lines that sheaf stored. */
static sheaf_status *read_stored(line of[SHEAF__MAX_SETTINGS], sheaf__settings *state,
                                 const sheaf__setting *options, const char *text, const char *name)
{
    char *copy = strdup(text);
    if (copy == NULL)
        return sheaf__no_memory("settings of the run");
    sheaf_status *st = sheaf__settings_hold(state, copy);
    return TRY(st, read_lines(of, options, copy, name, true));
}

sheaf_status *sheaf__settings_resume_rest(sheaf__settings *state, const sheaf__setting *options,
                                          const char *text, const char *name)
{
    line of[SHEAF__MAX_SETTINGS];
    sheaf_status *st = read_stored(of, state, options, text, name);
    for (int i = 0; options[i].name != NULL && st == NULL; i++)
        if (of[i].value != NULL && !(options[i].kind & SHEAF__IS_FIXED)) {
            st = set_line(&options[i], &of[i], name);
            state->from_file[i] = true;
        }
    return st;
}

/* Is the run's own value lower than this one of a named recipe, and so what little data made of it?
 * A flag that is off has no line. */
static bool lowered(const sheaf__settings *state, const sheaf__setting *o, const line *l)
{
    const unsigned kind = o->kind & SHEAF__IS_KIND;
    if (!(o->kind & SHEAF__IS_YIELDING) || !state->named_recipe)
        return false;
    if (kind == SHEAF__IS_FLAG || l->value == NULL)
        return l->value == NULL && kind == SHEAF__IS_FLAG && *(bool *)o->value;
    return strtod(l->value, NULL) <
           (kind == SHEAF__IS_NUMBER ? *(double *)o->value : (double)*(int64_t *)o->value);
}

sheaf_status *sheaf__settings_resume(sheaf__settings *state, const sheaf__setting *options,
                                     const char *text, const char *name)
{
    line of[SHEAF__MAX_SETTINGS];
    state->resumed = true;
    sheaf_status *st = read_stored(of, state, options, text, name);
    for (int i = 0; options[i].name != NULL && st == NULL; i++) {
        const sheaf__setting *o = &options[i];
        const bool named = state->given[i] || state->from_file[i],
                   own = named && !state->given[i] && lowered(state, o, &of[i]);
        if (own && of[i].value == NULL) {
            *(bool *)o->value = false;
        } else if ((own || !named) && of[i].value != NULL) {
            st = set_line(o, &of[i], name);
            state->from_file[i] = true;
        } else if (named && (o->kind & SHEAF__IS_SILENT) && of[i].value == NULL)
            state->unnamed[i] = true;
        else if (named &&
                 (o->kind &
                  SHEAF__IS_FIXED)) /* a setting that the run began without was not given */
            st = refuse_change(o, of[i].value == NULL ? "" : of[i].value);
    }
    return st;
}

sheaf_status *sheaf__settings_unnamed(const sheaf__settings *state, const sheaf__setting *options,
                                      const char *name, const char *means)
{
    const sheaf__setting *o = sheaf__setting_find(options, name);
    return state->unnamed[o - options] ? refuse_change(o, means) : NULL;
}
