/* conversation.h - questions and answers about one picture, and an answer as it comes.
 *
 * Nothing is kept here between two turns but the texts and the picture's numbers: each prompt holds
 * the whole conversation anew, so its length bounds what is remembered. */
#ifndef SHEAF_INFER_CONVERSATION_H
#define SHEAF_INFER_CONVERSATION_H

#include "infer/wording.h"

typedef struct sheaf__conversation {
    const sheaf__wording *wording; /* borrowed; templated */
    sheaf__turn *turn; /* [turns] owned texts; none where the template has no place for them */
    int64_t turns;
    sheaf__picture *picture; /* with its pixels behind it; NULL without */
    int64_t pictures;        /* shown so far */
} sheaf__conversation;

/* sheaf__conversation_look - another picture; what was said is forgotten. On failure nothing
 * changes. */
sheaf_status *sheaf__conversation_look(sheaf__conversation *c, const char *path);
/* sheaf__conversation_reset - forgets what was said; the picture stays. */
void sheaf__conversation_reset(sheaf__conversation *c);
void sheaf__conversation_release(sheaf__conversation *c);

/* sheaf__conversation_ask - the prompt of a question; free() *block after its use. The picture
 * of *out is the conversation's. Errors: those of sheaf__wording_prompt(). */
sheaf_status *sheaf__conversation_ask(sheaf__prompt *out, void **block,
                                      const sheaf__conversation *c, const char *query);
/* sheaf__conversation_keep - the turn is over. */
sheaf_status *sheaf__conversation_keep(sheaf__conversation *c, const char *query,
                                       const char *answer);

/* An answer while its tokens come. All zero but `wording` at first. */
typedef struct sheaf__spoken {
    const sheaf__wording *wording;
    char *said; /* what was handed out, or NULL */
    size_t size;
} sheaf__spoken;

/* sheaf__spoken_more - *out: what the tokens so far add for certain (malloc'd, perhaps empty).
 * Blanks at the start are left out; blanks and what may be half a character at the end are held
 * back. */
sheaf_status *sheaf__spoken_more(char **out, sheaf__spoken *spoken, const int32_t *ids, int64_t n);
/* sheaf__spoken_end - *out: what is missing of the answer; where it is not what was said so far
 * (the model wrote a separator of its template), a line feed and all of it. *answer: the answer
 * (both malloc'd). */
sheaf_status *sheaf__spoken_end(char **out, char **answer, sheaf__spoken *spoken,
                                const int32_t *ids, int64_t n);
void sheaf__spoken_release(sheaf__spoken *spoken);

#endif
