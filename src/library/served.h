/* served.h - models that are served together: one, and adapters of it. */
#pragma once

#include "infer/codec.h"
#include "infer/engine.h"
#include "sheaf/generate.h"

typedef struct sheaf__served_model {
    sheaf_model *model;
    char *name; /* of its folder */
    const sheaf_config *config;
    const sheaf__codec *codec; /* of texts */
    sheaf__codec chat;         /* of its conversations */
    sheaf_status *no_chat;     /* why there is none */
    int64_t max_new;           /* by its generation_config.json; 0: no such key */
} sheaf__served_model;

typedef struct sheaf__served {
    sheaf__served_model *model; /* [models] */
    int models;
    const char **name;      /* [models] */
    sheaf__opened **opened; /* [models] */
} sheaf__served;

/* sheaf__served_open - and loads the first, for `places` answers side by side. Collective, where
 * model->processes are several. Close also after a failure. Errors: those of opening and loading;
 * SHEAF_E_ARG where an adapter has another type, or order of sums, than the model.
 *   model    without an adapter; `positions` of every answer
 *   adapter  [nadapters] folders */
sheaf_status *sheaf__served_open(sheaf__served *out, const sheaf_model_open_options *model,
                                 const char *const *adapter, int nadapters, int64_t places);
void sheaf__served_close(sheaf__served *served);
/* sheaf__served_options - how a request is answered, as sheaf__model_answer_options(); by a
 * template of its conversations with `chat`. */
sheaf_status *sheaf__served_options(sheaf__answer_options *out, const sheaf__served_model *model,
                                    const sheaf_model_generate_options *o, bool texts, bool chat);
/* sheaf__served_engine - what an engine needs of them; borrowed. */
sheaf__engine_options sheaf__served_engine(const sheaf__served *served);
