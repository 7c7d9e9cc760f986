/* tied.h - names of one tensor, which a merge may make several: which they are in this base, what
 * an adapter makes of each, and whether all come out alike; between plan.c and merge.c. */
#pragma once

#include "checkpoint/merge/plan.h"

/* sheaf__merge_find_ties - by what the config says of the base's tensors; names that the files lack
 * join the tensors. config NULL: nothing is known. Errors: SHEAF_E_LAYOUT where two names hold
 * different values and the config says that they are one. */
sheaf_status *sheaf__merge_find_ties(sheaf__merge_plan *plan, const json_t *config);
/* sheaf__merge_settle_ties - after an adapter was matched: what it does to names that it does not
 * name. */
sheaf_status *sheaf__merge_settle_ties(sheaf__merge_plan *plan, const sheaf__merge_adapter *adapter,
                                       int number);
/* sheaf__merge_check_tables - after all were: a vocabulary of another size is that of every table,
 * and of a base whose ties are not known no table is changed. */
sheaf_status *sheaf__merge_check_tables(sheaf__merge_plan *plan);
/* sheaf__merge_drop_names - all come out alike: each tensor is written once, the tie stays. */
void sheaf__merge_drop_names(sheaf__merge_plan *plan);
/* sheaf__merge_untie - the text of the config of what is written with every name. */
sheaf_status *sheaf__merge_untie(char **out, const char *json, const sheaf__merge_plan *plan);
/* sheaf__merge_set_vocabulary - its size, where the config has it: at the top or in text_config. */
sheaf_status *sheaf__merge_set_vocabulary(char **out, const char *json,
                                          const sheaf__merge_plan *plan);
/* sheaf__merge_is_other - is it a name other than the first of its tensor? */
bool sheaf__merge_is_other(const sheaf__merge_plan *plan, const sheaf__merge_tensor *tensor);
