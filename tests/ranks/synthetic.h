/* synthetic.h - a model that exists nowhere on disk: every element a function of (tensor
 * name, logical index), so that tests of rank equality need no files. */
#pragma once

#include "lora/adapter.h"
#include "schema/schema.h"
#include "sheaf/source.h"

/* A source over all tensors of `schema` (borrowed) and, when not NULL, all factors of
 * `lora`; norms near 1, everything else uniform in +-0.05. */
sheaf_source *synthetic_source(const sheaf_schema *schema, const sheaf_lora *lora);
