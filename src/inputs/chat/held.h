/* held.h - a conversation by a named template is held to the program that the tokenizer stores.
 *
 * recognise.h takes a program for a row where both write the same in its probes. No set of probes
 * shows all that a program may look at (a word in a message, a number of messages, a length), and
 * what differs then would be learnt, or asked with, unseen. So the program is run on each
 * conversation besides, and must write the same text. */
#ifndef SHEAF_INPUTS_CHAT_HELD_H
#define SHEAF_INPUTS_CHAT_HELD_H

#include <jansson.h>

#include "inputs/chat/chat.h"

/* sheaf__chat_variables - what transformers hands to a program; NULL without memory. It has the
 * tokenizer's other named tokens too, which no named template writes: a program that does is none
 * of them. `date_string` may be NULL. To be released. */
json_t *sheaf__chat_variables(const sheaf__message *message, int64_t n,
                              const sheaf__chat_options *options, const char *date_string);

/* sheaf__chat_hold - does t->program write the text of `r`, which t's row wrote? Errors, with the
 * file that has the program: SHEAF_E_DATA with the first byte that differs and what both write
 * there, or with what the program raises; SHEAF_E_UNSUPPORTED beyond the bounds of jinja.h;
 * SHEAF_E_MEMORY. Thread-safe. */
sheaf_status *sheaf__chat_hold(const sheaf__rendered *r, const sheaf__chat_template *t,
                               const sheaf__message *message, int64_t n,
                               const sheaf__chat_options *options);

#endif
