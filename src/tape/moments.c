/* moments.c - see moments.h. */
#include "tape/moments.h"

#include "base/base.h"
#include "ops/adamw/adamw.h"
#include "tape/rows.h"

/* Bits 57 to 63 of an address are equal. */
#define NOWHERE ((uintptr_t)3 << 60)

/* Elements: the ring holds four chunks, of small sets a quarter of all. */
enum { CHUNK = 1 << 20, LEAST = 1 << 12, SHARE = 16, TOGETHER = 2, SECTIONS = 4, ALIGN = 16 };

/* Arrays of as many units each, which chunks divide in the same way: both moments of all tensors,
 * whose unit is an element; or of a slice both moments' codes and then both moments' scales, whose
 * unit is a block of SHEAF__ADAMW8_BLOCK. A block of the offload has of each array in turn the
 * units of a chunk. */
typedef struct piece {
    size_t begin, end;      /* of its addresses, from NOWHERE on */
    size_t array[SECTIONS]; /* of these, where each array begins */
    size_t unit[SECTIONS];  /* bytes of a unit of each */
    int sections;           /* arrays */
    int64_t first, chunk;   /* its first chunk among all; units of one */
    int64_t units;
} piece;

struct sheaf__moments {
    sheaf__device *device;
    sheaf__offload *offload;
    sheaf__elsewhere range;
    piece *piece; /* in the order of addresses and of updates */
    int64_t count, capacity;
    sheaf__offload_use *use; /* [chunks] */
    int64_t chunks;
    size_t most; /* bytes of a chunk */
    int64_t at;  /* the chunk that is taken; -1: none yet */
    char *held;  /* of it */
};

static size_t bytes_of(const piece *p)
{
    size_t bytes = 0;
    for (int k = 0; k < p->sections; k++)
        bytes += (size_t)p->chunk * p->unit[k];
    return bytes;
}

/* Offset of the array in a chunk. */
static size_t offset_of(const piece *p, int section)
{
    size_t at = 0;
    for (int k = 0; k < section; k++)
        at += (size_t)p->chunk * p->unit[k];
    return at;
}

static const piece *piece_at(const sheaf__moments *m, size_t at)
{
    int64_t low = 0, high = m->count;
    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        *(m->piece[middle].begin <= at ? &low : &high) = middle;
    }
    return &m->piece[low];
}

/* Bytes from `at` on, of one array, chunk by chunk. */
static sheaf_status *move(void *self, size_t at, void *host, size_t bytes, bool writes)
{
    sheaf__moments *m = self;
    const piece *p = piece_at(m, at);
    int k = p->sections - 1;
    while (p->array[k] > at)
        k--;
    const size_t chunk = (size_t)p->chunk * p->unit[k];
    sheaf_status *st = NULL;
    for (size_t done = 0, n; done < bytes && st == NULL; done += n) {
        const size_t from = at - p->array[k] + done, within = from % chunk,
                     place = offset_of(p, k) + within;
        const int64_t block = m->use[p->first + (int64_t)(from / chunk)].block;
        n = bytes - done < chunk - within ? bytes - done : chunk - within;
        st = writes ? sheaf__offload_write(m->offload, block, place, (char *)host + done, n)
                    : sheaf__offload_read(m->offload, block, place, (char *)host + done, n);
    }
    return st;
}

/* ---- opening ---- */

static int64_t chunks_of(const piece *p)
{
    return (p->units + p->chunk - 1) / p->chunk;
}

/* most: units of a chunk. The caller has set where its arrays begin. */
static sheaf_status *add_piece(sheaf__moments *m, piece p, int64_t most)
{
    if (p.units == 0)
        return NULL;
    if (!SHEAF_GROW(&m->piece, &m->capacity, m->count + 1))
        return sheaf__no_memory("moments");
    const int64_t chunks = (p.units + most - 1) / most;
    p.chunk = chunks == 1 ? p.units : (p.units / chunks + ALIGN) / ALIGN * ALIGN;
    p.first = m->chunks;
    m->chunks += chunks_of(&p);
    m->most = bytes_of(&p) > m->most ? bytes_of(&p) : m->most;
    m->piece[m->count++] = p;
    return NULL;
}

/* Elements of a chunk, where all moments together have `all`. */
static int64_t chunk_for(int64_t all)
{
    const int64_t share = (all / SHARE + LEAST - 1) / LEAST * LEAST;
    return share < LEAST ? LEAST : share > CHUNK ? CHUNK : share;
}

static sheaf_status *add_floats(sheaf__moments *m, sheaf__trained_set *set)
{
    const size_t bytes = (size_t)set->kept * sizeof(float);
    set->moment1 = (float *)NOWHERE;
    set->moment2 = (float *)(NOWHERE + bytes);
    m->range.bytes = 2 * bytes;
    return add_piece(m,
                     (piece){ .end = 2 * bytes,
                              .array = { 0, bytes },
                              .unit = { sizeof(float), sizeof(float) },
                              .sections = 2,
                              .units = set->kept },
                     chunk_for(set->kept));
}

static sheaf_status *add_codes(sheaf__moments *m, sheaf__trained *t, int s, int64_t most)
{
    const size_t begin = m->range.bytes;
    const char *end = sheaf__trained8_place(t, s, (char *)NOWHERE + begin);
    m->range.bytes = (size_t)((uintptr_t)end - NOWHERE);
    const void *const array[] = { t->code1[s], t->code2[s], t->absmax1[s], t->absmax2[s] };
    piece p = { .begin = begin,
                .end = m->range.bytes,
                .unit = { SHEAF__ADAMW8_BLOCK, SHEAF__ADAMW8_BLOCK, sizeof(float), sizeof(float) },
                .sections = SECTIONS,
                .units = t->blocks };
    for (int k = 0; k < SECTIONS; k++)
        p.array[k] = (uintptr_t)array[k] - NOWHERE;
    return add_piece(m, p, most / SHEAF__ADAMW8_BLOCK);
}

static sheaf_status *add_all_codes(sheaf__moments *m, const sheaf__trained_set *set)
{
    const int64_t most = chunk_for(set->kept - set->moment_floats);
    sheaf_status *st = NULL;
    for (sheaf__trained_walk at = { 0 }; st == NULL && sheaf__trained_next(&at, set);)
        if (at.item->eight)
            st = add_codes(m, at.item, at.slice, most);
    return st;
}

static sheaf_status *open_chunks(sheaf__moments *m, const char *folder)
{
    int64_t c = 0;
    sheaf_status *st = sheaf__offload_new(&m->offload, m->device, SHEAF_MEM_OPTIMIZER, folder);
    m->use = calloc((size_t)m->chunks + 1, sizeof *m->use);
    if (m->use == NULL)
        return sheaf__first_of(st, sheaf__no_memory("moments"));
    for (int64_t i = 0; i < m->count; i++)
        for (int64_t k = chunks_of(&m->piece[i]); k > 0; k--, c++) {
            m->use[c].reads = m->use[c].writes = true;
            TRY(st, sheaf__offload_add(&m->use[c].block, m->offload, bytes_of(&m->piece[i])));
        }
    TRY(st, sheaf__offload_claim(m->offload));
    return TRY(st, sheaf__offload_ring(m->offload, TOGETHER * m->most));
}

sheaf_status *sheaf__moments_new(sheaf__moments **out, sheaf__trained_set *set)
{
    sheaf__moments *m = calloc(1, sizeof *m);
    if (m == NULL)
        return sheaf__no_memory("moments");
    m->device = set->context->device;
    m->range = (sheaf__elsewhere){ NOWHERE, 0, move, m };
    *out = m;
    sheaf_status *st = set->eight_bits ? add_all_codes(m, set) : add_floats(m, set);
    m->device->elsewhere = &m->range;
    return TRY(st, open_chunks(m, set->folder));
}

void sheaf__moments_free(sheaf__moments *m)
{
    if (m == NULL)
        return;
    m->device->elsewhere = NULL;
    sheaf__offload_free(m->offload);
    free(m->piece);
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
                       sheaf__offload_begin(m->offload, m->use, m->chunks, TOGETHER * m->most));
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
    const piece *p = m->piece;
    if ((uintptr_t)of.moment1 < NOWHERE) { /* small ones, beside those in 8 bits */
        sheaf__op_adamw(m->device, of);
        return;
    }
    const int64_t first = (int64_t)(((uintptr_t)of.moment1 - NOWHERE) / sizeof(float));
    for (int64_t done = 0, n; done < of.n; done += n) {
        const int64_t chunk = (first + done) / p->chunk, within = (first + done) % p->chunk;
        n = of.n - done < p->chunk - within ? of.n - done : p->chunk - within;
        if (!advance(m, chunk))
            return;
        float *const held = (float *)m->held + within;
        sheaf__op_adamw(m->device, (sheaf__update){ of.master + done, held, held + p->chunk,
                                                    of.grad + done, n, of.how });
    }
}

void sheaf__moments_update8(sheaf__moments *m, sheaf__update8 of)
{
    const piece *p = piece_at(m, (uintptr_t)of.moment1 - NOWHERE);
    const int64_t most = p->chunk * SHEAF__ADAMW8_BLOCK;
    int64_t chunk = p->first;
    for (int64_t done = 0, n; done < of.n; done += n, chunk++) {
        n = of.n - done < most ? of.n - done : most;
        if (!advance(m, chunk))
            return;
        sheaf__update8 now = of;
        now.master += done;
        now.grad += done;
        now.n = n;
        now.moment1 = (uint8_t *)m->held;
        now.moment2 = (uint8_t *)m->held + offset_of(p, 1);
        now.absmax1 = (float *)(m->held + offset_of(p, 2));
        now.absmax2 = (float *)(m->held + offset_of(p, 3));
        sheaf__op_adamw8(m->device, now);
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
        TRY(st, sheaf__return(piece, m->device, at + done, bytes, false));
        sheaf__device_fail(m->device, st);
    }
    return finite;
}

size_t sheaf__moments_host(const sheaf__trained_set *set, size_t most)
{
    size_t largest = 0;
    for (sheaf__trained_walk at = { 0 }; sheaf__trained_next(&at, set);) {
        const size_t n = (size_t)at.item->numel[at.slice],
                     bytes = !sheaf__trained_away(set, at.item) ? 0
                             : at.item->eight                   ? n
                                                                : n * sizeof(float);
        largest = bytes > largest ? bytes : largest;
    }
    return largest < most ? largest : most;
}
