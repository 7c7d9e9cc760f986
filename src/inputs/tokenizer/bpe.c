/* bpe.c - byte pair encoding: merges the adjacent pair of lowest rank, the first of equals, until
 * no pair has a merge (Sennrich et al. 2016).
 *
 * A short word is searched for each merge; a long one uses a heap, as a word may have megabytes.
 * Both give the result of `tokenizers`. */
#include "bpe.h"

#include "kinds.h"
#include "unicode.h"
#include "pieces.h"
#include "base/base.h"

enum {
    FEW = 40,            /* symbols: below this, a linear search is faster than a heap */
    WORD_MAX = 16 << 20, /* bytes of one word: bounds the memory of the heap */
};

/* ---- a word as symbols ---- */

typedef struct symbol {
    uint32_t id;
    uint32_t end;       /* of its bytes in the word; they begin at the end of the previous symbol */
    int32_t prev, next; /* -1: none */
} symbol;

typedef struct word {
    const sheaf__bpe_model *b;
    symbol *symbol;
    int32_t count;
    int32_t unk; /* pending unknown symbols: -1 none, else their id */
    uint32_t unk_end;
} word;

static void add(word *w, uint32_t id, size_t end)
{
    w->symbol[w->count++] = (symbol){ id, (uint32_t)end, 0, 0 };
}

static void add_unk(word *w)
{
    if (w->unk >= 0)
        add(w, (uint32_t)w->unk, w->unk_end);
    w->unk = -1;
}

static sheaf_status *unknown(word *w, size_t end)
{
    const sheaf__bpe_model *b = w->b;
    if (b->unk == NULL) /* dropped, as in `tokenizers` */
        return NULL;
    if (!b->fuse_unk)
        add_unk(w);
    if (b->unk_id < 0)
        return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_FORMAT, "the tokenizer's unk_token"),
                                          "a token of its vocabulary"),
                           "'%.80s', which is none", b->unk);
    w->unk = b->unk_id;
    w->unk_end = (uint32_t)end;
    return NULL;
}

static sheaf_status *from_raw(word *w, const char *bytes, size_t size)
{
    sheaf_status *st = NULL;
    for (size_t i = 0; st == NULL && i < size; i++) {
        const int32_t id = w->b->byte_id[(unsigned char)bytes[i]];
        if (id < 0) {
            st = unknown(w, i + 1);
        } else {
            add_unk(w);
            add(w, (uint32_t)id, i + 1);
        }
    }
    add_unk(w);
    return st;
}

/* Adds the tokens of its bytes, if each has one. */
static bool fall_back(word *w, const char *bytes, size_t size, size_t begin)
{
    for (size_t i = 0; i < size; i++)
        if (w->b->fallback_id[(unsigned char)bytes[i]] < 0)
            return false;
    for (size_t i = 0; i < size; i++)
        add(w, (uint32_t)w->b->fallback_id[(unsigned char)bytes[i]], begin + i + 1);
    return true;
}

/* An unknown symbol before a character is emitted after that character's fallback bytes, as in
 * `tokenizers`. */
static sheaf_status *from_characters(word *w, const char *bytes, size_t size)
{
    const sheaf__bpe_model *b = w->b;
    sheaf_status *st = NULL;
    for (size_t at = 0, n; st == NULL && at < size; at += n) {
        const uint32_t code = sheaf__unicode_take(bytes + at, size - at, &n);
        const int32_t id = (int32_t)b->character[code] - 1;
        if (id >= 0) {
            add_unk(w);
            add(w, (uint32_t)id, at + n);
        } else if (!b->byte_fallback || !fall_back(w, bytes + at, n, at)) {
            st = unknown(w, at + n);
        }
    }
    add_unk(w);
    return st;
}

/* ---- few symbols ---- */

/* For each remaining symbol its pair's rank and, in the lower bits, the symbol, so that the minimum
 * is the next merge; NONE: no merge. */
typedef struct pairs {
    uint64_t pair[FEW];
    uint32_t id[FEW]; /* id of the merged pair */
    uint8_t prev[FEW], next[FEW];
    int32_t count;
} pairs;

#define NONE UINT64_MAX

static inline uint64_t pair_at(const pairs *f, const word *w, int32_t i)
{
    return sheaf__pair_hash(w->symbol[i].id, w->symbol[f->next[i]].id);
}

/* May the symbol be merged with the next? If so the table of merges, which is larger than a
 * processor's cache, begins to be loaded. */
static inline bool may_pair(const pairs *f, const word *w, int32_t i)
{
    if (f->next[i] == f->count)
        return false;
    const uint64_t hash = pair_at(f, w, i);
    const bool may = sheaf__may_merge(w->b, hash);
    if (may)
        __builtin_prefetch(&w->b->slot[hash & w->b->mask]);
    return may;
}

static inline void find_pair(pairs *f, const word *w, int32_t i, bool may)
{
    const sheaf__merge *m = NULL;
    if (may)
        m = sheaf__merge_find(w->b, w->symbol[i].id, w->symbol[f->next[i]].id);
    f->pair[i] = m != NULL ? (uint64_t)m->rank << 8 | (uint64_t)i : NONE;
    f->id[i] = m != NULL ? m->id : 0;
}

static void merge_few(word *w)
{
    pairs f;
    symbol *s = w->symbol;
    f.count = w->count;
    bool may[FEW];
    for (int32_t i = 0; i < f.count; i++) {
        f.prev[i] = (uint8_t)(i - 1);
        f.next[i] = (uint8_t)(i + 1);
        may[i] = may_pair(&f, w, i);
    }
    for (int32_t i = 0; i < f.count; i++)
        find_pair(&f, w, i, may[i]);
    for (;;) {
        uint64_t least = NONE;
        for (int32_t i = 0; i < f.count; i++)
            least = f.pair[i] < least ? f.pair[i] : least;
        if (least == NONE)
            break;
        const int32_t left = (int32_t)(least & 0xff), right = f.next[left], after = f.next[right];
        s[left].id = f.id[left];
        s[left].end = s[right].end;
        f.next[left] = (uint8_t)after;
        f.pair[right] = NONE;
        if (after < f.count)
            f.prev[after] = (uint8_t)left;
        const bool before = left > 0 && may_pair(&f, w, f.prev[left]);
        find_pair(&f, w, left, may_pair(&f, w, left));
        if (left > 0)
            find_pair(&f, w, f.prev[left], before);
    }
    int32_t n = 0;
    for (int32_t i = 0; i < f.count; i = f.next[i])
        s[n++] = s[i];
    w->count = n;
}

/* ---- many symbols ---- */

/* A candidate pair: lowest rank first, then first in the word. */
typedef struct candidate {
    uint32_t rank;
    int32_t at; /* the left symbol */
    uint32_t id;
} candidate;

typedef struct heap {
    candidate *item; /* three a symbol: each merge adds two at most */
    int64_t count;
} heap;

static bool before(candidate a, candidate b)
{
    return a.rank != b.rank ? a.rank < b.rank : a.at < b.at;
}

static void push(heap *h, candidate c)
{
    int64_t i = h->count++;
    for (int64_t up; i > 0 && before(c, h->item[up = (i - 1) / 4]); i = up)
        h->item[i] = h->item[up];
    h->item[i] = c;
}

static candidate pop(heap *h)
{
    const candidate top = h->item[0], last = h->item[--h->count];
    int64_t i = 0;
    for (;;) {
        const int64_t first = i * 4 + 1, end = first + 4 < h->count ? first + 4 : h->count;
        int64_t least = first;
        if (first >= h->count)
            break;
        for (int64_t k = first + 1; k < end; k++)
            least = before(h->item[k], h->item[least]) ? k : least;
        if (!before(h->item[least], last))
            break;
        h->item[i] = h->item[least];
        i = least;
    }
    h->item[i] = last;
    return top;
}

/* Rank and id of the pair that begins at out->at; false: no merge. */
static bool find_merge(candidate *out, const word *w)
{
    const uint32_t first = w->symbol[out->at].id, second = w->symbol[w->symbol[out->at].next].id;
    if (!sheaf__may_merge(w->b, sheaf__pair_hash(first, second)))
        return false;
    const sheaf__merge *m = sheaf__merge_find(w->b, first, second);
    if (m != NULL)
        *out = (candidate){ m->rank, out->at, m->id };
    return m != NULL;
}

static void push_pair(heap *h, const word *w, int32_t left)
{
    candidate c = { .at = left };
    if (left >= 0 && w->symbol[left].next >= 0 && find_merge(&c, w))
        push(h, c);
}

/* A symbol that was merged into the previous one has itself as `prev`. */
static void merge_many(word *w, candidate *space)
{
    heap h = { space, 0 };
    symbol *s = w->symbol;
    for (int32_t i = 0; i < w->count; i++) {
        s[i].prev = i - 1;
        s[i].next = i + 1 < w->count ? i + 1 : -1;
    }
    for (int32_t i = 0; i < w->count; i++)
        push_pair(&h, w, i);
    while (h.count > 0) {
        const candidate c = pop(&h);
        const int32_t right = s[c.at].next;
        candidate now = c;
        if (s[c.at].prev == c.at || right < 0 || !find_merge(&now, w) || now.id != c.id)
            continue; /* the pair no longer exists */
        s[c.at].id = c.id;
        s[c.at].end = s[right].end;
        s[c.at].next = s[right].next;
        if (s[right].next >= 0)
            s[s[right].next].prev = c.at;
        s[right].prev = right;
        push_pair(&h, w, s[c.at].prev);
        push_pair(&h, w, c.at);
    }
    int32_t n = 0;
    for (int32_t i = 0; i >= 0 && i < w->count; i = s[i].next)
        s[n++] = s[i];
    w->count = n;
}

/* ---- a word ---- */

static sheaf_status *encode_long(word *w, sheaf__work *work, const char *bytes, size_t size,
                                 bool raw)
{
    const size_t heap_bytes = size * 3 * sizeof(candidate);
    if (size > WORD_MAX) {
        sheaf_status *st =
            sheaf_expected(sheaf_fail(SHEAF_E_DATA, "a word of the text"),
                           "at most %d bytes without a place to divide it", WORD_MAX);
        return sheaf_found(st, "%zu", size);
    }
    char *space = sheaf__work_scratch(work, size * sizeof *w->symbol + heap_bytes);
    if (space == NULL)
        return sheaf__no_memory("a word");
    w->symbol = (symbol *)space;
    candidate *heap = (candidate *)(space + size * sizeof *w->symbol);
    sheaf_status *st = raw ? from_raw(w, bytes, size) : from_characters(w, bytes, size);
    if (st == NULL && w->count <= FEW)
        merge_few(w);
    else if (st == NULL)
        merge_many(w, heap);
    return st;
}

/* The id of the whole word, -1: none. */
static sheaf_status *find_whole(int32_t *id, const sheaf__bpe_model *b, sheaf__work *work,
                                const char *bytes, size_t size, bool raw)
{
    size_t n = 0;
    if (!raw) {
        *id = sheaf__vocab_find(b->vocab, bytes, size);
        return NULL;
    }
    char *text = sheaf__work_scratch(work, size * 2);
    if (text == NULL)
        return sheaf__no_memory("a word");
    for (size_t i = 0; i < size; i++)
        n += sheaf__unicode_put(text + n, sheaf__byte_char((unsigned char)bytes[i]));
    *id = sheaf__vocab_find(b->vocab, text, n);
    return NULL;
}

sheaf_status *sheaf__bpe_encode(const sheaf__bpe_model *b, sheaf__work *work, const char *bytes,
                                size_t size, bool raw)
{
    symbol few[FEW];
    word w = { .b = b, .symbol = few, .unk = -1 };
    sheaf_status *st = NULL;
    int32_t whole = -1;
    if (b->ignore_merges)
        st = find_whole(&whole, b, work, bytes, size, raw);
    if (st != NULL)
        return st;
    if (whole >= 0) {
        sheaf__emit(work, whole, 0, size);
        return NULL;
    }
    if (size <= FEW) {
        st = raw ? from_raw(&w, bytes, size) : from_characters(&w, bytes, size);
        merge_few(&w);
    } else
        st = encode_long(&w, work, bytes, size, raw);
    for (int32_t i = 0; st == NULL && i < w.count; i++)
        sheaf__emit(work, (int32_t)w.symbol[i].id, i == 0 ? 0 : w.symbol[i - 1].end,
                    w.symbol[i].end);
    return st;
}

/* ---- words in a long text ---- */

static inline uint32_t take(const char *bytes, size_t size, bool blanks, size_t *n)
{
    *n = 1;
    return blanks && bytes[0] == ' '        ? 0x2581
           : (unsigned char)bytes[0] < 0x80 ? (unsigned char)bytes[0]
                                            : sheaf__unicode_take(bytes, size, n);
}

size_t sheaf__bpe_cut(const sheaf__bpe_model *b, const char *bytes, size_t size, bool blanks)
{
    size_t n;
    if (b->ignore_merges)
        return size;
    uint32_t before = take(bytes, size, blanks, &n), row = sheaf__bpe_row(before);
    for (size_t at = n; at < size; at += n) {
        const uint32_t code = take(bytes + at, size - at, blanks, &n), next = sheaf__bpe_row(code);
        if (row <= SHEAF__BPE_BAR && next <= SHEAF__BPE_BAR
                ? (b->apart[row][next / 64] >> next % 64 & 1) != 0
                : sheaf__bpe_apart(b, before, code))
            return at;
        before = code;
        row = next;
    }
    return size;
}
