/* recognise.h - which of the named templates a stored program is.
 *
 * Jinja programs are not compared as texts, of which there are thousands: the program is run on
 * conversations that tell templates apart (system messages, blanks, empty contents, roles out of
 * order, thoughts, generation prompts), and is the named template that gives the same for all of
 * them; what is rendered by it is held to the program (held.h). A template may differ from its row
 * in a few ways that a row can say: with or without a bos token, blanks kept or trimmed, another
 * system prompt of its own, order checked or not. One that is none of them is refused: nobody could
 * say what its spans are. */
#ifndef SHEAF_INPUTS_CHAT_RECOGNISE_H
#define SHEAF_INPUTS_CHAT_RECOGNISE_H

#include "inputs/chat/chat.h"
#include "inputs/chat/stored.h"

/* sheaf__chat_template_recognise - `bos` and `eos` are the tokenizer's, or NULL. Errors:
 * SHEAF_E_UNSUPPORTED with the names that exist and what the program is nearest to, or what of it
 * cannot be run; SHEAF_E_FORMAT for what is no template; SHEAF_E_MEMORY. */
sheaf_status *sheaf__chat_template_recognise(sheaf__chat_template **out, const char *program,
                                             size_t size, const char *bos, const char *eos);
/* sheaf__chat_template_choose - the one `given` by name, else (NULL or empty) what the tokenizer
 * has stored. Errors: those of finding and recognising; SHEAF_E_ARG where neither is there. */
sheaf_status *sheaf__chat_template_choose(sheaf__chat_template **out, const char *given,
                                          const sheaf__stored_chat *stored);
/* sheaf__chat_template_settled - the one that a run's settings name, which is the tokenizer's own
 * where that is still it: held to its program, as in the run. Errors: those of
 * sheaf__chat_template_choose(). */
sheaf_status *sheaf__chat_template_settled(sheaf__chat_template **out, const char *name,
                                           const sheaf__stored_chat *stored);

#endif
