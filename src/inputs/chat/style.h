/* style.h - what a chat template is made of: one row for each published template.
 *
 * A text is: head, then for each message an opening, its content and a closing, then the generation
 * prompt or the tail. In these texts SHEAF__BOS and SHEAF__EOS stand for the tokenizer's tokens,
 * SHEAF__DATE for the date and SHEAF__MODE for /think or /no_think. */
#ifndef SHEAF_INPUTS_CHAT_STYLE_H
#define SHEAF_INPUTS_CHAT_STYLE_H

#include <stdbool.h>

#include "inputs/chat/chat.h"
#include "inputs/chat/date.h"
#include "inputs/chat/jinja.h"

#define SHEAF__BOS "\1"
#define SHEAF__EOS "\2"
#define SHEAF__DATE "\4"
#define SHEAF__MODE "\5"

/* Where a system message goes that begins the conversation. */
typedef enum sheaf__system_place {
    SHEAF__SYSTEM_HEAD,       /* in front of the turns */
    SHEAF__SYSTEM_FIRST_USER, /* inside the first user's turn, before the content */
    SHEAF__SYSTEM_LAST_USER,  /* inside the last message if that is a user's, else nowhere */
    SHEAF__SYSTEM_REFUSED,
} sheaf__system_place;

/* What happens to a system message elsewhere. */
typedef enum sheaf__later_system {
    SHEAF__LATER_TURN, /* a turn of its own: later_open, later_close */
    SHEAF__LATER_LEFT_OUT,
    SHEAF__LATER_REFUSED,
} sheaf__later_system;

enum {
    SHEAF__TRIM_SYSTEM = 1, /* the bits of trimming are the lowest: recognise.c goes over them */
    SHEAF__TRIM_USER = 2,
    SHEAF__TRIM_ANSWER = 4,
    SHEAF__TRIM_LATER = 8,     /* system messages that do not begin the conversation */
    SHEAF__TRIM_TOGETHER = 16, /* FIRST_USER: blanks around system message and content together */
    SHEAF__ALTERNATE = 32,     /* user, assistant, user, ... after the first system message */
    SHEAF__THINK = 64,         /* Qwen3's <think> blocks */
    SHEAF__NEEDS_BOS = 128,    /* the published one fails without a bos token */
    SHEAF__SKIP_EMPTY_SYSTEM = 256,  /* an empty system message is not written */
    SHEAF__SYSTEM_NEEDS_TURN = 1024, /* HEAD: not written where no turn follows */
    SHEAF__ALWAYS_PROMPT = 512,      /* the generation prompt even where none is asked for */
    SHEAF__MODES = 2048, /* SmolLM3: /think, /no_think and /system_override in the system message */
    SHEAF__THINK_EACH = 8192, /* an answer without a <think> block has an empty one in front */
    SHEAF__DATE_TEXT = 4096,  /* the published one takes any text as the date (date_string) */
};

typedef struct sheaf__style {
    const char *name;
    const char *stored; /* "NAME-stored": the row as a stored program varies it */
    const char *head;
    sheaf__system_place place;
    const char *system_open, *system_close;
    const char *system; /* where the conversation has none; NULL: nothing then */
    sheaf__later_system later;
    const char *later_open, *later_close;
    const char *user_open, *user_close;
    /* An answer: answer_open, then what is learnt (answer_lead, content, answer_end), answer_close.
     */
    const char *answer_open, *answer_lead, *answer_end, *answer_close;
    const char *last_end;    /* answer_end where the answer is the last message; NULL: the same */
    const char *last_close;  /* answer_close there; NULL: the same */
    const char *prompt;      /* the generation prompt */
    const char *tail;        /* at the end where no prompt is; NULL: nothing */
    const char *date_format; /* as strftime() takes it; NULL: the template writes no date */
    const char *date;        /* the template's own, where none is given; NULL: it has none */
    /* MODES, without thoughts: what follows the generation prompt of the other mode, and `system`
     */
    const char *quiet_prompt, *quiet_system;
    unsigned flags;
} sheaf__style;

extern const sheaf__style sheaf__styles[];
extern const int sheaf__style_count;

struct sheaf__chat_template {
    sheaf__style style;
    char *system;    /* owned text behind style.system, or NULL */
    char *date;      /* owned text that was given, or NULL */
    sheaf__date day; /* that `date` was written of; year 0: none */
    /* held.h: of a stored template, the program that each conversation is held to, owned, and the
     * file that has it; NULL: none */
    sheaf__jinja *program;
    const char *file;
};

/* sheaf__chat_template_new - of a style, `system` in place of its own unless NULL (copied). */
sheaf_status *sheaf__chat_template_new(sheaf__chat_template **out, const sheaf__style *style,
                                       const char *system);

#endif
