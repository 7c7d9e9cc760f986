/* dcp_test.c - a recorded folder and made ones give the model back, torch_dist too; what is wrong
 * is named. */
#include "tests/made_llama.h"
#include "tests/pickle_text.h"

#include "dialects/common/dialects.h"

static sheaf_catalog *read_at(const char *path)
{
    return read_made(&sheaf__dialect_dcp, path, NULL);
}

static void check_recording(const char *path, const char *hf)
{
    const char *weights = textf("%s/model.safetensors", hf);
    assert_ptr_equal(sheaf__dialect_of(path), &sheaf__dialect_dcp);
    sheaf_catalog *c = read_at(path);
    CHECK_SOUND(c);
    assert_int_equal(check_against(c, weights, false), c->count);
    assert_true(c->step >= 0);
    assert_true(c->vocab > 0);
    sheaf__catalog_free(c);
}

TEST(test_golden__every_folder_gives_the_model_it_was_made_from)
{
    each_golden("llama/torch_dcp", "_", check_recording);
}

static const char meta[] = "torch.distributed.checkpoint.metadata";

/* ---- a made checkpoint ---- */

typedef struct made_dcp {
    char dir[400];
    sheaf_text metadata, paths, storage; /* of state_dict_metadata, planner_data, storage_data */
    int64_t end[8];                      /* bytes of each rank's file */
    bool has_paths;
} made_dcp;

static void append_to(const char *path, const void *bytes, size_t size)
{
    FILE *out = fopen(path, "ab");
    assert_non_null(out);
    assert_int_equal(fwrite(bytes, 1, size, out), size);
    assert_int_equal(fclose(out), 0);
}

/* Puts a torch file behind the items of a rank. */
static void put_item(made_dcp *d, made_file *f, int rank, int64_t *at, int64_t *length)
{
    const char *at_item = textf("%s/item", scratch.dir);
    char *bytes = NULL;
    size_t size;
    made_end(f, at_item);
    CHECK_OK(sheaf__file_read_all(&bytes, &size, at_item, 1 << 28));
    assert_int_equal(unlink(at_item), 0);
    append_to(textf("%s/__%d_0.distcp", d->dir, rank), bytes, size);
    free(bytes);
    *at = d->end[rank];
    *length = (int64_t)size;
    d->end[rank] += (int64_t)size;
}

static void put_storage(made_dcp *d, const char *key, int ndim, const int64_t *offset, int rank,
                        int64_t at, int64_t length)
{
    p_object(&d->storage, meta, "MetadataIndex");
    p_string(&d->storage, "fqn");
    p_string(&d->storage, key);
    p_string(&d->storage, "offset");
    if (ndim < 0)
        p_bytes(&d->storage, "N", 1);
    else
        p_tuple(&d->storage, ndim, offset);
    p_end(&d->storage);
    p_object(&d->storage, "torch.distributed.checkpoint.filesystem", "_StorageInfo");
    p_string(&d->storage, "relative_path");
    p_string(&d->storage, textf("__%d_0.distcp", rank));
    p_string(&d->storage, "offset");
    p_int(&d->storage, at);
    p_string(&d->storage, "length");
    p_int(&d->storage, length);
    p_end(&d->storage);
}

static void put_path(made_dcp *d, const char *key, const char *around, const char *top,
                     const char *rest)
{
    p_string(&d->paths, key);
    p_bytes(&d->paths, "(", 1);
    if (around != NULL)
        p_string(&d->paths, around);
    if (top != NULL)
        p_string(&d->paths, top);
    p_string(&d->paths, rest);
    p_bytes(&d->paths, "t", 1);
}

/* Begins a tensor: its chunks follow by put_chunk(), then end_tensor(). */
static void begin_tensor(made_dcp *d, const char *key, int ndim, const int64_t *shape)
{
    p_string(&d->metadata, key);
    p_object(&d->metadata, meta, "TensorStorageMetadata");
    p_string(&d->metadata, "properties");
    p_object(&d->metadata, meta, "TensorProperties");
    p_string(&d->metadata, "dtype");
    sheaf__text_add(&d->metadata, "ctorch\nfloat32\n");
    p_end(&d->metadata);
    p_string(&d->metadata, "size");
    p_tuple(&d->metadata, ndim, shape);
    p_string(&d->metadata, "chunks");
    p_bytes(&d->metadata, "](", 2);
}

static void end_tensor(made_dcp *d)
{
    p_bytes(&d->metadata, "e", 1);
    p_end(&d->metadata);
}

/* `data` is the whole tensor, dense; the chunk lies in the file of `rank`. */
static void put_chunk(made_dcp *d, const char *key, int ndim, const int64_t *shape,
                      const int64_t *offset, const int64_t *size, const float *data, int rank)
{
    int64_t n = 1, at, length;
    for (int i = 0; i < ndim; i++)
        n *= size[i];
    float *own = malloc((size_t)n * sizeof *own + 1);
    assert_non_null(own);
    for (int64_t k = 0; k < n; k++) {
        int64_t rest = k, from = 0, under = 1;
        for (int i = ndim - 1; i >= 0; i--) {
            from += (offset[i] + rest % size[i]) * under;
            rest /= size[i];
            under *= shape[i];
        }
        own[k] = data[from];
    }
    p_object(&d->metadata, meta, "ChunkStorageMetadata");
    p_string(&d->metadata, "offsets");
    p_tuple(&d->metadata, ndim, offset);
    p_string(&d->metadata, "sizes");
    p_tuple(&d->metadata, ndim, size);
    p_end(&d->metadata);
    made_file *f = made_begin();
    f->root = made_put(f, SHEAF_F32, ndim, size, own);
    put_item(d, f, rank, &at, &length);
    put_storage(d, key, ndim, offset, rank, at, length);
}

static void put_number(made_dcp *d, const char *key, int64_t value)
{
    int64_t at, length;
    p_string(&d->metadata, key);
    p_object(&d->metadata, meta, "BytesStorageMetadata");
    p_end(&d->metadata);
    made_file *f = made_begin();
    f->root = sheaf__pickle_make_int(f->doc, value);
    put_item(d, f, 0, &at, &length);
    put_storage(d, key, -1, NULL, 0, at, length);
}

/* Writes .metadata and frees. */
static void finish(made_dcp *d)
{
    sheaf_text p = { 0 };
    sheaf__text_add(&p, "\x80\x04");
    p_object(&p, meta, "Metadata");
    const struct {
        const char *key;
        sheaf_text *dict;
    } parts[] = { { "state_dict_metadata", &d->metadata },
                  { "planner_data", &d->paths },
                  { "storage_data", &d->storage } };
    for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
        p_string(&p, parts[i].key);
        if (i == 1 && !d->has_paths) {
            p_bytes(&p, "N", 1);
            continue;
        }
        p_bytes(&p, "}(", 2);
        if (parts[i].dict->size > 0)
            p_bytes(&p, parts[i].dict->at, parts[i].dict->size);
        p_bytes(&p, "u", 1);
    }
    p_end(&p);
    p_bytes(&p, ".", 1);
    assert_false(p.failed);
    CHECK_OK(sheaf__file_write_whole(textf("%s/.metadata", d->dir), p.at, p.size));
    sheaf__text_release(&p);
    sheaf__text_release(&d->metadata);
    sheaf__text_release(&d->paths);
    sheaf__text_release(&d->storage);
}

static made_dcp *begin(void)
{
    static int number;
    made_dcp *d = calloc(1, sizeof *d);
    assert_non_null(d);
    snprintf(d->dir, sizeof d->dir, "%s/dcp%d", scratch.dir, number++);
    CHECK_OK(sheaf__make_dirs(d->dir));
    return d;
}

/* A model's tensors, divided over `ranks` files; moments too when `optimizer`. `top`: the dict they
 * are in; `around`: one around that and the optimizer's. */
static made_dcp *made_around(const made_model *m, int ranks, const char *around, const char *top,
                             bool paths, bool optimizer)
{
    made_dcp *d = begin();
    d->has_paths = paths;
    for (int i = 0; i < m->count; i++) {
        const made_tensor *t = &m->tensor[i];
        for (unsigned kind = 0; kind < (optimizer ? 3 : 1); kind++) {
            static const char *const ends[] = { "", ".exp_avg", ".exp_avg_sq" };
            const int64_t none[2] = { 0, 0 },
                          all[2] = { t->shape[0], t->ndim == 2 ? t->shape[1] : 1 };
            const char *rest = textf("%s%s", t->name, ends[kind]);
            const char *key =
                textf("%s%s%s%s%s", around != NULL ? around : "", around != NULL ? "." : "",
                      kind > 0      ? "optim.state"
                      : top == NULL ? ""
                                    : top,
                      kind > 0 || top != NULL ? "." : "", rest);
            float *data = made_slice(t, none, all, kind);
            put_path(d, key, around, kind > 0 ? "optim" : top,
                     kind > 0 ? strstr(key, "state.") : rest);
            begin_tensor(d, key, t->ndim, t->shape);
            for (int r = 0; r < (t->axis < 0 ? 1 : ranks); r++) {
                int64_t from[2], size[2];
                made_box(t, r, ranks, from, size);
                if (size[0] * size[1] > 0)
                    put_chunk(d, key, t->ndim, t->shape, from, size, data, r);
            }
            end_tensor(d);
            free(data);
        }
    }
    const char *iteration =
        textf("%s%siteration", around != NULL ? around : "", around != NULL ? "." : "");
    put_number(d, iteration, 23);
    put_path(d, iteration, around, NULL, "iteration");
    finish(d);
    return d;
}

static made_dcp *made_plain(const made_model *m, int ranks, const char *top, bool paths,
                            bool optimizer)
{
    return made_around(m, ranks, NULL, top, paths, optimizer);
}

/* The weights of a made model, with its moments where there are some, and nothing else. */
static void check_all(const sheaf_catalog *c, const made_model *m, bool optimizer)
{
    assert_int_equal(c->count, m->count * (optimizer ? 3 : 1));
    check_made(c, m, "", 0);
    if (optimizer) {
        check_made(c, m, "exp_avg.", 1);
        check_made(c, m, "exp_avg_sq.", 2);
    }
}

TEST(test_made__chunks_give_the_model_back)
{
    made_model *m = made_llama(37, 12, 23, 2, 6, 3, 4, true);
    const struct {
        int ranks;
        const char *top;
        bool paths, optimizer;
    } ways[] = {
        { 1, NULL, true, false }, { 2, "model", true, true }, { 3, "model", false, false },
        { 5, NULL, false, true }, { 4, "net", true, true },
    };
    for (size_t i = 0; i < ARRAY_LEN(ways); i++) {
        made_dcp *d = made_plain(m, ways[i].ranks, ways[i].top, ways[i].paths, ways[i].optimizer);
        assert_ptr_equal(sheaf__dialect_of(d->dir), &sheaf__dialect_dcp);
        sheaf_catalog *c = read_at(d->dir);
        CHECK_SOUND(c);
        assert_true(c->step == 23 && c->vocab == 37);
        check_all(c, m, ways[i].optimizer);
        sheaf__catalog_free(c);
        free(d);
    }
    made_free(m);
}

/* {"app": {"model": ..., "optim": ...}}, as PyTorch's tutorial saves. */
TEST(test_made__a_dict_around_model_and_optimizer_is_no_part_of_names)
{
    made_model *m = made_llama(37, 12, 23, 2, 6, 3, 4, true);
    const struct {
        const char *around, *top;
        bool optimizer;
    } ways[] = {
        { "app", "model", true },   { "app", "model", false },          { "state", "net", true },
        { "model", "model", true }, { "trainer", "state_dict", false },
    };
    for (size_t i = 0; i < ARRAY_LEN(ways); i++) {
        made_dcp *d = made_around(m, 2, ways[i].around, ways[i].top, true, ways[i].optimizer);
        sheaf_catalog *c = read_at(d->dir);
        CHECK_SOUND(c);
        assert_int_equal(c->step, 23);
        check_all(c, m, ways[i].optimizer);
        sheaf__catalog_free(c);
        free(d);
    }
    made_free(m);
}

/* ---- a config ---- */

static void put_config(const made_dcp *d, const char *type, int vocab, int layers, int ffn)
{
    put(textf("%s/config.json", d->dir),
        textf("{\"model_type\": \"%s\", \"vocab_size\": %d, \"hidden_size\": 12, "
              "\"intermediate_size\": %d, \"num_hidden_layers\": %d, \"num_attention_heads\": 6, "
              "\"num_key_value_heads\": 2, \"head_dim\": 2, \"tie_word_embeddings\": false}",
              type, vocab, ffn, layers));
}

static sheaf_catalog *read_checked(const made_dcp *d)
{
    const sheaf_dialect_hints none = { 0 };
    sheaf_catalog *c = NULL;
    CHECK_OK(sheaf__dialect_read(&c, &sheaf__dialect_dcp, d->dir, &none));
    CHECK_OK(sheaf__dialect_check(c, &none));
    return c;
}

TEST(test_config__tensors_are_held_against_it)
{
    made_model *m = made_llama(37, 12, 24, 2, 6, 2, 2, true);
    const struct {
        const char *type;
        int vocab, layers, ffn;
        sheaf_severity severity;
        const char *code, *part;
    } cases[] = {
        { "llama", 37, 3, 24, SHEAF_DEFECT, "missing", "model.layers.2.self_attn.q_proj.weight" },
        { "llama", 37, 1, 24, SHEAF_DEFECT, "foreign", "model.layers.1.self_attn.q_proj.weight" },
        { "llama", 37, 2, 23, SHEAF_DEFECT, "shape", "[23, 12]" },
        { "llama", 50, 2, 24, SHEAF_DEFECT, "missing", "50 rows" },
        { "gpt2", 37, 2, 24, SHEAF_WARNING, "unsupported", "not checked against it" },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        made_dcp *d = made_plain(m, 2, "model", true, true);
        put_config(d, cases[i].type, cases[i].vocab, cases[i].layers, cases[i].ffn);
        sheaf_catalog *c = read_checked(d);
        CHECK_FINDING(c, cases[i].severity, cases[i].code, cases[i].part);
        assert_true(cases[i].severity == SHEAF_DEFECT || sheaf__catalog_defects(c) == 0);
        sheaf__catalog_free(c);
        free(d);
    }
    made_free(m);
}

TEST(test_config__a_constant_that_follows_from_it_is_not_foreign)
{
    made_model *m = made_llama(37, 12, 24, 2, 6, 2, 2, true);
    made_tensor *t = &m->tensor[m->count++];
    assert_true(m->count <= MADE_TENSORS);
    *t = (made_tensor){ .name = "model.layers.1.self_attn.rotary_emb.inv_freq",
                        .ndim = 1,
                        .axis = -1,
                        .shape = { 1, 1 },
                        .data = calloc(1, sizeof *t->data) };
    made_dcp *d = made_plain(m, 2, "model", true, false);
    put_config(d, "llama", 37, 2, 24);
    want_found(read_checked(d), 0, NULL, NULL);
    free(d);
    made_free(m);
}

TEST(test_config__its_vocabulary_cuts_tables_and_their_moments)
{
    made_model *m = made_llama(40, 12, 24, 2, 6, 2, 2, true);
    made_dcp *d = made_plain(m, 3, "model", true, true);
    put_config(d, "llama", 37, 2, 24);
    sheaf_catalog *c = read_checked(d);
    CHECK_SOUND(c);
    CHECK_FINDING(c, SHEAF_WARNING, "padded", "40 rows: 3 of them are padding");
    assert_true(c->vocab == 37 && c->padded_vocab == 40);
    for (int i = 0; i < m->count; i++) /* as the model without its last rows */
        if (m->tensor[i].shape[0] == 40)
            m->tensor[i].shape[0] = 37;
    check_made(c, m, "", 0);
    check_made(c, m, "exp_avg.", 1);
    check_made(c, m, "exp_avg_sq.", 2);
    sheaf__catalog_free(c);
    free(d);
    made_free(m);
}

TEST(test_config__a_word_before_all_names_is_left_out_of_the_moments_too)
{
    static const char word[] = "_orig_mod.";
    made_model *m = made_llama(37, 12, 24, 2, 6, 2, 2, true);
    for (int i = 0; i < m->count; i++) {
        char *name = m->tensor[i].name;
        assert_true(strlen(name) + sizeof word <= sizeof m->tensor[i].name);
        memmove(name + sizeof word - 1, name, strlen(name) + 1);
        memcpy(name, word, sizeof word - 1);
    }
    made_dcp *d = made_plain(m, 2, "model", true, true);
    put_config(d, "llama", 37, 2, 24);
    sheaf_catalog *c = read_checked(d);
    CHECK_SOUND(c);
    CHECK_FINDING(c, SHEAF_NOTE, "inferred", "names with '_orig_mod.'");
    for (int i = 0; i < m->count; i++) {
        const char *name = m->tensor[i].name + sizeof word - 1;
        assert_non_null(sheaf__catalog_find(c, name));
        assert_non_null(sheaf__catalog_find(c, textf("exp_avg.%s", name)));
    }
    sheaf__catalog_free(c);
    free(d);
    made_free(m);
}

/* ---- Megatron's torch_dist ---- */

/* All layers of a kind one after the other, with Megatron's order of rows. */
static float *stacked(const made_model *m, const char *kind, int64_t *rows, int64_t *cols)
{
    const int64_t each = m->heads / m->groups, d = m->width;
    float *out = NULL;
    int64_t n = 0;
    for (int64_t l = 0; l < m->layers; l++) {
        const struct {
            const char *name;
            int64_t group;
        } qkv[] = { { "self_attn.q_proj.weight", each * d },
                    { "self_attn.k_proj.weight", d },
                    { "self_attn.v_proj.weight", d } },
          fc1[] = { { "mlp.gate_proj.weight", m->ffn }, { "mlp.up_proj.weight", m->ffn } };
        const bool is_qkv = strcmp(kind, "qkv") == 0, is_fc1 = strcmp(kind, "fc1") == 0;
        for (int64_t g = 0; g < (is_qkv ? m->groups : 1); g++)
            for (int k = 0; k < (is_qkv ? 3 : is_fc1 ? 2 : 1); k++) {
                char name[128];
                snprintf(name, sizeof name, "model.layers.%" PRId64 ".%s", l,
                         is_qkv   ? qkv[k].name
                         : is_fc1 ? fc1[k].name
                                  : kind);
                for (int i = 0; i < m->count; i++) {
                    const made_tensor *t = &m->tensor[i];
                    if (strcmp(t->name, name) != 0)
                        continue;
                    *cols = t->ndim == 2 ? t->shape[1] : 0;
                    const int64_t wide = *cols > 0 ? *cols : 1,
                                  some = is_qkv ? qkv[k].group : t->shape[0];
                    out = realloc(out, (size_t)(n + some * wide) * sizeof *out);
                    assert_non_null(out);
                    memcpy(out + n, t->data + g * some * wide, (size_t)(some * wide) * sizeof *out);
                    n += some * wide;
                }
            }
    }
    *rows = n / m->layers / (*cols > 0 ? *cols : 1);
    return out;
}

/* One kind of tensor of all layers, in chunks of `stages` x `ranks`; `halves`: gate and up are
 * divided each on its own. */
static void put_stacked(made_dcp *d, const made_model *m, const char *key, const char *kind,
                        int axis, int stages, int ranks, bool halves)
{
    int64_t rows = 0, cols = 0;
    float *data = stacked(m, kind, &rows, &cols);
    const int ndim = cols > 0 ? 3 : 2;
    const int64_t shape[3] = { m->layers, rows, cols };
    begin_tensor(d, key, ndim, shape);
    for (int s = 0; s < stages; s++)
        for (int r = 0; r < (axis < 0 ? 1 : ranks); r++)
            for (int half = 0; half < (halves ? 2 : 1); half++) {
                int64_t offset[3] = { s * m->layers / stages, 0, 0 },
                        size[3] = { m->layers / stages, rows, cols };
                if (axis >= 0) {
                    const int64_t part = shape[axis] / ranks / (halves ? 2 : 1);
                    size[axis] = part;
                    offset[axis] = r * part + half * shape[axis] / 2;
                }
                put_chunk(d, key, ndim, shape, offset, size, data, r);
            }
    end_tensor(d);
    free(data);
}

static void put_one(made_dcp *d, const made_model *m, const char *key, const char *name,
                    int64_t padded)
{
    for (int i = 0; i < m->count; i++) {
        const made_tensor *t = &m->tensor[i];
        if (strcmp(t->name, name) != 0)
            continue;
        const int64_t cols = t->ndim == 2 ? t->shape[1] : 1,
                      shape[2] = { padded > 0 ? padded : t->shape[0], cols }, none[2] = { 0, 0 };
        float *data = calloc((size_t)(shape[0] * cols), sizeof *data);
        assert_non_null(data);
        memcpy(data, t->data, (size_t)made_elements(t) * sizeof *data);
        begin_tensor(d, key, t->ndim, shape);
        put_chunk(d, key, t->ndim, shape, none, shape, data, 0);
        end_tensor(d);
        free(data);
    }
}

static made_dcp *made_torch_dist(const made_model *m, int stages, int ranks, int64_t padded)
{
    made_dcp *d = begin();
    snprintf(d->dir + strlen(d->dir), 64, "/iter_0000005");
    CHECK_OK(sheaf__make_dirs(d->dir));
    put_one(d, m, "embedding.word_embeddings.weight", "model.embed_tokens.weight", padded);
    put_one(d, m, "output_layer.weight", "lm_head.weight", padded);
    put_one(d, m, "decoder.final_layernorm.weight", "model.norm.weight", 0);
    put_one(d, m, "chained_1.exp_avg.decoder.final_layernorm.weight", "model.norm.weight", 0);
    put_stacked(d, m, "decoder.layers.self_attention.linear_qkv.weight", "qkv", 1, stages, ranks,
                false);
    put_stacked(d, m, "decoder.layers.mlp.linear_fc1.weight", "fc1", 1, stages, ranks, true);
    put_stacked(d, m, "decoder.layers.self_attention.linear_proj.weight", "self_attn.o_proj.weight",
                2, stages, ranks, false);
    put_stacked(d, m, "decoder.layers.mlp.linear_fc2.weight", "mlp.down_proj.weight", 2, stages,
                ranks, false);
    put_stacked(d, m, "decoder.layers.self_attention.linear_qkv.layer_norm_weight",
                "input_layernorm.weight", -1, stages, ranks, false);
    put_stacked(d, m, "decoder.layers.mlp.linear_fc1.layer_norm_weight",
                "post_attention_layernorm.weight", -1, stages, ranks, false);
    finish(d);

    made_file *f = made_begin();
    made_set_int(f, made_args(f, m, ranks, stages, padded), "vocab_size", m->vocab);
    made_set_int(f, f->root, "iteration", 5);
    made_end(f, textf("%s/common.pt", d->dir));
    put(textf("%s/metadata.json", d->dir),
        "{\"sharded_backend\": \"torch_dist\", \"sharded_backend_version\": 1}");
    put(textf("%s/../latest_checkpointed_iteration.txt", d->dir), "5");
    return d;
}

TEST(test_made__torch_dist_gives_the_model_back)
{
    made_model *m = made_llama(37, 12, 24, 4, 12, 4, 2, true);
    const int ways[][2] = { { 1, 1 }, { 2, 2 }, { 4, 4 } };
    for (size_t i = 0; i < ARRAY_LEN(ways); i++) {
        made_dcp *d = made_torch_dist(m, ways[i][0], ways[i][1], 40);
        const char *above = textf("%s/..", d->dir);
        for (int k = 0; k < 2; k++) {
            assert_ptr_equal(sheaf__dialect_of(k == 0 ? d->dir : above), &sheaf__dialect_dcp);
            sheaf_catalog *c = read_at(k == 0 ? d->dir : above);
            CHECK_SOUND(c);
            assert_int_equal(c->count, m->count);
            assert_true(c->step == 5 && c->vocab == 37 && c->padded_vocab == 40 &&
                        c->tp == ways[i][1] && c->pp == ways[i][0]);
            check_made(c, m, "", 0);
            sheaf__catalog_free(c);
        }
        free(d);
    }
    made_free(m);
}

/* Megatron-Bridge and NeMo keep the args elsewhere. */
TEST(test_made__torch_dist_without_args_asks_for_a_config)
{
    made_model *m = made_llama(37, 12, 24, 2, 6, 2, 2, true);
    made_dcp *d = made_torch_dist(m, 2, 2, 40);
    const char *path = textf("%s/common.pt", d->dir);
    assert_int_equal(unlink(path), 0);
    made_file *f = made_begin();
    made_set_int(f, f->root, "iteration", 5);
    made_end(f, path);
    sheaf_catalog *c = read_at(d->dir);
    CHECK_FINDING(c, SHEAF_DEFECT, "missing", "the sizes of the model");
    assert_non_null(strstr(sheaf__catalog_finding(c, "missing")->cure, "`config`"));
    check_no_source(c);
    put_config(d, "llama", 37, 2, 24); /* beside it, as one that --config names */
    c = read_checked(d);
    CHECK_SOUND(c);
    assert_true(c->step == 5 && c->vocab == 37 && c->padded_vocab == 40);
    check_made(c, m, "", 0);
    sheaf__catalog_free(c);
    put_config(d, "llama", 37, 3, 24);
    check_found(read_checked(d), SHEAF_DEFECT, "shape", "all layers of the model");
    free(d);
    made_free(m);
}

/* ---- harm ---- */

TEST(test_harm__is_named)
{
    static const struct {
        harm harm; /* NO_HARM: it gets longer */
        const char *a;
        sheaf_severity severity;
        const char *code, *part, *b;
    } cases[] = {
        { REMOVED, "__1_0.distcp", SHEAF_DEFECT, "missing", "__1_0.distcp" },
        { REMOVED, "__1_0.distcp", SHEAF_DEFECT, "missing",
          "16 chunks of tensors lie in it, the first of 'model.model.embed" },
        { REMOVED, "__1_0.distcp", SHEAF_DEFECT, "missing", "rows 13..24 of 37" },
        { REMOVED, ".metadata", SHEAF_DEFECT, "missing", "the save did not finish" },
        { CUT_SHORT, "__2_0.distcp", SHEAF_DEFECT, "damaged", "cut short" },
        { CUT_SHORT, ".metadata", SHEAF_DEFECT, "damaged", ".metadata" },
        { SWAPPED, "__0_0.distcp", SHEAF_DEFECT, "damaged", "__1_0.distcp", "__1_0.distcp" },
        { NO_HARM, "__7_0.distcp", SHEAF_WARNING, "foreign", "__7_0.distcp" }, /* one too many */
        { NO_HARM, "__2_0.distcp", SHEAF_WARNING, "conflict", "__2_0.distcp" },
    };
    made_model *m = made_llama(37, 12, 23, 2, 6, 3, 4, true);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        made_dcp *d = made_plain(m, 3, "model", true, false);
        const char *a = textf("%s/%s", d->dir, cases[i].a);
        do_harm(cases[i].harm, a, textf("%s/%s", d->dir, cases[i].b == NULL ? "" : cases[i].b));
        if (cases[i].harm == NO_HARM)
            append_to(a, "more", 4);
        check_found(read_at(d->dir), cases[i].severity, cases[i].code, cases[i].part);
        free(d);
    }
    made_free(m);
}

TEST(test_harm__a_path_out_of_the_folder_is_not_followed)
{
    made_dcp *d = begin();
    const int64_t shape[1] = { 4 }, none[1] = { 0 };
    begin_tensor(d, "w", 1, shape);
    put_chunk(d, "w", 1, shape, none, shape, (const float[]){ 1, 2, 3, 4 }, 0);
    end_tensor(d);
    char *at = memmem(d->storage.at, d->storage.size, "__0_0.distcp", 12);
    assert_non_null(at);
    memcpy(at, "../0_0distcp", 12);
    finish(d);
    check_found(read_at(d->dir), SHEAF_DEFECT, "damaged", "a place in a file of this folder");
    free(d);
}

TEST(test_harm__a_chunk_beyond_its_tensor_is_named)
{
    for (int64_t first = 2; first <= 4; first++) {
        made_dcp *d = begin();
        const int64_t shape[1] = { 4 }, size[1] = { 2 }, none[1] = { 0 }, from[1] = { first };
        begin_tensor(d, "w", 1, shape);
        put_chunk(d, "w", 1, shape, none, size, (const float[]){ 1, 2, 3, 4, 5, 6 }, 0);
        put_chunk(d, "w", 1, shape, from, size, (const float[]){ 1, 2, 3, 4, 5, 6 }, 0);
        end_tensor(d);
        finish(d);
        sheaf_catalog *c = read_at(d->dir);
        if (first == 2)
            want_found(c, 0, NULL, NULL);
        else
            check_found(c, SHEAF_DEFECT, "damaged", "chunks inside the tensor");
        free(d);
    }
}

/* Two tensors in one place, one of another shape. */
TEST(test_harm__an_item_of_another_shape_is_not_taken)
{
    made_dcp *d = begin();
    const int64_t tall[2] = { 3, 2 }, wide[2] = { 2, 3 }, none[2] = { 0, 0 };
    begin_tensor(d, "tall", 2, tall);
    put_chunk(d, "tall", 2, tall, none, tall, (const float[]){ 1, 2, 3, 4, 5, 6 }, 0);
    end_tensor(d);
    begin_tensor(d, "wide", 2, wide);
    p_object(&d->metadata, meta, "ChunkStorageMetadata");
    p_string(&d->metadata, "offsets");
    p_tuple(&d->metadata, 2, none);
    p_string(&d->metadata, "sizes");
    p_tuple(&d->metadata, 2, wide);
    p_end(&d->metadata);
    end_tensor(d);
    put_storage(d, "wide", 2, none, 0, 0, d->end[0]);
    finish(d);
    sheaf_catalog *c = read_at(d->dir);
    CHECK_FINDING(c, SHEAF_DEFECT, "conflict", "the chunk of 'wide' that .metadata says");
    check_found(c, SHEAF_DEFECT, "missing", "wide");
    free(d);
}

/* .metadata has no checksum: whatever it says, reading it ends, in bounds. */
TEST(test_harm__any_byte_of_metadata_may_be_wrong)
{
    made_model *m = made_llama(7, 4, 6, 1, 2, 1, 2, true);
    made_dcp *d = made_plain(m, 2, "model", true, false);
    const char *path = textf("%s/.metadata", d->dir);
    char *bytes = NULL;
    size_t size;
    int sound = 0;
    CHECK_OK(sheaf__file_read_all(&bytes, &size, path, 1 << 24));
    for (size_t i = 0; i < size; i += 3) {
        const char was = bytes[i];
        bytes[i] ^= (char)(1 << i % 8);
        CHECK_OK(sheaf__file_write_whole(path, bytes, size));
        bytes[i] = was;
        sheaf_catalog *c = read_at(d->dir);
        sound += sheaf__catalog_defects(c) == 0;
        sheaf__catalog_free(c);
    }
    assert_true(sound < (int)size / 3); /* names may change unseen */
    free(bytes);
    free(d);
    made_free(m);
}

FIXTURE(make_scratch, remove_scratch);
