/* minicpmv.h - MiniCPM-V 2.0, 2.5 and 2.6: a SigLIP tower, a resampler, a decoder of Llama's kin.
 *
 *        tower                                 resampler's keys     decoder
 *   2.0  timm's, positions resized             sines of each grid   Llama with MiniCPM's constants
 *   2.5  NaViT, positions along one row        part of a table      Llama
 *   2.6  NaViT, positions by buckets           part of a table      Qwen2 */
#pragma once

#include "families/common/families.h"

#define SHEAF__MINICPMV_NAME "minicpmv"
#define SHEAF__MINICPMV_CLASS "MiniCPMV"
#define SHEAF__MINICPMV_LLM "llm."
#define SHEAF__MINICPMV_TOWER "vpm."
#define SHEAF__MINICPMV_RESAMPLER "resampler."

bool sheaf__minicpmv_claims(const json_t *object);
void sheaf__minicpmv_config(sheaf_json_reader *r, sheaf_config *c, sheaf_text *unknown);
extern const char sheaf__minicpmv_keys[]; /* of a config, beside its text model's */
void sheaf__minicpmv_text(sheaf_text *text, const sheaf_config *c);
/* sheaf__minicpmv_title - "MiniCPM-V 2.6" */
const char *sheaf__minicpmv_title(sheaf_minicpmv version);

/* In conversations, and in slices (pictures.c). */
void sheaf__minicpmv_disagree(sheaf_text *out, const sheaf_config *c, const json_t *beside);
void sheaf__minicpmv_check_slices(sheaf_json_reader *r, const sheaf_config *c);
void sheaf__minicpmv_pictures(sheaf__picture_form *out, const sheaf_config *c);
