/* spm.c - tokenizers of a sentencepiece tokenizer.model; see spm_file.h.
 *
 * As transformers reads it, it becomes a tokenizer.json. As libsentencepiece reads it, the
 * vocabulary is that of normal pieces, to which the pieces of bytes come, and the two steps around
 * the model are here. */
#include "spm_file.h"

#include "base/file.h"
#include "bpe.h"
#include "kinds.h"
#include "tokenizer_config.h"
#include "unicode.h"
#include "base/base.h"

enum { MOST_FILE = 64 << 20, BAR = 3 };

static const char bar[] = "\xe2\x96\x81"; /* U+2581 stands for a blank */

/* The vocabulary and the end of the file. */
static void put_vocab(sheaf_text *json, const sheaf__spm *m, bool of_texts)
{
    bool any = false;
    sheaf__text_add(json,
                    "%s\"model\":{\"type\":\"BPE\",\"fuse_unk\":true,\"byte_fallback\":%s,"
                    "\"unk_token\":",
                    of_texts ? "" : ",", m->byte_fallback ? "true" : "false");
    sheaf__text_json_bytes(json, m->unk_piece.at, m->unk_piece.size);
    sheaf__text_add(json, ",\"vocab\":{");
    for (int64_t i = 0; i < m->count; i++) {
        const sheaf__spm_piece *p = &m->piece[i];
        if (of_texts && p->type != SHEAF__SPM_NORMAL && p->type != SHEAF__SPM_BYTE)
            continue;
        sheaf__text_add(json, any ? "," : "");
        sheaf__text_json_bytes(json, p->text.at, p->text.size);
        sheaf__text_add(json, ":%" PRId64, i);
        any = true;
    }
    sheaf__text_add(json, "}}}");
}

/* ---- as transformers reads it ---- */

static sheaf_status *list_tokens(json_t **out, const sheaf__spm *m)
{
    json_t *all = json_object(), *extra = json_array();
    bool good = json_object_set_new(all, "extra", extra) == 0;
    for (int64_t i = 0; good && i < m->count; i++) {
        const sheaf__spm_piece *p = &m->piece[i];
        if (p->type == SHEAF__SPM_CONTROL || p->type == SHEAF__SPM_USER_DEFINED)
            good = json_array_append_new(extra, json_pack("{s:s%, s:b, s:b}", "content", p->text.at,
                                                          p->text.size, "normalized", 0, "special",
                                                          p->type == SHEAF__SPM_CONTROL)) == 0;
    }
    const struct {
        const char *key;
        int64_t id;
        sheaf__text_piece text;
    } named[] = { { "bos_token", m->bos, m->bos_piece },
                  { "eos_token", m->eos, m->eos_piece },
                  { "unk_token", m->unk, m->unk_piece } };
    for (int i = 0; good && i < 3; i++)
        if (named[i].id >= 0)
            good = json_object_set_new(all, named[i].key,
                                       json_pack("s%", named[i].text.at, named[i].text.size)) == 0;
    if (!good) {
        json_decref(all);
        return sheaf__no_memory("tokenizer.model");
    }
    *out = all;
    return NULL;
}

sheaf_status *sheaf__spm_convert(sheaf_text *json, json_t **tokens, const char *bytes, size_t size,
                                 bool own_steps)
{
    sheaf__spm m;
    sheaf_status *st = sheaf__spm_read(&m, bytes, size);
    if (!own_steps)
        TRY(st, sheaf__spm_no_table(&m));
    if (st == NULL) {
        sheaf__text_add(json, "{");
        sheaf__put_bars(json, m.byte_fallback);
        put_vocab(json, &m, false);
    }
    if (st == NULL && json->failed)
        st = sheaf__no_memory("tokenizer.model");
    TRY(st, list_tokens(tokens, &m));
    sheaf__spm_release(&m);
    return st;
}

/* ---- as libsentencepiece reads it ---- */

static bool ends_in(const sheaf__edit *e, size_t end, const char *blank)
{
    const size_t n = strlen(blank);
    return end >= e->at + n && memcmp(e->bytes + end - n, blank, n) == 0;
}

static sheaf_status *rewrite_blanks(const void *state, sheaf__edit *e)
{
    const sheaf__spm_blanks *s = state;
    const char *blank = s->escape ? bar : " ";
    size_t end = e->size;
    while (s->remove_extra && e->at < end && e->bytes[e->at] == ' ')
        sheaf__edit_skip(e, 1);
    const bool any = e->at < end;
    while (s->remove_extra && (ends_in(e, end, " ") || ends_in(e, end, blank)))
        end -= e->bytes[end - 1] == ' ' ? 1 : BAR;
    if (e->at < end && s->prefix && !s->suffix)
        sheaf__edit_insert(e, blank, strlen(blank));
    while (e->at < end) {
        const char *at = e->bytes + e->at, *next = memchr(at, ' ', end - e->at);
        sheaf__edit_keep(e, next == NULL ? end - e->at : (size_t)(next - at));
        if (next == NULL)
            break;
        if (!s->remove_extra || next[-1] != ' ')
            sheaf__edit_insert(e, blank, strlen(blank));
        sheaf__edit_skip(e, 1);
    }
    if (any && s->prefix && s->suffix)
        sheaf__edit_insert(e, blank, strlen(blank));
    return NULL;
}

static sheaf_status *normalize(const void *state, sheaf__prepared *text)
{
    return sheaf__prepared_rewrite(text, state, rewrite_blanks);
}

static const sheaf__step_kind blanks_kind = { .name = "blanks", .run = normalize };

/* A text begins with the bar that encoding put before it. */
static void put_piece(sheaf__decoding *d, const sheaf__spm_blanks *s, const char *at, size_t size)
{
    const char *end = at + size;
    if (d->taken == 0 && (s->prefix || s->remove_extra) && size >= BAR &&
        memcmp(at, bar, BAR) == 0) {
        at += BAR;
        d->taken = !s->remove_extra;
    }
    d->taken |= at < end;
    for (const char *next; at < end; at = next) {
        const char *blank = memmem(at, (size_t)(end - at), bar, BAR);
        sheaf__text_bytes(&d->held, at, (size_t)((blank != NULL ? blank : end) - at));
        if (blank != NULL)
            sheaf__text_bytes(&d->held, " ", 1);
        next = blank != NULL ? blank + BAR : end;
    }
}

/* Invalid UTF-8 and NUL become U+FFFD, each byte one. */
static void decode_piece(const void *state, sheaf__decoding *d, const char *bytes, size_t size,
                         bool end)
{
    const int byte = sheaf__byte_of(bytes, size);
    size_t at = 0;
    if (byte >= 0) {
        sheaf__text_bytes(&d->held, &(char){ (char)byte }, 1);
        d->taken = 1;
    } else {
        put_piece(d, state, bytes, size);
    }
    d->made.size = 0;
    for (size_t n; at < d->held.size && !d->raw; at += n > 0 ? n : 1) {
        const char *c = d->held.at + at;
        const size_t left = d->held.size - at;
        n = *c == '\0' ? 0 : sheaf__utf8_length(c, left);
        if (n == 0 && !end && left < 4 && (unsigned char)*c >= 0xc2)
            break; /* perhaps the beginning of a character */
        sheaf__text_bytes(&d->made, n > 0 ? c : "\xef\xbf\xbd", n > 0 ? n : 3);
    }
    sheaf_text *out = d->raw ? &d->held : &d->made;
    if (out->size > 0)
        sheaf__decoding_put(d, out->at, out->size);
    d->held.size = d->raw ? 0 : d->held.size - at;
    if (d->held.size > 0)
        memmove(d->held.at, d->held.at + at, d->held.size);
}

static const sheaf__step_kind pieces_kind = { .name = "pieces", .decode = decode_piece };

static sheaf_status *check_pieces(const sheaf__spm *m)
{
    sheaf_status *st = NULL;
    bool unknown = false;
    for (int64_t i = 0; st == NULL && i < m->count; i++) {
        if (m->piece[i].type == SHEAF__SPM_USER_DEFINED || m->piece[i].type == SHEAF__SPM_UNUSED)
            st = sheaf_expected(
                sheaf_fail(SHEAF_E_UNSUPPORTED, "piece %" PRId64 ": a user-defined piece", i),
                "none, nor an unused one, as in Llama's and Vicuna's tokenizer.model: it would be "
                "found inside any text");
        unknown |= m->piece[i].type == SHEAF__SPM_UNKNOWN;
    }
    TRY(st, sheaf__spm_no_table(m));
    return st == NULL && !unknown
               ? sheaf_expected(sheaf_fail(SHEAF_E_FORMAT, "pieces"), "an unknown piece")
               : st;
}

/* Of normal pieces, by their scores, the best first (free()). */
static uint32_t *ranks_of(const sheaf__spm *m)
{
    uint32_t *rank = malloc((size_t)m->count * sizeof *rank);
    for (int64_t i = 0; rank != NULL && i < m->count; i++) {
        const float score = m->piece[i].score + 0.0f; /* no -0 */
        uint32_t bits;
        memcpy(&bits, &score, sizeof bits);
        rank[i] = m->piece[i].type != SHEAF__SPM_NORMAL ? UINT32_MAX
                  : bits >> 31 != 0                     ? bits
                                                        : ~bits & 0x7fffffff;
    }
    return rank;
}

static bool is_piece(const sheaf__spm_piece *p, sheaf__text_piece name)
{
    return p->text.size == name.size && memcmp(p->text.at, name.at, name.size) == 0;
}

static void find_special(sheaf__tokenizer *t, const sheaf__spm *m)
{
    const sheaf__text_piece name[] = { m->bos_piece, m->eos_piece, m->pad_piece };
    int32_t *const id[] = { &t->bos, &t->eos, &t->pad }, unknown = -1;
    t->model->unk_id = -1; /* by its type, whatever has the name */
    for (int64_t i = m->count - 1; i >= 0; i--) {
        const sheaf__spm_piece *p = &m->piece[i];
        for (int k = 0; k < 3; k++)
            if (p->type == SHEAF__SPM_CONTROL && is_piece(p, name[k]))
                *id[k] = (int32_t)i;
        if (p->type == SHEAF__SPM_UNKNOWN && is_piece(p, m->unk_piece))
            unknown = (int32_t)i;
        if (p->type == SHEAF__SPM_UNKNOWN && t->model->unk_id < 0)
            t->model->unk_id = (int32_t)i;
    }
    if (t->pad < 0)
        t->pad = unknown; /* as CogVLM pads */
}

static sheaf_status *put_spaces(sheaf__steps *steps, const sheaf__step_kind *kind,
                                const sheaf__spm *m)
{
    sheaf__spm_blanks *s = malloc(sizeof *s);
    if (s != NULL)
        *s = m->blanks;
    return sheaf__steps_put(steps, kind, s);
}

/* Pieces are joined from smaller ones, down to characters: libsentencepiece joins others as well.
 */
static sheaf_status *check_characters(const sheaf__tokenizer *t, const sheaf__spm *m)
{
    for (int64_t i = 0; i < m->count; i++) {
        const sheaf__text_piece p = m->piece[i].text;
        for (size_t at = 0, n; m->piece[i].type == SHEAF__SPM_NORMAL && at < p.size; at += n) {
            sheaf__unicode_take(p.at + at, p.size - at, &n);
            const int32_t id = sheaf__vocab_find(&t->vocab, p.at + at, n);
            if (id < 0 || m->piece[id].type != SHEAF__SPM_NORMAL)
                return sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "piece %" PRId64, i),
                                      "characters that are pieces themselves");
        }
    }
    return NULL;
}

static sheaf_status *finish(sheaf__tokenizer *t, const sheaf__spm *m)
{
    t->pieces = m->count;
    t->has_decoder = true;
    find_special(t, m);
    for (int i = 0; m->byte_fallback && i < 256; i++)
        if (t->model->fallback_id[i] < 0)
            return sheaf_expected(sheaf_fail(SHEAF_E_FORMAT, "pieces"),
                                  "<0x%02X>, for byte_fallback", (unsigned)i);
    sheaf_status *st = check_characters(t, m);
    TRY(st, put_spaces(&t->normalizer, &blanks_kind, m));
    TRY(st, put_spaces(&t->decoder, &pieces_kind, m));
    return TRY(st, sheaf__tokenizer_around(t, t->bos, -1));
}

static sheaf_status *build(sheaf__tokenizer **out, const char *bytes, size_t size)
{
    sheaf__spm m;
    sheaf__tokenizer_file file = { 0 };
    sheaf__tokenizer *t = NULL;
    uint32_t *rank = NULL;
    sheaf_text json = { 0 };
    sheaf_status *st = sheaf__spm_read(&m, bytes, size);
    TRY(st, check_pieces(&m));
    if (st == NULL) {
        sheaf__text_add(&json, "{");
        put_vocab(&json, &m, true);
        rank = ranks_of(&m);
        st = json.failed || rank == NULL ? sheaf__no_memory("tokenizer.model") : NULL;
    }
    TRY(st, sheaf__tokenizer_read(&file, json.at, json.size));
    file.made = true;
    file.rank = rank;
    TRY(st, sheaf__tokenizer_build(&t, &file));
    TRY(st, finish(t, &m));
    if (st == NULL)
        *out = t;
    else
        sheaf__tokenizer_close(t);
    json_decref(file.parts);
    free(rank);
    sheaf__text_release(&json);
    sheaf__spm_release(&m);
    return st;
}

sheaf_status *sheaf__tokenizer_open_pieces(sheaf__tokenizer **out, const char *path)
{
    char *bytes = NULL;
    size_t size;
    sheaf_status *st = sheaf__file_read_all(&bytes, &size, path, MOST_FILE);
    TRY(st, sheaf_in(build(out, bytes, size), "%s: sentencepiece model", path));
    free(bytes);
    if (st != NULL && sheaf_status_code(st) == SHEAF_E_FORMAT)
        sheaf_try_this(st, "the model's sentencepiece file, tokenizer.model; tokenizer.json holds "
                           "something else");
    return st;
}
