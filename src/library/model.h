/* model.h - private: a loaded model, as generate.h and chat hand it out. */
#ifndef SHEAF_LIBRARY_MODEL_H
#define SHEAF_LIBRARY_MODEL_H

#include "infer/wording.h"
#include "library/crowd.h"
#include "library/run_model.h"
#include "sheaf/generate.h"

struct sheaf_model {
    sheaf__opened opened;
    sheaf__run_model run;
    sheaf__wording wording;
    int64_t positions; /* of prompt and answer, at most */
    int64_t stop[SHEAF_MAX_EOS];
    int nstop;
    sheaf__crowd *crowd;
    char *tokenizer, *version; /* as they were given, or the run's; NULL */
};

struct sheaf_answer {
    sheaf__continuation said;
    char *text;
};

/* sheaf__model_ask - the tokens that continue `prompt`, whose picture is there, or is loaded by
 * load(self, ...); the text is left NULL. *o is as it was taken. Errors: SHEAF_E_DATA when prompt
 * and answer are longer than the model was opened for; those of sheaf__generate(). */
sheaf_status *sheaf__model_ask(sheaf_answer **out, sheaf_model *model, const sheaf__prompt *prompt,
                               const sheaf_model_generate_options *o,
                               sheaf_status *(*load)(void *self, int64_t prompt,
                                                     const sheaf__picture *picture),
                               void *self, int64_t number);
/* sheaf__model_check - the numbers among the options. */
sheaf_status *sheaf__model_check(const sheaf_model_generate_options *o);

/* sheaf__take_activations - by torch's name; NULL is float32. Errors: SHEAF_E_ARG. */
sheaf_status *sheaf__take_activations(sheaf_dtype *out, const char *name);

#endif
