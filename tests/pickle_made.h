/* pickle_made.h - values of pickles that no file of ours has: numbers, texts, lists. As those of
 * formats/pickle.h, each accepts NULL, which a failed allocation gave. */
#pragma once

#include <string.h>

#include "formats/pickle_inner.h"

static inline sheaf_pickle *sheaf__pickle_make_none(sheaf_pickle_doc *doc)
{
    return sheaf__pickle_make(doc, SHEAF_PICKLE_NONE);
}

static inline sheaf_pickle *sheaf__pickle_make_number(sheaf_pickle_doc *doc, sheaf_pickle_kind kind,
                                                      int64_t number)
{
    sheaf_pickle *value = sheaf__pickle_make(doc, kind);
    if (value != NULL)
        value->as.number = number;
    return value;
}

static inline sheaf_pickle *sheaf__pickle_make_bool(sheaf_pickle_doc *doc, bool truth)
{
    return sheaf__pickle_make_number(doc, SHEAF_PICKLE_BOOL, truth);
}

static inline sheaf_pickle *sheaf__pickle_make_int(sheaf_pickle_doc *doc, int64_t number)
{
    return sheaf__pickle_make_number(doc, SHEAF_PICKLE_INT, number);
}

static inline sheaf_pickle *sheaf__pickle_make_float(sheaf_pickle_doc *doc, double real)
{
    sheaf_pickle *value = sheaf__pickle_make(doc, SHEAF_PICKLE_FLOAT);
    if (value != NULL)
        value->as.real = real;
    return value;
}

static inline sheaf_pickle *sheaf__pickle_make_string(sheaf_pickle_doc *doc, const char *text)
{
    sheaf_pickle *value = sheaf__pickle_make(doc, SHEAF_PICKLE_STRING);
    return value != NULL && sheaf__pickle_copy(&value->as.text, doc, text, strlen(text)) ? value
                                                                                         : NULL;
}

static inline void sheaf__pickle_append(sheaf_pickle_doc *doc, sheaf_pickle *list,
                                        sheaf_pickle *item)
{
    if (list != NULL && item != NULL)
        sheaf__pickle_push(doc, list, item, NULL);
}
