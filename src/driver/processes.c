/* processes.c - see processes.h. */
#include "driver/processes.h"

#include "base/base.h"
#include "comm/plugins.h"
#include "comm/process.h"
#include "library/train_settings.h"
#include "comm/watch/watch.h"
#include "driver/launch.h"
#include "driver/member.h"
#include "models/sums.h"
#include "ops/units.h"
#include "driver/signals.h"

void driver_processes_table(sheaf__setting *table, driver_processes *p, bool talks)
{
    const unsigned hidden = talks ? SHEAF__IS_HIDDEN : 0;
    const sheaf__setting rows[] = {
        { "transport", SHEAF__IS_CHOICE, &p->transport, SHEAF__TRANSPORT_HELP,
          .choices = sheaf__transport_choices, .heading = "ranks" },
        { "mpi", SHEAF__IS_TEXT | SHEAF__IS_UNSAVED, &p->mpi, SHEAF__MPI_HELP, "NAME" },
        { "hosts", SHEAF__IS_TEXT | SHEAF__IS_UNSAVED | hidden, &p->hosts, SHEAF__HOSTS_HELP,
          "LIST" },
        { "hostfile", SHEAF__IS_PATH | SHEAF__IS_UNSAVED | hidden, &p->hostfile,
          SHEAF__HOSTFILE_HELP, "FILE" },
        { "heartbeat", SHEAF__IS_TIME | SHEAF__IS_UNSAVED, &p->heartbeat, SHEAF__HEARTBEAT_HELP,
          "TIME", .heading = "failure" },
        { "hang-after", SHEAF__IS_TIME | SHEAF__IS_UNSAVED, &p->hang_after,
          "several processes: end all, and say what each does, when none progresses for so long; "
          "0 = never",
          "TIME" },
        { 0 },
    };
    p->heartbeat = 10;
    p->hang_after = 600;
    p->table = table;
    p->talks = talks;
    sheaf__settings_append(table, rows);
}

/* Stages of "2", "24,12" or "0-10,11-31"; errors in it are found when the model is open. */
static int stages_of(const char *place)
{
    int n = 1;
    if (place == NULL || *place == '\0')
        return 1;
    for (const char *at = place; *at != '\0'; at++)
        n += *at == ',';
    const long stages = n > 1 || strchr(place, '-') != NULL ? n : strtol(place, NULL, 10);
    return stages < 1 || stages > SHEAF_MAX_SLICES ? 1 : (int)stages;
}

const char *driver_processes_launcher(void)
{
    return sheaf__launcher_look().name;
}

bool driver_processes_elsewhere(const driver *d)
{
    const sheaf__launcher launcher = sheaf__launcher_look();
    if (launcher.processes > 1 && launcher.number == 0)
        sheaf_warn(
            &d->events,
            d->command->divides
                ? "this is the first of %d processes that %s began: it does all of it, and the "
                  "others do nothing; --transport mpi divides the work of sheaf %s over them"
                : "this is the first of %d processes that %s began: it does all of it, as sheaf "
                  "%s does not divide its work over processes, and the others do nothing",
            launcher.processes, launcher.name, d->command->name);
    return launcher.processes > 1 && launcher.number > 0;
}

static sheaf_status *start(driver_processes *p, driver *d, int processes)
{
    if (p->talks)
        return sheaf_try_this(
            sheaf_expected(sheaf_fail(SHEAF_E_ARG, "--transport mpi"),
                           "processes that share the work, started by mpirun or srun"),
            "mpirun -n %d sheaf %s --transport mpi ...", processes, d->command->name);
    sheaf_status *st = driver_launch(&p->code, d,
                                     &(driver_launch_options){ .processes = processes,
                                                               .mpi = p->mpi,
                                                               .hosts = p->hosts,
                                                               .hostfile = p->hostfile,
                                                               .argc = d->argc,
                                                               .argv = d->argv });
    p->elsewhere = st == NULL;
    return st;
}

/* With threads nothing is watched. */
static sheaf_status *check_watch(const driver *d, const driver_processes *p)
{
    static const char *const flags[] = { "heartbeat", "hang-after" };
    for (int i = 0; i < 2 && p->transport != SHEAF_TRANSPORT_MPI; i++)
        if (sheaf__settings_given(&d->settings, p->table, flags[i]))
            return sheaf_expected(sheaf_fail(SHEAF_E_ARG, "--%s", flags[i]),
                                  "--transport mpi beside it");
    return NULL;
}

/* Until the end of the program, before the processes separate, also without a report. */
static sheaf__watched watched;
static sheaf__watch_hooks hooks;

static void end_watch(void)
{
    sheaf__watched_close(&watched);
}

static sheaf_status *watch(driver_processes *p, driver *d)
{
    const int count = sheaf__all_count(p->all);
    if (count == 1) {
        driver_member_joined();
        return NULL;
    }
    atexit(end_watch);
    hooks = (sheaf__watch_hooks){ .end = driver_member_end,
                                  .started = driver_member_joined,
                                  .self = d };
    sheaf_status *st = sheaf__watched_open(
        &watched,
        &(sheaf__watch_options){ .all = p->all,
                                 .ranks = count,
                                 .heartbeat = p->heartbeat,
                                 .hang_after = p->hang_after,
                                 .hooks = &hooks,
                                 .cure = "start it again; an output that has its name is whole",
                                 .phase = "reading",
                                 .events = &d->events });
    return sheaf__all_agree(p->all, st);
}

sheaf_status *driver_processes_begin(driver_processes *p, driver *d, int ranks, const char *place)
{
    const int processes = ranks * stages_of(place);
    const bool launched = sheaf__launcher_look().name != NULL;
    sheaf_status *st = sheaf__transport_check(&d->settings, p->table, p->transport);
    TRY(st, check_watch(d, p));
    if (st != NULL)
        return st;
    if (p->transport == SHEAF_TRANSPORT_THREADS) {
        p->elsewhere = driver_processes_elsewhere(d);
        return NULL;
    }
    if (!launched)
        return processes == 1 ? NULL : start(p, d, processes);
    driver_member_split();
    st = sheaf__process_start(d->join, p->mpi);
    p->all = driver_all(d);
    if (st == NULL && !sheaf__all_first(p->all))
        driver_hush(d);
    TRY(st, sheaf__process_check(p->all, processes));
    if (st == NULL && d->command->computes)
        st = sheaf__sums_agree(p->all, sheaf__units_prefer_tiles());
    TRY(st, sheaf__all_agree(p->all, driver_signals_install()));
    p->stop = sheaf__control_stop(driver_signals());
    return st == NULL ? watch(p, d) : st;
}

int driver_processes_answer(driver_processes *p, driver *d, sheaf_status *st, bool yes)
{
    end_watch();
    st = sheaf__process_name_own(p->all, st);
    if (!p->elsewhere)
        return driver_answer(d, st, yes);
    sheaf_status_free(st);
    return p->code;
}
