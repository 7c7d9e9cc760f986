/* spike_test.c - the promise on one layer: the same bytes for any number of ranks and
 * threads, either instruction set, and devices whose memory is not the host's.
 *
 * Two layers forward and backward with LoRA on all linears and a trained embedding
 * (so that dx reaches the bottom): hashes of the loss, all gradients (dA, dB, and through the
 * embedding dx) agree at T = 1, 2, 3, 5, 8 and 1, 2, 5 threads. Once at a production
 * size (small shapes hide every fault of blocking), once where nothing divides. */
#include "tests/check.h"

#include <xxhash.h>

#include "tests/devices/checked.h"
#include "tests/devices/copied.h"

#include "models/model.h"
#include "tests/ranks/synthetic.h"

typedef struct setting {
    int ranks, threads;
    const char *isa;
    bool every; /* rows that the head does not read are computed all the same */
    const sheaf__device_class *device; /* NULL: the processor */
} setting;

typedef struct run {
    const sheaf_schema *schema;
    const sheaf_lora *lora;
    sheaf_source *source;
    int64_t batch, seq;
    setting how;
    sheaf_dtype dtype;
    sheaf_sums sums;
    bool rerun, norms;
    int32_t *ids, *labels, *position;
    int64_t *sample, *place; /* of every row, for dropout */
    uint8_t *mask;
    /* out, by trained tensor and slice; written by the owner */
    int ntrained;
    XXH64_hash_t hash[256][8];
    double loss, norm;
} run;

static bool embedding_and_norms(void *self, const sheaf_tensor *t)
{
    const run *r = self;
    return t->role == SHEAF_EMBED || (r->norms && sheaf__is_norm(t->role));
}

/* Whoever listens hears of all rows, so that all are computed. */
static void hear_nothing(void *self, sheaf__tape *tape, const char *stage, int layer, int stream,
                         sheaf__value *value)
{
}

/* Of the host's `bytes` at *at, the device's copy. */
static sheaf_status *put(void *at, sheaf__device *device, size_t bytes)
{
    void *host, *there;
    memcpy(&host, at, sizeof host);
    sheaf_status *st = sheaf__device_alloc(&there, device, bytes, SHEAF_MEM_INPUTS);
    if (st == NULL)
        st = sheaf__upload(device, there, host, bytes);
    memcpy(at, &there, sizeof there);
    return st;
}

static sheaf_status *put_inputs(sheaf__rows_in *in, sheaf__step_info *info, sheaf__device *device,
                                const run *r)
{
    const size_t rows = (size_t)(r->batch * r->seq);
    in->host.ids = in->ids = r->ids;
    in->host.position = in->position = r->position;
    in->host.key_mask = in->key_mask = r->mask;
    info->host.sample = info->sample = r->sample;
    info->host.position = info->position = r->place;
    sheaf_status *st = put(&in->ids, device, rows * sizeof *in->ids);
    TRY(st, put(&in->position, device, rows * sizeof *in->position));
    TRY(st, put(&in->key_mask, device, rows));
    TRY(st, put(&info->sample, device, rows * sizeof *info->sample));
    return TRY(st, put(&info->position, device, rows * sizeof *info->position));
}

static sheaf_status *hash_gradient(XXH64_hash_t *hash, sheaf__device *device,
                                   const sheaf__trained *t, int slice)
{
    const size_t bytes = (size_t)t->numel[slice] * sizeof(float);
    void *grad;
    sheaf_status *st = sheaf__borrow(&grad, device, t->grad[slice], bytes, true);
    if (st == NULL)
        *hash = XXH3_64bits(grad, bytes);
    return sheaf__first_of(st, sheaf__return(grad, device, t->grad[slice], bytes, false));
}

static sheaf_status *rank_body(void *arg, sheaf_comm *comm)
{
    run *r = arg;
    const int rank = sheaf_comm_rank(comm);
    sheaf__device *device = NULL;
    sheaf__model *model = NULL;
    sheaf__tape *tape = NULL;
    sheaf_status *st =
        sheaf__device_open(&device, r->how.device == NULL ? &sheaf__cpu : r->how.device,
                           r->how.threads, r->how.isa, 16 * SMALL_DEVICE);
    if (st != NULL)
        return st;
    device->sums = r->sums;
    sheaf__context c = { .device = device,
                         .comm = r->how.ranks == 1 ? NULL : comm,
                         .rank = rank,
                         .ranks = r->how.ranks,
                         .slices = 8,
                         .own = sheaf_owner_slices(8, r->how.ranks, rank),
                         .dtype = r->dtype };
    const sheaf__model_options options = { .lora = r->lora,
                                           .train_lora = true,
                                           .trains = embedding_and_norms,
                                           .self = r,
                                           .backward = true,
                                           .positions = r->seq };
    st = sheaf__model_new(&model, &c, r->schema, &options);
    if (st == NULL)
        st = sheaf__model_load(model, r->source, r->source);
    sheaf__rows_in in = { .mask_ld = r->seq, .keys = r->seq };
    sheaf__step_info info = { .training = true, .seed = 5, .step = 3 };
    if (st == NULL)
        st = put_inputs(&in, &info, device, r);
    sheaf__head_run head = { .label = r->labels,
                             .gradient_scale = 1.0f / (float)(r->batch * r->seq) };
    const sheaf__stages listener = { .on_value = hear_nothing };
    sheaf__accumulators accumulators = { 0 };
    double norm = 0;
    if (st == NULL)
        st = sheaf__tape_new(&tape, &c);
    if (st == NULL) {
        sheaf__model_record(model, tape,
                            &(sheaf__pass){ .batch = r->batch,
                                            .queries = r->seq,
                                            .in = &in,
                                            .info = &info,
                                            .head = &head,
                                            .stages = r->how.every ? &listener : NULL });
        st = sheaf__tape_compile(tape, true, r->rerun);
    }
    if (st == NULL)
        st = sheaf__accumulator_begin(model->trained, &accumulators, 0);
    if (st == NULL)
        st = sheaf__tape_run(tape);
    if (st == NULL)
        st = sheaf__grad_norm(&norm, model->trained);
    for (int i = 0; st == NULL && i < model->trained->count; i++) {
        const sheaf__trained *t = model->trained->item[i];
        if (t->cut.nparts == 0 && rank != r->how.ranks - 1)
            continue; /* replicated: the last rank's copy speaks */
        for (int s = t->first; s < t->first + t->count; s++)
            TRY(st, hash_gradient(&r->hash[i][s], device, t, s));
    }
    TRY(st, sheaf__device_check(device));
    if (st == NULL && rank == 0) {
        r->ntrained = model->trained->count;
        r->loss = head.loss_sum;
        r->norm = norm;
    }
    sheaf__tape_free(tape);
    sheaf__model_free(model);
    sheaf__device_close(device);
    return st;
}

typedef struct shape {
    sheaf_config config;
    int64_t batch, seq, rank;
    double dropout;
    bool spans; /* labels at the end of each sequence alone, in the second not one */
    sheaf_sums sums;
    bool norms; /* are trained, too */
    bool dora;
} shape;

static sheaf_config config_of(int64_t hidden, int64_t ffn, int64_t heads, int64_t kv, int64_t dim,
                              int64_t vocab, int64_t layers)
{
    sheaf_config c = { .family = SHEAF_QWEN2,
                       .vocab = vocab,
                       .hidden = hidden,
                       .ffn = ffn,
                       .layers = layers,
                       .heads = heads,
                       .kv_heads = kv,
                       .head_dim = dim,
                       .rms_eps = 1e-5,
                       .qkv_bias = true,
                       .max_position = 8192,
                       .bos = -1,
                       .pad = -1,
                       .dtype = SHEAF_F32 };
    c.rope.theta = 10000;
    c.rope.partial = 1;
    return c;
}

/* Runs all settings; `want` is the recorded hash of loss, norm and all gradients: the same from
 * every compiler and machine, as long as the numeric contract has this version. */
static void compare(const shape *shape, sheaf_dtype dtype, const setting *settings, size_t n,
                    XXH64_hash_t want)
{
    sheaf_schema *schema;
    sheaf_lora *lora;
    CHECK_OK(sheaf_schema_new(&schema, &shape->config, 8));
    const sheaf_lora_options lora_options = { .rank = shape->rank,
                                              .alpha = 2.0 * (double)shape->rank,
                                              .all_linear = true,
                                              .dropout = shape->dropout,
                                              .dora = shape->dora };
    CHECK_OK(sheaf_lora_resolve(&lora, schema, &lora_options));
    const int64_t tokens = shape->batch * shape->seq;
    run *first = calloc(1, sizeof *first), *other = calloc(1, sizeof *other);
    run base = { .schema = schema,
                 .lora = lora,
                 .source = synthetic_source(schema, lora),
                 .batch = shape->batch,
                 .seq = shape->seq,
                 .dtype = dtype,
                 .sums = shape->sums,
                 .norms = shape->norms,
                 .ids = malloc((size_t)tokens * 4),
                 .labels = malloc((size_t)tokens * 4),
                 .position = malloc((size_t)tokens * 4),
                 .mask = malloc((size_t)tokens),
                 .sample = malloc((size_t)tokens * 8),
                 .place = malloc((size_t)tokens * 8) };
    for (int64_t i = 0; i < tokens; i++) {
        base.ids[i] = (int32_t)(i * 7919 % shape->config.vocab);
        const bool none =
            shape->spans ? i / shape->seq == 1 || i % shape->seq < shape->seq * 2 / 3 : i % 5 == 3;
        base.labels[i] = none ? SHEAF__IGNORED : (int32_t)(i * 104729 % shape->config.vocab);
        base.position[i] = (int32_t)(i % shape->seq);
        base.sample[i] = 100 + i / shape->seq;
        base.place[i] = i % shape->seq;
        base.mask[i] = i % shape->seq < shape->seq - (i / shape->seq) * 3;
    }
    for (size_t k = 0; k < n; k++) {
        run *r = k == 0 ? first : other;
        *r = base;
        r->how = settings[k];
        r->rerun = k % 2 == 1;
        CHECK_OK(sheaf_comm_run_threads(r->how.ranks, rank_body, r));
        if (!(r->loss > 0) || !(r->norm > 0))
            fail_msg("loss %g, norm %g: nothing was computed", r->loss, r->norm);
        if (k == 0)
            continue;
        char what[128];
        snprintf(what, sizeof what, "%d ranks, %d threads, %s on %s against %d, %d, %s",
                 r->how.ranks, r->how.threads, r->how.isa == NULL ? "best" : r->how.isa,
                 r->how.device == NULL ? "cpu" : r->how.device->name, first->how.ranks,
                 first->how.threads, first->how.isa == NULL ? "best" : first->how.isa);
        CHECK_BYTES(what, &r->loss, &first->loss, sizeof r->loss);
        CHECK_BYTES(what, &r->norm, &first->norm, sizeof r->norm);
        CHECK_BYTES(what, r->hash, first->hash, sizeof r->hash);
    }
    const XXH64_hash_t facts[3] = { XXH3_64bits(first->hash, sizeof first->hash),
                                    XXH3_64bits(&first->loss, sizeof first->loss),
                                    XXH3_64bits(&first->norm, sizeof first->norm) };
    const XXH64_hash_t got = XXH3_64bits(facts, sizeof facts);
    if (got != want)
        fail_msg("hash %016llx, recorded %016llx", (unsigned long long)got,
                 (unsigned long long)want);
    base.source->close(base.source);
    free(base.ids);
    free(base.labels);
    free(base.position);
    free(base.mask);
    free(base.sample);
    free(base.place);
    free(first);
    free(other);
    sheaf_lora_free(lora);
    sheaf_schema_free(schema);
}

static bool has(const char *isa)
{
    return sheaf__kernels_for(isa) != NULL;
}

static void test_odd(void **state)
{
    const shape odd = { config_of(48, 173, 14, 7, 6, 511, 2), 3, 37, 5, 0.1 };
    setting all[20] = { { 1, 1, NULL } };
    size_t n = 1;
    for (int t = 2; t <= 8; t++)
        all[n++] = (setting){ t, 1 + t % 3, NULL };
    all[n++] = (setting){ 1, 5, NULL };
    all[n++] = (setting){ 1, 2, "ref" };
    all[n++] = (setting){ 3, 1, has("avx2") ? "avx2" : "ref" };
    for (int t = 1; t <= 3; t++) {
        all[n++] = (setting){ t, 2, NULL, .device = &checked_device };
        all[n++] = (setting){ t, 2, NULL, .device = &copied_device };
    }
    compare(&odd, SHEAF_F32, all, n, 0x14c447c117de6782ull);
    compare(&odd, SHEAF_BF16, all, n, 0x66859e0bbb587387ull);
}

/* Beside the first setting every second one in turn (third, with sanitizers), in ./run soak all. */
static void compare_in_turn(const shape *shape, sheaf_dtype dtype, const setting *settings,
                            size_t n, XXH64_hash_t want)
{
    static size_t turn;
    setting taken[8];
    size_t count = 0;
    turn++;
    for (size_t k = 0; k < n; k++)
        if (k == 0 || in_soak(1, 0) || (k + turn) % (1 + (size_t)every(2)) == 0)
            taken[count++] = settings[k];
    compare(shape, dtype, taken, count, want);
}

/* The last layer leaves out rows that nothing reads: not a byte of what is trained tells. */
static void test_rows_without_labels(void **state)
{
    const setting some[] = { { 1, 1, NULL, true },
                             { 1, 2, NULL, false },
                             { 3, 2, NULL, false },
                             { 8, 1, NULL, false },
                             { 2, 2, NULL, false, &checked_device },
                             { 3, 2, NULL, false, &copied_device },
                             { 2, 1, has("avx2") ? "avx2" : "ref", false } };
    shape s = { config_of(48, 173, 14, 7, 6, 511, 2), 3, 205, 5, 0, true, SHEAF_SUMS_PAIRS };
    compare_in_turn(&s, SHEAF_F32, some, ARRAY_LEN(some), 0x2a2df69762cc4e77ull);
    compare_in_turn(&s, SHEAF_BF16, some, ARRAY_LEN(some), 0xa55d25104df19046ull);
    s.sums = SHEAF_SUMS_TILES;
    compare_in_turn(&s, SHEAF_BF16, some, ARRAY_LEN(some), 0x00e39989a4766a55ull);
    /* blocks of rows fall evenly to 2 and 8 ranks, which add those of dA */
    s.batch = 8;
    s.seq = 256;
    s.sums = SHEAF_SUMS_PAIRS;
    if (every(2) == 1)
        compare_in_turn(&s, SHEAF_F32, some, ARRAY_LEN(some), 0x1f72fac23cb5f5d0ull);
    s.sums = SHEAF_SUMS_TILES;
    compare_in_turn(&s, SHEAF_BF16, some, ARRAY_LEN(some), 0xc9cfa9b1d95db0a4ull);
    /* the last of 2 ranks and of 3 has a block that is not whole: all decide by the first's */
    s.batch = 3;
    s.seq = 500;
    s.rank = 96;
    s.sums = SHEAF_SUMS_PAIRS;
    compare_in_turn(&s, SHEAF_BF16, some, ARRAY_LEN(some), 0xa2ec90f7ccba27baull);
    s.rank = 5;
    s.seq = 205;
    s.sums = SHEAF_SUMS_TILES;
    /* norms behind both parts of a layer, around them */
    s.config.family = SHEAF_OLMO2;
    s.config.qkv_bias = false;
    compare_in_turn(&s, SHEAF_F32, some, ARRAY_LEN(some), 0x1c233a8fe2c27c81ull);
    s.config.family = SHEAF_GEMMA2;
    s.config.query_scalar = 6;
    s.config.attention_cap = 50;
    s.config.logit_cap = 30;
    compare_in_turn(&s, SHEAF_BF16, some, ARRAY_LEN(some), 0x4e97a38d3d53bc5cull);
}

/* Gradients of norms are sums over rows, of which each rank has some blocks, some ranks none. */
static void test_norms(void **state)
{
    const setting some[] = { { 1, 2, NULL },
                             { 2, 1, NULL },
                             { 3, 2, NULL },
                             { 8, 1, NULL },
                             { 2, 2, NULL, false, &checked_device },
                             { 3, 2, NULL, false, &copied_device } };
    shape s = { config_of(48, 173, 14, 7, 6, 511, 2), 3, 205, 5, 0.1, .norms = true };
    compare_in_turn(&s, SHEAF_F32, some, ARRAY_LEN(some), 0xae39200c615e7d56ull);
    s.config.family = SHEAF_OLMO2;
    s.config.qkv_bias = false;
    compare_in_turn(&s, SHEAF_BF16, some, ARRAY_LEN(some), 0x195e5ed466a84481ull);
    s.dora = true; /* and those of magnitudes, whose products stay in float32 */
    compare_in_turn(&s, SHEAF_BF16, some, ARRAY_LEN(some), 0x8359eb8cd8bb876eull);
}

static void test_production(void **state)
{
    const bool all = getenv("SHEAF_SOAK") != NULL;
    const shape big = { config_of(2304, 6145, 36, 2, 64, 97, 1), 2, in_soak(1061, 389), 16, 0 };
    const setting some[] = { { 1, 2, NULL },
                             { 3, 5, has("avx2") ? "avx2" : "ref" },
                             { 8, 2, NULL },
                             { 2, 1, NULL },
                             { 5, 1, NULL } };
    compare(&big, SHEAF_BF16, some, all ? ARRAY_LEN(some) : 3,
            all ? 0xec6bed8b39c8dbb1ull : 0xd10fb1eaf1065ffbull);
    /* float32 takes three times as long: eight ranks give what was recorded of one */
    const setting *few = all ? some : some + 2;
    const size_t n = all ? ARRAY_LEN(some) : 1;
    compare(&big, SHEAF_F32, few, n, all ? 0x937d1a8aab955832ull : 0x03d6466d017a9528ull);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest quick[] = { cmocka_unit_test(test_odd),
                                        cmocka_unit_test(test_rows_without_labels),
                                        cmocka_unit_test(test_norms) };
    const struct CMUnitTest large[] = { cmocka_unit_test(test_production) };
    if (argc > 1) /* sabotage.sh */
        cmocka_set_test_filter("test_odd");
    /* One source, two programs: production sizes, which take longest, are a test of their own. */
    return strstr(argv[0], "production") != NULL ? cmocka_run_group_tests(large, NULL, NULL)
                                                 : cmocka_run_group_tests(quick, NULL, NULL);
}
