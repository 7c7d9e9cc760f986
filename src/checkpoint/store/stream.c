/* stream.c - see stream.h. */
#include "checkpoint/store/stream.h"

#include "base/base.h"
#include "base/lowest.h"
#include "checkpoint/store/probe.h"
#include "dialects/common/folder.h"

enum { COPY_BYTES = 4 << 20, MOST_THREADS = 64, PROGRESS_BYTES = 64 << 20 };

sheaf_status *sheaf__stopped(const atomic_int *stop, const char *command)
{
    return stop == NULL || atomic_load(stop) == 0
               ? NULL
               : sheaf_found(sheaf_fail(SHEAF_E_STOPPED, "%s", command),
                             "a request to stop; nothing was left behind");
}

int64_t sheaf__stream_chunks(int64_t rows, int64_t chunk)
{
    return (rows + chunk - 1) / chunk;
}

typedef struct stream {
    int64_t rows, chunk;
    sheaf_status *(*body)(void *context, int64_t row0, int64_t rows, int64_t index, int worker);
    void *context;
    sheaf__lowest failure;
} stream;

static void task(void *context, int64_t index, int worker)
{
    stream *s = context;
    if (atomic_load(&s->failure.failed))
        return;
    const int64_t row0 = index * s->chunk;
    const int64_t rows = s->rows - row0 < s->chunk ? s->rows - row0 : s->chunk;
    sheaf_status *st = s->body(s->context, row0, rows, index, worker);
    if (st != NULL)
        sheaf__lowest_note(&s->failure, index, st);
}

sheaf_status *sheaf__stream_rows(sheaf__pool *pool, int64_t rows, int64_t chunk,
                                 sheaf_status *(*body)(void *context, int64_t row0, int64_t rows,
                                                       int64_t index, int worker),
                                 void *context)
{
    stream s = { .rows = rows, .chunk = chunk, .body = body, .context = context };
    sheaf__lowest_begin(&s.failure);
    sheaf__pool_run(pool, sheaf__stream_chunks(rows, chunk), task, &s);
    return sheaf__lowest_end(&s.failure);
}

/* ---- copying ---- */

int64_t sheaf__entry_bytes(const sheaf_source_entry *e)
{
    int64_t rows, cols;
    sheaf__entry_view(&rows, &cols, e);
    return rows * cols * sheaf_dtype_bits(e->dtype) / 8;
}

void sheaf__copy_progress(const sheaf_events *events, const char *what, _Atomic int64_t *done,
                          int64_t bytes, int64_t total)
{
    const int64_t now = atomic_fetch_add(done, bytes) + bytes;
    const bool ends = now == total && total >= PROGRESS_BYTES; /* no progress for small amounts */
    if (now / PROGRESS_BYTES == (now - bytes) / PROGRESS_BYTES && !ends)
        return;
    const sheaf_event event = { .kind = SHEAF_EVENT_PROGRESS,
                                .text = what,
                                .done = now < total ? now : total,
                                .total = total };
    sheaf_emit(events, &event);
}

typedef struct job {
    int64_t tensor, row0, rows, col0, cols;
} job;

typedef struct crew {
    const sheaf_copy_job *k;
    job *job;
    int64_t count, capacity;
    char *buffer[MOST_THREADS];
} crew;

static sheaf_status *add_job(crew *c, job j)
{
    if (!SHEAF_GROW(&c->job, &c->capacity, c->count + 1))
        return sheaf__no_memory("list of copies");
    c->job[c->count++] = j;
    return NULL;
}

static sheaf_status *list_tensor(crew *c, int64_t i)
{
    const sheaf_source_entry *e = &c->k->entry[i];
    const int64_t bytes = (int64_t)sheaf_dtype_bytes(e->dtype);
    int64_t rows, cols;
    sheaf_status *st = NULL;
    sheaf__entry_view(&rows, &cols, e);
    if (bytes == 0)
        return sheaf_fail(SHEAF_E_UNSUPPORTED, "tensor '%s': elements below a byte", e->name);
    if (rows == 0 || cols == 0)
        return NULL;
    const int64_t wide = cols * bytes > COPY_BYTES ? COPY_BYTES / bytes : cols,
                  tall = COPY_BYTES / (wide * bytes);
    for (int64_t r = 0; st == NULL && r < rows; r += tall)
        for (int64_t k = 0; st == NULL && k < cols; k += wide)
            st = add_job(c, (job){ i, r, rows - r < tall ? rows - r : tall, k,
                                   cols - k < wide ? cols - k : wide });
    return st;
}

static sheaf_status *do_job(void *context, int64_t row0, int64_t rows, int64_t index, int worker)
{
    crew *c = context;
    const job *j = &c->job[index];
    const sheaf_copy_job *k = c->k;
    const sheaf_source_entry *e = &k->entry[j->tensor];
    sheaf_status *st = sheaf__stopped(k->stop, k->command);
    TRY(st,
        k->source->read(k->source, e->name, j->row0, j->rows, j->col0, j->cols, c->buffer[worker]));
    TRY(st, k->put(k->context, j->tensor, j->row0, j->rows, j->col0, j->cols, c->buffer[worker]));
    if (st == NULL)
        sheaf__copy_progress(k->events, k->what, k->done,
                             j->rows * j->cols * (int64_t)sheaf_dtype_bytes(e->dtype), k->total);
    return st;
}

sheaf_status *sheaf__copy_to_folder(void *folder, int64_t index, int64_t row0, int64_t rows,
                                    int64_t col0, int64_t cols, const void *src)
{
    return sheaf__folder_write(folder, index, row0, rows, col0, cols, src);
}

sheaf_status *sheaf__copy_all(const sheaf_copy_job *k)
{
    crew c = { .k = k };
    sheaf__pool *pool = NULL;
    const int threads = k->threads < 1 ? 1 : k->threads > MOST_THREADS ? MOST_THREADS : k->threads;
    sheaf_status *st = NULL;
    for (int64_t i = 0; st == NULL && i < k->count; i++)
        st = k->entry[i].name != NULL ? list_tensor(&c, i) : NULL;
    for (int i = 0; st == NULL && i < threads; i++)
        if ((c.buffer[i] = malloc(COPY_BYTES)) == NULL)
            st = sheaf__no_memory("room to copy");
    TRY(st, sheaf__pool_new(&pool, threads));
    TRY(st, sheaf__stream_rows(pool, c.count, 1, do_job, &c));
    sheaf__pool_free(pool);
    for (int i = 0; i < MOST_THREADS; i++)
        free(c.buffer[i]);
    free(c.job);
    return st;
}
