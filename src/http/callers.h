/* callers.h - the open connections of a port, and how long each may keep others from theirs.
 *
 * A connection costs nothing to hold, so a client that sends a byte now and then could hold all of
 * them. Each has a deadline for its headers, for its whole request and for reading a whole reply;
 * while its answer is computed it has none. At the limit of all connections, or of one address, the
 * one closest to its deadline is shut down in favour of a new one: an honest request arrives in
 * milliseconds, and is never that one for long. */
#pragma once

#include "base/base.h"

typedef struct sheaf__callers sheaf__callers;
typedef struct sheaf__caller sheaf__caller;

/* The stage of a connection. */
typedef enum sheaf__caller_stage {
    SHEAF__CALLER_HEADERS, /* of a request are not complete */
    SHEAF__CALLER_BODY,    /* of a request, and its trailers */
    SHEAF__CALLER_WAITS,   /* the reply is computed */
    SHEAF__CALLER_READS,   /* the whole reply can be read */
} sheaf__caller_stage;
enum { SHEAF__CALLER_STAGES = 4, SHEAF__CALLER_ADDRESS = 16 };

typedef struct sheaf__callers_options {
    int most, most_of_address;             /* connections */
    double deadline[SHEAF__CALLER_STAGES]; /* seconds; 0: none. Those of headers and body begin
                                              together, where the connection waits for a request */
} sheaf__callers_options;

/* sheaf__callers_open - starts the thread that watches deadlines. */
sheaf_status *sheaf__callers_open(sheaf__callers **out, const sheaf__callers_options *options);
/* sheaf__callers_close - after all were removed; accepts NULL. */
void sheaf__callers_close(sheaf__callers *callers);

/* The rest is thread-safe. A socket is the caller's to close, after sheaf__callers_remove(); here
 * it is only shut down. */

/* sheaf__callers_add - NULL: no memory, and the socket is shut down. */
sheaf__caller *sheaf__callers_add(sheaf__callers *callers, int socket,
                                  const unsigned char address[SHEAF__CALLER_ADDRESS]);
/* sheaf__callers_move - accepts a caller that is NULL. */
void sheaf__callers_move(sheaf__callers *callers, sheaf__caller *caller, sheaf__caller_stage to);
/* sheaf__callers_remove - accepts NULL. */
void sheaf__callers_remove(sheaf__callers *callers, sheaf__caller *caller);
