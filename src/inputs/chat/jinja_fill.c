/* jinja_fill.c - '{} {a.b[0]!r:>5}'.format(...), as Python has it. */
#include "base/base.h"
#include "inputs/chat/jinja_core.h"

typedef struct filler {
    sheaf__j *j;
    const sheaf__jarguments *args;
    int64_t next; /* of fields without a name */
    bool named;   /* a field had a number */
} filler;

static sheaf__jvalue argument_of(filler *f, sheaf__jtext name)
{
    int64_t at = 0;
    if (name.size > 0 && (*name.at < '0' || *name.at > '9')) {
        const sheaf__jvalue *v =
            sheaf__j_get(f->j, &f->args->named, sheaf__j_text(name.at, name.size));
        if (v == NULL)
            sheaf__j_raise(f->j, "KeyError: '%.*s'", (int)name.size, name.at);
        return *v;
    }
    if (name.size > 0 ? f->next > 0 : f->named)
        sheaf__j_raise(f->j, "cannot switch between manual field specification and automatic "
                             "field numbering");
    if (name.size > 0)
        f->named = true;
    if (name.size > 0 &&
        sheaf__j_read_digits(f->j, &at, name.at, name.at + name.size) < name.at + name.size)
        sheaf__j_raise(f->j, "KeyError: '%.*s'", (int)name.size, name.at);
    if (name.size == 0)
        at = f->next++;
    if (at >= (int64_t)f->args->at.count)
        sheaf__j_raise(f->j, "Replacement index %" PRId64 " out of range for positional args tuple",
                       at);
    return f->args->at.at[at];
}

/* "a.b[0]" */
static sheaf__jvalue value_of(filler *f, sheaf__jtext name)
{
    const char *const end = name.at + name.size, *p = name.at;
    while (p < end && *p != '.' && *p != '[')
        p++;
    sheaf__jvalue v = argument_of(f, (sheaf__jtext){ name.at, (size_t)(p - name.at) });
    while (p < end) {
        const char *from = p + 1, *to = from;
        const bool entry = *p == '[';
        if (!entry && *p != '.')
            sheaf__j_raise(f->j, "Only '.' or '[' may follow ']' in format field specifier");
        while (to < end && (entry ? *to != ']' : *to != '.' && *to != '['))
            to++;
        if (to == from || (entry && to == end))
            sheaf__j_raise(f->j, "Empty attribute in format string");
        const sheaf__jtext part = { from, (size_t)(to - from) };
        int64_t at = 0;
        if (!entry)
            v = sheaf__j_member(f->j, v, part);
        else if (*from >= '0' && *from <= '9' && sheaf__j_read_digits(f->j, &at, from, to) == to)
            v = sheaf__j_item(f->j, v, sheaf__j_int(at));
        else
            v = sheaf__j_item(f->j, v, sheaf__j_text(part.at, part.size));
        p = to + entry;
    }
    return v;
}

static void fill_in(filler *f, sheaf__jbuffer *b, sheaf__jtext format, int depth);

/* From behind "{" on; returns what stands behind "}". */
static const char *put_field(filler *f, sheaf__jbuffer *b, const char *p, const char *end,
                             int depth)
{
    const char *name = p, *const begin = p;
    int open = 1;
    char how = '\0';
    sheaf__jbuffer specification = { 0 };
    if (depth == 2)
        sheaf__j_raise(f->j, "Max string recursion exceeded");
    for (bool brackets = false; p < end && (brackets || strchr("!:}{", *p) == NULL); p++)
        brackets = *p == '[' || (brackets && *p != ']');
    if (p < end && *p == '{')
        sheaf__j_raise(f->j, "unexpected '{' in field name");
    const sheaf__jvalue v =
        p < end ? value_of(f, (sheaf__jtext){ begin, (size_t)(p - begin) }) : sheaf__j_none();
    if (p < end && *p == '!') {
        how = p + 1 < end ? p[1] : '\0';
        p += 2;
        if (how == '\0' || strchr("sra", how) == NULL || p >= end || (*p != ':' && *p != '}'))
            sheaf__j_raise(f->j, "expected ':' after conversion specifier");
    }
    if (p < end && *p == ':') {
        for (name = ++p; p < end && (open += (*p == '{') - (*p == '}')) > 0;)
            p++;
        fill_in(f, &specification, (sheaf__jtext){ name, (size_t)(p - name) }, depth + 1);
    }
    if (p >= end)
        sheaf__j_raise(f->j, "expected '}' before end of string");
    const sheaf__jtext text = how == '\0' ? SHEAF__J_WORD("") : sheaf__j_converted(f->j, v, how);
    sheaf__j_put_formatted(f->j, b, how == '\0' ? v : sheaf__j_text(text.at, text.size),
                           sheaf__j_buffer_text(&specification).u.text);
    return p + 1;
}

static void fill_in(filler *f, sheaf__jbuffer *b, sheaf__jtext format, int depth)
{
    const char *p = format.at, *const end = format.at + format.size;
    while (p < end) {
        const char *from = p;
        while (p < end && *p != '{' && *p != '}')
            p++;
        sheaf__j_put(f->j, b, from, (size_t)(p - from));
        if (p == end)
            return;
        sheaf__j_work(f->j, 1);
        if (p + 1 < end && p[1] == *p) { /* twice: the letter itself */
            sheaf__j_put(f->j, b, p, 1);
            p += 2;
        } else if (*p == '}' || p + 1 == end) {
            sheaf__j_raise(f->j, "Single '%c' encountered in format string", *p);
        } else {
            p = put_field(f, b, p + 1, end, depth);
        }
    }
}

sheaf__jvalue sheaf__j_fill_in(sheaf__j *j, sheaf__jtext format, const sheaf__jarguments *args)
{
    sheaf__jbuffer b = { 0 };
    filler f = { .j = j, .args = args };
    fill_in(&f, &b, format, 0);
    return sheaf__j_buffer_text(&b);
}
