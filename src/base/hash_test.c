/* hash_test.c - both ways to hash give the library's values, at every length at which it goes
 * another way. */
#include "tests/check.h"

#include <xxhash.h>

#include "base/hash.h"

TEST(test_hash__is_the_librarys)
{
    static unsigned char bytes[70000];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)(i * i * 31 + i / 251);
    for (size_t n = 0; n < sizeof bytes; n += n < 1200 ? 1 : 977) {
        const XXH128_hash_t want = XXH3_128bits(bytes, n);
        const sheaf_hash is = sheaf__hash(bytes, n);
        if (is.high != want.high64 || is.low != want.low64)
            fail_msg("%zu bytes: another hash", n);
    }
}

TEST(test_hash__text_is_canonical)
{
    char text[33];
    assert_string_equal(sheaf__hash_text(text, sheaf__hash("", 0)),
                        "99aa06d3014798d86001c324468d497f"); /* xxhsum -H2 /dev/null */
}

TEST(test_hasher__pieces_hash_as_the_whole_and_it_begins_anew)
{
    static unsigned char bytes[5000];
    sheaf_hasher *hasher = sheaf__hasher_new();
    assert_non_null(hasher);
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)(i * 37);
    for (size_t piece = 1; piece < sizeof bytes; piece = piece * 3 + 1) {
        for (size_t at = 0; at < sizeof bytes; at += piece)
            sheaf__hasher_add(hasher, bytes + at,
                              sizeof bytes - at < piece ? sizeof bytes - at : piece);
        assert_true(sheaf__hash_equal(sheaf__hasher_end(hasher), sheaf__hash(bytes, sizeof bytes)));
    }
    assert_true(sheaf__hash_equal(sheaf__hasher_end(hasher), sheaf__hash("", 0)));
    assert_false(sheaf__hash_equal(sheaf__hash("a", 1), sheaf__hash("b", 1)));
    sheaf__hasher_free(hasher);
    sheaf__hasher_free(NULL);
}

TEST(test_fnv__published_values) /* of Fowler, Noll and Vo */
{
    assert_true(sheaf__fnv(SHEAF__FNV, "", 0) == UINT64_C(0xcbf29ce484222325));
    assert_true(sheaf__fnv(SHEAF__FNV, "a", 1) == UINT64_C(0xaf63dc4c8601ec8c));
    assert_true(sheaf__fnv(SHEAF__FNV, "foobar", 6) == UINT64_C(0x85944171f73967e8));
    assert_true(sheaf__fnv(sheaf__fnv(SHEAF__FNV, "foo", 3), "bar", 3) ==
                UINT64_C(0x85944171f73967e8));
}
