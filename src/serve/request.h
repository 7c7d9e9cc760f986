/* request.h - a request for answers in the form of OpenAI's API, checked in full before anything
 * is computed. Fields that are unknown, or unsupported here, are refused by name. */
#pragma once

#include "data/record_pictures.h"
#include "sheaf/generate.h"

#include <jansson.h>

enum { SHEAF__MOST_ANSWERS = 64, SHEAF__MOST_TOP = 20, SHEAF__MOST_STOP_TEXTS = 16 };

/* Paths that answer, by their place among `fields` of request.c. */
typedef enum sheaf__request_kind {
    SHEAF__ASKS_TEXT,
    SHEAF__ASKS_CHAT,
    SHEAF__ASKS_RESPONSE
} sheaf__request_kind;

typedef struct sheaf__request {
    bool chat;          /* of messages; else /v1/completions */
    json_t *asked;      /* of /v1/responses, as it came: `body` is that of a chat; else NULL */
    const char *model;  /* NULL: not named */
    bool stream, usage; /* usage: the last event of the stream has it */
    int64_t each;       /* answers to each prompt */
    bool seeded;        /* `how.seed` was given */
    bool logprobs;
    int64_t top;
    /* of a chat: {"messages": [...]}, as they are but for fields that are null and contents with
     * pictures: these are texts, in which each picture of a model that places them is "<image>", a
     * video "<video>"; of others NULL */
    json_t *messages;
    const char **image;            /* [images] their names, for messages */
    sheaf__picture_bytes *picture; /* [images] owned */
    int64_t images;
    sheaf__frames *video; /* [videos] of these that are frames */
    int64_t videos;
    int64_t most_pixels;  /* of all of them; 0: no limit */
    const json_t *prompt; /* of others: a list of texts, or of lists of ids; or one of the two */
    const char **stop;    /* [nstop] */
    int64_t nstop;
    const json_t *tools; /* that the model sees; NULL: none */
    bool one_call;       /* of several calls the first counts */
    bool calls;          /* the answer must call one: `tool`, or (NULL) any */
    const char *tool;
    char *schema; /* JSON Schema of an answer, as text; NULL: none */
    /* Sampling and length, where given; `stop` is the member above */
    sheaf_model_generate_options how;
    json_t *body; /* all of it, from which the rest is borrowed */
} sheaf__request;

/* sheaf__request_has - is it a field that requests have? */
bool sheaf__request_has(const char *name, size_t size);
/* sheaf__request_asks - the field that has the question, as messages name it. */
const char *sheaf__request_asks(const sheaf__request *request);
/* sheaf__request_read - errors: SHEAF_E_FORMAT for text that is no JSON, SHEAF_E_DATA for a bad
 * field, SHEAF_E_UNSUPPORTED for a feature that is missing here; each names the field. Release also
 * after a failure. */
sheaf_status *sheaf__request_read(sheaf__request *out, const char *body, size_t size,
                                  sheaf__request_kind kind);
/* sheaf__request_take_messages - fills `messages`, `image` and `picture`. form: of pictures, which
 * have places in the texts of this model's conversations; NULL: they have none. `thoughts`: its
 * template reads those of a message; else they become a part of the content, between the marks that
 * models write. Errors: SHEAF_E_DATA for a content of another form, for a picture by address and
 * for one that is no base64 text. */
sheaf_status *sheaf__request_take_messages(sheaf__request *request, const sheaf__picture_form *form,
                                           bool thoughts);
void sheaf__request_release(sheaf__request *request);
