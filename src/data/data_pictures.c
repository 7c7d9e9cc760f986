/* data_pictures.c - see data_pictures.h. */
#include "data/data_pictures.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/cores.h"
#include "base/file.h"
#include "base/thread.h"
#include "inputs/image.h"
#include "data/data_rows.h"

enum {
    MOST_WORKERS = 4, /* that decode ahead, beside the compute threads */
    MOST_CHECKERS = 64,
};

typedef struct slot {
    enum { EMPTY, LOADING, READY } state;
    int64_t row;
    int users;      /* that read its bytes now */
    uint64_t stamp; /* of its last use */
    uint8_t *bytes; /* [height * width * 3] of each tower; made when first used */
    size_t room;    /* for so many */
} slot;

struct sheaf__pictures {
    const sheaf__data_images *shape;
    int64_t rows;
    sheaf__pictures_source source; /* all NULL: files, of which the next two are */
    char **path;                   /* [rows] NULL without an image */
    size_t size;  /* bytes of an image at the towers' sizes together; of a source those of the
                     largest row */
    int64_t held; /* bytes of the paths */
    int threads;
    const atomic_int *asked; /* not 0: to stop the check; may be NULL */
    pthread_mutex_t large;   /* held while a large picture is decoded */
    pthread_mutex_t lock;    /* of all below */
    pthread_cond_t changed, work;
    slot *slot;
    int64_t slots;
    uint64_t stamp;
    int64_t *wanted; /* [slots] rows announced, next_wanted .. nwanted are to be done */
    int64_t nwanted, next_wanted;
    pthread_t worker[MOST_WORKERS];
    int workers;
    bool started, stop;
};

/* Bytes of a row's pictures; 0: it has none. */
static size_t bytes_of(const sheaf__pictures *p, int64_t row)
{
    if (p->source.size != NULL)
        return p->source.size(p->source.self, row);
    return p->path[row] == NULL ? 0 : p->size;
}

/* ---- one picture ---- */

static sheaf_status *changed(void)
{
    sheaf_status *st = sheaf_fail(SHEAF_E_DATA, "changed while the run went on");
    sheaf_expected(st, "the bytes it had when the data set was checked");
    return sheaf_try_this(sheaf_found(st, "others"), "put the file back; then go on with --resume");
}

/* Decoded and resized to bytes. */
static sheaf_status *prepare(sheaf__pictures *p, int64_t row, uint8_t *dst)
{
    if (p->source.prepare != NULL)
        return p->source.prepare(p->source.self, row, dst);
    const unsigned mode = sheaf__compute_mode_enter(); /* a worker's numbers are a rank's */
    sheaf_image image = { 0 };
    char *bytes = NULL;
    size_t size = 0;
    bool named = true; /* by sheaf__file_read_all() */
    sheaf_status *st = sheaf__file_read_all(&bytes, &size, p->path[row], SHEAF_IMAGE_MAX_FILE);
    if (st == NULL) {
        named = false;
        st = sheaf__hash_equal(sheaf__hash(bytes, size), p->shape->hash[row])
                 ? sheaf_image_decode_in_turn(&image, bytes, size, &p->large)
                 : changed();
    }
    free(bytes);
    for (int t = 0; t < p->shape->towers && st == NULL; t++) {
        const sheaf__tower *tower = &p->shape->tower[t];
        st = sheaf_image_resize(dst, &image, tower->width, tower->height);
        dst += 3 * tower->width * tower->height;
    }
    sheaf_image_release(&image);
    sheaf__compute_mode_leave(mode);
    return named ? st : sheaf_in(st, "%s", p->path[row]);
}

static void normalise(const sheaf__pictures *p, int64_t row, const sheaf__picture *out,
                      const uint8_t *bytes)
{
    if (p->source.show != NULL) {
        p->source.show(p->source.self, row, out, bytes);
        return;
    }
    const unsigned mode = sheaf__compute_mode_enter();
    for (int t = 0; t < p->shape->towers; t++) {
        const int64_t n = out->of[t].height * out->of[t].width;
        sheaf_image_normalise(out->of[t].pixels, bytes, n, &sheaf_image_clip_scale);
        bytes += 3 * n;
    }
    sheaf__compute_mode_leave(mode);
}

/* ---- slots; all with the lock held ---- */

static slot *find(sheaf__pictures *p, int64_t row)
{
    for (int64_t i = 0; i < p->slots; i++)
        if (p->slot[i].state != EMPTY && p->slot[i].row == row) {
            p->slot[i].stamp = ++p->stamp;
            return &p->slot[i];
        }
    return NULL;
}

/* A slot for `row`, LOADING: an empty one, or the one longest unused. NULL when all are busy. */
static slot *claim(sheaf__pictures *p, int64_t row)
{
    slot *best = NULL;
    for (int64_t i = 0; i < p->slots; i++) {
        slot *s = &p->slot[i];
        if (s->state == LOADING || s->users > 0)
            continue;
        const uint64_t age = s->state == EMPTY ? 0 : s->stamp;
        if (best == NULL || age < (best->state == EMPTY ? 0 : best->stamp))
            best = s;
    }
    const size_t need = bytes_of(p, row);
    if (best != NULL && best->room < need) {
        free(best->bytes);
        best->bytes = malloc(need);
        best->room = best->bytes == NULL ? 0 : need;
        best->state = EMPTY;
    }
    if (best == NULL || best->bytes == NULL)
        return NULL;
    best->state = LOADING;
    best->row = row;
    best->stamp = ++p->stamp;
    return best;
}

/* Fills a slot that is LOADING; the lock is given away meanwhile. */
static sheaf_status *fill(sheaf__pictures *p, slot *s)
{
    pthread_mutex_unlock(&p->lock);
    sheaf_status *st = prepare(p, s->row, s->bytes);
    pthread_mutex_lock(&p->lock);
    s->state = st == NULL ? READY : EMPTY;
    pthread_cond_broadcast(&p->changed);
    return st;
}

/* ---- ahead of the step ---- */

/* What fails here fails again for the one who needs the row, who then says so. */
static void *work(void *arg)
{
    sheaf__pictures *p = arg;
    pthread_mutex_lock(&p->lock);
    while (!p->stop) {
        if (p->next_wanted == p->nwanted) {
            pthread_cond_wait(&p->work, &p->lock);
            continue;
        }
        const int64_t row = p->wanted[p->next_wanted++];
        slot *s = find(p, row) != NULL ? NULL : claim(p, row);
        if (s != NULL)
            sheaf_status_free(fill(p, s));
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

/* As many as can be had; without any, every rank decodes what it needs. */
static void start(sheaf__pictures *p)
{
    const int half = p->threads / 2, want = half < 1              ? 1
                                            : half > MOST_WORKERS ? MOST_WORKERS
                                                                  : half;
    p->started = true;
    while (p->workers < want && sheaf__thread_start(&p->worker[p->workers], work, p) == 0)
        p->workers++;
}

void sheaf__pictures_announce(void *self, const int64_t *row, int64_t n)
{
    sheaf__pictures *p = self;
    pthread_mutex_lock(&p->lock);
    p->nwanted = p->next_wanted = 0;
    for (int64_t i = 0; i < n && p->nwanted < p->slots; i++)
        if (row[i] >= 0 && bytes_of(p, row[i]) > 0)
            p->wanted[p->nwanted++] = row[i];
    if (!p->started)
        start(p);
    pthread_cond_broadcast(&p->work);
    pthread_mutex_unlock(&p->lock);
}

/* Every slot is busy. */
static sheaf_status *load_alone(sheaf__pictures *p, int64_t row, const sheaf__picture *out)
{
    uint8_t *bytes = malloc(bytes_of(p, row));
    sheaf_status *st =
        bytes == NULL ? sheaf_fail(SHEAF_E_MEMORY, "pictures") : prepare(p, row, bytes);
    if (st == NULL)
        normalise(p, row, out, bytes);
    free(bytes);
    return st;
}

sheaf_status *sheaf__pictures_load(void *self, int64_t row, const sheaf__picture *picture)
{
    sheaf__pictures *p = self;
    sheaf_status *st = NULL;
    slot *s;
    pthread_mutex_lock(&p->lock);
    while ((s = find(p, row)) != NULL && s->state == LOADING)
        pthread_cond_wait(&p->changed, &p->lock);
    if (s == NULL && (s = claim(p, row)) != NULL)
        st = fill(p, s);
    if (st == NULL && s != NULL)
        s->users++;
    pthread_mutex_unlock(&p->lock);
    if (st != NULL)
        return st;
    if (s == NULL)
        return load_alone(p, row, picture);
    normalise(p, row, picture, s->bytes);
    pthread_mutex_lock(&p->lock);
    s->users--;
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

/* ---- before the first step ---- */

typedef struct check {
    sheaf__pictures *pictures;
    sheaf_hash *hash;
    sheaf_status **bad;
    const sheaf_events *events; /* NULL but for one thread */
    atomic_int_least64_t *next, *done;
    atomic_bool *stop;
} check;

static sheaf_status *check_one(sheaf__pictures *p, int64_t row, sheaf_hash *hash)
{
    sheaf_image image = { 0 };
    char *bytes = NULL;
    size_t size = 0;
    sheaf_status *st = sheaf__file_read_all(&bytes, &size, p->path[row], SHEAF_IMAGE_MAX_FILE);
    if (st != NULL) /* names the path */
        return st;
    *hash = sheaf__hash(bytes, size);
    st = sheaf_image_decode_in_turn(&image, bytes, size, &p->large);
    free(bytes);
    sheaf_image_release(&image);
    return sheaf_in(st, "%s", p->path[row]);
}

static void tell(const sheaf_events *events, int64_t done, int64_t total)
{
    sheaf_emit(events, &(sheaf_event){ .kind = SHEAF_EVENT_PROGRESS,
                                       .text = "images checked",
                                       .done = done,
                                       .total = total });
}

static bool asked_to_stop(const sheaf__pictures *p)
{
    return p->asked != NULL && atomic_load(p->asked) != 0;
}

static void *check_some(void *arg)
{
    const check *c = arg;
    sheaf__pictures *p = c->pictures;
    for (int64_t row; (row = atomic_fetch_add(c->next, 1)) < p->rows && !atomic_load(c->stop) &&
                      !asked_to_stop(p);) {
        if (p->path[row] != NULL)
            c->bad[row] = check_one(p, row, &c->hash[row]);
        if (c->bad[row] != NULL && sheaf_status_code(c->bad[row]) == SHEAF_E_MEMORY)
            atomic_store(c->stop, true);
        const int64_t done = atomic_fetch_add(c->done, 1) + 1;
        if (done < p->rows)
            tell(c->events, done, p->rows);
    }
    return NULL;
}

sheaf_status *sheaf__pictures_check(sheaf__pictures *p, sheaf_hash *hash, sheaf_status **bad,
                                    const sheaf_events *events)
{
    atomic_int_least64_t next = 0, done = 0;
    atomic_bool stop = false;
    pthread_t helper[MOST_CHECKERS];
    int helpers = 0;
    check mine = { p, hash, bad, events, &next, &done, &stop }, theirs = mine;
    theirs.events = NULL;
    const int most = p->rows < p->threads ? (int)p->rows : p->threads;
    while (helpers < most - 1 && helpers < MOST_CHECKERS &&
           sheaf__thread_start(&helper[helpers], check_some, &theirs) == 0)
        helpers++;
    check_some(&mine);
    for (int i = 0; i < helpers; i++)
        pthread_join(helper[i], NULL);
    if (!stop && done < p->rows)
        return sheaf_try_this(
            sheaf_fail(SHEAF_E_STOPPED, "asked to stop while images were checked"),
            "nothing was saved; give the same command again");
    if (!stop)
        tell(events, p->rows, p->rows);
    for (int64_t r = 0; r < p->rows && stop; r++)
        if (bad[r] != NULL && sheaf_status_code(bad[r]) == SHEAF_E_MEMORY) {
            sheaf_status *st = bad[r];
            bad[r] = NULL;
            return st;
        }
    return NULL;
}

/* ---- life ---- */

static sheaf_status *copy_paths(sheaf__pictures *p, const sheaf__records *records)
{
    for (int64_t r = 0; r < p->rows; r++) {
        const char *path = records->record[r].image;
        if (path == NULL)
            continue;
        p->path[r] = strdup(path);
        if (p->path[r] == NULL)
            return sheaf__data_no_memory(0);
        p->held += (int64_t)strlen(path) + 1;
    }
    return NULL;
}

/* What both kinds have. */
static sheaf__pictures *make(int64_t rows, const sheaf__pictures_options *options)
{
    sheaf__pictures *p = calloc(1, sizeof *p);
    if (p == NULL)
        return NULL;
    p->rows = rows;
    p->threads = sheaf__cores(options->threads);
    p->asked = options->stop;
    p->slots = options->slots < p->rows ? options->slots : p->rows;
    p->slots = p->slots < 1 ? 1 : p->slots;
    pthread_mutex_init(&p->large, NULL);
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->changed, NULL);
    pthread_cond_init(&p->work, NULL);
    p->slot = calloc((size_t)p->slots, sizeof *p->slot);
    p->wanted = calloc((size_t)p->slots, sizeof *p->wanted);
    if (p->slot != NULL && p->wanted != NULL)
        return p;
    sheaf__pictures_free(p);
    return NULL;
}

sheaf_status *sheaf__pictures_new(sheaf__pictures **out, const sheaf__records *records,
                                  const sheaf__data_images *shape,
                                  const sheaf__pictures_options *options)
{
    sheaf__pictures *p = make(records->count, options);
    if (p == NULL)
        return sheaf__data_no_memory(0);
    p->shape = shape;
    for (int t = 0; t < shape->towers; t++)
        p->size += (size_t)(3 * shape->tower[t].height * shape->tower[t].width);
    p->path = calloc((size_t)p->rows + 1, sizeof *p->path);
    sheaf_status *st = p->path == NULL ? sheaf__data_no_memory(0) : copy_paths(p, records);
    if (st != NULL) {
        sheaf__pictures_free(p);
        return st;
    }
    *out = p;
    return NULL;
}

sheaf_status *sheaf__pictures_of(sheaf__pictures **out, int64_t rows,
                                 const sheaf__pictures_source *source,
                                 const sheaf__pictures_options *options)
{
    sheaf__pictures *p = make(rows, options);
    if (p == NULL)
        return sheaf__data_no_memory(0);
    p->source = *source;
    for (int64_t r = 0; r < rows; r++)
        p->size = bytes_of(p, r) > p->size ? bytes_of(p, r) : p->size;
    *out = p;
    return NULL;
}

void sheaf__pictures_free(void *pictures)
{
    sheaf__pictures *p = pictures;
    if (p == NULL)
        return;
    pthread_mutex_lock(&p->lock);
    p->stop = true;
    pthread_cond_broadcast(&p->work);
    pthread_mutex_unlock(&p->lock);
    for (int i = 0; i < p->workers; i++)
        pthread_join(p->worker[i], NULL);
    for (int64_t r = 0; p->path != NULL && r < p->rows; r++)
        free(p->path[r]);
    for (int64_t i = 0; p->slot != NULL && i < p->slots; i++)
        free(p->slot[i].bytes);
    if (p->source.close != NULL)
        p->source.close(p->source.self);
    free(p->path);
    free(p->slot);
    free(p->wanted);
    pthread_cond_destroy(&p->work);
    pthread_cond_destroy(&p->changed);
    pthread_mutex_destroy(&p->lock);
    pthread_mutex_destroy(&p->large);
    free(p);
}

int64_t sheaf__pictures_memory(const sheaf__pictures *p)
{
    return p->held + (p->path == NULL ? 0 : p->rows * (int64_t)sizeof *p->path) +
           p->slots * (int64_t)(p->size + sizeof *p->slot + sizeof *p->wanted);
}

int64_t sheaf__pictures_held(sheaf__pictures *p)
{
    int64_t n = 0;
    pthread_mutex_lock(&p->lock);
    for (int64_t i = 0; i < p->slots; i++)
        n += p->slot[i].state == READY;
    pthread_mutex_unlock(&p->lock);
    return n;
}
