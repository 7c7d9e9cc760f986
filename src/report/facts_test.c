/* facts_test.c - what is told of a run's folder, whole, in parts and hostile; and the page about
 * it. */
#include <sys/stat.h>
#include <unistd.h>

#include "tests/files.h"
#include "tests/parts.h"

#include "report/facts.h"
#include "report/page.h"

/* Quotes are ' in place of ", in files and in what is wanted: texts in this order, divided by *. */
static const struct {
    const char *name, *metrics, *run, *settings; /* of the files; NULL: there is none */
    const char *want, *warned;
} rows[] = {
    { "a line", "{'step': 1, 'loss': 2.5, 'lr': 0.5, 'tokens': 10, 'tokens_per_s': 100}\n", NULL,
      NULL,
      "'name': 'run', 'path': *'starts': [], 'settings': [], 'state': 'not running', 'steps': 0, "
      "'last_step': 1, 'tokens': 10, 'seconds': 0.1, 'skipped': 0, 'merged': 1, 'points': {'step': "
      "[1], 'loss': [2.5]*'lr': [0.5]*'tokens_per_s': [100]}, 'evaluations': {'step': []*'ranks': "
      "[], 'odd': []",
      "" },
    { "a run that is done", "{'step': 2, 'loss': 1}\n",
      "{'runs': [{'started': 'then', 'host': 'n1', 'cpu': 'x', 'version': '0', 'transport': "
      "'threads', 'step': 0, 'steps': 2, 'ranks': 3, 'threads': 0, 'command': ['sheaf', 'a b']}]}",
      "# by: hand\nlr: 0.5\nno setting\nmodel:   a: b\n",
      "'starts': [{'started': 'then', 'host': 'n1', 'cpu': 'x', 'version': '0', 'transport': "
      "'threads', 'step': 0, 'steps': 2, 'ranks': 3, 'threads': 0, 'command': 'sheaf 'a b''}], "
      "'settings': [['lr', '0.5'], ['model', 'a: b']], 'state': 'done', 'steps': 2",
      "" },
    { "an evaluation, and ranks",
      "{'step': 1, 'loss': 1, 'ranks': [{'compute': 1, 'sent': 8}, {'wait': 2}]}\n"
      "{'step': 1, 'eval_loss': 1.5, 'eval_accuracy': 0.25, 'eval_tokens': 7}\n",
      NULL, NULL,
      "'evaluations': {'step': [1], 'loss': [1.5], 'accuracy': [0.25], 'tokens': [7]*'samples': [], 'kinds': ['"
      "*'ranks_since': 1, 'ranks_steps': 1, 'ranks': [{'compute': 1, 'wait': 0*'sent': 8*{'compute': "
      "0, 'wait': 2",
      "" },
    { "rewards",
      "{'step': 1, 'loss': 1, 'reward': 0.5, 'entropy': 2}\n{'step': 1, 'eval_loss': -1, 'eval_reward': 1}\n",
      NULL, NULL, "'reward': [0.5]*'entropy': [2]*'evaluations'*'reward': [1]", "" },
    { "settings alone", NULL, NULL, "lr: 1\n",
      "'settings': [['lr', '1']]*'last_step': 0*'step': []", "" },
    { "texts and words of other kinds", "{'step': 1, 'loss': 1, 'lr': 'x'}\n",
      "{'runs': [3, {'host': 7, 'steps': -4, 'command': ['</script>', 7]}]}", NULL,
      "'starts': [{}, {'steps': -4, 'command': ''</script>' '?''}]*'lr': [null]", "" },
    { "no list of starts", "", "{'runs': 5}", NULL, "'starts': []",
      "run.json: no list of starts in it" },
    { "no JSON", "", "{", NULL, "'starts': []*'odd': ['run.json", "run.json" },
    { "odd lines",
      "{'step': 1, 'loss': 2.5}\n{'step': 2, 'loss': null}\n{'step': 2, 'loss': 1}\n[]\n\n\001\n"
      "{'eval_loss': 1}\n{'step': 4, 'loss': 1.25}\n{'step': 5, 'lo",
      NULL, NULL,
      "'last_step': 4*'loss': [2.5, null, 1.25]*'odd': ['metrics.jsonl: line 3: a step before*line 4: "
      "neither*line 5: no JSON*line 6: no JSON*line 7*its last line is cut off",
      "line 3: a step before*line 7*cut off" },
};

static void put_file(const char *dir, const char *name, const char *text)
{
    char path[SHEAF_PATH_SIZE], bytes[2000];
    unlink(sheaf__path_in(path, dir, name));
    if (text == NULL)
        return;
    snprintf(bytes, sizeof bytes, "%s", text);
    swap_quotes(bytes, '\'', '"');
    put(path, bytes);
}

static void hear(void *context, const sheaf_event *event)
{
    sheaf__text_add(context, "%s\n", event->text);
}

/* The list of the one run in folder `path`, as JSON. */
static char *facts_of(const char *path, sheaf_text *warned)
{
    const sheaf_events events = { .emit = hear, .context = warned };
    sheaf_json_writer j = { .compact = false };
    sheaf__report_run run = { 0 };
    char *json;
    sheaf__json_open(&j, NULL, '[');
    CHECK_OK(sheaf__report_facts(&j, &run, path, &events));
    sheaf__json_close(&j, ']');
    sheaf__report_run_release(&run);
    CHECK_OK(sheaf__text_take(&json, &j.text));
    return json;
}

TEST(test_facts__are_what_the_files_say)
{
    const char *dir = at("run");
    assert_int_equal(mkdir(dir, 0700), 0);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        sheaf_text warned = { 0 };
        put_file(dir, "metrics.jsonl", rows[i].metrics);
        put_file(dir, "run.json", rows[i].run);
        put_file(dir, "settings", rows[i].settings);
        sheaf__text_add(&warned, "%s", "");
        char *json = facts_of(dir, &warned);
        swap_quotes(json, '"', '\'');
        if (!has_parts(json, rows[i].want))
            fail_msg("%s: %s", rows[i].name, json);
        if (!has_parts(warned.at, rows[i].warned) || (rows[i].warned[0] == '\0' && warned.size > 0))
            fail_msg("%s: warned '%s'", rows[i].name, warned.at);
        free(json);
        sheaf__text_release(&warned);
    }
}

TEST(test_facts__need_a_run)
{
    sheaf_json_writer j = { 0 };
    sheaf__report_run run = { 0 };
    const sheaf_events silent = { 0 };
    assert_int_equal(mkdir(at("empty"), 0700), 0);
    CHECK_FAILS(sheaf__report_facts(&j, &run, at("empty"), &silent), SHEAF_E_ARG,
                "without metrics.jsonl");
    CHECK_FAILS(sheaf__report_facts(&j, &run, at("nowhere"), &silent), SHEAF_E_ARG,
                "the folder of a run");
}

/* A run's texts stay text. */
TEST(test_page__holds_its_data_as_text)
{
    static const char evil[] = "[\"</script><script>x</script><!--<img src=x>&amp;\"]";
    char *html;
    CHECK_OK(sheaf__report_page(&html, evil));
    assert_int_equal(sheaf__text_count(html, "</script>"), 2);
    assert_int_equal(sheaf__text_count(html, "<script>"), 1);
    assert_true(strstr(html, "<!--") == NULL && strstr(html, "<img") == NULL);
    assert_non_null(strstr(html,
                           "[\"\\u003c/script\\u003e\\u003cscript\\u003ex\\u003c/script"
                           "\\u003e\\u003c!--\\u003cimg src=x\\u003e\\u0026amp;\"]</script>"));
    assert_int_equal(sheaf__text_count(html, "src="), 1); /* that of the data */
    assert_true(strstr(html, "default-src 'none'") < strstr(html, "<style>"));
    assert_string_equal(html + strlen(html) - 8, "</html>\n");
    free(html);
}

FIXTURE(make_scratch, remove_scratch);
