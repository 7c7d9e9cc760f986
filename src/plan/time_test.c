/* time_test.c - the count of work against formulas, prices by hand. Nothing here is measured. */

#include "models/open.h"
#include "plan/plan.h"
#include "plan/timing.h"
#include "tape/head_rows.h"
#include "tests/files.h"
#include "tests/sources.h"

/* ---- the count of work ---- */

/* tests/data/configs/mini.json, two rows of 64 tokens, LoRA of rank 8. */
enum { H = 512, F = 1408, KV = 256, V = 259, LAYERS = 4, ROWS = 2, SEQ = 64, RANK = 8 };

static void count(sheaf__work *work, sheaf_method method, bool checkpointing)
{
    sheaf_train_options o;
    sheaf__opened opened = { 0 };
    sheaf__selection selection = { 0 };
    sheaf_lora_options fresh = { 0 };
    sheaf_data *data;
    sheaf__count unused[SHEAF__TRAFFICS];
    const bool lora = method == SHEAF_METHOD_LORA;
    const char *path = in_sources("tests/data/configs/mini.json");
    sheaf_train_options_default(&o);
    o.method = method;
    o.lora_rank = RANK;
    o.lora_targets = "all-linear";
    o.threads = 1;
    o.micro_batch = ROWS;
    o.kept = checkpointing ? SHEAF__KEPT_NONE : SHEAF__KEPT_ALL;
    o.slices = lora ? 1 : 8; /* each slice has LoRA products of its own, one is easily counted */
    if (lora)
        CHECK_OK(sheaf_train_options_lora(&fresh, &o));
    CHECK_OK(sheaf__open_model(&opened, &(sheaf__open_options){ .config = path,
                                                                .config_only = true,
                                                                .slices = o.slices,
                                                                .fresh = lora ? &fresh : NULL }));
    CHECK_OK(sheaf__select(&selection, opened.schema, opened.lora, &o, NULL));
    CHECK_OK(sheaf_data_synthetic(&data, &opened.config, ROWS, SEQ));
    CHECK_OK(sheaf_plan_step(unused, NULL, work,
                             &(sheaf__job){ .options = &o,
                                            .schema = opened.schema,
                                            .lora = opened.lora,
                                            .selection = &selection,
                                            .train = { .data = data },
                                            .seq = SEQ },
                             0, 0));
    sheaf_data_close(data);
    sheaf__selection_release(&selection);
    sheaf_lora_options_release(&fresh);
    sheaf__opened_close(&opened);
}

static double flops_of(const sheaf__work *work, sheaf__work_kind kind, sheaf__work_way way)
{
    return work->sum[kind][way][1].flops;
}

static const double M = ROWS * SEQ, LABELS = ROWS * (SEQ - 1),
                    WEIGHTS = 2.0 * H * H + 2.0 * H * KV + 3.0 * H * F, /* of a layer */
    BEHIND = 1.0 * H * H + 3.0 * H * F, /* of them, behind attention */
    PAIRS = ROWS * (SEQ * (SEQ + 1.0) / 2) * H;

TEST(test_time__operations_of_the_head)
{
    sheaf__work work = { 0 };
    count(&work, SHEAF_METHOD_HEAD, false);
    CHECK_NEAR("trained", work.trained, (double)V * H, 0);
    CHECK_NEAR("products", flops_of(&work, SHEAF__WORK_PRODUCTS, SHEAF__WORK_FORWARD),
               2 * M * WEIGHTS * LAYERS, 0);
    CHECK_NEAR("attention", flops_of(&work, SHEAF__WORK_ATTENTION, SHEAF__WORK_FORWARD),
               2 * 2 * PAIRS * LAYERS, 0);
    CHECK_NEAR("logits, weight gradient", flops_of(&work, SHEAF__WORK_HEAD, SHEAF__WORK_FORWARD),
               2 * 2 * LABELS * V * H, 0);
    for (int kind = 0; kind < SHEAF__WORK_KINDS; kind++)
        for (int way = SHEAF__WORK_AGAIN; way < SHEAF__WORK_WAYS; way++)
            CHECK_NEAR("nothing flows back",
                       flops_of(&work, (sheaf__work_kind)kind, (sheaf__work_way)way), 0, 0);
}

TEST(test_time__operations_of_lora)
{
    /* Factors: x A and h B; backward g = dy B, dB, dA and g A, which the first q, k, v lack. */
    const double ends = 2.0 * (H + H) + 2.0 * (H + KV) + 3.0 * (H + F), qkv = H * (H + 2.0 * KV),
                 ins = 4.0 * H + 2.0 * H + F, outs = ends - ins;
    sheaf__work work = { 0 };
    count(&work, SHEAF_METHOD_LORA, true);
    CHECK_NEAR("trained", work.trained, RANK * ends * LAYERS, 0);
    CHECK_NEAR("products", flops_of(&work, SHEAF__WORK_PRODUCTS, SHEAF__WORK_FORWARD),
               2 * M * (WEIGHTS + RANK * ends) * LAYERS, 0);
    CHECK_NEAR("products back", flops_of(&work, SHEAF__WORK_PRODUCTS, SHEAF__WORK_BACKWARD),
               2 * M * ((WEIGHTS + RANK * (2 * outs + 2 * ins)) * LAYERS - qkv - RANK * 3.0 * H),
               0);
    CHECK_NEAR("attention back", flops_of(&work, SHEAF__WORK_ATTENTION, SHEAF__WORK_BACKWARD),
               2 * 5 * PAIRS * LAYERS, 0);
    CHECK_NEAR("attention again", flops_of(&work, SHEAF__WORK_ATTENTION, SHEAF__WORK_AGAIN),
               2 * 2 * PAIRS * LAYERS, 0);
    CHECK_NEAR("head", flops_of(&work, SHEAF__WORK_HEAD, SHEAF__WORK_FORWARD),
               2 * 2 * LABELS * V * H, 0);
}

/* Three prompts of 40 tokens, and a token of each in the middle of answers of 24: at key 52. */
TEST(test_time__operations_of_generation)
{
    enum { BATCH = 3, PROMPT = 40, END = 64, KEYS = 52 };
    sheaf__opened opened = { 0 };
    sheaf__placement place;
    struct sheaf_plan_passes passes = { 0 };
    sheaf_plan plan;
    const char *path = in_sources("tests/data/configs/mini.json");
    CHECK_OK(sheaf__open_model(
        &opened, &(sheaf__open_options){ .config = path, .config_only = true, .slices = 8 }));
    CHECK_OK(sheaf__placement_read(&place, NULL, opened.schema));
    CHECK_OK(sheaf_plan_generate(&plan, &(sheaf_plan_generation){ .schema = opened.schema,
                                                                  .place = &place,
                                                                  .tp = 2,
                                                                  .threads = 2,
                                                                  .dtype = SHEAF_F32,
                                                                  .batch = BATCH,
                                                                  .seq = END,
                                                                  .prompt = PROMPT,
                                                                  .work = &passes }));
    const sheaf__work *pass[] = { &passes.prompts, &passes.token };
    const double rows[] = { BATCH * PROMPT, BATCH },
                 pairs[] = { BATCH * PROMPT * (PROMPT + 1) / 2, BATCH * KEYS },
                 left_out[] = { BATCH * (PROMPT - SHEAF__HEAD_ROWS_UNIT), 0 };
    for (int i = 0; i < 2; i++) { /* of the first of two ranks */
        CHECK_NEAR("products", flops_of(pass[i], SHEAF__WORK_PRODUCTS, SHEAF__WORK_FORWARD),
                   rows[i] * WEIGHTS * LAYERS - left_out[i] * BEHIND, 0);
        CHECK_NEAR("attention", flops_of(pass[i], SHEAF__WORK_ATTENTION, SHEAF__WORK_FORWARD),
                   2 * pairs[i] * H * LAYERS, 0);
    }
    sheaf__opened_close(&opened);
}

/* ---- prices ---- */

enum { P = SHEAF__WORK_PRODUCTS, E = SHEAF__WORK_ELEMENTS, A = SHEAF__WORK_ATTENTION };
enum { FORE = SHEAF__WORK_FORWARD, AGAIN = SHEAF__WORK_AGAIN, BACK = SHEAF__WORK_BACKWARD };

TEST(test_time__prices_by_hand)
{
    sheaf__work measured = { .update = 2, .update_waiting = 0.5, .trained = 100, .all = 9.5 },
                work = { .trained = 200 };
    measured.sum[P][FORE][1] = (sheaf__work_sum){ 2, 2000, 128, 1, 0.25 };
    measured.sum[P][BACK][1] = (sheaf__work_sum){ 1, 2000, 64, 2, 0 };
    measured.sum[E][FORE][0] = (sheaf__work_sum){ 4, 0, 128, 4, 0 };
    work.sum[P][FORE][1] = (sheaf__work_sum){ .runs = 6, .flops = 6000, .bytes = 1 };
    work.sum[P][BACK][1] = (sheaf__work_sum){ .runs = 3, .flops = 6000, .bytes = 1 };
    work.sum[E][FORE][0] = (sheaf__work_sum){ .runs = 5, .bytes = 64 };
    /* Two micro-batches of it, and one update; beside them twice as many ops take half a second. */
    sheaf_time t = sheaf_time_predict(&measured, &work, 2);
    CHECK_NEAR("products", t.kind[P], 2 * 3 * (0.75 + 2), 0);
    CHECK_NEAR("elements", t.kind[E], 2 * 2, 0);
    CHECK_NEAR("update", t.update, 2 * 1.5, 0);
    CHECK_NEAR("waiting", t.waiting, 2 * 3 * 0.25 + 2 * 0.5, 0);
    CHECK_NEAR("beside", t.beside, 2 * 2 * 0.5, 0);
    CHECK_NEAR("step", t.step, t.kind[P] + t.kind[E] + t.update + t.waiting + t.beside, 0);
    /* Recomputation that was not measured costs as forward; another kind as products. */
    work = (sheaf__work){ 0 };
    work.sum[E][AGAIN][0] = (sheaf__work_sum){ .runs = 1, .bytes = 32 };
    work.sum[A][BACK][1] = (sheaf__work_sum){ .runs = 1, .flops = 8000 };
    t = sheaf_time_predict(&measured, &work, 1);
    CHECK_NEAR("its own forward", t.kind[E], 1, 0);
    CHECK_NEAR("as products", t.kind[A], 4 * 0.75, 0);
    CHECK_NEAR("no update", t.update, 0, 0);
}
