/* shared.h - what several subcommands need beside their options. */
#ifndef SHEAF_CLI_LIB_SHARED_H
#define SHEAF_CLI_LIB_SHARED_H

#include "cli.h"
#include "base/text.h"
#include "library/train_settings.h"

extern const cli_choice cli_dtypes[]; /* float32, bfloat16, float16 as sheaf_dtype */

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
