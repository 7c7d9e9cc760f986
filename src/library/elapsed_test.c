/* elapsed_test.c - what takes long says so, what does not is silent. */
#include "tests/check.h"

#include <stdatomic.h>
#include <unistd.h>

#include "library/elapsed.h"

typedef struct heard {
    atomic_int notes;
    char first[40], second[40];
} heard;

static void hear(void *self, const sheaf_event *event)
{
    heard *h = self;
    const int n = atomic_load(&h->notes);
    assert_int_equal(event->kind, SHEAF_EVENT_NOTE);
    if (n < 2)
        snprintf(n == 0 ? h->first : h->second, sizeof h->first, "%s", event->text);
    atomic_store(&h->notes, n + 1);
}

static void test_elapsed__long_work_is_told_of(void **state)
{
    heard h = { 0 };
    sheaf__elapsed e;
    sheaf__elapsed_begin(&e, "counting", 0.01, &(sheaf_events){ hear, &h });
    for (int i = 0; i < 60000 && atomic_load(&h.notes) < 2; i++)
        usleep(1000);
    sheaf__elapsed_end(&e);
    const int notes = atomic_load(&h.notes);
    assert_string_equal(h.first, "counting, 0.01 s so far");
    assert_string_equal(h.second, "counting, 0.02 s so far");
    usleep(50000);
    assert_int_equal(atomic_load(&h.notes), notes); /* it is over */
}

static void test_elapsed__short_work_is_silent(void **state)
{
    heard h = { 0 };
    for (int i = 0; i < 20; i++) {
        sheaf__elapsed e;
        sheaf__elapsed_begin(&e, "counting", 3600, &(sheaf_events){ hear, &h });
        sheaf__elapsed_end(&e); /* nor does it wait */
    }
    assert_int_equal(atomic_load(&h.notes), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_elapsed__long_work_is_told_of),
        cmocka_unit_test(test_elapsed__short_work_is_silent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
