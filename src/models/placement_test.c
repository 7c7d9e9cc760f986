/* placement_test.c - where layers fall, by hand and for odd numbers. */
#include "tests/check.h"

#include "models/placement.h"

static sheaf_schema *llama(int layers, int vocab, bool tied)
{
    char text[512];
    sheaf_config c;
    sheaf_schema *schema = NULL;
    snprintf(
        text, sizeof text,
        "{\"model_type\": \"llama\", \"vocab_size\": %d, \"hidden_size\": 64, \"intermediate_size\": 256, \"num_hidden_layers\": %d,"
        " \"num_attention_heads\": 4, \"max_position_embeddings\": 64, \"tie_word_embeddings\": %s}",
        vocab, layers, tied ? "true" : "false");
    CHECK_OK(sheaf_config_parse(&c, text, strlen(text)));
    CHECK_OK(sheaf_schema_new(&schema, &c, 8));
    sheaf_config_release(&c);
    return schema;
}

/* A layer has 4 * 64 * 64 + 3 * 64 * 256 + 128 = 65664 elements; a table of 1026 rows is as
 * large. */
static const struct {
    const char *text;
    int layers, vocab, stages;
    int64_t begin[6];
} by_hand[] = {
    { NULL, 12, 8, 1, { 0, 12 } },
    { "", 12, 8, 1, { 0, 12 } },
    { "1", 12, 8, 1, { 0, 12 } },
    { "2", 12, 8, 2, { 0, 6, 12 } },
    { "3", 12, 8, 3, { 0, 4, 8, 12 } },
    { "2,1", 12, 8, 2, { 0, 8, 12 } },
    { "24,12,12", 12, 8, 3, { 0, 6, 9, 12 } },
    { "0.5,1.5", 12, 8, 2, { 0, 3, 12 } },
    { "1000,1", 3, 8, 2, { 0, 2, 3 } }, /* no stage is empty */
    { "1,1000,1", 3, 8, 3, { 0, 1, 2, 3 } },
    { "0-10,11-11", 12, 8, 2, { 0, 11, 12 } },
    { "0-11", 12, 8, 1, { 0, 12 } },
    /* Two tables of two layers each, one before the first layer and one behind the last: 4 layers
       are 8 of their size. */
    { "2", 4, 2052, 2, { 0, 2, 4 } },
    { "4", 10, 6156, 4, { 0, 1, 6, 9, 10 } }, /* 6 and a layer are more than a quarter of 22: the
                                                 other 15 are divided by 3 */
    { "3,1", 4, 2052, 2, { 0, 3, 4 } }, /* three quarters of 8 are the table and 4 layers, but one
                                           is left to the other */
};

TEST(test_place__layers_worked_by_hand)
{
    for (size_t i = 0; i < ARRAY_LEN(by_hand); i++) {
        sheaf__placement place;
        sheaf_schema *schema = llama(by_hand[i].layers, by_hand[i].vocab, false);
        CHECK_OK(sheaf__placement_read(&place, by_hand[i].text, schema));
        assert_int_equal(place.stages, by_hand[i].stages);
        assert_int_equal(place.head_stage, place.stages - 1);
        for (int s = 0; s <= place.stages; s++)
            if (place.begin[s] != by_hand[i].begin[s])
                fail_msg("%s of %d layers: stage %d begins at %lld", by_hand[i].text,
                         by_hand[i].layers, s, (long long)place.begin[s]);
        sheaf_schema_free(schema);
    }
}

TEST(test_place__every_layer_once_and_no_stage_empty)
{
    for (int layers = 1; layers <= 12; layers++) {
        sheaf_schema *schema = llama(layers, 5000, layers % 2);
        for (int stages = 1; stages <= layers; stages++)
            for (int ratio = 1; ratio <= 900; ratio *= 30) {
                char text[256] = "";
                sheaf__placement place;
                for (int s = 0; s < stages; s++)
                    snprintf(text + strlen(text), sizeof text - strlen(text), "%s%d",
                             s > 0 ? "," : "", s % 2 ? ratio : 1);
                CHECK_OK(sheaf__placement_read(&place, text, schema));
                assert_int_equal(place.begin[0], 0);
                assert_int_equal(place.begin[place.stages], layers);
                for (int s = 0; s < place.stages; s++)
                    assert_true(place.begin[s] < place.begin[s + 1]);
                assert_int_equal(place.head_stage, layers % 2 ? 0 : place.stages - 1);
            }
        sheaf_schema_free(schema);
    }
}

TEST(test_place__what_cannot_be_read)
{
    static const char *const bad[] = {
        "0",     "x",       "-",       "-1",      "1,",
        ",1",    "1,,2",    "2.5",     "65",      "1e300,1",
        "nan,1", "inf,1",   "0x10",    "5",       "0-1",
        "0-3,",  "1-3",     "0-1,1-3", "0-1,3-3", "0-4",
        "0-2",   "0-1,2-2", "3-0",     "0-1-2",   "0-1,2-99999999999",
        "0,1",   "1 ,2"
    };
    sheaf_schema *schema = llama(4, 8, false);
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        sheaf__placement place;
        sheaf_status *st = sheaf__placement_read(&place, bad[i], schema);
        if (st == NULL || sheaf_status_code(st) != SHEAF_E_ARG)
            fail_msg("'%s' was read", bad[i]);
        sheaf_status_free(st);
    }
    sheaf_schema_free(schema);
}
