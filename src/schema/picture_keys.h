/* picture_keys.h - settings of how pictures become pixels that lie beside a model's config, by the
 * keys of transformers' image processors: what a model's program would do otherwise than is done
 * here is refused by name. Failures are kept in r->st. */
#pragma once

#include "base/json.h"
#include "schema/family.h"

/* sheaf__picture_keys - what all families do: resize bicubically, make bytes of 0 to 255 numbers of
 * 0 to 1, normalise them, three channels. Other keys of steps that a processor may have (crops,
 * padding, the sizes) are its family's. */
void sheaf__picture_keys(sheaf_json_reader *r);
/* sheaf__picture_keys_fixed - of a family whose pictures are `tower`'s size, whatever their shape
 * was: sizes and crops. */
void sheaf__picture_keys_fixed(sheaf_json_reader *r, const sheaf__tower *tower);
/* sheaf__picture_keys_scale - three numbers, or one for all; absent (or null): untouched. */
void sheaf__picture_keys_scale(sheaf_json_reader *r, const char *key, float out[3]);
/* sheaf__picture_keys_same - refuses other numbers than these. */
void sheaf__picture_keys_same(sheaf_json_reader *r, const char *key, const float wanted[3]);
/* sheaf__picture_keys_whole - refuses another whole number than the one of `where`. */
void sheaf__picture_keys_whole(sheaf_json_reader *r, const char *key, int64_t wanted,
                               const char *where);
