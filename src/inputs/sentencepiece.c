/* sentencepiece.c - see sentencepiece.h. The ids are those of libsentencepiece: its normalizer, and
 * its BPE: of all pairs whose join is a piece, the one with the best score is joined first, the
 * leftmost of equals (Sennrich et al. 2016). */
#include "inputs/sentencepiece.h"

#include "base/base.h"
#include "base/file.h"
#include "inputs/chat/stored.h"
#include "inputs/tokenizer/bpe.h"
#include "inputs/tokenizer/spm_file.h"
#include "inputs/tokenizer/unicode.h"
#include "inputs/tokenizer/vocab.h"

enum { MOST_FILE = 64 << 20, BAR = 3 };

static const char bar[] = "\xe2\x96\x81"; /* U+2581 stands for a blank */
static const char replacement[] = "\xef\xbf\xbd";

struct sheaf__sentencepiece {
    char *bytes; /* of the file */
    sheaf__spm file;
    sheaf__vocab vocab; /* of normal pieces, which texts may contain */
    int32_t unknown, byte[256];
};

void sheaf__sentencepiece_close(sheaf__sentencepiece *model)
{
    if (model == NULL)
        return;
    sheaf__vocab_release(&model->vocab);
    sheaf__spm_release(&model->file);
    free(model->bytes);
    free(model);
}

/* ---- opening ---- */

static sheaf_status *take_piece(sheaf__sentencepiece *m, int32_t id)
{
    const sheaf__spm_piece *p = &m->file.piece[id];
    const char *text = p->text.at;
    switch (p->type) {
    case SHEAF__SPM_USER_DEFINED:
    case SHEAF__SPM_UNUSED:
        return sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "piece %d: a user-defined piece", id),
                              "none, nor an unused one, as in Llama's and Vicuna's "
                              "tokenizer.model: it would be found inside any text");
    case SHEAF__SPM_UNKNOWN: m->unknown = id; return NULL;
    case SHEAF__SPM_CONTROL: return NULL;
    case SHEAF__SPM_BYTE:
        if (p->text.size == 6)
            m->byte[strtoul(text + 1, NULL, 16) & 0xff] = id;
        return NULL;
    case SHEAF__SPM_NORMAL: break;
    }
    return sheaf__vocab_add(&m->vocab, text, p->text.size, (uint64_t)id);
}

static sheaf_status *take_file(sheaf__sentencepiece *m, size_t size)
{
    sheaf_status *st = sheaf__spm_read(&m->file, m->bytes, size);
    m->unknown = -1;
    memset(m->byte, 0xff, sizeof m->byte);
    for (int64_t i = 0; st == NULL && i < m->file.count; i++)
        st = take_piece(m, (int32_t)i);
    TRY(st, sheaf__spm_no_table(&m->file));
    if (st == NULL && m->unknown < 0)
        st = sheaf_expected(sheaf_fail(SHEAF_E_FORMAT, "pieces"), "an unknown piece");
    for (int i = 0; st == NULL && m->file.byte_fallback && i < 256; i++)
        if (m->byte[i] < 0)
            st = sheaf_expected(sheaf_fail(SHEAF_E_FORMAT, "pieces"), "<0x%02X>, for byte_fallback",
                                (unsigned)i);
    return st;
}

sheaf_status *sheaf__sentencepiece_open(sheaf__sentencepiece **out, const char *path)
{
    size_t size;
    sheaf__sentencepiece *m = calloc(1, sizeof *m);
    if (m == NULL)
        return sheaf__no_memory("sentencepiece model");
    sheaf_status *st = sheaf__file_read_all(&m->bytes, &size, path, MOST_FILE);
    if (st == NULL)
        st = sheaf_in(take_file(m, size), "%s: sentencepiece model", path);
    if (st == NULL) {
        *out = m;
        return NULL;
    }
    sheaf__sentencepiece_close(m);
    if (sheaf_status_code(st) == SHEAF_E_FORMAT)
        sheaf_try_this(st, "the model's sentencepiece file, tokenizer.model; tokenizer.json holds "
                           "something else");
    return st;
}

/* ---- properties ---- */

int64_t sheaf__sentencepiece_pieces(const sheaf__sentencepiece *model)
{
    return model->file.count;
}

static int32_t named(const sheaf__sentencepiece *model, sheaf__text_piece name, int type)
{
    for (int64_t i = 0; i < model->file.count; i++) {
        const sheaf__spm_piece *p = &model->file.piece[i];
        if ((int)p->type == type && p->text.size == name.size &&
            memcmp(p->text.at, name.at, name.size) == 0)
            return (int32_t)i;
    }
    return -1;
}

int32_t sheaf__sentencepiece_bos(const sheaf__sentencepiece *model)
{
    return named(model, model->file.bos_piece, SHEAF__SPM_CONTROL);
}

int32_t sheaf__sentencepiece_eos(const sheaf__sentencepiece *model)
{
    return named(model, model->file.eos_piece, SHEAF__SPM_CONTROL);
}

int32_t sheaf__sentencepiece_unk(const sheaf__sentencepiece *model)
{
    return named(model, model->file.unk_piece, SHEAF__SPM_UNKNOWN);
}

int32_t sheaf__sentencepiece_pad(const sheaf__sentencepiece *model)
{
    return named(model, model->file.pad_piece, SHEAF__SPM_CONTROL);
}

/* ---- choosing the file ---- */

static sheaf_status *open_tokenizer(sheaf__sentencepiece **out, const char *path,
                                    const sheaf_config *config)
{
    sheaf__sentencepiece *model = NULL;
    sheaf_status *st = sheaf__sentencepiece_open(&model, path);
    if (st != NULL)
        return st;
    const int64_t pieces = sheaf__sentencepiece_pieces(model);
    if (pieces <= config->vocab) {
        *out = model;
        return NULL;
    }
    sheaf__sentencepiece_close(model);
    st = sheaf_expected(sheaf_fail(SHEAF_E_LAYOUT, "%s", path),
                        "at most %" PRId64 " pieces, the model's vocabulary", config->vocab);
    return sheaf_try_this(sheaf_found(st, "%" PRId64, pieces),
                          "the tokenizer of this model: --tokenizer FILE");
}

static sheaf_status *open_other(sheaf__tokenizer **out, const char *path,
                                const sheaf_config *config)
{
    sheaf__stored_chat stored = { 0 }; /* conversations are laid out by a template of its own */
    sheaf_status *st = sheaf__stored_chat_open(out, &stored, path, config->vocab);
    sheaf__stored_chat_release(&stored);
    return st;
}

/* The first of the files that a folder has. */
static sheaf_status *look_in(sheaf__sentencepiece **out, sheaf__tokenizer **other,
                             const char *folder, const sheaf_config *config)
{
    static const char *const names[] = { "tokenizer.model", "tokenizer.json" };
    sheaf_status *st = NULL;
    for (int i = 0; i < 2 && st == NULL && *out == NULL; i++) {
        char *path = NULL;
        st = sheaf__path_join(&path, folder, names[i]);
        if (st == NULL && sheaf__path_kind(path) == SHEAF_PATH_FILE)
            st = i == 0 ? open_tokenizer(out, path, config) : open_other(other, folder, config);
        free(path);
    }
    return st;
}

sheaf_status *sheaf__choose_tokenizer(sheaf__sentencepiece **out, sheaf__tokenizer **other,
                                      const char *given, const char *folder,
                                      const sheaf_config *config)
{
    const bool is_given = given != NULL && *given != '\0';
    const char *where = is_given ? given : folder;
    *out = NULL;
    *other = NULL;
    if (where == NULL || *where == '\0')
        return NULL;
    if (sheaf__path_kind(where) != SHEAF_PATH_DIR) {
        if (!is_given)
            return NULL;
        sheaf_status *st = sheaf__ends_with(given, ".json") ? open_other(other, given, config)
                                                            : open_tokenizer(out, given, config);
        return st == NULL ? NULL : sheaf__path_hub(st, given);
    }
    sheaf_status *st = look_in(out, other, where, config);
    if (st == NULL && is_given && *out == NULL && *other == NULL)
        st = sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_IO, "%s", given),
                                        "a tokenizer.model or tokenizer.json in the folder"),
                         "neither");
    return st;
}

/* ---- normalising ---- */

static void normalize(sheaf_text *to, const sheaf__sentencepiece *m, const char *text, size_t size)
{
    const sheaf__spm *f = &m->file;
    const char *blank = f->escape ? bar : " ";
    for (; f->remove_extra && size > 0 && *text == ' '; size--)
        text++;
    const size_t n = strlen(blank);
    if (size > 0 && f->prefix && !f->suffix)
        sheaf__text_add(to, "%s", blank);
    for (size_t i = 0; i < size; i++)
        if (text[i] != ' ')
            sheaf__text_bytes(to, text + i, 1);
        else if (!f->remove_extra || text[i - 1] != ' ')
            sheaf__text_add(to, "%s", blank);
    while (f->remove_extra && to->size >= n && memcmp(to->at + to->size - n, blank, n) == 0)
        to->size -= n;
    if (size > 0 && f->prefix && f->suffix)
        sheaf__text_add(to, "%s", blank);
}

/* ---- encoding ---- */

typedef struct joining {
    const sheaf__sentencepiece *m;
    const char *text;
} joining;

/* The pair as a piece, ranked by its score, the best first. */
static bool find_piece(sheaf__candidate *out, const void *self, const sheaf__symbol *s)
{
    const joining *j = self;
    const sheaf__symbol *left = &s[out->at];
    const uint32_t begin = left->prev < 0 ? 0 : s[left->prev].end, end = s[left->next].end;
    const int32_t id = sheaf__vocab_find(&j->m->vocab, j->text + begin, end - begin);
    uint32_t bits;
    if (id < 0)
        return false;
    const float score = j->m->file.piece[id].score + 0.0f; /* no -0 */
    memcpy(&bits, &score, sizeof bits);
    out->rank = bits >> 31 != 0 ? bits : ~bits & 0x7fffffff;
    out->id = (uint32_t)id;
    return true;
}

/* Consecutive unknown pieces become one, or their bytes. */
static int64_t put_ids(int32_t *id, const joining *j, sheaf__symbol *word, sheaf__candidate *space,
                       size_t size)
{
    const sheaf__sentencepiece *m = j->m;
    int32_t symbols = 0;
    int64_t n = 0;
    for (size_t at = 0, length; at < size; at += length) {
        sheaf__unicode_take(j->text + at, size - at, &length);
        word[symbols++] =
            (sheaf__symbol){ (uint32_t)sheaf__vocab_find(&m->vocab, j->text + at, length),
                             (uint32_t)(at + length), 0, 0 };
    }
    symbols = sheaf__merge_many(word, symbols, space, find_piece, j);
    for (int32_t i = 0; i < symbols; i++) {
        if ((int32_t)word[i].id >= 0)
            id[n++] = (int32_t)word[i].id;
        else if (m->file.byte_fallback)
            for (uint32_t at = i == 0 ? 0 : word[i - 1].end; at < word[i].end; at++)
                id[n++] = m->byte[(unsigned char)j->text[at]];
        else if (i == 0 || (int32_t)word[i - 1].id >= 0)
            id[n++] = m->unknown;
    }
    return n;
}

sheaf_status *sheaf__sentencepiece_encode(int32_t **ids, int64_t *count,
                                          const sheaf__sentencepiece *model, const char *text,
                                          size_t size)
{
    sheaf_text normal = { 0 };
    sheaf_status *st = sheaf__check_text(text, size, SHEAF__TEXT_MAX);
    if (st != NULL)
        return st;
    normalize(&normal, model, text, size);
    sheaf__symbol *word = malloc((normal.size + 1) * sizeof *word);
    sheaf__candidate *space = malloc((3 * normal.size + 1) * sizeof *space);
    int32_t *id = malloc((normal.size + 1) * sizeof *id);
    if (normal.failed || word == NULL || space == NULL || id == NULL) {
        free(id);
        st = sheaf__no_memory("token ids");
    } else {
        *count = put_ids(id, &(joining){ model, normal.at }, word, space, normal.size);
        *ids = id;
    }
    free(word);
    free(space);
    sheaf__text_release(&normal);
    return st;
}

/* ---- decoding ---- */

/* A text begins with the bar that encoding put before it. */
static void put_piece(sheaf_text *to, const sheaf__spm *f, sheaf__text_piece piece, bool *begun)
{
    const char *at = piece.at, *end = at + piece.size;
    if (!*begun && (f->prefix || f->remove_extra) && piece.size >= BAR &&
        memcmp(at, bar, BAR) == 0) {
        at += BAR;
        *begun = !f->remove_extra;
    }
    *begun = *begun || at < end;
    for (; at < end; at++)
        if (end - at >= BAR && memcmp(at, bar, BAR) == 0) {
            sheaf__text_bytes(to, " ", 1);
            at += BAR - 1;
        } else {
            sheaf__text_bytes(to, at, 1);
        }
}

/* Invalid UTF-8 and NUL become U+FFFD. */
static void put_bytes(sheaf_text *to, const sheaf_text *bytes)
{
    for (size_t at = 0, n; at<bytes->size; at += n> 0 ? n : 1) {
        n = bytes->at[at] == '\0' ? 0 : sheaf__utf8_length(bytes->at + at, bytes->size - at);
        sheaf__text_bytes(to, n > 0 ? bytes->at + at : replacement, n > 0 ? n : BAR);
    }
}

sheaf_status *sheaf__sentencepiece_add(sheaf_text *to, bool *begun,
                                       const sheaf__sentencepiece *model, int32_t id)
{
    static const sheaf__text_piece none = { replacement, BAR };
    const sheaf__spm *f = &model->file;
    const sheaf__spm_piece *p = id >= 0 && id < f->count ? &f->piece[id] : NULL;
    if (id < 0)
        return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_DATA, "token id"), "0 or more"), "%d",
                           (int)id);
    if (p != NULL && (p->type == SHEAF__SPM_CONTROL || p->type == SHEAF__SPM_UNKNOWN))
        return NULL;
    if (p != NULL && p->type == SHEAF__SPM_BYTE) {
        sheaf__text_bytes(to, &(char){ (char)strtoul(p->text.at + 1, NULL, 16) }, 1);
        *begun = true;
    } else {
        put_piece(to, f, p == NULL ? none : p->text, begun);
    }
    return NULL;
}

sheaf_status *sheaf__sentencepiece_decode(char **text, const sheaf__sentencepiece *model,
                                          const int32_t *ids, int64_t count)
{
    sheaf_text bytes = { 0 }, all = { 0 };
    sheaf_status *st = NULL;
    bool begun = false;
    for (int64_t i = 0; st == NULL && i < count; i++)
        st = sheaf__sentencepiece_add(&bytes, &begun, model, ids[i]);
    put_bytes(&all, &bytes);
    if (st == NULL && bytes.failed)
        st = sheaf__no_memory("a text");
    TRY(st, sheaf__text_take(text, &all));
    sheaf__text_release(&all);
    sheaf__text_release(&bytes);
    return st;
}
