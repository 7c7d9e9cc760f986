/* check.h - assertions for tests that print the case's name. On top of cmocka. */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <math.h>
#include <cmocka.h>

#include "sheaf/status.h"

#define ARRAY_LEN(a) (sizeof(a) / sizeof *(a))

/* TEST - defines a test, which tests/main.c runs in its turn. */
struct listed_test {
    int place; /* in the file */
    struct CMUnitTest test;
};
#define TEST(name)                                                                                 \
    static void name(void **state);                                                                \
    static const struct listed_test listed_##name = { __COUNTER__, cmocka_unit_test(name) };       \
    static const struct listed_test *entry_##name __attribute__((used, section("listed_tests"))) = \
        &listed_##name;                                                                            \
    static void name(void **state)

/* FIXTURE - what runs before and after all tests of a program; either may be NULL. */
struct group_fixture {
    CMFixtureFunction before, after;
};
#define FIXTURE(before, after) const struct group_fixture group_fixture = { before, after }

/* LIST - an array in a row of a table, which then stays a row. */
#define LIST(...)                                                                                  \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }

/* Fails (with the status printed) unless the expression returns NULL. */
#define CHECK_OK(expr)                                                                             \
    do {                                                                                           \
        sheaf_status *check_st = (expr);                                                           \
        if (check_st != NULL) {                                                                    \
            sheaf_status_print(check_st, stderr);                                                  \
            sheaf_status_free(check_st);                                                           \
            fail_msg("%s:%d: %s failed", __FILE__, __LINE__, #expr);                               \
        }                                                                                          \
    } while (0)

/* Fails unless the expression returns a status of `want` whose text contains `part`. */
#define CHECK_FAILS(expr, want, part)                                                              \
    do {                                                                                           \
        sheaf_status *check_st = (expr);                                                           \
        if (check_st == NULL)                                                                      \
            fail_msg("%s:%d: %s succeeded", __FILE__, __LINE__, #expr);                            \
        char check_text[4096];                                                                     \
        snprintf(check_text, sizeof check_text, "%s | %s | %s | %s", sheaf_status_where(check_st), \
                 sheaf_status_expected(check_st), sheaf_status_found(check_st),                    \
                 sheaf_status_try(check_st));                                                      \
        sheaf_code check_code = sheaf_status_code(check_st);                                       \
        sheaf_status_free(check_st);                                                               \
        if (check_code != (want) || strstr(check_text, (part)) == NULL)                            \
            fail_msg("%s:%d: code %d, '%s', wanted code %d with '%s'", __FILE__, __LINE__,         \
                     (int)check_code, check_text, (int)(want), (part));                            \
    } while (0)

/* Also fails on NaN. */
#define CHECK_NEAR(name, got, want, tolerance)                                                     \
    do {                                                                                           \
        double check_g = (got), check_w = (want);                                                  \
        if (!(fabs(check_g - check_w) <= (tolerance)))                                             \
            fail_msg("%s:%d: %s: got %.9g, wanted %.9g", __FILE__, __LINE__, (name), check_g,      \
                     check_w);                                                                     \
    } while (0)

#define CHECK_BYTES(name, got, want, size)                                                         \
    do {                                                                                           \
        const unsigned char *check_a = (const void *)(got), *check_b = (const void *)(want);       \
        const size_t check_size = (size_t)(size);                                                  \
        size_t check_i = 0;                                                                        \
        if (check_size > 0 && memcmp(check_a, check_b, check_size) != 0) {                         \
            while (check_a[check_i] == check_b[check_i])                                           \
                check_i++;                                                                         \
            fail_msg("%s:%d: %s: bytes differ at %zu of %zu", __FILE__, __LINE__, (name), check_i, \
                     check_size);                                                                  \
        }                                                                                          \
    } while (0)

/* textf - what printf makes of it, which stays. Any thread may ask, and where memory is denied. */
static inline const char *__attribute__((format(printf, 1, 2))) textf(const char *format, ...)
{
    static char room[1 << 26];
    static size_t used;
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    const size_t at = __atomic_fetch_add(&used, (size_t)n + 1, __ATOMIC_ACQ_REL);
    if (n < 0 || at + (size_t)n >= sizeof room) {
        fprintf(stderr, "textf: '%s' is wrong, or the texts of this test need more than %zu MiB\n",
                format, sizeof room >> 20);
        abort();
    }
    va_start(args, format);
    vsnprintf(room + at, (size_t)n + 1, format, args);
    va_end(args);
    return room + at;
}

/* Bytes of a device that a test opens many times: where it is not limited a device reserves 64 GiB
 * of addresses, and qemu-user keeps 24 bytes for each page that ever was one. */
#define SMALL_DEVICE ((size_t)64 << 20)

/* in_soak - how many of many like cases a test takes: `most` in ./run soak, else `few`. */
static inline int in_soak(int most, int few)
{
    return getenv("SHEAF_SOAK") != NULL ? most : few;
}

/* every - the step of a loop over many like cases: 1, or `n` in a build with sanitizers, which
 * takes ten times as long for each. It is clang's only build, too: let `n` leave each path. */
static inline int every(int n)
{
    return getenv("SHEAF_SANITIZED") != NULL ? n : 1;
}
