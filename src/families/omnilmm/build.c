/* build.c - OmniLMM on a tape. */
#include "families/omnilmm/omnilmm.h"
#include "models/build.h"

sheaf_status *sheaf__omnilmm_build(sheaf__model *m)
{
    return sheaf_try_this(
        sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "OmniLMM"), "a model that can be run"),
        "sheaf info, verify, convert and merge read it; its passes are not there yet");
}

sheaf__value *sheaf__omnilmm_see(sheaf__model *m, sheaf__tape *tape, const sheaf__pass *pass,
                                 int tower)
{
    return NULL;
}

void sheaf__omnilmm_place(sheaf__model *m, sheaf__tape *tape, sheaf__value *x, sheaf__value *image,
                          const sheaf__pass *pass)
{
}

void sheaf__omnilmm_release(sheaf__model *m)
{
}
