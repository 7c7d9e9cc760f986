/* render.c - `sheaf render`: conversations as the text that a model reads. */
#include <errno.h>

#include "base/base.h"
#include "base/json.h"
#include "base/print.h"
#include "commands.h"
#include "cli/lib/shared.h"
#include "data/complaints.h"
#include "data/json_items.h"
#include "data/text_record.h"
#include "inputs/chat/stored.h"

const char cmd_render_usage[] =
    "usage: sheaf render --tokenizer PATH [--template NAME] FILE [FLAG...]\n"
    "Prints for each record of FILE, JSON Lines or one JSON array (- is standard input), one line of\n"
    "JSON: the text that its chat template makes of it, the spans of this text that a model must\n"
    "learn to write, and the content of each message. Offsets are bytes of UTF-8, and characters.\n";

typedef struct rendering {
    cli *cli;
    sheaf__chat_template *template;
    sheaf__chat_options options;
    int64_t left_out; /* records of which a message is not in the text */
    int64_t unlearnt; /* or of which an answer cannot be learnt */
} rendering;

/* Characters before `end`, of which `*chars` stand before `*at`: spans come in order. */
static int64_t characters(const sheaf__rendered *r, size_t *at, int64_t *chars, size_t end)
{
    if (end < *at)
        *at = 0, *chars = 0;
    for (; *at < end; (*at)++)
        *chars += ((unsigned char)r->text[*at] & 0xc0) != 0x80;
    return *chars;
}

static void print_spans(sheaf_json_writer *j, const char *key, const sheaf__rendered *r,
                        sheaf__span_kind kind)
{
    size_t at = 0;
    int64_t chars = 0;
    sheaf__json_open(j, key, '[');
    for (int64_t i = 0; i < r->spans; i++) {
        const sheaf__span *s = &r->span[i];
        if (s->kind != kind)
            continue;
        sheaf__json_open(j, NULL, '{');
        sheaf__json_put_int(j, "message", s->message);
        sheaf__json_put_int(j, "begin", (int64_t)s->begin);
        sheaf__json_put_int(j, "end", (int64_t)s->end);
        sheaf__json_put_int(j, "begin_character", characters(r, &at, &chars, s->begin));
        sheaf__json_put_int(j, "end_character", characters(r, &at, &chars, s->end));
        sheaf__json_close(j, '}');
    }
    sheaf__json_close(j, ']');
}

/* The text by sheaf__json_text(), as it may contain NUL. */
static sheaf_status *print_record(const rendering *r, const sheaf__rendered *text)
{
    sheaf_json_writer j = { 0 };
    char *quoted = NULL;
    json_t *value = json_stringn_nocheck(text->text, text->size);
    if (value == NULL)
        return sheaf__no_memory("text of a record");
    sheaf_status *st = sheaf__json_text(&quoted, value, JSON_ENCODE_ANY);
    json_decref(value);
    if (st != NULL)
        return st;
    sheaf__json_begin(&j);
    sheaf__json_put_raw(&j, "text", quoted);
    sheaf__json_put_text(&j, "template", sheaf__chat_template_name(r->template));
    if (sheaf__chat_template_date(r->template) != NULL)
        sheaf__json_put_text(&j, "date", sheaf__chat_template_date(r->template));
    print_spans(&j, "spans", text, SHEAF__ANSWER);
    print_spans(&j, "content", text, SHEAF__CONTENT);
    free(quoted);
    if (!cli_json_end(r->cli->out, &j) && !ferror(r->cli->out))
        return sheaf__no_memory("text of a record");
    return cli_written(r->cli);
}

static sheaf_status *render(rendering *r, const char *line, size_t size)
{
    json_t *record = NULL;
    sheaf__text_record c = { 0 };
    sheaf__message *message = NULL;
    sheaf__rendered text = { 0 };
    sheaf_status *st = sheaf__record_parse(&record, line, size, NULL);
    TRY(st, sheaf__text_record_list(&c, record, false, true));
    if (st == NULL && (message = malloc((size_t)c.messages * sizeof *message)) == NULL)
        st = sheaf__no_memory("text of a record");
    if (st == NULL) {
        sheaf__chat_options options = r->options;
        options.tools = c.tools;
        sheaf__text_said(message, &c);
        st = sheaf__chat_render(&text, r->template, message, c.messages, &options);
    }
    if (st == NULL) {
        r->left_out += text.left_out > 0;
        r->unlearnt += text.unlearnt > 0;
        st = print_record(r, &text);
    }
    sheaf__rendered_release(&text);
    free(message);
    sheaf__text_record_release(&c);
    json_decref(record);
    return st;
}

/* `name` is for messages. */
static sheaf_status *render_all(rendering *r, const char *path, const char *name)
{
    sheaf__json_items items = { 0 };
    sheaf__complaints complaints = { 0 };
    int64_t records = 0;
    bool more = true;
    sheaf_status *st = sheaf__json_items_open(&items, path);
    while (st == NULL && more && complaints.fatal == NULL) {
        st = sheaf__json_items_next(&more, &items);
        if (st != NULL || !more)
            break;
        records++;
        sheaf_status *bad = render(r, items.text, items.size);
        if (bad != NULL && (sheaf_status_code(bad) == SHEAF_E_ARG || ferror(r->cli->out)))
            st = bad; /* of all records: the tokenizer lacks something, or nobody reads them */
        else
            sheaf__complain(&complaints, sheaf_in(bad, "%s %" PRId64, items.unit, items.place));
    }
    sheaf__json_items_close(&items);
    TRY(st, sheaf__complaints_verdict(&complaints, name, records));
    sheaf__complaints_release(&complaints);
    return st;
}

/* Standard input, which may be a pipe, as a file that has no name and ends with *file; `path` names
 * it as long as that is open. */
static sheaf_status *take_input(FILE **file, char path[32])
{
    char block[1 << 14];
    *file = tmpfile();
    bool good = *file != NULL;
    for (size_t n; good && (n = fread(block, 1, sizeof block, stdin)) > 0;)
        good = fwrite(block, 1, n, *file) == n;
    if (!good || ferror(stdin) || fflush(*file) != 0)
        return sheaf__found_errno(sheaf_fail(SHEAF_E_IO, "standard input"), errno);
    snprintf(path, 32, "/proc/self/fd/%d", fileno(*file));
    return NULL;
}

/* What the files do not say the tokenizer's class does, where there is a tokenizer. */
static sheaf_status *complete(sheaf__stored_chat *stored, const char *path)
{
    sheaf__tokenizer *t = NULL;
    if (stored->bos != NULL && stored->eos != NULL)
        return NULL;
    sheaf_status *st = sheaf__tokenizer_open(&t, path);
    if (st == NULL)
        st = sheaf__stored_chat_complete(stored, t);
    else if (sheaf_status_code(st) != SHEAF_E_MEMORY) { /* a template may need neither */
        sheaf_status_free(st);
        st = NULL;
    }
    sheaf__tokenizer_close(t);
    return st;
}

static sheaf_status *take_date(rendering *r, const char *date)
{
    sheaf_status *st = sheaf__chat_template_set_date(r->template, date);
    if (st != NULL || !sheaf__chat_template_wants_date(r->template))
        return st;
    st = sheaf__chat_template_set_today(r->template);
    if (st == NULL)
        sheaf_note(&r->cli->events,
                   "chat template %s writes a date: today's, %s (--date changes it)",
                   sheaf__chat_template_name(r->template), sheaf__chat_template_date(r->template));
    return st;
}

int cmd_render(cli *cli, int argc, char **argv)
{
    rendering r = { .cli = cli, .options = { .answers = true, .lenient = true } };
    const char *tokenizer = NULL, *name = NULL, *date = NULL;
    const cli_option options[] = {
        { "tokenizer", CLI_PATH | CLI_REQUIRED, &tokenizer,
          "folder of the tokenizer, or a file in it" },
        { "template", CLI_TEXT, &name, "chat template by name (default the one that is stored)" },
        { "date", CLI_TEXT, &date,
          "the date that the template writes (Llama 3.1 and 3.2, SmolLM3): YYYY-MM-DD, or a text where the template takes one; default: the template's own, else today's",
          "DATE" },
        { "generation-prompt", CLI_FLAG, &r.options.generation_prompt,
          "end with what makes a model answer" },
        { 0 },
    };
    cli_paths paths;
    FILE *input = NULL;
    char unnamed[32];
    sheaf__stored_chat stored = { 0 };
    sheaf_status *st = cli_parse(cli, options, &paths, argc, argv);
    TRY(st, sheaf__stored_chat_read(&stored, tokenizer));
    TRY(st, complete(&stored, tokenizer));
    TRY(st, sheaf__chat_template_choose(&r.template, name, &stored));
    TRY(st, take_date(&r, date));
    r.options.bos = stored.bos;
    r.options.eos = stored.eos;
    const bool piped = st == NULL && strcmp(paths.word[0], "-") == 0;
    if (piped)
        st = take_input(&input, unnamed);
    TRY(st,
        render_all(&r, piped ? unnamed : paths.word[0], piped ? "standard input" : paths.word[0]));
    if (r.left_out > 0)
        sheaf_warn(&cli->events,
                   "%" PRId64 " record%s with a message that chat template %s leaves out",
                   r.left_out, r.left_out == 1 ? "" : "s", sheaf__chat_template_name(r.template));
    if (r.unlearnt > 0)
        sheaf_warn(&cli->events,
                   "%" PRId64
                   " record%s with an answer that chat template %s writes otherwise once "
                   "messages follow: no span has it, and no run learns it",
                   r.unlearnt, r.unlearnt == 1 ? "" : "s", sheaf__chat_template_name(r.template));
    if (input != NULL)
        fclose(input);
    sheaf__chat_template_free(r.template);
    sheaf__stored_chat_release(&stored);
    return cli_report(cli, st);
}
