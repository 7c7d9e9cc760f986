/* monitor.c - see monitor.h. */
#include "monitor/monitor.h"

#include <math.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/base.h"
#include "base/clock.h"
#include "base/print.h"
#include "base/number.h"
#include "monitor/metrics.h"
#include "monitor/tensorboard.h"

enum { PLAIN_MS = 10000, TERMINAL_MS = 100 };

/* The fields of a progress line, the most useful first: a narrow terminal drops the last ones. */
typedef enum use { KEPT, LOSS, SKIPPED, RATE, GRADIENT, LEARNING_RATE, MEMORY, SHARES } use;

typedef struct progress {
    sheaf_text text; /* fields end to end, each with the blanks before it */
    int fields;
    struct {
        size_t end;
        use use;
    } field[SHARES + 2];
} progress;

struct sheaf_monitor {
    pthread_mutex_t lock; /* for all members below */
    sheaf_events events;
    sheaf_metrics metrics;
    sheaf__appended tensorboard;
    FILE *out;
    bool terminal;
    int interval_ms;
    int64_t shown_ms;    /* when a progress line was last shown; 0 = never */
    double step_seconds; /* smoothed, for the time left */
    char counting[48];   /* what the current progress counts, and where and when it began */
    int64_t first_ms, first_done;
    progress line; /* the newest */
    bool drawn;    /* it is shown on the terminal */
};

static int64_t now_ms(void)
{
    return (int64_t)(1000 * sheaf__seconds()) + 1; /* never 0 */
}

/* ---- lines on the stream ---- */

/* Ends a field: the text since the previous one. */
static void end_field(progress *p, use use)
{
    p->field[p->fields].end = p->text.size;
    p->field[p->fields++].use = use;
}

/* Fields of this use and of more. */
static void put_fields(sheaf_text *to, const progress *p, use least)
{
    size_t begin = 0;
    for (int i = 0; i < p->fields; i++) {
        if (p->field[i].use <= least && p->field[i].end > begin)
            sheaf__text_bytes(to, p->text.at + begin, p->field[i].end - begin);
        begin = p->field[i].end;
    }
}

/* Truncates only if the fields kept are too long: a wrapped line could not be rewritten. */
static void draw(sheaf_monitor *m)
{
    struct winsize size = { 0 };
    if (ioctl(fileno(m->out), TIOCGWINSZ, &size) != 0 || size.ws_col < 2)
        size.ws_col = 80;
    const size_t room = size.ws_col - 1u;
    sheaf_text shown = { 0 };
    put_fields(&shown, &m->line, SHARES);
    for (int least = SHARES; shown.size > room && least-- > KEPT;) {
        shown.size = 0;
        put_fields(&shown, &m->line, (use)least);
    }
    if (shown.size > 0 && !shown.failed)
        sheaf__print(m->out, "\r\033[K%.*s", (int)room, shown.at);
    sheaf__text_release(&shown);
    m->drawn = true;
    fflush(m->out);
}

/* A line of its own, above the progress line of the terminal. */
static void say(sheaf_monitor *m, const char *label, const char *text)
{
    if (m->out == NULL)
        return;
    if (m->terminal && m->line.text.size > 0)
        fputs("\r\033[K", m->out);
    sheaf__print(m->out, "%s%s\n", label, text);
    if (m->terminal)
        draw(m);
    else
        fflush(m->out);
}

/* Shows `line` if it is due or must be shown; else with the next note, or at the end. Takes over
 * its text. */
static void show(sheaf_monitor *m, progress *line, bool must)
{
    const int64_t now = now_ms();
    sheaf__text_release(&m->line.text);
    m->line = *line;
    m->drawn = false;
    if (!must && m->shown_ms != 0 && now - m->shown_ms < m->interval_ms)
        return;
    m->shown_ms = now;
    if (m->terminal) {
        draw(m);
        return;
    }
    if (m->line.text.size > 0)
        sheaf__print(m->out, "%s\n", m->line.text.at);
    fflush(m->out);
}

/* ---- events ---- */

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

static void show_step(sheaf_monitor *m, const sheaf_event *event)
{
    const sheaf_event_step *s = &event->step;
    if (s->seconds > 0)
        m->step_seconds =
            m->step_seconds == 0 ? s->seconds : 0.9 * m->step_seconds + 0.1 * s->seconds;
    if (m->out == NULL)
        return;
    char rate[SHEAF__NUMBER], left[SHEAF__NUMBER], memory[SHEAF__NUMBER];
    progress line = { 0 };
    sheaf_text *text = &line.text;
    sheaf__text_add(text, "step %" PRId64 "/%" PRId64, s->step, s->steps);
    end_field(&line, KEPT);
    if (isnan(s->loss))
        sheaf__text_add(text, "  no label");
    else
        sheaf__text_add(text, "  loss %.4f", s->loss);
    end_field(&line, LOSS);
    sheaf__text_add(text, "  grad %.3g", s->grad_norm);
    end_field(&line, GRADIENT);
    sheaf__text_add(text, "  lr %.3g", s->lr);
    end_field(&line, LEARNING_RATE);
    if (s->seconds > 0)
        sheaf__text_add(text, "  %s tokens/s",
                        sheaf__number_rate(rate, (double)s->tokens / s->seconds));
    end_field(&line, RATE);
    if (s->memory > 0)
        sheaf__text_add(text, "  %s", sheaf__number_bytes(memory, s->memory));
    end_field(&line, MEMORY);
    add_shares(text, event);
    end_field(&line, SHARES);
    if (s->skipped)
        sheaf__text_add(text, "  skipped, loss scale %.6g", s->loss_scale);
    end_field(&line, SKIPPED);
    if (s->step < s->steps && m->step_seconds > 0)
        sheaf__text_add(text, "  %s left",
                        sheaf__number_time(left, m->step_seconds * (double)(s->steps - s->step)));
    end_field(&line, KEPT);
    show(m, &line, s->step == s->steps || (!m->terminal && ends_tenth(s)));
}

/* A line of its own, which stays. */
static void say_evaluation(sheaf_monitor *m, const sheaf_event_evaluation *e)
{
    char time[SHEAF__NUMBER];
    sheaf_text line = { 0 };
    sheaf__text_add(&line,
                    "after step %" PRId64 "/%" PRId64 ": evaluation loss %.4f, %.2f %% of %" PRId64
                    " tokens right, in %s%s",
                    e->step, e->steps, e->loss, 100 * e->accuracy, e->tokens,
                    sheaf__number_time(time, e->seconds), e->best ? "; the best so far" : "");
    if (line.size > 0)
        say(m, "", line.at);
    sheaf__text_release(&line);
}

/* Speed since the first event of this progress, and the time left. */
static void add_pace(sheaf_monitor *m, progress *line, const sheaf_event *event, bool bytes)
{
    const int64_t now = now_ms();
    if (strncmp(m->counting, event->text, sizeof m->counting - 1) != 0 ||
        event->done < m->first_done) {
        snprintf(m->counting, sizeof m->counting, "%s", event->text);
        m->first_ms = now;
        m->first_done = event->done;
    }
    const double seconds = (double)(now - m->first_ms) / 1000,
                 pace = (double)(event->done - m->first_done) / seconds;
    if (seconds < 0.2 || event->done <= m->first_done)
        return;
    char left[SHEAF__NUMBER], rate[SHEAF__NUMBER];
    if (bytes)
        sheaf__text_add(&line->text, "  %s/s", sheaf__number_bytes(rate, (uint64_t)pace));
    end_field(line, RATE);
    if (event->done < event->total)
        sheaf__text_add(&line->text, "  %s left",
                        sheaf__number_time(left, (double)(event->total - event->done) / pace));
    end_field(line, KEPT);
}

static void show_progress(sheaf_monitor *m, const sheaf_event *event)
{
    if (m->out == NULL || event->total <= 0)
        return;
    char done[SHEAF__NUMBER], total[SHEAF__NUMBER];
    const bool bytes = strncmp(event->text, "bytes", 5) == 0;
    progress line = { 0 };
    snprintf(done, sizeof done, "%" PRId64, event->done);
    snprintf(total, sizeof total, "%" PRId64, event->total);
    sheaf__text_add(&line.text, "%s: %s of %s (%.0f%%)", event->text,
                    bytes ? sheaf__number_bytes(done, (uint64_t)event->done) : done,
                    bytes ? sheaf__number_bytes(total, (uint64_t)event->total) : total,
                    100.0 * (double)event->done / (double)event->total);
    end_field(&line, KEPT);
    add_pace(m, &line, event, bytes);
    show(m, &line, event->done == event->total);
}

static void take(void *context, const sheaf_event *event)
{
    sheaf_monitor *m = context;
    pthread_mutex_lock(&m->lock);
    switch (event->kind) {
    case SHEAF_EVENT_NOTE: say(m, "", event->text); break;
    case SHEAF_EVENT_WARNING: say(m, "warning: ", event->text); break;
    case SHEAF_EVENT_STEP:
        sheaf__metrics_step(&m->metrics, &event->step, event->rank, event->spent, event->offload,
                            event->ranks);
        sheaf__tensorboard_step(&m->tensorboard, &event->step);
        show_step(m, event);
        break;
    case SHEAF_EVENT_PROGRESS: show_progress(m, event); break;
    case SHEAF_EVENT_EVALUATION:
        sheaf__metrics_evaluation(&m->metrics, &event->evaluation);
        sheaf__tensorboard_evaluation(&m->tensorboard, &event->evaluation);
        say_evaluation(m, &event->evaluation);
        break;
    }
    pthread_mutex_unlock(&m->lock);
}

/* ---- open and close ---- */

sheaf_status *sheaf_monitor_open(sheaf_monitor **out, const sheaf_monitor_options *options)
{
    sheaf_monitor *m = calloc(1, sizeof *m);
    if (m == NULL)
        return sheaf__no_memory("out of memory");
    sheaf_status *st = NULL;
    if (options->metrics != NULL)
        st = sheaf__metrics_open(&m->metrics, options->metrics, options->keep_steps,
                                 options->keep_evaluations);
    if (st == NULL && options->tensorboard != NULL)
        st = sheaf__tensorboard_open(&m->tensorboard, options->tensorboard, options->keep_steps);
    if (st != NULL) {
        sheaf__appended_close(&m->metrics.file);
        free(m);
        return st;
    }
    pthread_mutex_init(&m->lock, NULL);
    m->events = (sheaf_events){ take, m };
    m->out = options->progress;
    const char *kind = getenv("TERM"); /* without it, or dumb: no line can be rewritten */
    m->terminal = m->out != NULL && isatty(fileno(m->out)) && kind != NULL && *kind != '\0' &&
                  strcmp(kind, "dumb") != 0;
    m->interval_ms = m->terminal                ? TERMINAL_MS
                     : options->interval_ms > 0 ? options->interval_ms
                                                : PLAIN_MS;
    if (sheaf__appended_is_open(&m->metrics.file) && m->metrics.kept < options->keep_steps)
        sheaf_warn(&m->events,
                   "%s: only %" PRId64 " of the %" PRId64 " steps before this one have a line",
                   options->metrics, m->metrics.kept, options->keep_steps);
    *out = m;
    return NULL;
}

const sheaf_events *sheaf_monitor_events(sheaf_monitor *monitor)
{
    return &monitor->events;
}

/* Both, also where one fails; the first failure. */
static sheaf_status *sync_files(sheaf_monitor *m)
{
    sheaf_status *st = sheaf__appended_sync(&m->metrics.file),
                 *other = sheaf__appended_sync(&m->tensorboard);
    if (st == NULL)
        return other;
    sheaf_status_free(other);
    return st;
}

sheaf_status *sheaf_monitor_sync(sheaf_monitor *monitor)
{
    pthread_mutex_lock(&monitor->lock);
    sheaf_status *st = sync_files(monitor);
    pthread_mutex_unlock(&monitor->lock);
    return st;
}

sheaf_status *sheaf_monitor_close(sheaf_monitor *monitor)
{
    if (monitor == NULL)
        return NULL;
    sheaf_status *st = sync_files(monitor);
    sheaf__appended_close(&monitor->metrics.file);
    sheaf__appended_close(&monitor->tensorboard);
    if (monitor->terminal && monitor->line.text.size > 0) {
        if (!monitor->drawn)
            draw(monitor);
        fputc('\n', monitor->out);
        fflush(monitor->out);
    }
    sheaf__text_release(&monitor->line.text);
    pthread_mutex_destroy(&monitor->lock);
    free(monitor);
    return st;
}

/* ---- sheaf/progress.h: a monitor without a file ---- */

sheaf_status *sheaf_progress_open(sheaf_progress **out, FILE *stream)
{
    sheaf_monitor *monitor = NULL;
    sheaf_status *st = sheaf_monitor_open(&monitor, &(sheaf_monitor_options){ .progress = stream });
    *out = (sheaf_progress *)monitor;
    return st;
}

const sheaf_events *sheaf_progress_events(sheaf_progress *progress)
{
    return sheaf_monitor_events((sheaf_monitor *)progress);
}

void sheaf_progress_close(sheaf_progress *progress)
{
    sheaf_status_free(sheaf_monitor_close((sheaf_monitor *)progress));
}
