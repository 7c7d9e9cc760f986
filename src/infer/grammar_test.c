/* grammar_test.c - answers held to a schema: random ones are read back and judged by a checker of
 * its own, a mask is what a walk of each token alone finds, and what is not followed is refused. */
#include <jansson.h>

#include "infer/grammar.h"
#include "base/base.h"
#include "tests/check.h"
#include "tests/parts.h"
#include "tests/sources.h"

static sheaf_config config = { .family = SHEAF_LLAMA, .vocab = 259, .byte_vocab = true };

/* "bytes", or a tokenizer of the tests. */
static void open_tokens(sheaf__token_bytes *out, sheaf__codec *codec, const char *name)
{
    *codec = (sheaf__codec){ .config = &config };
    if (strcmp(name, "bytes") != 0)
        CHECK_OK(sheaf__tokenizer_open(&codec->tokenizer,
                                       in_sources("tests/data/tokenizers/%s.json", name)));
    CHECK_OK(sheaf__token_bytes_open(out, codec));
}

static void close_tokens(sheaf__token_bytes *tokens, sheaf__codec *codec)
{
    sheaf__token_bytes_close(tokens);
    sheaf__tokenizer_close(codec->tokenizer);
}

/* ---- a checker ---- */

static const json_t *root;

static bool is_kind(const json_t *v, const char *kind)
{
    static const char *const names[] = { "object", "array",   "string",  "integer",
                                         "number", "boolean", "boolean", "null" };
    return strcmp(names[json_typeof(v)], kind) == 0 ||
           (json_is_integer(v) && strcmp(kind, "number") == 0);
}

static int64_t number_of(const json_t *schema, const char *key, int64_t absent)
{
    const json_t *n = json_object_get(schema, key);
    return n == NULL ? absent : json_integer_value(n);
}

static int64_t characters(const char *s)
{
    int64_t n = 0;
    for (; *s != '\0'; s++)
        n += (*s & 0xC0) != 0x80;
    return n;
}

static bool satisfies(const json_t *v, const json_t *schema)
{
    const json_t *type = json_object_get(schema, "type"), *one = NULL,
                 *any = json_object_get(schema, "anyOf"), *values = json_object_get(schema, "enum"),
                 *fields = json_object_get(schema, "properties"),
                 *others = json_object_get(schema, "additionalProperties");
    const char *ref = json_string_value(json_object_get(schema, "$ref")), *key;
    const int64_t size =
        json_is_string(v) ? characters(json_string_value(v)) : (int64_t)json_array_size(v);
    bool good = type == NULL || (json_is_string(type) && is_kind(v, json_string_value(type)));
    json_t *field;
    size_t i;
    if (ref != NULL)
        return satisfies(v, strcmp(ref, "#") == 0
                                ? root
                                : json_object_get(json_object_get(root, "$defs"), ref + 8));
    json_array_foreach((json_t *)type, i, one) good = good || is_kind(v, json_string_value(one));
    bool found = any == NULL && values == NULL;
    json_array_foreach((json_t *)any, i, one) found = found || satisfies(v, one);
    json_array_foreach((json_t *)values, i, one) found = found || json_equal(v, one);
    good = good && found;
    if ((one = json_object_get(schema, "const")) != NULL)
        good = good && json_equal(v, one);
    if (json_is_string(v))
        good = good && size >= number_of(schema, "minLength", 0) &&
               size <= number_of(schema, "maxLength", INT64_MAX);
    if (json_is_array(v))
        good = good && size >= number_of(schema, "minItems", 0) &&
               size <= number_of(schema, "maxItems", INT64_MAX);
    json_array_foreach((json_t *)v, i, one) good =
        good && satisfies(one, json_object_get(schema, "items"));
    json_array_foreach(json_object_get(schema, "required"), i, one) good =
        good && (!json_is_object(v) || json_object_get(v, json_string_value(one)) != NULL);
    json_object_foreach((json_t *)(json_is_object(v) ? v : NULL), key, field)
    {
        const json_t *own = json_object_get(fields, key);
        good = good && (own != NULL      ? satisfies(field, own)
                        : others != NULL ? !json_is_false(others) && satisfies(field, others)
                                         : fields == NULL);
    }
    return good;
}

/* ---- random answers ---- */

static uint64_t any(uint64_t x)
{
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

enum { MOST = 200, VOCAB = 1200 };

/* The tokens of an answer under random logits, or fewer than it needs; *complete: it has ended. */
static int64_t answer(int32_t *ids, sheaf__grammar *g, uint64_t seed, bool *complete)
{
    static float logits[VOCAB];
    sheaf__grammar_place place = { 0 };
    int64_t n = 0;
    *complete = false;
    while (n < MOST && !*complete) {
        const int64_t stop = VOCAB - 1;
        int64_t best = 0;
        uint64_t x = any(seed * 7919 + (uint64_t)n);
        for (int64_t i = 0; i < VOCAB;
             i++, x = x * UINT64_C(6364136223846793005) + 1442695040888963407)
            logits[i] = (float)(x >> 40);
        CHECK_OK(sheaf__grammar_read(complete, g, &place, ids, n));
        if (*complete)
            break;
        CHECK_OK(sheaf__grammar_mask(logits, VOCAB, g, &place, &stop, 1));
        for (int64_t i = 0; i < VOCAB; i++)
            best = logits[i] > logits[best] ? i : best;
        if (best == stop)
            *complete = true;
        else
            ids[n++] = (int32_t)best;
    }
    return n;
}

static size_t text_of(char *out, const sheaf__token_bytes *t, const int32_t *ids, int64_t n)
{
    size_t size = 0;
    for (int64_t i = 0; i < n; i++) {
        const uint32_t at = t->at[ids[i]], bytes = t->at[ids[i] + 1] - at;
        memcpy(out + size, t->byte + at, bytes);
        size += bytes;
    }
    out[size] = '\0';
    return size;
}

static const char *const schemas[] = {
    "{}",
    "{'type': 'object'}",
    "{'type': 'string'}",
    "{'minLength': 3, 'maxLength': 5}",
    "{'type': 'string', 'minLength': 2, 'maxLength': 9}",
    "{'type': ['integer', 'null']}",
    "{'type': 'number', 'title': 'a number'}",
    "{'enum': ['a', 'ab', 'b\\nc', 1, 2.5, null, [1, {'x': []}], 'é\\u0001']}",
    "{'type': 'string', 'enum': ['one', 2, 'three']}",
    "{'const': {'a': [true]}}",
    "{'type': 'array', 'items': {'type': 'boolean'}, 'minItems': 2, 'maxItems': 4}",
    "{'type': 'array', 'items': {'enum': [0]}, 'minItems': 3}",
    "{'type': 'array', 'maxItems': 0}",
    "{'type': 'array', 'items': {'type': 'array', 'items': {'const': 1}, 'maxItems': 2}}",
    "{'type': 'object', 'properties': {'a': {'type': 'integer'}, 'b': {'type': 'string', "
    "'maxLength': 4}, 'c': {'type': 'boolean'}}, 'required': ['b']}",
    "{'type': 'object', 'properties': {'a': {}, 'b': {}}, 'additionalProperties': false}",
    "{'type': 'object', 'properties': {'a': {'type': 'null'}, 'ab': {'type': 'null'}}, 'required': "
    "['a', 'ab', 'z'], 'additionalProperties': {'type': 'integer'}}",
    "{'properties': {'q\\u0022': {'const': 1}}, 'required': ['q\\u0022'], "
    "'additionalProperties': {'type': ['null', 'array'], 'maxItems': 1}}",
    "{'anyOf': [{'type': 'object', 'properties': {'k': {'const': 'x'}, 'v': {'type': 'integer'}}, "
    "'required': ['k', 'v']}, {'type': 'object', 'properties': {'k': {'const': 'y'}, 'w': "
    "{'type': 'null'}}, 'required': ['k']}, {'type': 'string', 'maxLength': 2}]}",
    "{'$defs': {'leaf': {'enum': ['l', 'm']}, 'pair': {'type': 'array', 'items': {'$ref': "
    "'#/$defs/leaf'}, 'minItems': 2, 'maxItems': 2}}, 'type': 'object', 'properties': {'p': "
    "{'$ref': '#/$defs/pair', 'description': 'two'}}, 'required': ['p']}",
    "{'type': 'object', 'properties': {'next': {'anyOf': [{'type': 'null'}, {'$ref': '#'}]}}, "
    "'required': ['next']}",
};

TEST(test_grammar__random_answers_satisfy_the_schema)
{
    static const char *const vocabularies[] = { "bytes", "qwen2", "llama2", "gemma" };
    static int32_t ids[MOST];
    static char text[MOST * 64];
    int ended = 0, all = 0;
    for (size_t v = 0; v < ARRAY_LEN(vocabularies); v++) {
        sheaf__token_bytes tokens;
        sheaf__codec codec;
        open_tokens(&tokens, &codec, vocabularies[v]);
        assert_true(tokens.ids < VOCAB && tokens.longest < 64);
        for (size_t i = 0; i < ARRAY_LEN(schemas); i++) {
            char schema[600];
            sheaf__grammar *g;
            snprintf(schema, sizeof schema, "%s", schemas[i]);
            swap_quotes(schema, '\'', '"');
            json_t *want = json_loads(schema, 0, NULL);
            root = want;
            CHECK_OK(sheaf__grammar_open(
                &g, &(sheaf__answer_form){ .schema = schema, .tokens = &tokens }));
            for (uint64_t seed = 0; seed < 8; seed++) {
                json_error_t error;
                bool complete;
                const int64_t n = answer(ids, g, seed * 100 + i, &complete);
                const size_t size = text_of(text, &tokens, ids, n);
                all++;
                if (!complete)
                    continue;
                ended++;
                json_t *value = json_loadb(text, size, JSON_DECODE_ANY, &error);
                if (value == NULL || !satisfies(value, want))
                    fail_msg("%s: %s: %s: %s", vocabularies[v], schema, text,
                             value == NULL ? error.text : "not of the schema");
                json_decref(value);
            }
            sheaf__grammar_close(g);
            json_decref(want);
        }
        close_tokens(&tokens, &codec);
    }
    if (ended * 10 < all * 6)
        fail_msg("only %d of %d answers ended", ended, all);
}

/* The walk over all tokens finds what reading each token alone finds. */
TEST(test_grammar__a_mask_has_each_token_that_may_follow)
{
    static const char *const vocabularies[] = { "bytes", "qwen2", "llama3", "mistral" };
    static int32_t ids[MOST];
    static float logits[VOCAB];
    int64_t allowed = 0;
    for (size_t v = 0; v < ARRAY_LEN(vocabularies); v++) {
        sheaf__token_bytes tokens;
        sheaf__codec codec;
        open_tokens(&tokens, &codec, vocabularies[v]);
        for (size_t i = 0; i < ARRAY_LEN(schemas); i++) {
            char schema[600];
            sheaf__grammar *g, *other;
            bool complete, over;
            snprintf(schema, sizeof schema, "%s", schemas[i]);
            swap_quotes(schema, '\'', '"');
            const sheaf__answer_form form = { .schema = schema, .tokens = &tokens };
            CHECK_OK(sheaf__grammar_open(&g, &form));
            CHECK_OK(sheaf__grammar_open(&other, &form));
            const int64_t n = answer(ids, g, i + 1, &complete);
            sheaf__grammar_place place = { 0 }, at = { 0 };
            for (int64_t k = 0; k < (n < 12 ? n : 12); k++) {
                CHECK_OK(sheaf__grammar_read(&over, g, &place, ids, k));
                CHECK_OK(sheaf__grammar_read(&over, other, &at, ids, k));
                memset(logits, 0, sizeof logits);
                CHECK_OK(sheaf__grammar_mask(logits, VOCAB, g, &place, NULL, 0));
                for (int32_t id = 0; id < tokens.ids; id++) {
                    sheaf__grammar_place to = at;
                    ids[MOST - 1] = ids[k];
                    ids[k] = id;
                    CHECK_OK(sheaf__grammar_read(&over, other, &to, ids, k + 1));
                    ids[k] = ids[MOST - 1];
                    const bool may = to.state != 0 && tokens.at[id] < tokens.at[id + 1];
                    allowed += may;
                    if (may != (logits[id] == 0))
                        fail_msg("%s: %s: token %d of %d", vocabularies[v], schema, (int)k, id);
                }
                for (int64_t id = tokens.ids; id < VOCAB; id++)
                    assert_true(logits[id] < 0);
                /* one that has a text and ends answers, only where a value is whole */
                const int64_t stop[] = { ids[k], VOCAB - 1 };
                memset(logits, 0, sizeof logits);
                sheaf_status_free(sheaf__grammar_mask(logits, VOCAB, g, &place, stop, 2));
                assert_true((logits[stop[0]] == 0) == (logits[stop[1]] == 0));
            }
            sheaf__grammar_close(g);
            sheaf__grammar_close(other);
        }
        close_tokens(&tokens, &codec);
    }
    if (allowed < 20000)
        fail_msg("only %d tokens were allowed", (int)allowed);
}

TEST(test_grammar__texts_that_a_schema_allows_and_others)
{
    static const char others[] = "{'properties': {'a': {'const': 1}, 'ab': {'const': 2}}, "
                                 "'additionalProperties': {'type': 'integer'}}";
    static const struct {
        const char *schema, *text;
        bool good;
    } rows[] = {
        { others, "{}", true },
        { others, "{'ab':2,'abc':3}", true },
        { others, "{'ab':2, 'x':3,\n\t 'y':4 }", true },
        { others, "{'ab':2,'a':1}", false },
        { others, "{'x':3,'ab':2}", false },
        { others, "{'\\u0061b':3}", false },
        { others, "{,'x':3}", false },
        { others, "{'a':1,}", false },
        { others, " {}", false },
        { others, "{}\n", false },
        { "{}", "{'\\u0061':[ ],'':[{ } ,1e9 ]}", true },
        { "{}", "'\\ud83d\\ude00'", false },
        { "{}", "'\\u0000'", false },
        { "{}", "'\t'", false },
        { "{}", "-0.5E-12", true },
        { "{}", "01", false },
        { "{}", "1.", true }, /* so far */
        { "{}", "12345678901234567", false },
        { "{'type': 'integer'}", "1.0", false },
        { "{'enum': [0.1]}", "0.1", true },
        { "{'type': 'string', 'maxLength': 2}", "'\xC3\xA9\\n'", true },
        { "{'type': 'string', 'maxLength': 2}", "'abc", false },
        { "{'type': 'string', 'minLength': 2}", "'\xC3\xA9'", false },
        { "{'items': {}, 'minItems': 1}", "[]", false },
        { "{'items': {}, 'maxItems': 1}", "[1,", false },
        { "{'items': true}", "[1,'a', null]", true },
    };
    sheaf__token_bytes tokens;
    sheaf__codec codec;
    open_tokens(&tokens, &codec, "bytes");
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        char schema[200], text[64];
        int32_t ids[64];
        sheaf__grammar *g;
        sheaf__grammar_place place = { 0 };
        bool over;
        snprintf(schema, sizeof schema, "%s", rows[i].schema);
        snprintf(text, sizeof text, "%s", rows[i].text);
        swap_quotes(schema, '\'', '"');
        swap_quotes(text, '\'', '"');
        CHECK_OK(
            sheaf__grammar_open(&g, &(sheaf__answer_form){ .schema = schema, .tokens = &tokens }));
        for (size_t k = 0; k < strlen(text); k++)
            ids[k] = (unsigned char)text[k];
        CHECK_OK(sheaf__grammar_read(&over, g, &place, ids, (int64_t)strlen(text)));
        if ((place.state != 0) != rows[i].good)
            fail_msg("%s: %s", schema, text);
        sheaf__grammar_close(g);
    }
    close_tokens(&tokens, &codec);
}

TEST(test_grammar__a_special_token_before_a_value_is_no_text)
{
    float logits[VOCAB] = { 0 };
    sheaf__token_bytes tokens;
    sheaf__codec codec;
    sheaf__grammar *g;
    sheaf__grammar_place place = { 0 };
    bool over;
    open_tokens(&tokens, &codec, "qwen2");
    CHECK_OK(sheaf__grammar_open(
        &g, &(sheaf__answer_form){ .schema = "{}", .before = "\xFF</s>", .tokens = &tokens }));
    CHECK_OK(sheaf__grammar_read(&over, g, &place, NULL, 0));
    CHECK_OK(sheaf__grammar_mask(logits, VOCAB, g, &place, NULL, 0));
    for (int32_t id = 0; id < VOCAB; id++)
        assert_int_equal(logits[id] == 0, id == sheaf__tokenizer_find(codec.tokenizer, "</s>"));
    sheaf__grammar_close(g);
    close_tokens(&tokens, &codec);
}

/* States are forgotten when there are too many: an answer is read again from its beginning. */
TEST(test_grammar__a_long_string_is_counted)
{
    enum { LONG = 9000 };
    static int32_t ids[LONG + 2];
    sheaf__token_bytes tokens;
    sheaf__codec codec;
    sheaf__grammar *g;
    sheaf__grammar_place place = { 0 }, second = { 0 };
    float logits[259] = { 0 };
    bool over;
    open_tokens(&tokens, &codec, "bytes");
    CHECK_OK(sheaf__grammar_open(
        &g, &(sheaf__answer_form){ .schema = "{\"type\": \"string\", \"maxLength\": 9000}",
                                   .tokens = &tokens }));
    for (int i = 1; i <= LONG; i++)
        ids[i] = 'a';
    ids[0] = ids[LONG + 1] = '"';
    for (int n = 0; n <= LONG + 1; n++) {
        CHECK_OK(sheaf__grammar_read(&over, g, &place, ids, n));
        assert_true(!over && place.state > 0);
        if (n % 1000 == 0)
            CHECK_OK(sheaf__grammar_mask(logits, 259, g, &place, NULL, 0));
    }
    CHECK_OK(sheaf__grammar_read(&over, g, &second, ids, 5));
    memset(logits, 0, sizeof logits);
    CHECK_OK(sheaf__grammar_read(&over, g, &place, ids, LONG + 1));
    CHECK_OK(sheaf__grammar_mask(logits, 259, g, &place, NULL, 0));
    assert_true(logits['a'] < 0 && logits['"'] == 0);
    CHECK_OK(sheaf__grammar_read(&over, g, &place, ids, LONG + 2));
    assert_true(over && place.age > 1 && place.age < 8);
    sheaf__grammar_close(g);
    close_tokens(&tokens, &codec);
}

TEST(test_grammar__what_is_not_followed_is_refused_by_name)
{
    static const struct {
        const char *schema;
        sheaf_code code;
        const char *part;
    } rows[] = {
        { "{'properties': {'a': {'type': 'string', 'pattern': 'b'}}}", SHEAF_E_UNSUPPORTED,
          "schema #/properties/a: 'pattern'" },
        { "{'type': 'integer', 'minimum': 1}", SHEAF_E_UNSUPPORTED, "'minimum'" },
        { "{'type': 'string', 'format': 'date'}", SHEAF_E_UNSUPPORTED, "'format'" },
        { "{'oneOf': [{}]}", SHEAF_E_UNSUPPORTED, "'oneOf'" },
        { "{'allOf': [{}, {}]}", SHEAF_E_DATA, "'allOf' | a list of one schema" },
        { "{'anyOf': [{}], 'type': 'object'}", SHEAF_E_UNSUPPORTED, "no 'type' beside it" },
        { "{'enum': [1], 'minLength': 1}", SHEAF_E_UNSUPPORTED, "no 'minLength' beside it" },
        { "{'type': 'text'}", SHEAF_E_DATA, "object array string" },
        { "{'type': 'array', 'minItems': 3, 'maxItems': 2}", SHEAF_E_DATA, "'maxItems'" },
        { "{'type': 'string', 'maxLength': -1}", SHEAF_E_FORMAT, "'maxLength'" },
        { "{'enum': []}", SHEAF_E_DATA, "'enum'" },
        { "{'type': 'string', 'const': 1}", SHEAF_E_DATA, "'const'" },
        { "{'$ref': '#/$defs/none'}", SHEAF_E_DATA, "'$ref'" },
        { "{'$ref': '#'}", SHEAF_E_DATA, "refer to itself" },
        { "{'anyOf': [{'type': 'null'}, {'$ref': '#'}]}", SHEAF_E_DATA, "refer to itself" },
        { "{'items': false}", SHEAF_E_DATA, "'items'" },
        { "{'required': [1]}", SHEAF_E_DATA, "'required'" },
        { "{'required': 'a'}", SHEAF_E_DATA, "'required'" },
        { "{'properties': ['a']}", SHEAF_E_DATA, "'properties'" },
        { "{'type': ['null', 'null', 'null', 'null', 'null', 'null', 'null', 'null']}",
          SHEAF_E_UNSUPPORTED, "a smaller one" },
        { "{'required': ['a'], 'additionalProperties': false}", SHEAF_E_DATA, "'required'" },
        { "[1]", SHEAF_E_FORMAT, "object" },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        char schema[200];
        sheaf__grammar_program program;
        snprintf(schema, sizeof schema, "%s", rows[i].schema);
        swap_quotes(schema, '\'', '"');
        CHECK_FAILS(sheaf__grammar_compile(&program, &(sheaf__answer_form){ .schema = schema }),
                    rows[i].code, rows[i].part);
        sheaf__grammar_program_release(&program);
    }
}

/* HEAD, n numbers as texts, each with BEHIND, and TAIL. The caller releases it. */
static sheaf_text schema_of_many(const char *head, int n, const char *behind, const char *tail)
{
    sheaf_text schema = { 0 };
    sheaf__text_add(&schema, "%s", head);
    for (int i = 0; i < n; i++)
        sheaf__text_add(&schema, "%s\"%d\"%s", i > 0 ? ", " : "", i, behind);
    sheaf__text_add(&schema, "%s", tail);
    return schema;
}

/* Properties that may be left out are ways to go on, all of them at once. */
TEST(test_grammar__the_most_properties_that_may_be_left_out)
{
    sheaf__token_bytes tokens;
    sheaf__codec codec;
    open_tokens(&tokens, &codec, "bytes");
    for (int n = 317; n <= 318; n++) {
        sheaf_text schema = schema_of_many("{\"properties\": {", n, ": true",
                                           "}, \"additionalProperties\": false}");
        sheaf__grammar *g = NULL;
        sheaf__grammar_place place = { 0 };
        float logits[512] = { 0 };
        const int32_t brace = '{';
        bool over;
        CHECK_OK(sheaf__grammar_open(
            &g, &(sheaf__answer_form){ .schema = schema.at, .tokens = &tokens }));
        CHECK_OK(sheaf__grammar_read(&over, g, &place, &brace, 1));
        sheaf_status *st = sheaf__grammar_mask(logits, 512, g, &place, NULL, 0);
        if (n == 317)
            CHECK_OK(st);
        else
            CHECK_FAILS(st, SHEAF_E_UNSUPPORTED, "the schema | at most 320 ways");
        sheaf__grammar_close(g);
        sheaf__text_release(&schema);
    }
    close_tokens(&tokens, &codec);
}

/* As many as an enum may have are followed within a value, and no more. */
TEST(test_grammar__the_most_values)
{
    sheaf__token_bytes tokens;
    sheaf__codec codec;
    open_tokens(&tokens, &codec, "bytes");
    for (int n = 256; n <= 257; n++) {
        sheaf_text schema =
            schema_of_many("{\"items\": {\"enum\": [", n, "", "]}, \"maxItems\": 1}");
        sheaf__grammar *g = NULL;
        sheaf__grammar_place place = { 0 };
        const int32_t ids[] = { '[', '"', '9', '9', '"', ']' };
        bool over = false;
        sheaf_status *st = sheaf__grammar_open(
            &g, &(sheaf__answer_form){ .schema = schema.at, .tokens = &tokens });
        if (st == NULL)
            CHECK_OK(sheaf__grammar_read(&over, g, &place, ids, 6));
        assert_true((st == NULL) == (n == 256) && over == (n == 256));
        sheaf_status_free(st);
        sheaf__grammar_close(g);
        sheaf__text_release(&schema);
    }
    close_tokens(&tokens, &codec);
}
