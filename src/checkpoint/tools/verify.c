/* verify.c - see verify.h. Work is cut into tasks in the order of the disk; each reads a few
 * megabytes. */
#include "checkpoint/tools/verify.h"

#include <pthread.h>
#include <stdatomic.h>

#include "base/base.h"
#include "base/control.h"
#include "base/file.h"
#include "checkpoint/store/probe.h"
#include "checkpoint/store/store.h"
#include "checkpoint/store/stream.h"
#include "catalog/boxes.h"
#include "catalog/coded.h"
#include "catalog/private.h"
#include "dialects/common/codes.h"
#include "formats/torch.h"
#include "ops/pool.h"

enum {
    CHUNK = 4 << 20,
    MOST_THREADS = 64,
};

typedef enum task_kind {
    READ_PIECE,  /* elements of a dense piece */
    READ_ROWS,   /* rows of a strided piece, in the tensor's view */
    CHECK_FILE,  /* the checksums of a PyTorch file, also of one inside another file */
    CHECK_SLICE, /* the hashes in one of sheaf's own files */
} task_kind;

typedef struct task {
    task_kind kind;
    int file;
    int64_t offset;        /* to sort by */
    int64_t tensor, piece; /* of the catalog */
    int part;              /* of a tensor that is stored as codes: 1 + which; 0: it has none */
    int64_t begin, count;  /* elements or rows; bytes of a file, -1: all; the slice in `begin` */
    int64_t bytes;         /* of the work */
} task;

typedef struct verifier {
    sheaf_catalog *c;
    sheaf_verify_report *report;
    const sheaf_weights_verify_options *options;
    task *task;
    int64_t ntasks, capacity;
    sheaf__special *seen; /* of each tensor */
    int64_t *first;       /* of each tensor: its first piece, or part, in `zeros`; behind them their
                             number */
    _Atomic unsigned char *zeros; /* of each piece, as sheaf__find_nonzero() has it */
    char **buffer;                /* [threads] CHUNK each */
    sheaf_status **st;            /* [ntasks] status of each task; reported in order */
    sheaf_checkpoint *own;        /* of sheaf's own dialect */
    pthread_mutex_t lock;         /* of the findings, which slices add to */
    _Atomic int64_t done;
    int64_t total;
} verifier;

/* ---- the list of tasks ---- */

/* The tensor of a task, or its part. */
static const sheaf_logical *stored(const verifier *v, const task *t)
{
    const sheaf_logical *l = &v->c->tensor[t->tensor];
    return t->part == 0 ? l : &l->coded->part[t->part - 1];
}

static sheaf_status *add_task(verifier *v, task t, int64_t bytes)
{
    if (!SHEAF_GROW(&v->task, &v->capacity, v->ntasks + 1))
        return sheaf__no_memory(v->c->root);
    t.bytes = bytes;
    v->task[v->ntasks++] = t;
    v->total += bytes;
    return NULL;
}

static bool is_dense(const sheaf_logical *t, const sheaf_piece *p)
{
    int64_t stride = 1;
    for (int i = t->entry.ndim - 1; i >= 0; i--) {
        if (p->size[i] != 1 && p->stride[i] != stride)
            return false;
        stride *= p->size[i];
    }
    return true;
}

static sheaf_status *list_piece(verifier *v, int64_t index, int64_t k, int part)
{
    const sheaf_logical *t = stored(v, &(task){ .tensor = index, .part = part });
    const sheaf_piece *p = &t->piece[k];
    const int64_t bytes = (int64_t)sheaf_dtype_bytes(p->dtype);
    const int64_t elements = sheaf__elements(t->entry.ndim, p->size);
    if (p->dtype != t->entry.dtype || bytes == 0)
        return NULL; /* the reader reported it */
    const bool dense = is_dense(t, p) && !p->converted;
    int64_t first = 0, units = elements, each = bytes;
    if (!dense) { /* rows of the view that it has some of */
        int64_t rows, cols;
        sheaf__catalog_view(&rows, &cols, t);
        const int64_t under = t->entry.ndim > 0 ? rows / t->entry.shape[0] : 1;
        first = t->entry.ndim > 0 ? p->begin[0] * under : 0;
        units = t->entry.ndim > 0 ? p->size[0] * under : 1;
        each = cols * bytes;
    }
    const int64_t most = each >= CHUNK ? 1 : CHUNK / each;
    sheaf_status *st = NULL;
    for (int64_t at = first; st == NULL && at < first + units; at += most) {
        const int64_t n = first + units - at < most ? first + units - at : most;
        st =
            add_task(v,
                     (task){ dense ? READ_PIECE : READ_ROWS, p->file,
                             dense ? p->offset + at * bytes : p->offset, index, k, part, at, n, 0 },
                     dense ? n * each : n * (elements / units > 0 ? elements / units : 1) * bytes);
    }
    return st;
}

static sheaf_status *list_own(verifier *v)
{
    sheaf_status *st = NULL;
    for (int s = 0; st == NULL && s <= v->own->manifest->slices; s++)
        st = add_task(v, (task){ .kind = CHECK_SLICE, .file = -1, .offset = s, .begin = s },
                      v->own->manifest->bytes[s]);
    return st;
}

static sheaf_status *list_files(verifier *v)
{
    sheaf_status *st = NULL;
    for (int i = 0; st == NULL && v->c->nzips == 0 && i < v->c->nfiles; i++)
        if (sheaf__torch_is(v->c->file[i].path))
            st = add_task(v, (task){ .kind = CHECK_FILE, .file = i, .offset = -1, .count = -1 },
                          v->c->file[i].mark.size);
    for (int64_t i = 0; st == NULL && i < v->c->nzips; i++) {
        const sheaf_catalog_zip *zip = &v->c->zip[i];
        st = add_task(v,
                      (task){ .kind = CHECK_FILE,
                              .file = zip->file,
                              .offset = zip->begin,
                              .begin = zip->begin,
                              .count = zip->length },
                      zip->length);
    }
    return st;
}

static int by_place(const void *a, const void *b)
{
    const task *p = a, *q = b;
    if (p->file != q->file)
        return p->file < q->file ? -1 : 1;
    return (p->offset > q->offset) - (p->offset < q->offset);
}

/* ---- running them ---- */

static void look_at(verifier *v, const task *t, const void *data, size_t bytes, sheaf_dtype dtype)
{
    const sheaf_logical *l = &v->c->tensor[t->tensor];
    if (t->part > 0)
        sheaf__count_part(&v->seen[t->tensor], l->coded, t->part - 1, data, bytes);
    else
        sheaf__count_special(&v->seen[t->tensor], data, bytes, dtype);
    sheaf__find_nonzero(&v->zeros[v->first[t->tensor] + (t->part > 0 ? t->part - 1 : t->piece)],
                        data, bytes);
}

static sheaf_status *read_piece(verifier *v, const task *t, char *buffer)
{
    const sheaf_piece *p = &stored(v, t)->piece[t->piece];
    const sheaf_catalog_file *file = &v->c->file[p->file];
    const size_t bytes = (size_t)t->count * sheaf_dtype_bytes(p->dtype);
    int fd;
    sheaf_status *st = sheaf__catalog_open(&fd, file);
    TRY(st, sheaf__file_read_at(fd, buffer, bytes, t->offset, file->path));
    st = sheaf__catalog_done(fd, file, st);
    if (st == NULL)
        look_at(v, t, buffer, bytes, p->dtype);
    return st;
}

static sheaf_status *read_rows(verifier *v, const task *t, char *buffer)
{
    const sheaf_logical *l = stored(v, t);
    int64_t rows, cols, got;
    const int64_t bytes = (int64_t)sheaf_dtype_bytes(l->entry.dtype);
    sheaf__catalog_view(&rows, &cols, l);
    const int64_t wide = cols * bytes > CHUNK ? CHUNK / bytes : cols;
    sheaf_status *st = NULL;
    for (int64_t k = 0; st == NULL && k < cols; k += wide) {
        const int64_t w = cols - k < wide ? cols - k : wide;
        const size_t size = (size_t)(t->count * w * bytes);
        memset(buffer, 0, size); /* elements outside of the piece */
        st =
            sheaf__piece_read(&got, v->c, l, &l->piece[t->piece], t->begin, t->count, k, w, buffer);
        if (st == NULL)
            look_at(v, t, buffer, size, l->entry.dtype);
    }
    return st;
}

static sheaf_status *check_file(verifier *v, const task *t)
{
    sheaf_torch *file = NULL;
    sheaf_status *st = sheaf__torch_open_at(&file, v->c->file[t->file].path, t->begin, t->count);
    TRY(st, sheaf__torch_check_data(file));
    sheaf__torch_close(file);
    return st;
}

typedef struct slice_damages {
    verifier *v;
    sheaf__own_damages found;
} slice_damages;

static void slice_found(void *context, const char *file, const char *tensor, const char *expected,
                        const char *is)
{
    slice_damages *d = context;
    pthread_mutex_lock(&d->v->lock);
    sheaf__own_found(&d->found, file, tensor, expected, is);
    pthread_mutex_unlock(&d->v->lock);
}

static sheaf_status *check_slice(verifier *v, const task *t)
{
    slice_damages d = { v, { v->c, v->own->dir, NULL } };
    sheaf_damages damages = { .found = slice_found, .context = &d };
    sheaf_status *st = sheaf__checkpoint_examine(&damages, v->own, (int)t->begin, false);
    return sheaf__first_of(st, d.found.st);
}

static bool stopped(const verifier *v)
{
    const atomic_int *stop = sheaf__control_stop(v->options->control);
    return stop != NULL && atomic_load(stop) != 0;
}

static void do_task(void *context, int64_t index, int worker)
{
    verifier *v = context;
    const task *t = &v->task[index];
    if (stopped(v))
        return;
    v->st[index] = t->kind == READ_PIECE    ? read_piece(v, t, v->buffer[worker])
                   : t->kind == READ_ROWS   ? read_rows(v, t, v->buffer[worker])
                   : t->kind == CHECK_SLICE ? check_slice(v, t)
                                            : check_file(v, t);
    sheaf__copy_progress(v->options->events, "bytes verified", &v->done, t->bytes, v->total);
}

/* ---- findings ---- */

static sheaf_status *report_task(verifier *v, const task *t, sheaf_status *st)
{
    sheaf_catalog *c = v->c;
    if (!sheaf__catalog_is_finding(st))
        return st;
    const char *tensor =
        t->kind != READ_PIECE && t->kind != READ_ROWS ? "" : stored(v, t)->entry.name;
    const char *path = t->kind == CHECK_SLICE ? c->root : c->file[t->file].path,
               *cure = sheaf_status_try(st), *is = sheaf_status_found(st);
    sheaf_status *noted =
        sheaf__defect(c, "damaged", path, tensor, sheaf_status_expected(st),
                      *cure != '\0' ? cure : "copy or download this file again", "%s%s%s",
                      sheaf_status_where(st), *is != '\0' ? ": " : "", is);
    sheaf_status_free(st);
    return noted;
}

/* Scales of a tensor with codes. */
static sheaf_status *report_scales(verifier *v, const sheaf_logical *t, int64_t nan, int64_t inf,
                                   int64_t negative)
{
    return sheaf__defect(v->c, "not-finite", sheaf__catalog_path_of(v->c, t), t->entry.name,
                         negative > 0 ? "finite scales, 0 or more" : "finite scales and values",
                         "download or copy this model again, or quantize it anew",
                         "%" PRId64 " NaN, %" PRId64 " Inf and %" PRId64 " below 0 among them", nan,
                         inf, negative);
}

static sheaf_status *report_special(verifier *v)
{
    sheaf_status *st = NULL;
    for (int64_t i = 0; st == NULL && i < v->c->count; i++) {
        const int64_t nan = atomic_load(&v->seen[i].nan), inf = atomic_load(&v->seen[i].inf),
                      negative = atomic_load(&v->seen[i].negative);
        const sheaf_logical *t = &v->c->tensor[i];
        if (nan + inf + negative > 0)
            st = t->coded != NULL
                     ? report_scales(v, t, nan, inf, negative)
                     : sheaf__defect(v->c, "not-finite", sheaf__catalog_path_of(v->c, t),
                                     t->entry.name, "finite numbers",
                                     "go back to an earlier checkpoint",
                                     "%" PRId64 " NaN and %" PRId64 " Inf", nan, inf);
    }
    return st;
}

/* ---- the whole ---- */

static sheaf_status *open_own(verifier *v)
{
    char *dir = NULL;
    int file = 0;
    while (file < v->c->nfiles && !sheaf__ends_with(v->c->file[file].path, "/manifest.json"))
        file++;
    sheaf_status *st =
        file == v->c->nfiles ? NULL : sheaf__path_parent(&dir, v->c->file[file].path);
    TRY(st, dir != NULL ? sheaf__checkpoint_open_manifest(&v->own, dir) : NULL);
    free(dir);
    if (v->own == NULL)
        return sheaf__catalog_defect(v->c, v->c->root, st);
    return st != NULL ? st : list_own(v);
}

static sheaf_status *list_all(verifier *v)
{
    sheaf_status *st = NULL;
    if (v->c->dialect->manifest)
        st = open_own(v);
    for (int64_t i = 0; st == NULL && i < v->c->count; i++) /* copies are read for the comparison */
        for (int64_t k = 0;
             st == NULL && k < (v->c->tensor[i].replicated && v->c->tensor[i].npieces > 1
                                    ? 1
                                    : v->c->tensor[i].npieces);
             k++)
            st = list_piece(v, i, k, 0);
    for (int64_t i = 0; st == NULL && i < v->c->count; i++)
        for (int p = 0; st == NULL && v->c->tensor[i].coded != NULL && p < SHEAF__PARTS; p++)
            if (v->c->tensor[i].coded->part[p].npieces > 0)
                st = list_piece(v, i, 0, 1 + p);
    return st != NULL ? st : list_files(v);
}

static sheaf_status *run_all(verifier *v, int threads)
{
    sheaf__pool *pool = NULL;
    v->st = calloc((size_t)v->ntasks + 1, sizeof *v->st);
    v->buffer = calloc((size_t)threads, sizeof *v->buffer);
    sheaf_status *st = v->st == NULL || v->buffer == NULL ? sheaf__no_memory(v->c->root)
                                                          : sheaf__pool_new(&pool, threads);
    for (int i = 0; st == NULL && i < threads; i++)
        if ((v->buffer[i] = malloc(CHUNK)) == NULL)
            st = sheaf__no_memory(v->c->root);
    if (st == NULL) {
        qsort(v->task, (size_t)v->ntasks, sizeof *v->task, by_place);
        sheaf__pool_run(pool, v->ntasks, do_task, v);
    }
    for (int64_t i = 0; v->st != NULL && i < v->ntasks; i++) {
        if (st == NULL)
            st = report_task(v, &v->task[i], v->st[i]);
        else
            sheaf_status_free(v->st[i]);
    }
    sheaf__pool_free(pool);
    return st;
}

static sheaf_status *make_counts(verifier *v)
{
    const int64_t n = v->c->count;
    v->seen = calloc((size_t)n + 1, sizeof *v->seen);
    v->first = calloc((size_t)n + 1, sizeof *v->first);
    for (int64_t i = 0; v->first != NULL && i < n; i++)
        v->first[i + 1] =
            v->first[i] + (v->c->tensor[i].coded != NULL ? SHEAF__PARTS : v->c->tensor[i].npieces);
    if (v->first != NULL)
        v->zeros = calloc((size_t)v->first[n] + 1, sizeof *v->zeros);
    return v->seen == NULL || v->zeros == NULL ? sheaf__no_memory(v->c->root) : NULL;
}

static void release(verifier *v, int threads)
{
    for (int i = 0; v->buffer != NULL && i < threads; i++)
        free(v->buffer[i]);
    free(v->buffer);
    free(v->st);
    free(v->seen);
    free(v->first);
    free(v->zeros);
    free(v->task);
    sheaf_checkpoint_close(v->own);
}

sheaf_status *sheaf_verify_catalog(sheaf_verify_report *report, sheaf_catalog *c,
                                   const sheaf_weights_verify_options *options)
{
    verifier v = {
        .c = c, .report = report, .options = options, .lock = PTHREAD_MUTEX_INITIALIZER
    };
    const int threads = options->threads < 1              ? 1
                        : options->threads > MOST_THREADS ? MOST_THREADS
                                                          : options->threads;
    sheaf_status *st = make_counts(&v);
    TRY(st, list_all(&v));
    TRY(st, v.ntasks > 0 ? run_all(&v, threads) : NULL);
    if (st == NULL && stopped(&v))
        st = sheaf_fail(SHEAF_E_STOPPED, "%s: stopped before all was read", c->root);
    TRY(st, !c->copies_contradict ? sheaf__catalog_compare(c) : NULL);
    TRY(st, report_special(&v));
    TRY(st, sheaf__verify_zeros(c, v.zeros, v.first));
    report->read = atomic_load(&v.done);
    report->full = true;
    release(&v, threads);
    return st;
}

static void count_tensors(sheaf_verify_report *r)
{
    for (int64_t i = 0; i < r->catalog->count; i++) {
        const sheaf_logical *t = &r->catalog->tensor[i];
        const int64_t elements = sheaf__elements(t->entry.ndim, t->entry.shape);
        r->factors += t->kind == SHEAF_LORA;
        r->moments += t->kind == SHEAF_MOMENT;
        if (t->kind != SHEAF_WEIGHT && t->kind != SHEAF_BUFFER)
            continue;
        r->tensors++;
        r->elements += elements;
        r->bytes += t->coded != NULL ? sheaf__coded_bytes(t->coded)
                                     : elements * sheaf_dtype_bits(t->entry.dtype) / 8;
        r->of[t->entry.dtype]++;
    }
}

sheaf_status *sheaf_verify(sheaf_verify_report *report, const char *path,
                           const sheaf_weights_verify_options *options)
{
    sheaf_text forms = { 0 };
    int64_t coded = 0;
    *report = (sheaf_verify_report){ 0 };
    sheaf_status *st = sheaf__any_read(&report->catalog, path,
                                       &(sheaf_dialect_hints){ .from = options->dialect,
                                                               .config = options->config,
                                                               .also = options->also });
    if (st != NULL)
        return st;
    count_tensors(report);
    sheaf__catalog_forms(&forms, &coded, report->catalog);
    st = coded > 0 ? sheaf__text_take(&report->forms, &forms) : NULL;
    for (const char *const *also = options->also; also != NULL && *also != NULL && st == NULL;
         also++)
        st = sheaf__note(report->catalog, "inferred", *also, "", "", "",
                         "parts of the checkpoint above: neither is whole without the other");
    if (st != NULL)
        return st;
    if (report->catalog->dialect->adapter && (st = sheaf__verify_adapter(report->catalog)) != NULL)
        return st;
    st = sheaf__catalog_rank_notes(&report->ranks_unknown, report->catalog);
    return st != NULL || options->quick ? st
                                        : sheaf_verify_catalog(report, report->catalog, options);
}

void sheaf_verify_release(sheaf_verify_report *report)
{
    sheaf__catalog_free(report->catalog);
    free(report->forms);
    *report = (sheaf_verify_report){ 0 };
}

/* Parts in several folders can be collected, but no program finds them there; doubles can be
 * converted, but not run. */
bool sheaf_verify_sound(const sheaf_verify_report *report)
{
    const sheaf_catalog *c = report->catalog;
    for (int64_t i = 0; i < c->nfindings; i++)
        if (c->finding[i].severity == SHEAF_DEFECT ||
            (c->finding[i].severity == SHEAF_WARNING &&
             sheaf__is_listed("time-stamp dtype", c->finding[i].code, strlen(c->finding[i].code))))
            return false;
    return true;
}

/* ---- several folders as one checkpoint ---- */

/* The catalog of `path`, or NULL if it could not be read, which its verification reports. */
static sheaf_status *look(sheaf_catalog **out, const char *path,
                          const sheaf_weights_verify_options *o, const char *const *also)
{
    const sheaf_dialect_hints hints = { .from = o->dialect, .config = o->config, .also = also };
    sheaf_status *st = sheaf__any_read(out, path, &hints);
    *out = st == NULL ? *out : NULL;
    return sheaf__only_memory(st);
}

/* Does a file of the catalog lie at or under `path`? */
static bool takes_from(const sheaf_catalog *c, const char *path)
{
    char *root = realpath(path, NULL);
    const size_t n = root == NULL ? 0 : strlen(root);
    bool yes = false;
    for (int i = 0; !yes && n > 0 && i < c->nfiles; i++) {
        char *file = realpath(c->file[i].path, NULL);
        yes = file != NULL && strncmp(file, root, n) == 0 && (file[n] == '/' || file[n] == '\0');
        free(file);
    }
    free(root);
    return yes;
}

sheaf_status *sheaf_verify_joint(bool *joint, const char *const *paths, int count,
                                 const sheaf_weights_verify_options *o)
{
    sheaf_catalog *alone = NULL, *all = NULL;
    *joint = false;
    if (count < 2)
        return NULL;
    sheaf_status *st = look(&alone, paths[0], o, NULL);
    const bool broken = st == NULL && alone != NULL && sheaf__catalog_defects(alone) > 0;
    sheaf__catalog_free(alone);
    const char **also = broken ? calloc((size_t)count, sizeof *also) : NULL;
    if (!broken)
        return st;
    if (also == NULL)
        return sheaf__no_memory(paths[0]);
    memcpy(also, paths + 1, (size_t)(count - 1) * sizeof *also);
    st = look(&all, paths[0], o, also);
    *joint = st == NULL && all != NULL && sheaf__catalog_defects(all) == 0;
    for (int i = 0; *joint && i < count; i++)
        *joint = takes_from(all, paths[i]);
    sheaf__catalog_free(all);
    free(also);
    return st;
}
