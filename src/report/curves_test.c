/* curves_test.c - what is read of a file as it grows, is cut and is written anew. */
#include "report/curves.h"

#include <fcntl.h>
#include <unistd.h>

#include "tests/files.h"

enum { STEPS = 5000 };

/* Steps, with an evaluation after each tenth, and a line that is none. `loss`: of the first. */
static char *make(size_t *size, int steps, double loss)
{
    sheaf_text text = { 0 };
    for (int i = 1; i <= steps; i++) {
        sheaf__text_add(&text,
                        "{\"step\": %d, \"loss\": %g, \"lr\": 0.5, \"tokens\": 10, "
                        "\"tokens_per_s\": 100, \"ranks\": [{\"compute\": 1, \"sent\": %d}, "
                        "{\"wait\": 2}]}\n",
                        i, loss + i, i);
        if (i % 10 == 0)
            sheaf__text_add(&text, "{\"step\": %d, \"eval_loss\": %g}\n", i, loss + i);
        if (i == 7)
            sheaf__text_add(&text, "no line of a run\n");
    }
    *size = text.size;
    return text.at;
}

static void append(const char *path, const char *bytes, size_t size)
{
    const int fd = open(path, O_WRONLY | O_APPEND | O_CREAT, 0600);
    assert_int_equal(write(fd, bytes, size), (ssize_t)size);
    close(fd);
}

static void check_same(const sheaf__curves *a, const sheaf__curves *b)
{
    assert_int_equal(a->points, b->points);
    assert_int_equal(a->merged, b->merged);
    assert_int_equal(a->steps, b->steps);
    assert_int_equal(a->last_step, b->last_step);
    assert_int_equal(a->evaluations, b->evaluations);
    assert_int_equal(a->nodd, b->nodd);
    assert_int_equal(a->at.cut, b->at.cut);
    assert_int_equal(a->ranks, b->ranks);
    assert_int_equal(a->ranks_steps, b->ranks_steps);
    assert_true(a->tokens == b->tokens && a->seconds == b->seconds);
    if (a->points > 0)
        assert_memory_equal(a->point, b->point, (size_t)a->points * sizeof *a->point);
    for (int64_t i = 0; i < a->evaluations; i++)
        assert_true(a->evaluation[i].step == b->evaluation[i].step &&
                    a->evaluation[i].loss == b->evaluation[i].loss);
    for (int r = 0; r < a->ranks; r++)
        assert_true(a->rank[r].sent == b->rank[r].sent);
    for (int i = 0; i < SHEAF__CURVE_ODD && a->odd[i] != NULL; i++)
        assert_string_equal(a->odd[i], b->odd[i]);
}

/* `curves` has read the file before. */
static void check_read(sheaf__curves *curves, const char *path)
{
    sheaf__curves whole = { 0 };
    CHECK_OK(sheaf__curves_read(curves, path));
    CHECK_OK(sheaf__curves_read(&whole, path));
    check_same(curves, &whole);
    sheaf__curves_release(&whole);
}

TEST(test_curves__what_came_since_is_added)
{
    static const size_t pieces[] = { 1, 40, 3000, 7, 70000, 200000, 131072, 1 };
    sheaf__curves curves = { 0 };
    const char *path = at("grows");
    size_t size, done = 0;
    char *text = make(&size, STEPS, 0);
    check_read(&curves, path); /* none there */
    assert_int_equal(curves.merged, 1);
    for (int i = 0; done < size; i++) {
        const size_t piece = pieces[i % 8] < size - done ? pieces[i % 8] : size - done;
        append(path, text + done, piece);
        done += piece;
        const int64_t before = curves.at.end;
        check_read(&curves, path);
        assert_true(curves.at.end >= before && curves.at.end <= (int64_t)done);
    }
    assert_int_equal(curves.at.end, size);
    assert_int_equal(curves.steps, STEPS);
    assert_true(curves.merged > 1 && !curves.at.cut);
    check_read(&curves, path); /* nothing came */
    sheaf__curves_release(&curves);
    free(text);
}

TEST(test_curves__other_lines_are_read_anew)
{
    sheaf__curves curves = { 0 };
    const char *path = at("resumed");
    size_t size, other;
    char *text = make(&size, 60, 100), *again = make(&other, 80, 200);
    append(path, text, size);
    check_read(&curves, path);
    assert_int_equal(truncate(path, (off_t)size / 2 + 9), 0); /* within a line */
    check_read(&curves, path);
    assert_true(curves.at.cut && curves.steps < 60);
    put(path, text);
    check_read(&curves, path);
    put(path, again); /* longer, with other lines of the same lengths up to there */
    check_read(&curves, path);
    assert_int_equal(curves.steps, 80);
    assert_true(sheaf__curve_at(&curves.point[0], SHEAF__CURVE_LOSS) == 201);
    assert_int_equal(unlink(path), 0);
    check_read(&curves, path);
    assert_int_equal(curves.steps, 0);
    sheaf__curves_release(&curves);
    free(text);
    free(again);
}

FIXTURE(make_scratch, remove_scratch);
