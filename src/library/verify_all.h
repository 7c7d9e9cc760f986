/* verify_all.h - what verify looks at: the checkpoint itself (checkpoint/tools/verify.h), and what
 * lies beside it in its folder and is opened with it: tokenizer, chat template,
 * generation_config.json. An adapter is held against its base, where there is one.
 *
 * Those files are read as a model that is asked reads them (sheaf_model_open()), so that what is
 * sound opens. Where only the tokenizer is of a kind that sheaf does not read, token ids still do:
 * a note. */
#pragma once

#include "checkpoint/tools/verify.h"

/* sheaf__verify_all - as sheaf_verify(), with the findings of those files; release the report in
 * any case. Errors: those of sheaf_verify(); SHEAF_E_IO for such a file without permission to read
 * it. */
sheaf_status *sheaf__verify_all(sheaf_verify_report *report, const char *path,
                                const sheaf_weights_verify_options *options);

struct sheaf_verification {
    sheaf_verify_report report;
};
