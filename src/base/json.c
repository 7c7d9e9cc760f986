/* json.c - see json.h. */
#include "json.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "file.h"

/* jansson recurses up to 2048 levels; this bounds the stack a file can claim. */
static sheaf_status *check_depth(const char *text, size_t size)
{
    int depth = 0, line = 1;
    bool quoted = false;
    for (size_t i = 0; i < size; i++) {
        const char c = text[i];
        if (c == '\n')
            line++;
        if (quoted && c == '\\')
            i++;
        else if (c == '"')
            quoted = !quoted;
        else if (!quoted && (c == '{' || c == '['))
            depth++;
        else if (!quoted && (c == '}' || c == ']'))
            depth--;
        if (depth > SHEAF_JSON_MAX_DEPTH)
            return sheaf_expected(sheaf_fail(SHEAF_E_FORMAT, "line %d: too many levels of JSON", line),
                                  "at most %d", SHEAF_JSON_MAX_DEPTH);
    }
    return NULL;
}

sheaf_status *sheaf__json_parse(json_t **out, const char *text, size_t size)
{
    sheaf_status *st = check_depth(text, size);
    if (st != NULL)
        return st;
    json_error_t error;
    json_t *root = json_loadb(text, size, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &error);
    if (root == NULL && json_error_code(&error) == json_error_out_of_memory)
        return sheaf_fail(SHEAF_E_MEMORY, "out of memory while reading JSON");
    if (root == NULL) {
        st = sheaf_fail(SHEAF_E_FORMAT, "line %d, column %d", error.line, error.column);
        return sheaf_found(sheaf_expected(st, "JSON"), "%s", error.text);
    }
    if (!json_is_object(root)) {
        char shown[96];
        st = sheaf_fail(SHEAF_E_FORMAT, "top level of the JSON");
        sheaf_found(sheaf_expected(st, "an object"), "%s", sheaf__json_show(shown, root));
        json_decref(root);
        return st;
    }
    *out = root;
    return NULL;
}

sheaf_status *sheaf__json_load(json_t **out, const char *path)
{
    char *text = NULL;
    size_t size = 0;
    sheaf_status *st = sheaf__file_read_all(&text, &size, path, SHEAF_JSON_MAX_BYTES);
    if (st == NULL)
        st = sheaf_in(sheaf__json_parse(out, text, size), "%s", path);
    free(text);
    return st;
}

const char *sheaf__json_show(char buffer[96], const json_t *value)
{
    enum { ROOM = 96, SHOWN = 60 };
    if (value == NULL)
        return "nothing";
    switch (json_typeof(value)) {
    case JSON_NULL:
        return "null";
    case JSON_TRUE:
        return "true (a boolean)";
    case JSON_FALSE:
        return "false (a boolean)";
    case JSON_OBJECT:
        snprintf(buffer, ROOM, "an object of %zu keys", json_object_size(value));
        return buffer;
    case JSON_ARRAY:
        snprintf(buffer, ROOM, "a list of %zu", json_array_size(value));
        return buffer;
    case JSON_INTEGER:
        snprintf(buffer, ROOM, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
        return buffer;
    case JSON_REAL: {
        const double x = json_real_value(value);
        /* "1" would hide why 1.0 was refused */
        snprintf(buffer, ROOM, x == trunc(x) && fabs(x) < 1e15 ? "%.1f (a fraction)" : "%.17g (a fraction)", x);
        return buffer;
    }
    case JSON_STRING:
        snprintf(buffer, ROOM, "\"%.*s\"%s (a string)", SHOWN, json_string_value(value),
                 json_string_length(value) > SHOWN ? "..." : "");
        return buffer;
    }
    return "nothing";
}

sheaf_status *sheaf__json_fail(sheaf_json_reader *r, sheaf_code code, const char *key, const char *expected, ...)
{
    if (r->st != NULL)
        return NULL;
    char text[512], shown[96];
    va_list args;
    va_start(args, expected);
    vsnprintf(text, sizeof text, expected, args);
    va_end(args);
    r->st = sheaf_fail(code, "'%s%.200s'", r->inside == NULL ? "" : r->inside, key);
    sheaf_expected(r->st, "%s", text);
    return sheaf_found(r->st, "%s", sheaf__json_show(shown, json_object_get(r->object, key)));
}

static const json_t *value_of(sheaf_json_reader *r, const char *key)
{
    const json_t *value = r->st != NULL ? NULL : json_object_get(r->object, key);
    return value == NULL || json_is_null(value) ? NULL : value;
}

int64_t sheaf__json_int(sheaf_json_reader *r, const char *key, int64_t min, int64_t max, int64_t absent)
{
    const json_t *value = value_of(r, key);
    if (value == NULL && absent != SHEAF_JSON_NEEDED)
        return absent;
    if (value == NULL || !json_is_integer(value) || json_integer_value(value) < min ||
        json_integer_value(value) > max) {
        sheaf__json_fail(r, SHEAF_E_FORMAT, key, "a whole number from %" PRId64 " to %" PRId64, min, max);
        return absent == SHEAF_JSON_NEEDED ? 0 : absent;
    }
    return json_integer_value(value);
}

double sheaf__json_real(sheaf_json_reader *r, const char *key, double min, double max, double absent)
{
    const json_t *value = value_of(r, key);
    if (value == NULL && absent != SHEAF_JSON_NEEDED_REAL)
        return absent;
    const double x = value == NULL ? 0 : json_number_value(value);
    if (value == NULL || !json_is_number(value) || !(x >= min && x <= max)) {
        sheaf__json_fail(r, SHEAF_E_FORMAT, key, "a number from %g to %g", min, max);
        return absent == SHEAF_JSON_NEEDED_REAL ? 0 : absent;
    }
    return x;
}

bool sheaf__json_bool(sheaf_json_reader *r, const char *key, bool absent)
{
    const json_t *value = value_of(r, key);
    if (value != NULL && !json_is_boolean(value))
        sheaf__json_fail(r, SHEAF_E_FORMAT, key, "true or false");
    return value == NULL || !json_is_boolean(value) ? absent : json_is_true(value);
}

const char *sheaf__json_string(sheaf_json_reader *r, const char *key)
{
    const json_t *value = value_of(r, key);
    if (value != NULL && !json_is_string(value))
        sheaf__json_fail(r, SHEAF_E_FORMAT, key, "a string");
    return json_string_value(value);
}

const json_t *sheaf__json_list(sheaf_json_reader *r, const char *key)
{
    const json_t *value = value_of(r, key);
    if (value != NULL && !json_is_array(value))
        sheaf__json_fail(r, SHEAF_E_FORMAT, key, "a list");
    return json_is_array(value) ? value : NULL;
}

const json_t *sheaf__json_object(sheaf_json_reader *r, const char *key)
{
    const json_t *value = value_of(r, key);
    if (value != NULL && !json_is_object(value))
        sheaf__json_fail(r, SHEAF_E_FORMAT, key, "an object");
    return json_is_object(value) ? value : NULL;
}
