/* model.h - a model as llama.cpp has it in a GGUF file: names and types of its tensors, and keys.
 *
 * Follows llama.cpp's own script for Hugging Face's folders, and of its program for quantisation
 * the rules of Q4_K_M, Q5_K_M and Q6_K. What belongs to a family is in its descriptor
 * (schema/gguf_form.h). */
#pragma once

#include "base/events.h"
#include "formats/gguf_write.h"
#include "schema/family.h"
#include "schema/gguf_form.h"

/* ---- names ---- */

/* sheaf__gguf_name - of Hugging Face's `name`; of an expert's tensor that of the tensor of all of
 * them, and *expert, its number, else -1. false: it has none. */
bool sheaf__gguf_name(char out[SHEAF__SPELLED], int64_t *expert, const sheaf__gguf_form *form,
                      const char *name);
/* sheaf__gguf_name_back - Hugging Face's for GGUF's `name`: of a tensor of all experts that of this
 * one (at least 0), else `expert` is -1. false: it has none. */
bool sheaf__gguf_name_back(char out[SHEAF__SPELLED], const sheaf__gguf_form *form, const char *name,
                           int64_t expert);

/* ---- types ---- */

/* general.file_type */
typedef enum sheaf__gguf_file {
    SHEAF__GGUF_FILE_F32 = 0,
    SHEAF__GGUF_FILE_F16 = 1,
    SHEAF__GGUF_FILE_Q8_0 = 7,
    SHEAF__GGUF_FILE_Q4_K_M = 15,
    SHEAF__GGUF_FILE_Q5_K_M = 17,
    SHEAF__GGUF_FILE_Q6_K = 18,
    SHEAF__GGUF_FILE_BF16 = 32,
} sheaf__gguf_file;

/* sheaf__gguf_type_for - of tensor `name` (GGUF's) with so many axes and columns. `head`: the model
 * has a head of its own. */
sheaf__gguf_type sheaf__gguf_type_for(sheaf__gguf_file file, const char *name, int ndim,
                                      int64_t columns, const sheaf_config *config, bool head);

/* ---- keys ---- */

/* sheaf__gguf_can - errors: SHEAF_E_UNSUPPORTED where llama.cpp's architecture of this name
 * computes something else than the config says, or there is none. What it leaves out, and loses
 * little by, is a warning. */
sheaf_status *sheaf__gguf_can(const sheaf_config *config, const sheaf_events *events);

/* sheaf__gguf_query_scalar - query_pre_attn_scalar of Gemma 2 and 3 as llama.cpp has it, which
 * knows their largest models by the number of layers: those have a scale of their own. */
double sheaf__gguf_query_scalar(const sheaf_config *config);

/* sheaf__gguf_model_keys - what a config says. `name`: general.name. */
void sheaf__gguf_model_keys(sheaf__gguf_keys *keys, const sheaf_config *config, const char *name,
                            sheaf__gguf_file file);
/* sheaf__gguf_tokenizer_keys - tokenizer and chat template of a folder; a folder without a
 * tokenizer is a warning. Errors: those of reading them; SHEAF_E_LAYOUT for more tokens than the
 * model has; SHEAF_E_UNSUPPORTED for one that llama.cpp does not know. */
sheaf_status *sheaf__gguf_tokenizer_keys(sheaf__gguf_keys *keys, const sheaf_config *config,
                                         const char *folder, const sheaf_events *events);

/* sheaf__gguf_rope_factors - by which the angles of its pairs of turning elements are divided, in
 * tensors of their own; `out` has space for SHEAF_MAX_ROPE_PAIRS, of head_dim / 2 at most. `which`:
 * 0 rope_freqs, 1 rope_factors_long, 2 rope_factors_short. Returns how many; 0: there is no such
 * tensor. */
int64_t sheaf__gguf_rope_factors(float *out, const char **name, const sheaf_config *config,
                                 int which);

/* ---- the tower and its resampler, in a file of their own ---- */

enum { SHEAF__GGUF_GRID = 70 }; /* rows and columns of its table of positions */

/* sheaf__gguf_can_project - errors: SHEAF_E_UNSUPPORTED where llama.cpp has another tower, or none,
 * than the config says. What it loses little by is a warning. */
sheaf_status *sheaf__gguf_can_project(const sheaf_config *config, const sheaf_events *events);

/* sheaf__gguf_projector_keys - what a config says of the tower. */
void sheaf__gguf_projector_keys(sheaf__gguf_keys *keys, const sheaf_config *config,
                                sheaf__gguf_file file);
/* sheaf__gguf_projector_type - of a tensor `name` with so many axes. */
sheaf__gguf_type sheaf__gguf_projector_type(sheaf__gguf_file file, const char *name, int ndim);

/* ---- Ollama ---- */

/* sheaf__gguf_modelfile - the text (malloc'd) of a Modelfile beside `file`: how answers are drawn
 * and end, as the files in `folder` say. Ollama takes the chat template from the GGUF file. */
sheaf_status *sheaf__gguf_modelfile(char **out, const char *file, const sheaf_config *config,
                                    const char *folder);
