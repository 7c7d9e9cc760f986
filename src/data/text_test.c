/* text_test.c - tokenizer, templates and layout against what upstream's text processors gave
 * (text_cases.json beside each tiny_tokenizer.model), and by hand. */
#include <dirent.h>
#include <jansson.h>

#include "base/status.h"
#include "base/file.h"
#include "base/json.h"
#include "data/compose.h"
#include "inputs/layout.h"
#include "inputs/template.h"
#include "inputs/tokenizer/tokenizer.h"
#include "tests/files.h"
#include "tests/golden.h"

/* ---- the recordings ---- */

typedef struct recording {
    char path[1024]; /* of the folder, for messages */
    sheaf__tokenizer *model;
    json_t *cases;
    int32_t bos, eos, pad;
} recording;

static void open_recording(recording *r)
{
    char path[1100];
    snprintf(path, sizeof path, "%s/tiny_tokenizer.model", r->path);
    CHECK_OK(sheaf__tokenizer_open_pieces(&r->model, path));
    snprintf(path, sizeof path, "%s/text_cases.json", r->path);
    CHECK_OK(sheaf__json_load(&r->cases, path));
    r->bos = (int32_t)json_integer_value(json_object_get(r->cases, "bos"));
    r->eos = (int32_t)json_integer_value(json_object_get(r->cases, "eos"));
    r->pad = (int32_t)json_integer_value(json_object_get(r->cases, "pad"));
}

/* Runs `check` on each folder with text_cases.json, wherever it lies below `dir`. */
static int each_recording(const char *dir, void (*check)(const recording *r), int depth)
{
    recording r = { 0 };
    char **names = NULL;
    int64_t n = 0;
    int found = 0;
    CHECK_OK(sheaf__list_dir(&names, &n, dir));
    for (int64_t i = 0; i < n; i++) {
        snprintf(r.path, sizeof r.path, "%s/%s", dir, names[i]);
        if (sheaf__path_kind(r.path) == SHEAF_PATH_DIR && depth < 4)
            found += each_recording(r.path, check, depth + 1);
        else if (strcmp(names[i], "text_cases.json") == 0) {
            snprintf(r.path, sizeof r.path, "%s", dir);
            open_recording(&r);
            check(&r);
            sheaf__tokenizer_close(r.model);
            json_decref(r.cases);
            found++;
        }
    }
    sheaf__names_free(names, n);
    return found;
}

static void each(void (*check)(const recording *r))
{
    char root[512];
    if (each_recording(golden_root(root), check, 0) == 0)
        fail_msg("no text_cases.json below %s", root);
}

/* ---- one case ---- */

static const char *string_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    if (text == NULL)
        fail_msg("no string '%s'", key);
    return text;
}

static int64_t number_of(const json_t *object, const char *key)
{
    if (!json_is_integer(json_object_get(object, key)))
        fail_msg("no number '%s'", key);
    return json_integer_value(json_object_get(object, key));
}

static sheaf__ids encode(const recording *r, const char *text)
{
    int32_t *ids = NULL;
    sheaf__ids out = { 0 };
    CHECK_OK(sheaf__tokenizer_encode(&ids, NULL, &out.count, r->model, text, strlen(text), NULL));
    out.id = ids;
    return out;
}

/* A recorded [n] or [1, n] list of numbers against `got`, each `size` bytes. */
static void same(const char *what, const json_t *want, const void *got, int64_t n, size_t size)
{
    if (json_is_array(json_array_get(want, 0)))
        want = json_array_get(want, 0);
    if (!json_is_array(want) || (int64_t)json_array_size(want) != n)
        fail_msg("%s: %zu numbers wanted, got %lld", what, json_array_size(want), (long long)n);
    for (int64_t i = 0; i < n; i++) {
        const long long w = json_integer_value(json_array_get(want, (size_t)i));
        const long long g = size == 1 ? ((const uint8_t *)got)[i] : ((const int32_t *)got)[i];
        if (!json_is_integer(json_array_get(want, (size_t)i)) || w != g)
            fail_msg("%s: at %lld: wanted %lld, got %lld", what, (long long)i, w, g);
    }
}

static void same_sequence(const char *what, const json_t *want, const sheaf__sequence *s)
{
    const struct {
        const char *name;
        const void *got;
        size_t size;
    } part[] = {
        { "input_ids", s->input_ids, 4 },
        { "labels", s->labels, 4 },
        { "position_ids", s->position_ids, 4 },
        { "image_embed_mask", s->image_embed_mask, 1 },
        { "vision_expert_mask", s->vision_expert_mask, 1 },
        { "image_rope_mask", s->image_rope_mask, 1 },
    };
    int compared = 0;
    char name[256];
    for (size_t i = 0; i < ARRAY_LEN(part); i++) {
        const json_t *list = json_object_get(want, part[i].name);
        snprintf(name, sizeof name, "%s: %s", what, part[i].name);
        if (list != NULL)
            same(name, list, part[i].got, s->length, part[i].size);
        compared += list != NULL;
    }
    if (compared < 4)
        fail_msg("%s: only %d lists in the recording", what, compared);
}

static void check_training(const char *what, const json_t *one, sheaf__ids prompt,
                           sheaf__ids answer, const sheaf__sequence_options *options)
{
    const json_t *want = json_object_get(one, "result");
    sheaf__sequence s = { 0 };
    sheaf_status *st = sheaf__sequence_train(&s, prompt, answer, options);
    if (json_is_null(want)) { /* refused, with the counts and a max_length that is enough */
        if (st == NULL)
            fail_msg("%s: not refused", what);
        char count[32], needs[64];
        sheaf__sequence_options more = *options;
        more.max_length = sheaf__sequence_needs(prompt.count, answer.count, options);
        snprintf(count, sizeof count, "%lld for the prompt", (long long)prompt.count);
        snprintf(needs, sizeof needs, "max_length %lld", (long long)more.max_length);
        CHECK_FAILS(st, SHEAF_E_DATA, count);
        CHECK_FAILS(sheaf__sequence_train(&s, prompt, answer, options), SHEAF_E_DATA, needs);
        CHECK_OK(sheaf__sequence_train(&s, prompt, answer, &more));
        assert_int_equal(s.cut, 0);
    } else {
        CHECK_OK(st);
        same_sequence(what, want, &s);
        const int32_t context = (int32_t)s.context, image = (int32_t)s.image_position;
        const json_t *length = json_object_get(want, "context_length");
        assert_int_equal(json_is_array(length) ? json_integer_value(json_array_get(length, 0))
                                               : json_integer_value(length),
                         context);
        same(what, json_object_get(want, "image_position"), &image, 1, 4);
    }
    sheaf__sequence_release(&s);
}

static void check_inference(const char *what, const json_t *want, sheaf__ids prompt,
                            const sheaf__sequence_options *with)
{
    sheaf__sequence_options options = *with;
    options.max_length = 0;
    sheaf__sequence s = { 0 };
    CHECK_OK(sheaf__sequence_prompt(&s, prompt, &options));
    if (json_is_array(want))
        same(what, want, s.input_ids, s.length, 4);
    else
        same_sequence(what, want, &s);
    sheaf__sequence_release(&s);
}

static void check_case(const recording *r, const json_t *one, size_t index)
{
    static const sheaf__turn history[] = { { "q one", "r one" } };
    char what[1200];
    snprintf(what, sizeof what, "%.1000s: case %zu (%s)", r->path, index,
             string_of(one, "version"));
    sheaf__template version;
    CHECK_OK(sheaf__template_find(&version, string_of(one, "version"), NULL));
    assert_string_equal(sheaf__template_name(version), string_of(one, "version"));
    const sheaf__sequence_options options = { number_of(one, "image_length"),
                                              number_of(one, "max_length"), r->bos, r->eos,
                                              r->pad };
    char *text = NULL, *with_history = NULL;
    CHECK_OK(sheaf__template_prompt(&text, version, NULL, 0, string_of(one, "prompt")));
    CHECK_OK(sheaf__template_prompt(&with_history, version, history, 1, string_of(one, "prompt")));
    const sheaf__ids prompt = encode(r, text), answer = encode(r, string_of(one, "caption")),
                     long_prompt = encode(r, with_history);
    check_training(what, one, prompt, answer, &options);
    check_inference(what, json_object_get(one, "inference"), prompt, &options);
    char marked[4096]; /* upstream's prompt holds the image's mark */
    snprintf(marked, sizeof marked, "<EOI>%s", with_history);
    assert_string_equal(marked, string_of(one, "history_prompt"));
    check_inference(what, json_object_get(one, "inference_history_ids"), long_prompt, &options);
    free((int32_t *)prompt.id);
    free((int32_t *)answer.id);
    free((int32_t *)long_prompt.id);
    free(text);
    free(with_history);
}

static void check_recording(const recording *r)
{
    const json_t *cases = json_object_get(r->cases, "cases");
    if (json_array_size(cases) == 0)
        fail_msg("%s: no cases", r->path);
    for (size_t i = 0; i < json_array_size(cases); i++)
        check_case(r, json_array_get(cases, i), i);
}

TEST(test_text__every_recorded_case_is_met)
{
    each(check_recording);
}

/* ---- the tokenizer ---- */

static void check_specials(const recording *r)
{
    assert_int_equal(sheaf__tokenizer_bos(r->model), r->bos);
    assert_int_equal(sheaf__tokenizer_eos(r->model), r->eos);
    assert_int_equal(sheaf__tokenizer_pad(r->model), r->pad);
    assert_true(sheaf__tokenizer_size(r->model) > 256);
}

TEST(test_sentencepiece__special_ids_are_the_models)
{
    each(check_specials);
}

/* A stream gives the same text, by whole characters and by the bytes of each id. */
static void check_stream(const sheaf__tokenizer *t, sheaf__ids ids, const char *want)
{
    for (int raw = 0; raw < 2; raw++) {
        sheaf__token_stream *stream;
        sheaf_text joined = { 0 };
        const char *more;
        size_t n;
        CHECK_OK(sheaf__token_stream_new(&stream, t, true));
        if (raw)
            sheaf__token_stream_set_bytes(stream);
        for (int64_t k = 0; k <= ids.count; k++) {
            CHECK_OK(k < ids.count ? sheaf__token_stream_push(&more, &n, stream, ids.id[k])
                                   : sheaf__token_stream_rest(&more, &n, stream));
            assert_true(raw || sheaf__is_utf8(more));
            sheaf__text_add(&joined, "%s", more);
        }
        assert_string_equal(joined.at == NULL ? "" : joined.at, want);
        sheaf__text_release(&joined);
        sheaf__token_stream_free(stream);
    }
}

static void check_marks(const recording *r)
{
    static const char *const text[] = { "<s>",
                                        "</s>",
                                        "a<EOI>b",
                                        "<unk> <pad>",
                                        "[INST] x [/INST]",
                                        "<0x41>",
                                        "</s></s>",
                                        "\u00e4\u20ac\U0001f600",
                                        "",
                                        " ",
                                        "a  b ",
                                        "\n\ttab",
                                        "\u2581" };
    for (size_t i = 0; i < ARRAY_LEN(text); i++) {
        const sheaf__ids ids = encode(r, text[i]);
        char *back = NULL;
        for (int64_t k = 0; k < ids.count; k++)
            if (ids.id[k] == r->bos || ids.id[k] == r->eos || ids.id[k] == r->pad)
                fail_msg("%s: '%s' became special id %d", r->path, text[i], (int)ids.id[k]);
        CHECK_OK(sheaf__tokenizer_decode(&back, NULL, r->model, ids.id, ids.count, true));
        assert_string_equal(back, strcmp(text[i], "\u2581") == 0 ? " " : text[i]);
        check_stream(r->model, ids, back);
        free(back);
        free((int32_t *)ids.id);
    }
}

TEST(test_sentencepiece__marks_in_text_are_text_and_come_back)
{
    each(check_marks);
}

static void check_decoding(const recording *r)
{
    const sheaf__ids word = encode(r, "CAPTCHA:");
    const int64_t n = word.count;
    int32_t *ids = calloc((size_t)n + 8, sizeof *ids);
    char *text = NULL;
    ids[0] = r->bos;
    memcpy(ids + 1, word.id, (size_t)n * sizeof *ids);
    ids[n + 1] = r->eos;
    ids[n + 2] = 0; /* unknown */
    CHECK_OK(sheaf__tokenizer_decode(&text, NULL, r->model, ids, n + 3, true));
    assert_string_equal(text, "CAPTCHA:");
    free(text);
    ids[n + 1] = (int32_t)sheaf__tokenizer_size(r->model); /* a row of the table without a piece */
    CHECK_OK(sheaf__tokenizer_decode(&text, NULL, r->model, ids, n + 2, true));
    assert_string_equal(text, "CAPTCHA:\uFFFD");
    free(text);
    CHECK_OK(sheaf__tokenizer_decode(&text, NULL, r->model, ids, 0, true));
    assert_string_equal(text, "");
    free(text);
    ids[1] = -1;
    CHECK_FAILS(sheaf__tokenizer_decode(&text, NULL, r->model, ids, 2, true), SHEAF_E_DATA,
                "a token");
    free(ids);
    free((int32_t *)word.id);
}

TEST(test_sentencepiece__decoding_skips_what_is_special)
{
    each(check_decoding);
}

/* Every cut of a model and every flipped byte: a status or a model that works; never a crash. */
static void check_damage(const recording *r)
{
    char path[1100], *bytes = NULL;
    size_t size = 0;
    snprintf(path, sizeof path, "%s/tiny_tokenizer.model", r->path);
    CHECK_OK(sheaf__file_read_all(&bytes, &size, path, 64 << 20));
    const size_t step = size / 400 + 1;
    int refused = 0;
    for (size_t i = 0; i < size; i += step) {
        const char kept = bytes[i];
        for (int way = 0; way < 3; way++) {
            const size_t length = way == 0 ? i : size;
            bytes[i] = (char)(way == 1 ? ~kept : way == 2 ? kept ^ 4 : kept);
            FILE *file = fopen(at("damaged.model"), "wb");
            assert_true(file != NULL && fwrite(bytes, 1, length, file) == length &&
                        fclose(file) == 0);
            sheaf__tokenizer *model = NULL;
            sheaf_status *st = sheaf__tokenizer_open_pieces(&model, at("damaged.model"));
            refused += st != NULL;
            if (st == NULL) {
                int32_t *ids = NULL;
                int64_t n = 0;
                char *text = NULL;
                st = sheaf__tokenizer_encode(&ids, NULL, &n, model, "Question: a", 11, NULL);
                TRY(st, sheaf__tokenizer_decode(&text, NULL, model, ids, n, true));
                free(text);
                free(ids);
            }
            sheaf_status_free(st);
            sheaf__tokenizer_close(model);
        }
        bytes[i] = kept;
    }
    assert_true(refused > 100);
    free(bytes);
}

TEST(test_sentencepiece__damaged_models_do_no_harm)
{
    each(check_damage);
}

static void put_bytes(const char *path, const char *bytes, size_t size)
{
    CHECK_OK(sheaf__file_write_whole(path, bytes, size));
}

#define BPE "\x12\x02\x18\x02" /* model_type */

TEST(test_sentencepiece__files_that_are_no_models_are_refused)
{
    static const struct {
        const char *bytes;
        size_t size;
        sheaf_code code;
        const char *part;
    } by_hand[] = {
        { "", 0, SHEAF_E_FORMAT, "pieces | at least one" },
        { "{\"a\": 1}", 8, SHEAF_E_FORMAT, "a field" },
        { "\x0a\x03\x0a\x01", 4, SHEAF_E_FORMAT, "cut short" },
        { "\x0a\x05\x0a\x03"
          "a\0b",
          7, SHEAF_E_FORMAT, "without NUL" },
        { "\x0a\x03\x0a\x01\xff", 5, SHEAF_E_FORMAT, "UTF-8" },
        { "\x0a\x02\x0a\x00", 4, SHEAF_E_FORMAT, "1 to 4096 bytes" },
        { "\x0a\x02\x18\x01", 4, SHEAF_E_FORMAT, "with a text" },
        { "\x0a\x05\x0a\x01x\x18\x09", 7, SHEAF_E_FORMAT, "type of piece" },
        { "\x0a\x05\x0a\x01x\x18\x04" BPE, 11, SHEAF_E_UNSUPPORTED, "user-defined" },
        { "\x0a\x08\x0a\x01x\x15\x00\x00\xc0\x7f", 10, SHEAF_E_FORMAT, "finite" },
        { "\x0a\x03\x0a\x01x\x1a\x03\x12\x01z" BPE, 14, SHEAF_E_UNSUPPORTED, "normalizer_spec" },
        { "\x0a\x03\x0a\x01x\x2a\x03\x12\x01z" BPE, 14, SHEAF_E_UNSUPPORTED, "denormalizer_spec" },
        { "\x0a\x03\x0a\x01x", 5, SHEAF_E_UNSUPPORTED, "model_type | 2 (BPE) | 1" },
        { "\x0a\x03\x0a\x01x\x13", 6, SHEAF_E_FORMAT, "wire type" },
        { "\x0a\x03\x0a\x01x" BPE, 9, SHEAF_E_FORMAT,
          "sentencepiece model: pieces | an unknown piece" },
    };
    sheaf__tokenizer *model = NULL;
    for (size_t i = 0; i < ARRAY_LEN(by_hand); i++) {
        put_bytes(at("bad.model"), by_hand[i].bytes, by_hand[i].size);
        CHECK_FAILS(sheaf__tokenizer_open_pieces(&model, at("bad.model")), by_hand[i].code,
                    by_hand[i].part);
        assert_null(model);
    }
    CHECK_FAILS(sheaf__tokenizer_open_pieces(&model, at("none.model")), SHEAF_E_IO, "none.model");
    CHECK_FAILS(sheaf__tokenizer_open_pieces(&model, scratch.dir), SHEAF_E_IO, scratch.dir);
}

/* Four pieces, "a" a control piece: in a text it is no such thing. */
TEST(test_sentencepiece__control_pieces_of_one_character_are_not_found_in_text)
{
    static const char bytes[] = "\x0a\x05\x0a\x01?\x18\x02"
                                "\x0a\x05\x0a\x03\xe2\x96\x81"
                                "\x0a\x05\x0a\x01"
                                "a\x18\x03"
                                "\x0a\x03\x0a\x01"
                                "b"
                                "\x12\x0a\xea\x02\x01?\xf2\x02\x01"
                                "a\x18\x02"; /* unk_piece (45), bos_piece (46), model_type: BPE */
    put_bytes(at("four.model"), bytes, sizeof bytes - 1);
    sheaf__tokenizer *model = NULL;
    CHECK_OK(sheaf__tokenizer_open_pieces(&model, at("four.model")));
    assert_int_equal(sheaf__tokenizer_size(model), 4);
    assert_int_equal(sheaf__tokenizer_pad(model), 0); /* the unknown one */
    assert_int_equal(sheaf__tokenizer_bos(model), 2);
    assert_int_equal(sheaf__tokenizer_eos(model), -1);
    int32_t *ids = NULL;
    int64_t n = 0;
    CHECK_OK(sheaf__tokenizer_encode(&ids, NULL, &n, model, "abbab", 5, NULL));
    assert_true(n > 2 && ids[0] == 1 && ids[n - 1] == 3);
    for (int64_t i = 0; i < n; i++)
        assert_int_not_equal(ids[i], 2);
    free(ids);
    sheaf__tokenizer_close(model);
}

/* Of "ab" with the score 1 and "bc" with the score 2 the second is made. */
TEST(test_sentencepiece__the_better_score_is_joined_first)
{
    static const char bytes[] = "\x0a\x05\x0a\x01?\x18\x02"
                                "\x0a\x03\x0a\x01"
                                "a"
                                "\x0a\x03\x0a\x01"
                                "b"
                                "\x0a\x03\x0a\x01"
                                "c"
                                "\x0a\x09\x0a\x02"
                                "ab\x15\x00\x00\x80\x3f"
                                "\x0a\x09\x0a\x02"
                                "bc\x15\x00\x00\x00\x40"
                                "\x12\x06\xea\x02\x01?\x18\x02\x1a\x02\x18"; /* no prefix */
    recording own = { .model = NULL };
    put_bytes(at("scores.model"), bytes, sizeof bytes);
    CHECK_OK(sheaf__tokenizer_open_pieces(&own.model, at("scores.model")));
    const sheaf__ids ids = encode(&own, "abc");
    assert_int_equal(ids.count, 2);
    assert_true(ids.id[0] == 1 && ids.id[1] == 5);
    free((int32_t *)ids.id);
    sheaf__tokenizer_close(own.model);
}

/* A later normalizer_spec (3) and trainer_spec (2) count. */
static void check_blanks(const recording *r)
{
    static const struct {
        bool prefix, remove_extra, suffix;
        const char *normal, *decoded; /* of "  a  b c " */
    } by_hand[] = {
        { true, false, false, "\u2581\u2581\u2581a\u2581\u2581b\u2581c\u2581", "  a  b c " },
        { false, false, false, "\u2581\u2581a\u2581\u2581b\u2581c\u2581", "  a  b c " },
        { true, true, false, "\u2581a\u2581b\u2581c", "a b c" },
        { false, true, false, "a\u2581b\u2581c", "a b c" },
        { true, true, true, "a\u2581b\u2581c\u2581", "a b c " },
        { true, false, true, "\u2581\u2581a\u2581\u2581b\u2581c\u2581\u2581", " a  b c  " },
    };
    char path[1100], *bytes = NULL;
    size_t size = 0;
    snprintf(path, sizeof path, "%s/tiny_tokenizer.model", r->path);
    CHECK_OK(sheaf__file_read_all(&bytes, &size, path, 64 << 20));
    bytes = realloc(bytes, size + 32);
    assert_non_null(bytes);
    for (size_t i = 0; i < ARRAY_LEN(by_hand); i++) {
        const char more[] = {
            0x1a, 4,          0x18, by_hand[i].prefix, 0x20, by_hand[i].remove_extra, 0x12,
            3,    (char)0xc0, 1,    by_hand[i].suffix
        };
        memcpy(bytes + size, more, sizeof more);
        put_bytes(at("blanks.model"), bytes, size + sizeof more);
        recording own = { .model = NULL };
        char *decoded;
        sheaf_text normal = { 0 };
        CHECK_OK(sheaf__tokenizer_open_pieces(&own.model, at("blanks.model")));
        const sheaf__ids ids = encode(&own, "  a  b c ");
        for (int64_t k = 0; k < ids.count; k++)
            sheaf__text_add(&normal, "%s", sheaf__tokenizer_token(own.model, ids.id[k]));
        assert_string_equal(normal.at, by_hand[i].normal);
        CHECK_OK(sheaf__tokenizer_decode(&decoded, NULL, own.model, ids.id, ids.count, true));
        assert_string_equal(decoded, by_hand[i].decoded);
        sheaf__text_release(&normal);
        sheaf__tokenizer_close(own.model);
        free(decoded);
        free((int32_t *)ids.id);
    }
    free(bytes);
}

TEST(test_sentencepiece__blanks_are_those_of_the_models_rules)
{
    each(check_blanks);
}

/* ---- templates ---- */

TEST(test_template__names_are_exact)
{
    sheaf__template which;
    CHECK_FAILS(sheaf__template_find(&which, "chatold", NULL), SHEAF_E_ARG, "'chatold' | chat_old");
    CHECK_FAILS(sheaf__template_find(&which, "", NULL), SHEAF_E_ARG, "base, chat, vqa or chat_old");
    for (int i = 0; i < SHEAF__QUESTION; i++) {
        CHECK_OK(sheaf__template_find(&which, sheaf__template_name((sheaf__template)i), NULL));
        assert_int_equal(which, i);
    }
    const sheaf_config hub = { .family = SHEAF_COGVLM_HF }, agent = { .family = SHEAF_COGAGENT_HF };
    CHECK_OK(sheaf__template_find(&which, "chat", &hub));
    assert_int_equal(which, SHEAF__QUESTION);
    CHECK_OK(sheaf__template_find(&which, "vqa", &hub));
    assert_int_equal(which, SHEAF__SHORT_QUESTION);
    CHECK_FAILS(sheaf__template_find(&which, "chat_old", &hub), SHEAF_E_ARG, "base, chat or vqa");
    CHECK_OK(sheaf__template_find(&which, "chat", &agent));
    assert_int_equal(which, SHEAF__CHAT);
}

TEST(test_template__turns_before_are_kept_in_order)
{
    static const sheaf__turn turns[] = { { "a", "b" }, { "<EOI>", "</s>" } };
    static const char *const want[SHEAF__TEMPLATES] = {
        "q",
        " [INST] a [/INST] b [INST] <EOI> [/INST] </s> [INST] q [/INST] ",
        "Question: q Short answer:",
        "Question: a Answer: b\nQuestion: <EOI> Answer: </s>\nQuestion: q Answer:",
        "Question: a Answer: b\nQuestion: <EOI> Answer: </s>\nQuestion: q Answer:",
        "Question: a Short answer: b\nQuestion: <EOI> Short answer: </s>\nQuestion: q Short answer:",
    };
    for (int i = 0; i < SHEAF__TEMPLATES; i++) {
        char *text = NULL;
        CHECK_OK(sheaf__template_prompt(&text, (sheaf__template)i, turns, 2, "q"));
        assert_string_equal(text, want[i]);
        free(text);
    }
}

TEST(test_template__answers_are_what_follows_the_last_separator)
{
    static const struct {
        sheaf__template which;
        const char *text, *want;
    } by_hand[] = {
        { SHEAF__BASE, "aB3dE</s>", "aB3dE" },
        { SHEAF__BASE, "<unk><unk> x y \n</s>", "x y" },
        { SHEAF__CHAT, " [INST] a [/INST] b [INST] c [/INST] d</s>", "d" },
        { SHEAF__CHAT, "[/INS</s>T]x", "x" }, /* the mark goes first, as upstream */
        { SHEAF__VQA, "Question: q Short answer: yes", "yes" },
        { SHEAF__VQA, "Answer: yes", "Answer: yes" },
        { SHEAF__CHAT_OLD, "Question: q Answer: 1\nQuestion: r Answer: 2", "2" },
        { SHEAF__CHAT_OLD, " Answer:", "" },
        { SHEAF__CHAT, "", "" },
        { SHEAF__CHAT, "</s> </s>", "" },
        { SHEAF__BASE, "\u00a0\u3000\u2003 a\u00a0b \xc2\x85\x1c\u1680", "a\u00a0b" },
    };
    for (size_t i = 0; i < ARRAY_LEN(by_hand); i++) {
        char *text = NULL;
        CHECK_OK(sheaf__template_answer(&text, by_hand[i].which, by_hand[i].text));
        assert_string_equal(text, by_hand[i].want);
        free(text);
    }
}

/* ---- layout ---- */

TEST(test_layout__a_sequence_without_an_image)
{
    static const int32_t prompt[] = { 7, 8 }, answer[] = { 9, 10, 11 };
    const sheaf__sequence_options options = {
        .patches = 0, .max_length = 13, .bos = 1, .eos = 2, .pad = 5
    };
    sheaf__sequence s = { 0 };
    CHECK_OK(
        sheaf__sequence_train(&s, (sheaf__ids){ prompt, 2 }, (sheaf__ids){ answer, 3 }, &options));
    static const int32_t ids[13] = { 1, 7, 8, 9, 10, 11, 2, 5, 5, 5, 5, 5, 5 };
    assert_int_equal(s.length, 13);
    assert_memory_equal(s.input_ids, ids, sizeof ids);
    for (int i = 0; i < 13; i++) {
        assert_int_equal(s.position_ids[i], i);
        assert_int_equal(s.labels[i], i >= 3 && i < 7 ? ids[i] : -100);
        assert_int_equal(s.image_embed_mask[i] | s.vision_expert_mask[i] | s.image_rope_mask[i], 0);
    }
    assert_int_equal(s.used, 7);
    assert_int_equal(s.context, 3);
    assert_int_equal(s.image_position, -1);
    assert_int_equal(s.cut, 0);
    sheaf__sequence_release(&s);
}

/* The rules of upstream at their edges: a context may have max_length - 10, all tokens max_length
 * - 3. */
TEST(test_layout__limits_are_exact)
{
    int32_t id[64];
    for (int i = 0; i < 64; i++)
        id[i] = 100 + i;
    for (int64_t patches = 0; patches <= 5; patches += 5) {
        const int64_t head = patches > 0 ? 1 + patches + 2 : 1;
        const sheaf__sequence_options options = { patches, 40, 1, 2, 0 };
        const int64_t prompt = 40 - 10 - head;
        sheaf__sequence s = { 0 };
        CHECK_FAILS(sheaf__sequence_train(&s, (sheaf__ids){ id, prompt + 1 }, (sheaf__ids){ id, 1 },
                                          &options),
                    SHEAF_E_DATA, "at most 30 positions before the answer, with max_length 40");
        CHECK_FAILS(sheaf__sequence_train(&s, (sheaf__ids){ id, prompt + 1 }, (sheaf__ids){ id, 9 },
                                          &options),
                    SHEAF_E_DATA, "max_length 44");
        for (int64_t answer = 5; answer <= 8; answer++) {
            CHECK_OK(sheaf__sequence_train(&s, (sheaf__ids){ id, prompt },
                                           (sheaf__ids){ id, answer }, &options));
            assert_int_equal(s.cut, answer > 6 ? answer - 6 : 0);
            assert_int_equal(s.used, 30 + (answer > 6 ? 6 : answer) + 1);
            assert_int_equal(s.input_ids[s.used - 1], 2);
            assert_int_equal(s.labels[s.used - 1], 2);
            sheaf__sequence_release(&s);
        }
        assert_int_equal(sheaf__sequence_needs(prompt, 6, &options), 40);
        assert_int_equal(sheaf__sequence_needs(prompt, 7, &options), 41);
        assert_int_equal(sheaf__sequence_needs(prompt, 0, &options), 40);
    }
}

TEST(test_layout__a_prompt_leaves_room_for_an_answer)
{
    static const int32_t id[] = { 7, 8 };
    sheaf__sequence_options options = { .patches = 4, .max_length = 9, .bos = 1, .eos = 2 };
    sheaf__sequence s = { 0 };
    CHECK_FAILS(sheaf__sequence_prompt(&s, (sheaf__ids){ id, 2 }, &options), SHEAF_E_DATA,
                "6 for the image (4 patches)");
    options.max_length = 10;
    CHECK_OK(sheaf__sequence_prompt(&s, (sheaf__ids){ id, 2 }, &options));
    assert_int_equal(s.length, 9);
    assert_int_equal(s.used, 9);
    assert_int_equal(s.image_position, 6);
    assert_int_equal(s.position_ids[8], 5);
    sheaf__sequence_release(&s);
    options.max_length = INT64_MAX;
    CHECK_FAILS(sheaf__sequence_prompt(&s, (sheaf__ids){ id, 2 }, &options), SHEAF_E_ARG,
                "lengths from 0");
    options.max_length = -1;
    CHECK_FAILS(sheaf__sequence_train(&s, (sheaf__ids){ id, 2 }, (sheaf__ids){ id, 2 }, &options),
                SHEAF_E_ARG, "-1");
    options.max_length = 3; /* too small for the image */
    CHECK_FAILS(sheaf__sequence_train(&s, (sheaf__ids){ id, 2 }, (sheaf__ids){ id, 2 }, &options),
                SHEAF_E_DATA, "max_length 19");
}

/* ---- a record to a sequence ---- */

static void check_composed(const recording *r)
{
    const json_t *cases = json_object_get(r->cases, "cases");
    for (size_t i = 0; i < json_array_size(cases); i++) {
        const json_t *one = json_array_get(cases, i), *want = json_object_get(one, "result");
        const sheaf__turn turn = { string_of(one, "prompt"), string_of(one, "caption") };
        const sheaf__record record = { .image = "x.jpg", .turn = &turn, .turns = 1 };
        sheaf__compose_options options = { .tokenizer = r->model,
                                           .layout = { number_of(one, "image_length"),
                                                       number_of(one, "max_length"), r->bos, r->eos,
                                                       r->pad } };
        CHECK_OK(sheaf__template_find(&options.version, string_of(one, "version"), NULL));
        sheaf__sequence s = { 0 };
        sheaf_status *st = sheaf__compose(&s, &record, &options);
        if ((st == NULL) != json_is_object(want))
            fail_msg("%s: case %zu: wrongly %s", r->path, i, st == NULL ? "taken" : "refused");
        sheaf_status_free(st);
        if (json_is_object(want))
            same_sequence(r->path, want, &s);
        sheaf__sequence_release(&s);
        options.no_answer = true;
        options.layout.max_length = 0;
        CHECK_OK(sheaf__compose(&s, &record, &options));
        same_sequence(r->path, json_object_get(one, "inference"), &s);
        sheaf__sequence_release(&s);
    }
}

TEST(test_compose__records_become_the_recorded_sequences)
{
    each(check_composed);
}

TEST(test_compose__what_is_left_out_is_counted)
{
    static const sheaf__turn turn[] = { { "a", "b" }, { "c", "defghijk" }, { "q", NULL } };
    sheaf__record record = { .turn = turn, .turns = 2 };
    sheaf__compose_options options = {
        .version = SHEAF__CHAT_OLD,
        .layout = { .patches = 9, .max_length = 53, .bos = 256, .eos = 257, .pad = 258 }
    };
    sheaf__sequence s = { 0 };
    CHECK_OK(sheaf__compose(&s, &record, &options));
    assert_int_equal(s.cut, 1);
    sheaf__sequence_release(&s);
    options.layout.max_length = 54;
    CHECK_OK(sheaf__compose(&s, &record, &options));
    assert_int_equal(s.input_ids[0], 256);
    assert_int_equal(s.input_ids[1], 'Q'); /* no image, so no patches */
    assert_int_equal(s.input_ids[s.context], 'd');
    assert_int_equal(s.image_position, -1);
    sheaf__sequence_release(&s);
    options.version = SHEAF__VQA;
    CHECK_FAILS(sheaf__compose(&s, &record, &options), SHEAF_E_DATA,
                "template 'vqa' has no place for turns before it | 2 turns");
    record = (sheaf__record){ .turn = turn + 2, .turns = 1 };
    CHECK_FAILS(sheaf__compose(&s, &record, &options), SHEAF_E_DATA, "one, to be trained");
    options.no_answer = true;
    CHECK_OK(sheaf__compose(&s, &record, &options));
    sheaf__sequence_release(&s);
}

/* For a model that reads pictures; to another it is text. */
TEST(test_compose__the_mark_of_a_picture_is_no_text)
{
    static const sheaf__turn turn = { "a<image>b", NULL };
    sheaf__record record = { .turn = &turn, .turns = 1 };
    sheaf__compose_options options = { .no_answer = true, .layout = { .patches = 4, .bos = 256 } };
    sheaf__sequence s = { 0 };
    CHECK_FAILS(sheaf__compose(&s, &record, &options), SHEAF_E_DATA,
                "question 1 | a picture for '<image>' | none");
    options.layout.patches = 0;
    CHECK_OK(sheaf__compose(&s, &record, &options));
    assert_int_equal(s.context, 1 + 9);
    sheaf__sequence_release(&s);
    record.image = "x.jpg";
    options.layout.patches = 4;
    CHECK_OK(sheaf__compose(&s, &record, &options));
    assert_int_equal(s.context, 1 + 6 + 2);
    sheaf__sequence_release(&s);
    static const sheaf__turn later[] = { { "a", "b" }, { "<image>c", NULL } };
    record = (sheaf__record){ .image = "x.jpg", .turn = later, .turns = 2 };
    options.version = SHEAF__CHAT_OLD;
    CHECK_FAILS(sheaf__compose(&s, &record, &options), SHEAF_E_DATA,
                "question 2 | '<image>' once, in the first question");
}

FIXTURE(make_scratch, remove_scratch);
