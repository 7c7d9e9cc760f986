/* slices.c - see convert.h. A job is what one file holds of one tensor: read, hashed and written in
 * order by one thread. */
#include "base/base.h"
#include "checkpoint/convert/convert.h"

#include "base/output.h"
#include "catalog/catalog.h"
#include "checkpoint/store/probe.h"
#include "checkpoint/store/manifest.h"
#include "checkpoint/store/stream.h"
#include "formats/safetensors.h"

enum { CHUNK = 2 << 20, MOST_THREADS = 8 };

typedef struct job {
    int64_t tensor, index;
    int slice;
} job; /* index in its file */

typedef struct writer {
    const sheaf_slices_write *how;
    sheaf_manifest *m;
    const sheaf_source_entry **entry; /* parallel to m->tensor */
    sheaf_safetensors_writer **file;  /* [S + 1] */
    sheaf_output *output;
    job *job;
    int64_t njobs;
    char *buffer[MOST_THREADS];
    sheaf_hasher *hasher[MOST_THREADS];
} writer;

static const char memory_for[] = "out of memory for the slices";

/* ---- the manifest ---- */

static const sheaf_cut *cut_of(const writer *w, const sheaf_source_entry *e)
{
    const sheaf_tensor *t = w->how->schema == NULL
                                ? NULL
                                : sheaf_schema_find(w->how->schema, sheaf__moment_base(e->name));
    if (t == NULL || t->cut.nparts == 0 || e->ndim > 2 || (t->cut.axis == 1 && t->cut.nparts > 1) ||
        !sheaf__same_shape(t->ndim, t->shape, e->ndim, e->shape))
        return NULL;
    return &t->cut;
}

static sheaf_status *draft(writer *w)
{
    sheaf_source *source = w->how->source;
    const int64_t n = source->count(source);
    const int slices = w->how->slices;
    w->entry = calloc((size_t)n + 1, sizeof *w->entry);
    w->job = calloc((size_t)n * ((size_t)slices + 1) + 1, sizeof *w->job);
    sheaf_status *st = w->entry == NULL || w->job == NULL ? sheaf__no_memory(memory_for)
                                                          : sheaf__manifest_new(&w->m, slices, n);
    if (st != NULL)
        return st;
    for (int64_t i = 0; i < n; i++)
        w->entry[i] = source->entry(source, i);
    qsort(w->entry, (size_t)n, sizeof *w->entry, sheaf__by_name_behind);
    w->m->step = w->how->step;
    w->m->progress = strdup(w->how->progress);
    if (w->m->progress == NULL)
        return sheaf__no_memory(memory_for);
    for (int64_t i = 0; i < n && st == NULL; i++) {
        const sheaf_source_entry *e = w->entry[i];
        if (sheaf_dtype_bytes(e->dtype) == 0)
            return sheaf_fail(SHEAF_E_UNSUPPORTED, "tensor '%s': elements below a byte", e->name);
        st = sheaf__manifest_set(w->m, i, e->name, e->dtype, e->ndim, e->shape, cut_of(w, e));
    }
    return st;
}

/* ---- files ---- */

static sheaf_status *begin_files(writer *w)
{
    sheaf_manifest *m = w->m;
    w->file = calloc((size_t)m->slices + 1, sizeof *w->file);
    sheaf_status *st = w->file == NULL ? sheaf__no_memory(memory_for) : NULL;
    for (int s = 0; st == NULL && s <= m->slices; s++) {
        int64_t n = 0;
        for (int64_t i = 0; i < m->count; i++)
            if (sheaf__manifest_holds(m, &m->tensor[i], s))
                w->job[w->njobs++] = (job){ i, n++, s };
        st = sheaf__manifest_begin(&w->file[s], m, s, sheaf__output_dir(w->output));
    }
    return st;
}

/* ---- data ---- */

typedef struct streaming {
    writer *w;
    const job *j;
    const sheaf_source_entry *e;
    int64_t bytes, at; /* of an element; byte of the part */
    int worker;
} streaming;

/* Appends rows [row0, row0 + rows), columns [col0, col0 + cols) of the whole tensor to the part. */
static sheaf_status *stream_box(streaming *s, int64_t row0, int64_t rows, int64_t col0,
                                int64_t cols)
{
    writer *w = s->w;
    char *buffer = w->buffer[s->worker];
    const int64_t wide = cols * s->bytes > CHUNK ? CHUNK / s->bytes : cols;
    const int64_t tall = wide < cols ? 1 : cols == 0 ? rows : CHUNK / (wide * s->bytes);
    sheaf_status *st = NULL;
    for (int64_t r = 0; st == NULL && cols > 0 && r < rows; r += tall)
        for (int64_t k = 0; st == NULL && k < cols; k += wide) {
            const int64_t h = rows - r < tall ? rows - r : tall,
                          c = cols - k < wide ? cols - k : wide, n = h * c * s->bytes;
            st = sheaf__stopped(w->how->stop, "convert");
            TRY(st,
                w->how->source->read(w->how->source, s->e->name, row0 + r, h, col0 + k, c, buffer));
            TRY(st, sheaf__safetensors_write(w->file[s->j->slice], s->j->index, s->at, buffer, n));
            if (st != NULL)
                break;
            sheaf__hasher_add(w->hasher[s->worker], buffer, (size_t)n);
            s->at += n;
            sheaf__copy_progress(w->how->events, "bytes converted", w->how->done, n, w->how->total);
        }
    return st;
}

static sheaf_status *stream_part(void *context, int64_t row0, int64_t n, int64_t index, int worker)
{
    writer *w = context;
    const job *j = &w->job[index];
    sheaf_manifest_tensor *t = &w->m->tensor[j->tensor];
    streaming s = { w, j, w->entry[j->tensor], (int64_t)sheaf_dtype_bytes(t->dtype), 0, worker };
    int64_t rows, cols;
    sheaf__entry_view(&rows, &cols, s.e);
    sheaf_status *st = NULL;
    if (t->cut.nparts == 0)
        st = stream_box(&s, 0, rows, 0, cols);
    for (int part = 0; st == NULL && part < t->cut.nparts; part++) {
        sheaf_range range = { 0, 0 };
        st = sheaf_cut_rows(&range, &t->cut, part, j->slice);
        if (st == NULL && t->cut.axis == 0)
            st = stream_box(&s, range.begin, range.end - range.begin, 0, cols);
        else if (st == NULL)
            st = stream_box(&s, 0, rows, range.begin, range.end - range.begin);
    }
    *sheaf__manifest_hash(t, j->slice) = sheaf__hasher_end(w->hasher[worker]);
    return st;
}

static sheaf_status *stream_all(writer *w)
{
    const int threads = w->how->threads < 1              ? 1
                        : w->how->threads > MOST_THREADS ? MOST_THREADS
                                                         : w->how->threads;
    sheaf__pool *pool = NULL;
    sheaf_status *st = NULL;
    for (int i = 0; st == NULL && i < threads; i++) {
        w->buffer[i] = malloc(CHUNK);
        w->hasher[i] = sheaf__hasher_new();
        st = w->buffer[i] == NULL || w->hasher[i] == NULL ? sheaf__no_memory(memory_for) : NULL;
    }
    TRY(st, sheaf__pool_new(&pool, threads));
    TRY(st, sheaf__stream_rows(pool, w->njobs, 1, stream_part, w));
    sheaf__pool_free(pool);
    return st;
}

/* ---- the end ---- */

static sheaf_status *finish_files(writer *w)
{
    sheaf_status *st = NULL;
    for (int s = 0; st == NULL && s <= w->m->slices; s++) {
        st = sheaf__safetensors_finish(w->file[s]);
        w->file[s] = NULL;
    }
    if (st == NULL)
        sheaf__manifest_join(w->m);
    return st;
}

static sheaf_status *write_manifest(writer *w)
{
    char *text = NULL;
    size_t size = 0;
    sheaf_status *st = sheaf__manifest_write(&text, &size, w->m);
    TRY(st, sheaf__output_write(w->output, "manifest.json", text, size));
    free(text);
    return st;
}

static void release(writer *w)
{
    for (int s = 0; w->file != NULL && s <= w->how->slices; s++)
        sheaf__safetensors_abandon(w->file[s]);
    for (int i = 0; i < MOST_THREADS; i++) {
        free(w->buffer[i]);
        sheaf__hasher_free(w->hasher[i]);
    }
    sheaf__manifest_free(w->m);
    free(w->file);
    free(w->entry);
    free(w->job);
}

sheaf_status *sheaf__slices_write(const char *dst, const sheaf_slices_write *how)
{
    writer w = { .how = how };
    sheaf_status *st = draft(&w);
    TRY(st, sheaf__output_begin(&w.output, dst, false));
    TRY(st, begin_files(&w));
    TRY(st, stream_all(&w));
    TRY(st, finish_files(&w));
    TRY(st, write_manifest(&w));
    release(&w);
    if (st == NULL)
        return sheaf__output_commit(w.output);
    sheaf__output_abandon(w.output);
    return st;
}
