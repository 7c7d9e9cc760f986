/* probe.cu - whether tensor cores follow the rule, over 1e9 results of each instruction, special
 * values included, and what memory, copies and launches cost.
 *
 * The rule (bench/measured.md, "NVIDIA H100"): each group of L products and the accumulator are
 * aligned to the largest exponent, cut to F fraction bits below it, added exactly, and cut to
 * float32. L = 16, F = 25 on sm_90 and later; 8, 24 on sm_80 to 89. */
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <cuda_runtime.h>

#define CHECK(call)                                                                                \
    do {                                                                                           \
        cudaError_t error_ = (call);                                                               \
        if (error_ != cudaSuccess) {                                                               \
            fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(error_));                        \
            exit(2);                                                                               \
        }                                                                                          \
    } while (0)

enum type { F16, BF16 };

/* One mma.sync of 16 x 8 x 16 by one warp: d += a b. */
template <type T>
__device__ __forceinline__ void mma_16x8x16(float (&d)[4], const uint32_t (&a)[4],
                                            const uint32_t (&b)[2])
{
    if (T == BF16)
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                     "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    else
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                     "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* Milliseconds of one call, over `times` calls after two. */
template <class F> static float milliseconds(F call, int times)
{
    cudaEvent_t begin, end;
    CHECK(cudaEventCreate(&begin));
    CHECK(cudaEventCreate(&end));
    call();
    call();
    CHECK(cudaEventRecord(begin));
    for (int i = 0; i < times; i++)
        call();
    CHECK(cudaEventRecord(end));
    CHECK(cudaEventSynchronize(end));
    float all;
    CHECK(cudaEventElapsedTime(&all, begin, end));
    return all / times;
}

struct part {
    int significand, exponent; /* value = significand * 2^(exponent - fraction bits) */
    int kind;                  /* 0: number, 1: infinite, 2: NaN */
};

template <type T> struct form {
    static constexpr int fraction = T == BF16 ? 7 : 10, exponent = T == BF16 ? 8 : 5,
                         bias = (1 << (exponent - 1)) - 1, top = (1 << exponent) - 1;
};

template <type T> __device__ part split(uint16_t bits)
{
    using f = form<T>;
    const int low = bits & ((1 << f::fraction) - 1), field = bits >> f::fraction & f::top;
    part p = { field ? low | 1 << f::fraction : low, (field ? field : 1) - f::bias,
               field != f::top ? 0
               : low           ? 2
                               : 1 };
    if (bits >> 15)
        p.significand = -p.significand;
    return p;
}

__device__ long long shift(long long v, int by) /* v * 2^by, toward zero */
{
    if (by >= 0)
        return v ? v * (1ll << by) : 0;
    if (by < -62)
        return 0;
    return v < 0 ? -(-v >> -by) : v >> -by;
}

/* One group of L products onto c. */
template <type T>
__device__ uint32_t group(const uint16_t *a, const uint16_t *b, uint32_t c, int F, int L)
{
    const uint32_t low = c & 0x7fffffu, field = c >> 23 & 255;
    const int floor = F == 25 ? -133 : -132;
    bool nan = field == 255 && low, plus = field == 255 && !low && !(c >> 31),
         minus = field == 255 && !low && c >> 31;
    const int significand = (int)(field ? low | 0x800000u : low) * (c >> 31 ? -1 : 1),
              exponent = (int)(field ? field : 1) - 127;
    int top = significand && exponent > floor ? exponent : floor;
    for (int i = 0; i < L; i++) {
        const part x = split<T>(a[i]), y = split<T>(b[i]);
        if (x.kind == 2 || y.kind == 2 ||
            ((x.kind || y.kind) && (!x.significand || !y.significand)))
            nan = true;
        else if (x.kind || y.kind)
            ((x.significand < 0) != (y.significand < 0) ? minus : plus) = true;
        if (x.significand && y.significand)
            top = max(top, x.exponent + y.exponent);
    }
    if (nan || (plus && minus))
        return 0x7fffffffu;
    if (plus || minus)
        return plus ? 0x7f800000u : 0xff800000u;
    long long sum = shift(significand, exponent - 23 - top + F);
    for (int i = 0; i < L; i++) {
        const part x = split<T>(a[i]), y = split<T>(b[i]);
        sum += shift((long long)x.significand * y.significand,
                     x.exponent + y.exponent - 2 * form<T>::fraction - top + F);
    }
    if (!sum)
        return 0;
    const uint32_t sign = sum < 0 ? 0x80000000u : 0;
    const unsigned long long v = sum < 0 ? -sum : sum;
    const int e = 63 - __clzll(v) + top - F; /* 2^e <= |sum| < 2^(e + 1) */
    if (e > 127)
        return sign | 0x7f800000u;
    const int down = max(e, -126) - 23 - (top - F);
    const unsigned long long kept = down > 63 ? 0 : down >= 0 ? v >> down : v << -down;
    if (!kept)
        return 0;
    return sign | (e < -126 ? (uint32_t)kept : (uint32_t)(e + 127) << 23 | (kept & 0x7fffffu));
}

/* ---- drawn operands ---- */

__device__ uint32_t hash(uint64_t x)
{
    x += 0x9e3779b97f4a7c15ull;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return (uint32_t)(x ^ x >> 31);
}

/* how: 0 any bits; near one, 1 close and 2 far; 3 sums near the least normal; 4 near the largest;
 * 5 with zeros; 6 all fraction bits set; 7 with infinities and NaN. */
template <type T> __device__ uint16_t draw(uint64_t at, int how)
{
    using f = form<T>;
    const uint32_t r = hash(at), all = (1u << f::fraction) - 1, sign = r >> 31 << 15;
    uint32_t low = hash(at ^ 0x5555555500000000ull) & all;
    int field = f::bias;
    if (how == 0)
        return (uint16_t)r;
    if (how == 1)
        field += (int)(r % 13) - 6;
    else if (how == 2)
        field += (int)(r % 29) - 14;
    else if (how == 3)
        field = T == BF16 ? f::bias - 68 + (int)(r % 11) : (int)(r % 3);
    else if (how == 4)
        field = f::top - 1 - (int)(r % 6);
    else if (how == 5)
        field = r % 3 ? f::bias + (int)(r % 4) : 0, low = field ? low : 0;
    else if (how == 6)
        low = all;
    else if (r % 400 == 0)
        field = f::top, low = r & 64 ? 1 : 0;
    return (uint16_t)(sign | (uint32_t)max(field, 0) << f::fraction | low);
}

__device__ uint32_t draw_sum(uint64_t at, int how)
{
    const uint32_t r = hash(at ^ 0x7777000000000000ull), s = hash(at ^ 0x4321000000000000ull);
    switch (hash(at ^ 0x1234000000000000ull) % 3) {
    case 0: return 0;
    case 1: return r;
    default:
        return (r & 0x807fffffu) | (how == 3   ? s % 14
                                    : how == 4 ? 240 + s % 15
                                               : 118 + s % 20)
                                       << 23;
    }
}

/* ---- instructions against the rule ---- */

__device__ unsigned long long differing, compared;

/* One wgmma of 64 x 8 x 16 by four warps; operands as matrices of 8 rows of 16 bytes. */
template <type T>
__device__ void wgmma_64x8x16(float (&d)[4], const uint16_t *a, const uint16_t *b, uint16_t *room_a,
                              uint16_t *room_b)
{
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    for (int i = threadIdx.x; i < 1024; i += 128)
        room_a[i / 128 * 128 + i % 16 / 8 * 64 + i / 16 % 8 * 8 + i % 8] = a[i];
    for (int i = threadIdx.x; i < 128; i += 128)
        room_b[i % 16 / 8 * 64 + i / 16 * 8 + i % 8] = b[i];
    const uint64_t strides = (128ull >> 4) << 16 | (256ull >> 4) << 32;
    const uint64_t at_a = strides | (__cvta_generic_to_shared(room_a) & 0x3ffff) >> 4,
                   at_b = strides | (__cvta_generic_to_shared(room_b) & 0x3ffff) >> 4;
    asm volatile("fence.proxy.async;" ::: "memory");
    __syncthreads();
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    if (T == BF16)
        asm volatile("{.reg .pred p; setp.ne.b32 p, %6, 0;"
                     "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 "
                     "{%0,%1,%2,%3}, %4, %5, p, 1, 1, 0, 0;}"
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                     : "l"(at_a), "l"(at_b), "r"(1));
    else
        asm volatile("{.reg .pred p; setp.ne.b32 p, %6, 0;"
                     "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 "
                     "{%0,%1,%2,%3}, %4, %5, p, 1, 1, 0, 0;}"
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                     : "l"(at_a), "l"(at_b), "r"(1));
    asm volatile("wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;" ::: "memory");
#endif
}

template <type T, bool WIDE> __global__ void compare(int how, int tiles, int F, int L)
{
    const int rows = WIDE ? 64 : 16, lane = threadIdx.x % 32, g = lane / 4, q = lane % 4 * 2,
              row = threadIdx.x / 32 * 16 + g;
    __shared__ __align__(128) uint16_t a[1024], b[128], room_a[1024], room_b[128];
    for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        const uint64_t seed = ((uint64_t)how << 40 | (uint64_t)tile) << 16;
        __syncthreads();
        for (int i = threadIdx.x; i < rows * 16; i += blockDim.x)
            a[i] = draw<T>(seed + i, how);
        for (int i = threadIdx.x; i < 128; i += blockDim.x)
            b[i] = draw<T>(seed + 4096 + i, how);
        __syncthreads();
        const int at_row[4] = { row, row, row + 8, row + 8 }, at_column[4] = { q, q + 1, q, q + 1 };
        uint32_t c[4];
        float d[4];
        for (int i = 0; i < 4; i++) {
            c[i] = draw_sum(seed + 8192 + at_row[i] * 8 + at_column[i], how);
            d[i] = __uint_as_float(c[i]);
        }
        if (WIDE)
            wgmma_64x8x16<T>(d, a, b, room_a, room_b);
        else {
            uint32_t of_a[4], of_b[2];
            for (int i = 0; i < 4; i++)
                of_a[i] = *(const uint32_t *)&a[(g + i % 2 * 8) * 16 + q + i / 2 * 8];
            for (int i = 0; i < 2; i++)
                of_b[i] = *(const uint32_t *)&b[g * 16 + q + i * 8];
            mma_16x8x16<T>(d, of_a, of_b);
        }
        for (int i = 0; i < 4; i++) {
            uint32_t want = c[i];
            for (int k = 0; k < 16; k += L)
                want = group<T>(a + at_row[i] * 16 + k, b + at_column[i] * 16 + k, want, F, L);
            if (want != __float_as_uint(d[i]))
                atomicAdd(&differing, 1ull);
        }
        if (threadIdx.x == 0)
            atomicAdd(&compared, (unsigned long long)rows * 8);
    }
}

template <type T, bool WIDE> static bool is_rule(const char *name, int major)
{
    const int tiles = 1000000000 / 8 / (WIDE ? 512 : 128) + 1;
    unsigned long long bad = 0, all = 0;
    CHECK(cudaMemcpyToSymbol(differing, &bad, 8));
    CHECK(cudaMemcpyToSymbol(compared, &all, 8));
    for (int how = 0; how < 8; how++)
        compare<T, WIDE>
            <<<2640, WIDE ? 128 : 32>>>(how, tiles, major >= 9 ? 25 : 24, major >= 9 ? 16 : 8);
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemcpyFromSymbol(&bad, differing, 8));
    CHECK(cudaMemcpyFromSymbol(&all, compared, 8));
    printf("%s: %llu of %llu differ from the rule\n", name, bad, all);
    return bad == 0;
}

/* ---- memory and launches ---- */

__global__ void read_all(const uint4 *p, size_t n, uint32_t *out)
{
    uint32_t s = 0;
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
         i += (size_t)gridDim.x * blockDim.x)
        s ^= p[i].x ^ p[i].y ^ p[i].z ^ p[i].w;
    if (s == 0x12345) /* keeps the loads */
        *out = s;
}

__global__ void nothing()
{
}

static double now()
{
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

static void time_memory()
{
    const size_t n = (size_t)1 << 30;
    void *device, *pinned, *other = malloc(n);
    CHECK(cudaMalloc(&device, 4 * n));
    memset(other, 1, n);
    const float ms = milliseconds(
        [&] { read_all<<<1056, 512>>>((const uint4 *)device, 4 * n / 16, (uint32_t *)device); }, 5);
    printf("reading: %.0f GB/s\n", 4 * n / ms * 1e-6);
    double t = now();
    CHECK(cudaHostRegister(other, n, 0));
    printf("1 GiB pinned in %.0f ms\n", 1e3 * (now() - t));
    CHECK(cudaHostUnregister(other));
    CHECK(cudaHostAlloc(&pinned, n, 0));
    memset(pinned, 1, n);
    const struct {
        const char *name;
        void *to, *from;
        cudaMemcpyKind kind;
    } way[] = { { "up, pinned", device, pinned, cudaMemcpyHostToDevice },
                { "down, pinned", pinned, device, cudaMemcpyDeviceToHost },
                { "up, pageable", device, other, cudaMemcpyHostToDevice } };
    for (auto &w : way) {
        CHECK(cudaMemcpy(w.to, w.from, n, w.kind));
        t = now();
        CHECK(cudaMemcpy(w.to, w.from, n, w.kind));
        printf("copy %s: %.1f GB/s\n", w.name, n / (now() - t) * 1e-9);
    }
    CHECK(cudaFreeHost(pinned));
    CHECK(cudaFree(device));
    free(other);
}

static void time_launches()
{
    const int n = 1000;
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t ready;
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    for (int i = 0; i < n; i++)
        nothing<<<1, 32, 0, stream>>>();
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&ready, graph, 0));
    const float single = milliseconds([] { nothing<<<1, 32>>>(); }, 10000);
    CHECK(cudaGraphLaunch(ready, stream));
    CHECK(cudaStreamSynchronize(stream));
    const double t = now();
    for (int i = 0; i < 10; i++)
        CHECK(cudaGraphLaunch(ready, stream));
    CHECK(cudaStreamSynchronize(stream));
    printf("a launch: %.2f us, %.2f in a graph\n", 1e3 * single, (now() - t) * 1e6 / 10 / n);
}

int main()
{
    cudaDeviceProp p;
    CHECK(cudaGetDeviceProperties(&p, 0));
    printf("%s, sm_%d%d\n", p.name, p.major, p.minor);
    time_memory();
    time_launches();
    bool good = is_rule<BF16, false>("mma.sync bfloat16", p.major);
    good &= is_rule<F16, false>("mma.sync float16", p.major);
    if (p.major == 9) {
        good &= is_rule<BF16, true>("wgmma bfloat16", p.major);
        good &= is_rule<F16, true>("wgmma float16", p.major);
    }
    return good ? 0 : 1;
}
