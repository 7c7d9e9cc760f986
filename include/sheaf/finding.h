/* finding.h - one thing that is worth knowing about a checkpoint, or wrong with it. */
#pragma once

typedef enum sheaf_severity {
    SHEAF_NOTE,    /* worth knowing: what was inferred from what */
    SHEAF_WARNING, /* odd, but the tensors are all there */
    SHEAF_DEFECT,  /* these files cannot give the checkpoint that was requested */
} sheaf_severity;

/* Codes, the stable words of verify --json:
 *   missing      a part, file, tensor or rows that should be here
 *   foreign      a part or tensor that does not belong here
 *   stale        a part of an older step or run
 *   duplicate    the same part or tensor twice
 *   damaged      bytes that do not follow their format, or not their hash; a file cut short
 *   shape        a tensor of another shape than the model's
 *   dtype        parts of one tensor in different dtypes
 *   conflict     two pieces for one box, facts that contradict each other
 *   replica      copies of a replicated tensor differ between ranks
 *   not-finite   NaN or Inf
 *   zeros        weights that are zero throughout
 *   class        tensors of another model class than the config says
 *   unmerged     LoRA not merged into its weights
 *   padded       vocabulary rows that exist only as padding
 *   time-stamp   the parts of one save lie in folders with different time stamps
 *   unsafe       a pickle that wants to call something
 *   unsupported  understood, and refused
 *   unread       a tensor of a kind that is not read (quantized, sparse, ...), which would be lost
 *   inferred     what files do not state, and what it was inferred from
 *   code         Python files beside a model, which are never run */
typedef struct sheaf_finding {
    sheaf_severity severity;
    const char *code;                              /* one of the above; static */
    char *path, *tensor, *expected, *found, *cure; /* never NULL; "" where it does not apply */
} sheaf_finding;
