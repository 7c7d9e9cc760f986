/* chat_encoder.c - see chat_encoder.h. */
#include "inputs/chat_encoder.h"

#include "base/base.h"
#include "base/json.h"

static const char BYTE_BOS[] = "<s>", BYTE_EOS[] = "</s>"; /* as a template writes them */

/* ---- marks ---- */

static sheaf_status *no_mark(const char *token, const char *key, const sheaf_config *config)
{
    sheaf_status *st = sheaf_fail(key == NULL ? SHEAF_E_UNSUPPORTED : SHEAF_E_LAYOUT,
                                  key == NULL ? "pictures in a text" : "config.json");
    if (key != NULL)
        return sheaf_expected(
            st, "%s: the id of %s, from 256 to %" PRId64 ", as sheaf_tokenizer is \"bytes\"", key,
            token, config->vocab - 1);
    sheaf_expected(st, "a tokenizer with the token %s, below %" PRId64 ", the model's vocabulary",
                   token, config->vocab);
    return sheaf_try_this(st, "the tokenizer of this model: `tokenizer PATH`");
}

sheaf_status *sheaf__chat_encoder_marks(sheaf__chat_encoder *encoder, const sheaf_config *config)
{
    json_t *object = NULL;
    sheaf_status *st = NULL;
    sheaf__family_for(config)->pictures(&encoder->form, config);
    if (encoder->form.end != NULL && encoder->tokenizer != NULL) {
        const int32_t end = sheaf__tokenizer_find(encoder->tokenizer, encoder->form.end);
        encoder->eos_id = end >= 0 ? end : encoder->eos_id;
    }
    encoder->begins = sheaf__family_for(config)->image.before > 0;
    encoder->ends = sheaf__family_for(config)->image.after > 0;
    if (encoder->tokenizer == NULL && config->json != NULL)
        st = sheaf__json_parse(&object, config->json, strlen(config->json));
    for (int i = 0; i < SHEAF__MARKS && st == NULL; i++) {
        const char *token = encoder->form.mark[i].token, *key = encoder->form.mark[i].key;
        encoder->mark[i] = -1;
        if (token == NULL)
            continue;
        const json_t *value = encoder->tokenizer == NULL ? json_object_get(object, key) : NULL;
        int64_t id = encoder->tokenizer != NULL ? sheaf__tokenizer_find(encoder->tokenizer, token)
                     : json_is_integer(value)   ? json_integer_value(value)
                                                : -1;
        const int64_t least = encoder->tokenizer == NULL ? 256 : 0;
        if (id < least || id >= config->vocab)
            st = no_mark(token, encoder->tokenizer == NULL ? key : NULL, config);
        else
            encoder->mark[i] = (int32_t)id;
    }
    json_decref(object);
    return st;
}

/* ---- marks in the text ---- */

/* Blanks that the template stripped at the beginning of a message's content. */
static size_t taken_in_front(const sheaf__message *m, const sheaf_span *span)
{
    const char *at = m->content;
    size_t size = m->size;
    if (span->end - span->begin == size)
        return 0;
    sheaf__utf8_strip(&at, &size);
    return (size_t)(at - m->content);
}

/* Moves marks from their messages' contents to the text. Marks are no blanks. */
static void move_marks(sheaf__placed_mark *mark, const sheaf__placed *p,
                       const sheaf__rendered *text)
{
    int64_t next = 0;
    for (int64_t i = 0; i < text->spans && next < p->marks; i++) {
        const sheaf_span *span = &text->span[i];
        if (span->kind != SHEAF_SPAN_CONTENT || span->message != p->mark[next].message)
            continue;
        const size_t shift = taken_in_front(&p->message[span->message], span);
        for (; next < p->marks && p->mark[next].message == span->message; next++) {
            mark[next] = p->mark[next];
            mark[next].begin += span->begin - shift;
            mark[next].end += span->begin - shift;
        }
    }
    for (; next < p->marks; next++) /* of a message that the template does not write */
        mark[next] = (sheaf__placed_mark){ -1, text->size, text->size, p->mark[next].mark };
}

/* ---- bytes ---- */

static int32_t byte_special(size_t *length, const sheaf__chat_encoder *s, const char *text,
                            size_t size)
{
    const size_t b = sizeof BYTE_BOS - 1, e = sizeof BYTE_EOS - 1;
    const bool bos = size >= b && memcmp(text, BYTE_BOS, b) == 0,
               eos = size >= e && memcmp(text, BYTE_EOS, e) == 0;
    *length = bos ? b : eos ? e : 0;
    return bos ? s->bos_id : eos ? s->eos_id : -1;
}

static void put(sheaf__chat_ids *out, int32_t id, size_t begin, size_t end)
{
    out->id[out->count] = id;
    out->where[out->count++] = (sheaf__text_range){ begin, end };
}

static sheaf_status *encode_bytes(sheaf__chat_ids *out, const sheaf__chat_encoder *s,
                                  const sheaf__placed_mark *mark, int64_t marks)
{
    const sheaf__rendered *text = &out->text;
    out->id = malloc((text->size + 1) * sizeof *out->id);
    out->where = malloc((text->size + 1) * sizeof *out->where);
    if (out->id == NULL || out->where == NULL)
        return sheaf__no_memory("conversation");
    int64_t next = 0, span = 0;
    for (size_t at = 0; at < text->size;) {
        size_t n = 0;
        while (span < text->spans &&
               (text->span[span].kind != SHEAF_SPAN_CONTENT || text->span[span].end <= at))
            span++;
        const bool written = span < text->spans && text->span[span].begin <= at;
        int32_t id = (unsigned char)text->text[at];
        if (next < marks && mark[next].begin == at) {
            n = mark[next].end - at;
            id = s->mark[mark[next++].mark];
        } else if (!written) {
            const int32_t special = byte_special(&n, s, text->text + at, text->size - at);
            id = special >= 0 ? special : id;
            n = special >= 0 ? n : 0;
        }
        n = n == 0 ? 1 : n;
        put(out, id, at, at + n);
        at += n;
    }
    return NULL;
}

/* ---- a tokenizer ---- */

/* The ranges that people wrote: contents without marks. */
static sheaf_status *plain_ranges(sheaf__text_range **out, int64_t *count,
                                  const sheaf__rendered *text, const sheaf__placed_mark *mark,
                                  int64_t marks)
{
    sheaf__text_range *range = malloc((size_t)(text->spans + marks + 1) * sizeof *range);
    int64_t next = 0, n = 0;
    if (range == NULL)
        return sheaf__no_memory("conversation");
    for (int64_t i = 0; i < text->spans; i++) {
        size_t begin = text->span[i].begin;
        if (text->span[i].kind != SHEAF_SPAN_CONTENT)
            continue;
        for (; next < marks && mark[next].begin < text->span[i].end; next++) {
            if (mark[next].begin > begin)
                range[n++] = (sheaf__text_range){ begin, mark[next].begin };
            begin = mark[next].end;
        }
        if (begin < text->span[i].end)
            range[n++] = (sheaf__text_range){ begin, text->span[i].end };
    }
    *out = range;
    *count = n;
    return NULL;
}

static sheaf_status *other_tokens(const sheaf__chat_encoder *s, sheaf__mark mark)
{
    sheaf_status *st = sheaf_fail(SHEAF_E_LAYOUT, "tokenizer");
    sheaf_expected(st, "%s in a text to be the token of that name", s->form.mark[mark].token);
    sheaf_found(st, "other tokens");
    return sheaf_try_this(st, "the tokenizer of this model: `tokenizer PATH`");
}

static sheaf_status *encode(sheaf__chat_ids *out, const sheaf__chat_encoder *s,
                            const sheaf__placed_mark *mark, int64_t marks)
{
    if (s->tokenizer == NULL)
        return encode_bytes(out, s, mark, marks);
    sheaf__text_range *plain = NULL;
    int64_t n = 0;
    sheaf_status *st = s->specials ? NULL : plain_ranges(&plain, &n, &out->text, mark, marks);
    TRY(st, sheaf__tokenizer_encode(
                &out->id, &out->where, &out->count, s->tokenizer, out->text.text, out->text.size,
                &(sheaf__encode_options){ .plain_range = plain, .plain_ranges = n }));
    for (int64_t i = 0; i < n && st == NULL && out->written == NULL; i++)
        out->written = sheaf__tokenizer_written(s->tokenizer, out->text.text + plain[i].begin,
                                                plain[i].end - plain[i].begin);
    free(plain);
    return st;
}

/* ---- the whole ---- */

static sheaf_status *put_bos(sheaf__chat_ids *out, const sheaf__chat_encoder *s)
{
    const bool wanted = s->form.bos || s->tokenizer == NULL;
    if (!wanted || s->bos_id < 0 || (out->count > 0 && out->id[0] == s->bos_id))
        return NULL;
    const size_t n = (size_t)out->count;
    int32_t *id = realloc(out->id, (n + 1) * sizeof *id);
    out->id = id == NULL ? out->id : id;
    sheaf__text_range *where = realloc(out->where, (n + 1) * sizeof *where);
    out->where = where == NULL ? out->where : where;
    if (id == NULL || where == NULL)
        return sheaf__no_memory("conversation");
    memmove(id + 1, id, n * sizeof *id);
    memmove(where + 1, where, n * sizeof *where);
    id[0] = s->bos_id;
    where[0] = (sheaf__text_range){ 0, 0 };
    out->count++;
    return NULL;
}

/* Checks that marks became their tokens, and sets the rows of pictures. */
static sheaf_status *find_rows(sheaf__chat_ids *out, const sheaf__chat_encoder *s,
                               const sheaf__placed_mark *mark, int64_t marks)
{
    const sheaf__text_range *where = out->where;
    int64_t i = 0;
    out->row = calloc((size_t)out->count + 1, 1);
    if (out->row == NULL)
        return sheaf__no_memory("conversation");
    for (int64_t k = 0; k < marks; k++) {
        while (i < out->count && (where[i].begin < mark[k].begin || where[i].begin == where[i].end))
            i++;
        if (mark[k].begin == mark[k].end)
            continue;
        if (i == out->count || where[i].begin != mark[k].begin || where[i].end != mark[k].end ||
            out->id[i] != s->mark[mark[k].mark])
            return other_tokens(s, mark[k].mark);
        out->row[i] = mark[k].mark == SHEAF__MARK_ROW || mark[k].mark == SHEAF__MARK_FRAME ||
                      (s->begins && mark[k].mark == SHEAF__MARK_BEGIN) ||
                      (s->ends && mark[k].mark == SHEAF__MARK_END);
    }
    return NULL;
}

static sheaf_status *render(sheaf__rendered *out, const sheaf__chat_encoder *s,
                            const sheaf__placed *p, bool prompt)
{
    const bool bytes = s->tokenizer == NULL, first = p->messages > 0;
    const bool system =
        s->form.system != NULL && !bytes && first && strcmp(p->message[0].role, "system") != 0;
    const sheaf__chat_options how = { .generation_prompt = prompt,
                                      .answers = !prompt,
                                      .thinking = s->form.thoughts_said ? SHEAF__THINKING_BY_ANSWER
                                                                        : SHEAF__THINKING_UNSET,
                                      .tools = s->tools,
                                      .bos = bytes ? BYTE_BOS : s->bos,
                                      .eos = bytes ? BYTE_EOS : s->eos };
    if (!system)
        return sheaf__chat_render(out, s->chat, p->message, p->messages, &how);
    sheaf__message *all = malloc(((size_t)p->messages + 1) * sizeof *all);
    if (all == NULL)
        return sheaf__no_memory("conversation");
    all[0] = (sheaf__message){ .role = "system",
                               .content = s->form.system,
                               .size = strlen(s->form.system) };
    memcpy(all + 1, p->message, (size_t)p->messages * sizeof *all);
    sheaf_status *st = sheaf__chat_render(out, s->chat, all, p->messages + 1, &how);
    free(all);
    int64_t kept = 0; /* spans of the given messages */
    for (int64_t i = 0; st == NULL && i < out->spans; i++)
        if (out->span[i].message > 0) {
            out->span[kept] = out->span[i];
            out->span[kept++].message--;
        }
    out->spans = st == NULL ? kept : out->spans;
    return st;
}

sheaf_status *sheaf__chat_encode(sheaf__chat_ids *out, const sheaf__chat_encoder *s,
                                 const sheaf__placed *p, bool prompt)
{
    *out = (sheaf__chat_ids){ 0 };
    sheaf__placed_mark *mark = malloc(((size_t)p->marks + 1) * sizeof *mark);
    sheaf_status *st = mark == NULL ? sheaf__no_memory("conversation") : NULL;
    TRY(st, render(&out->text, s, p, prompt));
    if (st == NULL)
        move_marks(mark, p, &out->text);
    TRY(st, encode(out, s, mark, p->marks));
    TRY(st, put_bos(out, s));
    TRY(st, find_rows(out, s, mark, p->marks));
    free(mark);
    return st;
}

void sheaf__chat_ids_release(sheaf__chat_ids *s)
{
    free(s->id);
    free(s->where);
    free(s->row);
    sheaf__rendered_release(&s->text);
    *s = (sheaf__chat_ids){ 0 };
}

/* ---- labels ---- */

void sheaf__chat_ids_targets(int32_t *target, int32_t *behind, int32_t none,
                             const sheaf__chat_encoder *encoder, const sheaf__chat_ids *encoded,
                             bool (*message_counts)(const void *self, int64_t message),
                             const void *self)
{
    for (int64_t i = 0; i < encoded->count; i++)
        target[i] = none;
    *behind = none;
    int64_t at = 0;
    for (int64_t k = 0; k < encoded->text.spans; k++) {
        const sheaf_span *span = &encoded->text.span[k];
        if (span->kind != SHEAF_SPAN_ANSWER)
            continue;
        while (at < encoded->count && encoded->where[at].end <= span->begin)
            at++;
        const bool counts = message_counts == NULL || message_counts(self, span->message);
        for (; at < encoded->count && encoded->where[at].begin < span->end; at++)
            if (counts && encoded->where[at].begin < encoded->where[at].end)
                target[at] = encoded->id[at];
        if (!counts || !sheaf__chat_is_open(encoder->chat, &encoded->text, k))
            continue;
        *(at < encoded->count ? &target[at] : behind) =
            encoder->eos_id >= 0 ? encoder->eos_id : none;
    }
}
