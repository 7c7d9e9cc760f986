/* tied_head.h - a head that is stored although the config ties it to the table of embeddings. */
#pragma once

#include "catalog/catalog.h"

extern const char sheaf__head_name[]; /* "lm_head.weight" */

/* sheaf__tied_head - SHEAF_E_LAYOUT where the head is neither the table nor the table rounded to 16
 * bits, which programs leave there that store it from the rounded weights. *copy (may be NULL): it
 * has the table's numbers in other bits. */
sheaf_status *sheaf__tied_head(bool *copy, sheaf_source *source, const char *table);

/* sheaf__catalog_tied_head - the same of a catalog whose config ties them, as a note says that the
 * check of the model left: another head becomes a defect, a rounded one is left out. */
sheaf_status *sheaf__catalog_tied_head(sheaf_catalog *catalog);
