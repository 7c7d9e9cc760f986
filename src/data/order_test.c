/* order_test.c - packed rows and the order of rows: worked by hand, and what must always hold. */

#include "data/data.h"
#include "ops/kernels.h"
#include "tests/byte_config.h"
#include "tests/files.h"

enum { NO = SHEAF__IGNORED };

static sheaf_data *open_lengths(const int *length, int n, const sheaf_data_options *how)
{
    sheaf_data_options options = *how;
    sheaf_data *data = NULL;
    FILE *file = fopen(at("rows.jsonl"), "w");
    assert_non_null(file);
    for (int i = 0; i < n; i++) {
        fprintf(file, "{\"text\": \"");
        for (int k = 0; k < length[i] - 2; k++) /* bos and eos */
            fputc('a' + i % 26, file);
        fprintf(file, "\"}\n");
    }
    assert_int_equal(fclose(file), 0);
    options.config = &byte_config;
    CHECK_OK(sheaf_data_open(&data, at("rows.jsonl"), &options));
    return data;
}

/* Of the rows row[0..rows); `all` is closed after it. */
static sheaf_data *pack_of(sheaf_data **all, const int *length, int n, int64_t seq,
                           const int64_t *row, int64_t rows)
{
    sheaf_data *packed = NULL;
    *all = open_lengths(length, n, &(sheaf_data_options){ .seq = seq, .pack = true });
    CHECK_OK(sheaf_data_pack(&packed, *all, row, rows));
    return packed;
}

TEST(test_pack__first_fit_worked_by_hand)
{
    static const int length[] = { 4, 5, 3, 7, 3, 3 };
    /* 8 positions: 4 + 3, 5 + 3, 7, 3 */
    sheaf_data *all, *data = pack_of(&all, length, 6, 8, NULL, 0);
    const int64_t rows[] = { 0, 1, 2, 3, -1 };
    static const int32_t tokens[] = { BOS, 'a', 'a', EOS, BOS, 'c', EOS, 258,
                                      BOS, 'b', 'b', 'b', EOS, BOS, 'e', EOS },
                         labels[] = { 'a', 'a', EOS, NO,  'c', EOS, NO,  NO,
                                      'b', 'b', 'b', EOS, NO,  'e', EOS, NO },
                         position[] = { 0, 1, 2, 3, 0, 1, 2, 0, 0, 1, 2, 3, 4, 0, 1, 2 };
    static const int64_t segment[] = { 0, 4, 7, 8, 13, 16, 23, 24, 27, 32, 40 };
    int32_t t[40], l[40], p[40];
    int64_t s[41], n = 7;
    assert_true(sheaf_data_is_packed(data));
    assert_int_equal(sheaf_data_rows(data), 4);
    assert_int_equal(sheaf_data_longest(data), 8);
    assert_int_equal(sheaf_data_used(data, rows + 3, 2), 3);
    assert_int_equal(sheaf_data_tokens(data, rows, 5), 25);
    assert_int_equal(sheaf_data_labels(data, rows, 5), 25 - 6);
    CHECK_OK(sheaf_data_batch(
        &(sheaf_batch){ .tokens = t, .labels = l, .position = p, .segment = s, .segments = &n },
        data, rows, 5));
    CHECK_BYTES("tokens", t, tokens, sizeof tokens);
    CHECK_BYTES("labels", l, labels, sizeof labels);
    CHECK_BYTES("positions", p, position, sizeof position);
    assert_int_equal(n, ARRAY_LEN(segment) - 1);
    CHECK_BYTES("segments", s, segment, sizeof segment);
    sheaf_data_close(data);
    sheaf_data_close(all);
}

/* Against the rule in its plain form. */
TEST(test_pack__is_first_fit_of_many)
{
    enum { ROWS = 700, SEQ = 50 };
    int length[ROWS], room[ROWS], packs = 0;
    for (int i = 0; i < ROWS; i++)
        length[i] = 3 + (i * i * 7 + i * 31) % 48;
    sheaf_data *all, *data = pack_of(&all, length, ROWS, SEQ, NULL, 0);
    for (int i = 0; i < ROWS; i++) {
        int p = 0;
        while (p < packs && room[p] < length[i])
            p++;
        if (p == packs)
            room[packs++] = SEQ;
        room[p] -= length[i];
    }
    assert_int_equal(sheaf_data_rows(data), packs);
    for (int64_t p = 0; p < packs; p++)
        assert_int_equal(sheaf_data_used(data, &p, 1), SEQ - room[p]);
    sheaf_data_close(data);
    sheaf_data_close(all);
}

/* Dropout and noise count a record by the same number, packed or not, in every epoch. */
TEST(test_pack__a_record_keeps_its_number)
{
    enum { ROWS = 61, CHOSEN = 41, SEQ = 40, SEED = 7 };
    int length[ROWS];
    int64_t row[CHOSEN];
    for (int i = 0; i < ROWS; i++)
        length[i] = 3 + (i * i + i * 5) % 23;
    for (int i = 0; i < CHOSEN; i++)
        row[i] = i + i / 2;
    sheaf_data *all, *packed = pack_of(&all, length, ROWS, SEQ, row, CHOSEN);
    for (int shuffle = 0; shuffle < 2; shuffle++) {
        int seen[3 * CHOSEN] = { 0 };
        for (int64_t p = 0; p < 3 * sheaf_data_rows(packed); p++) {
            const int64_t at = sheaf_data_sample_of(packed, NULL, 0, p, SEED, shuffle != 0);
            int64_t sum = 0;
            for (int64_t i = 0; i < sheaf_data_parts(packed, at); i++) {
                const sheaf_data_part part =
                    sheaf_data_part_of(packed, at, i, p, SEED, shuffle != 0);
                const int64_t apart =
                    sheaf_data_sample_of(all, row, CHOSEN, part.sample, SEED, shuffle != 0);
                assert_int_equal(part.positions, length[apart]);
                assert_int_equal(part.tokens, length[apart]);
                assert_int_equal(part.sample / CHOSEN, p / sheaf_data_rows(packed));
                seen[part.sample]++;
                sum += part.positions;
            }
            assert_int_equal(sum, sheaf_data_used(packed, &at, 1));
        }
        for (int i = 0; i < 3 * CHOSEN; i++)
            assert_int_equal(seen[i], 1);
    }
    sheaf_data_close(packed);
    const sheaf_data_part part = sheaf_data_part_of(all, 5, 0, 99, SEED, true);
    assert_true(sheaf_data_parts(all, 5) == 1 && sheaf_data_parts(all, -1) == 0);
    assert_true(part.sample == 99 && part.positions == length[5]);
    sheaf_data_close(all);
}

TEST(test_pack__needs_a_length)
{
    sheaf_data *data = NULL;
    CHECK_FAILS(sheaf_data_open(&data, at("rows.jsonl"),
                                &(sheaf_data_options){ .config = &byte_config, .pack = true }),
                SHEAF_E_ARG, "`pack` | `seq N` beside it");
}

/* ---- by length ---- */

TEST(test_order__by_length_visits_every_row_and_pads_less)
{
    enum { ROWS = 503, MICRO = 4 };
    int length[ROWS];
    for (int i = 0; i < ROWS; i++)
        length[i] = 3 + (i * i * 7 + i * 31) % 300;
    sheaf_data *plain = open_lengths(length, ROWS, &(sheaf_data_options){ .micro_batch = MICRO }),
               *sorted = open_lengths(
                   length, ROWS, &(sheaf_data_options){ .micro_batch = MICRO, .by_length = true });
    assert_string_equal(sheaf_data_hash(plain), sheaf_data_hash(sorted));
    int moved = 0, ascending = 0;
    for (int64_t epoch = 0; epoch < 2; epoch++) {
        bool seen[ROWS] = { false };
        int64_t before = 0;
        for (int64_t i = 0; i < ROWS; i++) {
            const int64_t row = sheaf_data_sample_of(sorted, NULL, 0, epoch * ROWS + i, 7, true);
            assert_true(row >= 0 && row < ROWS && !seen[row]);
            seen[row] = true;
            moved += row != sheaf_data_sample_of(sorted, NULL, 0, i, 7, true);
            ascending += length[row] > before;
            before = length[row];
        }
    }
    assert_true(moved > ROWS / 2);      /* epochs differ */
    assert_true(ascending > ROWS / 10); /* micro-batches are not in order */
    const sheaf_data_order order = { .micro_batch = MICRO, .seed = 7, .shuffle = true };
    assert_true(sheaf_data_padding(plain, &order) > 0.3);
    assert_true(sheaf_data_padding(sorted, &order) < 0.03);
    static const int64_t some[] = { 1, 5, 6, 9, 100, 200, 300 };
    bool found[ROWS] = { false };
    for (int64_t i = 0; i < 7; i++)
        found[sheaf_data_sample_of(sorted, some, 7, i, 7, true)] = true;
    for (size_t i = 0; i < ARRAY_LEN(some); i++)
        assert_true(found[some[i]]);
    sheaf_data_close(plain);
    sheaf_data_close(sorted);
}

/* Rows of one length stay in the order that they were drawn in, which is the file's where nothing
 * is shuffled. */
TEST(test_order__by_length_keeps_what_is_as_long)
{
    static const int length[] = { 5, 9, 5, 9, 5, 9, 5, 9 };
    static const int64_t want[] = { 1, 3, 5, 7, 0, 2, 4, 6 };
    sheaf_data *data =
        open_lengths(length, 8, &(sheaf_data_options){ .micro_batch = 8, .by_length = true });
    for (int64_t i = 0; i < 8; i++)
        assert_int_equal(sheaf_data_sample_of(data, NULL, 0, i, 7, false), want[i]);
    sheaf_data_close(data);
}

FIXTURE(make_scratch, remove_scratch);
