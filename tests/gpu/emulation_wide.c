/* emulation_wide.c - see ops/devices/gpu/cuda/hopper.h and emulation.h. */
#include <stdio.h>

#include "ops/devices/gpu/cuda/hopper.h"
#include "tests/gpu/emulation_fibres.h"
#include "tests/gpu/emulation_mma.h"
#include "tests/gpu/emulation_wide.h"

#define self sheaf__emu_self

/* ---- clusters ---- */

int cluster_rank(void)
{
    return sheaf__emu.rank;
}

void sync_cluster(void)
{
    sheaf__emu_sync(SHEAF__EMU_CLUSTER, self->blocks * self->launch->threads);
}

/* The same place in the shared memory of another block. */
static void *of_block(const void *at, int rank)
{
    if (rank < 0 || rank >= self->blocks)
        sheaf__emu_fail("names a block that its cluster has not");
    return self->block[rank] + ((const char *)at - self->block[sheaf__emu.rank]);
}

/* ---- mbarriers ---- */

/* What an mbarrier's 8 bytes are here. */
typedef struct mbarrier {
    uint16_t made; /* MADE */
    uint8_t phase, arrivals, missing;
    int32_t bytes : 24; /* that are to come */
} __attribute__((packed)) mbarrier;

_Static_assert(sizeof(mbarrier) == 8, "an mbarrier has 8 bytes");
enum { MADE = 0x6d62 };

static mbarrier *mbarrier_at(const uint64_t *at)
{
    mbarrier *b = (mbarrier *)(void *)(uintptr_t)at;
    if (((uintptr_t)at & 7) != 0 || b->made != MADE)
        sheaf__emu_fail("no mbarrier was made there");
    return b;
}

void mbarrier_init(uint64_t *barrier, int arrivals)
{
    sheaf__emu_check(barrier, 8, 8, "mbarrier");
    if (arrivals < 1 || arrivals > 255)
        sheaf__emu_fail("mbarrier: no such number of arrivals in the emulation");
    const mbarrier b = { MADE, 0, (uint8_t)arrivals, (uint8_t)arrivals, 0 };
    memcpy(barrier, &b, sizeof b);
}

/* Whether a phase is over: then those that wait for it go on. */
static void step(mbarrier *b)
{
    if (b->missing != 0 || b->bytes != 0)
        return;
    b->phase ^= 1;
    b->missing = b->arrivals;
    for (int i = 0; i < self->warps * 32; i++)
        if (self->fibre[i].wait == SHEAF__EMU_AT_MBARRIER &&
            self->awaited[i].at == (const void *)b && self->awaited[i].phase != b->phase)
            sheaf__emu_be_ready(i);
}

static void arrive(mbarrier *b)
{
    if (b->missing == 0)
        sheaf__emu_fail("mbarrier: more arrivals than it was made for");
    b->missing--;
    step(b);
}

void mbarrier_wait(uint64_t *barrier, int parity)
{
    const mbarrier *b = mbarrier_at(barrier);
    while (b->phase == parity) {
        self->awaited[self->own].at = barrier;
        self->awaited[self->own].phase = parity;
        sheaf__emu_leave(SHEAF__EMU_AT_MBARRIER);
    }
}

void mbarrier_expect(uint64_t *barrier, int bytes)
{
    mbarrier *b = mbarrier_at(barrier);
    b->bytes += bytes;
    arrive(b);
}

void mbarrier_arrive(uint64_t *barrier, int rank)
{
    arrive(mbarrier_at((const uint64_t *)of_block(barrier, rank)));
}

/* ---- the copy engine ---- */

/* What a tensor map's words are here. */
enum { MAP_MADE, MAP_BASE, MAP_ROWS, MAP_COLUMNS, MAP_STRIDE, MAP_BOX };
#define MAP_MARK UINT64_C(0x73686561666d6170)

bool sheaf__emu_tensor_map(sheaf__tensor_map *map, const void *base, int64_t rows, int64_t columns,
                           int64_t stride, int box_rows)
{
    if (((uintptr_t)base & 15) != 0 || stride % 16 != 0 || stride < columns * 2 || rows < 1 ||
        columns < 1 || box_rows < 1 || box_rows > 256)
        return false;
    *map = (sheaf__tensor_map){ { [MAP_MADE] = MAP_MARK,
                                  [MAP_BASE] = (uint64_t)(uintptr_t)base,
                                  [MAP_ROWS] = (uint64_t)rows,
                                  [MAP_COLUMNS] = (uint64_t)columns,
                                  [MAP_STRIDE] = (uint64_t)stride,
                                  [MAP_BOX] = (uint64_t)box_rows } };
    return true;
}

/* Where 16 bytes lie under the swizzle of 128 bytes. */
static char *swizzled(char *at)
{
    return (char *)((uintptr_t)at ^ ((uintptr_t)at >> 7 & 7) << 4);
}

static void land_in(const sheaf__emu_box *box, const sheaf__tensor_map *map, int rank)
{
    const ptrdiff_t there = self->block[rank] - self->block[box->rank];
    const int64_t rows = (int64_t)map->word[MAP_ROWS], columns = (int64_t)map->word[MAP_COLUMNS];
    const int height = (int)map->word[MAP_BOX];
    for (int r = 0; r < height; r++)
        for (int chunk = 0; chunk < WIDE_ROW / 8; chunk++) {
            uint16_t e[8] = { 0 };
            const int64_t row = (int64_t)box->row + r, first = (int64_t)box->column + chunk * 8;
            const char *from =
                (const char *)(uintptr_t)map->word[MAP_BASE] + row * (int64_t)map->word[MAP_STRIDE];
            for (int i = 0; i < 8; i++)
                if (row >= 0 && row < rows && first + i >= 0 && first + i < columns)
                    memcpy(&e[i], from + (first + i) * 2, 2);
            memcpy(swizzled(box->to + there + r * WIDE_ROW * 2 + chunk * 16), e, 16);
        }
    mbarrier *b = mbarrier_at((const uint64_t *)(const void *)((char *)box->barrier + there));
    b->bytes -= height * WIDE_ROW * 2;
    step(b);
}

static void land(const sheaf__emu_box *box)
{
    for (int rank = 0; rank < self->blocks; rank++)
        if (box->blocks >> rank & 1)
            land_in(box, (const sheaf__tensor_map *)box->map, rank);
}

bool sheaf__emu_land_box(void)
{
    if (self->boxes == 0)
        return false;
    const sheaf__emu_box first = self->box[0];
    memmove(self->box, self->box + 1, (size_t)--self->boxes * sizeof first);
    land(&first);
    return true;
}

void copy_box(void *to, const sheaf__tensor_map *map, uint64_t *barrier, int column, int row,
              uint16_t blocks)
{
    if (map->word[MAP_MADE] != MAP_MARK)
        sheaf__emu_fail("copy_box: no tensor map was made there");
    sheaf__emu_check(to, (size_t)map->word[MAP_BOX] * WIDE_ROW * 2, 1024, "copy_box");
    mbarrier_at(barrier);
    const sheaf__emu_box box = { map,
                                 (char *)to,
                                 barrier,
                                 column,
                                 row,
                                 sheaf__emu.rank,
                                 blocks != 0 ? blocks : (uint16_t)(1u << sheaf__emu.rank) };
    if (box.blocks >> self->blocks != 0)
        sheaf__emu_fail("copy_box: names a block that its cluster has not");
    if (self->launch->turned) {
        land(&box);
        return;
    }
    if (self->boxes == SHEAF__EMU_BOXES)
        sheaf__emu_land_box();
    self->box[self->boxes++] = box;
}

/* ---- products of a warpgroup ---- */

/* A descriptor holds what hardware's does: the address from the first block's pages on. */
uint64_t wide_operand(const void *at, int column)
{
    sheaf__emu_check(at, 1024, 1024, "an operand of wgmma");
    if (column % 16 != 0 || column < 0 || column >= WIDE_ROW)
        sheaf__emu_fail("an operand of wgmma begins at no multiple of 16 columns");
    return (uint64_t)((const char *)at - self->shared + column * 2);
}

/* The same of one that lies across: a mark tells it. */
#define ACROSS (UINT64_C(1) << 62)

uint64_t wide_across(const void *at, int k)
{
    sheaf__emu_check(at, 1024, 1024, "an operand of wgmma");
    if (k % 16 != 0 || k < 0 || k >= WIDE_ROW)
        sheaf__emu_fail("an operand of wgmma begins at no multiple of 16 rows");
    return (uint64_t)((const char *)at - self->shared + k * WIDE_ROW * 2) | ACROSS;
}

static uint16_t element_at(char *at)
{
    uint16_t e;
    memcpy(&e, swizzled((char *)((uintptr_t)at & ~(uintptr_t)15)) + ((uintptr_t)at & 15), 2);
    return e;
}

/* Two elements of an operand's row. */
static uint32_t pair_of(uint64_t operand, int row, int k)
{
    char *at = self->shared + (operand & ~ACROSS);
    if ((operand & ACROSS) != 0) {
        at += row / 64 * WIDE_BOX + k * WIDE_ROW * 2 + row % 64 * 2;
        return element_at(at) | (uint32_t)element_at(at + WIDE_ROW * 2) << 16;
    }
    at += row * WIDE_ROW * 2 + k * 2;
    return element_at(at) | (uint32_t)element_at(at + 2) << 16;
}

/* A warp's 16 rows, by m16n8k16. */
static void do_wide(const sheaf__emu_wide *o, int warp)
{
    uint32_t a[16][8], b[8][8];
    float c[16][8];
    for (int row = 0; row < 16; row++)
        for (int p = 0; p < 8; p++)
            a[row][p] = pair_of(o->a, warp % 4 * 16 + row, 2 * p);
    for (int first = 0; first < o->n; first += 8) {
        for (int column = 0; column < 8; column++)
            for (int p = 0; p < 8; p++)
                b[p][column] = pair_of(o->b, first + column, 2 * p);
        for (int i = 0; i < 128; i++) {
            const int lane = i / 4;
            c[lane / 4 + i / 2 % 2 * 8][lane % 4 * 2 + i % 2] =
                o->keep ? o->d[lane][first / 2 + i % 4] : 0;
        }
        sheaf__emu_mma_tile(c, (const uint32_t(*)[8])a, (const uint32_t(*)[8])b,
                            self->launch->group, o->f16);
        for (int i = 0; i < 128; i++) {
            const int lane = i / 4;
            o->d[lane][first / 2 + i % 4] = c[lane / 4 + i / 2 % 2 * 8][lane % 4 * 2 + i % 2];
        }
    }
}

/* Those of all groups but the last n. */
static void do_wides(int warp, int n)
{
    sheaf__emu_wide *o = self->wide[warp];
    int left = 0;
    for (int i = 0; i < self->wides[warp].under_way; i++)
        if (o[i].group >= self->wides[warp].group - n)
            o[left++] = o[i];
        else
            do_wide(&o[i], warp);
    self->wides[warp].under_way = left;
}

static void add_wide(int warp, sheaf__emu_act act, const sheaf__emu_meeting *m)
{
    sheaf__emu_wide o = { .n = (int)(m->slot[0] >> 3),
                          .group = self->wides[warp].group,
                          .f16 = act == SHEAF__EMU_WIDE_F16,
                          .keep = m->slot[0] & 1,
                          .a = m->wide[0][0],
                          .b = m->wide[0][1] };
    for (int i = 0; i < 32; i++) {
        if (m->slot[i] != m->slot[0] || m->wide[i][0] != o.a || m->wide[i][1] != o.b)
            sheaf__emu_fail("wgmma: lanes name different operands");
        o.d[i] = (float *)(uintptr_t)m->row[i];
    }
    if (o.a >> 62 != (m->slot[0] >> 1 & 1) || o.b >> 62 != (m->slot[0] >> 2 & 1))
        sheaf__emu_fail("wgmma: an operand does not lie as it says");
    self->wides[warp].issued++;
    if (self->launch->turned) {
        do_wide(&o, warp);
        return;
    }
    if (self->wides[warp].under_way == SHEAF__EMU_WIDE)
        sheaf__emu_fail("wgmma: more under way than the emulation keeps");
    self->wide[warp][self->wides[warp].under_way++] = o;
}

void sheaf__emu_wide_meet(int warp, sheaf__emu_act act, sheaf__emu_meeting *m)
{
    if (act == SHEAF__EMU_WIDE_COMMIT)
        self->wides[warp].group++;
    else if (act == SHEAF__EMU_WIDE_WAIT)
        do_wides(warp, (int)m->slot[0]);
    else if (act != SHEAF__EMU_WIDE_BEGIN)
        add_wide(warp, act, m);
}

void sheaf__emu_wide_issue(float *d, uint64_t a, uint64_t b, int how, sheaf__emu_act act)
{
    sheaf__emu_meeting *m = sheaf__emu_come(act);
    const int lane = sheaf__emu.now % 32;
    m->slot[lane] = (uint64_t)how;
    m->wide[lane][0] = a;
    m->wide[lane][1] = b;
    m->row[lane] = (const char *)d;
    sheaf__emu_meet();
}

void wide_begin(void)
{
    sheaf__emu_come(SHEAF__EMU_WIDE_BEGIN);
    sheaf__emu_meet();
}

void wide_commit(void)
{
    sheaf__emu_come(SHEAF__EMU_WIDE_COMMIT);
    sheaf__emu_meet();
}

void wide_wait(int n)
{
    sheaf__emu_come(SHEAF__EMU_WIDE_WAIT)->slot[sheaf__emu.now % 32] = (uint64_t)n;
    sheaf__emu_meet();
}

const char *sheaf__emu_wide_left(void)
{
    if (self->boxes > 0)
        return "ends while a copy_box() is under way";
    for (int w = 0; w < self->warps; w++) {
        if (self->wides[w].under_way > 0)
            return "ends without a wait for its wgmma";
        const int first = w - w % (self->stride / 32) % 4; /* of the warpgroup */
        if (self->wides[w].issued != self->wides[first].issued)
            return "warps of a warpgroup part at wgmma";
    }
    return NULL;
}
