/* first_record.h - what a run learns, for who reads along: the first row of its data as text. */
#pragma once

#include "base/events.h"
#include "train/rank.h"

/* sheaf__first_record_note - the template by name, and the first row as the model sees it, special
 * tokens included, with marks around what is learnt; long parts are cut. Without a tokenizer that
 * can be read token ids stand for text. What cannot be read is not noted. */
void sheaf__first_record_note(const sheaf__job *job, const sheaf_events *events);
