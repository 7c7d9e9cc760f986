/* table_test.c - operations on vocabulary tables have the bits of plain loops, on every device. */
#include "tests/devices/packed.h"

#include "ops/matmul/matmul_private.h"
#include "ops/math/round.h"
#include "ops/tensor/tensor.h"

/* Pieces 2 to 4 of a table, one of them empty; tokens of all of it. */
enum { PIECES = 3, FIRST = 20, END = 63, VOCAB = 90, SKIPPED = 41 };
static const int64_t begin[] = { FIRST, 37, 37, END };
static const int64_t widths[] = { 1, 17, 300 };

/* Pieces: [piece], [piece rows, cols]. */
static sheaf__pieces take_pieces(int64_t cols, sheaf_dtype dtype)
{
    sheaf__pieces p = { .count = PIECES };
    memcpy(p.begin, begin, sizeof begin);
    for (int i = 0; i < PIECES; i++)
        if (begin[i + 1] > begin[i])
            p.at[i] = same_take((begin[i + 1] - begin[i]) * cols, dtype);
    return p;
}

static sheaf__pieces pieces_there(sheaf__pieces p)
{
    for (int i = 0; i < PIECES; i++)
        p.at[i] = SAME(p.at[i]);
    return p;
}

/* One of them many times. */
static sheaf__tokens take_tokens(int64_t n)
{
    int32_t *id = same_blank(n, SHEAF_F32);
    for (int64_t i = 0; i < n; i++)
        id[i] = i % 4 == 1 ? 40 : (int32_t)(i * 7 % VOCAB);
    return (sheaf__tokens){ id, n, SKIPPED };
}

static sheaf__tokens tokens_there(sheaf__tokens t)
{
    t.id = SAME(t.id);
    return t;
}

/* The piece of token i's row; -1: not here. */
static int piece_of(sheaf__tokens t, int64_t i, int64_t *inside)
{
    for (int p = 0; p < PIECES; p++) {
        *inside = t.id[i] - begin[p];
        if (*inside >= 0 && t.id[i] < begin[p + 1])
            return p;
    }
    return -1;
}

static void *element(const void *of, int64_t i, sheaf_dtype dtype)
{
    return (char *)of + i * (int64_t)sheaf_dtype_bytes(dtype);
}

/* ---- rows ---- */

SAME_TYPES(test_table__rows, dtype)
{
    for (size_t w = 0; w < 2 * ARRAY_LEN(widths) * ARRAY_LEN(same_sizes); w++) {
        const int64_t width = widths[w / 2 % 3], n = same_sizes[w / 6];
        const sheaf_dtype from = w % 2 ? dtype : SHEAF_F32;
        const sheaf__pieces table = take_pieces(width, from);
        const sheaf__tokens tokens = take_tokens(n);
        void *x = same_blank(n * width, dtype);
        SAME_EACH (device) {
            const sheaf__pieces at = pieces_there(table);
            sheaf__op_table_rows(device, SAME(x), dtype, &at, from, width, tokens_there(tokens));
        }
        for (int64_t i = 0, inside; i < n; i++) {
            const int p = piece_of(tokens, i, &inside);
            if (p >= 0)
                same.ref->convert(element(x, i * width, dtype), dtype,
                                  element(table.at[p], inside * width, from), from, width);
        }
        same_check("rows of a table");
    }
}

static sheaf__packed pack(int64_t n, int64_t k, sheaf_dtype dtype, const void *rows, bool compress)
{
    sheaf__packed w = packed_take(n, k, dtype);
    if (compress)
        sheaf__packed_compress(&w);
    sheaf__pack(&w, rows, dtype, k, 0, n);
    if (!sheaf__packed_as_wanted(&w))
        sheaf__pack(&w, rows, dtype, k, 0, n);
    return w;
}

static int64_t compressed; /* tables that were */

static void check_packed(sheaf_dtype dtype)
{
    enum { N = 77 };
    static const sheaf_dtype stored[] = { SHEAF_F32, SHEAF_BF16, SHEAF_F16, SHEAF_BF16 };
    for (int way = 0; way < 4 * 3; way++) {
        const sheaf_dtype from = stored[way % 4];
        const int64_t width = widths[way / 4];
        const sheaf__pieces rows = take_pieces(width, from);
        const sheaf__tokens tokens = take_tokens(N);
        sheaf__packed w[PIECES];
        if (sheaf_dtype_bytes(from) > sheaf_dtype_bytes(dtype)) {
            same.used = 0; /* no model has it */
            continue;
        }
        for (int i = 0; i < PIECES; i++) {
            w[i] = pack(begin[i + 1] - begin[i], width, from, rows.at[i], way % 4 == 3);
            compressed += w[i].code != NULL;
        }
        void *x = same_blank(N * width, dtype);
        SAME_EACH (device) {
            sheaf__packed at[PIECES];
            for (int i = 0; i < PIECES; i++)
                at[i] = packed_there(device, &w[i], true);
            sheaf__op_packed_rows(device, SAME(x), dtype, at, &rows, tokens_there(tokens));
            for (int i = 0; i < PIECES; i++)
                packed_seen(device, &at[i], &w[i], &w[i]);
        }
        for (int64_t i = 0, inside; i < N; i++) {
            const int p = piece_of(tokens, i, &inside);
            if (p >= 0)
                same.ref->convert(element(x, i * width, dtype), dtype,
                                  element(rows.at[p], inside * width, from), from, width);
        }
        same_check("rows of a packed table");
    }
}

TEST(test_table__packed_rows)
{
    same_types(check_packed);
    assert_true(compressed > 0);
}

SAME_TYPES(test_table__gradient, dtype)
{
    for (size_t w = 0; w < ARRAY_LEN(widths) * ARRAY_LEN(same_sizes); w++) {
        const int64_t width = widths[w % 3], n = same_sizes[w / 3];
        const sheaf__pieces grad = take_pieces(width, SHEAF_F32);
        const sheaf__tokens tokens = take_tokens(n);
        const void *dy = same_take(n * width, dtype);
        SAME_EACH (device) {
            const sheaf__pieces at = pieces_there(grad);
            sheaf__op_table_gradient(device, &at, SAME(dy), dtype, width, tokens_there(tokens));
        }
        for (int64_t i = 0, inside; i < n; i++) {
            const int p = piece_of(tokens, i, &inside);
            for (int64_t c = 0; c < width && p >= 0 && tokens.id[i] != SKIPPED; c++) {
                float v, *to = (float *)grad.at[p] + inside * width + c;
                same.ref->widen(&v, element(dy, i * width + c, dtype), dtype, 1);
                same.ref->add(to, to, &v, 1);
            }
        }
        same_check("gradient of a table");
    }
}

/* ---- columns of a factor ---- */

SAME_TYPES(test_table__factors, dtype)
{
    const float scale = 0.375f;
    for (size_t w = 0; w < ARRAY_LEN(widths) * ARRAY_LEN(same_sizes); w++) {
        const int64_t rank = widths[w % 3] / 10 + 1, n = same_sizes[w / 3];
        const sheaf__pieces a = take_pieces(rank, dtype), grad = take_pieces(rank, SHEAF_F32);
        const sheaf__tokens tokens = take_tokens(n);
        const void *g = same_take(n * rank, dtype);
        void *h = same_blank(n * rank, dtype);
        SAME_EACH (device) {
            sheaf__pieces at = pieces_there(a);
            sheaf__op_factor_columns(device, SAME(h), &at, dtype, rank, scale,
                                     tokens_there(tokens));
            at = pieces_there(grad);
            sheaf__op_factor_gradient(device, &at, SAME(g), dtype, rank, tokens_there(tokens));
        }
        for (int64_t i = 0, inside; i < n; i++) {
            const int p = piece_of(tokens, i, &inside);
            for (int64_t j = 0; j < rank && p >= 0; j++) {
                const int64_t at = j * (begin[p + 1] - begin[p]) + inside;
                float v, *to = (float *)grad.at[p] + at;
                same.ref->widen(&v, element(a.at[p], at, dtype), dtype, 1);
                v = sheaf__one_nan(v * scale);
                same.ref->round(element(h, i * rank + j, dtype), dtype, &v, 1);
                same.ref->widen(&v, element(g, i * rank + j, dtype), dtype, 1);
                if (tokens.id[i] != SKIPPED)
                    same.ref->add(to, to, &v, 1);
            }
        }
        same_check("a factor by tokens");
    }
}

FIXTURE(same_open, same_close);
