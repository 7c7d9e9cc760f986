/* options.h - how structs of options and reports grow without breaking programs.
 *
 * Each begins with its size, as the program that fills it was compiled:
 *
 *     sheaf_weights_verify_options how;
 *     SHEAF_INIT(&how);
 *     how.quick = true;
 *
 * Zero, or NULL, means the default of a field unless its comment says otherwise. Later versions add
 * fields at the end: a library reads no more than the program knows, and refuses (SHEAF_E_ARG) what
 * a program asks of it by a field that it does not know itself. Where a function takes options,
 * NULL means all defaults; where it fills a report, NULL means that none is wanted. */
#pragma once

#include <stddef.h>
#include <string.h>

/* SHEAF_INIT - zeroes *struct_pointer and sets its size. A macro, because sizeof must be the
 * program's own. */
#define SHEAF_INIT(struct_pointer)                                                                 \
    ((void)memset((struct_pointer), 0, sizeof *(struct_pointer)),                                  \
     (void)((struct_pointer)->size = sizeof *(struct_pointer)))

/* ---- choices that several options have; 0: the run's, else the first of each ---- */

/* The labels of a text: all answers of a conversation and the completion of a prompt (the default),
 * of a conversation only the last answer, everything, or everything from the first answer on,
 * template and later questions included, as TRL learns preferences. */
typedef enum sheaf_loss_on {
    SHEAF_LOSS_UNNAMED,
    SHEAF_LOSS_ANSWERS,
    SHEAF_LOSS_LAST,
    SHEAF_LOSS_ALL,
    SHEAF_LOSS_BEHIND
} sheaf_loss_on;
/* Treatment of a text that is longer than a row may be. The default is an error. */
typedef enum sheaf_on_long {
    SHEAF_LONG_UNNAMED,
    SHEAF_LONG_ERROR,
    SHEAF_LONG_CUT, /* its end is cut off; left out when no answer is left */
    SHEAF_LONG_SKIP /* it is left out */
} sheaf_on_long;

/* Treatment of records that cannot be used. */
typedef enum sheaf_on_bad {
    SHEAF_BAD_ERROR,
    SHEAF_BAD_SKIP /* they are left out, counted, and the first named; not if all are bad */
} sheaf_on_bad;

/* The order of sums of 16-bit products (docs/contract.md, section 1.1); 0: the run's, else what
 * this machine computes faster. MMA8 and MMA16 are for float16 too, and slow without tensor cores.
 */
typedef enum sheaf_sums {
    SHEAF_SUMS_UNNAMED,
    SHEAF_SUMS_PAIRS,
    SHEAF_SUMS_TILES,
    SHEAF_SUMS_MMA8,
    SHEAF_SUMS_MMA16,
    /* pairs or tiles, but codes of 4 bits in groups: what generates text, no options */
    SHEAF_SUMS_GROUPS,
    SHEAF_SUMS_TILES_GROUPS
} sheaf_sums;

/* How frozen weights of a plain base are quantised, by bitsandbytes' formats: 4 bits in blocks of
 * 64, with scales in float32 or (DOUBLE) in 8 bits, or 8 bits with a scale for a row; 0: they are
 * not. */
typedef enum sheaf_quantize {
    SHEAF_QUANTIZE_NONE,
    SHEAF_QUANTIZE_NF4,
    SHEAF_QUANTIZE_NF4_DOUBLE,
    SHEAF_QUANTIZE_INT8,
    SHEAF_QUANTIZE_GPTQ_4, /* of files alone: sheaf_weights_convert() to "hf" */
    SHEAF_QUANTIZE_GPTQ_8,
    SHEAF_QUANTIZE_AWQ_4,
    SHEAF_QUANTIZE_Q8_0, /* ggml's, of files alone: sheaf_weights_convert() to "gguf" */
    SHEAF_QUANTIZE_Q4_K_M,
    SHEAF_QUANTIZE_Q5_K_M,
    SHEAF_QUANTIZE_Q6_K
} sheaf_quantize;
