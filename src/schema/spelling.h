/* spelling.h - names of one model's tensors in the files of two programs.
 *
 * A rule has the beginning of a name in each: "transformer.layers.#.cross_attention." and
 * "model.layers.#.cross_attn."; what follows is the same in both, and '#', at most one a side,
 * stands for a number. In each direction the first rule that holds counts, so several names may
 * have one spelling there: a table that one program stores with each layer, and the other once. */
#pragma once

#include "base/base.h"

typedef struct sheaf__name_rule {
    const char *one, *other; /* NULL: the end of a list */
} sheaf__name_rule;

enum { SHEAF__SPELLED = 256 };

/* sheaf__respell - `name` as `other` spells it, or (back) from there as `one` does; `number` stands
 * for a '#' that the rule has on that side alone. Returns the rule; NULL: none holds, or the name
 * is too long; then *out is the name, cut to fit. */
const sheaf__name_rule *sheaf__respell(char out[SHEAF__SPELLED], const sheaf__name_rule *rules,
                                       bool back, const char *name, int64_t number);

/* ---- files of one model with several namings: `one` is a file's, `other` the model's ---- */

/* sheaf__respell_as - a name of the model as files have it that were read by the rules of the mask
 * `read` (bit i: rule i); where none of these holds, by the last one that does, as published.
 * Returns the rule; NULL: as sheaf__respell(). */
const sheaf__name_rule *sheaf__respell_as(char out[SHEAF__SPELLED], const sheaf__name_rule *rules,
                                          unsigned read, const char *name);
/* sheaf__is_published - does no later rule hold for its beginning of the model's names? */
bool sheaf__is_published(const sheaf__name_rule *rule);
