/* dequantise.c - codes with scales to numbers, see quantise.h. */
#include "base/thread.h"
#include "ops/kernels.h"
#include "ops/quant/quantise.h"

enum { CHUNK = 1024 };

typedef struct job {
    const sheaf__dequantised *from;
    const sheaf__kernels *kernels;
    int64_t groups;
    float map[256];
} job;

/* Group g of a row's scale as products take it. */
static float scale_of(const job *j, int64_t row, int64_t g)
{
    const sheaf__dequantised *d = j->from;
    const int64_t at = row * j->groups + g;
    if (!d->quant->doubled)
        return d->parts.scales[at];
    const int64_t nested = (sheaf__quant_first_group(d->quant, &d->box, row) + g) / 256;
    return sheaf__doubled_scale(j->map[d->parts.scale_codes[at]], d->whole.nested[nested],
                                d->whole.offset);
}

static int zero_of(const job *j, int64_t row, int64_t g)
{
    const sheaf__dequantised *d = j->from;
    return d->quant->zeros ? d->parts.zeros[row * j->groups + g] : 8;
}

/* Columns [first, first + n) in float32; by index, of INT4, whose scales are no codes: GPTQ. */
static void by_index(float *y, const job *j, int64_t row, int64_t first, int64_t n)
{
    const sheaf__dequantised *d = j->from;
    const uint8_t *codes = d->parts.codes + row * d->box.cols + first;
    const uint16_t *index = d->whole.index + d->box.col0 + first;
    const float *scale = d->parts.scales + row * j->groups;
    const uint8_t *zero = d->quant->zeros ? d->parts.zeros + row * j->groups : NULL;
    for (int64_t c = 0; c < n; c++)
        y[c] = (float)(codes[c] - (zero != NULL ? zero[index[c]] : 8)) * scale[index[c]];
}

static void by_groups(float *y, const job *j, int64_t row, int64_t first, int64_t n)
{
    const sheaf__dequantised *d = j->from;
    const sheaf__quant *q = d->quant;
    const uint8_t *codes = d->parts.codes + row * d->box.cols + first;
    const int64_t phase = sheaf__quant_phase(q, &d->box, row) + first;
    for (int64_t c = 0, count; c < n; c += count) {
        const int64_t g = q->block == 0 ? 0 : (phase + c) / q->block;
        const int64_t end = q->block == 0 ? n : (g + 1) * q->block - phase;
        count = (end < n ? end : n) - c;
        const float scale = scale_of(j, row, g);
        if (sheaf__quant_of_rows(q) && d->what == SHEAF__VALUES_PROGRAM) {
            j->kernels->values(y + c, codes + c, count, SHEAF__INT8, scale, 0);
            j->kernels->scale(y + c, sheaf__int8_scale(1), count);
        } else
            j->kernels->values(y + c, codes + c, count, q->codes, scale, zero_of(j, row, g));
    }
}

static void store(void *y, int64_t at, const job *j, float *value, int64_t n)
{
    const sheaf__dequantised *d = j->from;
    const sheaf_dtype between = d->quant->dtype, to = d->to;
    const bool twice = d->what == SHEAF__VALUES_PROGRAM ||
                       (d->what == SHEAF__VALUES_BACK && !sheaf__quant_of_rows(d->quant));
    char *end = (char *)y + (size_t)at * (to == SHEAF_F32 ? 4 : 2);
    if (twice && between != SHEAF_F32 && between != to) {
        uint16_t half[CHUNK];
        j->kernels->round(half, between, value, n);
        j->kernels->convert(end, to, half, between, n);
    } else
        j->kernels->round(end, to, value, n);
}

static __attribute__((noinline)) void rows(void *y, int64_t ld, const job *j, int64_t first,
                                           int64_t count)
{
    float value[CHUNK];
    const sheaf__dequantised *d = j->from;
    const int64_t cols = d->box.cols;
    for (int64_t r = 0; r < count; r++)
        for (int64_t c = 0; c < cols; c += CHUNK) {
            const int64_t n = cols - c < CHUNK ? cols - c : CHUNK;
            if (d->quant->grouping == SHEAF__GROUPS_INDEXED)
                by_index(value, j, first + r, c, n);
            else
                by_groups(value, j, first + r, c, n);
            store(y, r * ld + c, j, value, n);
        }
}

void sheaf__dequantise(void *y, int64_t ld, const sheaf__dequantised *from, int64_t first,
                       int64_t count)
{
    job j = { .from = from,
              .kernels = sheaf__kernels_for(NULL),
              .groups = sheaf__quant_groups(from->quant, &from->box) };
    if (from->quant->doubled)
        sheaf__dynamic_map(j.map, true);
    const unsigned before = sheaf__mode_set(SHEAF__MERGE_MODE);
    rows(y, ld, &j, first, count);
    sheaf__mode_set(before);
}

/* ---- out of files ---- */

sheaf_status *sheaf__dequantised_new(sheaf__dequantised *d, const sheaf__quant *q, int64_t out,
                                     int64_t in, int64_t rows, int64_t cols)
{
    const sheaf__quant_box box = { in, 0, rows, 0, cols };
    const int64_t groups = rows * (sheaf__quant_groups(q, &box) + 1),
                  nested = sheaf__quant_nested(q, out * in);
    float *scales = malloc((size_t)(4 * (groups + nested) + 2 * in + rows * cols + 2 * groups) + 1);
    *d = (sheaf__dequantised){ .quant = q, .what = SHEAF__VALUES_PROGRAM, .memory = scales };
    if (scales == NULL)
        return sheaf__no_memory("codes of a weight");
    d->parts.scales = scales;
    d->whole.nested = scales + groups;
    d->whole.index = (uint16_t *)(d->whole.nested + nested);
    d->parts.codes = (uint8_t *)(d->whole.index + in);
    d->parts.scale_codes = d->parts.codes + rows * cols;
    d->parts.zeros = d->parts.scale_codes + groups;
    return NULL;
}

/* Elements that are dequantised at once: of tall boxes more, as a reader takes the scales of all
 * groups for each where columns name theirs. */
enum { STRIP = 1 << 16, TALL = 512, TALL_STRIP = 1 << 20 };

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

sheaf_status *sheaf__read_values(void *dst, const sheaf__codes_reader *f, int64_t row0,
                                 int64_t rows, int64_t col0, int64_t cols)
{
    sheaf__dequantised d;
    if (rows == 0 || cols == 0)
        return NULL;
    const int64_t high = least(rows, f->tall ? TALL : STRIP / least(cols, STRIP)),
                  wide = least(cols, (f->tall ? TALL_STRIP : STRIP) / high),
                  bytes = (int64_t)sheaf_dtype_bytes(f->to);
    sheaf_status *st = sheaf__dequantised_new(&d, f->quant, f->out, f->in, high, wide);
    d.parts.stored = true;
    d.to = f->to;
    TRY(st, f->whole(f->self, &d.whole));
    for (int64_t r = 0; st == NULL && r < rows; r += high)
        for (int64_t k = 0; st == NULL && k < cols; k += wide) {
            const sheaf__quant_box b = { f->in, row0 + r, least(high, rows - r), col0 + k,
                                         least(wide, cols - k) };
            d.box = b;
            st = f->read(f->self, b.row0, b.rows, b.col0, b.cols, &d.parts);
            if (st == NULL)
                sheaf__dequantise((char *)dst + (r * cols + k) * bytes, cols, &d, 0, b.rows);
        }
    free(d.memory);
    return st;
}
