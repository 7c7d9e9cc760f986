/* shared.h - what several subcommands need beside their options. */
#ifndef SHEAF_CLI_LIB_SHARED_H
#define SHEAF_CLI_LIB_SHARED_H

#include "cli.h"
#include "base/text.h"
#include "train/options.h"

extern const cli_choice cli_sums[];   /* pairs, tiles as sheaf_bf16_sums */
extern const cli_choice cli_dtypes[]; /* float32, bfloat16, float16 as sheaf_dtype */

#define CLI_SUMS_HELP                                                                              \
    "bfloat16: order of the sums, part of the result; default: what is fastest here"
/* cli_sums_name - for results; NULL unless `dtype` is bfloat16. */
const char *cli_sums_name(sheaf_dtype dtype, sheaf_bf16_sums sums);
/* cli_sums_of - what runs: `asked`, else what a run was trained with (`before`), else the fastest
 * here. */
sheaf_bf16_sums cli_sums_of(sheaf_bf16_sums asked, sheaf_bf16_sums before, sheaf_dtype dtype);

/* One JSON object, key by key, on one line. Collected and written by cli_json_end(); a failed
 * allocation leaves the stream without the object and with its error flag unset, so
 * cli_json_end() says whether it came through. */
typedef struct cli_json {
    FILE *to;
    sheaf_text text;
    int depth, count[8]; /* entries so far at each depth */
} cli_json;

void cli_json_begin(cli_json *j);
void cli_json_text(cli_json *j, const char *key, const char *value); /* NULL is null */
void cli_json_int(cli_json *j, const char *key, int64_t value);
void cli_json_real(cli_json *j, const char *key, double value); /* what is not finite is null */
void cli_json_raw(cli_json *j, const char *key,
                  const char *json); /* a value that is JSON already; as a string where it is not */
void cli_json_bool(cli_json *j, const char *key, bool value);
/* A list or an object inside; `key` is NULL inside a list. */
void cli_json_open(cli_json *j, const char *key, char bracket);
void cli_json_close(cli_json *j, char bracket);
bool cli_json_end(cli_json *j);

#endif
