/* records_test.c - data sets with images, as people and other programs write them. */
#include <sys/stat.h>
#include <unistd.h>

#include "data/records.h"
#include "tests/files.h"
#include "tests/heard.h"
#include "base/status.h"

static const sheaf__records_options for_training = { 0 },
                                    for_inference = { .answers_optional = true };

static sheaf_status *try_read(const char *name, const sheaf__records_options *options)
{
    sheaf__records r;
    sheaf_status *st = sheaf__records_read(&r, at(name), options, NULL);
    sheaf__records_release(&r);
    return st;
}

static const sheaf__record *nth(const sheaf__records *r, int64_t i)
{
    assert_true(i < r->count);
    return &r->record[i];
}

/* Image (its last part), query and answer of a record with one turn. */
static void check_record(const sheaf__record *r, const char *image, const char *query,
                         const char *answer)
{
    const char *slash = r->image == NULL ? NULL : strrchr(r->image, '/');
    if ((image == NULL) != (slash == NULL) || (image != NULL && strcmp(slash + 1, image) != 0))
        fail_msg("image %s, wanted %s", r->image == NULL ? "none" : r->image,
                 image == NULL ? "none" : image);
    const sheaf__turn *last = &r->turn[r->turns - 1];
    assert_string_equal(last->query, query);
    if (answer == NULL)
        assert_null(last->answer);
    else
        assert_string_equal(last->answer, answer);
}

static void make_images(void)
{
    mkdir(at("pics"), 0777);
    put(at("pics/1.jpg"), "");
    put(at("pics/2.png"), "");
}

/* ---- a folder ---- */

TEST(test_folder__images_come_in_the_order_of_their_paths)
{
    static const char *const name[] = { "b.jpg",    "a/x.png",  "a.b.jpg",     "a/deep/\u00e9.JPEG",
                                        "a/Z.webp", "note.txt", "a/y.jpg.bak", "c" };
    mkdir(at("tree"), 0777);
    mkdir(at("tree/a"), 0777);
    mkdir(at("tree/a/deep"), 0777);
    for (size_t i = 0; i < ARRAY_LEN(name); i++) {
        put(at_format("tree/%s", name[i]), "");
    }
    sheaf__records r;
    CHECK_OK(sheaf__records_read(&r, at("tree"), &for_training, NULL));
    static const struct {
        const char *image, *answer;
    } want[] = {
        { "a.b.jpg", "a" }, { "Z.webp", "Z" }, { "\u00e9.JPEG", "\u00e9" },
        { "x.png", "x" },   { "b.jpg", "b" },
    };
    assert_int_equal(r.count, ARRAY_LEN(want));
    for (size_t i = 0; i < ARRAY_LEN(want); i++)
        check_record(nth(&r, (int64_t)i), want[i].image, "CAPTCHA:", want[i].answer);
    assert_true(r.memory > 0 && r.looked_at == r.count);
    CHECK_FAILS(sheaf__record_in(sheaf_fail(SHEAF_E_DATA, "x"), &r, 4), SHEAF_E_DATA,
                "tree/b.jpg: x");
    sheaf__records_release(&r);
    const sheaf__records_options other = { .query = "Which digits?" };
    CHECK_OK(sheaf__records_read(&r, at("tree"), &other, NULL));
    check_record(nth(&r, 0), "a.b.jpg", "Which digits?", "a");
    sheaf__records_release(&r);
}

TEST(test_folder__links_are_followed_and_circles_end)
{
    mkdir(at("ring"), 0777);
    mkdir(at("ring/in"), 0777);
    mkdir(at("other"), 0777);
    put(at("ring/in/7.jpg"), "");
    put(at("other/8.jpg"), "");
    assert_int_equal(symlink("..", at("ring/in/up")), 0);
    assert_int_equal(symlink(".", at("ring/self")), 0);
    assert_int_equal(symlink("../other", at("ring/z")), 0);
    assert_int_equal(symlink("../other", at("ring/z2")), 0);
    assert_int_equal(symlink("in/7.jpg", at("ring/9.jpg")), 0);
    sheaf__records r;
    CHECK_OK(sheaf__records_read(&r, at("ring"), &for_training, NULL));
    assert_int_equal(r.count, 3);
    check_record(nth(&r, 0), "9.jpg", "CAPTCHA:", "9");
    check_record(nth(&r, 1), "7.jpg", "CAPTCHA:", "7");
    check_record(nth(&r, 2), "8.jpg", "CAPTCHA:", "8");
    sheaf__records_release(&r);
}

TEST(test_folder__all_bad_images_are_told)
{
    mkdir(at("bad"), 0777);
    put(at("bad/ok.jpg"), "");
    put(at("bad/.jpg"), "");
    put(at("bad/a\xff.png"), "");
    assert_int_equal(symlink("nowhere", at("bad/gone.jpg")), 0);
    assert_int_equal(mkfifo(at("bad/pipe.webp"), 0600), 0);
    CHECK_FAILS(try_read("bad", &for_training), SHEAF_E_DATA, "bad: 4 of 5 records are bad");
    static const char *const part[] = { "bad/.jpg: expected an answer before the first dot",
                                        "a name in UTF-8",
                                        "gone.jpg: expected an image, found No such file",
                                        "pipe.webp: expected an image, found neither" };
    for (size_t i = 0; i < ARRAY_LEN(part); i++) {
        CHECK_FAILS(try_read("bad", &for_training), SHEAF_E_DATA, part[i]);
    }
    CHECK_FAILS(try_read("bad", &for_inference), SHEAF_E_DATA, "3 of 5");
    mkdir(at("empty"), 0777);
    CHECK_FAILS(try_read("empty", &for_training), SHEAF_E_DATA, "images (*.jpg");
    CHECK_FAILS(try_read("nothing", &for_training), SHEAF_E_IO, "nothing");
}

#define TALK                                                                                       \
    "{\"conversations\": [{\"role\": \"user\", \"content\": \"Q\"}, {\"role\": \"assistant\", \"content\": \"A\"}]}"

/* Upstream's SFT data (CogVLM-SFT-311K): a conversation or a caption for each image. */
TEST(test_folder__labels_beside_images_are_the_records)
{
    static const char *const folder[] = { "sft",
                                          "sft/one",
                                          "sft/one/images",
                                          "sft/one/labels",
                                          "sft/one/labels_zh",
                                          "sft/two",
                                          "sft/two/images",
                                          "sft/two/labels_en",
                                          "sft/two/images/sub",
                                          "sft/two/labels_en/sub" };
    const sheaf__records_options asks = { .query = "Say", .events = hear_warnings() };
    for (size_t i = 0; i < ARRAY_LEN(folder); i++)
        mkdir(at(folder[i]), 0777);
    put(at("sft/one/images/1.jpg"), "");
    put(at("sft/one/images/2.x.png"), "");
    put(at("sft/one/labels/1.json"), TALK);
    put(at("sft/one/labels_zh/9.json"), TALK); /* beside labels: not read */
    put(at("sft/one/labels/2.x.json"),
        "{\"captions\": [{\"role\": \"caption\", \"content\": \"C\"}]}");
    put(at("sft/two/images/sub/3.jpg"), "");
    put(at("sft/two/labels_en/sub/3.json"),
        "{\"license\": 1, \"prompt\": \"P<image>\", \"completion\": \"D\"}");
    put(at("sft/4.jpg"), "");
    sheaf__records r;
    CHECK_OK(sheaf__records_read(&r, at("sft"), &asks, NULL));
    assert_int_equal(r.count, 4);
    check_record(nth(&r, 0), "4.jpg", "Say", "4");
    check_record(nth(&r, 1), "1.jpg", "Q", "A");
    check_record(nth(&r, 2), "2.x.png", "Say", "C");
    check_record(nth(&r, 3), "3.jpg", "P", "D");
    assert_non_null(strstr(heard, "sft/two/labels_en/sub/3.json: field 'license' is not used"));
    sheaf__records_release(&r);
    heard[0] = '\0';
    CHECK_OK(sheaf__records_read(&r, at("sft/one/images/"), &asks, NULL));
    check_record(nth(&r, 0), "1.jpg", "Say", "1");
    assert_non_null(strstr(heard, "sft/one/labels lies beside the images and is not read"));
    sheaf__records_release(&r);
    /* one without the other, or empty */
    put(at("sft/one/images/5.jpg"), "");
    put(at("sft/one/labels/6.json"), TALK);
    put(at("sft/one/labels/1.json"), "[]");
    static const char *const part[] = { "3 of 6 records are bad",
                                        "images/5.jpg: expected its label, ",
                                        "one/labels/6.json: expected an image of this name in ",
                                        "one/labels/1.json: not a record" };
    for (size_t i = 0; i < ARRAY_LEN(part); i++) {
        CHECK_FAILS(try_read("sft", &asks), SHEAF_E_DATA, part[i]);
    }
    mkdir(at("sft/two/labels_zh"), 0777);
    CHECK_FAILS(try_read("sft/two", &asks), SHEAF_E_DATA,
                "one folder of labels beside images | labels_en and labels_zh | call the one");
}

TEST(test_folder__what_is_not_read_is_told)
{
    const sheaf__records_options options = { .events = hear_warnings() };
    sheaf__records r;
    mkdir(at("mixed"), 0777);
    mkdir(at("mixed/.ipynb_checkpoints"), 0777);
    put(at("mixed/1.jpg"), "");
    CHECK_OK(sheaf__records_read(&r, at("mixed"), &options, NULL));
    assert_non_null(strstr(heard, "mixed: 1 of its entries is not read, '"));
    assert_non_null(strstr(heard, "mixed/.ipynb_checkpoints': images are files that end in .jpg"));
    sheaf__records_release(&r);
    static const char *const other[] = { "mixed/2.tiff", "mixed/3.gif", "mixed/4.json",
                                         "mixed/.ipynb_checkpoints/1-checkpoint.jpg" };
    for (size_t i = 0; i < ARRAY_LEN(other); i++)
        put(at(other[i]), "");
    heard[0] = '\0';
    CHECK_OK(sheaf__records_read(&r, at("mixed"), &options, NULL));
    assert_int_equal(r.count, 1);
    assert_non_null(strstr(heard, "4 of its entries are not read, '"));
    sheaf__records_release(&r);
}

/* ---- JSON ---- */

static void read_ok(sheaf__records *r, const char *text, const sheaf__records_options *options)
{
    put(at("data.jsonl"), text);
    CHECK_OK(sheaf__records_read(r, at("data.jsonl"), options, NULL));
}

TEST(test_json__every_form_is_read)
{
    make_images();
    sheaf__records r;
    read_ok(
        &r,
        "{\"image\": \"pics/1.jpg\", \"prompt\": \"CAPTCHA:\", \"completion\": \"ab\"}\n"
        "\n  \r\n"
        "{\"images\": [\"pics/2.png\"], \"prompt\": \"\", \"answer\": \"cd\"}\r\n"
        "{\"image\": \"pics/1.jpg\", \"id\": 7, \"conversations\": [{\"from\": \"human\", \"value\": \"<image>\\nWhat?\"}, {\"from\": \"gpt\", \"value\": \"It.\"}]}\n"
        "{\"image\": \"pics/1.jpg\", \"conversations\": [{\"from\": \"human\", \"value\": \"What?\\n<image>\"}, {\"from\": \"gpt\", \"value\": \"<image>\"},"
        " {\"from\": \"human\", \"value\": \"And?\"}, {\"from\": \"gpt\", \"value\": \"No.\"}]}\n"
        "{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"image_url\", \"image_url\": {\"url\": \"file://pics/2.png\"}},"
        " {\"type\": \"text\", \"text\": \"Say it\"}, {\"type\": \"text\", \"text\": \" twice\"}]}, {\"role\": \"assistant\", \"content\": \"x\"}]}\n"
        "{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"image\", \"image\": \"pics/2.png\"}]}, {\"role\": \"assistant\", \"content\": [{\"type\": \"text\", \"text\": \"y\"}]}]}\n"
        "{\"messages\": [{\"role\": \"user\", \"content\": \"no <images>\"}, {\"role\": \"assistant\", \"content\": \"z\"}]}\n"
        "{\"images\": [\"pics/2.png\"], \"messages\": [{\"role\": \"user\", \"content\": \"<image>one\"}, {\"role\": \"assistant\", \"content\": \"w\"}]}\n"
        "{\"image\": \"pics/2.png\", \"prompt\": \"<image><EOI></s>\", \"answer\": \"text stays text\"}\n"
        "{\"images\": [\"pics/1.jpg\"], \"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"image\", \"image\": null}, {\"type\": \"text\", \"text\": \"two\"}]},"
        " {\"role\": \"assistant\", \"content\": \"v\"}]}\n"
        /* words of the other form, and roles by their other names */
        "{\"image\": \"pics/1.jpg\", \"conversations\": [{\"role\": \"user\", \"content\": \"Q\"}, {\"role\": \"assistant\", \"content\": \"A\"}]}\n"
        "{\"image\": \"pics/2.png\", \"messages\": [{\"from\": \"human\", \"value\": \"<image>\\nQ\"}, {\"from\": \"chatgpt\", \"value\": \"A\"}]}\n"
        "{\"image\": \"pics/2.png\", \"prompt\": \"what?\\n<image_00>\", \"answer\": \"A\"}",
        &for_training);
    static const struct {
        const char *image, *query, *answer;
        int turns, place;
    } want[] = {
        { "1.jpg", "CAPTCHA:", "ab", 1, 1 },
        { "2.png", "", "cd", 1, 4 },
        { "1.jpg", "What?", "It.", 1, 5 },
        { "1.jpg", "And?", "No.", 2, 6 },
        { "2.png", "Say it twice", "x", 1, 7 },
        { "2.png", "", "y", 1, 8 },
        { NULL, "no <images>", "z", 1, 9 },
        { "2.png", "one", "w", 1, 10 },
        { "2.png", "<EOI></s>", "text stays text", 1, 11 },
        { "1.jpg", "two", "v", 1, 12 },
        { "1.jpg", "Q", "A", 1, 13 },
        { "2.png", "Q", "A", 1, 14 },
        { "2.png", "what?", "A", 1, 15 },
    };
    assert_int_equal(r.count, ARRAY_LEN(want));
    for (size_t i = 0; i < ARRAY_LEN(want); i++) {
        const sheaf__record *one = nth(&r, (int64_t)i);
        check_record(one, want[i].image, want[i].query, want[i].answer);
        assert_int_equal(one->turns, want[i].turns);
        assert_int_equal(one->place, want[i].place);
    }
    assert_string_equal(r.record[3].turn[0].query, "What?");
    assert_string_equal(r.record[3].turn[0].answer, "<image>");
    assert_string_equal(r.unit, "line");
    sheaf__records_release(&r);
}

/* Chosen answers, then rejected ones, hold what they hold side by side. */
TEST(test_json__pairs_apart_take_as_much_memory)
{
    static const char pairs[] =
        "{\"prompt\": \"Q\", \"chosen\": \"a longer answer\", \"rejected\": \"b\"}\n"
        "{\"prompt\": \"R\", \"chosen\": \"c\", \"rejected\": \"another long answer\"}\n";
    sheaf__records side_by_side, apart;
    read_ok(&side_by_side, pairs, &(sheaf__records_options){ .pairs = true });
    read_ok(&apart, pairs, &(sheaf__records_options){ .judged = true });
    assert_int_equal(apart.count, 4);
    check_record(nth(&apart, 1), NULL, "R", "c");
    check_record(nth(&apart, 2), NULL, "Q", "b");
    assert_int_equal(apart.memory, side_by_side.memory);
    sheaf__records_release(&side_by_side);
    sheaf__records_release(&apart);
}

TEST(test_json__an_array_is_read_entry_by_entry)
{
    make_images();
    sheaf__records r;
    read_ok(
        &r,
        " \n[\n  {\"image\": \"pics/1.jpg\",\n   \"prompt\": \"[\", \"answer\": \"1\"},\n  {\"prompt\": \"]\", \"answer\": \"2\"}\n]\n",
        &for_training);
    assert_int_equal(r.count, 2);
    check_record(nth(&r, 0), "1.jpg", "[", "1");
    check_record(nth(&r, 1), NULL, "]", "2");
    assert_int_equal(r.record[1].place, 2);
    sheaf__records_release(&r);
    read_ok(
        &r,
        "\xEF\xBB\xBF{\"prompt\": \"a\", \"answer\": \"1\"}\n\n{\"prompt\": \"b\", \"answer\": \"2\"}",
        &for_training); /* and lines after a mark */
    assert_int_equal(r.count, 2);
    check_record(nth(&r, 1), NULL, "b", "2");
    assert_int_equal(r.record[1].place, 3);
    sheaf__records_release(&r);
    put(at("data.json"), "[{\"prompt\": \"a\", \"answer\": \"1\"}, 7.5, {\"prompt\": \"a\"}]");
    CHECK_FAILS(try_read("data.json", &for_training), SHEAF_E_DATA, "entry 2: not a record");
    static const char *const broken[] = { "[", "[{\"prompt\": \"a\", \"answer\": \"1\"}", "[1,]",
                                          "[] x", "[{\"a\": 1}}]" };
    for (size_t i = 0; i < ARRAY_LEN(broken); i++) {
        put(at("data.json"), broken[i]);
        CHECK_FAILS(try_read("data.json", &for_training), SHEAF_E_FORMAT,
                    "data.json: line 1, column");
    }
    put(at("data.json"), "[]");
    CHECK_FAILS(try_read("data.json", &for_training), SHEAF_E_DATA, "at least one record");
}

TEST(test_json__each_bad_record_is_told_by_line_and_field)
{
    make_images();
#define HUMAN "{\"from\": \"human\", \"value\": \"q\"}"
#define GPT "{\"from\": \"gpt\", \"value\": \"a\"}"
    static const struct {
        const char *line, *part;
    } by_hand[] = {
        { "{\"prompt\": \"a\", \"answer\": \"\"}", "field 'answer' | an answer | an empty string" },
        { "{\"prompt\": \"a\", \"chosen\": \"b\", \"rejected\": \"c\"}",
          "field 'rejected' | none: every answer is learned | an answer to be avoided" },
        { "{\"prompt\": \"a\", \"completion\": \" \\n\"}",
          "field 'completion' | an answer | nothing but blanks" },
        { "{\"prompt\": \"a\"}",
          "field 'completion' | a record has \"prompt\" and \"completion\"" },
        { "{\"answer\": \"a\"}", "field 'prompt' | a record has \"prompt\" and \"completion\"" },
        { "{\"prompt\": 3, \"answer\": \"a\"}", "field 'prompt' | a string | a number" },
        { "{\"prompt\": \"a\", \"answer\": \"b\", \"completion\": \"c\"}",
          "field 'answer' | either" },
        { "{\"prompt\": \"a\", \"answer\": \"b\", \"messages\": []}",
          "field 'messages' | 1 to 10000 messages" },
        { "{\"prompt\": \"a\\u0000b\", \"answer\": \"b\"}", "without NUL" },
        { "{\"image\": \"pics/3.jpg\", \"prompt\": \"a\", \"answer\": \"b\"}",
          "pics/3.jpg: no such file" },
        { "{\"image\": \"pics\", \"prompt\": \"a\", \"answer\": \"b\"}", "pics: a folder" },
        { "{\"image\": \"\", \"prompt\": \"a\", \"answer\": \"b\"}",
          "field 'image' | the path of an image | an empty string" },
        { "{\"image\": 1, \"prompt\": \"a\", \"answer\": \"b\"}", "field 'image' | a path" },
        { "{\"image\": \"http://x/y.jpg\", \"prompt\": \"a\", \"answer\": \"b\"}",
          "field 'image' | the path of a file" },
        { "{\"image\": \"pics/1.jpg\", \"prompt\": \"a\", \"answer\": \"an <image>\"}",
          "field 'completion' | <image> in the question, where the image stands | in an answer" },
        { "{\"image\": \"pics/1.jpg\", \"messages\": [{\"role\": \"user\", \"content\": \"b\"}, "
          "{\"role\": \"assistant\", \"content\": \"<image_00>\"}]}",
          "field 'messages' | <image> in the question" },
        { "{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"image\", \"image\": "
          "\"pics/1.jpg\", \"max_pixels\": 5}, {\"type\": \"text\", \"text\": \"b\"}]}, {\"role\": "
          "\"assistant\", \"content\": \"c\"}]}",
          "a picture without a size of its own | max_pixels" },
        { "{\"image\": [\"pics/1.jpg\", \"pics/2.png\"], \"prompt\": \"a\", \"answer\": \"b\"}",
          "field 'image' | one image: CogVLM" },
        { "{\"image\": \"pics/1.jpg\", \"images\": [\"pics/2.png\"], \"prompt\": \"a\", \"answer\": \"b\"}",
          "field 'images[0]' | one image: CogVLM" },
        { "{\"prompt\": \"no <image>\", \"answer\": \"b\"}",
          "field 'image' | the path of the image that the text marks by <image> | no such field" },
        { "{\"messages\": [{\"role\": \"user\", \"content\": \"no <image_1>\"}, {\"role\": "
          "\"assistant\", \"content\": \"c\"}]}",
          "field 'image' | the path of the image that the text marks by <image> | no such field" },
        { "{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"image\"}, {\"type\": "
          "\"text\", \"text\": \"<image>\"}]}, {\"role\": \"assistant\", \"content\": \"c\"}], "
          "\"image\": \"pics/1.jpg\"}",
          "field 'messages[0].content' | one image: CogVLM" },
        { "{\"captions\": [{\"content\": \"c\"}], \"kto_tag\": false, \"image\": \"pics/1.jpg\"}",
          "kto_tag" },
        { "{\"captions\": [{\"content\": \"c\"}], \"prompt\": \"p\", \"image\": \"pics/1.jpg\"}",
          "captions beside 'prompt'" },
        { "{\"captions\": [{\"content\": \"c\"}], \"image\": \"pics/1.jpg\\u0000b\"}",
          "without NUL" },
        { "{\"captions\": [{\"role\": \"caption\", \"content\": \"c\"}], \"image\": \"pics/1.jpg\"}",
          "field 'captions' | a question beside it, that captions answer | none | `query 'Describe" },
        { "{\"conversations\": [" HUMAN "]}", "field 'conversations' | an answer at the end" },
        { "{\"conversations\": []}", "1 to 10000 messages" },
        { "{\"conversations\": {}}", "field 'conversations' | a list of messages | an object" },
        { "{\"conversations\": [" GPT ", " HUMAN "]}",
          "field 'conversations[0].from' | human: they take turns" },
        { "{\"conversations\": [" HUMAN ", " GPT ", " GPT ", " GPT "]}",
          "field 'conversations[2].from' | human: they take turns" },
        { "{\"conversations\": [{\"from\": \"system\", \"value\": \"s\"}, " GPT "]}",
          "no place for other text | 'system'" },
        { "{\"conversations\": [{\"from\": \"system\", \"value\": \"s\"}, " HUMAN ", " GPT "]}",
          "field 'conversations[0].from' | human and gpt only" },
        { "{\"conversations\": [{\"from\": \"robot\", \"value\": \"s\"}, " GPT "]}",
          "human or gpt | 'robot'" },
        { "{\"conversations\": [{\"value\": \"s\"}, " GPT "]}", "the name of a role" },
        { "{\"conversations\": [3, " GPT "]}", "the name of a role | a number" },
        { "{\"conversations\": [" HUMAN ", {\"from\": \"gpt\", \"value\": \"\"}]}",
          "field 'conversations[1].value' | an answer" },
        { "{\"conversations\": [{\"from\": \"human\"}, " GPT "]}",
          "field 'conversations[0].value' | a string | no such field" },
        { "{\"conversations\": [{\"from\": \"human\", \"value\": \"<image>\\nq\"}, " GPT "]}",
          "the image that the text marks by <image> | no such field | \"image\": PATH" },
        { "{\"imges\": \"pics/1.jpg\", \"conversations\": [{\"from\": \"human\", \"value\": "
          "\"<image>\\nq\"}, " GPT "]}",
          "field 'image' | the path of the image that the text marks by <image> | a field 'imges', "
          "which is not read" },
        { "{\"image_path\": \"pics/1.jpg\", \"prompt\": \"<image>\", \"completion\": \"c\"}",
          "a field 'image_path', which is not read" },
        { "{\"Images\": [\"pics/1.jpg\"], \"messages\": [{\"role\": \"user\", \"content\": "
          "\"<image>\"}, {\"role\": \"assistant\", \"content\": \"c\"}]}",
          "a field 'Images', which is not read" },
        { "{\"image\": \"pics/1.jpg\", \"conversations\": [{\"from\": \"human\", \"value\": \"<image><image>\"}, " GPT
          "]}",
          "more than one image: 2 times" },
        { "{\"image\": \"pics/1.jpg\", \"conversations\": [" HUMAN ", " GPT
          ", {\"from\": \"human\", \"value\": \"<image>\"}, " GPT "]}",
          "in turn 2" },
        { "{\"messages\": [{\"role\": \"tool\", \"content\": \"s\"}, {\"role\": \"assistant\", \"content\": \"b\"}]}",
          "user: results of tools follow \"tool_calls\", which this model does not read | 'tool'" },
        { "{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"video\"}]}, {\"role\": \"assistant\", \"content\": \"b\"}]}",
          "type 'video'" },
        { "{\"messages\": [{\"role\": \"user\", \"content\": [\"s\"]}, {\"role\": \"assistant\", \"content\": \"b\"}]}",
          "field 'messages[0].content[0]' | an object" },
        { "{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"image\"}]}, {\"role\": \"assistant\", \"content\": \"b\"}]}",
          "messages[0].content[0].image" },
        { "{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"image\", \"path\": \"pics/1.jpg\"}, {\"type\": \"image\", \"url\": \"pics/2.png\"}]},"
          " {\"role\": \"assistant\", \"content\": \"b\"}]}",
          "content[1].image' | one image: CogVLM" },
        { "{\"image\": \"pics/1.jpg\", \"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"image\"}, {\"type\": \"image\"}]},"
          " {\"role\": \"assistant\", \"content\": \"b\"}]}",
          "content[1].image' | one image: CogVLM" },
        { "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": [{\"type\": \"image\", \"path\": \"pics/1.jpg\"}]}]}",
          "first message of the user" },
        { "[1]",
          "not a record | an object" }, /* as line 2: the first would make the file an array */
        { "{\"prompt\": \"a\", \"prompt\": \"a\", \"answer\": \"b\"}", "a duplicate" },
        { "{\"prompt\": \"a\xff\", \"answer\": \"b\"}", "UTF-8" },
        { "\xEF\xBB\xBF{}", "one JSON object" }, /* a mark belongs to the beginning of the file */
        { "{\"prompt\": ", "the end of the text" },
    };
    char text[1024];
    for (size_t i = 0; i < ARRAY_LEN(by_hand); i++) {
        sheaf__records r;
        snprintf(text, sizeof text, "{\"prompt\": \"fine\", \"answer\": \"fine\"}\n%s\n",
                 by_hand[i].line);
        put(at("data.jsonl"), text);
        CHECK_FAILS(sheaf__records_read(&r, at("data.jsonl"), &for_training, NULL), SHEAF_E_DATA,
                    by_hand[i].part);
        assert_int_equal(r.count, 1);
        assert_int_equal(r.looked_at, 2);
        sheaf__records_release(&r);
        CHECK_FAILS(try_read("data.jsonl", &for_training), SHEAF_E_DATA, "data.jsonl: line 2: ");
    }
}

TEST(test_json__a_file_that_is_no_text_is_told_as_one)
{
    static const struct {
        const char *text, *part;
    } by_hand[] = {
        { "\x89PNG\r\n\x1a\n", "begins with byte 0x89" },
        { "\xff\xfe{", "a folder of images | a file that begins with byte 0xff" },
        { " \n\x01", "byte 0x01" },
    };
    for (size_t i = 0; i < ARRAY_LEN(by_hand); i++) {
        put(at("data.jsonl"), by_hand[i].text);
        CHECK_FAILS(try_read("data.jsonl", &for_training), SHEAF_E_FORMAT, by_hand[i].part);
    }
}

TEST(test_json__long_texts_are_refused)
{
    const size_t size = (1 << 20) + 1;
    char *text = malloc(size + 64);
    const int n = sprintf(text, "{\"prompt\": \"a\", \"answer\": \"");
    memset(text + n, 'x', size);
    strcpy(text + (size_t)n + size, "\"}");
    put(at("data.jsonl"), text);
    free(text);
    CHECK_FAILS(try_read("data.jsonl", &for_training), SHEAF_E_DATA,
                "at most 1048576 bytes | 1048577");
}

TEST(test_json__bad_records_are_all_told_up_to_a_bound)
{
    sheaf_text text = { 0 };
    for (int i = 1; i <= 50; i++)
        sheaf__text_add(&text, "{\"prompt\": \"%d\", \"answer\": \"%s\"}\n", i,
                        i % 2 == 0 ? "" : "x");
    put(at("data.jsonl"), text.at);
    sheaf__text_release(&text);
    static const char *const part[] = {
        "data.jsonl: 25 of 50 records are bad",
        "line 2: field 'answer': expected an answer, found an empty string\n",
        "line 40: field 'answer'", "and 5 more", "repair these records"
    };
    sheaf__records r;
    for (size_t i = 0; i < ARRAY_LEN(part); i++) {
        CHECK_FAILS(sheaf__records_read(&r, at("data.jsonl"), &for_training, NULL), SHEAF_E_DATA,
                    part[i]);
        assert_int_equal(r.count, 25);
        sheaf__records_release(&r);
    }
    sheaf__complaints complaints = { 0 }; /* a caller adds what it finds */
    CHECK_OK(sheaf__records_read(&r, at("data.jsonl"), &for_training, &complaints));
    assert_int_equal(complaints.count, 25);
    assert_null(strstr(complaints.list.at, "line 42"));
    sheaf__complain(&complaints, NULL);
    sheaf__complain(&complaints,
                    sheaf__record_in(sheaf_fail(SHEAF_E_UNSUPPORTED, "two heads"), &r, 0));
    CHECK_FAILS(sheaf__complaints_verdict(&complaints, "data", r.looked_at), SHEAF_E_DATA,
                "data: 26 of 50");
    CHECK_OK(sheaf__complaints_verdict(&complaints, "data", r.looked_at));
    sheaf__complain(&complaints,
                    sheaf__record_in(sheaf_fail(SHEAF_E_UNSUPPORTED, "two heads"), &r, 1));
    CHECK_FAILS(sheaf__complaints_verdict(&complaints, "data", r.looked_at), SHEAF_E_UNSUPPORTED,
                "data: line 3: two heads");
    sheaf__complain(&complaints, sheaf_fail(SHEAF_E_DATA, "x"));
    sheaf__complain(&complaints, sheaf__no_memory("no room"));
    sheaf__complain(&complaints, sheaf__no_memory("no room"));
    CHECK_FAILS(sheaf__complaints_verdict(&complaints, "data", r.looked_at), SHEAF_E_MEMORY,
                "no room");
    sheaf__records_release(&r);
}

TEST(test_json__questions_without_answers_are_for_inference)
{
    make_images();
    sheaf__records r;
    read_ok(
        &r,
        "{\"image\": \"pics/1.jpg\", \"prompt\": \"a\"}\n{\"prompt\": \"b\", \"answer\": null}\n{\"prompt\": \"c\", \"completion\": \"\"}\n"
        "{\"conversations\": [" HUMAN "]}\n{\"conversations\": [" HUMAN ", " GPT ", " HUMAN
        "]}\n{\"prompt\": \"d\", \"answer\": \"e\"}\n",
        &for_inference);
    static const char *const query[] = { "a", "b", "c", "q", "q", "d" };
    for (int i = 0; i < 6; i++)
        check_record(nth(&r, i), i == 0 ? "1.jpg" : NULL, query[i], i == 5 ? "e" : NULL);
    assert_int_equal(r.record[4].turns, 2);
    sheaf__records_release(&r);
}

/* The empty columns of a table: other forms, another name of the answer, a picture, what is not
 * read. */
TEST(test_json__a_field_that_is_null_is_none)
{
    const sheaf__records_options options = { .events = hear_warnings() };
    sheaf__records r;
    read_ok(&r,
            "{\"prompt\": \"a\", \"answer\": \"b\", \"completion\": null, \"messages\": null, "
            "\"conversations\": null, \"image\": null, \"source\": null}\n",
            &options);
    check_record(nth(&r, 0), NULL, "a", "b");
    assert_string_equal(heard, "");
    sheaf__records_release(&r);
}

TEST(test_json__a_field_that_is_not_read_is_told_once)
{
    const sheaf__records_options options = { .events = hear_warnings() };
    sheaf__records r;
    read_ok(
        &r,
        "{\"id\": 1, \"prompt\": \"a\", \"answer\": \"b\"}\n{\"prompt\": \"a\", \"answer\": \"b\", \"source\": 1, \"more\": 2}\n",
        &options);
    assert_non_null(strstr(heard, ".jsonl: line 2: field 'source' is not used"));
    sheaf__records_release(&r);
}

FIXTURE(make_scratch, remove_scratch);
