/* fault.c - see fault.h. */
#include "fault.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const op_names[] = { "any",    "open",  "read",   "write", "fsync",
                                        "rename", "mkdir", "unlink", "malloc" };
static const char *const action_names[] = { "",      "fail", "enospc", "kill", "torn",  "short",
                                            "eintr", "stop", "hang",   "slow", "enosys" };

/* The one of the process; see the top of fault.h for why it exists. */
static sheaf_faults process_faults;

static int index_of(const char *const *names, size_t n, const char *text, size_t size)
{
    for (size_t i = 0; i < n; i++)
        if (strlen(names[i]) == size && size > 0 && memcmp(names[i], text, size) == 0)
            return (int)i;
    return -1;
}

sheaf_status *sheaf__faults_parse(sheaf_faults *out, const char *text)
{
    const char *first = strchr(text, ':');
    const char *second = first == NULL ? NULL : strchr(first + 1, ':');
    char *end = NULL;
    if (second != NULL) {
        const int op =
            index_of(op_names, sizeof op_names / sizeof *op_names, text, (size_t)(first - text));
        const int action = index_of(action_names, sizeof action_names / sizeof *action_names,
                                    second + 1, strlen(second + 1));
        const long long n = strtoll(first + 1, &end, 10);
        const bool plus = *end == '+';
        if (op >= 0 && action > 0 && n > 0 && end + plus == second) {
            *out =
                (sheaf_faults){ (sheaf_fault_op)op, (sheaf_fault_action)action, n, plus, 0, NULL };
            return NULL;
        }
    }
    return sheaf_found(
        sheaf_expected(sheaf_fail(SHEAF_E_ARG, "SHEAF_FAULT"), "op:n:action, as write:3:enospc"),
        "%s", text);
}

void sheaf__faults_set(const sheaf_faults *faults)
{
    process_faults =
        (sheaf_faults){ faults->op, faults->action, faults->n, faults->from_then_on, 0, NULL };
}

sheaf_fault_action sheaf__fault(sheaf_faults *faults, sheaf_fault_op op)
{
    if (faults == NULL) {
        faults = &process_faults;
        if (faults->action == SHEAF_FAULT_NONE)
            return SHEAF_FAULT_NONE;
    }
    if (faults->also != NULL) {
        const sheaf_fault_action first = sheaf__fault(faults->also, op);
        if (first != SHEAF_FAULT_NONE)
            return first;
    }
    if (faults->op != SHEAF_FAULT_ANY && faults->op != op)
        return SHEAF_FAULT_NONE;
    const int64_t seen = ++faults->seen;
    if (seen != faults->n && !(faults->from_then_on && seen > faults->n))
        return SHEAF_FAULT_NONE;
    if (faults->action == SHEAF_FAULT_KILL ||
        (faults->action == SHEAF_FAULT_TORN && op != SHEAF_FAULT_WRITE))
        kill(getpid(), SIGKILL);
    if (faults->action == SHEAF_FAULT_STOP)
        kill(getpid(), SIGSTOP);
    while (faults->action == SHEAF_FAULT_HANG)
        pause();
    if (faults->action == SHEAF_FAULT_SLOW)
        sleep(1);
    return faults->action;
}

int sheaf__fault_errno(sheaf_fault_action action)
{
    return action == SHEAF_FAULT_FAIL     ? EIO
           : action == SHEAF_FAULT_ENOSPC ? ENOSPC
           : action == SHEAF_FAULT_EINTR  ? EINTR
           : action == SHEAF_FAULT_ENOSYS ? ENOSYS
                                          : 0;
}

void *sheaf__fault_calloc(sheaf_faults *faults, size_t count, size_t size)
{
    const sheaf_fault_action action = sheaf__fault(faults, SHEAF_FAULT_MALLOC);
    if (action == SHEAF_FAULT_FAIL || action == SHEAF_FAULT_ENOSPC)
        return NULL;
    return calloc(count > 0 ? count : 1, size > 0 ? size : 1);
}
