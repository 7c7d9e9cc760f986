/* gguf_test.c - models in GGUF files: what llama.cpp computed from them, at one to three ranks with
 * the same bytes; their tokenizers' ids; and where the Hugging Face folder that a file was made of
 * is beside it, the same tensors and logits, bit for bit.
 *
 * Logits of a file in blocks or in 16 bits are recorded from transformers with the dequantised
 * weights in float32: 2e-5. llama.cpp itself rounds what it multiplies; how far that is from
 * transformers is recorded with each run. */

#include "dialects/open.h"
#include "formats/gguf.h"
#include "inputs/tokenizer/tokenizer.h"
#include "tests/parity/evaluated.h"
#include "tests/parity/trial.h"
#include "tests/recordings.h"

static const json_t *runs;
static const sheaf_safetensors *logits;
static char **folders;
static int64_t nfolders;

/* In the recordings' folder of this name. */
static const char *in_folder(const char *folder, const char *file)
{
    return textf("%s/%s/%s", recording("gguf"), folder, file);
}

/* The file, in whichever folder it is; NULL: the recordings have it not. */
static const char *path_of(const char *file)
{
    for (int64_t i = 0; i < nfolders; i++)
        if (sheaf__path_kind(in_folder(folders[i], file)) == SHEAF_PATH_FILE)
            return in_folder(folders[i], file);
    return NULL;
}

/* ---- logits ---- */

/* A row of ids as data, of which nothing is a label but the last. */
static const char *put_ids(const int64_t *ids, int64_t n)
{
    return rows_file("ids.safetensors", ids, ids, NULL, 1, n);
}

static forward logits_of(const char *model, const char *ids, int ranks)
{
    return evaluate(&(sheaf__open_options){ .model = model, .slices = 8 }, ids, 0,
                    (sheaf__team_options){ .ranks = ranks, .threads = 2, .dtype = SHEAF_F32 });
}

/* The largest difference to the recorded ones, which are of the last positions; -1: to none. */
static double worst_of(const char *name, const forward *f)
{
    int64_t n;
    const float *want = values(logits, name, &n);
    double worst = want == NULL ? -1 : 0;
    assert_int_equal(n % f->vocab, 0);
    for (int64_t i = 0; i < n; i++)
        worst = fmax(worst, fabs((double)f->logits[f->n - n + i] - (double)want[i]));
    return worst;
}

static void check_run(const char *tag, const json_t *run, const char *path)
{
    const json_t *prompt = json_object_get(run, "prompt");
    const int64_t n = (int64_t)json_array_size(prompt);
    int64_t *id = room((size_t)n * sizeof *id);
    for (int64_t i = 0; i < n; i++)
        id[i] = json_integer_value(json_array_get(prompt, (size_t)i));
    const char *ids = put_ids(id, n);
    const forward one = logits_of(path, ids, 1);
    for (int ranks = 2; ranks <= 3; ranks++)
        CHECK_BYTES(tag, logits_of(path, ids, ranks).logits, one.logits,
                    (size_t)one.n * sizeof *one.logits);
    const double exact = worst_of(textf("%s.logits_dequantised_float32", tag), &one),
                 theirs = worst_of(textf("%s.logits", tag), &one),
                 far = number_in(run, "max|logit difference| to transformers float32");
    if (exact > 2e-5 || !(theirs < far + 2e-5) || (exact < 0 && theirs < 0))
        fail_msg("%s: logits %g from those of dequantised weights, %g from llama.cpp's (%g)", tag,
                 exact, theirs, far);
}

TEST(test_logits__are_those_of_the_dequantised_weights)
{
    const char *tag;
    json_t *run;
    int checked = 0;
    json_object_foreach((json_t *)runs, tag, run)
    {
        const char *file = json_string_value(json_object_get(run, "file"));
        const char *path = file == NULL || strchr(tag, '+') != NULL ? NULL : path_of(file);
        if (path == NULL)
            continue;
        check_run(tag, run, path);
        checked++;
    }
    assert_true(checked >= (recordings_are_full() ? 5 : 1));
}

/* ---- tokens ---- */

static void check_text(const sheaf__tokenizer *t, const char *tag, const json_t *row)
{
    const json_t *want = json_object_get(row, "llama.cpp"), *text = json_object_get(row, "text");
    int32_t *ids = NULL;
    int64_t n = 0;
    CHECK_OK(sheaf__tokenizer_encode(&ids, NULL, &n, t, json_string_value(text),
                                     json_string_length(text),
                                     &(sheaf__encode_options){ .add_special = true }));
    bool same = n == (int64_t)json_array_size(want);
    for (int64_t i = 0; same && i < n; i++)
        same = ids[i] == json_integer_value(json_array_get(want, (size_t)i));
    if (!same)
        fail_msg("%s: other ids for '%s'", tag, json_string_value(text));
    free(ids);
}

/* TAG.tokens belong to the files of TAG.TYPE. */
TEST(test_tokens__are_llama_cpps)
{
    const char *tag, *other;
    json_t *rows, *run;
    int checked = 0;
    json_object_foreach((json_t *)runs, tag, rows)
    {
        if (!json_is_array(rows))
            continue;
        json_object_foreach((json_t *)runs, other, run)
        {
            const size_t size = (size_t)(strchr(tag, '.') - tag) + 1;
            const char *path = strncmp(tag, other, size) == 0 && json_is_object(run)
                                   ? path_of(json_string_value(json_object_get(run, "file")))
                                   : NULL;
            sheaf__tokenizer *t = NULL;
            size_t i;
            json_t *row;
            if (path == NULL)
                continue;
            CHECK_OK(sheaf__tokenizer_open(&t, path));
            json_array_foreach(rows, i, row) check_text(t, tag, row);
            sheaf__tokenizer_close(t);
            checked++;
        }
    }
    assert_true(checked > 0);
}

/* ---- the folder it was made of ---- */

/* Rounded to the type of the original. */
static void check_source(const char *path, sheaf_source *is, sheaf_source *was)
{
    assert_int_equal(is->count(is), was->count(was));
    for (int64_t i = 0; i < was->count(was); i++) {
        const sheaf_source_entry *w = was->entry(was, i), *e = is->find(is, w->name);
        int64_t rows, cols;
        if (e == NULL || e->ndim != w->ndim || e->dtype != w->dtype)
            fail_msg("%s: '%s' is not as it was", path, w->name);
        sheaf__safetensors_view(&rows, &cols, w->ndim, w->shape);
        const size_t bytes = (size_t)(rows * cols) * sheaf_dtype_bytes(w->dtype);
        char *a = room(bytes), *b = room(bytes);
        CHECK_OK(is->read(is, w->name, 0, rows, 0, cols, a));
        CHECK_OK(was->read(was, w->name, 0, rows, 0, cols, b));
        CHECK_BYTES(w->name, a, b, bytes);
        /* a box inside */
        CHECK_OK(is->read(is, w->name, rows / 2, 1, cols / 3, 1, a));
        CHECK_OK(was->read(was, w->name, rows / 2, 1, cols / 3, 1, b));
        CHECK_BYTES(w->name, a, b, sheaf_dtype_bytes(w->dtype));
    }
}

/* Tensors and logits of a file in the dtype of the folder `hf` beside it; *checked counts. */
static void check_folder(int *checked, const char *folder, const char *file)
{
    static const int64_t prompt[] = { 3, 1, 4, 1, 5, 9, 2, 6 };
    sheaf_source *is = NULL, *was = NULL;
    const char *hf = in_folder(folder, "hf"), *path = in_folder(folder, file);
    CHECK_OK(sheaf__open_source(&is, path, NULL));
    CHECK_OK(sheaf__open_source(&was, hf, NULL));
    const bool same = is->entry(is, 0)->dtype == was->entry(was, 0)->dtype;
    if (same) {
        check_source(path, is, was);
        const char *ids = put_ids(prompt, ARRAY_LEN(prompt));
        const forward one = logits_of(path, ids, 1), other = logits_of(hf, ids, 1);
        CHECK_BYTES(path, one.logits, other.logits, (size_t)one.n * sizeof *one.logits);
    }
    *checked += same;
    is->close(is);
    was->close(was);
}

TEST(test_tensors__are_those_of_the_folder)
{
    int checked = 0;
    for (int64_t i = 0; i < nfolders && recordings_are_full(); i++) {
        char **names = NULL;
        int64_t n = 0;
        if (sheaf__path_kind(in_folder(folders[i], "hf/model.safetensors")) != SHEAF_PATH_FILE)
            continue;
        CHECK_OK(sheaf__list_dir(&names, &n, in_folder(folders[i], "")));
        for (int64_t k = 0; k < n; k++)
            if (sheaf__ends_with(names[k], ".gguf") && strstr(names[k], "lora") == NULL)
                check_folder(&checked, folders[i], names[k]);
        sheaf__names_free(names, n);
    }
    assert_true(checked >= 2 || !recordings_are_full()); /* cli/gguf_read: there and back */
}

static int begin(void **state)
{
    const int bad = make_scratch(state);
    runs = json_of(recording("gguf"), "runs.json");
    logits = record_of(recording("gguf"), "logits.safetensors");
    CHECK_OK(sheaf__list_dir(&folders, &nfolders, recording("gguf")));
    return bad;
}

static int end(void **state)
{
    sheaf__names_free(folders, nfolders);
    return remove_scratch(state);
}

FIXTURE(begin, end);
