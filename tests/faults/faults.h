/* faults.h - lets a test fail, cut short or kill the n-th call that writes a file.
 *
 * What a half-written checkpoint leaves behind can only be trusted if every single system call was
 * once the last one. The library has no part in it: what is linked with faults.c asks here before
 * each of these calls (the linker's --wrap, for our objects alone; see meson.build).
 * tests/faults/command.c is the command with SHEAF_FAULT=op:n:action in its environment. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sheaf/status.h"

typedef enum sheaf_fault_op {
    SHEAF_FAULT_ANY,   /* each of those below but READ and MALLOC */
    SHEAF_FAULT_OPEN,  /* for writing, or of a folder */
    SHEAF_FAULT_READ,  /* pread */
    SHEAF_FAULT_WRITE, /* pwrite, ftruncate */
    SHEAF_FAULT_FSYNC,
    SHEAF_FAULT_RENAME, /* rename, renameat2 */
    SHEAF_FAULT_MKDIR,
    SHEAF_FAULT_UNLINK, /* unlinkat */
    SHEAF_FAULT_MALLOC, /* calloc */
} sheaf_fault_op;

typedef enum sheaf_fault_action {
    SHEAF_FAULT_NONE,
    SHEAF_FAULT_FAIL,   /* "fail": EIO, or no memory */
    SHEAF_FAULT_ENOSPC, /* "enospc": the disk is full */
    SHEAF_FAULT_KILL,   /* "kill": SIGKILL before the call */
    SHEAF_FAULT_TORN,   /* "torn": a write puts half of its bytes, then SIGKILL; else as kill */
    SHEAF_FAULT_SHORT,  /* "short": a read or write moves one byte, which is legal; else nothing */
    SHEAF_FAULT_EINTR,  /* "eintr": the call is interrupted once, which is legal */
    SHEAF_FAULT_STOP,   /* "stop": SIGSTOP before the call */
    SHEAF_FAULT_HANG,   /* "hang": the call does not come back */
    SHEAF_FAULT_SLOW,   /* "slow": it takes a second longer */
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

/* faults_parse - "op:n:action" or "op:n+:action". Errors: SHEAF_E_ARG. */
sheaf_status *faults_parse(sheaf_faults *out, const char *text);

/* faults_use - from now on calls of all threads are asked of `faults`, which is borrowed; NULL: of
 * none. */
void faults_use(sheaf_faults *faults);
/* faults_end - of none any more; returns `st`. */
sheaf_status *faults_end(sheaf_status *st);
#define UNDER(faults, call) (faults_use(faults), faults_end(call))
