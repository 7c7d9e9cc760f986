/* padding_test.c - rows padded to the longest of their micro-batch: nothing depends on a row that
 * is elsewhere in the file. */
#include "checkpoint/tools/init.h"
#include "tests/files.h"
#include "train/train.h"

/* Rows of 4 to 300 tokens, the longest in the middle and one of a single letter; more than a block
 * of 256 in a micro-batch. */
static const int lengths[] = { 7, 40, 1, 33, 298, 12, 90, 5 };
enum { ROWS = ARRAY_LEN(lengths) };

static int make_sources(void **state)
{
    static const char config[] =
        "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", \"attention_bias\": false, \"mlp_bias\": false, "
        "\"bos_token_id\": 256, \"eos_token_id\": 257, \"pad_token_id\": 258, \"hidden_act\": \"silu\", \"rms_norm_eps\": 1e-05, "
        "\"max_position_embeddings\": 512, \"initializer_range\": 0.1, \"rope_theta\": 10000.0, \"dtype\": \"float32\", \"head_dim\": 8, "
        "\"hidden_size\": 24, \"intermediate_size\": 40, \"num_attention_heads\": 3, \"num_key_value_heads\": 3, "
        "\"num_hidden_layers\": 2, \"vocab_size\": 259, \"tie_word_embeddings\": false, \"sheaf_tokenizer\": \"bytes\"}\n";
    /* beyond 64 positions the angles are those of the length */
    static const char longer[] =
        ", \"rope_scaling\": {\"rope_type\": \"dynamic\", \"factor\": 4.0}}\n";
    char other[sizeof config + sizeof longer];
    sheaf_weights_init_report report;
    if (make_scratch(state) != 0)
        return 1;
    put(at("config.json"), config);
    CHECK_OK(sheaf_init(&report, &(sheaf_weights_init_options){
                                     .spec = at("config.json"), .dst = at("model"), .seed = 5 }));
    snprintf(other, sizeof other, "%.*s%s", (int)sizeof config - 3, config, longer);
    memcpy(strstr(other, "512"), " 64", 3);
    put(at("dynamic.json"), other);
    CHECK_OK(sheaf_init(&report, &(sheaf_weights_init_options){ .spec = at("dynamic.json"),
                                                                .dst = at("dynamic"),
                                                                .seed = 5 }));
    FILE *all = fopen(at("data.jsonl"), "w"), *first = fopen(at("first.jsonl"), "w");
    assert_true(all != NULL && first != NULL);
    for (int r = 0; r < ROWS; r++) {
        char text[400] = "";
        for (int i = 0; i < lengths[r]; i++)
            text[i] = (char)('a' + (i * i + 3 * r + i) % 26);
        fprintf(all, "{\"text\": \"%s\"}\n", text);
        if (r < 4)
            fprintf(first, "{\"text\": \"%s\"}\n", text);
    }
    return fclose(all) | fclose(first);
}

typedef struct run {
    const char *out, *data, *model;
    int64_t rows, accumulate, steps;
    int tp;
    sheaf_dtype dtype;
    double dropout;
    double noise;
    bool checkpointing, resume, pack, shuffle;
    int64_t seq;
    double loss, norm; /* of the last step */
    char note[200];    /* on padding */
} run;

static void hear(void *self, const sheaf_event *event)
{
    run *r = self;
    if (event->kind == SHEAF_EVENT_STEP) {
        r->loss = event->step.loss;
        r->norm = event->step.grad_norm;
    } else if (event->text != NULL && strstr(event->text, "padding") != NULL) {
        snprintf(r->note, sizeof r->note, "%s", event->text);
    }
}

static void train(run *r)
{
    sheaf_train_options o;
    sheaf_train_result result = { 0 };
    const sheaf_events events = { hear, r };
    sheaf_train_options_default(&o);
    o.model = at(r->model == NULL ? "model" : r->model);
    o.data = at(r->data == NULL ? "data.jsonl" : r->data);
    o.out = at(r->out);
    o.threads = 2;
    o.tp = r->tp == 0 ? 1 : r->tp;
    o.slices = 4;
    o.lora_rank = 2;
    o.lora_targets = "all-linear";
    o.lora_dropout = r->dropout;
    o.neftune_alpha = r->noise;
    o.micro_batch = r->rows;
    o.accumulate = r->accumulate == 0 ? 1 : r->accumulate;
    o.steps = r->steps == 0 ? 1 : r->steps;
    o.save_every = 1;
    o.keep = 0;
    o.lr = 0.01;
    o.schedule = SHEAF_SCHEDULE_CONSTANT;
    o.dtype = r->dtype == SHEAF_BF16 ? SHEAF_BF16 : SHEAF_F32;
    o.kept = r->checkpointing ? SHEAF__KEPT_NONE : SHEAF__KEPT_ALL;
    o.resume = r->resume;
    o.pack = r->pack;
    o.seq = r->seq;
    o.shuffle = r->shuffle;
    CHECK_OK(sheaf_train(&result, &o, "settings: none\n", "steps: 1\n",
                         &(sheaf_train_hooks){ .events = &events }));
    sheaf_train_result_release(&result);
}

static void check_same_adapter(const char *a, const char *b)
{
    check_same_file(at(a), at(b), "adapter/adapter_model.safetensors");
}

TEST(test_padding__no_row_counts_that_is_not_in_the_micro_batch)
{
    run some = { .out = "some", .data = "first.jsonl", .rows = 2, .steps = 2 };
    run all = { .out = "all", .rows = 2, .steps = 2 };
    train(&some);
    train(&all);
    check_same_adapter("some", "all");
}

TEST(test_padding__ranks_checkpointing_and_stops_change_no_byte)
{
    run whole = { .out = "whole", .rows = 3, .accumulate = 2, .steps = 4, .dropout = 0.1 };
    run ranks = { .out = "ranks",
                  .rows = 3,
                  .accumulate = 2,
                  .steps = 2,
                  .dropout = 0.1,
                  .tp = 3,
                  .checkpointing = true };
    train(&whole);
    train(&ranks);
    CHECK_OK(sheaf__remove_tree(at("ranks/adapter")));
    ranks.steps = 4;
    ranks.resume = true;
    train(&ranks);
    check_same_adapter("whole", "ranks");
    check_same_file(at("whole"), at("ranks"), "checkpoints/step-00000004/manifest.json");
}

TEST(test_padding__is_told)
{
    run batch = { .out = "told-b", .rows = 4 };
    run none = { .out = "told-c", .rows = 1 };
    train(&batch);
    train(&none);
    /* 9, 42, 3 and 35 of 4 x 42 */
    assert_string_equal(
        batch.note,
        "47.0 % of the positions are padding: rows are as long as the longest of their micro-batch");
    assert_string_equal(none.note, "");
}

/* ---- packed rows ---- */

/* All rows in one. */
TEST(test_pack__losses_are_those_of_the_rows_apart)
{
    static const sheaf_dtype dtypes[] = { SHEAF_F32, SHEAF_BF16 };
    for (int d = 0; d < 2; d += every(2)) {
        char a[40], b[40];
        snprintf(a, sizeof a, "apart-%d", d);
        snprintf(b, sizeof b, "packed-%d", d);
        run apart = { .out = a, .rows = ROWS, .dtype = dtypes[d] };
        run packed = { .out = b, .rows = 1, .dtype = dtypes[d], .pack = true, .seq = 512 };
        train(&apart);
        train(&packed);
        assert_true(apart.loss == packed.loss && packed.loss > 1);
        /* Sums over rows fall into other blocks of 256. */
        assert_true(fabs(apart.norm - packed.norm) < 1e-5 * apart.norm);
    }
}

/* Angles that look at a length take that of the row itself, not of its neighbours. */
TEST(test_pack__angles_of_a_length_are_those_of_the_rows_apart)
{
    run apart = { .out = "dynamic-a", .model = "dynamic", .rows = ROWS, .seq = 512 };
    run packed = apart, plain = apart;
    packed.out = "dynamic-b";
    packed.rows = 1;
    packed.pack = true;
    plain.out = "dynamic-c";
    plain.model = NULL;
    train(&apart);
    train(&packed);
    train(&plain);
    assert_true(apart.loss == packed.loss && packed.loss != plain.loss);
    assert_true(fabs(apart.norm - packed.norm) < 1e-5 * apart.norm);
}

/* A record has the dropout and the noise that it has alone, in a second epoch too. */
TEST(test_pack__randomness_is_that_of_the_rows_apart)
{
    for (int shuffle = 0; shuffle < 2; shuffle++) {
        run apart = { .out = shuffle ? "own-a1" : "own-a0",
                      .rows = ROWS,
                      .steps = 2,
                      .dropout = 0.25,
                      .noise = 9,
                      .shuffle = shuffle != 0 };
        run packed = apart, plain = apart;
        packed.out = shuffle ? "own-b1" : "own-b0";
        packed.rows = 1;
        packed.pack = true;
        packed.seq = 512;
        plain.out = shuffle ? "own-c1" : "own-c0";
        plain.noise = plain.dropout = 0;
        train(&apart);
        train(&packed);
        train(&plain);
        /* The first step's update differs in the rounding of sums over rows. */
        assert_true(fabs(apart.loss - packed.loss) < 1e-5 * apart.loss);
        assert_true(fabs(apart.norm - packed.norm) < 1e-3 * apart.norm);
        assert_true(fabs(apart.loss - plain.loss) > 1e-3 * plain.loss);
    }
}

TEST(test_pack__ranks_checkpointing_and_stops_change_no_byte)
{
    run whole = { .out = "pack-whole",
                  .rows = 2,
                  .accumulate = 2,
                  .steps = 3,
                  .dropout = 0.1,
                  .pack = true,
                  .seq = 310 };
    run ranks = whole;
    ranks.out = "pack-ranks";
    ranks.tp = 3;
    ranks.checkpointing = true;
    ranks.steps = 2;
    train(&whole);
    train(&ranks);
    CHECK_OK(sheaf__remove_tree(at("pack-ranks/adapter")));
    ranks.steps = 3;
    ranks.resume = true;
    train(&ranks);
    check_same_adapter("pack-whole", "pack-ranks");
}

FIXTURE(make_sources, remove_scratch);
