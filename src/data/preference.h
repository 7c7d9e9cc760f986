/* preference.h - records of a prompt with a chosen and a rejected answer, in the forms of TRL,
 * LLaMA-Factory and ms-swift:
 *
 *   explicit     {"prompt": P, "chosen": C, "rejected": R}: lists of messages, or texts
 *   implicit     {"chosen": [...], "rejected": [...]}: the common first messages are the prompt
 *   UltraFeedback's  the same with "prompt", the text of the first user's message
 *   conversations    {"conversations": [...], "chosen": {...}, "rejected": {...}}; messages alike
 *   instruction  {"instruction", "input", "chosen": C, "rejected": R}, or "output": [C, R]
 *   ms-swift's   {"messages": [...], "rejected_response": R or "rejected_messages": [...]}
 *
 * Each side becomes a record of text_record.h, whose reader checks the rest. Of a conversation only
 * the answer is learnt: answers within the prompt have the weight 0. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "data/data.h"
#include "data/text_record.h"
#include "sheaf/status.h"

/* sheaf__preference_side - a new record of one side, 0: chosen, 1: rejected. Errors: SHEAF_E_DATA
 * (field). */
sheaf_status *sheaf__preference_side(json_t **out, json_t *record, int side);
/* sheaf__preference_judged - a new record without its judgement, "label" (TRL, ms-swift) or
 * "kto_tag" (LLaMA-Factory), which is true for a desirable answer. Errors: SHEAF_E_DATA (field). */
sheaf_status *sheaf__preference_judged(json_t **out, bool *desirable, json_t *record);
/* sheaf__preference_margin - "margin" of a pair; none: 0. Errors: SHEAF_E_DATA (field). */
sheaf_status *sheaf__preference_margin(float *out, const json_t *record);
/* sheaf__preference_is_pair - has it a rejected answer, too? */
bool sheaf__preference_is_pair(const json_t *record);
/* sheaf__preference_part - a new record of what is read of one: of pairs a side; where answers are
 * judged that one, or a side of a pair, whose chosen answer is desirable; else the record itself.
 */
sheaf_status *sheaf__preference_part(json_t **out, bool *desirable, json_t *record, int side,
                                     bool pairs, bool judged);
/* sheaf__preference_read - sheaf__text_record_take() of that part. Release *out also after a
 * failure. */
sheaf_status *sheaf__preference_read(sheaf__text_record *out, const sheaf_data_options *options,
                                     bool *desirable, json_t *record, int side);

/* Pairs as judged answers: blocks of so many chosen answers, each followed by their rejected ones,
 * as TRL has them, so that in this order no prompt of a full block stands beside its own other
 * answer. */
enum { SHEAF__UNPAIRED = 1000 };
