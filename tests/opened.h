/* opened.h - for tests: the tensors of a model or an adapter as they lie in its files. */
#pragma once

#include "dialects/open.h"

static inline sheaf_status *open_stored(sheaf_source **out, const char *path)
{
    return sheaf__open_source(out, path, &(sheaf_dialect_hints){ .as_stored = true });
}

static inline sheaf_status *open_adapter_at(sheaf_source **out, const char *path)
{
    return sheaf__open_source(
        out, path, &(sheaf_dialect_hints){ .want = SHEAF_WANT_ADAPTER, .as_stored = true });
}
