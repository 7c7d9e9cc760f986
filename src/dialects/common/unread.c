/* unread.c - what a PyTorch file holds and sheaf does not read; see dialects.h. */
#include "dialects/common/dialects.h"

sheaf_status *sheaf__dialect_unread(bool *told, sheaf_catalog *c, const char *path,
                                    const char *name, const sheaf_pickle *value)
{
    char buffer[SHEAF_PICKLE_UNREAD_MOST];
    const char *is = sheaf__pickle_unread(value, buffer, &c->looks);
    if (told != NULL)
        *told = is != NULL;
    return is == NULL
               ? NULL
               : sheaf__catalog_note(
                     c, SHEAF_DEFECT, "unread", path, name,
                     "a dense tensor of a dtype that sheaf reads", is,
                     "make it one in Python and save again, or leave it out: sheaf convert {} {+rest} --to hf --drop-unread{config}");
}
