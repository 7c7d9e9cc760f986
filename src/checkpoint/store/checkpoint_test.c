/* checkpoint_test.c - saving and loading a small state on thread ranks. */
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include "checkpoint/store/probe.h"
#include "checkpoint/store/checkpoint.h"
#include "checkpoint/tools/verify.h"
#include "checkpoint/store/manifest.h"
#include "tests/faults/tiny_state.h"
#include "tests/files.h"
#include "base/status.h"

static char folder[80];

/* A new OUT for each test; the one before is removed. */
static const char *fresh(void)
{
    if (folder[0] != '\0')
        CHECK_OK(sheaf__remove_tree(folder));
    return new_folder(folder);
}

#define in_folder(...) textf("%s/checkpoints/%s", folder, textf(__VA_ARGS__))

/* Of step 7. */
static const char *listing(void)
{
    return kept(listing_of(in_folder("step-00000007")), free);
}

static void save(int64_t step, int ranks)
{
    CHECK_OK(
        tiny_save(&(tiny_run){ .out = folder, .seed = (int)step, .step = step, .ranks = ranks }));
}

static int64_t newest(int ranks)
{
    tiny_run run = { .out = folder, .ranks = ranks };
    CHECK_OK(tiny_load(&run));
    return run.found_step;
}

/* Keeps the texts of all events. */
static char told[4096];
static void listen(void *context, const sheaf_event *event)
{
    const size_t n = strlen(told);
    snprintf(told + n, sizeof told - n, "%s\n", event->text);
}
static const sheaf_events listener = { listen, NULL };

static bool exists(const char *path)
{
    return sheaf__path_kind(path) != SHEAF_PATH_NONE;
}

/* Changes one byte of a file, counted from its end. */
static void spoil(const char *path, long from_end)
{
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    fseek(f, -from_end, SEEK_END);
    const int c = fgetc(f);
    fseek(f, -from_end, SEEK_END);
    fputc(c ^ 1, f);
    fclose(f);
}

/* ---- the promise ---- */

TEST(test_save__same_bytes_at_any_number_of_ranks)
{
    fresh();
    save(7, 1);
    const char *one = listing();
    for (int ranks = 2; ranks <= TINY_SLICES; ranks++) {
        fresh();
        save(7, ranks);
        const char *many = listing();
        assert_string_equal(one, many);
        for (int again = 1; again <= TINY_SLICES; again++)
            assert_int_equal(newest(again), 7); /* and reads back at any number */
    }
}

TEST(test_save__data_parallel_groups_share_the_writing)
{
    fresh();
    save(7, 1);
    const char *one = listing();
    for (int groups = 2; groups <= 3; groups++) {
        fresh();
        CHECK_OK(tiny_save(
            &(tiny_run){ .out = folder, .seed = 7, .step = 7, .ranks = groups, .groups = true }));
        const char *shared = listing();
        assert_string_equal(one, shared);
    }
}

/* ---- memory of a device, which a build without fast kernels does not have ---- */

#ifndef SHEAF_NO_X86
#include "tests/devices/checked.h"
#include "tests/devices/copied.h"

/* More than goes through the host at a time, by a remainder, and less. */
static const int64_t lengths[] = { SHEAF__STATE_PIECE / 2 + 5, 3 };

typedef struct held {
    sheaf__device *device;
    float *at[2];
    sheaf_state_tensor tensor[2];
    sheaf_state state;
} held;

static float element(int tensor, int64_t i)
{
    return (float)(i % 65521) + 0.5f * (float)tensor;
}

/* filled: with numbers of their own; else with zeros. */
static void hold(held *h, const sheaf__device_class *class, bool filled)
{
    static const char *const names[] = { "master/long", "master/short" };
    *h = (held){ 0 };
    CHECK_OK(sheaf__device_open(&h->device, class, 1, NULL, 0));
    for (int i = 0; i < 2; i++) {
        const size_t bytes = (size_t)lengths[i] * sizeof(float);
        void *at;
        CHECK_OK(sheaf__device_alloc(&at, h->device, bytes, SHEAF_MEM_TRAINED));
        float *x = room(bytes * 1);
        for (int64_t k = 0; k < lengths[i] && filled; k++)
            x[k] = element(i, k);
        CHECK_OK(sheaf__upload(h->device, at, x, bytes));
        h->at[i] = at;
        h->tensor[i] = (sheaf_state_tensor){
            .name = names[i], .ndim = 1, .shape = { lengths[i], 1 }, .slice = &h->at[i]
        };
    }
    h->state = (sheaf_state){ 1, 4, 2, h->tensor, "{}", h->device };
}

static void has_numbers(const held *h)
{
    for (int i = 0; i < 2; i++) {
        const size_t bytes = (size_t)lengths[i] * sizeof(float);
        float *x = room(bytes);
        CHECK_OK(sheaf__download(h->device, x, h->at[i], bytes));
        for (int64_t k = 0; k < lengths[i]; k++)
            assert_true(x[k] == element(i, k));
    }
}

static sheaf_status *save_held(void *context, sheaf_comm *comm)
{
    sheaf_checkpoints *store = NULL;
    sheaf_status *st =
        sheaf_checkpoints_open(&store, comm, folder, &(sheaf_checkpoints_options){ 0 });
    TRY(st, sheaf_checkpoints_save(store, comm, &((held *)context)->state));
    sheaf_checkpoints_close(store);
    return st;
}

TEST(test_save__memory_of_a_device_goes_through_the_host_in_pieces)
{
    const sheaf__device_class *const classes[] = { &sheaf__cpu, &checked_device, &copied_device };
    sheaf_hash want = { 0 };
    for (size_t i = 0; i < ARRAY_LEN(classes); i++) {
        held from, to;
        sheaf_checkpoint *saved = NULL;
        fresh();
        hold(&from, classes[i], true);
        hold(&to, classes[i], false);
        CHECK_OK(sheaf_comm_run_threads(1, save_held, &from));
        CHECK_OK(sheaf_checkpoint_open(&saved, in_folder("step-00000004")));
        const sheaf_hash is = sheaf__hash(saved->text, saved->size);
        assert_true(i == 0 || sheaf__hash_equal(is, want));
        want = is;
        CHECK_OK(sheaf_checkpoint_load(saved, &to.state));
        has_numbers(&to);
        has_numbers(&from);
        sheaf_checkpoint_close(saved);
        sheaf__device_close(from.device);
        sheaf__device_close(to.device);
    }
}
#endif

/* ---- what makes a manifest another ---- */

TEST(test_save__another_state_has_another_manifest)
{
    fresh();
    save(7, 1);
    const char *one = listing();
    fresh();
    CHECK_OK(tiny_save(&(tiny_run){ .out = folder, .seed = 8, .step = 7, .ranks = 1 }));
    const char *other = listing();
    assert_string_not_equal(one, other);
}

/* The text that docs/checkpoints.md explains. A change here needs a new version number. */
static const char recorded[] =
    "{\"format\": \"sheaf checkpoint\",\n"
    "\"version\": 1,\n"
    "\"contract\": 2,\n"
    "\"step\": 7,\n"
    "\"slices\": 4,\n"
    "\"progress\": {\"lr\": 0.10000000000000001, \"seed\": 7, \"step\": 7},\n"
    "\"bytes\": {\"slice_000.safetensors\": 312, \"slice_001.safetensors\": 412, \"slice_002.safetensors\": 364, \"slice_003.safetensors\": 416, \"replicated.safetensors\": 184},\n"
    "\"tensors\": {\n"
    "\"exp_avg/norm\": {\"dtype\": \"F32\", \"shape\": [5], \"hash\": \"415fdb5c9698a1e7e3e219c48a482bb5\"},\n"
    "\"master/bias\": {\"dtype\": \"F32\", \"shape\": [9], \"hash\": \"dc578c30da34943be38ea57ef9b6869e\", \"axis\": 0, \"parts\": [[9, 1]], \"slices\": [\"d9f948a606ba30fcfdcdc4ab37a17c4e\", \"65793f3460c19a744a691a0fe6642e05\", \"17e7479e6b518e95b0c640d694ea4cc2\", \"968e5a27b1b48eece4e503a00cf28c88\"]},\n"
    "\"master/columns\": {\"dtype\": \"F32\", \"shape\": [3, 7], \"hash\": \"51b0bbe093044b8f78d9631a144baf3e\", \"axis\": 1, \"parts\": [[7, 1]], \"slices\": [\"22f6e0e547f1985906b25dae2076d3b2\", \"a93ff17659822910a4cd81f3c56b8c2c\", \"c65a1f6a18c69ebe3cfdb02b880d1236\", \"a8d46b31adc16d21e151b17d26cf1572\"]},\n"
    "\"master/fused\": {\"dtype\": \"F32\", \"shape\": [12, 3], \"hash\": \"d5fa1afad1282dab47703d069c1b8715\", \"axis\": 0, \"parts\": [[4, 1], [2, 2], [2, 2]], \"slices\": [\"b3cab6bec4c9a5f43f1094244698bef5\", \"cdc5139cefb1bf84051de1b0b824e7ac\", \"e058019a16b63b69b236b533604ea2f5\", \"07a28da992bcca71329fa516218bfc64\"]},\n"
    "\"master/norm\": {\"dtype\": \"F32\", \"shape\": [5], \"hash\": \"59288af9106f19292fe62ff0e087c8e5\"},\n"
    "\"master/rows\": {\"dtype\": \"F32\", \"shape\": [6, 5], \"hash\": \"948edce3f23ba169134a8c256ce2073c\", \"axis\": 0, \"parts\": [[3, 2]], \"slices\": [\"99aa06d3014798d86001c324468d497f\", \"7e8e1da86c9bd95b2986fa6f1da482d8\", \"c4907381ea1013a40b0469c06033a7cc\", \"9066d3fc475b27ad18ebe2de90ffeb13\"]}\n"
    "},\n"
    "\"self\": \"8b12df8e5dcc9a9d82139b06dc6c24a3\"}\n";

TEST(test_manifest__is_the_recorded_text)
{
    fresh();
    save(7, 2);
    assert_string_equal(file_text(in_folder("step-00000007/manifest.json"), NULL), recorded);
}

TEST(test_manifest__a_changed_byte_is_noticed)
{
    char copy[sizeof recorded];
    sheaf_manifest *m = NULL;
    char *again = NULL;
    size_t size = 0;
    CHECK_OK(sheaf__manifest_read(&m, recorded, sizeof recorded - 1));
    CHECK_OK(sheaf__manifest_write(&again, &size, m));
    sheaf__manifest_free(m);
    assert_int_equal(size, sizeof recorded - 1);
    assert_string_equal(again, recorded);
    free(again);
    for (size_t i = 0; i < sizeof recorded - 1; i++) {
        memcpy(copy, recorded, sizeof copy);
        copy[i] ^= 1;
        CHECK_FAILS(sheaf__manifest_read(&m, copy, sizeof copy - 1), SHEAF_E_FORMAT, "");
    }
    for (size_t cut = 0; cut < sizeof recorded - 1; cut++)
        CHECK_FAILS(sheaf__manifest_read(&m, recorded, cut), SHEAF_E_FORMAT, "");
}

/* Bodies that have a right hash but wrong content, as a hostile file would. */
static const struct {
    const char *name, *body, *want;
} hostile[] = {
    { "no object", "[1,\n", "" },
    { "other format", "{\"format\": \"x\", \"version\": 1, \"contract\": 2, \"slices\": 1,\n",
      "'format'" },
    { "later version",
      "{\"format\": \"sheaf checkpoint\", \"version\": 2, \"contract\": 2, \"slices\": 1,\n",
      "another version of sheaf" },
    { "earlier contract",
      "{\"format\": \"sheaf checkpoint\", \"version\": 1, \"contract\": 1, \"slices\": 1,\n",
      "another version of sheaf" },
    { "no slices", "{\"format\": \"sheaf checkpoint\", \"version\": 1, \"contract\": 2,\n",
      "'slices'" },
    { "65 slices",
      "{\"format\": \"sheaf checkpoint\", \"version\": 1, \"contract\": 2, \"slices\": 65,\n",
      "'slices'" },
    { "no tensors",
      "{\"format\": \"sheaf checkpoint\", \"version\": 1, \"contract\": 2, \"slices\": 1,\n",
      "'tensors'" },
#define HEAD                                                                                            \
    "{\"format\": \"sheaf checkpoint\", \"version\": 1, \"contract\": 2, \"step\": 1, \"slices\": 1,\n" \
    "\"progress\": {}, \"bytes\": {\"slice_000.safetensors\": 1, \"replicated.safetensors\": 1},\n"
#define HASH "\"hash\": \"00000000000000000000000000000000\""
    { "size missing",
      "{\"format\": \"sheaf checkpoint\", \"version\": 1, \"contract\": 2, \"step\": 1, \"slices\": 1,\n"
      "\"progress\": {}, \"bytes\": {\"slice_000.safetensors\": 1}, \"tensors\": {},\n",
      "'bytes.replicated" },
    { "no progress",
      "{\"format\": \"sheaf checkpoint\", \"version\": 1, \"contract\": 2, \"step\": 1, \"slices\": 1,\n"
      "\"bytes\": {\"slice_000.safetensors\": 1, \"replicated.safetensors\": 1}, \"tensors\": {},\n",
      "'progress'" },
    { "product overflows",
      HEAD "\"tensors\": {\"a\": {\"dtype\": \"F32\", \"shape\": [4611686018427387904, 4], " HASH
           "}},\n",
      "'a': 'shape'" },
    { "dtype below a byte",
      HEAD "\"tensors\": {\"a\": {\"dtype\": \"F4\", \"shape\": [2], " HASH "}},\n",
      "'a': 'dtype'" },
    { "nine axes",
      HEAD "\"tensors\": {\"a\": {\"dtype\": \"F16\", \"shape\": [1, 1, 1, 1, 1, 1, 1, 1, 1], " HASH
           "}},\n",
      "'a': 'shape'" },
    { "three axes, cut",
      HEAD
      "\"tensors\": {\"a\": {\"dtype\": \"F16\", \"shape\": [4, 1, 1], \"axis\": 0, \"parts\": [[4, 1]], \"slices\": [\"\"], " HASH
      "}},\n",
      "'axis'" },
    { "many axes overflow",
      HEAD
      "\"tensors\": {\"a\": {\"dtype\": \"F16\", \"shape\": [2097152, 2097152, 2097152, 2097152], " HASH
      "}},\n",
      "'a': 'shape'" },
    { "short hash",
      HEAD "\"tensors\": {\"a\": {\"dtype\": \"F32\", \"shape\": [1], \"hash\": \"00\"}},\n",
      "'a': 'hash'" },
    { "axis outside",
      HEAD
      "\"tensors\": {\"a\": {\"dtype\": \"F32\", \"shape\": [4], \"axis\": 1, \"parts\": [[4, 1]], \"slices\": [\"\"], " HASH
      "}},\n",
      "'axis'" },
    { "no parts",
      HEAD
      "\"tensors\": {\"a\": {\"dtype\": \"F32\", \"shape\": [4], \"axis\": 0, \"parts\": [], \"slices\": [\"\"], " HASH
      "}},\n",
      "'parts'" },
    { "parts do not add up",
      HEAD
      "\"tensors\": {\"a\": {\"dtype\": \"F32\", \"shape\": [4], \"axis\": 0, \"parts\": [[3, 1]], \"slices\": [\"\"], " HASH
      "}},\n",
      "'a'" },
    { "slice hash",
      HEAD
      "\"tensors\": {\"a\": {\"dtype\": \"F32\", \"shape\": [4], \"axis\": 0, \"parts\": [[4, 1]], \"slices\": [\"\"], " HASH
      "}},\n",
      "'slices'" },
};

TEST(test_manifest__hostile_content_is_refused)
{
    for (size_t i = 0; i < ARRAY_LEN(hostile); i++) {
        char hash[33];
        sheaf_manifest *m = NULL;
        const size_t n = strlen(hostile[i].body);
        const char *text = textf("%s\"self\": \"%s\"}\n", hostile[i].body,
                                 sheaf__hash_text(hash, sheaf__hash(hostile[i].body, n)));
        sheaf_status *st = sheaf__manifest_read(&m, text, strlen(text));
        if (st == NULL ||
            (sheaf_status_code(st) != SHEAF_E_FORMAT &&
             sheaf_status_code(st) != SHEAF_E_UNSUPPORTED &&
             sheaf_status_code(st) != SHEAF_E_LAYOUT) ||
            strstr(sheaf_status_where(st), hostile[i].want) == NULL)
            fail_msg("%s: %s", hostile[i].name, sheaf_status_where(st));
        sheaf_status_free(st);
    }
}

TEST(test_manifest__tensors_are_found_in_any_order)
{
    char hash[33];
    static const char body[] =
        HEAD "\"tensors\": {\"b\": {\"dtype\": \"F32\", \"shape\": [2], " HASH "}, "
             "\"c\": {\"dtype\": \"F32\", \"shape\": [3], " HASH
             "}, \"a\": {\"dtype\": \"F32\", \"shape\": [1], " HASH "}},\n";
    sheaf_manifest *m = NULL;
    const char *text = textf("%s\"self\": \"%s\"}\n", body,
                             sheaf__hash_text(hash, sheaf__hash(body, sizeof body - 1)));
    CHECK_OK(sheaf__manifest_read(&m, text, strlen(text)));
    for (int i = 0; i < 3; i++) {
        const char name[] = { (char)('a' + i), '\0' };
        const sheaf_manifest_tensor *t = sheaf__manifest_find(m, name);
        assert_non_null(t);
        assert_int_equal(t->shape[0], i + 1);
    }
    assert_null(sheaf__manifest_find(m, "d"));
    sheaf__manifest_free(m);
}

/* ---- which one is the newest ---- */

TEST(test_step__names_that_are_ours_and_others)
{
    static const struct {
        const char *name;
        int64_t ours, any; /* -1: none */
    } rows[] = {
        { "step-00000010", 10, 10 },
        { "step-123456789012345678", 123456789012345678, 123456789012345678 },
        { "step-0000010", -1, 10 },
        { "step-7", -1, 7 },
        { "step-+0000007", -1, 7 },
        { "step-00000010x", -1, -1 },
        { "step-", -1, -1 },
        { "xstep-00000010", -1, -1 },
    };
    char name[SHEAF__STEP_NAME];
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        int64_t ours = -1, any = -1;
        assert_int_equal(sheaf__step_of(&ours, rows[i].name, true), rows[i].ours >= 0);
        assert_int_equal(sheaf__step_of(&any, rows[i].name, false), rows[i].any >= 0);
        if (ours != rows[i].ours || any != rows[i].any)
            fail_msg("%s: %" PRId64 " and %" PRId64, rows[i].name, ours, any);
    }
    assert_string_equal(sheaf__step_name(name, 10), "step-00000010");
    assert_string_equal(sheaf__step_name(name, 1234567890), "step-1234567890");
}

TEST(test_latest__incomplete_ones_are_left_aside_and_named)
{
    fresh();
    assert_int_equal(newest(2), 0);
    for (int64_t step = 1; step <= 6; step++)
        save(step, 2);
    assert_int_equal(newest(3), 6);
    CHECK_OK(sheaf__remove_tree(in_folder("step-00000006/manifest.json")));
    spoil(in_folder("step-00000005/manifest.json"), 200);
    assert_int_equal(truncate(in_folder("step-00000004/slice_002.safetensors"), 40), 0);
    CHECK_OK(sheaf__remove_tree(in_folder("step-00000003/replicated.safetensors")));
    CHECK_OK(sheaf__make_dirs(in_folder("step-00000009")));
    CHECK_OK(sheaf__make_dirs(in_folder("step-00000010x"))); /* not ours */
    tiny_run run = { .out = folder, .ranks = 2, .events = &listener };
    told[0] = '\0';
    CHECK_OK(tiny_load(&run));
    assert_int_equal(run.found_step, 2);
    static const char *const words[] = { "step-00000009 is left aside",
                                         "step-00000006 is left aside",
                                         "step-00000005 is left aside",
                                         "damaged",
                                         "step-00000004 is left aside",
                                         "slice_002.safetensors: file size; expected",
                                         "found 40 bytes",
                                         "step-00000003 is left aside",
                                         "step-00000002 is the newest complete checkpoint" };
    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        if (strstr(told, words[i]) == NULL)
            fail_msg("'%s' is not in:\n%s", words[i], told);
    assert_null(strstr(told, "step-00000010"));
}

/* Where a save of step 4 would be under way. */
static const char *left_over(void)
{
    char *path;
    CHECK_OK(sheaf__partial_path(&path, in_folder("step-00000004"), "partial", 0));
    return kept(path, free);
}

TEST(test_open__removes_what_a_killed_run_left)
{
    fresh();
    save(3, 1);
    const char *left = left_over();
    CHECK_OK(sheaf__make_dirs(textf("%s/deep", left)));
    CHECK_OK(sheaf__make_dirs(in_folder("mine.partial-5"))); /* somebody else's */
    CHECK_OK(sheaf__make_dirs(
        in_folder("step-00000004.partial-123/deep"))); /* that too: it has no mark of ours */
    told[0] = '\0';
    tiny_run run = { .out = folder, .ranks = 2, .events = &listener };
    CHECK_OK(tiny_load(&run));
    assert_int_equal(run.found_step, 3);
    assert_false(exists(left));
    assert_true(exists(in_folder("mine.partial-5")));
    assert_true(exists(in_folder("step-00000004.partial-123/deep")));
    assert_non_null(strstr(told, left));
    assert_non_null(strstr(told, ": removed, a save that was never finished"));
    assert_null(strstr(told, "partial-123: removed"));
}

/* A mount, another user's, or one in use: the run goes on beside it. */
TEST(test_open__what_cannot_be_removed_is_told)
{
    fresh();
    save(3, 1);
    const char *left = left_over();
    CHECK_OK(sheaf__make_dirs(left));
    told[0] = '\0';
    sheaf_faults faults = { .op = SHEAF_FAULT_UNLINK, .action = SHEAF_FAULT_FAIL, .n = 1 };
    CHECK_OK(tiny_save(&(tiny_run){
        .out = folder, .seed = 5, .step = 5, .ranks = 2, .events = &listener, .faults = &faults }));
    assert_int_equal(newest(1), 5);
    assert_null(strstr(told, ": removed"));
    assert_non_null(strstr(told, ": a save that was never finished, which cannot be removed: "));
}

TEST(test_open__one_run_at_a_time)
{
    fresh();
    save(1, 1);
    const int fd = open(in_folder("lock"), O_RDWR);
    assert_true(fd >= 0);
    assert_int_equal(flock(fd, LOCK_EX | LOCK_NB), 0);
    const char *left = left_over();
    CHECK_OK(sheaf__make_dir(left));
    tiny_run run = { .out = folder, .seed = 2, .step = 2, .ranks = 2 };
    CHECK_FAILS(tiny_save(&run), SHEAF_E_ARG, "another process holds this lock");
    assert_true(exists(left)); /* it may be in use */
    close(fd);
    CHECK_OK(tiny_save(&run));
}

TEST(test_keep__the_newest_stay)
{
    fresh();
    for (int64_t step = 1; step <= 5; step++)
        save(step, 1);
    CHECK_OK(sheaf__remove_tree(in_folder("step-00000003/manifest.json")));
    CHECK_OK(tiny_save(&(tiny_run){ .out = folder, .seed = 6, .step = 6, .ranks = 2, .keep = 3 }));
    static const bool stays[] = {
        false, false, true, true, true, true
    }; /* 3 is damaged: not counted, not removed */
    for (int step = 1; step <= 6; step++)
        assert_int_equal(exists(in_folder("step-%08d", step)), stays[step - 1]);
}

/* One that is read stays, until the next save. */
TEST(test_keep__what_is_read_stays)
{
    char *path = NULL;
    DIR *held = NULL;
    fresh();
    save(1, 1);
    CHECK_OK(sheaf__step_newest(&path, &held, folder));
    kept(path, free);
    assert_non_null(held);
    assert_non_null(strstr(path, "/step-00000001"));
    CHECK_OK(tiny_save(&(tiny_run){ .out = folder, .seed = 2, .step = 2, .ranks = 2, .keep = 1 }));
    assert_true(exists(path));
    closedir(held);
    CHECK_OK(tiny_save(&(tiny_run){ .out = folder, .seed = 3, .step = 3, .ranks = 2, .keep = 1 }));
    assert_false(exists(path));
    bool read = true; /* one that is being removed */
    const int fd = sheaf__step_lock(&read, in_folder("step-00000003"));
    assert_false(read);
    assert_null(sheaf__step_open(in_folder("step-00000003")));
    close(fd);
}

/* Verification beside a run that saves every moment and keeps one: always whole, never empty. */
TEST(test_keep__a_reader_looks_again)
{
    fresh();
    save(1, 1);
    const pid_t pid = fork();
    for (int i = 2; pid == 0 && i < 1000; i++)
        sheaf_status_free(
            tiny_save(&(tiny_run){ .out = folder, .seed = i, .step = i, .ranks = 1, .keep = 1 }));
    if (pid == 0)
        _exit(0);
    for (int i = 0; i < 60; i++) {
        sheaf_verify_report report;
        CHECK_OK(sheaf_verify(&report, folder, &(sheaf_weights_verify_options){ .threads = 1 }));
        if (!sheaf_verify_sound(&report) || report.catalog->nfindings > 0)
            fail_msg("%s: %s %s", report.catalog->finding[0].path, report.catalog->finding[0].code,
                     report.catalog->finding[0].found);
        sheaf_verify_release(&report);
    }
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

/* A save under way is not one that was never finished. */
TEST(test_verify__a_save_under_way_is_none_that_was_left)
{
    fresh();
    save(1, 1);
    const char *left = left_over();
    const int lock = open(in_folder("lock"), O_RDWR);
    CHECK_OK(sheaf__make_dir(left));
    for (int running = 0; running <= 1; running++) {
        sheaf_catalog *c = NULL;
        assert_int_equal(flock(lock, running ? LOCK_EX : LOCK_UN), 0);
        CHECK_OK(sheaf__any_read(&c, folder, NULL));
        assert_int_equal(sheaf__catalog_finding(c, "stale") != NULL, !running);
        sheaf__catalog_free(c);
    }
    close(lock);
}

TEST(test_save__a_step_that_is_there_already)
{
    fresh();
    save(4, 1);
    save(4, 3); /* equal: as good as saved */
    tiny_run other = { .out = folder, .seed = 5, .step = 4, .ranks = 2 };
    CHECK_FAILS(tiny_save(&other), SHEAF_E_ARG, "another checkpoint of this step");
    assert_int_equal(newest(1), 4);
    assert_int_equal(truncate(in_folder("step-00000004/slice_001.safetensors"), 9), 0);
    save(4, 2); /* cut short: replaced */
    assert_int_equal(newest(1), 4);
    spoil(in_folder("step-00000004/slice_001.safetensors"), 1);
    save(4, 3); /* a bit flipped under an equal manifest: replaced */
    assert_int_equal(newest(2), 4);
    spoil(in_folder("step-00000004/slice_001.safetensors"), 1);
    CHECK_OK(tiny_save(&other)); /* nothing goes on from it, so it stands in nobody's way */
    CHECK_FAILS(tiny_save(&(tiny_run){ .out = folder, .seed = 4, .step = 4, .ranks = 2 }),
                SHEAF_E_ARG, "another checkpoint of this step");
    char **names = NULL;
    int64_t count = 0;
    CHECK_OK(sheaf__list_dir(&names, &count, in_folder(".")));
    assert_int_equal(count, 2); /* the lock and the step, nothing partial */
    sheaf__names_free(names, count);
}

/* ---- what must not be saved ---- */

TEST(test_save__ranks_that_disagree_save_nothing)
{
    static const struct {
        int spoil;
        sheaf_code code;
        const char *want;
    } wrong[] = {
        { 1, SHEAF_E_LAYOUT, "ranks 0 and 1 disagree about the progress" },
        { 2, SHEAF_E_LAYOUT, "ranks 0 and 1 disagree about step, names" },
        { 3, SHEAF_E_NUMBER, "'master/norm': the copies of ranks 0 and 1 differ" },
        { 4, SHEAF_E_LAYOUT, "this rank has no data to save" },
        { 6, SHEAF_E_LAYOUT, "'a': two tensors of this name" },
    };
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        fresh();
        save(1, 1);
        CHECK_FAILS(tiny_save(&(tiny_run){
                        .out = folder, .seed = 2, .step = 2, .ranks = 2, .spoil = wrong[i].spoil }),
                    wrong[i].code, wrong[i].want);
        assert_int_equal(newest(2), 1);
        assert_false(exists(in_folder("step-00000002")));
    }
}

static sheaf_status *save_progress(void *context, sheaf_comm *comm)
{
    tiny_state t;
    sheaf_checkpoints *store = NULL;
    tiny_init(&t, 1, 1, 1, 0);
    t.state.progress = context;
    sheaf_status *st =
        sheaf_checkpoints_open(&store, comm, folder, &(sheaf_checkpoints_options){ 0 });
    TRY(st, sheaf_checkpoints_save(store, comm, &t.state));
    sheaf_checkpoints_close(store);
    return st;
}

TEST(test_save__progress_must_be_an_object)
{
    static const char *const bad[] = { "", "[1]", "{\"a\": 1", "{\"a\": NaN}",
                                       "{\"a\": 1, \"a\": 2}" };
    fresh();
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        CHECK_FAILS(sheaf_comm_run_threads(1, save_progress, (void *)bad[i]), SHEAF_E_FORMAT,
                    "progress");
    assert_false(exists(in_folder("step-00000001")));
    CHECK_OK(sheaf_comm_run_threads(1, save_progress,
                                    (void *)"{\"b\": [1.5, null], \"a\": \"\\u00fc\"}"));
    sheaf_checkpoint *c = NULL;
    CHECK_OK(sheaf_checkpoint_open(&c, in_folder("step-00000001")));
    assert_string_equal(c->manifest->progress, "{\"a\": \"\\u00FC\", \"b\": [1.5, null]}");
    sheaf_checkpoint_close(c);
}

/* ---- what must not be loaded ---- */

TEST(test_load__another_run_is_refused)
{
    tiny_state t;
    sheaf_checkpoint *c = NULL;
    fresh();
    save(1, 1);
    CHECK_OK(sheaf_checkpoint_open(&c, in_folder("step-00000001")));
    assert_int_equal(c->manifest->slices, 4);
    tiny_init(&t, -1, 0, 1, 0);
    t.state.slices = 8;
    CHECK_FAILS(sheaf_checkpoint_load(c, &t.state), SHEAF_E_ARG, "`slices`");
    tiny_init(&t, -1, 0, 1, 0);
    t.state.count--;
    CHECK_FAILS(sheaf_checkpoint_load(c, &t.state), SHEAF_E_LAYOUT, "'exp_avg/norm'");
    tiny_init(&t, -1, 0, 1, 0);
    t.tensor[0].name = "master/unknown";
    CHECK_FAILS(sheaf_checkpoint_load(c, &t.state), SHEAF_E_LAYOUT, "'master/unknown'");
    tiny_init(&t, -1, 0, 1, 0);
    t.tensor[1].shape[0] = 4;
    CHECK_FAILS(sheaf_checkpoint_load(c, &t.state), SHEAF_E_LAYOUT, "'master/columns': shape");
    tiny_init(&t, -1, 0, 1, 0);
    t.cut[2].part[0] = (sheaf_part){ 2, 2 };
    CHECK_FAILS(sheaf_checkpoint_load(c, &t.state), SHEAF_E_LAYOUT,
                "'master/fused': cut in another way");
    sheaf_checkpoint_close(c);
}

static sheaf_status *examine(const char *dir, int64_t *count,
                             void (*found)(void *context, const char *file, const char *tensor,
                                           const char *expected, const char *is))
{
    sheaf_damages damages = { .found = found };
    sheaf_status *st = sheaf_checkpoint_examine(&damages, dir, false);
    *count = damages.count;
    return st;
}

static int64_t damages_named;
static void count_damage(void *context, const char *file, const char *tensor, const char *expected,
                         const char *is)
{
    damages_named +=
        strcmp(file, "slice_001.safetensors") == 0 && strcmp(tensor, "master/rows") == 0;
}

TEST(test_load__a_flipped_bit_is_named)
{
    int64_t damages = -1;
    fresh();
    save(1, 1);
    CHECK_OK(examine(in_folder("step-00000001"), &damages, count_damage));
    assert_int_equal(damages, 0);
    spoil(in_folder("step-00000001/slice_001.safetensors"), 1); /* the last tensor by name */
    sheaf_checkpoint *c = NULL;
    tiny_state t;
    tiny_init(&t, -1, 0, 2, 0); /* slices 0 and 1 */
    CHECK_OK(sheaf_checkpoint_open(&c, in_folder("step-00000001")));
    CHECK_FAILS(sheaf_checkpoint_load(c, &t.state), SHEAF_E_FORMAT,
                "slice_001.safetensors: 'master/rows': damaged");
    tiny_init(&t, -1, 0, 2, 1); /* slices 2 and 3: reads nothing of it */
    CHECK_OK(sheaf_checkpoint_load(c, &t.state));
    sheaf_checkpoint_close(c);
    CHECK_OK(examine(in_folder("step-00000001"), &damages, count_damage));
    assert_int_equal(damages, 1);
    assert_int_equal(damages_named, 1);
    CHECK_OK(sheaf__remove_tree(in_folder("step-00000001/slice_003.safetensors")));
    CHECK_OK(examine(in_folder("step-00000001"), &damages, NULL));
    assert_int_equal(damages, 2);
    CHECK_OK(examine(in_folder("nowhere"), &damages, NULL));
    assert_int_equal(damages, 1);
}

static void count_joined(void *context, const char *file, const char *tensor, const char *expected,
                         const char *is)
{
    damages_named += strcmp(file, "manifest.json") == 0 && strcmp(tensor, "master/rows") == 0 &&
                     strncmp(expected, "00", 2) == 0;
}

/* A manifest that is whole but says another hash of a cut tensor than its slices give. */
TEST(test_verify__the_hash_of_a_tensor_is_that_of_its_slices)
{
    static const char name[] = "\"master/rows\":", mark[] = "\"hash\": \"", self[] = "\"self\": \"";
    char hex[33];
    size_t size;
    int64_t damages = -1;
    fresh();
    save(1, 2);
    const char *path = in_folder("step-00000001/manifest.json");
    char *text = file_text(path, &size), *at = strstr(text, name);
    assert_non_null(at);
    memcpy(strstr(at, mark) + sizeof mark - 1, "00000000000000000000000000000000", 32);
    char *last = strstr(text, self);
    assert_non_null(last);
    memcpy(last + sizeof self - 1, sheaf__hash_text(hex, sheaf__hash(text, (size_t)(last - text))),
           32);
    CHECK_OK(sheaf__file_write_whole(path, text, size));
    damages_named = 0;
    CHECK_OK(examine(in_folder("step-00000001"), &damages, count_joined));
    assert_int_equal(damages, 1);
    assert_int_equal(damages_named, 1);
}

TEST(test_load__the_one_before_a_damaged_one)
{
    fresh();
    for (int64_t step = 1; step <= 3; step++)
        save(step, 2);
    spoil(in_folder("step-00000003/replicated.safetensors"), 5);
    spoil(in_folder("step-00000002/slice_002.safetensors"), 1);
    for (int ranks = 1; ranks <= 4; ranks++) {
        tiny_run run = { .out = folder, .ranks = ranks, .events = &listener };
        told[0] = '\0';
        CHECK_OK(tiny_load(&run));
        assert_int_equal(run.found_step, 1);
        const char *once = strstr(told, "step-00000003 is left aside");
        assert_non_null(once);
        assert_null(strstr(once + 1, "step-00000003 is left aside"));
        assert_non_null(strstr(told, "slice_002.safetensors: 'master/rows': damaged"));
    }
    /* takes the place of no older one: they may be all there is */
    CHECK_OK(tiny_load(&(tiny_run){ .out = folder, .ranks = 2, .keep = 1 }));
    for (int step = 1; step <= 3; step++)
        assert_true(exists(in_folder("step-%08d", step)));
    spoil(in_folder("step-00000001/slice_000.safetensors"), 1);
    tiny_run run = { .out = folder, .ranks = 2 };
    CHECK_FAILS(tiny_load(&run), SHEAF_E_FORMAT, "3 that are damaged or incomplete");
}

static sheaf_status *not_this_run(void *context, const sheaf_checkpoint *c)
{
    return sheaf_fail(SHEAF_E_ARG, "%s", c->manifest->progress);
}

TEST(test_load__a_checkpoint_of_another_run_ends_the_search)
{
    fresh();
    save(1, 2);
    save(2, 2);
    tiny_run run = { .out = folder, .ranks = 3, .check = not_this_run };
    CHECK_FAILS(tiny_load(&run), SHEAF_E_ARG,
                "{\"lr\": 0.10000000000000001, \"seed\": 2, \"step\": 2}");
    /* Damage on rank 1, another failure on rank 2: all ranks end the search alike. */
    spoil(in_folder("step-00000002/slice_001.safetensors"), 1);
    run = (tiny_run){ .out = folder, .ranks = 4, .spoil = 5 };
    CHECK_FAILS(tiny_load(&run), SHEAF_E_FORMAT, "slice_001.safetensors: 'master/rows': damaged");
}

static int remove_folder(void **state)
{
    sheaf_status_free(sheaf__remove_tree(folder));
    return 0;
}

FIXTURE(NULL, remove_folder);
