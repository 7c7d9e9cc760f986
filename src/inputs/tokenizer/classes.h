/* classes.h - private: the steps that classes of transformers build themselves. */
#pragma once

#include "beside.h"

/* What a class has instead of the file's steps, as JSON; texts are malloc'd. */
typedef struct sheaf__built {
    char *pre_tokenizer, *decoder, *model;
    const char *normalizer;
} sheaf__built;

/* sheaf__class_build - of a class that is not GENERIC, for which nothing is done.
 *   unknown  the named unknown token, or NULL */
sheaf_status *sheaf__class_build(sheaf__built *b, sheaf__tokenizer_class class,
                                 const sheaf__beside *s, const char *unknown);
void sheaf__built_release(sheaf__built *b);

/* sheaf__class_model - the type of the model that the class is made for; NULL: any. */
const char *sheaf__class_model(sheaf__tokenizer_class class);
/* sheaf__class_name - the named token, SHEAF__BOS and so on, that the class has where the folder
 * names none; NULL: none. */
const char *sheaf__class_name(sheaf__tokenizer_class class, int which);
