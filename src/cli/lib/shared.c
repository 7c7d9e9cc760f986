/* shared.c - see shared.h. */
#include "shared.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "monitor/number.h"
#include "sheaf/dtype.h"

const cli_choice cli_dtypes[] = {
    { "float32", SHEAF_F32 },
    { "bfloat16", SHEAF_BF16 },
    { "float16", SHEAF_F16 },
    { 0 },
};

static void next(cli_json *j, const char *key)
{
    if (j->count[j->depth]++ > 0)
        sheaf__text_add(&j->text, ", ");
    if (key != NULL) {
        sheaf__text_json(&j->text, key);
        sheaf__text_add(&j->text, ": ");
    }
}

void cli_json_begin(cli_json *j)
{
    sheaf__text_add(&j->text, "{");
    j->depth = 0;
    j->count[0] = 0;
}

void cli_json_text(cli_json *j, const char *key, const char *value)
{
    next(j, key);
    if (value != NULL)
        sheaf__text_json(&j->text, value);
    else
        sheaf__text_add(&j->text, "null");
}

void cli_json_int(cli_json *j, const char *key, int64_t value)
{
    next(j, key);
    sheaf__text_add(&j->text, "%" PRId64, value);
}

void cli_json_real(cli_json *j, const char *key, double value)
{
    next(j, key);
    char number[SHEAF__NUMBER];
    sheaf__text_add(&j->text, "%s", sheaf__number_json(number, value));
}

void cli_json_raw(cli_json *j, const char *key, const char *json)
{
    json_t *value = json_loads(json, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    char *line = value != NULL && strchr(json, '\n') != NULL
                     ? json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT)
                     : NULL;
    const char *text = line != NULL                                  ? line
                       : value != NULL && strchr(json, '\n') == NULL ? json
                                                                     : NULL;
    if (text != NULL) {
        next(j, key);
        sheaf__text_bytes(&j->text, text, strlen(text));
    } else {
        cli_json_text(j, key, json);
    }
    json_decref(value);
    free(line);
}

void cli_json_bool(cli_json *j, const char *key, bool value)
{
    next(j, key);
    sheaf__text_add(&j->text, value ? "true" : "false");
}

void cli_json_open(cli_json *j, const char *key, char bracket)
{
    next(j, key);
    sheaf__text_bytes(&j->text, &bracket, 1);
    if (j->depth + 1 < (int)(sizeof j->count / sizeof *j->count))
        j->depth++;
    j->count[j->depth] = 0;
}

void cli_json_close(cli_json *j, char bracket)
{
    sheaf__text_bytes(&j->text, &bracket, 1);
    j->depth--;
}

bool cli_json_end(cli_json *j)
{
    sheaf__text_add(&j->text, "}\n");
    const bool done = !j->text.failed && fputs(j->text.at, j->to) >= 0;
    sheaf__text_release(&j->text);
    return done;
}
