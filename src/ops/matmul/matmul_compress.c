/* matmul_compress.c - panels of bfloat16 in 12 bits an element, without loss.
 *
 * Trained weights have few exponents: of normally distributed ones all but one in ten thousand have
 * one of fifteen that follow each other. So an element is its sign and mantissa, 8 bits, and a
 * number of 4 bits for its exponent; the others are listed (DFloat11, Zhang et al. 2025, has the
 * observation and a code of 11 bits that takes longer to read). Where many are listed, looking for
 * them would take what shorter panels save, and what is not finite others look for: such a weight
 * is not compressed.
 *
 * Memory has the boxes one after the other, where panels would begin; then what is counted, a code
 * of each box, and the lists, in the order in which threads have finished boxes. */
#include "ops/matmul/matmul_private.h"

#include <stdatomic.h>
#include <stdlib.h>

#define NUMBERS 15    /* for exponents above `base`; 0 is exponent 0 */
#define MOST_RARE 512 /* of so many halves one may be rare */
#define LISTED 1024   /* rare halves of a box at most */
#define FEW 4         /* more of them look for another base, see sheaf__mm_compress() */

typedef struct counted {
    atomic_uint rares; /* words of lists */
    atomic_bool failed;
    int64_t most; /* rares */
} counted;
_Static_assert(sizeof(counted) % sizeof(mm_code) == 0, "codes lie behind it");

static counted *counted_of(const sheaf__packed *w)
{
    return (counted *)w->code - 1;
}

static int64_t boxes_of(const sheaf__packed *w)
{
    return mm_div_up(w->k, MM_BLOCK) * mm_div_up(mm_rows_ahead(w), MM_PANEL);
}

/* Halves of which compilers make a vector of the machine. */
#ifdef __AVX2__
enum { HALVES = 16 };
#else
enum { HALVES = 8 };
#endif
typedef uint16_t halves __attribute__((vector_size(2 * HALVES)));
typedef uint8_t bytes __attribute__((vector_size(HALVES)));

static inline halves load(const uint16_t *at)
{
    halves h;
    memcpy(&h, at, sizeof h);
    return h;
}

static inline bool any(halves h)
{
    uint64_t part[HALVES / 4], all = 0;
    memcpy(part, &h, sizeof part);
    for (int i = 0; i < HALVES / 4; i++)
        all |= part[i];
    return all != 0;
}

static inline halves exponents(halves h)
{
    return h >> 7 & 0xff;
}

/* All bits of those that are rare. */
static inline halves rare_of(halves exponents, uint16_t base)
{
    return (halves)(exponents != 0) & (halves)(exponents - base - 1 >= NUMBERS);
}

/* The base that leaves the fewest halves of a box rare, as the upper one of two. */
static uint16_t base_of(const uint16_t *half, int64_t n)
{
    int of[4][256] = { { 0 } }; /* by fours: they need not wait for each other */
    int most = 0, within = 0;
    uint16_t best = 0;
    for (int64_t i = 0; i < n; i += 4)
        for (int q = 0; q < 4; q++)
            of[q][half[i + q] >> 7 & 0xff]++;
    for (int base = -NUMBERS; base + NUMBERS < 255; base++) {
        for (int q = 0; q < 4; q++)
            within += of[q][base + NUMBERS] - (base > 0 ? of[q][base] : 0);
        if (base >= 0 && within >= most) {
            most = within;
            best = (uint16_t)base;
        }
    }
    return best;
}

/* Whether one is rare. */
static bool encode_unit(uint32_t *to, const uint16_t *half, unsigned base)
{
    enum { VECTOR = MM_PANEL / HALVES };
    halves four[VECTOR] = { { 0 } }, rare = { 0 };
    for (int i = 0; i < MM_CODE_HALVES / HALVES; i++) {
        const halves h = load(half + i * HALVES), e = exponents(h),
                     other = rare_of(e, (uint16_t)base);
        const bytes low = __builtin_convertvector((h >> 8 & 0x80) | (h & 0x7f), bytes);
        memcpy((uint8_t *)to + i * HALVES, &low, sizeof low);
        four[i % VECTOR] |= ((e - (uint16_t)base) & (halves)(e != 0) & ~other) << i / VECTOR * 4;
        rare |= other;
    }
    memcpy(to + MM_PANEL, four, sizeof four);
    return any(rare);
}

static void expand_unit(uint16_t *half, const uint32_t *unit, unsigned base)
{
    const uint8_t *low = (const uint8_t *)unit;
    const uint16_t *four = (const uint16_t *)(unit + MM_PANEL);
    for (int q = 0; q < 4; q++, half += MM_PANEL, low += MM_PANEL)
        for (int i = 0; i < MM_PANEL; i++) {
            const uint16_t number = four[i] >> 4 * q & 15,
                           e = number == 0 ? 0 : (uint16_t)(number + base);
            half[i] = (uint16_t)((low[i] & 0x80) << 8 | (low[i] & 0x7f) | e << 7);
        }
}

void sheaf__mm_expand(uint32_t *to, const uint32_t *box, const mm_code *code, int64_t steps)
{
    uint16_t *half = (uint16_t *)to, last[MM_CODE_HALVES];
    for (int64_t s = 0; s + 2 <= steps; s += 2, box += MM_CODE_WORDS)
        expand_unit(half + s * 2 * MM_PANEL, box, code->base);
    if (steps % 2 != 0) {
        expand_unit(last, box, code->base);
        memcpy(half + (steps - 1) * 2 * MM_PANEL, last, sizeof last / 2);
    }
    mm_put_rare(to, code);
}

/* Of a unit that begins at half `first` of its box. */
static int list_rare(uint32_t *rare, const uint16_t *half, int64_t first, unsigned base)
{
    int n = 0;
    for (int64_t i = 0; i < MM_CODE_HALVES; i += HALVES) {
        const halves here = rare_of(exponents(load(half + i)), (uint16_t)base);
        for (int64_t q = 0; any(here) && q < HALVES; q++)
            if (here[q] != 0)
                rare[n++] = (uint32_t)(first + i + q) | (uint32_t)half[i + q] << 16;
    }
    return n;
}

/* A box of `units` units; the number of its rare halves, more than `most` (at most LISTED) if they
 * are more. */
static int encode(uint32_t *to, uint32_t rare[LISTED + MM_CODE_HALVES], const uint16_t *half,
                  int64_t units, unsigned base, int most)
{
    int n = 0;
    for (int64_t u = 0; u < units && n <= most; u++, to += MM_CODE_WORDS)
        if (encode_unit(to, half + u * MM_CODE_HALVES, base))
            n += list_rare(rare + n, half + u * MM_CODE_HALVES, u * MM_CODE_HALVES, base);
    return n;
}

static bool is_finite(const uint32_t *rare, int n)
{
    bool finite = true;
    for (int i = 0; i < n; i++)
        finite = finite && (rare[i] >> 23 & 0xff) != 255;
    return finite;
}

void sheaf__mm_compress(const sheaf__packed *w, int64_t row, int64_t k0, uint32_t *box)
{
    const int64_t steps = mm_steps(w->dtype, mm_min(MM_BLOCK, w->k - k0)), units = (steps + 1) / 2;
    counted *all = counted_of(w);
    mm_code *code = &w->code[mm_code_box(w, row, k0)];
    uint32_t *to = (uint32_t *)w->ahead + mm_code_at(w, row, k0), rare[LISTED + MM_CODE_HALVES];
    const uint16_t *half = (const uint16_t *)box;
    int n = LISTED + 1;
    int64_t most = FEW;
    if (all->failed)
        return;
    if (steps % 2 != 0)
        memset(box + steps * MM_PANEL, 0, MM_PANEL * sizeof *box);
    if (k0 > 0) { /* the base of the block before, which this thread has packed, serves mostly: if
                     it leaves no more than twice as many rare, and some */
        const mm_code *last = &w->code[mm_code_box(w, row, k0 - MM_BLOCK)];
        most = mm_min(FEW + 2 * last->rares, LISTED);
        code->base = last->base;
        n = encode(to, rare, half, units, code->base, (int)most);
    }
    if (n > most) {
        code->base = base_of(half, units * MM_CODE_HALVES);
        n = encode(to, rare, half, units, code->base, LISTED);
    }
    const uint32_t before = atomic_fetch_add(&all->rares, (unsigned)n);
    if (n > LISTED || (int64_t)before + n > all->most || !is_finite(rare, n)) {
        all->failed = true;
        return;
    }
    uint32_t *list = (uint32_t *)(w->code + boxes_of(w)) + before;
    memcpy(list, rare, (size_t)n * sizeof *rare);
    code->rares = (uint16_t)n;
    code->rare = (uint32_t)(list - (uint32_t *)code);
}

void sheaf__packed_compress(sheaf__packed *w)
{
    w->code = NULL;
    if (w->dtype != SHEAF_BF16 || w->row_major || w->quantised || w->ahead == NULL ||
        w->rows != 0 || w->n == 0 || w->k == 0)
        return;
    const int64_t last = mm_up(w->k, MM_BLOCK) - MM_BLOCK, /* begin of the last block */
        codes = mm_code_at(w, mm_up(w->n, MM_PANEL), last) + (int64_t)sizeof(counted) / 4,
                  lists = codes + boxes_of(w) * (int64_t)sizeof(mm_code) / 4,
                  room = mm_words_ahead(w->dtype, w->n, w->k) - lists;
    if (room < 0) /* as where k is 2 */
        return;
    w->code = (mm_code *)((uint32_t *)w->ahead + codes);
    counted *all = counted_of(w);
    atomic_init(&all->rares, 0);
    atomic_init(&all->failed, false);
    all->most = mm_min(mm_min(room, UINT32_MAX / 2), w->n * w->k / MOST_RARE + FEW);
}

bool sheaf__packed_as_wanted(sheaf__packed *w)
{
    if (w->code == NULL || !counted_of(w)->failed)
        return true;
    w->code = NULL;
    return false;
}

/* From the last box to the first: what is written lies behind what is still to be read, but for
 * codes and lists. */
void sheaf__packed_expand(sheaf__packed *w)
{
    if (w->code == NULL)
        return;
    const int64_t boxes = boxes_of(w), panels = mm_div_up(w->n, MM_PANEL);
    const size_t bytes = (size_t)boxes * sizeof(mm_code) + counted_of(w)->rares * sizeof(uint32_t);
    mm_code *code = malloc(bytes);
    if (code == NULL)
        return;
    memcpy(code, w->code, bytes);
    for (int64_t b = boxes - 1; b >= 0; b--) {
        const int64_t row = b % panels * MM_PANEL, k0 = b / panels * MM_BLOCK,
                      steps = mm_steps(w->dtype, mm_min(MM_BLOCK, w->k - k0));
        uint32_t box[MM_PANEL * MM_BLOCK / 2];
        sheaf__mm_expand(box, (const uint32_t *)w->ahead + mm_code_at(w, row, k0), &code[b], steps);
        memcpy((uint32_t *)w->ahead + mm_ahead_at(w, row, k0), box,
               (size_t)(steps * MM_PANEL) * sizeof *box);
    }
    free(code);
    w->code = NULL;
}

uint16_t sheaf__mm_code_half(const sheaf__packed *w, int64_t row, int64_t col)
{
    const int64_t k0 = col / MM_BLOCK * MM_BLOCK;
    const mm_code *code = &w->code[mm_code_box(w, row, k0)];
    const uint32_t *rare = mm_rare(code);
    const int64_t step = (col - k0) / 2, at = (w->row0 + row) % MM_PANEL * 2 + col % 2;
    for (int i = 0; i < code->rares; i++)
        if ((rare[i] & 0xffff) == step * 2 * MM_PANEL + at)
            return (uint16_t)(rare[i] >> 16);
    const uint32_t *unit =
        (const uint32_t *)w->ahead + mm_code_at(w, row, k0) + step / 2 * MM_CODE_WORDS;
    const int64_t half = step % 2 * 2 * MM_PANEL + at; /* of the unit */
    const uint8_t low = ((const uint8_t *)unit)[half];
    const uint16_t four = ((const uint16_t *)(unit + MM_PANEL))[half % MM_PANEL];
    const unsigned number = four >> (half / MM_PANEL * 4) & 15;
    return (uint16_t)((low & 0x80) << 8 | (low & 0x7f) |
                      (number == 0 ? 0 : (code->base + number) << 7));
}
