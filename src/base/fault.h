/* fault.h - lets a test fail, cut short or kill the n-th call of the file layer.
 *
 * What a half-written checkpoint leaves behind can only be trusted if every single
 * system call was once the last one. A test hands a sheaf_faults to what it tests;
 * code that is handed NULL uses the one of the process, which does nothing unless a program
 * sets it: tests/faults/command.c, the command with SHEAF_FAULT=op:n:action in its environment. The
 * command that users have knows nothing of it. The process's one is the only writable global of the
 * library: it counts calls, and a count has to live somewhere that outlasts a call. */
#ifndef SHEAF_BASE_FAULT_H
#define SHEAF_BASE_FAULT_H

#include <stdbool.h>
#include <stdint.h>
#include <stddef.h>

#include "sheaf/status.h"

typedef enum sheaf_fault_op {
    SHEAF_FAULT_ANY, /* in a sheaf_faults: each of those below counts */
    SHEAF_FAULT_OPEN,
    SHEAF_FAULT_READ,
    SHEAF_FAULT_WRITE,
    SHEAF_FAULT_FSYNC,
    SHEAF_FAULT_RENAME,
    SHEAF_FAULT_MKDIR,
    SHEAF_FAULT_UNLINK,
    SHEAF_FAULT_MALLOC,
} sheaf_fault_op;

typedef enum sheaf_fault_action {
    SHEAF_FAULT_NONE,
    SHEAF_FAULT_FAIL,   /* "fail": EIO, or no memory */
    SHEAF_FAULT_ENOSPC, /* "enospc": the disk is full */
    SHEAF_FAULT_KILL,   /* "kill": SIGKILL before the call */
    SHEAF_FAULT_TORN,  /* "torn": a write puts half of its bytes, then SIGKILL; otherwise as kill */
    SHEAF_FAULT_SHORT, /* "short": a read or write moves one byte, which is legal; otherwise nothing
                        */
    SHEAF_FAULT_EINTR, /* "eintr": the call is interrupted once, which is legal */
    SHEAF_FAULT_STOP,  /* "stop": SIGSTOP before the call */
    SHEAF_FAULT_HANG,  /* "hang": the call does not come back */
    SHEAF_FAULT_SLOW,  /* "slow": it takes a second longer */
    SHEAF_FAULT_ENOSYS, /* "enosys": the file system or kernel does not know this call */
} sheaf_fault_action;

typedef struct sheaf_faults {
    sheaf_fault_op op;
    sheaf_fault_action action; /* NONE: never, but calls are counted */
    int64_t n;                 /* the n-th call, from 1 */
    bool from_then_on;         /* "n+": the n-th and every later one */
    _Atomic int64_t seen;      /* calls so far */
    struct sheaf_faults *also; /* another one, asked first; NULL = none */
} sheaf_faults;

/* sheaf__faults_parse - "op:n:action" or "op:n+:action". Errors: SHEAF_E_ARG. */
sheaf_status *sheaf__faults_parse(sheaf_faults *out, const char *text);

/* sheaf__faults_set - the one of the process; before anything else is called. */
void sheaf__faults_set(const sheaf_faults *faults);

/* sheaf__fault - what the call that is about to be made should do. Does not return for KILL. */
sheaf_fault_action sheaf__fault(sheaf_faults *faults, sheaf_fault_op op);
/* sheaf__fault_errno - the error number to act on: EIO, ENOSPC, EINTR, ENOSYS, or 0 for "make the
 * call". */
int sheaf__fault_errno(sheaf_fault_action action);

/* sheaf__fault_calloc - calloc() through the hook; for the memory that writers hold. */
void *sheaf__fault_calloc(sheaf_faults *faults, size_t count, size_t size);

#endif
