/* moments.c - see moments.h. */
#include "tape/moments.h"

#include "base/base.h"
#include "tape/rows.h"

/* Bits 57 to 63 of an address are equal. */
#define NOWHERE ((uintptr_t)3 << 60)

/* Elements: the ring holds four chunks, of small sets a quarter of all. */
enum { CHUNK = 1 << 20, LEAST = 1 << 12, SHARE = 16, TOGETHER = 2 };

struct sheaf__moments {
    sheaf__device *device;
    sheaf__offload *offload;
    sheaf__elsewhere range;
    int64_t chunk, chunks;   /* elements of one, and how many there are */
    float *first;            /* address of the first moment */
    size_t apart;            /* bytes between both */
    sheaf__offload_use *use; /* [chunks] */
    int64_t at;              /* the chunk that is taken; -1: none yet */
    float *held;             /* of it: the first moment, behind it the second */
};

/* Bytes from `at` on, chunk by chunk. */
static sheaf_status *move(void *self, size_t at, void *host, size_t bytes, bool writes)
{
    sheaf__moments *m = self;
    const size_t chunk = (size_t)m->chunk * sizeof(float);
    sheaf_status *st = NULL;
    for (size_t done = 0, n; done < bytes && st == NULL; done += n) {
        const bool second = at + done >= m->apart;
        const size_t from = at + done - (second ? m->apart : 0), within = from % chunk,
                     place = within + (second ? chunk : 0);
        const int64_t block = m->use[from / chunk].block;
        n = bytes - done < chunk - within ? bytes - done : chunk - within;
        st = writes ? sheaf__offload_write(m->offload, block, place, (char *)host + done, n)
                    : sheaf__offload_read(m->offload, block, place, (char *)host + done, n);
    }
    return st;
}

static sheaf_status *open_chunks(sheaf__moments *m, const char *folder)
{
    const size_t bytes = 2 * (size_t)m->chunk * sizeof(float);
    sheaf_status *st = sheaf__offload_new(&m->offload, m->device, SHEAF_MEM_OPTIMIZER, folder);
    m->use = calloc((size_t)m->chunks + 1, sizeof *m->use);
    if (m->use == NULL)
        return sheaf__first_of(st, sheaf__no_memory("moments"));
    for (int64_t c = 0; c < m->chunks; c++) {
        m->use[c].reads = m->use[c].writes = true;
        TRY(st, sheaf__offload_add(&m->use[c].block, m->offload, bytes));
    }
    TRY(st, sheaf__offload_claim(m->offload));
    return TRY(st, sheaf__offload_ring(m->offload, TOGETHER * bytes));
}

sheaf_status *sheaf__moments_new(sheaf__moments **out, sheaf__trained_set *set)
{
    const int64_t share = (set->kept / SHARE + LEAST - 1) / LEAST * LEAST;
    sheaf__moments *m = calloc(1, sizeof *m);
    if (m == NULL)
        return sheaf__no_memory("moments");
    m->device = set->context->device;
    m->chunk = share < LEAST ? LEAST : share > CHUNK ? CHUNK : share;
    m->chunks = (set->kept + m->chunk - 1) / m->chunk;
    m->apart = (size_t)(m->chunks * m->chunk) * sizeof(float);
    m->first = (float *)NOWHERE;
    m->range = (sheaf__elsewhere){ NOWHERE, 2 * m->apart, move, m };
    m->device->elsewhere = &m->range;
    set->moment1 = m->first;
    set->moment2 = (float *)(NOWHERE + m->apart);
    *out = m;
    return open_chunks(m, set->folder);
}

void sheaf__moments_free(sheaf__moments *m)
{
    if (m == NULL)
        return;
    m->device->elsewhere = NULL;
    sheaf__offload_free(m->offload);
    free(m->use);
    free(m);
}

sheaf__offload *sheaf__moments_offload(const sheaf__moments *m)
{
    return m == NULL ? NULL : m->offload;
}

/* ---- updates ---- */

void sheaf__moments_begin(sheaf__moments *m)
{
    m->at = -1;
    sheaf__device_fail(m->device,
                       sheaf__offload_begin(m->offload, m->use, m->chunks,
                                            TOGETHER * 2 * (size_t)m->chunk * sizeof(float)));
}

/* Gives back what is before the chunk; false after a failure. */
static bool advance(sheaf__moments *m, int64_t chunk)
{
    for (; m->at < chunk; m->at++) {
        void *held;
        if (m->at >= 0)
            sheaf__offload_give(m->offload);
        sheaf_status *st = sheaf__offload_take(&held, m->offload);
        sheaf__device_fail(m->device, st);
        if (st != NULL)
            return false;
        m->held = held;
    }
    return true;
}

void sheaf__moments_update(sheaf__moments *m, sheaf__update of)
{
    const int64_t first = of.moment1 - m->first;
    for (int64_t done = 0, n; done < of.n; done += n) {
        const int64_t chunk = (first + done) / m->chunk, within = (first + done) % m->chunk;
        n = of.n - done < m->chunk - within ? of.n - done : m->chunk - within;
        if (!advance(m, chunk))
            return;
        sheaf__op_adamw(m->device,
                        (sheaf__update){ of.master + done, m->held + within,
                                         m->held + m->chunk + within, of.grad + done, n, of.how });
    }
}

void sheaf__moments_end(sheaf__moments *m)
{
    if (m->chunks > 0 && advance(m, m->chunks - 1))
        sheaf__offload_give(m->offload);
}

bool sheaf__moments_finite(const sheaf__moments *m, float *at, int64_t n)
{
    bool finite = true;
    for (int64_t done = 0, part; done < n && finite; done += part) {
        float *piece;
        part = n - done < CHUNK ? n - done : CHUNK;
        const size_t bytes = (size_t)part * sizeof *at;
        sheaf_status *st = sheaf__borrow(&piece, m->device, at + done, bytes, true);
        if (piece != NULL)
            finite = sheaf__is_finite_as(m->device->kernels, piece, SHEAF_F32, part, SHEAF_F32);
        if (st == NULL)
            st = sheaf__return(piece, m->device, at + done, bytes, false);
        sheaf__device_fail(m->device, st);
    }
    return finite;
}

size_t sheaf__moments_host(const sheaf__trained_set *set, size_t most)
{
    size_t largest = 0;
    for (int i = 0; i < set->count && set->moments != NULL; i++)
        for (int k = 0; k < set->item[i]->count; k++) {
            const size_t bytes =
                (size_t)set->item[i]->numel[set->item[i]->first + k] * sizeof(float);
            largest = bytes > largest ? bytes : largest;
        }
    return largest < most ? largest : most;
}
