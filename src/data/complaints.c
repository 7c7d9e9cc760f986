/* complaints.c - see complaints.h. */
#include "data/complaints.h"

#include <stdarg.h>

#include "base/base.h"

static bool is_about_a_record(sheaf_code code)
{
    return code == SHEAF_E_DATA || code == SHEAF_E_FORMAT || code == SHEAF_E_UNSUPPORTED ||
           code == SHEAF_E_IO;
}

static void list(sheaf_text *text, const sheaf_status *st)
{
    sheaf__text_add(text, "%s%s", text->size > 0 ? "\n            " : "", sheaf_status_where(st));
    if (sheaf_status_expected(st)[0] != '\0')
        sheaf__text_add(text, ": expected %s", sheaf_status_expected(st));
    if (sheaf_status_found(st)[0] != '\0')
        sheaf__text_add(text, "%s found %s", sheaf_status_expected(st)[0] != '\0' ? "," : ":",
                        sheaf_status_found(st));
}

void sheaf__complain(sheaf__complaints *c, sheaf_status *st)
{
    if (st == NULL)
        return;
    if (!is_about_a_record(sheaf_status_code(st))) {
        c->fatal = sheaf__first_of(c->fatal, st);
        return;
    }
    if (c->count++ < SHEAF__COMPLAINTS_LISTED)
        list(&c->list, st);
    if (c->cure.size == 0)
        sheaf__text_add(&c->cure, "%s", sheaf_status_try(st));
    c->first = sheaf__first_of(c->first, st);
}

/* Adds the number of errors beyond the list. */
static void count_rest(sheaf__complaints *c)
{
    if (c->count > SHEAF__COMPLAINTS_LISTED)
        sheaf__text_add(&c->list, "\n            and %" PRId64 " more",
                        c->count - SHEAF__COMPLAINTS_LISTED);
}

/* A warning is one line: line breaks of the list become semicolons. */
static void warn_of_left_out(sheaf__complaints *c, const char *path, int64_t records)
{
    sheaf_text line = { 0 };
    count_rest(c);
    for (const char *at = c->list.failed ? NULL : c->list.at, *end; at != NULL; at = end) {
        end = strchr(at, '\n');
        sheaf__text_bytes(&line, at, end == NULL ? strlen(at) : (size_t)(end - at));
        if (end != NULL)
            sheaf__text_add(&line, "; ");
        end = end == NULL ? NULL : end + 1 + strspn(end + 1, " ");
    }
    sheaf__text_bytes(&line, "", 0);
    sheaf_warn(c->events,
               "%s: %" PRId64 " of %" PRId64 " records are bad and left out (`on-bad skip`): %s",
               path, c->count, records, line.at == NULL ? "(no memory to list them)" : line.at);
    sheaf__text_release(&line);
    c->left_out = c->count;
}

sheaf_status *sheaf__complaints_verdict(sheaf__complaints *c, const char *path, int64_t records)
{
    sheaf_status *st = NULL;
    if (c->fatal != NULL) {
        st = sheaf_in(c->fatal, "%s", path);
        c->fatal = NULL;
    } else if (c->skip && c->count > 0 && c->count < records) {
        warn_of_left_out(c, path, records);
    } else if (c->count == 1) {
        st = sheaf_in(c->first, "%s", path);
        c->first = NULL;
    } else if (c->count > 1) {
        count_rest(c);
        st = sheaf_fail(SHEAF_E_DATA, "%s: %" PRId64 " of %" PRId64 " records are bad", path,
                        c->count, records);
        sheaf_found(st, "%s", c->list.failed ? "(no memory to list them)" : c->list.at);
        const bool cured = c->cure.size > 0 && !c->cure.failed;
        sheaf_try_this(st, "%s%srepair these records or take them out: none is left out silently",
                       cured ? c->cure.at : "", cured ? "; " : "");
    }
    sheaf__complaints_release(c);
    return st;
}

void sheaf__complaints_release(sheaf__complaints *c)
{
    sheaf__text_release(&c->list);
    sheaf__text_release(&c->cure);
    sheaf_status_free(c->first);
    sheaf_status_free(c->fatal);
    *c = (sheaf__complaints){ .skip = c->skip, .events = c->events, .left_out = c->left_out };
}

sheaf_status *sheaf__try_path(sheaf_status *st, const char *before, const char *path,
                              const char *behind)
{
    sheaf_text word = { 0 };
    sheaf__text_word(&word, path);
    sheaf_try_this(st, "%s%s%s", before, word.at == NULL ? path : word.at, behind);
    sheaf__text_release(&word);
    return st;
}

sheaf_status *sheaf__bad_field(const char *name, const char *expected, const char *found, ...)
{
    sheaf_status *st = name == NULL ? sheaf_fail(SHEAF_E_DATA, "not a record")
                                    : sheaf_fail(SHEAF_E_DATA, "field '%s'", name);
    char text[512];
    va_list args;
    va_start(args, found);
    vsnprintf(text, sizeof text, found, args);
    va_end(args);
    return sheaf_found(sheaf_expected(st, "%s", expected), "%s", text);
}
