/* hash_test.c - both ways to hash give the library's values, at every length at which it goes
 * another way. */
#include "tests/check.h"

#include <xxhash.h>

#include "base/hash.h"

static void test_hash__is_the_librarys(void **state)
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

static void test_hash__text_is_canonical(void **state)
{
    char text[33];
    assert_string_equal(sheaf__hash_text(text, sheaf__hash("", 0)),
                        "99aa06d3014798d86001c324468d497f"); /* xxhsum -H2 /dev/null */
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_hash__is_the_librarys),
                                        cmocka_unit_test(test_hash__text_is_canonical) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
