/* forms.c - the normalizer NFC.
 *
 * Most characters are simple: they neither decompose nor are moved nor become the second part of a
 * composed one, and runs of them are kept. The characters between them, with the simple character
 * before, which may be the first part of a composed one, are decomposed, put into canonical order
 * and composed. utf8proc has the tables, which are newer than those of the crate that `tokenizers`
 * uses: characters unknown to that crate are unchanged (unicode.h). */
#include <utf8proc.h>

#include "kinds.h"
#include "unicode.h"
#include "base/base.h"

enum { MOST_DECOMPOSED = 32, SECOND = 0x8000, NEITHER = 0xffff };

typedef struct mark {
    uint32_t c;
    int32_t class; /* canonical combining class */
    /* Number of characters that it replaces, less one: those that decompose to several characters
     * take one for the first and none for the others; a composed one takes what its parts take. */
    int32_t taken;
    int64_t order;
} mark;

typedef struct segment {
    mark *mark;
    int64_t count, capacity;
} segment;

static bool is_simple(uint32_t c)
{
    if (c < 0x300 || (c >= 0xac00 && c <= 0xd7a3)) /* Hangul syllables */
        return true;
    if (c >= 0x1160 && c <= 0x11ff) /* vowels and last consonants */
        return false;
    const utf8proc_property_t *p = utf8proc_get_property((utf8proc_int32_t)c);
    const bool decomposes = p->decomp_seqindex != NEITHER && p->decomp_type == 0;
    const bool second = p->comb_index >= SECOND && p->comb_index != NEITHER;
    return (!decomposes && p->combining_class == 0 && !second) || sheaf__form_unknown(c);
}

static bool add_decomposed(segment *s, uint32_t c)
{
    utf8proc_int32_t part[MOST_DECOMPOSED] = { (utf8proc_int32_t)c };
    int bounds = 0;
    utf8proc_ssize_t n = 1;
    if (!sheaf__form_unknown(c))
        n = utf8proc_decompose_char((utf8proc_int32_t)c, part, MOST_DECOMPOSED, UTF8PROC_DECOMPOSE,
                                    &bounds);
    if (n < 1 || n > MOST_DECOMPOSED || !SHEAF_GROW(&s->mark, &s->capacity, s->count + n))
        return false;
    for (utf8proc_ssize_t i = 0; i < n; i++, s->count++) {
        const int class = sheaf__form_unknown((uint32_t)part[i])
                              ? 0
                              : utf8proc_get_property(part[i])->combining_class;
        s->mark[s->count] = (mark){ (uint32_t)part[i], class, i == 0 ? 0 : -1, s->count };
    }
    return true;
}

static int by_class(const void *a, const void *b)
{
    const mark *x = a, *y = b;
    if (x->class != y->class)
        return x->class < y->class ? -1 : 1;
    return (x->order > y->order) - (x->order < y->order);
}

/* Sorts each run of marks whose class is not 0 by class, stably. */
static void sort_marks(segment *s)
{
    for (int64_t i = 0; i < s->count;) {
        int64_t end = i;
        while (end < s->count && s->mark[end].class != 0)
            end++;
        if (end - i > 1)
            qsort(s->mark + i, (size_t)(end - i), sizeof *s->mark, by_class);
        i = end + 1;
    }
}

static bool compose_two(uint32_t *out, uint32_t first, uint32_t second)
{
    utf8proc_int32_t pair[2] = { (utf8proc_int32_t)first, (utf8proc_int32_t)second };
    if (sheaf__form_unknown(first) || sheaf__form_unknown(second) ||
        utf8proc_normalize_utf32(pair, 2, UTF8PROC_COMPOSE | UTF8PROC_STABLE) != 1 ||
        sheaf__form_unknown((uint32_t)pair[0]))
        return false;
    *out = (uint32_t)pair[0];
    return true;
}

/* A mark is blocked from the starter before it by one between them whose class is not lower. */
static void compose(segment *s)
{
    int64_t kept = 0, starter = -1;
    int32_t last = -1; /* the class of the last mark that was kept behind the starter */
    for (int64_t i = 0; i < s->count; i++) {
        const mark m = s->mark[i];
        if (starter >= 0 && last < m.class &&
            compose_two(&s->mark[starter].c, s->mark[starter].c, m.c)) {
            s->mark[starter].taken += m.taken + 1;
            continue;
        }
        if (m.class == 0) {
            starter = kept;
            last = -1;
        } else {
            last = m.class;
        }
        s->mark[kept++] = m;
    }
    s->count = kept;
}

/* The characters of [begin, must) and those after them up to a simple one; *end: where that is. */
static bool gather(segment *s, const sheaf__edit *e, size_t begin, size_t must, size_t *end)
{
    size_t at = begin, n;
    for (s->count = 0; at < e->size; at += n) {
        const uint32_t c = sheaf__unicode_take(e->bytes + at, e->size - at, &n);
        if (at >= must && is_simple(c))
            break;
        if (!add_decomposed(s, c))
            return false;
    }
    *end = at;
    return true;
}

static void write_segment(sheaf__edit *e, segment *s, size_t end)
{
    sort_marks(s);
    compose(s);
    for (int64_t i = 0; i < s->count; i++) {
        char bytes[4];
        const size_t size = sheaf__unicode_put(bytes, s->mark[i].c);
        size_t take = 0, n;
        for (int32_t k = 0; k <= s->mark[i].taken && e->at + take < end; k++, take += n)
            sheaf__unicode_take(e->bytes + e->at + take, end - e->at - take, &n);
        if (take > 0)
            sheaf__edit_replace(e, take, bytes, size);
        else
            sheaf__edit_insert(e, bytes, size);
    }
    sheaf__edit_skip(e, end - e->at);
}

static sheaf_status *rewrite(const void *state, sheaf__edit *e)
{
    segment s = { 0 };
    bool good = true;
    size_t before = 0, n; /* begin of the last simple character */
    for (size_t at = 0; good && at < e->size; at += n) {
        const uint32_t c = sheaf__unicode_take(e->bytes + at, e->size - at, &n);
        if (is_simple(c)) {
            before = at;
            continue;
        }
        size_t end = at;
        sheaf__edit_keep(e, before - e->at);
        good = gather(&s, e, before, at + n, &end);
        if (good)
            write_segment(e, &s, end);
        before = at = end;
        n = 0;
    }
    sheaf__edit_keep(e, e->size - e->at);
    free(s.mark);
    return good ? NULL : sheaf__no_memory("a normal form");
}

static sheaf_status *run(const void *state, sheaf__prepared *text)
{
    return sheaf__prepared_rewrite(text, state, rewrite);
}

const sheaf__step_kind sheaf__nfc = { "NFC", "", 0, NULL, run };
