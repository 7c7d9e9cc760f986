/* named.h - private to this part: the named programs, and the properties of a program. */
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
    const char *file; /* that stores it; NULL: our own template */
    sheaf__jinja *program;
    char *source;
    sheaf__chat_template *with_tools; /* owned; of conversations with tools; NULL: this one */
    bool only_with_tools;             /* there is none for other conversations */
    char *end;        /* the mark at the end of an answer, SHEAF__EOS for the eos; or NULL */
    bool unsteady;    /* may change earlier messages once others follow */
    bool thinks;      /* answers may begin with a block of thoughts */
    bool divides;     /* and the template writes thoughts apart from the rest */
    bool parts;       /* reads contents that are lists of parts, and no texts: lists stay */
    bool wants_tools; /* raises without descriptions of tools */
    bool clock;       /* calls strftime_now() */
    bool takes_date;  /* date_string, any text */
    char *own_date;   /* the default of date_string; or NULL */
    char *date;       /* as set; or NULL */
    sheaf__date day;  /* the day of `date`; year 0: none */
};

/* Stand-ins for the tokens when a program is probed. */
#define SHEAF__BOS "\1"
#define SHEAF__EOS "\2"

/* sheaf__chat_run - what the program writes for `n` messages. Errors: those of
 * sheaf__jinja_render(), with the file. */
sheaf_status *sheaf__chat_run(sheaf__jinja_text *out, const sheaf__chat_template *t,
                              const sheaf__message *message, int64_t n,
                              const sheaf__chat_options *options);
/* sheaf__unless_raised - drops an exception of the program, which may refuse some conversations. */
sheaf_status *sheaf__unless_raised(sheaf_status *st);
/* sheaf__chat_answer_end - the end of an answer with its end mark: behind the program's output for
 * the same message, without trailing blanks.
 *   begin, end  of the answer's content; limit  where the next message's text begins, or the end */
size_t sheaf__chat_answer_end(const sheaf__jinja_text *text, size_t begin, size_t end,
                              size_t limit);
