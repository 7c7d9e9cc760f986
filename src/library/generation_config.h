/* generation_config.h - generation_config.json of a model: which tokens end an answer, and how it
 * is sampled where no option says otherwise. */
#pragma once

#include "base/events.h"
#include "infer/sampling.h"
#include "infer/codec.h"
#include "sheaf/generate.h"

/* What the file does not say is below 0. */
typedef struct sheaf__generation_config {
    bool there;  /* the file is */
    bool family; /* what it leaves open the family's own program says */
    int do_sample;
    double temperature, top_p, repetition_penalty;
    int64_t top_k, max_new;
    int64_t eos[SHEAF_MAX_EOS];
    int neos;
    const char *name; /* of the file that says so, for messages */
} sheaf__generation_config;

/* sheaf__generation_config_read - of the model's folder; no file is no error: then what config.json
 * says is read, as transformers does, but the ids that end an answer. `events` are warned of what
 * the file says and is not done here. Errors: SHEAF_E_FORMAT, SHEAF_E_DATA and
 * SHEAF_E_UNSUPPORTED with file and key. */
sheaf_status *sheaf__generation_config_read(sheaf__generation_config *out, const char *folder,
                                            const sheaf_events *events);
/* sheaf__generation_config_stops - an answer ends at the file's ids, where it has some. */
void sheaf__generation_config_stops(sheaf__codec *w, const sheaf__generation_config *g);

/* sheaf__generation_config_family - what the file leaves open is as the family's own program asks
 * (sheaf__picture_form): of prompts that are texts. */
void sheaf__generation_config_family(sheaf__generation_config *g, const sheaf__picture_form *form);

/* sheaf__generation_config_sampling - by transformers' rules: the options, where they are not 0,
 * else the file, else greedy; the file's do_sample without top_k means its default, 50. Fields of
 * *out that are not sampled by are left as they are. `events` (may be NULL) hear what the file
 * decided. */
void sheaf__generation_config_sampling(sheaf__sampling *out, const sheaf__generation_config *g,
                                       const sheaf_model_generate_options *o,
                                       const sheaf_events *events);
