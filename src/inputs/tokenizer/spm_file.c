/* spm_file.c - see spm_file.h.
 *
 * The file is one protocol buffer message (sentencepiece_model.proto, proto2). The fields read
 * here:
 *   ModelProto      1 repeated SentencePiece   2 TrainerSpec   3 NormalizerSpec
 *                   5 NormalizerSpec (decoding)
 *   SentencePiece   1 string piece   2 float score   3 enum type
 *   TrainerSpec     3 model_type (2: BPE)   24 treat_whitespace_as_suffix
 *                   35 byte_fallback   40, 41, 42 ids of unk, bos, eos
 *                   45, 46, 47, 48 pieces of unk, bos, eos, pad
 *   NormalizerSpec  2 bytes precompiled_charsmap   3 add_dummy_prefix
 *                   4 remove_extra_whitespaces   5 escape_whitespaces
 * A message is a sequence of fields: a varint key (number * 8 + wire type), then a varint (type 0),
 * 8 bytes (1), a length and that many bytes (2) or 4 bytes (5). */
#include "spm_file.h"

#include <math.h>

#include "unicode.h"
#include "vocab.h"
#include "base/base.h"

enum { MOST_PIECE = 4096, UNIGRAM = 1, BPE = 2 };

typedef struct span {
    const unsigned char *begin, *at, *end; /* begin: of the file, for messages */
} span;

typedef struct field {
    uint64_t number, value; /* value: of a varint, or the 4 bytes of type 5 */
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
    for (int i = 3; out->wire == 5 && i >= 0; i--)
        out->value = out->value << 8 | s->at[i];
    s->at += length;
    return NULL;
}

static sheaf_status *take_text(sheaf__text_piece *out, const field *f)
{
    const sheaf__text_piece text = { (const char *)f->inside.at,
                                     (size_t)(f->inside.end - f->inside.at) };
    if (f->wire != 2 || text.size == 0 || text.size > MOST_PIECE ||
        memchr(text.at, '\0', text.size) != NULL ||
        sheaf__utf8_valid(text.at, text.size) != text.size)
        return broken(&f->inside, "a piece of 1 to 4096 bytes of UTF-8 without NUL");
    *out = text;
    return NULL;
}

static sheaf_status *read_piece(sheaf__spm *m, span s)
{
    sheaf__spm_piece p = { .type = SHEAF__SPM_NORMAL };
    uint64_t type = SHEAF__SPM_NORMAL;
    sheaf_status *st = NULL;
    for (field f; st == NULL && s.at < s.end;) {
        st = next_field(&f, &s);
        const uint32_t bits = (uint32_t)f.value;
        if (st == NULL && f.number == 1)
            st = take_text(&p.text, &f);
        else if (st == NULL && f.number == 2 && f.wire == 5)
            memcpy(&p.score, &bits, sizeof p.score);
        else if (st == NULL && f.number == 3 && f.wire == 0)
            type = f.value;
    }
    if (st != NULL)
        return st;
    if (p.text.at == NULL || !isfinite(p.score))
        return broken(&s, "a piece with a text and a finite score");
    if (type < SHEAF__SPM_NORMAL || type > SHEAF__SPM_BYTE)
        return broken(&s, "a type of piece from 1 to 6");
    p.type = (int)type;
    if (m->count > SHEAF__ID_MAX || !SHEAF_GROW(&m->piece, &m->capacity, m->count + 1))
        return sheaf__no_memory("tokenizer.model");
    m->piece[m->count++] = p;
    return NULL;
}

/* *type: the model's. */
static sheaf_status *read_trainer(sheaf__spm *m, uint64_t *type, span s)
{
    sheaf_status *st = NULL;
    for (field f; st == NULL && s.at < s.end;) {
        st = next_field(&f, &s);
        if (st != NULL)
            break;
        switch (f.number) {
        case 3: *type = f.value; break;
        case 24: m->blanks.suffix = f.value != 0; break;
        case 35: m->byte_fallback = f.value != 0; break;
        case 40: m->unk = (int32_t)f.value; break;
        case 41: m->bos = (int32_t)f.value; break;
        case 42: m->eos = (int32_t)f.value; break;
        case 45: st = take_text(&m->unk_piece, &f); break;
        case 46: st = take_text(&m->bos_piece, &f); break;
        case 47: st = take_text(&m->eos_piece, &f); break;
        case 48: st = take_text(&m->pad_piece, &f); break;
        default: break;
        }
    }
    return st;
}

static sheaf_status *read_rules(sheaf__spm *m, span s, bool back)
{
    sheaf_status *st = NULL;
    for (field f; st == NULL && s.at < s.end;) {
        st = next_field(&f, &s);
        if (st == NULL && f.number == 2 && f.wire == 2 && f.inside.at < f.inside.end)
            *(back ? &m->table_back : &m->table) = true;
        if (st != NULL || f.wire != 0 || back)
            continue;
        if (f.number == 3)
            m->blanks.prefix = f.value != 0;
        else if (f.number == 4)
            m->blanks.remove_extra = f.value != 0;
        else if (f.number == 5)
            m->blanks.escape = f.value != 0;
    }
    return st;
}

sheaf_status *sheaf__spm_read(sheaf__spm *m, const char *bytes, size_t size)
{
    const unsigned char *begin = (const unsigned char *)bytes;
    span s = { begin, begin, begin + size };
    sheaf_status *st = NULL;
    uint64_t type = UNIGRAM;
    *m = (sheaf__spm){ .bos = 1,
                       .eos = 2,
                       .unk_piece = { "<unk>", 5 },
                       .bos_piece = { "<s>", 3 },
                       .eos_piece = { "</s>", 4 },
                       .pad_piece = { "<pad>", 5 },
                       .blanks = { .prefix = true, .remove_extra = true, .escape = true } };
    for (field f; st == NULL && s.at < s.end;) {
        st = next_field(&f, &s);
        if (st == NULL && f.wire == 2)
            st = f.number == 1                    ? read_piece(m, f.inside)
                 : f.number == 2                  ? read_trainer(m, &type, f.inside)
                 : f.number == 3 || f.number == 5 ? read_rules(m, f.inside, f.number == 5)
                                                  : NULL;
    }
    if (st == NULL && m->count == 0)
        st = sheaf_expected(sheaf_fail(SHEAF_E_FORMAT, "pieces"), "at least one");
    if (st == NULL && type != BPE)
        st = sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "model_type"), "2 (BPE)"),
                         "%" PRIu64, type);
    return st;
}

int64_t sheaf__spm_count(const char *bytes, size_t size)
{
    const unsigned char *begin = (const unsigned char *)bytes;
    span s = { begin, begin, begin + size };
    int64_t n = 0;
    for (field f; s.at < s.end; n += f.number == 1 && f.wire == 2) {
        sheaf_status *st = next_field(&f, &s);
        if (st != NULL) {
            sheaf_status_free(st);
            return 0;
        }
    }
    return n;
}

sheaf_status *sheaf__spm_no_table(const sheaf__spm *m)
{
    if (!m->table && !m->table_back)
        return NULL;
    return sheaf_expected(
        sheaf_fail(SHEAF_E_UNSUPPORTED, "%s", m->table ? "normalizer_spec" : "denormalizer_spec"),
        "identity, as of Llama and Vicuna: no table of characters");
}

void sheaf__spm_release(sheaf__spm *m)
{
    free(m->piece);
    m->piece = NULL;
}
