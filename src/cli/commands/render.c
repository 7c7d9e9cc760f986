/* render.c - `sheaf render`: conversations as the text of their chat template. */
#include <errno.h>

#include "base/base.h"
#include "base/json.h"
#include "commands.h"
#include "sheaf/text.h"

const char cmd_render_usage[] =
    "usage: sheaf render --tokenizer PATH [--template NAME] FILE|- [FLAG...]\n"
    "Prints a line of JSON for each record of FILE, JSON Lines or a JSON array (- is standard\n"
    "input): the text that the chat template makes of it, the spans of this text that a model\n"
    "learns, and the content of each message. Offsets count bytes of UTF-8, and characters. A pair\n"
    "of answers is two lines, \"side\": \"chosen\" and \"rejected\"; of a judged answer it is\n"
    "\"desirable\" or \"undesirable\".\n";

/* Characters before `end`, of which `*chars` stand before `*at`: spans come in order. */
static int64_t characters(const sheaf_rendered *r, size_t *at, int64_t *chars, size_t end)
{
    if (end < *at)
        *at = 0, *chars = 0;
    for (; *at < end; (*at)++)
        *chars += ((unsigned char)r->text[*at] & 0xc0) != 0x80;
    return *chars;
}

static void print_spans(sheaf_json_writer *j, const char *key, const sheaf_rendered *r,
                        sheaf_span_kind kind)
{
    size_t at = 0;
    int64_t chars = 0;
    sheaf__json_open(j, key, '[');
    for (int64_t i = 0; i < r->spans; i++) {
        const sheaf_span *s = &r->span[i];
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
static sheaf_status *print_record(void *self, const sheaf_rendered *r)
{
    const cli *cli = self;
    sheaf_json_writer j = { 0 };
    char *quoted = NULL;
    json_t *value = json_stringn_nocheck(r->text, r->size);
    if (value == NULL)
        return sheaf__no_memory("text of a record");
    sheaf_status *st = sheaf__json_text(&quoted, value, JSON_ENCODE_ANY);
    json_decref(value);
    if (st != NULL)
        return st;
    sheaf__json_begin(&j);
    if (r->side != NULL)
        sheaf__json_put_text(&j, "side", r->side);
    sheaf__json_put_raw(&j, "text", quoted);
    sheaf__json_put_text(&j, "template", r->chat_template);
    if (r->date != NULL)
        sheaf__json_put_text(&j, "date", r->date);
    print_spans(&j, "spans", r, SHEAF_SPAN_ANSWER);
    print_spans(&j, "content", r, SHEAF_SPAN_CONTENT);
    free(quoted);
    if (!cli_json_end(cli->out, &j) && !ferror(cli->out))
        return sheaf__no_memory("text of a record");
    return driver_written(cli);
}

/* Copies standard input, which may be a pipe, to an unnamed file; `path` names it while *file is
 * open. */
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

int cmd_render(cli *cli, int argc, char **argv)
{
    sheaf_render_options o = { .size = sizeof o };
    o.take = print_record;
    o.context = cli;
    o.events = &cli->events;
    const cli_option options[] = {
        { "tokenizer", CLI_PATH | CLI_REQUIRED, &o.tokenizer,
          "folder of a model, or a file of its tokenizer" },
        { "template", CLI_TEXT, &o.chat_template,
          "chat template by name (default the one in the folder)" },
        { "date", CLI_TEXT, &o.date,
          "date that the template writes (Llama 3.1 and 3.2, SmolLM3): YYYY-MM-DD, or a text where the template takes one; default: the template's own, else today's",
          "DATE" },
        { "generation-prompt", CLI_FLAG, &o.generation_prompt,
          "end with the beginning of an answer" },
        { 0 },
    };
    cli_paths paths;
    FILE *input = NULL;
    char unnamed[32];
    sheaf_status *st = cli_parse(cli, options, &paths, argc, argv);
    const char *path = st == NULL ? paths.word[0] : NULL;
    if (st == NULL && strcmp(path, "-") == 0) {
        o.name = "standard input";
        st = take_input(&input, unnamed);
        path = unnamed;
    }
    TRY(st, sheaf_render(path, &o));
    if (input != NULL)
        fclose(input);
    return driver_report(cli, st);
}
