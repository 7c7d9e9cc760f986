/* chat.c - `sheaf chat`: a conversation, from a terminal or a pipe. */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ask.h"
#include "base/print.h"
#include "base/text.h"
#include "commands.h"
#include "infer/conversation.h"
#include "library/question.h"
#include "library/run_model.h"
#include "library/stop_ids.h"
#include "cli/lib/shared.h"
#include "schema/family.h"

const char cmd_chat_usage[] =
    "usage: sheaf chat --model DIR [--adapter DIR] [--image FILE] [--tp T]\n"
    "Answers the lines of its input, one after the other. A line that begins with / is a\n"
    "command: /image FILE shows another picture, /reset forgets what was said, /quit ends; //\n"
    "begins a question with /. Ctrl-C ends the answer, and outside of an answer the chat.\n"
    "Without flags of sampling the most probable token is taken, as SAT's own chat does.\n";

typedef struct settings {
    const char *model, *config, *adapter, *image, *isa, *place;
    int tp, threads, slices;
    sheaf_dtype dtype;
    sheaf_bf16_sums sums;
    bool force;
    ask_flags ask;
} settings;

/* ---- Ctrl-C: a handler reaches nothing but static memory ---- */

static atomic_int pressed; /* since the last answer began */

static void on_interrupt(int number)
{
    if (atomic_fetch_add(&pressed, number == SIGINT ? 1 : 2) > 2) { /* it was asked often enough */
        signal(number, SIG_DFL);
        raise(number);
    }
}

static sheaf_status *listen_to_signals(void)
{
    static const int handled[] = { SIGINT, SIGTERM, SIGPIPE };
    for (size_t i = 0; i < sizeof handled / sizeof *handled; i++) {
        struct sigaction action = { .sa_flags = 0 };
        action.sa_handler = handled[i] == SIGPIPE ? SIG_IGN : on_interrupt;
        sigemptyset(&action.sa_mask);
        if (sigaction(handled[i], &action, NULL) != 0)
            return sheaf_found(sheaf_fail(SHEAF_E_IO, "installing signal handlers"), "%s",
                               strerror(errno));
    }
    return NULL;
}

/* ---- lines ---- */

typedef struct reader {
    char *buffer; /* [SHEAF__TEXT_MAX + 1] */
    size_t begin, end;
    bool over; /* the input has ended */
} reader;

/* More bytes into the buffer; false at the end of the input and after Ctrl-C. */
static bool read_more(reader *r)
{
    struct pollfd in = { .fd = STDIN_FILENO, .events = POLLIN };
    while (atomic_load(&pressed) == 0) {
        if (poll(&in, 1, 200) <= 0) /* a signal may have gone to another thread */
            continue;
        const ssize_t got = read(STDIN_FILENO, r->buffer + r->end, SHEAF__TEXT_MAX - r->end);
        if (got > 0) {
            r->end += (size_t)got;
            return true;
        }
        if (got == 0 || (errno != EINTR && errno != EAGAIN)) {
            r->over = true;
            return false;
        }
    }
    return false;
}

/* *line: the next line, ended by NUL in the buffer; NULL at the end. Errors: SHEAF_E_DATA for one
 * that is too long (it is passed over) or holds a NUL. */
static sheaf_status *next_line(char **line, reader *r)
{
    bool too_long = false;
    *line = NULL;
    memmove(r->buffer, r->buffer + r->begin, r->end - r->begin);
    r->end -= r->begin;
    r->begin = 0;
    char *feed;
    for (size_t seen = 0; (feed = memchr(r->buffer + seen, '\n', r->end - seen)) == NULL;) {
        seen = r->end;
        if (r->end == SHEAF__TEXT_MAX) {
            too_long = true;
            seen = r->end = 0;
        }
        if (r->over || !read_more(r))
            break;
    }
    if (feed == NULL && (!r->over || (r->end == 0 && !too_long)))
        return NULL;
    const size_t n = feed == NULL ? r->end : (size_t)(feed - r->buffer);
    r->begin = feed == NULL ? r->end : n + 1;
    if (too_long)
        return sheaf_expected(sheaf_fail(SHEAF_E_DATA, "question"), "at most %d bytes",
                              (int)SHEAF__TEXT_MAX);
    if (memchr(r->buffer, '\0', n) != NULL)
        return sheaf_expected(sheaf_fail(SHEAF_E_DATA, "question"), "text without NUL");
    r->buffer[n] = '\0';
    if ((r->buffer[0] != '/' || r->buffer[1] == '/') &&
        !sheaf__is_utf8(r->buffer)) /* a path may be any bytes */
        return sheaf_expected(sheaf_fail(SHEAF_E_DATA, "question"), "text in UTF-8");
    for (size_t end = n; end > 0 && (r->buffer[end - 1] == ' ' || r->buffer[end - 1] == '\r' ||
                                     r->buffer[end - 1] == '\t');)
        r->buffer[--end] = '\0';
    *line = r->buffer;
    return NULL;
}

/* ---- the session: rank 0 reads and prints, the others compute with it ---- */

typedef struct session {
    const cli *cli;
    const settings *s;
    const sheaf__wording *wording;
    const sheaf__opened *opened;
    sheaf__conversation talk;
    reader in;
    bool terminal, refused; /* refused: some line was */
    sheaf__generate_options how;
    int64_t answers;
    sheaf__prompt prompt;     /* read by all ranks while they compute */
    sheaf__continuation *out; /* of rank 0 */
    sheaf__spoken spoken;
    sheaf_status *speaking; /* first failure of speak() */
} session;

/* A rank in it. */
typedef struct member {
    session *t;
    sheaf__model *model;
    sheaf__sight sight;
    int64_t picture; /* that is seen there, by talk.pictures */
} member;

static void say(session *t, const char *text)
{
    cli_say(t->cli, text);
    fflush(t->cli->out);
}

static void speak(void *self, int64_t prompt, const sheaf__continuation *so_far)
{
    session *t = self;
    char *more = NULL;
    if (t->speaking != NULL)
        return;
    t->speaking = sheaf__spoken_more(&more, &t->spoken, so_far->ids, so_far->n);
    if (t->speaking == NULL)
        say(t, more);
    free(more);
}

/* On every rank. *stopped: by Ctrl-C. The prompt is not read any more when this returns. */
static sheaf_status *compute(member *m, sheaf__continuation *out, bool *stopped)
{
    session *t = m->t;
    const bool first = sheaf__is_first(m->model->context);
    sheaf__generate_options how = t->how;
    how.number = t->answers;
    how.told = first && !t->cli->json ? speak : NULL;
    how.self = t;
    how.stop_now = &pressed;
    how.sight = &m->sight;
    m->sight.full = m->sight.full && m->picture == t->talk.pictures;
    m->picture = t->talk.pictures;
    sheaf_status *st = sheaf__generate(out, m->model, &t->prompt, 1, &how);
    *stopped = st != NULL && sheaf_status_code(st) == SHEAF_E_STOPPED;
    if (*stopped) {
        sheaf_status_free(st);
        st = NULL;
    }
    return sheaf__agree_all(m->model->context, st);
}

static sheaf_status *call_others(sheaf__model *model, char *go)
{
    return sheaf__everyone(model->context) == NULL
               ? NULL
               : sheaf_comm_broadcast(sheaf__everyone(model->context), go, 1, 0);
}

static sheaf_status *follow(member *m)
{
    sheaf__continuation *own = NULL;
    char go = 0;
    bool stopped;
    sheaf_status *st =
        sheaf__agree_all(m->model->context, ask_answers_new(&own, 1, m->t->how.max_new));
    while (st == NULL && (st = call_others(m->model, &go)) == NULL && go)
        st = compute(m, own, &stopped);
    ask_answers_free(own);
    return st;
}

static sheaf_status *print_json(const session *t, const char *query, const char *answer,
                                bool stopped)
{
    json_t *object = json_pack("{s:[], s:o, s:o, s:b}", "tokens", "text", ask_json(answer),
                               "prompt", ask_json(query), "stopped", stopped);
    for (int64_t i = 0; i < t->out->n; i++)
        json_array_append_new(json_object_get(object, "tokens"), json_integer(t->out->ids[i]));
    json_dumpf(object, t->cli->out, JSON_COMPACT);
    json_decref(object);
    fputc('\n', t->cli->out);
    fflush(t->cli->out);
    return NULL;
}

/* Prints what is left of the answer and remembers it. */
static sheaf_status *finish_answer(session *t, const char *query, bool stopped)
{
    char *rest = NULL, *answer = NULL;
    sheaf_status *st = t->speaking;
    t->speaking = NULL;
    if (st == NULL)
        st = sheaf__spoken_end(&rest, &answer, &t->spoken, t->out->ids, t->out->n);
    if (st == NULL && t->cli->json) {
        st = print_json(t, query, answer, stopped);
    } else if (st == NULL) {
        say(t, rest);
        say(t, "\n");
        if (stopped)
            sheaf__print(t->cli->err, "(stopped)\n");
    }
    if (st == NULL)
        st = sheaf__conversation_keep(&t->talk, query, answer);
    if (st == NULL && ferror(t->cli->out))
        st = sheaf_found(sheaf_fail(SHEAF_E_IO, "standard output"), "it takes no more");
    sheaf__spoken_release(&t->spoken);
    free(rest);
    free(answer);
    return st;
}

/* A status about one line; the chat goes on. */
static void refuse(session *t, sheaf_status *st)
{
    sheaf_status_print(st, t->cli->err);
    sheaf_status_free(st);
    t->refused = true;
}

static sheaf_status *fits(const session *t, const sheaf__prompt *prompt)
{
    const settings *s = t->s;
    return ask_fits(&(ask_layout){ .place = s->place,
                                   .tp = s->tp,
                                   .threads = s->threads,
                                   .dtype = s->dtype,
                                   .force = s->force,
                                   .events = &t->cli->events },
                    t->opened, prompt, 1, 1, s->ask.max_new);
}

static sheaf_status *answer(member *m, const char *query)
{
    session *t = m->t;
    void *block = NULL;
    char go = 1;
    bool stopped = false;
    sheaf_status *st = sheaf__conversation_ask(&t->prompt, &block, &t->talk, query);
    if (st != NULL && sheaf_status_code(st) != SHEAF_E_MEMORY) {
        if (sheaf__family_for(t->wording->config)->image.needed && t->talk.picture == NULL)
            sheaf_try_this(st, "/image FILE");
        else if (t->talk.turns > 0 && sheaf_status_code(st) == SHEAF_E_DATA)
            sheaf_try_this(st, "/reset, which forgets what was said; or a larger --max-length");
        refuse(t, st);
        return NULL;
    }
    if (st == NULL && (st = fits(t, &t->prompt)) != NULL) {
        refuse(t, st);
        free(block);
        return NULL;
    }
    atomic_store(&pressed, 0);
    t->out->n = 0;
    t->spoken = (sheaf__spoken){ .wording = t->wording };
    if (st == NULL)
        st = call_others(m->model, &go);
    if (st == NULL)
        st = compute(m, t->out, &stopped);
    t->answers++;
    free(block);
    if (st == NULL)
        return finish_answer(t, query, stopped);
    sheaf_status_free(t->speaking);
    sheaf__spoken_release(&t->spoken);
    return st;
}

/* ---- commands ---- */

static const char commands_text[] =
    "/image FILE shows another picture, /reset forgets what was said, /quit ends; Ctrl-C ends an answer\n";

/* false: the chat is over. */
static bool obey(session *t, const char *line)
{
    static const char *const names[] = { "/image", "/reset", "/quit", "/help" };
    const size_t n = strcspn(line, " \t");
    const char *word = line + n + strspn(line + n, " \t");
    sheaf_status *st = NULL;
    if (n == 6 && memcmp(line, "/image", n) == 0 && *word != '\0')
        st = sheaf__conversation_look(&t->talk, word);
    else if (strcmp(line, "/reset") == 0)
        sheaf__conversation_reset(&t->talk);
    else if (strcmp(line, "/quit") == 0)
        return false;
    else if (strcmp(line, "/help") == 0)
        fputs(commands_text, t->cli->err);
    else {
        char name[64];
        snprintf(name, sizeof name, "%.*s", (int)(n < 60 ? n : 60), line);
        const char *near = sheaf__nearest(name, names, 4);
        st = sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "command"),
                                        "/image FILE, /reset, /quit or /help"),
                         "%.60s", line);
        if (near != NULL)
            sheaf_try_this(st, strcmp(near, "/image") == 0 ? "%s FILE" : "%s", near);
    }
    if (st != NULL)
        refuse(t, st);
    return true;
}

static sheaf_status *lead(member *m)
{
    session *t = m->t;
    sheaf_status *st = sheaf__agree_all(m->model->context, listen_to_signals());
    char *line, stop = 0;
    while (st == NULL) {
        if (t->terminal)
            fputs("> ", t->cli->err);
        sheaf_status *bad = next_line(&line, &t->in);
        if (bad != NULL) {
            refuse(t, bad);
            continue;
        }
        if (line == NULL || atomic_load(&pressed) != 0)
            break;
        if (line[0] == '/' && line[1] != '/') {
            if (!obey(t, line))
                break;
        } else if (line[0] != '\0') {
            st = answer(m, line[0] == '/' ? line + 1 : line);
            if (atomic_load(&pressed) > 1)
                break;
            atomic_store(&pressed, 0);
        }
    }
    if (t->terminal)
        fputc('\n', t->cli->err);
    return st == NULL ? call_others(m->model, &stop) : st;
}

static sheaf_status *on_rank(void *self, sheaf__model *model)
{
    member m = { .t = self, .model = model };
    sheaf_status *st = sheaf__agree_all(model->context, sheaf__sight_new(&m.sight, model));
    if (st == NULL)
        st = sheaf__is_first(model->context) ? lead(&m) : follow(&m);
    sheaf__sight_release(&m.sight, model);
    return st;
}

/* ---- the command ---- */

static sheaf_status *run(session *t, const sheaf__opened *opened, const char *folder)
{
    const settings *s = t->s;
    const sheaf_config *config = &opened->config;
    int64_t stop[SHEAF_MAX_EOS];
    sheaf_status *st = sheaf__wording_needed(t->wording);
    t->talk.wording = t->wording;
    t->terminal = isatty(STDIN_FILENO);
    t->in.buffer = malloc(SHEAF__TEXT_MAX + 1);
    if (st == NULL && t->in.buffer == NULL)
        st = sheaf_fail(SHEAF_E_MEMORY, "a line");
    if (st == NULL && s->image != NULL)
        st = sheaf__conversation_look(&t->talk, s->image);
    if (st == NULL)
        st = sheaf__stop_ids(stop, &t->how.nstop, folder, t->wording);
    t->opened = opened;
    if (st == NULL) /* the shortest question there is */
        st = fits(t, &(sheaf__prompt){ .n = 1 });
    if (st == NULL)
        st = ask_answers_new(&t->out, 1, s->ask.max_new);
    if (st == NULL && !sheaf__template_has_history(t->wording->version))
        sheaf_note(&t->cli->events, "template %s: every question is asked alone",
                   sheaf__template_name(t->wording->version));
    if (st == NULL && t->terminal) {
        sheaf__print(t->cli->err, "%s: ", sheaf_family_name(config->family));
        fputs(commands_text, t->cli->err);
    }
    t->how.sampling = ask_sampling(&s->ask);
    t->how.max_new = s->ask.max_new;
    t->how.max_length = s->ask.max_length;
    t->how.batch = 1;
    t->how.stop = stop;
    if (st == NULL)
        st = sheaf__crew_run(opened,
                             &(sheaf__crew_options){
                                 .ranks = s->tp,
                                 .place = s->place,
                                 .threads = s->threads,
                                 .dtype = s->dtype,
                                 .isa = s->isa,
                                 .sums = s->sums == SHEAF_SUMS_TILES ? SHEAF__TILES : SHEAF__PAIRS,
                                 .positions = s->ask.max_length },
                             on_rank, t);
    ask_answers_free(t->out);
    sheaf__conversation_release(&t->talk);
    free(t->in.buffer);
    return st;
}

int cmd_chat(cli *cli, int argc, char **argv)
{
    settings s = { .tp = 1, .slices = 8, .dtype = SHEAF_F32 };
    cli_option table[CLI_MAX_OPTIONS] = {
        { "model", CLI_PATH | CLI_REQUIRED, &s.model, "folder of the model, or of a training run",
          "DIR" },
        { "config", CLI_PATH, &s.config, "its config.json, where the folder has none", "FILE" },
        { "adapter", CLI_PATH, &s.adapter, "PEFT adapter, or a training run, to use with it",
          "DIR" },
        { "image", CLI_PATH, &s.image, "picture that is talked about", "FILE" },
        { "tp", CLI_INT, &s.tp, "ranks that share the model", "T", 1, SHEAF_MAX_SLICES },
        { "place", CLI_TEXT, &s.place,
          "layers over stages of --tp ranks each: 2, by memory 24,12, or 0-10,11-31", "P", 1 },
        { "threads", CLI_INT, &s.threads, "compute threads in all; 0 = every core at hand",
          .max = 4096 },
        { "slices", CLI_INT, &s.slices, "parts every tensor falls into, a power of two", "S", 1,
          SHEAF_MAX_SLICES },
        { "dtype", CLI_CHOICE, &s.dtype, "type of activations and products",
          .choices = cli_dtypes },
        { "bf16-sums", CLI_CHOICE, &s.sums, SHEAF__SUMS_HELP, .choices = sheaf__sums_choices },
        { "force", CLI_FLAG, &s.force, ASK_FORCE },
        { "isa", CLI_TEXT | CLI_HIDDEN, &s.isa, "ref, avx2, avx512, avx512bf16 or amx" },
        { 0 },
    };
    ask_table(table, &s.ask, 512);
    s.ask.top_k = 1;
    s.ask.max_length = 2048;
    sheaf__opened opened = { 0 };
    sheaf__run_model model = { 0 };
    sheaf__wording wording = { 0 };
    session t = { .cli = cli, .s = &s, .wording = &wording };
    sheaf_status *st = cli_parse(cli, table, NULL, argc, argv);
    if (st == NULL && s.ask.max_length < 2)
        st = sheaf_expected(sheaf_fail(SHEAF_E_ARG, "--max-length"),
                            "2 or more: it bounds what a conversation may need");
    if (st == NULL)
        st = sheaf__run_model_open(&opened, &model,
                                   &(sheaf__open_options){ .model = s.model,
                                                           .config = s.config,
                                                           .slices = s.slices,
                                                           .adapter = s.adapter,
                                                           .events = &cli->events });
    if (st == NULL && sheaf__settings_given(&cli->settings, table, "max-length"))
        sheaf__warn_positions(&opened.config, "--max-length", s.ask.max_length, &cli->events);
    else if (st == NULL && opened.config.max_position < s.ask.max_length)
        s.ask.max_length = opened.config.max_position;
    if (st == NULL) {
        s.sums = sheaf__sums_of(s.sums, model.sums, s.dtype);
        sheaf__run_model_words(&model, &s.ask.tokenizer, &s.ask.version, NULL);
        st = sheaf__wording_open(&wording, &opened.config,
                                 &(sheaf__wording_options){ .folder = model.folder,
                                                            .tokenizer = s.ask.tokenizer,
                                                            .version = s.ask.version,
                                                            .conversation = true,
                                                            .max_length = s.ask.max_length,
                                                            .events = &cli->events });
    }
    if (st == NULL)
        st = run(&t, &opened, model.folder);
    sheaf__wording_close(&wording);
    sheaf__opened_close(&opened);
    sheaf__run_model_release(&model);
    return cli_answer(cli, st, !t.refused || t.terminal);
}
