/* vocab.c - see vocab.h. */
#include "vocab.h"

#include <xxhash.h>

#include "unicode.h"
#include "base/base.h"

static const char memory_for[] = "vocabulary of a tokenizer";

void sheaf__vocab_release(sheaf__vocab *v)
{
    free(v->bytes);
    free(v->token);
    free(v->slot);
    *v = (sheaf__vocab){ 0 };
}

static void place(sheaf__vocab *v, uint64_t hash, int64_t id)
{
    uint64_t i = hash & v->mask;
    while (v->slot[i].id_1 != 0)
        i = (i + 1) & v->mask;
    v->slot[i] = (struct sheaf__vocab_slot){ (uint32_t)(hash >> 32), (uint32_t)id + 1 };
}

static bool resize(sheaf__vocab *v, int64_t tokens)
{
    uint64_t slots = 64;
    while (slots < (uint64_t)tokens * 2)
        slots *= 2;
    if (v->slot != NULL && slots <= v->mask + 1)
        return true;
    struct sheaf__vocab_slot *slot = calloc(slots, sizeof *slot);
    if (slot == NULL)
        return false;
    free(v->slot);
    v->slot = slot;
    v->mask = slots - 1;
    for (int64_t id = 0; id < v->ids; id++)
        if (v->token[id].at != UINT32_MAX)
            place(v, XXH3_64bits(v->bytes + v->token[id].at, v->token[id].size), id);
    return true;
}

static bool grow_ids(sheaf__vocab *v, int64_t ids)
{
    if (!SHEAF_GROW(&v->token, &v->capacity_ids, ids))
        return false;
    for (; v->ids < ids; v->ids++)
        v->token[v->ids].at = UINT32_MAX;
    return true;
}

static sheaf_status *fail_token(const char *token, size_t size, const char *expected)
{
    return sheaf_expected(
        sheaf_fail(SHEAF_E_FORMAT, "token '%.*s'", size > 80 ? 80 : (int)size, token), "%s",
        expected);
}

sheaf_status *sheaf__vocab_add(sheaf__vocab *v, const char *token, size_t size, uint64_t id)
{
    if (id > SHEAF__ID_MAX) {
        sheaf_status *st =
            sheaf_fail(SHEAF_E_UNSUPPORTED, "token '%.*s'", size > 80 ? 80 : (int)size, token);
        return sheaf_found(sheaf_expected(st, "an id of at most %d", SHEAF__ID_MAX), "%" PRIu64,
                           id);
    }
    const int32_t there = sheaf__vocab_find(v, token, size);
    if (there >= 0)
        return sheaf_found(fail_token(token, size, "each token once"),
                           "a duplicate: ids %" PRId32 " and %" PRIu64, there, id);
    if ((int64_t)id < v->ids && v->token[id].at != UINT32_MAX)
        return sheaf_found(fail_token(token, size, "each id once"),
                           "%" PRIu64 ", the id of '%.80s' too", id, v->bytes + v->token[id].at);
    if (v->size + size + 1 >= UINT32_MAX || !grow_ids(v, (int64_t)id + 1) ||
        !SHEAF_GROW(&v->bytes, &v->capacity, (int64_t)(v->size + size + 1)) ||
        !resize(v, v->count + 1))
        return sheaf__no_memory(memory_for);
    memcpy(v->bytes + v->size, token, size);
    v->bytes[v->size + size] = '\0';
    v->token[id] = (struct sheaf__vocab_token){ (uint32_t)v->size, (uint32_t)size };
    v->size += size + 1;
    v->count++;
    place(v, XXH3_64bits(token, size), (int64_t)id);
    return NULL;
}

int32_t sheaf__vocab_find(const sheaf__vocab *v, const char *token, size_t size)
{
    if (v->slot == NULL)
        return -1;
    const uint64_t hash = XXH3_64bits(token, size);
    for (uint64_t i = hash & v->mask; v->slot[i].id_1 != 0; i = (i + 1) & v->mask) {
        const uint32_t id = v->slot[i].id_1 - 1;
        if (v->slot[i].hash == hash >> 32 && v->token[id].size == size &&
            memcmp(v->bytes + v->token[id].at, token, size) == 0)
            return (int32_t)id;
    }
    return -1;
}

void sheaf__vocab_prefetch(const sheaf__vocab *v, const char *token, size_t size)
{
    if (v->slot != NULL)
        __builtin_prefetch(&v->slot[XXH3_64bits(token, size) & v->mask]);
}

const char *sheaf__vocab_token(const sheaf__vocab *v, int64_t id, size_t *size)
{
    if (id < 0 || id >= v->ids || v->token[id].at == UINT32_MAX)
        return NULL;
    if (size != NULL)
        *size = v->token[id].size;
    return v->bytes + v->token[id].at;
}

sheaf_status *sheaf__vocab_read(sheaf__vocab *v, sheaf_json_scan *scan)
{
    char *key = malloc((size_t)(scan->end - scan->at) + 1);
    bool more = true;
    sheaf_status *st = key == NULL ? sheaf__no_memory(memory_for) : NULL;
    /* An estimate of the number of tokens: one takes some 20 bytes of the file. */
    if (st == NULL &&
        (!SHEAF_GROW(&v->bytes, &v->capacity, (int64_t)v->size + (scan->end - scan->at) / 2) ||
         !resize(v, (scan->end - scan->at) / 20)))
        st = sheaf__no_memory(memory_for);
    if (st == NULL && !sheaf__scan_take(scan, '{'))
        st = sheaf__scan_fail(scan, "an object of tokens with their ids");
    for (bool first = true; st == NULL && more; first = false) {
        size_t size = 0;
        uint64_t id;
        st = sheaf__scan_next_key_to(scan, first, &more, key, &size);
        if (st != NULL || !more)
            break;
        st = sheaf__scan_count(scan, &id);
        TRY(st, sheaf__vocab_add(v, key, size, id));
    }
    free(key);
    return st;
}
