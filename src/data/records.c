/* records.c - see records.h. What is common to all forms: storage, complaints. */
#include "data/records.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "data/records_read.h"

/* ---- complaints ---- */

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
        sheaf_status_free(c->fatal);
        c->fatal = st;
        return;
    }
    if (c->count++ < SHEAF__COMPLAINTS_LISTED)
        list(&c->list, st);
    if (c->first == NULL)
        c->first = st;
    else
        sheaf_status_free(st);
}

sheaf_status *sheaf__complaints_verdict(sheaf__complaints *c, const char *path, int64_t records)
{
    sheaf_status *st = NULL;
    if (c->fatal != NULL) {
        st = sheaf_in(c->fatal, "%s", path);
        c->fatal = NULL;
    } else if (c->count == 1) {
        st = sheaf_in(c->first, "%s", path);
        c->first = NULL;
    } else if (c->count > 1) {
        if (c->count > SHEAF__COMPLAINTS_LISTED)
            sheaf__text_add(&c->list, "\n            and %" PRId64 " more",
                            c->count - SHEAF__COMPLAINTS_LISTED);
        st = sheaf_fail(SHEAF_E_DATA, "%s: %" PRId64 " of %" PRId64 " records are bad", path,
                        c->count, records);
        sheaf_found(st, "%s", c->list.failed ? "(no memory to list them)" : c->list.at);
        sheaf_try_this(st, "repair these records or take them out: none is left out silently");
    }
    sheaf__complaints_release(c);
    return st;
}

void sheaf__complaints_release(sheaf__complaints *c)
{
    sheaf__text_release(&c->list);
    sheaf_status_free(c->first);
    sheaf_status_free(c->fatal);
    *c = (sheaf__complaints){ 0 };
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

bool sheaf__is_blank(const char *text)
{
    return text[strspn(text, " \t\n\v\f\r")] == '\0';
}

/* ---- storage ---- */

static sheaf_status *no_memory(const sheaf__records *r)
{
    return sheaf_found(sheaf_fail(SHEAF_E_MEMORY, "no memory for the data set"),
                       "%" PRId64 " records so far", r->count);
}

static size_t text_bytes(const char *text)
{
    return text == NULL ? 0 : strlen(text) + 1;
}

static const char *copy(char **at, const char *text)
{
    const size_t n = text_bytes(text);
    char *to = *at;
    *at += n;
    return n == 0 ? NULL : memcpy(to, text, n);
}

/* A record's turns and texts lie in one block, which begins with the turns. */
sheaf_status *sheaf__records_put(sheaf__records *r, int64_t place, const char *image,
                                 const sheaf__turn *turn, int64_t turns)
{
    if (r->count == r->room) {
        const int64_t room = r->room * 2 + 256;
        sheaf__record *more = room > INT64_MAX / 4 / (int64_t)sizeof *more
                                  ? NULL
                                  : realloc(r->record, (size_t)room * sizeof *more);
        if (more == NULL)
            return no_memory(r);
        r->memory += (room - r->room) * (int64_t)sizeof *more;
        r->record = more;
        r->room = room;
    }
    size_t bytes = (size_t)turns * sizeof *turn + text_bytes(image);
    for (int64_t i = 0; i < turns; i++)
        bytes += text_bytes(turn[i].query) + text_bytes(turn[i].answer);
    sheaf__turn *block = malloc(bytes);
    if (block == NULL)
        return no_memory(r);
    char *at = (char *)(block + turns);
    for (int64_t i = 0; i < turns; i++) {
        block[i].query = copy(&at, turn[i].query);
        block[i].answer = copy(&at, turn[i].answer);
    }
    r->record[r->count++] = (sheaf__record){ place, copy(&at, image), block, turns };
    r->memory += (int64_t)bytes;
    return NULL;
}

void sheaf__records_release(sheaf__records *r)
{
    for (int64_t i = 0; i < r->count; i++)
        free((sheaf__turn *)r->record[i].turn);
    free(r->record);
    *r = (sheaf__records){ 0 };
}

sheaf_status *sheaf__record_in(sheaf_status *st, const sheaf__records *r, int64_t index)
{
    const sheaf__record *record = &r->record[index];
    return record->place == 0 ? sheaf_in(st, "%s", record->image)
                              : sheaf_in(st, "%s %" PRId64, r->unit, record->place);
}

/* ---- reading ---- */

sheaf_status *sheaf__records_read(sheaf__records *out, const char *path,
                                  const sheaf__records_options *options,
                                  sheaf__complaints *complaints)
{
    *out = (sheaf__records){ 0 };
    sheaf__complaints own = { 0 };
    sheaf__records_reader in = { out, path, options, complaints == NULL ? &own : complaints };
    const bool folder = sheaf__path_kind(path) == SHEAF_PATH_DIR;
    sheaf_status *st = folder ? sheaf__records_read_folder(&in) : sheaf__records_read_json(&in);
    if (st == NULL && out->looked_at == 0) {
        st = sheaf_fail(SHEAF_E_DATA, "%s", path);
        if (folder)
            sheaf_found(sheaf_expected(st, "images (*.jpg, *.jpeg, *.png, *.webp) in it or below"),
                        "none");
        else
            sheaf_found(sheaf_expected(st, "at least one record"), "none");
    }
    if (st == NULL && complaints == NULL)
        return sheaf__complaints_verdict(&own, path, out->looked_at);
    sheaf__complaints_release(&own);
    return st;
}
