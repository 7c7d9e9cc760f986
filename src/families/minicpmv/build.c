/* build.c - MiniCPM-V on a tape. */
#include "families/minicpmv/minicpmv.h"
#include "models/build.h"

sheaf_status *sheaf__minicpmv_build(sheaf__model *m)
{
    return sheaf_try_this(
        sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "MiniCPM-V"), "a model that can be run"),
        "sheaf info, verify, convert and merge read it; its passes are not there yet");
}

sheaf__value *sheaf__minicpmv_see(sheaf__model *m, sheaf__tape *tape, const sheaf__pass *pass,
                                  int tower)
{
    return NULL;
}

void sheaf__minicpmv_place(sheaf__model *m, sheaf__tape *tape, sheaf__value *x, sheaf__value *image,
                           const sheaf__pass *pass)
{
}

void sheaf__minicpmv_release(sheaf__model *m)
{
}
