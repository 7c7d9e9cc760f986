/* unstacked_test.c - a folder that holds the experts of a layer in two parameters, and the router
 * by the name that transformers 5 has for it in memory, is the model that holds each expert's
 * matrices: the same bytes of logits, and of the files that are written.
 *
 * Such folders are made here from tests/data: qwen3_moe, with a layer without experts, and mixtral.
 */
#include "tests/parity/pieces.h"

#include "checkpoint/convert/convert.h"

typedef struct names {
    const char *folder, *inputs, *experts, *gate, *up, *down;
} names;

static const names both[] = {
    { "successors/qwen3_moe", "inputs.safetensors", "mlp.experts", "gate_proj", "up_proj",
      "down_proj" },
    { "families/mixtral", "fwd_inputs.safetensors", "block_sparse_moe.experts", "w1", "w3", "w2" },
};

static char *data(const char *folder)
{
    char path[1400];
    const char *source = getenv("SHEAF_SOURCE_ROOT");
    snprintf(path, sizeof path, "%s/tests/data/%s", source == NULL ? "." : source, folder);
    return strdup(path);
}

/* The matrices of all members, one behind the other, as one parameter. */
static void add_stack(made_tensors *made, const sheaf_safetensors *file, const names *m, int layer,
                      const char *as, const char *const *part, int parts)
{
    char name[192], *all = NULL;
    size_t size = 0;
    int64_t shape[3] = { 0 };
    const sheaf_safetensors_entry *e;
    sheaf_dtype dtype = SHEAF_F32;
    for (;; shape[0]++) {
        for (int p = 0; p < parts; p++) {
            snprintf(name, sizeof name, "model.layers.%d.%s.%d.%s.weight", layer, m->experts,
                     (int)shape[0], part[p]);
            if ((e = sheaf__safetensors_find(file, name)) == NULL)
                break;
            all = realloc(all, size + (size_t)e->bytes);
            CHECK_OK(sheaf__safetensors_read(file, e, 0, all + size, e->bytes));
            size += (size_t)e->bytes;
            shape[1] = parts * e->shape[0];
            shape[2] = e->shape[1];
            dtype = e->dtype;
        }
        if (e == NULL)
            break;
    }
    snprintf(name, sizeof name, "model.layers.%d.mlp.experts.%s", layer, as);
    if (shape[0] > 0)
        made_add(made, name, dtype, 3, shape, all);
    free(all);
}

/* Mixtral's router is mlp.gate there. */
static const char *held_name(const char *name)
{
    static char held[192];
    const char *at = strstr(name, ".block_sparse_moe.");
    if (at == NULL)
        return name;
    snprintf(held, sizeof held, "%.*s.mlp.%s", (int)(at - name), name,
             at + strlen(".block_sparse_moe."));
    return held;
}

/* The folder, malloc'd. */
static char *stacked(const names *m, const char *hf, const char *as)
{
    char *dir = strdup(at(as)), *text;
    size_t size;
    CHECK_OK(sheaf__make_dirs(dir));
    CHECK_OK(sheaf__file_read_all(&text, &size, in_dir(hf, "config.json"), 1 << 20));
    CHECK_OK(sheaf__file_write_whole(in_dir(dir, "config.json"), text, size));
    free(text);
    sheaf_safetensors *file = record_of(hf, "model.safetensors");
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
    free(made_write(&made, in_dir(dir, "model.safetensors")));
    sheaf__safetensors_close(file);
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
        char *folder = data(m->folder), *hf = strdup(in_dir(folder, "hf")),
             *made = stacked(m, hf, i == 0 ? "of0" : "of1"),
             *inputs = strdup(in_dir(folder, m->inputs));
        for (int ranks = 1; ranks <= 3; ranks++) {
            trial a = run(hf, NULL, inputs, ranks, SHEAF_F32, false),
                  b = run(made, NULL, inputs, ranks, SHEAF_F32, false);
            CHECK_BYTES(m->folder, a.logits, b.logits,
                        (size_t)(a.positions * a.vocab) * sizeof *a.logits);
            release(&a);
            release(&b);
        }
        char *one, *other;
        size_t n, also;
        convert(hf, at("one"));
        convert(made, at("other"));
        CHECK_OK(sheaf__file_read_all(&one, &n, at("one/model.safetensors"), 1 << 24));
        CHECK_OK(sheaf__file_read_all(&other, &also, at("other/model.safetensors"), 1 << 24));
        assert_int_equal(n, also);
        CHECK_BYTES("written", one, other, n);
        free(one);
        free(other);
        free(folder);
        free(hf);
        free(made);
        free(inputs);
    }
}

TEST(test_stacks__of_another_shape_are_refused)
{
    sheaf__opened opened;
    char *folder = data(both[0].folder), *hf = strdup(in_dir(folder, "hf")),
         *made = stacked(&both[0], hf, "wrong");
    json_t *config = json_of(made, "config.json");
    json_object_set_new(
        config, "moe_intermediate_size",
        json_integer(json_integer_value(json_object_get(config, "moe_intermediate_size")) + 1));
    assert_int_equal(json_dump_file(config, in_dir(made, "config.json"), 0), 0);
    json_decref(config);
    CHECK_FAILS(sheaf__open_model(&opened, &(sheaf__open_options){ .model = made, .slices = 8 }),
                SHEAF_E_LAYOUT, "experts.down_proj");
    sheaf__opened_close(&opened);
    free(folder);
    free(hf);
    free(made);
}

FIXTURE(make_scratch, remove_scratch);
