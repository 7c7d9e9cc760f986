/* worker.h - a conversation whose ranks are processes. The first has it: the input, the files, the
 * picture and what was said. It tells the others each prompt as tokens, and they answer it with the
 * first; nothing else of it is theirs, so that hosts need not see the same pictures and files.
 *
 * Each call of the first meets sheaf__worker_run() in all others. With one process nothing here
 * does anything. */
#pragma once

#include "library/model.h"

/* The processes, and what the others were told of pictures; zero at first, but for `all`. */
typedef struct sheaf__leader {
    sheaf_comm *all;         /* the processes that talk; NULL: this one is alone */
    int64_t look;            /* the newest that they have; 0: none */
    sheaf__picture *picture; /* of those that follow; owned */
} sheaf__leader;

void sheaf__leader_release(sheaf__leader *leader);

/* Of the first process:
 * sheaf__leader_ask - all answer this prompt, the `number`-th of the conversation, from now on:
 * sheaf__model_answer() and an agreement follow. */
sheaf_status *sheaf__leader_ask(sheaf__leader *leader, const sheaf_config *config,
                                const sheaf__prompt *prompt, int64_t number);
/* sheaf__leader_wait - nothing is asked for now. *over: another process was asked to end. Now and
 * then, so that one that is gone is noticed. */
sheaf_status *sheaf__leader_wait(sheaf_comm *all, bool *over);
/* sheaf__leader_end - the conversation is over, with `st`, consumed; the same in all. */
sheaf_status *sheaf__leader_end(sheaf_comm *all, sheaf_status *st);

/* sheaf__worker_run - of the others: answers what the first asks until it ends.
 *   asking  as the first's; stop_now: not 0 when this process is asked to end
 * Returns what the first ended with; SHEAF_E_PEER where it is gone. */
sheaf_status *sheaf__worker_run(sheaf_model *model, const sheaf__asking *asking);
