/* emulation.c - see emulation.h. */
#include "ops/devices/cuda/emulation.h"
#include <immintrin.h>
_Thread_local emu_block emu_b;
_Thread_local char *shared_memory;
int emu_groups = 16;
emu_kernel *emu_kernels;
enum { STACK = 32 << 10, PAGE = 4096 };
__asm__(".globl emu_switch\nemu_switch:\n"
    "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
    "mov %rsp,(%rdi)\nmov %rsi,%rsp\n"
    "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\nret\n");
static void entry(void)
{
    emu_block *b = &emu_b;
    b->body(b->args);
    b->fibre[b->now].done = true;
    b->ended++; b->idle = 0;
    if (b->arrived > 0) emu_stuck("ends while others wait at a barrier");
    void *unused;
    for (int i = 1; i <= b->threads; i++) {
        const int next = (b->now + (b->order ? b->threads - i : i)) % b->threads;
        if (!b->fibre[next].done) { b->now = next; emu_switch(&unused, b->fibre[next].sp); }
    }
    emu_switch(&unused, b->main);
    abort();
}
void emu_run(void (*body)(const void *), const void *args, int gx, int gy, int gz, int threads, size_t bytes, int order)
{
    emu_block *b = &emu_b;
    const size_t room = (bytes + PAGE - 1) / PAGE * PAGE;
    enum { MOST = 1024, SHARED = 228 << 10 };
    static _Thread_local char *map, *stack; /* kept: fresh pages cost more than most kernels */
    if (map == NULL) {
        map = (char *)mmap(NULL, SHARED + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        stack = (char *)mmap(NULL, (size_t)MOST * STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        mprotect(map + SHARED, PAGE, PROT_NONE);
    }
    if (bytes > SHARED || threads > MOST) emu_stuck("more shared_memory memory or threads than a block may have");
    (void)room;
    shared_memory = map + (SHARED - bytes) / 128 * 128;
    *b = (emu_block){ .groups = { gx, gy, gz }, .threads = threads, .order = order, .args = args, .body = body };
    b->fibre = (emu_fibre *)calloc(threads, sizeof *b->fibre);
    b->warp = (emu_warp *)calloc((threads + 31) / 32, sizeof *b->warp);
    for (int z = 0; z < gz; z++) for (int y = 0; y < gy; y++) for (int x = 0; x < gx; x++) {
        b->group = (emu_dim){ x, y, z };
        b->arrived = b->ended = b->idle = 0;
        memset(shared_memory, 0xff, bytes);
        for (int i = 0; i < threads; i++) {
            void **top = (void **)(stack + (size_t)(i + 1) * STACK - 64);
            *--top = NULL; *--top = (void *)entry; top -= 6; memset(top, 0, 48);
            b->fibre[i].sp = top; b->fibre[i].done = false; b->fibre[i].copies = b->fibre[i].group = 0;
        }
        b->now = order ? threads - 1 : 0;
        emu_switch(&b->main, b->fibre[b->now].sp);
    }
    free(b->fibre); free(b->warp);
}

/* ---- a tensor core: T-FDPA of MMA-Sim. Products and c are cut toward zero to F bits below the largest exponent, added
 * exactly, and cut toward zero to float32. L 16, F 25 (Hopper, Blackwell); L 8, F 24 (Ampere, Ada). ---- */
static int ex(float x) { const int e = sheaf__bits(x) >> 23 & 255; return e ? e - 127 : -126; }
static int64_t sig(float x) { const uint32_t b = sheaf__bits(x); const int64_t s = (b & 0x7fffff) | (b & 0x7f800000 ? 0x800000 : 0); return b >> 31 ? -s : s; }
static float slow(const float *p_a, const float *p_b, float c, int L, int F)
{
    double sum = c; bool special = !isfinite(c);
    for (int i = 0; i < L; i++) { special |= !isfinite(p_a[i]) || !isfinite(p_b[i]); }
    if (special) {
        for (int i = 0; i < L; i++) sum += (double)p_a[i] * p_b[i];
        return isnan(sum) ? sheaf__float(0x7fffffff) : (float)sum;
    }
    int64_t s[17]; int e[17], most = -1000;
    const int zero = -F - 108; /* what a product of zero counts as: -132, -133 */
    for (int i = 0; i < L; i++) { s[i] = (sig(p_a[i]) >> 16) * (sig(p_b[i]) >> 16); e[i] = s[i] ? ex(p_a[i]) + ex(p_b[i]) : zero; }
    s[L] = sig(c); e[L] = s[L] ? ex(c) : zero;
    for (int i = 0; i <= L; i++) most = e[i] > most ? e[i] : most;
    int64_t all = 0;
    for (int i = 0; i <= L; i++) {
        const int up = F - (i < L ? 14 : 23), down = most - e[i];
        const int64_t m = (s[i] < 0 ? -s[i] : s[i]) << up, v = down > 62 ? 0 : m >> down;
        all += s[i] < 0 ? -v : v;
    }
    if (all == 0) return 0;
    const uint64_t u = all < 0 ? -all : all;
    int top = 63 - __builtin_clzll(u), cut = top - 23;
    const int low = -149 - (most - F); /* nothing below 2^-149 */
    cut = cut > low ? cut : low;
    const uint64_t kept = cut <= 0 ? u : cut > 63 ? 0 : u >> cut << cut;
    const double r = ldexp((double)kept, most - F);
    return kept == 0 ? 0 : (float)(all < 0 ? -r : r);
}
float emu_tensor_ref(const float *a, const float *b, float c, int k, int L)
{
    const unsigned mode = _mm_getcsr();
    _mm_setcsr(mode & ~0x8040u); /* a tensor core keeps denormals */
    for (int i = 0; i < k; i += L) c = slow(a + i, b + i, c, L, L == 16 ? 25 : 24);
    _mm_setcsr(mode);
    return c;
}

/* 8 columns at once, where all is finite and no result is small */
__attribute__((target("avx2,fma")))
static __m256 fast(const int32_t *sa, const int32_t *ea, const int32_t (*sb)[8], const int32_t (*eb)[8], __m256 c, int L, int F)
{
    const __m256i cb = _mm256_castps_si256(c), zero = _mm256_setzero_si256();
    const __m256i cexp = _mm256_and_si256(_mm256_srli_epi32(cb, 23), _mm256_set1_epi32(255));
    const __m256i nil = _mm256_cmpeq_epi32(_mm256_slli_epi32(cb, 1), zero);
    const __m256i csig = _mm256_or_si256(_mm256_and_si256(cb, _mm256_set1_epi32(0x7fffff)), _mm256_andnot_si256(_mm256_cmpeq_epi32(cexp, zero), _mm256_set1_epi32(0x800000)));
    __m256i ce = _mm256_sub_epi32(_mm256_max_epi32(cexp, _mm256_set1_epi32(1)), _mm256_set1_epi32(127));
    ce = _mm256_blendv_epi8(ce, _mm256_set1_epi32(-F - 108), nil);
    __m256i most = ce, p[16], e[16];
    for (int i = 0; i < L; i++) {
        p[i] = _mm256_mullo_epi32(_mm256_set1_epi32(sa[i]), _mm256_loadu_si256((const __m256i *)sb[i]));
        e[i] = _mm256_add_epi32(_mm256_set1_epi32(ea[i]), _mm256_loadu_si256((const __m256i *)eb[i]));
        e[i] = _mm256_blendv_epi8(e[i], _mm256_set1_epi32(-F - 108), _mm256_cmpeq_epi32(p[i], zero));
        most = _mm256_max_epi32(most, e[i]);
    }
    const __m256i cm = _mm256_srlv_epi32(_mm256_slli_epi32(csig, F - 23), _mm256_sub_epi32(most, ce));
    __m256i sum[2] = { _mm256_sign_epi32(cm, _mm256_or_si256(cb, _mm256_set1_epi32(1))), zero };
    for (int i = 0; i < L; i++) {
        const __m256i m = _mm256_srlv_epi32(_mm256_slli_epi32(_mm256_abs_epi32(p[i]), F - 14), _mm256_sub_epi32(most, e[i]));
        sum[i / 8] = _mm256_add_epi32(sum[i / 8], _mm256_sign_epi32(m, p[i]));
    }
    float out[8]; int32_t lo[8], hi[8], em[8];
    _mm256_storeu_si256((__m256i *)lo, sum[0]); _mm256_storeu_si256((__m256i *)hi, sum[1]); _mm256_storeu_si256((__m256i *)em, most);
    for (int j = 0; j < 8; j++) { /* exact in double; its lower 29 bits cut; times a power of two */
        const double whole = (double)((int64_t)lo[j] + hi[j]);
        uint64_t bits; memcpy(&bits, &whole, 8); bits &= ~UINT64_C(0x1fffffff);
        if (bits << 1 != 0) bits += (uint64_t)(int64_t)(em[j] - F) << 52;
        double r; memcpy(&r, &bits, 8); out[j] = bits << 1 == 0 ? 0.0f : (float)r;
    }
    return _mm256_loadu_ps(out);
}
void emu_mma(emu_warp *w, int half)
{
    float A[16][16], B[16][8], C[16][8]; int32_t sa[16][16], ea[16][16], sb[16][8], eb[16][8]; bool special = false;
    for (int lane = 0; lane < 32; lane++) {
        const uint32_t *in = w->in[half][lane]; const int g = lane / 4, t = lane % 4;
        for (int r = 0; r < 4; r++) for (int h = 0; h < 2; h++) A[g + (r & 1) * 8][t * 2 + h + (r >> 1) * 8] = sheaf__float(in[r] >> 16 * h << 16);
        for (int r = 0; r < 2; r++) for (int h = 0; h < 2; h++) B[t * 2 + h + r * 8][g] = sheaf__float(in[4 + r] >> 16 * h << 16);
        for (int i = 0; i < 4; i++) memcpy(&C[g + i / 2 * 8][t * 2 + i % 2], &in[6 + i], 4);
    }
    int high = -1000, low = 1000;
#define SPLIT(x, s, e) do { \
        const uint32_t b_ = sheaf__bits(x); const int x_ = b_ >> 23 & 255; \
        s = (int32_t)((b_ & 0x7fffff) | (x_ ? 0x800000 : 0)) >> 16; e = (x_ ? x_ : 1) - 127; \
        if (b_ >> 31) s = -s; \
        special |= x_ == 255; if (s) { high = e > high ? e : high; low = e < low ? e : low; } } while (0)
    for (int i = 0; i < 16; i++) for (int k = 0; k < 16; k++) SPLIT(A[i][k], sa[i][k], ea[i][k]);
    for (int k = 0; k < 16; k++) for (int j = 0; j < 8; j++) SPLIT(B[k][j], sb[k][j], eb[k][j]);
    for (int i = 0; i < 16; i++) for (int j = 0; j < 8; j++) { const int ex = sheaf__bits(C[i][j]) >> 23 & 255; special |= ex > 250 || (ex != 0 && ex < 40); }
    special |= high > 55 || (low < -35 && low != 1000); /* neither overflow nor a result below 2^-126 */
    const int L = emu_groups, F = L == 16 ? 25 : 24;
    for (int i = 0; i < 16; i++) {
        if (!special) {
            __m256 c = _mm256_loadu_ps(C[i]);
            for (int k = 0; k < 16; k += L) c = fast(sa[i] + k, ea[i] + k, sb + k, eb + k, c, L, F);
            _mm256_storeu_ps(C[i], c);
            continue;
        }
        for (int j = 0; j < 8; j++) {
            float b[16]; for (int k = 0; k < 16; k++) b[k] = B[k][j];
            C[i][j] = emu_tensor_ref(A[i], b, C[i][j], 16, L);
        }
    }
    for (int lane = 0; lane < 32; lane++) for (int i = 0; i < 4; i++) w->out[half][lane][i] = C[lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2];
}

/* ---- wgmma m64n128k16 out of shared_memory memory ---- */
_Thread_local emu_wide emu_w[8];
static float emu_element(uint64_t operand, int row, int k)
{
    const char *at = shared_memory + ((operand & 0x3fff) << 4) + (int64_t)(row / 8) * (int64_t)((operand >> 32 & 0x3fff) << 4) + (int64_t)(k / 8) * (int64_t)((operand >> 16 & 0x3fff) << 4) + row % 8 * 16 + k % 8 * 2;
    uint16_t h; memcpy(&h, at, 2); return sheaf__float((uint32_t)h << 16);
}
void emu_wide_mma(emu_wide *w, bool fresh)
{
    static _Thread_local emu_warp part; /* as 4 x 16 of m16n8k16 */
    for (int rows = 0; rows < 4; rows++) for (int cols = 0; cols < 16; cols++) {
        for (int lane = 0; lane < 32; lane++) {
            uint32_t *in = part.in[0][lane]; const int g = lane / 4, t = lane % 4; float *d = w->d[rows * 32 + lane] + cols * 4;
            for (int r = 0; r < 4; r++) { const int row = rows * 16 + g + (r & 1) * 8, k = t * 2 + (r >> 1) * 8; in[r] = sheaf__bits(emu_element(w->a, row, k)) >> 16 | sheaf__bits(emu_element(w->a, row, k + 1)); }
            for (int r = 0; r < 2; r++) { const int k = t * 2 + r * 8; in[4 + r] = sheaf__bits(emu_element(w->b, cols * 8 + g, k)) >> 16 | sheaf__bits(emu_element(w->b, cols * 8 + g, k + 1)); }
            for (int e = 0; e < 4; e++) in[6 + e] = fresh ? 0 : sheaf__bits(d[e]);
        }
        emu_mma(&part, 0);
        for (int lane = 0; lane < 32; lane++) memcpy(w->d[rows * 32 + lane] + cols * 4, part.out[0][lane], 16);
    }
}
