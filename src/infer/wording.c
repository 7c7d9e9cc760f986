/* wording.c - see wording.h. */
#include "infer/wording.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/text.h"
#include "inputs/choose.h"
#include "data/compose.h"
#include "schema/family.h"

/* ---- opening ---- */

static sheaf_status *find_tokenizer(sheaf__wording *w, const sheaf__wording_options *o)
{
    sheaf_status *st = sheaf__choose_tokenizer(&w->model, o->tokenizer, o->folder, w->config);
    if (st != NULL && o->tokenizer == NULL && !w->images &&
        sheaf_status_code(st) != SHEAF_E_MEMORY) { /* token ids go without */
        sheaf_warn(o->events, "the model's tokenizer is not used: %s", sheaf_status_where(st));
        sheaf_status_free(st);
        return NULL;
    }
    if (st != NULL || w->model == NULL)
        return st;
    if (w->bos < 0)
        w->bos = sheaf__sentencepiece_bos(w->model);
    if (w->eos < 0)
        w->eos = sheaf__sentencepiece_eos(w->model);
    return NULL;
}

/* The folder, where it has a tokenizer; NULL. */
static sheaf_status *find_folder(const char **out, const char *folder)
{
    static const char *const names[] = { "tokenizer.json", "tokenizer.model", "vocab.json" };
    *out = NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names && *out == NULL && folder != NULL; i++) {
        char *path = NULL;
        sheaf_status *st = sheaf__path_join(&path, folder, names[i]);
        if (st != NULL)
            return st;
        if (sheaf__path_kind(path) == SHEAF_PATH_FILE)
            *out = folder;
        free(path);
    }
    return NULL;
}

static sheaf_status *check_size(const sheaf__tokenizer *t, const char *path,
                                const sheaf_config *config)
{
    if (sheaf__tokenizer_size(t) <= config->vocab)
        return NULL;
    sheaf_status *st =
        sheaf_expected(sheaf_fail(SHEAF_E_LAYOUT, "%s", path),
                       "at most %" PRId64 " tokens, the model's vocabulary", config->vocab);
    return sheaf_try_this(sheaf_found(st, "%" PRId64, sheaf__tokenizer_size(t)),
                          "the tokenizer of this model: --tokenizer PATH");
}

static sheaf_status *open_tokenizer(sheaf__wording *w, const char *path)
{
    sheaf_status *st = sheaf__tokenizer_open(&w->tokenizer, path);
    if (st == NULL)
        st = check_size(w->tokenizer, path, w->config);
    if (st == NULL)
        st = sheaf__stored_chat_read(&w->stored, path);
    if (st == NULL)
        st = sheaf__stored_chat_complete(&w->stored, w->tokenizer);
    if (st != NULL) {
        sheaf__tokenizer_close(w->tokenizer);
        w->tokenizer = NULL;
    }
    return st;
}

/* Token ids go without the folder's own; one that is given is meant. */
static sheaf_status *find_text_tokenizer(sheaf__wording *w, const sheaf__wording_options *o)
{
    const char *path = o->tokenizer;
    sheaf_status *st = path == NULL ? find_folder(&path, o->folder) : NULL;
    if (st == NULL && path != NULL)
        st = open_tokenizer(w, path);
    if (st != NULL && o->tokenizer == NULL && sheaf_status_code(st) != SHEAF_E_MEMORY) {
        const char *expected = sheaf_status_expected(st);
        sheaf_warn(o->events, "the model's tokenizer is not used: %s%s%s", sheaf_status_where(st),
                   expected[0] == '\0' ? "" : ": expected ", expected);
        sheaf_status_free(st);
        return NULL;
    }
    if (st != NULL || w->tokenizer == NULL)
        return st;
    if (w->bos < 0)
        w->bos = sheaf__tokenizer_bos(w->tokenizer);
    if (w->eos < 0)
        w->eos = sheaf__tokenizer_eos(w->tokenizer);
    return NULL;
}

static sheaf_status *take_date(sheaf__wording *w, const sheaf__wording_options *o)
{
    sheaf_status *st = sheaf__chat_template_set_date(w->chat, o->date);
    w->today = o->today && sheaf__chat_template_wants_date(w->chat);
    return st == NULL && w->today ? sheaf__chat_template_set_today(w->chat) : st;
}

sheaf_status *sheaf__wording_today(sheaf__wording *w)
{
    if (w->chat == NULL || !sheaf__chat_template_wants_date(w->chat))
        return NULL;
    w->today = true;
    return sheaf__chat_template_set_today(w->chat);
}

void sheaf__wording_note_date(const sheaf__wording *w, bool used, const sheaf_events *events)
{
    if (used && w->chat != NULL && w->today)
        sheaf_note(events, "chat template %s writes a date: today's, %s (--date changes it)",
                   sheaf__chat_template_name(w->chat), sheaf__chat_template_date(w->chat));
    if (w->dated && (!used || w->chat == NULL))
        sheaf_note(events, "--date has no effect: no prompt is put in a chat template");
}

/* Of a model of text: the template that is named, else the tokenizer's. */
static sheaf_status *find_chat(sheaf__wording *w, const char *name)
{
    sheaf_status *st = NULL;
    if (name != NULL || w->stored.program != NULL)
        st = sheaf__chat_template_choose(&w->chat, name, &w->stored);
    if (st != NULL || w->chat == NULL)
        return st;
    const char *end = sheaf__chat_template_stop(w->chat, w->stored.eos);
    w->end = end == NULL || w->tokenizer == NULL ? -1 : sheaf__tokenizer_find(w->tokenizer, end);
    return NULL;
}

static bool is_old_template(const char *name)
{
    sheaf__template which;
    sheaf_status *st = sheaf__template_find(&which, name);
    const bool is = st == NULL;
    sheaf_status_free(st);
    return is;
}

/* Texts are laid out by a template that is named; the tokenizer's own is for conversations, and
 * where it is none that we know they say so. */
static sheaf_status *open_text(sheaf__wording *w, const sheaf__wording_options *o)
{
    const char *name = o->version;
    sheaf_status *st = w->config->byte_vocab ? find_tokenizer(w, o) : find_text_tokenizer(w, o);
    w->templated = name != NULL;
    if (st != NULL)
        return st;
    st = find_chat(w, name);
    if (st == NULL && w->chat != NULL)
        return take_date(w, o);
    if (st == NULL || name != NULL || sheaf_status_code(st) == SHEAF_E_MEMORY)
        return st;
    sheaf_status_free(st);
    return NULL;
}

/* The family's own template where none is named and the tokenizer stores none that is known. */
static sheaf_status *own_chat(sheaf__wording *w, const sheaf__wording_options *o)
{
    const sheaf__picture_form *form = &w->speech.form;
    sheaf_status *st =
        sheaf__chat_template_find(&w->chat, w->config->byte_vocab ? form->byte_chat : form->chat);
    if (st == NULL)
        sheaf_note(o->events, "prompt template %s, the family's own (--template changes it)",
                   sheaf__chat_template_name(w->chat));
    const char *end = st == NULL ? sheaf__chat_template_stop(w->chat, w->stored.eos) : NULL;
    w->end = end == NULL || w->tokenizer == NULL ? -1 : sheaf__tokenizer_find(w->tokenizer, end);
    return st == NULL ? take_date(w, o) : st;
}

/* Of a family whose pictures stand in conversations: its prompts always are some. */
static sheaf_status *open_placed(sheaf__wording *w, const sheaf__wording_options *o)
{
    sheaf_status *st = open_text(w, o);
    sheaf__family_for(w->config)->pictures(&w->speech.form, w->config);
    if (st != NULL || (w->tokenizer == NULL && !w->config->byte_vocab))
        return st;
    if (w->chat == NULL)
        st = own_chat(w, o);
    if (st != NULL)
        return st;
    w->templated = true;
    w->speech.tokenizer = w->tokenizer;
    w->speech.chat = w->chat;
    w->speech.bos = w->stored.bos;
    w->speech.eos = w->stored.eos;
    w->speech.bos_id = (int32_t)w->bos;
    w->speech.eos_id = (int32_t)w->eos;
    st = sheaf__speech_marks(&w->speech, w->config);
    if (st != NULL && o->tokenizer == NULL && sheaf_status_code(st) == SHEAF_E_LAYOUT &&
        w->config->byte_vocab) { /* token ids go without */
        sheaf_warn(o->events, "pictures cannot stand in texts: %s: expected %s",
                   sheaf_status_where(st), sheaf_status_expected(st));
        sheaf_status_free(st);
        return NULL;
    }
    w->placed = st == NULL;
    return st;
}

static sheaf_status *find_template(sheaf__wording *w, const sheaf__wording_options *o)
{
    bool from_model = false;
    w->templated = true;
    sheaf_status *st =
        sheaf__choose_template(&w->version, &from_model, o->version, w->config, o->events);
    if (st != NULL || o->version != NULL)
        return st;
    if (!from_model && !w->images)
        w->version = SHEAF__CHAT;
    sheaf_note(o->events, "prompt template %s, %s (--template changes it)",
               sheaf__template_name(w->version),
               from_model ? "which the model's config names" : "as the model's config names none");
    return NULL;
}

sheaf_status *sheaf__wording_open(sheaf__wording *out, const sheaf_config *config,
                                  const sheaf__wording_options *options)
{
    *out = (sheaf__wording){ .config = config,
                             .max_length = options->max_length,
                             .bos = config->bos,
                             .eos = config->neos > 0 ? config->eos[0] : -1,
                             .images = sheaf__family_for(config)->towers != NULL,
                             .dated = options->date != NULL && options->date[0] != '\0',
                             .end = -1 };
    const char *name = options->version;
    /* a vocabulary of bytes knows both kinds of templates; without a tokenizer any may be named */
    const bool placed = sheaf__family_for(config)->pictures != NULL,
               old = !placed && name != NULL && config->byte_vocab && is_old_template(name);
    if (placed)
        return open_placed(out, options);
    if (!out->images && !old)
        return open_text(out, options);
    sheaf_status *st = find_template(out, options);
    return st == NULL ? find_tokenizer(out, options) : st;
}

sheaf_status *sheaf__wording_converse(sheaf__wording *out, const sheaf__wording *w,
                                      const sheaf_events *events)
{
    *out = *w;
    out->borrowed = true;
    if (w->templated || w->tokenizer == NULL || w->chat != NULL)
        sheaf__wording_note_date(w, true, events);
    if (w->templated || sheaf__family_for(w->config)->pictures != NULL)
        return NULL;
    if (w->tokenizer == NULL)
        return find_template(out, &(sheaf__wording_options){ .events = events });
    out->templated = true;
    if (w->chat == NULL) { /* why not? */
        sheaf_status *st = find_chat(out, NULL);
        return st != NULL
                   ? sheaf_try_this(st, "--template NAME: %s", sheaf__chat_template_names())
                   : sheaf_try_this(
                         sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "a conversation"),
                                                    "a chat template"),
                                     "none: the model's tokenizer stores none"),
                         "--template NAME: %s", sheaf__chat_template_names());
    }
    sheaf_note(events,
               "prompt template %s, which the model's tokenizer stores (--template changes it)",
               sheaf__chat_template_name(out->chat));
    return NULL;
}

void sheaf__wording_close(sheaf__wording *w)
{
    if (!w->borrowed) {
        sheaf__sentencepiece_close(w->model);
        sheaf__tokenizer_close(w->tokenizer);
        sheaf__chat_template_free(w->chat);
        sheaf__stored_chat_release(&w->stored);
    }
    *w = (sheaf__wording){ 0 };
}

static bool speaks(const sheaf__wording *w)
{
    return w->model != NULL || w->tokenizer != NULL || w->config->byte_vocab;
}

sheaf_status *sheaf__wording_needed(const sheaf__wording *w)
{
    if (speaks(w))
        return NULL;
    sheaf_status *st = sheaf_fail(SHEAF_E_UNSUPPORTED, "a prompt as text");
    sheaf_expected(st,
                   "%s in the model's folder, or a model with a byte vocabulary "
                   "(\"sheaf_tokenizer\": \"bytes\" in its config)",
                   w->images && sheaf__family_for(w->config)->pictures == NULL
                       ? "a tokenizer.model (sentencepiece)"
                       : "a tokenizer.json or tokenizer.model");
    return sheaf_try_this(
        st,
        "--tokenizer FILE, the tokenizer of this model; sheaf generate also takes token ids: --tokens 1,2,3");
}

/* ---- to tokens ---- */

static sheaf_status *check_sight(const sheaf__wording *w, bool image)
{
    const char *family = sheaf_family_name(w->config->family);
    if (image && !w->images)
        return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "prompt"),
                                          "no image: %s has no vision tower", family),
                           "one");
    if (!image && sheaf__family_for(w->config)->image.needed)
        return sheaf_try_this(
            sheaf_found(
                sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "prompt"),
                               "an image: the cross-attention of %s looks at it in every layer",
                               family),
                "none"),
            "--image FILE");
    return NULL;
}

/* What leaves no space within max_length, or is nothing. */
static sheaf_status *check_length(const sheaf__wording *w, int64_t n)
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

static sheaf_status *encode(sheaf__prompt *out, void **block, const sheaf__wording *w,
                            const char *text, size_t size, const sheaf__encode_options *how)
{
    int32_t *ids = NULL;
    int64_t n = 0;
    sheaf_status *st = sheaf__tokenizer_encode(&ids, NULL, &n, w->tokenizer, text, size, how);
    if (st == NULL)
        st = check_length(w, n);
    if (st != NULL) {
        free(ids);
        return st;
    }
    *out = (sheaf__prompt){ .ids = ids, .n = n };
    *block = ids;
    return NULL;
}

/* Ids of a vocabulary of bytes are sound; those of a tokenizer lie below its number of pieces. */
static sheaf_status *plain(sheaf__prompt *out, void **block, const sheaf__wording *w,
                           const char *text)
{
    if (w->tokenizer != NULL)
        return encode(out, block, w, text, strlen(text),
                      &(sheaf__encode_options){ .add_special = true, .plain = true });
    int32_t *piece = NULL;
    int64_t n = (int64_t)strlen(text);
    const bool bos = w->bos >= 0;
    sheaf_status *st = w->model == NULL
                           ? NULL
                           : sheaf__sentencepiece_encode(&piece, &n, w->model, text, (size_t)n);
    if (st == NULL && n + bos == 0)
        st = sheaf_expected(sheaf_fail(SHEAF_E_DATA, "prompt"), "at least one token");
    int32_t *ids = st == NULL ? malloc((size_t)(n + bos) * sizeof *ids) : NULL;
    if (st == NULL && ids == NULL)
        st = sheaf_fail(SHEAF_E_MEMORY, "prompt");
    if (st == NULL) {
        if (bos)
            ids[0] = (int32_t)w->bos;
        for (int64_t i = 0; i < n; i++)
            ids[bos + i] = piece != NULL ? piece[i] : (unsigned char)text[i];
        *out = (sheaf__prompt){ .ids = ids, .n = n + bos };
        *block = ids;
    }
    free(piece);
    return st;
}

static sheaf_status *laid_out(sheaf__prompt *out, void **block, const sheaf__wording *w,
                              const sheaf__turn *turn, int64_t turns, bool image)
{
    const sheaf__record record = { .image = image ? "image" : NULL, .turn = turn, .turns = turns };
    const sheaf__compose_options how = { .version = w->version,
                                         .model = w->model,
                                         .no_answer = true,
                                         .layout = { .patches = w->config->patches,
                                                     .max_length = w->max_length,
                                                     .bos = (int32_t)(w->bos < 0 ? 0 : w->bos) } };
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

sheaf_status *sheaf__wording_prompt(sheaf__prompt *out, void **block, const sheaf__wording *w,
                                    const sheaf__turn *turn, int64_t turns, bool image)
{
    sheaf_status *st = check_sight(w, image);
    if (st == NULL)
        st = sheaf__wording_needed(w);
    if (st != NULL)
        return st;
    return w->templated ? laid_out(out, block, w, turn, turns, image)
                        : plain(out, block, w, turn[turns - 1].query);
}

static sheaf_status *check_turn(const sheaf__message *said, int64_t i)
{
    const char *last = i == 0 ? NULL : said[i - 1].role, *role = said[i].role;
    const char *wanted =
        last != NULL && strcmp(last, SHEAF__USER) == 0 ? SHEAF__ASSISTANT : SHEAF__USER;
    if (strcmp(role, wanted) != 0 && (last != NULL || strcmp(role, SHEAF__SYSTEM) != 0))
        return sheaf_found(
            sheaf_expected(sheaf_fail(SHEAF_E_DATA, "role"), "%s%s", wanted,
                           last == NULL ? " or system" : ": user and assistant take turns"),
            "%.60s", role);
    return strlen(said[i].content) == said[i].size
               ? NULL
               : sheaf_expected(sheaf_fail(SHEAF_E_DATA, "content"), "text without NUL (\\u0000)");
}

sheaf_status *sheaf__wording_turns(const sheaf__message *said, int64_t n)
{
    sheaf_status *st = NULL;
    for (int64_t i = 0; i < n && st == NULL; i++)
        st = sheaf_in(check_turn(said, i), "message %" PRId64, i + 1);
    return st;
}

/* Bytes know no special tokens: what the template writes is text to them too. */
static sheaf_status *rendered_bytes(sheaf__prompt *out, void **block, const sheaf__wording *w,
                                    const sheaf__rendered *text)
{
    if (memchr(text->text, '\0', text->size) != NULL)
        return sheaf_expected(sheaf_fail(SHEAF_E_DATA, "prompt"), "text without NUL");
    sheaf_status *st = plain(out, block, w, text->text);
    if (st == NULL && (st = check_length(w, out->n)) != NULL) {
        free(*block);
        *block = NULL;
    }
    return st;
}

static sheaf_status *render(sheaf__prompt *out, void **block, const sheaf__wording *w,
                            const sheaf__message *said, int64_t n)
{
    sheaf__rendered text = { 0 };
    sheaf_status *st = sheaf__chat_render(&text, w->chat, said, n,
                                          &(sheaf__chat_options){ .generation_prompt = true,
                                                                  .bos = w->stored.bos,
                                                                  .eos = w->stored.eos });
    sheaf__text_range *plain_range =
        st == NULL ? malloc(((size_t)text.spans + 1) * sizeof *plain_range) : NULL;
    int64_t ranges = 0;
    if (st == NULL && plain_range == NULL)
        st = sheaf_fail(SHEAF_E_MEMORY, "prompt");
    for (int64_t i = 0; i < text.spans && st == NULL; i++)
        if (text.span[i].kind == SHEAF__CONTENT && text.span[i].begin < text.span[i].end)
            plain_range[ranges++] = (sheaf__text_range){ text.span[i].begin, text.span[i].end };
    if (st == NULL)
        st = w->tokenizer == NULL ? rendered_bytes(out, block, w, &text)
                                  : encode(out, block, w, text.text, text.size,
                                           &(sheaf__encode_options){ .plain_range = plain_range,
                                                                     .plain_ranges = ranges });
    free(plain_range);
    sheaf__rendered_release(&text);
    return st;
}

/* Ids and, behind them, which are places of pictures. */
static sheaf_status *take_said(sheaf__prompt *out, void **block, const sheaf__wording *w,
                               const sheaf__said *said)
{
    const size_t n = (size_t)said->count;
    sheaf_status *st = check_length(w, said->count);
    int32_t *ids = st == NULL ? malloc(n * (sizeof *ids + 2)) : NULL;
    if (st == NULL && ids == NULL)
        st = sheaf_fail(SHEAF_E_MEMORY, "prompt");
    if (st != NULL)
        return st;
    uint8_t *embed = (uint8_t *)(ids + n), *expert = embed + n;
    const bool any = memchr(said->row, 1, n) != NULL;
    memcpy(ids, said->id, n * sizeof *ids);
    memcpy(embed, said->row, n);
    memset(expert, 0, n);
    *out = (sheaf__prompt){
        .ids = ids, .n = said->count, .embed = any ? embed : NULL, .expert = any ? expert : NULL
    };
    *block = ids;
    return NULL;
}

sheaf_status *sheaf__wording_shown(sheaf__prompt *out, void **block, int64_t *order,
                                   const sheaf__wording *w, const sheaf__message *said, int64_t n,
                                   const sheaf__talk_pictures *pictures)
{
    sheaf__placed placed = { 0 };
    sheaf__said all = { 0 };
    sheaf_status *st = sheaf__wording_needed(w);
    if (st == NULL && !w->placed)
        st = sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "pictures in a text"),
                            "a tokenizer, or a config, that knows the marks of pictures");
    if (st == NULL)
        st = sheaf__talk_pictures_place(&placed, &w->speech.form, said, n, pictures, true);
    if (st == NULL)
        st = sheaf__say(&all, &w->speech, &placed, true);
    if (st == NULL)
        st = take_said(out, block, w, &all);
    for (int64_t i = 0; i < pictures->count && st == NULL; i++)
        order[i] = placed.order[i];
    sheaf__said_release(&all);
    sheaf__placed_release(&placed);
    return st;
}

/* Turns of the templates that have no other messages. */
static sheaf_status *as_turns(sheaf__prompt *out, void **block, const sheaf__wording *w,
                              const sheaf__message *said, int64_t n, bool image)
{
    const int64_t turns = (n + 1) / 2;
    sheaf__turn *turn = malloc((size_t)turns * sizeof *turn);
    if (turn == NULL)
        return sheaf_fail(SHEAF_E_MEMORY, "prompt");
    for (int64_t i = 0; i < turns; i++)
        turn[i] =
            (sheaf__turn){ said[2 * i].content, 2 * i + 1 < n ? said[2 * i + 1].content : NULL };
    sheaf_status *st = sheaf__wording_prompt(out, block, w, turn, turns, image);
    free(turn);
    return st;
}

sheaf_status *sheaf__wording_said(sheaf__prompt *out, void **block, const sheaf__wording *w,
                                  const sheaf__message *said, int64_t n, bool image)
{
    const bool system = n > 0 && strcmp(said[0].role, SHEAF__SYSTEM) == 0;
    sheaf_status *st = sheaf__wording_turns(said, n);
    if (st == NULL && w->chat != NULL)
        st = check_sight(w, image);
    if (st == NULL && w->chat != NULL)
        st = sheaf__wording_needed(w);
    if (st == NULL && w->chat == NULL && system)
        st = sheaf__wording_system(w);
    if (st != NULL)
        return st;
    if (n == 0 || strcmp(said[n - 1].role, SHEAF__USER) != 0)
        return sheaf_expected(sheaf_fail(SHEAF_E_DATA, "messages"), "a user's at the end");
    if (!w->templated && w->chat == NULL && n > 1)
        return sheaf_try_this(sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_DATA, "messages"),
                                                         "a template, which lays them out"),
                                          "none"),
                              "--template NAME");
    if (w->placed)
        return sheaf__wording_shown(out, block, NULL, w, said, n, &(sheaf__talk_pictures){ 0 });
    return w->chat != NULL ? render(out, block, w, said, n)
                           : as_turns(out, block, w, said, n, image);
}

sheaf_status *sheaf__wording_text(sheaf__prompt *out, void **block, const sheaf__wording *w,
                                  const char *text, const char *system, bool image)
{
    const sheaf__message said[] = { { SHEAF__SYSTEM, system, system == NULL ? 0 : strlen(system) },
                                    { SHEAF__USER, text, strlen(text) } };
    if (system != NULL && !w->templated)
        return sheaf__wording_system(w);
    if (w->templated)
        return sheaf__wording_said(out, block, w, said + (system == NULL), system == NULL ? 1 : 2,
                                   image);
    return sheaf__wording_prompt(out, block, w, &(sheaf__turn){ text, NULL }, 1, image);
}

/* Does the template take a system message? */
static sheaf_status *try_system(const sheaf__wording *w)
{
    const sheaf__message said[] = { { SHEAF__SYSTEM, "a", 1 }, { SHEAF__USER, "b", 1 } };
    sheaf__rendered text = { 0 };
    const bool bytes = w->placed && w->tokenizer == NULL; /* which have ids for both */
    sheaf_status *st =
        sheaf__chat_render(&text, w->chat, said, 2,
                           &(sheaf__chat_options){ .generation_prompt = true,
                                                   .bos = bytes ? "" : w->stored.bos,
                                                   .eos = bytes ? "" : w->stored.eos });
    sheaf__rendered_release(&text);
    return st;
}

sheaf_status *sheaf__wording_system(const sheaf__wording *w)
{
    if (w->chat != NULL && w->templated)
        return try_system(w);
    sheaf_status *st = sheaf_fail(SHEAF_E_UNSUPPORTED, "a system message");
    sheaf_expected(st, "a template with a place for it");
    return w->templated ? sheaf_found(st, "template %s", sheaf__template_name(w->version))
                        : sheaf_try_this(sheaf_found(st, "no template"), "--template NAME");
}

bool sheaf__wording_remembers(const sheaf__wording *w)
{
    return w->templated && (w->chat != NULL || sheaf__template_has_history(w->version));
}

const char *sheaf__wording_template(const sheaf__wording *w)
{
    return !w->templated     ? NULL
           : w->chat != NULL ? sheaf__chat_template_name(w->chat)
                             : sheaf__template_name(w->version);
}

/* ---- and back ---- */

static sheaf_status *decode_bytes(char **out, const int32_t *ids, int64_t n)
{
    unsigned char *bytes = malloc((size_t)n + 1);
    size_t size = 0;
    sheaf_text text = { 0 };
    if (bytes == NULL)
        return sheaf_fail(SHEAF_E_MEMORY, "generated text");
    for (int64_t i = 0; i < n && ids[i] < 256; i++)
        bytes[size++] = (unsigned char)ids[i];
    for (size_t i = 0; i < size;) {
        const size_t k = bytes[i] == 0 ? 0 : sheaf__utf8_length(bytes + i, size - i);
        sheaf__text_bytes(&text, k == 0 ? "\xEF\xBF\xBD" : (const char *)bytes + i, k == 0 ? 3 : k);
        i += k == 0 ? 1 : k;
    }
    free(bytes);
    return sheaf__text_take(out, &text);
}

void sheaf__wording_without_nul(sheaf_text *text, const char *bytes, size_t size)
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

/* NUL cannot stand in a C string. */
static sheaf_status *decode_text(char **out, const sheaf__wording *w, const int32_t *ids, int64_t n)
{
    char *text = NULL;
    size_t size = 0;
    sheaf_status *st = sheaf__tokenizer_decode(&text, &size, w->tokenizer, ids, n, true);
    if (st == NULL && strlen(text) < size) {
        sheaf_text whole = { 0 };
        sheaf__wording_without_nul(&whole, text, size);
        free(text);
        return sheaf__text_take(out, &whole);
    }
    *out = text;
    return st;
}

sheaf_status *sheaf__wording_decode(char **out, const sheaf__wording *w, const int32_t *ids,
                                    int64_t n)
{
    *out = NULL;
    if (w->model != NULL)
        return sheaf__sentencepiece_decode(out, w->model, ids, n);
    if (w->tokenizer != NULL)
        return decode_text(out, w, ids, n);
    return w->config->byte_vocab ? decode_bytes(out, ids, n) : NULL;
}

static bool is_blank(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static size_t trimmed(const char **text)
{
    size_t n = strlen(*text);
    while (n > 0 && is_blank((*text)[n - 1]))
        n--;
    while (n > 0 && is_blank(**text)) {
        (*text)++;
        n--;
    }
    return n;
}

sheaf_status *sheaf__wording_answer(char **out, const sheaf__wording *w, const int32_t *ids,
                                    int64_t n)
{
    char *text = NULL;
    sheaf_status *st = sheaf__wording_decode(&text, w, ids, n);
    *out = NULL;
    if (st == NULL && text != NULL)
        st = sheaf__wording_answer_in(out, w, text);
    free(text);
    return st;
}

sheaf_status *sheaf__wording_answer_in(char **out, const sheaf__wording *w, const char *text)
{
    if (w->templated && w->chat == NULL)
        return sheaf__template_answer(out, w->version, text);
    if (w->templated) {
        const size_t n = trimmed(&text);
        *out = strndup(text, n);
        return *out == NULL ? sheaf_fail(SHEAF_E_MEMORY, "an answer") : NULL;
    }
    *out = strdup(text);
    return *out == NULL ? sheaf_fail(SHEAF_E_MEMORY, "an answer") : NULL;
}

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c + 'a' - 'A') : c;
}

bool sheaf__same_answer(const char *a, const char *b, bool any_case)
{
    const size_t n = trimmed(&a);
    if (trimmed(&b) != n)
        return false;
    for (size_t i = 0; i < n; i++)
        if (any_case ? lower(a[i]) != lower(b[i]) : a[i] != b[i])
            return false;
    return true;
}
