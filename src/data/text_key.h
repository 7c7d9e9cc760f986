/* text_key.h - private: a name for all that the rows of a text data set follow from. */
#ifndef SHEAF_DATA_TEXT_KEY_H
#define SHEAF_DATA_TEXT_KEY_H

#include "base/hash.h"
#include "data/text_sources.h"

/* sheaf__text_key - 32 hex digits: the bytes of the data files (not their names), of the
 * tokenizer's files, its class and what of the options reaches a row.
 *   file  [sources->paths] out: the hash of each data file
 * Errors: SHEAF_E_IO, SHEAF_E_FORMAT of what lies beside the tokenizer, SHEAF_E_STOPPED,
 * SHEAF_E_MEMORY. */
sheaf_status *sheaf__text_key(char out[33], sheaf_hash *file, const sheaf__text_sources *sources,
                              const sheaf_data_options *options);

#endif
