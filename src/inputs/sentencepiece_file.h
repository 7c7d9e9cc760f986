/* sentencepiece_file.h - private: the bytes of a ".model" file, checked before the library sees
 * them. */
#ifndef SHEAF_INPUTS_SENTENCEPIECE_FILE_H
#define SHEAF_INPUTS_SENTENCEPIECE_FILE_H

#include <stdbool.h>
#include <stddef.h>

#include "sheaf/status.h"

/* sheaf__sentencepiece_read - *bytes is malloc'd; *table: characters are rewritten by a table.
 * Errors as in sheaf__sentencepiece_open(). */
sheaf_status *sheaf__sentencepiece_read(char **bytes, size_t *size, bool *table, const char *path);
/* sheaf__sentencepiece_check_bytes - the check alone. */
sheaf_status *sheaf__sentencepiece_check_bytes(const char *bytes, size_t size, bool *table);

#endif
