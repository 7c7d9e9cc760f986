/* write.h - a SAT checkpoint of CogVLM or CogAgent, divided over any number of parts that its heads
 * allow. */
#pragma once

#include "schema/schema.h"
#include "sheaf/source.h"

#define SHEAF_SAT_MOST_WAYS 16

typedef struct sheaf_sat_write_options {
    const char *config; /* text of the model's config; kept except for model_type, which is not
                           SAT's, the sizes of parallelism, and keys of LoRA */
    int ways;           /* parts, 1 .. SHEAF_SAT_MOST_WAYS; 0 = 1 */
    /* 0: no factors, use_lora becomes false. Else every layer X whose X.matrix_A.0 the source has
     * is written with X.matrix_A.p [rank, in] and X.matrix_B.p [out / parts, rank] of all its parts
     * p, its weight as X.original.weight; use_lora becomes true, and the class one with LoRA */
    int64_t lora_rank;
    int64_t step; /* names the folder; less than 1: 1, as SAT's own merge does */
    bool replace; /* see sheaf__output_begin() */
} sheaf_sat_write_options;

typedef struct sheaf_sat_writer sheaf_sat_writer;

/* sheaf_sat_begin - dst/latest, dst/model_config.json, dst/STEP/mp_rank_NN_model_states.pt,
 * complete or not at all. The source must have all tensors of the model, the factors for lora_rank,
 * and no others; takes their dtypes, reads no values. Errors: SHEAF_E_ARG for a number of parts
 * that does not divide heads, MLPs or vocabulary, with those that do; SHEAF_E_LAYOUT for tensors
 * that are not the model's; SHEAF_E_UNSUPPORTED for other models. */
sheaf_status *sheaf_sat_begin(sheaf_sat_writer **out, const char *dst, sheaf_source *source,
                              const sheaf_sat_write_options *options);
/* sheaf_sat_count, _name - the tensors to write, by their names in the source, in the order of
 * SAT's files. */
int64_t sheaf_sat_count(const sheaf_sat_writer *writer);
const char *sheaf_sat_name(const sheaf_sat_writer *writer, int64_t index);
/* sheaf_sat_put - writes a box of tensor `index` as sheaf_source.read() returns it. Thread-safe for
 * boxes that do not overlap. */
sheaf_status *sheaf_sat_put(sheaf_sat_writer *writer, int64_t index, int64_t row0, int64_t rows,
                            int64_t col0, int64_t cols, const void *src);
/* sheaf_sat_finish - completes and syncs all files in the temporary folder sheaf_sat_dir(), where
 * they can be read. Only sheaf_sat_commit(), which calls it if necessary, or _abandon() may follow.
 * Errors: SHEAF_E_LAYOUT when a tensor did not get all of its bytes. */
sheaf_status *sheaf_sat_finish(sheaf_sat_writer *writer);
const char *sheaf_sat_dir(const sheaf_sat_writer *writer);
/* sheaf_sat_commit - frees in any case. Errors: SHEAF_E_LAYOUT when a tensor did not get all of its
 * bytes. On failure nothing is left. */
sheaf_status *sheaf_sat_commit(sheaf_sat_writer *writer);
void sheaf_sat_abandon(sheaf_sat_writer *writer); /* accepts NULL */
