/* report.c - the end of a subcommand: its last messages and its exit code. */
#include "driver/driver.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include "base/base.h"
#include "base/json_write.h"
#include "base/print.h"
#include "comm/plugins.h"
#include "comm/process.h"

bool driver_is_launched(void)
{
    return sheaf__is_given(getenv(DRIVER_NOTE));
}

void driver_give_up(void)
{
    if (driver_is_launched())
        unlink(getenv(DRIVER_NOTE));
}

void driver_finished(int code)
{
    const char mark = (char)(code + 1);
    const int note = driver_is_launched() ? open(getenv(DRIVER_NOTE), O_WRONLY | O_CLOEXEC) : -1;
    const bool kept = note >= 0 && pwrite(note, &mark, 1, 1) == 1;
    (void)kept; /* else the launcher waits for mpirun */
    if (note >= 0)
        close(note);
}

/* Is another start worth it? Not after errors that would repeat, as a file that is missing, or a
 * disk that is full. */
static bool may_pass(const sheaf_status *st)
{
    static const int passing[] = { EIO,       ESTALE,      ETIMEDOUT,    ECONNRESET,
                                   EHOSTDOWN, ENETUNREACH, EHOSTUNREACH, ENODEV };
    const sheaf_code code = sheaf_status_code(st);
    for (size_t i = 0; i < sizeof passing / sizeof *passing && code == SHEAF_E_IO; i++)
        if (sheaf_status_errno(st) == passing[i])
            return true;
    return code == SHEAF_E_PEER || code == SHEAF_E_MEMORY;
}

int driver_exit_code(const sheaf_status *st)
{
    if (st == NULL)
        return DRIVER_DONE;
    if (sheaf_status_code(st) == SHEAF_E_ARG)
        return DRIVER_USAGE;
    return driver_is_launched() && may_pass(st) ? DRIVER_AGAIN : DRIVER_FAILED;
}

static const char *code_name(sheaf_code code)
{
    switch (code) {
    case SHEAF_E_ARG: return "usage";
    case SHEAF_E_MEMORY: return "memory";
    case SHEAF_E_IO: return "io";
    case SHEAF_E_FORMAT: return "format";
    case SHEAF_E_LAYOUT: return "layout";
    case SHEAF_E_UNSUPPORTED: return "unsupported";
    case SHEAF_E_DATA: return "data";
    case SHEAF_E_NUMBER: return "number";
    case SHEAF_E_PEER: return "peer";
    case SHEAF_E_STOPPED: return "stopped";
    case SHEAF_E_UNSAFE: return "unsafe";
    case SHEAF_E_CHANGED: return "changed";
    }
    return "other";
}

char *driver_error_json(const sheaf_status *failed)
{
    sheaf_status *st = sheaf__status_spell(sheaf_status_copy(failed), NULL);
    const char *const key[] = { "code", "where", "expected", "found", "try" };
    const char *const value[] = { code_name(sheaf_status_code(st)), sheaf_status_where(st),
                                  sheaf_status_expected(st), sheaf_status_found(st),
                                  sheaf_status_try(st) };
    sheaf_json_writer j = { 0 };
    sheaf__json_begin(&j);
    sheaf__json_open(&j, "error", '{');
    for (int i = 0; i < 5; i++)
        sheaf__json_put_text(&j, key[i], value[i]);
    sheaf__json_close(&j, '}');
    sheaf__json_end(&j);
    sheaf__text_add(&j.text, "\n");
    sheaf_status_free(st);
    char *line = NULL;
    sheaf_status_free(sheaf__text_take(&line, &j.text));
    return line;
}

/* With the command's flags; `st` keeps its fields, for other processes. */
static void print_status(const sheaf_status *st, FILE *to)
{
    sheaf_status *spelled = sheaf__status_spell(sheaf_status_copy(st), NULL);
    sheaf_status_print(spelled, to);
    sheaf_status_free(spelled);
}

char *driver_error_text(const sheaf_status *st)
{
    char *text = NULL;
    size_t size = 0;
    FILE *to = open_memstream(&text, &size);
    if (to == NULL)
        return NULL;
    print_status(st, to);
    fclose(to);
    return text;
}

static const char output[] = "standard output";

sheaf_status *driver_written(const driver *d)
{
    return ferror(d->out) ? sheaf__found_errno(sheaf_fail(SHEAF_E_IO, output), errno) : NULL;
}

sheaf_comm *driver_all(const driver *d)
{
    return d->join == NULL ? NULL : d->join->all;
}

static bool is_awaited(const driver *d)
{
    return d->together && d->join != NULL && sheaf__process_awaited(d->join);
}

/* A file that is missing on this host may exist on that of the first process, which does not learn
 * of it if they cannot meet. */
static sheaf_status *print_aside(const driver *d, sheaf_status *st)
{
    char host[64] = "";
    if (st == NULL || d->aside == NULL || driver_all(d) != NULL ||
        (sheaf_status_code(st) != SHEAF_E_IO && !is_awaited(d)))
        return st;
    gethostname(host, sizeof host - 1);
    st = sheaf_in(st, "rank %d on %s", sheaf__launcher_look().number, host);
    print_status(st, d->aside);
    return st;
}

/* The other processes do not know of a failure in this one, and may wait for it before they have
 * met: it meets them to report it. */
static void send_to_others(const driver *d, const sheaf_status *st)
{
    if (st == NULL || !d->together)
        return;
    if (is_awaited(d))
        sheaf_status_free(sheaf__process_start(d->join, d->mpi));
    sheaf__process_failed(driver_all(d), st);
}

int driver_answer(driver *d, sheaf_status *st, bool yes)
{
    int code = st != NULL ? driver_exit_code(st) : yes ? DRIVER_DONE : DRIVER_NO;
    const bool stopped = st != NULL && sheaf_status_code(st) == SHEAF_E_STOPPED &&
                         sheaf__all_first(driver_all(d)); /* the others may still read the note */
    driver_progress_end(d);
    if (!d->helped)
        send_to_others(d, st);
    if (d->helped) {
        code = DRIVER_DONE;
    } else if (st != NULL && sheaf__all_first(driver_all(d))) {
        fflush(d->out);
        char *line = d->json ? driver_error_json(st) : NULL;
        if (line != NULL)
            fputs(line, d->out);
        free(line);
        print_status(st, d->err);
    }
    if (!d->helped)
        st = print_aside(d, st);
    const bool reported = st != NULL && strcmp(sheaf_status_where(st), output) == 0;
    sheaf_status_free(st);
    /* Results that never arrived are not results: a full disk behind > shows here. */
    if (fflush(d->out) != 0 || ferror(d->out)) {
        if (!reported)
            sheaf__print(d->err, "sheaf: %s\n  found:    %s\n", output, strerror(errno));
        code = DRIVER_FAILED;
    }
    const bool awaited = code != DRIVER_DONE && is_awaited(d);
    if (stopped || awaited)
        driver_give_up();
    if (awaited && sheaf__launcher_is_hydra())
        raise(SIGKILL); /* it leaves the others alone when one ends with a code */
    return code;
}

int driver_report(driver *d, sheaf_status *st)
{
    return driver_answer(d, st, true);
}

void driver_progress(driver *d)
{
    if (d->progress != NULL)
        sheaf__progress_use(d->progress, d->quiet ? SHEAF__PROGRESS_QUIET : d->style,
                            d->command->name, 0);
}

void driver_progress_end(driver *d)
{
    sheaf__progress_end(d->progress);
}

void driver_progress_clear(driver *d)
{
    sheaf__progress_clear(d->progress);
}

void driver_release(driver *d)
{
    sheaf__settings_release(&d->settings);
    sheaf_progress_close(d->progress);
    d->progress = NULL;
    if (d->nowhere != NULL)
        fclose(d->nowhere);
    d->nowhere = NULL;
}

void driver_hush(driver *d)
{
    if (d->nowhere == NULL)
        d->nowhere = fopen("/dev/null", "we");
    if (d->nowhere == NULL)
        return;
    d->aside = d->err;
    d->out = d->err = d->nowhere;
    d->events = (sheaf_events){ 0 };
}
