/* model.h - private: a loaded model, as generate.h and chat hand it out. */
#ifndef SHEAF_LIBRARY_MODEL_H
#define SHEAF_LIBRARY_MODEL_H

#include "infer/wording.h"
#include "library/crowd.h"
#include "library/run_model.h"

struct sheaf_model {
    sheaf__opened opened;
    sheaf__run_model run;
    sheaf__wording wording;
    int64_t positions; /* of prompt and answer, at most */
    int64_t stop[SHEAF_MAX_EOS];
    int nstop;
    sheaf__crowd *crowd;
};

/* sheaf__take_activations - by torch's name; NULL is float32. Errors: SHEAF_E_ARG. */
sheaf_status *sheaf__take_activations(sheaf_dtype *out, const char *name);

#endif
