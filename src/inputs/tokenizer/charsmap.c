/* charsmap.c - the normalizer Precompiled: sentencepiece's precompiled_charsmap, as the crate
 * spm_precompiled follows it. charsmap_table.c says what the bytes are.
 *
 * An extended grapheme cluster of at most 5 bytes becomes what stands for the shortest key that it
 * begins with: the rest of it is lost. Where no key fits, and in longer clusters, each character is
 * looked up by itself. */
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "base/status.h"
#include "charsmap_table.h"
#include "kinds.h"
#include "unicode.h"

enum { LONGEST_CLUSTER = 5 };

typedef struct charsmap {
    unsigned char *bytes; /* owned */
    sheaf__charsmap table;
} charsmap;

static void close_charsmap(void *state)
{
    charsmap *map = state;
    if (map != NULL)
        free(map->bytes);
    free(map);
}

/* *bytes is malloc'd. */
static sheaf_status *from_base64(unsigned char **bytes, size_t *size, const char *text)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const size_t length = strlen(text);
    unsigned held = 0;
    size_t at = 0;
    *bytes = malloc(length / 4 * 3 + 1);
    if (*bytes == NULL)
        return sheaf__no_memory("precompiled_charsmap");
    for (*size = 0; at < length && text[at] != '='; at++) {
        const char *digit = strchr(digits, text[at]);
        if (digit == NULL || length % 4 != 0)
            break;
        held = held << 6 | (unsigned)(digit - digits);
        if (at % 4 > 0)
            (*bytes)[(*size)++] = (unsigned char)(held >> (6 - 2 * (at % 4)));
    }
    if (length % 4 == 0 && length - at <= 2 && strspn(text + at, "=") == length - at)
        return NULL;
    return sheaf_expected(sheaf_fail(SHEAF_E_FORMAT, "precompiled_charsmap: character %zu", at),
                          "base64");
}

static sheaf_status *open_charsmap(void **state, sheaf_json_reader *r, sheaf__opening *how)
{
    static const char *const keys[] = { "precompiled_charsmap", NULL };
    charsmap *map = calloc(1, sizeof *map);
    size_t size = 0;
    (void)how;
    if (map == NULL)
        return sheaf__no_memory("Precompiled");
    *state = map;
    sheaf__only_keys(r, keys);
    const char *text = sheaf__json_string(r, "precompiled_charsmap");
    if (text == NULL) {
        sheaf__json_fail(r, SHEAF_E_FORMAT, "precompiled_charsmap", "a table in base64");
        return NULL;
    }
    sheaf_status *st = from_base64(&map->bytes, &size, text);
    TRY(st, sheaf_in(sheaf__charsmap_open(&map->table, map->bytes, size), "precompiled_charsmap"));
    return st;
}

/* What stands for the shortest key that `text` begins with; NULL: none. */
static const char *look_up(const charsmap *map, const char *text, size_t size)
{
    size_t used;
    return sheaf__charsmap_find(&used, &map->table, text, size, false);
}

/* Writes `text` for the characters up to `end`: the first for the first and so on; what is too many
 * shares the place of the last. */
static void replace(sheaf__edit *e, size_t end, const char *text)
{
    size_t left = strlen(text), size, old = 0;
    for (; left > 0; text += size, left -= size) {
        sheaf__unicode_take(text, left, &size);
        if (e->at >= end) {
            sheaf__edit_insert(e, text, size);
            continue;
        }
        sheaf__unicode_take(e->bytes + e->at, end - e->at, &old);
        sheaf__edit_replace(e, left == size ? end - e->at : old, text, size);
    }
    if (e->at > 0 && e->at < end)
        sheaf__edit_skip(e, end - e->at);
}

/* What goes away before the first character that stays goes with it: `tokenizers` forgets that it
 * was there, and a Metaspace may ask whether that character is where the text begins. */
static void keep(sheaf__edit *e, size_t begin, size_t end)
{
    size_t n;
    if (e->at == 0 && begin > 0 && end > begin) {
        sheaf__unicode_take(e->bytes + begin, end - begin, &n);
        sheaf__edit_replace(e, begin + n, e->bytes + begin, n);
    }
    sheaf__edit_keep(e, end - e->at);
}

/* Marks of Unicode 16 and 17, which the crate knows and an older utf8proc does not. */
static bool is_newer_mark(uint32_t c)
{
    static const uint32_t ranges[][2] = {
        { 0x897, 0x897 },     { 0x1acf, 0x1add },   { 0x1ae0, 0x1aeb },   { 0x10d69, 0x10d6d },
        { 0x10efa, 0x10efc }, { 0x113b8, 0x113c0 }, { 0x113c2, 0x113c2 }, { 0x113c5, 0x113c5 },
        { 0x113c7, 0x113ca }, { 0x113cc, 0x113d0 }, { 0x113d2, 0x113d2 }, { 0x113e1, 0x113e2 },
        { 0x11b60, 0x11b67 }, { 0x11f5a, 0x11f5a }, { 0x1611e, 0x1612f }, { 0x1e5ee, 0x1e5ef },
        { 0x1e6e3, 0x1e6e3 }, { 0x1e6e6, 0x1e6e6 }, { 0x1e6ee, 0x1e6ef }, { 0x1e6f5, 0x1e6f5 },
    };
    if (utf8proc_category((utf8proc_int32_t)c) != UTF8PROC_CATEGORY_CN)
        return false;
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        if (c >= ranges[i][0] && c <= ranges[i][1])
            return true;
    return false;
}

/* Does a cluster end between the two? */
static bool is_boundary(uint32_t c, uint32_t next, utf8proc_int32_t *state)
{
    if (c < 0x80 && next < 0x80)
        return c != '\r' || next != '\n';
    if (!is_newer_mark(next))
        return utf8proc_grapheme_break_stateful((utf8proc_int32_t)c, (utf8proc_int32_t)next, state);
    const int class = (int)utf8proc_get_property((utf8proc_int32_t)c)->boundclass;
    return class == UTF8PROC_BOUNDCLASS_CR || class == UTF8PROC_BOUNDCLASS_LF ||
           class == UTF8PROC_BOUNDCLASS_CONTROL;
}

/* Where the cluster that begins at byte `at` ends; *single: it is one character. */
static size_t cluster_end(const sheaf__edit *e, size_t at, bool *single)
{
    utf8proc_int32_t state = 0;
    size_t n;
    uint32_t c = sheaf__unicode_take(e->bytes + at, e->size - at, &n);
    *single = true;
    for (at += n; at < e->size; at += n) {
        const uint32_t next = sheaf__unicode_take(e->bytes + at, e->size - at, &n);
        if (is_boundary(c, next, &state))
            break;
        *single = false;
        c = next;
    }
    return at;
}

/* Where the characters that stay begin: those before were written. */
static size_t change(sheaf__edit *e, size_t stay, size_t begin, size_t end, const char *text)
{
    if (text == NULL)
        return stay;
    if (stay < begin)
        keep(e, stay, begin);
    replace(e, end, text);
    return end;
}

static sheaf_status *rewrite(const void *state, sheaf__edit *e)
{
    const charsmap *map = state;
    size_t stay = 0;
    for (size_t at = 0; at < e->size;) {
        bool single;
        const size_t end = cluster_end(e, at, &single);
        const char *text = NULL;
        if (!single && end - at <= LONGEST_CLUSTER)
            text = look_up(map, e->bytes + at, end - at);
        stay = change(e, stay, at, end, text);
        if (text != NULL)
            at = end;
        for (size_t n; at < end; at += n) {
            sheaf__unicode_take(e->bytes + at, end - at, &n);
            stay = change(e, stay, at, at + n, look_up(map, e->bytes + at, n));
        }
    }
    if (stay < e->size)
        keep(e, stay, e->size);
    return NULL;
}

static sheaf_status *run(const void *state, sheaf__prepared *text)
{
    return sheaf__prepared_rewrite(text, state, rewrite);
}

const sheaf__step_kind sheaf__precompiled = { "Precompiled", open_charsmap, run, close_charsmap };
