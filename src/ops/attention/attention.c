/* attention.c - which parts of attention are computed where, and how many operations it takes. */
#include "ops/attention/attention_arguments.h"
#include "ops/attention/attention_parts.h"

#include <assert.h>
#include <string.h>

#include "base/cpu.h"
#include "ops/call.h"

/* An AVX-512 machine without the pair instruction takes the AVX2 kernels. */
sheaf__attention_kernel *sheaf__attention_kernel_for(const char *isa)
{
#ifndef SHEAF_NO_X86
    if (strcmp(isa, "avx512") == 0 && SHEAF__CPU_HAS("avx512bf16"))
        return sheaf__attention_avx512;
#endif
    return strcmp(isa, "ref") != 0 ? sheaf__attention_avx2 : sheaf__attention_ref;
}

/* The fast kernels read channels of 16 bits by pairs, from where they lie: the last one of an odd
 * head would take that of the next. No released model has such heads; they go by the definition. */
static sheaf__attention_kernel *kernel_of(const sheaf__device *device, const sheaf__attention *s)
{
    const bool pairs = s->dtype == SHEAF_BF16 || sheaf__by_mma(device->sums, s->dtype);
    return sheaf__attention_kernel_for(pairs && s->head_dim % 2 != 0 ? "ref"
                                                                     : device->kernels->isa);
}

/* Words of scratch for dk and dv of no key, and for each key; bfloat16 as where it is widened,
 * which takes most. */
static int64_t words_without_keys(const sheaf__attention *s, sheaf_sums sums)
{
    const int64_t block = SHEAF__ATTENTION_BLOCK, wide = (s->head_dim + 15) / 16 * 16;
    return 2 * block * s->head_dim + 3 * block * wide + 5 * block +
           3 * SHEAF__ATTENTION_STRIP * SHEAF__ATTENTION_LD + block * block + block * wide +
           (s->dtype == SHEAF_F32 ? 0 : SHEAF__ATTENTION_STRIP * wide) +
           (sheaf__attention_ends(s, sums, s->keys) ? block * wide : 0);
}
static int64_t words_of_key(const sheaf__attention *s, sheaf_sums sums)
{
    return (sheaf__attention_ends(s, sums, s->queries) ? 4 : 2) * ((s->head_dim + 15) / 16 * 16);
}

int64_t sheaf__attention_keys_held(const sheaf__attention *s, sheaf_sums sums, size_t bytes)
{
    const int64_t block = SHEAF__ATTENTION_BLOCK;
    return ((int64_t)(bytes / 4) - words_without_keys(s, sums)) / words_of_key(s, sums) / block *
           block;
}

/* Bytes that hold so many keys, in whole pages. */
static size_t bytes_for(const sheaf__attention *s, sheaf_sums sums, int64_t keys)
{
    const int64_t block = SHEAF__ATTENTION_BLOCK, held = (keys + block - 1) / block * block;
    return ((size_t)(words_without_keys(s, sums) + held * words_of_key(s, sums)) * 4 + 4095) /
           4096 * 4096;
}

/* ---- operations ---- */

/* Pairs (query, key) of one head that order and window let through. */
static double visible_pairs(const sheaf__attention *s)
{
    const double q0 = (double)(s->keys - s->queries), n = (double)s->queries;
    if (s->full)
        return n * (double)s->keys;
    const double all = n * q0 + n * (n + 1) / 2; /* query i sees q0 + i + 1 keys */
    if (s->window <= 0 || s->keys <= s->window)
        return all;
    /* queries from `full` on see `window` keys; those before, one more each */
    const double full = q0 >= (double)s->window ? 0 : (double)s->window - q0;
    return full * q0 + full * (full + 1) / 2 + (n - full) * (double)s->window;
}

/* The same of all sequences. */
static double all_pairs(const sheaf__attention *s)
{
    double sum = 0;
    if (s->segment == NULL)
        return (double)s->batch * visible_pairs(s);
    for (int64_t i = 0; i < s->segments; i++) {
        sheaf__attention one = *s;
        one.queries = one.keys = s->segment[i + 1] - s->segment[i];
        sum += visible_pairs(&one);
    }
    return sum;
}

static void count_flops(sheaf__device *device, const sheaf__attention *s, int products)
{
    const double heads = (double)(s->kv_heads * s->group);
    device->flops += 2.0 * products * all_pairs(s) * heads * (double)s->head_dim;
}

/* ---- parallel regions ---- */

/* Segments from which the search for a task's begins: a packed row may hold thousands. */
enum { MARKS = 256 };

typedef struct work {
    const sheaf__attention_call *call;
    sheaf__attention_kernel *kernel;
    void **scratch;
    int64_t chunk; /* rows or keys of a task; fused: any number of keys */
    bool fused;
    char *room;   /* of fused tasks whose keys need more than a thread's scratch, else NULL */
    size_t bytes; /* of a worker's part of it, or of its scratch */
    int64_t mark[MARKS]; /* the first task of each `apart`-th segment */
    int64_t apart;
} work;

static int64_t parts(int64_t count, int64_t size)
{
    return (count + size - 1) / size;
}

static int64_t heads_of(const sheaf__attention *s)
{
    return s->batch * s->kv_heads;
}

/* ---- the tasks of a call without segments ---- */
static int64_t forward_tasks(const work *w, const sheaf__attention *s)
{
    return heads_of(s) * parts(s->queries * s->group, w->chunk);
}

static int64_t dkv_tasks(const work *w, const sheaf__attention *s)
{
    return heads_of(s) * (w->fused ? 1 : parts(s->keys, w->chunk));
}

static int64_t backward_tasks(const work *w, const sheaf__attention *s)
{
    const int64_t dq = heads_of(s) * s->group * parts(s->queries, SHEAF__ATTENTION_BLOCK);
    return dkv_tasks(w, s) + (w->fused ? 0 : dq);
}

typedef int64_t counting(const work *w, const sheaf__attention *s);

static int64_t tasks_of_all(work *w, counting *tasks)
{
    sheaf__attention s = *w->call->shape;
    int64_t sum = 0;
    if (s.segment == NULL)
        return tasks(w, &s);
    s.batch = 1;
    w->apart = parts(s.segments, MARKS);
    for (int64_t i = 0; i < s.segments; i++) {
        if (i % w->apart == 0)
            w->mark[i / w->apart] = sum;
        s.queries = s.keys = s.segment[i + 1] - s.segment[i];
        sum += tasks(w, &s);
    }
    return sum;
}

/* The segment that task `index` belongs to, as a call of its own; gives its number there. */
static int64_t find_task(sheaf__attention_call *call, sheaf__attention *shape, const work *w,
                         int64_t index, counting *tasks)
{
    sheaf__attention s = *w->call->shape;
    int64_t i = 0, end = s.segment == NULL ? 0 : parts(s.segments, w->apart);
    while (end - i > 1) { /* the last mark that is not behind it */
        const int64_t middle = (i + end) / 2;
        if (w->mark[middle] <= index)
            i = middle;
        else
            end = middle;
    }
    if (s.segment != NULL) {
        index -= w->mark[i];
        i *= w->apart;
    }
    s.batch = s.segment == NULL ? s.batch : 1;
    for (; s.segment != NULL; i++) {
        s.queries = s.keys = s.segment[i + 1] - s.segment[i];
        const int64_t n = tasks(w, &s);
        if (index < n)
            break;
        index -= n;
    }
    sheaf__attention_segment(call, shape, w->call, i);
    return index;
}

static sheaf__attention_part part_of(const sheaf__attention *s, int64_t head, int64_t begin,
                                     int64_t size, int64_t count)
{
    const int64_t end = begin + size;
    return (sheaf__attention_part){
        head / s->kv_heads, head % s->kv_heads, 0, s->group, begin, end < count ? end : count
    };
}

static void forward_task(void *context, int64_t index, int worker)
{
    const work *w = context;
    sheaf__attention_call call;
    sheaf__attention s;
    index = find_task(&call, &s, w, index, forward_tasks);
    const int64_t heads = heads_of(&s), rows = s.queries * s.group, chunks = parts(rows, w->chunk);
    /* last queries first: they see most, and the small tasks fill the gaps at the end */
    const sheaf__attention_part part =
        part_of(&s, index % heads, (chunks - 1 - index / heads) * w->chunk, w->chunk, rows);
    w->kernel(&call, &part, SHEAF__ATTENTION_ROWS, w->scratch[worker], SHEAF__THREAD_SCRATCH);
}

static bool is_sound(const sheaf__attention *s)
{
    const bool packed = s->segment != NULL;
    return (s->dtype == SHEAF_F32 || s->dtype == SHEAF_BF16 || s->dtype == SHEAF_F16) &&
           s->head_dim > 0 && s->head_dim <= SHEAF__HEAD_DIM_MAX &&
           (s->full || s->queries <= s->keys) && s->keys <= INT32_MAX && s->kv_rows >= s->keys &&
           (!packed || (!s->full && !s->by_head && s->queries == s->keys && s->keys == s->kv_rows &&
                        s->segment[0] == 0 && s->segment[s->segments] == s->batch * s->queries));
}

/* ---- as operations on a device (call.h) ---- */

/* Bytes of rows of q or o, of k or v, as far as they reach. */
static size_t query_bytes(const sheaf__attention *s, int64_t ld)
{
    return sheaf__extent(s->batch * s->queries, ld, s->kv_heads * s->group * s->head_dim, s->dtype);
}
static size_t key_bytes(const sheaf__attention *s, int64_t ld)
{
    return s->by_head ? sheaf__extent((s->batch * s->kv_heads - 1) * s->kv_rows + s->keys, ld,
                                      s->head_dim, s->dtype)
                      : sheaf__extent((s->batch - 1) * s->kv_rows + s->keys, ld,
                                      s->kv_heads * s->head_dim, s->dtype);
}
static size_t mask_bytes(const sheaf__attention *s)
{
    return (size_t)((s->batch - 1) * s->mask_ld + s->keys);
}
static size_t stats_bytes(const sheaf__attention *s)
{
    return (size_t)(s->batch * s->kv_heads * s->group * s->queries * 2) * sizeof(float);
}

static sheaf__attention_call call_of(const sheaf__attention_arguments *a,
                                     const sheaf__device *device)
{
    const sheaf_sums sums = sheaf__sums_of_values(device->sums);
    return (sheaf__attention_call){ &a->shape, a->o,  a->stats, a->q,  a->k, a->v,
                                    a->d_o,    a->dq, a->dk,    a->dv, sums, device->units };
}

static void forward_here(sheaf__device *device, void *arg)
{
    const sheaf__attention_arguments *a = arg;
    const sheaf__attention *s = &a->shape;
    const int64_t work_rows = heads_of(s) * s->queries * s->group;
    const sheaf__attention_call call = call_of(a, device);
    work w = { .call = &call, .kernel = kernel_of(device, s), .scratch = device->scratch };
    /* four tasks a thread even out; fewer rows than 256 do not pay for packing the values */
    const int64_t share = work_rows / (4 * device->threads) / 64 * 64;
    w.chunk = share < 256 ? 256 : share;
    sheaf__pool_run(device->pool, tasks_of_all(&w, forward_tasks), forward_task, &w);
}

void sheaf__attention_forward(sheaf__device *device, const sheaf__attention *s, void *o,
                              float *stats, const void *q, const void *k, const void *v)
{
    assert(is_sound(s));
    count_flops(device, s, 2);
    if (heads_of(s) * s->queries * s->group == 0)
        return;
    sheaf__attention_arguments a = { .shape = *s, .o = o, .stats = stats, .q = q, .k = k, .v = v };
    const sheaf__operand operand[] = {
        SHEAF__WRITES(a.o, query_bytes(s, s->ldo)), SHEAF__WRITES(a.stats, stats_bytes(s)),
        SHEAF__READS(a.q, query_bytes(s, s->ldq)),  SHEAF__READS(a.k, key_bytes(s, s->ldk)),
        SHEAF__READS(a.v, key_bytes(s, s->ldv)),    SHEAF__READS(a.shape.key_mask, mask_bytes(s)),
    };
    sheaf__run(device, &(sheaf__call){ SHEAF__OP_ATTENTION, &a, SHEAF__OPERANDS(operand),
                                       .whole = forward_here });
}

static void backward_task(void *context, int64_t index, int worker)
{
    const work *w = context;
    sheaf__attention_call call;
    sheaf__attention s;
    index = find_task(&call, &s, w, index, backward_tasks);
    const int64_t heads = heads_of(&s), dkv = dkv_tasks(w, &s);
    if (index < dkv) { /* the first keys are seen by most queries */
        const int64_t chunk = w->fused ? s.keys : w->chunk;
        const sheaf__attention_part part =
            part_of(&s, index % heads, index / heads * chunk, chunk, s.keys);
        char *at = w->room != NULL ? w->room + (size_t)worker * w->bytes : w->scratch[worker];
        w->kernel(&call, &part, w->fused ? SHEAF__ATTENTION_DKV_DQ : SHEAF__ATTENTION_DKV, at,
                  w->bytes);
        return;
    }
    index -= dkv;
    const int64_t block = SHEAF__ATTENTION_BLOCK, blocks = parts(s.queries, block);
    const int64_t begin = (blocks - 1 - index / heads / s.group) * block,
                  g = index / heads % s.group;
    const int64_t end = begin + block < s.queries ? begin + block : s.queries;
    const sheaf__attention_part part = {
        index % heads / s.kv_heads, index % heads % s.kv_heads, g, g + 1, begin, end
    };
    w->kernel(&call, &part, SHEAF__ATTENTION_DQ, w->scratch[worker], SHEAF__THREAD_SCRATCH);
}

/* One task a key head shares the scores among dq, dk and dv: five products. With two kinds of
 * tasks it is seven, but they are many and need space for few keys. */
static bool should_fuse(int64_t heads, int threads)
{
    return parts(heads, threads) * threads * 5 <= heads * 7;
}

/* The same of segments, whose tasks take what their squares say: short ones fill what the longest
 * leaves. */
static bool should_fuse_segments(const sheaf__attention *s, int64_t longest, int threads)
{
    const double most = (double)longest * (double)longest;
    double all = 0;
    for (int64_t i = 0; i < s->segments; i++) {
        const double keys = (double)(s->segment[i + 1] - s->segment[i]);
        all += (double)s->kv_heads * keys * keys;
    }
    return (most * threads > all ? most * threads : all) * 5 <= all * 7;
}

static int64_t longest_of(const sheaf__attention *s)
{
    int64_t most = s->segment == NULL ? s->keys : 0;
    for (int64_t i = 0; s->segment != NULL && i < s->segments; i++)
        if (s->segment[i + 1] - s->segment[i] > most)
            most = s->segment[i + 1] - s->segment[i];
    return most;
}

/* Room for tasks of `longest` keys: scratch that is there, or, up to four times as much, more of
 * the device's memory. Without it tasks are not fused. A plan knows no segments: they take more
 * memory only where rows that are whole would. */
static void find_room(sheaf__attention_arguments *a, sheaf__device *device, int64_t longest)
{
    const sheaf__attention *s = &a->shape;
    const size_t bytes = bytes_for(s, device->sums, longest);
    void *room = NULL;
    a->room_bytes = SHEAF__THREAD_SCRATCH;
    if (!a->fused || bytes <= SHEAF__THREAD_SCRATCH)
        return;
    a->fused = false;
    if (bytes_for(s, device->sums, s->keys) > 4 * SHEAF__THREAD_SCRATCH ||
        !should_fuse(heads_of(s), device->threads))
        return;
    sheaf_status *st =
        sheaf__device_alloc(&room, device, (size_t)device->threads * bytes, SHEAF_MEM_SCRATCH);
    if (st == NULL) {
        a->fused = true;
        a->room = room;
        a->room_bytes = bytes;
    }
    sheaf_status_free(st);
}

static void backward_here(sheaf__device *device, void *arg)
{
    const sheaf__attention_arguments *a = arg;
    const sheaf__attention_call call = call_of(a, device);
    work w = { .call = &call,
               .kernel = kernel_of(device, &a->shape),
               .scratch = device->scratch,
               .bytes = a->room_bytes,
               .room = a->room,
               .fused = a->fused,
               .chunk = a->chunk };
    sheaf__pool_run(device->pool, tasks_of_all(&w, backward_tasks), backward_task, &w);
}

void sheaf__attention_backward(sheaf__device *device, const sheaf__attention *s, void *dq, void *dk,
                               void *dv, const void *d_o, const void *o, const float *stats,
                               const void *q, const void *k, const void *v)
{
    const int64_t block = SHEAF__ATTENTION_BLOCK, heads = heads_of(s);
    assert(is_sound(s) && !s->by_head && (s->full || s->queries == s->keys));
    count_flops(device, s, 5);
    if (heads * (s->queries + s->keys) == 0)
        return;
    /* o and stats are only read; the call has one field for both directions */
    sheaf__attention_arguments a = { *s, (void *)o, (float *)stats, q,    k, v, d_o, dq,
                                     dk, dv,        false,          NULL, 0, 0 };
    const int64_t held = sheaf__attention_keys_held(s, device->sums, SHEAF__THREAD_SCRATCH),
                  longest = longest_of(s);
    const int64_t share = heads * s->keys / (4 * device->threads) / block * block;
    a.fused = s->segment == NULL ? should_fuse(heads, device->threads)
                                 : should_fuse_segments(s, longest, device->threads);
    find_room(&a, device, longest);
    a.chunk = share < block ? block : share > held ? held : share;
    const sheaf__operand operand[] = {
        SHEAF__WRITES(a.dq, query_bytes(s, s->ldq)),
        SHEAF__WRITES(a.dk, key_bytes(s, s->ldk)),
        SHEAF__WRITES(a.dv, key_bytes(s, s->ldv)),
        SHEAF__READS(a.d_o, query_bytes(s, s->ldo)),
        SHEAF__READS(a.o, query_bytes(s, s->ldo)),
        SHEAF__READS(a.stats, stats_bytes(s)),
        SHEAF__READS(a.q, query_bytes(s, s->ldq)),
        SHEAF__READS(a.k, key_bytes(s, s->ldk)),
        SHEAF__READS(a.v, key_bytes(s, s->ldv)),
        SHEAF__READS(a.shape.key_mask, mask_bytes(s)),
        SHEAF__WRITES(a.room, (size_t)device->threads * a.room_bytes),
    };
    sheaf__run(device, &(sheaf__call){ SHEAF__OP_ATTENTION_BACK, &a, SHEAF__OPERANDS(operand),
                                       .whole = backward_here });
    sheaf__device_free(device, a.room);
}
