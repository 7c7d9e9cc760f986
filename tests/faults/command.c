/* command.c - the command, for tests: SHEAF_FAULT=op:n:action in the environment lets a call fail
 * (faults.h). */
#include <stdlib.h>

#include "cli/lib/cli.h"
#include "tests/faults/faults.h"

int main(int argc, char **argv)
{
    const char *text = getenv("SHEAF_FAULT");
    static sheaf_faults faults = { .op = SHEAF_FAULT_ANY };
    if (text != NULL && *text != '\0') {
        sheaf_status *st = faults_parse(&faults, text);
        if (st != NULL) { /* a test that misspells it must not pass */
            sheaf_status_print(st, stderr);
            sheaf_status_free(st);
            return 99;
        }
        faults_use(&faults);
    }
    return cli_main(argc, argv, stdout, stderr);
}
