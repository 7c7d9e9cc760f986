/* records.c - see records.h. What is common to all forms. */
#include "data/records.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/status.h"
#include "base/file.h"
#include "data/records_read.h"

bool sheaf__is_blank(const char *text)
{
    return text[strspn(text, " \t\n\v\f\r")] == '\0';
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
    if (r->count == r->capacity) {
        const int64_t capacity = r->capacity * 2 + 256;
        if (!SHEAF_GROW(&r->record, NULL, capacity))
            return sheaf__no_memory("records of the data set");
        r->memory += (capacity - r->capacity) * (int64_t)sizeof *r->record;
        r->capacity = capacity;
    }
    size_t bytes = (size_t)turns * sizeof *turn + text_bytes(image);
    for (int64_t i = 0; i < turns; i++)
        bytes += text_bytes(turn[i].query) + text_bytes(turn[i].answer);
    sheaf__turn *block = malloc(bytes);
    if (block == NULL)
        return sheaf__no_memory("records of the data set");
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
    sheaf_status *st = sheaf__fields_read(&in.fields, options->fields);
    TRY(st, folder ? sheaf__records_read_folder(&in) : sheaf__records_read_json(&in));
    sheaf__fields_release(&in.fields);
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
