/* asked.h - private: what a record asks, in any form that data sets have
 * (data/text_record.h): the messages up to the one to answer, and the answer to compare with. */
#pragma once

#include "data/text_record.h"

typedef struct sheaf__asked {
    sheaf__message *said; /* [n]; the last is to be answered. Borrowed from the record */
    int64_t n;
    const char *expected;      /* NULL: none */
    bool text;                 /* a prompt, which is no conversation: the last of them */
    sheaf__text_record record; /* `ignored` is of each form */
} sheaf__asked;

/* sheaf__asks - has a record a form of these? Others hold tokens, or nothing that is read. */
bool sheaf__asks(const json_t *record);
/* sheaf__asked_read - `record` and `system` (NULL: none), which goes before messages that have no
 * system message, must outlive *out. `pictures`:
 * others read those. Of several forms in one record the first counts. Release also after a failure.
 * Errors: those of sheaf__text_record_list() and sheaf__text_record_ask(); SHEAF_E_DATA for a NUL,
 * and for tokens beside a text. */
sheaf_status *sheaf__asked_read(sheaf__asked *out, json_t *record, const char *system,
                                bool pictures);
/* sheaf__text_whole - SHEAF_E_DATA where `text`, kept as a C string, would end early at a NUL. */
sheaf_status *sheaf__text_whole(const char *text, size_t size, const char *what);
void sheaf__asked_release(sheaf__asked *asked);
