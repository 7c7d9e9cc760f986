/* verify_all.h - verifies a checkpoint (checkpoint/tools/verify.h) and the other files of its
 * folder that are opened with it: tokenizer, chat template, generation_config.json. An adapter is
 * checked against its base, if there is one.
 *
 * Those files are read by the code of sheaf_model_open(), so that a sound folder opens. A tokenizer
 * of a kind that sheaf does not read is a note, as token ids still work. */
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
