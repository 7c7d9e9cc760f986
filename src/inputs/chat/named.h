/* named.h - private to this part: the named programs, and what is known of a program. */
#pragma once

#include "inputs/chat/chat.h"
#include "inputs/chat/date.h"
#include "inputs/chat/jinja.h"

typedef struct sheaf__named_program {
    const char *name, *text; /* of templates/NAME.jinja */
} sheaf__named_program;
extern const sheaf__named_program sheaf__named_programs[];
extern const int sheaf__named_count;
extern const char sheaf__named_names[]; /* "llama2, ... or plain" */

struct sheaf__chat_template {
    const char *name;
    const char *file; /* that stores it; NULL: one of ours */
    sheaf__jinja *program;
    char *source;
    char *end;       /* the mark that ends an answer, SHEAF__EOS for the eos; or NULL */
    bool unsteady;   /* it may write earlier messages otherwise once others follow */
    bool thinks;     /* answers may begin with a block of thoughts */
    bool divides;    /* and thoughts are written apart from the rest */
    bool clock;      /* it asks for today: strftime_now() */
    bool takes_date; /* date_string, any text */
    char *own_date;  /* that it writes where date_string is not given; or NULL */
    char *date;      /* that was given; or NULL */
    sheaf__date day; /* that `date` was written of; year 0: none */
};

/* What stands for the tokens when a program is looked at. */
#define SHEAF__BOS "\1"
#define SHEAF__EOS "\2"

/* sheaf__chat_run - what the program writes for `n` messages. Errors: those of
 * sheaf__jinja_render(), with the file. */
sheaf_status *sheaf__chat_run(sheaf__jinja_text *out, const sheaf__chat_template *t,
                              const sheaf__message *message, int64_t n,
                              const sheaf__chat_options *options);
/* sheaf__unless_raised - what the program raises is no failure, as it may for some conversations.
 */
sheaf_status *sheaf__unless_raised(sheaf_status *st);
/* sheaf__chat_answer_end - where what ends an answer ends: behind what the program writes for the
 * same message, blanks apart.
 *   begin, end  of what the answer says; limit  where the next message's text begins, or the end */
size_t sheaf__chat_answer_end(const sheaf__jinja_text *text, size_t begin, size_t end,
                              size_t limit);
