#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "ops/attention/attention_parts.h"
#include "ops/device.h"
#include "ops/math/round.h"
sheaf__attention_kernel onepass_avx512, onepass_avx2;
static double now(void) { struct timespec t; clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t); return t.tv_sec + 1e-9 * t.tv_nsec; }
static void *filled(int64_t count, sheaf_dtype dtype)
{
    static uint32_t u = 1;
    void *p = aligned_alloc(64, (size_t)(count * 4 + 4096) / 64 * 64);
    for (int64_t i = 0; i < count; i++) {
        u = u * 1664525u + 1013904223u;
        sheaf__store(p, i, (float)(int32_t)u * 0x1p-31f, dtype);
    }
    return p;
}
static void *scratch;
static void forward(const sheaf__attention_call *call, sheaf__attention_kernel *kernel)
{
    const sheaf__attention *s = call->shape;
    int64_t rows = s->queries * s->group, heads = s->batch * s->kv_heads;
    int64_t share = heads * rows / 4 / 64 * 64, chunk = share < 256 ? 256 : share, chunks = (rows + chunk - 1) / chunk;
    for (int64_t i = 0; i < heads * chunks; i++) {
        int64_t begin = (chunks - 1 - i / heads) * chunk, end = begin + chunk < rows ? begin + chunk : rows;
        sheaf__attention_part part = { i % heads / s->kv_heads, i % heads % s->kv_heads, 0, s->group, begin, end };
        kernel(call, &part, SHEAF__ATTENTION_ROWS, scratch, SHEAF__THREAD_SCRATCH);
    }
}
static void errors(const sheaf__attention_call *call, const char *name)
{
    const sheaf__attention *s = call->shape;
    double worst = 0, sum = 0, all = 0; double *sc = malloc(s->keys * 8), o[256];
    int64_t step = s->queries > 16 ? s->queries / 16 : 1;
    for (int64_t i = s->queries - 1; i >= 0; i -= step)
        for (int64_t h = 0; h < s->kv_heads * s->group; h++) {
            int64_t n = s->keys - s->queries + i + 1, kv = h / s->group; double max = -1e300, z = 0;
            for (int64_t j = 0; j < n; j++) {
                double d = 0;
                for (int64_t c = 0; c < s->head_dim; c++)
                    d += (double)sheaf__load(call->q, i * s->ldq + h * s->head_dim + c, s->dtype) * (double)sheaf__load(call->k, j * s->ldk + kv * s->head_dim + c, s->dtype);
                sc[j] = d * (double)s->scale; if (sc[j] > max) max = sc[j];
            }
            for (int64_t c = 0; c < s->head_dim; c++) o[c] = 0;
            for (int64_t j = 0; j < n; j++) { double e = exp(sc[j] - max); z += e;
                for (int64_t c = 0; c < s->head_dim; c++) o[c] += e * (double)sheaf__load(call->v, j * s->ldv + kv * s->head_dim + c, s->dtype); }
            for (int64_t c = 0; c < s->head_dim; c++) { double w = o[c] / z, g = (double)sheaf__load(call->o, i * s->ldo + h * s->head_dim + c, s->dtype), e = fabs(w - g);
                if (e > worst) worst = e; sum += e * e; all += w * w; }
        }
    printf("   %s: rms error / rms %.3e, worst / rms %.3e", name, sqrt(sum / all), worst / sqrt(all / ((s->queries + step - 1) / step * s->kv_heads * s->group * s->head_dim)));
    free(sc);
}
bool sheaf__units_have_tiles(void);
int main(int argc, char **argv)
{
    sheaf_dtype dtype = strcmp(argv[1], "f32") == 0 ? SHEAF_F32 : strcmp(argv[1], "f16") == 0 ? SHEAF_F16 : SHEAF_BF16;
    sheaf_sums sums = strcmp(argv[1], "tiles") == 0 ? SHEAF_SUMS_TILES : strcmp(argv[1], "mma8") == 0 ? SHEAF_SUMS_MMA8 : strcmp(argv[1], "mma16") == 0 ? SHEAF_SUMS_MMA16 : SHEAF_SUMS_PAIRS;
    bool avx2 = strcmp(argv[2], "avx2") == 0, unit = strcmp(argv[2], "unit") == 0;
    int64_t kv = atoi(argv[3]), group = atoi(argv[4]), d = atoi(argv[5]);
    bool single = strcmp(argv[6], "one") == 0; double seconds = atof(argv[7]);
    float scale = (float)atof(argv[8]);
    sheaf__device *device = NULL;
    if (sheaf__device_open(&device, &sheaf__cpu, 1, avx2 ? "avx2" : "avx512", 0) != NULL) return 3;
    if (unit && !sheaf__units_have_tiles()) return 4;
    scratch = aligned_alloc(4096, SHEAF__THREAD_SCRATCH);
    sheaf__attention_kernel *kernel[2] = { avx2 ? onepass_avx2 : onepass_avx512, avx2 ? sheaf__attention_avx2 : sheaf__attention_avx512 };
    for (int a = 9; a < argc; a++) {
        int64_t keys = atoll(argv[a]), queries = single ? 1 : keys;
        /* single: layers enough to leave the caches */
        int64_t layers = single ? 1 + (64 << 20) / (2 * keys * kv * d * (dtype == SHEAF_F32 ? 4 : 2)) : 1;
        if (layers > 64) layers = 64;
        void *q = filled(queries * kv * group * d, dtype), *k = filled(layers * keys * kv * d, dtype), *v = filled(layers * keys * kv * d, dtype);
        void *o = filled(queries * kv * group * d, dtype);
        float *stats = malloc(queries * kv * group * 8);
        sheaf__attention shape = { .dtype = dtype, .batch = 1, .queries = queries, .keys = keys, .kv_heads = kv, .group = group, .head_dim = d, .scale = scale,
            .ldq = kv * group * d, .ldk = single ? d : kv * d, .ldv = single ? d : kv * d, .ldo = kv * group * d, .by_head = single, .kv_rows = keys };
        sheaf__attention_call call = { &shape, o, stats, q, k, v, NULL, NULL, NULL, NULL, sums, device->units };
        call.units.tiles = unit;
        if (avx2) call.units.pairs = false;
        double best[2] = { 1e9, 1e9 }, ratios[512]; int rounds = 0;
        for (double start = now(); rounds < 500 && (rounds < 3 || now() - start < seconds); rounds++) {
            double t[2];
            for (int i = 0; i < 2; i++) {
                int which = (i + rounds) % 2;
                t[which] = now();
                for (int64_t l = 0; l < layers; l++) {
                    size_t off = (size_t)(l * keys * kv * d) * (dtype == SHEAF_F32 ? 4 : 2);
                    call.k = (char *)k + off; call.v = (char *)v + off;
                    forward(&call, kernel[which]);
                }
                t[which] = (now() - t[which]) / layers;
                if (t[which] < best[which]) best[which] = t[which];
            }
            ratios[rounds] = t[0] / t[1];
        }
        for (int i = 0; i < rounds; i++) for (int j = i + 1; j < rounds; j++) if (ratios[j] < ratios[i]) { double x = ratios[i]; ratios[i] = ratios[j]; ratios[j] = x; }
        double pairs = single ? keys : keys * (keys + 1.0) / 2;
        printf("%s %s %s%lld heads %lld x %lld x %lld: today %.3f ms (%.0f GFLOP/s)  one pass %.3f ms (%.0f)  least %.3f  median %.3f  (%d rounds)\n", argv[1], argv[2], single ? "one query, keys " : "", (long long)keys, (long long)kv, (long long)group, (long long)d,
            best[0] * 1e3, 4 * pairs * kv * group * d / best[0] * 1e-9, best[1] * 1e3, 4 * pairs * kv * group * d / best[1] * 1e-9, best[0] / best[1], ratios[rounds / 2], rounds);
        if (getenv("ERRORS")) {
            shape.by_head = false; shape.ldk = shape.ldv = kv * d;
            call.k = k; call.v = v;
            forward(&call, kernel[0]); errors(&call, "today"); float s0 = stats[0], s1 = stats[1];
            forward(&call, kernel[1]); errors(&call, "one pass");
            printf("  stats %g %.8g, %g %.8g\n", s0, s1, stats[0], stats[1]);
        }
        fflush(stdout);
        free(q); free(k); free(v); free(o); free(stats);
    }
    return 0;
}
