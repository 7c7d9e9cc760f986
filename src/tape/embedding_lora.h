/* embedding_lora.h - LoRA on a vocabulary table. */
#pragma once

#include "tape/layers.h"

/* sheaf__record_embedding_lora - x, the rows of the table, and what table->lora adds to them. The
 * table itself is not trained. */
sheaf__value *sheaf__record_embedding_lora(sheaf__tape *tape, sheaf__value *x,
                                           const sheaf__table *table, const sheaf__rows_in *in);
