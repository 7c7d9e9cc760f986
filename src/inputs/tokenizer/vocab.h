/* vocab.h - private: tokens by id, and ids by the bytes of their token. */
#pragma once

#include "base/base.h"
#include "base/json_scan.h"
#include "sheaf/status.h"

enum { SHEAF__ID_MAX = (1 << 24) - 1 }; /* the largest id of a token */

typedef struct sheaf__vocab {
    char *bytes; /* the tokens, each followed by a NUL */
    size_t size;
    struct sheaf__vocab_token {
        uint32_t at, size; /* in `bytes`; `at` UINT32_MAX: no token */
    } * token;             /* [ids] */
    int64_t ids;           /* the largest id + 1 */
    int64_t capacity, capacity_ids;
    int64_t count;             /* tokens */
    struct sheaf__vocab_slot { /* open addressing */
        uint32_t hash, id_1;   /* its upper half; id + 1, 0: free */
    } * slot;
    uint64_t mask;
} sheaf__vocab;

void sheaf__vocab_release(sheaf__vocab *v);
/* sheaf__vocab_add - errors: SHEAF_E_FORMAT for a duplicate token or id; SHEAF_E_UNSUPPORTED for an
 * id over SHEAF__ID_MAX; SHEAF_E_MEMORY. */
sheaf_status *sheaf__vocab_add(sheaf__vocab *v, const char *token, size_t size, uint64_t id);
/* sheaf__vocab_find - -1: none. */
int32_t sheaf__vocab_find(const sheaf__vocab *v, const char *token, size_t size);
/* sheaf__vocab_prefetch - begins to load what sheaf__vocab_find() will look at. */
void sheaf__vocab_prefetch(const sheaf__vocab *v, const char *token, size_t size);
/* sheaf__vocab_token - NULL: no token has this id. */
const char *sheaf__vocab_token(const sheaf__vocab *v, int64_t id, size_t *size);
/* sheaf__vocab_read - an object {"token": id, ...} at the scan. */
sheaf_status *sheaf__vocab_read(sheaf__vocab *v, sheaf_json_scan *scan);
