/* pattern.h - which tensors a flag means, by their names.
 *
 *     *           any letters, also none; a dot is a letter too
 *     ?           one letter
 *     {46..54}    a whole number in this range; {0,2,5..7} one of these
 *     anything else stands for itself
 *
 * A number is matched whole: {1..9} is not the 1 of "layers.12". There is no way to quote:
 * the names of tensors hold none of these letters. */
#pragma once

#include "base/base.h"
#include "sheaf/status.h"

/* sheaf__pattern_check - errors: SHEAF_E_ARG for an unsound {...} and for an empty pattern. */
sheaf_status *sheaf__pattern_check(const char *pattern);
/* sheaf__pattern_match - of a checked pattern with the whole name; any_number: {...} matches
 * every number, which tells a range that a small model lacks from a wrong name. */
bool sheaf__pattern_match(const char *pattern, const char *name, bool any_number);
/* sheaf__pattern_length - letters up to the next comma outside {...}, or the end. */
size_t sheaf__pattern_length(const char *list);
