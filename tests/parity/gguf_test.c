/* gguf_test.c - models in GGUF files: what llama.cpp computed from them, at one to three ranks with
 * the same bytes; their tokenizers' ids; and where the Hugging Face folder that a file was made of
 * is beside it, the same tensors and logits, bit for bit.
 *
 * Logits of a file in blocks or in 16 bits are recorded from transformers with the dequantised
 * weights in float32: 2e-5. llama.cpp itself rounds what it multiplies; how far that is from
 * transformers is recorded with each run. */

#include <jansson.h>

#include "base/json.h"
#include "dialects/open.h"
#include "formats/gguf.h"
#include "formats/safetensors.h"
#include "inputs/tokenizer/tokenizer.h"
#include "models/team.h"
#include "tests/files.h"
#include "tests/recordings.h"
#include "train/evaluate.h"

static json_t *runs;
static sheaf_safetensors *recorded;
static char **folders;
static int64_t nfolders;

/* In the recordings' folder of this name, "FOLDER/file"; the last result stays valid. */
static const char *in_folder(const char *folder, const char *file)
{
    static char path[2000];
    snprintf(path, sizeof path, "%s/%s/%s", recording("gguf"), folder, file);
    return path;
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

typedef struct forward {
    const sheaf_data *data;
    float *logits;
    int64_t vocab;
} forward;

static sheaf_status *keep_logits(void *self, int64_t row, int64_t position, const float *logits)
{
    forward *f = self;
    memcpy(f->logits + position * f->vocab, logits, (size_t)f->vocab * sizeof *logits);
    return NULL;
}

static sheaf_status *forward_rank(void *self, sheaf__model *model)
{
    forward *f = self;
    sheaf__evaluation result;
    return sheaf__evaluate(
        &result, model, f->data,
        &(sheaf__evaluate_options){ .micro_batch = 1,
                                    .padded = true,
                                    .self = f,
                                    .take = model->context->rank == 0 ? keep_logits : NULL });
}

/* A row of ids as data, of which nothing is a label but the last. */
static void put_ids(const char *path, const json_t *ids)
{
    const int64_t n = (int64_t)json_array_size(ids);
    const sheaf_safetensors_spec specs[] = { { "input_ids", SHEAF_I64, 2, { 1, n } },
                                             { "labels", SHEAF_I64, 2, { 1, n } } };
    int64_t *id = malloc((size_t)n * sizeof *id);
    sheaf_safetensors_writer *w = NULL;
    remove(path);
    for (int64_t i = 0; i < n; i++)
        id[i] = json_integer_value(json_array_get(ids, (size_t)i));
    CHECK_OK(sheaf__safetensors_begin(&w, path, specs, 2, NULL, 0));
    CHECK_OK(sheaf__safetensors_write(w, 0, 0, id, n * 8));
    CHECK_OK(sheaf__safetensors_write(w, 1, 0, id, n * 8));
    CHECK_OK(sheaf__safetensors_finish(w));
    free(id);
}

/* [positions, *vocab], malloc'd. */
static float *logits_of(int64_t *vocab, const char *model, const char *ids, int ranks)
{
    sheaf__opened opened;
    sheaf_data *data;
    CHECK_OK(sheaf__open_model(&opened, &(sheaf__open_options){ .model = model, .slices = 8 }));
    CHECK_OK(sheaf_data_open(&data, ids, &(sheaf_data_options){ .config = &opened.config }));
    forward f = { .data = data, .vocab = opened.config.vocab };
    f.logits = calloc((size_t)(sheaf_data_seq(data) * f.vocab), sizeof *f.logits);
    CHECK_OK(sheaf__team_run(
        &opened,
        &(sheaf__team_options){
            .ranks = ranks, .threads = 2, .dtype = SHEAF_F32, .positions = sheaf_data_seq(data) },
        forward_rank, &f));
    *vocab = f.vocab;
    sheaf_data_close(data);
    sheaf__opened_close(&opened);
    return f.logits;
}

/* The largest difference to the recorded ones, which are of the last positions. */
static double worst_of(const char *name, const float *logits, int64_t positions, int64_t vocab)
{
    const sheaf_safetensors_entry *e = sheaf__safetensors_find(recorded, name);
    double worst = 0;
    if (e == NULL)
        return -1;
    assert_int_equal(e->shape[1], vocab);
    float *want = malloc((size_t)e->bytes);
    CHECK_OK(sheaf__safetensors_read(recorded, e, 0, want, e->bytes));
    const float *from = logits + (positions - e->shape[0]) * vocab;
    for (int64_t i = 0; i < e->bytes / 4; i++)
        worst = fabs((double)from[i] - (double)want[i]) > worst
                    ? fabs((double)from[i] - (double)want[i])
                    : worst;
    free(want);
    return worst;
}

static double number_of(const json_t *run, const char *key)
{
    return json_number_value(json_object_get(run, key));
}

static void check_run(const char *tag, const json_t *run, const char *path)
{
    const json_t *prompt = json_object_get(run, "prompt");
    const int64_t n = (int64_t)json_array_size(prompt);
    char name[200];
    int64_t vocab, other;
    put_ids(at("ids.safetensors"), prompt);
    float *one = logits_of(&vocab, path, at("ids.safetensors"), 1);
    for (int ranks = 2; ranks <= 3; ranks++) {
        float *more = logits_of(&other, path, at("ids.safetensors"), ranks);
        CHECK_BYTES(tag, more, one, (size_t)(n * vocab) * sizeof *one);
        free(more);
    }
    snprintf(name, sizeof name, "%s.logits_dequantised_float32", tag);
    const double exact = worst_of(name, one, n, vocab);
    snprintf(name, sizeof name, "%s.logits", tag);
    const double theirs = worst_of(name, one, n, vocab),
                 far = number_of(run, "max|logit difference| to transformers float32");
    if (exact > 2e-5 || !(theirs < far + 2e-5) || (exact < 0 && theirs < 0))
        fail_msg("%s: logits %g from those of dequantised weights, %g from llama.cpp's (%g)", tag,
                 exact, theirs, far);
    free(one);
}

TEST(test_logits__are_those_of_the_dequantised_weights)
{
    const char *tag;
    json_t *run;
    int checked = 0;
    json_object_foreach(runs, tag, run)
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
    json_object_foreach(runs, tag, rows)
    {
        if (!json_is_array(rows))
            continue;
        json_object_foreach(runs, other, run)
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
        char *a = malloc(bytes + 1), *b = malloc(bytes + 1);
        CHECK_OK(is->read(is, w->name, 0, rows, 0, cols, a));
        CHECK_OK(was->read(was, w->name, 0, rows, 0, cols, b));
        CHECK_BYTES(w->name, a, b, bytes);
        /* a box inside */
        CHECK_OK(is->read(is, w->name, rows / 2, 1, cols / 3, 1, a));
        CHECK_OK(was->read(was, w->name, rows / 2, 1, cols / 3, 1, b));
        CHECK_BYTES(w->name, a, b, sheaf_dtype_bytes(w->dtype));
        free(a);
        free(b);
    }
}

/* Tensors and logits of a file in the dtype of the folder `hf` beside it; *checked counts. */
static void check_folder(int *checked, const char *folder, const char *file)
{
    static const int64_t prompt[] = { 3, 1, 4, 1, 5, 9, 2, 6 };
    sheaf_source *is = NULL, *was = NULL;
    char hf[2000], path[2000];
    int64_t vocab;
    snprintf(hf, sizeof hf, "%s", in_folder(folder, "hf"));
    snprintf(path, sizeof path, "%s", in_folder(folder, file));
    CHECK_OK(sheaf__open_source(&is, path, NULL));
    CHECK_OK(sheaf__open_source(&was, hf, NULL));
    const bool same = is->entry(is, 0)->dtype == was->entry(was, 0)->dtype;
    if (same) {
        json_t *ids = json_array();
        for (size_t i = 0; i < ARRAY_LEN(prompt); i++)
            json_array_append_new(ids, json_integer(prompt[i]));
        check_source(path, is, was);
        put_ids(at("ids.safetensors"), ids);
        float *one = logits_of(&vocab, path, at("ids.safetensors"), 1);
        float *other = logits_of(&vocab, hf, at("ids.safetensors"), 1);
        CHECK_BYTES(path, one, other, ARRAY_LEN(prompt) * (size_t)vocab * sizeof(float));
        free(one);
        free(other);
        json_decref(ids);
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
    runs = json_load_file(recording("gguf/runs.json"), 0, NULL);
    sheaf_status *st = sheaf__safetensors_open(&recorded, recording("gguf/logits.safetensors"));
    sheaf_status_free(st);
    sheaf_status_free(sheaf__list_dir(&folders, &nfolders, recording("gguf")));
    return bad != 0 || st != NULL || runs == NULL;
}

static int end(void **state)
{
    json_decref(runs);
    sheaf__names_free(folders, nfolders);
    sheaf__safetensors_close(recorded);
    return remove_scratch(state);
}

FIXTURE(begin, end);
