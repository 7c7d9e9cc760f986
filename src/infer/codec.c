/* codec.c - texts and conversations to tokens, and tokens to texts: see codec.h. */
#include "infer/codec.h"

#include "base/base.h"
#include "data/compose.h"
#include "data/text_encode.h"
#include "schema/family.h"

static bool speaks(const sheaf__codec *w)
{
    return w->tokenizer != NULL || w->config->byte_vocab;
}

sheaf_status *sheaf__codec_check_tokenizer(const sheaf__codec *w)
{
    if (speaks(w))
        return NULL;
    sheaf_status *st = sheaf_fail(SHEAF_E_UNSUPPORTED, "a prompt as text");
    sheaf_expected(st,
                   "%s in the model's folder, or a model with a byte vocabulary "
                   "(\"sheaf_tokenizer\": \"bytes\" in its config)",
                   "a tokenizer.json or tokenizer.model");
    return sheaf_try_this(
        st,
        "`tokenizer FILE`, the tokenizer of this model; sheaf generate also takes token ids: --tokens 1,2,3");
}

static sheaf_status *check_sight(const sheaf__codec *w, bool image)
{
    const char *family = sheaf_family_name(w->config->family);
    if (image && !w->images)
        return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "prompt"),
                                          "no image: %s has no vision tower", family),
                           "one");
    if (!image && sheaf__family_for(w->config)->image.needed)
        return sheaf_try_this(sheaf__image_needed(SHEAF_E_UNSUPPORTED, "prompt", w->config),
                              "`image FILE`, or \"image\" in the record");
    return NULL;
}

/* Errors: empty prompts, and those that leave no space within max_length. */
static sheaf_status *check_length(const sheaf__codec *w, int64_t n)
{
    if (n == 0)
        return sheaf_expected(sheaf_fail(SHEAF_E_DATA, "prompt"), "at least one token");
    if (w->max_length == 0 || n < w->max_length)
        return NULL;
    sheaf_status *st = sheaf_expected(sheaf_fail(SHEAF_E_DATA, "prompt"),
                                      "fewer positions than max_length %" PRId64, w->max_length);
    return sheaf_try_this(sheaf_found(st, "%" PRId64, n),
                          "a max_length above %" PRId64 ", by as many as the answer may have", n);
}

static sheaf_status *encode(sheaf__prompt *out, void **block, const sheaf__codec *w,
                            const char *text, size_t size)
{
    int32_t *ids = NULL;
    int64_t n = 0;
    sheaf__text_range *where = NULL;
    sheaf_status *st = sheaf__tokenizer_encode(
        &ids, w->specials ? &where : NULL, &n, w->tokenizer, text, size,
        &(sheaf__encode_options){ .add_special = true, .plain = !w->specials });
    if (st == NULL && w->specials)
        sheaf__text_leave_second(ids, where, &n);
    free(where);
    TRY(st, check_length(w, n));
    if (st != NULL) {
        free(ids);
        return st;
    }
    *out = (sheaf__prompt){ .ids = ids, .n = n };
    if (!w->specials)
        out->written = sheaf__tokenizer_written(w->tokenizer, text, size);
    *block = ids;
    return NULL;
}

static sheaf_status *plain(sheaf__prompt *out, void **block, const sheaf__codec *w,
                           const char *text)
{
    const int64_t n = (int64_t)strlen(text);
    const bool bos = w->bos >= 0;
    if (w->tokenizer != NULL)
        return encode(out, block, w, text, (size_t)n);
    if (n + bos == 0)
        return sheaf_expected(sheaf_fail(SHEAF_E_DATA, "prompt"), "at least one token");
    int32_t *ids = malloc((size_t)(n + bos) * sizeof *ids);
    if (ids == NULL)
        return sheaf__no_memory("prompt");
    ids[0] = (int32_t)w->bos;
    for (int64_t i = 0; i < n; i++)
        ids[bos + i] = (unsigned char)text[i];
    *out = (sheaf__prompt){ .ids = ids, .n = n + bos };
    *block = ids;
    return NULL;
}

static sheaf_status *laid_out(sheaf__prompt *out, void **block, const sheaf__codec *w,
                              const sheaf__turn *turn, int64_t turns, bool image)
{
    const sheaf__record record = { .image = image ? "image" : NULL, .turn = turn, .turns = turns };
    const sheaf__compose_options how = { .version = w->version,
                                         .tokenizer = w->tokenizer,
                                         .specials = w->specials,
                                         .no_answer = true,
                                         .layout = { .patches = sheaf__image_rows(w->config),
                                                     .max_length = w->max_length,
                                                     .bos = (int32_t)(w->bos < 0 ? 0 : w->bos),
                                                     .image_id = sheaf__image_id(w->config) } };
    sheaf__sequence s;
    sheaf_status *st = sheaf__compose(&s, &record, &how);
    if (st != NULL)
        return st;
    const int64_t skip = w->bos < 0 && !image; /* a model without bos */
    if (s.context == skip) {
        sheaf__sequence_release(&s);
        return sheaf_expected(sheaf_fail(SHEAF_E_DATA, "prompt"), "at least one token");
    }
    *out = (sheaf__prompt){ .ids = s.input_ids + skip,
                            .n = s.context - skip,
                            .position = skip ? NULL : s.position_ids,
                            .embed = image ? s.image_embed_mask : NULL,
                            .expert = image ? s.vision_expert_mask : NULL };
    *block = s.block;
    return NULL;
}

sheaf_status *sheaf__codec_prompt(sheaf__prompt *out, void **block, const sheaf__codec *w,
                                  const sheaf__turn *turn, int64_t turns, bool image)
{
    sheaf_status *st = check_sight(w, image);
    TRY(st, sheaf__codec_check_tokenizer(w));
    return TRY(st, w->templated ? laid_out(out, block, w, turn, turns, image)
                                : plain(out, block, w, turn[turns - 1].query));
}

static sheaf_status *check_turn(const sheaf__message *message, int64_t i)
{
    const char *last = i == 0 ? NULL : message[i - 1].role, *role = message[i].role;
    const char *wanted =
        last != NULL && strcmp(last, SHEAF__USER) == 0 ? SHEAF__ASSISTANT : SHEAF__USER;
    if (strcmp(role, wanted) != 0 && (last != NULL || strcmp(role, SHEAF__SYSTEM) != 0))
        return sheaf_found(
            sheaf_expected(sheaf_fail(SHEAF_E_DATA, "role"), "%s%s", wanted,
                           last == NULL ? " or system" : ": user and assistant take turns"),
            "%.60s", role);
    if (sheaf__chat_calls(&message[i]))
        return sheaf_found(
            sheaf_expected(sheaf_fail(SHEAF_E_DATA, "'tool_calls'"), "no calls of tools"),
            "some, for which this model's template has no place");
    return message[i].content != NULL
               ? NULL
               : sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_DATA, "'content'"), "a text"),
                             "none");
}

static sheaf_status *check_nul(const sheaf__message *m)
{
    return m->content == NULL || strlen(m->content) == m->size
               ? NULL
               : sheaf_expected(sheaf_fail(SHEAF_E_DATA, "content"), "text without NUL (\\u0000)");
}

sheaf_status *sheaf__codec_check_turns(const sheaf__message *message, int64_t n)
{
    sheaf_status *st = NULL;
    for (int64_t i = 0; i < n && st == NULL; i++) {
        st = check_turn(message, i);
        st = sheaf_in(st == NULL ? check_nul(&message[i]) : st, "message %" PRId64, i + 1);
    }
    return st;
}

sheaf_status *sheaf__codec_check_messages(const sheaf__codec *w, const sheaf__message *message,
                                          int64_t n)
{
    sheaf_status *st = w->chat == NULL ? sheaf__codec_check_turns(message, n) : NULL;
    for (int64_t i = 0; i < n && st == NULL; i++)
        st = sheaf_in(check_nul(&message[i]), "message %" PRId64, i + 1);
    if (st == NULL &&
        (n == 0 || (w->chat == NULL && strcmp(message[n - 1].role, SHEAF__USER) != 0)))
        st = sheaf_expected(sheaf_fail(SHEAF_E_DATA, "messages"), "a user's at the end");
    return st;
}

sheaf_status *sheaf__codec_open_arguments(const sheaf__codec *w, json_t *messages,
                                          const sheaf__message *message, int64_t n)
{
    const sheaf__chat_options how = { .generation_prompt = true,
                                      .tools = w->chat_encoder.tools,
                                      .bos = w->stored.bos,
                                      .eos = w->stored.eos };
    return w->chat == NULL ? NULL : sheaf__chat_open_arguments(messages, w->chat, message, n, &how);
}

/* Ids and, behind them, positions and which are places of pictures. */
static sheaf_status *take_said(sheaf__prompt *out, void **block, const sheaf__codec *w,
                               const sheaf__chat_ids *encoded)
{
    const size_t n = (size_t)encoded->count;
    sheaf_status *st = check_length(w, encoded->count);
    const bool shared = sheaf__family_for(w->config)->image.one_position;
    int32_t *ids = st == NULL ? malloc(n * (2 * sizeof *ids + 2)) : NULL;
    if (st == NULL && ids == NULL)
        st = sheaf__no_memory("prompt");
    if (st != NULL)
        return st;
    uint8_t *embed = (uint8_t *)(ids + 2 * n), *expert = embed + n;
    const bool any = memchr(encoded->row, 1, n) != NULL;
    memcpy(ids, encoded->id, n * sizeof *ids);
    memcpy(embed, encoded->row, n);
    memset(expert, 0, n);
    if (shared && any)
        sheaf__image_shared_positions(ids + n, embed, encoded->count, w->config);
    *out = (sheaf__prompt){ .ids = ids,
                            .n = encoded->count,
                            .position = shared && any ? ids + n : NULL,
                            .embed = any ? embed : NULL,
                            .expert = any ? expert : NULL,
                            .written = encoded->written };
    *block = ids;
    return NULL;
}

/* A byte vocabulary has no special tokens: those of the template are text, too. */
static sheaf_status *rendered_bytes(sheaf__prompt *out, void **block, const sheaf__codec *w,
                                    const sheaf__message *message, int64_t n)
{
    sheaf__rendered text = { 0 };
    sheaf_status *st = sheaf__chat_render(&text, w->chat, message, n,
                                          &(sheaf__chat_options){ .generation_prompt = true,
                                                                  .tools = w->chat_encoder.tools,
                                                                  .bos = w->stored.bos,
                                                                  .eos = w->stored.eos });
    if (st == NULL && memchr(text.text, '\0', text.size) != NULL)
        st = sheaf_expected(sheaf_fail(SHEAF_E_DATA, "prompt"), "text without NUL");
    TRY(st, plain(out, block, w, text.text));
    sheaf__rendered_release(&text);
    if (st == NULL && (st = check_length(w, out->n)) != NULL)
        free(*block);
    return st;
}

static sheaf_status *render(sheaf__prompt *out, void **block, const sheaf__codec *w,
                            const sheaf__message *message, int64_t n)
{
    sheaf__chat_ids all = { 0 };
    sheaf_status *st =
        w->tokenizer == NULL
            ? rendered_bytes(out, block, w, message, n)
            : sheaf__chat_encode(
                  &all, &w->chat_encoder,
                  &(sheaf__placed){ .message = (sheaf__message *)message, .messages = n }, true);
    if (w->tokenizer != NULL)
        TRY(st, take_said(out, block, w, &all));
    out->laid_out = st == NULL;
    sheaf__chat_ids_release(&all);
    return st;
}

sheaf_status *sheaf__codec_messages_with_pictures(sheaf__prompt *out, void **block, int64_t *order,
                                                  const sheaf__codec *w,
                                                  const sheaf__message *message, int64_t n,
                                                  const sheaf__record_pictures *pictures)
{
    sheaf__placed placed = { 0 };
    sheaf__chat_ids all = { 0 };
    sheaf_status *st = sheaf__codec_check_tokenizer(w);
    if (st == NULL && !w->placed)
        st = sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "pictures in a text"),
                            "a tokenizer, or a config, that knows the marks of pictures");
    TRY(st,
        sheaf__record_pictures_place(&placed, &w->chat_encoder.form, message, n, pictures, true));
    TRY(st, sheaf__chat_encode(&all, &w->chat_encoder, &placed, true));
    TRY(st, take_said(out, block, w, &all));
    for (int64_t i = 0; i < pictures->count && st == NULL; i++)
        order[i] = placed.order[i];
    sheaf__chat_ids_release(&all);
    sheaf__placed_release(&placed);
    return st;
}

/* Turns, for templates without other messages. */
static sheaf_status *as_turns(sheaf__prompt *out, void **block, const sheaf__codec *w,
                              const sheaf__message *message, int64_t n, bool image)
{
    const int64_t turns = (n + 1) / 2;
    sheaf__turn *turn = malloc((size_t)turns * sizeof *turn);
    if (turn == NULL)
        return sheaf__no_memory("prompt");
    for (int64_t i = 0; i < turns; i++)
        turn[i] = (sheaf__turn){ message[2 * i].content,
                                 2 * i + 1 < n ? message[2 * i + 1].content : NULL };
    sheaf_status *st = sheaf__codec_prompt(out, block, w, turn, turns, image);
    free(turn);
    return st;
}

sheaf_status *sheaf__codec_messages(sheaf__prompt *out, void **block, const sheaf__codec *w,
                                    const sheaf__message *message, int64_t n, bool image)
{
    const bool system = n > 0 && strcmp(message[0].role, SHEAF__SYSTEM) == 0;
    sheaf_status *st = sheaf__codec_check_messages(w, message, n);
    if (st == NULL && w->chat != NULL)
        st = check_sight(w, image);
    if (st == NULL && w->chat != NULL)
        st = sheaf__codec_check_tokenizer(w);
    if (st == NULL && w->chat == NULL && system)
        st = sheaf__codec_check_system(w);
    if (st != NULL)
        return st;
    if (!w->templated && w->chat == NULL && n > 1)
        return sheaf__chat_template_advise(
            sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_DATA, "messages"),
                                       "a template, which lays them out"),
                        "none"),
            w->tokenizer);
    if (w->placed)
        return sheaf__codec_messages_with_pictures(out, block, NULL, w, message, n,
                                                   &(sheaf__record_pictures){ 0 });
    return w->chat != NULL ? render(out, block, w, message, n)
                           : as_turns(out, block, w, message, n, image);
}

sheaf_status *sheaf__codec_text(sheaf__prompt *out, void **block, const sheaf__codec *w,
                                const sheaf__message *message, int64_t n, bool image)
{
    if (w->templated)
        return sheaf__codec_messages(out, block, w, message, n, image);
    return n > 1 ? sheaf__codec_check_system(w)
                 : sheaf__codec_prompt(out, block, w, &(sheaf__turn){ message->content, NULL }, 1,
                                       image);
}

/* Does the template take a system message? */
static sheaf_status *try_system(const sheaf__codec *w)
{
    const sheaf__message message[] = { { SHEAF__SYSTEM, "a", 1 }, { SHEAF__USER, "b", 1 } };
    sheaf__rendered text = { 0 };
    const bool bytes = w->placed && w->tokenizer == NULL; /* codes that have ids for both */
    sheaf_status *st =
        sheaf__chat_render(&text, w->chat, message, 2,
                           &(sheaf__chat_options){ .generation_prompt = true,
                                                   .bos = bytes ? "" : w->stored.bos,
                                                   .eos = bytes ? "" : w->stored.eos });
    sheaf__rendered_release(&text);
    return st;
}

sheaf_status *sheaf__codec_check_system(const sheaf__codec *w)
{
    if (w->chat != NULL && w->templated)
        return try_system(w);
    sheaf_status *st = sheaf_fail(SHEAF_E_UNSUPPORTED, "a system message");
    sheaf_expected(st, "a template with a place for it");
    return w->templated ? sheaf_found(st, "template %s", sheaf__template_name(w->version))
                        : sheaf_try_this(sheaf_found(st, "no template"), "`template NAME`");
}

bool sheaf__codec_keeps_turns(const sheaf__codec *w)
{
    return w->templated && (w->chat != NULL || sheaf__template_has_history(w->version));
}

const char *sheaf__codec_template(const sheaf__codec *w)
{
    return !w->templated     ? NULL
           : w->chat != NULL ? sheaf__chat_template_name(w->chat)
                             : sheaf__template_name(w->version);
}

/* ---- decoding ---- */

void sheaf__codec_add_utf8(sheaf_text *text, const char *bytes, size_t size)
{
    for (size_t n; size > 0; bytes += n, size -= n) {
        n = *bytes == '\0' ? 0 : sheaf__utf8_length(bytes, size);
        sheaf__text_bytes(text, n > 0 ? bytes : "\xEF\xBF\xBD", n > 0 ? n : 3);
        n = n > 0 ? n : 1;
    }
}

static sheaf_status *decode_bytes(char **out, const int32_t *ids, int64_t n)
{
    sheaf_text bytes = { 0 }, text = { 0 };
    for (int64_t i = 0; i < n && ids[i] < 256; i++)
        sheaf__text_bytes(&bytes, &(char){ (char)ids[i] }, 1);
    sheaf__codec_add_utf8(&text, bytes.at, bytes.size);
    text.failed = text.failed || bytes.failed;
    sheaf__text_release(&bytes);
    return sheaf__text_take(out, &text);
}

void sheaf__codec_add_without_nul(sheaf_text *text, const char *bytes, size_t size)
{
    while (size > 0) {
        const size_t n = strnlen(bytes, size);
        sheaf__text_bytes(text, bytes, n);
        if (n == size)
            return;
        sheaf__text_bytes(text, "\xEF\xBF\xBD", 3);
        bytes += n + 1;
        size -= n + 1;
    }
}

/* A C string cannot contain a NUL. */
static sheaf_status *decode_text(char **out, const sheaf__codec *w, const int32_t *ids, int64_t n)
{
    char *text = NULL;
    size_t size = 0;
    sheaf_status *st = sheaf__tokenizer_decode(&text, &size, w->tokenizer, ids, n, true);
    if (st == NULL && strlen(text) < size) {
        sheaf_text whole = { 0 };
        sheaf__codec_add_without_nul(&whole, text, size);
        free(text);
        return sheaf__text_take(out, &whole);
    }
    *out = text;
    return st;
}

sheaf_status *sheaf__codec_decode(char **out, const sheaf__codec *w, const int32_t *ids, int64_t n)
{
    *out = NULL;
    if (w->tokenizer != NULL)
        return decode_text(out, w, ids, n);
    return w->config->byte_vocab ? decode_bytes(out, ids, n) : NULL;
}

/* ---- where an answer ends ---- */

/* The token that the family's own chat() stops at, where the tokenizer has it. */
static void add_family_stop(sheaf__codec *w)
{
    const sheaf__family *family = sheaf__family_for(w->config);
    sheaf__picture_form form = { .stop = NULL };
    if (family->pictures != NULL)
        family->pictures(&form, w->config);
    const int64_t id = form.stop == NULL || w->tokenizer == NULL
                           ? -1
                           : sheaf__tokenizer_find(w->tokenizer, form.stop);
    if (id >= 0 && !sheaf__is_stop(w->stop, w->nstop, id))
        w->stop[w->nstop++] = id;
}

void sheaf__codec_set_stops(sheaf__codec *w, const int64_t *id, int n)
{
    const int64_t taught = w->tokenizer == NULL || w->stored.eos == NULL
                               ? -1
                               : sheaf__tokenizer_find(w->tokenizer, w->stored.eos);
    memcpy(w->stop, id, (size_t)n * sizeof *id);
    w->nstop = n;
    if (n == 0 && w->eos >= 0)
        w->stop[w->nstop++] = w->eos;
    if (taught >= 0 && !sheaf__is_stop(w->stop, w->nstop, taught))
        w->stop[w->nstop++] = taught;
    add_family_stop(w);
}

void sheaf__codec_stops(int64_t stop[SHEAF__MOST_STOPS], int *nstop, int *nturn,
                        const sheaf__codec *w)
{
    memcpy(stop, w->stop, (size_t)w->nstop * sizeof *stop);
    *nstop = w->nstop;
    *nturn = w->end >= 0;
    stop[w->nstop] = w->end;
    if (w->templated && !w->by_default) {
        *nstop += *nturn;
        *nturn = 0;
    }
}

bool sheaf__codec_is_stop(const sheaf__codec *w, int64_t id, bool laid_out)
{
    return sheaf__is_stop(w->stop, w->nstop, id) || (laid_out && w->end >= 0 && id == w->end);
}

/* ---- its text, and equality ---- */

sheaf__text_piece sheaf__codec_answer_span(bool *more, const sheaf__codec *w, const char *text,
                                           size_t size)
{
    sheaf__text_piece inner = { text, size };
    *more = false;
    if (w->chat != NULL) {
        const size_t lead = sheaf__chat_no_thoughts(more, w->chat, text, size);
        inner = (sheaf__text_piece){ text + lead, size - lead };
    }
    sheaf__utf8_strip(&inner.at, &inner.size);
    return inner;
}

sheaf_status *sheaf__codec_answer(char **out, const sheaf__codec *w, bool laid_out,
                                  const char *text)
{
    bool more;
    sheaf__text_piece answer = { text, strlen(text) };
    if (w->templated && w->chat == NULL)
        return sheaf__template_answer(out, w->version, text);
    if (laid_out)
        answer = sheaf__codec_answer_span(&more, w, text, answer.size);
    *out = strndup(answer.at, answer.size);
    return *out == NULL ? sheaf__no_memory("an answer") : NULL;
}

sheaf_status *sheaf__codec_expected(char **out, const sheaf__codec *w, bool laid_out,
                                    const char *text)
{
    int32_t *ids = NULL;
    int64_t n = 0, end = 0;
    *out = NULL;
    if (text == NULL || !w->specials || w->tokenizer == NULL)
        return NULL;
    sheaf_status *st = sheaf__tokenizer_encode(&ids, NULL, &n, w->tokenizer, text, strlen(text),
                                               &(sheaf__encode_options){ 0 });
    while (st == NULL && end < n && !sheaf__codec_is_stop(w, ids[end], laid_out))
        end++;
    TRY(st, sheaf__codec_decode(out, w, ids, end));
    free(ids);
    return st;
}

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c + 'a' - 'A') : c;
}

static bool same(sheaf__text_piece a, sheaf__text_piece b, bool any_case)
{
    sheaf__utf8_strip(&a.at, &a.size);
    sheaf__utf8_strip(&b.at, &b.size);
    if (a.size != b.size)
        return false;
    for (size_t i = 0; i < a.size; i++)
        if (any_case ? lower(a.at[i]) != lower(b.at[i]) : a.at[i] != b.at[i])
            return false;
    return true;
}

bool sheaf__codec_answers_equal(const sheaf__codec *w, const char *a, const char *b, bool any_case)
{
    if (a == NULL || b == NULL)
        return false;
    sheaf__text_piece thoughts[2] = { { "", 0 }, { "", 0 } },
                      rest[2] = { { a, strlen(a) }, { b, strlen(b) } };
    for (int i = 0; i < 2 && w->chat != NULL; i++)
        sheaf__chat_divide(&thoughts[i], &rest[i], w->chat);
    return same(thoughts[0], thoughts[1], any_case) && same(rest[0], rest[1], any_case);
}
