/* safetensors_test.c - the official parser's verdicts, hostile headers, and files that equal the
 * official writer's. */
#include "tests/files.h"
#include "tests/golden.h"

#include <dirent.h>
#include <inttypes.h>
#include <jansson.h>
#include <unistd.h>

#include <time.h>

#include "base/text.h"
#include "formats/safetensors.h"
#include "tests/faults/faults.h"

/* ---- the official parser's verdicts ---- */

/* "a:F32[1], z:F32[1]", sorted by name, as verdicts.json spells what a file holds. */
static char *summary(const sheaf_safetensors *file)
{
    sheaf_text text = { 0 };
    char *out = NULL;
    const sheaf_safetensors_header *h = &file->header;
    for (int64_t i = 0; i < h->count; i++) {
        const sheaf_safetensors_entry *e = &h->entry[h->by_name[i].index];
        sheaf__text_add(&text, "%s%s:%s[", i > 0 ? ", " : "", e->name, sheaf_dtype_name(e->dtype));
        for (int d = 0; d < e->ndim; d++)
            sheaf__text_add(&text, "%s%" PRId64, d > 0 ? ", " : "", e->shape[d]);
        sheaf__text_add(&text, "]");
    }
    CHECK_OK(sheaf__text_take(&out, &text));
    return out;
}

/* Our message contains `ours` if the official parser's has `theirs`. */
static const struct {
    const char *theirs, *ours;
} defects[] = {
    { "header too small", "header length" },
    { "header too large", "header length" },
    { "invalid header length", "header length" },
    { "invalid UTF-8", "UTF-8" },
    { "unknown variant", "dtype" },
    { "floating point", "shape" },
    { "integer `-1`", "shape" },
    { "expected a string", "__metadata__" },
    { "missing field `data_offsets`", "data_offsets" },
    { "key must be a string", "a string" },
    { "trailing characters", "nothing after the JSON" },
    { "not end up at a byte boundary", "whole bytes" },
    { "invalid offset for tensor", "data_offsets" },
    { "overflow computing buffer size", "2^64 bits" },
    { "invalid shape, data type, or offset", "bytes, by shape and dtype" },
    { "not fully covered", "bytes of data after the header" },
};

static void check_verdict(const char *path, const char *name, const char *verdict)
{
    sheaf_safetensors *file = NULL;
    sheaf_status *st = sheaf__safetensors_open(&file, path);
    if (strncmp(verdict, "accepted: ", 10) == 0) {
        CHECK_OK(st);
        char *text = summary(file);
        assert_string_equal(text, verdict + 10);
        free(text);
        sheaf__safetensors_close(file);
        return;
    }
    for (size_t i = 0; i < ARRAY_LEN(defects); i++)
        if (strstr(verdict, defects[i].theirs) != NULL) {
            CHECK_FAILS(st, SHEAF_E_FORMAT, defects[i].ours);
            return;
        }
    fail_msg("%s: no row of defects[] knows the verdict '%s'", name, verdict);
}

TEST(test_open__judges_like_the_official_parser)
{
    json_t *root = json_load_file(golden("llama/safetensors_edge/verdicts.json"), 0, NULL);
    const char *name;
    json_t *verdict;
    int n = 0;
    assert_non_null(root);
    json_object_foreach(json_object_get(root, "verdicts"), name, verdict)
    {
        char path[700];
        snprintf(path, sizeof path, "%s/%s", golden("llama/safetensors_edge"), name);
        check_verdict(path, name, json_string_value(verdict));
        n++;
    }
    assert_int_equal(n, 58);
    json_decref(root);
}

/* ---- headers by hand ---- */

#define T4 "\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]"

#define OF(shape, offsets)                                                                         \
    "{\"a\":{\"dtype\":\"F32\",\"shape\":" shape ",\"data_offsets\":" offsets "}}"
#define WITH(more) "{\"a\":{" T4 ",\"x\":" more "}}"

/* Parses a header in a file that has `data` bytes of data. */
static sheaf_status *parse_n(const char *text, size_t size, int64_t data)
{
    sheaf_safetensors_header header;
    sheaf_status *st = sheaf__safetensors_parse(&header, text, size, 8 + (int64_t)size + data);
    if (st == NULL)
        sheaf__safetensors_header_release(&header);
    return st;
}

static sheaf_status *parse(const char *text, int64_t data)
{
    return parse_n(text, strlen(text), data);
}

/* Verdicts of serde_json and the official validation in corners that no recorded file has. */
TEST(test_parse__corners_accepted)
{
    static const struct {
        const char *text;
        int64_t data;
    } rows[] = {
        { "{\"a\":{" T4 "}}", 4 },
        { " \n\t\r{ \"a\" : { " T4 " } } \n", 4 },
        { "{\"__metadata__\":null,\"a\":{" T4 "}}", 4 },
        { "{\"__metadata__\":{\"k\":\"1\",\"k\":\"2\"}}", 0 },
        { "{\"a\":{" T4 ",\"x\":[1,-2.5e3,{\"y\":null}],\"x\":true}}", 4 },
        { "{\"a\":{" T4 "},\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}", 2 },
        { "{\"\\u0061\":{" T4 "},\"a\":{" T4 "}}", 4 }, /* one name in two spellings */
        { "{\"\":{" T4 "}}", 4 },
        { "{\"a b\":{" T4 ",\"x\":[0,9,-0,0.5,1E+2],\"y\":\"\\uE000\\uD83D\\uDe00\"}}", 4 },
        { "{\"\\ud83d\\ude00\\n\\\"\":{" T4 "}}", 4 },
        { OF("[0,18446744073709551615]", "[0,0]"), -1 },
        { OF("[9223372036854775807,2,0]", "[0,0]"), -1 },
        { OF("[0,4611686018427387904,4611686018427387904]", "[0,0]"), -1 },
        { "{\"a\":{\"dtype\":\"U8\",\"shape\":[4611686018427387904,0],\"data_offsets\":[0,0]}}",
          -1 },
        { OF("[0,1099511627776]", "[0,0]"), 0 },
        { OF("[1,1,1,1,1,1,1,1]", "[0,4]"), 4 },
        { "{\"b\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[4,4]},\"a\":{" T4 "},"
          "\"c\":{\"dtype\":\"F64\",\"shape\":[0],\"data_offsets\":[4,4]}}",
          4 },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (rows[i].data >= 0)
            CHECK_OK(parse(rows[i].text, rows[i].data));
        else /* accepted by the official parser; an int64_t cannot hold it */
            CHECK_FAILS(parse(rows[i].text, 0), SHEAF_E_UNSUPPORTED, "shape");
}

TEST(test_parse__corners_refused)
{
    static const struct {
        const char *text;
        int64_t data;
        const char *part;
    } rows[] = {
        { "", 0, "an object" },
        { "[]", 0, "an object" },
        { "{", 0, "a string" },
        { "{}{}", 0, "nothing after" },
        { "{\"a\":{" T4 "},}", 4, "a string" },
        { "{\"a\":{" T4 "} \"b\":1}", 4, "',' or '}'" },
        { "{\"a\" {" T4 "}}", 4, "':'" },
        { "{\"a\":1}", 0, "an object with dtype" },
        { "{\"a\":null}", 0, "an object with dtype" },
        { "{\"a\":[\"F32\",[1],[0,4]]}", 4, "an object with dtype" },
        { "{\"a\":{" T4 ",\"dtype\":\"F32\"}}", 4, "each field once" },
        { "{\"a\":{" T4 ",\"shape\":[1]}}", 4, "each field once" },
        { "{\"a\":{" T4 ",\"data_offsets\":[0,4]}}", 4, "each field once" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, "data_offsets" },
        { "{\"\xff\":{" T4 "}}", 4, "byte 2 of the JSON | UTF-8" },
        { "{}\xf0\x9f\x98", 0, "byte 2 of the JSON | UTF-8" }, /* cut by the end */
        { "{\"__metadata__\":{},\"__metadata__\":{}}", 0, "__metadata__ once" },
        { "{\"__metadata__\":[]}", 0, "an object of strings" },
        { "{\"__metadata__\":{\"a\":null}}", 0, "a string" },
        { "{\"a\":{\"dtype\":\"F33\",\"shape\":[1],\"data_offsets\":[0,4]},\"a\":{" T4 "}}", 4,
          "dtype" }, /* the lost duplicate must be sound too */
        { "{\"a\":{\"dtype\":5,\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "a string" },
        { "{\"a\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "dtype" },
        { "{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4, "shape" },
        { OF("1", "[0,4]"), 4, "shape" },
        { OF("[-0]", "[0,0]"), 0, "a whole number" },
        { OF("[01]", "[0,4]"), 4, "a whole number" },
        { OF("[1e0]", "[0,4]"), 4, "a whole number" },
        { OF("[\"1\"]", "[0,4]"), 4, "a whole number" },
        { OF("[true]", "[0,4]"), 4, "a whole number" },
        { OF("[1,]", "[0,4]"), 4, "a whole number" },
        { OF("[1]", "[0,18446744073709551616]"), 4, "below 2^64" },
        { OF("[1]", "[0]"), 4, "a second number" },
        { OF("[1]", "{\"0\":4}"), 4, "data_offsets, a list of two numbers" },
        { OF("[1]", "5"), 4, "data_offsets, a list of two numbers" },
        { OF("[1]", "[0,4,4]"), 4, "']' after two numbers" },
        { OF("[1]", "[]"), 4, "a whole number" },
        { OF("[4611686018427387904,4]", "[0,0]"), 0, "2^64 bits" },
        { OF("[576460752303423489]", "[0,4]"), 4, "2^64 bits" }, /* 32 * that = 2^64 + 32 */
        { WITH("tru"), 4, "a JSON value" },
        { WITH("-"), 4, "a number" },
        { WITH("1."), 4, "a number" },
        { WITH(".5"), 4, "a JSON value" },
        { WITH("1e"), 4, "a number" },
        { WITH("\"\\x\""), 4, "an escape" },
        { WITH("\"\\u12g4\""), 4, "hexadecimal" },
        { "{\"a", 4, "the end of a string" },
        { "{\"a\\", 4, "the end of a string" },
        { "{\"a\": ", 4, "an object with dtype, shape and data_offsets | the end of the text" },
        { "{\"a\":\001}", 4, "| byte 0x01" },
        { "{\"a\":{" T4 "}}", 5, "4 bytes of data" },
        { "{\"a\":{" T4 "}}", 3, "cut short" },
        { "{\"a\":{" T4 "}}", 0, "cut short" },
        { "{\"a\":{" T4 "},\"b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[3,4]}}", 4,
          "an overlap" },
        { "{\"a\":{" T4 "},\"b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[5,6]}}", 6,
          "a hole" },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        sheaf_status *st = parse(rows[i].text, rows[i].data);
        if (st == NULL)
            fail_msg("accepted: %s", rows[i].text);
        CHECK_FAILS(st, SHEAF_E_FORMAT, rows[i].part);
    }
    CHECK_FAILS(parse("{\"a\\u0000\":{" T4 "}}", 4), SHEAF_E_UNSUPPORTED, "strings without NUL");
    CHECK_FAILS(parse(OF("[1,1,1,1,1,1,1,1,1]", "[0,4]"), 4), SHEAF_E_UNSUPPORTED,
                "at most 8 axes");
}

TEST(test_parse__the_last_of_equal_names_counts)
{
    static const char text[] =
        "{\"__metadata__\":{\"b\":\"1\",\"a\":\"2\",\"b\":\"3\",\"c\":\"4\",\"b\":\"5\"},"
        "\"x\":{\"dtype\":\"U8\",\"shape\":[9],\"data_offsets\":[0,9]},"
        "\"y\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[4,7]},"
        "\"x\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[0,8]},"
        "\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[2,4]},"
        "\"x\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}";
    sheaf_safetensors_header h;
    CHECK_OK(sheaf__safetensors_parse(&h, text, sizeof text - 1, 8 + sizeof text - 1 + 7));
    assert_int_equal(h.count, 3);
    assert_string_equal(h.entry[0].name, "x");
    assert_int_equal(h.entry[0].bytes, 2);
    assert_int_equal(h.entry[0].offset, 8 + sizeof text - 1);
    assert_string_equal(h.entry[1].name, "a");
    assert_string_equal(h.entry[2].name, "y");
    assert_string_equal(h.entry[h.by_name[0].index].name, "a");
    assert_string_equal(h.entry[h.by_name[1].index].name, "x");
    static const char *const want[][2] = { { "a", "2" }, { "b", "5" }, { "c", "4" } };
    assert_int_equal(h.npairs, 3);
    for (int i = 0; i < 3; i++) {
        assert_string_equal(h.pair[i].key, want[i][0]);
        assert_string_equal(h.pair[i].value, want[i][1]);
    }
    sheaf__safetensors_header_release(&h);
}

/* As many keys as a header may hold take the time of sorting them. */
TEST(test_parse__many_keys_of_metadata_in_little_time)
{
    enum { KEYS = 200000 };
    char *text = malloc((size_t)KEYS * 24 + 100), *at = text;
    assert_non_null(text);
    at += sprintf(at, "{\"__metadata__\":{");
    for (int i = 0; i < KEYS; i++)
        at += sprintf(at, "%s\"k%d\":\"%d\"", i > 0 ? "," : "", i % (KEYS / 2), i);
    at += sprintf(at, "}}");
    sheaf_safetensors_header header;
    const clock_t begin = clock();
    CHECK_OK(sheaf__safetensors_parse(&header, text, (size_t)(at - text), 8 + (at - text)));
    const double seconds = (double)(clock() - begin) / CLOCKS_PER_SEC;
    assert_int_equal(header.npairs, KEYS / 2);
    for (int64_t i = 0; i < header.npairs; i++) /* the later value of each */
        assert_int_equal(atoi(header.pair[i].value), atoi(header.pair[i].key + 1) + KEYS / 2);
    if (seconds > 10) /* of the square it was minutes; this is a hundredth of a second, under
                         sanitizers a second */
        fail_msg("%.1f seconds", seconds);
    sheaf__safetensors_header_release(&header);
    free(text);
}

TEST(test_parse__depth_is_limited_as_in_serde)
{
    char text[1200];
    for (int depth = 120; depth < 130; depth++) { /* of lists, inside two objects */
        int n = snprintf(text, sizeof text, "{\"a\":{" T4 ",\"x\":");
        memset(text + n, '[', (size_t)depth);
        memset(text + n + depth, ']', (size_t)depth);
        strcpy(text + n + 2 * depth, "}}");
        if (depth + 2 <= 127)
            CHECK_OK(parse(text, 4));
        else
            CHECK_FAILS(parse(text, 4), SHEAF_E_FORMAT, "at most 127 levels");
    }
}

TEST(test_parse__every_cut_is_refused)
{
    static const char whole[] =
        "{\"__metadata__\":{\"k\":\"v\"},\"a\":{\"dtype\":\"F32\",\"shape\":[1,2],"
        "\"data_offsets\":[0,8],\"x\":[1.5e3,null,\"\\u00e9\"]}}";
    CHECK_OK(parse_n(whole, sizeof whole - 1, 8));
    for (size_t n = 0; n < sizeof whole - 1; n++) {
        char *exact = malloc(n + 1); /* so that reading past the end is seen */
        memcpy(exact, whole, n);
        sheaf_status *st = parse_n(exact, n, 8);
        assert_non_null(st);
        sheaf_status_free(st);
        free(exact);
    }
}

/* ---- reading ---- */

TEST(test_read__parts_of_a_file)
{
    sheaf_safetensors *file = NULL;
    CHECK_OK(sheaf__safetensors_open(&file, golden("llama/tiny_llama/hf/model.safetensors")));
    assert_string_equal(sheaf__safetensors_metadata(file, "format"), "pt");
    assert_null(sheaf__safetensors_metadata(file, "formats"));
    const sheaf_safetensors_entry *e =
        sheaf__safetensors_find(file, "model.layers.1.mlp.down_proj.weight");
    assert_true(e != NULL && e->ndim == 2 && e->shape[0] == 64 && e->shape[1] == 172 &&
                e->dtype == SHEAF_F32);
    assert_null(sheaf__safetensors_find(file, "model.layers.9.mlp.down_proj.weight"));
    static float whole[64 * 172], part[64 * 172];
    CHECK_OK(sheaf__safetensors_read(file, e, 0, whole, e->bytes));
    CHECK_OK(sheaf__safetensors_read(file, e, 3 * 172 * 4, part, 5 * 172 * 4));
    CHECK_BYTES("rows", part, whole + 3 * 172, 5 * 172 * 4);
    CHECK_FAILS(sheaf__safetensors_read(file, e, e->bytes - 3, part, 4), SHEAF_E_ARG,
                "within 0 to");
    CHECK_FAILS(sheaf__safetensors_read(file, e, -1, part, 4), SHEAF_E_ARG, "within 0 to");
    CHECK_FAILS(sheaf__safetensors_read(file, e, 0, part, -1), SHEAF_E_ARG, "within 0 to");
    CHECK_FAILS(sheaf__safetensors_read(file, e, e->bytes + 1, part, 0), SHEAF_E_ARG,
                "within 0 to");
    CHECK_OK(sheaf__safetensors_read(file, e, e->bytes, part, 0));
    sheaf__safetensors_close(file);
}

/* A scalar is one by one; of three axes the last gives the columns; half bytes have none. */
TEST(test_write__boxes_of_other_shapes)
{
    static const sheaf_safetensors_spec specs[] = { { "s", SHEAF_F32, 0, { 0 } },
                                                    { "c", SHEAF_F32, 3, { 2, 3, 4 } },
                                                    { "f", SHEAF_F4, 1, { 2 } } };
    float all[24], box[6] = { 0 }, one = 7;
    for (int i = 0; i < 24; i++)
        all[i] = (float)i;
    sheaf_safetensors *file = NULL;
    sheaf_safetensors_writer *w = NULL;
    CHECK_OK(sheaf__remove_tree(at("shape")));
    CHECK_OK(sheaf__safetensors_begin(&w, at("shape"), specs, 3, NULL, 0));
    CHECK_OK(sheaf__safetensors_write_box(w, 0, 0, 1, 0, 1, &one));
    CHECK_FAILS(sheaf__safetensors_write_box(w, 1, 0, 7, 0, 4, all), SHEAF_E_ARG, "inside [6, 4]");
    CHECK_OK(sheaf__safetensors_write_box(w, 1, 0, 6, 0, 4, all));
    CHECK_FAILS(sheaf__safetensors_write_box(w, 2, 0, 1, 0, 1, all), SHEAF_E_UNSUPPORTED,
                "elements of whole bytes");
    CHECK_OK(sheaf__safetensors_write(w, 2, 0, all, 1));
    CHECK_OK(sheaf__safetensors_finish(w));
    CHECK_OK(sheaf__safetensors_open(&file, at("shape")));
    CHECK_OK(sheaf__safetensors_read(file, sheaf__safetensors_find(file, "s"), 0, box, 4));
    assert_true(box[0] == 7);
    CHECK_OK(sheaf__safetensors_read(file, sheaf__safetensors_find(file, "c"), 36, box, 24));
    CHECK_BYTES("three axes", box, all + 9, sizeof box);
    sheaf__safetensors_close(file);
    sheaf__safetensors_close(NULL);
}

TEST(test_read__a_file_cut_after_opening)
{
    sheaf_safetensors *file = NULL;
    sheaf_safetensors_writer *w = NULL;
    const sheaf_safetensors_spec spec = { "a", SHEAF_F32, 1, { 4 } };
    float values[4] = { 1, 2, 3, 4 };
    CHECK_OK(sheaf__safetensors_begin(&w, at("cut"), &spec, 1, NULL, 0));
    CHECK_OK(sheaf__safetensors_write(w, 0, 0, values, 16));
    CHECK_OK(sheaf__safetensors_finish(w));
    CHECK_FAILS(sheaf__safetensors_begin(&w, at("cut"), &spec, 1, NULL, 0), SHEAF_E_IO,
                "cannot create the file");
    CHECK_OK(sheaf__safetensors_open(&file, at("cut")));
    assert_int_equal(truncate(at("cut"), file->header.entry[0].offset + 10), 0);
    CHECK_FAILS(sheaf__safetensors_read(file, file->header.entry, 0, values, 16), SHEAF_E_FORMAT,
                "ends too early | 16 bytes at offset");
    sheaf__safetensors_close(file);
}

/* ---- writing ---- */

static char *slurp(const char *path, size_t *size)
{
    char *bytes = NULL;
    CHECK_OK(sheaf__file_read_all(&bytes, size, path, 1 << 24));
    return bytes;
}

/* Writes again what a file holds, tensors declared and written in a scrambled order and in
 * pieces. */
static void rewrite(const char *from, const char *to)
{
    sheaf_safetensors *file = NULL;
    sheaf_safetensors_writer *w = NULL;
    sheaf_safetensors_spec spec[64];
    CHECK_OK(sheaf__safetensors_open(&file, from));
    const int64_t n = file->header.count;
    assert_true(n <= 64);
    for (int64_t i = 0; i < n; i++) {
        const sheaf_safetensors_entry *e = &file->header.entry[(i * 37 + 11) % n];
        spec[i] = (sheaf_safetensors_spec){ e->name, e->dtype, e->ndim, { 0 } };
        memcpy(spec[i].shape, e->shape, sizeof e->shape);
    }
    CHECK_OK(sheaf__safetensors_begin(&w, to, spec, n, file->header.pair, file->header.npairs));
    for (int64_t i = n - 1; i >= 0; i--) {
        const sheaf_safetensors_entry *e = sheaf__safetensors_find(file, spec[i].name);
        char *bytes = malloc((size_t)e->bytes + 1);
        const int64_t cut = e->bytes / 3;
        CHECK_OK(sheaf__safetensors_read(file, e, 0, bytes, e->bytes));
        CHECK_OK(sheaf__safetensors_write(w, i, cut, bytes + cut, e->bytes - cut));
        CHECK_OK(sheaf__safetensors_write(w, i, 0, bytes, cut));
        free(bytes);
    }
    CHECK_OK(sheaf__safetensors_finish(w));
    sheaf__safetensors_close(file);
}

TEST(test_write__gives_the_bytes_of_the_official_writer)
{
    static const char *const files[] = {
        "llama/tiny_llama/hf/model.safetensors",
        "llama/tiny_qwen2/hf/model.safetensors",
        "llama/tiny_llama/hf_sharded/model-00002-of-00005.safetensors",
        "llama/half_precision/tiny_llama3rope_bf16.safetensors",
        "llama/tiny_llama/lora/adapter_final/adapter_model.safetensors",
        "llama/tiny_llama/fwd_inputs.safetensors", /* several dtypes */
    };
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        size_t n = 0, m = 0;
        CHECK_OK(sheaf__remove_tree(at("again")));
        rewrite(golden(files[i]), at("again"));
        char *want = slurp(golden(files[i]), &n), *got = slurp(at("again"), &m);
        if (n != m || memcmp(want, got, n) != 0)
            fail_msg("%s: %zu and %zu bytes, not the same", files[i], n, m);
        free(want);
        free(got);
    }
}

TEST(test_write__sorts_by_dtype_and_pads)
{
    const sheaf_safetensors_spec spec[] = { { "b", SHEAF_U8, 1, { 3 } },
                                            { "z", SHEAF_F32, 0, { 0 } },
                                            { "a", SHEAF_F32, 2, { 0, 5 } } };
    const sheaf_safetensors_pair pair[] = { { "n", "1\n" }, { "format", "pt" } };
    static const char want[] = "{\"__metadata__\":{\"format\":\"pt\",\"n\":\"1\\n\"},"
                               "\"a\":{\"dtype\":\"F32\",\"shape\":[0,5],\"data_offsets\":[0,0]},"
                               "\"z\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]},"
                               "\"b\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[4,7]}}";
    sheaf_safetensors_writer *w = NULL;
    size_t size = 0;
    CHECK_OK(sheaf__safetensors_begin(&w, at("sorted"), spec, 3, pair, 2));
    CHECK_OK(sheaf__safetensors_write(w, 0, 0, "xyz", 3));
    CHECK_OK(sheaf__safetensors_write(w, 1, 0, "1234", 4));
    CHECK_OK(sheaf__safetensors_write(w, 2, 0, "", 0));
    CHECK_OK(sheaf__safetensors_finish(w));
    char *got = slurp(at("sorted"), &size);
    const size_t header = (unsigned char)got[0] + 256u * (unsigned char)got[1];
    assert_int_equal(header % 8, 0);
    assert_int_equal(size, 8 + header + 7);
    assert_memory_equal(got + 8, want, sizeof want - 1);
    for (size_t i = sizeof want - 1; i < header; i++)
        assert_int_equal(got[8 + i], ' ');
    assert_memory_equal(got + 8 + header, "1234xyz", 7);
    free(got);
}

TEST(test_write__boxes)
{
    const sheaf_safetensors_spec spec = { "w", SHEAF_U8, 2, { 3, 5 } };
    sheaf_safetensors_writer *w = NULL;
    size_t size = 0;
    CHECK_OK(sheaf__safetensors_begin(&w, at("boxes"), &spec, 1, NULL, 0));
    CHECK_OK(sheaf__safetensors_write_box(w, 0, 0, 2, 0, 3, "abcfgh"));
    CHECK_OK(sheaf__safetensors_write_box(w, 0, 0, 2, 3, 2, "deij"));
    CHECK_OK(sheaf__safetensors_write_box(w, 0, 2, 1, 0, 2, "kl"));
    CHECK_OK(sheaf__safetensors_write_box(w, 0, 2, 1, 2, 3, "mno"));
    CHECK_FAILS(sheaf__safetensors_write_box(w, 0, 2, 2, 0, 1, "xx"), SHEAF_E_ARG, "'w': box");
    CHECK_FAILS(sheaf__safetensors_write(w, 0, 14, "xx", 2), SHEAF_E_ARG,
                "within 0 to 15 | 2 from 14");
    CHECK_FAILS(sheaf__safetensors_write(w, 0, -1, "xx", 1), SHEAF_E_ARG,
                "within 0 to 15 | 1 from -1");
    CHECK_FAILS(sheaf__safetensors_write(w, 0, 0, "xx", -1), SHEAF_E_ARG,
                "within 0 to 15 | -1 from 0");
    CHECK_OK(sheaf__safetensors_finish(w));
    char *got = slurp(at("boxes"), &size);
    assert_memory_equal(got + size - 15, "abcdefghijklmno", 15);
    free(got);
}

TEST(test_write__refuses_unsound_declarations)
{
    static const struct {
        sheaf_safetensors_spec spec[2];
        int64_t n;
        const char *part;
    } rows[] = {
        { { { "a", SHEAF_F32, 1, { 1 } }, { "a", SHEAF_F16, 1, { 2 } } }, 2, "each name once" },
        { { { "__metadata__", SHEAF_F32, 1, { 1 } } }, 1, "another name" },
        { { { "a", SHEAF_F32, 1, { -1 } } }, 1, "shape" },
        { { { "a", SHEAF_F4, 1, { 3 } } }, 1, "whole bytes" },
        { { { "a", SHEAF_F64, 2, { INT64_MAX, 2 } } }, 1, "2^63 bits" },
        { { { "a", SHEAF_F64, 9, { 1 } } }, 1, "at most 8 axes" },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        sheaf_safetensors_writer *w = NULL;
        CHECK_FAILS(sheaf__safetensors_begin(&w, at("unsound"), rows[i].spec, rows[i].n, NULL, 0),
                    SHEAF_E_ARG, rows[i].part);
        assert_int_equal(sheaf__path_kind(at("unsound")), SHEAF_PATH_NONE);
    }
}

TEST(test_write__an_incomplete_tensor_is_refused)
{
    const sheaf_safetensors_spec spec[] = { { "a", SHEAF_F32, 1, { 2 } },
                                            { "b", SHEAF_F32, 1, { 2 } } };
    sheaf_safetensors_writer *w = NULL;
    const float two[2] = { 1, 2 };
    for (int how = 0; how < 4; how++) {
        CHECK_OK(sheaf__safetensors_begin(&w, at("part"), spec, 2, NULL, 0));
        CHECK_OK(sheaf__safetensors_write(w, 0, 0, two, 8));
        if (how == 1)
            CHECK_OK(sheaf__safetensors_write(w, 1, 4, two, 4));
        for (int i = 0; how >= 2 && i < how; i++) /* the same half twice and three times */
            CHECK_OK(sheaf__safetensors_write(w, 1, 4, two, 4));
        CHECK_FAILS(sheaf__safetensors_finish(w), SHEAF_E_LAYOUT,
                    how == 0   ? "'b' was not written as a whole | 8 bytes, each once | 0 bytes"
                    : how == 1 ? "| 4 bytes"
                    : how == 2 ? "| 8 bytes, some twice"
                               : "| 12 bytes");
        assert_int_equal(sheaf__path_kind(at("part")), SHEAF_PATH_NONE);
    }
}

/* A late tensor of each file is shorter than declared, and a plain one is written before and after
 * it. */
TEST(test_write__late_tensors_have_the_length_they_turn_out_to_have)
{
    const sheaf_safetensors_spec spec[] = { { "b.late", SHEAF_U8, 1, { 100 } },
                                            { "z", SHEAF_F32, 1, { 2 } },
                                            { "a.late", SHEAF_U8, 1, { 5 } },
                                            { "c", SHEAF_U8, 1, { 3 } } };
    const sheaf_safetensors_pair pair = { (char *)"format", (char *)"pt" };
    const bool late[] = { true, false, true, false };
    const float two[2] = { 1, 2 };
    for (int lacks = 0; lacks < 2; lacks++) {
        sheaf_safetensors_writer *w = NULL;
        sheaf_safetensors *file = NULL;
        char text[16] = { 0 };
        CHECK_OK(sheaf__safetensors_begin_late(&w, at("late"), spec, late, 4, &pair, 1));
        CHECK_OK(sheaf__safetensors_late(w, 2, "again", 5));
        CHECK_OK(sheaf__safetensors_write(w, 1, 0, two, 8));
        CHECK_FAILS(sheaf__safetensors_late(w, 2, "longer", 6), SHEAF_E_ARG,
                    "'a.late': bytes | within 0");
        if (lacks == 0)
            CHECK_OK(sheaf__safetensors_late(w, 0, "eleven bytes", 11));
        CHECK_OK(sheaf__safetensors_write(w, 3, 0, "xyz", 3));
        if (lacks == 1) {
            CHECK_FAILS(sheaf__safetensors_finish(w), SHEAF_E_LAYOUT, "'b.late' was not written");
            assert_int_equal(sheaf__path_kind(at("late")), SHEAF_PATH_NONE);
            continue;
        }
        CHECK_OK(sheaf__safetensors_settle(w));
        CHECK_OK(sheaf__safetensors_open(&file, at("late"))); /* before the end, too */
        sheaf__safetensors_close(file);
        CHECK_OK(sheaf__safetensors_finish(w));
        CHECK_OK(sheaf__safetensors_open(&file, at("late")));
        assert_string_equal(sheaf__safetensors_metadata(file, "format"), "pt");
        const sheaf_safetensors_entry *e = sheaf__safetensors_find(file, "b.late");
        assert_int_equal(e->bytes, 11);
        CHECK_OK(sheaf__safetensors_read(file, e, 0, text, 11));
        assert_string_equal(text, "eleven byte");
        e = sheaf__safetensors_find(file, "z");
        CHECK_OK(sheaf__safetensors_read(file, e, 0, text, 8));
        assert_memory_equal(text, two, 8);
        sheaf__safetensors_close(file);
        CHECK_OK(sheaf__remove_tree(at("late")));
    }
}

static sheaf_status *write_small(void)
{
    const sheaf_safetensors_spec spec = { "a", SHEAF_F32, 1, { 2 } };
    const float two[2] = { 1, 2 };
    sheaf_safetensors_writer *w = NULL;
    sheaf_status *st = sheaf__safetensors_begin(&w, at("small"), &spec, 1, NULL, 0);
    if (st != NULL)
        return st;
    st = sheaf__safetensors_write(w, 0, 0, two, 8);
    if (st == NULL)
        return sheaf__safetensors_finish(w);
    sheaf__safetensors_abandon(w);
    return st;
}

TEST(test_write__any_failing_call_leaves_no_file)
{
    const sheaf_faults kinds[] = { { .action = SHEAF_FAULT_FAIL },
                                   { .action = SHEAF_FAULT_ENOSPC },
                                   { SHEAF_FAULT_MALLOC, SHEAF_FAULT_FAIL } };
    for (size_t a = 0; a < ARRAY_LEN(kinds); a++)
        for (int n = 1;; n++) {
            sheaf_faults faults = { kinds[a].op, kinds[a].action, .n = n };
            CHECK_OK(sheaf__remove_tree(at("small")));
            sheaf_status *st = UNDER(&faults, write_small());
            if (st == NULL) {
                assert_true(n > (a < 2 ? 4 : 1)); /* open, reserve, header, data, fsync */
                break;
            }
            sheaf_status_free(st);
            assert_int_equal(sheaf__path_kind(at("small")), SHEAF_PATH_NONE);
        }
    sheaf__safetensors_abandon(NULL);
}

FIXTURE(make_scratch, remove_scratch);
