/* families_test.c - the table, and what a descriptor must say for the others to ask it. */
#include "tests/families.h"

#include "catalog/catalog.h"
#include "families/cog/cog.h"
#include "schema/family.h"

TEST(test_table__a_family_stands_at_its_number)
{
    const sheaf__family *f;
    int n = 0;
    for (; (f = sheaf__family_at(n)) != NULL; n++) {
        assert_int_equal(f->id, n);
        assert_ptr_equal(sheaf__family_named(f->name), f);
        assert_ptr_equal(sheaf__family_for(&(sheaf_config){ .family = (sheaf_family)n }), f);
        for (const char *const *one = f->classes; one != NULL && *one != NULL; one++)
            assert_ptr_equal(sheaf__family_of_class(*one), f);
    }
    assert_int_equal(n, SHEAF_FAMILIES);
    assert_null(sheaf__family_at(-1));
    assert_null(sheaf__family_named("gpt2"));
    assert_null(sheaf__family_of_class("GPT2LMHeadModel"));
}

/* Members that other rooms use without a check. */
TEST(test_descriptor__says_what_others_ask)
{
    const sheaf__family *f;
    for (int i = 0; (f = sheaf__family_at(i)) != NULL; i++) {
        assert_true(f->title != NULL && f->position_key != NULL && f->read != NULL &&
                    f->text != NULL && f->rows != NULL && f->components != NULL &&
                    f->lora_targets != NULL && f->head != NULL && f->table != NULL &&
                    f->build != NULL);
        assert_true((f->towers == NULL) == (f->encode == NULL) &&
                    (f->towers == NULL) == (f->place == NULL));
        assert_true(f->classes == NULL ||
                    (f->sat_rule != NULL && f->sat_begin != NULL && f->classes[0] != NULL &&
                     f->classes[1] != NULL && f->classes[2] != NULL));
        assert_true(f->architecture != NULL || f->claims != NULL);
    }
}

/* Sizes worked out by hand: 56 / 14 = 4 patches a side, 112 / 14 = 8. */
TEST(test_towers__each_has_its_own_size)
{
    sheaf_config c = { .family = SHEAF_COGAGENT,
                       .hidden = 24,
                       .patches = 16,
                       .vit = { .height = 56, .width = 56, .patch = 14, .channels = 3 },
                       .encoder = { .width = 10, .image = 112, .patch = 14, .channels = 3 } };
    sheaf__tower tower[SHEAF__MOST_TOWERS], beside;
    assert_int_equal(sheaf__towers_of(tower, &c), 2);
    assert_true(tower[0].rows == 17 && tower[0].gives == 16 && tower[0].columns == 24 &&
                !tower[0].beside);
    assert_true(tower[1].rows == 65 && tower[1].patches == 64 && tower[1].columns == 10 &&
                tower[1].beside);
    assert_int_equal(sheaf__tower_numbers(&tower[1]), 3 * 112 * 112);
    assert_int_equal(tower[1].gives, 0); /* no layer looks at it */
    assert_int_equal(sheaf__tower_beside(&beside, &c), -1);
    c.cross_layers[1] = 1;
    assert_int_equal(sheaf__tower_beside(&beside, &c), 1);
    assert_int_equal(beside.gives, 64);
    assert_int_equal(sheaf__image_positions(&c), 18);
    assert_int_equal(sheaf__image_experts(&c), 17);
    c.family = SHEAF_COGVLM;
    assert_int_equal(sheaf__towers_of(tower, &c), 1);
    c.family = SHEAF_LLAMA;
    assert_int_equal(sheaf__towers_of(tower, &c), 0);
    assert_int_equal(sheaf__image_positions(&c), 0);
    assert_int_equal(sheaf__image_experts(&c), 0);
}

/* Blocks by their numbers, not by how many names come last; none leave what was said. */
TEST(test_towers__blocks_are_counted_by_name)
{
    static const int blocks[] = { 0, 10, 9 };
    sheaf_config config = { .encoder = { .layers = 5 } };
    sheaf_catalog *c = NULL;
    CHECK_OK(sheaf__catalog_new(&c, NULL, "tower"));
    sheaf__family_cogagent.sizes(&config, c);
    assert_int_equal(config.encoder.layers, 5);
    for (size_t i = 0; i < ARRAY_LEN(blocks); i++) {
        char name[80];
        sheaf_logical *t;
        snprintf(name, sizeof name, "mixins.encoder.vit.model.blocks.%d.mlp.w2.weight", blocks[i]);
        CHECK_OK(sheaf__catalog_tensor(&t, c, name, SHEAF_F32, 1, (int64_t[]){ 4 }));
    }
    sheaf__family_cogagent.sizes(&config, c);
    assert_int_equal(config.encoder.layers, 11);
    sheaf__catalog_free(c);
}

TEST(test_towers__a_square_table_is_advised)
{
    static const struct {
        int64_t rows;
        const char *advice;
    } cases[] = { { -1, "" }, { 0, "" }, { 5, "" }, { 1, "1 x 1 places" }, { 16, "4 x 4 places" } };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        sheaf_status *st = sheaf__family_omnilmm.advise(
            sheaf_fail(SHEAF_E_LAYOUT, "table"), &(sheaf_config){ .family = SHEAF_OMNILMM },
            "model.resampler.pos_embed", (int64_t[]){ cases[i].rows, 8 }, 2);
        assert_true(*cases[i].advice == '\0'
                        ? *sheaf_status_try(st) == '\0'
                        : strstr(sheaf_status_try(st), cases[i].advice) != NULL);
        sheaf_status_free(st);
    }
}

/* Every tensor of the published models, whose numbers of parameters their pages give. */
TEST(test_counts__published_sizes)
{
    static const struct {
        const char *config;
        int64_t parameters;
    } models[] = { { "gemma-2b", 2506172416 }, { "qwen3-30b-a3b", 30532122624 } };
    for (size_t i = 0; i < ARRAY_LEN(models); i++) {
        sheaf_config config;
        sheaf_schema *schema;
        CHECK_OK(
            sheaf_config_read(&config, in_sources("tests/data/configs/%s.json", models[i].config)));
        CHECK_OK(sheaf_schema_new(&schema, &config, 8));
        assert_int_equal(count_numbers(schema, true), models[i].parameters);
        sheaf_schema_free(schema);
        sheaf_config_release(&config);
    }
}
