/* line.h - the connections of the watch: TCP from each process to the first, made while all begin,
 * and frames of one size in the order of bytes of this machine: the processes of a run are of one
 * build, and compare that at their start. Nothing here waits longer than it says. */
#pragma once

#include <netinet/in.h>

#include "base/base.h"
#include "sheaf/status.h"

enum { SHEAF__LINE_PLACES = 16, SHEAF__LINE_MEET_MS = 20000 };

/* Address of the first process: the others get it over the transport. */
typedef struct sheaf__line_place {
    unsigned char token[16]; /* callers without it are no process of this run */
    int32_t count;
    union sheaf__line_address {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } address[SHEAF__LINE_PLACES]; /* of this host, with the port */
} sheaf__line_place;

/* sheaf__line_listen - a socket that listens on a port of its own, and where that is: with `here`,
 * where all processes are on this host, on its loopback alone. */
sheaf_status *sheaf__line_listen(int *fd, sheaf__line_place *place, bool here);
/* sheaf__line_accept - the first process's connections fd[1..processes-1]; then `listens` is
 * closed. -1 where a process did not come within SHEAF__LINE_MEET_MS, which is SHEAF_E_IO. */
sheaf_status *sheaf__line_accept(int *fd, int listens, const sheaf__line_place *place,
                                 int processes);
/* sheaf__line_connect - the connection of process number `process` to the first. An address may be
 * another host's too (a bridge of containers): the one that knows the token is right. */
sheaf_status *sheaf__line_connect(int *fd, const sheaf__line_place *place, int process);

/* sheaf__line_send - a frame, within two seconds; false: the connection is of no use any more. */
bool sheaf__line_send(int fd, const void *frame, size_t size);
/* sheaf__line_read - takes in what is there of a frame, of which it has *used bytes: 1: it is
 * whole; 0: not yet; -1: the connection has closed. */
int sheaf__line_read(int fd, void *frame, size_t size, size_t *used);
