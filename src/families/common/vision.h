/* vision.h - what readers of configs share: their keys, and what OmniLMM and MiniCPM-V say alike of
 * their tower and resampler, and what there is to try where a file does not fit them. */
#pragma once

#include "schema/config_keys.h"
#include "schema/family.h"

/* sheaf__vit_tower - the tower of config.vit, whose rows stand in the sequence; a family changes
 * what differs. class_rows: before the patches of an image. */
static inline sheaf__tower sheaf__vit_tower(const sheaf_config *c, int64_t class_rows,
                                            int64_t gives)
{
    return (sheaf__tower){ .channels = c->vit.channels,
                           .height = c->vit.height,
                           .width = c->vit.width,
                           .patch = c->vit.patch,
                           .patches = c->patches,
                           .rows = c->patches + class_rows,
                           .gives = gives,
                           .columns = c->hidden };
}

/* sheaf__resampler_config - config.resampler, after config.hidden; `queries` is the key of their
 * number. square: why that is a square number; NULL: it need not be. */
void sheaf__resampler_config(sheaf_json_reader *r, sheaf_config *c, const char *queries,
                             const char *square);
/* sheaf__tower_is_named - is `key` the name of timm's tower `name`, with anything behind it? Else a
 * failure that expects `expected`. */
bool sheaf__tower_is_named(sheaf_json_reader *r, const char *key, const char *name,
                           const char *expected);
/* sheaf__config_keys - the keys of an object: of an `unsupported` one (or NULL) the value has to be
 * neutral; what is neither `read` nor `harmless` (words of a list) is added to a list with commas.
 */
void sheaf__config_keys(sheaf_json_reader *r, const char *read, const char *harmless,
                        const sheaf_unsupported_key *unsupported, sheaf_text *unknown);
/* sheaf__config_leave - hands the first failure inside an object to the reader of the whole. */
void sheaf__config_leave(sheaf_json_reader *all, const sheaf_json_reader *inner);
