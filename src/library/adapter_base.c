/* adapter_base.c - see adapter_base.h. */
#include "library/adapter_base.h"

#include "dialects/peft/peft.h"
#include "models/open.h"

sheaf_status *sheaf__adapters_base(const char *base, const char *config,
                                   const char *const *adapters, int n, const sheaf_events *events)
{
    sheaf__opened opened = { 0 };
    char print[33];
    bool any = false;
    sheaf_status *st = NULL;
    for (int i = 0; i < n && st == NULL && !any; i++) {
        st = sheaf_peft_base_print(print, adapters[i]);
        any = print[0] != '\0';
    }
    if (st == NULL && any)
        st = sheaf__open_model(
            &opened,
            &(sheaf__open_options){ .model = base, .config = config, .slices = 8, .hashed = true });
    if (st != NULL && any && sheaf_status_code(st) != SHEAF_E_MEMORY) {
        sheaf_warn(events,
                   "the adapter's fingerprint of its base cannot be compared with %s: %s: %s", base,
                   sheaf_status_where(st), sheaf_status_found(st));
        sheaf_status_free(st);
        n = 0;
        st = NULL;
    }
    for (int i = 0; i < n && st == NULL; i++)
        st = sheaf__check_adapter_base(&opened, base, adapters[i], events);
    sheaf__opened_close(&opened);
    return st;
}
