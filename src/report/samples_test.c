/* samples_test.c - which completions of a run are kept, as its file grows and is written anew. */
#include "report/samples.h"

#include "tests/files.h"

static void add(sheaf_text *to, int step, const char *reward, const char *text)
{
    sheaf__text_add(
        to, "{\"step\":%d,\"reward\":%s,\"truncated\":false,\"prompt\":null,\"text\":\"%s\"}\n",
        step, reward, text);
}

TEST(test_samples__best_worst_and_some_over_time)
{
    enum { STEPS = 100 };
    sheaf__samples samples = { 0 };
    sheaf_text text = { 0 };
    const char *path = at("rollouts");
    CHECK_OK(sheaf__samples_read(&samples, path)); /* none there */
    assert_int_equal(samples.best.step, 0);
    for (int step = 1; step <= STEPS; step += 3) { /* three steps learn from each batch */
        add(&text, step, "0.5", "first");
        add(&text, step, step == 31 ? "2" : "null", "other");
        sheaf__text_add(&text, "{\"step\":%d,\"reward\":9,\"logps\":[]}\nno JSON\n", step);
        put(path, text.at);
        CHECK_OK(sheaf__samples_read(&samples, path));
    }
    assert_true(samples.best.step == 31 && samples.best.reward == 2);
    assert_string_equal(samples.best.text, "other");
    assert_null(samples.best.prompt);
    assert_true(samples.worst.step == 1 && samples.worst.reward == 0.5);
    assert_int_equal(samples.newest.step, STEPS);
    assert_int_equal(samples.batches, 34);
    assert_int_equal(samples.every, 8);
    assert_int_equal(samples.kept, 5);
    for (int i = 0; i < samples.kept; i++) {
        assert_int_equal(samples.over[i].step, 1 + 3 * 8 * i);
        assert_string_equal(samples.over[i].text, "first");
    }
    sheaf__text_release(&text);
    add(&text, 1, "-1", "another run");
    put(path, text.at);
    CHECK_OK(sheaf__samples_read(&samples, path));
    assert_true(samples.kept == 1 && samples.best.reward == -1 && samples.worst.reward == -1);
    sheaf__text_release(&text);
    sheaf__samples_release(&samples);
}

/* Characters stay whole. */
TEST(test_samples__long_texts_are_cut)
{
    sheaf__samples samples = { 0 };
    sheaf_text said = { 0 }, line = { 0 };
    const char *path = at("long");
    sheaf__text_add(&said, ".");
    while (said.size < 2 * SHEAF__SAMPLE_TEXT)
        sheaf__text_add(&said, "\u00e4");
    add(&line, 1, "1", said.at);
    put(path, line.at);
    CHECK_OK(sheaf__samples_read(&samples, path));
    assert_int_equal(strlen(samples.best.text), SHEAF__SAMPLE_TEXT - 1 + strlen("\u2026"));
    assert_true(sheaf__is_utf8(samples.best.text));
    sheaf__samples_release(&samples);
    sheaf__text_release(&said);
    sheaf__text_release(&line);
}

FIXTURE(make_scratch, remove_scratch);
