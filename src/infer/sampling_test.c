/* sampling_test.c - the processors against rows worked by hand and recorded ones; the draw
 * against its probabilities. */
#include "infer/sampling.h"

#include <unistd.h>

#include "base/file.h"
#include "formats/safetensors.h"
#include "tests/check.h"
#include "tests/golden.h"

#define GONE -INFINITY

/* ---- by hand ---- */
static const struct {
    const char *name;
    sheaf__sampling how;
    float logits[5], want[5];
    int64_t n, ids[3];
} by_hand[] = {
    { "nothing asked for, nothing done", { 0 }, { 1, -2, 3, 0, 2 }, { 1, -2, 3, 0, 2 }, 1, { 0 } },
    { "penalty divides above zero, multiplies below, once per id", LIST(.repetition_penalty = 2),
      LIST(1, -2, 3, 0, 2), LIST(0.5f, -4, 3, 0, 2), 3, LIST(0, 1, 0) },
    { "penalty passes over ids outside", LIST(.repetition_penalty = 2), LIST(1, 1, 1, 1, 1),
      LIST(1, 1, 1, 1, 0.5f), 3, LIST(-1, 5, 4) },
    { "temperature divides", LIST(.temperature = 0.5f), LIST(1, -2, 3, 0, 2), LIST(2, -4, 6, 0, 4),
      0, LIST(0) },
    { "greedy: the penalty acts, the rest does not",
      LIST(.greedy = true, .temperature = 0.5f, .top_k = 1, .top_p = 0.1f, .repetition_penalty = 2),
      LIST(1, -2, 3, 0, 2), LIST(1, -2, 1.5f, 0, 2), 1, LIST(2) },
    { "top-k", { .top_k = 2 }, { 1, -2, 3, 0, 2 }, { GONE, GONE, 3, GONE, 2 }, 0, { 0 } },
    { "top-k keeps ties at the edge", LIST(.top_k = 2), LIST(1, 2, 3, 2, 2), LIST(GONE, 2, 3, 2, 2),
      0, LIST(0) },
    { "top-k of more than there are", LIST(.top_k = 9), LIST(1, -2, 3, 0, 2), LIST(1, -2, 3, 0, 2),
      0, LIST(0) },
    { "temperature before top-p: at 1/2 the larger of 1 and 2 has 0.88",
      LIST(.temperature = 0.5f, .top_p = 0.8f), LIST(1, 2, GONE, GONE, GONE),
      LIST(GONE, 4, GONE, GONE, GONE), 0, LIST(0) },
    { "top-p of equal ones: two fifths are not yet half", LIST(.top_p = 0.5f), LIST(1, 1, 1, 1, 1),
      LIST(GONE, GONE, 1, 1, 1), 0, LIST(0) },
    { "top-p: exactly p is enough", LIST(.top_p = 0.5f), LIST(5, 5, 5, 5, GONE),
      LIST(GONE, GONE, 5, 5, GONE), 0, LIST(0) },
    { "one stays, however small p", LIST(.top_p = 1e-6f), LIST(1, -2, 3, 0, 2),
      LIST(GONE, GONE, 3, GONE, GONE), 0, LIST(0) },
    { "top-p counts what top-k left: 1/3 each", LIST(.top_k = 3, .top_p = 0.6f),
      LIST(5, 5, 5, 1, 1), LIST(GONE, 5, 5, GONE, GONE), 0, LIST(0) },
    { "one NaN, and there is nothing to choose", LIST(.temperature = 1), LIST(1, NAN, 3, 0, 2),
      LIST(GONE, GONE, GONE, GONE, GONE), 0, LIST(0) },
    { "nor is there when greedy", LIST(.greedy = true), LIST(1, 0, 3, 0, NAN),
      LIST(GONE, GONE, GONE, GONE, GONE), 0, LIST(0) },
    { "an infinite logit outweighs all", LIST(.top_p = 0.9f), LIST(1, INFINITY, 3, 0, 2),
      LIST(GONE, INFINITY, GONE, GONE, GONE), 0, LIST(0) },
    { "SAT: below zero the penalty divides too", LIST(.sat = true, .repetition_penalty = 2),
      LIST(1, -2, 3, 0, 2), LIST(0.5f, -1, 3, 0, 2), 3, LIST(0, 1, 0) },
    { "SAT: temperature and penalty are one quotient",
      LIST(.sat = true, .temperature = 0.25f, .repetition_penalty = 2), LIST(1, -2, 3, 0, 2),
      LIST(4, -4, 12, 0, 8), 1, LIST(1) },
    { "SAT: greedy, the penalty acts alone",
      LIST(.sat = true, .greedy = true, .temperature = 0.25f, .repetition_penalty = 2),
      LIST(1, -2, 3, 0, 2), LIST(1, -1, 3, 0, 2), 1, LIST(1) },
    { "SAT: top-p is nothing without top-k", LIST(.sat = true, .top_p = 0.1f), LIST(1, -2, 3, 0, 2),
      LIST(1, -2, 3, 0, 2), 0, LIST(0) },
    { "SAT: top-p counts what top-k left", LIST(.sat = true, .top_k = 3, .top_p = 0.6f),
      LIST(5, 5, 5, 1, 1), LIST(GONE, 5, 5, GONE, GONE), 0, LIST(0) },
    { "SAT: exactly p is not more than p", LIST(.sat = true, .top_k = 4, .top_p = 0.5f),
      LIST(5, 5, 5, 5, GONE), LIST(GONE, 5, 5, 5, GONE), 0, LIST(0) },
    { "SAT: one NaN, and there is nothing to choose", LIST(.sat = true, .top_k = 2),
      LIST(1, NAN, 3, 0, 2), LIST(GONE, GONE, GONE, GONE, GONE), 0, LIST(0) },
    { "the penalty may change who is largest", LIST(.repetition_penalty = 4, .top_k = 1),
      LIST(1, -2, 3, 0, 2), LIST(GONE, GONE, GONE, GONE, 2), 1, LIST(2) },
};

TEST(test_sampling__rows_worked_by_hand)
{
    for (size_t i = 0; i < ARRAY_LEN(by_hand); i++) {
        float row[5], scratch[5];
        memcpy(row, by_hand[i].logits, sizeof row);
        sheaf__sampling_process(row, 5, by_hand[i].ids, by_hand[i].n, &by_hand[i].how, scratch);
        CHECK_BYTES(by_hand[i].name, row, by_hand[i].want, sizeof row);
    }
}

TEST(test_sampling__greedy_takes_the_first_of_the_largest)
{
    assert_int_equal(sheaf__sampling_greedy((float[]){ 1, 3, 2, 3 }, 4), 1);
    assert_int_equal(sheaf__sampling_greedy((float[]){ GONE, -3, GONE, -4 }, 4), 1);
    assert_int_equal(sheaf__sampling_greedy((float[]){ GONE, GONE }, 2), -1);
}

/* Weights 1, 1, 2, 0: the quarters of u's range. */
TEST(test_sampling__draw_follows_the_cumulative_sum)
{
    const float row[4] = { 0, 0, 0.69314718f, GONE };
    const struct {
        uint32_t u;
        int64_t want;
    } table[] = {
        { 0, 0 },           { 0x3fffff00u, 0 }, { 0x40000100u, 1 },
        { 0x7fffff00u, 1 }, { 0x80000100u, 2 }, { UINT32_MAX, 2 },
    };
    float scratch[4];
    const sheaf__sampling_room room = { sheaf__kernels_for(NULL), scratch };
    for (size_t i = 0; i < ARRAY_LEN(table); i++)
        assert_int_equal(sheaf__sampling_draw(row, 4, table[i].u, &room), table[i].want);
    assert_int_equal(sheaf__sampling_draw((float[]){ GONE, 7 }, 2, 0, &room), 1);
    assert_int_equal(sheaf__sampling_draw((float[]){ GONE, GONE }, 2, 5, &room), -1);
    assert_int_equal(sheaf__sampling_draw((float[]){ 1, INFINITY }, 2, UINT32_MAX, &room), 1);
}

TEST(test_sampling__draws_come_as_often_as_their_probability)
{
    enum { DRAWS = 20000 };
    const float logits[4] = { 0.5f, -1, 1.25f, 0 };
    const sheaf__sampling how = { .temperature = 0.8f, .seed = 17 };
    const sheaf__kernels *kernels = sheaf__kernels_for(NULL);
    double p[4], sum = 0;
    int count[4] = { 0 };
    for (int i = 0; i < 4; i++)
        sum += p[i] = exp(logits[i] / 0.8);
    for (uint64_t n = 0; n < DRAWS; n++) {
        float row[4], scratch[4];
        const sheaf__sampling_room room = { kernels, scratch };
        memcpy(row, logits, sizeof row);
        count[sheaf__sampling_next(row, 4, NULL, 0, &how, n % 100, n / 100, &room)]++;
    }
    for (int i = 0; i < 4; i++) /* four standard deviations; the numbers are always the same */
        CHECK_NEAR("frequency", (double)count[i] / DRAWS, p[i] / sum, 4 * sqrt(0.25 / DRAWS));
}

/* A token depends on seed, sequence and step, and on nothing else. */
TEST(test_sampling__a_token_is_a_function_of_seed_sequence_and_step)
{
    enum { VOCAB = 300 };
    const sheaf__sampling how[2] = { { .seed = 1 }, { .seed = 2 } };
    float row[VOCAB], scratch[VOCAB];
    const sheaf__sampling_room room = { sheaf__kernels_for(NULL), scratch };
    int64_t id[16], again[16];
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < 16; i++) {
            const int n = pass == 0 ? i : 15 - i; /* another order */
            for (int v = 0; v < VOCAB; v++)
                row[v] = (float)(v % 7) * 0.01f;
            (pass == 0 ? id : again)[n] = sheaf__sampling_next(
                row, VOCAB, NULL, 0, &how[n & 1], n >> 1 & 1, (uint64_t)(n >> 2), &room);
        }
    assert_memory_equal(id, again, sizeof id);
    int equal = 0;
    for (int a = 0; a < 16; a++)
        for (int b = 0; b < a; b++)
            equal += id[a] == id[b];
    assert_true(equal <= 4); /* 120 pairs, 1 in 300 by chance */
}

/* ---- recorded rows ---- */
static void *tensor(sheaf_safetensors *file, const char *name, int64_t *n)
{
    const sheaf_safetensors_entry *entry = sheaf__safetensors_find(file, name);
    if (entry == NULL)
        fail_msg("%s: no tensor '%s'", file->path, name);
    void *data = malloc((size_t)entry->bytes);
    CHECK_OK(sheaf__safetensors_read(file, entry, 0, data, entry->bytes));
    *n = entry->bytes / (int64_t)sheaf_dtype_bytes(entry->dtype);
    return data;
}

static void check_file(const char *path)
{
    static const struct {
        const char *name;
        sheaf__sampling how;
    } chain[] = {
        { "repetition_penalty_1.3", { .repetition_penalty = 1.3f } },
        { "temperature_0.7", { .temperature = 0.7f } },
        { "top_k_10", { .top_k = 10 } },
        { "top_p_0.8", { .top_p = 0.8f } },
        { "rep1.2_temp0.7_topk20_topp0.9",
          { .repetition_penalty = 1.2f, .temperature = 0.7f, .top_k = 20, .top_p = 0.9f } },
    };
    sheaf_safetensors *file;
    int64_t vocab, nids, n;
    CHECK_OK(sheaf__safetensors_open(&file, path));
    float *logits = tensor(file, "logits", &vocab);
    int64_t *ids = tensor(file, "previous_ids", &nids);
    float *row = malloc((size_t)vocab * sizeof *row);
    float *scratch = malloc((size_t)vocab * sizeof *scratch);
    assert_int_equal(file->header.count, ARRAY_LEN(chain) + 2); /* none is passed over */
    for (size_t i = 0; i < ARRAY_LEN(chain); i++) {
        float *want = tensor(file, chain[i].name, &n);
        assert_int_equal(n, vocab);
        memcpy(row, logits, (size_t)vocab * sizeof *row);
        sheaf__sampling_process(row, vocab, ids, nids, &chain[i].how, scratch);
        CHECK_BYTES(chain[i].name, row, want, (size_t)vocab * sizeof *row);
        free(want);
    }
    free(scratch);
    free(row);
    free(ids);
    free(logits);
    sheaf__safetensors_close(file);
}

TEST(test_sampling__recorded_processors_bit_for_bit)
{
    char root[1100], path[1400];
    char **names;
    int64_t count, ran = 0;
    snprintf(root, sizeof root, "%s", golden("llama"));
    CHECK_OK(sheaf__list_dir(&names, &count, root));
    for (int64_t i = 0; i < count; i++) {
        snprintf(path, sizeof path, "%s/%s/logits_processors.safetensors", root, names[i]);
        if (access(path, R_OK) != 0)
            continue;
        check_file(path);
        ran++;
    }
    sheaf__names_free(names, count);
    assert_true(ran >= 4);
}

/* ---- the cuts against their definition ---- */
static bool stays(const float *logits, int vocab, int id, int64_t k, double p, bool *close)
{
    double total = 0, mass = 0;
    for (int o = 0; o < vocab; o++) {
        int larger = 0;
        for (int x = 0; x < vocab; x++)
            larger += logits[x] > logits[o];
        if (k != 0 && larger >= k) { /* removed by top-k, with its equals */
            if (o == id)
                return false;
            continue;
        }
        total += exp(logits[o]);
        if (logits[o] > logits[id] || (logits[o] == logits[id] && o > id))
            mass += exp(logits[o]);
    }
    *close = fabs(mass / total - p) < 1e-6;
    return p >= 1 || mass < p * total;
}

TEST(test_sampling__cuts_agree_with_their_definition)
{
    enum { VOCAB = 120 };
    float row[VOCAB], logits[VOCAB], scratch[VOCAB];
    for (int v = 0; v < VOCAB; v++) /* every value twice */
        logits[v] = 4 * sinf((float)(v % 60) * 12.9898f);
    for (int64_t k = 0; k < VOCAB; k += 7)
        for (int i = 1; i <= 10; i++) {
            const sheaf__sampling how = { .top_k = k, .top_p = 0.1f * (float)i };
            memcpy(row, logits, sizeof row);
            sheaf__sampling_process(row, VOCAB, NULL, 0, &how, scratch);
            for (int v = 0; v < VOCAB; v++) {
                bool close = false;
                const bool want = stays(logits, VOCAB, v, k, (double)how.top_p, &close);
                if ((row[v] == logits[v]) != want && !close)
                    fail_msg("k %d, p 0.%d: id %d", (int)k, i, v);
            }
        }
}

/* ---- probabilities ---- */

TEST(test_sampling__the_best_and_their_probabilities_by_hand)
{
    static const float logits[] = { 1, -INFINITY, 3, 1, -INFINITY, 3, 2 };
    static const int32_t want[] = { 2, 5, 6, 0, 3, 1, 4 };
    int32_t ids[7];
    float max;
    for (int64_t best = 0; best <= 7; best++) {
        memset(ids, 0xff, sizeof ids);
        sheaf__sampling_best(ids, best, logits, 7);
        CHECK_BYTES("ids", ids, want, sizeof *ids * (size_t)best);
        assert_true(best == 7 || ids[best] == -1);
    }
    const float sum = sheaf__sampling_log_sum(&max, logits, 7, sheaf__kernels_for(NULL));
    assert_true(max == 3);
    CHECK_NEAR("sum", sum, log(2 + exp(-1) + 2 * exp(-2)), 1e-7);
}
