/* status.c - see sheaf/status.h. */
#include "base/status.h"

#include <stdarg.h>

#include "base/base.h"

enum { WHERE, EXPECTED, FOUND, REMEDY, LINES };

struct sheaf_status {
    sheaf_code code;
    int error;         /* of the operating system, or 0 */
    char *line[LINES]; /* owned; NULL reads as "" */
};

/* Returned when not even a status can be allocated; never written, never freed. */
static struct sheaf_status no_memory = { SHEAF_E_MEMORY, 0, { "out of memory", 0, 0, 0 } };

static char *format(const char *fmt, va_list args)
{
    char *text = NULL;
    return vasprintf(&text, fmt, args) < 0 ? NULL : text;
}

static sheaf_status *set_line(sheaf_status *st, int line, char *text)
{
    if (st == NULL || st == &no_memory || text == NULL) {
        free(text);
        return st;
    }
    free(st->line[line]);
    st->line[line] = text;
    return st;
}

sheaf_status *sheaf_fail(sheaf_code code, const char *where, ...)
{
    sheaf_status *st = calloc(1, sizeof *st);
    if (st == NULL)
        return &no_memory;
    st->code = code;
    va_list args;
    va_start(args, where);
    set_line(st, WHERE, format(where, args));
    va_end(args);
    return st;
}

#define LINE_SETTER(name, line)                                                                    \
    sheaf_status *name(sheaf_status *st, const char *fmt, ...)                                     \
    {                                                                                              \
        va_list args;                                                                              \
        va_start(args, fmt);                                                                       \
        char *text = format(fmt, args);                                                            \
        va_end(args);                                                                              \
        return set_line(st, line, text);                                                           \
    }
LINE_SETTER(sheaf_expected, EXPECTED)
LINE_SETTER(sheaf_found, FOUND)
LINE_SETTER(sheaf_try_this, REMEDY)

sheaf_status *sheaf__found_errno(sheaf_status *st, int error)
{
    if (st != NULL && st != &no_memory)
        st->error = error;
    return sheaf_found(st, "%s", strerror(error));
}

sheaf_status *sheaf_in(sheaf_status *st, const char *fmt, ...)
{
    if (st == NULL || st == &no_memory)
        return st;
    va_list args;
    va_start(args, fmt);
    char *before = format(fmt, args);
    va_end(args);
    char *joined = NULL;
    if (before != NULL && asprintf(&joined, "%s: %s", before, sheaf_status_where(st)) >= 0)
        set_line(st, WHERE, joined);
    free(before);
    return st;
}

char *sheaf__replaced(const char *text, const char *from, const char *to)
{
    const size_t old = strlen(from), new = strlen(to);
    size_t size = strlen(text) + 1;
    for (const char *at = text; (at = strstr(at, from)) != NULL; at += old)
        size += new;
    char *out = malloc(size), *end = out;
    for (const char *at; out != NULL && (at = strstr(text, from)) != NULL; text = at + old) {
        end = mempcpy(end, text, (size_t)(at - text));
        end = mempcpy(end, to, new);
    }
    if (out != NULL)
        strcpy(end, text);
    return out;
}

void sheaf__status_replace(sheaf_status *st, const char *from, const char *to)
{
    for (int i = 0; st != NULL && st != &no_memory && i < LINES; i++)
        if (st->line[i] != NULL)
            set_line(st, i, sheaf__replaced(st->line[i], from, to));
}

sheaf_status *sheaf__status_spell(sheaf_status *st, sheaf__is_key *is_key)
{
    for (int i = 0; st != NULL && st != &no_memory && i < LINES; i++)
        if (st->line[i] != NULL)
            set_line(st, i, sheaf__spell_fields(st->line[i], is_key));
    return st;
}

sheaf_status *sheaf_status_copy(const sheaf_status *st)
{
    if (st == NULL || st == &no_memory)
        return (sheaf_status *)st;
    sheaf_status *copy = calloc(1, sizeof *copy);
    if (copy == NULL)
        return &no_memory;
    copy->code = st->code;
    copy->error = st->error;
    for (int i = 0; i < LINES; i++)
        copy->line[i] = st->line[i] == NULL ? NULL : strdup(st->line[i]);
    return copy;
}

static const char *line_of(const sheaf_status *st, int line)
{
    return st == NULL || st->line[line] == NULL ? "" : st->line[line];
}

/* A call that runs out of memory can often report only its place: the reason is added here, without
 * memory. */
static const char *found_of(const sheaf_status *st)
{
    const char *found = line_of(st, FOUND);
    const bool silent = st != NULL && st->code == SHEAF_E_MEMORY && *found == '\0' &&
                        strstr(line_of(st, WHERE), "memory") == NULL;
    return silent ? "out of memory" : found;
}

sheaf_code sheaf_status_code(const sheaf_status *st)
{
    return st->code;
}
int sheaf_status_errno(const sheaf_status *st)
{
    return st->error;
}
const char *sheaf_status_where(const sheaf_status *st)
{
    return line_of(st, WHERE);
}
const char *sheaf_status_expected(const sheaf_status *st)
{
    return line_of(st, EXPECTED);
}
const char *sheaf_status_found(const sheaf_status *st)
{
    return found_of(st);
}
const char *sheaf_status_try(const sheaf_status *st)
{
    return line_of(st, REMEDY);
}

void sheaf_status_free(sheaf_status *st)
{
    if (st == NULL || st == &no_memory)
        return;
    for (int i = 0; i < LINES; i++)
        free(st->line[i]);
    free(st);
}
