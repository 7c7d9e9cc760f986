/* progress.c - see progress.h and sheaf/progress.h. */
#include "monitor/progress.h"

#include <math.h>
#include <pthread.h>

#include "base/base.h"
#include "base/clock.h"
#include "base/json_write.h"
#include "base/number.h"
#include "base/print.h"
#include "base/spell.h"
#include "base/terminal.h"

enum { PLAIN_MS = 10000, JSON_MS = 1000, BAR_MS = 100 };
enum { BAR_LEAST = 8, BAR_MOST = 32 }; /* columns of a bar, with the blank and brackets */

/* The fields of a line, the most useful first: a narrow terminal drops the last ones. */
typedef enum use {
    HEAD,
    FIRST_BAR, /* of progress; that of steps comes later */
    LEFT,
    NAME,
    LOSS,
    SKIPPED,
    RATE,
    COUNT,
    BAR,
    GRADIENT,
    LEARNING_RATE,
    MEMORY,
    SHARES
} use;

typedef struct line {
    sheaf_text text; /* fields end to end, each with the blanks before it */
    int fields;
    struct {
        size_t end;
        use use;
    } field[SHARES + 1];
    double share; /* done, of all */
} line;

struct sheaf_progress {
    pthread_mutex_t lock; /* for all members below */
    sheaf_events events;
    FILE *out;
    sheaf__progress_style style; /* not AUTO */
    const char *command;
    int interval_ms;
    int64_t begun_ms;
    int64_t shown_ms;    /* when progress was last shown; 0 = never */
    double step_seconds; /* smoothed, for the time left */
    char counting[48];   /* the unit of the current progress, its total, place and start */
    int64_t total, first_ms, first_done;
    line line;    /* the newest */
    bool drawn;   /* it is on the terminal, in so many columns: */
    size_t width; /* 0: the cursor is where a line begins */
};

static int64_t now_ms(void)
{
    return (int64_t)(1000 * sheaf__seconds()) + 1; /* never 0 */
}

/* ---- a line in its place ---- */

/* Ends a field: the text since the previous one. */
static void end_field(line *l, use use)
{
    l->field[l->fields].end = l->text.size;
    l->field[l->fields++].use = use;
}

static void put_bar(sheaf_text *to, double share, int columns)
{
    const int inside = columns - 3, full = (int)(share * inside + 1e-9);
    sheaf__text_add(to, " [");
    for (int i = 0; i < inside; i++)
        sheaf__text_add(to, "%c", i < full ? '=' : ' ');
    sheaf__text_add(to, "]");
}

static bool is_bar(use use)
{
    return use == BAR || use == FIRST_BAR;
}

/* Fields of this use and of more, a bar in so many columns; true: there is one. */
static bool put_fields(sheaf_text *to, const line *l, use least, int bar)
{
    size_t begin = 0;
    bool has_bar = false;
    to->size = 0;
    for (int i = 0; i < l->fields; i++) {
        const size_t end = l->field[i].end;
        const use use = l->field[i].use;
        while (to->size == 0 && begin < end && l->text.at[begin] == ' ')
            begin++; /* those before it were left out */
        if (use <= least && is_bar(use))
            put_bar(to, l->share, bar);
        else if (use <= least && end > begin)
            sheaf__text_bytes(to, l->text.at + begin, end - begin);
        has_bar |= use <= least && is_bar(use);
        begin = end;
    }
    return has_bar;
}

static size_t room_of(const sheaf_progress *p)
{
    return (size_t)sheaf__terminal_columns(p->out) - 1u; /* in the last one a terminal may wrap */
}

/* Blanks end the line that stood there. Truncates only if the head alone is too long: a wrapped
 * line could not be rewritten. */
static void draw(sheaf_progress *p)
{
    const size_t room = room_of(p);
    sheaf_text shown = { 0 };
    int least = SHARES;
    bool has_bar = put_fields(&shown, &p->line, SHARES, BAR_LEAST);
    while (shown.size > room && least > HEAD)
        has_bar = put_fields(&shown, &p->line, (use)--least, BAR_LEAST);
    if (has_bar) {
        const size_t wide = BAR_LEAST + room - shown.size;
        put_fields(&shown, &p->line, (use)least, wide < BAR_MOST ? (int)wide : BAR_MOST);
    }
    if (shown.size > 0 && !shown.failed) {
        const size_t n = shown.size < room ? shown.size : room,
                     old = p->width < room ? p->width : room;
        sheaf__print(p->out, "\r%.*s%*s", (int)n, shown.at, (int)(old > n ? old - n : 0), "");
        p->width = n;
    }
    sheaf__text_release(&shown);
    p->drawn = true;
    fflush(p->out);
}

/* The cursor goes to the beginning of an empty line. */
static void erase(sheaf_progress *p)
{
    const size_t room = room_of(p);
    if (p->width > 0)
        sheaf__print(p->out, "\r%*s\r", (int)(p->width < room ? p->width : room), "");
    p->width = 0;
}

/* ---- what is shown ---- */

static void json_begin(sheaf_json_writer *j, const sheaf_progress *p)
{
    *j = (sheaf_json_writer){ 0 };
    sheaf__json_begin(j);
    sheaf__json_put_text(j, "command", p->command);
}

static void json_end(sheaf_json_writer *j, const sheaf_progress *p)
{
    sheaf__json_end(j);
    sheaf__text_add(&j->text, "\n");
    if (!j->text.failed)
        fputs(j->text.at, p->out);
    fflush(p->out);
    sheaf__text_release(&j->text);
}

/* A line of its own, above the progress line of the terminal. */
static void say(sheaf_progress *p, bool warning, const char *text)
{
    sheaf_json_writer j;
    if (p->style == SHEAF__PROGRESS_QUIET && !warning)
        return;
    if (p->style == SHEAF__PROGRESS_JSON) {
        json_begin(&j, p);
        sheaf__json_put_text(&j, warning ? "warning" : "note", text);
        json_end(&j, p);
        return;
    }
    erase(p);
    sheaf__print(p->out, "%s%s\n", warning ? "warning: " : "", text);
    if (p->style == SHEAF__PROGRESS_BAR && p->line.text.size > 0)
        draw(p);
    else
        fflush(p->out);
}

/* Is progress due, or must it be shown? */
static bool is_due(sheaf_progress *p, bool must)
{
    const int64_t now = now_ms();
    if (!must && p->shown_ms != 0 && now - p->shown_ms < p->interval_ms)
        return false;
    p->shown_ms = now;
    return true;
}

/* Shows `new` if it is due; else with the next note, or at the end. Takes over its text. */
static void show(sheaf_progress *p, line *new, bool must)
{
    sheaf__text_release(&p->line.text);
    p->line = new->text.failed ? (line){ 0 } : *new;
    p->drawn = false;
    if (new->text.failed)
        sheaf__text_release(&new->text);
    if (!is_due(p, must))
        return;
    if (p->style == SHEAF__PROGRESS_BAR)
        draw(p);
    else if (p->line.text.size > 0)
        sheaf__print(p->out, "%s\n", p->line.text.at);
    fflush(p->out);
}

/* "rows", of "rows" or "rows checked" */
static size_t unit_length(const char *what)
{
    return strcspn(what, " ");
}

/* Unknown numbers are NaN. The object stays open. */
static void json_progress(sheaf_json_writer *j, const sheaf_progress *p, const char *what,
                          int64_t done, int64_t total, double rate)
{
    char unit[32];
    snprintf(unit, sizeof unit, "%.*s", (int)unit_length(what), what);
    json_begin(j, p);
    sheaf__json_put(j, "what:s unit:s done:d total:d rate:f eta_s:f elapsed_s:f", what, unit, done,
                    total, rate, done == total ? 0 : (double)(total - done) / rate,
                    (double)(now_ms() - p->begun_ms) / 1000);
}

static void add_left(line *l, int64_t left, double rate)
{
    char time[SHEAF__NUMBER];
    if (left > 0 && rate > 0)
        sheaf__text_add(&l->text, "  %s left", sheaf__number_time(time, (double)left / rate));
    end_field(l, LEFT);
}

/* ---- steps ---- */

/* Output that is not a terminal has some lines of a short run, too. */
static bool ends_tenth(const sheaf_event_step *s)
{
    return s->steps > 0 && 10 * s->step / s->steps > 10 * (s->step - 1) / s->steps;
}

/* Of the time of all ranks, what each took: those of at least a hundredth. */
static void add_shares(sheaf_text *text, const sheaf_event *event)
{
    double products = 0, attention = 0, exchange = 0, transfers = 0, wait = 0;
    for (int r = 0; r < event->ranks && event->spent != NULL && event->rank != NULL; r++) {
        const sheaf_event_spent *one = &event->spent[r];
        if (!one->timed)
            return;
        products += one->products;
        attention += one->attention;
        transfers += one->transfers;
        exchange += event->rank[r].exchange;
        wait += event->rank[r].wait;
    }
    const struct {
        const char *name;
        double seconds;
    } of[] = { { "products", products },
               { "attention", attention },
               { "exchange", exchange },
               { "transfers", transfers },
               { "waiting", wait } };
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        const double share = of[i].seconds / (event->step.seconds * event->ranks);
        if (event->step.seconds > 0 && share >= 0.01)
            sheaf__text_add(text, "  %s %.0f%%", of[i].name, 100 * share);
    }
}

static void step_line(line *l, const sheaf_progress *p, const sheaf_event *event, double rate)
{
    const sheaf_event_step *s = &event->step;
    char number[SHEAF__NUMBER];
    sheaf_text *text = &l->text;
    sheaf__text_add(text, "step %" PRId64 "/%" PRId64, s->step, s->steps);
    end_field(l, HEAD);
    if (p->style == SHEAF__PROGRESS_BAR && s->steps > 0) {
        l->share = (double)s->step / (double)s->steps;
        end_field(l, BAR);
    }
    if (isnan(s->loss))
        sheaf__text_add(text, "  no label");
    else
        sheaf__text_add(text, "  loss %.4f", s->loss);
    for (int i = 0; i < s->values; i++) /* the one that tells whether it learns */
        if (strcmp(s->value[i].name, "rewards/margins") == 0)
            sheaf__text_add(text, "  margin %.3g", s->value[i].value);
    end_field(l, LOSS);
    sheaf__text_add(text, "  grad %.3g", s->grad_norm);
    end_field(l, GRADIENT);
    sheaf__text_add(text, "  lr %.3g", s->lr);
    end_field(l, LEARNING_RATE);
    if (s->seconds > 0)
        sheaf__text_add(text, "  %s tokens/s",
                        sheaf__number_rate(number, (double)s->tokens / s->seconds));
    end_field(l, RATE);
    if (s->memory > 0)
        sheaf__text_add(text, "  %s", sheaf__number_bytes(number, s->memory));
    end_field(l, MEMORY);
    add_shares(text, event);
    end_field(l, SHARES);
    if (s->skipped)
        sheaf__text_add(text, "  skipped, loss scale %.6g", s->loss_scale);
    end_field(l, SKIPPED);
    add_left(l, s->steps - s->step, rate);
}

static void step_json(const sheaf_progress *p, const sheaf_event_step *s, double rate)
{
    sheaf_json_writer j;
    json_progress(&j, p, "steps", s->step, s->steps, rate);
    sheaf__json_put(&j, "loss:f grad_norm:f lr:f tokens_per_s:f", s->loss, s->grad_norm, s->lr,
                    (double)s->tokens / s->seconds);
    json_end(&j, p);
}

static void show_step(sheaf_progress *p, const sheaf_event *event)
{
    const sheaf_event_step *s = &event->step;
    if (s->seconds > 0)
        p->step_seconds =
            p->step_seconds == 0 ? s->seconds : 0.9 * p->step_seconds + 0.1 * s->seconds;
    const double rate = p->step_seconds > 0 ? 1 / p->step_seconds : NAN;
    const bool must = s->step == s->steps || (p->style != SHEAF__PROGRESS_BAR && ends_tenth(s));
    line new = { 0 };
    if (p->style == SHEAF__PROGRESS_JSON) {
        if (is_due(p, must))
            step_json(p, s, rate);
        return;
    }
    step_line(&new, p, event, rate);
    show(p, &new, must);
}

/* A line of its own, which stays. */
static void say_evaluation(sheaf_progress *p, const sheaf_event_evaluation *e)
{
    char time[SHEAF__NUMBER];
    sheaf_json_writer j;
    sheaf_text text = { 0 };
    if (p->style == SHEAF__PROGRESS_JSON) {
        json_begin(&j, p);
        sheaf__json_put(&j, "step:d eval_loss:f eval_accuracy:f eval_tokens:d", e->step, e->loss,
                        e->accuracy, e->tokens);
        json_end(&j, p);
        return;
    }
    sheaf__text_add(&text, "after step %" PRId64 "/%" PRId64 ": evaluation ", e->step, e->steps);
    if (isnan(e->accuracy)) /* of answers with rewards */
        sheaf__text_add(&text, "reward %.4f, mean of %" PRId64 " prompts", -e->loss, e->tokens);
    else
        sheaf__text_add(&text, "loss %.4f, %.2f %% of %" PRId64 " %s right", e->loss,
                        100 * e->accuracy, e->tokens, e->values > 0 ? "samples" : "tokens");
    sheaf__text_add(&text, ", in %s%s", sheaf__number_time(time, e->seconds),
                    e->best ? "; the best so far" : "");
    if (text.size > 0)
        say(p, false, text.at);
    sheaf__text_release(&text);
}

/* ---- progress of anything else ---- */

/* Units a second since the first event of this progress; NaN: nothing to measure yet. The next
 * evaluation counts the same rows, from the same number on. */
static double pace_of(sheaf_progress *p, const sheaf_event *event)
{
    const int64_t now = now_ms();
    if (strncmp(p->counting, event->text, sizeof p->counting - 1) != 0 ||
        event->total != p->total || event->done <= p->first_done) {
        snprintf(p->counting, sizeof p->counting, "%s", event->text);
        p->total = event->total;
        p->first_ms = now;
        p->first_done = event->done;
    }
    const double seconds = (double)(now - p->first_ms) / 1000;
    return seconds < 0.2 || event->done <= p->first_done
               ? NAN
               : (double)(event->done - p->first_done) / seconds;
}

/* "3.00 MiB", "12" */
static const char *amount(char text[SHEAF__NUMBER], int64_t n, bool bytes)
{
    snprintf(text, SHEAF__NUMBER, "%" PRId64, n);
    return bytes ? sheaf__number_bytes(text, (uint64_t)n) : text;
}

static void progress_line(line *l, const sheaf_progress *p, const sheaf_event *event, double rate)
{
    char done[SHEAF__NUMBER], total[SHEAF__NUMBER], pace[SHEAF__NUMBER];
    const int unit = (int)unit_length(event->text);
    const bool bytes = unit == 5 && strncmp(event->text, "bytes", 5) == 0;
    l->share = (double)event->done / (double)event->total;
    amount(done, event->done, bytes);
    amount(total, event->total, bytes);
    sheaf__text_add(&l->text, "%s:", event->text);
    end_field(l, NAME);
    if (p->style == SHEAF__PROGRESS_BAR) {
        sheaf__text_add(&l->text, " %.0f%%", 100 * l->share);
        end_field(l, HEAD);
        end_field(l, FIRST_BAR);
        sheaf__text_add(&l->text, "  %s of %s", done, total);
    } else {
        sheaf__text_add(&l->text, " %s of %s (%.0f%%)", done, total, 100 * l->share);
    }
    end_field(l, COUNT);
    if (bytes && rate > 0)
        sheaf__text_add(&l->text, "  %s/s", sheaf__number_bytes(pace, (uint64_t)rate));
    else if (rate > 0)
        sheaf__text_add(&l->text, "  %s %.*s/s", sheaf__number_rate(pace, rate), unit, event->text);
    end_field(l, RATE);
    add_left(l, event->total - event->done, rate);
}

static void show_progress(sheaf_progress *p, const sheaf_event *event)
{
    if (event->total <= 0)
        return;
    const double rate = pace_of(p, event);
    const bool must = event->done == event->total;
    line new = { 0 };
    if (p->style == SHEAF__PROGRESS_JSON) {
        sheaf_json_writer j;
        if (!is_due(p, must))
            return;
        json_progress(&j, p, event->text, event->done, event->total, rate);
        json_end(&j, p);
        return;
    }
    progress_line(&new, p, event, rate);
    show(p, &new, must);
}

/* A command's lines spell fields as its flags. */
static void note(sheaf_progress *p, const sheaf_event *event)
{
    char *text = p->command == NULL ? NULL : sheaf__spell_fields(event->text, NULL);
    say(p, event->kind == SHEAF_EVENT_WARNING, text != NULL ? text : event->text);
    free(text);
}

static void take(void *context, const sheaf_event *event)
{
    sheaf_progress *p = context;
    pthread_mutex_lock(&p->lock);
    if (event->kind == SHEAF_EVENT_NOTE || event->kind == SHEAF_EVENT_WARNING)
        note(p, event);
    else if (p->style == SHEAF__PROGRESS_QUIET)
        ;
    else if (event->kind == SHEAF_EVENT_STEP)
        show_step(p, event);
    else if (event->kind == SHEAF_EVENT_PROGRESS)
        show_progress(p, event);
    else if (event->kind == SHEAF_EVENT_EVALUATION)
        say_evaluation(p, &event->evaluation);
    pthread_mutex_unlock(&p->lock);
}

/* ---- open and close ---- */

sheaf_status *sheaf_progress_open(sheaf_progress **out, FILE *stream)
{
    sheaf_progress *p = calloc(1, sizeof *p);
    if (p == NULL)
        return sheaf__no_memory("progress");
    pthread_mutex_init(&p->lock, NULL);
    p->events = (sheaf_events){ take, p };
    p->out = stream;
    p->begun_ms = now_ms();
    sheaf__progress_use(p, SHEAF__PROGRESS_AUTO, NULL, 0);
    *out = p;
    return NULL;
}

void sheaf__progress_use(sheaf_progress *p, sheaf__progress_style style, const char *command,
                         int interval_ms)
{
    pthread_mutex_lock(&p->lock);
    p->style = style != SHEAF__PROGRESS_AUTO      ? style
               : sheaf__terminal_rewrites(p->out) ? SHEAF__PROGRESS_BAR
                                                  : SHEAF__PROGRESS_PLAIN;
    p->command = command;
    p->interval_ms = interval_ms > 0                    ? interval_ms
                     : p->style == SHEAF__PROGRESS_BAR  ? BAR_MS
                     : p->style == SHEAF__PROGRESS_JSON ? JSON_MS
                                                        : PLAIN_MS;
    pthread_mutex_unlock(&p->lock);
}

const sheaf_events *sheaf_progress_events(sheaf_progress *progress)
{
    return &progress->events;
}

void sheaf__progress_end(sheaf_progress *p)
{
    if (p == NULL)
        return;
    pthread_mutex_lock(&p->lock);
    if (p->style == SHEAF__PROGRESS_BAR && p->line.text.size > 0) {
        if (!p->drawn)
            draw(p);
        fputc('\n', p->out);
        fflush(p->out);
    }
    p->width = 0;
    sheaf__text_release(&p->line.text);
    pthread_mutex_unlock(&p->lock);
}

void sheaf__progress_clear(sheaf_progress *p)
{
    if (p == NULL)
        return;
    pthread_mutex_lock(&p->lock);
    if (p->width > 0) {
        erase(p);
        fflush(p->out);
        p->drawn = false;
        p->shown_ms = 0;
    }
    pthread_mutex_unlock(&p->lock);
}

void sheaf_progress_close(sheaf_progress *p)
{
    if (p == NULL)
        return;
    sheaf__progress_end(p);
    pthread_mutex_destroy(&p->lock);
    free(p);
}
