/* data_rows.c - what the readers of a data set share; see data_rows.h. */
#include "data/data_rows.h"

#include <inttypes.h>
#include <string.h>

sheaf_status *sheaf__data_no_memory(int64_t tokens)
{
    return sheaf_found(sheaf_fail(SHEAF_E_MEMORY, "no memory for the data set"),
                       "%" PRId64 " tokens so far", tokens);
}

int64_t sheaf__data_limit(const sheaf_data_options *options)
{
    const int64_t model =
        options->config->max_position > 0 ? options->config->max_position : INT64_MAX;
    return options->seq > 0 ? options->seq : model;
}

sheaf_status *sheaf__data_too_long(const sheaf_data_options *options, int64_t count,
                                   const char *unit, int64_t first, int64_t first_tokens,
                                   int64_t longest)
{
    const bool given = options->seq > 0;
    const char *limit = given ? "--seq" : sheaf_config_position_key(options->config),
               *plural = strcmp(unit, "entry") == 0 ? "entries are" : "s are";
    sheaf_status *st = sheaf_fail(SHEAF_E_DATA, "%s %" PRId64, unit, first);
    sheaf_expected(st,
                   given ? "at most %" PRId64 " tokens, the value of %s"
                         : "at most %" PRId64 " tokens, the model's %s",
                   sheaf__data_limit(options), limit);
    sheaf_found(st, "%" PRId64 " tokens; %" PRId64 " %s%s longer than %s, the longest has %" PRId64,
                first_tokens, count, count > 1 && plural[0] == 'e' ? "" : unit,
                count == 1 ? " is" : plural, limit, longest);
    return sheaf_try_this(st,
                          given ? "--seq %" PRId64 ", or split these records: none is ever cut off"
                                : "split these records: none is ever cut off; --seq %" PRId64
                                  " goes beyond what the model was made for",
                          longest);
}
