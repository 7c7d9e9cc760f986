/* decoder.h - pictures of questions become pixels: on threads of their own, one large one after the
 * other, so that neither others' answers nor the port wait for them.
 *
 * They come in the order of arrival, but each million pixels counts as a second of it: large ones
 * let small ones pass, which have a thread more. What was decoded stays until its question is over,
 * and no more is decoded while that is much memory. */
#pragma once

#include <stdatomic.h>

#include "infer/prompts.h"

typedef struct sheaf__decoder sheaf__decoder;

/* The pictures of one question; the decoder's, but for `prompts`. */
typedef struct sheaf__decoding {
    sheaf__prompts *prompts;
    enum { SHEAF__DECODES_NONE, SHEAF__DECODES_WAITS, SHEAF__DECODES_RUNS, SHEAF__DECODES_OVER } at;
    double moment; /* of its arrival, by the rule above */
    size_t bytes;  /* that it keeps */
    atomic_bool unwanted;
    sheaf_status *failed;
    struct sheaf__decoding *next;
} sheaf__decoding;

/* sheaf__decoder_open - `changed` is called, by a thread of its own, when a question's pictures are
 * there.
 */
sheaf_status *sheaf__decoder_open(sheaf__decoder **out, void (*changed)(void *self), void *self);
/* sheaf__decoder_close - all decodings were given back; accepts NULL. */
void sheaf__decoder_close(sheaf__decoder *decoder);

/* sheaf__decoder_add - begins with *decoding zeroed; prompts without pictures are ready at once. */
void sheaf__decoder_add(sheaf__decoder *decoder, sheaf__decoding *decoding,
                        sheaf__prompts *prompts);
/* sheaf__decoder_ready - are the pictures there? *failed (the caller's): why they are not, and
 * never will be. */
bool sheaf__decoder_ready(sheaf_status **failed, sheaf__decoder *decoder,
                          sheaf__decoding *decoding);
/* sheaf__decoder_drop - the question is over; false: its picture is being decoded, so not yet. */
bool sheaf__decoder_drop(sheaf__decoder *decoder, sheaf__decoding *decoding);
