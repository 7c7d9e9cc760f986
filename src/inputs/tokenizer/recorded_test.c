/* Ids and texts equal those of `tokenizers`, recorded over generated texts in many scripts with odd
 * Unicode (tests/data/tokenizers/make_recordings.py makes the same texts). */
#include <inttypes.h>

#include "base/json.h"
#include "base/text.h"
#include "inputs/tokenizer/tokenizer.h"
#include "tests/check.h"
#include "tests/sources.h"
#include "unicode.h"

enum { BLOCK = 250, HASHES = 3 };

static const uint32_t scripts[][2] = {
    { 0x61, 0x7a },       { 0x41, 0x5a },       { 0xc0, 0x24f },    { 0x370, 0x3ff },
    { 0x400, 0x52f },     { 0x531, 0x58f },     { 0x591, 0x5f4 },   { 0x600, 0x6ff },
    { 0x700, 0x74f },     { 0x900, 0x97f },     { 0x980, 0x9ff },   { 0xb80, 0xbff },
    { 0xc00, 0xc7f },     { 0xe00, 0xe7f },     { 0xf00, 0xfff },   { 0x10a0, 0x11ff },
    { 0x1200, 0x137f },   { 0x1780, 0x17ff },   { 0x3041, 0x30ff }, { 0x4e00, 0x4fff },
    { 0xac00, 0xad00 },   { 0x1e00, 0x1fff },   { 0x300, 0x36f },   { 0x10400, 0x104ff },
    { 0x1d400, 0x1d7ff }, { 0x1f300, 0x1f6ff }, { 0xff01, 0xffef }, { 0x2000, 0x206f },
    { 0x2100, 0x24ff },   { 0x30, 0x39 },       { 0x21, 0x2f },     { 0xe000, 0xe010 },
    { 0x16a40, 0x16b8f }, { 0x1e900, 0x1e95f }, { 0xfdd0, 0xfdff },
};

static uint32_t below(uint64_t *state, uint32_t n)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)((*state >> 33) % n);
}

static void put(sheaf_text *text, uint32_t c)
{
    char bytes[4];
    sheaf__text_bytes(text, bytes, sheaf__unicode_put(bytes, c));
}

/* Bytes as hexadecimal digits. */
static void put_hex(sheaf_text *text, const char *digits)
{
    for (; digits[0] != '\0'; digits += 2) {
        const char two[3] = { digits[0], digits[1], '\0' };
        const char byte = (char)strtoul(two, NULL, 16);
        sheaf__text_bytes(text, &byte, 1);
    }
}

/* The text with this number; `odd` is a list of strings. */
static void make_line(sheaf_text *text, uint64_t number, const json_t *odd)
{
    static const char *const ends[] = { "", "\n", "-", "." };
    const uint32_t n = sizeof scripts / sizeof *scripts;
    uint64_t state = number;
    text->size = 0;
    for (int i = 0; i < 10; i++)
        below(&state, 2);
    uint32_t script = below(&state, n);
    for (uint32_t words = 1 + below(&state, 9); words > 0; words--) {
        if (below(&state, 6) == 0)
            script = below(&state, n);
        if (below(&state, 4) == 0) {
            const uint32_t i = below(&state, (uint32_t)json_array_size(odd));
            put_hex(text, json_string_value(json_array_get(odd, i)));
        }
        const uint32_t all = scripts[script][1] - scripts[script][0] + 1;
        const uint32_t span = below(&state, 3) == 0 && all > 8 ? 8 : all;
        for (uint32_t i = 1 + below(&state, 7); i > 0; i--)
            put(text, scripts[script][0] + below(&state, span));
        sheaf__text_add(text, "%s", below(&state, 5) > 0 ? " " : ends[below(&state, 4)]);
    }
}

static uint64_t fold(uint64_t hash, uint64_t number)
{
    return (hash ^ number) * UINT64_C(0x100000001b3);
}

static uint64_t fold_ids(uint64_t hash, const int32_t *ids, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        hash = fold(hash, (uint64_t)ids[i]);
    return fold(hash, (uint64_t)count);
}

/* Each id's range lies in the text. */
static void check_where(const sheaf__text_range *where, int64_t count, size_t size)
{
    for (int64_t i = 0; i < count; i++)
        assert_true(where[i].begin <= where[i].end && where[i].end <= size);
}

static uint64_t fold_text(uint64_t hash, const sheaf__tokenizer *t, const int32_t *ids,
                          int64_t count, bool skip_special)
{
    char *text;
    size_t size;
    CHECK_OK(sheaf__tokenizer_decode(&text, &size, t, ids, count, skip_special));
    for (size_t i = 0; i < size; i++)
        hash = fold(hash, (unsigned char)text[i]);
    free(text);
    return hash;
}

static void hash_line(uint64_t hash[HASHES], const sheaf__tokenizer *t, const sheaf_text *line,
                      bool skip_special)
{
    const sheaf__encode_options around = { .add_special = true };
    sheaf__text_range *where;
    int32_t *ids;
    int64_t count;
    const char *text = line->at == NULL ? "" : line->at;
    CHECK_OK(sheaf__tokenizer_encode(&ids, NULL, &count, t, text, line->size, &around));
    hash[0] = fold_ids(hash[0], ids, count);
    hash[2] = fold_text(hash[2], t, ids, count, skip_special);
    free(ids);
    CHECK_OK(sheaf__tokenizer_encode(&ids, &where, &count, t, text, line->size, NULL));
    hash[1] = fold_ids(hash[1], ids, count);
    check_where(where, count, line->size);
    free(where);
    free(ids);
}

/* One list as a whole, to see what differs. */
static void check_list(const char *name, const sheaf__tokenizer *t, const json_t *want,
                       const json_t *odd)
{
    const sheaf__encode_options around = { .add_special = true };
    sheaf_text line = { 0 };
    int32_t *ids;
    int64_t count;
    make_line(&line, 7, odd);
    CHECK_OK(sheaf__tokenizer_encode(&ids, NULL, &count, t, line.at, line.size, &around));
    for (int64_t i = 0; i < count; i++)
        if (ids[i] != json_integer_value(json_array_get(want, (size_t)i)))
            fail_msg("%s: text 7: id %" PRId64 " is %" PRId32, name, i, ids[i]);
    assert_int_equal(count, json_array_size(want));
    free(ids);
    sheaf__text_release(&line);
}

static void check_blocks(const char *name, const sheaf__tokenizer *t, const json_t *recorded,
                         const json_t *odd)
{
    static const char *const what[HASHES] = { "ids with special ones around", "ids", "texts" };
    const json_t *blocks = json_object_get(recorded, "blocks");
    sheaf_text line = { 0 };
    for (size_t b = 0; b < json_array_size(blocks); b++) {
        uint64_t hash[HASHES];
        for (int i = 0; i < HASHES; i++)
            hash[i] = UINT64_C(0xcbf29ce484222325);
        for (uint64_t i = b * BLOCK; i < (b + 1) * BLOCK; i++) {
            make_line(&line, i, odd);
            hash_line(hash, t, &line, i % 2 == 0);
        }
        for (size_t i = 0; i < HASHES; i++) {
            const char *want = json_string_value(json_array_get(json_array_get(blocks, b), i));
            if (hash[i] != strtoull(want, NULL, 16))
                fail_msg("%s: %s of the lines from %zu on differ", name, what[i], b * BLOCK);
        }
    }
    sheaf__text_release(&line);
}

static const char *data(const char *name)
{
    return in_sources("tests/data/tokenizers/%s.json", name);
}

static json_t *recorded(void)
{
    json_t *all;
    CHECK_OK(sheaf__json_load(&all, data("recorded")));
    return all;
}

TEST(test_tokenizer__texts_are_those_that_were_recorded)
{
    json_t *all = recorded();
    sheaf_text line = { 0 }, bytes = { 0 };
    const char *number;
    json_t *want;
    json_object_foreach(json_object_get(all, "texts"), number, want)
    {
        make_line(&line, strtoull(number, NULL, 10), json_object_get(all, "odd"));
        bytes.size = 0;
        put_hex(&bytes, json_string_value(want));
        assert_int_equal(line.size, bytes.size);
        CHECK_BYTES(number, line.at, bytes.at, bytes.size);
    }
    sheaf__text_release(&line);
    sheaf__text_release(&bytes);
    json_decref(all);
}

TEST(test_tokenizer__ids_and_texts_equal_the_recorded_ones)
{
    json_t *all = recorded(), *one;
    const char *name;
    int checked = 0;
    json_object_foreach(json_object_get(all, "tokenizer"), name, one)
    {
        sheaf__tokenizer *t;
        CHECK_OK(sheaf__tokenizer_open(&t, data(name)));
        check_list(name, t, json_object_get(one, "ids of text 7"), json_object_get(all, "odd"));
        check_blocks(name, t, one, json_object_get(all, "odd"));
        sheaf__tokenizer_close(t);
        checked++;
    }
    assert_true(checked >= 6);
    json_decref(all);
}
