/* sentencepiece_file.c - see sentencepiece_file.h.
 *
 * A ".model" file is one protocol buffer message (sentencepiece_model.proto, proto2). What is read
 * here:
 *   ModelProto      1 repeated SentencePiece   2 TrainerSpec   3 NormalizerSpec
 *                   5 NormalizerSpec (decoding)
 *   SentencePiece   1 string piece   2 float score   3 enum type (1 normal ... 6 byte)
 *   NormalizerSpec  2 bytes precompiled_charsmap
 * A message is a row of fields: a varint key (number * 8 + wire type), then a varint (type 0), 8
 * bytes (1), a length and that many bytes (2) or 4 bytes (5).
 *
 * The library follows offsets in precompiled_charsmap without looking where they lead
 * (tokenizer/charsmap_table.c looks), takes pieces with NUL for shorter ones and writes to stderr
 * about some damage, so none of that reaches it. */
#include "inputs/sentencepiece_file.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/text.h"
#include "inputs/tokenizer/charsmap_table.h"

enum {
    MAX_FILE = 64 << 20,
    MAX_PIECES = 4 << 20,
    MAX_PIECE = 4096, /* bytes; Llama's longest has 48 */
    NORMAL = 1,
    USER_DEFINED = 4,
    LAST_TYPE = 6,
};

typedef struct span {
    const unsigned char *begin, *at, *end; /* begin: of the file, for messages */
} span;

typedef struct field {
    uint64_t number, value; /* value: of a varint, or the bytes of type 5 */
    int wire;
    span inside; /* of type 2 */
} field;

static sheaf_status *broken(const span *s, const char *expected)
{
    return sheaf_expected(sheaf_fail(SHEAF_E_FORMAT, "byte %td", s->at - s->begin), "%s", expected);
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
        return broken(s,
                      "all bytes of a field; the file was cut short or is no sentencepiece model");
    out->inside = (span){ s->begin, s->at, s->at + length };
    if (out->wire == 5)
        for (int i = 3; i >= 0; i--)
            out->value = out->value << 8 | s->at[i];
    s->at += length;
    return NULL;
}

static sheaf_status *check_text(const span *text)
{
    const size_t size = (size_t)(text->end - text->at);
    if (size == 0 || size > MAX_PIECE || memchr(text->at, '\0', size) != NULL)
        return broken(text, "a piece of 1 to 4096 bytes without NUL");
    for (const unsigned char *p = text->at; p < text->end;) {
        const size_t n = sheaf__utf8_length(p, (size_t)(text->end - p));
        if (n == 0)
            return broken(text, "a piece in UTF-8");
        p += n;
    }
    return NULL;
}

static sheaf_status *check_piece(span piece)
{
    bool named = false;
    uint64_t type = NORMAL;
    for (field f; piece.at < piece.end;) {
        sheaf_status *st = next_field(&f, &piece);
        if (st == NULL && f.number == 1 && f.wire == 2) {
            st = check_text(&f.inside);
            named = true;
        }
        if (st != NULL)
            return st;
        if (f.number == 3 && f.wire == 0)
            type = f.value;
        if (f.number == 2 && f.wire == 5) {
            float score;
            const uint32_t bits = (uint32_t)f.value;
            memcpy(&score, &bits, sizeof score);
            if (!isfinite(score))
                return broken(&piece, "a finite score");
        }
    }
    if (!named)
        return broken(&piece, "a piece with a text");
    if (type < NORMAL || type > LAST_TYPE)
        return broken(&piece, "a type of piece from 1 to 6");
    if (type != USER_DEFINED)
        return NULL;
    sheaf_status *st =
        sheaf_fail(SHEAF_E_UNSUPPORTED, "byte %td: a user-defined piece", piece.at - piece.begin);
    sheaf_expected(
        st, "none, as in Llama's and Vicuna's tokenizer.model: it would be found inside any text");
    return st;
}

/* *table: a table rewrites characters. */
static sheaf_status *check_rules(span rules, bool *table)
{
    for (field f; rules.at < rules.end;) {
        sheaf_status *st = next_field(&f, &rules);
        if (st != NULL)
            return st;
        if (f.number == 2 && f.wire == 2 && f.inside.at < f.inside.end) {
            *table = true;
            st = sheaf_in(
                sheaf__sentencepiece_table(f.inside.at, (size_t)(f.inside.end - f.inside.at)),
                "byte %td", f.inside.at - f.inside.begin);
            if (st != NULL)
                return st;
        }
    }
    return NULL;
}

/* A message whose fields are not looked at further, but must be sound. */
static sheaf_status *check_fields(span s)
{
    sheaf_status *st = NULL;
    for (field f; st == NULL && s.at < s.end;)
        st = next_field(&f, &s);
    return st;
}

sheaf_status *sheaf__sentencepiece_check_bytes(const char *bytes, size_t size, bool *table)
{
    const unsigned char *begin = (const unsigned char *)bytes;
    span s = { begin, begin, begin + size };
    int64_t pieces = 0;
    *table = false;
    while (s.at < s.end) {
        field f;
        sheaf_status *st = next_field(&f, &s);
        if (st == NULL && f.wire == 2)
            st = f.number == 1                    ? check_piece(f.inside)
                 : f.number == 2                  ? check_fields(f.inside)
                 : f.number == 3 || f.number == 5 ? check_rules(f.inside, table)
                                                  : NULL;
        if (st != NULL)
            return st;
        pieces += f.number == 1 && f.wire == 2;
        if (pieces > MAX_PIECES)
            return broken(&s, "at most 4194304 pieces");
    }
    return pieces > 0 ? NULL : sheaf_expected(sheaf_fail(SHEAF_E_FORMAT, "pieces"), "at least one");
}

sheaf_status *sheaf__sentencepiece_read(char **bytes, size_t *size, bool *table, const char *path)
{
    char *all;
    sheaf_status *st = sheaf__file_read_all(&all, size, path, MAX_FILE);
    if (st != NULL)
        return st;
    st = sheaf__sentencepiece_check_bytes(all, *size, table);
    if (st != NULL) {
        free(all);
        if (sheaf_status_code(st) == SHEAF_E_FORMAT)
            sheaf_try_this(
                st,
                "the model's sentencepiece file, tokenizer.model; tokenizer.json holds something else");
        return sheaf_in(st, "%s: sentencepiece model", path);
    }
    *bytes = all;
    return NULL;
}
