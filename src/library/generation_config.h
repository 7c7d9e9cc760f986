/* generation_config.h - generation_config.json of a model: which tokens end an answer, and how it
 * is sampled where no option says otherwise. */
#pragma once

#include "base/events.h"
#include "infer/sampling.h"
#include "infer/codec.h"
#include "sheaf/generate.h"

/* Numbers below 0 are absent in the file. */
typedef struct sheaf__generation_config {
    bool there;  /* the file exists */
    bool family; /* absent settings come from the family's own program */
    int do_sample;
    double temperature, top_p, repetition_penalty;
    int64_t top_k, max_new;
    int64_t eos[SHEAF_MAX_EOS];
    int neos;
    const char *name; /* of the file, for messages */
} sheaf__generation_config;

/* sheaf__generation_config_read - reads the file in the model's folder, or if there is none
 * config.json, as transformers does, except for the ids that end an answer. Warns of settings that
 * are not implemented. Errors: SHEAF_E_FORMAT, SHEAF_E_DATA and SHEAF_E_UNSUPPORTED with file and
 * key. */
sheaf_status *sheaf__generation_config_read(sheaf__generation_config *out, const char *folder,
                                            const sheaf_events *events);
/* sheaf__generation_config_stops - sets the file's ids, if any, as those that end an answer. */
void sheaf__generation_config_stops(sheaf__codec *w, const sheaf__generation_config *g);

/* sheaf__generation_config_family - fills absent settings from the family's own program
 * (sheaf__picture_form), for prompts that are texts. */
void sheaf__generation_config_family(sheaf__generation_config *g, const sheaf__picture_form *form);

/* sheaf__generation_config_sampling - by transformers' rules: the options if not 0, else the file,
 * else greedy; the file's do_sample without top_k means its default, 50. Unused fields of *out are
 * unchanged. Notes to `events` (may be NULL) what the file decided. */
void sheaf__generation_config_sampling(sheaf__sampling *out, const sheaf__generation_config *g,
                                       const sheaf_model_generate_options *o,
                                       const sheaf_events *events);
