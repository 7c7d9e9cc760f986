/* rollout_test.c - completions with rewards: what each form of record becomes, and what is refused.
 * The vocabulary is bytes (bos 256, eos 257), so that no recording is needed. */
#include "data/rollout.h"

#include <math.h>

#include "data/data.h"
#include "tests/byte_config.h"
#include "tests/files.h"

static sheaf_status *open_at(sheaf_data **data, const char *path, sheaf_on_bad on_bad)
{
    return sheaf_data_open(data, path,
                           &(sheaf_data_options){ .config = &byte_config,
                                                  .rollouts = true,
                                                  .on_bad = on_bad,
                                                  .seq = 12,
                                                  .weights = true });
}

static sheaf_status *open_rollouts(sheaf_data **data, const char *text, sheaf_on_bad on_bad)
{
    return open_at(data, file_with("rollouts.jsonl", text, strlen(text)), on_bad);
}

typedef struct want {
    int64_t group, labels;
    double reward;
    bool ended;
} want;

static void check_rows(const char *text, const want *list, int64_t n)
{
    sheaf_data *data;
    CHECK_OK(open_rollouts(&data, text, SHEAF_BAD_ERROR));
    assert_int_equal(sheaf_data_rows(data), n);
    for (int64_t i = 0; i < n; i++) {
        const sheaf_data_rollout got = sheaf_data_rollout_of(data, i);
        assert_int_equal(got.group, list[i].group);
        assert_int_equal(sheaf_data_labels(data, &i, 1), list[i].labels);
        assert_true(got.ended == list[i].ended);
        assert_true(isnan(list[i].reward) ? isnan(got.reward) : got.reward == list[i].reward);
    }
    sheaf_data_close(data);
}

TEST(test_rollout__forms_are_rows)
{
    /* the answer's bytes and eos */
    check_rows("{\"prompt\": \"ab\", \"completions\": [\"c\", \"de\"], \"rewards\": [1, -0.5]}\n"
               "{\"prompt\": \"ab\", \"completions\": [\"c\"], \"rewards\": [null]}\n",
               (const want[]){ { 0, 2, 1, true }, { 0, 3, -0.5, true }, { 1, 2, NAN, true } }, 3);
    /* lines of one prompt are a group */
    check_rows("{\"prompt\": \"ab\", \"completion\": \"c\", \"reward\": 1}\n"
               "{\"prompt\": \"ab\", \"completion\": \"d\", \"reward\": 2, \"truncated\": true}\n"
               "{\"prompt\": \"a\", \"completion\": \"bc\", \"reward\": 3}\n",
               (const want[]){ { 0, 2, 1, true }, { 0, 2, 2, false }, { 1, 3, 3, true } }, 3);
    /* tokens: truncated where the last is no end; numbers of groups are the file's */
    check_rows(
        "{\"prompt_ids\": [1, 2], \"completion_ids\": [3, 257], \"reward\": 1, \"group\": 5}\n"
        "{\"prompt_ids\": [1, 2], \"completion_ids\": [3], \"reward\": 2, \"group\": 4}\n"
        "{\"prompt_ids\": [1], \"completion_ids\": [[7, 8], [9]], \"rewards\": [3, 4],"
        " \"truncated\": [false, true]}\n",
        (const want[]){
            { 5, 2, 1, true }, { 4, 1, 2, false }, { 5, 2, 3, true }, { 5, 1, 4, false } },
        4);
}

/* A group is one file's, whatever its number there; and it is taken whole, so files have no
 * weights. */
TEST(test_rollout__files_share_no_group)
{
    static const char one[] =
        "{\"prompt_ids\": [1], \"completion_ids\": [[2], [3]], \"rewards\": [1, 2]}\n"
        "{\"prompt_ids\": [4], \"completion_ids\": [2], \"reward\": 1, \"group\": 5}\n"
        "{\"prompt_ids\": [4], \"completion_ids\": [3], \"reward\": 1, \"group\": 3}\n";
    static const int64_t want[] = { 0, 0, 5, 3, 6, 6, 11, 9, 12, 12, 17, 15 };
    char path[3][300], list[1000];
    for (int i = 0; i < 3; i++) {
        snprintf(
            path[i], sizeof path[i], "%s",
            file_with((const char *[]){ "a.jsonl", "b.jsonl", "c.jsonl" }[i], one, strlen(one)));
    }
    snprintf(list, sizeof list, "%s,%s,%s", path[0], path[1], path[2]);
    sheaf_data *data;
    CHECK_OK(open_at(&data, list, SHEAF_BAD_ERROR));
    assert_int_equal(sheaf_data_rows(data), (int64_t)ARRAY_LEN(want));
    for (int64_t i = 0; i < (int64_t)ARRAY_LEN(want); i++)
        assert_int_equal(sheaf_data_rollout_of(data, i).group, want[i]);
    sheaf_data_close(data);
    snprintf(list, sizeof list, "%s:0.7,%s:0.3", path[0], path[1]);
    CHECK_FAILS(open_at(&data, list, SHEAF_BAD_ERROR), SHEAF_E_ARG,
                "a.jsonl | none: a group of completions is taken whole, and once | 0.7");
}

TEST(test_rollout__log_probabilities_come_along)
{
    sheaf_data *data;
    CHECK_OK(open_rollouts(&data,
                           "{\"prompt_ids\": [1], \"completion_ids\": [2, 3], \"reward\": 0,"
                           " \"logps\": [-0.5, -1.25]}\n"
                           "{\"prompt_ids\": [1], \"completion_ids\": [2], \"reward\": 0}\n",
                           SHEAF_BAD_ERROR));
    const float *logp = sheaf_data_rollout_of(data, 0).logp;
    assert_true(logp[0] == -0.5f && logp[1] == -1.25f);
    assert_null(sheaf_data_rollout_of(data, 1).logp);
    sheaf_data_close(data);
}

/* A reward, a group and a log-probability are part of what a run learns from. */
TEST(test_rollout__the_hash_has_what_is_learnt_from)
{
    static const char *const rest[] = { "\"reward\": 1}", "\"reward\": 2}",
                                        "\"reward\": 1, \"group\": 1}",
                                        "\"reward\": 1, \"truncated\": false}",
                                        "\"reward\": 1, \"logps\": [-1]}" };
    char hash[ARRAY_LEN(rest)][33], text[200];
    for (size_t i = 0; i < ARRAY_LEN(rest); i++) {
        sheaf_data *data;
        snprintf(text, sizeof text, "{\"prompt_ids\": [1], \"completion_ids\": [2], %s\n", rest[i]);
        CHECK_OK(open_rollouts(&data, text, SHEAF_BAD_ERROR));
        snprintf(hash[i], sizeof hash[i], "%s", sheaf_data_hash(data));
        sheaf_data_close(data);
        for (size_t k = 0; k < i; k++)
            assert_string_not_equal(hash[i], hash[k]);
    }
}

static const struct {
    const char *text, *says;
} refused[] = {
    { "{\"prompt\": \"a\"}", "line 1: field 'completion'" },
    { "{\"prompt\": \"a\", \"completion\": \"b\", \"reward\": \"1\"}",
      "field 'reward' | a number" },
    { "{\"prompt\": \"a\", \"completion\": [], \"reward\": 1}", "field 'completion' | a text" },
    { "{\"prompt\": \"a\", \"completion\": \"\", \"reward\": 1}", "field 'completion'" },
    { "{\"prompt\": \"a\", \"completions\": [\"b\", \"c\"], \"rewards\": [1]}",
      "field 'rewards' | an entry for each completion | a list of another length" },
    { "{\"prompt\": \"a\", \"completions\": [], \"rewards\": []}", "field 'completions'" },
    { "{\"prompt\": \"a\", \"completions\": [\"b\"], \"rewards\": [1], \"logps\": 1}",
      "field 'logps'" },
    { "{\"prompt_ids\": [1], \"completion_ids\": [259], \"reward\": 1}",
      "field 'completion_ids' | token ids of the model's vocabulary" },
    { "{\"prompt_ids\": [], \"completion_ids\": [2], \"reward\": 1}", "field 'prompt_ids'" },
    { "{\"completion_ids\": [2], \"reward\": 1}", "field 'prompt_ids' | a list" },
    { "{\"prompt_ids\": [1], \"completion_ids\": [2], \"reward\": 1, \"logps\": [-1, -1]}",
      "field 'logps' | a number for each token of the completion | 2 for 1" },
    { "{\"prompt_ids\": [1], \"completion_ids\": [2], \"reward\": 1, \"logps\": [0.5]}",
      "field 'logps' | logarithms of probabilities" },
    { "{\"prompt_ids\": [1], \"completion_ids\": [2], \"reward\": 1, \"truncated\": 1}",
      "field 'truncated'" },
    { "{\"prompt_ids\": [1], \"completion_ids\": [2], \"reward\": 1, \"group\": -1}",
      "field 'group'" },
    { "{\"prompt_ids\": [1], \"completion_ids\": [2], \"reward\": 1, \"group\": 9007199254740993}",
      "field 'group' | a number from 0 to 2^53" },
    { "[1]", "an object with" },
};

TEST(test_rollout__bad_records_are_named)
{
    sheaf_data *data;
    char text[400];
    for (size_t i = 0; i < ARRAY_LEN(refused); i++) {
        CHECK_FAILS(open_rollouts(&data, refused[i].text, SHEAF_BAD_ERROR), SHEAF_E_DATA,
                    refused[i].says);
        snprintf(text, sizeof text,
                 "%s\n{\"prompt\": \"a\", \"completion\": \"b\", \"reward\": 1}\n",
                 refused[i].text);
        if (refused[i].text[0] == '[')
            continue;
        CHECK_OK(open_rollouts(&data, text, SHEAF_BAD_SKIP));
        assert_int_equal(sheaf_data_rows(data), 1);
        sheaf_data_close(data);
    }
}

FIXTURE(make_scratch, remove_scratch);
