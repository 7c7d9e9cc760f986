/* refuse_test.c - what is no whole adapter is refused by every command that takes one, for the same
 * reason. */
#include "tests/stored.h"

#include <sys/stat.h>

#include "checkpoint/merge/merge.h"

#define P "base_model.model.layers."
enum { LAYERS = 3, WIDTH = 16, RANK = 2, MOST = 4 * LAYERS + 2 };

typedef struct part {
    const char *name;
    sheaf_dtype dtype;
    int64_t rows, cols;
    float odd;
} part; /* odd: its fourth number, where not 0 */

static void write_parts(const char *path, const part *p, int n)
{
    made_tensors made = { .count = 0 };
    for (int i = 0; i < n; i++) {
        const int64_t shape[] = { p[i].rows, p[i].cols }, count = p[i].rows * p[i].cols;
        float *x = room((size_t)(count + 4) * sizeof *x);
        for (int64_t k = 0; k < count; k++)
            x[k] = (float)((k * 7 + i) % 11 - 5) / 16;
        if (p[i].odd != 0)
            x[3] = p[i].odd;
        made_add(&made, p[i].name, p[i].dtype, 2, shape, x); /* F32 and I32 alike */
    }
    made_write(&made, path);
}

static const char *const names[] = {
    P "0.q.lora_A.weight", P "0.q.lora_B.weight", P "0.v.lora_A.weight", P "0.v.lora_B.weight",
    P "1.q.lora_A.weight", P "1.q.lora_B.weight", P "1.v.lora_A.weight", P "1.v.lora_B.weight",
    P "2.q.lora_A.weight", P "2.q.lora_B.weight", P "2.v.lora_A.weight", P "2.v.lora_B.weight",
};
static const char *const weights[] = { "layers.0.q.weight", "layers.0.v.weight",
                                       "layers.1.q.weight", "layers.1.v.weight",
                                       "layers.2.q.weight", "layers.2.v.weight" };

static int whole(part *p)
{
    for (int i = 0; i < 4 * LAYERS; i++)
        p[i] =
            (part){ names[i], SHEAF_F32, i % 2 == 0 ? RANK : WIDTH, i % 2 == 0 ? WIDTH : RANK, 0 };
    return 4 * LAYERS;
}

static void write_adapter(const char *dir, const char *config, const part *p, int n)
{
    CHECK_OK(sheaf__remove_tree(dir));
    assert_int_equal(mkdir(dir, 0755), 0);
    write_parts(textf("%s/adapter_model.safetensors", dir), p, n);
    put(textf("%s/adapter_config.json", dir), config);
}

#define CONFIG(more)                                                                               \
    "{\"peft_type\": \"LORA\", \"lora_alpha\": 2, \"target_modules\": [\"q\", \"v\"]" more "}"

/* drop: tensors that are left out, as bits. change: one that is another. */
static const struct {
    const char *what, *config;
    unsigned drop;
    int at;
    part change;
    sheaf_code code;
    const char *part;
    bool hidden; /* without the base and another adapter it cannot be told */
} rows[] = {
    { "A is missing", CONFIG(", \"r\": 2"), 1u << 4, -1, LIST(0), SHEAF_E_LAYOUT,
      P "1.q.lora_A.weight' | this tensor in the adapter", false },
    { "B is missing", CONFIG(", \"r\": 2"), 1u << 5, -1, LIST(0), SHEAF_E_LAYOUT,
      P "1.q.lora_B.weight' | this tensor in the adapter", false },
    { "a module is missing", CONFIG(", \"r\": 2"), 3u << 4, -1, LIST(0), SHEAF_E_LAYOUT,
      P "1.q.lora_A.weight' | this tensor in the adapter", true },
    { "no tensor", CONFIG(", \"r\": 2"), 0xfff, -1, LIST(0), SHEAF_E_LAYOUT,
      "factors of LoRA, or modules that were saved whole | no tensor", false },
    { "a row of A short", CONFIG(", \"r\": 2"), 0, 4,
      LIST(P "0.q.lora_A.weight", SHEAF_F32, RANK - 1, WIDTH, 0), SHEAF_E_LAYOUT,
      P "1.q.lora_B.weight' | one column for each row of A", false },
    { "a column of B short", CONFIG(", \"r\": 2"), 0, 5,
      LIST(P "0.q.lora_A.weight", SHEAF_F32, WIDTH, RANK - 1, 0), SHEAF_E_LAYOUT,
      P "1.q.lora_B.weight' | one column for each row of A", false },
    { "a row of B short", CONFIG(", \"r\": 2"), 0, 5,
      LIST(P "0.q.lora_A.weight", SHEAF_F32, WIDTH - 1, RANK, 0), SHEAF_E_LAYOUT, P "1.q.lora_",
      true },
    { "another r", CONFIG(", \"r\": 4"), 0, -1, LIST(0), SHEAF_E_LAYOUT,
      "rank 4 | rank 2 | the rank differs", false },
    { "another rank in a pattern", CONFIG(", \"r\": 2, \"rank_pattern\": {\"1.q\": 3}"), 0, -1,
      LIST(0), SHEAF_E_LAYOUT, "rank 3 | rank 2", false },
    { "NaN", CONFIG(", \"r\": 2"), 0, 4, LIST(P "0.q.lora_A.weight", SHEAF_F32, RANK, WIDTH, NAN),
      SHEAF_E_NUMBER, P "1.q.lora_A.weight', row 0, column 3 | finite", false },
    { "Inf in B", CONFIG(", \"r\": 2"), 0, 5,
      LIST(P "0.q.lora_A.weight", SHEAF_F32, WIDTH, RANK, INFINITY), SHEAF_E_NUMBER,
      P "1.q.lora_B.weight', row 1, column 1 | finite", false },
    { "integers", CONFIG(", \"r\": 2"), 0, 4,
      LIST(P "0.q.lora_A.weight", SHEAF_I32, RANK, WIDTH, 0), SHEAF_E_UNSUPPORTED,
      "F32, BF16 or F16", false },
    { "targets that were not asked for",
      "{\"peft_type\": \"LORA\", \"r\": 2, \"target_modules\": [\"v\"]}", 0, -1, LIST(0),
      SHEAF_E_LAYOUT, "tensors of the adapter | tensors that adapter_config.json asks for", false },
    { "DoRA without magnitudes", CONFIG(", \"r\": 2, \"use_dora\": true"), 0, -1, LIST(0),
      SHEAF_E_LAYOUT, "lora_magnitude_vector' | this tensor", false },
};

static sheaf_status *run(const char *a, const char *b, bool base, const char *how,
                         const sheaf_events *events)
{
    const double weigh[] = { 1, 0.5 };
    const sheaf_weights_merge_options o = { .base = base ? at("base") : NULL,
                                            .adapters = (const char *const[]){ a, b },
                                            .nadapters = b != NULL ? 2 : 1,
                                            .combine = how,
                                            .weights = weigh,
                                            .dst = at("out"),
                                            .events = events };
    sheaf_weights_merge_report report;
    CHECK_OK(sheaf__remove_tree(at("out")));
    return base ? sheaf_merge(&report, &o) : sheaf_merge_adapters(&o);
}

/* They all say where, and that it is this. */
static void refused(sheaf_status *st, size_t row)
{
    if (st == NULL)
        fail_msg("%s: taken", rows[row].what);
    const char *text = textf("%s | %s | %s | %s", sheaf_status_where(st), sheaf_status_expected(st),
                             sheaf_status_found(st), sheaf_status_try(st));
    const sheaf_code code = sheaf_status_code(st);
    sheaf_status_free(st);
    if (code != rows[row].code || strstr(text, "broken") == NULL ||
        strstr(text, rows[row].part) == NULL)
        fail_msg("%s: code %d, '%s'", rows[row].what, (int)code, text);
    assert_int_equal(sheaf__path_kind(at("out")), SHEAF_PATH_NONE);
}

static void hear(void *context, const sheaf_event *event)
{
    *(int *)context += event->kind == SHEAF_EVENT_WARNING &&
                       strstr(event->text, "only for a model whose layers differ") != NULL;
}

TEST(test_refuse__every_way_in_asks_the_same)
{
    part p[MOST];
    for (int i = 0; i < 2 * LAYERS; i++)
        p[i] = (part){ weights[i], SHEAF_F32, WIDTH, WIDTH, 0 };
    assert_int_equal(mkdir(at("base"), 0755), 0);
    write_parts(at("base/model.safetensors"), p, 2 * LAYERS);
    write_adapter(at("good"), CONFIG(", \"r\": 2"), p, whole(p));
    CHECK_OK(run(at("good"), NULL, true, NULL, NULL));
    CHECK_OK(run(at("good"), at("good"), true, "cat", NULL));
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        int n = whole(p), kept = 0, warned = 0;
        const sheaf_events events = { hear, &warned };
        if (rows[i].at >= 0) {
            p[rows[i].at] = rows[i].change;
            p[rows[i].at].name = names[rows[i].at];
        }
        for (int k = 0; k < n; k++)
            if ((rows[i].drop >> k & 1) == 0)
                p[kept++] = p[k];
        write_adapter(at("broken"), rows[i].config, p, kept);
        refused(run(at("broken"), NULL, true, NULL, NULL), i);
        refused(run(at("broken"), at("good"), true, "cat", NULL), i);
        refused(run(at("good"), at("broken"), true, "linear", NULL), i);
        if (strcmp(rows[i].what, "a row of B short") != 0) /* there it is either of the two */
            refused(run(at("good"), at("broken"), false, "cat", NULL), i);
        else
            CHECK_FAILS(run(at("good"), at("broken"), false, "cat", NULL), SHEAF_E_LAYOUT,
                        "the same shape in all adapters");
        if (!rows[i].hidden) {
            refused(run(at("broken"), at("broken"), false, "linear", NULL), i);
            continue;
        }
        CHECK_OK(run(at("broken"), at("broken"), false, "linear", &events));
        assert_int_equal(warned, 2); /* once of each */
    }
    int warned = 0;
    const sheaf_events events = { hear, &warned };
    CHECK_OK(run(at("good"), at("good"), false, "linear", &events));
    assert_int_equal(warned, 0);
}

FIXTURE(make_scratch, remove_scratch);
