/* log.h - the line of a log for one request:
 *
 *   2026-11-28T22:15:03Z 127.0.0.1 POST /v1/chat/completions 200 model=bytes finish=stop */
#pragma once

#include <time.h>

#include "base/base.h"

typedef struct sheaf__log_entry {
    time_t arrived;
    const char *client, *method, *path;
    int status;       /* 0: the client closed the connection first */
    const char *note; /* text behind the status; NULL: none */
} sheaf__log_entry;

/* sheaf__log_word - `word` with %XX for each byte of it that could end a word or a line, or steer a
 * terminal; a long one is cut and ends with "...". */
void sheaf__log_word(sheaf_text *to, const char *word);
void sheaf__log_line(sheaf_text *to, const sheaf__log_entry *entry);
