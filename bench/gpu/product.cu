/* product.cu - products of bfloat16 by wgmma and the bulk copy engine beside cuBLAS, on sm_90:
 * y [m, n] = x [m, k] w [n, k]^T, in the orders of sums that mma16 may have along k.
 *
 *   one chain  tiles of 128 x 256, two warpgroups of 64 x 256, pairs of blocks share w's tile
 *   blocks     the same in blocks of 4096, which are added ascending in global memory
 *   slices     eight chains, added by the tree: tiles of 128 x 128, two warpgroups of 64 x 128 that
 *              take turns at the tensor cores; two levels of the tree wait in shared memory
 *
 * Every element is compared with a plain chain of mma.sync. */
#include <cublas_v2.h>
#include <cuda_bf16.h>

#include <cstring>
#include <random>
#include <vector>

#include "common.cuh"

enum { STEP = 64, TILE_M = 128, A_BYTES = TILE_M * STEP * 2, BLOCK = 4096, SLICES = 8 };

__device__ __forceinline__ void wgmma(float (&d)[128], uint64_t a, uint64_t b, int keep)
{
    asm volatile(
        "{.reg .pred p; setp.ne.b32 p, %130, 0;"
        "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {"
        "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
        "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"
        "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,"
        "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63,"
        "%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,"
        "%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95,"
        "%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111,"
        "%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"
        "}, %128, %129, p, 1, 1, 0, 0;}"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),
          "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]),
          "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]),
          "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]),
          "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]),
          "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]),
          "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]),
          "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]),
          "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]),
          "+f"(d[63]), "+f"(d[64]), "+f"(d[65]), "+f"(d[66]), "+f"(d[67]), "+f"(d[68]), "+f"(d[69]),
          "+f"(d[70]), "+f"(d[71]), "+f"(d[72]), "+f"(d[73]), "+f"(d[74]), "+f"(d[75]), "+f"(d[76]),
          "+f"(d[77]), "+f"(d[78]), "+f"(d[79]), "+f"(d[80]), "+f"(d[81]), "+f"(d[82]), "+f"(d[83]),
          "+f"(d[84]), "+f"(d[85]), "+f"(d[86]), "+f"(d[87]), "+f"(d[88]), "+f"(d[89]), "+f"(d[90]),
          "+f"(d[91]), "+f"(d[92]), "+f"(d[93]), "+f"(d[94]), "+f"(d[95]), "+f"(d[96]), "+f"(d[97]),
          "+f"(d[98]), "+f"(d[99]), "+f"(d[100]), "+f"(d[101]), "+f"(d[102]), "+f"(d[103]),
          "+f"(d[104]), "+f"(d[105]), "+f"(d[106]), "+f"(d[107]), "+f"(d[108]), "+f"(d[109]),
          "+f"(d[110]), "+f"(d[111]), "+f"(d[112]), "+f"(d[113]), "+f"(d[114]), "+f"(d[115]),
          "+f"(d[116]), "+f"(d[117]), "+f"(d[118]), "+f"(d[119]), "+f"(d[120]), "+f"(d[121]),
          "+f"(d[122]), "+f"(d[123]), "+f"(d[124]), "+f"(d[125]), "+f"(d[126]), "+f"(d[127])
        : "l"(a), "l"(b), "r"(keep));
}

__device__ __forceinline__ void wgmma(float (&d)[64], uint64_t a, uint64_t b, int keep)
{
    asm volatile("{.reg .pred p; setp.ne.b32 p, %66, 0;"
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
                 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
                 "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"
                 "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,"
                 "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
                 "}, %64, %65, p, 1, 1, 0, 0;}"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]),
                   "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]),
                   "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]),
                   "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
                   "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]),
                   "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]),
                   "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]),
                   "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]),
                   "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]),
                   "+f"(d[54]), "+f"(d[55]), "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]),
                   "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
                 : "l"(a), "l"(b), "r"(keep));
}

/* ---- barriers and copies ---- */

#define INLINE __device__ __forceinline__

INLINE uint32_t shared(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

INLINE void barrier_init(uint32_t barrier, int arrivals)
{
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals));
}

INLINE void barrier_wait(uint32_t barrier, int parity)
{
    asm volatile("{.reg .pred p;\n"
                 "AGAIN%=: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
                 "@p bra DONE%=;\n"
                 "bra AGAIN%=;\n"
                 "DONE%=: }" ::"r"(barrier),
                 "r"(parity)
                 : "memory");
}

INLINE void barrier_expect(uint32_t barrier, int bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
                 : "memory");
}

/* At the barrier of another block of the cluster. Without .release.cluster, whose fence of all of
 * the GPU's memory costs a third of the speed: what is handed back was read by wgmma alone. */
INLINE void barrier_arrive(uint32_t barrier, int block)
{
    asm volatile("{.reg .b32 r; mapa.shared::cluster.u32 r, %0, %1;"
                 "mbarrier.arrive.shared::cluster.b64 _, [r];}" ::"r"(barrier),
                 "r"(block)
                 : "memory");
}

INLINE void meet() /* all blocks of the cluster */
{
    asm volatile("barrier.cluster.arrive.release.aligned;"
                 "barrier.cluster.wait.acquire.aligned;" ::
                     : "memory");
}

/* A box of the map at (k, row), also into the other blocks of `mask`. */
INLINE void copy_box(uint32_t to, const CUtensorMap *map, uint32_t barrier, int k, int row,
                     uint16_t mask = 0)
{
    if (mask)
        asm volatile(
            "cp.async.bulk.tensor.2d.shared::cluster.global.tile"
            ".mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%3, %4}], [%2], %5;" ::
                "r"(to),
            "l"(map), "r"(barrier), "r"(k), "r"(row), "h"(mask)
            : "memory");
    else
        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile"
                     ".mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::"r"(to),
                     "l"(map), "r"(barrier), "r"(k), "r"(row)
                     : "memory");
}

/* Of a tile with rows of 128 bytes, swizzled. */
INLINE uint64_t descriptor(uint32_t at)
{
    return (uint64_t)(at & 0x3ffff) >> 4 | 1ull << 16 | (1024ull >> 4) << 32 | 1ull << 62;
}

INLINE void wgmma_begin()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

INLINE void wgmma_commit()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

template <int LEFT, int N> INLINE void wgmma_wait(float (&d)[N])
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
    if (LEFT == 0) {
#pragma unroll
        for (int e = 0; e < N; e++)
            asm volatile("" : "+f"(d[e])::"memory");
    }
}

/* A ring of STAGES tiles of x and w; FULL and EMPTY barriers follow each other. */
template <int STAGES, int B_BYTES> struct ring {
    uint32_t base, barriers;
    int stage, phase;
    INLINE uint32_t full() { return barriers + stage * 8; }
    INLINE uint32_t empty(int of) { return barriers + (STAGES + of) * 8; }
    INLINE uint32_t a() { return base + stage * A_BYTES; }
    INLINE uint32_t b() { return base + STAGES * A_BYTES + stage * B_BYTES; }
    INLINE void next()
    {
        if (++stage == STAGES)
            stage = 0, phase ^= 1;
    }
    INLINE void init(const void *room, int arrivals)
    {
        base = (shared(room) + 1023) & ~1023u;
        barriers = base + STAGES * (A_BYTES + B_BYTES);
        stage = phase = 0;
        if (threadIdx.x == 0) {
            for (int s = 0; s < STAGES; s++) {
                barrier_init(barriers + s * 8, 1);
                barrier_init(empty(s), arrivals);
            }
            asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        }
        meet();
    }
};

/* Tile `t` of rows x columns of tiles, in bands of 8 rows, so that what runs at once shares
 * operands. */
INLINE void place_of(int t, int rows, int columns, int &row, int &column)
{
    const int first = t / (8 * columns) * 8, height = min(8, rows - first), in = t % (8 * columns);
    row = first + in % height;
    column = in / height;
}

INLINE uint32_t rank_in_cluster()
{
    uint32_t rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

INLINE void store(float *y, float a, float b)
{
    *(float2 *)y = make_float2(a, b);
}

INLINE void store(__nv_bfloat16 *y, float a, float b)
{
    *(__nv_bfloat162 *)y = __floats2bfloat162_rn(a, b);
}

/* A warpgroup's results into y; N of them a thread. */
template <typename OUT, int N>
INLINE void store_all(OUT *y, const float (&d)[N], int row, int column, int m, int n)
{
#pragma unroll
    for (int e = 0; e < N; e += 2) {
        const int r = row + e / 2 % 2 * 8, c = column + e / 4 * 8;
        if (r < m && c < n)
            store(&y[(size_t)r * n + c], d[e], d[e + 1]);
    }
}

/* ---- one chain, or blocks ---- */

enum { CHAIN_N = 256, CHAIN_STAGES = 4, CHAIN_B = CHAIN_N * STEP * 2 };
enum { CHAIN_ROOM = CHAIN_STAGES * (A_BYTES + CHAIN_B) + 1024 + 256 };

/* The end of a block: the first one is stored, each later one added. */
INLINE void add_block(float *sums, const float (&d)[128], bool first, int row, int column, int m,
                      int n)
{
    float *p = &sums[(size_t)row * n + column];
    asm volatile("" : "+l"(p)); /* else its addresses are kept in registers all the time */
#pragma unroll
    for (int e = 0; e < 128; e += 2) {
        float2 *to = (float2 *)(p + e / 2 % 2 * 8 * (size_t)n + e / 4 * 8);
        if (row + e / 2 % 2 * 8 >= m || column + e / 4 * 8 >= n)
            continue;
        if (first)
            *to = make_float2(d[e], d[e + 1]);
        else
            atomicAdd(to, make_float2(d[e], d[e + 1]));
    }
}

template <typename OUT, bool BLOCKS>
__global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(384, 1)
    chain_product(const __grid_constant__ CUtensorMap x, const __grid_constant__ CUtensorMap w,
                  OUT *y, float *sums, int m, int n, int k)
{
    extern __shared__ unsigned char room[];
    const int group = threadIdx.x / 128, rank = rank_in_cluster(), steps = (k + STEP - 1) / STEP,
              rows = (m + 2 * TILE_M - 1) / (2 * TILE_M), columns = (n + CHAIN_N - 1) / CHAIN_N;
    ring<CHAIN_STAGES, CHAIN_B> ring;
    ring.init(room, 4);
    int i, j;
    if (group == 0) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        for (int t = blockIdx.x / 2; threadIdx.x == 0 && t < rows * columns; t += gridDim.x / 2) {
            place_of(t, rows, columns, i, j);
            for (int q = 0; q < steps; q++, ring.next()) {
                barrier_wait(ring.empty(ring.stage), ring.phase ^ 1);
                barrier_expect(ring.full(), A_BYTES + CHAIN_B);
                copy_box(ring.a(), &x, ring.full(), q * STEP, (i * 2 + rank) * TILE_M);
                copy_box(ring.b() + rank * (CHAIN_B / 2), &w, ring.full(), q * STEP,
                         j * CHAIN_N + rank * (CHAIN_N / 2), 3);
            }
        }
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        const int me = group - 1, tid = threadIdx.x % 128;
        float d[128];
        for (int t = blockIdx.x / 2; t < rows * columns; t += gridDim.x / 2) {
            place_of(t, rows, columns, i, j);
            const int row = (i * 2 + rank) * TILE_M + me * 64 + tid / 32 * 16 + tid % 32 / 4,
                      column = j * CHAIN_N + tid % 4 * 2;
            int before = -1;
            for (int q = 0; q < steps; q++, ring.next()) {
                const bool first = BLOCKS ? q % (BLOCK / STEP) == 0 : q == 0;
                if (BLOCKS && first && q) {
                    wgmma_wait<0>(d);
                    add_block(sums, d, q == BLOCK / STEP, row, column, m, n);
                }
                barrier_wait(ring.full(), ring.phase);
                wgmma_begin();
                const uint64_t a = descriptor(ring.a() + me * (A_BYTES / 2)),
                               b = descriptor(ring.b());
#pragma unroll
                for (int e = 0; e < 4; e++)
                    wgmma(d, a + e * 2, b + e * 2, e || !first);
                wgmma_commit();
                if (before >= 0) {
                    wgmma_wait<1>(d);
                    if (tid < 2)
                        barrier_arrive(ring.empty(before), tid);
                }
                before = ring.stage;
            }
            wgmma_wait<0>(d);
            if (tid < 2)
                barrier_arrive(ring.empty(before), tid);
            if (BLOCKS && steps > BLOCK / STEP) {
#pragma unroll
                for (int e = 0; e < 128; e++) {
                    const int r = row + e / 2 % 2 * 8, c = column + e / 4 * 8 + e % 2;
                    if (r < m && c < n)
                        d[e] = __fadd_rn(sums[(size_t)r * n + c], d[e]);
                }
            }
            store_all(y, d, row, column, m, n);
        }
    }
    __syncwarp();
    meet();
}

/* ---- slices ---- */

enum { SLICE_N = 128, SLICE_B = SLICE_N * STEP * 2, LEVEL = 64 * 128 };

template <int STAGES, bool TREE> struct slice_room {
    enum { bytes = STAGES * (A_BYTES + SLICE_B) + (TREE ? 4 * LEVEL * 4 : 0) + 1024 + 256 };
};

/* d = one chain over `steps` of the ring; emptied stages go to blocks `to` of the first 3 threads.
 */
template <class RING>
INLINE void run_chain(float (&d)[64], RING &ring, int steps, int me, int tid, int to)
{
    int before = -1;
    for (int q = 0; q < steps; q++, ring.next()) {
        barrier_wait(ring.full(), ring.phase);
        wgmma_begin();
        const uint64_t a = descriptor(ring.a() + me * (A_BYTES / 2)), b = descriptor(ring.b());
#pragma unroll
        for (int e = 0; e < 4; e++)
            wgmma(d, a + e * 2, b + e * 2, e || q);
        wgmma_commit();
        if (before >= 0) {
            wgmma_wait<1>(d);
            if (tid < 3)
                barrier_arrive(ring.empty(before), to);
        }
        before = ring.stage;
    }
    wgmma_wait<0>(d);
    if (tid < 3)
        barrier_arrive(ring.empty(before), to);
}

INLINE void add_to(float (&a)[64], const float (&b)[64])
{
#pragma unroll
    for (int e = 0; e < 64; e++)
        a[e] = __fadd_rn(a[e], b[e]);
}

INLINE void keep(float *level, const float (&a)[64])
{
#pragma unroll
    for (int e = 0; e < 64; e++)
        level[e * 128] = a[e];
}

INLINE void add_kept(float (&a)[64], const float *level)
{
#pragma unroll
    for (int e = 0; e < 64; e++)
        a[e] = __fadd_rn(level[e * 128], a[e]);
}

template <typename OUT, int STAGES, bool TREE>
__global__ void __cluster_dims__(4, 1, 1) __launch_bounds__(384, 1)
    slice_product(const __grid_constant__ CUtensorMap x, const __grid_constant__ CUtensorMap w,
                  OUT *y, int m, int n, int k)
{
    extern __shared__ unsigned char room[];
    const int group = threadIdx.x / 128, steps = k / STEP, rank = rank_in_cluster(),
              down = rank / 2, right = rank % 2, rows = (m + 2 * TILE_M - 1) / (2 * TILE_M),
              columns = (n + 2 * SLICE_N - 1) / (2 * SLICE_N);
    ring<STAGES, SLICE_B> ring;
    ring.init(room,
              6); /* two warpgroups of each block that reads what one block loads, or shares it */
    int i, j;
    if (group == 0) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        for (int t = blockIdx.x / 4; threadIdx.x == 0 && t < rows * columns; t += gridDim.x / 4) {
            place_of(t, rows, columns, i, j);
            for (int q = 0; q < steps; q++, ring.next()) {
                barrier_wait(ring.empty(ring.stage), ring.phase ^ 1);
                barrier_expect(ring.full(), A_BYTES + SLICE_B);
                copy_box(ring.a() + right * (A_BYTES / 2), &x, ring.full(), q * STEP,
                         (i * 2 + down) * TILE_M + right * 64, (uint16_t)(3 << 2 * down));
                copy_box(ring.b() + down * (SLICE_B / 2), &w, ring.full(), q * STEP,
                         (j * 2 + right) * SLICE_N + down * 64, (uint16_t)(5 << right));
            }
        }
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        const int me = group - 1, tid = threadIdx.x % 128, length = TREE ? steps / SLICES : steps,
                  to = tid < 2 ? rank ^ tid : rank ^ 2;
        float *level =
            (float *)(room + (ring.barriers + 256 - shared(room))) + me * 2 * LEVEL + tid;
        for (int t = blockIdx.x / 4; t < rows * columns; t += gridDim.x / 4) {
            float a[64];
            if (TREE) {
                float b[64];
                auto pair = [&] {
                    run_chain(a, ring, length, me, tid, to);
                    run_chain(b, ring, length, me, tid, to);
                    add_to(a, b);
                };
                pair();
                keep(level, a);
                pair();
                add_kept(a, level);
                keep(level, a);
                pair();
                keep(level + LEVEL, a);
                pair();
                add_kept(a, level + LEVEL);
                add_kept(a, level);
            } else
                run_chain(a, ring, length, me, tid, to);
            place_of(t, rows, columns, i, j);
            store_all(y, a, (i * 2 + down) * TILE_M + me * 64 + tid / 32 * 16 + tid % 32 / 4,
                      (j * 2 + right) * SLICE_N + tid % 4 * 2, m, n);
        }
    }
    __syncwarp();
    meet();
}

/* ---- launching ---- */

static decltype(&cuTensorMapEncodeTiled) encode;

static CUtensorMap map_of(const uint16_t *p, int rows, int k, int box_rows)
{
    CUtensorMap map;
    const cuuint64_t size[2] = { (cuuint64_t)k, (cuuint64_t)rows },
                     stride[1] = { (cuuint64_t)k * 2 };
    const cuuint32_t box[2] = { STEP, (cuuint32_t)box_rows }, one[2] = { 1, 1 };
    if (encode(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, (void *)p, size, stride, box, one,
               CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
               CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE)) {
        fprintf(stderr, "no map for rows of %d elements: a multiple of 8 is needed\n", k);
        exit(2);
    }
    return map;
}

/* Blocks that run at once in clusters of `cluster`; the kernel may then use `room` bytes. */
template <class KERNEL> static int blocks_of(KERNEL *kernel, int cluster, int room)
{
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim = { (unsigned)cluster, 1, 1 };
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(132);
    config.blockDim = dim3(384);
    config.dynamicSmemBytes = room;
    config.attrs = &attribute;
    config.numAttrs = 1;
    int clusters = 0;
    CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, room));
    CHECK(cudaOccupancyMaxActiveClusters(&clusters, kernel, &config));
    return clusters * cluster;
}

struct operands {
    int m, n, k;
    uint16_t *x, *w;
    float *y, *want, *sums;
};

template <typename OUT, bool BLOCKS> static void launch_chain(const operands &o)
{
    static const int blocks = blocks_of(chain_product<OUT, BLOCKS>, 2, CHAIN_ROOM);
    chain_product<OUT, BLOCKS><<<blocks, 384, CHAIN_ROOM>>>(map_of(o.x, o.m, o.k, TILE_M),
                                                            map_of(o.w, o.n, o.k, CHAIN_N / 2),
                                                            (OUT *)o.y, o.sums, o.m, o.n, o.k);
    CHECK(cudaGetLastError());
}

template <typename OUT, int STAGES, bool TREE> static void launch_slices(const operands &o)
{
    const int room = slice_room<STAGES, TREE>::bytes;
    static const int blocks = blocks_of(slice_product<OUT, STAGES, TREE>, 4, room);
    slice_product<OUT, STAGES, TREE><<<blocks, 384, room>>>(
        map_of(o.x, o.m, o.k, 64), map_of(o.w, o.n, o.k, 64), (OUT *)o.y, o.m, o.n, o.k);
    CHECK(cudaGetLastError());
}

/* ---- what is to come out ---- */

/* to (+)= the chain over k from `begin` to `end`: one warp for 16 x 8 results. */
__global__ void plain(const uint16_t *x, const uint16_t *w, float *to, int m, int n, int k,
                      int begin, int end, bool first)
{
    const int lane = threadIdx.x, g = lane / 4, q = lane % 4 * 2, row = blockIdx.y * 16,
              column = blockIdx.x * 8;
    float d[4] = { 0, 0, 0, 0 };
    auto two = [&](const uint16_t *p, int r, int rows, int at) {
        uint32_t v = r < rows && at < end ? p[(size_t)r * k + at] : 0;
        return v | (r < rows && at + 1 < end ? (uint32_t)p[(size_t)r * k + at + 1] << 16 : 0);
    };
    for (int at = begin; at < end; at += 16) {
        const uint32_t a[4] = { two(x, row + g, m, at + q), two(x, row + g + 8, m, at + q),
                                two(x, row + g, m, at + q + 8),
                                two(x, row + g + 8, m, at + q + 8) },
                       b[2] = { two(w, column + g, n, at + q), two(w, column + g, n, at + q + 8) };
        mma_16x8x16<BF16>(d, a, b);
    }
    for (int e = 0; e < 4; e++) {
        const int r = row + g + e / 2 * 8, c = column + q + e % 2;
        if (r < m && c < n)
            to[(size_t)r * n + c] = first ? d[e] : __fadd_rn(to[(size_t)r * n + c], d[e]);
    }
}

__global__ void add_arrays(float *a, const float *b, size_t n)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
         i += (size_t)gridDim.x * blockDim.x)
        a[i] = __fadd_rn(a[i], b[i]);
}

__global__ void count_differing(const float *a, const float *b, size_t n, unsigned long long *bad)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
         i += (size_t)gridDim.x * blockDim.x)
        if (__float_as_uint(a[i]) != __float_as_uint(b[i]))
            atomicAdd(bad, 1ull);
}

static void want_part(const operands &o, float *to, int begin, int end, bool first)
{
    plain<<<dim3((o.n + 7) / 8, (o.m + 15) / 16), 32>>>(o.x, o.w, to, o.m, o.n, o.k, begin, end,
                                                        first);
}

/* The tree's sum of slices begin to end, into `level`, which has room for its depth. */
static void want_tree(const operands &o, float *level, int begin, int end)
{
    const size_t size = (size_t)o.m * o.n;
    if (end - begin == 1)
        return want_part(o, level, o.k / SLICES * begin, o.k / SLICES * end, true);
    want_tree(o, level, begin, (begin + end) / 2);
    want_tree(o, level + size, (begin + end) / 2, end);
    add_arrays<<<1056, 256>>>(level, level + size, size);
}

template <class F>
static unsigned long long differing(const operands &o, const float *want, F launch)
{
    static unsigned long long *device, bad;
    const size_t size = (size_t)o.m * o.n;
    if (!device)
        CHECK(cudaMalloc(&device, sizeof bad));
    CHECK(cudaMemset(device, 0, sizeof bad));
    CHECK(cudaMemset(o.y, 255, size * 4));
    launch(o);
    count_differing<<<1056, 256>>>(o.y, want, size, device);
    CHECK(cudaMemcpy(&bad, device, sizeof bad, cudaMemcpyDeviceToHost));
    return bad;
}

/* ---- shapes ---- */

static uint16_t *random_rows(size_t count)
{
    static std::mt19937_64 random(7);
    std::normal_distribution<float> normal;
    std::vector<uint16_t> v((size_t)1 << 20);
    uint16_t *device;
    for (auto &e : v) {
        const float f = normal(random);
        uint32_t u;
        memcpy(&u, &f, 4);
        e = (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
    }
    CHECK(cudaMalloc(&device, count * 2));
    for (size_t i = 0; i < count; i += v.size())
        CHECK(cudaMemcpy(device + i, v.data(), std::min(v.size(), count - i) * 2,
                         cudaMemcpyHostToDevice));
    return device;
}

static bool row(const operands &o, float cublas, const char *name, unsigned long long bad, float ms)
{
    printf("    %-24s %4.0f TFLOP/s, %3.0f %% of cuBLAS; %llu differ\n", name,
           2e-9 * o.m * o.n * o.k / ms, 100 * cublas / ms, bad);
    fflush(stdout);
    return bad == 0;
}

template <class F, class G>
static bool measure(const operands &o, float cublas, const char *name, const float *want, F exact,
                    G fast)
{
    const unsigned long long bad = differing(o, want, exact);
    return row(o, cublas, name, bad, milliseconds([&] { fast(o); }, 20));
}

static bool try_shape(cublasHandle_t handle, int m, int n, int k)
{
    const size_t size = (size_t)m * n;
    operands o = { m, n, k, random_rows((size_t)m * k), random_rows((size_t)n * k) };
    CHECK(cudaMalloc(&o.y, size * 4));
    CHECK(cudaMalloc(&o.want, size * 4 * 4));
    CHECK(cudaMalloc(&o.sums, size * 4));
    const float one = 1, zero = 0;
    const float cublas = milliseconds(
        [&] {
            cublasGemmEx(handle, CUBLAS_OP_T, CUBLAS_OP_N, n, m, k, &one, o.w, CUDA_R_16BF, k, o.x,
                         CUDA_R_16BF, k, &zero, o.y, CUDA_R_16BF, n, CUBLAS_COMPUTE_32F,
                         CUBLAS_GEMM_DEFAULT);
        },
        20);
    printf("%d x %d x %d: cuBLAS %.0f TFLOP/s\n", m, n, k, 2e-9 * m * n * k / cublas);
    using bf16 = __nv_bfloat16;
    want_part(o, o.want, 0, k, true);
    bool good = measure(o, cublas, "one chain", o.want, launch_chain<float, false>,
                        launch_chain<bf16, false>);
    good &= measure(o, cublas, "one chain, 6 stages", o.want, launch_slices<float, 6, false>,
                    launch_slices<bf16, 6, false>);
    good &= measure(o, cublas, "one chain, 3 stages", o.want, launch_slices<float, 3, false>,
                    launch_slices<bf16, 3, false>);
    for (int at = 0; at < k; at += BLOCK)
        want_part(o, o.want, at, std::min(k, at + BLOCK), at == 0);
    good &= measure(o, cublas, "blocks of 4096", o.want, launch_chain<float, true>,
                    launch_chain<bf16, true>);
    want_tree(o, o.want, 0, SLICES);
    good &= measure(o, cublas, "8 slices, 3 stages", o.want, launch_slices<float, 3, true>,
                    launch_slices<bf16, 3, true>);
    for (void *p : { (void *)o.x, (void *)o.w, (void *)o.y, (void *)o.want, (void *)o.sums })
        CHECK(cudaFree(p));
    return good;
}

int main()
{
    cudaDriverEntryPointQueryResult found;
    cublasHandle_t handle;
    CHECK(cudaFree(0));
    CHECK(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", (void **)&encode, 12000,
                                           cudaEnableDefault, &found));
    cublasCreate(&handle);
    bool good = true;
    for (auto &s : { dim3(4096, 4096, 4096), dim3(4096, 14336, 4096), dim3(4096, 4096, 14336),
                     dim3(2048, 6144, 4096), dim3(200, 136, 1024) })
        good &= try_shape(handle, (int)s.x, (int)s.y, (int)s.z);
    return good ? 0 : 1;
}
