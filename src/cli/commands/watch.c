/* watch.c - `sheaf watch`: the loss of a run as a picture of text, while it goes on. */
#include <jansson.h>
#include <math.h>
#include <unistd.h>

#include "base/base.h"
#include "base/print.h"
#include "base/terminal.h"
#include "commands.h"
#include "sheaf/report.h"

const char cmd_watch_usage[] =
    "usage: sheaf watch RUN\n"
    "Draws the loss of a run of sheaf train as text: * is a step or the mean of some, o an\n"
    "evaluation. While the run goes on, a terminal is drawn anew every two seconds; a pipe or\n"
    "a file gets a picture now and one at the end. Ctrl-C ends it, not the run.\n"
    "It has no --json: sheaf report RUN --json prints the numbers.\n";

enum { ROWS = 14, MOST_COLUMNS = 100, LABEL = 10, EVERY_S = 2 };

typedef struct picture {
    char cell[ROWS][MOST_COLUMNS + 1];
    int columns;
    double low, high, last_step;
} picture;

static double at(const json_t *list, size_t i)
{
    const json_t *value = json_array_get(list, i);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

/* Of a list of losses, into the range of the picture. */
static void widen(picture *p, const json_t *losses)
{
    for (size_t i = 0; i < json_array_size(losses); i++) {
        p->low = fmin(p->low, at(losses, i)); /* NaN: the other one */
        p->high = fmax(p->high, at(losses, i));
    }
}

static void put(picture *p, double step, double loss, char mark)
{
    if (!isfinite(loss) || step > p->last_step) /* an evaluation of a hostile file */
        return;
    const int x = (int)(step / p->last_step * (p->columns - 1));
    const int y = (int)lround((p->high - loss) / (p->high - p->low) * (ROWS - 1));
    if (x >= 0 && x < p->columns && y >= 0 && y < ROWS)
        p->cell[y][x] = mark;
}

/* Each column is the mean of its points. */
static void put_steps(picture *p, const json_t *steps, const json_t *losses)
{
    double sum = 0, count = 0;
    int column = -1;
    for (size_t i = 0; i <= json_array_size(steps); i++) {
        const double step = at(steps, i), loss = at(losses, i);
        const int now =
            i == json_array_size(steps) ? -2 : (int)(step / p->last_step * (p->columns - 1));
        if (now != column && count > 0)
            put(p, fmin((column + 0.5) / (p->columns - 1), 1) * p->last_step, sum / count, '*');
        if (now != column)
            sum = count = 0;
        column = now;
        sum += isfinite(loss) ? loss : 0;
        count += isfinite(loss);
    }
}

static void fill(picture *p, const json_t *run)
{
    const json_t *points = json_object_get(run, "points"),
                 *judged = json_object_get(run, "evaluations");
    const json_t *losses = json_object_get(points, "loss"),
                 *others = json_object_get(judged, "loss");
    for (int y = 0; y < ROWS; y++)
        memset(p->cell[y], ' ', (size_t)p->columns);
    p->low = p->high = NAN;
    widen(p, losses);
    widen(p, others);
    if (p->high == p->low) {
        p->high += 0.5;
        p->low -= 0.5;
    }
    put_steps(p, json_object_get(points, "step"), losses);
    for (size_t i = 0; i < json_array_size(others); i++)
        put(p, at(json_object_get(judged, "step"), i), at(others, i), 'o');
}

static void print(FILE *to, const picture *p, const json_t *run, const char *clear)
{
    const json_t *losses = json_object_get(json_object_get(run, "points"), "loss");
    const double tokens = json_number_value(json_object_get(run, "tokens")),
                 seconds = json_number_value(json_object_get(run, "seconds"));
    const int64_t step = json_integer_value(json_object_get(run, "last_step")),
                  steps = json_integer_value(json_object_get(run, "steps"));
    fputs(clear, to);
    sheaf__print(to, "%s: %s, step %" PRId64, json_string_value(json_object_get(run, "name")),
                 json_string_value(json_object_get(run, "state")), step);
    if (steps > 0)
        sheaf__print(to, "/%" PRId64, steps);
    if (json_array_size(losses) > 0)
        sheaf__print(to, "  loss %.4g", at(losses, json_array_size(losses) - 1));
    if (seconds > 0)
        sheaf__print(to, "  %.0f tokens/s", tokens / seconds);
    sheaf__print(to, "\n");
    for (int y = 0; y < ROWS && isfinite(p->low) && isfinite(p->high); y++) {
        int end = p->columns;
        while (end > 0 && p->cell[y][end - 1] == ' ')
            end--;
        if (y % 3 == 0 || y == ROWS - 1)
            sheaf__print(to, "%*.4g |%.*s\n", LABEL - 2,
                         p->high - (p->high - p->low) * y / (ROWS - 1), end, p->cell[y]);
        else
            sheaf__print(to, "%*s |%.*s\n", LABEL - 2, "", end, p->cell[y]);
    }
    fflush(to);
}

static int columns_of(FILE *to)
{
    const int columns = sheaf__terminal_columns(to) - LABEL - 1;
    return columns < 8 ? 8 : columns > MOST_COLUMNS ? MOST_COLUMNS : columns;
}

/* *running: it goes on. */
static sheaf_status *show(cli *cli, bool *running, const sheaf_report *report, bool must,
                          const char *clear)
{
    sheaf_status *st = NULL;
    json_t *root = json_loads(sheaf_report_json(report), 0, NULL);
    const json_t *run = json_array_get(json_object_get(root, "runs"), 0);
    if (run == NULL) {
        st = sheaf__no_memory("the run");
    } else {
        picture p = { .columns = columns_of(cli->out) };
        const double steps = json_number_value(json_object_get(run, "steps")),
                     last = json_number_value(json_object_get(run, "last_step"));
        p.last_step = fmax(fmax(steps, last), 1);
        *running = strcmp(json_string_value(json_object_get(run, "state")), "running") == 0;
        fill(&p, run);
        if (must || !*running)
            print(cli->out, &p, run, clear);
        st = driver_written(cli);
    }
    json_decref(root);
    return st;
}

int cmd_watch(cli *cli, int argc, char **argv)
{
    sheaf_report *report = NULL;
    sheaf_report_options how = { .size = sizeof how };
    const cli_option options[] = { { 0 } };
    cli_paths paths;
    sheaf_status *st = cli_parse(cli, options, &paths, argc, argv);
    if (st == NULL && cli->json)
        st = sheaf_try_this(sheaf_fail(SHEAF_E_ARG, "--json: sheaf watch draws for people"),
                            "sheaf report RUN --json");
    how.run = st == NULL ? (const char *const *)paths.word : NULL;
    how.runs = 1;
    const bool drawn = sheaf__terminal_steers(cli->out);
    bool running = false;
    how.events = &cli->events;
    TRY(st, sheaf_report_open(&report, &how));
    TRY(st, show(cli, &running, report, true, ""));
    while (st == NULL && running) {
        sleep(EVERY_S);
        st = sheaf_report_update(report);
        TRY(st, show(cli, &running, report, drawn, drawn ? "\033[H\033[J" : ""));
    }
    sheaf_report_close(report);
    return driver_report(cli, st);
}
