/* line.h - what goes over a connection of the watch: frames of a kind and some bytes.
 *
 *   u32 magic | u16 kind | u16 0 | u32 size | size bytes
 *
 * in the order of bytes of this machine: the processes of a run are of one build, and compare that
 * at their start. Nothing here waits longer than it is told to. */
#pragma once

#include "base/base.h"
#include "sheaf/status.h"

enum { SHEAF__LINE_MOST = 8192, SHEAF__LINE_PLACES = 16 };

/* Where the first process listens: what it tells the others over the transport. */
typedef struct sheaf__line_place {
    unsigned char token[16]; /* who does not know it is no process of this run */
    uint16_t port;
    int32_t count;
    struct {
        int32_t v6;
        uint32_t scope;
        unsigned char at[16];
    } address[SHEAF__LINE_PLACES]; /* of this host */
} sheaf__line_place;

/* sheaf__line_listen - a socket that listens on a port of its own, and where that is: with `here`,
 * where all processes are on this host, on its loopback alone; else at one address, of the
 * interface that mpirun was given or of this host's name; at all of them where neither is known. */
sheaf_status *sheaf__line_listen(int *fd, sheaf__line_place *place, bool here);
/* sheaf__line_connect - a connection to address i of `place`; -1. Who answers there is for the
 * caller to find out: hosts have addresses that mean themselves (a bridge of containers). */
int sheaf__line_connect(const sheaf__line_place *place, int i);
/* sheaf__line_accept - a caller, if there is one; -1. */
int sheaf__line_accept(int fd);

/* sheaf__line_send - a frame, within two seconds; false: the connection is of no use any more. */
bool sheaf__line_send(int fd, int kind, const void *bytes, size_t size);

/* What has come in and was not taken yet. */
typedef struct sheaf__line_in {
    size_t used, taken;
    unsigned char bytes[2 * (SHEAF__LINE_MOST + 16)];
} sheaf__line_in;

/* sheaf__line_wait - until something comes in, or it closes; false: `ms` have passed. */
bool sheaf__line_wait(int fd, int ms);
/* sheaf__line_read - takes in what is there; false: it has closed. */
bool sheaf__line_read(int fd, sheaf__line_in *in);
/* sheaf__line_next - the next whole frame of what has come: its kind, or 0: none; -1: what came is
 * no frame. `bytes` stay until the next call for `in`. */
int sheaf__line_next(sheaf__line_in *in, const void **bytes, size_t *size);
