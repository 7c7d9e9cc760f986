/* adapter_base.c - see adapter_base.h. */
#include "library/adapter_base.h"

#include "models/open.h"
#include "base/status.h"

static sheaf_status *hash_base(char out[33], const char *base, const char *config)
{
    sheaf__opened opened = { 0 };
    sheaf_status *st = sheaf__open_model(
        &opened,
        &(sheaf__open_options){ .model = base, .config = config, .slices = 8, .hashed = true });
    TRY(st, sheaf__hashed_all(opened.hashed, 0));
    TRY(st, sheaf__hashed_weights(out, opened.hashed));
    sheaf__opened_close(&opened);
    return st;
}

sheaf_status *sheaf__adapters_base(const char *base, const char *config,
                                   const char *const *adapters, int n, const sheaf_events *events)
{
    char is[33] = "", was[33];
    sheaf_status *st = NULL;
    for (int i = 0; i < n && st == NULL; i++) {
        st = sheaf__adapter_print(was, base, adapters[i], events);
        if (st != NULL || was[0] == '\0')
            continue;
        if (is[0] == '\0')
            st = hash_base(is, base, config);
        if (st != NULL && sheaf_status_code(st) != SHEAF_E_MEMORY) {
            sheaf_warn(events,
                       "the adapter's fingerprint of its base cannot be compared with %s: %s: %s",
                       base, sheaf_status_where(st), sheaf_status_found(st));
            sheaf_status_free(st);
            return NULL;
        }
        TRY(st, sheaf__compare_base(is, was, base, adapters[i]));
    }
    return st;
}
