/* folder_test.c - which tensor goes into which shard, pieces from several threads, and nothing half
 * done. */
#include "tests/files.h"

#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dialects/common/folder.h"
#include "base/status.h"
#include "tests/faults/faults.h"

static sheaf_status *zeros(void *context, int64_t index, int64_t row0, int64_t rows, void *dst)
{
    return NULL;
}

/* Sizes of U8 vectors, a limit, and per tensor the shard (from 1) that huggingface_hub's rule
 * gives. */
TEST(test_shards__by_hand)
{
    static const struct {
        int64_t size[6];
        int n;
        int64_t limit;
        int shard[6];
        int shards;
    } rows[] = {
        { { 4, 4, 4 }, 3, 0, { 1, 1, 1 }, 1 },
        { { 4, 4, 4 }, 3, 12, { 1, 1, 1 }, 1 },
        { { 4, 4, 4 }, 3, 11, { 1, 1, 2 }, 2 },
        { { 4, 4, 4 }, 3, 8, { 1, 1, 2 }, 2 },
        { { 4, 4, 4 }, 3, 4, { 1, 2, 3 }, 3 },
        { { 4, 9, 4 },
          3,
          8,
          { 2, 1, 2 },
          2 }, /* too large: alone, numbered when met; the open shard goes on */
        { { 9, 4, 4 }, 3, 8, { 1, 2, 2 }, 2 },
        { { 9, 9 }, 2, 8, { 1, 2 }, 2 },
        { { 4, 9, 4, 4 }, 4, 8, { 2, 1, 2, 3 }, 3 },
        { { 4, 4, 1, 9, 4, 4 }, 6, 8, { 1, 1, 3, 2, 3, 4 }, 4 },
        { { 0, 0 }, 2, 8, { 1, 1 }, 1 },
        { { 0 }, 0, 8, { 0 }, 1 },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        sheaf_safetensors_spec spec[6];
        sheaf_folder *folder = NULL;
        static const char *const names[] = { "a", "b", "c", "d", "e", "f" };
        for (int t = 0; t < rows[i].n; t++)
            spec[t] = (sheaf_safetensors_spec){ names[t], SHEAF_U8, 1, { rows[i].size[t] } };
        const sheaf_folder_options options = { .stem = "m",
                                               .shard_bytes = rows[i].limit,
                                               .replace = true };
        CHECK_OK(sheaf__folder_begin(&folder, at("hand"), spec, rows[i].n, &options));
        CHECK_OK(sheaf__folder_write_all(folder, zeros, NULL, 3));
        CHECK_OK(sheaf__folder_commit(folder));
        assert_int_equal(entries(at("hand")), rows[i].shards + (rows[i].shards > 1));
        for (int t = 0; t < rows[i].n; t++) {
            sheaf_safetensors *file = NULL;
            const char *name =
                textf("hand/m-%05d-of-%05d.safetensors", rows[i].shard[t], rows[i].shards);
            CHECK_OK(sheaf__safetensors_open(
                &file, at(rows[i].shards == 1 ? "hand/m.safetensors" : name)));
            if (sheaf__safetensors_find(file, names[t]) == NULL)
                fail_msg("row %zu: '%s' is not in %s", i, names[t], name);
            assert_string_equal(sheaf__safetensors_metadata(file, "format"), "pt");
            sheaf__safetensors_close(file);
        }
    }
}

/* ---- pieces ---- */

enum { HEIGHT = 64, WIDTH = 48, THREADS = 4 };

typedef struct worker {
    sheaf_folder *folder;
    int number;
    sheaf_status *st;
} worker;

static float value(int tensor, int64_t r, int64_t c)
{
    return (float)(tensor * 10000 + r * WIDTH + c);
}

/* Tensor 0 is divided by rows, tensor 1 by columns, in pieces of one row and of odd widths. */
static void *write_share(void *arg)
{
    worker *w = arg;
    float piece[HEIGHT * WIDTH];
    const int64_t r0 = HEIGHT * w->number / THREADS, r1 = HEIGHT * (w->number + 1) / THREADS;
    for (int64_t r = r0; r < r1 && w->st == NULL; r++) {
        for (int64_t c = 0; c < WIDTH; c++)
            piece[c] = value(0, r, c);
        w->st = sheaf__folder_write(w->folder, 0, r, 1, 0, WIDTH, piece);
    }
    const int64_t c0 = WIDTH * w->number / THREADS, c1 = WIDTH * (w->number + 1) / THREADS;
    for (int64_t c = c0; c < c1 && w->st == NULL; c += 5) {
        const int64_t n = c1 - c < 5 ? c1 - c : 5;
        for (int64_t r = 0; r < HEIGHT; r++)
            for (int64_t i = 0; i < n; i++)
                piece[r * n + i] = value(1, r, c + i);
        w->st = sheaf__folder_write(w->folder, 1, 0, HEIGHT, c, n, piece);
    }
    return NULL;
}

TEST(test_write__pieces_from_several_threads)
{
    const sheaf_safetensors_spec spec[] = { { "x", SHEAF_F32, 2, { HEIGHT, WIDTH } },
                                            { "y", SHEAF_F32, 2, { HEIGHT, WIDTH } } };
    const sheaf_folder_options options = { .stem = "m", .shard_bytes = HEIGHT * WIDTH * 4 };
    sheaf_folder *folder = NULL;
    worker w[THREADS] = { 0 };
    pthread_t thread[THREADS];
    CHECK_OK(sheaf__folder_begin(&folder, at("threads"), spec, 2, &options));
    for (int i = 0; i < THREADS; i++) {
        w[i] = (worker){ folder, i, NULL };
        assert_int_equal(pthread_create(&thread[i], NULL, write_share, &w[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(thread[i], NULL);
        CHECK_OK(w[i].st);
    }
    CHECK_OK(sheaf__folder_commit(folder));
    for (int t = 0; t < 2; t++) {
        sheaf_safetensors *file = NULL;
        float got[HEIGHT * WIDTH];
        CHECK_OK(
            sheaf__safetensors_open(&file, at(t == 0 ? "threads/m-00001-of-00002.safetensors"
                                                     : "threads/m-00002-of-00002.safetensors")));
        CHECK_OK(sheaf__safetensors_read(file, file->header.entry, 0, got, sizeof got));
        for (int64_t i = 0; i < HEIGHT * WIDTH; i++)
            assert_true(got[i] == value(t, i / WIDTH, i % WIDTH));
        sheaf__safetensors_close(file);
    }
}

TEST(test_commit__refuses_a_tensor_with_a_gap)
{
    const sheaf_safetensors_spec spec[] = { { "x", SHEAF_F32, 2, { 2, 2 } },
                                            { "y", SHEAF_F32, 1, { 2 } } };
    const sheaf_folder_options options = { .stem = "m" };
    sheaf_folder *folder = NULL;
    const float four[4] = { 1, 2, 3, 4 };
    mkdir(at("gap"), 0700);
    CHECK_OK(sheaf__folder_begin(&folder, at("gap/dst"), spec, 2, &options));
    CHECK_OK(sheaf__folder_write(folder, 0, 0, 2, 0, 2, four));
    CHECK_OK(sheaf__folder_write(folder, 1, 0, 1, 0, 1, four));
    CHECK_FAILS(sheaf__folder_write(folder, 2, 0, 1, 0, 1, four), SHEAF_E_ARG,
                "tensor number | 0 to 1 | 2");
    CHECK_FAILS(sheaf__folder_write(folder, -1, 0, 1, 0, 1, four), SHEAF_E_ARG, "tensor number");
    CHECK_FAILS(sheaf__folder_commit(folder), SHEAF_E_LAYOUT,
                "tensor 'y' was not written as a whole | 8 bytes, each once | 4 bytes");
    assert_int_equal(entries(at("gap")), 0);
}

static sheaf_status *fails_at_y(void *context, int64_t index, int64_t row0, int64_t rows, void *dst)
{
    return index == 1 ? sheaf_fail(SHEAF_E_NUMBER, "not finite") : NULL;
}

TEST(test_write_all__hands_on_a_failure_of_the_values)
{
    const sheaf_safetensors_spec spec[] = { { "x", SHEAF_F32, 0, { 0 } },
                                            { "y", SHEAF_F32, 1, { 2 } } };
    const sheaf_folder_options options = { .stem = "m" };
    sheaf_folder *folder = NULL;
    CHECK_OK(sheaf__folder_begin(&folder, at("value"), &spec[1], 1, &options));
    sheaf__folder_abandon(folder);
    CHECK_OK(sheaf__folder_begin(
        &folder, at("value"), (sheaf_safetensors_spec[]){ { "x", SHEAF_F32, 1, { 1 } }, spec[1] },
        2, &options));
    CHECK_FAILS(sheaf__folder_write_all(folder, fails_at_y, NULL, 0), SHEAF_E_NUMBER, "not finite");
    sheaf__folder_abandon(folder);
    sheaf__folder_abandon(NULL);
    assert_int_equal(sheaf__path_kind(at("value")), SHEAF_PATH_NONE);
}

TEST(test_begin__refuses_unsound_lists_and_leaves_nothing)
{
    const sheaf_safetensors_spec twice[] = { { "x", SHEAF_F32, 1, { 1 } },
                                             { "x", SHEAF_F32, 1, { 1 } } };
    const sheaf_safetensors_spec huge = { "x", SHEAF_F32, 2, { INT64_MAX, 2 } };
    const sheaf_folder_options options = { .stem = "m" };
    sheaf_folder *folder = NULL;
    mkdir(at("unsound"), 0700);
    CHECK_FAILS(sheaf__folder_begin(&folder, at("unsound/d"), twice, 2, &options), SHEAF_E_ARG,
                "each name once");
    CHECK_FAILS(sheaf__folder_begin(&folder, at("unsound/d"), &huge, 1, &options), SHEAF_E_ARG,
                "2^63");
    assert_int_equal(entries(at("unsound")), 0);
}

/* ---- faults ---- */

/* Two shards, an index, a text and a copied file. */
static sheaf_status *make(const char *dst, bool replace)
{
    const sheaf_safetensors_spec spec[] = { { "x", SHEAF_F32, 1, { 4 } },
                                            { "y", SHEAF_F32, 1, { 4 } } };
    const sheaf_folder_options options = { .stem = "m", .shard_bytes = 16, .replace = replace };
    sheaf_folder *folder = NULL;
    sheaf_status *st = sheaf__folder_begin(&folder, dst, spec, 2, &options);
    if (st != NULL)
        return st;
    st = sheaf__folder_text(folder, "config.json", "{}");
    TRY(st, sheaf__folder_copy(folder, at("extras"), "tokenizer.json"));
    TRY(st, sheaf__folder_copy(folder, at("extras"), "not there"));
    TRY(st, sheaf__folder_write_all(folder, zeros, NULL, 0));
    if (st == NULL)
        return sheaf__folder_commit(folder);
    sheaf__folder_abandon(folder);
    return st;
}

/* DST is complete (1) or not there at all (0). */
static int complete(const char *dst)
{
    if (sheaf__path_kind(dst) == SHEAF_PATH_NONE)
        return 0;
    assert_int_equal(entries(dst), 5);
    for (int i = 1; i <= 2; i++) {
        sheaf_safetensors *file = NULL;
        CHECK_OK(sheaf__safetensors_open(&file, textf("%s/m-%05d-of-00002.safetensors", dst, i)));
        sheaf__safetensors_close(file);
    }
    return 1;
}

TEST(test_faults__any_failing_call_leaves_all_or_nothing)
{
    const sheaf_faults kinds[] = { { .action = SHEAF_FAULT_FAIL },
                                   { .action = SHEAF_FAULT_ENOSPC },
                                   { SHEAF_FAULT_MALLOC, SHEAF_FAULT_FAIL } };
    for (size_t a = 0; a < ARRAY_LEN(kinds); a++)
        for (int n = 1;; n++) {
            sheaf_faults faults = { kinds[a].op, kinds[a].action, .n = n };
            CHECK_OK(sheaf__remove_tree(at("fault")));
            mkdir(at("fault"), 0700);
            sheaf_status *st = UNDER(&faults, make(at("fault/dst"), false));
            const int there = complete(at("fault/dst"));
            if (st == NULL && faults.seen < n) {
                assert_true(there == 1 && n > (a < 2 ? 20 : 5));
                assert_int_equal(entries(at("fault")), 1);
                break;
            }
            if (st != NULL)
                assert_int_equal(entries(at("fault")), there);
            sheaf_status_free(st);
        }
}

TEST(test_faults__a_kill_at_any_call_leaves_all_or_nothing)
{
    int without = 0, with = 0;
    for (int n = 1;; n++) {
        CHECK_OK(sheaf__remove_tree(at("kill")));
        mkdir(at("kill"), 0700);
        const pid_t child = fork();
        if (child == 0) {
            sheaf_faults faults = { .action = SHEAF_FAULT_KILL, .n = n };
            sheaf_status_free(UNDER(&faults, make(at("kill/dst"), false)));
            _exit(0);
        }
        int how = 0;
        assert_int_equal(waitpid(child, &how, 0), child);
        if (complete(at("kill/dst")))
            with++;
        else
            without++;
        char **names;
        int64_t count;
        CHECK_OK(sheaf__list_dir(&names, &count, at("kill")));
        for (int64_t i = 0; i < count; i++)
            assert_true(strcmp(names[i], "dst") == 0 || sheaf__path_is_partial(names[i]));
        sheaf__names_free(names, count);
        if (WIFEXITED(how))
            break;
        assert_int_equal(WTERMSIG(how), SIGKILL);
    }
    assert_true(without > 20 && with >= 2);
}

/* And what sheaf__folder_copy() copies: download caches hold links. */
static int make_extras(void **state)
{
    if (make_scratch(state) != 0 || mkdir(at("extras"), 0700) != 0)
        return 1;
    put(at("extras/blob"), "{\"a tokenizer\": 1}");
    return symlink("blob", at("extras/tokenizer.json")) != 0;
}

FIXTURE(make_extras, remove_scratch);
