/* prompts_inner.h - private to prompts.c and prompts_read.c: how one prompt is put. `expected`
 * (NULL: none) is the answer to compare with. */
#ifndef SHEAF_INFER_PROMPTS_INNER_H
#define SHEAF_INFER_PROMPTS_INNER_H

#include "infer/prompts.h"

/* sheaf__prompts_add_turns - of CogVLM's and CogAgent's templates; the last answer is expected. */
sheaf_status *sheaf__prompts_add_turns(sheaf__prompts *p, const sheaf__wording *w,
                                       const sheaf__turn *turn, int64_t turns, const char *image);
/* sheaf__prompts_add_said - a conversation; said[n - 1] is to be answered. */
sheaf_status *sheaf__prompts_add_said(sheaf__prompts *p, const sheaf__wording *w,
                                      const sheaf__message *said, int64_t n, const char *expected,
                                      const char *const *image, int64_t images);
sheaf_status *sheaf__prompts_add_text(sheaf__prompts *p, const sheaf__wording *w, const char *text,
                                      const char *expected, const char *system,
                                      const char *const *image, int64_t images);
/* sheaf__prompts_add_list, sheaf__prompts_add_ids - token ids as text, "1,2,3", or as a list. */
sheaf_status *sheaf__prompts_add_list(sheaf__prompts *p, const char *list);
sheaf_status *sheaf__prompts_add_ids(sheaf__prompts *p, const json_t *list, const char *expected);
/* sheaf__prompts_check_picture - what cannot be loaded is better known before a token is made. */
sheaf_status *sheaf__prompts_check_picture(const char *path);

#endif
