/* catalog.h - Hugging Face folders as catalogs.
 *
 * A folder may be wrong: what is wrong becomes a finding. */
#ifndef SHEAF_DIALECTS_HF_CATALOG_H
#define SHEAF_DIALECTS_HF_CATALOG_H

#include "dialects/common/dialects.h"

extern const sheaf_dialect sheaf__dialect_hf;

#endif
