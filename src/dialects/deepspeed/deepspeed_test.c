/* deepspeed_test.c - recorded folders give what they should; made ones, divided in every way, too;
 * what is wrong is named. */
#include "tests/made_llama.h"

#include "catalog/boxes.h"
#include "dialects/common/dialects.h"
#include "formats/pickle_inner.h"

static sheaf_catalog *read_at(const char *path)
{
    return read_made(&sheaf__dialect_deepspeed, path, NULL);
}

/* The expected_*.safetensors of a folder; of NAME_universal that of NAME. NULL: there is none. */
static const char *expected_of(const char *root, const char *name)
{
    const char *end = strstr(name, "_universal"), *found = NULL;
    for (int i = 0; found == NULL && i < (end == NULL ? 1 : 2); i++) {
        char **names = NULL;
        int64_t n = 0;
        const char *dir = textf("%s/%.*s", root, i == 0 ? 200 : (int)(end - name), name);
        sheaf_status_free(sheaf__list_dir(&names, &n, dir));
        for (int64_t k = 0; k < n && found == NULL; k++)
            if (strncmp(names[k], "expected", 8) == 0)
                found = textf("%s/%s", dir, names[k]);
        sheaf__names_free(names, n);
    }
    return found;
}

/* The number in `latest`, "global_step3". */
static int64_t step_in(const char *path)
{
    static const char *const names[] = { "latest", "latest_universal" };
    char *text = NULL;
    size_t size;
    for (int i = 0; i < 2 && text == NULL; i++)
        sheaf_status_free(sheaf__file_read_all(&text, &size, textf("%s/%s", path, names[i]), 100));
    assert_non_null(text);
    const int64_t step = strtoll(text + strcspn(text, "0123456789"), NULL, 10);
    free(text);
    return step;
}

TEST(test_golden__every_folder_gives_its_expected_tensors)
{
    int found = 0;
    const char *root = textf("%s", golden("llama/deepspeed"));
    DIR *list = opendir(root);
    if (list == NULL && !golden_is_full())
        skip();
    assert_non_null(list);
    for (struct dirent *entry; (entry = readdir(list)) != NULL;) {
        const char *expected = entry->d_name[0] == '.' ? NULL : expected_of(root, entry->d_name);
        if (expected == NULL)
            continue;
        const char *path = textf("%s/%s", root, entry->d_name);
        assert_ptr_equal(sheaf__dialect_of(path), &sheaf__dialect_deepspeed);
        sheaf_catalog *c = read_at(path);
        CHECK_SOUND(c);
        CHECK_OK(sheaf__catalog_compare(c));
        const int64_t count = check_against(c, expected, false);
        assert_true(count > 0);
        if (strstr(expected, "expected_full") != NULL) { /* and nothing else */
            int64_t weights = 0;
            for (int64_t i = 0; i < c->count; i++)
                weights += c->tensor[i].kind == SHEAF_WEIGHT;
            assert_int_equal(weights, count);
        }
        assert_int_equal(c->step, step_in(path));
        sheaf__catalog_free(c);
        found++;
    }
    closedir(list);
    assert_true(found >= 1);
}

/* ---- made folders ---- */

typedef struct how {
    int tp, dp, stage; /* stage 0: masters with bf16 */
    enum { STATE_NOTHING, STATE_PATTERNS } state;
    bool bf16; /* `module` is rounded */
    bool lean; /* padding is left out of the last part */
    int64_t step, tag;
    bool momentless; /* as SGD leaves them, of stages 1 to 3 */
} how;

/* Escaped for a regular expression, whole. */
static void exactly(char out[256], const char *name)
{
    size_t n = 0;
    out[n++] = '^';
    for (; *name != '\0'; name++) {
        if (*name == '.')
            out[n++] = '\\';
        out[n++] = *name;
    }
    out[n++] = '$';
    out[n] = '\0';
}

static void put_info(made_file *f, const made_model *m)
{
    sheaf_pickle *info = made_set(f, f->root, "universal_checkpoint_info", SHEAF_PICKLE_DICT);
    sheaf__pickle_set(f->doc, info, "universal_checkpoint_version",
                      sheaf__pickle_make_float(f->doc, 0.4));
    made_set_int(f, info, "original_vocab_size", m->vocab);
    sheaf_pickle *row =
        made_set(f, info, "parameter_with_row_parallelism_patterns", SHEAF_PICKLE_LIST);
    sheaf_pickle *vocabulary =
        made_set(f, info, "vocabulary_parameter_patterns", SHEAF_PICKLE_LIST);
    sheaf__pickle_append(f->doc, vocabulary,
                         sheaf__pickle_make_string(f->doc, "^lm_head\\.weight$"));
    sheaf_pickle *copies = made_set(f, info, "tp_replicated_parameter_patterns", SHEAF_PICKLE_LIST);
    for (int i = 0; i < m->count; i++) {
        char pattern[256];
        exactly(pattern, m->tensor[i].name);
        if (m->tensor[i].axis != 0)
            sheaf__pickle_append(f->doc, m->tensor[i].axis < 0 ? copies : row,
                                 sheaf__pickle_make_string(f->doc, pattern));
    }
}

static bool in_group(const made_tensor *t, int group)
{
    return (t->ndim == 1) == (group == 1);
}

/* The flat values of part d: of stages 1 and 2 a piece of all parameters end to end, of stage 3 a
 * piece of each. */
static float *flat_of(int64_t *count, const made_model *m, const how *h, int mp, int d, int group,
                      unsigned seed)
{
    int64_t total = 0, n = 0, capacity = 0;
    float *all = NULL;
    for (int i = 0; i < m->count; i++) {
        const made_tensor *t = &m->tensor[i];
        int64_t begin[2], size[2];
        if (!in_group(t, group))
            continue;
        made_box(t, mp, h->tp, begin, size);
        float *one = made_slice(t, begin, size, seed);
        const int64_t elements = size[0] * size[1], each = (elements + h->dp - 1) / h->dp;
        capacity += elements + 2 * h->dp + each * h->dp;
        all = realloc(all, (size_t)capacity * sizeof *all);
        assert_non_null(all);
        for (int64_t k = 0; k < (h->stage == 3 ? each : elements); k++) {
            const int64_t from = h->stage == 3 ? d * each + k : k;
            all[n++] = from < elements ? one[from] : 7777.0f; /* padding holds anything */
        }
        total += elements;
        free(one);
    }
    if (h->stage < 3) {
        const int64_t part = (total + 2 * h->dp - 1) / (2 * h->dp) * 2, end = (d + 1) * part;
        for (; n < end; n++)
            all[n] = 7777.0f;
        *count = h->lean && end > total ? (total > d * part ? total - d * part : 0) : part;
        memmove(all, all + d * part, (size_t)*count * sizeof *all);
    } else
        *count = n;
    return all;
}

static const char *frozen_part; /* tensors with this in their names are not trained */

/* Stage 0: moments in the model's file, and of a 16-bit model masters, flat as FP16_Optimizer has
 * them or each in its shape as FP16_UnfusedOptimizer has. */
static void put_plain_optimizer(made_file *f, const made_model *m, const how *h, int mp)
{
    const bool flat = h->bf16 && h->lean;
    sheaf_pickle *optimizer = made_set(f, f->root, "optimizer", SHEAF_PICKLE_DICT),
                 *masters_of = NULL;
    if (h->bf16) {
        masters_of =
            made_set(f, optimizer, flat ? "fp32_groups_flat" : "fp32_groups", SHEAF_PICKLE_LIST);
        optimizer = made_set(f, optimizer, "optimizer_state_dict", SHEAF_PICKLE_DICT);
    }
    sheaf_pickle *states = made_set(f, optimizer, "state", SHEAF_PICKLE_DICT);
    sheaf_pickle *groups = made_set(f, optimizer, "param_groups", SHEAF_PICKLE_LIST);
    int64_t id = 0;
    for (int g = 0; g < 2; g++) {
        sheaf_pickle *masters = sheaf__pickle_make(f->doc, SHEAF_PICKLE_LIST),
                     *group = sheaf__pickle_make(f->doc, SHEAF_PICKLE_DICT),
                     *params = made_set(f, group, "params", SHEAF_PICKLE_LIST);
        for (int i = 0; i < (flat ? 1 : m->count); i++) {
            sheaf_pickle *state = sheaf__pickle_make(f->doc, SHEAF_PICKLE_DICT);
            if (!flat && (!in_group(&m->tensor[i], g) ||
                          (frozen_part != NULL && strstr(m->tensor[i].name, frozen_part) != NULL)))
                continue;
            sheaf__pickle_append(f->doc, params, sheaf__pickle_make_int(f->doc, id));
            for (unsigned kind = 0; kind < 3; kind++) {
                int64_t begin[2], size[2] = { 0, 1 };
                int ndim = 1;
                float *data;
                if (flat) {
                    const how whole = { .tp = h->tp, .dp = 1, .lean = true };
                    data = flat_of(&size[0], m, &whole, mp, 0, g, kind);
                } else {
                    ndim = m->tensor[i].ndim;
                    made_box(&m->tensor[i], mp, h->tp, begin, size);
                    data = made_slice(&m->tensor[i], begin, size, kind);
                }
                sheaf_pickle *t = made_put(f, SHEAF_F32, ndim, size, data);
                if (kind > 0)
                    sheaf__pickle_set(f->doc, state, kind == 1 ? "exp_avg" : "exp_avg_sq", t);
                else if (flat)
                    masters = t;
                else
                    sheaf__pickle_append(f->doc, masters, t);
            }
            sheaf__pickle_push(f->doc, states, sheaf__pickle_make_int(f->doc, id++), state);
        }
        sheaf__pickle_append(f->doc, groups, group);
        if (masters_of != NULL)
            sheaf__pickle_append(f->doc, masters_of, masters);
    }
}

static const made_model *stale_weights; /* `module` holds these; NULL: those of the masters */

static void put_model(const char *path, const made_model *m, const how *h, int mp, bool empty)
{
    made_file *f = made_begin();
    sheaf_pickle *module = made_set(f, f->root, "module", SHEAF_PICKLE_DICT);
    made_set(f, f->root, "buffer_names", SHEAF_PICKLE_LIST);
    sheaf_pickle *groups =
        h->stage > 0 ? made_set(f, f->root, "param_shapes", SHEAF_PICKLE_LIST) : NULL;
    for (int g = 0; g < 2 && groups != NULL; g++)
        sheaf__pickle_append(f->doc, groups, sheaf__pickle_make(f->doc, SHEAF_PICKLE_DICT));
    for (int i = 0; i < m->count; i++) {
        const made_tensor *t = &m->tensor[i];
        int64_t begin[2], size[2], none = 0;
        made_box(t, mp, h->tp, begin, size);
        float *data =
            made_slice(stale_weights != NULL ? &stale_weights->tensor[i] : t, begin, size, 0);
        void *stored = h->bf16 ? made_bf16(data, size[0] * size[1]) : data;
        sheaf__pickle_set(f->doc, module, t->name,
                          made_put(f, h->bf16 ? SHEAF_BF16 : SHEAF_F32, empty ? 1 : t->ndim,
                                   empty ? &none : size, stored));
        if (groups != NULL)
            sheaf__pickle_set(f->doc, (sheaf_pickle *)sheaf__pickle_item(groups, !in_group(t, 0)),
                              t->name, made_shape(f, t->ndim, size));
    }
    made_set_int(f, f->root, "global_steps", h->step);
    made_set_int(f, f->root, "dp_world_size", h->dp);
    made_set_int(f, f->root, "mp_world_size", h->tp);
    if (h->state == STATE_PATTERNS)
        put_info(f, m);
    if (h->stage == 0)
        put_plain_optimizer(f, m, h, mp);
    made_end(f, path);
}

static void put_optimizer(const char *path, const made_model *m, const how *h, int mp, int d)
{
    made_file *f = made_begin();
    sheaf_pickle *state = made_set(f, f->root, "optimizer_state_dict", SHEAF_PICKLE_DICT);
    sheaf_pickle *flats =
        made_set(f, state, h->stage == 3 ? "fp32_flat_groups" : "single_partition_of_fp32_groups",
                 SHEAF_PICKLE_LIST);
    sheaf_pickle *moments =
        made_set(f, state, h->stage == 3 ? "optimizer_state_dict" : "base_optimizer_state",
                 SHEAF_PICKLE_DICT);
    moments = made_set(f, moments, "state", SHEAF_PICKLE_LIST);
    for (int g = 0; g < 2; g++) {
        static const char *const keys[3] = { NULL, "exp_avg", "exp_avg_sq" };
        sheaf_pickle *one = sheaf__pickle_make(f->doc, SHEAF_PICKLE_DICT);
        sheaf__pickle_append(f->doc, moments, one);
        sheaf__pickle_set(f->doc, one, "step", sheaf__pickle_make_float(f->doc, (double)h->step));
        for (unsigned kind = 0; kind < (h->momentless ? 1 : 3); kind++) {
            int64_t n;
            float *data = flat_of(&n, m, h, mp, d, g, kind);
            sheaf_pickle *t = made_put(f, SHEAF_F32, 1, &n, data);
            if (kind == 0)
                sheaf__pickle_append(f->doc, flats, t);
            else
                sheaf__pickle_set(f->doc, one, keys[kind], t);
        }
    }
    made_end(f, path);
}

/* A folder of scratch with `latest` and the tag's files. */
static const char *made_folder(const made_model *m, const how *h)
{
    static int number;
    const char *dir = textf("%s/ds%d", scratch.dir, number++);
    const char *tag = textf("global_step%" PRId64, h->tag >= 0 ? h->tag : h->step);
    CHECK_OK(sheaf__make_dirs(textf("%s/%s", dir, tag)));
    put(textf("%s/latest", dir), tag);
    for (int mp = 0; mp < h->tp; mp++) {
        if (h->stage < 3)
            put_model(textf("%s/%s/mp_rank_%02d_model_states.pt", dir, tag, mp), m, h, mp, false);
        for (int d = 0; d < h->dp && h->stage > 0; d++) {
            if (h->stage == 3)
                put_model(
                    textf("%s/%s/zero_pp_rank_%d_mp_rank_%02d_model_states.pt", dir, tag, d, mp), m,
                    h, mp, true);
            put_optimizer(textf("%s/%s/%szero_pp_rank_%d_mp_rank_%02d_optim_states.pt", dir, tag,
                                h->bf16 ? "bf16_" : "", d, mp),
                          m, h, mp, d);
        }
    }
    return dir;
}

/* Odd sizes: nothing divides evenly, and a rank may have no key/value head. */
static made_model *odd_model(void)
{
    return made_llama(37, 12, 23, 2, 6, 3, 4, false);
}

TEST(test_made__every_way_to_divide_gives_the_model_back)
{
    made_model *m = odd_model();
    for (int stage = 0; stage <= 3; stage++)
        for (int tp = 1; tp <= 4; tp++)
            for (int dp = 1; dp <= (stage == 0 || tp == 3 ? 1 : 5); dp += dp == 1 && tp < 4 ? 1 : 3)
                for (int stated = 0; stated < 2; stated++) {
                    const how h = { tp,     dp,
                                    stage,  stated ? STATE_PATTERNS : STATE_NOTHING,
                                    stated, (tp + dp) % 2,
                                    17,     -1 };
                    sheaf_catalog *c = read_at(made_folder(m, &h));
                    CHECK_SOUND(c);
                    CHECK_OK(sheaf__catalog_compare(c));
                    if (c->tp != tp || c->dp != dp || c->step != 17 || c->vocab != 37 ||
                        finding(c, SHEAF_WARNING, "replica", "") != NULL)
                        fail_msg("stage %d tp %d dp %d: facts", stage, tp, dp);
                    assert_int_equal(c->count, m->count * 3);
                    check_made(c, m, "", 0);
                    check_made(c, m, "exp_avg.", 1);
                    check_made(c, m, "exp_avg_sq.", 2);
                    if (!stated && tp > 1)
                        CHECK_FINDING(c, SHEAF_NOTE, "inferred",
                                      "universal_checkpoint_info is absent");
                    sheaf__catalog_free(c);
                }
    made_free(m);
}

TEST(test_made__an_optimizer_without_moments_leaves_the_weights)
{
    made_model *m = odd_model();
    for (int stage = 1; stage <= 3; stage++) {
        const how h = { 2, 3, stage, STATE_PATTERNS, false, false, 9, -1, true };
        check_gives(read_at(made_folder(m, &h)), m, m->count);
    }
    made_free(m);
}

static const char odd_config[] =
    "{\"model_type\": \"llama\", \"vocab_size\": 37, \"hidden_size\": 12, "
    "\"intermediate_size\": 23, \"num_hidden_layers\": 2, \"num_attention_heads\": 6, "
    "\"num_key_value_heads\": 3, \"head_dim\": 4, \"tie_word_embeddings\": false}";

/* PEFT's layers and torch.compile's around them: a rank's parts are divided as the model's own. */
TEST(test_made__wrapped_names_are_divided_as_their_own)
{
    static const how ways[] = { { 3, 1, 0, STATE_NOTHING, false, false, 17, -1 },
                                { 2, 2, 2, STATE_NOTHING, false, false, 17, -1 } };
    made_model *m = odd_model(), *wrapped = odd_model();
    for (int i = 0; i < wrapped->count; i++) {
        const char *name = m->tensor[i].name;
        snprintf(wrapped->tensor[i].name, sizeof m->tensor[i].name, "base_model.model.%.*s%s",
                 (int)(strlen(name) - strlen("weight")), name,
                 strstr(name, "proj") != NULL ? "_orig_mod.base_layer.weight" : "weight");
    }
    for (size_t i = 0; i < ARRAY_LEN(ways); i++)
        for (int config = 0; config < 2; config++) {
            const char *dir = made_folder(wrapped, &ways[i]);
            sheaf_catalog *c = NULL;
            if (config)
                put(textf("%s/config.json", dir), odd_config);
            CHECK_OK(sheaf__dialect_read(&c, &sheaf__dialect_deepspeed, dir,
                                         &(sheaf_dialect_hints){ 0 }));
            CHECK_OK(sheaf__catalog_check(c));
            CHECK_SOUND(c);
            for (int k = 0; k < m->count; k++)
                assert_non_null(sheaf__catalog_find(c, m->tensor[k].name));
            for (int k = 0; k < m->count && ways[i].stage == 0; k++)
                assert_int_equal(sheaf__catalog_find(c, m->tensor[k].name)->entry.shape[0],
                                 m->tensor[k].shape[0]);
            sheaf__catalog_free(c);
        }
    made_free(wrapped);
    made_free(m);
}

/* Norms that are 1 as at the beginning, and a layer without masters: theirs could be of its norms
 * too. Matrices tell themselves apart. */
TEST(test_made__masters_that_fit_several_weights_are_not_taken)
{
    static const char *const unsure[] = { "model.layers.0.input_layernorm.weight",
                                          "model.layers.1.input_layernorm.weight",
                                          "model.norm.weight" };
    made_model *m = odd_model();
    for (int i = 0; i < m->count; i++)
        for (int64_t k = 0; m->tensor[i].ndim == 1 && k < m->tensor[i].shape[0]; k++)
            m->tensor[i].data[k] = 1;
    frozen_part = ".layers.0.";
    for (int bf16 = 0; bf16 < 2; bf16++) {
        const how h = { 1, 1, 0, STATE_NOTHING, bf16, false, 9, -1 };
        sheaf_catalog *c = read_at(made_folder(m, &h));
        CHECK_SOUND(c);
        CHECK_FINDING(c, bf16 ? SHEAF_WARNING : SHEAF_NOTE, bf16 ? "inferred" : "unsupported",
                      bf16 ? "3 that fit several" : "its moments are not read");
        const sheaf_dtype rounded = bf16 ? SHEAF_BF16 : SHEAF_F32;
        for (size_t i = 0; i < ARRAY_LEN(unsure); i++)
            assert_int_equal(sheaf__catalog_find(c, unsure[i])->entry.dtype, rounded);
        assert_int_equal(sheaf__catalog_find(c, "lm_head.weight")->entry.dtype, SHEAF_F32);
        assert_int_equal(c->count, m->count + (bf16 ? 2 * 9 : 0));
        sheaf__catalog_free(c);
    }
    frozen_part = NULL;
    made_free(m);
}

TEST(test_made__the_tag_a_file_and_the_folder_above_are_the_same)
{
    made_model *m = odd_model();
    const how h = { 2, 2, 1, STATE_PATTERNS, false, false, 9, -1 };
    const char *dir = made_folder(m, &h);
    static const char *const inside[] = { "", "/global_step9",
                                          "/global_step9/mp_rank_01_model_states.pt" };
    for (size_t i = 0; i < ARRAY_LEN(inside); i++) {
        const char *path = textf("%s%s", dir, inside[i]);
        assert_ptr_equal(sheaf__dialect_of(path), &sheaf__dialect_deepspeed);
        check_gives(read_at(path), m, 0);
    }
    made_free(m);
}

/* ---- harm ---- */

/* Damage to a file of a synthetic folder, and the expected finding. */
TEST(test_harm__is_named)
{
    made_model *m = odd_model();
    const how zero1 = { 2, 3, 1, STATE_PATTERNS, true, false, 9, -1 },
              zero3 = { 1, 3, 3, STATE_NOTHING, false, false, 9, -1 },
              lean = { 1, 5, 1, STATE_NOTHING, false, true, 9, -1 };
    const how plain = { 3, 1, 0, STATE_PATTERNS, false, false, 9, -1 };
    const struct {
        const how *how;
        harm harm;
        const char *code, *part, *a, *b;
    } cases[] = {
        { &zero1, REMOVED, "missing", "mp_rank_01_model_states.pt", "mp_rank_01_model_states.pt" },
        { &plain, REMOVED, "missing", "mp_rank_02_model_states.pt", "mp_rank_02_model_states.pt" },
        { &plain, REMOVED, "missing", "rows 25..36 of 37", "mp_rank_02_model_states.pt" },
        { &zero1, REMOVED, "missing", "zero_pp_rank_1_mp_rank_00_optim_states.pt",
          "bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt" },
        { &zero1, REMOVED, "missing", "to 'model.norm.weight'",
          "bf16_zero_pp_rank_2_mp_rank_01_optim_states.pt" },
        { &zero1, REMOVED, "missing", "model.embed_tokens.weight",
          "bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt" },
        { &zero3, REMOVED, "missing", "21 tensors", "zero_pp_rank_1_mp_rank_00_optim_states.pt" },
        { &lean, REMOVED, "missing", "124 of 144 elements", /* all that the first part held */
          "zero_pp_rank_0_mp_rank_00_optim_states.pt" },
        { &zero1, CUT_SHORT, "damaged", "zero_pp_rank_1_mp_rank_00_optim",
          "bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt" },
        { &zero1, CUT_SHORT, "missing", "a damaged file", /* and what it held */
          "bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt" },
        { &plain, CUT_SHORT, "damaged", "mp_rank_01_model_states.pt",
          "mp_rank_01_model_states.pt" },
        { &zero1, SWAPPED, "conflict", "of another step or rank", /* masters of two ranks */
          "bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt",
          "bf16_zero_pp_rank_1_mp_rank_01_optim_states.pt" },
        { &zero1, SWAPPED, "conflict", "of another step or rank", /* of two parts */
          "bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt",
          "bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt" },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const char *dir = made_folder(m, cases[i].how);
        do_harm(cases[i].harm, textf("%s/global_step9/%s", dir, cases[i].a),
                textf("%s/global_step9/%s", dir, cases[i].b == NULL ? "" : cases[i].b));
        check_found(read_at(dir), SHEAF_DEFECT, cases[i].code, cases[i].part);
    }
    made_free(m);
}

/* What an interrupted download lacks, or puts under the other's name: nothing of a replicated
 * tensor is left. */
TEST(test_harm__files_of_two_kinds_lost_or_swapped_are_named)
{
    made_model *m = odd_model();
    const how h = { 2, 1, 1, STATE_PATTERNS, false, false, 9, -1 };
    for (int swapped = 0; swapped < 2; swapped++) {
        const char *dir = made_folder(m, &h);
        const char *a = textf("%s/global_step9/mp_rank_00_model_states.pt", dir);
        const char *b = textf("%s/global_step9/zero_pp_rank_0_mp_rank_01_optim_states.pt", dir);
        if (swapped)
            swap_files(a, b);
        else
            assert_int_equal(unlink(a) | unlink(b), 0);
        sheaf_catalog *c = read_at(dir);
        CHECK_FINDING(c, SHEAF_DEFECT, "missing", "model.norm.weight");
        CHECK_OK(sheaf__catalog_compare(c));
        check_no_source(c);
    }
    made_free(m);
}

static void put_param(const char *dir, const char *file, const made_tensor *t, int bare,
                      unsigned seed)
{
    made_file *f = made_begin();
    const int64_t begin[2] = { 0, 0 }, size[2] = { t->shape[0], t->ndim == 2 ? t->shape[1] : 1 };
    sheaf_pickle *value =
        bare ? made_put(f, SHEAF_F32, 0, NULL, made_slice(t, begin, (int64_t[]){ 1, 1 }, seed))
             : made_put(f, SHEAF_F32, t->ndim, t->shape, made_slice(t, begin, size, seed));
    if (bare)
        f->root = value;
    else
        sheaf__pickle_set(f->doc, f->root, "param", value);
    made_end(f, textf("%s/%s", dir, file));
}

static const char *const states[] = { "fp32.pt", "exp_avg.pt", "exp_avg_sq.pt", "step.pt" };

/* zero/NAME/STATE of all tensors; the step is a bare number. One number throughout: all of the
 * norms of layers, and where nothing was `trained` all moments. */
static const char *put_universal(const made_model *m, const char *under, bool trained)
{
    for (int i = 0; i < m->count; i++) {
        made_tensor flat = m->tensor[i];
        const char *dir = textf("%s/global_step3_universal/zero/%s", at(under), flat.name);
        CHECK_OK(sheaf__make_dirs(dir));
        flat.data = calloc((size_t)made_elements(&flat), sizeof *flat.data);
        assert_non_null(flat.data);
        for (int k = 0; k < 4; k++) {
            const bool one = strstr(flat.name, "layernorm") != NULL || (k > 0 && !trained);
            put_param(dir, states[k], one ? &flat : &m->tensor[i], k == 3, one ? 0 : (unsigned)k);
        }
        free(flat.data);
    }
    put(textf("%s/latest_universal", at(under)), "global_step3_universal");
    return at(under);
}

/* Of the last parameter step.pt and another file are each other. */
TEST(test_harm__states_of_a_universal_checkpoint_that_are_no_values_are_named)
{
    made_model *m = odd_model();
    for (int swapped = 0; swapped < 4; swapped++) { /* 3: none */
        const char *name = m->tensor[m->count - 1].name;
        const char *dir = put_universal(m, textf("uni%d", swapped), true);
        const char *of = textf("%s/global_step3_universal/zero/%s", dir, name);
        if (swapped < 3)
            swap_files(textf("%s/%s", of, states[swapped]), textf("%s/step.pt", of));
        sheaf_catalog *c = read_at(dir);
        bool ranks_unknown = false;
        CHECK_OK(sheaf__catalog_rank_notes(&ranks_unknown, c));
        assert_true(ranks_unknown);
        CHECK_FINDING(c, SHEAF_NOTE, "inferred", "files of one shape that were swapped");
        if (swapped == 3)
            want_found(c, 0, NULL, NULL);
        else
            want_found(c, -1, "shape", name);
    }
    made_free(m);
}

/* One parameter's file, or all three, under another's name. Parameters that nothing trained may be
 * alike, and so may a table and its head. */
TEST(test_harm__a_parameter_copied_over_another_is_named)
{
    static const struct {
        const char *from, *to; /* in zero/ */
        bool trained, told;
    } copies[] = {
        { "model.layers.0.mlp.up_proj.weight/fp32.pt", "model.layers.1.mlp.up_proj.weight/fp32.pt",
          true, true },
        { "model.layers.0.mlp.up_proj.weight/exp_avg_sq.pt",
          "model.layers.0.mlp.gate_proj.weight/exp_avg_sq.pt", true, true },
        { "model.layers.0.mlp.up_proj.weight/fp32.pt", "model.layers.1.mlp.up_proj.weight/fp32.pt",
          false, false },
        { "model.embed_tokens.weight/fp32.pt", "lm_head.weight/fp32.pt", true, false },
    };
    made_model *m = odd_model();
    for (size_t i = 0; i < ARRAY_LEN(copies); i++) {
        const char *dir = put_universal(m, textf("copy%zu", i), copies[i].trained);
        want_found(read_at(dir), 0, NULL, NULL);
        copy_file(textf("%s/global_step3_universal/zero/%s", dir, copies[i].to),
                  textf("%s/global_step3_universal/zero/%s", dir, copies[i].from));
        sheaf_catalog *c = read_at(dir);
        if (copies[i].told)
            CHECK_FINDING(c, SHEAF_DEFECT, "duplicate", copies[i].from);
        want_found(c, copies[i].told, copies[i].told ? "duplicate" : NULL, copies[i].to);
    }
    made_free(m);
}

/* Files of an older step under the names of a newer one. */
TEST(test_harm__parts_of_another_step_are_stale)
{
    made_model *m = odd_model();
    const how now = { 2, 2, 1, STATE_PATTERNS, false, false, 9, -1 },
              before = { 2, 2, 1, STATE_PATTERNS, false, false, 8, 9 };
    static const char *const files[] = { "mp_rank_01_model_states.pt",
                                         "zero_pp_rank_1_mp_rank_00_optim_states.pt" };
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        const char *old = textf("%s/global_step9/%s", made_folder(m, &before), files[i]);
        const char *dir = made_folder(m, &now);
        assert_int_equal(rename(old, textf("%s/global_step9/%s", dir, files[i])), 0);
        want_found(read_at(dir), 1, "stale", files[i]);
    }
    want_found(read_at(made_folder(m, &before)), -1, "stale", "step 8"); /* all of them */
    made_free(m);
}

TEST(test_made__without_optimizer_files_the_rounded_weights_are_used)
{
    made_model *m = odd_model();
    const how h = { 2, 2, 1, STATE_PATTERNS, true, false, 9, -1 };
    const char *dir = made_folder(m, &h);
    for (int mp = 0; mp < 2; mp++)
        for (int d = 0; d < 2; d++) {
            const char *name = textf("bf16_zero_pp_rank_%d_mp_rank_%02d_optim_states.pt", d, mp);
            assert_int_equal(unlink(textf("%s/global_step9/%s", dir, name)), 0);
        }
    sheaf_catalog *c = read_at(dir);
    CHECK_SOUND(c);
    CHECK_FINDING(c, SHEAF_WARNING, "missing", "rounded to the training dtype");
    assert_int_equal(c->count, m->count);
    assert_int_equal(sheaf__catalog_find(c, "lm_head.weight")->entry.dtype, SHEAF_BF16);
    assert_int_equal(sheaf__catalog_find(c, "lm_head.weight")->entry.shape[0], 37);
    sheaf__catalog_free(c);
    made_free(m);
}

/* Of stage 0 nothing but their values names the masters. */
TEST(test_harm__masters_of_stage_0_that_round_to_no_weight_are_named)
{
    made_model *m = odd_model(), *other = odd_model();
    for (int flat = 0; flat < 2; flat++) {
        const how h = { 1, 1, 0, STATE_NOTHING, true, flat, 9, -1 };
        const char *dir = made_folder(m, &h);
        sheaf_catalog *c = read_at(dir);
        CHECK_SOUND(c);
        CHECK_FINDING(c, SHEAF_NOTE, "inferred", "float32 masters");
        check_made(c, m, "", 0);
        sheaf__catalog_free(c);
        /* the last element of the table, in the last row that is looked at */
        other->tensor[0].data[made_elements(&other->tensor[0]) - 1] += 1;
        const char *path = textf("%s/global_step9/mp_rank_00_model_states.pt", dir);
        assert_int_equal(unlink(path), 0);
        stale_weights = other;
        put_model(path, m, &h, 0, false);
        stale_weights = NULL;
        check_found(read_at(dir), SHEAF_DEFECT, "conflict", "number 0 of group 0");
        other->tensor[0].data[made_elements(&other->tensor[0]) - 1] -= 1;
    }
    made_free(other);
    made_free(m);
}

/* Recorded parts that changed places: their zip folders still have the old names, and where shapes
 * are uneven (a vocabulary that is odd, an empty part) affine_map says so too. */
TEST(test_harm__renamed_parts_are_told_by_the_name_they_were_saved_under)
{
    int found = 0, uneven = 0;
    if (!golden_is_full())
        skip();
    const char *root = textf("%s", golden("llama/deepspeed"));
    DIR *list = opendir(root);
    assert_non_null(list);
    for (struct dirent *entry; (entry = readdir(list)) != NULL;) {
        if (strstr(entry->d_name, "universal") != NULL || entry->d_name[0] == '.')
            continue;
        const char *dir = textf("%s/renamed_%s", scratch.dir, entry->d_name);
        copy_tree(dir, textf("%s/%s", root, entry->d_name));
        const char *a =
            textf("%s/global_step%" PRId64 "/mp_rank_00_model_states.pt", dir, step_in(dir));
        const char *b =
            textf("%s/global_step%" PRId64 "/mp_rank_01_model_states.pt", dir, step_in(dir));
        if (sheaf__path_kind(b) != SHEAF_PATH_FILE)
            continue;
        swap_files(a, b);
        sheaf_catalog *c = read_at(dir);
        CHECK_FINDING(c, SHEAF_DEFECT, "conflict", "saved as mp_rank_00_model_states.pt");
        CHECK_FINDING(c, SHEAF_DEFECT, "conflict", "saved as mp_rank_01_model_states.pt");
        uneven += finding(c, SHEAF_DEFECT, "conflict", "affine_map") != NULL;
        sheaf__catalog_free(c);
        found++;
    }
    closedir(list);
    assert_true(found >= 1 && uneven >= 1);
}

/* ---- small folders ---- */

/* Fills the file of rank `mp`, whose module is there. */
typedef void (*filler)(made_file *f, sheaf_pickle *module, int mp);

static const char *small_folder(int tp, filler fill)
{
    static int number;
    const char *dir = textf("%s/small%d/global_step1", scratch.dir, number++);
    CHECK_OK(sheaf__make_dirs(dir));
    for (int mp = 0; mp < tp; mp++) {
        made_file *f = made_begin();
        fill(f, made_set(f, f->root, "module", SHEAF_PICKLE_DICT), mp);
        made_set_int(f, f->root, "mp_world_size", tp);
        made_set_int(f, f->root, "global_steps", 1);
        made_end(f, textf("%s/mp_rank_%02d_model_states.pt", dir, mp));
    }
    return dir;
}

/* Rows of a matrix whose elements are numbered; `row` lists them, -1 ends. */
static void put_rows(made_file *f, sheaf_pickle *module, const char *name, int64_t cols,
                     const int *row)
{
    int64_t n = 0;
    float *data = malloc(400 * sizeof *data);
    assert_non_null(data);
    for (; *row >= 0; row++)
        for (int64_t c = 0; c < cols; c++)
            data[n++] = (float)(*row * cols + c);
    sheaf__pickle_set(f->doc, module, name,
                      made_put(f, SHEAF_F32, 2, (int64_t[]){ n / cols, cols }, data));
}

static void check_rows(const sheaf_catalog *c, const char *name, int64_t rows, int64_t cols)
{
    const sheaf_logical *l = sheaf__catalog_find(c, name);
    int64_t size;
    if (l == NULL || l->entry.ndim != 2 || l->entry.shape[0] != rows || l->entry.shape[1] != cols) {
        print_findings(c);
        fail_msg("'%s' is missing or of another shape", name);
    }
    float *got = bytes_of(c, l, &size);
    for (int64_t i = 0; i < rows * cols; i++)
        CHECK_NEAR(name, got[i], (double)i, 0);
    free(got);
}

static sheaf_pickle *put_list(made_file *f, sheaf_pickle *dict, const char *key, const char *text)
{
    sheaf_pickle *list = made_set(f, dict, key, SHEAF_PICKLE_LIST);
    sheaf__pickle_append(f->doc, list, sheaf__pickle_make_string(f->doc, text));
    return list;
}

static void fill_subs(made_file *f, sheaf_pickle *module, int mp)
{
    /* gate 0..3 and up 4..7, two rows of each in a rank; q 0..5 as 4 + 2, k 6..7 and v 8..9 as 1 +
     * 1 */
    static const int halves[2][5] = { { 0, 1, 4, 5, -1 }, { 2, 3, 6, 7, -1 } },
                     qkv[2][7] = { { 0, 1, 2, 3, 6, 8, -1 }, { 4, 5, 7, 9, -1 } };
    static const int even[2][4] = { { 0, 2, 4, -1 }, { 1, 3, 5, -1 } },
                     rest[2][3] = { { 0, 1, -1 }, { 2, -1 } };
    put_rows(f, module, "a.halves", 3, halves[mp]);
    put_rows(f, module, "a.qkv", 3, qkv[mp]);
    put_rows(f, module, "a.even", 3, even[mp]);
    put_rows(f, module, "a.rest", 3, rest[mp]);
    put_rows(f, module, "a.average", 3, rest[0]);
    sheaf_pickle *info = made_set(f, f->root, "universal_checkpoint_info", SHEAF_PICKLE_DICT);
    put_list(f, info, "parameter_with_2_sub_params_cat_dim_0", "a.halves$");
    put_list(f, info, "parameter_to_average_patterns", "a\\.av.*");
    sheaf_pickle *subs = made_set(f, info, "parameter_with_sub_params", SHEAF_PICKLE_LIST);
    for (int k = 0; k < 2; k++) {
        sheaf_pickle *one = sheaf__pickle_make(f->doc, SHEAF_PICKLE_DICT),
                     *shape = made_set(f, one, "shape", SHEAF_PICKLE_TUPLE);
        put_list(f, one, "patterns", k == 0 ? "a.qkv" : "a.even");
        sheaf__pickle_append(f->doc, shape,
                             k == 0 ? made_shape(f, 3, (int64_t[]){ 6, 2, 2 })
                                    : sheaf__pickle_make_int(f->doc, 3));
        sheaf__pickle_append(f->doc, shape, sheaf__pickle_make_int(f->doc, 3));
        made_set_int(f, one, "partition_dim", 0);
        sheaf__pickle_append(f->doc, subs, one);
    }
    sheaf_pickle *widths =
        made_set(f, made_set(f, info, "sub_param_shard_widths", SHEAF_PICKLE_DICT), "a.qkv",
                 SHEAF_PICKLE_LIST);
    sheaf__pickle_append(f->doc, widths, made_shape(f, 2, (int64_t[]){ 4, 2 }));
    sheaf__pickle_append(f->doc, widths, made_shape(f, 2, (int64_t[]){ 1, 1 }));
    sheaf__pickle_append(f->doc, widths, made_shape(f, 2, (int64_t[]){ 1, 1 }));
}

TEST(test_made__fused_parameters_are_taken_apart_as_stated)
{
    sheaf_catalog *c = read_at(small_folder(2, fill_subs));
    CHECK_SOUND(c);
    check_rows(c, "a.halves", 8, 3);
    check_rows(c, "a.qkv", 10, 3);
    check_rows(c, "a.even", 6, 3);
    check_rows(c, "a.rest", 3, 3);
    check_rows(c, "a.average", 2, 3);
    assert_true(sheaf__catalog_find(c, "a.average")->replicated);
    sheaf__catalog_free(c);
}

static void fill_unstated(made_file *f, sheaf_pickle *module, int mp)
{
    static const int rows[2][4] = { { 0, 1, -1 }, { 2, 3, -1 } },
                     uneven[2][4] = { { 0, 1, -1 }, { 2, -1 } };
    put_rows(f, module, "model.layers.0.self_attn.q_proj.weight", 3, rows[mp]);
    sheaf__pickle_set(f->doc, module, "model.layers.0.self_attn.q_proj.bias",
                      made_put(f, SHEAF_F32, 1, (int64_t[]){ 2 }, calloc(2, 4)));
    sheaf__pickle_set(f->doc, module, "model.layers.0.self_attn.o_proj.bias",
                      made_put(f, SHEAF_F32, 1, (int64_t[]){ 3 }, calloc(3, 4)));
    put_rows(f, module, "model.layers.1.self_attn.q_proj.weight", 3,
             rows[0]); /* the same in both */
    put_rows(f, module, "model.embed_tokens.weight", 3, rows[0]);
    put_rows(f, module, "lm_head.weight", 3, rows[mp]);
    put_rows(f, module, "model.uneven", 3, uneven[mp]);
    put_rows(f, module, "model.even", 3, rows[mp]);
    put_rows(f, module, "model.again.weight", 3, rows[0]);
    sheaf_pickle *shared = made_set(f, f->root, "shared_params", SHEAF_PICKLE_DICT);
    sheaf__pickle_set(f->doc, shared, "model.other.weight",
                      sheaf__pickle_make_string(f->doc, "model.uneven"));
}

/* Six heads of width two, three of keys and values, two of them in the first rank; an MLP of five,
 * three in the first. */
static void fill_fused(made_file *f, sheaf_pickle *module, int mp)
{
    static const int qkv[2][17] = {
        { 0, 1, 2, 3, 4, 5, 6, 7, 12, 13, 14, 15, 18, 19, 20, 21, -1 },
        { 8, 9, 10, 11, 16, 17, 22, 23, -1 },
    };
    static const int gate_up[2][7] = { { 0, 1, 2, 5, 6, 7, -1 }, { 3, 4, 8, 9, -1 } };
    put_rows(f, module, "model.layers.0.self_attn.qkv_proj.weight", 12, qkv[mp]);
    put_rows(f, module, "model.layers.0.mlp.gate_up_proj.weight", 12, gate_up[mp]);
}

TEST(test_made__fused_tensors_are_joined_part_by_part)
{
    static const char phi3[] =
        "{\"model_type\": \"phi3\", \"vocab_size\": 37, \"hidden_size\": 12, "
        "\"intermediate_size\": 5, \"num_hidden_layers\": 1, \"num_attention_heads\": %d, "
        "\"num_key_value_heads\": 3, \"tie_word_embeddings\": false, \"pad_token_id\": 0, "
        "\"bos_token_id\": 1, \"eos_token_id\": 2}";
    const char *dir = small_folder(2, fill_fused);
    sheaf_catalog *c = read_at(dir);
    CHECK_FINDING(c, SHEAF_DEFECT, "unsupported",
                  "fused tensor"); /* not one rank after the other */
    assert_null(sheaf__catalog_find(c, "model.layers.0.self_attn.qkv_proj.weight"));
    assert_null(sheaf__catalog_find(c, "model.layers.0.mlp.gate_up_proj.weight"));
    sheaf__catalog_free(c);
    put(textf("%s/config.json", dir), textf(phi3, 6));
    c = read_at(dir);
    check_rows(c, "model.layers.0.self_attn.qkv_proj.weight", 24, 12);
    check_rows(c, "model.layers.0.mlp.gate_up_proj.weight", 10, 12);
    sheaf__catalog_free(c);
}

static void put_iteration(const char *path, bool sat, const char *name)
{
    made_file *f = made_begin();
    put_rows(f, made_set(f, f->root, "module", SHEAF_PICKLE_DICT), name, 3,
             (const int[]){ 0, 1, -1 });
    made_set_int(f, f->root, "global_steps", 7);
    if (sat)
        made_set_int(f, f->root, "iteration", 7);
    made_end(f, path);
}

/* SAT names its tags by numbers, and other programs may: what is in the files decides. */
TEST(test_made__a_number_for_a_tag_does_not_make_it_sat)
{
    static const struct {
        bool sat;
        const char *name, *config;
        bool is_sat;
    } rows[] = {
        { false, "model.norm.weight", NULL, false },
        { true, "model.norm.weight", NULL, true },
        { false, "mixins.lm.lm_head.weight", NULL, true },
        { false, "model.norm.weight", "model_config.json", true }, /* DeepSpeed does not write it */
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        const char *save = textf("%s/numbered%zu", scratch.dir, i);
        CHECK_OK(sheaf__make_dirs(textf("%s/7", save)));
        put_iteration(textf("%s/7/mp_rank_00_model_states.pt", save), rows[i].sat, rows[i].name);
        put(textf("%s/latest", save), "7");
        const char *path = textf("%s/%s", save, rows[i].config != NULL ? rows[i].config : "notes");
        put(path, "{}");
        for (int k = 0; k < 3; k++) {
            path = textf("%s%s", save,
                         k == 0   ? ""
                         : k == 1 ? "/7"
                                  : "/7/mp_rank_00_model_states.pt");
            const sheaf_dialect *d = sheaf__dialect_of(path);
            if (d == NULL || strcmp(d->name, rows[i].is_sat ? "sat" : "deepspeed") != 0)
                fail_msg("%s: %s", path, d == NULL ? "none" : d->name);
        }
    }
}

/* Names, shapes and values decide; a bias of zeros follows its weight; what they cannot decide is
 * refused. */
TEST(test_made__what_is_not_stated_is_inferred_or_refused)
{
    sheaf_catalog *c = read_at(small_folder(2, fill_unstated));
    check_rows(c, "model.layers.0.self_attn.q_proj.weight", 4, 3);
    assert_int_equal(sheaf__catalog_find(c, "model.layers.0.self_attn.q_proj.bias")->entry.shape[0],
                     4);
    assert_int_equal(sheaf__catalog_find(c, "model.layers.0.self_attn.o_proj.bias")->entry.shape[0],
                     3);
    assert_true(sheaf__catalog_find(c, "model.layers.1.self_attn.q_proj.weight")->replicated);
    check_rows(c, "model.embed_tokens.weight", 2, 3);
    check_rows(c, "lm_head.weight", 4, 3);
    check_rows(c, "model.uneven", 3, 3);
    check_rows(c, "model.other.weight", 3, 3);
    check_rows(c, "model.again.weight", 2, 3);
    assert_null(sheaf__catalog_find(c, "model.even"));
    want_found(c, 1, "unsupported", "model.even");
}

static void fill_others(made_file *f, sheaf_pickle *module, int mp)
{
    static const int rows[2][3] = { { 0, 1, -1 }, { 2, 3, -1 } };
    put_rows(f, module, "a.weight", 3, rows[mp]);
    sheaf_pickle *info = made_set(f, f->root, "universal_checkpoint_info", SHEAF_PICKLE_DICT);
    put_list(f, info, "vocabulary_parameter_patterns", mp == 0 ? "a.weight" : "b.weight");
}

TEST(test_harm__parts_with_patterns_of_another_save_are_named)
{
    check_found(read_at(small_folder(2, fill_others)), SHEAF_DEFECT, "conflict",
                "it differs from that of");
}

static void fill_hostile(made_file *f, sheaf_pickle *module, int mp)
{
    static const int rows[2][3] = { { 0, 1, -1 }, { 2, 3, -1 } };
    put_rows(f, module, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!", 3, rows[mp]);
    sheaf_pickle *info = made_set(f, f->root, "universal_checkpoint_info", SHEAF_PICKLE_DICT);
    sheaf_pickle *list = put_list(f, info, "tp_replicated_parameter_patterns", "(");
    for (int i = 0; i < 300; i++)
        sheaf__pickle_append(f->doc, list, sheaf__pickle_make_string(f->doc, "^(a+)+$"));
}

TEST(test_harm__patterns_that_never_end_are_given_up)
{
    sheaf_catalog *c = read_at(small_folder(2, fill_hostile));
    CHECK_FINDING(c, SHEAF_DEFECT, "unsupported", "take too long");
    check_found(c, SHEAF_DEFECT, "damaged", "a regular expression");
}

TEST(test_harm__a_model_file_without_a_module_is_named)
{
    const char *dir = small_folder(2, fill_others),
               *path = textf("%s/mp_rank_01_model_states.pt", dir);
    made_file *f = made_begin();
    made_set_int(f, f->root, "mp_world_size", 2);
    assert_int_equal(unlink(path), 0);
    made_end(f, path);
    check_found(read_at(dir), SHEAF_DEFECT, "foreign", "mp_rank_01 | with 'module'");
}

/* With a config the shapes decide, and rows beyond the vocabulary are padding. */
TEST(test_made__a_config_tells_padding_from_rows)
{
    made_model *m = made_llama(40, 12, 24, 1, 6, 2, 2, true);
    const how h = { 2, 1, 0, STATE_NOTHING, false, false, 9, -1 };
    const char *dir = made_folder(m, &h);
    put(textf("%s/config.json", dir),
        "{\"model_type\": \"llama\", \"vocab_size\": 37, \"hidden_size\": 12, \"intermediate_size\": 24, "
        "\"num_hidden_layers\": 1,"
        " \"num_attention_heads\": 6, \"num_key_value_heads\": 2, \"head_dim\": 2, \"tie_word_embeddings\": false}");
    sheaf_catalog *c = read_at(dir);
    CHECK_SOUND(c);
    CHECK_FINDING(c, SHEAF_NOTE, "inferred", "from their shapes and the config");
    assert_string_equal(c->model, "llama");
    assert_int_equal(c->vocab, 37);
    for (int i = 0; i < m->count; i++) /* as the model without its last rows */
        if (m->tensor[i].shape[0] == 40)
            m->tensor[i].shape[0] = 37;
    check_made(c, m, "", 0);
    sheaf__catalog_free(c);
    made_free(m);
}

/* ---- frozen parameters ---- */

/* zero/NAME/fp32.pt of the tensors from number `first` on; ZeRO 3 leaves them flat. */
static void put_flat_states(const char *dir, const made_model *m, int first, bool flat, int less)
{
    for (int i = first; i < m->count; i++) {
        const made_tensor *t = &m->tensor[i];
        const int64_t n = made_elements(t) - (i == m->count - 1 ? less : 0), begin[2] = { 0 },
                      all[2] = { t->shape[0], t->ndim == 2 ? t->shape[1] : 1 };
        made_file *f = made_begin();
        const char *path = textf("%s/global_step9/zero/%s", dir, t->name);
        CHECK_OK(sheaf__make_dirs(path));
        sheaf__pickle_set(f->doc, f->root, "param",
                          made_put(f, SHEAF_F32, flat ? 1 : t->ndim, flat ? &n : t->shape,
                                   made_slice(t, begin, all, 0)));
        made_end(f, textf("%s/fp32.pt", path));
    }
}

/* The first tensor of the model is frozen: it has no place in the flat groups. */
TEST(test_made__frozen_parameters_come_from_their_fragments)
{
    made_model *m = odd_model();
    for (int stage = 2; stage <= 3; stage++) {
        const how h = { 1, 5, stage, STATE_NOTHING, false, false, 9, -1 };
        const made_tensor frozen = m->tensor[0];
        m->count--;
        memmove(m->tensor, m->tensor + 1, (size_t)m->count * sizeof *m->tensor);
        const char *dir = made_folder(m, &h);
        memmove(m->tensor + 1, m->tensor, (size_t)m->count * sizeof *m->tensor);
        m->tensor[0] = frozen;
        m->count++;
        for (int d = 0; d < (stage == 3 ? 5 : 1); d++) { /* the model's files again, with it */
            const char *name = stage == 3 ? textf("zero_pp_rank_%d_mp_rank_00_model_states.pt", d)
                                          : "mp_rank_00_model_states.pt";
            const char *path = textf("%s/global_step9/%s", dir, name);
            assert_int_equal(unlink(path), 0);
            made_file *f = made_begin();
            made_set(f, f->root, "module", SHEAF_PICKLE_DICT);
            sheaf_pickle *shapes = sheaf__pickle_make(f->doc, SHEAF_PICKLE_DICT);
            sheaf_pickle *list = made_set(f, f->root, "param_shapes", SHEAF_PICKLE_LIST),
                         *second = sheaf__pickle_make(f->doc, SHEAF_PICKLE_DICT);
            sheaf__pickle_append(f->doc, list, shapes);
            sheaf__pickle_append(f->doc, list, second);
            for (int i = 1; i < m->count; i++)
                sheaf__pickle_set(f->doc, in_group(&m->tensor[i], 0) ? shapes : second,
                                  m->tensor[i].name,
                                  made_shape(f, m->tensor[i].ndim, m->tensor[i].shape));
            sheaf__pickle_set(f->doc,
                              made_set(f, f->root, "frozen_param_shapes", SHEAF_PICKLE_DICT),
                              frozen.name, made_shape(f, frozen.ndim, frozen.shape));
            const int64_t n = made_elements(&frozen), each = stage == 3 ? (n + 4) / 5 : n;
            float *data = calloc((size_t)each, sizeof *data);
            assert_non_null(data);
            for (int64_t k = 0; k < each && d * each + k < n; k++)
                data[k] = frozen.data[d * each + k];
            sheaf__pickle_set(f->doc,
                              made_set(f, f->root, "frozen_param_fragments", SHEAF_PICKLE_DICT),
                              frozen.name,
                              made_put(f, SHEAF_F32, stage == 3 ? 1 : 2,
                                       stage == 3 ? &each : frozen.shape, data));
            made_set_int(f, f->root, "dp_world_size", 5);
            made_set_int(f, f->root, "mp_world_size", 1);
            made_set_int(f, f->root, "global_steps", 9);
            made_end(f, path);
        }
        sheaf_catalog *c = read_at(dir);
        CHECK_SOUND(c);
        check_made(c, m, "", 0);
        assert_null(sheaf__catalog_find(c, "exp_avg.model.embed_tokens.weight"));
        sheaf__catalog_free(c);
        if (stage == 3) { /* a flat one has the elements of its shape */
            put_flat_states(dir, m, 1, true, 1);
            check_found(read_at(dir), SHEAF_DEFECT, "shape", "[443]");
            CHECK_OK(sheaf__remove_tree(textf("%s/global_step9/zero", dir)));
        }
        put_flat_states(dir, m, 1, stage == 3, 0);
        check_gives(read_at(dir), m, m->count);
        for (int d = 0; d < 5 && stage == 3; d++) /* without what says the shapes */
            assert_int_equal(
                unlink(textf("%s/global_step9/zero_pp_rank_%d_mp_rank_00_model_states.pt", dir, d)),
                0);
        if (stage == 3) {
            check_found(read_at(dir), SHEAF_DEFECT, "shape", "ZeRO 3 left them flat");
            CHECK_OK(sheaf__remove_tree(textf("%s/global_step9/zero", dir)));
            put_flat_states(dir, m, 0, true, 0);
            put(textf("%s/config.json", dir), odd_config);
            check_gives(read_at(dir), m, m->count);
        }
    }
    made_free(m);
}

/* ---- layers of a pipeline ---- */

TEST(test_made__layers_of_a_pipeline_are_told_by_what_they_hold)
{
    made_model *m = odd_model();
    static const char *const removed[] = {
        NULL, "layer_02-model_01", "layer_05-model_00"
    }; /* none, of a decoder layer, of the head */
    for (int harm = 0; harm < 3; harm++) {
        const char *dir = textf("%s/layers%d", scratch.dir, harm);
        CHECK_OK(sheaf__make_dirs(dir));
        for (int layer = 0; layer < 5; layer++)
            for (int tp = 0; tp < 2; tp++) {
                made_file *f = made_begin();
                for (int i = 0; i < m->count; i++) {
                    const made_tensor *t = &m->tensor[i];
                    const char *prefix = textf("model.layers.%d.", layer - 1);
                    const bool inside =
                        layer > 0 && layer < 3 && strncmp(t->name, prefix, strlen(prefix)) == 0;
                    const char *whole = layer == 0   ? "model.embed_tokens.weight"
                                        : layer == 3 ? "model.norm.weight"
                                        : layer == 4 ? "lm_head.weight"
                                                     : "";
                    int64_t begin[2], size[2];
                    if (!inside && strcmp(t->name, whole) != 0)
                        continue;
                    made_box(t, tp, 2, begin, size);
                    sheaf__pickle_set(
                        f->doc, f->root, inside ? t->name + strlen(prefix) : "weight",
                        made_put(f, SHEAF_F32, t->ndim, size, made_slice(t, begin, size, 0)));
                }
                made_end(f, textf("%s/layer_%02d-model_%02d-model_states.pt", dir, layer + 1, tp));
            }
        if (harm > 0)
            assert_int_equal(unlink(textf("%s/%s-model_states.pt", dir, removed[harm])), 0);
        sheaf_catalog *c = read_at(dir);
        CHECK_FINDING(c, SHEAF_NOTE, "inferred", "2 decoder layers");
        if (harm) {
            CHECK_FINDING(c, SHEAF_DEFECT, "missing", removed[harm]);
        } else {
            CHECK_SOUND(c);
            check_made(c, m, "", 0);
            assert_int_equal(c->tp, 2);
        }
        sheaf__catalog_free(c);
    }
    made_free(m);
}

/* ---- pieces ---- */

TEST(test_boxes__a_range_of_elements_is_a_few_boxes)
{
    const int64_t shape[3] = { 3, 4, 5 };
    const sheaf_piece first = { .dtype = SHEAF_F32, .offset = 1000 };
    for (int64_t begin = 0; begin <= 60; begin++)
        for (int64_t end = begin; end <= 60; end++) {
            sheaf_piece box[SHEAF_RANGE_BOXES];
            int seen[60] = { 0 };
            const int n = sheaf__range_boxes(box, &first, 3, shape, begin, end);
            assert_true(n <= 5);
            for (int i = 0; i < n; i++)
                for (int64_t a = 0; a < box[i].size[0]; a++)
                    for (int64_t b = 0; b < box[i].size[1]; b++)
                        for (int64_t c = 0; c < box[i].size[2]; c++) {
                            const int64_t element =
                                ((box[i].begin[0] + a) * 4 + box[i].begin[1] + b) * 5 +
                                box[i].begin[2] + c;
                            const int64_t at =
                                box[i].offset + (a * box[i].stride[0] + b * box[i].stride[1] +
                                                 c * box[i].stride[2]) *
                                                    4;
                            assert_true(element >= begin && element < end &&
                                        at == 1000 + (element - begin) * 4);
                            seen[element]++;
                        }
            for (int64_t e = 0; e < 60; e++)
                assert_int_equal(seen[e], e >= begin && e < end);
        }
}

TEST(test_boxes__the_name_a_file_was_saved_under)
{
    const struct {
        const char *head;
        size_t size;
        const char *want;
    } cases[] = {
        { "PK\3\4..............................", 10, "" },
        { "PK\3\4\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\013\0\0\0part/data.pkl", 43, "part" },
        { "PK\3\4\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\020\0\0\0archive/data.pkl", 46, "" },
        { "PK\3\4\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\377\377\0\0partpartpart", 42, "" },
        { "\200\2\212\n", 4, "" },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char stem[128];
        CHECK_OK(sheaf__file_write_whole(at("stem"), cases[i].head, cases[i].size));
        sheaf__torch_stem(stem, at("stem"));
        assert_string_equal(stem, cases[i].want);
    }
    char stem[128];
    sheaf__torch_stem(stem, at("no such file"));
    assert_string_equal(stem, "");
}

/* The same sizes and step: the copies tell, and where a part says nothing of its name, that is kept
 * for a note. */
TEST(test_harm__a_part_of_another_run_differs_in_its_copies)
{
    made_model *m = odd_model(), *other = odd_model();
    made_again(other, 1);
    for (int stage = 0; stage <= 1; stage++) {
        const how h = { 3, 1, stage, STATE_PATTERNS, stage > 0, false, 9, -1 };
        const char *dir = made_folder(m, &h);
        sheaf_catalog *c = read_at(dir);
        CHECK_OK(sheaf__catalog_ranks(c));
        CHECK_SOUND(c);
        assert_true(c->by_names && c->copies > 0 && c->copies_vary);
        sheaf__catalog_free(c);
        const char *path = textf("%s/global_step9/mp_rank_01_model_states.pt", dir);
        assert_int_equal(unlink(path), 0);
        put_model(path, other, &h, 1, false);
        if (stage > 0) {
            path = textf("%s/global_step9/bf16_zero_pp_rank_0_mp_rank_01_optim_states.pt", dir);
            assert_int_equal(unlink(path), 0);
            put_optimizer(path, other, &h, 1, 0);
        }
        c = read_at(dir);
        CHECK_OK(sheaf__catalog_ranks(c));
        CHECK_FINDING(c, SHEAF_DEFECT, "foreign", "mp_rank_01");
        assert_int_equal(sheaf__catalog_defects(c), 1);
        check_no_source(c);
    }
    made_free(m);
    made_free(other);
}

FIXTURE(make_scratch, remove_scratch);
