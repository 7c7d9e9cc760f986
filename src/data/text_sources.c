/* text_sources.c - see text_sources.h. */
#include "data/text_sources.h"

#include <sys/stat.h>

#include "base/base.h"
#include "base/file.h"

/* ---- files ---- */

static bool is_json_name(const char *name)
{
    static const char *const ends[] = { ".json", ".jsonl", ".ndjson" }, *const packed[] = {
        "", ".gz", ".zst"
    };
    char end[24];
    for (size_t i = 0; i < 3; i++)
        for (size_t k = 0; k < 3; k++) {
            snprintf(end, sizeof end, "%s%s", ends[i], packed[k]);
            if (sheaf__ends_with(name, end))
                return true;
        }
    return false;
}

static sheaf_status *add_file(sheaf__text_sources *s, const char *path)
{
    struct stat look = { 0 };
    if (!SHEAF_GROW(&s->path, NULL, s->paths + 1) || !SHEAF_GROW(&s->mark, NULL, s->paths + 1))
        return sheaf__no_memory("data set");
    (void)!stat(path, &look); /* opening it reports errors */
    s->mark[s->paths] = (sheaf_file_mark){ look.st_dev, look.st_ino, look.st_size, look.st_mtim };
    s->path[s->paths] = strdup(path);
    if (s->path[s->paths] == NULL)
        return sheaf__no_memory("data set");
    s->paths++;
    s->bytes += look.st_size;
    return NULL;
}

static sheaf_status *no_files(const char *path)
{
    sheaf_status *st = sheaf_fail(SHEAF_E_UNSUPPORTED, "%s", path);
    sheaf_expected(st, "a file, or a folder of .json or .jsonl files (also .gz, .zst)");
    sheaf_found(st, "a folder with none");
    return sheaf_try_this(st, "of images (a folder of them is for CogVLM and CogAgent) a file of "
                              "records that name them: {\"image\": PATH, \"messages\": [...]}");
}

sheaf_status *sheaf__text_sources_files(sheaf__text_sources *out, const char *path)
{
    char **name = NULL, file[SHEAF_PATH_SIZE];
    int64_t count = 0;
    *out = (sheaf__text_sources){ 0 };
    if (sheaf__path_kind(path) != SHEAF_PATH_DIR)
        return add_file(out, path);
    sheaf_status *st = sheaf__list_dir(&name, &count, path);
    for (int64_t i = 0; i < count && st == NULL; i++) {
        if (is_json_name(name[i]))
            st = add_file(out, sheaf__path_in(file, path, name[i]));
        else if (name[i][0] != '.' && out->passed++ == 0)
            snprintf(out->first, sizeof out->first, "%s", name[i]);
    }
    sheaf__names_free(name, count);
    return st == NULL && out->paths == 0 ? no_files(path) : st;
}

/* ---- the tokenizer ---- */

static sheaf_status *check_bytes(const sheaf_data_options *o)
{
    const sheaf_config *config = o->config;
    if (sheaf__is_given(o->tokenizer))
        return sheaf_found(
            sheaf_expected(sheaf_fail(SHEAF_E_ARG, "`tokenizer`"),
                           "none: the vocabulary of this model is bytes, as its config says"),
            "%s", o->tokenizer);
    const int64_t eos = config->neos > 0 ? config->eos[0] : -1;
    if (config->vocab < 256 || eos < 0 || eos >= config->vocab || config->bos >= config->vocab) {
        sheaf_status *st = sheaf_fail(SHEAF_E_LAYOUT, "config.json: special tokens");
        sheaf_expected(
            st, "256 bytes and eos_token_id (and bos_token_id, if any) inside the vocabulary");
        return sheaf_found(
            st, "vocab_size %" PRId64 ", bos_token_id %" PRId64 ", eos_token_id %" PRId64,
            config->vocab, config->bos, eos);
    }
    return NULL;
}

static sheaf_status *none_found(const sheaf__text_sources *s, const sheaf_data_options *o)
{
    sheaf_status *st = sheaf_fail(SHEAF_E_UNSUPPORTED, "%s: text records", s->path[0]);
    sheaf_expected(st, "tokenizer.json or tokenizer.model in the model's folder, or a model whose "
                       "vocabulary is bytes (\"sheaf_tokenizer\": \"bytes\")");
    sheaf_found(st, "a model of family %s that needs a tokenizer, and none",
                sheaf_family_name(o->config->family));
    return sheaf_try_this(st, "`tokenizer PATH`, the folder or file of this model's tokenizer; or "
                              "tokenise first and give a .safetensors file with input_ids and "
                              "labels");
}

sheaf_status *sheaf__text_sources_open(sheaf__text_sources *s, const sheaf_data_options *options)
{
    const char *path = options->tokenizer;
    s->encoder = (sheaf__text_encoder){ .config = options->config,
                                        .eos_id = -1,
                                        .loss_on = options->loss_on,
                                        .specials = options->specials };
    if (options->config->byte_vocab) {
        sheaf_status *st = check_bytes(options);
        if (st == NULL)
            s->encoder.eos_id = (int32_t)options->config->eos[0];
        return st;
    }
    sheaf_status *st =
        sheaf__is_given(path) ? NULL : sheaf__tokenizer_folder(&path, options->folder);
    if (st == NULL && path == NULL)
        st = none_found(s, options);
    TRY(st, sheaf__stored_chat_open(&s->tokenizer, &s->stored, path, options->config->vocab));
    if (st != NULL)
        return st;
    const int64_t end = options->config->neos > 0 ? options->config->eos[0] : -1;
    const int32_t eos =
        s->stored.eos == NULL ? -1 : sheaf__tokenizer_find(s->tokenizer, s->stored.eos);
    s->encoder.tokenizer = s->tokenizer;
    s->encoder.bos = s->stored.bos;
    s->encoder.eos = s->stored.eos;
    s->encoder.eos_id = eos >= 0 ? eos : end < options->config->vocab ? (int32_t)end : -1;
    return NULL;
}

/* ---- the template ---- */

/* An end mark that is no token here is probably another model's. */
static void tell_end(const sheaf__text_sources *s, const sheaf_events *events)
{
    const char *end = sheaf__chat_template_stop(s->chat, s->stored.eos);
    if (end == NULL && s->encoder.eos_id >= 0)
        sheaf_note(events,
                   "the chat template %s writes no mark behind an answer: its end is learned as "
                   "%s, the end of text",
                   sheaf__chat_template_name(s->chat),
                   s->stored.eos != NULL ? s->stored.eos : "eos");
    else if (end == NULL)
        sheaf_warn(events,
                   "the chat template %s writes no mark behind an answer and the tokenizer has no "
                   "eos: no end is learned, and answers run to `max-new` or `stop TEXT`",
                   sheaf__chat_template_name(s->chat));
    if (end != NULL && s->tokenizer != NULL && sheaf__tokenizer_find(s->tokenizer, end) < 0)
        sheaf_warn(events,
                   "the chat template %s ends answers with '%s', which is no token of this "
                   "tokenizer: it is learned letter by letter",
                   sheaf__chat_template_name(s->chat), end);
}

sheaf_status *sheaf__text_sources_chat(sheaf__text_sources *s, const sheaf_data_options *options)
{
    sheaf_status *st = NULL;
    if (s->chat != NULL)
        return NULL;
    if (sheaf__is_given(options->prompt_template) || sheaf__stored_chat_has_program(&s->stored))
        st = options->of_run && sheaf__is_given(options->prompt_template)
                 ? sheaf__chat_template_of_run(&s->chat, options->prompt_template, &s->stored)
                 : sheaf__chat_template_choose(&s->chat, options->prompt_template, &s->stored);
    s->encoder.chat = s->chat;
    if (st == NULL && s->chat != NULL)
        st = sheaf__chat_template_set_date(s->chat, options->date);
    if (st == NULL && s->chat != NULL && sheaf__chat_template_wants_date(s->chat))
        st = sheaf__chat_template_undated(sheaf__chat_template_name(s->chat));
    if (st == NULL && s->chat != NULL)
        tell_end(s, options->events);
    return st;
}

void sheaf__text_sources_release(sheaf__text_sources *s)
{
    for (int64_t i = 0; i < s->paths; i++)
        free(s->path[i]);
    free(s->path);
    free(s->mark);
    sheaf__tokenizer_close(s->tokenizer);
    sheaf__chat_template_free(s->chat);
    sheaf__stored_chat_release(&s->stored);
    *s = (sheaf__text_sources){ 0 };
}
