/* records.c - see records.h. Shared by all forms. */
#include "data/records.h"

#include "base/base.h"
#include "inputs/places.h"

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

static bool has_room(sheaf__records *r)
{
    const int64_t capacity = r->capacity * 2 + 256;
    if (r->count < r->capacity)
        return true;
    if (!SHEAF_GROW(&r->record, NULL, capacity))
        return false;
    r->memory += (capacity - r->capacity) * (int64_t)sizeof *r->record;
    r->capacity = capacity;
    return true;
}

sheaf_status *sheaf__records_move(sheaf__records *to, sheaf__records *from)
{
    const int64_t held = from->memory - from->capacity * (int64_t)sizeof *from->record;
    int64_t moved = 0;
    while (moved < from->count && has_room(to))
        to->record[to->count++] = from->record[moved++];
    from->count -= moved;
    if (from->count > 0) {
        memmove(from->record, from->record + moved, (size_t)from->count * sizeof *from->record);
        return sheaf__no_memory("records of the data set");
    }
    to->memory += held; /* turns and texts */
    from->memory -= held;
    return NULL;
}

/* A record's turns and texts lie in one block, which begins with the turns. */
sheaf_status *sheaf__records_put(sheaf__records *r, const sheaf__record *record)
{
    const sheaf__turn *turn = record->turn;
    const int64_t turns = record->turns;
    if (!has_room(r))
        return sheaf__no_memory("records of the data set");
    size_t bytes = (size_t)turns * sizeof *turn + text_bytes(record->image);
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
    r->record[r->count] = *record;
    r->record[r->count].turn = block;
    r->record[r->count++].image = copy(&at, record->image);
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

int64_t sheaf__turn_marks(int64_t *where, const sheaf__turn *turn, int64_t turns)
{
    int64_t marks = 0;
    *where = 0;
    for (int64_t i = 0; i < turns; i++) {
        const int64_t n = sheaf__picture_names(turn[i].query);
        *where = n > 0 ? i : *where;
        marks += n;
    }
    return marks;
}
