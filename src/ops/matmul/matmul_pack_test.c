/* matmul_pack_test.c - packed weights. */
#include "tests/matmul_twin.h"

TEST(test_pack__any_split_gives_the_same_panels)
{
    static const struct {
        int64_t n, k;
    } sizes[] = { { 1, 1 }, { 31, 5 }, { 32, 64 }, { 33, 257 }, { 95, 511 }, { 200, 33 } };
    static const sheaf_dtype types[] = { SHEAF_F32, SHEAF_BF16, SHEAF_F16 };
    for (size_t i = 0; i < ARRAY_LEN(sizes) * 9; i++) {
        const int64_t n = sizes[i / 9].n, k = sizes[i / 9].k, ld = k + 3;
        const sheaf_dtype to = types[i % 3], from = types[i / 3 % 3];
        const void *src = random_matrix(from, n, k, ld, ORDINARY);
        const size_t ahead = sheaf__packed_bytes(to, n, k);
        sheaf__packed one = { to, n, k, keep(ahead) }, two = { to, n, k, keep(ahead) };
        memset(two.ahead, 0xee, ahead);
        sheaf__pack(&one, src, from, ld, 0, n);
        bool done[256] = { false };
        for (int64_t left = n;
             left > 0;) { /* single rows and runs, in any order, the last one last */
            int64_t r = below(n), rows = 0;
            while (r < n && !done[r] && (r < n - 1 || left == 1 || rows == left - 1) && rows < 40) {
                done[r++] = true;
                rows++;
            }
            if (rows > 0)
                sheaf__pack(&two, (const char *)src + (r - rows) * ld * (from == SHEAF_F32 ? 4 : 2),
                            from, ld, r - rows, rows);
            left -= rows;
        }
        CHECK_BYTES("ahead", two.ahead, one.ahead, ahead);
        drop_all();
    }
}

TEST(test_pack__parts_are_their_rows_of_the_whole)
{
    static const sheaf_dtype types[] = { SHEAF_F32, SHEAF_BF16, SHEAF_F16 };
    for (int i = 0; i < 60; i++) {
        const sheaf_dtype type = types[i % 3];
        const int64_t n = 1 + below(700), k = 1 + below(300), size = mm_size(type);
        const char *src = random_vector(type, n * k, ORDINARY);
        const size_t ahead = sheaf__packed_bytes(type, n, k);
        sheaf__packed one = { type, n, k, keep(ahead) }, all = { type, n, k, keep(ahead) };
        char *row = keep((size_t)(k * size));
        memset(all.ahead, 0xee, ahead);
        sheaf__pack(&one, src, type, k, 0, n);
        int64_t at[701] = { 0 };
        int parts = 0;
        for (; at[parts] < n; parts++)
            at[parts + 1] = at[parts] + mm_min(n - at[parts], 1 + below(400));
        for (int p = 0; p < parts; p++) { /* in either order */
            const int which = i % 2 ? p : parts - 1 - p;
            const int64_t begin = at[which], end = at[which + 1];
            sheaf__packed half = sheaf__packed_part(&all, begin, n - begin),
                          part = sheaf__packed_part(&half, 0, end - begin);
            sheaf__pack(&part, src + begin * k * size, type, k, 0, end - begin);
            sheaf__packed_row(row, &part, end - begin - 1);
            CHECK_BYTES("row", row, src + (end - 1) * k * size, k * size);
        }
        CHECK_BYTES("ahead", all.ahead, one.ahead, ahead);
        drop_all();
    }
}

TEST(test_pack__rows_come_back_converted)
{
    static const struct {
        const char *name;
        sheaf_dtype from;
        uint32_t bits;
        uint32_t f32;
        uint16_t bf16;
        uint16_t f16;
    } value[] = {
        { "one", SHEAF_F16, 0x3c00, 0x3f800000, 0x3f80, 0x3c00 },
        { "minus the smallest half", SHEAF_F16, 0x8001, 0xb3800000, 0xb380, 0x8001 },
        { "largest denormal half", SHEAF_F16, 0x03ff, 0x387fc000, 0x3880, 0x03ff },
        { "largest half", SHEAF_F16, 0x7bff, 0x477fe000, 0x4780, 0x7bff },
        { "half infinity", SHEAF_F16, 0xfc00, 0xff800000, 0xff80, 0xfc00 },
        { "half NaN", SHEAF_F16, 0x7e00, 0x7fc00000, 0xffc0, 0x7e00 },
        { "minus zero", SHEAF_F16, 0x8000, 0x80000000, 0x8000, 0x8000 },
        { "tie to even", SHEAF_F32, 0x3f808000, 0x3f808000, 0x3f80, 0x3c04 },
        { "tie to even, up", SHEAF_F32, 0x3f818000, 0x3f818000, 0x3f82, 0x3c0c },
        { "above a tie", SHEAF_F32, 0x3f808001, 0x3f808001, 0x3f81, 0x3c04 },
        { "denormal", SHEAF_F32, 0x80018000, 0x80018000, 0x8002, 0x8000 },
        { "overflow", SHEAF_F32, 0x7f7fffff, 0x7f7fffff, 0x7f80, 0x7c00 },
        { "bfloat16 as it is", SHEAF_BF16, 0x4049, 0x40490000, 0x4049, 0x4248 },
        { "bfloat16 denormal", SHEAF_BF16, 0x0001, 0x00010000, 0x0001, 0x0000 },
    };
    for (size_t i = 0; i < ARRAY_LEN(value); i++)
        for (int flush = 0; flush < 2; flush++) { /* bits do not depend on the thread */
            const unsigned before = sheaf__mode();
            sheaf__mode_set(flush ? SHEAF__COMPUTE_MODE : SHEAF__MERGE_MODE);
            uint32_t buffer[32], f32 = 1;
            uint16_t bf16 = 1, f16 = 1;
            sheaf__packed w = { SHEAF_F32, 1, 1, buffer };
            sheaf__pack(&w, &value[i].bits, value[i].from, 1, 0, 1);
            sheaf__packed_row(&f32, &w, 0);
            w.dtype = SHEAF_BF16;
            sheaf__pack(&w, &value[i].bits, value[i].from, 1, 0, 1);
            sheaf__packed_row(&bf16, &w, 0);
            w.dtype = SHEAF_F16;
            sheaf__pack(&w, &value[i].bits, value[i].from, 1, 0, 1);
            sheaf__packed_row(&f16, &w, 0);
            sheaf__compute_mode_leave(before);
            if (f32 != value[i].f32 || bf16 != value[i].bf16 || f16 != value[i].f16)
                fail_msg("%s: %08x %04x %04x", value[i].name, f32, bf16, f16);
        }
    /* and in place, row by row */
    static const sheaf_dtype types[] = { SHEAF_F32, SHEAF_BF16, SHEAF_F16 };
    for (int i = 0; i < 21; i++) {
        const sheaf_dtype type = types[i % 3];
        const int64_t n = 1 + below(100), k = 1 + below(600), size = mm_size(type);
        const char *src = random_vector(type, n * k, ORDINARY);
        sheaf__packed w = { type, n, k, keep(sheaf__packed_bytes(type, n, k)) };
        sheaf__pack(&w, src, type, k, 0, n);
        char *row = keep((size_t)(k * size));
        for (int64_t r = 0; r < n; r++) {
            sheaf__packed_row(row, &w, r);
            CHECK_BYTES("row", row, src + r * k * size, k * size);
        }
        drop_all();
    }
}

FIXTURE(make_machines, free_machines);
