/* chat.c - `sheaf chat`: a conversation, from a terminal or a pipe. */
#include <errno.h>
#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include "ask.h"
#include "base/base.h"
#include "base/control.h"
#include "base/print.h"
#include "driver/processes.h"
#include "driver/signals.h"
#include "commands.h"

const char cmd_chat_usage[] =
    "usage: sheaf chat MODEL [--image FILE]... [FLAG...]\n"
    "Answers the lines of its input, one after the other. A line that begins with / is a command:\n"
    "/help lists them; // begins a question with /. Ctrl-C ends the answer, and between answers the\n"
    "chat. OmniLMM, MiniCPM-V and Qwen-VL read several pictures: they stand before the next\n"
    "question, or where it says <image>. Sampling that no flag sets is what the model's\n"
    "generation_config.json says; without one, these and GLM-4V sample as their own programs do,\n"
    "others are --greedy.\n";

typedef struct settings {
    const char *save, *load;
    sheaf__texts image;
    sheaf_model_open_options model;
    ask_flags ask;
    driver_processes processes;
} settings;

/* ---- Ctrl-C: a handler reaches nothing but static memory ---- */

static sheaf_control control; /* `stop`: presses since the last answer began */

static bool is_press(int number)
{
    return number == SIGINT || number == SIGUSR1;
}

static void on_interrupt(int number)
{
    const int before = atomic_fetch_add(&control.stop, is_press(number) ? 1 : 2);
    if (before > 2) { /* impatient */
        signal(number, SIG_DFL);
        raise(number);
    }
}

/* Of several processes the first handles Ctrl-C, or SIGUSR1, which every mpirun passes on; each
 * handles a request to end. */
static sheaf_status *listen_to_signals(const cli *cli)
{
    static const int handled[] = { SIGINT, SIGUSR1, SIGTERM, SIGHUP, SIGUSR2, SIGXCPU, SIGPIPE };
    for (size_t i = 0; i < sizeof handled / sizeof *handled; i++) {
        const bool others = is_press(handled[i]) && cli->nowhere != NULL;
        struct sigaction action = { .sa_flags = 0 };
        if (handled[i] == SIGHUP && driver_under_nohup())
            continue;
        action.sa_handler = handled[i] == SIGPIPE || others ? SIG_IGN : on_interrupt;
        sigemptyset(&action.sa_mask);
        if (sigaction(handled[i], &action, NULL) != 0)
            return sheaf__found_errno(sheaf_fail(SHEAF_E_IO, "installing signal handlers"), errno);
    }
    return NULL;
}

/* Forgets a press of Ctrl-C that ended an answer, or came outside of one. A request to end stays:
 * it ends the next answer, and then the chat. */
static void forget_press(void)
{
    int once = 1;
    atomic_compare_exchange_strong(&control.stop, &once, 0);
}

/* ---- lines ---- */

enum { LONGEST = 1 << 20 }; /* bytes of a line */

typedef struct reader {
    char *buffer; /* [LONGEST + 1] */
    size_t begin, end;
    sheaf_model *model; /* the other processes wait for a question */
    bool over;          /* the input has ended */
    bool any;           /* it had lines */
    bool ended;         /* another process was asked to end */
    sheaf_status *lost; /* another process is gone */
} reader;

/* Reads more bytes into the buffer; false at the end of the input and after Ctrl-C. */
static bool read_more(reader *r)
{
    struct pollfd in = { .fd = STDIN_FILENO, .events = POLLIN };
    while (atomic_load(&control.stop) == 0 && !r->ended && r->lost == NULL) {
        if (poll(&in, 1, 200) <= 0) { /* a signal may have gone to another thread */
            r->lost = sheaf_model_wait(r->model, &r->ended);
            continue;
        }
        const ssize_t got = read(STDIN_FILENO, r->buffer + r->end, LONGEST - r->end);
        if (got > 0) {
            r->end += (size_t)got;
            r->any = true;
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
 * that is too long (it is skipped) or has a NUL. */
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
        if (r->end == LONGEST) {
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
                              (int)LONGEST);
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

/* ---- the session ---- */

typedef struct session {
    const cli *cli;
    const settings *s;
    sheaf_model *model;
    sheaf_model_facts facts;
    sheaf_chat *chat;
    const char *save; /* file of each answer; NULL */
    char *saved;      /* that, where a line named it */
    reader in;
    bool terminal, refused; /* refused: some line was */
    bool unsaved;           /* the last answer, which was to be */
} session;

static void speak(void *self, int64_t prompt, const char *text)
{
    const session *t = self;
    (void)prompt;
    ask_piece(t->cli, text);
}

static void print_json(const session *t, const char *query, const sheaf_answer *answer)
{
    sheaf_json_writer j = { .compact = true };
    sheaf__json_begin(&j);
    ask_answer_json(&j, answer);
    sheaf__json_put(&j, "prompt:s stopped:b", query,
                    sheaf_answer_ending(answer) == SHEAF_ENDS_STOPPED);
    if (t->facts.sums != NULL)
        sheaf__json_put_text(&j, "sums", t->facts.sums);
    cli_json_end(t->cli->out, &j);
    fflush(t->cli->out);
}

/* Reports an error of one line; the chat continues. */
static void refuse(session *t, sheaf_status *st)
{
    sheaf_status_print(sheaf__status_spell(st, NULL), t->cli->err);
    sheaf_status_free(st);
    t->refused = true;
}

/* An error of a question alone: it was not answered. */
static bool is_about_question(const sheaf_status *st)
{
    const sheaf_code code = sheaf_status_code(st);
    return code == SHEAF_E_DATA || code == SHEAF_E_UNSUPPORTED || code == SHEAF_E_ARG;
}

/* A full disk does not end the chat: that would lose the conversation. */
static void keep(session *t)
{
    sheaf_status *st = t->save == NULL ? NULL : sheaf_chat_save(t->chat, t->save);
    t->unsaved = st != NULL;
    if (st != NULL)
        refuse(t, sheaf_try_this(st, "/save FILE, at another place: the conversation is still "
                                     "here; the next answer is saved with it, too"));
}

static sheaf_status *answer(session *t, const char *query)
{
    sheaf_answer *answer = NULL;
    forget_press();
    sheaf_status *st = sheaf_chat_ask(&answer, t->chat, query, NULL);
    if (st != NULL && is_about_question(st)) {
        refuse(t, st);
        return NULL;
    }
    if (st != NULL)
        return st;
    if (t->cli->json) {
        print_json(t, query, answer);
    } else {
        fputc('\n', t->cli->out);
        fflush(t->cli->out);
        if (sheaf_answer_ending(answer) == SHEAF_ENDS_STOPPED)
            sheaf__print(t->cli->err, "(stopped)\n");
    }
    sheaf_answer_free(answer);
    keep(t);
    return driver_written(t->cli);
}

/* ---- commands ---- */

static sheaf_status *look(session *t, const char *word)
{
    const bool any = word[0] != '\0';
    sheaf_status *st = sheaf_in(sheaf_chat_show(t->chat, any ? word : NULL), "/image");
    return any || st == NULL ? st : sheaf_try_this(st, "/image FILE");
}

static sheaf_status *instruct(session *t, const char *word)
{
    sheaf_status *st = sheaf_chat_system(t->chat, word);
    t->unsaved = t->unsaved && st != NULL;
    return st;
}

static sheaf_status *save(session *t, const char *word)
{
    const char *before = t->save != NULL ? t->save : sheaf_chat_file(t->chat);
    if (word[0] == '\0' && before == NULL)
        return sheaf_expected(sheaf_fail(SHEAF_E_ARG, "/save"), "a file's name after it");
    char *name = strdup(word[0] == '\0' ? before : word);
    sheaf_status *st = name == NULL ? sheaf__no_memory(word) : sheaf_chat_save(t->chat, name);
    if (st != NULL) {
        free(name);
        return st;
    }
    free(t->saved);
    t->save = t->saved = name;
    t->unsaved = false;
    return NULL;
}

/* The file saved so far belongs to another conversation. */
static sheaf_status *load(session *t, const char *word)
{
    sheaf_status *st = sheaf_chat_load(t->chat, word);
    if (st != NULL || t->save == NULL || strcmp(t->save, word) == 0)
        return st;
    sheaf_note(&t->cli->events, "%s stays as it is; /save goes on in %s", t->save, word);
    free(t->saved);
    t->save = t->saved = NULL;
    t->unsaved = false;
    return NULL;
}

static sheaf_status *reset(session *t, const char *word)
{
    (void)word;
    sheaf_chat_reset(t->chat);
    t->unsaved = false;
    return NULL;
}

static sheaf_status *help(session *t, const char *word);

static const struct {
    const char *form, *says;                             /* form: its name, and what it takes */
    sheaf_status *(*obey)(session *t, const char *word); /* NULL: the chat is over */
    bool images;                                         /* for models that see */
    const char *says_placed; /* help for models whose pictures have places in the text */
} commands[] = {
    { "/image [FILE]", "shows another picture, or none; clears the conversation", look, true,
      "adds a picture to the next question, before it or where it says <image>; without FILE takes "
      "back those that no question has shown" },
    { "/system [TEXT]", "sets the system message, or none; clears the conversation", instruct },
    { "/reset", "clears the conversation; pictures stay", reset },
    { "/save [FILE]", "saves the conversation, now and after each answer", save },
    { "/load FILE", "continues a saved conversation", load },
    { "/help", "lists these commands", help },
    { "/quit", "ends the chat; Ctrl-C ends an answer", NULL },
};
enum { COMMANDS = sizeof commands / sizeof *commands, NAME = 64 };

static sheaf_status *help(session *t, const char *word)
{
    const int64_t pictures = t->facts.pictures;
    (void)word;
    for (int i = 0; i < COMMANDS; i++) {
        const bool placed = pictures > 1 && commands[i].says_placed != NULL;
        if (pictures > 0 || !commands[i].images)
            sheaf__print(t->cli->err, "%s  %s\n", commands[i].form,
                         placed ? commands[i].says_placed : commands[i].says);
    }
    return NULL;
}

static sheaf_status *no_command(const char *line, const char *name)
{
    char own[COMMANDS][NAME];
    const char *names[COMMANDS], *near = NULL;
    sheaf_text all = { 0 };
    for (int i = 0; i < COMMANDS; i++) {
        names[i] = own[i];
        snprintf(own[i], NAME, "%.*s", (int)strcspn(commands[i].form, " "), commands[i].form);
        sheaf__text_add(&all, "%s%s",
                        i == 0              ? ""
                        : i + 1 == COMMANDS ? " or "
                                            : ", ",
                        commands[i].form);
    }
    const char *nearest = sheaf__nearest(name, names, COMMANDS);
    for (int i = 0; i < COMMANDS; i++)
        near = nearest == names[i] ? commands[i].form : near;
    const bool known = near != NULL && strcmp(nearest, name) == 0;
    sheaf_status *st = sheaf_fail(SHEAF_E_ARG, "command");
    sheaf_expected(st, "%s", known ? near : all.failed ? "one of /help" : all.at);
    sheaf_found(st, "%.60s", line);
    sheaf__text_release(&all);
    return known || near == NULL ? st : sheaf_try_this(st, "%s", near);
}

/* false: the chat is over. */
static bool obey(session *t, const char *line)
{
    char name[NAME];
    const size_t n = strcspn(line, " \t");
    const char *word = line + n + strspn(line + n, " \t");
    sheaf_status *st = NULL;
    int i = 0;
    snprintf(name, sizeof name, "%.*s", (int)(n < NAME ? n : NAME), line);
    for (; i < COMMANDS; i++) {
        const char *takes = commands[i].form + strcspn(commands[i].form, " ");
        const bool given = word[0] != '\0',
                   fits = takes[0] == '\0' ? !given : takes[1] == '[' || given;
        if (fits && strncmp(commands[i].form, name, strlen(name)) == 0 &&
            commands[i].form + strlen(name) == takes)
            break;
    }
    if (i < COMMANDS && commands[i].obey == NULL)
        return false;
    st = i < COMMANDS ? commands[i].obey(t, word) : no_command(line, name);
    if (st != NULL)
        refuse(t, st);
    return true;
}

/* mpirun and srun may pass no input on, or had none. */
static sheaf_status *no_input(const session *t)
{
    const char *launcher = driver_processes_launcher();
    if (t->in.any || !t->in.over || launcher == NULL || t->s->processes.all == NULL)
        return NULL;
    sheaf_status *st = sheaf_fail(SHEAF_E_IO, "standard input");
    sheaf_expected(st, "lines from %s, each a question to the model", launcher);
    sheaf_found(st, "its end, before the first");
    return sheaf_try_this(st, "%s with an input of its own for the first process", launcher);
}

static sheaf_status *lead(session *t)
{
    sheaf_status *st = listen_to_signals(t->cli);
    char *line;
    while (st == NULL) {
        if (t->terminal)
            fputs("> ", t->cli->err);
        fflush(t->cli->err);
        sheaf_status *bad = next_line(&line, &t->in);
        if (bad != NULL) {
            refuse(t, bad);
            continue;
        }
        if (line == NULL || atomic_load(&control.stop) != 0)
            break;
        if (line[0] == '/' && line[1] != '/') {
            if (!obey(t, line))
                break;
        } else if (line[0] != '\0') {
            st = answer(t, line[0] == '/' ? line + 1 : line);
            forget_press();
        }
    }
    if (t->terminal)
        fputc('\n', t->cli->err);
    st = sheaf__first_of(st, t->in.lost);
    t->in.lost = NULL;
    TRY(st, no_input(t));
    /* the last try to save an answer */
    return t->unsaved ? sheaf__first_of(st, sheaf_chat_save(t->chat, t->save)) : st;
}

/* ---- the command ---- */

static sheaf_status *begin(session *t, const cli_option *table)
{
    const settings *s = t->s;
    sheaf_model_generate_options answers;
    sheaf_chat_options o = { .size = sizeof o };
    sheaf_status *st = ask_options(&answers, t->cli, table, &s->ask, &t->facts);
    answers.on_text = ask_streams(t->cli, &s->ask) ? speak : NULL;
    answers.context = t;
    answers.control = &control;
    o.answers = &answers;
    o.load = s->load;
    o.save = t->save = s->save;
    o.system = s->ask.system;
    o.images = s->image.at;
    o.nimages = s->image.n;
    return st == NULL ? sheaf_chat_open(&t->chat, t->model, &o) : st;
}

/* The first runs the session, the others follow; all end with the same code. */
static sheaf_status *run(session *t, const cli_option *table)
{
    const bool first = t->cli->nowhere == NULL;
    t->terminal = first && isatty(STDIN_FILENO);
    t->in.buffer = malloc(LONGEST + 1);
    sheaf_status *st = begin(t, table);
    t->in.model = t->model;
    if (st == NULL && t->terminal)
        sheaf_note(&t->cli->events, "%s: /help lists commands", t->facts.family);
    if (st == NULL && first)
        st = sheaf_model_end(t->model, t->in.buffer == NULL ? sheaf__no_memory("a line") : lead(t));
    else if (st == NULL)
        st = sheaf_model_follow(t->model, &control);
    sheaf_chat_close(t->chat);
    free(t->in.buffer);
    free(t->saved);
    return st;
}

int cmd_chat(cli *cli, int argc, char **argv)
{
    settings s = { 0 };
    cli_option table[CLI_MAX_OPTIONS] = {
        { "image", CLI_TEXTS | CLI_UNSAVED | CLI_COMMON, &s.image,
          "picture that questions are about; may be given several times if the model reads several",
          "FILE", .heading = "conversation" },
        { "save", CLI_PATH | CLI_COMMON, &s.save,
          "save the conversation as JSON after each answer: a new file, or the one of --load",
          "FILE" },
        { "load", CLI_PATH | CLI_COMMON, &s.load,
          "continue a saved conversation, with its pictures", "FILE" },
        { 0 },
    };
    ask_model_table(table, &s.model);
    ask_table(table, &s.ask, &s.model, 512);
    driver_processes_table(table, &s.processes, true);
    s.ask.max_length = 2048;
    session t = { .cli = cli, .s = &s };
    sheaf_status *st = cli_parse(cli, table, NULL, argc, argv);
    if (st == NULL && s.ask.max_length < 2)
        st = sheaf_expected(sheaf_fail(SHEAF_E_ARG, "--max-length"),
                            "2 or more: it bounds the length of a conversation");
    TRY(st, driver_processes_begin(&s.processes, cli, s.model.tp, s.model.place));
    if (st == NULL && s.processes.elsewhere)
        return driver_processes_answer(&s.processes, cli, NULL, true);
    if (st == NULL && s.processes.all != NULL) /* before a large model is loaded */
        st = listen_to_signals(cli);
    s.model.events = &cli->events;
    s.model.positions = s.ask.max_length;
    s.model.positions_fit = !sheaf__settings_given(&cli->settings, table, "max-length");
    TRY(st, ask_open(&t.model, &t.facts, cli, &s.model, &s.ask, s.processes.all));
    if (st == NULL) {
        s.ask.max_length = t.facts.positions;
        st = run(&t, table);
    }
    sheaf_model_close(t.model);
    return driver_processes_answer(&s.processes, cli, st, !t.refused || t.terminal);
}
