#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "ops/attention/attention.h"
#include "ops/device.h"
int main(int argc, char **argv)
{
    sheaf_dtype dt = argv[1][0] == 'f' ? SHEAF_F32 : SHEAF_BF16;
    int64_t q = atoll(argv[2]), n = atoll(argv[3]), kv = atoll(argv[4]), g = atoll(argv[5]), d = atoll(argv[6]), heads = kv * g;
    sheaf__device *dev; sheaf_status *st = sheaf__device_open(&dev, &sheaf__cuda_class, 1, NULL, 0);
    if (st) { fprintf(stderr, "%s\n", "open"); return 3; }
    dev->sums = argv[1][0] == 'm' ? SHEAF_SUMS_MMA8 : argv[1][0] == 't' ? SHEAF_SUMS_TILES : SHEAF_SUMS_PAIRS;
    size_t sz = dt == SHEAF_F32 ? 4 : 2; void *m[4]; int64_t c[4] = { q * heads * d, n * kv * d, n * kv * d, q * heads * d };
    for (int i = 0; i < 4; i++) {
        if (sheaf__device_alloc(&m[i], dev, c[i] * sz, SHEAF_MEM_ACTIVATIONS)) return 4;
        char *h = malloc(c[i] * sz);
        for (int64_t e = 0; e < c[i]; e++) { float x = (float)(rand() % 2001 - 1000) / 1000; if (sz == 4) ((float *)h)[e] = x; else { uint32_t b; memcpy(&b, &x, 4); ((uint16_t *)h)[e] = b >> 16; } }
        if (sheaf__upload(dev, m[i], h, c[i] * sz)) return 5;
    }
    void *stats; if (sheaf__device_alloc(&stats, dev, q * heads * 8, SHEAF_MEM_ACTIVATIONS)) return 6;
    sheaf__attention s = { .dtype = dt, .batch = 1, .queries = q, .keys = n, .kv_heads = kv, .group = g, .head_dim = d, .scale = 0.09f, .ldq = heads * d, .ldk = kv * d, .ldv = kv * d, .ldo = heads * d, .kv_rows = n };
    sheaf__attention_forward(dev, &s, m[3], stats, m[0], m[1], m[2]);
    char x[4]; if (sheaf__download(dev, x, m[3], 4)) return 7;
    sheaf__device_close(dev);
    return 0;
}
