/* listing.c - see listing.h. */
#include "inputs/tokenizer/listing.h"

#include "base/base.h"
#include "base/file.h"
#include "inputs/tokenizer/bpe.h"
#include "inputs/tokenizer/kinds.h"
#include "inputs/tokenizer/ranks.h"
#include "inputs/tokenizer/spm_file.h"
#include "inputs/tokenizer/tokenizer_config.h"

enum { FILE_MAX = 512 << 20 };

static const char bar[] = "\xe2\x96\x81"; /* U+2581, for a blank */

void sheaf__listing_release(sheaf__listing *l)
{
    for (int64_t i = 0; l->token != NULL && i < l->count; i++)
        free(l->token[i].text);
    free(l->token);
    free(l->merge);
    free(l->splitting);
    *l = (sheaf__listing){ 0 };
}

/* ---- tokens ---- */

static sheaf_status *set(sheaf__listed_token *to, const char *text, size_t size,
                         sheaf__token_kind kind, float score)
{
    char *copy = malloc(size + 1);
    if (copy == NULL)
        return sheaf__no_memory("tokens");
    memcpy(copy, text, size);
    copy[size] = '\0';
    free(to->text);
    *to = (sheaf__listed_token){ copy, size, kind, score };
    return NULL;
}

static sheaf_status *list_tokens(sheaf__listing *l, const sheaf__tokenizer *t)
{
    sheaf_status *st = NULL;
    l->count = sheaf__tokenizer_size(t);
    l->token = calloc((size_t)l->count + 1, sizeof *l->token);
    if (l->token == NULL)
        return sheaf__no_memory("tokens");
    for (int64_t i = 0; i < l->count && st == NULL; i++) {
        size_t size;
        const char *text = sheaf__vocab_token(&t->vocab, i, &size);
        if (text != NULL)
            st = set(&l->token[i], text, size,
                     !l->byte_level && sheaf__byte_of(text, size) >= 0 ? SHEAF__TOKEN_BYTE
                     : i == t->model->unk_id                           ? SHEAF__TOKEN_UNKNOWN
                                                                       : SHEAF__TOKEN_NORMAL,
                     0);
    }
    return st;
}

/* Some files call special tokens plain added ones. */
static bool looks_special(const sheaf__added_token *a)
{
    return strcmp(a->content, "<pad>") == 0 || strcmp(a->content, "<mask>") == 0 ||
           (strncmp(a->content, "<|", 2) == 0 && sheaf__ends_with(a->content, "|>")) ||
           (strncmp(a->content, "<unused", 7) == 0 && sheaf__ends_with(a->content, ">"));
}

/* Tokens to find before all else have blanks where the vocabulary has bars. */
static sheaf_status *add_user(sheaf__listed_token *to, const sheaf__added_token *a, float score)
{
    sheaf_text text = { 0 };
    const char *at = a->content, *next;
    for (; (next = strstr(at, bar)) != NULL; at = next + strlen(bar))
        sheaf__text_add(&text, "%.*s ", (int)(next - at), at);
    sheaf__text_add(&text, "%s", at);
    sheaf_status *st = text.failed ? sheaf__no_memory("tokens")
                                   : set(to, text.at, text.size, SHEAF__TOKEN_USER, score);
    sheaf__text_release(&text);
    return st;
}

static sheaf_status *list_added(sheaf__listing *l, const sheaf__tokenizer *t, bool spm)
{
    sheaf_status *st = NULL;
    for (int64_t i = 0; i < t->added.count && st == NULL; i++) {
        const sheaf__added_token *a = &t->added.token[i];
        sheaf__listed_token *to = &l->token[a->id];
        if (to->kind == SHEAF__TOKEN_UNKNOWN ||
            (spm && to->kind != SHEAF__TOKEN_NONE && to->kind != SHEAF__TOKEN_NORMAL))
            continue;
        const float score = l->byte_level ? 0 : -1000;
        st = a->special || looks_special(a)
                 ? set(to, a->content, a->size, SHEAF__TOKEN_CONTROL, score)
                 : add_user(to, a, score);
    }
    return st;
}

/* ---- merges ---- */

static int by_rank(const void *a, const void *b)
{
    const sheaf__merge *x = a, *y = b;
    return (x->rank > y->rank) - (x->rank < y->rank);
}

/* Those of the model in their order (free()). */
static sheaf_status *sorted_merges(sheaf__merge **out, int64_t *count, const sheaf__bpe_model *b)
{
    sheaf__merge *merge = malloc(((size_t)b->merges + 1) * sizeof *merge);
    if (merge == NULL)
        return sheaf__no_memory("merges");
    *count = 0;
    for (uint64_t i = 0; b->slot != NULL && i <= b->mask; i++)
        if (b->slot[i].left != UINT32_MAX)
            merge[(*count)++] = b->slot[i];
    qsort(merge, (size_t)*count, sizeof *merge, by_rank);
    *out = merge;
    return NULL;
}

static sheaf_status *list_merges(sheaf__listing *l, const sheaf__bpe_model *b)
{
    sheaf__merge *merge = NULL;
    sheaf_status *st = sorted_merges(&merge, &l->merges, b);
    if (st != NULL)
        return st;
    l->merge = malloc(((size_t)l->merges + 1) * sizeof *l->merge);
    for (int64_t i = 0; l->merge != NULL && i < l->merges; i++) {
        l->merge[i][0] = (int32_t)merge[i].left;
        l->merge[i][1] = (int32_t)merge[i].right;
    }
    free(merge);
    return l->merge == NULL ? sheaf__no_memory("merges") : NULL;
}

/* A sentencepiece model of BPE has as its scores the order of merges. */
static sheaf_status *score_by_merges(sheaf__listing *l, const sheaf__bpe_model *b)
{
    sheaf__merge *merge = NULL;
    int64_t count = 0;
    sheaf_status *st = sorted_merges(&merge, &count, b);
    for (int64_t i = count - 1; st == NULL && i >= 0; i--)
        l->token[merge[i].id].score = -(float)i;
    free(merge);
    return st;
}

/* ---- how it divides a text ---- */

static void show_pattern(sheaf_text *text, const sheaf__scanner *scanner, const char *else_this)
{
    const char *known = scanner == NULL        ? else_this
                        : !scanner->newer      ? "gpt2"
                        : scanner->digits == 3 ? "llama3"
                        : scanner->digits == 1 ? "qwen2"
                                               : else_this;
    sheaf__text_add(text, "%s%s", text->size > 0 ? "\n" : "", known);
}

/* Of one without a scanner. */
static const char *pattern_name(const char *text)
{
    return strcmp(text, sheaf__tekken_pattern) == 0 ? "tekken" : text;
}

static sheaf_status *list_steps(sheaf__listing *l, const sheaf__tokenizer *t)
{
    sheaf_text text = { 0 };
    sheaf__text_add(&text, "%s", "");
    for (int64_t i = 0; i < t->pre_tokenizer.count; i++) {
        const sheaf__step *step = &t->pre_tokenizer.step[i];
        if (step->kind == &sheaf__byte_level_splitting) {
            bool nothing;
            const sheaf__scanner *scanner = sheaf__byte_level_scanner(step->state, &nothing);
            if (!nothing)
                show_pattern(&text, scanner, "blank");
            continue;
        }
        const sheaf__pattern *pattern = step->kind == &sheaf__split || step->kind == &sheaf__digits
                                            ? sheaf__split_pattern(step->state)
                                            : NULL;
        show_pattern(&text, pattern == NULL ? NULL : sheaf__pattern_scanner(pattern),
                     pattern == NULL                ? step->kind->name
                     : step->kind == &sheaf__digits ? "digits"
                                                    : pattern_name(sheaf__pattern_text(pattern)));
    }
    return sheaf__text_take(&l->splitting, &text);
}

/* ---- the whole ---- */

static sheaf_status *read_spm(bool *is, sheaf__listing *l, const char *folder)
{
    char path[SHEAF_PATH_SIZE], *bytes = NULL;
    size_t size = 0;
    sheaf__spm m = { 0 };
    *is = false;
    sheaf__path_in(path, folder, "tokenizer.model");
    if (l->byte_level || sheaf__path_kind(path) != SHEAF_PATH_FILE)
        return NULL;
    sheaf_status *st = sheaf__file_read_all(&bytes, &size, path, FILE_MAX);
    if (st == NULL && sheaf__spm_count(bytes, size) == 0) {
        free(bytes);
        return NULL;
    }
    TRY(st, sheaf_in(sheaf__spm_read(&m, bytes, size), "%s", path));
    for (int64_t i = 0; st == NULL && i < m.count && i < l->count; i++)
        st = set(&l->token[i], m.piece[i].text.at, m.piece[i].text.size,
                 (sheaf__token_kind)m.piece[i].type, m.piece[i].score);
    *is = st == NULL;
    if (st == NULL)
        l->space_prefix = m.blanks.prefix;
    sheaf__spm_release(&m);
    free(bytes);
    return st;
}

/* Runs the post-processors on a text of one id that no token has. */
static sheaf_status *find_around(sheaf__listing *l, const sheaf__tokenizer *t)
{
    sheaf__ids_out out = { 0 };
    sheaf__ids_insert(&out, 0, -1);
    for (int64_t i = 0; i < t->post.count; i++)
        if (t->post.step[i].kind->post != NULL)
            t->post.step[i].kind->post(t->post.step[i].state, &out, true);
    bool behind = false;
    for (int64_t i = 0; i < out.count && !out.failed; i++) {
        if (out.id[i] < 0)
            behind = true;
        else if (behind && l->behind.count++ < 2)
            l->behind.id[l->behind.count - 1] = out.id[i];
        else if (!behind && l->before.count++ < 2)
            l->before.id[l->before.count - 1] = out.id[i];
    }
    free(out.id);
    return out.failed ? sheaf__no_memory("tokens") : NULL;
}

static int32_t id_of(const sheaf__tokenizer *t, const sheaf__tokenizer_config *s, int which)
{
    const char *name = sheaf__tokenizer_config_text(s->name[which]);
    return name == NULL ? -1 : sheaf__tokenizer_find(t, name);
}

static sheaf_status *list_names(sheaf__listing *l, const sheaf__tokenizer *t, const char *folder)
{
    sheaf__tokenizer_config s = { 0 };
    sheaf_status *st = sheaf__tokenizer_config_read(&s, folder);
    l->bos = sheaf__tokenizer_bos(t);
    l->eos = sheaf__tokenizer_eos(t);
    l->pad = st == NULL ? id_of(t, &s, SHEAF__PAD) : -1;
    l->unk = st == NULL ? id_of(t, &s, SHEAF__UNK) : -1;
    if (l->unk < 0 && !l->byte_level)
        l->unk = t->model->unk_id;
    TRY(st, find_around(l, t));
    if (st == NULL && !l->byte_level &&
        !sheaf__path_has(folder, "tokenizer.json", SHEAF_PATH_FILE)) {
        /* sentencepiece's file has no steps: bos unless it is denied, as llama.cpp and
         * transformers 4 do it (5 puts none by default) */
        l->before.count = s.add_bos != 0 && l->bos >= 0;
        l->before.id[0] = l->bos;
    }
    if (st == NULL && s.prefix_space >= 0)
        l->space_prefix = s.prefix_space;
    sheaf__tokenizer_config_release(&s);
    return st;
}

sheaf_status *sheaf__listing_read(sheaf__listing *l, const char *folder)
{
    sheaf__tokenizer *t = NULL;
    bool spm = false;
    *l = (sheaf__listing){ .space_prefix = -1 };
    sheaf_status *st = sheaf__tokenizer_open(&t, folder);
    if (st != NULL)
        return st;
    const int64_t steps = t->pre_tokenizer.count;
    l->byte_level =
        steps > 0 && t->pre_tokenizer.step[steps - 1].kind == &sheaf__byte_level_splitting;
    st = list_tokens(l, t);
    TRY(st, l->byte_level ? list_merges(l, t->model) : score_by_merges(l, t->model));
    TRY(st, read_spm(&spm, l, folder));
    TRY(st, list_added(l, t, spm));
    TRY(st, list_steps(l, t));
    TRY(st, list_names(l, t, folder));
    sheaf__tokenizer_close(t);
    return st;
}

sheaf_status *sheaf__listing_bytes(sheaf__listing *l, int64_t count, const int64_t named[3])
{
    static const char *const names[] = { "<|bos|>", "<|eos|>", "<|pad|>" };
    *l = (sheaf__listing){ .count = count,
                           .byte_level = true,
                           .bos = (int32_t)named[0],
                           .eos = (int32_t)named[1],
                           .unk = -1,
                           .pad = (int32_t)named[2],
                           .before = { named[0] >= 0, { (int32_t)named[0] } },
                           .space_prefix = -1 };
    l->token = calloc((size_t)count + 1, sizeof *l->token);
    l->splitting = strdup("gpt2"); /* of no effect without merges */
    sheaf_status *st = l->token == NULL || l->splitting == NULL ? sheaf__no_memory("tokens") : NULL;
    for (int i = 0; i < 256 && i < count && st == NULL; i++) {
        char text[4];
        const size_t size = sheaf__unicode_put(text, sheaf__byte_char((unsigned char)i));
        st = set(&l->token[i], text, size, SHEAF__TOKEN_NORMAL, 0);
    }
    for (int i = 0; i < 3 && st == NULL; i++)
        if (named[i] >= 256 && named[i] < count)
            st = set(&l->token[named[i]], names[i], strlen(names[i]), SHEAF__TOKEN_CONTROL, 0);
    return st;
}
