/* tokenize.c - `sheaf tokenize`: texts to ids and back, so that anyone can compare. */
#include <errno.h>
#include <unistd.h>

#include "base/base.h"
#include "base/file.h"
#include "commands.h"
#include "sheaf/text.h"

const char cmd_tokenize_usage[] =
    "usage: sheaf tokenize --tokenizer PATH [--lines] [FLAG...] FILE|-\n"
    "Prints the token ids of the text in FILE (- is standard input) as a JSON array; with --lines\n"
    "an array for each line, without its line feed. --decode turns such arrays back into texts. With\n"
    "--json each text is an object: its ids, and the range of bytes that each of them stands for.\n";

typedef struct tokenizing {
    cli *cli;
    sheaf_tokenizer *tokenizer;
    sheaf_encode_options how;
    bool lines, decode, skip_special;
    sheaf_text out;
} tokenizing;

/* ---- ids ---- */

static void put_int(sheaf_text *out, int64_t value)
{
    char digits[24];
    int at = sizeof digits;
    do
        digits[--at] = (char)('0' + value % 10);
    while ((value /= 10) > 0);
    sheaf__text_bytes(out, digits + at, sizeof digits - (size_t)at);
}

static void put_ids(tokenizing *t, const int32_t *ids, const sheaf_text_range *where, int64_t count)
{
    sheaf_text *out = &t->out;
    sheaf__text_add(out, where != NULL ? "{\"ids\": [" : "[");
    for (int64_t i = 0; i < count; i++) {
        sheaf__text_bytes(out, ", ", i > 0 ? 2 : 0);
        put_int(out, ids[i]);
    }
    sheaf__text_add(out, where != NULL ? "], \"where\": [" : "]");
    for (int64_t i = 0; where != NULL && i < count; i++) {
        sheaf__text_add(out, i > 0 ? ", [" : "[");
        put_int(out, (int64_t)where[i].begin);
        sheaf__text_bytes(out, ", ", 2);
        put_int(out, (int64_t)where[i].end);
        sheaf__text_bytes(out, "]", 1);
    }
    sheaf__text_add(out, where != NULL ? "]}\n" : "\n");
}

static sheaf_status *encode_text(tokenizing *t, const char *text, size_t size)
{
    int32_t *ids;
    sheaf_text_range *where = NULL;
    int64_t count;
    sheaf_status *st = sheaf_tokenizer_encode(&ids, t->cli->json ? &where : NULL, &count,
                                              t->tokenizer, text, size, &t->how);
    if (st != NULL)
        return st;
    put_ids(t, ids, where, count);
    free(ids);
    free(where);
    return NULL;
}

/* Whole numbers with blanks or commas between them, in brackets or not. */
static sheaf_status *read_ids(int32_t **ids, int64_t *count, const char *text, size_t size)
{
    int64_t capacity = 0;
    *ids = NULL;
    *count = 0;
    for (size_t at = 0; at < size;) {
        int64_t id = 0;
        if (memchr(" \t\r\n,[]", text[at], 8) != NULL) {
            at++;
            continue;
        }
        const size_t begin = at;
        for (; at < size && text[at] >= '0' && text[at] <= '9' && id <= INT32_MAX; at++)
            id = id * 10 + (text[at] - '0');
        if (at == begin || id > INT32_MAX) {
            sheaf_status *st = sheaf_fail(SHEAF_E_DATA, "byte %zu", begin + 1);
            sheaf_expected(st, "token ids, as [1, 2, 3]");
            return sheaf_found(st, "'%.*s'", size - begin > 20 ? 20 : (int)(size - begin),
                               text + begin);
        }
        if (!SHEAF_GROW(ids, &capacity, *count + 1))
            return sheaf__no_memory("ids");
        (*ids)[(*count)++] = (int32_t)id;
    }
    return NULL;
}

static sheaf_status *decode_text(tokenizing *t, const char *line, size_t bytes)
{
    int32_t *ids;
    int64_t count;
    char *text = NULL;
    size_t size = 0;
    sheaf_status *st = read_ids(&ids, &count, line, bytes);
    TRY(st, sheaf_tokenizer_decode(&text, &size, t->tokenizer, ids, count, t->skip_special));
    if (st == NULL && t->cli->json)
        sheaf__text_json_bytes(&t->out, text, size);
    else if (st == NULL)
        sheaf__text_bytes(&t->out, text, size);
    if (st == NULL && (t->lines || t->cli->json))
        sheaf__text_bytes(&t->out, "\n", 1);
    free(text);
    free(ids);
    return st;
}

static sheaf_status *one_text(tokenizing *t, const char *text, size_t size)
{
    sheaf_status *st = t->decode ? decode_text(t, text, size) : encode_text(t, text, size);
    if (st == NULL && t->out.failed)
        st = sheaf__no_memory("ids");
    if (st == NULL && t->out.size > 0)
        fwrite(t->out.at, 1, t->out.size, t->cli->out);
    t->out.size = 0;
    return st;
}

/* ---- texts ---- */

typedef struct reading {
    const char *name;
    int fd;
    char *buffer;
    size_t held; /* bytes in `buffer` */
    int64_t capacity;
    bool ended;
} reading;

enum { READ_AT_ONCE = 1 << 20 };

/* Reads more bytes into the buffer. */
static sheaf_status *read_more(reading *r)
{
    if (r->held > SHEAF_TOKENIZER_TEXT_MAX) {
        sheaf_status *st = sheaf_expected(sheaf_fail(SHEAF_E_DATA, "text"), "at most %zu bytes",
                                          SHEAF_TOKENIZER_TEXT_MAX);
        return sheaf_try_this(sheaf_found(st, "more than %zu", r->held - 1),
                              "divide it into several texts, or use --lines");
    }
    if (!SHEAF_GROW(&r->buffer, &r->capacity, (int64_t)r->held + READ_AT_ONCE))
        return sheaf__no_memory(r->name);
    const ssize_t n = TEMP_FAILURE_RETRY(read(r->fd, r->buffer + r->held, READ_AT_ONCE));
    if (n < 0)
        return sheaf__found_errno(sheaf_fail(SHEAF_E_IO, "%s", r->name), errno);
    r->ended = n == 0;
    r->held += (size_t)n;
    return NULL;
}

/* Lines end only with "\n": other line ends are text. Without --lines all is one text. */
static sheaf_status *read_texts(tokenizing *t, reading *r)
{
    sheaf_status *st = NULL;
    size_t done = 0, looked = 0;
    bool over = false;
    for (int64_t line = 1; st == NULL && !over && !ferror(t->cli->out);) {
        const char *end = t->lines && r->held > looked
                              ? memchr(r->buffer + looked, '\n', r->held - looked)
                              : NULL;
        if (end == NULL && !r->ended) {
            if (done > 0)
                memmove(r->buffer, r->buffer + done, r->held - done);
            r->held -= done;
            looked = r->held;
            done = 0;
            st = read_more(r);
        } else if (end != NULL || done < r->held || !t->lines) {
            const size_t size = (end != NULL ? (size_t)(end - r->buffer) : r->held) - done;
            st = one_text(t, r->buffer + done, size);
            looked = done += size + (end != NULL);
            over = !t->lines;
            line += st == NULL;
        } else {
            over = true;
        }
        if (t->lines)
            st = sheaf_in(st, "line %" PRId64, line);
    }
    return st;
}

static sheaf_status *tokenize(tokenizing *t, const char *path)
{
    const bool piped = strcmp(path, "-") == 0;
    reading r = { .name = piped ? "standard input" : path, .fd = STDIN_FILENO };
    int64_t size;
    sheaf_status *st = piped ? NULL : sheaf__file_open_read(&r.fd, &size, path);
    if (st != NULL)
        return st;
    st = sheaf_in(read_texts(t, &r), "%s", r.name);
    if (!piped)
        close(r.fd);
    free(r.buffer);
    return st;
}

int cmd_tokenize(cli *cli, int argc, char **argv)
{
    tokenizing t = { .cli = cli };
    const char *path = NULL;
    SHEAF_INIT(&t.how);
    const cli_option options[] = {
        { "tokenizer", CLI_PATH | CLI_REQUIRED, &path,
          "folder of a model, tokenizer.json or tokenizer.model" },
        { "lines", CLI_FLAG, &t.lines, "each line of FILE is a text of its own" },
        { "specials", CLI_FLAG, &t.how.specials,
          "special tokens written in the text are read as tokens, not as plain text" },
        { "add-special", CLI_FLAG, &t.how.add_special,
          "add the tokens that the model expects around a text, such as a beginning of sequence" },
        { "decode", CLI_FLAG, &t.decode, "the other way: arrays of ids to texts" },
        { "skip-special", CLI_FLAG, &t.skip_special, "with --decode: leave out special tokens" },
        { 0 },
    };
    cli_paths paths;
    sheaf_status *st = cli_parse(cli, options, &paths, argc, argv);
    if (st == NULL && t.skip_special && !t.decode)
        st = sheaf_expected(sheaf_fail(SHEAF_E_ARG, "--skip-special"), "--decode beside it");
    if (st == NULL && t.decode && (t.how.specials || t.how.add_special))
        st = sheaf_expected(sheaf_fail(SHEAF_E_ARG, "--decode"),
                            "neither --specials nor --add-special beside it");
    TRY(st, sheaf_tokenizer_open(&t.tokenizer, path));
    TRY(st, tokenize(&t, paths.word[0]));
    TRY(st, driver_written(cli));
    sheaf_tokenizer_close(t.tokenizer);
    sheaf__text_release(&t.out);
    return driver_report(cli, st);
}
