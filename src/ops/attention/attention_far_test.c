/* attention_far_test.c - attention has the bits of its definition on every device: each operand is
 * named, with all of its elements. */
#include "tests/devices/same.h"
#include "tests/attention_twin.h"

static const int64_t segments[] = { 0, 20, 33, 66 };

static const struct {
    const char *name;
    int64_t batch, queries, keys, kv_rows, head_dim, window, slack;
    float cap;
    bool full, masked, by_head, segments;
} shapes[] = {
    { "causal", 2, 33, 33, 33, 16, 0, 0, 0, false, false, false, false },
    { "grouped rows wider than heads", 2, 33, 33, 35, 24, 0, 5, 0, false, true, false, false },
    { "a window and a cap", 1, 300, 300, 300, 8, 40, 3, 20, false, false, false, false },
    { "full, more queries than keys", 2, 50, 17, 20, 16, 0, 0, 0, true, true, false, false },
    { "one query and a cache by head", 2, 1, 77, 100, 16, 0, 0, 0, false, true, true, false },
    { "several queries and a cache", 2, 5, 40, 64, 16, 0, 2, 0, false, false, false, false },
    { "segments", 2, 33, 33, 33, 16, 0, 4, 0, false, false, false, true },
};

/* The first keys of a sequence are padding. */
static uint8_t *take_mask(const sheaf__attention *s)
{
    uint8_t *mask = same_blank(s->batch * s->mask_ld, SHEAF_U8);
    for (int64_t i = 0; i < s->batch * s->mask_ld; i++)
        mask[i] = i % s->mask_ld >= 3 * (i / s->mask_ld);
    return mask;
}

static sheaf__attention shape_of(size_t i, sheaf_dtype dtype)
{
    const int64_t heads = shapes[i].by_head ? 1 : 2, width = heads * shapes[i].head_dim;
    sheaf__attention s = attention_of(dtype, shapes[i].batch, shapes[i].queries, shapes[i].keys, 2,
                                      3, shapes[i].head_dim, 0.25f);
    s.kv_rows = shapes[i].kv_rows;
    s.window = shapes[i].window;
    s.full = shapes[i].full;
    s.cap = shapes[i].cap;
    s.mask_ld = shapes[i].keys + 2;
    s.ldq = 6 * shapes[i].head_dim + shapes[i].slack;
    s.ldk = width + 2 * shapes[i].slack;
    s.ldv = width + shapes[i].slack;
    s.ldo = 6 * shapes[i].head_dim;
    s.by_head = shapes[i].by_head;
    if (shapes[i].segments) {
        s.segment = segments;
        s.segments = ARRAY_LEN(segments) - 1;
    }
    if (shapes[i].masked)
        s.key_mask = take_mask(&s);
    return s;
}

static void check_shapes(sheaf_dtype dtype)
{
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++) {
        const sheaf__attention s = shape_of(i, dtype);
        const int64_t rows = s.batch * s.queries,
                      key_rows = s.batch * s.kv_rows * (s.by_head ? s.kv_heads : 1);
        const void *q = same_take(rows * s.ldq, dtype), *k = same_take(key_rows * s.ldk, dtype),
                   *v = same_take(key_rows * s.ldv, dtype), *d_o = same_take(rows * s.ldo, dtype);
        void *o = same_blank(rows * s.ldo, dtype), *dq = same_blank(rows * s.ldq, dtype),
             *dk = same_blank(key_rows * s.ldk, dtype), *dv = same_blank(key_rows * s.ldv, dtype);
        float *stats = same_blank(rows * 6 * 2, SHEAF_F32);
        const bool back = !s.by_head && (s.full || s.queries == s.keys);
        SAME_EACH (device) {
            sheaf__attention there = s;
            there.key_mask = SAME(s.key_mask);
            sheaf__attention_forward(device, &there, SAME(o), SAME(stats), SAME(q), SAME(k),
                                     SAME(v));
            if (back)
                sheaf__attention_backward(device, &there, SAME(dq), SAME(dk), SAME(dv), SAME(d_o),
                                          SAME(o), SAME(stats), SAME(q), SAME(k), SAME(v));
        }
        attention_forward_ref(&s, SHEAF_SUMS_PAIRS, o, stats, q, k, v);
        if (back)
            attention_backward_ref(&s, SHEAF_SUMS_PAIRS, dq, dk, dv, d_o, o, stats, q, k, v);
        same_check(shapes[i].name);
    }
}

TEST(test_attention__is_the_same_on_every_device)
{
    same_plain(check_shapes);
}

FIXTURE(same_open, same_close);
