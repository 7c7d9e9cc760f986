/* sampling_test.c - processors against the recordings; sampling by its distribution. */
#include "tests/check.h"

#include <dirent.h>
#include <unistd.h>

#include "base/file.h"
#include "formats/safetensors.h"
#include "infer/sampling.h"
#include "tests/golden.h"

enum { MAX_VOCAB = 4096 };

static void read_floats(const sheaf_safetensors *f, const char *name, float *x, int64_t *n)
{
    const sheaf_safetensors_entry *e = sheaf__safetensors_find(f, name);
    if (e == NULL || e->dtype != SHEAF_F32 || e->bytes > MAX_VOCAB * 4)
        fail_msg("%s: no float32 '%s'", f->path, name);
    CHECK_OK(sheaf__safetensors_read(f, e, 0, x, e->bytes));
    *n = e->bytes / 4;
}

static void compare(const char *name, const float *got, const float *want, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (isinf(want[i]) || isinf(got[i])) {
            if (got[i] != want[i])
                fail_msg("%s: id %lld is %g, recorded %g", name, (long long)i, got[i], want[i]);
        } else {
            CHECK_NEAR(name, got[i], want[i], 1e-6 * (1 + fabs(want[i])));
        }
}

static void check_file(const char *path)
{
    static float logits[MAX_VOCAB], x[MAX_VOCAB], want[MAX_VOCAB], scratch[MAX_VOCAB + 1];
    static int64_t ids[MAX_VOCAB];
    sheaf_safetensors *f;
    int64_t n, k;
    CHECK_OK(sheaf__safetensors_open(&f, path));
    const sheaf_safetensors_entry *previous = sheaf__safetensors_find(f, "previous_ids");
    assert_non_null(previous);
    CHECK_OK(sheaf__safetensors_read(f, previous, 0, ids, previous->bytes));
    const int64_t nids = previous->bytes / 8;
    read_floats(f, "logits", logits, &n);
    int ran = 0;
    for (int64_t i = 0; i < f->header.count; i++) {
        const char *name = f->header.entry[i].name;
        float a = 0, t = 0, p = 0;
        int top = 0;
        memcpy(x, logits, sizeof x);
        if (sscanf(name, "rep%f_temp%f_topk%d_topp%f", &a, &t, &top, &p) == 4) {
            sheaf__sampling_penalty(x, n, ids, nids, a, scratch);
            sheaf__sampling_temperature(x, n, t);
            sheaf__sampling_top_k(x, n, top, scratch);
            sheaf__sampling_top_p(x, n, p, scratch);
        } else if (sscanf(name, "repetition_penalty_%f", &a) == 1) {
            sheaf__sampling_penalty(x, n, ids, nids, a, scratch);
        } else if (sscanf(name, "temperature_%f", &t) == 1) {
            sheaf__sampling_temperature(x, n, t);
        } else if (sscanf(name, "top_k_%d", &top) == 1) {
            sheaf__sampling_top_k(x, n, top, scratch);
        } else if (sscanf(name, "top_p_%f", &p) == 1) {
            sheaf__sampling_top_p(x, n, p, scratch);
        } else {
            continue;
        }
        read_floats(f, name, want, &k);
        assert_int_equal(k, n);
        compare(name, x, want, n);
        ran++;
    }
    assert_true(ran >= 5);
    sheaf__safetensors_close(f);
}

static void test_processors__equal_the_recordings(void **state)
{
    char root[1100], path[1400];
    char **names;
    int64_t count, ran = 0;
    snprintf(root, sizeof root, "%s", golden("llama"));
    CHECK_OK(sheaf__list_dir(&names, &count, root));
    for (int64_t i = 0; i < count; i++) {
        snprintf(path, sizeof path, "%s/%s/logits_processors.safetensors", root, names[i]);
        if (access(path, R_OK) == 0) {
            check_file(path);
            ran++;
        }
    }
    sheaf__names_free(names, count);
    assert_true(ran > 0);
}

static void test_penalty__once_per_id(void **state)
{
    float l[4] = { 2, -2, 0, 4 }, scratch[5];
    const int64_t ids[] = { 0, 1, 0, 0, 2, 9, -1 };
    sheaf__sampling_penalty(l, 4, ids, 7, 2, scratch);
    const float want[4] = { 1, -4, 0, 4 };
    CHECK_BYTES("penalty", l, want, sizeof want);
}

static void test_greedy__first_of_equals(void **state)
{
    float l[5] = { 1, 3, 3, 2, 3 }, scratch[6];
    const sheaf__sampling how = { .greedy = true, .temperature = 1, .top_p = 1, .repetition_penalty = 1 };
    assert_int_equal(sheaf__sampling_next(l, 5, NULL, 0, &how, 0, 0, scratch), 1);
}

static void test_sampling__follows_the_distribution(void **state)
{
    const float base[3] = { logf(0.5f), logf(0.3f), logf(0.2f) };
    const double want[3] = { 0.5, 0.3, 0.2 };
    const sheaf__sampling how = { .temperature = 1, .top_p = 1, .repetition_penalty = 1, .seed = 11 };
    int seen[3] = { 0 };
    float scratch[4];
    for (uint64_t i = 0; i < 30000; i++) {
        float l[3];
        memcpy(l, base, sizeof l);
        seen[sheaf__sampling_next(l, 3, NULL, 0, &how, i % 7, i, scratch)]++;
    }
    for (int i = 0; i < 3; i++) /* 5 standard deviations of a count of 30000 */
        CHECK_NEAR("share", seen[i] / 30000.0, want[i], 5 * sqrt(want[i] * (1 - want[i]) / 30000));
}

static void test_sampling__never_what_was_removed(void **state)
{
    const sheaf__sampling how = { .temperature = 1, .top_k = 2, .top_p = 1, .repetition_penalty = 1 };
    float scratch[5];
    for (uint64_t i = 0; i < 1000; i++) {
        float l[4] = { 0, 1, 0.5f, -1 };
        const int64_t id = sheaf__sampling_next(l, 4, NULL, 0, &how, 0, i, scratch);
        assert_true(id == 1 || id == 2);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_processors__equal_the_recordings),
        cmocka_unit_test(test_penalty__once_per_id),
        cmocka_unit_test(test_greedy__first_of_equals),
        cmocka_unit_test(test_sampling__follows_the_distribution),
        cmocka_unit_test(test_sampling__never_what_was_removed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
