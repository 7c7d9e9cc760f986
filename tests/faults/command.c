/* command.c - the command, for tests: SHEAF_FAULT=op:n:action in the environment lets a call of the
 * system fail (faults.h), --inject RANK:CALL:N:FAULT an exchange (injected.c), in all processes
 * that it starts. */
#include <stdlib.h>
#include <string.h>

#include "cli/lib/cli.h"
#include "tests/faults/faults.h"
#include "tests/faults/injected.h"

/* A test that misspells it must not pass. */
static bool read_faults(void)
{
    static sheaf_faults faults = { .op = SHEAF_FAULT_ANY };
    const char *text = getenv("SHEAF_FAULT");
    sheaf_status *st = text == NULL || *text == '\0' ? NULL : faults_parse(&faults, text);
    if (st != NULL) {
        sheaf_status_print(st, stderr);
        sheaf_status_free(st);
        return false;
    }
    faults_use(&faults);
    return true;
}

int main(int argc, char **argv)
{
    for (int i = 1; i + 1 < argc; i++)
        if (strcmp(argv[i], "--inject") == 0) {
            setenv("SHEAF_INJECT", argv[i + 1], 1);
            memmove(&argv[i], &argv[i + 2], (size_t)(argc - i - 1) * sizeof *argv);
            argc -= 2;
        }
    const char *text = getenv("SHEAF_INJECT");
    if (!read_faults() ||
        (text != NULL && !injected_read(text, argc > 1 && strcmp(argv[1], "train") == 0)))
        return 99;
    return cli_main(argc, argv, stdout, stderr);
}
