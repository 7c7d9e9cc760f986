/* template.h - CogVLM's and CogAgent's prompts (upstream: utils/language.py).
 *
 *   q is a query, (q0, a0) a turn before it; the image stands in front of all of it
 *   base       q                                      turns before are left out
 *   chat       " [INST] " q " [/INST] "               q0 " [/INST] " a0 " [INST] " goes before q
 *   vqa        "Question: " q " Short answer:"        turns before are left out
 *   chat_old   "Question: " q " Answer:"              q0 " Answer: " a0 "\nQuestion: " goes before
 *              q
 * On the hub CogVLM's chat is SAT's chat_old, and vqa keeps the turns before; CogAgent's are SAT's.
 *
 * Upstream marks the image's place by "<EOI>" in the text and splits there, so a query that
 * contains the mark splits too. Here the mark is never written: the image is always first
 * (layout.h), and all of a query is text. */
#pragma once

#include "base/base.h"
#include "base/events.h"
#include "schema/config.h"
#include "sheaf/status.h"

typedef enum sheaf__template {
    SHEAF__BASE,
    SHEAF__CHAT,
    SHEAF__VQA,
    SHEAF__CHAT_OLD,
    SHEAF__QUESTION, /* chat and vqa of CogVLM's folders on the hub */
    SHEAF__SHORT_QUESTION,
    SHEAF__TEMPLATES
} sheaf__template;

typedef struct sheaf__turn {
    const char *query, *answer;
} sheaf__turn;

/* sheaf__template_find - by name, "chat_old", of the templates that a model of this config has
 * (NULL: SAT's). Errors: SHEAF_E_ARG with the nearest name. */
sheaf_status *sheaf__template_find(sheaf__template *out, const char *name,
                                   const sheaf_config *config);
/* sheaf__choose_template - the one `given` by name (NULL or empty: none), else the config's
 * template_key (text_processor_version), else base, or chat for a model without images. `events`
 * (may be NULL) have a note of what was not given, and a warning of a version that is no template
 * here. Errors: SHEAF_E_ARG for a name given that is none; SHEAF_E_MEMORY. */
sheaf_status *sheaf__choose_template(sheaf__template *out, const char *given,
                                     const sheaf_config *config, const sheaf_events *events);
const char *sheaf__template_name(sheaf__template which);
/* sheaf__template_has_history - does a prompt of it hold the turns before? */
bool sheaf__template_has_history(sheaf__template which);

/* sheaf__template_prompt - what is read before the answer, without the image (malloc'd). The same
 * for training and for inference; for training the answer follows it as a text of its own. */
sheaf_status *sheaf__template_prompt(char **out, sheaf__template which, const sheaf__turn *history,
                                     int64_t turns, const char *query);
/* sheaf__template_answer - the answer in decoded text: what follows the last separator (for base
 * "<unk>"), without "</s>", blanks at both ends removed (malloc'd). */
sheaf_status *sheaf__template_answer(char **out, sheaf__template which, const char *text);
