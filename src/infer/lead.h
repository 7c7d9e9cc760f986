/* lead.h - the first rank of a group leads: it alone has the prompts, chooses the tokens and
 * decides which pass is next. The other ranks, threads or processes, get from it what to compute.
 *
 * An order is a broadcast in the group. A rank that cannot obey goes to sheaf__lead_settle(), as do
 * all others when their next exchange says so; then the leader goes on, or ends the job. */
#pragma once

#include <stdatomic.h>

#include "infer/batch_images.h"
#include "infer/prefix_cache.h"

typedef enum sheaf__order_kind {
    SHEAF__ORDER_OPEN,  /* slots of the size `open`, until */
    SHEAF__ORDER_CLOSE, /* the job is over */
    SHEAF__ORDER_PASS,  /* `step`; arrays and pictures follow */
    SHEAF__ORDER_COPY,  /* `copy`, of the first rows of a place of the cache */
    SHEAF__ORDER_WAIT,  /* nothing to do; has any rank a request to stop? */
    SHEAF__ORDER_END,   /* no more jobs */
} sheaf__order_kind;

/* One pass in numbers. */
typedef struct sheaf__slots_step {
    int64_t model, n;
    int64_t rows; /* that are read of each sequence; 0: a token of each */
    int64_t keys;
    bool image_rows_unread, shows; /* shows: the first rows, of a model with images */
    bool keeps, full;              /* output of the towers is kept; it is there already */
    bool asks;                     /* then all say whether they have a request to stop */
    int64_t prompt;                /* for messages: the first that is not over, from 1; 0: none */
    sheaf__batch_images image;     /* but for the pictures themselves */
} sheaf__slots_step;

/* The slots of a job. */
typedef struct sheaf__slots_size {
    int64_t places, length; /* of the cache: sequences, and positions of each */
    int64_t prompt;         /* rows of the longest prompt that is read beside others */
    bool asks;              /* after each pass all are asked whether they have a request to stop */
    bool single;            /* one place, with what is kept of single prompts */
    int64_t look;           /* its: 0: the output of towers is not kept; else of */
    sheaf__picture_counts pictures;
} sheaf__slots_size;

typedef struct sheaf__order {
    sheaf__order_kind kind;
    sheaf__slots_size open;
    bool names; /* CLOSE: all look for a weight that is not finite */
    sheaf__slots_step step;
    struct sheaf__slots_copy {
        int64_t to, from, rows;
    } copy;
    size_t size; /* of the bytes that follow: here as far as they fit, else in a second broadcast */
    char bytes[512];
} sheaf__order;

/* sheaf__lead_move - copies n arrays into a block, or (out) out of it; block NULL: none. Returns
 * their bytes. */
size_t sheaf__lead_move(char *block, void *const *array, const size_t *bytes, size_t n, bool out);
/* sheaf__lead_send - by the leader; alone nothing happens.
 * sheaf__lead_receive - by the others: *bytes, which is the caller's to free, holds what did not
 * fit. */
sheaf_status *sheaf__lead_send(const sheaf__context *context, sheaf__order *order,
                               const void *bytes);
sheaf_status *sheaf__lead_receive(sheaf__order *order, char **bytes, const sheaf__context *context);
/* sheaf__lead_stopped - *over: on any rank *stop, which may be NULL, is not 0. Collective. */
sheaf_status *sheaf__lead_stopped(bool *over, const sheaf__context *context,
                                  const atomic_int *stop);
/* sheaf__lead_settle - `st`, a failure of an order, consumed, becomes the same failure for all.
 * SHEAF_E_PEER: a rank is lost, and the group with it. */
sheaf_status *sheaf__lead_settle(const sheaf__context *context, sheaf_status *st);
/* sheaf__lead_order - an order without more, CLOSE, WAIT or END, which also takes the failure of
 * the one before; _close: CLOSE; _wait: WAIT, with its answer. */
sheaf_status *sheaf__lead_order(const sheaf__context *context, sheaf__order *order);
sheaf_status *sheaf__lead_close(const sheaf__context *context);
sheaf_status *sheaf__lead_wait(bool *over, const sheaf__context *context, const atomic_int *stop);
