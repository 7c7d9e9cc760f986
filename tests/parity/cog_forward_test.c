/* cog_forward_test.c - the golden CogVLM and CogAgent models agree with what SAT computed: the
 * values of all stages, logits and loss, at 1, 2, 3 and 8 ranks with the same bytes, from the files
 * of every model-parallel size, in half precision and with an adapter; and greedy generation. */
#include "tests/parity/cog.h"

#include "checkpoint/convert/convert.h"
#include "tests/parity/generated.h"

/* ---- forward ---- */

/* Ours is what SAT's layer makes of the stream: its output added to the residual. */
static void compare_stages(const trial *t, const sheaf_safetensors *want)
{
    static const struct {
        const char *theirs, *ours;
    } rows[] = {
        { "adapter_in", "adapter_in" },          { "adapter_out", "adapter" },
        { "embedding_out", "embedding" },        { "encoder_out", "encoder" },
        { "final_layernorm_out", "final_norm" },
    };
    int64_t n, compared = 0;
    float *x;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if ((x = values(want, rows[i].theirs, &n)) != NULL) {
            compare(rows[i].theirs, stage_of(t, rows[i].ours, n), x, n, 5e-5, 0);
            compared++;
        }
    for (int layer = 0;; layer++) {
        const char *theirs = textf("vit_layer%d.out", layer);
        if ((x = values(want, theirs, &n)) == NULL)
            break;
        compare(theirs, stage_of(t, textf("vit%d", layer), n), x, n, 5e-5, 0);
        compared++;
    }
    for (int layer = 0;; layer++) {
        static const char *const parts[] = { "attention", "cross_attention", "mlp" };
        float *h = values(want, textf("layer%d.in", layer), &n);
        if (h == NULL)
            break;
        for (int p = 0; p < 3; p++) {
            const char *name = textf("layer%d.%s_out", layer, parts[p]);
            if ((x = values(want, name, &n)) == NULL)
                continue;
            for (int64_t i = 0; i < n; i++)
                h[i] += x[i];
            compare(name, stage_of(t, textf("%s%d", parts[p], layer), n), h, n, 5e-5, 0);
            compared++;
        }
    }
    assert_true(compared >= 9);
}

TEST(test_forward__stages_logits_and_loss)
{
    for (int m = 0; m < models; m++) {
        const char *dir = model_dir[m];
        sheaf_safetensors *want = record_of(dir, "forward_fp32.safetensors");
        json_t *scalars = json_of(dir, "scalars.json");
        int64_t n;
        const float *logits = values_of(want, "logits", &n);
        const char *model = in_dir(dir, "mp1");
        trial one = run_forward(model, NULL, in_dir(dir, "inputs.safetensors"), SHEAF_F32);
        compare(dir, one.logits, logits, n, 5e-5, 0);
        CHECK_NEAR(dir, one.loss, number_in(scalars, "loss_fp32"), 1e-5);
        compare_stages(&one, want);
        release(&one);
    }
}

/* Every folder mpN of the model holds the same weights. */
TEST(test_forward__every_size_of_files)
{
    int folders = 0;
    for (int m = 0; m < models; m++) {
        sheaf_safetensors *want = record_of(model_dir[m], "forward_fp32.safetensors");
        int64_t n;
        const float *logits = values_of(want, "logits", &n);
        for (int ways = 2; ways <= 16; ways++) {
            const char *dir = in_dir(model_dir[m], textf("mp%d", ways));
            if (exists(in_dir(dir, "latest"))) {
                trial t =
                    run(dir, NULL, in_dir(model_dir[m], "inputs.safetensors"), 3, SHEAF_F32, false);
                compare(dir, t.logits, logits, n, 5e-5, 0);
                release(&t);
                folders++;
            }
        }
    }
    assert_true(folders > 0 || !golden_is_full());
}

TEST(test_forward__half_precision_files)
{
    int folders = 0;
    for (int m = 0; m < models; m++) {
        json_t *scalars = json_of(model_dir[m], "scalars.json");
        static const char *const dtype[] = { "bf16", "fp16" };
        for (int d = 0; d < 2; d++) {
            const char *dir = in_dir(model_dir[m], textf("mp1_%s", dtype[d]));
            const double loss = number_in(scalars, textf("loss_%s_weights_fp32_math", dtype[d]));
            if (exists(in_dir(dir, "latest"))) {
                trial t =
                    run(dir, NULL, in_dir(model_dir[m], "inputs.safetensors"), 2, SHEAF_F32, false);
                CHECK_NEAR(dir, t.loss, loss, 1e-5);
                int64_t n;
                sheaf_safetensors *file =
                    record_of(model_dir[m], "logits_from_bf16_weights_fp32_math.safetensors");
                const float *want = values_of(file, "logits_sample0", &n);
                if (d == 0)
                    compare(dir, t.logits, want, n, 5e-5, 0);
                release(&t);
                /* In bfloat16 the loss moves by its rounding, and the bytes by nothing. */
                trial half =
                    run_forward(dir, NULL, in_dir(model_dir[m], "inputs.safetensors"), SHEAF_BF16);
                CHECK_NEAR(dir, half.loss, loss, 0.05);
                release(&half);
                folders++;
            }
        }
    }
    assert_true(folders > 0 || !golden_is_full());
}

/* ---- LoRA, merged nowhere ---- */

TEST(test_lora__logits_from_an_adapter)
{
    int compared = 0;
    for (int m = 0; m < models; m++) {
        const char *adapter = in_dir(model_dir[m], "lora_mp1");
        if (exists(in_dir(adapter, "latest"))) {
            const char *peft = at(textf("adapter%d", m));
            sheaf_weights_convert_report report;
            CHECK_OK(sheaf_convert(&report, &(sheaf_weights_convert_options){
                                                .src = adapter, .dst = peft, .to = "peft" }));
            sheaf_safetensors *file = record_of(model_dir[m], "lora_mp1_forward_fp32.safetensors");
            int64_t n;
            const float *want = values_of(file, "logits", &n);
            const char *model = in_dir(model_dir[m], "mp1");
            trial one =
                run_forward(model, peft, in_dir(model_dir[m], "inputs.safetensors"), SHEAF_F32);
            compare(adapter, one.logits, want, n, 5e-5, 0);
            release(&one);
            compared++;
        }
    }
    assert_true(compared > 0 || !golden_is_full());
}

/* ---- generation ---- */

TEST(test_generation__greedy_tokens)
{
    for (int m = 0; m < models; m++) {
        json_t *told = json_of(model_dir[m], "generate_greedy.json");
        sheaf_safetensors *in = record_of(model_dir[m], "inputs.safetensors");
        int64_t length, one, npixels, ncross = 0, max_new = 1;
        const int64_t *ids = integer_rows(in, "input_ids", &length),
                      *position = integer_rows(in, "position_ids", &length),
                      *embed = integer_rows(in, "image_embed_mask", &length),
                      *expert = integer_rows(in, "vision_expert_mask", &length),
                      *context = integer_rows(in, "context_length", &one);
        float *pixels = values_of(in, "vision_image", &npixels),
              *cross = values(in, "cross_image", &ncross);
        const int64_t rows = sheaf__safetensors_find(in, "input_ids")->shape[0];
        assert_true(rows <= 8 && length <= 256);
        int32_t id32[8][256], position32[8][256];
        uint8_t embed8[8][256], expert8[8][256];
        sheaf__prompt prompt[8];
        sheaf__picture picture[8];
        sheaf__tower tower[SHEAF__MOST_TOWERS];
        for (int64_t r = 0; r < rows; r++) {
            for (int64_t t = 0; t < length; t++) {
                id32[r][t] = (int32_t)ids[r * length + t];
                position32[r][t] = (int32_t)position[r * length + t];
                embed8[r][t] = (uint8_t)embed[r * length + t];
                expert8[r][t] = (uint8_t)expert[r * length + t];
            }
            prompt[r] =
                (sheaf__prompt){ id32[r],     context[r], position32[r], embed8[r], expert8[r],
                                 &picture[r], 1 };
            max_new = json_integer_value(
                json_object_get(json_object_get(told, textf("sample%d", (int)r)), "max_new"));
        }
        const sheaf__opened *opened = opened_of(in_dir(model_dir[m], "mp1"));
        const int towers = sheaf__towers_of(tower, &opened->config);
        assert_int_equal(npixels, rows * sheaf__tower_numbers(&tower[0]));
        assert_int_equal(ncross, towers > 1 ? rows * sheaf__tower_numbers(&tower[1]) : 0);
        sheaf__picture_place(picture, rows, (float *[]){ pixels, cross }, tower, towers);
        for (size_t k = 0; k < ARRAY_LEN(ranks_to_try); k++) {
            answers a = { .prompt = prompt,
                          .count = rows,
                          .how = { .max_new = max_new,
                                   .stop = opened->config.eos,
                                   .nstop = opened->config.neos } };
            answer(&a, opened, ranks_to_try[k], length + max_new);
            for (int64_t r = 0; r < rows; r++) {
                const json_t *sample = json_object_get(told, textf("sample%d", (int)r)),
                             *want = json_object_get(sample, "output_ids");
                assert_int_equal((int64_t)json_array_size(want), context[r] + a.out[r].n);
                for (int64_t t = 0; t < a.out[r].n; t++)
                    assert_int_equal(a.ids[r][t], json_integer_value(json_array_get(
                                                      want, (size_t)(context[r] + t))));
            }
        }
    }
}

FIXTURE(find_models, remove_scratch);
