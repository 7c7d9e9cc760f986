/* wrappers.h - the words that wrappers of modules leave in the names of tensors. */
#pragma once

#include <stddef.h>

/* sheaf__unwrap - takes them out of a name, or of a path of modules, in place: those of
 * torch.compile, FSDP and activation checkpointing wherever they stand, DataParallel's "module"
 * where it wraps the whole model. Returns the word that was found first, borrowed; NULL: none. */
const char *sheaf__unwrap(char *name);
