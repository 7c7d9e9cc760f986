/* qwenvl.h - Qwen2.5-VL and Qwen3-VL: a tower that sees pictures of any size, joins their patches
 * in squares, and gives a row for each square to a decoder that is Qwen2's or Qwen3's with
 * positions of three axes.
 *
 *         tower                                        joining                  decoder
 *   2.5   RMSNorm, gated MLP, windows in most blocks   norm, join, two layers   Qwen2
 *   3     LayerNorm, MLP, learned positions            norm, join, two layers   Qwen3
 *
 * Behind some of the blocks of 3 stands join, norm, two layers too (deepstack); what those give is
 * added behind the first layers of its decoder. */
#pragma once

#include "families/llama/llama.h"
#include "models/model.h"

#define SHEAF__QWENVL_TEXT "model.language_model."
#define SHEAF__QWENVL_TOWER "model.visual."

static inline bool sheaf__qwenvl_is_third(const sheaf_config *c)
{
    return c->family == SHEAF_QWEN3_VL;
}

/* config.c */
bool sheaf__qwen2_5_vl_claims(const json_t *object);
bool sheaf__qwen3_vl_claims(const json_t *object);
void sheaf__qwenvl_config(sheaf_json_reader *r, sheaf_config *c, sheaf_text *unknown);
void sheaf__qwenvl_text(sheaf_text *text, const sheaf_config *c);
extern const char sheaf__qwenvl_keys[]; /* of the whole, beside the text model's */

/* pictures.c */
void sheaf__qwenvl_pictures(sheaf__picture_form *out, const sheaf_config *c);
void sheaf__qwenvl_beside(sheaf_json_reader *r, sheaf_config *c);
void sheaf__qwenvl_videos_beside(sheaf_json_reader *r, sheaf_config *c);

/* tower.c */
sheaf_status *sheaf__qwenvl_rows(sheaf_schema *schema);
sheaf_status *sheaf__qwenvl_build(sheaf__model *m);
sheaf__value *sheaf__qwenvl_encode(sheaf__model *m, sheaf__tape *tape, const sheaf__pass *pass,
                                   int tower);
void sheaf__qwenvl_place(sheaf__model *m, sheaf__tape *tape, sheaf__value *x, sheaf__value *image,
                         const sheaf__pass *pass);
