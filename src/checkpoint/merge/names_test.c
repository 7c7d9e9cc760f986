/* names_test.c - bases whose files have other names than transformers 5 gives them on load, which
 * adapters are saved with. */
#include "tests/stored.h"

#include <sys/stat.h>

#include "checkpoint/merge/merge.h"

enum { ROWS = 16, COLS = 12, RANK = 2, MOST = 4 };

/* Names in files, and what the adapters of PEFT 0.21 with transformers 5.23 call these modules:
 * pairs as its saves have them. */
static const struct {
    const char *what, *file[MOST], *module[MOST];
} models[] = {
    { "LLaVA",
      { "language_model.model.layers.0.mlp.down_proj",
        "vision_tower.encoder.layers.1.self_attn.v_proj", "multi_modal_projector.linear_1",
        "language_model.lm_head" },
      { "model.language_model.layers.0.mlp.down_proj",
        "model.vision_tower.encoder.layers.1.self_attn.v_proj",
        "model.multi_modal_projector.linear_1", "lm_head" } },
    { "LLaVA with a tower of CLIP",
      { "language_model.model.layers.0.self_attn.q_proj",
        "vision_tower.vision_model.encoder.layers.0.self_attn.q_proj" },
      { "model.language_model.layers.0.self_attn.q_proj",
        "model.vision_tower.encoder.layers.0.self_attn.q_proj" } },
    { "Qwen2-VL",
      { "model.layers.0.self_attn.q_proj", "visual.blocks.1.mlp.fc1",
        "model.layers.1.self_attn.v_proj", "lm_head" },
      { "model.language_model.layers.0.self_attn.q_proj", "model.visual.blocks.1.mlp.fc1",
        "model.language_model.layers.1.self_attn.v_proj", "lm_head" } },
    { "Qwen2-Audio",
      { "language_model.model.layers.1.self_attn.q_proj", "audio_tower.layers.0.fc1" },
      { "model.language_model.layers.1.self_attn.q_proj", "model.audio_tower.layers.0.fc1" } },
    { "ViT",
      { "vit.encoder.layer.0.attention.attention.query", "vit.encoder.layer.1.intermediate.dense",
        "vit.encoder.layer.0.attention.output.dense", "vit.encoder.layer.1.output.dense" },
      { "vit.layers.0.attention.q_proj", "vit.layers.1.mlp.fc1", "vit.layers.0.attention.o_proj",
        "vit.layers.1.mlp.fc2" } },
    { "ViT without its head",
      { "encoder.layer.0.attention.attention.key", "encoder.layer.1.output.dense" },
      { "vit.layers.0.attention.k_proj", "vit.layers.1.mlp.fc2" } },
    { "DINOv2",
      { "dinov2.encoder.layer.0.attention.attention.value", "dinov2.encoder.layer.1.mlp.fc1" },
      { "dinov2.encoder.layer.0.attention.v_proj", "dinov2.encoder.layer.1.mlp.fc1" } },
    { "Swin",
      { "swin.encoder.layers.0.blocks.0.attention.self.query",
        "swin.encoder.layers.1.blocks.0.intermediate.dense" },
      { "swin.encoder.layers.0.blocks.0.attention.q_proj",
        "swin.encoder.layers.1.blocks.0.mlp.fc1" } },
    { "SegFormer",
      { "segformer.encoder.block.0.0.attention.self.query",
        "segformer.encoder.block.1.0.mlp.dense1" },
      { "segformer.stages.0.blocks.0.attention.q_proj", "segformer.stages.1.blocks.0.mlp.fc1" } },
    { "a tower of CLIP",
      { "vision_model.encoder.layers.0.mlp.fc1" },
      { "encoder.layers.0.mlp.fc1" } },
    { "GPT-NeoX",
      { "embed_out", "gpt_neox.layers.0.attention.query_key_value" },
      { "lm_head", "gpt_neox.layers.0.attention.query_key_value" } },
    { "LLaVA's adapter of 4.51 on a base of later names",
      { "model.language_model.layers.0.self_attn.q_proj",
        "model.vision_tower.encoder.layers.0.mlp.fc1", "lm_head" },
      { "language_model.model.layers.0.self_attn.q_proj",
        "vision_tower.vision_model.encoder.layers.0.mlp.fc1", "language_model.lm_head" } },
    { "DETR",
      { "model.decoder.layers.0.encoder_attn.out_proj", "model.encoder.layers.0.fc1" },
      { "model.decoder.layers.0.encoder_attn.o_proj", "model.encoder.layers.0.mlp.fc1" } },
};

static void add(made_tensors *made, const char *name, int64_t rows, int64_t cols)
{
    float x[ROWS * COLS];
    for (int k = 0; k < ROWS * COLS; k++)
        x[k] = (float)((k * 13 + made->count * 29) % 31 - 15) / 32;
    made_add(made, name, SHEAF_F32, 2, (const int64_t[]){ rows, cols }, x);
}

/* A base with a tensor more, which no adapter names; or an adapter of these modules. */
static void write_model(const char *dir, const char *const *modules, bool adapter)
{
    made_tensors made = { .count = 0 };
    CHECK_OK(sheaf__remove_tree(dir));
    assert_int_equal(mkdir(dir, 0755), 0);
    for (int i = 0; i < MOST && modules[i] != NULL; i++)
        if (adapter) {
            add(&made, textf("base_model.model.%s.lora_A.weight", modules[i]), RANK, COLS);
            add(&made, textf("base_model.model.%s.lora_B.weight", modules[i]), ROWS, RANK);
        } else {
            add(&made, textf("%s.weight", modules[i]), ROWS, COLS);
        }
    if (!adapter)
        add(&made, "something.else.weight", ROWS, COLS);
    made_write(&made, textf("%s/%s.safetensors", dir, adapter ? "adapter_model" : "model"));
    if (adapter)
        put(textf("%s/adapter_config.json", dir),
            "{\"peft_type\": \"LORA\", \"r\": 2, \"lora_alpha\": 2, \"target_modules\": \"(?!something).*\"}");
}

static void hear(void *context, const sheaf_event *event)
{
    *(int *)context +=
        event->kind == SHEAF_EVENT_NOTE && strstr(event->text, "its names are those ") != NULL;
}

static sheaf_status *merge(const char *adapter, const char *dst, int *notes)
{
    const sheaf_events events = { hear, notes };
    sheaf_weights_merge_report report;
    CHECK_OK(sheaf__remove_tree(dst));
    return sheaf_merge(&report,
                       &(sheaf_weights_merge_options){ .base = at("base"),
                                                       .adapters = (const char *const[]){ adapter },
                                                       .nadapters = 1,
                                                       .dst = dst,
                                                       .events = &events });
}

/* The same model as by an adapter with the names of the files; they stay in the output. */
TEST(test_names__those_of_transformers_find_those_of_files)
{
    for (size_t i = 0; i < ARRAY_LEN(models); i++) {
        int plain = 0, renamed = 0;
        write_model(at("base"), models[i].file, false);
        write_model(at("plain"), models[i].file, true);
        write_model(at("renamed"), models[i].module, true);
        CHECK_OK(merge(at("plain"), at("one"), &plain));
        print_message("%s\n", models[i].what);
        CHECK_OK(merge(at("renamed"), at("two"), &renamed));
        check_same_files(at("one/model.safetensors"), at("two/model.safetensors"));
        if (plain != 0 || renamed != 1)
            fail_msg("%s: %d and %d notes", models[i].what, plain, renamed);
    }
}

/* Names that no renaming explains, or not all of them. */
TEST(test_names__others_are_refused_with_what_may_be_the_reason)
{
    const char *const parts[MOST] = { "model.language_model.layers.0.mlp.down_proj",
                                      "model.unheard_of.q_proj" },
                      *const none[MOST] = { "unheard_of.q_proj" };
    int notes = 0;
    write_model(at("base"), models[0].file, false);
    write_model(at("odd"), parts, true);
    CHECK_FAILS(merge(at("odd"), at("out"), &notes), SHEAF_E_LAYOUT,
                "4 of 4 tensors of the adapter");
    write_model(at("odd"), none, true);
    CHECK_FAILS(merge(at("odd"), at("out"), &notes), SHEAF_E_LAYOUT,
                "transformers loads it under other names than its files have");
    assert_int_equal(notes, 0);
}

FIXTURE(make_scratch, remove_scratch);
