/* stream.c - see stream.h. */
#include "checkpoint/store/stream.h"

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

void sheaf__stream_failure_init(sheaf__stream_failure *f)
{
    pthread_mutex_init(&f->lock, NULL);
    atomic_init(&f->failed, false);
    f->st = NULL;
}

void sheaf__stream_keep(sheaf__stream_failure *f, sheaf_status *st, int64_t index)
{
    pthread_mutex_lock(&f->lock);
    sheaf_status *other = st;
    if (f->st == NULL || index < f->index) {
        other = f->st;
        f->st = st;
        f->index = index;
    }
    pthread_mutex_unlock(&f->lock);
    sheaf_status_free(other);
    atomic_store(&f->failed, true);
}

bool sheaf__stream_failed(sheaf__stream_failure *f)
{
    return atomic_load(&f->failed);
}

sheaf_status *sheaf__stream_failure_take(sheaf__stream_failure *f)
{
    pthread_mutex_destroy(&f->lock);
    return f->st;
}

typedef struct stream {
    int64_t rows, chunk;
    sheaf_status *(*body)(void *context, int64_t row0, int64_t rows, int64_t index, int worker);
    void *context;
    sheaf__stream_failure failure;
} stream;

static void task(void *context, int64_t index, int worker)
{
    stream *s = context;
    if (sheaf__stream_failed(&s->failure))
        return;
    const int64_t row0 = index * s->chunk;
    const int64_t rows = s->rows - row0 < s->chunk ? s->rows - row0 : s->chunk;
    sheaf_status *st = s->body(s->context, row0, rows, index, worker);
    if (st != NULL)
        sheaf__stream_keep(&s->failure, st, index);
}

sheaf_status *sheaf__stream_rows(sheaf__pool *pool, int64_t rows, int64_t chunk,
                                 sheaf_status *(*body)(void *context, int64_t row0, int64_t rows,
                                                       int64_t index, int worker),
                                 void *context)
{
    stream s = { .rows = rows, .chunk = chunk, .body = body, .context = context };
    sheaf__stream_failure_init(&s.failure);
    sheaf__pool_run(pool, sheaf__stream_chunks(rows, chunk), task, &s);
    return sheaf__stream_failure_take(&s.failure);
}
