/* Rotary tables of CogVLM and CogAgent. The rule is SAT's (triton_rotary_embeddings.py): it keeps
 * the frequencies with the model and takes angles in the model's dtype; frequency, position and
 * their product are each rounded to bfloat16, then cos and sin; and a checkpoint of bfloat16 that
 * is run in float32 keeps its rounded frequencies. The numbers below are worked out from that text,
 * not by this program. */
#include "models/build.h"
#include "models/rope.h"

#include "ops/math/round.h"

#include "tests/check.h"
#include "tests/devices/copied.h"

enum { HALF = 4, POSITIONS = 320 }; /* 10000^(-2j/8): 1, 0.1, 0.01, 0.001 */
static const float exact[HALF] = { 1, 0.1f, 0.01f, 0.001f };
static const uint16_t rounded[HALF] = {
    0x3f80, 0x3dcd, 0x3c24, 0x3a83
}; /* 1, 0.10009765625, 0.010009765625, 0.00099945068359375 */

/* A source with the frequencies alone, or with nothing. */
typedef struct frequencies {
    sheaf_source source;
    sheaf_source_entry entry;
    const void *bytes; /* NULL: there are none */
} frequencies;

static const sheaf_source_entry *find(sheaf_source *self, const char *name)
{
    const frequencies *f = (const frequencies *)self;
    return f->bytes != NULL && strcmp(name, f->entry.name) == 0 ? &f->entry : NULL;
}

static sheaf_status *read_rows(sheaf_source *self, const char *name, int64_t row0, int64_t rows,
                               int64_t col0, int64_t cols, void *dst)
{
    const frequencies *f = (const frequencies *)self;
    const size_t size = sheaf_dtype_bytes(f->entry.dtype);
    assert_true(row0 >= 0 && row0 + rows <= HALF && col0 == 0 && cols == 1);
    memcpy(dst, (const char *)f->bytes + (size_t)row0 * size, (size_t)rows * size);
    return NULL;
}

typedef struct table {
    float cos[POSITIONS * HALF], sin[POSITIONS * HALF];
} table;

/* The stored frequencies in a model of images that runs in `dtype`. */
static void fill(table *t, sheaf_dtype dtype, sheaf_dtype stored, const void *bytes)
{
    frequencies from = { { .find = find, .read = read_rows },
                         { "mixins.rotary.rotary_emb.inv_freq", stored, 1, { HALF } },
                         bytes };
    sheaf_schema schema = { .config = { .family = SHEAF_COGVLM, /* its files hold them */
                                        .rope = { .theta = 10000, .partial = 1 } } };
    sheaf__context context = { .ranks = 1, .slices = 1, .own = { 0, 1 }, .dtype = dtype };
    sheaf__model model = { .context = &context,
                           .schema = &schema,
                           .rope = { POSITIONS, 2 * HALF, t->cos, t->sin } };
    CHECK_OK(sheaf__device_open(&context.device, &sheaf__cpu, 1, NULL, 0));
    CHECK_OK(sheaf__model_load(&model, &from.source, NULL));
    sheaf__device_close(context.device);
}

static const struct {
    const char *name;
    int64_t position, j;
    float cos, sin;
} by_hand[] = {
    { "no turn", 0, 1, 1, 0 },
    { "257 becomes 256, an even last bit: 256", 257, 0, -0.039794921875f, -1 },
    { "259 becomes 260: 260", 259, 0, -0.73046875f, 0.68359375f },
    { "256 * 0.10009765625 = 25.625", 257, 1, 0.8828125f, 0.47265625f },
    { "3 * 0.10009765625 = 0.30029.. becomes 0.30078125", 3, 1, 0.95703125f, 0.296875f },
    { "9 * 0.10009765625 = 0.90087.. becomes 0.90234375", 9, 1, 0.62109375f, 0.78515625f },
    { "255 * 0.010009765625 = 2.55249.. becomes 2.546875", 255, 2, -0.828125f, 0.55859375f },
    { "6 * 0.00099945.. = 0.0059967.. becomes 0.0059814..", 6, 3, 1, 0.0059814453125f },
};

TEST(test_rope__bfloat16_angles_worked_by_hand)
{
    static table t;
    const struct {
        const char *name;
        sheaf_dtype stored;
        const void *bytes;
    } from[] = {
        { "a bfloat16 file", SHEAF_BF16, rounded },
        { "a float32 file", SHEAF_F32, exact },
        { "no frequencies in the file", SHEAF_F32, NULL },
    };
    for (size_t f = 0; f < ARRAY_LEN(from); f++) {
        fill(&t, SHEAF_BF16, from[f].stored, from[f].bytes);
        for (size_t i = 0; i < ARRAY_LEN(by_hand); i++) {
            char name[160];
            snprintf(name, sizeof name, "%s: %s", from[f].name, by_hand[i].name);
            CHECK_NEAR(name, t.cos[by_hand[i].position * HALF + by_hand[i].j], by_hand[i].cos, 0);
            CHECK_NEAR(name, t.sin[by_hand[i].position * HALF + by_hand[i].j], by_hand[i].sin, 0);
        }
    }
}

/* Angles in float32 are exact here up to 2^-24 of their size; 1e-4 tells a rounded frequency or
 * position from that. */
TEST(test_rope__float32_rounds_what_the_file_has_rounded_and_nothing_else)
{
    static table t;
    const struct {
        const char *name;
        sheaf_dtype stored;
        const void *bytes;
        double frequency[HALF];
    } from[] = {
        { "a float32 file", SHEAF_F32, exact, { 1, 0.1, 0.01, 0.001 } },
        { "no frequencies in the file", SHEAF_F32, NULL, { 1, 0.1, 0.01, 0.001 } },
        { "a bfloat16 file",
          SHEAF_BF16,
          rounded,
          { 1, 0.10009765625, 0.010009765625, 0.00099945068359375 } },
    };
    for (size_t f = 0; f < ARRAY_LEN(from); f++) {
        fill(&t, SHEAF_F32, from[f].stored, from[f].bytes);
        for (int64_t p = 0; p < POSITIONS; p++)
            for (int j = 0; j < HALF; j++) {
                CHECK_NEAR(from[f].name, t.cos[p * HALF + j], cos((double)p * from[f].frequency[j]),
                           1e-4);
                CHECK_NEAR(from[f].name, t.sin[p * HALF + j], sin((double)p * from[f].frequency[j]),
                           1e-4);
            }
    }
}

/* ---- frequencies that are stretched ---- */

/* Hugging Face's rules: linear divides every frequency; llama3 leaves the fast ones, divides the
 * slow ones, and mixes those between by how many of their waves the original length holds. Here
 * that length is 100: waves of 2 pi, 20 pi, 200 pi. */
TEST(test_rope__frequencies_are_stretched)
{
    enum { TURNS = 3, PLACES = 40 };
    const double pi = 3.14159265358979323846, smooth = (100 / (20 * pi) - 1) / (4 - 1);
    const struct {
        const char *name;
        sheaf_rope_type type;
        double frequency[TURNS];
    } cases[] = {
        { "default", SHEAF_ROPE_DEFAULT, { 1, 0.1, 0.01 } },
        { "linear", SHEAF_ROPE_LINEAR, { 1 / 8.0, 0.1 / 8, 0.01 / 8 } },
        { "llama3", SHEAF_ROPE_LLAMA3, { 1, (1 - smooth) * 0.1 / 8 + smooth * 0.1, 0.01 / 8 } },
    };
    for (size_t i = 0; i < 2 * ARRAY_LEN(cases); i++) {
        float cosines[PLACES * 2 * TURNS], sines[PLACES * 2 * TURNS];
        const int each = 1 + i / ARRAY_LEN(cases); /* neighbours that turn: each angle twice */
        const sheaf_config config = { .rope = { .type = cases[i % ARRAY_LEN(cases)].type,
                                                .theta = 1000,
                                                .partial = 1,
                                                .factor = 8,
                                                .low_freq_factor = 1,
                                                .high_freq_factor = 4,
                                                .original_length = 100 } };
        sheaf__rope_table t = { PLACES, 2 * TURNS, cosines, sines, .pairs = each == 2 };
        sheaf__device *device;
        CHECK_OK(sheaf__device_open(&device, &sheaf__cpu, 1, NULL, 0));
        CHECK_OK(sheaf__rope_fill(&t, &config, device, SHEAF_F32));
        sheaf__device_close(device);
        for (int64_t p = 0; p < PLACES; p++)
            for (int j = 0; j < each * TURNS; j++) {
                const double angle = (double)p * cases[i % ARRAY_LEN(cases)].frequency[j / each];
                CHECK_NEAR(cases[i % ARRAY_LEN(cases)].name, cosines[p * each * TURNS + j],
                           cos(angle), 1e-5);
                CHECK_NEAR(cases[i % ARRAY_LEN(cases)].name, sines[p * each * TURNS + j],
                           sin(angle), 1e-5);
            }
    }
}

/* ---- tables that follow the length ---- */

static int uploads_left; /* before the one that fails; -1: none does */

static sheaf_status *upload(sheaf__reserved *range, void *to, const void *from, size_t bytes)
{
    return uploads_left >= 0 && uploads_left-- == 0 ? sheaf_fail(SHEAF_E_IO, "the upload")
                                                    : copied_upload(range, to, from, bytes);
}

static const sheaf__device_class failing_device = { .name = "failing",
                                                    .reserve = copied_reserve,
                                                    .release = copied_release,
                                                    .upload = upload,
                                                    .download = copied_download };

enum { OWN = 16, ROWS = 40, PAIRS = 4 };
static const sheaf_config dynamic = {
    .max_position = OWN,
    .rope = { .type = SHEAF_ROPE_DYNAMIC, .theta = 1000, .partial = 1, .factor = 2 }
};

static sheaf__rope_table take_table(sheaf__device *device)
{
    sheaf__rope_table t = { .positions = ROWS, .rot = 2 * PAIRS, .other_length = -1 };
    float **const at[] = { &t.cos, &t.sin, &t.other_cos, &t.other_sin };
    for (size_t i = 0; i < ARRAY_LEN(at); i++)
        CHECK_OK(sheaf__device_alloc((void **)at[i], device, ROWS * PAIRS * sizeof(float),
                                     SHEAF_MEM_WEIGHTS));
    CHECK_OK(sheaf__rope_fill(&t, &dynamic, device, SHEAF_F32));
    return t;
}

/* A plan counts the bytes that a run moves. */
TEST(test_rope__lengths_move_what_is_planned)
{
    for (int plans = 0; plans < 2; plans++) {
        sheaf__device *device;
        uploads_left = -1;
        CHECK_OK(plans ? sheaf__device_plan(&device, &failing_device, 1, NULL)
                       : sheaf__device_open(&device, &failing_device, 1, NULL, 0));
        const size_t once = 2 * ROWS * PAIRS * sizeof(float);
        sheaf__rope_table t = take_table(device);
        assert_int_equal(device->uploaded, once);
        static const struct {
            int64_t length, fills;
        } next[] = { { OWN, 1 }, { 20, 2 }, { 20, 2 }, { 9, 2 }, { 20, 2 }, { 30, 3 }, { 9, 4 } };
        for (size_t i = 0; i < ARRAY_LEN(next); i++) {
            CHECK_OK(t.lengthen(&t, device, next[i].length));
            assert_int_equal(device->uploaded, (size_t)next[i].fills * once);
        }
        assert_int_equal(device->downloaded, 0);
        sheaf__device_close(device);
    }
}

/* The next call gets the angles of that length. */
TEST(test_rope__a_failure_is_no_table)
{
    float want[ROWS * PAIRS], got[ROWS * PAIRS];
    sheaf__device *device;
    CHECK_OK(sheaf__device_open(&device, &failing_device, 1, NULL, 0));
    for (int fails = -1; fails < 2; fails++) {
        uploads_left = -1;
        sheaf__rope_table t = take_table(device);
        uploads_left = fails;
        if (fails >= 0)
            CHECK_FAILS(t.lengthen(&t, device, 20), SHEAF_E_IO, "the upload");
        CHECK_OK(t.lengthen(&t, device, 20));
        CHECK_OK(sheaf__download(device, fails < 0 ? want : got, t.sin, sizeof want));
        if (fails >= 0)
            CHECK_BYTES("sin", got, want, sizeof want);
    }
    sheaf__device_close(device);
}

/* ---- a norm from a file ---- */

enum { LONG = 200 }; /* rows of several groups of 32 */

static const sheaf_source_entry *find_norm(sheaf_source *self, const char *name)
{
    static const sheaf_source_entry entry = { "norm", SHEAF_F32, 1, { LONG } };
    return strcmp(name, "norm") == 0 ? &entry : NULL;
}

static sheaf_status *read_norm(sheaf_source *self, const char *name, int64_t row0, int64_t rows,
                               int64_t col0, int64_t cols, void *dst)
{
    for (int64_t i = 0; i < rows; i++)
        ((float *)dst)[i] = 1 + (float)(row0 + i) / 1000;
    return NULL;
}

static sheaf_status *refuse_norm(sheaf_source *self, const char *name, int64_t row0, int64_t rows,
                                 int64_t col0, int64_t cols, void *dst)
{
    return row0 == 0 ? read_norm(self, name, row0, rows, col0, cols, dst)
                     : sheaf_fail(SHEAF_E_IO, "from row %d on", (int)row0);
}

static sheaf_status *load_norm(float *weight, sheaf_dtype dtype, sheaf_source *from)
{
    sheaf_schema schema = { .config.rope = { .theta = 10000, .partial = 1 } };
    sheaf__context context = { .ranks = 1, .slices = 1, .own = { 0, 1 }, .dtype = dtype };
    sheaf__norm norm = { .name = "norm", .width = LONG, .weight = weight };
    sheaf__module module = { .kind = SHEAF__RMSNORM, .part = &norm };
    sheaf__model model = {
        .context = &context, .schema = &schema, .module = &module, .nmodules = 1
    };
    CHECK_OK(sheaf__device_open(&context.device, &sheaf__cpu, 2, NULL, 0));
    sheaf_status *st = sheaf__model_load(&model, from, NULL);
    sheaf__device_close(context.device);
    return st;
}

TEST(test_load__what_is_not_trained_is_rounded_to_the_dtype)
{
    float weight[LONG];
    sheaf_source from = { .find = find_norm, .read = read_norm };
    for (int half = 0; half < 2; half++) {
        CHECK_OK(load_norm(weight, half ? SHEAF_BF16 : SHEAF_F32, &from));
        for (int i = 0; i < LONG; i++) {
            const float stored = 1 + (float)i / 1000;
            CHECK_NEAR("weight", weight[i], half ? sheaf__from_bf16(sheaf__bf16(stored)) : stored,
                       0);
        }
    }
}

TEST(test_load__the_first_rows_that_cannot_be_read_are_told)
{
    float weight[LONG];
    sheaf_source from = { .find = find_norm, .read = refuse_norm };
    for (int i = 0; i < 20; i++) /* whichever thread comes first */
        CHECK_FAILS(load_norm(weight, SHEAF_F32, &from), SHEAF_E_IO, "from row 32 on");
}
