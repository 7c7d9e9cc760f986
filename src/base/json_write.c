/* json_write.c - see json_write.h. */
#include "base/json_write.h"

#include <jansson.h>
#include <math.h>

#include "base/base.h"

static void next(sheaf_json_writer *j, const char *key)
{
    if (j->count[j->depth]++ > 0)
        sheaf__text_add(&j->text, ", ");
    if (key != NULL) {
        sheaf__text_json(&j->text, key);
        sheaf__text_add(&j->text, ": ");
    }
}

void sheaf__json_begin(sheaf_json_writer *j)
{
    sheaf__text_add(&j->text, "{");
    j->depth = 0;
    j->count[0] = 0;
}

void sheaf__json_put_text(sheaf_json_writer *j, const char *key, const char *value)
{
    next(j, key);
    if (value != NULL)
        sheaf__text_json(&j->text, value);
    else
        sheaf__text_add(&j->text, "null");
}

void sheaf__json_put_int(sheaf_json_writer *j, const char *key, int64_t value)
{
    next(j, key);
    sheaf__text_add(&j->text, "%" PRId64, value);
}

void sheaf__json_put_real(sheaf_json_writer *j, const char *key, double value)
{
    next(j, key);
    char number[SHEAF__JSON_NUMBER];
    sheaf__text_add(&j->text, "%s", sheaf__number_json(number, value));
}

void sheaf__json_put_raw(sheaf_json_writer *j, const char *key, const char *json)
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
        sheaf__json_put_text(j, key, json);
    }
    json_decref(value);
    free(line);
}

void sheaf__json_put_bool(sheaf_json_writer *j, const char *key, bool value)
{
    next(j, key);
    sheaf__text_add(&j->text, value ? "true" : "false");
}

void sheaf__json_open(sheaf_json_writer *j, const char *key, char bracket)
{
    next(j, key);
    sheaf__text_bytes(&j->text, &bracket, 1);
    if (j->depth + 1 < (int)(sizeof j->count / sizeof *j->count))
        j->depth++;
    j->count[j->depth] = 0;
}

void sheaf__json_close(sheaf_json_writer *j, char bracket)
{
    sheaf__text_bytes(&j->text, &bracket, 1);
    j->depth--;
}

void sheaf__json_end(sheaf_json_writer *j)
{
    sheaf__text_add(&j->text, "}");
}

const char *sheaf__number_json(char buffer[SHEAF__JSON_NUMBER], double x)
{
    if (!isfinite(x))
        return strcpy(buffer, "null");
    if (x == trunc(x) && fabs(x) < 1e15) { /* 120 rather than 1.2e+02 */
        snprintf(buffer, SHEAF__JSON_NUMBER, "%.0f", x);
        return buffer;
    }
    for (int digits = 1; digits <= 17; digits++) { /* 17 always suffice */
        snprintf(buffer, SHEAF__JSON_NUMBER, "%.*g", digits, x);
        if (strtod(buffer, NULL) == x)
            break;
    }
    char *comma = strchr(buffer, ','); /* of a program that has set a locale */
    if (comma != NULL)
        *comma = '.';
    return buffer;
}

const char *sheaf__severity_name(sheaf_severity severity)
{
    return severity == SHEAF_DEFECT ? "defect" : severity == SHEAF_WARNING ? "warning" : "note";
}

void sheaf__json_put_finding(sheaf_json_writer *j, const sheaf_finding *f)
{
    sheaf__json_open(j, NULL, '{');
    sheaf__json_put_text(j, "code", f->code);
    sheaf__json_put_text(j, "severity", sheaf__severity_name(f->severity));
    sheaf__json_put_text(j, "path", f->path);
    sheaf__json_put_text(j, "tensor", f->tensor);
    sheaf__json_put_text(j, "expected", f->expected);
    sheaf__json_put_text(j, "found", f->found);
    sheaf__json_put_text(j, "cure", f->cure);
    sheaf__json_close(j, '}');
}
