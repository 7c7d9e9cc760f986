/* shared.h - what several subcommands need beside their options. */
#pragma once

#include "cli.h"
#include "base/json_write.h"

extern const cli_choice cli_dtypes[]; /* float32, bfloat16, float16 as sheaf_dtype */

/* cli_json_end - ends the object and writes it as a line; false where memory or the stream
 * failed: then nothing of it was written, or not all. The text is released in any case. */
bool cli_json_end(FILE *to, sheaf_json_writer *j);
