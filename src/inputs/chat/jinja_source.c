/* jinja_source.c - which message each byte of a text comes from.
 *
 * Texts are borrowed: a strip, a split or a slice is a pointer into what it was taken from. So the
 * address of a text identifies its source. A region is a string of the variables or a block of the
 * arena; its pieces, by address, are what comes from messages. Where bytes are copied
 * (sheaf__j_put) their pieces are copied too, so they follow through +, ~, join, replace, macros
 * and filters. Bytes outside of pieces are the template's. */
#include "base/base.h"
#include "inputs/chat/jinja_core.h"

typedef struct sheaf__jregion {
    const char *begin, *end;
    sheaf__jsource *piece; /* [count] by address; malloc'd */
    int64_t count, capacity;
} region;

void sheaf__j_release_regions(sheaf__j *j)
{
    for (int64_t i = 0; i < j->regions; i++)
        free(j->region[i].piece);
    free(j->region);
    j->region = NULL;
    j->regions = j->region_capacity = 0;
}

/* ---- regions ---- */

/* The last one that begins at `at` or before; -1: none. */
static int64_t region_at(const sheaf__j *j, const char *at)
{
    int64_t low = 0, high = j->regions;
    while (low < high) {
        const int64_t middle = (low + high) / 2;
        if (j->region[middle].begin <= at)
            low = middle + 1;
        else
            high = middle;
    }
    return low - 1;
}

/* The one that `at` lies in, its end included; NULL: none. */
static region *find(const sheaf__j *j, const char *at)
{
    const int64_t i = region_at(j, at);
    return i >= 0 && at <= j->region[i].end ? &j->region[i] : NULL;
}

void sheaf__j_add_region(sheaf__j *j, const char *at, size_t size)
{
    const int64_t i = region_at(j, at) + 1;
    if (!SHEAF_GROW(&j->region, &j->region_capacity, j->regions + 1))
        sheaf__j_no_memory(j);
    memmove(j->region + i + 1, j->region + i, (size_t)(j->regions - i) * sizeof *j->region);
    j->region[i] = (region){ .begin = at, .end = at + size };
    j->regions++;
}

/* Adds a piece, or extends the one that it continues. */
void sheaf__j_set_source(sheaf__j *j, const char *at, size_t size, int64_t message)
{
    region *in = find(j, at);
    int64_t i = in->count;
    while (i > 0 && in->piece[i - 1].at > at) /* an earlier text of the block grows */
        i--;
    sheaf__jsource *before = i > 0 ? &in->piece[i - 1] : NULL;
    if (before != NULL && before->message == message && before->at + before->size == at) {
        before->size += size;
        return;
    }
    if (!SHEAF_GROW(&in->piece, &in->capacity, in->count + 1))
        sheaf__j_no_memory(j);
    memmove(in->piece + i + 1, in->piece + i, (size_t)(in->count - i) * sizeof *in->piece);
    in->piece[i] = (sheaf__jsource){ at, size, message };
    in->count++;
}

/* ---- pieces ---- */

/* The first piece of a region that ends at `at` or behind. */
static int64_t first_piece(const region *r, const char *at)
{
    int64_t low = 0, high = r->count;
    while (low < high) {
        const int64_t middle = (low + high) / 2;
        if (r->piece[middle].at + r->piece[middle].size < at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

void sheaf__j_copy_source(sheaf__j *j, const char *to, const char *at, size_t size)
{
    const region *from = find(j, at);
    if (from == NULL || from->count == 0)
        return;
    const region *into = find(j, to);
    for (int64_t i = first_piece(from, at); i < from->count; i++) {
        const sheaf__jsource p = from->piece[i];
        const char *begin = p.at > at ? p.at : at,
                   *end = p.at + p.size < at + size ? p.at + p.size : at + size;
        if (begin > end)
            break;
        if (begin == end && p.size > 0 && size > 0)
            continue; /* no overlap */
        const int64_t before = into->count;
        sheaf__j_set_source(j, to + (begin - at), (size_t)(end - begin), p.message);
        i += from == into && to < at ? into->count - before : 0;
    }
}

int64_t sheaf__j_message_at(const sheaf__j *j, const char *at)
{
    const region *from = find(j, at);
    const int64_t i = from == NULL ? 0 : first_piece(from, at + 1);
    return from != NULL && i < from->count && from->piece[i].at <= at ? from->piece[i].message : -1;
}

/* ---- messages ---- */

static void add_strings(sheaf__j *j, const json_t *json, int64_t message)
{
    const char *key;
    json_t *value;
    size_t i;
    if (json_is_string(json)) {
        sheaf__j_add_region(j, json_string_value(json), json_string_length(json));
        sheaf__j_set_source(j, json_string_value(json), json_string_length(json), message);
    }
    json_array_foreach((json_t *)json, i, value) add_strings(j, value, message);
    json_object_foreach((json_t *)json, key, value)
    {
        if (strcmp(key, "role") != 0 && strcmp(key, "type") != 0)
            add_strings(j, value, message);
    }
}

void sheaf__j_read_messages(sheaf__j *j, const json_t *messages)
{
    for (size_t i = 0; i < json_array_size(messages); i++)
        add_strings(j, json_array_get(messages, i), (int64_t)i);
}

/* The pieces of a text that come from messages, ascending: malloc'd, NULL without memory. */
sheaf__jpiece *sheaf__j_pieces(const sheaf__j *j, const char *at, size_t size, int64_t *n)
{
    const region *r = find(j, at);
    const int64_t first = r == NULL ? 0 : first_piece(r, at), count = r == NULL ? 0 : r->count;
    sheaf__jpiece *out = malloc((size_t)(count - first + 1) * sizeof *out);
    *n = 0;
    for (int64_t i = first; i < count && out != NULL && r->piece[i].at <= at + size; i++) {
        const size_t begin = (size_t)(r->piece[i].at - at);
        out[(*n)++] = (sheaf__jpiece){ begin, begin + r->piece[i].size, r->piece[i].message };
    }
    return out;
}
