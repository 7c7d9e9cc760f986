/* data_sets.h - private: several data sets as one.
 *
 * A list "a.jsonl,b.jsonl" is the rows of its files, end to end. With weights,
 * "a.jsonl:0.7,b.jsonl:0.3", an epoch still has as many samples as there are rows, of which each
 * file gives its share: order.c. */
#pragma once

#include "data/data_rows.h"

typedef struct sheaf__data_list {
    int count;
    char *path[SHEAF__MOST_SETS];
    double weight[SHEAF__MOST_SETS];
    bool weighted;
} sheaf__data_list;

/* sheaf__data_list_read - what `text` names: one path, or several. Names of files may contain
 * commas and colons: something that exists by all of a name is what it names. Release also after
 * a failure. Errors: SHEAF_E_ARG for weights that are no numbers above 0, of some files alone, or
 * where `weights` is false. */
sheaf_status *sheaf__data_list_read(sheaf__data_list *out, const char *text, bool weights);
/* sheaf__data_list_in - the same with paths from `folder`, as text with paths from here (malloc'd).
 * *there: all of it is there. Errors: those above. */
sheaf_status *sheaf__data_list_in(char **out, bool *there, const char *folder, const char *text);
void sheaf__data_list_release(sheaf__data_list *list);

/* sheaf__data_sets_join - counts the rows of data->sets. Errors: SHEAF_E_ARG for a weight that
 * gives not one sample of an epoch. */
sheaf_status *sheaf__data_sets_join(sheaf_data *data, const sheaf__data_list *list);
