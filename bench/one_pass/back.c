/* gradients beside float64, from o and stats of either forward */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "ops/attention/attention.h"
#include "ops/attention/attention_parts.h"
#include "ops/math/round.h"
sheaf__attention_kernel onepass_avx512;
bool sheaf__units_have_tiles(void);
static void *filled(int64_t count, sheaf_dtype dtype)
{
    static uint32_t u = 7; void *p = aligned_alloc(64, (size_t)(count * 4 + 4096) / 64 * 64);
    for (int64_t i = 0; i < count; i++) { u = u * 1664525u + 1013904223u; sheaf__store(p, i, (float)(int32_t)u * 0x1p-31f, dtype); }
    return p;
}
static double now(void) { struct timespec t; clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t); return t.tv_sec + 1e-9 * t.tv_nsec; }
int main(int argc, char **argv)
{
    sheaf_dtype dt = argv[1][0] == 'f' ? SHEAF_F32 : SHEAF_BF16; sheaf_sums sums = argv[1][0] == 't' ? SHEAF_SUMS_TILES : SHEAF_SUMS_PAIRS;
    int64_t n = 700, d = 64, g = 2; float scale = atof(argv[2]);
    sheaf__device *dev; if (sheaf__device_open(&dev, &sheaf__cpu, 1, "avx512", 0)) return 3;
    sheaf__units_have_tiles(); dev->sums = sums;
    void *q = filled(n * g * d, dt), *k = filled(n * d, dt), *v = filled(n * d, dt), *go = filled(n * g * d, dt), *o = filled(n * g * d, dt), *grad[3] = { filled(n * g * d, dt), filled(n * d, dt), filled(n * d, dt) };
    float *stats = malloc(n * g * 8);
    sheaf__attention s = { .dtype = dt, .batch = 1, .queries = n, .keys = n, .kv_heads = 1, .group = g, .head_dim = d, .scale = scale, .ldq = g * d, .ldk = d, .ldv = d, .ldo = g * d, .kv_rows = n };
    double *w[3] = { calloc(n * g * d, 8), calloc(n * d, 8), calloc(n * d, 8) }, *p = malloc(n * 8);
#define AT(x, i) ((double)sheaf__load(x, i, dt))
    for (int64_t i = 0; i < n; i++) for (int64_t h = 0; h < g; h++) {
        int64_t r = (i * g + h) * d; double max = -1e300, z = 0, D = 0;
        for (int64_t j = 0; j <= i; j++) { double t = 0; for (int64_t c = 0; c < d; c++) t += AT(q, r + c) * AT(k, j * d + c); p[j] = t * (double)scale; if (p[j] > max) max = p[j]; }
        for (int64_t j = 0; j <= i; j++) z += p[j] = exp(p[j] - max);
        for (int64_t j = 0; j <= i; j++) { double dp = 0; p[j] /= z; for (int64_t c = 0; c < d; c++) dp += AT(go, r + c) * AT(v, j * d + c); D += p[j] * dp; }
        for (int64_t j = 0; j <= i; j++) { double dp = 0; for (int64_t c = 0; c < d; c++) dp += AT(go, r + c) * AT(v, j * d + c);
            double ds = (double)scale * p[j] * (dp - D);
            for (int64_t c = 0; c < d; c++) { w[0][r + c] += ds * AT(k, j * d + c); w[1][j * d + c] += ds * AT(q, r + c); w[2][j * d + c] += p[j] * AT(go, r + c); } }
    }
    for (int which = 0; which < 2; which++) {
        static char scratch[6 << 20] __attribute__((aligned(4096)));
        sheaf__attention_call call = { &s, o, stats, q, k, v, NULL, NULL, NULL, NULL, sums, dev->units };
        sheaf__attention_part part = { 0, 0, 0, g, 0, n * g };
        (which ? onepass_avx512 : sheaf__attention_avx512)(&call, &part, SHEAF__ATTENTION_ROWS, scratch, sizeof scratch);
        double best = 1e9;
        for (int t = 0; t < 30; t++) { double a = now(); sheaf__attention_backward(dev, &s, grad[0], grad[1], grad[2], go, o, stats, q, k, v); a = now() - a; if (a < best) best = a; }
        printf("%s scale %g %s: %.3f ms", argv[1], scale, which ? "one pass" : "today   ", best * 1e3);
        for (int x = 0; x < 3; x++) { int64_t m = x ? n * d : n * g * d; double e = 0, a = 0, big = 0; for (int64_t i = 0; i < m; i++) { double f = AT(grad[x], i) - w[x][i]; e += f * f; a += w[x][i] * w[x][i]; if (fabs(f) > big) big = fabs(f); }
            printf("  %s rms %.3e worst %.3e", x == 0 ? "dq" : x == 1 ? "dk" : "dv", sqrt(e / a), big / sqrt(a / m)); }
        float most = 0; for (int64_t i = 0; i < n * g; i++) if (stats[2 * i + 1] > most) most = stats[2 * i + 1];
        printf("  largest sum %g\n", most);
    }
    return 0;
}
