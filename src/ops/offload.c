/* offload.c - see offload.h.
 *
 * Uses of blocks are counted from the beginning of a list: use number i is list[i % count].
 * 0 <= freed <= given <= taken <= ready: of what is given the helper thread has freed what need not
 * be, or was, written. It alone moves `ready` and `freed`, and without the lock
 * only reads or writes the place in the ring that is its own then. */
#include "ops/offload.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/round_up.h"
#include "base/temporary.h"
#include "base/thread.h"

#define UNIT ((size_t)4096)   /* of direct reads and writes: of memory, places and sizes */
#define LEAST ((size_t)16384) /* from here on the device's blocks begin at such units */

typedef struct place {
    int64_t at;         /* in the file, or in the host's memory */
    size_t bytes, used; /* used: of these, what is written and read */
} place;

struct sheaf__offload {
    sheaf__device *device;
    sheaf_memory kind;
    sheaf_file file; /* path NULL: none */
    bool direct;     /* past the cache of files */
    char *host;      /* without a file: all blocks; with one and a device apart: one block */
    size_t host_bytes;
    place *block;
    int64_t count, capacity, end;
    int64_t most, claimed; /* of `end` */
    bool files;            /* also on dry */
    /* the list */
    sheaf__offload_use *list;
    int64_t *since; /* of each use that reads: how many before it wrote the block; 0: none */
    int64_t listed;
    char *ring;
    size_t ring_bytes;
    size_t *at;        /* [2 * listed]: in the ring, by use modulo that */
    bool runs, writes; /* writes: some use does */
    int64_t ready, taken, given, freed;
    sheaf_status *failed;
    bool broken; /* a failure has been returned */
    sheaf__offload_costs costs;
    /* the helper thread */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t moved;
    bool started, quits, busy;
};

static size_t in_units(size_t bytes)
{
    return sheaf__round_up(bytes, UNIT);
}

size_t sheaf__offload_size(const sheaf__offload *o, int64_t block)
{
    return in_units(o->block[block].bytes);
}

size_t sheaf__offload_bytes(const sheaf__offload *o)
{
    return (size_t)o->most;
}

size_t sheaf__offload_host(const sheaf__offload *o)
{
    size_t most = 0;
    if (o->device->planned->shared)
        return 0;
    for (int64_t i = 0; i < o->count; i++)
        most = sheaf__offload_size(o, i) > most ? sheaf__offload_size(o, i) : most;
    return o->files ? most : (size_t)o->most;
}

/* ---- the file, or the host's memory ---- */

/* A file system may refuse direct transfers when it sees the first one, or after a short one. */
static bool is_cached_now(sheaf__offload *o)
{
    const int flags = o->direct ? fcntl(o->file.fd, F_GETFL) : -1;
    o->direct = false;
    return flags >= 0 && fcntl(o->file.fd, F_SETFL, flags & ~O_DIRECT) == 0;
}

static sheaf_status *file_move(sheaf__offload *o, void *memory, size_t bytes, int64_t at,
                               bool writes)
{
    sheaf_status *st = writes ? sheaf__file_write_at(&o->file, memory, bytes, at)
                              : sheaf__file_read_at(o->file.fd, memory, bytes, at, o->file.path);
    if (st != NULL && is_cached_now(o)) {
        sheaf_status_free(st);
        st = writes ? sheaf__file_write_at(&o->file, memory, bytes, at)
                    : sheaf__file_read_at(o->file.fd, memory, bytes, at, o->file.path);
    }
    if (st == NULL && !o->direct) /* it is read again only after all the rest */
        (void)posix_fadvise(o->file.fd, (off_t)at, (off_t)bytes, POSIX_FADV_DONTNEED);
    return st;
}

/* Between a block and its place in the ring, or what fills it, of as many bytes rounded up. */
static sheaf_status *move(sheaf__offload *o, const place *p, void *memory, bool writes)
{
    sheaf__device *device = o->device;
    const bool files = o->file.path != NULL;
    if (device->class->shared)
        return file_move(o, memory, in_units(p->used), p->at, writes);
    char *host = files ? o->host : o->host + p->at;
    sheaf_status *st = NULL;
    if (writes) {
        st = sheaf__download(device, host, memory, p->used);
        return st == NULL && files ? file_move(o, host, in_units(p->used), p->at, true) : st;
    }
    if (files)
        st = file_move(o, host, in_units(p->used), p->at, false);
    return st == NULL ? sheaf__upload(device, memory, host, p->used) : st;
}

/* Counts and times it; without the lock. */
static sheaf_status *moved(sheaf__offload *o, int64_t block, void *memory, bool writes)
{
    const double began = sheaf__seconds();
    const place *p = &o->block[block];
    sheaf_status *st = o->device->class->counts ? NULL : move(o, p, memory, writes);
    const double seconds = sheaf__seconds() - began;
    pthread_mutex_lock(&o->lock);
    *(writes ? &o->costs.written : &o->costs.read) += p->used;
    *(writes ? &o->costs.writing : &o->costs.reading) += seconds;
    pthread_mutex_unlock(&o->lock);
    return sheaf_in(st, "offload");
}

/* ---- the helper thread ---- */

static const sheaf__offload_use *use_of(const sheaf__offload *o, int64_t use)
{
    return &o->list[use % o->listed];
}

static size_t *place_of(sheaf__offload *o, int64_t use)
{
    return &o->at[use % (2 * o->listed)];
}

static size_t size_of(const sheaf__offload *o, int64_t use)
{
    return sheaf__offload_size(o, use_of(o, use)->block);
}

/* Place in the ring for use number `ready`: behind the newest, or from the beginning again. */
static bool has_room(sheaf__offload *o, size_t *at)
{
    const int64_t use = o->ready;
    const size_t size = size_of(o, use);
    *at = 0;
    if (use == o->freed)
        return true;
    if (use - o->freed >= o->listed)
        return false;
    const size_t tail = *place_of(o, o->freed), last = *place_of(o, use - 1);
    *at = last + size_of(o, use - 1);
    if (last < tail)
        return size <= tail - *at;
    if (size <= o->ring_bytes - *at)
        return true;
    *at = 0;
    return size <= tail;
}

/* A block is not read before it is written. */
static bool is_written(const sheaf__offload *o, int64_t use)
{
    const int64_t since = o->since[use % o->listed];
    return since == 0 || use < since || use - since < o->freed;
}

/* Uses without a transfer: given back without writing, or to come without reading. */
static bool passes(sheaf__offload *o)
{
    size_t at;
    if (o->freed < o->given && !use_of(o, o->freed)->writes) {
        o->freed++;
        return true;
    }
    if (use_of(o, o->ready)->reads || !has_room(o, &at))
        return false;
    *place_of(o, o->ready++) = at;
    return true;
}

/* One block written, or one read; false: there is nothing to do. With the lock. */
static bool works(sheaf__offload *o)
{
    size_t at;
    if (!o->runs || o->failed != NULL || o->broken)
        return false;
    if (passes(o)) {
        pthread_cond_broadcast(&o->moved);
        return true;
    }
    const bool writes = o->freed < o->given, reads = !writes && use_of(o, o->ready)->reads &&
                                                     is_written(o, o->ready) && has_room(o, &at);
    if (!writes && !reads)
        return false;
    const int64_t use = writes ? o->freed : o->ready;
    if (reads)
        *place_of(o, use) = at;
    void *memory = o->ring + *place_of(o, use);
    o->busy = true;
    pthread_mutex_unlock(&o->lock);
    sheaf_status *st = moved(o, use_of(o, use)->block, memory, writes);
    pthread_mutex_lock(&o->lock);
    o->busy = false;
    o->failed = st;
    *(writes ? &o->freed : &o->ready) += st == NULL;
    pthread_cond_broadcast(&o->moved);
    return true;
}

static void *help(void *arg)
{
    sheaf__offload *o = arg;
    pthread_mutex_lock(&o->lock);
    while (!o->quits)
        if (!works(o))
            pthread_cond_wait(&o->moved, &o->lock);
    pthread_mutex_unlock(&o->lock);
    return NULL;
}

static sheaf_status *start(sheaf__offload *o)
{
    if (o->started || o->device->class->counts)
        return NULL;
    const int error = sheaf__thread_start(&o->thread, help, o);
    o->started = error == 0;
    return error == 0 ? NULL
                      : sheaf__found_errno(sheaf_fail(SHEAF_E_MEMORY, "starting a thread"), error);
}

/* ---- opening ---- */

sheaf_status *sheaf__offload_new(sheaf__offload **out, sheaf__device *device, sheaf_memory kind,
                                 const char *folder)
{
    sheaf__offload *o = calloc(1, sizeof *o);
    if (o == NULL)
        return sheaf__no_memory("offload");
    o->device = device;
    o->kind = kind;
    o->file.fd = -1;
    o->files = folder != NULL;
    pthread_mutex_init(&o->lock, NULL);
    pthread_cond_init(&o->moved, NULL);
    sheaf_status *st = folder == NULL || device->class->counts
                           ? NULL
                           : sheaf__temporary_unnamed(&o->file, folder, &o->direct);
    if (st != NULL) {
        sheaf__offload_free(o);
        return st;
    }
    *out = o;
    return NULL;
}

void sheaf__offload_free(sheaf__offload *o)
{
    if (o == NULL)
        return;
    pthread_mutex_lock(&o->lock);
    o->quits = true;
    pthread_cond_broadcast(&o->moved);
    pthread_mutex_unlock(&o->lock);
    if (o->started)
        pthread_join(o->thread, NULL);
    sheaf_status_free(o->failed);
    sheaf__device_free(o->device, o->ring);
    sheaf_status_free(sheaf__file_close(&o->file));
    pthread_mutex_destroy(&o->lock);
    pthread_cond_destroy(&o->moved);
    free(o->host);
    free(o->block);
    free(o->list);
    free(o->since);
    free(o->at);
    free(o);
}

/* The next place in the file. */
static place place_for(sheaf__offload *o, size_t bytes)
{
    const place p = { o->end, bytes, bytes };
    o->end += (int64_t)in_units(bytes);
    o->most = o->end > o->most ? o->end : o->most;
    return p;
}

sheaf_status *sheaf__offload_add(int64_t *block, sheaf__offload *o, size_t bytes)
{
    if (!SHEAF_GROW(&o->block, &o->capacity, o->count + 1))
        return sheaf__no_memory("blocks of an offload");
    o->block[o->count] = place_for(o, bytes);
    *block = o->count++;
    return NULL;
}

sheaf_status *sheaf__offload_resize(sheaf__offload *o, int64_t block, size_t bytes)
{
    o->block[block] = place_for(o, bytes);
    return sheaf__offload_claim(o);
}

sheaf_status *sheaf__offload_clear(sheaf__offload *o)
{
    sheaf_status *st = sheaf__offload_stop(o);
    o->count = o->end = 0;
    return st;
}

sheaf_status *sheaf__offload_claim(sheaf__offload *o)
{
    size_t most = 0;
    if (o->device->class->counts)
        return NULL;
    if (o->file.path != NULL && o->end > o->claimed) {
        sheaf_status *st = sheaf__file_reserve(&o->file, o->end);
        if (st != NULL)
            return sheaf_try_this(st, "another folder (`offload-dir`), or less in `offload`");
        o->claimed = o->end;
    }
    for (int64_t i = 0; i < o->count; i++)
        most = in_units(o->block[i].bytes) > most ? in_units(o->block[i].bytes) : most;
    if (o->file.path == NULL)
        most = (size_t)o->end;
    else if (o->device->class->shared)
        return NULL;
    if (most <= o->host_bytes)
        return NULL;
    char *host = aligned_alloc(UNIT, most);
    if (host == NULL)
        return sheaf__no_memory("the host's memory for an offload");
    memset(host + o->host_bytes, 0, most - o->host_bytes);
    if (o->host_bytes > 0)
        memcpy(host, o->host, o->host_bytes);
    free(o->host);
    o->host = host;
    o->host_bytes = most;
    return NULL;
}

/* ---- one block ---- */

static void free_ring(sheaf__offload *o)
{
    sheaf__device_free(o->device, o->ring);
    o->ring = NULL;
    o->ring_bytes = 0;
}

sheaf_status *sheaf__offload_rest(sheaf__offload *o)
{
    sheaf_status *st = sheaf__offload_stop(o);
    free_ring(o);
    return st;
}

sheaf_status *sheaf__offload_ring(sheaf__offload *o, size_t together)
{
    const size_t bytes = 2 * together;
    void *ring;
    if (bytes <= o->ring_bytes)
        return NULL;
    free_ring(o);
    sheaf_status *st =
        sheaf__device_alloc(&ring, o->device, bytes < LEAST ? LEAST : bytes, o->kind);
    if (st != NULL)
        return sheaf_in(st, "offload");
    o->ring = ring;
    o->ring_bytes = bytes;
    return NULL;
}

sheaf_status *sheaf__offload_fill(void **at, sheaf__offload *o, int64_t block)
{
    sheaf_status *st = sheaf__offload_stop(o);
    TRY(st, sheaf__offload_ring(o, sheaf__offload_size(o, block)));
    *at = o->ring;
    return st;
}

sheaf_status *sheaf__offload_filled(sheaf__offload *o, int64_t block)
{
    return moved(o, block, o->ring, true);
}

sheaf_status *sheaf__offload_fetch(void **at, sheaf__offload *o, int64_t block)
{
    sheaf_status *st = sheaf__offload_fill(at, o, block);
    return TRY(st, moved(o, block, *at, false));
}

/* Units of the file that hold bytes [from, from + bytes) of it. */
static sheaf_status *part(sheaf__offload *o, int64_t from, void *memory, size_t bytes, bool writes)
{
    sheaf_status *st = sheaf__offload_stop(o);
    if (st != NULL || o->device->class->counts)
        return st;
    if (o->file.path == NULL) {
        memcpy(writes ? o->host + from : memory, writes ? memory : o->host + from, bytes);
        return NULL;
    }
    const int64_t begin = from / (int64_t)UNIT * (int64_t)UNIT;
    const size_t within = (size_t)(from - begin), all = in_units(within + bytes);
    const bool lent = o->device->class->shared && all <= o->ring_bytes; /* it is not in use */
    char *units = lent ? o->ring : aligned_alloc(UNIT, all);
    if (units == NULL)
        return sheaf__no_memory("a part of an offload");
    if (!writes || all != bytes)
        st = file_move(o, units, all, begin, false);
    if (st == NULL)
        memcpy(writes ? units + within : memory, writes ? memory : units + within, bytes);
    if (writes)
        TRY(st, file_move(o, units, all, begin, true));
    if (!lent)
        free(units);
    return sheaf_in(st, "offload");
}

sheaf_status *sheaf__offload_read(sheaf__offload *o, int64_t block, size_t from, void *to,
                                  size_t bytes)
{
    return part(o, o->block[block].at + (int64_t)from, to, bytes, false);
}

sheaf_status *sheaf__offload_write(sheaf__offload *o, int64_t block, size_t to, const void *from,
                                   size_t bytes)
{
    return part(o, o->block[block].at + (int64_t)to, (void *)from, bytes, true);
}

/* ---- use ---- */

static bool goes_on(const sheaf__offload *o, const sheaf__offload_use *list, int64_t count)
{
    bool same = o->runs && o->listed == count && o->taken == o->given && o->given % count == 0;
    for (int64_t i = 0; i < count && same; i++)
        same = o->list[i].block == list[i].block && o->list[i].reads == list[i].reads &&
               o->list[i].writes == list[i].writes;
    return same;
}

/* Twice round, as the first uses follow the last ones. */
static sheaf_status *find_writers(sheaf__offload *o)
{
    const int64_t n = o->listed;
    int64_t *writer = malloc((size_t)o->count * sizeof *writer);
    if (writer == NULL)
        return sheaf__no_memory("list of an offload");
    for (int64_t i = 0; i < o->count; i++)
        writer[i] = -1;
    for (int64_t i = 0; i < 2 * n; i++) {
        int64_t *last = &writer[o->list[i % n].block];
        o->since[i % n] = *last < 0 ? 0 : i - *last;
        *last = o->list[i % n].writes ? i : *last;
        o->writes = o->writes || o->list[i % n].writes;
    }
    free(writer);
    return NULL;
}

static sheaf_status *take_list(sheaf__offload *o, const sheaf__offload_use *list, int64_t count,
                               size_t together)
{
    free(o->list);
    free(o->since);
    free(o->at);
    o->list = malloc((size_t)count * sizeof *o->list);
    o->since = malloc((size_t)count * sizeof *o->since);
    o->at = malloc(2 * (size_t)count * sizeof *o->at);
    o->listed = count;
    o->writes = false;
    if (o->list == NULL || o->since == NULL || o->at == NULL)
        return sheaf__no_memory("list of an offload");
    memcpy(o->list, list, (size_t)count * sizeof *list);
    sheaf_status *st = find_writers(o);
    return TRY(st, sheaf__offload_ring(o, together));
}

sheaf_status *sheaf__offload_begin(sheaf__offload *o, const sheaf__offload_use *list, int64_t count,
                                   size_t together)
{
    if (count == 0 || goes_on(o, list, count))
        return NULL;
    sheaf_status *st = sheaf__offload_stop(o);
    TRY(st, take_list(o, list, count, together));
    TRY(st, start(o));
    if (st != NULL)
        return st;
    pthread_mutex_lock(&o->lock);
    o->ready = o->taken = o->given = o->freed = 0;
    o->runs = true;
    pthread_cond_broadcast(&o->moved);
    pthread_mutex_unlock(&o->lock);
    return NULL;
}

/* With the lock. */
static sheaf_status *failure(sheaf__offload *o)
{
    sheaf_status *st = o->failed;
    o->failed = NULL;
    if (st == NULL && o->broken)
        st = sheaf_fail(SHEAF_E_IO, "offload: it failed before");
    o->broken = o->broken || st != NULL;
    return st;
}

sheaf_status *sheaf__offload_take(void **at, sheaf__offload *o)
{
    *at = o->ring;
    if (o->device->class->counts) {
        const sheaf__offload_use *use = use_of(o, o->taken++);
        o->costs.read += use->reads ? o->block[use->block].used : 0;
        return NULL;
    }
    pthread_mutex_lock(&o->lock);
    if (o->ready <= o->taken && o->failed == NULL && !o->broken) {
        const double began = sheaf__seconds();
        while (o->ready <= o->taken && o->failed == NULL && !o->broken)
            pthread_cond_wait(&o->moved, &o->lock);
        o->costs.waiting += sheaf__seconds() - began;
    }
    sheaf_status *st = failure(o);
    if (st == NULL)
        *at = o->ring + *place_of(o, o->taken++);
    pthread_mutex_unlock(&o->lock);
    return st;
}

/* After the last read of the block, and before it is written. */
static void give(sheaf__offload *o, size_t bytes)
{
    pthread_mutex_lock(&o->lock);
    if (o->given < o->taken) {
        const sheaf__offload_use *use = use_of(o, o->given);
        place *p = &o->block[use->block];
        if (use->writes)
            p->used = bytes < p->bytes ? bytes : p->bytes;
        if (o->device->class->counts && use->writes)
            o->costs.written += p->used;
        o->given++;
        pthread_cond_broadcast(&o->moved);
    }
    pthread_mutex_unlock(&o->lock);
}

void sheaf__offload_give(sheaf__offload *o)
{
    give(o, SIZE_MAX);
}

void sheaf__offload_give_part(sheaf__offload *o, size_t bytes)
{
    give(o, bytes);
}

sheaf_status *sheaf__offload_stop(sheaf__offload *o)
{
    pthread_mutex_lock(&o->lock);
    while (o->started && o->runs && o->writes && o->freed < o->given && o->failed == NULL &&
           !o->broken)
        pthread_cond_wait(&o->moved, &o->lock);
    o->runs = false;
    while (o->busy)
        pthread_cond_wait(&o->moved, &o->lock);
    sheaf_status *st = failure(o);
    pthread_mutex_unlock(&o->lock);
    return st;
}

sheaf__offload_costs sheaf__offload_costs_of(sheaf__offload *o)
{
    pthread_mutex_lock(&o->lock);
    const sheaf__offload_costs costs = o->costs;
    pthread_mutex_unlock(&o->lock);
    return costs;
}
