/* array_test.c - arrays that grow, and names found in them. */
#include "tests/check.h"

#include "base/array.h"

typedef struct row {
    int64_t number;
    const char *name;
} row;

TEST(test_array__grows_by_doubling_and_keeps_what_is_there)
{
    int32_t *array = NULL;
    int64_t capacity = 0;
    int moves = 0;
    for (int32_t i = 0; i < 10000; i++) {
        const int64_t before = capacity;
        assert_true(SHEAF_GROW(&array, &capacity, i + 1));
        assert_true(capacity > i && (capacity == before || capacity >= 2 * before));
        moves += capacity != before;
        array[i] = i;
    }
    assert_true(moves < 12);
    for (int32_t i = 0; i < 10000; i++)
        assert_int_equal(array[i], i);
    assert_true(SHEAF_GROW(&array, &capacity, 5 * capacity));
    assert_int_equal(array[9999], 9999);
    assert_true(SHEAF_GROW(&array, NULL, 3)); /* exactly */
    assert_int_equal(array[2], 2);
    free(array);
}

TEST(test_array__what_no_memory_holds_changes_nothing)
{
    row *array = NULL;
    int64_t capacity = 0;
    assert_true(SHEAF_GROW(&array, &capacity, 1));
    const row *const before = array;
    const int64_t had = capacity;
    assert_false(SHEAF_GROW(&array, &capacity, INT64_MAX));
    assert_false(SHEAF_GROW(&array, &capacity, INT64_MAX / (int64_t)sizeof(row)));
    assert_false(SHEAF_GROW(&array, NULL, -1));
    assert_ptr_equal(array, before);
    assert_int_equal(capacity, had);
    free(array);
}

TEST(test_find__each_name_and_what_lies_between)
{
    const row rows[] = { { 0, "" }, { 1, "a" }, { 2, "a.b" }, { 3, "b" }, { 4, "\xc3\xa9" } };
    static const char *const strangers[] = { " ", "a.", "a.b ", "aa", "c", "\xff" };
    for (int64_t n = 0; n <= (int64_t)ARRAY_LEN(rows); n++)
        for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
            const row *found = SHEAF_FIND(const row, name, rows, n, rows[i].name);
            assert_ptr_equal(found, (int64_t)i < n ? &rows[i] : NULL);
        }
    for (size_t i = 0; i < ARRAY_LEN(strangers); i++)
        assert_null(SHEAF_FIND(const row, name, rows, ARRAY_LEN(rows), strangers[i]));
    assert_null(SHEAF_FIND(const row, name, NULL, 0, "a"));
}

TEST(test_by_name__bytes_decide)
{
    struct {
        const char *name;
        int64_t number;
    } one[] = { { "b", 0 }, { "\xc3\xa9", 1 }, { "B", 2 }, { "", 3 }, { "ba", 4 } }, *behind[5];
    static const int64_t want[] = { 3, 2, 0, 4, 1 };
    for (size_t i = 0; i < ARRAY_LEN(one); i++)
        behind[i] = &one[i];
    qsort(behind, ARRAY_LEN(one), sizeof *behind, sheaf__by_name_behind);
    for (size_t i = 0; i < ARRAY_LEN(one); i++)
        assert_int_equal(behind[i]->number, want[i]);
    qsort(one, ARRAY_LEN(one), sizeof *one, sheaf__by_name);
    for (size_t i = 0; i < ARRAY_LEN(one); i++)
        assert_int_equal(one[i].number, want[i]);
}
