/* unigram.c - the model Unigram (Kudo 2018): of all ways to cut a piece into tokens, the one whose
 * scores sum to most, by Viterbi's algorithm from left to right; of equal ones the first found.
 *
 * A character that is no token by itself may stand as the unknown token, with the least score of
 * all less 10. Unknown ones in a row are one token, or one per byte with byte_fallback. */
#include "unigram.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/status.h"
#include "kinds.h"
#include "rewrite.h"
#include "unicode.h"
#include "work.h"

enum { MOST_TOKENS = SHEAF__ID_MAX, MOST_DEEP = 4096 };

/* A trie in a table: from a node over a byte to a node. Node 0 is the root. */
typedef struct edge {
    uint32_t key_node; /* node + 1; 0: free */
    uint32_t to : 24, byte : 8;
} edge;

typedef struct unigram {
    const sheaf__vocab *vocab;
    double *score; /* [tokens] */
    int64_t tokens, capacity;
    int32_t *token; /* [nodes] that ends at a node; -1: none */
    int64_t nodes, node_capacity;
    edge *edge;
    int64_t mask;
    double unknown_score;
    int32_t unknown;   /* -1: none */
    int32_t byte[256]; /* -1: none */
    bool byte_fallback;
} unigram;

static void close_unigram(void *state)
{
    unigram *u = state;
    if (u == NULL)
        return;
    free(u->score);
    free(u->token);
    free(u->edge);
    free(u);
}

/* ---- the trie ---- */

static int64_t place_of(const unigram *u, uint32_t node, unsigned char byte)
{
    const uint64_t hash = ((uint64_t)node << 8 | byte) * UINT64_C(0x9e3779b97f4a7c15);
    int64_t at = (int64_t)(hash >> 32) & u->mask;
    while (u->edge[at].key_node != 0 &&
           (u->edge[at].key_node != node + 1 || u->edge[at].byte != byte))
        at = (at + 1) & u->mask;
    return at;
}

static bool new_node(unigram *u)
{
    if (u->nodes == 1 << 24 || !SHEAF_GROW(&u->token, &u->node_capacity, u->nodes + 1))
        return false;
    u->token[u->nodes++] = -1;
    return true;
}

/* At most half of the places are taken. */
static bool grow_edges(unigram *u)
{
    if (u->edge != NULL && 2 * u->nodes <= u->mask)
        return true;
    unigram larger = *u;
    larger.mask = u->edge == NULL ? 0xffff : 2 * u->mask + 1;
    larger.edge = calloc((size_t)larger.mask + 1, sizeof *larger.edge);
    if (larger.edge == NULL)
        return false;
    for (int64_t i = 0; u->edge != NULL && i <= u->mask; i++)
        if (u->edge[i].key_node != 0)
            larger.edge[place_of(&larger, u->edge[i].key_node - 1, u->edge[i].byte)] = u->edge[i];
    free(u->edge);
    *u = larger;
    return true;
}

static bool put_token(unigram *u, const char *bytes, size_t size, int32_t id)
{
    uint32_t node = 0;
    for (size_t i = 0; i < size; i++) {
        if (!grow_edges(u))
            return false;
        edge *e = &u->edge[place_of(u, node, (unsigned char)bytes[i])];
        if (e->key_node == 0) {
            *e = (edge){ node + 1, (uint32_t)u->nodes & 0xffffff, (unsigned char)bytes[i] };
            if (!new_node(u))
                return false;
        }
        node = e->to;
    }
    if (size > 0)
        u->token[node] = id;
    return true;
}

/* ---- opening ---- */

double sheaf__unigram_score(const char *at, const char *end)
{
    static const double large = 1e308;
    uint64_t digits = 0;
    int exponent = 0;
    bool point = false, full = false;
    const bool minus = *at == '-';
    for (at += minus; at < end && *at != 'e' && *at != 'E'; at++) {
        const uint64_t digit = (uint64_t)(*at - '0');
        if (*at == '.') {
            point = true;
            continue;
        }
        full = full || digits > (UINT64_MAX - digit) / 10;
        if (!full)
            digits = digits * 10 + digit;
        exponent += full ? !point : point ? -1 : 0;
    }
    if (at < end)
        exponent += (int)strtol(at + 1, NULL, 10);
    double value = (double)digits;
    for (; exponent < -308 && value != 0; exponent += 308)
        value /= large;
    char power[16];
    snprintf(power, sizeof power, "1e%d", abs(exponent) > 308 ? 308 : abs(exponent));
    value = exponent >= 0 ? value * strtod(power, NULL) : value / strtod(power, NULL);
    return minus ? -value : value;
}

static sheaf_status *read_score(sheaf_json_scan *scan, double *out)
{
    bool whole;
    int64_t integer;
    double real;
    sheaf__scan_peek(scan);
    const char *begin = scan->at;
    sheaf_status *st = sheaf__scan_number(scan, &whole, &integer, &real);
    if (st == NULL)
        *out = whole ? (double)integer : sheaf__unigram_score(begin, scan->at);
    return st == NULL && !isfinite(*out) ? sheaf__scan_fail(scan, "a finite score") : st;
}

/* ["token", score]; `token` has room for what is left of the text. */
static sheaf_status *read_token(unigram *u, sheaf__vocab *vocab, sheaf_json_scan *scan, char *token)
{
    static const char expected[] = "a token with its score";
    size_t size = 0;
    double score = 0;
    sheaf_status *st = sheaf__scan_take(scan, '[') ? sheaf__scan_string_to(scan, token, &size)
                                                   : sheaf__scan_fail(scan, expected);
    if (st == NULL && !sheaf__scan_take(scan, ','))
        st = sheaf__scan_fail(scan, expected);
    TRY(st, read_score(scan, &score));
    if (st == NULL && !sheaf__scan_take(scan, ']'))
        st = sheaf__scan_fail(scan, expected);
    if (st == NULL && size > MOST_DEEP)
        st = sheaf__scan_fail(scan, "a token of at most 4096 bytes");
    TRY(st, sheaf__vocab_add(vocab, token, size, (uint64_t)u->tokens));
    if (st == NULL && (!SHEAF_GROW(&u->score, &u->capacity, u->tokens + 1) ||
                       !put_token(u, token, size, (int32_t)u->tokens)))
        st = sheaf__no_memory("tokens");
    if (st == NULL)
        u->score[u->tokens++] = score;
    return st;
}

static sheaf_status *read_tokens(unigram *u, sheaf__vocab *vocab, sheaf_json_scan scan)
{
    bool more = true;
    if (scan.begin == NULL)
        return sheaf_expected(sheaf_fail(SHEAF_E_FORMAT, "vocab"), "a list of tokens");
    char *token = malloc((size_t)(scan.end - scan.at) + 1);
    sheaf_status *st = token == NULL ? sheaf__no_memory("tokens") : NULL;
    if (st == NULL && !sheaf__scan_take(&scan, '['))
        st = sheaf__scan_fail(&scan, "a list of tokens");
    for (bool first = true; st == NULL && more; first = false) {
        st = sheaf__scan_next_item(&scan, first, &more);
        if (st == NULL && more)
            st = read_token(u, vocab, &scan, token);
    }
    free(token);
    return st;
}

static void find_bytes(unigram *u)
{
    for (int i = 0; i < 256; i++) {
        char token[8];
        const int size = snprintf(token, sizeof token, "<0x%02X>", (unsigned)i);
        u->byte[i] = sheaf__vocab_find(u->vocab, token, (size_t)size);
    }
}

static sheaf_status *open_unigram(void **state, sheaf__vocab *vocab, const sheaf__model_file *file)
{
    static const char *const keys[] = { "unk_id", "byte_fallback", NULL };
    unigram *u = calloc(1, sizeof *u);
    sheaf_json_reader *r = file->options;
    *state = u;
    if (u == NULL || !new_node(u) || !grow_edges(u))
        return sheaf__no_memory("tokens");
    sheaf__only_keys(r, keys);
    u->vocab = vocab;
    u->byte_fallback = sheaf__json_bool(r, "byte_fallback", false);
    u->unknown = (int32_t)sheaf__json_int(r, "unk_id", 0, SHEAF__ID_MAX, -1);
    sheaf_status *st = read_tokens(u, vocab, file->vocab);
    if (st != NULL)
        return st;
    if (u->unknown >= u->tokens)
        sheaf__json_fail(r, SHEAF_E_FORMAT, "unk_id", "less than %" PRId64 ", the tokens",
                         u->tokens);
    u->unknown_score = HUGE_VAL;
    for (int64_t i = 0; i < u->tokens; i++)
        u->unknown_score = u->score[i] < u->unknown_score ? u->score[i] : u->unknown_score;
    u->unknown_score -= 10;
    find_bytes(u);
    return NULL;
}

/* ---- cutting a piece ---- */

typedef struct reached {
    double score;
    int32_t id;
    uint32_t from, to; /* from UINT32_MAX: not reached; to: the next, once the way is known */
} reached;

static void offer(reached *at, double score, int32_t id, size_t from)
{
    if (at->from == UINT32_MAX || score > at->score)
        *at = (reached){ score, id, (uint32_t)from, 0 };
}

static sheaf_status *no_unknown(void)
{
    return sheaf_expected(sheaf_fail(SHEAF_E_DATA, "a character that no token begins with"),
                          "a tokenizer with an unk_id");
}

static sheaf_status *find_ways(const unigram *u, reached *best, const char *bytes, size_t size)
{
    for (size_t i = 0; i <= size; i++)
        best[i] = (reached){ 0, -1, UINT32_MAX, 0 };
    for (size_t from = 0, length; from < size; from += length) {
        const double here = best[from].score;
        bool single = false;
        uint32_t node = 0;
        sheaf__unicode_take(bytes + from, size - from, &length);
        for (size_t at = from; at < size; at++) {
            const edge *e = &u->edge[place_of(u, node, (unsigned char)bytes[at])];
            if (e->key_node == 0)
                break;
            node = e->to;
            const int32_t id = u->token[node];
            if (id < 0)
                continue;
            offer(&best[at + 1], u->score[id] + here, id, from);
            single = single || at + 1 - from == length;
        }
        reached *next = &best[from + length];
        if (!single && u->unknown < 0 &&
            (next->from == UINT32_MAX || u->unknown_score + here > next->score))
            return no_unknown();
        if (!single)
            offer(next, u->unknown_score + here, u->unknown, from);
    }
    return NULL;
}

/* Unknown characters in a row. */
static sheaf_status *emit_unknown(const unigram *u, sheaf__work *work, const char *bytes,
                                  size_t begin, size_t end)
{
    const int32_t id = sheaf__vocab_find(u->vocab, bytes + begin, end - begin);
    bool all = u->byte_fallback && id < 0;
    for (size_t i = begin; all && i < end; i++)
        all = u->byte[(unsigned char)bytes[i]] >= 0;
    for (size_t i = begin; all && i < end; i++)
        sheaf__emit(work, u->byte[(unsigned char)bytes[i]], i, i + 1);
    if (!all)
        sheaf__emit(work, id >= 0 ? id : u->unknown, begin, end);
    return NULL;
}

static sheaf_status *encode(const void *state, sheaf__work *work, const char *bytes, size_t size,
                            bool raw)
{
    const unigram *u = state;
    reached *best = sheaf__work_scratch(work, (size + 1) * sizeof *best);
    (void)raw;
    if (best == NULL)
        return sheaf__no_memory("a text");
    sheaf_status *st = find_ways(u, best, bytes, size);
    if (st != NULL)
        return st;
    for (size_t at = size; at > 0; at = best[at].from)
        best[best[at].from].to = (uint32_t)at;
    for (size_t at = 0, end; st == NULL && at < size; at = end) {
        end = best[at].to;
        if (best[end].id != u->unknown) {
            sheaf__emit(work, best[end].id, at, end);
            continue;
        }
        while (end < size && best[best[end].to].id == u->unknown)
            end = best[end].to;
        st = emit_unknown(u, work, bytes, at, end);
    }
    return st;
}

const sheaf__model_kind sheaf__unigram = {
    .name = "Unigram", .open = open_unigram, .encode = encode, .close = close_unigram
};
