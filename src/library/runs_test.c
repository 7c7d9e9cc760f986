/* runs_test.c - a second program trains, goes on with, evaluates, asks, exports and merges a run by
 * the path of its folder. */
#include <pthread.h>

#include "sheaf/sheaf.h"
#include "tests/tiny_llama.h"

static sheaf_run_train_options run_of(const char *out, int64_t steps)
{
    sheaf_run_train_options how = {
        .size = sizeof how, .model = model, .data = data, .out = out, .steps = steps, .threads = 2
    };
    how.settings =
        "lora-rank: 4\nlora-targets: all-linear\nlr: 1e-2\nschedule: constant\nseed: 7\n";
    return how;
}

/* The model at `path`, on so many ranks. */
static sheaf_model *opened(const char *path, const char *adapter, int tp, int64_t positions)
{
    sheaf_model *m;
    sheaf_model_open_options how = { .size = sizeof how,
                                     .model = path,
                                     .adapter = adapter,
                                     .tp = tp,
                                     .threads = 2,
                                     .positions = positions };
    how.late = positions == 0; /* loaded when it is first asked */
    CHECK_OK(sheaf_model_open(&m, &how));
    return m;
}

static void check_same(const char *a, const char *b)
{
    sheaf_weights_diff_report report = { .size = sizeof report };
    CHECK_OK(sheaf_weights_diff(&report, a, b, NULL));
    assert_true(report.tensors > 0);
    assert_int_equal(report.different, 0);
}

static int64_t lines_of(const char *path)
{
    const char *text = file_text(path, NULL);
    int64_t n = 0;
    for (const char *c = text; *c != '\0'; c++)
        n += *c == '\n';
    return n;
}

static bool until_second(void *context, const sheaf_event_step *step)
{
    ++*(int *)context;
    return step->step < 2;
}

TEST(test_train__stopped_and_gone_on_with_gives_the_same_adapter)
{
    int heard = 0;
    sheaf_run_train_options how = run_of(at("whole"), 4);
    sheaf_run_train_report whole = { .size = sizeof whole };
    sheaf_run_train_report rest = { .size = sizeof rest };
    CHECK_OK(sheaf_run_train(&whole, &how));
    assert_true(whole.step == 4 && whole.first == 0 && whole.adapter && whole.trained > 0);
    assert_int_equal(lines_of(at("whole/metrics.jsonl")), 4);
    how = run_of(at("part"), 4);
    how.step = until_second;
    how.context = &heard;
    CHECK_FAILS(sheaf_run_train(NULL, &how), SHEAF_E_STOPPED, "after step 2");
    assert_int_equal(heard, 2);
    SHEAF_INIT(&how);
    how.out = at("part");
    how.resume = true;
    how.tp = 3;
    CHECK_OK(sheaf_run_train(&rest, &how));
    assert_true(rest.step == 4 && rest.first == 2 && rest.loss == whole.loss);
    assert_int_equal(lines_of(at("part/metrics.jsonl")), 4);
    check_same(at("whole/adapter"), at("part/adapter"));
    assert_non_null(strstr(rest.json, "\"resumed_at\":2,"));
    assert_non_null(strstr(rest.text, "4 steps done, last loss "));
    sheaf_run_train_report_release(&whole);
    sheaf_run_train_report_release(&rest);
}

/* A program that was compiled before the report had texts has none to release. */
TEST(test_train__gives_texts_to_who_knows_them)
{
    sheaf_run_train_options how = run_of(at("before"), 1);
    sheaf_run_train_report report = { .size = sizeof report };
    report.size = offsetof(sheaf_run_train_report, json);
    report.json = report.text = (char *)&how;
    CHECK_OK(sheaf_run_train(&report, &how));
    assert_true(report.step == 1 && report.json == (char *)&how && report.text == (char *)&how);
}

/* At a rate that is far too high nothing gets better for long. */
TEST(test_train__tells_what_evaluations_said)
{
    sheaf_run_train_options how = run_of(at("judged"), 9);
    sheaf_run_train_report report = { .size = sizeof report };
    how.settings = "lora-rank: 4\nlr: 3\nschedule: constant\n"
                   "eval-split: 0.5\neval-every: 1\npatience: 2\n";
    CHECK_OK(sheaf_run_train(&report, &how));
    assert_true(report.evaluated && report.eval_loss > report.best_loss);
    assert_true(report.early && report.best_step >= 1 && report.step == report.best_step + 2);
    assert_int_equal(lines_of(at("judged/metrics.jsonl")), 2 * report.step);
    sheaf_run_train_report_release(&report);
}

TEST(test_train__a_control_stops_it)
{
    sheaf_run_train_options how = run_of(at("controlled"), 4);
    CHECK_OK(sheaf_control_new(&how.control));
    sheaf_control_stop(how.control);
    CHECK_FAILS(sheaf_run_train(NULL, &how), SHEAF_E_STOPPED, "");
    sheaf_control_free(how.control);
}

/* The control is of others, too: only who has it says that they stop. */
TEST(test_train__a_step_that_ends_it_leaves_the_control)
{
    int heard = 0;
    sheaf_run_train_options how = run_of(at("enough"), 4);
    CHECK_OK(sheaf_control_new(&how.control));
    how.step = until_second;
    how.context = &heard;
    CHECK_FAILS(sheaf_run_train(NULL, &how), SHEAF_E_STOPPED, "after step 2");
    how.step = NULL;
    how.resume = true;
    CHECK_OK(sheaf_run_train(NULL, &how));
    sheaf_control_free(how.control);
}

TEST(test_train__says_what_cannot_be)
{
    sheaf_run_train_options how = run_of(at("none"), 4);
    how.settings = "lorarank: 4\n";
    CHECK_FAILS(sheaf_run_train(NULL, &how), SHEAF_E_ARG, "settings:1: 'lorarank'");
    how.settings = "dtype: float12\n";
    CHECK_FAILS(sheaf_run_train(NULL, &how), SHEAF_E_ARG, "float32, bfloat16 or float16");
    how.settings = NULL;
    how.data = NULL;
    CHECK_FAILS(sheaf_run_train(NULL, &how), SHEAF_E_ARG, "`data` is missing");
    how.resume = true;
    CHECK_FAILS(sheaf_run_train(NULL, &how), SHEAF_E_ARG, "nothing there");
    how = run_of(at("whole"), 9);
    how.resume = true;
    how.settings = "lora-rank: 5\n";
    CHECK_FAILS(sheaf_run_train(NULL, &how), SHEAF_E_ARG, "cannot change");
    how = run_of(at("none"), 4);
    how.threads = 1000000000;
    CHECK_FAILS(sheaf_run_train(NULL, &how), SHEAF_E_ARG, "at most 4096 | 1000000000");
    how.threads = -1;
    CHECK_FAILS(sheaf_run_train(NULL, &how), SHEAF_E_ARG, "at most 4096 | -1");
    how = run_of("", 4);
    CHECK_FAILS(sheaf_run_train(NULL, &how), SHEAF_E_ARG, "`out` | a path");
    assert_int_equal(sheaf__path_kind(at("none")), SHEAF_PATH_NONE);
}

static sheaf_model_evaluate_report evaluate(const char *path, const char *adapter, int tp)
{
    sheaf_model *m = opened(path, adapter, tp, 0);
    sheaf_model_evaluate_options how = { .size = sizeof how, .data = data };
    sheaf_model_evaluate_report report = { .size = sizeof report };
    CHECK_OK(sheaf_model_evaluate(&report, m, &how));
    assert_true(report.tokens > 0);
    sheaf_model_close(m);
    return report;
}

TEST(test_evaluate__a_run_is_its_base_with_its_adapter)
{
    const sheaf_model_evaluate_report base = evaluate(model, NULL, 1),
                                      run = evaluate(at("whole"), NULL, 1),
                                      both = evaluate(model, at("whole/adapter"), 1),
                                      three = evaluate(at("whole"), NULL, 3);
    assert_true(run.loss < base.loss && run.loss == both.loss && run.loss == three.loss);
    assert_true(run.tokens == base.tokens && run.correct == three.correct);
}

typedef struct seen {
    int64_t rows, positions;
    float first;
} seen;

static sheaf_status *see(void *context, int64_t row, int64_t position, const float *logits,
                         int64_t vocab)
{
    seen *s = context;
    s->rows = row + 1;
    if (row == 0 && position == 0)
        s->first = logits[vocab - 1];
    s->positions++;
    return row < 1 ? NULL : sheaf_fail(SHEAF_E_DATA, "enough");
}

TEST(test_evaluate__hands_out_logits)
{
    seen s = { 0 };
    sheaf_model *m = opened(model, NULL, 1, 0);
    sheaf_model_evaluate_options how = { .size = sizeof how };
    CHECK_FAILS(sheaf_model_evaluate(NULL, m, &how), SHEAF_E_ARG, "data, specials");
    how.data = data;
    how.take = see;
    how.context = &s;
    how.micro_batch = 1;
    CHECK_FAILS(sheaf_model_evaluate(NULL, m, &how), SHEAF_E_DATA, "enough");
    how.loss_on = (sheaf_loss_on)5;
    CHECK_FAILS(sheaf_model_evaluate(NULL, m, &how), SHEAF_E_ARG, "loss_on | 0 to 4 | 5");
    how.loss_on = SHEAF_LOSS_UNNAMED;
    how.seq = INT64_C(1) << 62;
    CHECK_FAILS(sheaf_model_evaluate(NULL, m, &how), SHEAF_E_ARG, "seq | 0 to 100000000");
    how.seq = 0;
    how.specials = 2;
    CHECK_FAILS(sheaf_model_evaluate(NULL, m, &how), SHEAF_E_ARG, "specials from -1 to 1");
    sheaf_model_close(m);
    assert_true(s.rows == 2 && s.positions > 2 && s.first != 0);
}

/* Of an answer to tokens, or to `text`. */
static sheaf_model_generate_options asking(const char *text, const int32_t *tokens, int64_t ntokens,
                                           int64_t max_new)
{
    sheaf_model_generate_options how = {
        .size = sizeof how, .text = text, .tokens = tokens, .ntokens = ntokens, .max_new = max_new
    };
    return how;
}

static void count_tokens(void *context, int32_t token)
{
    *(int64_t *)context += token >= 0;
}

static void ask(int32_t *out, int64_t n, sheaf_model *m, double temperature)
{
    static const int32_t prompt[] = { 5, 6, 7 };
    sheaf_model_generate_options how = asking(NULL, prompt, 3, n);
    sheaf_answer *answer;
    int64_t got, told = 0;
    how.on_token = count_tokens;
    how.context = &told;
    how.temperature = temperature;
    how.seed = 3;
    CHECK_OK(sheaf_model_generate(&answer, m, &how));
    const int32_t *ids = sheaf_answer_tokens(answer, &got);
    assert_true(got > 0 && got <= n && told == got);
    memset(out, 0xff, (size_t)n * sizeof *out);
    memcpy(out, ids, (size_t)got * sizeof *out);
    assert_null(sheaf_answer_text(answer)); /* this model has no tokenizer */
    sheaf_answer_free(answer);
}

static const char *const stop_text[] = { "the end" }; /* the model has no text */
static const struct {
    const char *text;
    int64_t tokens, max_new;
    const char *const *stop;
    int64_t nstop, nimages;
    sheaf_code code;
    const char *says;
} refused[] = {
    { NULL, 1, 64, NULL, 0, 0, SHEAF_E_DATA, "at most 64" },
    { NULL, 1, 10000001, NULL, 0, 0, SHEAF_E_ARG, "max_new | 0 to 10000000 | 10000001" },
    { NULL, 1, 1, NULL, 1, 0, SHEAF_E_ARG, "nstop texts" },
    { NULL, 1, 1, stop_text, 1, 0, SHEAF_E_UNSUPPORTED, ": stop: " },
    { "both", 1, 1, NULL, 0, 0, SHEAF_E_ARG, "a text, or tokens" },
    { "both", 0, 1, NULL, 0, 1, SHEAF_E_ARG, "nimages of images" },
};

TEST(test_generate__says_the_same_on_any_number_of_ranks)
{
    int32_t one[8], again[8], drawn[8], other[8];
    for (int tp = 1; tp <= 3; tp += 2) {
        sheaf_model *m = opened(at("whole"), NULL, tp, 64);
        ask(tp == 1 ? one : again, 8, m, 0);
        ask(tp == 1 ? drawn : other, 8, m, 5);
        ask(again, 8, m, 0); /* earlier requests change nothing */
        CHECK_BYTES("greedy", again, one, sizeof one);
        for (size_t i = 0; i < ARRAY_LEN(refused); i++) {
            sheaf_answer *answer;
            sheaf_model_generate_options how =
                asking(refused[i].text, refused[i].tokens ? one : NULL, refused[i].tokens,
                       refused[i].max_new);
            how.stop = refused[i].stop;
            how.nstop = refused[i].nstop;
            how.nimages = refused[i].nimages;
            CHECK_FAILS(sheaf_model_generate(&answer, m, &how), refused[i].code, refused[i].says);
        }
        sheaf_model_generate_options fits = asking(NULL, one, 1, 64);
        sheaf_answer *answer;
        int64_t got;
        fits.as_long_as_fits = true;
        CHECK_OK(sheaf_model_generate(&answer, m, &fits));
        sheaf_answer_tokens(answer, &got);
        assert_int_equal(got, 63);
        sheaf_answer_free(answer);
        sheaf_model_close(m);
    }
    CHECK_BYTES("drawn", other, drawn, sizeof drawn);
    assert_memory_not_equal(drawn, one, sizeof one);
    sheaf_model_close(NULL);
    sheaf_answer_free(NULL);
}

TEST(test_generate__a_control_ends_the_answer)
{
    static const int32_t prompt[] = { 5 };
    sheaf_model_generate_options asked = asking(NULL, prompt, 1, 0);
    sheaf_answer *answer;
    sheaf_model *m = opened(model, NULL, 2, 4096);
    CHECK_OK(sheaf_control_new(&asked.control));
    sheaf_control_stop(asked.control);
    CHECK_FAILS(sheaf_model_generate(&answer, m, &asked), SHEAF_E_STOPPED, "");
    assert_null(answer);
    sheaf_control_free(asked.control);
    asked.control = NULL;
    CHECK_OK(sheaf_model_generate(&answer, m, &asked)); /* the model is still there */
    sheaf_answer_free(answer);
    sheaf_model_close(m);
}

typedef struct nested {
    sheaf_model *m;
    int64_t refused;
} nested;

static void ask_again(void *context, int32_t token)
{
    nested *n = context;
    const sheaf_model_generate_options how = asking(NULL, &token, 1, 0);
    sheaf_answer *answer;
    sheaf_status *st = sheaf_model_generate(&answer, n->m, &how);
    n->refused += st != NULL && sheaf_status_code(st) == SHEAF_E_ARG && answer == NULL;
    sheaf_status_free(st);
}

TEST(test_generate__its_own_answer_cannot_ask_it)
{
    static const int32_t prompt[] = { 5, 6, 7 };
    sheaf_model_generate_options how = asking(NULL, prompt, 3, 4);
    sheaf_answer *answer;
    nested n = { .m = opened(model, NULL, 2, 4096) };
    int64_t got;
    how.on_token = ask_again;
    how.context = &n;
    CHECK_OK(sheaf_model_generate(&answer, n.m, &how));
    sheaf_answer_tokens(answer, &got);
    assert_true(got > 0 && n.refused == got);
    sheaf_answer_free(answer);
    sheaf_model_close(n.m);
}

static void say(char *out, size_t size, sheaf_chat *chat, const char *question)
{
    const sheaf_model_generate_options how = asking(NULL, NULL, 0, 12);
    sheaf_answer *answer;
    int64_t n;
    CHECK_OK(sheaf_chat_ask(&answer, chat, question, &how));
    assert_non_null(sheaf_answer_text(answer));
    sheaf_answer_tokens(answer, &n);
    assert_true(n > 0 && n <= 12);
    snprintf(out, size, "%s", sheaf_answer_text(answer));
    sheaf_answer_free(answer);
}

TEST(test_chat__remembers_until_it_is_reset)
{
    static const char question[] = "What is in this picture then?";
    char first[2][200], again[200];
    sheaf_weights_init_options make = {
        .size = sizeof make, .spec = "tiny-bytes", .dst = at("bytes"), .seed = 5
    };
    CHECK_OK(sheaf_weights_init(NULL, &make));
    for (int tp = 1; tp <= 2; tp++) {
        sheaf_model_generate_options both = asking(NULL, NULL, 0, 12);
        sheaf_answer *answer;
        sheaf_model *m = opened(at("bytes"), NULL, tp, 80); /* one question, and its answer */
        sheaf_chat *chat, *other;
        CHECK_OK(sheaf_chat_open(&chat, m, NULL));
        CHECK_OK(sheaf_chat_open(&other, m, NULL));
        say(first[tp - 1], 200, chat, question);
        CHECK_FAILS(sheaf_chat_ask(&answer, chat, question, &both), SHEAF_E_DATA, "80");
        say(again, 200, other, question); /* it knows nothing of the first */
        assert_string_equal(again, first[tp - 1]);
        both.text = "a text";
        CHECK_FAILS(sheaf_chat_ask(&answer, chat, "Why?", &both), SHEAF_E_ARG, "the chat has them");
        CHECK_FAILS(sheaf_chat_ask(&answer, chat, NULL, NULL), SHEAF_E_ARG, "a question | NULL");
        CHECK_FAILS(sheaf_chat_save(chat, NULL), SHEAF_E_ARG, "a path | NULL");
        CHECK_FAILS(sheaf_chat_load(chat, NULL), SHEAF_E_ARG, "a path | NULL");
        CHECK_FAILS(sheaf_chat_show(chat, at("none.png")), SHEAF_E_UNSUPPORTED, "");
        sheaf_chat_reset(chat);
        say(again, 200, chat, question);
        sheaf_chat_close(chat);
        sheaf_chat_close(other);
        sheaf_chat_close(NULL);
        sheaf_model_close(m);
    }
    assert_string_equal(first[0], first[1]);
    sheaf_model *m = opened(model, NULL, 1, 0);
    sheaf_chat *chat;
    CHECK_FAILS(sheaf_chat_open(&chat, m, NULL), SHEAF_E_UNSUPPORTED, "");
    assert_null(chat);
    sheaf_model_close(m);
}

/* ---- what comes with an answer ---- */

typedef struct heard {
    char text[3][400];
    int pieces;
} heard;

static void hear(void *context, int64_t prompt, const char *text)
{
    heard *h = context;
    strcat(h->text[prompt], text);
    h->pieces++;
}

/* In `one`, on one rank, the answers of three prompts each alone; else the same together. */
static void check_together(sheaf_answer *one[3], int tp)
{
    static const int32_t ids[] = { 'h', 'i' };
    static const char *const stop[] = { "zzzzzzzz", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD" };
    sheaf_model_generate_options how = asking(NULL, NULL, 0, 24);
    sheaf_model_prompt prompt[3];
    sheaf_answer *all[3];
    sheaf_model *m = opened(at("bytes"), NULL, tp, tp > 1 ? 0 : 4096);
    heard h = { 0 };
    for (int i = 0; i < 3; i++)
        SHEAF_INIT(&prompt[i]);
    prompt[0].text = "a question of some length";
    prompt[1].tokens = ids;
    prompt[1].ntokens = 2;
    prompt[2].messages = "[{\"role\": \"user\", \"content\": \"b\"}]";
    how.stop = stop;
    how.nstop = 2;
    how.logprobs = true;
    how.top_logprobs = 2;
    how.batch = tp;
    how.on_text = hear;
    how.context = &h;
    CHECK_OK(sheaf_model_generate_all(all, m, prompt, 3, &how));
    for (int i = 0; i < 3; i++) {
        const float *a = sheaf_answer_logprobs(all[i]), *b, *of;
        int64_t n, n1, best;
        const int32_t *tokens = sheaf_answer_tokens(all[i], &n);
        assert_string_equal(h.text[i], sheaf_answer_text(all[i])); /* joined it is the answer */
        for (int64_t j = 0; j < n; j++) {
            const int32_t *top = sheaf_answer_top(all[i], j, &best, &of);
            assert_true(best == 2 && top[0] == tokens[j] && of[0] == a[j] && of[1] <= of[0]);
        }
        assert_null(sheaf_answer_top(all[i], n, &best, &of));
        if (one[i] == NULL) {
            how.on_text = NULL;
            CHECK_OK(sheaf_model_generate_all(&one[i], m, &prompt[i], 1, &how));
        }
        CHECK_BYTES("tokens", tokens, sheaf_answer_tokens(one[i], &n1), (size_t)n * 4);
        b = sheaf_answer_logprobs(one[i]);
        CHECK_BYTES("logprobs", a, b, (size_t)n * sizeof *a);
        assert_int_equal(n, n1);
        assert_int_equal(sheaf_answer_ending(all[i]), sheaf_answer_ending(one[i]));
        sheaf_answer_free(all[i]);
    }
    prompt[1].ntokens = 0;
    CHECK_FAILS(sheaf_model_generate_all(all, m, prompt, 3, &how), SHEAF_E_ARG, "prompt 2");
    assert_true(all[0] == NULL && all[2] == NULL);
    how.top_logprobs = 3;
    how.logprobs = false;
    CHECK_FAILS(sheaf_model_generate_all(all, m, prompt, 1, &how), SHEAF_E_ARG, "for top_logprobs");
    how.top_logprobs = 0;
    how.system = "Be brief.";
    CHECK_FAILS(sheaf_model_generate_all(all, m, prompt, 1, &how), SHEAF_E_UNSUPPORTED,
                "a system message");
    sheaf_model_close(m);
}

TEST(test_generate__prompts_together_are_as_alone)
{
    sheaf_answer *one[3] = { NULL };
    for (int tp = 1; tp <= 3; tp++)
        check_together(one, tp);
    for (int i = 0; i < 3; i++)
        sheaf_answer_free(one[i]);
}

static void *ask_once(void *m)
{
    const sheaf_model_generate_options how = asking("What?", NULL, 0, 8);
    sheaf_answer *answer;
    CHECK_OK(sheaf_model_generate(&answer, m, &how));
    return answer;
}

/* One of them loads the model, the others wait for it. */
TEST(test_generate__several_threads_ask_a_late_model_first)
{
    enum { ASKING = 4, TIMES = 5 };
    for (int time = 0; time < TIMES; time++) {
        sheaf_model *m = opened(at("bytes"), NULL, 2, 0);
        pthread_t asking[ASKING];
        void *answer[ASKING];
        for (int i = 0; i < ASKING; i++)
            assert_int_equal(pthread_create(&asking[i], NULL, ask_once, m), 0);
        for (int i = 0; i < ASKING; i++)
            pthread_join(asking[i], &answer[i]);
        for (int i = 0; i < ASKING; i++) {
            assert_string_equal(sheaf_answer_text(answer[i]), sheaf_answer_text(answer[0]));
            if (i > 0)
                sheaf_answer_free(answer[i]);
        }
        sheaf_answer_free(answer[0]);
        sheaf_model_close(m);
    }
}

TEST(test_generate__a_text_ends_it)
{
    sheaf_model_generate_options how = asking("What?", NULL, 0, 40);
    sheaf_answer *whole, *cut;
    sheaf_model *m = opened(at("bytes"), NULL, 1, 0);
    heard h = { 0 };
    CHECK_OK(sheaf_model_generate(&whole, m, &how));
    const char *text = sheaf_answer_text(whole);
    char end[8] = "";
    size_t from =
        strlen(text) / 2; /* some characters from the middle, which end it where they come first */
    while ((text[from] & 0xC0) == 0x80)
        from++;
    size_t to = from + 3;
    while ((text[to] & 0xC0) == 0x80)
        to++;
    memcpy(end, text + from, to - from);
    const char *const stop[] = { end };
    how.stop = stop;
    how.nstop = 1;
    how.on_text = hear;
    how.context = &h;
    CHECK_OK(sheaf_model_generate(&cut, m, &how));
    const size_t first = (size_t)(strstr(text, end) - text);
    assert_int_equal(sheaf_answer_ending(cut), SHEAF_ENDS_TEXT);
    assert_true(strlen(sheaf_answer_text(cut)) == first &&
                memcmp(sheaf_answer_text(cut), text, first) == 0);
    assert_string_equal(h.text[0], sheaf_answer_text(cut));
    sheaf_answer_free(whole);
    sheaf_answer_free(cut);
    sheaf_model_close(m);
}

TEST(test_chat__is_saved_and_goes_on)
{
    sheaf_model *m = opened(at("bytes"), NULL, 1, 4096);
    sheaf_chat *chat, *other;
    const char *role;
    char *path = strdup(at("talk.json")), first[200], second[200];
    CHECK_OK(sheaf_chat_open(&chat, m, NULL));
    CHECK_FAILS(sheaf_chat_save(chat, path), SHEAF_E_ARG, "the conversation is empty");
    say(first, 200, chat, "One?");
    CHECK_OK(sheaf_chat_save(chat, path));
    CHECK_OK(sheaf_chat_open(&other, m, NULL));
    CHECK_OK(sheaf_chat_load(other, path));
    say(first, 200, chat, "Two?");
    say(second, 200, other, "Two?"); /* of a sequence of its own, greedily the same */
    assert_string_equal(first, second);
    assert_string_equal(sheaf_chat_said(other, 2, &role), "Two?");
    assert_string_equal(role, "user");
    assert_string_equal(sheaf_chat_said(other, 3, NULL), second);
    assert_null(sheaf_chat_said(other, 4, &role));
    CHECK_FAILS(sheaf_chat_system(chat, "Be brief."), SHEAF_E_UNSUPPORTED, "a system message");
    assert_non_null(sheaf_chat_said(chat, 3, NULL));
    CHECK_OK(sheaf_chat_system(chat, NULL));
    assert_null(sheaf_chat_said(chat, 0, NULL));
    sheaf_chat_close(chat);
    sheaf_chat_close(other);
    sheaf_model_close(m);
    free(path);
}

TEST(test_open__a_model_that_is_none)
{
    sheaf_model *m;
    sheaf_model_open_options how = { .size = sizeof how, .model = at("nowhere") };
    CHECK_FAILS(sheaf_model_open(&m, &how), SHEAF_E_IO, "nowhere");
    assert_null(m);
    how.model = model;
    how.tp = 9;
    CHECK_FAILS(sheaf_model_open(&m, &how), SHEAF_E_ARG, "");
    how.tp = 1;
    how.dtype = SHEAF_F64;
    CHECK_FAILS(sheaf_model_open(&m, &how), SHEAF_E_ARG, "float32, bfloat16 or float16");
}

TEST(test_plan__more_ranks_need_less_each)
{
    sheaf_needs *one, *four;
    sheaf_run_train_options how = { .size = sizeof how, .model = model };
    sheaf_needs_facts a = { .size = sizeof a };
    sheaf_needs_facts b = { .size = sizeof b };
    sheaf_needs_rank_facts rank = { .size = sizeof rank };
    CHECK_OK(sheaf_run_plan(&one, &how, NULL));
    how.tp = 4;
    CHECK_OK(sheaf_run_plan(&four, &how, NULL));
    CHECK_OK(sheaf_needs_info(&a, one));
    CHECK_OK(sheaf_needs_info(&b, four));
    assert_true(a.ranks == 1 && b.ranks == 4 && a.fullest > b.fullest && b.fullest > 0);
    CHECK_OK(sheaf_needs_rank(&rank, four, 3));
    assert_true(rank.peak > 0 && rank.peak <= b.fullest && rank.sent > 0);
    CHECK_FAILS(sheaf_needs_rank(&rank, four, 4), SHEAF_E_ARG, "0 to 3");
    assert_string_equal(sheaf_needs_kind(0), "weights");
    assert_true(sheaf_needs_bytes(one, 0, 0) > sheaf_needs_bytes(four, 0, 0));
    assert_int_equal(sheaf_needs_bytes(one, 1, 0), 0);
    assert_null(sheaf_needs_kind(-1));
    sheaf_needs_free(one);
    sheaf_needs_free(four);
    sheaf_model_open_options open = { .size = sizeof open };
    open.model = at("whole"); /* a run: its base */
    CHECK_OK(sheaf_model_plan(&one, &open, NULL));
    CHECK_OK(sheaf_needs_info(&b, one));
    assert_true(b.trained == 0 && b.parameters == a.parameters && b.fullest > 0);
    sheaf_needs_free(one);
    SHEAF_INIT(&open);
    CHECK_FAILS(sheaf_model_plan(&one, &open, NULL), SHEAF_E_ARG, "a model, or a config");
}

/* The plan refuses as sheaf_model_open() does, and has as many ranks. */
TEST(test_plan__a_model_as_it_would_be_opened)
{
    sheaf_model_open_options how, bad[7];
    sheaf_needs *needs;
    sheaf_model *m;
    SHEAF_INIT(&how);
    sheaf_needs_facts facts = { .size = sizeof facts };
    sheaf_plan_options ask = { .size = sizeof ask };
    how.model = model;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        bad[i] = how;
    bad[0].tp = -1;
    bad[1].dp = -1;
    bad[2].threads = -1;
    bad[3].positions = -1;
    bad[4].slices = -8;
    bad[5].threads = INT32_MAX;
    bad[6].positions = INT64_C(1) << 62;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        CHECK_FAILS(sheaf_model_open(&m, &bad[i]), SHEAF_E_ARG, "sheaf_model_open_options");
        CHECK_FAILS(sheaf_model_plan(&needs, &bad[i], NULL), SHEAF_E_ARG,
                    "sheaf_model_open_options");
        assert_null(needs);
    }
    how.tp = 2;
    how.dp = 3;
    CHECK_OK(sheaf_model_plan(&needs, &how, NULL));
    CHECK_OK(sheaf_needs_info(&facts, needs));
    assert_int_equal(facts.ranks, 6);
    sheaf_needs_free(needs);
    ask.time = true;
    CHECK_FAILS(sheaf_model_plan(&needs, &how, &ask), SHEAF_E_ARG, "dp | one group");
}

/* Never how long. */
TEST(test_timing__adds_up)
{
    sheaf_needs *needs;
    sheaf_run_train_options run = { .size = sizeof run };
    sheaf_model_open_options open = { .size = sizeof open };
    sheaf_plan_options how = { .size = sizeof how };
    sheaf_timing_facts a = { .size = sizeof a };
    sheaf_timing_facts b = { .size = sizeof b };
    run.model = open.model = model;
    run.settings = "seq: 8\nmicro-batch: 2\nthreads: 1\n";
    CHECK_OK(sheaf_run_plan(&needs, &run, NULL));
    CHECK_FAILS(sheaf_needs_timing(&a, needs), SHEAF_E_ARG, "a plan with `time`");
    sheaf_needs_free(needs);
    how.time = true;
    CHECK_OK(sheaf_run_plan(&needs, &run, &how));
    CHECK_OK(sheaf_needs_timing(&a, needs));
    sheaf_needs_free(needs);
    assert_true(a.step > 0 && a.prompt == 0);
    CHECK_NEAR("its parts",
               a.products + a.attention + a.head + a.elements + a.optimizer + a.beside + a.waiting,
               a.step, 1e-9);
    CHECK_NEAR("tokens", a.tokens, 16, 0);
    CHECK_NEAR("tokens a second", a.tokens_per_s, 16 / a.step, 1e-6);
    open.threads = 1;
    open.positions = 12;
    how.max_new = 4;
    how.batch = 2;
    CHECK_OK(sheaf_model_plan(&needs, &open, &how));
    CHECK_OK(sheaf_needs_timing(&b, needs));
    sheaf_needs_free(needs);
    assert_true(b.step > 0 && b.prompt > 0);
    CHECK_NEAR("of both", b.tokens, 2, 0);
    CHECK_NEAR("prompts of eight", b.prompt_tokens, 16, 0);
}

FIXTURE(find_data, remove_scratch);
