/* time_test.c - the list of ops against formulas, prices by hand, profiles as files. Nothing here
 * is measured. */
#include "tests/check.h"

#include "models/open.h"
#include "plan/passes.h"
#include "plan/time.h"
#include "tape/wanted.h"
#include "tests/files.h"

/* ---- the list of ops ---- */

/* tests/data/configs/mini.json, two rows of 64 tokens, LoRA of rank 8. */
enum { H = 512, F = 1408, KV = 256, V = 259, LAYERS = 4, ROWS = 2, SEQ = 64, RANK = 8 };

static void list_ops(sheaf__work *work, sheaf_plan_size *size, sheaf_method method,
                     bool checkpointing)
{
    static char path[1024];
    sheaf_train_options o;
    sheaf__opened opened = { 0 };
    sheaf__selection selection = { 0 };
    sheaf_lora_options fresh = { 0 };
    sheaf_data *data;
    const bool lora = method == SHEAF_METHOD_LORA;
    snprintf(path, sizeof path, "%s/tests/data/configs/mini.json",
             getenv("SHEAF_SOURCE_ROOT") == NULL ? "." : getenv("SHEAF_SOURCE_ROOT"));
    sheaf_train_options_default(&o);
    o.method = method;
    o.lora_rank = RANK;
    o.lora_targets = "all-linear";
    o.threads = 1;
    o.micro_batch = ROWS;
    o.accumulate = 3; /* one of them is listed */
    o.checkpointing = checkpointing;
    o.slices = lora ? 1 : 8; /* each slice has LoRA products of its own, one is easily counted */
    if (lora)
        CHECK_OK(sheaf_train_options_lora(&fresh, &o));
    CHECK_OK(sheaf__open_model(&opened, &(sheaf__open_options){ .config = path,
                                                                .config_only = true,
                                                                .slices = o.slices,
                                                                .fresh = lora ? &fresh : NULL }));
    CHECK_OK(sheaf__select(&selection, opened.schema, opened.lora, &o, NULL));
    CHECK_OK(sheaf_data_made(&data, &opened.config, ROWS, SEQ));
    CHECK_OK(sheaf_plan_work(work, size,
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
    double sum = 0;
    for (int64_t i = 0; i < work->n; i++)
        if (work->entry[i].kind == kind && work->entry[i].way == way)
            sum += work->entry[i].flops * (double)work->entry[i].count;
    return sum;
}

static const double M = ROWS * SEQ, LABELS = ROWS * (SEQ - 1),
                    WEIGHTS = 2.0 * H * H + 2.0 * H * KV + 3.0 * H * F, /* of a layer */
    BEHIND = 1.0 * H * H + 3.0 * H * F, /* of them, behind attention */
    PAIRS = ROWS * (SEQ * (SEQ + 1.0) / 2) * H;

static void test_time__operations_of_the_head(void **state)
{
    sheaf__work work = { 0 };
    sheaf_plan_size size;
    list_ops(&work, &size, SHEAF_METHOD_HEAD, false);
    CHECK_NEAR("trained", size.trained, (double)V * H, 0);
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
    sheaf__work_release(&work);
}

static void test_time__operations_of_lora(void **state)
{
    /* Factors: x A and h B; backward g = dy B, dB, dA and g A, which the first q, k, v lack. */
    const double ends = 2.0 * (H + H) + 2.0 * (H + KV) + 3.0 * (H + F), qkv = H * (H + 2.0 * KV),
                 ins = 4.0 * H + 2.0 * H + F, outs = ends - ins;
    sheaf__work work = { 0 };
    sheaf_plan_size size;
    list_ops(&work, &size, SHEAF_METHOD_LORA, true);
    CHECK_NEAR("trained", size.trained, RANK * ends * LAYERS, 0);
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
    sheaf__work_release(&work);
}

/* Of four layers the two in the middle are one entry, and those of a longer model too. */
static void test_time__like_layers_are_one_entry(void **state)
{
    sheaf__work work = { 0 };
    sheaf_plan_size size;
    int64_t most = 0;
    list_ops(&work, &size, SHEAF_METHOD_LORA, false);
    for (int64_t i = 0; i < work.n; i++) {
        const sheaf__work_entry *e = &work.entry[i];
        most = e->count > most ? e->count : most;
        if (strstr(e->name, "layers.0") != NULL)
            fail_msg("%s names a layer", e->name);
        /* The first layer's residual needs no gradient, as nothing before it learns. */
        if (strcmp(e->name, "model.layers.*.self_attn.o_proj.weight") == 0 &&
            e->way == SHEAF__WORK_BACKWARD)
            assert_int_equal(e->count, strstr(e->shape, ":0") != NULL ? 1 : LAYERS - 1);
    }
    assert_int_equal(most, LAYERS);
    sheaf__work_release(&work);
}

/* Three prompts of 40 tokens, and a token of each in the middle of answers of 24: at key 52. */
static void test_time__operations_of_generation(void **state)
{
    enum { BATCH = 3, PROMPT = 40, END = 64, KEYS = 52 };
    static char path[1024];
    sheaf__opened opened = { 0 };
    sheaf__placement place;
    sheaf_data *data;
    sheaf_pass_work read, next;
    double fresh;
    snprintf(path, sizeof path, "%s/tests/data/configs/mini.json",
             getenv("SHEAF_SOURCE_ROOT") == NULL ? "." : getenv("SHEAF_SOURCE_ROOT"));
    CHECK_OK(sheaf__open_model(
        &opened, &(sheaf__open_options){ .config = path, .config_only = true, .slices = 8 }));
    CHECK_OK(sheaf__placement_read(&place, NULL, opened.schema));
    CHECK_OK(sheaf_data_made(&data, &opened.config, BATCH, PROMPT));
    CHECK_OK(sheaf_passes_work(&read, &next, &fresh,
                               &(sheaf_plan_generation){ .schema = opened.schema,
                                                         .place = &place,
                                                         .tp = 2,
                                                         .threads = 2,
                                                         .dtype = SHEAF_F32,
                                                         .batch = BATCH,
                                                         .seq = END,
                                                         .prompt = PROMPT },
                               0, data));
    const sheaf__work *pass[] = { &read.work, &next.work };
    const double rows[] = { BATCH * PROMPT, BATCH },
                 pairs[] = { BATCH * PROMPT * (PROMPT + 1) / 2, BATCH * KEYS },
                 left_out[] = { BATCH * (PROMPT - SHEAF__WANTED_UNIT), 0 };
    for (int i = 0; i < 2; i++) { /* of the first of two ranks */
        CHECK_NEAR("products", flops_of(pass[i], SHEAF__WORK_PRODUCTS, SHEAF__WORK_FORWARD),
                   rows[i] * WEIGHTS * LAYERS - left_out[i] * BEHIND, 0);
        CHECK_NEAR("attention", flops_of(pass[i], SHEAF__WORK_ATTENTION, SHEAF__WORK_FORWARD),
                   2 * pairs[i] * H * LAYERS, 0);
    }
    const double sums = (double)read.exchange[SHEAF__TRAFFIC_FORWARD].sent;
    if (!(sums > (PROMPT - 5) * (double)next.exchange[SHEAF__TRAFFIC_FORWARD].sent))
        fail_msg("a prompt sends %g bytes", sums);
    if (!(fresh > BATCH * PROMPT * H * sizeof(float)))
        fail_msg("it takes %g bytes", fresh);
    sheaf__work_release(&read.work);
    sheaf__work_release(&next.work);
    sheaf_data_close(data);
    sheaf__opened_close(&opened);
}

static void test_time__numbers_of_layers_in_names(void **state)
{
    static const char *const name[][2] = { { "model.layers.12.mlp.up_proj.weight",
                                             "model.layers.*.mlp.up_proj.weight" },
                                           { "attention", "attention" },
                                           { "dense_h_to_4h.3", "dense_h_to_4h.*" },
                                           { "7b.x", "7b.x" } };
    for (size_t i = 0; i < ARRAY_LEN(name); i++) {
        char got[SHEAF__WORK_NAME];
        sheaf__work_name(got, name[i][0]);
        assert_string_equal(got, name[i][1]);
    }
}

/* ---- prices ---- */

/* Seconds are of `count` runs. */
static sheaf__work_entry op(const char *name, const char *shape, int kind, int way, double flops,
                            double bytes, int64_t count, double seconds, double waiting)
{
    sheaf__work_entry e = { .kind = (sheaf__work_kind)kind,
                            .way = (sheaf__work_way)way,
                            .flops = flops,
                            .bytes = bytes,
                            .count = count,
                            .seconds = seconds,
                            .waiting = waiting };
    snprintf(e.name, sizeof e.name, "%s", name);
    snprintf(e.shape, sizeof e.shape, "%s", shape);
    return e;
}

enum {
    P = SHEAF__WORK_PRODUCTS,
    E = SHEAF__WORK_ELEMENTS,
    A = SHEAF__WORK_ATTENTION,
    FORE = SHEAF__WORK_FORWARD,
    AGAIN = SHEAF__WORK_AGAIN,
    BACK = SHEAF__WORK_BACKWARD
};

static void make_profile(sheaf_profile *p)
{
    const sheaf__work_entry ops[] = { op("up", "8x4:1", P, FORE, 1000, 64, 2, 0.5, 0.125),
                                      op("up", "8x4:1", P, BACK, 2000, 64, 1, 1, 0),
                                      op("down", "8x64:1", P, FORE, 64000, 512, 1, 4, 0),
                                      op("norm", "8x4:1", E, FORE, 0, 32, 4, 0.5, 0),
                                      op("gate", "8x9:1", E, AGAIN, 0, 30, 1, 64, 0) };
    *p = (sheaf_profile){ .machine = "made up",
                          .cores = 2,
                          .of = { "bfloat16 tiles", 2, 1, 1, 8, "threads", 0, 1 },
                          .size = { 100, 25 },
                          .first = 3,
                          .busy = 0.0625,
                          .beside = 0.25,
                          .spread = 0.5 };
    p->work.update = 2;
    p->work.update_waiting = 0.5;
    for (size_t i = 0; i < ARRAY_LEN(ops); i++)
        sheaf__work_add(&p->work, &ops[i]);
    assert_int_equal(p->work.n, ARRAY_LEN(ops));
}

static void predict(sheaf_time *t, const sheaf_profile *p, const sheaf__work_entry *ops, int n,
                    double trained, int64_t micros)
{
    sheaf__work work = { 0 };
    for (int i = 0; i < n; i++)
        sheaf__work_add(&work, &ops[i]);
    CHECK_OK(sheaf_time_predict(t, p, &work, &(sheaf_plan_size){ trained, 50 }, micros));
    sheaf__work_release(&work);
}

static void test_time__prices_by_hand(void **state)
{
    sheaf_profile p;
    sheaf_time t;
    make_profile(&p);
    /* Its own: 3 layers x 2 micro-batches x 0.25 s, of which 0.0625 s are waiting; back 6 x 1 s. */
    predict(&t, &p,
            (sheaf__work_entry[]){ op("up", "8x4:1", P, FORE, 1000, 64, 3, 0, 0),
                                   op("up", "8x4:1", P, BACK, 2000, 64, 3, 0, 0) },
            2, 200, 2);
    CHECK_NEAR("products", t.kind[P], 1.125 + 6, 0);
    CHECK_NEAR("update", t.update, 3, 0);
    CHECK_NEAR("waiting", t.waiting, 0.375 + 1, 0);
    CHECK_NEAR("beside", t.beside, 0.5, 0);
    CHECK_NEAR("step", t.step, 12, 0);
    CHECK_NEAR("first step", t.first, 12 + 2 * 3, 0); /* twice the fresh bytes */
    CHECK_NEAR("all of it was measured", t.scaled, 0, 0);
    CHECK_NEAR("nothing is scaled", t.farthest, 1, 0);
    /* Twice the operations at other shapes: scaled by 2; again costs what forward does. Of
     * elements the bytes count: 96 of 32. */
    predict(&t, &p,
            (sheaf__work_entry[]){ op("up", "16x4:1", P, FORE, 2000, 128, 1, 0, 0),
                                   op("up", "8x4:1", P, AGAIN, 1000, 64, 1, 0, 0),
                                   op("norm", "24x4:1", E, FORE, 0, 96, 1, 0, 0) },
            3, 0, 1);
    CHECK_NEAR("scaled products", t.kind[P] + t.waiting, 0.5 + 0.25, 0);
    CHECK_NEAR("scaled elements", t.kind[E], 3 * 0.125, 0);
    CHECK_NEAR("what is scaled", t.scaled, 0.5 + 0.375, 0);
    CHECK_NEAR("farthest", t.farthest, 3, 0);
    /* Again, though of its kind only another op was run again. */
    predict(&t, &p, (sheaf__work_entry[]){ op("norm", "8x4:1", E, AGAIN, 0, 32, 2, 0, 0) }, 1, 0,
            1);
    CHECK_NEAR("its own forward", t.kind[E], 2 * 0.125, 0);
    CHECK_NEAR("which was measured", t.scaled, 0, 0);
    /* Of two products the nearer one: "other" has 32000 operations, half of down's. */
    predict(&t, &p, (sheaf__work_entry[]){ op("other", "8x32:1", P, FORE, 32000, 512, 1, 0, 0) }, 1,
            0, 1);
    CHECK_NEAR("the nearest", t.kind[P], 2, 0);
    sheaf_profile_release(&p);
}

/* A rank alone, and its exchanges over a link: 2 and 1 of 5 us, 4000 and 500 bytes at 1 GB/s. */
static void test_time__exchanges_over_a_link(void **state)
{
    sheaf_profile p;
    sheaf_time t;
    sheaf_cluster_link link;
    sheaf__count exchange[SHEAF__TRAFFICS] = { { 0 } };
    const sheaf__work_entry up = op("up", "8x4:1", P, FORE, 1000, 64, 2, 0, 0);
    exchange[SHEAF__TRAFFIC_FORWARD] =
        (sheaf__count){ .exchanges = 2, .sent = 4000, .received = 3000 };
    exchange[SHEAF__TRAFFIC_NORM] = (sheaf__count){ .exchanges = 1, .sent = 100, .received = 500 };
    make_profile(&p);
    CHECK_OK(sheaf_cluster_link_read(&link, "bandwidth=1GB/s,latency=5us", "here"));
    predict(&t, &p, &up, 1, 0, 1);
    CHECK_NEAR("measured: products, waiting, beside", t.step, 0.375 + 0.125 + 0.25, 0);
    sheaf_time_exchange(&t, exchange, NULL);
    CHECK_NEAR("as it was measured", t.waiting, 0.125, 0);
    sheaf_time_exchange(&t, exchange, &link);
    CHECK_NEAR("over the link", t.waiting, 15e-6 + 4.5e-6, 1e-15);
    CHECK_NEAR("in place of it", t.step, 0.375 + 0.25 + 19.5e-6, 1e-15);
    CHECK_NEAR("the first step too", t.first, 0.375 + 0.25 + 19.5e-6 + 6, 1e-12);
    CHECK_NEAR("exchanges", (double)t.exchange.exchanges, 3, 0);
    CHECK_NEAR("bytes", (double)t.exchange.sent, 4100, 0);
    static const char *const bad[] = { "", "latency=5us", "bandwidth=1GB/s,", "latency=5us,x=3",
                                       "latency=0us,bandwidth=1GB/s" };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        CHECK_FAILS(sheaf_cluster_link_read(&link, bad[i], "here"), SHEAF_E_ARG,
                    "here | latency=5us,bandwidth=12GB/s");
    sheaf_profile_release(&p);
}

static void test_time__what_a_profile_lacks(void **state)
{
    sheaf_profile p;
    sheaf_time t;
    sheaf__work work = { 0 };
    make_profile(&p);
    const sheaf__work_entry lacking = op("attention", "8x4:1", A, BACK, 10, 10, 1, 0, 0);
    sheaf__work_add(&work, &lacking);
    CHECK_FAILS(sheaf_time_predict(&t, &p, &work, &(sheaf_plan_size){ 1, 1 }, 1), SHEAF_E_ARG,
                "attention among its ops, backward");
    CHECK_OK(sheaf_profile_check(
        &p, &(sheaf_profile_setting){ "bfloat16 tiles", 2, 1, 1, 8, "threads", 0 }, true));
    CHECK_FAILS(sheaf_profile_check(&p, &(sheaf_profile_setting){ "float32", 2, 1, 1, 8 }, true),
                SHEAF_E_ARG, "made up: --dtype, --bf16-sums | float32 | measured with bfloat16");
    CHECK_FAILS(
        sheaf_profile_check(&p, &(sheaf_profile_setting){ "bfloat16 tiles", 4, 1, 1, 8 }, true),
        SHEAF_E_ARG, "--threads | 4 | measured with 2");
    CHECK_FAILS(
        sheaf_profile_check(&p, &(sheaf_profile_setting){ "bfloat16 tiles", 2, 2, 1, 8 }, true),
        SHEAF_E_ARG, "--tp | 2 | measured with 1");
    CHECK_FAILS(
        sheaf_profile_check(&p, &(sheaf_profile_setting){ "bfloat16 tiles", 2, 1, 2, 8 }, true),
        SHEAF_E_ARG, "--dp | 2 | measured with 1");
    CHECK_FAILS(
        sheaf_profile_check(&p, &(sheaf_profile_setting){ "bfloat16 tiles", 2, 1, 1, 4 }, true),
        SHEAF_E_ARG, "--slices | 4 | measured with 8");
    CHECK_FAILS(
        sheaf_profile_check(
            &p, &(sheaf_profile_setting){ "bfloat16 tiles", 2, 1, 1, 8, "threads", 4 }, true),
        SHEAF_E_ARG, "--micro-batch | 4 sequences of generation | measured with training");
    /* asked by the fields of a struct, which know no flags */
    CHECK_FAILS(
        sheaf_profile_check(&p, &(sheaf_profile_setting){ "bfloat16 tiles", 4, 1, 1, 8 }, false),
        SHEAF_E_ARG, "made up: threads | 4 | measured with 2 | measure it there, with the same");
    CHECK_FAILS(sheaf_profile_check(&p, &(sheaf_profile_setting){ "float32", 2, 1, 1, 8 }, false),
                SHEAF_E_ARG, "made up: dtype, bf16-sums | float32");
    CHECK_FAILS(
        sheaf_profile_check(
            &p, &(sheaf_profile_setting){ "bfloat16 tiles", 2, 1, 1, 8, "threads", 4 }, false),
        SHEAF_E_ARG, "made up: batch | 4 sequences of generation");
    p.of.copies = 2;
    const sheaf_profile_setting once = { "bfloat16 tiles", 2, 1, 1, 8, "threads", .copies = 1 };
    CHECK_FAILS(sheaf_profile_check(&p, &once, true), SHEAF_E_ARG,
                "--weight-copies | frozen weights held once | measured with frozen weights held "
                "twice | --weight-copies 2, as a run there");
    CHECK_FAILS(sheaf_profile_check(&p, &once, false), SHEAF_E_ARG, "| weight-copies: 2, as a run");
    p.of.copies = 0; /* a profile from before it was told */
    CHECK_OK(sheaf_profile_check(&p, &once, true));
    p.of.tp = 2;
    CHECK_OK(sheaf_profile_check(
        &p, &(sheaf_profile_setting){ "bfloat16 tiles", 2, 2, 1, 8, "mpi", 0 }, true));
    CHECK_FAILS(sheaf_profile_check(
                    &p, &(sheaf_profile_setting){ "bfloat16 tiles", 2, 2, 1, 8, "alone", 0 }, true),
                SHEAF_E_ARG, "--link | a link, one rank alone | measured with all ranks");
    sheaf__work_release(&work);
    sheaf_profile_release(&p);
}

/* ---- files ---- */

static void test_time__a_profile_comes_back(void **state)
{
    sheaf_profile p, q;
    make_profile(&p);
    CHECK_OK(sheaf_profile_write(&p, at("profile.json")));
    CHECK_OK(sheaf_profile_read(&q, at("profile.json")));
    assert_string_equal(q.machine, "made up");
    assert_int_equal(q.cores, 2);
    CHECK_OK(sheaf_profile_check(&q, &p.of, false));
    assert_int_equal(q.of.copies, 1);
    const double here[] = { p.size.trained, p.size.fresh, p.first,       p.busy,
                            p.beside,       p.spread,     p.work.update, p.work.update_waiting };
    const double there[] = { q.size.trained, q.size.fresh, q.first,       q.busy,
                             q.beside,       q.spread,     q.work.update, q.work.update_waiting };
    CHECK_BYTES("numbers", there, here, sizeof here);
    assert_int_equal(q.work.n, p.work.n);
    for (int64_t i = 0; i < p.work.n; i++) {
        const sheaf__work_entry *a = &p.work.entry[i], *b = &q.work.entry[i];
        assert_string_equal(a->name, b->name);
        assert_string_equal(a->shape, b->shape);
        assert_true(a->kind == b->kind && a->way == b->way && a->count == b->count);
        assert_true(a->flops == b->flops && a->bytes == b->bytes && a->seconds == b->seconds &&
                    a->waiting == b->waiting);
    }
    CHECK_OK(sheaf_profile_write(&q, at("profile.json"))); /* a profile may be replaced */
    sheaf_profile_release(&p);
    sheaf_profile_release(&q);
}

/* Of generation it has two lists, of which each prices its own. */
static void test_time__a_profile_of_generation(void **state)
{
    sheaf_profile p, q;
    sheaf_time t;
    sheaf__work work = { 0 };
    const sheaf__work_entry up = op("up", "8x4:1", P, FORE, 1000, 64, 2, 0.5, 0);
    make_profile(&p);
    p.of.batch = 4;
    memcpy(p.of.ranks, "alone", 6);
    p.next_beside = 0.125;
    sheaf__work_add(&p.next, &up);
    p.next.entry[0].seconds = 0.0625; /* there it takes an eighth of the time */
    CHECK_OK(sheaf_profile_write(&p, at("answers.json")));
    CHECK_OK(sheaf_profile_read(&q, at("answers.json")));
    CHECK_OK(sheaf_profile_check(&q, &p.of, false));
    assert_int_equal(q.next.n, 1);
    assert_string_equal(q.of.ranks, "alone");
    sheaf__work_add(&work, &up);
    CHECK_OK(sheaf_time_next(&t, &q, &work));
    CHECK_NEAR("a token", t.step, 0.0625 + 0.125, 0);
    sheaf__work_add(&work, &up); /* of twice as many layers */
    CHECK_OK(sheaf_time_next(&t, &q, &work));
    CHECK_NEAR("beside it by the number of ops", t.beside, 0.25, 0);
    work.entry[0].count = 2;
    CHECK_OK(sheaf_time_predict(&t, &q, &work, &(sheaf_plan_size){ 0, 50 }, 1));
    CHECK_NEAR("the prompts, 2 of 9 ops", t.step, 0.5 + 0.25 * 2 / 9, 1e-15);
    CHECK_NEAR("the first ones", t.first, t.step + 2 * 3, 0);
    sheaf__work_release(&work);
    sheaf_profile_release(&p);
    sheaf_profile_release(&q);
}

/* All is 0, or so much that the step would be. */
static void test_time__figures_that_come_to_no_step(void **state)
{
    sheaf_profile p;
    sheaf_time t;
    sheaf__work work = { 0 };
    make_profile(&p);
    sheaf__work_add(&work, &p.work.entry[2]);
    p.work.update = p.work.update_waiting = p.beside = 0;
    for (int i = 0; i < 2; i++) {
        p.work.entry[2].seconds = i == 0 ? 0 : 1e9;
        p.next = p.work; /* the same of a token, borrowed */
        CHECK_FAILS(sheaf_time_predict(&t, &p, &work, &(sheaf_plan_size){ 1, 1 }, 2),
                    SHEAF_E_FORMAT, "the profile of made up | seconds that come to a step");
        work.entry[0].count += i;
        CHECK_FAILS(sheaf_time_next(&t, &p, &work), SHEAF_E_FORMAT, i == 0 ? "| 0 |" : "| 2e+09 |");
    }
    p.next = (sheaf__work){ 0 };
    sheaf__work_release(&work);
    sheaf_profile_release(&p);
}

static void test_time__files_that_are_no_profile(void **state)
{
#define HEAD                                                                                                                        \
    "{\"sheaf_profile\": 1, \"machine\": \"m\", \"cores\": 2, \"dtype\": \"float32\", "                                             \
    "\"threads\": 1, \"tp\": 1, \"dp\": 1, \"slices\": 8, \"trained\": 1, \"fresh\": 1, \"first\": 0, \"busy\": 0, \"update\": 1, " \
    "\"update_waiting\": 0, \"beside\": 0, \"spread\": 0, \"ops\": ["
#define OP                                                                                         \
    "{\"name\": \"a\", \"shape\": \"s\", \"kind\": \"products\", \"way\": \"forward\", "           \
    "\"flops\": 1, \"bytes\": 1, \"count\": 1, \"waiting\": 0"
    static const struct {
        const char *text, *says;
    } bad[] = {
        { "{}", "a profile of version 1" },
        { "{\"sheaf_profile\": 2}", "a profile of version 1" },
        { "{\"sheaf_profile\": 1}", "'machine'" },
        { HEAD "]}", "at least one" },
        { HEAD "3]}", "objects" },
        { HEAD OP "}]}", "'ops': entry 1: 'seconds'" },
        { HEAD OP ", \"seconds\": -1}]}", "'seconds'" },
        { HEAD "{\"name\": \"a\", \"shape\": \"s\", \"kind\": \"wishes\"}]}", "'kind'" },
        { HEAD OP ", \"seconds\": 1}", "line 1" },
        { HEAD OP ", \"seconds\": 1}], \"ranks\": \"ropes\"}", "threads, mpi or alone" },
        { HEAD OP ", \"seconds\": 1}], \"batch\": 2}", "'next_beside'" },
        { HEAD OP ", \"seconds\": 1}], \"batch\": 2, \"next_beside\": 0, \"next\": []}", "'next'" },
    };
    sheaf_profile p;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        put(at("bad.json"), bad[i].text);
        CHECK_FAILS(sheaf_profile_read(&p, at("bad.json")), SHEAF_E_FORMAT, bad[i].says);
        sheaf_profile_release(&p);
    }
    static const char good[] = HEAD OP ", \"seconds\": 1}]}";
    static const struct {
        const char *in, *out, *says;
    } change[] = {
        { "\"seconds\": 1", "\"seconds\": 1e10", "'seconds'" },
        { "\"waiting\": 0", "\"waiting\": 1.1", "'waiting' | at most the 1 seconds" },
        { "\"flops\": 1", "\"flops\": 1e-300", "'flops' | 0, or at least 1" },
        { "\"bytes\": 1", "\"bytes\": 1e31", "'bytes'" },
        { "\"trained\": 1", "\"trained\": 5e-324", "'trained' | 0, or at least 1" },
        { "\"fresh\": 1", "\"fresh\": 0.5", "'fresh' | 0, or at least 1" },
        { "\"update\": 1", "\"update\": 1e10", "'update'" },
        { "\"update_waiting\": 0", "\"update_waiting\": 1.5", "'update_waiting' | at most the 1" },
        { "\"spread\": 0", "\"spread\": 1e300", "'spread'" },
        { "\"busy\": 0", "\"busy\": 1e300", "'busy'" },
    };
    for (size_t i = 0; i < ARRAY_LEN(change); i++) {
        char text[sizeof good + 16];
        const char *where = strstr(good, change[i].in);
        snprintf(text, sizeof text, "%.*s%s%s", (int)(where - good), good, change[i].out,
                 where + strlen(change[i].in));
        put(at("bad.json"), text);
        CHECK_FAILS(sheaf_profile_read(&p, at("bad.json")), SHEAF_E_FORMAT, change[i].says);
        sheaf_profile_release(&p);
    }
    put(at("good.json"), good);
    CHECK_OK(sheaf_profile_read(&p, at("good.json")));
    put(at("other.json"), "{\"mine\": 1}");
    CHECK_FAILS(sheaf_profile_write(&p, at("other.json")), SHEAF_E_FORMAT, "another name");
    sheaf_profile_release(&p);
    CHECK_FAILS(sheaf_profile_read(&p, at("none.json")), SHEAF_E_IO, "none.json");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_time__operations_of_the_head),
        cmocka_unit_test(test_time__operations_of_lora),
        cmocka_unit_test(test_time__like_layers_are_one_entry),
        cmocka_unit_test(test_time__numbers_of_layers_in_names),
        cmocka_unit_test(test_time__prices_by_hand),
        cmocka_unit_test(test_time__exchanges_over_a_link),
        cmocka_unit_test(test_time__what_a_profile_lacks),
        cmocka_unit_test(test_time__operations_of_generation),
        cmocka_unit_test_setup_teardown(test_time__a_profile_of_generation, make_scratch,
                                        remove_scratch),
        cmocka_unit_test_setup_teardown(test_time__a_profile_comes_back, make_scratch,
                                        remove_scratch),
        cmocka_unit_test(test_time__figures_that_come_to_no_step),
        cmocka_unit_test_setup_teardown(test_time__files_that_are_no_profile, make_scratch,
                                        remove_scratch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
