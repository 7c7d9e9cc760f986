/* plan.h - what a run, or a model that is asked, would need: before it is begun, from the model's
 * config alone. The real step runs on a device without memory, once for each rank. */
#ifndef SHEAF_PLAN_H
#define SHEAF_PLAN_H

#include <stdint.h>

#include "sheaf/generate.h"
#include "sheaf/options.h"
#include "sheaf/status.h"
#include "sheaf/train.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sheaf_needs sheaf_needs;

/* sheaf_run_plan - of one step of training. Neither data nor out nor steps need be given, and the
 * model may be named by the setting `config` alone; hooks are not called. Errors: those of the
 * settings, the config and the data. */
SHEAF_API sheaf_status *sheaf_run_plan(sheaf_needs **out, const sheaf_run_train_options *options);
/* sheaf_model_plan - of a prompt and its answer, options->positions together; of a training run,
 * its base. */
SHEAF_API sheaf_status *sheaf_model_plan(sheaf_needs **out,
                                         const sheaf_model_open_options *options);
/* sheaf_needs_free - accepts NULL. */
SHEAF_API void sheaf_needs_free(sheaf_needs *needs);

typedef struct sheaf_needs_facts {
    size_t size;
    int ranks;
    uint64_t process; /* bytes of all ranks in one process, and of what lies beside them */
    uint64_t fullest; /* bytes of the fullest rank */
    int64_t parameters, trained; /* elements of the model; those that are trained */
    int64_t seq;                 /* positions of a row */
} sheaf_needs_facts;

typedef struct sheaf_needs_rank_facts {
    size_t size;
    uint64_t peak; /* bytes */
    double flops;  /* of one step, products alone */
    double sent;   /* bytes handed to other ranks in one step */
} sheaf_needs_rank_facts;

SHEAF_API sheaf_status *sheaf_needs_look(sheaf_needs_facts *facts, const sheaf_needs *needs);
/* sheaf_needs_rank - errors: SHEAF_E_ARG for a rank that is none. */
SHEAF_API sheaf_status *sheaf_needs_rank(sheaf_needs_rank_facts *facts, const sheaf_needs *needs,
                                         int rank);
/* sheaf_needs_kind - a kind of memory by number from 0, "weights", "activations", ...; static.
 * NULL: there are no more. */
SHEAF_API const char *sheaf_needs_kind(int kind);
/* sheaf_needs_bytes - of that kind on a rank, when it holds most in all; 0 where there is none. */
SHEAF_API uint64_t sheaf_needs_bytes(const sheaf_needs *needs, int rank, int kind);

#ifdef __cplusplus
}
#endif

#endif
