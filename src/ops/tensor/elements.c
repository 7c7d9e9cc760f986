/* elements.c - operations on n elements, see tensor.h. */
#include "ops/call.h"
#include "ops/math/round.h"
#include "ops/pool.h"
#include "ops/tensor/tensor.h"

enum { CHUNK = 1 << 15, PART = 256, STRETCH = 1 << 10 };

/* Over n elements of both. */
static void run(sheaf__device *device, sheaf__operation operation, sheaf__part_fn *part,
                sheaf__pair *p, int64_t n)
{
    p->n = n;
    const sheaf__operand operand[] = {
        SHEAF__WRITES(p->dst, (size_t)n * sheaf_dtype_bytes(p->to)),
        SHEAF__READS(p->src, (size_t)n * sheaf_dtype_bytes(p->from)),
    };
    sheaf__run(device, &(sheaf__call){ operation, p, SHEAF__OPERANDS(operand), part, n, CHUNK });
}

static void add_part(const sheaf__kernels *k, const void *arg, int64_t begin, int64_t end)
{
    const sheaf__pair *p = arg;
    float *dst = p->dst;
    k->add(dst + begin, dst + begin, (const float *)p->src + begin, end - begin);
}

void sheaf__op_add(sheaf__device *device, float *dst, const float *src, int64_t n)
{
    run(device, SHEAF__OP_ADD, add_part,
        &(sheaf__pair){ .dst = dst, .src = src, .to = SHEAF_F32, .from = SHEAF_F32 }, n);
}

static void add_each(const sheaf__kernels *k, const void *arg, int64_t begin, int64_t end)
{
    const sheaf__additions *a = arg;
    for (int64_t i = begin, n; i < end; i += n) { /* a stretch goes through the list in cache */
        n = end - i < STRETCH ? end - i : STRETCH;
        for (int32_t e = 0; e < a->count; e++)
            k->add(a->each[e].dst + i, a->each[e].dst + i, a->each[e].src + i, n);
    }
}

void sheaf__op_add_list(sheaf__device *device, const sheaf__addition *list, int32_t count,
                        int64_t n)
{
    sheaf__additions a = { .n = n, .count = count };
    sheaf__operand operand[2 * SHEAF__ADDITIONS];
    if (count == 0)
        return;
    for (int32_t i = 0; i < count; i++) {
        a.each[i] = list[i];
        operand[2 * i] = SHEAF__WRITES(a.each[i].dst, (size_t)n * sizeof(float));
        operand[2 * i + 1] = SHEAF__READS(a.each[i].src, (size_t)n * sizeof(float));
    }
    sheaf__run(device,
               &(sheaf__call){ SHEAF__OP_ADD_LIST, &a, operand, 2 * count, add_each, n, CHUNK });
}

static void accumulate_part(const sheaf__kernels *k, const void *arg, int64_t begin, int64_t end)
{
    const sheaf__pair *p = arg;
    k->accumulate(sheaf__at(p->dst, begin, p->to), sheaf__at(p->src, begin, p->to), end - begin,
                  p->to);
}

void sheaf__op_accumulate(sheaf__device *device, void *dst, const void *src, int64_t n,
                          sheaf_dtype dtype)
{
    run(device, SHEAF__OP_ACCUMULATE, accumulate_part,
        &(sheaf__pair){ .dst = dst, .src = src, .to = dtype, .from = dtype }, n);
}

static void convert_part(const sheaf__kernels *k, const void *arg, int64_t begin, int64_t end)
{
    const sheaf__pair *p = arg;
    k->convert(sheaf__at(p->dst, begin, p->to), p->to, sheaf__at(p->src, begin, p->from), p->from,
               end - begin);
}

void sheaf__op_convert(sheaf__device *device, void *dst, sheaf_dtype to, const void *src,
                       sheaf_dtype from, int64_t n)
{
    run(device, SHEAF__OP_CONVERT, convert_part, &(sheaf__pair){ dst, src, to, from, false, n }, n);
}

static void convert_each(const sheaf__kernels *k, const void *arg, int64_t begin, int64_t end)
{
    const sheaf__conversions *c = arg;
    for (int64_t i = begin; i < end; i++)
        k->convert(c->each[i].dst, c->to, c->each[i].src, c->from, c->each[i].n);
}

void sheaf__op_convert_list(sheaf__device *device, sheaf_dtype to, sheaf_dtype from,
                            const sheaf__conversion *list, int64_t count)
{
    sheaf__operand operand[2 * SHEAF__CONVERSIONS];
    for (int64_t first = 0, n; first < count; first += n) {
        sheaf__conversions c = { .to = to, .from = from };
        n = count - first < SHEAF__CONVERSIONS ? count - first : SHEAF__CONVERSIONS;
        c.count = (int32_t)n;
        for (int64_t i = 0; i < n; i++) {
            sheaf__conversion *one = &c.each[i];
            *one = list[first + i];
            operand[2 * i] = SHEAF__WRITES(one->dst, (size_t)one->n * sheaf_dtype_bytes(to));
            operand[2 * i + 1] = SHEAF__READS(one->src, (size_t)one->n * sheaf_dtype_bytes(from));
        }
        sheaf__run(device, &(sheaf__call){ SHEAF__OP_CONVERT_LIST, &c, operand, 2 * (int)n,
                                           convert_each, n, 1 });
    }
}

static void zero_part(const sheaf__kernels *k, const void *arg, int64_t begin, int64_t end)
{
    const sheaf__pair *p = arg;
    memset(sheaf__at(p->dst, begin, p->to), 0, (size_t)(end - begin) * sheaf_dtype_bytes(p->to));
}

void sheaf__op_zero(sheaf__device *device, void *x, int64_t n, sheaf_dtype dtype)
{
    run(device, SHEAF__OP_ZERO, zero_part, &(sheaf__pair){ .dst = x, .to = dtype, .from = dtype },
        n);
}

static void refresh_part(const sheaf__kernels *k, const void *arg, int64_t begin, int64_t end)
{
    const sheaf__pair *p = arg;
    float rounded[PART], *to = p->dst; /* space for either dtype */
    for (int64_t i = begin, n; i < end; i += n) {
        n = end - i < PART ? end - i : PART;
        k->round(rounded, p->from, (const float *)p->src + i, n);
        k->widen(to + i, rounded, p->from, n);
        for (int64_t e = i; e < i + n && p->one; e++)
            to[e] = sheaf__one_nan(1.0f + to[e]);
    }
}

void sheaf__op_refresh(sheaf__device *device, float *dst, const float *src, int64_t n, bool one,
                       sheaf_dtype dtype)
{
    sheaf__pair p = { dst, src, SHEAF_F32, dtype, one, n };
    const sheaf__operand operand[] = { SHEAF__WRITES(p.dst, (size_t)n * sizeof(float)),
                                       SHEAF__READS(p.src, (size_t)n * sizeof(float)) };
    sheaf__run(device, &(sheaf__call){ SHEAF__OP_REFRESH, &p, SHEAF__OPERANDS(operand),
                                       refresh_part, n, CHUNK });
}

/* A part that is widened to another place. */
typedef struct widening {
    const sheaf__kernels *kernels;
    float *to;
    const char *from;
    sheaf_dtype dtype;
} widening;

static void widen_part(void *arg, int64_t begin, int64_t end, int worker)
{
    const widening *w = arg;
    w->kernels->convert(w->to + begin, SHEAF_F32, sheaf__at(w->from, begin, w->dtype), w->dtype,
                        end - begin);
}

/* All that is written before the next number to be read may be written at once, which is half of
 * the rest. The last ones, which widen onto themselves, go by way of a copy. */
static void widen(sheaf__device *device, void *arg)
{
    const sheaf__widening *w = arg;
    widening p = { .kernels = device->kernels, .dtype = w->dtype };
    const char *narrow =
        (char *)w->wide + (size_t)w->n * (sizeof(float) - sheaf_dtype_bytes(w->dtype));
    int64_t i = 0;
    uint32_t part[PART];
    for (int64_t m; w->n - i > CHUNK; i += m) {
        m = (w->n - i) / 2;
        p.to = w->wide + i;
        p.from = sheaf__at(narrow, i, w->dtype);
        sheaf__pool_rows(device->pool, m, CHUNK, widen_part, &p);
    }
    for (int64_t m; i < w->n; i += m) {
        m = w->n - i < PART ? w->n - i : PART;
        memcpy(part, sheaf__at(narrow, i, w->dtype), (size_t)m * sheaf_dtype_bytes(w->dtype));
        device->kernels->widen(w->wide + i, part, w->dtype, m);
    }
}

void sheaf__op_widen(sheaf__device *device, float *wide, int64_t n, sheaf_dtype dtype)
{
    sheaf__widening w = { wide, n, dtype };
    const sheaf__operand operand = SHEAF__WRITES(w.wide, (size_t)n * sizeof(float));
    sheaf__run(device, &(sheaf__call){ SHEAF__OP_WIDEN, &w, &operand, 1, .whole = widen });
}
