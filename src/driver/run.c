/* run.c - a command as one of several processes, or alone. */
#include "base/base.h"
#include "comm/plugins.h"
#include "comm/process.h"
#include "driver/driver.h"
#include "driver/member.h"
#include "driver/processes.h"
#include "driver/signals.h"

/* The value of a flag of which nothing is checked yet; NULL: it is not there. */
static const char *word_of(const char *flag, int argc, char **argv)
{
    const size_t n = strlen(flag);
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strncmp(argv[i], flag, n) == 0 && (argv[i][n] == '=' || argv[i][n] == '\0'))
            return argv[i][n] == '=' ? argv[i] + n + 1 : i + 1 < argc ? argv[i + 1] : NULL;
    return NULL;
}

/* Before anything can fail, as the other processes would wait for this one. */
static void look_for_others(driver *d, const driver_command *command, int argc, char **argv)
{
    const sheaf__launcher launcher = sheaf__launcher_look();
    const char *transport = word_of("--transport", argc, argv);
    const bool several = launcher.processes > 1;
    d->together = command->divides && several && transport != NULL && strcmp(transport, "mpi") == 0;
    d->mpi = word_of("--mpi", argc, argv);
    if (several && launcher.number > 0)
        driver_hush(d);
}

int driver_run(driver *d, const driver_command *command, int argc, char **argv)
{
    sheaf__process_join join = { .joining = driver_member_joining,
                                 .finishing = driver_member_finishing };
    bool elsewhere = false;
    d->command = command;
    d->argc = argc;
    d->argv = argv;
    sheaf_status *st = sheaf_progress_open(&d->progress, d->err);
    if (st != NULL)
        return driver_report(d, st);
    d->events = *sheaf_progress_events(d->progress);
    d->join = &join;
    driver_member_json(d->json);
    look_for_others(d, command, argc, argv);
    if (sheaf__launcher_look().name == NULL) /* else all of them would print */
        driver_signals_end(command->name, d->json);
    if (!command->divides)
        elsewhere = driver_processes_elsewhere(d);
    const int code = elsewhere ? DRIVER_DONE : command->run(d, argc, argv);
    driver_release(d);
    driver_member_code(code);
    d->join = NULL;
    return code;
}
