/* copy.c - see copy.h. */
#include "checkpoint/convert/copy.h"

#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "base/array.h"
#include "checkpoint/store/look.h"
#include "checkpoint/store/stream.h"
#include "dialects/common/quantised.h"

enum { CHUNK = 2 << 20, MOST_THREADS = 8, TOLD = 64 << 20 };

/* ---- numbers ---- */

static uint32_t half_to_single(uint16_t h)
{
    const uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 31,
                   fraction = h & 1023;
    if (exponent == 31)
        return sign | 0x7f800000u | fraction << 13;
    if (exponent != 0)
        return sign | (exponent + 112) << 23 | fraction << 13;
    if (fraction == 0)
        return sign;
    const int shift = __builtin_clz(fraction) - 21; /* its first one becomes the hidden one */
    return sign | (uint32_t)(113 - shift) << 23 | (fraction << shift & 1023) << 13;
}

/* Adds half of what is dropped, or a little less where the rest is even. */
static uint32_t drop(uint32_t bits, int n)
{
    return (bits + (1u << (n - 1)) - 1 + (bits >> n & 1)) >> n;
}

static uint16_t single_to_half(uint32_t f)
{
    const uint16_t sign = (uint16_t)(f >> 16 & 0x8000);
    const uint32_t size = f & 0x7fffffffu;
    if (size > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00 | (size >> 13 & 0x1ff));
    if (size >= 0x47800000u) /* 65536 and more */
        return sign | 0x7c00;
    if (size >= 0x38800000u) /* normal; a carry into the exponent is what rounding asks for */
        return (uint16_t)(sign | drop(size - 0x38000000u, 13));
    if (size < 0x33000000u) /* at most half of the least denormal, which is even: zero */
        return sign;
    const int exponent = (int)(size >> 23);
    return (uint16_t)(sign | drop((size & 0x7fffffu) | 0x800000u, 126 - exponent));
}

static uint16_t single_to_bfloat(uint32_t f)
{
    if ((f & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)(f >> 16 | 0x40);
    return (uint16_t)((f + 0x7fffu + (f >> 16 & 1)) >> 16);
}

/* A double in float32; `odd`: what is lost leaves the last bit set, so that a second rounding comes
 * out as one would. */
static uint32_t double_to_single(uint64_t d, bool odd)
{
    const uint32_t sign = (uint32_t)(d >> 32 & 0x80000000u);
    const uint64_t size = d & 0x7fffffffffffffffu, fraction = size & 0xfffffffffffffu;
    const int exponent = (int)(size >> 52) - 1023 + 127; /* in float32 */
    if (size > 0x7ff0000000000000u)
        return sign | 0x7fc00000u | (uint32_t)(fraction >> 29 & 0x3fffff);
    if (exponent >= 255)
        return size == 0x7ff0000000000000u || !odd ? sign | 0x7f800000u : sign | 0x7f7fffffu;
    const int lost = exponent > 0 ? 29 : 30 - exponent; /* bits that do not fit */
    const uint64_t whole = exponent > 0 ? (uint64_t)exponent << 52 | fraction
                                        : fraction | (size >> 52 != 0 ? 1ull << 52 : 0);
    if (lost > 60)
        return sign | (odd && size != 0);
    uint64_t kept = whole >> lost;
    const uint64_t rest = whole & ((1ull << lost) - 1), half = 1ull << (lost - 1);
    if (odd)
        kept |= rest != 0;
    else
        kept += rest > half || (rest == half && (kept & 1) != 0);
    return sign | (uint32_t)kept;
}

bool sheaf__dtype_can(sheaf_dtype from, sheaf_dtype to)
{
    const bool known =
        from == SHEAF_F64 || from == SHEAF_F32 || from == SHEAF_BF16 || from == SHEAF_F16;
    return from == to || (known && (to == SHEAF_F32 || to == SHEAF_BF16 || to == SHEAF_F16));
}

enum { BLOCK = 256 };

/* Up to BLOCK numbers as float32. */
static void widen(uint32_t *out, const char *src, sheaf_dtype from, int64_t n, bool odd)
{
    uint16_t h;
    uint64_t d;
    for (int64_t i = 0; i < n; i++)
        switch (from) {
        case SHEAF_F32: memcpy(&out[i], src + 4 * i, 4); break;
        case SHEAF_BF16:
            memcpy(&h, src + 2 * i, 2);
            out[i] = (uint32_t)h << 16;
            break;
        case SHEAF_F16:
            memcpy(&h, src + 2 * i, 2);
            out[i] = half_to_single(h);
            break;
        default: memcpy(&d, src + 8 * i, 8); out[i] = double_to_single(d, odd);
        }
}

bool sheaf__dtype_convert(void *dst, sheaf_dtype to, const void *src, sheaf_dtype from, int64_t n)
{
    const size_t wide = sheaf_dtype_bytes(from), narrow = sheaf_dtype_bytes(to);
    bool finite = true;
    if (from == to) {
        memcpy(dst, src, (size_t)n * wide);
        return true;
    }
    for (int64_t at = 0; at < n; at += BLOCK) {
        uint32_t f[BLOCK];
        uint16_t h[BLOCK];
        const int64_t m = n - at < BLOCK ? n - at : BLOCK;
        const char *from_here = (const char *)src + (size_t)at * wide;
        char *to_here = (char *)dst + (size_t)at * narrow;
        int64_t lost = 0;
        widen(f, from_here, from, m, to != SHEAF_F32);
        if (to == SHEAF_F32) {
            for (int64_t i = 0; i < m; i++) {
                uint64_t d = 0;
                if (from == SHEAF_F64)
                    memcpy(&d, from_here + 8 * i, 8);
                lost += (f[i] & 0x7fffffffu) == 0x7f800000u && from == SHEAF_F64 &&
                        (d & 0x7fffffffffffffffu) != 0x7ff0000000000000u;
            }
            memcpy(to_here, f, (size_t)m * 4);
        } else {
            for (int64_t i = 0; i < m; i++) {
                h[i] = to == SHEAF_F16 ? single_to_half(f[i]) : single_to_bfloat(f[i]);
                lost += (h[i] & 0x7fff) == (to == SHEAF_F16 ? 0x7c00 : 0x7f80) &&
                        (f[i] & 0x7fffffffu) != 0x7f800000u;
            }
            memcpy(to_here, h, (size_t)m * 2);
        }
        finite = finite && lost == 0;
    }
    return finite;
}

/* ---- a source in another dtype ---- */

typedef struct cast_source {
    sheaf_source source; /* first */
    sheaf_source *inner;
    const atomic_int *stop;
    int64_t count;
    sheaf_source_entry *entry; /* in the order of inner */
} cast_source;

static bool is_float(sheaf_dtype d)
{
    return d == SHEAF_F64 || d == SHEAF_F32 || d == SHEAF_BF16 || d == SHEAF_F16;
}

static const sheaf_source_entry *cast_find(sheaf_source *self, const char *name)
{
    const cast_source *s = (cast_source *)self;
    /* every source has its entries by name */
    return SHEAF_FIND(const sheaf_source_entry, name, s->entry, s->count, name);
}

static int64_t cast_count(sheaf_source *self)
{
    return ((cast_source *)self)->count;
}
static const sheaf_source_entry *cast_entry(sheaf_source *self, int64_t i)
{
    return &((cast_source *)self)->entry[i];
}

static sheaf_status *cast_read(sheaf_source *self, const char *name, int64_t row0, int64_t rows,
                               int64_t col0, int64_t cols, void *dst)
{
    const cast_source *s = (cast_source *)self;
    if (s->stop != NULL && atomic_load(s->stop) != 0)
        return sheaf_found(sheaf_fail(SHEAF_E_STOPPED, "convert"),
                           "a request to stop; nothing was left behind");
    const sheaf_source_entry *is = cast_find(self, name), *was = s->inner->find(s->inner, name);
    if (is == NULL || was == NULL)
        return sheaf_found(sheaf_fail(SHEAF_E_LAYOUT, "tensor '%s'", name),
                           "no tensor of this name");
    if (is->dtype == was->dtype)
        return s->inner->read(s->inner, name, row0, rows, col0, cols, dst);
    char *raw = malloc((size_t)(rows * cols) * sheaf_dtype_bytes(was->dtype) + 1);
    sheaf_status *st = raw == NULL ? sheaf_fail(SHEAF_E_MEMORY, "tensor '%s'", name)
                                   : s->inner->read(s->inner, name, row0, rows, col0, cols, raw);
    if (st == NULL && !sheaf__dtype_convert(dst, is->dtype, raw, was->dtype, rows * cols)) {
        st = sheaf_fail(SHEAF_E_NUMBER, "tensor '%s'", name);
        sheaf_expected(st, "numbers that %s can hold", sheaf_dtype_name(is->dtype));
        sheaf_found(st, "one that would become infinite");
        sheaf_try_this(st, "--dtype bfloat16 or float32");
    }
    free(raw);
    return st;
}

static void cast_close(sheaf_source *self)
{
    cast_source *s = (cast_source *)self;
    s->inner->close(s->inner);
    free(s->entry);
    free(s);
}

sheaf_status *sheaf__cast_source(sheaf_source **out, sheaf_source *inner, const sheaf_dtype *dtype,
                                 const char *config, const atomic_int *stop)
{
    sheaf__quantised packed = { 0 };
    sheaf_status *st = dtype != NULL ? sheaf__quantised_find(&packed, inner, config) : NULL;
    if (st != NULL) {
        inner->close(inner);
        return st;
    }
    const int64_t n = inner->count(inner);
    cast_source *s = calloc(1, sizeof *s);
    sheaf_source_entry *entry = calloc((size_t)n + 1, sizeof *entry);
    if (s == NULL || entry == NULL) {
        free(s);
        free(entry);
        inner->close(inner);
        sheaf__quantised_release(&packed);
        return sheaf__no_memory("list of tensors");
    }
    for (int64_t i = 0; i < n; i++) {
        entry[i] = *inner->entry(inner, i);
        if (dtype != NULL && is_float(entry[i].dtype) &&
            !sheaf__quantised_keeps(&packed, entry[i].name))
            entry[i].dtype = *dtype;
    }
    sheaf__quantised_release(&packed);
    *s = (cast_source){
        { cast_find, cast_count, cast_entry, cast_read, cast_close }, inner, stop, n, entry
    };
    *out = &s->source;
    return NULL;
}

/* ---- two sources as one ---- */

typedef struct both_sources {
    sheaf_source source;
    sheaf_source *one, *two;
} both_sources;

static const sheaf_source_entry *both_find(sheaf_source *self, const char *name)
{
    const both_sources *b = (both_sources *)self;
    const sheaf_source_entry *e = b->one->find(b->one, name);
    return e != NULL ? e : b->two->find(b->two, name);
}

static int64_t both_count(sheaf_source *self)
{
    const both_sources *b = (both_sources *)self;
    return b->one->count(b->one) + b->two->count(b->two);
}

static const sheaf_source_entry *both_entry(sheaf_source *self, int64_t i)
{
    const both_sources *b = (both_sources *)self;
    const int64_t n = b->one->count(b->one);
    return i < n ? b->one->entry(b->one, i) : b->two->entry(b->two, i - n);
}

static sheaf_status *both_read(sheaf_source *self, const char *name, int64_t row0, int64_t rows,
                               int64_t col0, int64_t cols, void *dst)
{
    const both_sources *b = (both_sources *)self;
    sheaf_source *from = b->one->find(b->one, name) != NULL ? b->one : b->two;
    return from->read(from, name, row0, rows, col0, cols, dst);
}

static void both_close(sheaf_source *self)
{
    free(self);
}

sheaf_status *sheaf__both_sources(sheaf_source **out, sheaf_source *one, sheaf_source *two)
{
    both_sources *b = calloc(1, sizeof *b);
    if (b == NULL)
        return sheaf__no_memory("list of tensors");
    *b = (both_sources){ { both_find, both_count, both_entry, both_read, both_close }, one, two };
    *out = &b->source;
    return NULL;
}

/* ---- copying ---- */

int64_t sheaf__entry_bytes(const sheaf_source_entry *e)
{
    int64_t rows, cols;
    sheaf__look_view(&rows, &cols, e);
    return rows * cols * sheaf_dtype_bits(e->dtype) / 8;
}

void sheaf__copy_progress(const sheaf_events *events, const char *what, _Atomic int64_t *done,
                          int64_t bytes, int64_t total)
{
    const int64_t now = atomic_fetch_add(done, bytes) + bytes;
    if (now / TOLD == (now - bytes) / TOLD)
        return;
    const sheaf_event event = { .kind = SHEAF_EVENT_PROGRESS,
                                .text = what,
                                .done = now < total ? now : total,
                                .total = total };
    sheaf_emit(events, &event);
}

typedef struct job {
    int64_t copy, row0, rows, col0, cols;
} job;

typedef struct crew {
    const sheaf_copying *k;
    job *job;
    int64_t count, capacity;
    char *buffer[MOST_THREADS];
    sheaf__stream_failure failure;
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
    const sheaf_source_entry *e = c->k->copy[i].entry;
    const int64_t bytes = (int64_t)sheaf_dtype_bytes(e->dtype);
    int64_t rows, cols;
    sheaf_status *st = NULL;
    sheaf__look_view(&rows, &cols, e);
    if (bytes == 0)
        return sheaf_fail(SHEAF_E_UNSUPPORTED, "tensor '%s': elements below a byte", e->name);
    if (rows == 0 || cols == 0)
        return NULL;
    const int64_t wide = cols * bytes > CHUNK ? CHUNK / bytes : cols, tall = CHUNK / (wide * bytes);
    for (int64_t r = 0; st == NULL && r < rows; r += tall)
        for (int64_t k = 0; st == NULL && k < cols; k += wide)
            st = add_job(c, (job){ i, r, rows - r < tall ? rows - r : tall, k,
                                   cols - k < wide ? cols - k : wide });
    return st;
}

static void do_job(void *context, int64_t index, int worker)
{
    crew *c = context;
    const job *j = &c->job[index];
    const sheaf_copying *k = c->k;
    const sheaf_source_entry *e = k->copy[j->copy].entry;
    if (sheaf__stream_failed(&c->failure))
        return;
    sheaf_status *st =
        k->source->read(k->source, e->name, j->row0, j->rows, j->col0, j->cols, c->buffer[worker]);
    TRY(st, k->put(k->context, k->copy[j->copy].index, j->row0, j->rows, j->col0, j->cols,
                   c->buffer[worker]));
    if (st != NULL)
        sheaf__stream_keep(&c->failure, st, index);
    else
        sheaf__copy_progress(k->events, k->what, k->done,
                             j->rows * j->cols * (int64_t)sheaf_dtype_bytes(e->dtype), k->total);
}

sheaf_status *sheaf__copy_all(const sheaf_copying *k)
{
    crew c = { .k = k };
    sheaf__pool *pool = NULL;
    const int threads = k->threads < 1 ? 1 : k->threads > MOST_THREADS ? MOST_THREADS : k->threads;
    sheaf_status *st = NULL;
    sheaf__stream_failure_init(&c.failure);
    for (int64_t i = 0; st == NULL && i < k->count; i++)
        st = list_tensor(&c, i);
    for (int i = 0; st == NULL && i < threads; i++)
        if ((c.buffer[i] = malloc(CHUNK)) == NULL)
            st = sheaf__no_memory("room to copy");
    TRY(st, sheaf__pool_new(&pool, threads));
    if (st == NULL)
        sheaf__pool_run(pool, c.count, do_job, &c);
    sheaf__pool_free(pool);
    sheaf_status *failed = sheaf__stream_failure_take(&c.failure);
    if (st == NULL)
        st = failed;
    else
        sheaf_status_free(failed);
    for (int i = 0; i < MOST_THREADS; i++)
        free(c.buffer[i]);
    free(c.job);
    return st;
}
