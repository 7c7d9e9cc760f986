/* work.c - see pieces.h: workspaces of encoding, and emitting ids. */
#include "pieces.h"

#include <pthread.h>

#include "base/base.h"
#include "pattern.h"

struct sheaf__works {
    pthread_mutex_t lock;
    sheaf__work *first;
};

struct sheaf__works *sheaf__works_new(void)
{
    struct sheaf__works *pool = calloc(1, sizeof *pool);
    if (pool != NULL && pthread_mutex_init(&pool->lock, NULL) != 0) {
        free(pool);
        return NULL;
    }
    return pool;
}

static void work_free(sheaf__work *work)
{
    sheaf__prepared_release(&work->prepared);
    sheaf__matching_free(work->prepared.matching);
    free(work->cache);
    free(work->barred);
    free(work->barred_from);
    free(work->scratch);
    free(work->out.id);
    free(work->out.where);
    free(work);
}

void sheaf__works_free(struct sheaf__works *pool)
{
    if (pool == NULL)
        return;
    while (pool->first != NULL) {
        sheaf__work *work = pool->first;
        pool->first = work->next;
        work_free(work);
    }
    pthread_mutex_destroy(&pool->lock);
    free(pool);
}

sheaf__work *sheaf__work_take(struct sheaf__works *pool)
{
    pthread_mutex_lock(&pool->lock);
    sheaf__work *work = pool->first;
    if (work != NULL)
        pool->first = work->next;
    pthread_mutex_unlock(&pool->lock);
    if (work != NULL)
        return work;
    work = calloc(1, sizeof *work);
    if (work == NULL)
        return NULL;
    work->cache = calloc(1, sizeof *work->cache); /* untouched pages take no memory */
    if (work->cache == NULL) {
        free(work);
        return NULL;
    }
    return work;
}

void sheaf__work_give(struct sheaf__works *pool, sheaf__work *work)
{
    enum { MOST = 64 << 20 };
    if (work->prepared.now.capacity + work->prepared.next.capacity + work->barred_size +
            work->barred_from_size + work->scratch_size >
        MOST) { /* the workspace of a text of many megabytes is freed */
        work_free(work);
        return;
    }
    pthread_mutex_lock(&pool->lock);
    work->next = pool->first;
    pool->first = work;
    pthread_mutex_unlock(&pool->lock);
}

void *sheaf__work_scratch(sheaf__work *work, size_t size)
{
    if ((int64_t)size > work->scratch_size) {
        char *at = work->scratch;
        if (!SHEAF_GROW(&at, &work->scratch_size, (int64_t)size))
            return NULL;
        work->scratch = at;
    }
    return work->scratch;
}

/* The bytes of the user's text behind bytes [begin, end) of the current piece. */
static sheaf__text_range stands_for(const sheaf__work *w, size_t begin, size_t end)
{
    if (begin >= end)
        return (sheaf__text_range){ w->origin, w->origin };
    if (w->from != NULL)
        return (sheaf__text_range){ w->from[begin].begin, w->from[end - 1].end };
    while (begin > 0 && ((unsigned char)w->bytes[begin] & 0xc0) == 0x80)
        begin--;
    while (end < w->size && ((unsigned char)w->bytes[end] & 0xc0) == 0x80)
        end++;
    return (sheaf__text_range){ w->origin + begin, w->origin + end };
}

static bool ids_room(sheaf__ids_out *ids, int64_t more)
{
    const int64_t need = ids->count + more;
    ids->failed = ids->failed || !SHEAF_GROW(&ids->id, &ids->id_capacity, need) ||
                  (ids->wanted && !SHEAF_GROW(&ids->where, &ids->where_capacity, need));
    if (!ids->failed)
        ids->capacity = ids->wanted && ids->where_capacity < ids->id_capacity ? ids->where_capacity
                                                                              : ids->id_capacity;
    return !ids->failed;
}

void sheaf__emit(sheaf__work *w, int32_t id, size_t begin, size_t end)
{
    sheaf__ids_out *out = &w->out;
    if (out->count == out->capacity && !ids_room(out, 1))
        return;
    if (out->wanted)
        out->where[out->count] = stands_for(w, begin, end);
    if (w->emitted < SHEAF__WORD_IDS)
        w->ends[w->emitted++] = (uint8_t)end;
    out->id[out->count++] = id;
}

void sheaf__emit_word(sheaf__work *w, sheaf__word *word)
{
    sheaf__ids_out *out = &w->out;
    if (out->capacity - out->count < word->count && !ids_room(out, word->count))
        return;
    memcpy(out->id + out->count, word->id, word->count * sizeof *word->id);
    for (int64_t i = 0, begin = 0; out->wanted && i < word->count; i++) {
        const size_t end = *sheaf__word_end(word, i);
        out->where[out->count + i] = stands_for(w, (size_t)begin, end);
        begin = (int64_t)end;
    }
    out->count += word->count;
}

void sheaf__ids_insert(sheaf__ids_out *ids, int64_t at, int32_t id)
{
    if (ids->count == ids->capacity && !ids_room(ids, 1))
        return;
    memmove(ids->id + at + 1, ids->id + at, (size_t)(ids->count - at) * sizeof *ids->id);
    if (ids->wanted) {
        memmove(ids->where + at + 1, ids->where + at,
                (size_t)(ids->count - at) * sizeof *ids->where);
        const size_t place = at > 0 ? ids->where[at - 1].end : 0;
        ids->where[at] = (sheaf__text_range){ place, place };
    }
    ids->id[at] = id;
    ids->count++;
}
