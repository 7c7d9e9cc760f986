/* gguf_test.c - llama.cpp's verdicts, hostile counts, and what files of its own say. */
#include "tests/files.h"
#include "tests/recordings.h"

#include <jansson.h>

#include "base/file.h"
#include "base/text.h"
#include "formats/gguf_write.h"

/* ---- llama.cpp's verdicts ---- */

/* Our message contains `ours` if llama.cpp's has `theirs`. */
static const struct {
    const char *theirs, *ours;
} defects[] = {
    { "failed to read tensor data binary blob", "cut short" },
    { "invalid magic", "magic" },
    { "bad GGUF version: 0", "version" },
    { "GGUFv1", "version" },
    { "this GGUF file is version 4", "version" },
    { "extremely large", "big-endian" },
    { "duplicate key", "each name once" },
    { "duplicate tensor", "each name once" },
    { "is empty", "an empty one" },
    { "has invalid GGUF type 13", "0 to 12" },
    { "has invalid GGUF type 9", "no array in an array" },
    { "string length 9223372036854775808", "length of a text" },
    { "string length 10234101760", "length of a text" },
    { "number of tensors is", "number of tensors" },
    { "number of key value pairs", "number of keys" },
    { "is not a power of 2", "a power of two" },
    { "must be of type u32", "of type u32" },
    { "has offset", "where the one before ends" },
    { "invalid number of dimensions", "at most 4" },
    { "invalid number of elements: -2", "fewer than 2^63 elements" },
    { "may cause overflow", "fewer than 2^63 elements" },
    { "(DEPRECATED)", "a type that ggml has" },
    { "invalid ggml type 999", "a type that ggml has" },
    { "not a multiple of block size (32)", "whole blocks of 32" },
    { "tensor name 1 is too long", "at most 63 bytes" },
    { "failed to read key-value pairs", "" }, /* cut, or an array longer than the file */
    { "failed to read header", "cut short" },
    { "failed to read tensor info", "cut short" },
};

static void check_verdict(const char *path, const char *name, const char *verdict, const char *why)
{
    sheaf__gguf *file = NULL;
    sheaf_status *st = sheaf__gguf_open(&file, path);
    if (strcmp(verdict, "accepted") == 0) {
        CHECK_OK(st);
        sheaf__gguf_close(file);
        return;
    }
    for (size_t i = 0; i < ARRAY_LEN(defects); i++)
        if (strstr(why, defects[i].theirs) != NULL) {
            if (st == NULL)
                fail_msg("%s was accepted: %s", name, why);
            const sheaf_code code = sheaf_status_code(st);
            CHECK_FAILS(st, code, defects[i].ours);
            return;
        }
    fail_msg("%s: no row of defects[] knows the verdict '%s'", name, why);
}

TEST(test_open__judges_like_llama_cpp)
{
    json_t *root = json_load_file(recording("gguf/edge/verdicts.json"), 0, NULL);
    const char *name;
    json_t *verdicts;
    int n = 0;
    assert_non_null(root);
    json_object_foreach(root, name, verdicts)
    {
        char path[700];
        const json_t *verdict = json_object_get(verdicts, "llama.cpp");
        snprintf(path, sizeof path, "%s/%s.gguf", recording("gguf/edge"), name);
        check_verdict(path, name, json_string_value(json_array_get(verdict, 0)),
                      json_string_value(json_array_get(verdict, 1)));
        n++;
    }
    assert_true(n >= 40);
    json_decref(root);
}

/* ---- what a file says ---- */

TEST(test_open__values_and_axes)
{
    sheaf__gguf *file = NULL;
    bool ok = true;
    CHECK_OK(sheaf__gguf_open(&file, recording("gguf/edge/good.gguf")));
    assert_int_equal(file->ntensors, 2);
    assert_int_equal(file->alignment, 32);
    for (int64_t i = 0; i < file->nkeys; i++)
        if (file->key[i].type == SHEAF__GGUF_F32)
            sheaf__gguf_number(&file->key[i], 0, &ok);
    assert_true(ok);
    assert_null(sheaf__gguf_find(file, "no such key"));
    assert_null(sheaf__gguf_string(sheaf__gguf_find(file, "no such key")));
    sheaf__gguf_integer(NULL, 0, &ok);
    assert_false(ok);
    sheaf__gguf_text with_zero = { "a\0b", 3 };
    sheaf__gguf_key key = { .type = SHEAF__GGUF_STRING, .count = 1, .texts = &with_zero };
    assert_null(sheaf__gguf_string(&key));
    for (int64_t i = 0; i < file->nkeys; i++) {
        char *text = sheaf__gguf_string(&file->key[i]);
        assert_int_equal(text != NULL, file->key[i].type == SHEAF__GGUF_STRING);
        free(text);
    }
    for (int64_t i = 0; i < file->ntensors; i++)
        assert_int_equal(file->tensor[i].offset % 32, 0);
    sheaf__gguf_close(file);
}

static void put_text(sheaf_text *to, const char *text)
{
    sheaf__text_little(to, strlen(text), 8);
    sheaf__text_add(to, "%s", text);
}

static void put_header(sheaf_text *to, uint64_t tensors, uint64_t keys)
{
    sheaf__text_add(to, "GGUF");
    sheaf__text_little(to, 3, 4);
    sheaf__text_little(to, tensors, 8);
    sheaf__text_little(to, keys, 8);
}

static void put_tensor(sheaf_text *to, const char *name, uint64_t size, uint64_t type,
                       uint64_t offset)
{
    put_text(to, name);
    sheaf__text_little(to, 1, 4);
    sheaf__text_little(to, size, 8);
    sheaf__text_little(to, type, 4);
    sheaf__text_little(to, offset, 8);
}

/* Every whole number reads as itself, whatever its type; a text is none. */
TEST(test_integer__of_every_type)
{
    static const struct {
        sheaf__gguf_value type;
        int bytes;
        int64_t value;
        bool ok;
    } rows[] = {
        { SHEAF__GGUF_U8, 1, 255, true },         { SHEAF__GGUF_I8, 1, -1, true },
        { SHEAF__GGUF_U16, 2, 65535, true },      { SHEAF__GGUF_I16, 2, -32768, true },
        { SHEAF__GGUF_U32, 4, 4294967295, true }, { SHEAF__GGUF_I32, 4, -2, true },
        { SHEAF__GGUF_U64, 8, INT64_MAX, true },  { SHEAF__GGUF_I64, 8, INT64_MIN, true },
        { SHEAF__GGUF_U64, 8, -1, false },        { SHEAF__GGUF_BOOL, 1, 1, true },
        { SHEAF__GGUF_F32, 4, 0, false },         { SHEAF__GGUF_F64, 8, 0, false },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        sheaf_text text = { 0 };
        sheaf__gguf *file = NULL;
        bool ok = true;
        put_header(&text, 0, 1);
        put_text(&text, "x");
        sheaf__text_little(&text, rows[i].type, 4);
        sheaf__text_little(&text, (uint64_t)rows[i].value, rows[i].bytes);
        assert_false(text.failed);
        CHECK_OK(sheaf__file_write_whole(at("one.gguf"), text.at, text.size));
        CHECK_OK(sheaf__gguf_open(&file, at("one.gguf")));
        const int64_t value = sheaf__gguf_integer(sheaf__gguf_find(file, "x"), 0, &ok);
        assert_int_equal(ok, rows[i].ok);
        if (ok)
            assert_int_equal(value, rows[i].value);
        sheaf__gguf_close(file);
        sheaf__text_release(&text);
    }
}

/* Whatever byte a file ends before, it is refused and nothing is read beyond its end. */
TEST(test_open__every_cut_is_refused)
{
    char *bytes = NULL;
    size_t size = 0;
    sheaf__gguf *file = NULL;
    CHECK_OK(sheaf__file_read_all(&bytes, &size, recording("gguf/edge/good.gguf"), 1 << 20));
    for (size_t n = 0; n < size; n++) {
        CHECK_OK(sheaf__file_write_whole(at("cut.gguf"), bytes, n));
        sheaf_status *st = sheaf__gguf_open(&file, at("cut.gguf"));
        assert_non_null(st);
        assert_int_equal(sheaf_status_code(st), SHEAF_E_FORMAT);
        sheaf_status_free(st);
    }
    CHECK_OK(sheaf__file_write_whole(at("whole.gguf"), bytes, size));
    CHECK_OK(sheaf__gguf_open(&file, at("whole.gguf")));
    sheaf__gguf_close(file);
    free(bytes);
}

/* Each type that ggml has and sheaf does not read is refused by its name. */
TEST(test_open__other_types_are_refused_by_name)
{
    static const struct {
        int type;
        const char *name;
    } rows[] = { { 16, "iq2_xxs" }, { 20, "iq4_nl" }, { 23, "iq4_xs" }, { 29, "iq1_m" },
                 { 34, "tq1_0" },   { 39, "mxfp4" },  { 9, "q8_1" } };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        sheaf_text text = { 0 };
        sheaf__gguf *file = NULL;
        put_header(&text, 1, 0);
        put_tensor(&text, "t", 256, (uint64_t)rows[i].type, 0);
        CHECK_OK(sheaf__file_write_whole(at("type.gguf"), text.at, text.size));
        CHECK_FAILS(sheaf__gguf_open(&file, at("type.gguf")), SHEAF_E_UNSUPPORTED, rows[i].name);
        sheaf__text_release(&text);
    }
}

static sheaf_status *count_fault(void *self, sheaf_status *fault)
{
    sheaf_text *all = self;
    sheaf__text_add(all, "%s;", sheaf_status_where(fault));
    sheaf_status_free(fault);
    return NULL;
}

/* One of no type, which says nothing of its size, one at a wrong place, one that is cut short. */
TEST(test_open__each_bad_tensor_is_heard_of)
{
    static const struct {
        const char *name;
        uint64_t type, offset;
    } rows[] = { { "a", 0, 0 }, { "b", 999, 32 }, { "c", 0, 64 },
                 { "d", 0, 7 }, { "e", 0, 128 },  { "f", 0, 160 } };
    sheaf_text text = { 0 }, heard = { 0 };
    sheaf__gguf *file = NULL;
    put_header(&text, ARRAY_LEN(rows), 0);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        put_tensor(&text, rows[i].name, 8, rows[i].type, rows[i].offset);
    const int64_t data = sheaf__gguf_padded((int64_t)text.size, 32);
    while ((int64_t)text.size < data + 160)
        sheaf__text_little(&text, 0, 1);
    assert_false(text.failed);
    CHECK_OK(sheaf__file_write_whole(at("bad.gguf"), text.at, text.size));
    const sheaf__gguf_faults faults = { count_fault, &heard };
    CHECK_OK(sheaf__gguf_open_sound(&file, at("bad.gguf"), &faults));
    char expected[512];
    snprintf(expected, sizeof expected,
             "%s: tensor 'b': type;%s: tensor 'd': offset;%s: tensor 'f': cut short;", file->path,
             file->path, file->path);
    assert_string_equal(heard.at, expected);
    assert_int_equal(file->ntensors, 3);
    assert_string_equal(file->tensor[1].name, "c");
    assert_int_equal(file->tensor[1].offset, data + 64);
    assert_string_equal(file->tensor[2].name, "e");
    assert_int_equal(file->tensor[2].offset, data + 128);
    sheaf__gguf_close(file);
    CHECK_FAILS(sheaf__gguf_open(&file, at("bad.gguf")), SHEAF_E_FORMAT, "tensor 'b': type");
    sheaf__text_release(&heard);
    sheaf__text_release(&text);
}

TEST(test_write__an_incomplete_tensor_is_refused)
{
    const sheaf__gguf_spec specs[] = { { "a", SHEAF__GGML_F32, 1, { 2 } },
                                       { "b", SHEAF__GGML_F32, 1, { 2 } } };
    const float two[2] = { 1, 2 };
    for (int there = 0; there < 2; there++) {
        sheaf__fill_file w;
        CHECK_OK(sheaf__gguf_begin(&w, at("part.gguf"), &(sheaf__gguf_keys){ 0 }, specs, 2));
        CHECK_OK(sheaf__fill_write(&w, 0, 0, two, sizeof two));
        CHECK_OK(sheaf__fill_write(&w, 1, 0, two, there * 4));
        CHECK_FAILS(sheaf__fill_finish(&w, NULL), SHEAF_E_LAYOUT,
                    there == 0 ? "'b' was not written as a whole | 8 bytes, each once | 0 bytes"
                               : "| 4 bytes");
        assert_int_equal(sheaf__path_kind(at("part.gguf")), SHEAF_PATH_NONE);
    }
}

TEST(test_alone__only_without_other_weights)
{
    static const char *const names[] = { "m.gguf", "a.txt", "z.safetensors" };
    char out[SHEAF_PATH_SIZE];
    CHECK_OK(sheaf__make_dirs(at("alone")));
    for (int i = 0; i < 3; i++) {
        const char *found;
        CHECK_OK(sheaf__file_write_whole(at_format("alone/%s", names[i]), "", 0));
        CHECK_OK(sheaf__gguf_alone(&found, out, at("alone")));
        assert_true((found != NULL) == (i < 2));
    }
}

FIXTURE(make_scratch, remove_scratch);
