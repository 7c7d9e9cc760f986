/* json_write.c - see json_write.h. */
#include "base/json_write.h"

#include <jansson.h>
#include <math.h>
#include <stdarg.h>

#include "base/base.h"

static void next(sheaf_json_writer *j, const char *key)
{
    if (j->count[j->depth]++ > 0)
        sheaf__text_add(&j->text, j->compact ? "," : ", ");
    if (key != NULL) {
        sheaf__text_json(&j->text, key);
        sheaf__text_add(&j->text, j->compact ? ":" : ": ");
    }
}

/* A point also in a program that has set a locale. */
static void plain_point(char *number)
{
    char *comma = strchr(number, ',');
    if (comma != NULL)
        *comma = '.';
}

void sheaf__json_begin(sheaf_json_writer *j)
{
    sheaf__text_add(&j->text, "{");
    j->depth = 0;
    j->count[0] = 0;
}

/* \u001F in capitals, as jansson writes it. */
static void raise_escapes(char *at)
{
    for (; (at = strchr(at, '\\')) != NULL; at += 2)
        for (int i = 4; at[1] == 'u' && i < 6; i++)
            at[i] = (char)(at[i] >= 'a' ? at[i] - 'a' + 'A' : at[i]);
}

void sheaf__json_put_text(sheaf_json_writer *j, const char *key, const char *value)
{
    next(j, key);
    const size_t begin = j->text.size;
    if (value != NULL)
        sheaf__text_json(&j->text, value);
    else
        sheaf__text_add(&j->text, "null");
    if (j->compact && !j->text.failed)
        raise_escapes(j->text.at + begin);
}

void sheaf__json_put_int(sheaf_json_writer *j, const char *key, int64_t value)
{
    next(j, key);
    sheaf__text_add(&j->text, "%" PRId64, value);
}

/* With 17 digits, a fraction or an exponent, and that without zeros in front: 1e-7. */
static const char *long_number(char buffer[SHEAF__JSON_NUMBER], double x)
{
    if (!isfinite(x))
        return strcpy(buffer, "null");
    snprintf(buffer, SHEAF__JSON_NUMBER, "%.17g", x);
    plain_point(buffer);
    char *exponent = strchr(buffer, 'e');
    if (exponent == NULL)
        return strchr(buffer, '.') != NULL ? buffer : strcat(buffer, ".0");
    char *from = exponent += 1 + (exponent[1] == '-');
    while (*from == '+' || *from == '0')
        from++;
    memmove(exponent, from, strlen(from) + 1);
    return buffer;
}

void sheaf__json_put_real(sheaf_json_writer *j, const char *key, double value)
{
    next(j, key);
    char number[SHEAF__JSON_NUMBER];
    sheaf__text_add(&j->text, "%s",
                    j->compact ? long_number(number, value) : sheaf__number_json(number, value));
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

void sheaf__json_put(sheaf_json_writer *j, const char *form, ...)
{
    va_list args;
    va_start(args, form);
    for (const char *at = form; *(at += strspn(at, " ")) != '\0'; at++) {
        char name[64];
        const size_t size = strcspn(at, ": {}[]");
        const char *key = at[size] == ':' ? name : NULL;
        if (key != NULL) {
            snprintf(name, sizeof name, "%.*s", (int)size, at);
            at += size + 1;
        }
        switch (*at) {
        case 's': sheaf__json_put_text(j, key, va_arg(args, const char *)); break;
        case 'i': sheaf__json_put_int(j, key, va_arg(args, int)); break;
        case 'd': sheaf__json_put_int(j, key, va_arg(args, int64_t)); break;
        case 'f': sheaf__json_put_real(j, key, va_arg(args, double)); break;
        case 'b': sheaf__json_put_bool(j, key, va_arg(args, int)); break;
        case '{':
        case '[': sheaf__json_open(j, key, *at); break;
        default: sheaf__json_close(j, *at); break;
        }
    }
    va_end(args);
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
    plain_point(buffer);
    return buffer;
}

const char *sheaf__severity_name(sheaf_severity severity)
{
    return severity == SHEAF_DEFECT ? "defect" : severity == SHEAF_WARNING ? "warning" : "note";
}

void sheaf__json_put_finding(sheaf_json_writer *j, const sheaf_finding *f)
{
    sheaf__json_put(j, "{ code:s severity:s path:s tensor:s expected:s found:s cure:s }", f->code,
                    sheaf__severity_name(f->severity), f->path, f->tensor, f->expected, f->found,
                    f->cure);
}
