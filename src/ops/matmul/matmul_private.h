/* matmul_private.h - what the files of this folder share.
 *
 * Everything below works on 32-bit words: a word is one float32, or a pair of
 * bfloat16 (even element in the low half). A "step" is one word of the summed
 * axis: an fma for float32, the pair instruction for bfloat16. Where that
 * instruction is missing a pair is spread into two float32 steps, odd element
 * first, and the float32 kernel gives the same bits ("spread" below). In the order `tiles`
 * the odd steps feed one chain and the even ones another.
 * float16 is stored in pairs too, but computed in float32 words, even element first: on its way
 * into rows and panels it is widened, and so is a weight of 16 bits that meets float32.
 *
 *   panels  B, block of k by block: [k/256][n/32][steps of the block][32] words, so that
 *           a block times a band of rows reads memory from one end to the other;
 *           columns past n are ignored
 *   rows    A copied for one block of k: [rows][stride] words
 *
 * NaN: the fma forms of x86 choose a payload by operand position, which a
 * compiler may swap, so every sum that is NaN is stored as the default quiet
 * NaN, 0xffc00000; sums of such NaNs are that NaN again. */
#pragma once

#include <assert.h>
#include <string.h>

#include "ops/matmul/matmul.h"
#include "ops/matmul/matmul_round.h"

#define MM_PANEL 32  /* columns of a panel */
#define MM_BLOCK 256 /* elements of k in one block of the numeric contract */
#define MM_CHUNK 32  /* of its order `tiles` */
#define MM_DEPTH 8   /* partial sums alive at once: log2(SHEAF_MAX_SLICES) + 1, and y */

/* Words between two rows of A in scratch: constant, so that a kernel addresses 14 rows
 * from one register, and an odd number of cache lines, so that they fall into 14 sets. */
#define MM_STRIDE_F32 272
#define MM_STRIDE_PAIRS 144
#define MM_STRIDE_WIDE 240 /* of short blocks of pairs, where a kernel takes any */
#define MM_ROW_SUMS 16     /* words of a row for sums of its elements, where any are wanted */

static inline int64_t mm_min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}
static inline int64_t mm_up(int64_t x, int64_t by)
{
    return (x + by - 1) / by * by;
}
static inline int64_t mm_div_up(int64_t x, int64_t by)
{
    return (x + by - 1) / by;
}

static inline float mm_load_float(const char *at)
{
    float x;
    memcpy(&x, at, sizeof x);
    return x;
}

static inline int64_t mm_size(sheaf_dtype dtype)
{
    return dtype == SHEAF_F32 ? 4 : 2;
}

/* Words of k elements as they are stored. */
static inline int64_t mm_steps(sheaf_dtype dtype, int64_t k)
{
    return dtype == SHEAF_F32 ? k : (k + 1) / 2;
}

/* The slice number of the job's p-th slice; without slice_of the only slice is the
 * first one that this rank owns and that is present. */
static inline int mm_slice_of(const sheaf__product *job, int p)
{
    if (job->slice_of)
        return job->slice_of[p];
    for (int r = 0; job->tree && r < job->tree->nroots; r++)
        if (job->tree->root[r].rank == job->rank)
            return job->tree->root[r].begin;
    return 0;
}

/* The last steps of a finished sum; see sheaf__product. */
typedef struct mm_finish {
    void *y;
    int64_t ldy;
    sheaf_dtype out;
    float alpha;
    const float *bias;
    const void *residual;
    int64_t ldr;
    bool add;
    sheaf_dtype round_to; /* F32: not */
    bool transposed;      /* sums arrive as [n, m] */
} mm_finish;

/* Nothing to do but to store, rounded to bfloat16 or not, or to add float32. */
static inline bool mm_finish_is_plain(const mm_finish *f)
{
    return f->alpha == 1.0f && !f->bias && !f->residual && f->round_to == SHEAF_F32 &&
           f->out != SHEAF_F16;
}

/* Memory that will be read soon: `rows` runs of `bytes`, `step` bytes apart. Kernels ask for
 * it while they compute, as copying it later would wait for each of its pages. */
typedef struct mm_soon {
    const char *at;
    int64_t step, rows, bytes;
    int64_t done;         /* bytes of the first run that were prefetched */
    struct mm_soon *then; /* the next one, or NULL */
} mm_soon;

static inline int64_t mm_soon_lines(const mm_soon *soon)
{
    return soon->rows * (soon->bytes / 64 + 1);
}

/* Asks for the next `lines` lines of a list, and moves on in it. */
static inline void mm_ask(mm_soon **list, int64_t lines)
{
    for (; lines > 0; lines--) {
        while ((*list)->rows == 0) {
            if ((*list)->then == NULL)
                return;
            *list = (*list)->then;
        }
        mm_soon *soon = *list;
        __builtin_prefetch(soon->at + soon->done, 0, 2); /* prefetcht1 */
        soon->done += 64;
        if (soon->done >=
            soon->bytes + 63) { /* a run that starts inside a line may end in one more */
            soon->done = 0;
            soon->at += soon->step;
            soon->rows--;
        }
    }
}

/* Compressed panels, of bfloat16: a panel's steps of one block, a box, have 48 words for each two
 * of them: 64 bytes for each step, of every half, in the order in which halves lie, its sign (bit
 * 7) and mantissa, and 64 bytes of numbers of 4 bits that stand for exponents: number q of
 * half-word i is that of half i of the q-th vector of 32 halves. 0 stands for exponent 0, others
 * for `base` + number. A half with another exponent is rare: it stands in a list, and what the box
 * has in its place says nothing. */

#define MM_CODE_WORDS 48              /* of two steps */
#define MM_CODE_HALVES (4 * MM_PANEL) /* of them */

typedef struct mm_code {
    uint32_t rare; /* words from here to the first rare half: its number among the box's halves, and
                      its bits in the upper half; in ascending order */
    uint16_t rares;
    uint16_t base;
} mm_code;

/* Forms of B that kernels read as they lie in memory: bits of the sets that plans and engines name.
 */
enum { MM_COMPRESSED = 1, MM_CODES = 2 };

/* Codes of 4 bits (matmul_quant.h) in groups, of the block at k0 of W's row and the panels after
 * it: what a kernel takes as they are. */
typedef struct mm_taken {
    const sheaf__packed *w; /* NULL: none */
    const char *cells;      /* the first panel's */
    int64_t row, k0, cols;  /* of the block */
    int64_t bytes, head;    /* from one panel's cell to the next; before its codes */
    int64_t block, first;   /* columns of a group, and of the first one that are here */
    /* Of doubled scales: the number of the first group of `row` here, from what is there on, and of
     * groups between rows. */
    int64_t first_group, apart;
    const float *nested, *map;
    int64_t floats;      /* of a group, for each row */
    uint16_t number[16]; /* values of codes, as bfloat16 */
} mm_taken;

/* Place of partial sums, tile by tile, [cols/32][rows][32]: in a slot of the area (far), or in one
 * beside the kernel (near) that each tile overwrites, so that it stays in the first-level cache. */
typedef struct mm_slot {
    int index;
    bool near;
} mm_slot;

/* One block of k: v = block sum; v = addend + v for each addend in order; v goes to `to`. */
typedef struct mm_pass {
    int64_t at, steps; /* at: words of a row of A before it */
    /* At most MM_CHUNK elements, and addend[0] is the sum of the pass before as its unit left it:
     * in the order `tiles` the unit may go on from there. */
    bool chained;
    /* Of codes in groups (matmul.h): v = scale * block sum, or, once the slice has a sum,
     * v = fma(scale, block sum, addend[0]); then, if something is `added`, v = fma(that, sum of A's
     * elements, v). Scales are behind the last step of a panel, and behind them what is added;
     * where it is taken as codes, it has several blocks. Sums of A's elements are among a row's
     * first MM_ROW_SUMS words, from `sums` on. */
    bool scaled, added, started;
    int sums;
    /* In the orders mma8 and mma16, whose chains span blocks: the pass goes on from what is in
     * `chain`; what it leaves in `to` is a chain's sum, with addends, or else the chain so far. */
    bool goes_on, ends;
    mm_slot chain;
    int addends;
    mm_slot addend[MM_DEPTH], to;
} mm_pass;

/* Words of a panel. */
static inline int64_t mm_pass_words(const mm_pass *pass)
{
    return (pass->steps + pass->scaled + pass->added) * MM_PANEL;
}

/* Sums that a unit has stored and that are not yet where they belong: it multiplies the next ones
 * meanwhile, in the same band or in the one that follows. */
typedef struct mm_ending {
    int way; /* the engine's own */
    int addends;
    bool half;                     /* 16 columns, not 32 */
    const float *sum;              /* [rows][32] */
    const float *addend[MM_DEPTH]; /* of the same form */
    void *to;
    int64_t ld;              /* elements between rows of `to` */
    const mm_finish *finish; /* or what becomes of them at row, column of the result */
    int64_t row, column;
    int64_t rows, done;
} mm_ending;

#define MM_PASSES 16 /* of a stretch */
#define MM_NEAR 1024 /* floats of a near slot: of the largest tile */

/* A stretch of blocks of k for a band of rows, as many as a register tile has, and any columns.
 * Every tile goes through all passes before the next tile begins. */
typedef struct mm_band {
    const void *a;
    int64_t stride; /* 0: rows as sheaf__mm_rows copies them; else bytes between rows of A itself */
    int64_t words;  /* between copied rows: of the stretch, at most `wide` */
    bool pairs;     /* spread engine, few rows: b holds pairs, which `steps` counts */
    const mm_pass *pass;
    const uint32_t *const *b; /* panels of each pass, one after the other */
    /* NULL, or of each pass that of its first panel, or NULL where those are not compressed */
    const mm_code *const *code;
    const mm_taken *taken; /* NULL, or of each pass */
    bool narrow;           /* they are [steps][lanes of a vector], not [steps][32] */
    int64_t ldb; /* bytes between rows of B, where b has it as it lies (outer products), else 0 */
    int passes;
    int64_t rows, cols;
    float *near, *far;
    int64_t far_size;        /* floats of a slot */
    mm_ending *ending;       /* of engines that have `end`: what the band before has left */
    float *stored;           /* and where its sums are, MM_NEAR floats */
    const mm_finish *finish; /* of the last pass, instead of `to`; or NULL */
    int64_t row0, col0;      /* of finish->y */
    mm_soon *soon;
    int64_t lines; /* of it to ask for during this band */
} mm_band;

/* The sums of column j, the first one of a tile. */
static inline float *mm_sums_at(const mm_band *band, mm_slot slot, int64_t j)
{
    const int64_t panel = j / MM_PANEL * band->rows * MM_PANEL;
    return (slot.near ? band->near + slot.index * MM_NEAR
                      : band->far + slot.index * band->far_size + panel) +
           j % MM_PANEL;
}

struct mm_codes;
/* Numbers made of codes: values as x W^T or dy W has them, or the codes' numbers alone. */
typedef enum mm_made { MM_AHEAD, MM_BACK, MM_NUMBERS } mm_made;
typedef void mm_values_fn(uint32_t *to, const struct mm_codes *l, int64_t row, int64_t col,
                          int64_t cols, mm_made made);

/* How one dtype is computed on one instruction set. */
typedef struct mm_engine {
    void (*run)(const mm_band *band);
    void (*copy)(uint32_t *dst, const char *src, int64_t bytes);
    int64_t stride;    /* words between rows of A */
    int64_t wide;      /* at most so many where slices are short, or 0: always stride */
    int rows;          /* of a register tile */
    int64_t area_rows; /* most rows of an area, or 0: as MOST_ROWS says */
    int direct;        /* of a tile that reads A in place */
    void (*outer)(const mm_band *band); /* reads A^T and B in place, or NULL */
    int outer_rows;                     /* of its tiles */
    int lanes;   /* of a vector, where thin products of float32 lay B in them; else 0 */
    bool spread; /* bfloat16 as float32 steps */
    int few;     /* rows of a tile with which a spread engine takes B in pairs all the same */
    int codes;   /* rows of a product up to which it takes compressed panels as they are */
    int takes;   /* rows of a tile that takes codes in groups, and those of a product */
    int most_taken;
    bool groups; /* it has the order of codes in groups */
    /* A faster sheaf__mm_expand(), or NULL */
    void (*expand)(uint32_t *to, const uint32_t *box, const mm_code *code, int64_t steps);
    /* A faster sheaf__mm_values() of matmul_quant.h, or NULL */
    mm_values_fn *values;
    /* Rows of a product up to which it does: what spreading B takes is saved, and the tile picks
     * halves out of words instead, again for each tile. */
    int64_t most_in_pairs;
    /* Rows of a product, at most those of a tile, up to which no stretch is prefetched: B goes
     * by once, panel after panel, and the processor by itself is ahead of it. */
    int64_t most_unasked;
    bool mma;    /* of the orders mma8 and mma16: float16 is not widened; see mm_pass */
    int64_t pad; /* rows and panels are filled with zeros to a multiple of so many steps; 0: not */
    void (*enter)(void), (*leave)(void); /* around an area, on its thread; NULL: nothing to do */
    void (*end)(mm_ending *ending);      /* does the rest, after the last band; or NULL */
} mm_engine;

/* As what an engine takes a job of `dtype`: words or pairs. */
static inline sheaf_dtype mm_computed(const mm_engine *engine, sheaf_dtype dtype)
{
    return dtype == SHEAF_BF16 || engine->mma ? dtype : SHEAF_F32;
}

static inline int64_t mm_widest(const mm_engine *engine)
{
    return engine->wide > 0 ? engine->wide : engine->stride;
}

#define MM_KERNELS(isa)                                                                            \
    void mm_run_##isa(const mm_band *band);                                                        \
    void mm_copy_##isa(uint32_t *dst, const char *src, int64_t bytes);
MM_KERNELS(avx2)
MM_KERNELS(avx2tiles)
MM_KERNELS(avx512)
MM_KERNELS(avx512stream)
MM_KERNELS(avx512bf16)
MM_KERNELS(avx512tiles)
#define MM_MMA(isa)                                                                                \
    void mm_run_mma8_bf16_##isa(const mm_band *band);                                              \
    void mm_run_mma8_f16_##isa(const mm_band *band);                                               \
    void mm_run_mma16_bf16_##isa(const mm_band *band);                                             \
    void mm_run_mma16_f16_##isa(const mm_band *band);
MM_MMA(avx2mma)
MM_MMA(avx512mma)
void mm_outer_avx2(const mm_band *band);
void mm_outer_avx512(const mm_band *band);
void mm_expand_avx512(uint32_t *to, const uint32_t *box, const mm_code *code, int64_t steps);
mm_values_fn mm_values_avx2, mm_values_avx512, mm_values_avx512bf16;
void mm_run_amx(const mm_band *band);
void mm_end_amx(mm_ending *ending);
void mm_enter_amx(void);
void mm_leave_amx(void);

typedef struct mm_isa {
    const char *name;
    /* of bfloat16 two; NULL: the reference loops. f16 is f32, but that it copies A */
    const mm_engine *f32, *f16, *pairs, *tiles;
    const mm_engine *few;       /* tiles of a product of few rows, or NULL */
    const mm_engine *mma[2][2]; /* mma8, mma16 of bfloat16, float16 */
} mm_isa;
extern const mm_isa sheaf__mm_ref, sheaf__mm_avx2, sheaf__mm_avx512, sheaf__mm_avx512bf16,
    sheaf__mm_amx;
/* For a device's kernels->isa and units. */
const mm_isa *sheaf__mm_isa_for(const char *isa, sheaf__units units);
static inline const mm_engine *mm_engine_of(const mm_isa *isa, sheaf_dtype dtype, sheaf_sums sums)
{
    if (sheaf__by_mma(sums, dtype))
        return isa->mma[sums == SHEAF_SUMS_MMA16][dtype == SHEAF_F16];
    if (dtype != SHEAF_BF16)
        return dtype == SHEAF_F16 ? isa->f16 : isa->f32;
    return sheaf__sums_of_values(sums) == SHEAF_SUMS_TILES ? isa->tiles : isa->pairs;
}

/* The same for a product of `rows` rows: of one to three the tile unit would compute sixteen, and
 * be no faster than memory. */
static inline const mm_engine *mm_engine_for(const mm_isa *isa, sheaf_dtype dtype, sheaf_sums sums,
                                             int64_t rows)
{
    const mm_engine *engine = mm_engine_of(isa, dtype, sums);
    return engine == isa->tiles && isa->few != NULL && rows <= isa->few->few ? isa->few : engine;
}

/* Words of k elements as rows and panels of an engine have them. */
static inline int64_t mm_padded(const mm_engine *engine, int64_t steps)
{
    return engine->pad > 0 ? mm_up(steps, engine->pad) : steps;
}
/* Begin of the arguments of PRODUCTS; pointers among the jobs are the device's, also the lists of
 * terms and roots the host's. */
typedef struct mm_jobs {
    sheaf__product *job;
    int jobs;
} mm_jobs;
/* sheaf__mm_flops - operations of a job. */
double sheaf__mm_flops(const sheaf__product *job);
/* sheaf__mm_products_with - by the processor, on the pointers as they are. */
void sheaf__mm_products_with(const mm_isa *isa, sheaf__device *device, const sheaf__product *job,
                             int jobs);

/* The reference for rows [i0, i1) and columns [j0, j1) only; writes nothing else. */
void sheaf__product_ref_part(const sheaf__product *job, sheaf_sums sums, int64_t i0, int64_t i1,
                             int64_t j0, int64_t j1);

/* ---- panels in memory ---- */

/* Words before the panel of column j (a multiple of 32) in the block of k that starts at k0;
 * B is [k, n]. */
static inline int64_t mm_panel_at(sheaf_dtype dtype, int64_t n, int64_t k, int64_t j, int64_t k0)
{
    return mm_up(n, MM_PANEL) * mm_steps(dtype, k0) + j * mm_steps(dtype, mm_min(MM_BLOCK, k - k0));
}

/* Words of all panels of a weight [n, k]. */
static inline int64_t mm_words_ahead(sheaf_dtype dtype, int64_t n, int64_t k)
{
    return mm_up(n, MM_PANEL) * mm_steps(dtype, k);
}

/* Rows that W's panels for x W^T have: its own, or the larger weight's. */
static inline int64_t mm_rows_ahead(const sheaf__packed *w)
{
    return w->rows > 0 ? w->rows : w->n;
}

/* W's row where it is row_major. */
static inline char *mm_row_at(const sheaf__packed *w, int64_t row)
{
    return (char *)w->ahead + (w->row0 + row) * w->k * mm_size(w->dtype);
}

/* Words before W[row][k0] in the panels for x W^T, k0 where a block starts; the next word of the
 * row is MM_PANEL words on. */
static inline int64_t mm_ahead_at(const sheaf__packed *w, int64_t row, int64_t k0)
{
    const int64_t at = w->row0 + row;
    return mm_panel_at(w->dtype, mm_rows_ahead(w), w->k, at - at % MM_PANEL, k0) + at % MM_PANEL;
}

/* sheaf__mm_rows_as - `count` rows of src (sheaf__pack) as W has them, row by row, into dst. */
void sheaf__mm_rows_as(void *dst, const sheaf__packed *w, const void *src, sheaf_dtype from,
                       int64_t ld, int64_t count);

/* sheaf__mm_quant_size - of a quantised W (matmul_quant.h), or the larger one. */
size_t sheaf__mm_quant_size(const sheaf__packed *w);

/* ---- compressed panels ---- */

static inline const uint32_t *mm_rare(const mm_code *code)
{
    return (const uint32_t *)code + code->rare;
}
/* The rare halves of an expanded box in their places. */
static inline void mm_put_rare(uint32_t *box, const mm_code *code)
{
    const uint32_t *rare = mm_rare(code);
    for (int i = 0; i < code->rares; i++)
        ((uint16_t *)box)[rare[i] & 0xffff] = (uint16_t)(rare[i] >> 16);
}
static inline int64_t mm_code_words(int64_t steps)
{
    return (steps + 1) / 2 * MM_CODE_WORDS;
}
/* The box of W's row and of the block that starts at k0: which it is, and words before it. */
static inline int64_t mm_code_box(const sheaf__packed *w, int64_t row, int64_t k0)
{
    return k0 / MM_BLOCK * mm_div_up(mm_rows_ahead(w), MM_PANEL) + (w->row0 + row) / MM_PANEL;
}
static inline int64_t mm_code_at(const sheaf__packed *w, int64_t row, int64_t k0)
{
    return k0 / MM_BLOCK * mm_div_up(mm_rows_ahead(w), MM_PANEL) *
               mm_code_words(mm_steps(SHEAF_BF16, MM_BLOCK)) +
           (w->row0 + row) / MM_PANEL *
               mm_code_words(mm_steps(SHEAF_BF16, mm_min(MM_BLOCK, w->k - k0)));
}
/* sheaf__mm_compress - `box` [steps of the block][32] words, all of the panel of W's row: where it
 * belongs. Room for another step is behind it. */
void sheaf__mm_compress(const sheaf__packed *w, int64_t row, int64_t k0, uint32_t *box);
/* sheaf__mm_expand - a box of `steps` steps: [steps][32] words. */
void sheaf__mm_expand(uint32_t *to, const uint32_t *box, const mm_code *code, int64_t steps);
/* W[row][col]. */
uint16_t sheaf__mm_code_half(const sheaf__packed *w, int64_t row, int64_t col);

/* ---- matmul_prepare.c: operands into rows and panels; serial ---- */

/* Rows [i0, i1), elements [k0, k0 + kb) of the term's A, `stride` words apart. */
void sheaf__mm_rows(uint32_t *rows, const mm_engine *engine, const sheaf__term *term,
                    sheaf_dtype dtype, int64_t i0, int64_t i1, int64_t k0, int64_t kb,
                    int64_t stride);
/* sheaf__mm_row_sums - of the same, a block's that is codes in groups, the sums of each group's
 * elements: [i1 - i0], `stride` words apart, of groups. */
void sheaf__mm_row_sums(float *to, const sheaf__term *term, int64_t i0, int64_t i1, int64_t k0,
                        int64_t kb, int64_t stride);
/* Columns [j0, j1), j0 a multiple of 32, elements [k0, k0 + kb) of the term's B. Returns the
 * first panel, in place where the stored form serves (takes: also another than panels), else in
 * `buffer`, which has MM_BLOCK words for each column; groups: it is codes in groups, of one, which
 * get a step of scales, and one of what is added; made: they are there already. */
const uint32_t *sheaf__mm_panels(uint32_t *buffer, const mm_engine *engine, const sheaf__term *term,
                                 sheaf_dtype dtype, int64_t j0, int64_t j1, int64_t k0, int64_t kb,
                                 bool spread, int takes, bool groups, bool made);
/* Elements [k0, k0 + kb) of a float32 B of n <= width columns as [kb][width]. */
void sheaf__mm_narrow(uint32_t *to, const sheaf__term *term, int64_t n, int64_t width, int64_t k0,
                      int64_t kb);
/* The source of sheaf__mm_rows. Written where it stays: a copy of what was just written waits until
 * all sums before it have left the processor's store buffer. */
void sheaf__mm_rows_source(mm_soon *soon, const sheaf__term *term, sheaf_dtype dtype, int64_t i0,
                           int64_t i1, int64_t k0, int64_t kb);

/* The sources of sheaf__mm_panels, or of a kernel if it has nothing to do: their number, at most
 * MM_RUNS. */
#define MM_RUNS 4
int sheaf__mm_panels_source(mm_soon soon[MM_RUNS], const sheaf__term *term, sheaf_dtype dtype,
                            int64_t j0, int64_t j1, int64_t k0, int64_t kb);

/* sheaf__mm_take - the codes of a term's W from `row` on, of the block at k0, if they are in
 * groups. */
void sheaf__mm_take(mm_taken *t, const sheaf__term *term, int64_t row, int64_t k0);
/* sheaf__mm_scales - of the groups of panel `panel` after t's row: [groups][floats][32], in place,
 * or in `room`. */
#define MM_MOST_SCALES ((MM_BLOCK / 16 + 1) * MM_PANEL)
const float *sheaf__mm_scales(float room[MM_MOST_SCALES], const mm_taken *t, int64_t panel);
/* The same of the group alone that has column `col` of the block. */
void sheaf__mm_group_scales(float *to, const mm_taken *t, int64_t panel, int64_t col);

/* The type in which a term's B is stored, and whether an engine widens it. */
static inline sheaf_dtype mm_stored(const sheaf__term *term, sheaf_dtype dtype)
{
    return term->form == SHEAF__B_AHEAD || term->form == SHEAF__B_BACK ? term->w->dtype : dtype;
}
static inline bool mm_widens(const mm_engine *engine, const sheaf__term *term, sheaf_dtype dtype)
{
    return mm_computed(engine, dtype) == SHEAF_F32 && mm_stored(term, dtype) != SHEAF_F32;
}

/* Whether all of a job has one type. */
static inline bool mm_is_uniform(const sheaf__product *job)
{
    for (int t = 0; t < job->nterms; t++)
        if (mm_stored(&job->term[t], job->dtype) != job->dtype)
            return false;
    return true;
}

/* Whether a job is summed by mma8 or mma16: all of it has one type of 16 bits. */
static inline bool mm_by_mma(const sheaf__product *job, sheaf_sums sums)
{
    return sheaf__by_mma(sums, job->dtype) && mm_is_uniform(job);
}

static inline bool mm_in_panels(const sheaf__term *term)
{
    return term->form == SHEAF__B_AHEAD;
}
static inline bool mm_compressed(const sheaf__term *term)
{
    return term->form == SHEAF__B_AHEAD && term->w->code != NULL;
}
static inline bool mm_quantised(const sheaf__term *term)
{
    return (term->form == SHEAF__B_AHEAD || term->form == SHEAF__B_BACK) && term->w->quantised;
}
/* Whether a term is codes in groups, where the order of sums knows them (matmul.h). */
static inline bool mm_in_groups(const sheaf__term *term)
{
    const sheaf__packed *w = term->w;
    if (term->form != SHEAF__B_AHEAD || !w->quantised || w->dtype != SHEAF_BF16)
        return false;
    const sheaf__quant *q = &w->quant;
    if (sheaf__code_bits(q->codes) != 4 || q->zeros || q->grouping == SHEAF__GROUPS_INDEXED)
        return false;
    return q->block == 0 || (q->block % 16 == 0 && w->box.col0 % 16 == 0 &&
                             (q->grouping == SHEAF__GROUPS_OF_ROW || w->box.in % q->block == 0));
}
/* Whether something is added to its scaled codes. */
static inline bool mm_adds(const sheaf__term *term)
{
    return mm_in_groups(term) && term->w->quant.added;
}
/* Whether a job's codes are summed in groups. */
static inline bool mm_sums_groups(const sheaf__product *job, sheaf_sums sums)
{
    return job->dtype == SHEAF_BF16 && sheaf__sums_of_values(sums) != sums;
}
/* Elements of the block of a term's k that begins at k0. */
static inline int64_t mm_block(const sheaf__term *term, int64_t k0, bool groups)
{
    const int64_t most = mm_min(term->k - k0, MM_BLOCK - k0 % MM_BLOCK);
    if (!groups || term->w->quant.block == 0)
        return most;
    const int64_t block = term->w->quant.block;
    return mm_min(most, block - (term->w->box.col0 + k0) % block);
}
/* As what a term's B is taken, or 0. */
static inline int mm_takes(const sheaf__term *term)
{
    return mm_compressed(term) ? MM_COMPRESSED : mm_in_groups(term) ? MM_CODES : 0;
}
static inline bool mm_panels_in_place(const mm_engine *engine, const sheaf__term *term,
                                      sheaf_dtype dtype, bool spread, int takes)
{
    return !spread && mm_in_panels(term) && !mm_widens(engine, term, dtype) &&
           ((!mm_quantised(term) && !mm_compressed(term)) || (takes & mm_takes(term)) != 0);
}
