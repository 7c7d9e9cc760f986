/* launch_test.c - which runs are started again, on which hosts and ranks, and how signals reach
 * them. The run is this program with two words: a letter for each start, which says how that ends,
 * and a file that counts starts. */
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/files.h"
#include "tests/parts.h"

#include "driver/launch.h"
#include "driver/processes.h"
#include "driver/signals.h"
#include "train/train.h"

/* One start. */
static int act(int argc, char **argv)
{
    FILE *log = fopen(argv[2], "ae");
    const long number = ftell(log);
    sigset_t asked;
    int got;
    sigemptyset(&asked);
    sigaddset(&asked, SIGTERM);
    sigaddset(&asked, SIGUSR1);
    sigprocmask(SIG_BLOCK, &asked, NULL);
    const bool resumes = strcmp(argv[argc - 1], "--resume") == 0;
    fputc(resumes ? 'r' : driver_spent_before() < 0 ? '?' : '.', log);
    fclose(log);
    const char what = argv[1][number];
    switch (what) {
    case 'a': return DRIVER_AGAIN;
    case 'u': return 99;
    case 'k': raise(SIGKILL); break;
    case 'i': raise(SIGINT); break;
    case 's': kill(getppid(), SIGUSR1); return sigwait(&asked, &got) != 0 || got != SIGUSR1;
    case 't':
        kill(getppid(), SIGTERM);
        return sigwait(&asked, &got) == 0 && got == SIGTERM ? DRIVER_AGAIN : 0;
    default: break;
    }
    return what - '0';
}

static const struct {
    const char *name, *what;
    int restarts;
    bool is_there; /* the folder of the run */
    int code;
    const char *starts; /* one letter each: r with --resume */
    const char *said;
} rows[] = {
    { "it succeeds", "0", 9, false, 0, ".", "" },
    { "an answer that is no", "1", 9, false, 1, ".", "" },
    { "wrong usage", "2", 9, false, 2, ".", "" },
    { "a failure that would repeat", "3", 9, false, 3, ".", "" },
    { "one that may pass", "a0", 9, false, 0, "..",
      "restart 1 of 9: the run ended with code 3; it goes on from the start" },
    { "killed", "k3", 9, false, 3, "..",
      "restart 1 of 9: the run was killed by signal 9; it goes on from the start" },
    { "a code that sheaf does not have", "u0", 9, false, 0, "..", "restart 1 of 9" },
    { "a folder to go on in", "k0", 9, true, 0, ".r", "restart 1 of 9" },
    { "an interrupt", "i", 9, false, 3, ".", "sheaf: the run was killed by signal 2\n" },
    { "once more, and no more", "kk", 1, false, 3, "..",
      "restart 1 of 1*sheaf: the run was killed by signal 9, and no restart is left\n" },
    { "no restart at all", "a", 0, false, 3, ".", "" },
    { "SIGUSR1 is passed on", "s", 9, false, 0, ".", "" },
    { "SIGTERM, too, and ends it", "t", 9, false, 3, ".", "" }, /* the last: it stays */
};

static void note(void *context, const sheaf_event *event)
{
    fprintf(context, "%s\n", event->text);
}

static void test_launch__begins_again_what_may_pass(void **state)
{
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        char what[8], log[400], *said = NULL;
        char *argv[] = { what, log };
        size_t size;
        int code = -1;
        snprintf(what, sizeof what, "%s", rows[i].what);
        snprintf(log, sizeof log, "%s", at("log"));
        const char *out = rows[i].is_there ? scratch.dir : at("none");
        const sheaf_train_options run = {
            .restarts = rows[i].restarts, .out = out, .tp = 1, .dp = 1
        };
        driver d = { .out = stdout, .err = open_memstream(&said, &size) };
        d.events = (sheaf_events){ .emit = note, .context = d.err };
        unlink(log);
        CHECK_OK(driver_launch(&code, &d,
                               &(driver_launch_options){ .argc = 2, .argv = argv, .run = &run }));
        fclose(d.err);
        const char *starts = file_text(log, NULL);
        if (code != rows[i].code || strcmp(starts, rows[i].starts) != 0 ||
            !has_parts(said, rows[i].said) || (rows[i].said[0] == '\0' && said[0] != '\0'))
            fail_msg("%s: %d, '%s', '%s'", rows[i].name, code, starts, said);
        free(said);
    }
}

/* The words that an mpirun gets; a script of its name writes them down, and ends with 3, or as
 * Hydra may where a process has reported a stop. */
static void test_launch__gives_mpirun_its_words(void **state)
{
    static const struct {
        const char *mpi, *hosts, *hostfile, *scheduler, *words;
    } mpis[] = {
        { "/none/sheaf-openmpi.so", NULL, NULL, NULL,
          "openmpi -n 2 -q --bind-to none --oversubscribe * -x SHEAF_MADE *launch_test eval a b "
          "--transport mpi\n" },
        { "/none/sheaf-openmpi.so", "a:2,b", NULL, NULL,
          "openmpi -n 2 -q --bind-to none -x * --host a:2,b *" },
        { "/none/sheaf-openmpi.so", NULL, "file", NULL, " none -x * --hostfile file *" },
        { "/none/sheaf-openmpi.so", NULL, NULL, "SLURM_JOB_ID", " none -x *" },
        { "/none/sheaf-mpich.so", NULL, NULL, NULL,
          "mpich -n 2 /*launch_test eval a b --transport mpi\n" },
        { "/none/sheaf-mpich.so", "a:2,b", "file", NULL, "mpich -n 2 -hosts a:2,b -f file /" },
    };
    static char eval[] = "eval", a[] = "a", b[] = "b";
    char *argv[] = { eval, a, b }, path[500], *before = strdup(getenv("PATH"));
    driver d = { .out = stdout, .err = stderr };
    driver_launch_options o = { .processes = 2, .argc = 3, .argv = argv };
    for (int i = 0; i < 2; i++) {
        const char *name = at(i == 0 ? "mpirun.openmpi" : "mpirun.mpich");
        put(name, textf("#!/bin/sh\necho \"${0##*.}\" \"$@\" >\"${0%%/*}/words\"\n%s\n",
                        i == 0 ? "exit 3" : "rm \"$SHEAF_LAUNCHED\""));
        assert_int_equal(chmod(name, 0700), 0);
    }
    snprintf(path, sizeof path, "%s:%s", scratch.dir, before);
    setenv("PATH", path, 1);
    setenv("SHEAF_MADE", "1", 1);
    for (size_t i = 0; i < ARRAY_LEN(mpis); i++) {
        int code = -1;
        o.mpi = mpis[i].mpi;
        o.hosts = mpis[i].hosts;
        o.hostfile = mpis[i].hostfile;
        if (o.hostfile != NULL) {
            put(at("file"), "a slots=2\n");
            assert_int_equal(chdir(scratch.dir), 0);
        }
        if (mpis[i].scheduler != NULL)
            setenv(mpis[i].scheduler, "1", 1);
        CHECK_OK(driver_launch(&code, &d, &o));
        const char *words = file_text(at("words"), NULL);
        if (code != DRIVER_FAILED || !has_parts(words, mpis[i].words))
            fail_msg("%zu: %d, %s", i, code, words);
        if (mpis[i].scheduler != NULL)
            unsetenv(mpis[i].scheduler);
    }
    setenv("PATH", "/nowhere", 1);
    int code;
    CHECK_FAILS(driver_launch(&code, &d, &o), SHEAF_E_UNSUPPORTED, "mpirun of MPICH on PATH");
    setenv("PATH", before, 1);
    free(before);
}

/* Begun by an mpirun, as ranks that are threads. */
static void test_processes__the_first_does_all(void **state)
{
    static const struct {
        const char *size, *rank;
        bool divides, elsewhere;
        const char *said;
    } launched[] = {
        { NULL, NULL, false, false, "" },
        { "1", "0", false, false, "" },
        { "3", "0", false, false,
          "the first of 3 processes that mpirun began*sheaf info does not divide" },
        { "3", "0", true, false, "the first of 3*--transport mpi divides the work of sheaf info" },
        { "3", "2", false, true, "" },
    };
    for (size_t i = 0; i < ARRAY_LEN(launched); i++) {
        char *said = NULL;
        size_t size;
        const driver_command command = { .name = "info", .divides = launched[i].divides };
        FILE *to = open_memstream(&said, &size);
        const driver d = { .command = &command, .events = { .emit = note, .context = to } };
        if (launched[i].size != NULL) {
            setenv("OMPI_COMM_WORLD_SIZE", launched[i].size, 1);
            setenv("OMPI_COMM_WORLD_RANK", launched[i].rank, 1);
        }
        assert_int_equal(driver_processes_elsewhere(&d), launched[i].elsewhere);
        assert_true((driver_processes_launcher() != NULL) == (launched[i].size != NULL));
        fclose(to);
        if (!has_parts(said, launched[i].said) || (launched[i].said[0] == '\0') != (size == 0))
            fail_msg("%zu: %s", i, said);
        free(said);
    }
    unsetenv("OMPI_COMM_WORLD_SIZE");
    unsetenv("OMPI_COMM_WORLD_RANK");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_processes__the_first_does_all),
        cmocka_unit_test(test_launch__gives_mpirun_its_words),
        cmocka_unit_test(test_launch__begins_again_what_may_pass),
    };
    if (argc > 2)
        return act(argc, argv);
    return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
