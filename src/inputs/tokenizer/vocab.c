/* vocab.c - see vocab.h. */
#include "vocab.h"

#include "base/base.h"

static const char memory_for[] = "vocabulary of a tokenizer";

void sheaf__vocab_release(sheaf__vocab *v)
{
    free(v->bytes);
    free(v->token);
    free(v->slot);
    *v = (sheaf__vocab){ 0 };
}

static uint64_t mix(uint64_t a, uint64_t b)
{
    const unsigned __int128 product = (unsigned __int128)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

/* Of up to 8 bytes, each in it. */
static inline uint64_t load(const char *bytes, size_t size)
{
    const unsigned char *p = (const unsigned char *)bytes;
    uint64_t x = 0;
    uint32_t first, last;
    if (size >= 8) {
        memcpy(&x, bytes, 8);
    } else if (size >= 4) {
        memcpy(&first, bytes, 4);
        memcpy(&last, bytes + size - 4, 4);
        x = (uint64_t)last << 32 | first;
    } else if (size > 0) {
        x = p[0] | (uint64_t)p[size / 2] << 8 | (uint64_t)p[size - 1] << 16;
    }
    return x;
}

/* Of any bytes, fast for few. */
static uint64_t word_hash(const char *bytes, size_t size)
{
    uint64_t h = UINT64_C(0x9e3779b97f4a7c15) ^ size;
    for (; size > 8; bytes += 8, size -= 8)
        h = mix(h ^ load(bytes, 8), UINT64_C(0xd6e8feb86659fd93));
    return mix(h ^ load(bytes, size), UINT64_C(0xa0761d6478bd642f));
}

static void place(sheaf__vocab *v, uint64_t hash, int64_t id)
{
    uint64_t i = hash & v->mask;
    while (v->slot[i].id_1 != 0)
        i = (i + 1) & v->mask;
    v->slot[i] = (struct sheaf__vocab_slot){ (uint32_t)(hash >> 32), (uint32_t)id + 1,
                                             v->token[id].at, v->token[id].size };
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
            place(v, word_hash(v->bytes + v->token[id].at, v->token[id].size), id);
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

static bool grow_bytes(sheaf__vocab *v, size_t more)
{
    int64_t capacity = (int64_t)v->capacity;
    if (!SHEAF_GROW(&v->bytes, &capacity, (int64_t)(v->size + more)))
        return false;
    v->capacity = (size_t)capacity;
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
        !grow_bytes(v, size + 1) || !resize(v, v->count + 1))
        return sheaf__no_memory(memory_for);
    memcpy(v->bytes + v->size, token, size);
    v->bytes[v->size + size] = '\0';
    v->token[id] = (struct sheaf__vocab_token){ (uint32_t)v->size, (uint32_t)size };
    v->size += size + 1;
    v->count++;
    place(v, word_hash(token, size), (int64_t)id);
    return NULL;
}

int32_t sheaf__vocab_find(const sheaf__vocab *v, const char *token, size_t size)
{
    if (v->slot == NULL)
        return -1;
    const uint64_t hash = word_hash(token, size);
    for (uint64_t i = hash & v->mask; v->slot[i].id_1 != 0; i = (i + 1) & v->mask) {
        const struct sheaf__vocab_slot *slot = &v->slot[i];
        if (slot->hash == hash >> 32 && slot->size == size &&
            memcmp(v->bytes + slot->at, token, size) == 0)
            return (int32_t)(slot->id_1 - 1);
    }
    return -1;
}

void sheaf__vocab_prefetch(const sheaf__vocab *v, const char *token, size_t size)
{
    if (v->slot != NULL)
        __builtin_prefetch(&v->slot[word_hash(token, size) & v->mask]);
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
    /* As many tokens as there may be in real ones: a token takes some 20 bytes. */
    if (st == NULL && (!grow_bytes(v, (size_t)(scan->end - scan->at) / 2) ||
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
