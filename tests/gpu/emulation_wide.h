/* emulation_wide.h - the names of ops/devices/gpu/cuda/hopper.h on the processor; see there for
 * what it does not see. */
#pragma once

#include "ops/devices/gpu/cuda/tensor_map.h"
#include "tests/gpu/emulation.h"

/* sheaf__emu_tensor_map - what the driver makes, for the emulation; false: it would not. stride: in
 * bytes. */
bool sheaf__emu_tensor_map(sheaf__tensor_map *map, const void *base, int64_t rows, int64_t columns,
                           int64_t stride, int box_rows);

#define KERNEL_OF_CLUSTERS SHEAF__EMU_KERNEL

int cluster_rank(void);
void sync_cluster(void);
#define registers_fewer(n) ((void)(n))
#define registers_more(n) ((void)(n))

void mbarrier_init(uint64_t *barrier, int arrivals);
void mbarrier_wait(uint64_t *barrier, int parity);
void mbarrier_expect(uint64_t *barrier, int bytes);
void mbarrier_arrive(uint64_t *barrier, int rank);
static inline void mbarriers_made(void)
{
}

void copy_box(void *to, const sheaf__tensor_map *map, uint64_t *barrier, int column, int row,
              uint16_t blocks);
static inline void stores_seen(void)
{
}
static inline void map_seen(const sheaf__tensor_map *map)
{
}

uint64_t wide_operand(const void *at, int column);
uint64_t wide_across(const void *at, int k);
void wide_begin(void);
void wide_commit(void);
void wide_wait(int n);
static inline void wide_sums(float *d, int n)
{
}
void sheaf__emu_wide_issue(float *d, uint64_t a, uint64_t b, int how, sheaf__emu_act act);
#define WIDE(name, n, act)                                                                         \
    static inline void name(float *d, uint64_t a, uint64_t b, int keep, bool a_across,             \
                            bool b_across)                                                         \
    {                                                                                              \
        sheaf__emu_wide_issue(d, a, b, (n) << 3 | b_across << 2 | a_across << 1 | (keep != 0),     \
                              act);                                                                \
    }
WIDE(wide_bf16_256, 256, SHEAF__EMU_WIDE_BF16)
WIDE(wide_f16_256, 256, SHEAF__EMU_WIDE_F16)
WIDE(wide_bf16_128, 128, SHEAF__EMU_WIDE_BF16)
WIDE(wide_f16_128, 128, SHEAF__EMU_WIDE_F16)
