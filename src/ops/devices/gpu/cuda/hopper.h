/* hopper.h - more names for kernels, of sm_90a alone: mbarriers, the bulk copy engine, products of
 * warpgroups (wgmma), clusters of blocks. A file that includes it is compiled for sm_90a only.
 *
 *     KERNEL_OF_CLUSTERS(name, arguments, threads, blocks) { ... }    blocks: of a cluster
 *
 * Shared memory begins at a multiple of 1024. */
#pragma once

#include "ops/devices/gpu/kernel.h"
#include "ops/devices/gpu/cuda/tensor_map.h"

/* Rows of operands in shared memory are 64 numbers of 16 bits, 128 bytes: tiles of such rows begin
 * at a multiple of 1024, and their 16 bytes lie as the copy engine's swizzle of 128 bytes has them.
 */
#define WIDE_ROW 64
#define WIDE_BOX (64 * WIDE_ROW * 2) /* bytes of 64 rows */

#define KERNEL_OF_CLUSTERS(name, arguments, threads, blocks)                                       \
    DEVICE void name##_of(const arguments *a);                                                     \
    extern "C" __global__ void __cluster_dims__(blocks, 1, 1) __launch_bounds__(threads, 1)        \
        name(const __grid_constant__ arguments a)                                                  \
    {                                                                                              \
        name##_of(&a);                                                                             \
    }                                                                                              \
    DEVICE void name##_of(const arguments *a)

/* ---- clusters ---- */

/* The block's place in its cluster. */
DEVICE int cluster_rank(void)
{
    int rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}
/* All threads of all blocks of the cluster. */
DEVICE void sync_cluster(void)
{
    asm volatile("barrier.cluster.arrive.release.aligned;"
                 "barrier.cluster.wait.acquire.aligned;" ::
                     : "memory");
}
/* A warpgroup gives registers away, or takes them: a multiple of 8. */
#define registers_fewer(n) asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(n))
#define registers_more(n) asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(n))

/* ---- mbarriers: 8 bytes of shared memory, phases 0, 1, 0, ... ---- */

/* A phase is over when `arrivals` have come, and the bytes that they expect. Before others use
 * them: mbarriers_made() by the thread that made them, then a barrier of all. */
DEVICE void mbarrier_init(uint64_t *barrier, int arrivals)
{
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals)
                 : "memory");
}
DEVICE void mbarriers_made(void)
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
/* Until the phase of this parity is over; one that never began is, for parity 1. */
DEVICE void mbarrier_wait(uint64_t *barrier, int parity)
{
    asm volatile("{.reg .pred p;\n"
                 "AGAIN%=: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
                 "@p bra DONE%=;\n"
                 "bra AGAIN%=;\n"
                 "DONE%=: }" ::"r"(shared_address(barrier)),
                 "r"(parity)
                 : "memory");
}
/* Arrives, and `bytes` are to come by copy_box() before the phase is over. */
DEVICE void mbarrier_expect(uint64_t *barrier, int bytes)
{
    asm volatile(
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
        "r"(bytes)
        : "memory");
}
/* Arrives at the barrier of this place in the shared memory of block `rank` of the cluster. What is
 * handed back so was read by wgmma alone: it has no .release, whose fence costs a third of the
 * speed. */
DEVICE void mbarrier_arrive(uint64_t *barrier, int rank)
{
    asm volatile("{.reg .b32 r; mapa.shared::cluster.u32 r, %0, %1;"
                 "mbarrier.arrive.shared::cluster.b64 _, [r];}" ::"r"(shared_address(barrier)),
                 "r"(rank)
                 : "memory");
}

/* ---- the copy engine ---- */

/* A box of the map (tensor_map.h) from this column and row on, to a multiple of 1024; zeros where
 * the matrix has nothing. `blocks`: a bit for each block of the cluster, in each of which it comes
 * to this place, and counts at the barrier of that place; 0: to the own one. */
DEVICE void copy_box(void *to, const sheaf__tensor_map *map, uint64_t *barrier, int column, int row,
                     uint16_t blocks)
{
    if (blocks != 0)
        asm volatile(
            "cp.async.bulk.tensor.2d.shared::cluster.global.tile"
            ".mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%3, %4}], [%2], %5;" ::
                "r"(shared_address(to)),
            "l"(map), "r"(shared_address(barrier)), "r"(column), "r"(row), "h"(blocks)
            : "memory");
    else
        asm volatile(
            "cp.async.bulk.tensor.2d.shared::cluster.global.tile"
            ".mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::"r"(shared_address(to)),
            "l"(map), "r"(shared_address(barrier)), "r"(column), "r"(row)
            : "memory");
}
/* A map in global memory that was written from elsewhere, before this thread's first copy_box() by
 * it. */
DEVICE void map_seen(const sheaf__tensor_map *map)
{
    asm volatile("fence.proxy.tensormap::generic.acquire.sys [%0], 128;" ::"l"(map) : "memory");
}

/* ---- products of a warpgroup: m64nNk16, d (+)= a b^T ---- */

/* Rows of a tile from `at` on, which is a multiple of 1024; k from `column` on, a multiple of 16.
 */
DEVICE uint64_t wide_operand(const void *at, int column)
{
    const uint32_t from = shared_address(at) + (uint32_t)column * 2;
    return (uint64_t)(from & 0x3ffff) >> 4 | 1ull << 16 | (1024ull >> 4) << 32 | 1ull << 62;
}
/* The same of an operand that lies as [k, rows]: tiles of 64 rows for 64 k, each a box of 64 x 64,
 * one behind the other; `at`: the first one. */
DEVICE uint64_t wide_across(const void *at, int k)
{
    const uint32_t from = shared_address(at) + (uint32_t)k * (WIDE_ROW * 2);
    return (uint64_t)(from & 0x3ffff) >> 4 | (uint64_t)(WIDE_BOX >> 4) << 16 |
           (1024ull >> 4) << 32 | 1ull << 62;
}
DEVICE void wide_begin(void)
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
DEVICE void wide_commit(void)
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/* Until at most n groups of products are under way; the sums may be read when none is. */
#define wide_wait(n) asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(n) : "memory")
/* After it: the compiler reads no sum before. */
DEVICE void wide_sums(float *d, int n)
{
    UNROLL
    for (int i = 0; i < n; i++)
        asm volatile("" : "+f"(d[i])::"memory");
}

/* wide_bf16_256(d, a, b, keep, a_across, b_across): all four warps of a warpgroup; a has 64 rows, b
 * 256; across (a constant): it is one of wide_across(). Sum d[4 i + 2 h + e] of a thread is that of
 * row 16 warp + lane / 4 + 8 h and of column 8 i + lane % 4 * 2 + e. keep: 0 starts from +0. */
#define SUMS_4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define SUMS_16(i) SUMS_4(i), SUMS_4(i + 4), SUMS_4(i + 8), SUMS_4(i + 12)
#define SUMS_64(i) SUMS_16(i), SUMS_16(i + 16), SUMS_16(i + 32), SUMS_16(i + 48)
#define NAMES_64                                                                                   \
    "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"                                       \
    "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"                             \
    "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,"                             \
    "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define NAMES_128                                                                                  \
    "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"                                       \
    "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"                             \
    "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,"                             \
    "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63,"                             \
    "%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,"                             \
    "%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95,"                             \
    "%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111,"                 \
    "%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"
#define WIDE_256(type, across)                                                                     \
    asm volatile("{.reg .pred p; setp.ne.b32 p, %130, 0;"                                          \
                 "wgmma.mma_async.sync.aligned.m64n256k16.f32." type "." type " {" NAMES_128       \
                 "}, %128, %129, p, 1, 1, " across ";}"                                            \
                 : SUMS_64(0), SUMS_64(64)                                                         \
                 : "l"(a), "l"(b), "r"(keep))
#define WIDE_128(type, across)                                                                     \
    asm volatile("{.reg .pred p; setp.ne.b32 p, %66, 0;"                                           \
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32." type "." type " {" NAMES_64        \
                 "}, %64, %65, p, 1, 1, " across ";}"                                              \
                 : SUMS_64(0)                                                                      \
                 : "l"(a), "l"(b), "r"(keep))
#define WIDE(name, one, type)                                                                      \
    DEVICE void name(float *d, uint64_t a, uint64_t b, int keep, bool a_across, bool b_across)     \
    {                                                                                              \
        if (a_across && b_across)                                                                  \
            one(type, "1, 1");                                                                     \
        else if (a_across)                                                                         \
            one(type, "1, 0");                                                                     \
        else if (b_across)                                                                         \
            one(type, "0, 1");                                                                     \
        else                                                                                       \
            one(type, "0, 0");                                                                     \
    }
WIDE(wide_bf16_256, WIDE_256, "bf16")
WIDE(wide_f16_256, WIDE_256, "f16")
WIDE(wide_bf16_128, WIDE_128, "bf16")
WIDE(wide_f16_128, WIDE_128, "f16")
