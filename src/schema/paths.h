/* paths.h - paths of modules: a set of them as a regular expression, and what wrappers leave in
 * them. */
#pragma once

#include "base/base.h"

/* sheaf__paths_pattern - adds to `text` what matches these paths from end to end and no others.
 * Paths that differ in their first number alone are one alternative,
 * "transformer\.layers\.(0|1|2)\.attention\.dense". Each path is a list entry's whole meaning then:
 * PEFT takes a plain name for the end of any path. */
void sheaf__paths_pattern(sheaf_text *text, const char *const *paths, int64_t n);

/* sheaf__numbered_name - the pattern with the number in place of its '#', if it has one; returns
 * `out`. */
const char *sheaf__numbered_name(char *out, size_t size, const char *pattern, int64_t number);

/* sheaf__unwrap - takes them out of a name, or of a path of modules, in place: those of
 * torch.compile, FSDP and activation checkpointing wherever they stand, DataParallel's "module"
 * where it wraps the whole model. Returns the word that was found first, borrowed; NULL: none. */
const char *sheaf__unwrap(char *name);
