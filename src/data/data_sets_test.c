/* data_sets_test.c - several data sets as one: what a list names, joined rows, rows drawn by
 * weight.
 */

#include "data/data.h"
#include "data/data_sets.h"
#include "tests/byte_config.h"
#include "tests/files.h"

/* Records with `length` letters `letter` and more. */
static void write(const char *name, char letter, int records, const char *mode)
{
    FILE *file = fopen(at(name), mode);
    assert_non_null(file);
    for (int i = 0; i < records; i++)
        fprintf(file, "{\"text\": \"%.*s\"}\n", 1 + i % 5,
                (char[6]){ letter, letter, letter, letter, letter, 0 });
    assert_int_equal(fclose(file), 0);
}

/* A text with each "@" replaced by the folder of the test. */
static char *named(const char *list)
{
    sheaf_text text = { 0 };
    for (const char *c = list; *c != '\0'; c++)
        if (*c == '@')
            sheaf__text_add(&text, "%s", at(""));
        else
            sheaf__text_add(&text, "%c", *c);
    assert_false(text.failed);
    return text.at;
}

static sheaf_status *try_open(sheaf_data **out, const char *list, const sheaf_data_options *how)
{
    sheaf_data_options options = *how;
    char *path = named(list);
    options.config = &byte_config;
    options.micro_batch = 2;
    sheaf_status *st = sheaf_data_open(out, path, &options);
    free(path);
    return st;
}

static sheaf_data *opened(const char *list, const sheaf_data_options *how)
{
    sheaf_data *data = NULL;
    CHECK_OK(try_open(&data, list, how));
    return data;
}

static const sheaf_data_options plain = { .weights = true };

/* ---- the list ---- */

static void check_list(const char *text, int count, const char *second, double weight)
{
    sheaf__data_list list;
    char *it = named(text), *name = second == NULL ? NULL : named(second);
    CHECK_OK(sheaf__data_list_read(&list, it, true));
    assert_int_equal(list.count, count);
    if (name != NULL)
        assert_string_equal(list.path[count - 1], name);
    assert_true(list.weight[count - 1] == weight);
    sheaf__data_list_release(&list);
    free(it);
    free(name);
}

TEST(test_list__a_file_of_that_name_is_what_it_names)
{
    write("a", 'a', 1, "w");
    write("b", 'b', 1, "w");
    write("a:0.5", 'c', 1, "w");
    write("b,a", 'd', 1, "w");
    check_list("@a", 1, "@a", 0);
    check_list("@a,@b", 2, "@b", 0);
    check_list("@b:1,@a:2e-1", 2, "@a", 0.2);
    check_list("@a:0.5", 1, "@a:0.5", 0);
    check_list("@a:0.5:3", 1, "@a:0.5", 3);
    check_list("@b,a", 1, "@b,a", 0);
    check_list("@a,@b,a", 2, "@b,a", 0);
    check_list("@a:7,@b,a:2", 2, "@b,a", 2);
    check_list("@none:2,@other:3", 2, "@other", 3);
    check_list("@no:ne", 1, "@no:ne", 0);
    check_list("@none,@a", 2, "@a", 0);
}

TEST(test_list__weights_are_numbers_above_0_of_all_or_none)
{
    static const struct {
        const char *list, *found;
    } wrong[] = {
        { "@x:0,@y:1", "0" },     { "@x:-1,@y:1", "-1" }, { "@x:nan,@y:1", "nan" },
        { "@x:inf,@y:1", "inf" }, { "@x:,@y:1", "" },     { "@x:1,@y", "none" },
        { "@x,@y:1", "1" },       { "@x:1a,@y:1", "1a" }, { "@x:1e999,@y:1", "1e999" },
    };
    write("x", 'x', 1, "w");
    write("y", 'y', 1, "w");
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        sheaf__data_list list;
        char *text = named(wrong[i].list);
        sheaf_status *st = sheaf__data_list_read(&list, text, true);
        assert_non_null(st);
        assert_int_equal(sheaf_status_code(st), SHEAF_E_ARG);
        assert_string_equal(sheaf_status_found(st), wrong[i].found);
        sheaf_status_free(st);
        sheaf__data_list_release(&list);
        free(text);
    }
    sheaf__data_list list;
    char *text =
        named("@x:1.0000000000000000000000000000000000000000000000000000000000000000e9,@y:1");
    CHECK_FAILS(sheaf__data_list_read(&list, text, true), SHEAF_E_ARG, "at most 63 characters");
    sheaf__data_list_release(&list);
    free(text);
    sheaf_data *none = NULL;
    CHECK_FAILS(try_open(&none, "@x:1,@y:2", &(sheaf_data_options){ .weights = false }),
                SHEAF_E_ARG, "leave the weights out");
    CHECK_FAILS(try_open(&none, "@x:1,@y:100000", &plain), SHEAF_E_ARG, "an epoch of 2");
    CHECK_FAILS(try_open(&none, "@x,@missing", &plain), SHEAF_E_IO, "missing");
    assert_null(none);
}

/* ---- joined ---- */

static void check_same_rows(const sheaf_data *a, const sheaf_data *b)
{
    enum { SEQ = 8 };
    assert_int_equal(sheaf_data_rows(a), sheaf_data_rows(b));
    for (int64_t r = 0; r < sheaf_data_rows(a); r++) {
        int32_t token[2][SEQ], label[2][SEQ], position[2][SEQ];
        uint8_t mask[2][SEQ];
        const sheaf_data *of[2] = { a, b };
        for (int i = 0; i < 2; i++) {
            const sheaf_batch batch = { .tokens = token[i],
                                        .labels = label[i],
                                        .position = position[i],
                                        .mask = mask[i],
                                        .seq = SEQ };
            CHECK_OK(sheaf_data_batch(&batch, of[i], &r, 1));
        }
        CHECK_BYTES("tokens", token[0], token[1], sizeof *token);
        CHECK_BYTES("labels", label[0], label[1], sizeof *label);
        CHECK_BYTES("positions", position[0], position[1], sizeof *position);
        CHECK_BYTES("masks", mask[0], mask[1], sizeof *mask);
        assert_int_equal(sheaf_data_labels(a, &r, 1), sheaf_data_labels(b, &r, 1));
        assert_int_equal(sheaf_data_tokens(a, &r, 1), sheaf_data_tokens(b, &r, 1));
        assert_int_equal(sheaf_data_used(a, &r, 1), sheaf_data_used(b, &r, 1));
    }
}

TEST(test_joined__files_without_weights_are_one_file)
{
    write("p", 'p', 7, "w");
    write("q", 'q', 4, "w");
    write("all", 'p', 7, "w");
    write("all", 'q', 4, "a");
    sheaf_data *parts = opened("@p,@q", &plain), *all = opened("@all", &plain);
    assert_string_equal(sheaf_data_hash(parts), sheaf_data_hash(all));
    assert_int_equal(sheaf_data_seq(parts), sheaf_data_seq(all));
    assert_int_equal(sheaf_data_longest(parts), sheaf_data_longest(all));
    check_same_rows(parts, all);
    for (int64_t i = 0; i < 30; i++)
        assert_int_equal(sheaf_data_sample_of(parts, NULL, 0, i, 3, true),
                         sheaf_data_sample_of(all, NULL, 0, i, 3, true));
    sheaf_data_close(parts);
    sheaf_data_close(all);
}

TEST(test_joined__a_cached_file_beside_one_in_memory)
{
    write("p", 'p', 7, "w");
    write("q", 'q', 4, "w");
    sheaf_data *parts = opened("@p,@q", &plain),
               *cached = opened("@p,@q", &(sheaf_data_options){ .cache = at("cache") });
    assert_true(sheaf_data_reads_files(cached));
    assert_false(sheaf_data_reads_files(parts));
    assert_string_equal(sheaf_data_hash(parts), sheaf_data_hash(cached));
    check_same_rows(parts, cached);
    sheaf_data_close(parts);
    sheaf_data_close(cached);
}

/* ---- weights ---- */

TEST(test_weights__each_file_gives_its_share_of_an_epoch)
{
    enum { P = 7, Q = 4, ALL = P + Q, EPOCHS = 40 };
    write("p", 'p', P, "w");
    write("q", 'q', Q, "w");
    for (int shuffle = 0; shuffle < 2; shuffle++) {
        sheaf_data *data = opened("@p:1,@q:3", &plain);
        int times[ALL] = { 0 };
        assert_int_equal(sheaf_data_rows(data), ALL);
        for (int64_t e = 0; e < EPOCHS; e++) {
            int from_p = 0;
            for (int64_t i = 0; i < ALL; i++) {
                const int64_t row = sheaf_data_sample_of(data, NULL, 0, e * ALL + i, 5, shuffle);
                assert_in_range(row, 0, ALL - 1);
                from_p += row < P;
                times[row]++;
            }
            assert_int_equal(from_p, 3); /* 11 / 4 = 2.75 */
            /* No row a second time before each of its file was there. */
            for (int r = 0; r < ALL; r++) {
                const int share = r < P ? 3 : 8, rows = r < P ? P : Q;
                const int64_t taken = (e + 1) * share;
                assert_in_range(times[r], taken / rows, taken / rows + (taken % rows > 0));
            }
        }
        sheaf_data_close(data);
    }
}

TEST(test_weights__the_order_worked_by_hand)
{
    /* Of 5 samples 2 are of p, which has rows 0 to 2, and 3 of q, which has 3 and 4. */
    static const int64_t want[] = { 0, 1, 3, 4, 3, 2, 0, 4, 3, 4, 1, 2, 3, 4, 3 };
    write("p", 'p', 3, "w");
    write("q", 'q', 2, "w");
    sheaf_data *data = opened("@p:2,@q:3", &plain);
    for (int64_t i = 0; i < 15; i++)
        assert_int_equal(sheaf_data_sample_of(data, NULL, 0, i, 0, false), want[i]);
    sheaf_data_close(data);
}

TEST(test_weights__other_weights_are_other_data)
{
    write("p", 'p', 7, "w");
    write("q", 'q', 4, "w");
    sheaf_data *none = opened("@p,@q", &plain), *one = opened("@p:1,@q:1", &plain),
               *two = opened("@p:1,@q:2", &plain), *twice = opened("@p:2,@q:2", &plain);
    assert_string_not_equal(sheaf_data_hash(none), sheaf_data_hash(one));
    assert_string_not_equal(sheaf_data_hash(one), sheaf_data_hash(two));
    assert_string_equal(sheaf_data_hash(one), sheaf_data_hash(twice));
    sheaf_data_close(none);
    sheaf_data_close(one);
    sheaf_data_close(two);
    sheaf_data_close(twice);
}

TEST(test_weights__rows_held_out_leave_each_file_some)
{
    write("p", 'p', 7, "w");
    write("q", 'q', 4, "w");
    sheaf_data *data = opened("@p:1,@q:1", &plain);
    static const int64_t both[] = { 1, 2, 5, 8, 9 }, one[] = { 1, 2, 5 };
    CHECK_OK(sheaf_data_check_shares(data, both, 5));
    int times[11] = { 0 };
    for (int64_t i = 0; i < 5 * 6; i++)
        times[sheaf_data_sample_of(data, both, 5, i, 1, true)]++;
    assert_int_equal(times[1] + times[2] + times[5], 18); /* 2.5 of 5 are 3 */
    assert_int_equal(times[1], 6);
    assert_int_equal(times[8], 6);
    assert_int_equal(times[9], 6);
    CHECK_FAILS(sheaf_data_check_shares(data, one, 3), SHEAF_E_DATA,
                "q | rows to train on, and a sample of each epoch | no row is left");
    sheaf_data_close(data);
}

TEST(test_weights__packed_rows_are_of_one_file)
{
    write("p", 'p', 7, "w");
    write("q", 'q', 4, "w");
    sheaf_data *all = opened("@p:1,@q:3",
                             &(sheaf_data_options){ .weights = true, .pack = true, .seq = 16 }),
               *packed = NULL;
    CHECK_OK(sheaf_data_pack(&packed, all, NULL, 0));
    CHECK_OK(sheaf_data_check_shares(packed, NULL, 0));
    const int64_t rows = sheaf_data_rows(packed);
    int64_t of_q = 0, sample[64], count = 0;
    for (int64_t i = 0; i < rows; i++) {
        const int64_t row = sheaf_data_sample_of(packed, NULL, 0, i, 1, true);
        int32_t token[16];
        const sheaf_batch batch = { .tokens = token, .seq = 16 };
        CHECK_OK(sheaf_data_batch(&batch, packed, &row, 1));
        for (int t = 0; t < 16; t++)
            assert_false(token[t] == (token[1] == 'p' ? 'q' : 'p'));
        of_q += token[1] == 'q';
        for (int64_t k = 0; k < sheaf_data_parts(packed, row); k++) /* no number twice */
            sample[count++] = sheaf_data_part_of(packed, row, k, i, 1, true).sample;
    }
    assert_int_equal(of_q, rows - (rows + 2) / 4);
    for (int64_t i = 0; i < count; i++)
        for (int64_t k = 0; k < i; k++)
            assert_int_not_equal(sample[i], sample[k]);
    sheaf_data_close(packed);
    sheaf_data_close(all);
}

FIXTURE(make_scratch, remove_scratch);
