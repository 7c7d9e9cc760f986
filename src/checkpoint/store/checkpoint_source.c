/* checkpoint_source.c - a training checkpoint's undivided tensors, from its slice files. */
#include "checkpoint/store/look.h"
#include "checkpoint/store/own_catalog.h"

sheaf_status *sheaf__checkpoint_source(sheaf_source **out, sheaf_checkpoint *checkpoint)
{
    sheaf_catalog *catalog = NULL;
    sheaf_status *st = sheaf__own_catalog(&catalog, sheaf_checkpoint_dir(checkpoint), true);
    return st != NULL ? st : sheaf__catalog_source(out, catalog, true);
}
