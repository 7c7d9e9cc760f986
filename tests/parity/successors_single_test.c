/* successors_single_test.c - the successors of CogVLM agree with what their own programs computed,
 * at 1, 2 and 3 ranks with the same bytes: stages, logits and loss of a row and of batches,
 * gradients, a LoRA run, greedy tokens, pictures, and the ids of texts.
 *
 * Every folder of $SHEAF_RECORDINGS/successors (or of the committed subset, where most have no
 * weights) that holds model/config.json is run; none found is a failure. Tolerances are those of
 * the recordings' READMEs: 5e-5 for logits and stages, 1e-5 for a loss, 1e-4 of a tensor's largest
 * value for its gradient, 1e-4 for a LoRA run. */
#include "tests/parity/trial.h"

#include "base/text.h"
#include "checkpoint/convert/convert.h"
#include "infer/codec.h"
#include "infer/prompts.h"
#include "inputs/image.h"
#include "tests/parity/generated.h"
#include "tests/parity/trained.h"
#include "tests/recordings.h"

static const int few_ranks[] = { 1, 2, 3 };
static const double LOGITS = 5e-5, LOSS = 1e-5, GRADIENT = 1e-4, LORA = 1e-4;

static int find_successors(void **state)
{
    if (make_scratch(state) != 0)
        fail_msg("no scratch folder");
    find_in(recording("successors"), "model/config.json", NULL);
    if (models == 0)
        fail_msg("%s: no recording found", recording("successors"));
    return 0;
}

/* The file of a model's folder, if it is recorded. NULL also where the model has no weights (the
 * committed subset). */
static const char *recorded(int m, const char *name)
{
    const char *dir = model_dir[m];
    const bool weights = exists(in_dir(dir, "model/model.safetensors.index.json")) ||
                         exists(in_dir(dir, "model/model.safetensors"));
    return weights && exists(in_dir(dir, name)) ? in_dir(dir, name) : NULL;
}

/* ---- forward ---- */

/* Stages are told by our names where a pass reports them; those of the decoder always are. */
static int compare_stage(const trial *t, const sheaf_safetensors *want, const char *theirs,
                         const char *ours)
{
    int64_t n;
    const char *name = textf("act.%s", theirs);
    const float *x = values(want, name, &n);
    const bool both = x != NULL && stage_at(t, ours) >= 0;
    if (both)
        compare(name, stage_of(t, ours, n), x, n, LOGITS, 0);
    return both;
}

static void compare_stages(const trial *t, const sheaf_safetensors *want)
{
    static const struct {
        const char *theirs, *ours;
    } once[] = { { "inputs_embeds", "embedding" },
                 { "adapter_in", "adapter_in" },
                 { "adapter_out", "adapter" },
                 { "cross_out", "encoder" },
                 { "final_norm_out", "final_norm" } },
      layers[] = { { "vision_layer%d_out", "vit%d" }, { "layer%d_out", "mlp%d" } };
    int compared = 0;
    for (size_t i = 0; i < ARRAY_LEN(once); i++)
        compared += compare_stage(t, want, once[i].theirs, once[i].ours);
    for (size_t i = 0; i < ARRAY_LEN(layers); i++)
        for (int layer = 0; layer < 16; layer++) {
            const char *name = textf(layers[i].theirs, layer);
            const char *own = textf(layers[i].ours, layer);
            compared += compare_stage(t, want, name, own);
        }
    assert_true(compared >= 6);
}

/* Logits where the mask is 1: of the sequences with the rows of their pictures. */
static void compare_logits(const trial *t, const sheaf_safetensors *want, const char *what)
{
    int64_t n;
    const float *logits = values(want, "logits", &n);
    const int64_t *mask = integers(want, "expanded_attention_mask");
    if (mask == NULL)
        mask = integers(want, "attention_mask");
    const int64_t vocab = t->vocab;
    if (logits == NULL || n != t->positions * vocab)
        fail_msg("%s: logits of %" PRId64 " positions, recorded are %" PRId64 " numbers", what,
                 t->positions, n);
    for (int64_t i = 0; i < t->positions; i++)
        if (mask == NULL || mask[i] != 0)
            compare(what, t->logits + i * vocab, logits + i * vocab, vocab, LOGITS, 0);
}

static double loss_of(const sheaf_safetensors *want)
{
    int64_t n;
    const float *loss = values(want, "loss", &n);
    if (loss == NULL)
        loss = values(want, "loss_by_hand", &n);
    assert_true(loss != NULL && n == 1);
    const double value = (double)loss[0];
    return value;
}

static void check_forward(int m, const char *file, bool stages)
{
    const char *path = recorded(m, file), *model = in_dir(model_dir[m], "model");
    if (path == NULL)
        return;
    const sheaf_safetensors *want = record_of(model_dir[m], file);
    trial one = run_alike(model, NULL, path, few_ranks, ARRAY_LEN(few_ranks), SHEAF_F32, false);
    compare_logits(&one, want, path);
    CHECK_NEAR(path, one.loss, loss_of(want), LOSS);
    if (stages)
        compare_stages(&one, want);
    release(&one);
}

static const char *const batches[] = { "batch_right_padded.safetensors",
                                       "batch_left_padded.safetensors", "batch_mixed.safetensors",
                                       "text_only.safetensors" };

TEST(test_forward__stages_logits_and_loss)
{
    for (int m = 0; m < models; m++) {
        check_forward(m, "single.safetensors", true);
        for (size_t b = 0; b < ARRAY_LEN(batches); b++)
            check_forward(m, batches[b], false);
    }
}

/* Weights and stored tables rounded to bfloat16, arithmetic in float32. */
TEST(test_forward__weights_of_bfloat16)
{
    static const char file[] = "single_logits_bf16_weights_fp32_math.safetensors";
    for (int m = 0; m < models; m++) {
        const char *path = recorded(m, file), *half = at(textf("half%d", m));
        sheaf_weights_convert_report report;
        if (path == NULL)
            continue;
        CHECK_OK(sheaf_convert(
            &report, &(sheaf_weights_convert_options){ .src = in_dir(model_dir[m], "model"),
                                                       .dst = half,
                                                       .to = "hf",
                                                       .dtype = SHEAF_BF16 }));
        trial t = run(half, NULL, in_dir(model_dir[m], "single.safetensors"), 2, SHEAF_F32, false);
        compare_logits(&t, record_of(model_dir[m], file), path);
        release(&t);
    }
}

/* ---- gradients ---- */

static trial backward(const char *model, const char *adapter, const char *path)
{
    return run_backward(model, adapter, path, few_ranks, ARRAY_LEN(few_ranks));
}

static bool has_gradients(const sheaf_safetensors *file)
{
    for (int64_t e = 0; e < file->header.count; e++)
        if (strncmp(file->header.entry[e].name, "grad.", 5) == 0)
            return true;
    return false;
}

TEST(test_gradients__of_a_row_and_of_padded_ones)
{
    const tolerance by = { 1e-9, 0, GRADIENT };
    for (int m = 0; m < models; m++) {
        const char *path = recorded(m, "single.safetensors"),
                   *model = in_dir(model_dir[m], "model");
        if (path == NULL)
            continue;
        trial t = backward(model, NULL, path);
        assert_true(
            compare_gradients(&t, record_of(model_dir[m], "single_grads.safetensors"), "", by) > 0);
        compare_norms(&t, json_of(model_dir[m], "single_grad_norms.json"), GRADIENT, 1e-6);
        release(&t);
        int64_t padded = 0;
        for (size_t b = 0; b < ARRAY_LEN(batches); b++) {
            const char *batch = recorded(m, batches[b]);
            const sheaf_safetensors *want =
                batch == NULL ? NULL : record_of(model_dir[m], batches[b]);
            if (want == NULL || !has_gradients(want))
                continue;
            t = backward(model, NULL, batch);
            padded += compare_gradients(&t, want, "grad.", by);
            release(&t);
        }
        assert_true(padded > 0);
    }
}

/* ---- LoRA ---- */

typedef struct progress {
    const json_t *losses, *norms;
    int seen;
} progress;

static void on_event(void *self, const sheaf_event *event)
{
    progress *t = self;
    if (event->kind != SHEAF_EVENT_STEP)
        return;
    const size_t step = (size_t)t->seen++;
    const double norm = json_number_value(json_array_get(t->norms, step));
    CHECK_NEAR("loss", event->step.loss, json_number_value(json_array_get(t->losses, step)), LORA);
    CHECK_NEAR("gradient norm", event->step.grad_norm, norm, LORA * norm);
}

/* Its adapter. */
static const char *train_lora(int m, int ranks, const json_t *told)
{
    progress t = { json_object_get(told, "losses"),
                   json_object_get(told, "grad_norm_all_trainable"), 0 };
    sheaf_train_options o = adamw_options(json_object_get(told, "optimizer"));
    o.model = in_dir(model_dir[m], "model");
    o.data = in_dir(model_dir[m], "single.safetensors");
    o.out = at(textf("run%d-%d", m, ranks));
    o.adapter = in_dir(model_dir[m], "lora/adapter_start");
    o.tp = ranks;
    o.steps = json_integer_value(json_object_get(told, "steps"));
    train_as(&o, on_event, &t);
    assert_int_equal(t.seen, o.steps);
    return in_dir(o.out, "adapter");
}

/* Gradients of B at the start. */
static void compare_first_step(int m, const char *model, const char *row)
{
    const sheaf_safetensors *want = record_of(model_dir[m], "lora/first_step_grads.safetensors");
    trial t = backward(model, in_dir(model_dir[m], "lora/adapter_start"), row);
    assert_true(compare_gradients(&t, want, "", (tolerance){ .largest = GRADIENT }) > 0);
    release(&t);
}

static void check_lora(int m, const char *row)
{
    const json_t *told = json_of(model_dir[m], "lora/training.json"),
                 *losses = json_object_get(told, "losses");
    const char *model = in_dir(model_dir[m], "model"),
               *end = in_dir(model_dir[m], "lora/adapter_end"), *first = NULL;
    for (size_t r = 0; r < ARRAY_LEN(few_ranks); r++) {
        const char *adapter = train_lora(m, few_ranks[r], told);
        compare_adapters(adapter, r == 0 ? end : first, r == 0 ? &(tolerance){ LORA, 0, 0 } : NULL);
        first = adapter;
    }
    trial t = run(model, end, row, 3, SHEAF_F32, false);
    compare_logits(&t, record_of(model_dir[m], "lora/end_logits.safetensors"), end);
    CHECK_NEAR(end, t.loss, json_number_value(json_array_get(losses, json_array_size(losses) - 1)),
               LORA);
    release(&t);
    compare_first_step(m, model, row);
}

TEST(test_lora__recorded_runs)
{
    for (int m = 0; m < models; m++) {
        const char *row = recorded(m, "single.safetensors");
        if (row != NULL)
            check_lora(m, row);
    }
}

/* ---- generation ---- */

static sheaf_status *load_row(void *self, int64_t prompt, const sheaf__picture *picture, int64_t n)
{
    return sheaf_data_row_pixels(picture, n, self, prompt);
}

/* A copy of a prompt of the row with these ids, up to `context`, where the learnt part begins
 * before it: with the mark of who answers. more: rows of pictures that the ids have few places for.
 */
static sheaf__prompt lengthened(const sheaf__prompt *p, const int64_t *row, int64_t context,
                                int64_t more)
{
    const int64_t n = context + more;
    int32_t *ids = room((size_t)n * sizeof *ids), *position = room((size_t)n * sizeof *position);
    uint8_t *embed = room((size_t)n), *expert = room((size_t)n);
    sheaf__prompt out = *p;
    assert_true(p->n <= n && p->position != NULL && p->embed != NULL && p->expert != NULL);
    for (int64_t i = 0; i < n; i++) {
        const bool own = i < p->n;
        ids[i] = own ? p->ids[i] : (int32_t)row[i - more];
        position[i] = own ? p->position[i] : position[i - 1] + 1;
        embed[i] = own && p->embed[i];
        expert[i] = own && p->expert[i];
    }
    out.ids = ids;
    out.position = position;
    out.embed = embed;
    out.expert = expert;
    out.n = n;
    return out;
}

static void check_greedy(int m, const char *row)
{
    sheaf_safetensors *want = record_of(model_dir[m], "single.safetensors");
    const int64_t *tokens = integers(want, "greedy_tokens"),
                  *context = integers(want, "context_length");
    const int64_t n = sheaf__safetensors_find(want, "greedy_tokens")->shape[0];
    const char *model = in_dir(model_dir[m], "model");
    const sheaf__opened *opened = opened_of(model);
    sheaf__codec codec;
    sheaf__prompts prompts;
    CHECK_OK(
        sheaf__codec_open(&codec, &opened->config, &(sheaf__codec_options){ .folder = model }));
    sheaf_prompts_options from = { .data = row };
    CHECK_OK(sheaf__prompts_read(&prompts, &codec, &from));
    assert_int_equal(prompts.count, 1);
    /* Where the ids have a few places for a picture, the rows stand in them already. */
    const int64_t length = sheaf__safetensors_find(want, "input_ids")->shape[1],
                  more = sheaf_data_seq(prompts.rows) - length;
    const int64_t *row_ids = integers(want, "input_ids");
    const sheaf__prompt prompt = lengthened(&prompts.prompt[0], row_ids, context[0], more);
    for (size_t r = 0; r < ARRAY_LEN(few_ranks); r++) {
        answers a = {
            .prompt = &prompt,
            .count = 1,
            .how = { .max_new = n, .batch = 1, .load = load_row, .self = (void *)prompts.rows }
        };
        answer(&a, opened, few_ranks[r], prompt.n + n);
        assert_int_equal(a.out[0].n, n);
        for (int64_t i = 0; i < n; i++)
            assert_int_equal(a.ids[0][i], tokens[i]);
    }
    sheaf__prompts_release(&prompts);
    sheaf__codec_close(&codec);
}

TEST(test_generation__greedy_tokens)
{
    for (int m = 0; m < models; m++) {
        const char *row = recorded(m, "single.safetensors");
        if (row != NULL)
            check_greedy(m, row);
    }
}

/* ---- pictures ---- */

static void check_bytes(const sheaf_safetensors *want, const char *name, const void *got,
                        size_t size)
{
    const sheaf_safetensors_entry *e;
    const void *bytes = raw_of(want, name, &e);
    assert_int_equal(e->bytes, size);
    CHECK_BYTES(name, got, bytes, size);
}

static void check_picture(const sheaf_safetensors *want, const char *path, int k,
                          const sheaf__tower *tower, const char *which)
{
    sheaf_image image;
    int64_t n;
    CHECK_OK(sheaf_image_load(&image, path));
    const size_t size = (size_t)(tower->width * tower->height * 3);
    const char *pixels = textf("picture%d%s_pixels", k, which);
    uint8_t *resized = room(size);
    float *x = values_of(want, pixels, &n), *y = room(size * sizeof *y);
    check_bytes(want, textf("picture%d_u8_hwc", k), image.pixels,
                (size_t)(image.width * image.height * 3));
    CHECK_OK(sheaf_image_resize(resized, &image, tower->width, tower->height));
    check_bytes(want, textf("picture%d%s_resized_u8_hwc", k, which), resized, size);
    assert_int_equal(n, size);
    CHECK_OK(sheaf_image_prepare(y, &image, tower->width, tower->height, &sheaf_image_clip_scale));
    compare(pixels, y, x, n, 1e-6, 0);
    sheaf_image_release(&image);
}

TEST(test_pictures__resized_and_normalised)
{
    for (int m = 0; m < models; m++) {
        if (!exists(in_dir(model_dir[m], "preprocess.safetensors")))
            continue;
        const sheaf_safetensors *want = record_of(model_dir[m], "preprocess.safetensors");
        sheaf__tower tower[SHEAF__MOST_TOWERS];
        int seen = 0;
        const int towers = sheaf__towers_of(tower, config_of(model_dir[m], "model/config.json"));
        assert_true(towers == 1 || towers == 2);
        for (int k = 0; k < 4; k++) {
            const char *path = textf("%s/picture%d.png", model_dir[m], k);
            for (int t = 0; t < towers && exists(path); t++, seen++)
                check_picture(want, path, k, &tower[t], t == 0 ? "" : "_cross");
        }
        assert_true(seen > 0);
    }
}

/* ---- texts ---- */

/* A content of a message: its text, and the picture in front of it. */
static json_t *content_of(const char *text, const char *picture)
{
    return picture == NULL ? json_string(text)
                           : json_pack("[{s:s, s:{s:s}}, {s:s, s:s}]", "type", "image_url",
                                       "image_url", "url", picture, "type", "text", "text", text);
}

static bool beside; /* a picture stands beside the content of its message, not in it */

static void say(json_t *messages, const char *role, const char *text, const char *picture)
{
    json_t *message =
        json_pack("{s:s, s:o}", "role", role, "content", content_of(text, beside ? NULL : picture));
    if (beside && picture != NULL)
        json_object_set_new(message, "image", json_string(picture));
    json_array_append_new(messages, message);
}

/* The case as a record: rounds of questions and answers, which a template may leave out, or
 * messages as they are. */
static json_t *record_of_case(const json_t *one, const char *picture, bool rounds)
{
    json_t *messages = json_array();
    const json_t *history = rounds ? json_object_get(one, "history") : NULL,
                 *list = json_object_get(one, "messages"), *answer = json_object_get(one, "answer");
    const bool seen = json_is_true(json_object_get(one, "image"));
    const char *first = seen ? picture : NULL;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *said = json_array_get(list, i);
        const bool shows = json_object_get(said, "image") != NULL &&
                           !json_is_false(json_object_get(said, "image")) &&
                           !json_is_null(json_object_get(said, "image"));
        say(messages, json_string_value(json_object_get(said, "role")),
            json_string_value(json_object_get(said, "content")), shows ? picture : NULL);
    }
    for (size_t i = 0; i < json_array_size(history); i++) {
        const json_t *round = json_array_get(history, i);
        say(messages, "user", json_string_value(json_array_get(round, 0)), first);
        say(messages, "assistant", json_string_value(json_array_get(round, 1)), NULL);
        first = NULL;
    }
    if (list == NULL)
        say(messages, "user", json_string_value(json_object_get(one, "query")), first);
    if (json_is_string(answer))
        say(messages, "assistant", json_string_value(answer), NULL);
    return json_pack("{s:o}", "messages", messages);
}

static void compare_numbers(const char *what, const int32_t *x, const json_t *want, int64_t n)
{
    if ((int64_t)json_array_size(want) != n)
        fail_msg("%s: %" PRId64 " of them, recorded are %zu", what, n, json_array_size(want));
    for (int64_t i = 0; i < n; i++)
        if (x[i] != json_integer_value(json_array_get(want, (size_t)i)))
            fail_msg("%s: at %" PRId64 " %" PRId32 ", recorded is %lld", what, i, x[i],
                     json_integer_value(json_array_get(want, (size_t)i)));
}

/* Ids without the rows of pictures: where the recorded ids have few places, or other ids in them,
 * both sides leave them out. */
static void compare_ids(const char *what, const int32_t *ids, const uint8_t *embed, int64_t n,
                        const json_t *one)
{
    const json_t *want = json_object_get(one, "input_ids"),
                 *types = json_object_get(one, "token_type_ids");
    int32_t type[1024];
    assert_true(n <= 1024);
    for (int64_t i = 0; i < n; i++)
        type[i] = embed != NULL && embed[i];
    if (types != NULL) {
        compare_numbers(what, ids, want, n);
        compare_numbers(what, type, types, n);
        return;
    }
    int64_t at = 0, rows = 0;
    for (int64_t i = 0; i < n; i++) {
        if (type[i] != 0 && rows++ == 0)
            at += 3; /* begin, place, end */
        if (type[i] == 0 && ids[i] != json_integer_value(json_array_get(want, (size_t)at++)))
            fail_msg("%s: position %" PRId64 " is %" PRId32, what, i, ids[i]);
    }
    assert_int_equal(at, json_array_size(want));
}

/* A case with an answer is a row to be trained, another a prompt. */
static void check_text(int m, const sheaf_config *config, const json_t *one, const char *what)
{
    const char *version = json_string_value(json_object_get(one, "template_version"));
    const char *model = in_dir(model_dir[m], "model"),
               *picture = kept(realpath(in_dir(model_dir[m], "picture1.png"), NULL), free),
               *path = at("case.jsonl");
    sheaf__codec codec;
    CHECK_OK(sheaf__codec_open(&codec, config,
                               &(sheaf__codec_options){ .folder = model, .version = version }));
    beside = sheaf__pictures_of(config) != NULL;
    json_t *record = record_of_case(one, picture, sheaf__codec_keeps_turns(&codec));
    assert_int_equal(json_dump_file(record, path, JSON_COMPACT), 0);
    if (json_is_string(json_object_get(one, "answer"))) {
        sheaf_data *data;
        int64_t row = 0;
        CHECK_OK(sheaf_data_open(&data, path,
                                 &(sheaf_data_options){ .config = config,
                                                        .folder = model,
                                                        .prompt_template = version }));
        const int64_t n = sheaf_data_used(data, &row, 1);
        int32_t tokens[1024], label[1024], whole[1024], images[1024];
        uint8_t embed[1024] = { 0 };
        assert_true(n < 1024);
        const sheaf_batch_images holds = sheaf_data_images(data, &row, 1);
        CHECK_OK(sheaf_data_batch(
            &(sheaf_batch){ .tokens = tokens, .labels = label, .image_row = images, .seq = n },
            data, &row, 1));
        for (int64_t i = 0; i < holds.pictures.images * sheaf__image_positions(config); i++)
            embed[images[i]] = 1;
        compare_ids(what, tokens, embed, n, one);
        whole[0] = -100;
        for (int64_t i = 1; i < n; i++) /* ours are those of the next position */
            whole[i] = label[i - 1] < 0 ? -100 : label[i - 1];
        compare_numbers(what, whole, json_object_get(one, "labels"), n);
        sheaf_data_close(data);
    } else {
        sheaf__prompts prompts;
        sheaf_prompts_options from = { .data = path };
        CHECK_OK(sheaf__prompts_read(&prompts, &codec, &from));
        assert_int_equal(prompts.count, 1);
        const sheaf__prompt *p = &prompts.prompt[0];
        compare_ids(what, p->ids, p->embed, p->n, one);
        sheaf__prompts_release(&prompts);
    }
    sheaf__codec_close(&codec);
    json_decref(record);
}

/* Upstream fails in some cases; a list of messages that does not ask for an answer, or ends with
 * one, is no prompt. */
static bool is_prompt(const json_t *one, const char *model)
{
    const json_t *asks = json_object_get(one, "add_generation_prompt"),
                 *list = json_object_get(one, "messages"),
                 *last = json_array_get(list, json_array_size(list) - 1);
    const char *role = json_string_value(json_object_get(last, "role"));
    const char *version = json_string_value(json_object_get(one, "template_version"));
    if (sheaf__ends_with(model, "cogagent_hf") && version != NULL &&
        (strcmp(version, "vqa") == 0 || strcmp(version, "chat_old") == 0))
        return false; /* upstream writes the mark of a picture, "<EOI>", into the text */
    return json_object_get(one, "error") == NULL && (asks == NULL || json_is_true(asks)) &&
           (role == NULL || strcmp(role, "user") == 0);
}

TEST(test_texts__ids_types_and_labels)
{
    for (int m = 0; m < models; m++) {
        if (!exists(in_dir(model_dir[m], "text_cases.json")))
            continue;
        const json_t *cases = json_of(model_dir[m], "text_cases.json");
        const sheaf_config *config = config_of(model_dir[m], "model/config.json");
        int seen = 0;
        for (size_t i = 0; i < json_array_size(cases); i++) {
            const json_t *one = json_array_get(cases, i);
            if (!is_prompt(one, model_dir[m]))
                continue;
            check_text(m, config, one, textf("%s: text case %zu", model_dir[m], i));
            seen++;
        }
        assert_true(seen > 0);
    }
}

/* ---- rows of upstream's fine-tuning ---- */

typedef struct said {
    int32_t id[1024], label[1024];
    int64_t n,
        picture; /* tokens without the picture, and how many stand before it; -1: no picture */
} said;

/* Upstream's: begin, place and end are one picture; -100 at what is not learnt. */
static said upstream_row(const json_t *one, const sheaf_config *c)
{
    const json_t *ids = json_object_get(one, "input_ids"), *labels = json_object_get(one, "labels");
    said s = { .picture = -1 };
    assert_true(json_array_size(ids) < 1024);
    for (size_t i = 0; i < json_array_size(ids); i++) {
        const int32_t id = (int32_t)json_integer_value(json_array_get(ids, i));
        if (id == c->image_mark.begin) {
            s.picture = s.n;
            i += 2;
            continue;
        }
        s.id[s.n] = id;
        s.label[s.n++] = (int32_t)json_integer_value(json_array_get(labels, i));
    }
    return s;
}

static said our_row(const char *path, const char *model, const sheaf_config *c)
{
    int32_t tokens[1024], label[1024], image[1024];
    uint8_t embed[1024] = { 0 };
    sheaf_data *data;
    int64_t row = 0;
    said s = { .picture = -1 };
    CHECK_OK(sheaf_data_open(&data, path, &(sheaf_data_options){ .config = c, .folder = model }));
    const int64_t n = sheaf_data_used(data, &row, 1),
                  rows =
                      sheaf_data_images(data, &row, 1).pictures.images * sheaf__image_positions(c);
    assert_true(n < 1024);
    CHECK_OK(sheaf_data_batch(
        &(sheaf_batch){ .tokens = tokens, .labels = label, .image_row = image, .seq = n }, data,
        &row, 1));
    for (int64_t i = 0; i < rows; i++)
        embed[image[i]] = 1;
    for (int64_t i = 0; i < n; i++) {
        if (embed[i]) {
            s.picture = s.picture < 0 ? s.n : s.picture;
            continue;
        }
        s.id[s.n] = tokens[i];
        s.label[s.n++] = i == 0 || label[i - 1] < 0 ? -100 : label[i - 1]; /* of the next there */
    }
    sheaf_data_close(data);
    return s;
}

/* The same tokens; a picture stands behind the line feed of the message that has it, and what is
 * learnt of an answer begins behind the mark of who speaks and goes on to the next mark. */
static void check_row(int m, const sheaf_config *config, const json_t *one)
{
    const char *model = in_dir(model_dir[m], "model"),
               *picture = in_dir(model_dir[m], "picture1.png"), *path = at("rows.jsonl");
    json_t *record = json_pack("{s:O}", "messages", json_object_get(one, "messages")), *list;
    int64_t message = -1, mark = -1, at_mark = -1;
    list = json_object_get(record, "messages");
    for (size_t i = 0; i < json_array_size(list); i++)
        if (json_object_get(json_array_get(list, i), "image") != NULL) {
            json_object_set_new(json_array_get(list, i), "image", json_string(picture));
            message = (int64_t)i;
        }
    assert_int_equal(json_dump_file(record, path, JSON_COMPACT), 0);
    const said want = upstream_row(one, config), got = our_row(path, model, config);
    const char *what = json_string_value(json_object_get(one, "case"));
    CHECK_BYTES(what, got.id, want.id, (size_t)want.n * sizeof *want.id);
    assert_int_equal(got.n, want.n);
    for (int64_t i = 0; i < want.n; i++) {
        /* system, user, assistant and observation lie before the marks of pictures */
        const bool role = want.id[i] < config->image_mark.begin &&
                          want.id[i] >= config->image_mark.begin - 4,
                   ends = role && i > 0 && want.label[i - 1] >= 0;
        mark += role;
        at_mark = role && mark == message ? i : at_mark;
        const int32_t label = ends ? want.id[i] : role ? -100 : want.label[i];
        if (got.label[i] != label)
            fail_msg("%s: label %" PRId64 " is %" PRId32 ", not %" PRId32, what, i, got.label[i],
                     label);
    }
    assert_int_equal(got.picture, at_mark + 2);
    json_decref(record);
}

TEST(test_texts__rows_of_finetuning)
{
    for (int m = 0; m < models; m++) {
        if (!exists(in_dir(model_dir[m], "finetune_rows.json")))
            continue;
        const json_t *rows = json_of(model_dir[m], "finetune_rows.json");
        const sheaf_config *config = config_of(model_dir[m], "model/config.json");
        assert_true(json_array_size(rows) > 0);
        for (size_t i = 0; i < json_array_size(rows); i++)
            check_row(m, config, json_array_get(rows, i));
    }
}

/* ---- tensors ---- */

/* The shape of a recorded tensor; NULL: there is none of the name. */
static const json_t *shape_of(const json_t *list, const char *name, bool *parameter)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *one = json_array_get(list, i);
        *parameter = strcmp(json_string_value(json_array_get(one, 2)), "param") == 0;
        if (strcmp(json_string_value(json_array_get(one, 0)), name) == 0)
            return json_array_get(one, 1);
    }
    return NULL;
}

/* Names and shapes; tables of angles may be missing on either side. */
TEST(test_tensors__names_and_shapes)
{
    for (int m = 0; m < models; m++) {
        if (recorded(m, "parameters.json") == NULL)
            continue;
        const json_t *list = json_of(model_dir[m], "parameters.json");
        const sheaf_schema *schema = opened_of(in_dir(model_dir[m], "model"))->schema;
        int64_t parameters = 0;
        for (int64_t i = 0; i < schema->count; i++) {
            const sheaf_tensor *t = &schema->tensor[i];
            bool parameter = false;
            const json_t *shape = shape_of(list, t->name, &parameter);
            if (shape == NULL && t->buffer)
                continue;
            if (shape == NULL || (int)json_array_size(shape) != t->ndim)
                fail_msg("%s: %s", t->name, shape == NULL ? "not recorded" : "other axes");
            for (int k = 0; k < t->ndim; k++)
                assert_int_equal(t->shape[k], json_integer_value(json_array_get(shape, (size_t)k)));
            parameters += parameter;
        }
        for (size_t i = 0; i < json_array_size(list); i++)
            parameters -=
                strcmp(json_string_value(json_array_get(json_array_get(list, i), 2)), "param") == 0;
        assert_int_equal(parameters, 0);
    }
}

FIXTURE(find_successors, remove_scratch);
