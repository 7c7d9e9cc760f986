/* stacked.h - LoRA on the parameters in which transformers 5 holds the matrices of all experts of a
 * layer, as PEFT saves it, and on those that it holds under other names than files have.
 *
 * For a parameter [members, rows, columns] and a rank r a file has A [members * r, columns], the
 * members' own behind each other, and B [rows, r * members], in which column k * members + e is
 * column k of member e's. The tensors of a schema are matrices of single members, or parts of their
 * rows (gate above up), and each has a module of its own here, with B of its rows; the parts of a
 * member share A. Up to 0.19.0 PEFT took in and out of the parameter the other way round: A is
 * [members * r, rows] and B [columns, r * members], each what the other is now, transposed. The
 * factors of several parameters of one PEFT module, "experts", lie behind
 * "base_layer." for each that comes after. */
#pragma once

#include "lora/adapter.h"

/* sheaf__lora_stack_name - A (which 'A') or B in the file, of the stack that the module is of;
 * malloc'd. NULL: no memory. */
char *sheaf__lora_stack_name(const sheaf_lora *lora, const sheaf_lora_module *module, char which);
/* sheaf__lora_stack_first - the first module of the same stack. */
const sheaf_lora_module *sheaf__lora_stack_first(const sheaf_lora *lora,
                                                 const sheaf_lora_module *module);
/* sheaf__lora_stack_next - the next module of its stack, NULL behind the last. */
const sheaf_lora_module *sheaf__lora_stack_next(const sheaf_lora *lora,
                                                const sheaf_lora_module *module);
/* Bits: which axis of the parameter, behind that of members, PEFT takes for in. */
typedef enum sheaf__lora_order {
    SHEAF__LORA_NEITHER,
    SHEAF__LORA_IN_FIRST,
    SHEAF__LORA_OUT_FIRST,
    SHEAF__LORA_EITHER
} sheaf__lora_order;

/* sheaf__lora_order_of - by the version (tuners/lora/layer.py, ParamWrapper): in first up to
 * 0.19.0, either where it is none, or one on the way to 0.19.1. */
sheaf__lora_order sheaf__lora_order_of(const char *version);
/* sheaf__lora_unstack - for an adapter as it is stored: a source that owns it, in which modules of
 * stacks have factors of their own, by `tensors` every module an A too that is named as its B is,
 * and tensors that are saved whole lie by themselves; the same source where there are none. Borrows
 * `lora`. Errors: SHEAF_E_LAYOUT for another shape, and for square experts where the version does
 * not tell their order; SHEAF_E_MEMORY. */
sheaf_status *sheaf__lora_unstack(sheaf_source **adapter, const sheaf_lora *lora, bool tensors);
