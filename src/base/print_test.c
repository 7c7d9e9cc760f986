/* Text for a terminal: by hand, and beside fprintf(). */
#include "tests/check.h"

#include <inttypes.h>

#include "base/status.h"
#include "base/print.h"

static char shown[4000];

#define PRINTED(...)                                                                               \
    do {                                                                                           \
        FILE *to_ = fmemopen(shown, sizeof shown, "w");                                            \
        assert_non_null(to_);                                                                      \
        shown[0] = '\0';                                                                           \
        sheaf__print(to_, __VA_ARGS__);                                                            \
        fclose(to_);                                                                               \
    } while (0)

TEST(test_print__what_steers_is_not_shown)
{
    static const struct {
        const char *name, *text, *line, *lines;
    } rows[] = {
        { "plain", "model.layers.0 \xc3\xa4 \xe4\xb8\xad \xf0\x9f\x98\x80",
          "model.layers.0 \xc3\xa4 \xe4\xb8\xad \xf0\x9f\x98\x80", NULL },
        { "nothing", "", "", NULL },
        { "escape", "a\033[31mb", "a?[31mb", NULL },
        { "line feeds and tabs", "w\nsound\ta\r\n", "w?sound a??", "w\nsound\ta?\n" },
        { "C0 and DEL", "\001\007\b\v\f\016\037\177", "????????", NULL },
        { "C1 as UTF-8: CSI, NEL",
          "a\xc2\x9b"
          "31mb\xc2\x85\xc2\x80\xc2\x9f\xc2\xa0",
          "a?31mb???\xc2\xa0", NULL },
        { "C1 as a byte",
          "a\x9b"
          "31mb",
          "a?31mb", NULL },
        { "bidi",
          "a\xe2\x80\xae"
          "b\xe2\x80\xac\xe2\x81\xa6\xe2\x81\xa9\xe2\x80\x8e\xe2\x80\x8f\xd8\x9c",
          "a?b??????", NULL },
        { "separators",
          "a\xe2\x80\xa8"
          "b\xe2\x80\xa9",
          "a?b?", NULL },
        { "hidden", "a\xe2\x80\x8b\xef\xbb\xbf\xc2\xad\xe2\x81\xa0\xf3\xa0\x81\x81", "a?????",
          NULL },
        { "joiners are letters' business", "\xe2\x80\x8c\xe2\x80\x8d", "\xe2\x80\x8c\xe2\x80\x8d",
          NULL },
        { "no UTF-8", "\xff\xc0\xaf\xed\xa0\x80\xf4\x90\x80\x80x\xc3", "??????????x?", NULL },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        PRINTED("<%s>\n", rows[i].text);
        char want[200];
        snprintf(want, sizeof want, "<%s>\n", rows[i].line);
        if (strcmp(shown, want) != 0)
            fail_msg("%s: '%s', not '%s'", rows[i].name, shown, want);
        char *text = NULL;
        size_t size = 0;
        FILE *to = open_memstream(&text, &size);
        sheaf__print_lines(to, rows[i].text);
        fclose(to);
        const char *lines = rows[i].lines != NULL ? rows[i].lines : rows[i].line;
        if (strcmp(text, lines) != 0)
            fail_msg("%s, lines: '%s'", rows[i].name, text);
        free(text);
    }
}

/* Every byte alone, and every pair of them, leaves UTF-8 without a character of control. */
TEST(test_print__no_pair_of_bytes_steers)
{
    for (int a = 1; a < 256; a++)
        for (int b = 1; b < 256; b++) {
            const char pair[] = { (char)a, (char)b, '\0' };
            PRINTED("%s", pair);
            assert_true(sheaf__is_utf8(shown));
            for (const unsigned char *p = (const unsigned char *)shown; *p != '\0'; p++)
                if (*p < 0x20 || *p == 0x7f || (*p == 0xc2 && p[1] < 0xa0))
                    fail_msg("%02x %02x", a, b);
        }
}

#define LIKE_FPRINTF(...)                                                                          \
    do {                                                                                           \
        char want_[300];                                                                           \
        snprintf(want_, sizeof want_, __VA_ARGS__);                                                \
        PRINTED(__VA_ARGS__);                                                                      \
        assert_string_equal(shown, want_);                                                         \
    } while (0)

TEST(test_print__formats_as_fprintf_does)
{
    LIKE_FPRINTF("nothing");
    LIKE_FPRINTF("%s|%10s|%-10s|%.3s|%*s|%-*s|%.*s|%%", "abcdef", "abc", "abc", "abcdef", 7, "x", 7,
                 "y", 2, "abc");
    LIKE_FPRINTF("%d|%5d|%-5d|%05d|%+d|%i|%c", -7, 42, 42, 42, 42, INT32_MIN, 'x');
    LIKE_FPRINTF("%u|%x|%08x|%lu|%llu|%zu", 4000000000u, 0xbeefu, 0x1fu, 18446744073709551615ul,
                 18446744073709551615ull, (size_t)9);
    LIKE_FPRINTF("%ld|%lld|%" PRId64 "|%" PRIu64 "|%4" PRId64, -5l, -6ll, INT64_MIN, UINT64_MAX,
                 (int64_t)12);
    LIKE_FPRINTF("%g|%.6g|%8.3f|%.1f|%.0f|%e|%10.1f", 0.1, 1e-9, 2.5, 0.05, 1234.5, 1e300, 3.25);
    LIKE_FPRINTF("%s%s%s %d %s", "a", "", "c", 5, "e");
}

TEST(test_print__a_cut_keeps_characters_whole)
{
    static const char *const want[] = { "",
                                        "a",
                                        "a",
                                        "a",
                                        "a\xe4\xb8\xad",
                                        "a\xe4\xb8\xad",
                                        "a\xe4\xb8\xad",
                                        "a\xe4\xb8\xad\xe4\xb8\xad" };
    for (int n = 0; n < (int)ARRAY_LEN(want); n++) {
        PRINTED("%.*s", n, "a\xe4\xb8\xad\xe4\xb8\xad");
        assert_string_equal(shown, want[n]);
    }
    PRINTED("%.2s", "a\xff\xff");
    assert_string_equal(shown, "a?");
}

/* A call that has no memory often names only itself. */
TEST(test_status__memory_is_always_named)
{
    static const struct {
        const char *where, *want;
    } rows[] = {
        { "init", "sheaf: init\n  found:    out of memory\n" },
        { "a batch of 7 rows", "sheaf: a batch of 7 rows\n  found:    out of memory\n" },
        { "x: out of memory", "sheaf: x: out of memory\n" },
        { "", "  found:    out of memory\n" },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        sheaf_status *st = sheaf__no_memory(rows[i].where);
        FILE *to = fmemopen(shown, sizeof shown, "w");
        sheaf_status_print(st, to);
        fclose(to);
        assert_string_equal(shown, rows[i].want);
        assert_string_equal(sheaf_status_found(st), i == 2 ? "" : "out of memory");
        sheaf_status_free(st);
    }
    sheaf_status *st = sheaf_found(sheaf__no_memory("init"), "9 GB");
    assert_string_equal(sheaf_status_found(st), "9 GB");
    sheaf_status_free(st);
    st = sheaf_fail(SHEAF_E_IO, "init");
    assert_string_equal(sheaf_status_found(st), "");
    sheaf_status_free(st);
}
