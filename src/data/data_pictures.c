/* data_pictures.c - see data_pictures.h. */
#include "data/data_pictures.h"

#include <pthread.h>

#include "base/base.h"
#include "base/thread.h"
#include "data/data_rows.h"

enum { MOST_WORKERS = 4 }; /* threads that decode ahead, beside the compute threads */

typedef struct slot {
    enum { EMPTY, LOADING, READY } state;
    int64_t row;
    int users;      /* threads that read its bytes */
    uint64_t stamp; /* of its last use */
    uint8_t *bytes; /* of a row's pictures; made when first used */
    size_t room;    /* bytes allocated */
} slot;

struct sheaf__pictures {
    sheaf__viewing viewing;
    int64_t rows, count;
    int64_t *first;        /* [rows + 1] */
    sheaf__viewed *viewed; /* [count] */
    int64_t row_capacity, capacity;
    int64_t held; /* bytes of the above */
    int threads;
    pthread_mutex_t large; /* held while a large picture is decoded */
    pthread_mutex_t lock;  /* of all below */
    pthread_cond_t changed, work;
    slot *slot;
    int64_t slots;
    uint64_t stamp;
    int64_t *wanted; /* [slots] announced rows; next_wanted .. nwanted are to do */
    int64_t nwanted, next_wanted;
    pthread_t worker[MOST_WORKERS];
    int workers;
    bool started, stop;
};

/* ---- the pictures of a row ---- */

/* Bytes of a row's pictures; 0: it has none. */
static size_t bytes_of(const sheaf__pictures *p, int64_t row)
{
    size_t n = 0;
    for (int64_t i = p->first[row]; i < p->first[row + 1]; i++)
        n += sheaf__view_size(&p->viewed[i], &p->viewing);
    return n;
}

/* Decoded and resized to bytes. */
static sheaf_status *prepare(const sheaf__pictures *p, int64_t row, uint8_t *bytes)
{
    sheaf_status *st = NULL;
    for (int64_t i = p->first[row]; i < p->first[row + 1] && st == NULL; i++) {
        st = sheaf__view_bytes(bytes, &p->viewed[i], &p->viewing);
        bytes += sheaf__view_size(&p->viewed[i], &p->viewing);
    }
    return st;
}

static void normalise(const sheaf__pictures *p, int64_t row, const sheaf__picture *picture,
                      const uint8_t *bytes)
{
    for (int64_t i = p->first[row]; i < p->first[row + 1]; i++) {
        sheaf__view_show(picture, bytes, &p->viewed[i], &p->viewing);
        picture += sheaf__sliced_count(&p->viewed[i].pieces);
        bytes += sheaf__view_size(&p->viewed[i], &p->viewing);
    }
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

/* Fills a slot that is LOADING; releases the lock meanwhile. */
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

/* Ignores failures: they occur again, and are reported, when the row is needed. */
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

/* Starts as many as possible; without any, every rank decodes its own rows. */
static void start(sheaf__pictures *p)
{
    const int half = p->threads / 2, want = half < 1              ? 1
                                            : half > MOST_WORKERS ? MOST_WORKERS
                                                                  : half;
    p->started = true;
    while (p->workers < want && sheaf__thread_start(&p->worker[p->workers], work, p) == 0)
        p->workers++;
}

static void announce(void *self, const int64_t *row, int64_t n)
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
    sheaf_status *st = bytes == NULL ? sheaf__no_memory("pictures") : prepare(p, row, bytes);
    if (st == NULL)
        normalise(p, row, out, bytes);
    free(bytes);
    return st;
}

static sheaf_status *load(void *self, int64_t row, const sheaf__picture *picture)
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

/* ---- rows ---- */

sheaf_status *sheaf__pictures_new(sheaf__pictures **out, const sheaf_config *config, int threads)
{
    sheaf__pictures *p = calloc(1, sizeof *p);
    if (p == NULL)
        return sheaf__data_no_memory(0);
    pthread_mutex_init(&p->large, NULL);
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->changed, NULL);
    pthread_cond_init(&p->work, NULL);
    p->threads = sheaf__cores(threads);
    sheaf__viewing_of(&p->viewing, config);
    p->viewing.large = &p->large;
    *out = p;
    return NULL;
}

const sheaf__viewing *sheaf__pictures_viewing(const sheaf__pictures *p)
{
    return &p->viewing;
}

sheaf_status *sheaf__pictures_put(sheaf__pictures *p, sheaf__viewed *viewed, int64_t n)
{
    if (!SHEAF_GROW(&p->first, &p->row_capacity, p->rows + 2) ||
        !SHEAF_GROW(&p->viewed, &p->capacity, p->count + n))
        return sheaf__data_no_memory(0);
    p->first[0] = 0;
    for (int64_t i = 0; i < n; i++) {
        p->held += (int64_t)(sizeof *p->viewed + strlen(viewed[i].path) + 1);
        p->viewed[p->count++] = viewed[i];
        viewed[i] = (sheaf__viewed){ 0 };
    }
    p->first[++p->rows] = p->count;
    return NULL;
}

/* If the towers read whole pictures at their own sizes, the hash of a file is enough. */
static void describe_whole(const sheaf__pictures *p, sheaf__data_images *images)
{
    for (int64_t r = 0; r < p->rows; r++)
        if (p->first[r] < p->first[r + 1])
            images->hash[r] = p->viewed[p->first[r]].hash;
}

/* A piece of a picture, as the first tower sees it. */
static sheaf__picture piece_at(const void *self, int64_t row, int64_t i)
{
    const sheaf__pictures *p = self;
    const sheaf__viewed *v = &p->viewed[p->first[row]];
    for (; i >= sheaf__sliced_count(&v->pieces); v++)
        i -= sheaf__sliced_count(&v->pieces);
    sheaf__picture piece = sheaf__view_piece(&v->pieces, i);
    piece.frame = v->frame;
    piece.joins = v->joins;
    return piece;
}

/* Counts pieces, and hashes each row's pictures. */
static sheaf_status *describe(const sheaf__pictures *p, sheaf__data_images *images)
{
    sheaf_hasher *hasher = sheaf__hasher_new();
    if (hasher == NULL)
        return sheaf__data_no_memory(0);
    for (int64_t r = 0; r < p->rows; r++) {
        images->first[r + 1] = images->first[r];
        for (int64_t i = p->first[r]; i < p->first[r + 1]; i++) {
            const sheaf__sliced *s = &p->viewed[i].pieces;
            const sheaf_hash h = p->viewed[i].hash;
            sheaf__hasher_add(hasher, (const uint64_t[2]){ h.low, h.high }, 16);
            sheaf__hasher_add(hasher, s, sizeof *s);
            sheaf__data_images_hash_frame(hasher, p->viewed[i].frame, p->viewed[i].joins);
            images->first[r + 1] += sheaf__sliced_count(s);
        }
        images->hash[r] =
            p->first[r] < p->first[r + 1] ? sheaf__hasher_end(hasher) : (sheaf_hash){ 0 };
    }
    images->at = piece_at;
    sheaf__hasher_free(hasher);
    return NULL;
}

sheaf_status *sheaf__pictures_keep(sheaf__pictures *p, sheaf_data *data, int64_t micro_batch)
{
    sheaf__data_images *images = data->images;
    size_t largest = 0;
    p->slots = 3 * (micro_batch > 0 ? micro_batch : 1);
    p->slots = p->slots < p->rows ? p->slots : p->rows;
    p->slot = calloc((size_t)p->slots, sizeof *p->slot);
    p->wanted = calloc((size_t)p->slots, sizeof *p->wanted);
    if (p->slot == NULL || p->wanted == NULL)
        return sheaf__data_no_memory(0);
    sheaf_status *st = sheaf__data_images_rows_new(data);
    if (st == NULL && p->viewing.form.rows == 0 && p->viewing.form.most == 0)
        describe_whole(p, images);
    else
        TRY(st, describe(p, images));
    if (st != NULL)
        return st;
    for (int64_t r = 0; r < p->rows; r++)
        largest = bytes_of(p, r) > largest ? bytes_of(p, r) : largest;
    images->self = p;
    images->load = load;
    images->announce = announce;
    images->close = sheaf__pictures_free;
    images->memory = p->held + p->slots * (int64_t)(largest + sizeof *p->slot + sizeof *p->wanted);
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
    for (int64_t i = 0; i < p->count; i++)
        sheaf__viewed_release(&p->viewed[i]);
    for (int64_t i = 0; p->slot != NULL && i < p->slots; i++)
        free(p->slot[i].bytes);
    free(p->viewed);
    free(p->first);
    free(p->slot);
    free(p->wanted);
    pthread_cond_destroy(&p->work);
    pthread_cond_destroy(&p->changed);
    pthread_mutex_destroy(&p->lock);
    pthread_mutex_destroy(&p->large);
    free(p);
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
