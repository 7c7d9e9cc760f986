/* records_test.c - no memory, at any allocation, while JSON that is read line by line or carried
 * on is read and written: a status or the whole, never a text with a character missing. */
#include "tests/faults/denied_memory.h"
#include "tests/byte_config.h"
#include "tests/files.h"

#include "base/json.h"
#include "infer/prompts.h"
#include "infer/answer_stream.h"
#include "monitor/metrics.h"
#include "monitor/provenance.h"
#include "data/data.h"

/* What a job read or wrote; filled without memory of its own. */
static struct {
    char text[4096];
    size_t size;
} got;

static void note(const char *fmt, ...) SHEAF_PRINTF(1, 2);
static void note(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    got.size += (size_t)vsnprintf(got.text + got.size, sizeof got.text - got.size, fmt, args);
    va_end(args);
    assert_true(got.size < sizeof got.text);
}

/* The file `name` after a job; the caller's memory is not denied. */
static void note_file(const char *name)
{
    char *text = NULL;
    size_t size;
    CHECK_OK(sheaf__file_read_all(&text, &size, at(name), 4000));
    note("%s", text);
    free(text);
}

/* ---- records to train on ---- */

static void put_lines(void)
{
    put(at("lines.jsonl"),
        "{\"prompt\": \"how many?\", \"completion\": \"\\u0065leven \\ud83d\\ude00\\u0000\", \"id\": [1, 2.5, null]}\n"
        "{\"text\": \"a line of some length, so that a buffer has to grow, and grow again\"}\n");
}

static sheaf_status *read_lines(void)
{
    sheaf_data *data = NULL;
    sheaf_status *st =
        sheaf_data_open(&data, at("lines.jsonl"), &(sheaf_data_options){ .config = &byte_config });
    if (st == NULL)
        note("%s", sheaf_data_hash(data));
    sheaf_data_close(data);
    return st;
}

/* ---- prompts ---- */

static void put_prompts(void)
{
    put(at("prompts.jsonl"),
        "{\"prompt\": \"what comes after seventeen?\", \"completion\": \"\\u0065ighteen\"}\n"
        "{\"tokens\": [1, 2, 3], \"completion\": \"four\"}\n");
}

static sheaf_status *read_prompts(void)
{
    sheaf__prompts p = { 0 };
    sheaf__codec w;
    sheaf_status *st = sheaf__codec_open(&w, &byte_config, &(sheaf__codec_options){ 0 });
    if (st == NULL)
        st = sheaf__prompts_read(&p, &w, &(sheaf_prompts_options){ .data = at("prompts.jsonl") });
    for (int64_t i = 0; st == NULL && i < p.count; i++) {
        const sheaf__prompt_about *about = &p.about[i];
        note("%s, %s:", about->text == NULL ? "-" : about->text,
             about->expected == NULL ? "-" : about->expected);
        for (int64_t k = 0; k < p.prompt[i].n; k++)
            note(" %d", p.prompt[i].ids[k]);
    }
    sheaf__prompts_release(&p);
    sheaf__codec_close(&w);
    return st;
}

static sheaf_status *decode(void)
{
    static const int32_t ids[] = { 'a', 0xC3, 0xA9, 0xFF, 0xF0, 0x9F, 0x98, 0x80, 257, 'b' };
    char *text = NULL;
    sheaf__codec w;
    sheaf_status *st = sheaf__codec_open(&w, &byte_config, &(sheaf__codec_options){ 0 });
    if (st == NULL)
        st = sheaf__answer_stream_end(NULL, &text, &(sheaf__answer_stream){ .codec = &w }, ids,
                                      ARRAY_LEN(ids));
    if (st == NULL)
        note("%s", text);
    free(text);
    sheaf__codec_close(&w);
    return st;
}

/* ---- metrics.jsonl of a run that goes on ---- */

static void put_metrics(void)
{
    put(at("metrics.jsonl"),
        "{\"step\": 1, \"loss\": 2.5}\n{\"step\": 2, \"loss\": 2.25}\n{\"step\": 3, \"loss\": 2.125}\n");
}

static sheaf_status *open_metrics(void)
{
    sheaf_metrics metrics;
    sheaf_status *st = sheaf__metrics_open(&metrics, at("metrics.jsonl"), 3, 3);
    sheaf__appended_close(&metrics.file);
    return st;
}

static void see_metrics(void)
{
    note_file("metrics.jsonl");
}

/* ---- run.json ---- */

static void put_provenance(void)
{
    put(at("run.json"),
        "{\"runs\": [\n{\"started\": \"then\", \"command\": [\"sheaf\", \"train\", \"--lr\", \"1e-4\"]}\n]}\n");
}

static sheaf_status *add_provenance(void)
{
    static const char *const word[] = { "sheaf", "train" };
    return sheaf_provenance_add(
        at("run.json"),
        &(sheaf_provenance){
            .step = 7, .ranks = 1, .threads = 1, .transport = "self", .nwords = 2, .word = word },
        NULL);
}

/* What was there stays; what is added tells the time and the machine. */
static void see_provenance(void)
{
    json_t *root = NULL;
    CHECK_OK(sheaf__json_load(&root, at("run.json")));
    char *first = json_dumps(json_array_get(json_object_get(root, "runs"), 0), JSON_SORT_KEYS);
    note("%s", first);
    free(first);
    json_decref(root);
}

/* ---- any value ---- */

static json_t *value;

static void make_value(void)
{
    if (value == NULL)
        value = json_pack("{s:s, s:[i, f, b, n], s:{s:s}}",
                          "a name longer than the writer's first buffer", "a text of some length",
                          "list", -12345, 0.1, 1, "o", "k", "\xC3\xA9\n");
}

static sheaf_status *write_value(void)
{
    char *text = NULL;
    sheaf_status *st = sheaf__json_text(&text, value, JSON_SORT_KEYS | JSON_ENSURE_ASCII);
    if (st == NULL)
        note("%s", text);
    free(text);
    return st;
}

static const struct {
    const char *name;
    void (*before)(void);
    sheaf_status *(*job)(void);
    void (*after)(void); /* of a failed one too */
    int least;           /* allocations, or the test tests nothing */
} jobs[] = {
    { "read records", put_lines, read_lines, NULL, 30 },
    { "read prompts", put_prompts, read_prompts, NULL, 30 },
    { "decode a text", put_prompts, decode, NULL, 2 },
    { "open metrics", put_metrics, open_metrics, see_metrics, 20 },
    { "add to run.json", put_provenance, add_provenance, see_provenance, 30 },
    { "write a value", make_value, write_value, NULL, 20 },
};

/* Runs job `i` with allocation `n` denied (0: none); its code. */
static int denied_run(size_t i, long n)
{
    got.size = 0;
    got.text[0] = '\0';
    jobs[i].before();
    deny_begin(n);
    sheaf_status *st = jobs[i].job();
    const int code = st == NULL ? 0 : (int)sheaf_status_code(st);
    sheaf_status_free(st);
    deny_end();
    if (atomic_load(&deny_live) != 0)
        fail_msg("%s: %ld blocks left when allocation %ld is denied", jobs[i].name,
                 atomic_load(&deny_live), n);
    if (jobs[i].after != NULL)
        jobs[i].after();
    return code;
}

TEST(test_memory__records_are_whole_or_a_status)
{
    if (!DENIED_MEMORY_WORKS)
        return; /* see denied_memory.h */
    for (size_t i = 0; i < ARRAY_LEN(jobs); i++) {
        char want[sizeof got.text];
        jobs[i].before();
        CHECK_OK(
            jobs[i]
                .job()); /* the C library keeps what it allocates the first time: the time zone */
        assert_int_equal(denied_run(i, 0), 0);
        memcpy(want, got.text, sizeof want);
        assert_true(want[0] != '\0');
        for (long n = 1;; n++) {
            const int code = denied_run(i, n);
            if (code != 0 && code != SHEAF_E_MEMORY && code != SHEAF_E_IO)
                fail_msg("%s: code %d when allocation %ld is denied", jobs[i].name, code, n);
            if ((code == 0 || jobs[i].after != NULL) && strcmp(got.text, want) != 0)
                fail_msg("%s: allocation %ld denied: '%s' instead of '%s'", jobs[i].name, n,
                         got.text, want);
            if (atomic_load(&deny_seen) < n) {
                assert_true(code == 0 && n > jobs[i].least);
                break;
            }
        }
    }
    json_decref(value);
}

FIXTURE(make_scratch, remove_scratch);
