/* responses.h - OpenAI's /v1/responses: its requests as those of a chat, and its replies. */
#pragma once

#include "serve/said.h"

/* sheaf__responses_request - *out: the body of a chat that asks for the same, new. Errors:
 * SHEAF_E_DATA for another form, SHEAF_E_UNSUPPORTED for what is not done here; by the field. */
sheaf_status *sheaf__responses_request(json_t **out, const json_t *asked);

/* A reply. The caller sets the first members; the others start at zero. */
typedef struct sheaf__response {
    const json_t *asked; /* the request, as it came */
    const char *model;
    uint64_t id;
    int64_t created, seed;
    int64_t input, output; /* tokens so far */
    int64_t thinking;      /* of these, up to the end of the thoughts */
    const char *finish;    /* NULL: not over; "length": it was cut */
    int64_t events, items; /* of the stream so far; items: that are complete */
    int open;              /* kind of the item that is not; 0: none */
    size_t sent[2];        /* bytes of thoughts and content */
} sheaf__response;

/* Each appends to *to. sheaf__response_begin, _more and _end: events of a stream, at its beginning,
 * for what is new of an answer, and, once it is over, at its end. _whole: the reply, with a line
 * feed. */
void sheaf__response_begin(sheaf_text *to, sheaf__response *reply);
void sheaf__response_more(sheaf_text *to, sheaf__response *reply, const sheaf__said *said);
void sheaf__response_end(sheaf_text *to, sheaf__response *reply, const sheaf__said *said);
void sheaf__response_whole(sheaf_text *to, const sheaf__response *reply, const sheaf__said *said);
