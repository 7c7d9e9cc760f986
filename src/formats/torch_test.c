/* torch_test.c - files of the real torch against what they hold, and hostile ones. */
#include "tests/files.h"
#include "tests/golden.h"

#include <inttypes.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/text.h"
#include "formats/safetensors.h"
#include "formats/torch.h"
#include "formats/zip.h"

/* ---- recorded files ---- */

static int64_t bytes_of(const sheaf_pickle_tensor *t)
{
    int64_t bytes = (int64_t)sheaf_dtype_bytes(t->dtype);
    for (int d = 0; d < t->ndim; d++)
        bytes *= t->shape[d];
    return bytes;
}

static void check_tensor(const sheaf_torch *file, const sheaf_safetensors *expected,
                         const char *name, const sheaf_pickle_tensor *t)
{
    const sheaf_safetensors_entry *want = sheaf__safetensors_find(expected, name);
    if (want == NULL || t == NULL)
        fail_msg("%s: '%s' is %s", file->path, name, want == NULL ? "not expected" : "no tensor");
    assert_int_equal(t->dtype, want->dtype);
    assert_int_equal(t->ndim, want->ndim);
    for (int d = 0; d < t->ndim; d++)
        assert_int_equal(t->shape[d], want->shape[d]);
    char *got = malloc((size_t)want->bytes + 1), *wanted = malloc((size_t)want->bytes + 1);
    CHECK_OK(sheaf__torch_read(file, t, got, (size_t)want->bytes));
    CHECK_OK(sheaf__safetensors_read(expected, want, 0, wanted, want->bytes));
    CHECK_BYTES(name, got, wanted, want->bytes);
    free(got);
    free(wanted);
}

/* FILE.pt of torch_pickle against FILE.expected.safetensors, or all "tensors_*" against
 * expected.safetensors. */
static bool check_recorded(const char *folder, const char *name)
{
    char path[700], beside[700];
    const int stem = (int)(strlen(name) - 3);
    snprintf(path, sizeof path, "%s/%s", folder, name);
    snprintf(beside, sizeof beside, "%s/%.*s.expected.safetensors", folder, stem, name);
    if (strncmp(name, "tensors_", 8) == 0)
        snprintf(beside, sizeof beside, "%s/expected.safetensors", folder);
    if (sheaf__path_kind(beside) != SHEAF_PATH_FILE)
        return false;
    sheaf_torch *file = NULL;
    sheaf_safetensors *expected = NULL;
    CHECK_OK(sheaf__torch_open(&file, path));
    CHECK_OK(sheaf__torch_check_data(file));
    CHECK_OK(sheaf__safetensors_open(&expected, beside));
    const int64_t n = sheaf__pickle_count(file->doc->root);
    assert_true(n > 0);
    if (!file->legacy) /* the old form has no float8 */
        assert_int_equal(n, expected->header.count);
    for (int64_t i = 0; i < n; i++) {
        const char *key = sheaf__pickle_text(sheaf__pickle_key(file->doc->root, i));
        check_tensor(file, expected, key,
                     sheaf__pickle_tensor(file->doc, sheaf__pickle_value(file->doc->root, i)));
    }
    sheaf__safetensors_close(expected);
    sheaf__torch_close(file);
    return true;
}

TEST(test_open__recorded_tensors_are_as_expected)
{
    char folder[600], **names = NULL;
    int64_t count = 0, checked = 0;
    snprintf(folder, sizeof folder, "%s", golden("llama/torch_pickle"));
    CHECK_OK(sheaf__list_dir(&names, &count, folder));
    assert_non_null(names);
    for (int64_t i = 0; i < count; i++)
        if (strlen(names[i]) > 3 && strcmp(names[i] + strlen(names[i]) - 3, ".pt") == 0)
            checked += check_recorded(folder, names[i]);
    assert_in_range(checked, 3, count);
    sheaf__names_free(names, count);
}

TEST(test_open__a_bare_tensor_and_nested_values)
{
    sheaf_torch *file = NULL;
    CHECK_OK(sheaf__torch_open(&file, golden("llama/torch_pickle/bare_tensor.pt")));
    assert_non_null(sheaf__pickle_tensor(file->doc, file->doc->root));
    sheaf__torch_close(file);
    CHECK_OK(sheaf__torch_open(&file, golden("llama/torch_pickle/nested_with_namespace.pt")));
    const sheaf_pickle *root = file->doc->root, *args = sheaf__pickle_get(root, "args");
    int64_t n = 0;
    assert_true(sheaf__pickle_is_object(args, "argparse", "Namespace"));
    assert_true(sheaf__pickle_int(&n, sheaf__pickle_get(args, "padded_vocab_size")));
    assert_true(n > 0);
    assert_true(sheaf__pickle_is(sheaf__pickle_get(args, "vocab_size"), SHEAF_PICKLE_NONE));
    assert_non_null(
        sheaf__pickle_tensor(file->doc, sheaf__pickle_path(root, "model", "language_model",
                                                           "embedding", "weight", NULL)));
    assert_true(sheaf__pickle_is(sheaf__pickle_get(args, "s"), SHEAF_PICKLE_SET));
    assert_true(sheaf__pickle_is(sheaf__pickle_get(args, "b"), SHEAF_PICKLE_BYTES));
    assert_true(sheaf__pickle_is(sheaf__pickle_get(args, "dtype"), SHEAF_PICKLE_DTYPE));
    sheaf__torch_close(file);
}

/* ---- files by hand ---- */

/* These bytes as a file without a disk; the last four stay. */
static const char *as_path(const void *bytes, size_t size)
{
    static char path[4][40];
    static int fd[4], next;
    const int i = next++ % 4;
    if (fd[i] > 0)
        close(fd[i]);
    fd[i] = memfd_create("torch", MFD_CLOEXEC);
    assert_int_equal(write(fd[i], bytes, size), size);
    snprintf(path[i], sizeof path[i], "/proc/self/fd/%d", fd[i]);
    if (size == 0 && bytes == NULL) /* the end: close all */
        for (int k = 0; k < 4; k++)
            close(fd[k]);
    return path[i];
}

typedef struct item {
    const char *name, *bytes;
    size_t size;
    uint32_t wrong;
} item;

static sheaf_text zip_of(const item *items, int n)
{
    sheaf_text text = { 0 };
    sheaf_zip_entry e[8];
    char *piece = NULL;
    size_t size = 0;
    for (int i = 0; i < n; i++) {
        e[i] = (sheaf_zip_entry){ items[i].name, (int64_t)text.size, 0, (int64_t)items[i].size,
                                  sheaf__crc32(0, items[i].bytes, items[i].size) ^ items[i].wrong };
        CHECK_OK(sheaf__zip_place(&e[i]));
        CHECK_OK(sheaf__zip_local(&piece, &size, &e[i]));
        sheaf__text_bytes(&text, piece, size);
        sheaf__text_bytes(&text, items[i].bytes, items[i].size);
        free(piece);
    }
    CHECK_OK(sheaf__zip_tail(&piece, &size, e, n, (int64_t)text.size));
    sheaf__text_bytes(&text, piece, size);
    free(piece);
    return text;
}

#define PICKLE(text) ("\x80\x02" text "."), sizeof("\x80\x02" text ".") - 1
#define ID(key, count, more)                                                                       \
    "(X\7\0\0\0storagectorch\nByteStorage\nX\1\0\0\0" key "X\3\0\0\0cpuK" count more "tQ"
#define STRIDED(id, offset, size, step)                                                            \
    "ctorch._utils\n_rebuild_tensor_v2\n(" id "K" offset "K" size "\x85K" step "\x85\x89"          \
    "ccollections\nOrderedDict\n)RtR"
#define TENSOR(id, offset, size) STRIDED(id, offset, size, "\1")
#define ONE PICKLE("}X\1\0\0\0w" TENSOR(ID("0", "\4", ""), "\1", "\3") "s")

static sheaf_status *open_zip(const item *items, int n, bool data)
{
    sheaf_torch *file = NULL;
    sheaf_text text = zip_of(items, n);
    sheaf_status *st = sheaf__torch_open(&file, as_path(text.at, text.size));
    if (st == NULL && data)
        st = sheaf__torch_check_data(file);
    sheaf__torch_close(file);
    sheaf__text_release(&text);
    return st;
}

TEST(test_open__what_a_zip_file_must_have)
{
    const item good[] = { { "my model.v2/data.pkl", ONE },
                          { "my model.v2/byteorder", "little", 6 },
                          { "my model.v2/data/0", "abcd", 4 } };
    CHECK_OK(open_zip(good, 3, true));
    static const struct {
        item items[3];
        sheaf_code code;
        const char *part;
        bool data;
    } rows[] = {
        { { { "a/data.pkl", ONE }, { "a/version", "3\n", 2 }, { "b/data/0", "abcd", 4 } },
          SHEAF_E_FORMAT,
          "storage '0' | an entry data/0" },
        { { { "a/data.pkl", ONE }, { "a/version", "3\n", 2 }, { "a/data/0", "abc", 3 } },
          SHEAF_E_FORMAT,
          "4 bytes, by the pickle | an entry of 3" },
        { { { "a/data.pkl", ONE }, { "a/byteorder", "big", 3 }, { "a/data/0", "abcd", 4 } },
          SHEAF_E_UNSUPPORTED,
          "byte order | little | big" },
        { { { "a/data.pkl", ONE }, { "a/constants.pkl", "x", 1 }, { "a/data/0", "abcd", 4 } },
          SHEAF_E_UNSUPPORTED,
          "TorchScript" },
        { { { "word/document.xml", "x", 1 }, { "b", "x", 1 }, { "c", "x", 1 } },
          SHEAF_E_FORMAT,
          "not one of torch.save()" },
        { { { "a/data.pkl", ONE, 1 }, { "a/b", "", 0 }, { "a/data/0", "abcd", 4 } },
          SHEAF_E_FORMAT,
          "'a/data.pkl': its bytes are damaged" },
        { LIST({ "a/data.pkl", ONE }, { "a/b", "", 0 }, { "a/data/0", "abcd", 4, 1 }),
          SHEAF_E_FORMAT, "'data/0': its bytes are damaged", true },
        { LIST({ "a/data.pkl", PICKLE("cposix\nsystem\nX\4\0\0\0true\x85R") }, { "a/b", "", 0 },
               { "a/data/0", "abcd", 4 }),
          SHEAF_E_UNSAFE, "wants to call posix.system" },
        { LIST({ "a/data.pkl", PICKLE("}X\1\0\0\0w" TENSOR(ID("0", "\4", ""), "\2", "\3") "s") },
               { "a/b", "", 0 }, { "a/data/0", "abcde", 5 }),
          SHEAF_E_FORMAT, "'w': a tensor | inside the 4 elements" },
        { LIST({ "a/data.pkl", PICKLE(TENSOR(ID("0", "\4", "(X\1\0\0\0vK\1K\3t"), "\0", "\3")) },
               { "a/b", "", 0 }, { "a/data/0", "abcde", 5 }),
          SHEAF_E_FORMAT, "storage '0'" },
        { { { "a/data.pkl", ONE }, { "a/version", "3\n", 2 }, { "a/data/0", "abcde", 5 } },
          SHEAF_E_FORMAT,
          "4 bytes, by the pickle | an entry of 5" },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        CHECK_FAILS(open_zip(rows[i].items, 3, rows[i].data), rows[i].code, rows[i].part);
    CHECK_OK(open_zip(rows[6].items, 3, false)); /* data is only read by the full check */
}

TEST(test_open__names_what_is_no_file_of_torch)
{
    sheaf_torch *file = NULL;
    char tar[512] = "pickle";
    memcpy(tar + 257, "ustar", 5);
    CHECK_FAILS(sheaf__torch_open(&file, as_path("", 0)), SHEAF_E_FORMAT, "an empty file");
    CHECK_FAILS(sheaf__torch_open(&file, as_path("{\"a\": 1}", 8)), SHEAF_E_FORMAT, "7b 22 61");
    CHECK_FAILS(sheaf__torch_open(&file, as_path(tar, sizeof tar)), SHEAF_E_UNSUPPORTED,
                "a tar file");
    CHECK_FAILS(sheaf__torch_open(&file, at("none.pt")), SHEAF_E_IO, "none.pt");
    CHECK_FAILS(sheaf__torch_open(&file, golden("llama")), SHEAF_E_IO, "a folder");
    assert_false(sheaf__torch_is(as_path("PK", 2)));
    assert_false(sheaf__torch_is(at("none.pt")));
}

TEST(test_open_at__offsets_count_from_the_whole_file)
{
    const item items[] = { { "a/data.pkl", ONE }, { "a/data/0", "abcd", 4 } };
    sheaf_text zip = zip_of(items, 2), whole = { 0 };
    sheaf_torch *file = NULL;
    char got[3];
    sheaf__text_add(&whole, "before");
    sheaf__text_bytes(&whole, zip.at, zip.size);
    sheaf__text_add(&whole, "behind");
    const char *path = as_path(whole.at, whole.size);
    CHECK_OK(sheaf__torch_open_at(&file, path, 6, (int64_t)zip.size));
    const int64_t offset = sheaf__torch_offset(file, &file->doc->tensor[0]);
    assert_memory_equal(whole.at + offset, "bcd", 3);
    CHECK_OK(sheaf__torch_read(file, &file->doc->tensor[0], got, 3));
    assert_memory_equal(got, "bcd", 3);
    CHECK_FAILS(sheaf__torch_read(file, &file->doc->tensor[0], got, 2), SHEAF_E_ARG, "3 bytes");
    sheaf__torch_close_file(file);
    assert_int_equal(sheaf__torch_offset(file, &file->doc->tensor[0]), offset);
    sheaf__torch_close(file);
    CHECK_FAILS(sheaf__torch_open_at(&file, path, 6, (int64_t)zip.size + 7), SHEAF_E_FORMAT,
                "an item");
    CHECK_FAILS(sheaf__torch_open_at(&file, path, -1, 5), SHEAF_E_FORMAT, "an item");
    CHECK_FAILS(sheaf__torch_open_at(&file, path, INT64_MAX, INT64_MAX), SHEAF_E_FORMAT, "an item");
    CHECK_FAILS(sheaf__torch_open_at(&file, path, 5, (int64_t)zip.size), SHEAF_E_FORMAT,
                "item at byte 5");
    sheaf__text_release(&zip);
    sheaf__text_release(&whole);
}

/* ---- legacy files ---- */

#define MAGIC "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19."
#define PROTOCOL "\x80\x02M\xe9\x03."
#define SYSTEM(little) "\x80\x02}(X\x0d\0\0\0little_endian" little "u."
#define KEYS "\x80\x02](X\1\0\0\0aX\1\0\0\0be."
#define DATA "\5\0\0\0\0\0\0\0hello\2\0\0\0\0\0\0\0ok"
#define VIEWS                                                                                      \
    "\x80\x02](" TENSOR(ID("a", "\5", "N"), "\1", "\3") TENSOR(ID("b", "\2", "N"), "\0", "\2")     \
        TENSOR(ID("a", "\5", "(X\1\0\0\0vK\1K\4t"), "\1", "\3")                                    \
            STRIDED(ID("a", "\5", "N"), "\0", "\3", "\2") "e."

static sheaf_status *open_legacy(sheaf_torch **file, const char *bytes, size_t size)
{
    return sheaf__torch_open(file, as_path(bytes, size));
}

TEST(test_open__legacy_files_and_their_views)
{
    static const char good[] = MAGIC PROTOCOL SYSTEM("\x88") VIEWS KEYS DATA;
    static const char *const want[] = { "ell", "ok", "llo", "hlo" };
    sheaf_torch *file = NULL;
    CHECK_OK(open_legacy(&file, good, sizeof good - 1));
    assert_true(file->legacy);
    assert_int_equal(file->doc->ntensors, 4);
    for (int i = 0; i < 4; i++) {
        char got[4] = "";
        CHECK_OK(sheaf__torch_read(file, &file->doc->tensor[i], got, strlen(want[i])));
        assert_string_equal(got, want[i]);
    }
    CHECK_OK(sheaf__torch_check_data(file)); /* there is nothing to check */
    sheaf__torch_close(file);
    static const char framed[] =
        "\x80\x04\x95\x0d\0\0\0\0\0\0\0\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19." PROTOCOL
            SYSTEM("\x88") VIEWS KEYS DATA;
    CHECK_OK(open_legacy(&file, framed, sizeof framed - 1));
    assert_int_equal(file->doc->ntensors, 4);
    sheaf__torch_close(file);
    static const char empty[] =
        MAGIC PROTOCOL SYSTEM("\x88") "\x80\x02](" TENSOR(ID("a", "\5", "N"), "\1", "\3")
            TENSOR(ID("b", "\0", "N"), "\0",
                   "\0") "e." KEYS "\5\0\0\0\0\0\0\0hello\0\0\0\0\0\0\0\0"; /* ends the file */
    CHECK_OK(open_legacy(&file, empty, sizeof empty - 1));
    assert_int_equal(file->doc->ntensors, 2);
    sheaf__torch_close(file);
    for (size_t n = 1; n < sizeof good - 1; n++) {
        sheaf_status *st = open_legacy(&file, good, n);
        if (st == NULL)
            fail_msg("cut at %zu it was accepted", n);
        sheaf_status_free(st);
    }
}

TEST(test_open__legacy_files_refused)
{
    static const struct {
        const char *bytes;
        size_t size;
        sheaf_code code;
        const char *part;
    } rows[] = {
#define ROW(text) (text), sizeof(text) - 1
        { ROW(MAGIC PROTOCOL SYSTEM("\x89") VIEWS KEYS DATA), SHEAF_E_UNSUPPORTED, "byte order" },
        { ROW(MAGIC "\x80\x02M\xe8\x03." SYSTEM("\x88") VIEWS KEYS DATA), SHEAF_E_UNSUPPORTED,
          "1001" },
        { ROW(MAGIC PROTOCOL SYSTEM("\x88") "\x80\x02"
                                            "cos\nsystem\n)R." KEYS DATA),
          SHEAF_E_UNSAFE, "os.system" },
        { ROW(MAGIC PROTOCOL SYSTEM("\x88") VIEWS "\x80\x02](X\1\0\0\0ae."
                                                  "\5\0\0\0\0\0\0\0hello"),
          SHEAF_E_FORMAT, "storage 'b'" },
        { ROW(MAGIC PROTOCOL SYSTEM("\x88") VIEWS "\x80\x02](X\1\0\0\0aX\1\0\0\0ce." DATA),
          SHEAF_E_FORMAT, "keys that the value uses" },
        { ROW(MAGIC PROTOCOL SYSTEM("\x88") VIEWS "\x80\x02](X\1\0\0\0aK\1e." DATA), SHEAF_E_FORMAT,
          "keys" },
        { ROW(MAGIC PROTOCOL SYSTEM("\x88") VIEWS "\x80\x02N." DATA), SHEAF_E_FORMAT, "a list" },
        { ROW(MAGIC PROTOCOL SYSTEM("\x88") VIEWS KEYS "\5\0\0\0\0\0\0\0hello\2\0\0\0\0\0\0\0o"),
          SHEAF_E_FORMAT, "cut short" },
        { ROW(MAGIC PROTOCOL SYSTEM("\x88") VIEWS KEYS
              "\5\0\0\0\0\0\0\0hello\xff\xff\xff\xff\xff\xff\xff\xffok"),
          SHEAF_E_FORMAT, "storage 'b'" },
        { ROW(MAGIC PROTOCOL SYSTEM("\x88") VIEWS KEYS "\4\0\0\0\0\0\0\0hell\2\0\0\0\0\0\0\0ok"),
          SHEAF_E_FORMAT, "storage 'a' | 5 bytes" },
    };
    sheaf_torch *file = NULL;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        CHECK_FAILS(open_legacy(&file, rows[i].bytes, rows[i].size), rows[i].code, rows[i].part);
}

/* A pickle that is longer than what is read of the file at first. */
TEST(test_open__legacy_files_with_large_pickles)
{
    enum { TIMES = 30000 };
    sheaf_text text = { 0 };
    sheaf_torch *file = NULL;
    sheaf__text_bytes(
        &text, MAGIC PROTOCOL SYSTEM("\x88") "\x80\x02](" TENSOR(ID("a", "\5", "N"), "\1", "\3"),
        sizeof(MAGIC PROTOCOL SYSTEM("\x88") "\x80\x02](" TENSOR(ID("a", "\5", "N"), "\1", "\3")) -
            1);
    for (int i = 0; i < TIMES; i++)
        sheaf__text_bytes(&text, "X\4\0\0\0name", 9);
    sheaf__text_bytes(&text, "e.\x80\x02](X\1\0\0\0ae.\5\0\0\0\0\0\0\0hello", 2 + 12 + 13);
    CHECK_OK(open_legacy(&file, text.at, text.size));
    assert_int_equal(sheaf__pickle_count(file->doc->root), TIMES + 1);
    assert_memory_equal(text.at + sheaf__torch_offset(file, &file->doc->tensor[0]), "ell", 3);
    sheaf__torch_close(file);
    sheaf__text_release(&text);
}

/* ---- damage ---- */

/* A file that opens has its tensors inside, whatever was damaged. */
static bool survives(const char *bytes, size_t size)
{
    sheaf_torch *file = NULL;
    char dense[4096];
    sheaf_status *st = sheaf__torch_open(&file, as_path(bytes, size));
    const bool opened = st == NULL;
    for (int64_t i = 0; st == NULL && i < file->doc->ntensors; i++)
        if (bytes_of(&file->doc->tensor[i]) <= (int64_t)sizeof dense)
            CHECK_OK(sheaf__torch_read(file, &file->doc->tensor[i], dense,
                                       (size_t)bytes_of(&file->doc->tensor[i])));
    if (opened)
        st = sheaf__torch_check_data(file);
    sheaf_status_free(st);
    sheaf__torch_close(file);
    return opened;
}

TEST(test_open__recorded_files_damaged)
{
    static const char *const names[] = { "llama/torch_pickle/tensors_zip.pt",
                                         "llama/torch_pickle/tensors_legacy.pt" };
    for (int k = 0; k < 2; k++) {
        char *bytes = NULL;
        size_t size = 0;
        CHECK_OK(sheaf__file_read_all(&bytes, &size, golden(names[k]), 1 << 20));
        assert_true(survives(bytes, size));
        for (size_t n = 1; n < size; n++)
            if (survives(bytes, n))
                fail_msg("%s cut at %zu opened", names[k], n);
        for (size_t bit = 0; bit < size * 8; bit += 31) {
            bytes[bit / 8] ^= (char)(1 << bit % 8);
            survives(bytes, size);
            bytes[bit / 8] ^= (char)(1 << bit % 8);
        }
        free(bytes);
    }
}

static int close_paths(void **state)
{
    as_path(NULL, 0);
    return remove_scratch(state);
}

FIXTURE(make_scratch, close_paths);
