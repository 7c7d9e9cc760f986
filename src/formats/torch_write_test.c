/* torch_write_test.c - PyTorch files that sheaf wrote, read back. torch.load(weights_only=True) of
 * torch 2.13 reads the same bytes, mapped or not, and Python's zipfile finds every checksum right.
 */
#include "tests/pickle_made.h"
#include "tests/files.h"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include "formats/torch.h"
#include "tests/faults/faults.h"

typedef struct spec {
    const char *name;
    sheaf_dtype dtype;
    int ndim;
    int64_t shape[3];
} spec;

static const spec specs[] = {
    { "a.weight", SHEAF_F32, 2, { 37, 11 } }, { "b.weight", SHEAF_BF16, 2, { 5, 300 } },
    { "empty", SHEAF_F16, 3, { 2, 0, 3 } },   { "scalar", SHEAF_I64, 0, { 0 } },
    { "fp8", SHEAF_F8_E4M3, 1, { 1000 } },    { "mask", SHEAF_BOOL, 1, { 1 } },
    { "u16", SHEAF_U16, 2, { 3, 3 } },        { "c", SHEAF_C64, 1, { 9 } },
};

/* {"module": the tensors, "iteration": 7} */
static sheaf_pickle_doc *describe(void)
{
    sheaf_pickle_doc *doc = NULL;
    CHECK_OK(sheaf__pickle_new(&doc));
    sheaf_pickle *root = sheaf__pickle_make(doc, SHEAF_PICKLE_DICT),
                 *module = sheaf__pickle_make(doc, SHEAF_PICKLE_DICT);
    for (size_t i = 0; i < ARRAY_LEN(specs); i++)
        sheaf__pickle_set(
            doc, module, specs[i].name,
            sheaf__pickle_make_tensor(doc, specs[i].dtype, specs[i].ndim, specs[i].shape));
    sheaf__pickle_set(doc, root, "module", module);
    sheaf__pickle_set(doc, root, "iteration", sheaf__pickle_make_int(doc, 7));
    CHECK_OK(sheaf__pickle_made(doc, root));
    return doc;
}

static unsigned char byte_of(int64_t tensor, int64_t i)
{
    return (unsigned char)(tensor * 37 + i * 101 + i / 256);
}

/* Bytes [begin, end) of a tensor, in pieces of `step`, the last piece first. */
static sheaf_status *fill(sheaf_torch_writer *w, int64_t tensor, int64_t begin, int64_t end,
                          int64_t step)
{
    sheaf_status *st = NULL;
    unsigned char piece[64];
    while (st == NULL && end > begin) {
        const int64_t n = end - begin < step ? end - begin : step;
        for (int64_t i = 0; i < n; i++)
            piece[i] = byte_of(tensor, end - n + i);
        st = sheaf__torch_write(w, tensor, end - n, piece, n);
        end -= n;
    }
    return st;
}

static void check_file(const char *path, const sheaf_pickle_doc *doc)
{
    sheaf_torch *file = NULL;
    int64_t n = 0;
    CHECK_OK(sheaf__torch_open(&file, path));
    CHECK_OK(sheaf__torch_check_data(file));
    assert_true(sheaf__pickle_int(&n, sheaf__pickle_get(file->doc->root, "iteration")));
    assert_int_equal(n, 7);
    for (size_t i = 0; i < ARRAY_LEN(specs); i++) {
        const sheaf_pickle_tensor *t = sheaf__pickle_tensor(
            file->doc, sheaf__pickle_path(file->doc->root, "module", specs[i].name, NULL));
        assert_non_null(t);
        assert_int_equal(t->dtype, specs[i].dtype);
        assert_int_equal(t->ndim, specs[i].ndim);
        assert_int_equal(sheaf__torch_offset(file, t) % 64, 0);
        const int64_t bytes = doc->storage[i].bytes;
        unsigned char *got = malloc((size_t)bytes + 1);
        CHECK_OK(sheaf__torch_read(file, t, got, (size_t)bytes));
        for (int64_t k = 0; k < bytes; k++)
            if (got[k] != byte_of((int64_t)i, k))
                fail_msg("%s: byte %d is wrong", specs[i].name, (int)k);
        free(got);
    }
    sheaf__torch_close(file);
}

TEST(test_write__in_any_pieces_and_order)
{
    sheaf_pickle_doc *doc = describe();
    char *first = NULL, *bytes = NULL;
    size_t first_size = 0, size = 0;
    for (int64_t step = 1; step <= 64; step += 21) {
        sheaf_torch_writer *w = NULL;
        const char *path = at("x.pt");
        CHECK_OK(sheaf__remove_tree(path));
        CHECK_OK(sheaf__torch_begin(&w, path, doc));
        for (int64_t i = (int64_t)ARRAY_LEN(specs) - 1; i >= 0; i--)
            CHECK_OK(fill(w, i, 0, doc->storage[i].bytes, step));
        CHECK_OK(sheaf__torch_finish(w));
        check_file(path, doc);
        CHECK_OK(sheaf__file_read_all(&bytes, &size, path, 1 << 20));
        if (first != NULL) { /* the same file, however it was written */
            assert_int_equal(size, first_size);
            assert_memory_equal(bytes, first, size);
            free(bytes);
        } else {
            first = bytes, first_size = size;
        }
    }
    free(first);
    sheaf__pickle_free(doc);
}

typedef struct job {
    sheaf_torch_writer *w;
    const sheaf_pickle_doc *doc;
    int part, parts;
    sheaf_status *st;
} job;

static void *write_part(void *context)
{
    job *j = context;
    for (int64_t i = 0; j->st == NULL && i < (int64_t)ARRAY_LEN(specs); i++) {
        const int64_t bytes = j->doc->storage[i].bytes;
        j->st = fill(j->w, i, bytes * j->part / j->parts, bytes * (j->part + 1) / j->parts, 17);
    }
    return NULL;
}

TEST(test_write__by_several_threads)
{
    enum { THREADS = 4 };
    sheaf_pickle_doc *doc = describe();
    sheaf_torch_writer *w = NULL;
    pthread_t thread[THREADS];
    job jobs[THREADS];
    CHECK_OK(sheaf__torch_begin(&w, at("threads.pt"), doc));
    for (int i = 0; i < THREADS; i++) {
        jobs[i] = (job){ w, doc, i, THREADS, NULL };
        assert_int_equal(pthread_create(&thread[i], NULL, write_part, &jobs[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(thread[i], NULL);
        CHECK_OK(jobs[i].st);
    }
    CHECK_OK(sheaf__torch_finish(w));
    check_file(at("threads.pt"), doc);
    sheaf__pickle_free(doc);
}

static sheaf_status *write_all(const sheaf_pickle_doc *doc)
{
    sheaf_torch_writer *w = NULL;
    sheaf_status *st = sheaf__torch_begin(&w, at("fault.pt"), doc);
    if (st != NULL)
        return st;
    for (int64_t i = 0; st == NULL && i < (int64_t)ARRAY_LEN(specs); i++)
        st = fill(w, i, 0, doc->storage[i].bytes, 64);
    if (st == NULL)
        return sheaf__torch_finish(w);
    sheaf__torch_abandon(w);
    return st;
}

TEST(test_write__any_failing_call_leaves_no_file)
{
    const sheaf_faults kinds[] = { { .action = SHEAF_FAULT_FAIL },
                                   { .action = SHEAF_FAULT_ENOSPC },
                                   { SHEAF_FAULT_MALLOC, SHEAF_FAULT_FAIL } };
    sheaf_pickle_doc *doc = describe();
    for (size_t a = 0; a < ARRAY_LEN(kinds); a++)
        for (int n = 1;; n++) {
            sheaf_faults faults = { kinds[a].op, kinds[a].action, .n = n };
            CHECK_OK(sheaf__remove_tree(at("fault.pt")));
            sheaf_status *st = UNDER(&faults, write_all(doc));
            if (st == NULL) {
                /* open and reserve, small entries, tensors, headers, fsync; allocations */
                assert_true(n > (a < 2 ? 2 + 3 + 8 + 12 + 1 : 4));
                break;
            }
            sheaf_status_free(st);
            assert_int_equal(sheaf__path_kind(at("fault.pt")), SHEAF_PATH_NONE);
        }
    check_file(at("fault.pt"), doc);
    CHECK_OK(sheaf__remove_tree(at("fault.pt")));
    sheaf_faults last = { .op = SHEAF_FAULT_FSYNC, .action = SHEAF_FAULT_FAIL, .n = 1 };
    CHECK_FAILS(UNDER(&last, write_all(doc)), SHEAF_E_IO, "fault.pt");
    sheaf__torch_abandon(NULL);
    sheaf_torch_writer *w = NULL; /* whose space reads as zeros, which are no weights */
    CHECK_OK(sheaf__torch_begin(&w, at("part.pt"), doc));
    CHECK_FAILS(sheaf__torch_finish(w), SHEAF_E_LAYOUT, "'archive/data/0' was not written");
    assert_int_equal(sheaf__path_kind(at("part.pt")), SHEAF_PATH_NONE);
    sheaf__pickle_free(doc);
}

/* Each byte of the data is under a checksum that the reader checks. */
TEST(test_check_data__finds_every_flipped_bit)
{
    sheaf_pickle_doc *doc = describe();
    char *bytes = NULL;
    size_t size = 0;
    CHECK_OK(sheaf__remove_tree(at("fault.pt")));
    CHECK_OK(write_all(doc));
    CHECK_OK(sheaf__file_read_all(&bytes, &size, at("fault.pt"), 1 << 20));
    sheaf_torch *file = NULL;
    CHECK_OK(sheaf__torch_open(&file, at("fault.pt")));
    const int fd = open(at("fault.pt"), O_WRONLY);
    for (int64_t i = 0; i < file->doc->nstorages; i++)
        for (int64_t k = 0; k < file->storage[i].bytes; k += 1 + file->storage[i].bytes / 10) {
            const off_t where = (off_t)(file->storage[i].offset + k);
            const char changed = (char)(bytes[where] ^ (1 << k % 8));
            char name[32];
            snprintf(name, sizeof name, "'data/%d'", (int)i);
            assert_int_equal(pwrite(fd, &changed, 1, where), 1);
            CHECK_FAILS(sheaf__torch_check_data(file), SHEAF_E_FORMAT, name);
            assert_int_equal(pwrite(fd, &bytes[where], 1, where), 1);
        }
    CHECK_OK(sheaf__torch_check_data(file));
    close(fd);
    sheaf__torch_close(file);
    free(bytes);
    sheaf__pickle_free(doc);
}

FIXTURE(make_scratch, remove_scratch);
