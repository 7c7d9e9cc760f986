/* stream.c - see stream.h. */
#include "checkpoint/stream.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

enum { CHUNK_ELEMENTS = 1 << 18 };

int64_t sheaf__stream_chunk(int64_t rows, int64_t cols)
{
    const int64_t chunk = CHUNK_ELEMENTS / (cols > 0 ? cols : 1);
    if (chunk < 1)
        return 1;
    return chunk < rows ? chunk : rows > 0 ? rows : 1;
}

int64_t sheaf__stream_chunks(int64_t rows, int64_t chunk)
{
    return (rows + chunk - 1) / chunk;
}

typedef struct stream {
    int64_t rows, chunk;
    sheaf_status *(*body)(void *context, int64_t row0, int64_t rows, int64_t index, int worker);
    void *context;
    atomic_bool failed;
    pthread_mutex_t lock;
    sheaf_status *st;
    int64_t st_index;
} stream;

static void keep(stream *s, sheaf_status *st, int64_t index)
{
    pthread_mutex_lock(&s->lock);
    sheaf_status *other = st;
    if (s->st == NULL || index < s->st_index) {
        other = s->st;
        s->st = st;
        s->st_index = index;
    }
    pthread_mutex_unlock(&s->lock);
    sheaf_status_free(other);
    atomic_store(&s->failed, true);
}

static void task(void *context, int64_t index, int worker)
{
    stream *s = context;
    if (atomic_load(&s->failed))
        return;
    const int64_t row0 = index * s->chunk;
    const int64_t rows = s->rows - row0 < s->chunk ? s->rows - row0 : s->chunk;
    sheaf_status *st = s->body(s->context, row0, rows, index, worker);
    if (st != NULL)
        keep(s, st, index);
}

sheaf_status *sheaf__stream_rows(sheaf__pool *pool, int64_t rows, int64_t chunk,
                                 sheaf_status *(*body)(void *context, int64_t row0, int64_t rows, int64_t index,
                                                       int worker),
                                 void *context)
{
    stream s = { .rows = rows, .chunk = chunk, .body = body, .context = context,
                 .lock = PTHREAD_MUTEX_INITIALIZER };
    sheaf__pool_run(pool, sheaf__stream_chunks(rows, chunk), task, &s);
    pthread_mutex_destroy(&s.lock);
    return s.st;
}
