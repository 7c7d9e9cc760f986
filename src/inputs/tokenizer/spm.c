/* spm.c - see spm.h.
 *
 * The file is one protocol buffer message (sentencepiece_model.proto). What is read here:
 *   ModelProto      1 repeated SentencePiece   2 TrainerSpec   3 NormalizerSpec
 *   SentencePiece   1 string piece   2 float score   3 enum type (1 normal, 3 control, 4
 * user-defined) TrainerSpec     3 model_type (1 unigram, 2 bpe)   35 byte_fallback   40, 41, 42 ids
 * of unk, bos, eos 45, 46, 47 their pieces NormalizerSpec  2 bytes precompiled_charsmap
 *
 * Merges are not in it: a pair of tokens whose join is a token is a merge, in the order of the ids
 * of what is joined, the shorter left part first (generate_merges() of transformers). */
#include "spm.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/status.h"
#include "unicode.h"
#include "unigram.h"
#include "vocab.h"

enum { NORMAL = 1, CONTROL = 3, USER_DEFINED = 4, LAST_TYPE = 6, MOST_PIECE = 4096 };

typedef struct span {
    const unsigned char *begin, *at, *end; /* begin: of the file, for messages */
} span;

typedef struct field {
    uint64_t number, value; /* value: of a varint, or the 4 bytes of type 5 */
    int wire;
    span inside; /* of type 2 */
} field;

typedef struct piece {
    span text;
    float score;
    uint64_t type;
} piece;

typedef struct model {
    piece *piece;
    int64_t count, capacity;
    span charsmap, unk_piece, bos_piece, eos_piece;
    int64_t type, unk, bos, eos;
    bool byte_fallback;
} model;

static sheaf_status *broken(const span *s, const char *expected)
{
    sheaf_status *st = sheaf_fail(SHEAF_E_FORMAT, "byte %td", s->at - s->begin);
    return sheaf_expected(st, "%s: no sound tokenizer.model of sentencepiece", expected);
}

static bool varint(span *s, uint64_t *out)
{
    *out = 0;
    for (int shift = 0; shift < 70 && s->at < s->end; shift += 7) {
        const unsigned char c = *s->at++;
        *out |= shift < 64 ? (uint64_t)(c & 0x7f) << shift : 0;
        if (c < 0x80)
            return true;
    }
    return false;
}

static sheaf_status *next_field(field *out, span *s)
{
    uint64_t key, length = 0;
    if (!varint(s, &key) || key >> 3 == 0 || key >> 32 != 0)
        return broken(s, "the number of a field");
    *out = (field){ .number = key >> 3, .wire = (int)(key & 7) };
    switch (out->wire) {
    case 0: return varint(s, &out->value) ? NULL : broken(s, "a number of at most 10 bytes");
    case 1: length = 8; break;
    case 5: length = 4; break;
    case 2:
        if (varint(s, &length))
            break;
        return broken(s, "the length of a field");
    default: return broken(s, "a field of wire type 0, 1, 2 or 5");
    }
    if (length > (uint64_t)(s->end - s->at))
        return broken(s, "all bytes of a field");
    out->inside = (span){ s->begin, s->at, s->at + length };
    for (int i = 3; out->wire == 5 && i >= 0; i--)
        out->value = out->value << 8 | s->at[i];
    s->at += length;
    return NULL;
}

static size_t size_of(const span *s)
{
    return (size_t)(s->end - s->at);
}

static sheaf_status *check_text(const span *text)
{
    const size_t size = size_of(text);
    if (size == 0 || size > MOST_PIECE || sheaf__utf8_valid((const char *)text->at, size) != size)
        return broken(text, "a piece of 1 to 4096 bytes of UTF-8");
    return NULL;
}

static sheaf_status *read_piece(model *m, span s)
{
    piece p = { .type = NORMAL };
    const span all = s;
    while (s.at < s.end) {
        field f;
        sheaf_status *st = next_field(&f, &s);
        if (st != NULL)
            return st;
        const uint32_t bits = (uint32_t)f.value;
        if (f.number == 1 && f.wire == 2)
            p.text = f.inside;
        else if (f.number == 2 && f.wire == 5)
            memcpy(&p.score, &bits, sizeof p.score);
        else if (f.number == 3 && f.wire == 0)
            p.type = f.value;
    }
    if (p.text.at == NULL || p.type < NORMAL || p.type > LAST_TYPE || !isfinite(p.score))
        return broken(&all, "a piece with a text, a finite score and a type from 1 to 6");
    sheaf_status *st = check_text(&p.text);
    if (st != NULL)
        return st;
    if (m->count > SHEAF__ID_MAX || !SHEAF_GROW(&m->piece, &m->capacity, m->count + 1))
        return sheaf__no_memory("tokenizer.model");
    m->piece[m->count++] = p;
    return NULL;
}

static sheaf_status *read_trainer(model *m, span s)
{
    sheaf_status *st = NULL;
    while (st == NULL && s.at < s.end) {
        field f;
        st = next_field(&f, &s);
        if (st != NULL)
            break;
        switch (f.number) {
        case 3: m->type = (int64_t)f.value; break;
        case 35: m->byte_fallback = f.value != 0; break;
        case 40: m->unk = (int32_t)f.value; break;
        case 41: m->bos = (int32_t)f.value; break;
        case 42: m->eos = (int32_t)f.value; break;
        case 45: m->unk_piece = f.inside; break;
        case 46: m->bos_piece = f.inside; break;
        case 47: m->eos_piece = f.inside; break;
        default: break;
        }
        if (f.number >= 45 && f.number <= 47)
            st = f.wire == 2 ? check_text(&f.inside) : broken(&s, "a piece");
    }
    return st;
}

static sheaf_status *read_rules(model *m, span s)
{
    sheaf_status *st = NULL;
    while (st == NULL && s.at < s.end) {
        field f;
        st = next_field(&f, &s);
        if (st == NULL && f.number == 2 && f.wire == 2)
            m->charsmap = f.inside;
    }
    return st;
}

static sheaf_status *read_model(model *m, span s)
{
    sheaf_status *st = NULL;
    while (st == NULL && s.at < s.end) {
        field f;
        st = next_field(&f, &s);
        if (st == NULL && f.wire == 2)
            st = f.number == 1   ? read_piece(m, f.inside)
                 : f.number == 2 ? read_trainer(m, f.inside)
                 : f.number == 3 ? read_rules(m, f.inside)
                                 : NULL;
    }
    if (st == NULL && m->count == 0)
        st = broken(&s, "pieces");
    if (st == NULL && m->type != 1 && m->type != 2)
        st = sheaf_found(
            sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "model_type"), "1 (Unigram) or 2 (BPE)"),
            "%" PRId64, m->type);
    return st;
}

/* ---- writing ---- */

static void put_string(sheaf_text *json, const char *bytes, size_t size)
{
    sheaf__text_bytes(json, "\"", 1);
    for (size_t i = 0; i < size; i++) {
        const unsigned char c = (unsigned char)bytes[i];
        if (c < 0x20)
            sheaf__text_add(json, "\\u%04x", c);
        else if (c == '"' || c == '\\')
            sheaf__text_add(json, "\\%c", c);
        else
            sheaf__text_bytes(json, bytes + i, 1);
    }
    sheaf__text_bytes(json, "\"", 1);
}

static void put_span(sheaf_text *json, const span *s, const char *absent)
{
    if (s->at == NULL)
        put_string(json, absent, strlen(absent));
    else
        put_string(json, (const char *)s->at, size_of(s));
}

/* Digits that unigram.c reads back as this very number. */
static void put_score(sheaf_text *json, double score)
{
    char digits[64];
    for (int places = 9; places < 30; places++) {
        const int n = snprintf(digits, sizeof digits, "%.*f", places, score);
        if (n < (int)sizeof digits && sheaf__unigram_score(digits, digits + n) == score)
            break;
    }
    sheaf__text_add(json, "%s", digits);
}

static void put_unigram(sheaf_text *json, const model *m)
{
    sheaf__text_add(json,
                    "{\"type\":\"Unigram\",\"unk_id\":%" PRId64 ",\"byte_fallback\":%s,\"vocab\":[",
                    m->unk, m->byte_fallback ? "true" : "false");
    for (int64_t i = 0; i < m->count; i++) {
        sheaf__text_add(json, i > 0 ? ",[" : "[");
        put_span(json, &m->piece[i].text, "");
        sheaf__text_bytes(json, ",", 1);
        put_score(json, (double)m->piece[i].score);
        sheaf__text_bytes(json, "]", 1);
    }
    sheaf__text_add(json, "]}");
}

static void put_merges(sheaf_text *json, const sheaf__vocab *vocab)
{
    bool first = true;
    for (int64_t i = 0; i < vocab->ids; i++) {
        size_t size = 0, length;
        const char *token = sheaf__vocab_token(vocab, i, &size);
        for (size_t at = 0; token != NULL && at < size; at += length) {
            sheaf__unicode_take(token + at, size - at, &length);
            if (at == 0 || sheaf__vocab_find(vocab, token, at) < 0 ||
                sheaf__vocab_find(vocab, token + at, size - at) < 0)
                continue;
            sheaf__text_add(json, first ? "[" : ",[");
            put_string(json, token, at);
            sheaf__text_bytes(json, ",", 1);
            put_string(json, token + at, size - at);
            sheaf__text_bytes(json, "]", 1);
            first = false;
        }
    }
}

static sheaf_status *put_bpe(sheaf_text *json, const model *m)
{
    sheaf__vocab vocab = { 0 };
    sheaf_status *st = NULL;
    sheaf__text_add(json, "{\"type\":\"BPE\",\"fuse_unk\":true,\"byte_fallback\":%s,\"unk_token\":",
                    m->byte_fallback ? "true" : "false");
    put_span(json, &m->unk_piece, "<unk>");
    sheaf__text_add(json, ",\"vocab\":{");
    for (int64_t i = 0; st == NULL && i < m->count; i++) {
        const span *text = &m->piece[i].text;
        sheaf__text_add(json, i > 0 ? "," : "");
        put_span(json, text, "");
        sheaf__text_add(json, ":%" PRId64, i);
        st = sheaf__vocab_add(&vocab, (const char *)text->at, size_of(text), (uint64_t)i);
    }
    sheaf__text_add(json, "},\"merges\":[");
    if (st == NULL)
        put_merges(json, &vocab);
    sheaf__text_add(json, "]}");
    sheaf__vocab_release(&vocab);
    return st;
}

static void put_base64(sheaf_text *json, const span *s)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const size_t size = size_of(s);
    for (size_t i = 0; i < size; i += 3) {
        const unsigned b = i + 1 < size ? s->at[i + 1] : 0, c = i + 2 < size ? s->at[i + 2] : 0;
        const unsigned all = (unsigned)s->at[i] << 16 | b << 8 | c;
        const char four[4] = { digits[all >> 18], digits[all >> 12 & 63],
                               i + 1 < size ? digits[all >> 6 & 63] : '=',
                               i + 2 < size ? digits[all & 63] : '=' };
        sheaf__text_bytes(json, four, 4);
    }
}

static sheaf_status *put_file(sheaf_text *json, const model *m, bool bpe)
{
    sheaf_status *st = NULL;
    sheaf__text_add(json, "{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[");
    if (size_of(&m->charsmap) > 0) {
        sheaf__text_add(json, "{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"");
        put_base64(json, &m->charsmap);
        sheaf__text_add(json, "\"},");
    }
    sheaf__text_add(
        json,
        "{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"\xe2\x96\x81\"}]},");
    sheaf__text_add(json,
                    "\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\","
                    "\"pattern\":{\"String\":\"\xe2\x96\x81\"},\"content\":\" \"}%s]},",
                    m->byte_fallback ? ",{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"}" : "");
    sheaf__text_add(json, "\"model\":");
    if (bpe || m->type == 2)
        st = put_bpe(json, m);
    else
        put_unigram(json, m);
    sheaf__text_add(json, "}");
    return st;
}

/* ---- tokens ---- */

static json_t *string(const span *s, const char *absent)
{
    return s->at == NULL ? json_string(absent)
                         : json_stringn_nocheck((const char *)s->at, size_of(s));
}

static sheaf_status *list_tokens(json_t **out, const model *m)
{
    json_t *all = json_object(), *extra = json_array();
    bool good = json_object_set_new(all, "extra", extra) == 0;
    for (int64_t i = 0; good && i < m->count; i++) {
        const piece *p = &m->piece[i];
        if (p->type == CONTROL || p->type == USER_DEFINED)
            good = json_array_append_new(extra, json_pack("{s:o, s:b, s:b}", "content",
                                                          string(&p->text, ""), "normalized", 0,
                                                          "special", p->type == CONTROL)) == 0;
    }
    const struct {
        const char *key, *absent;
        int64_t id;
        const span *text;
    } named[] = { { "bos_token", "<s>", m->bos, &m->bos_piece },
                  { "eos_token", "</s>", m->eos, &m->eos_piece },
                  { "unk_token", "<unk>", m->unk, &m->unk_piece } };
    for (int i = 0; good && i < 3; i++)
        if (named[i].id >= 0)
            good =
                json_object_set_new(all, named[i].key, string(named[i].text, named[i].absent)) == 0;
    if (!good) {
        json_decref(all);
        return sheaf__no_memory("tokenizer.model");
    }
    *out = all;
    return NULL;
}

sheaf_status *sheaf__spm_convert(sheaf_text *json, json_t **tokens, const char *bytes, size_t size,
                                 bool bpe)
{
    const unsigned char *begin = (const unsigned char *)bytes;
    model m = { .type = 1, .unk = 0, .bos = 1, .eos = 2 };
    sheaf_status *st = read_model(&m, (span){ begin, begin, begin + size });
    TRY(st, put_file(json, &m, bpe));
    if (st == NULL && json->failed)
        st = sheaf__no_memory("tokenizer.model");
    TRY(st, list_tokens(tokens, &m));
    free(m.piece);
    return st;
}
