/* unstacked_test.c - a folder that holds the experts of a layer in two parameters, and the router
 * by the name that transformers 5 has for it in memory, is the model that holds each expert's
 * matrices: the same bytes of logits, and of the files that are written.
 *
 * Such folders are made here from tests/data: qwen3_moe, with a layer without experts, and mixtral.
 */
#include "tests/parity/trial.h"
#include "tests/sources.h"

#include "checkpoint/convert/convert.h"

typedef struct names {
    const char *folder, *inputs, *experts, *gate, *up, *down;
} names;

static const names both[] = {
    { "successors/qwen3_moe", "inputs.safetensors", "mlp.experts", "gate_proj", "up_proj",
      "down_proj" },
    { "families/mixtral", "fwd_inputs.safetensors", "block_sparse_moe.experts", "w1", "w3", "w2" },
};

static const char *data(const char *folder)
{
    return in_sources("tests/data/%s", folder);
}

/* The matrices of all members, one behind the other, as one parameter. */
static void add_stack(made_tensors *made, const sheaf_safetensors *file, const names *m, int layer,
                      const char *as, const char *const *part, int parts)
{
    char *all = room((size_t)1 << 20), *end = all;
    const sheaf_safetensors_entry *e;
    const char *name;
    int64_t members = 0;
    for (int p = 0;
         sheaf__safetensors_find(file, name = textf("model.layers.%d.%s.%d.%s.weight", layer,
                                                    m->experts, (int)members, part[p])) != NULL;
         members += p == 0) {
        const void *x = raw_of(file, name, &e);
        assert_true(end + e->bytes <= all + (1 << 20));
        end = (char *)memcpy(end, x, (size_t)e->bytes) + e->bytes;
        p = (p + 1) % parts;
    }
    if (members > 0)
        made_add(made, textf("model.layers.%d.mlp.experts.%s", layer, as), e->dtype, 3,
                 (const int64_t[]){ members, parts * e->shape[0], e->shape[1] }, all);
}

/* Mixtral's router is mlp.gate there. */
static const char *held_name(const char *name)
{
    static const char theirs[] = ".block_sparse_moe.";
    const char *inner = strstr(name, theirs);
    return inner == NULL
               ? name
               : textf("%.*s.mlp.%s", (int)(inner - name), name, inner + sizeof theirs - 1);
}

static const char *stacked(const names *m, const char *hf, const char *as)
{
    const char *dir = at(as);
    CHECK_OK(sheaf__make_dirs(dir));
    copy_file(in_dir(dir, "config.json"), in_dir(hf, "config.json"));
    const sheaf_safetensors *file = record_of(hf, "model.safetensors");
    made_tensors made = { 0 };
    for (int64_t e = 0; e < file->header.count; e++)
        if (strstr(file->header.entry[e].name, ".experts.") == NULL)
            made_copy(&made, held_name(file->header.entry[e].name), file,
                      file->header.entry[e].name);
    const int plain = made.count;
    for (int layer = 0; layer < 8; layer++) {
        add_stack(&made, file, m, layer, "gate_up_proj", (const char *const[]){ m->gate, m->up },
                  2);
        add_stack(&made, file, m, layer, "down_proj", &m->down, 1);
    }
    assert_true(made.count > plain);
    made_write(&made, in_dir(dir, "model.safetensors"));
    return dir;
}

static void convert(const char *src, const char *dst)
{
    sheaf_weights_convert_report report;
    CHECK_OK(sheaf__remove_tree(dst));
    CHECK_OK(sheaf_convert(&report,
                           &(sheaf_weights_convert_options){ .src = src, .dst = dst, .to = "hf" }));
}

TEST(test_stacks__are_the_experts_by_themselves)
{
    for (size_t i = 0; i < ARRAY_LEN(both); i++) {
        const names *m = &both[i];
        const char *folder = data(m->folder), *hf = in_dir(folder, "hf"),
                   *made = stacked(m, hf, i == 0 ? "of0" : "of1"),
                   *inputs = in_dir(folder, m->inputs);
        for (int ranks = 1; ranks <= 3; ranks++) {
            trial a = run(hf, NULL, inputs, ranks, SHEAF_F32, false),
                  b = run(made, NULL, inputs, ranks, SHEAF_F32, false);
            CHECK_BYTES(m->folder, a.logits, b.logits,
                        (size_t)(a.positions * a.vocab) * sizeof *a.logits);
            release(&a);
            release(&b);
        }
        convert(hf, at("one"));
        convert(made, at("other"));
        check_same_files(at("other/model.safetensors"), at("one/model.safetensors"));
    }
}

TEST(test_stacks__of_another_shape_are_refused)
{
    sheaf__opened opened;
    const char *made = stacked(&both[0], in_dir(data(both[0].folder), "hf"), "wrong");
    json_t *config = json_of(made, "config.json");
    json_object_set_new(
        config, "moe_intermediate_size",
        json_integer(json_integer_value(json_object_get(config, "moe_intermediate_size")) + 1));
    assert_int_equal(json_dump_file(config, in_dir(made, "config.json"), 0), 0);
    CHECK_FAILS(sheaf__open_model(&opened, &(sheaf__open_options){ .model = made, .slices = 8 }),
                SHEAF_E_LAYOUT, "experts.down_proj");
    sheaf__opened_close(&opened);
}

FIXTURE(make_scratch, remove_scratch);
