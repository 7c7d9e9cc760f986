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
 * for a '#' that the rule has on that side alone. false: no rule holds, or the name is too long;
 * then *out is the name, cut to fit. */
bool sheaf__respell(char out[SHEAF__SPELLED], const sheaf__name_rule *rules, bool back,
                    const char *name, int64_t number);
