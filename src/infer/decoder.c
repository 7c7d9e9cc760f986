/* decoder.c - see decoder.h. */
#include "infer/decoder.h"

#include <pthread.h>

#include "base/clock.h"
#include "base/thread.h"

enum {
    THREADS = 2,
    SMALL = 4000000,       /* pixels of a question's pictures; the last thread takes no more */
    MOST_KEPT = 256 << 20, /* bytes of decoded pictures; one question may have more */
};
static const double seconds_per_pixel = 1e-6;

struct sheaf__decoder {
    void (*changed)(void *self);
    void *self;
    pthread_t thread[THREADS];
    int threads;
    pthread_mutex_t lock; /* for what follows, and the decodings */
    int started;          /* threads */
    pthread_cond_t more;
    sheaf__decoding *first; /* that wait, in any order */
    size_t kept;            /* bytes */
    bool closing;
};

static bool is_unwanted(void *self)
{
    return atomic_load((atomic_bool *)self);
}

/* Takes the next one out of the queue; NULL: there is none, or no memory for it. */
static sheaf__decoding *take(sheaf__decoder *d, bool small)
{
    sheaf__decoding **best = NULL;
    for (sheaf__decoding **at = &d->first; *at != NULL; at = &(*at)->next)
        if ((!small || (*at)->prompts->budget.used <= SMALL) &&
            (best == NULL || (*at)->moment < (*best)->moment))
            best = at;
    if (best == NULL || (d->kept > 0 && d->kept + (*best)->bytes > MOST_KEPT))
        return NULL;
    sheaf__decoding *one = *best;
    *best = one->next;
    return one;
}

static void *work(void *self)
{
    sheaf__decoder *d = self;
    pthread_mutex_lock(&d->lock);
    const bool small = d->started++ == THREADS - 1;
    while (!d->closing) {
        sheaf__decoding *one = take(d, small);
        if (one == NULL) {
            pthread_cond_wait(&d->more, &d->lock);
            continue;
        }
        one->at = SHEAF__DECODES_RUNS;
        d->kept += one->bytes;
        pthread_mutex_unlock(&d->lock);
        sheaf_status *st = sheaf__prompts_decode(one->prompts, is_unwanted, &one->unwanted);
        pthread_mutex_lock(&d->lock);
        one->failed = st;
        one->at = SHEAF__DECODES_OVER;
        pthread_mutex_unlock(&d->lock);
        d->changed(d->self);
        pthread_mutex_lock(&d->lock);
    }
    pthread_mutex_unlock(&d->lock);
    return NULL;
}

sheaf_status *sheaf__decoder_open(sheaf__decoder **out, void (*changed)(void *self), void *self)
{
    sheaf__decoder *d = calloc(1, sizeof *d);
    *out = NULL;
    if (d == NULL)
        return sheaf__no_memory("pictures");
    d->changed = changed;
    d->self = self;
    pthread_mutex_init(&d->lock, NULL);
    pthread_cond_init(&d->more, NULL);
    while (d->threads < THREADS && sheaf__thread_start(&d->thread[d->threads], work, d) == 0)
        d->threads++;
    if (d->threads == THREADS) {
        *out = d;
        return NULL;
    }
    sheaf__decoder_close(d);
    return sheaf__no_memory("a thread");
}

void sheaf__decoder_close(sheaf__decoder *d)
{
    if (d == NULL)
        return;
    pthread_mutex_lock(&d->lock);
    d->closing = true;
    pthread_cond_broadcast(&d->more);
    pthread_mutex_unlock(&d->lock);
    for (int i = 0; i < d->threads; i++)
        pthread_join(d->thread[i], NULL);
    pthread_mutex_destroy(&d->lock);
    pthread_cond_destroy(&d->more);
    free(d);
}

void sheaf__decoder_add(sheaf__decoder *d, sheaf__decoding *one, sheaf__prompts *prompts)
{
    *one = (sheaf__decoding){ .prompts = prompts,
                              .bytes = sheaf__prompts_pixels(prompts),
                              .moment = sheaf__seconds() +
                                        seconds_per_pixel * (double)prompts->budget.used };
    if (one->bytes == 0)
        return;
    pthread_mutex_lock(&d->lock);
    one->at = SHEAF__DECODES_WAITS;
    one->next = d->first;
    d->first = one;
    pthread_cond_broadcast(&d->more);
    pthread_mutex_unlock(&d->lock);
}

bool sheaf__decoder_ready(sheaf_status **failed, sheaf__decoder *d, sheaf__decoding *one)
{
    pthread_mutex_lock(&d->lock);
    const bool ready = one->at == SHEAF__DECODES_NONE || one->at == SHEAF__DECODES_OVER;
    *failed = one->failed;
    one->failed = NULL;
    pthread_mutex_unlock(&d->lock);
    return ready;
}

bool sheaf__decoder_drop(sheaf__decoder *d, sheaf__decoding *one)
{
    pthread_mutex_lock(&d->lock);
    const bool runs = one->at == SHEAF__DECODES_RUNS;
    one->unwanted = true;
    if (one->at == SHEAF__DECODES_WAITS) {
        sheaf__decoding **at = &d->first;
        while (*at != one)
            at = &(*at)->next;
        *at = one->next;
    }
    if (one->at == SHEAF__DECODES_OVER) {
        d->kept -= one->bytes;
        pthread_cond_broadcast(&d->more);
    }
    if (!runs) {
        sheaf_status_free(one->failed);
        *one = (sheaf__decoding){ .at = SHEAF__DECODES_NONE };
    }
    pthread_mutex_unlock(&d->lock);
    return !runs;
}
