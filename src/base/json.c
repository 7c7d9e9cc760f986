/* json.c - see json.h. */
#include "json.h"

#include <math.h>
#include <stdarg.h>

#include "file.h"
#include "json_scan.h"
#include "json_write.h"
#include "status.h"
#include "base/base.h"

static const char memory_for[] = "out of memory while reading JSON";

static sheaf_status *parse_value(json_t **out, sheaf_json_scan *scan, int depth);

/* One key and its value into `object`; *more says whether there was one. */
static sheaf_status *parse_member(json_t *object, sheaf_json_scan *scan, bool first, bool *more,
                                  int depth)
{
    char *key = NULL;
    json_t *value = NULL;
    sheaf_status *st = sheaf__scan_next_key(scan, first, more, &key);
    if (st == NULL && *more && json_object_get(object, key) != NULL)
        st = sheaf_found(sheaf__scan_fail(scan, "each key once"), "a duplicate, '%.200s'", key);
    if (st == NULL && *more)
        st = parse_value(&value, scan, depth + 1);
    if (st == NULL && *more && json_object_set_new_nocheck(object, key, value) != 0)
        st = sheaf__no_memory(memory_for);
    free(key);
    return st;
}

static sheaf_status *parse_item(json_t *list, sheaf_json_scan *scan, bool first, bool *more,
                                int depth)
{
    json_t *value = NULL;
    sheaf_status *st = sheaf__scan_next_item(scan, first, more);
    if (st == NULL && *more)
        st = parse_value(&value, scan, depth + 1);
    if (st == NULL && *more && json_array_append_new(list, value) != 0)
        st = sheaf__no_memory(memory_for);
    return st;
}

static sheaf_status *parse_container(json_t **out, sheaf_json_scan *scan, int depth, bool object)
{
    if (depth >= SHEAF_JSON_MAX_DEPTH) /* bounds the stack that a file can claim */
        return sheaf__scan_fail(scan, "fewer levels of JSON");
    scan->at++;
    json_t *made = object ? json_object() : json_array();
    sheaf_status *st = made == NULL ? sheaf__no_memory(memory_for) : NULL;
    bool more = true;
    for (bool first = true; st == NULL && more; first = false)
        st = object ? parse_member(made, scan, first, &more, depth)
                    : parse_item(made, scan, first, &more, depth);
    if (st != NULL)
        json_decref(made);
    else
        *out = made;
    return st;
}

static sheaf_status *parse_scalar(json_t **out, sheaf_json_scan *scan, char c)
{
    sheaf_status *st = NULL;
    if (c == '"') {
        char *text = NULL;
        size_t size = 0;
        st = sheaf__scan_value_string(scan, &text, &size);
        *out = st == NULL ? json_stringn_nocheck(text, size) : NULL;
        free(text);
    } else if (c == '-' || (c >= '0' && c <= '9')) {
        bool whole = false;
        int64_t integer = 0;
        double real = 0;
        st = sheaf__scan_number(scan, &whole, &integer, &real);
        *out = st != NULL ? NULL : whole ? json_integer(integer) : json_real(real);
    } else if (sheaf__scan_word(scan, "true")) {
        *out = json_true();
    } else if (sheaf__scan_word(scan, "false")) {
        *out = json_false();
    } else if (sheaf__scan_word(scan, "null")) {
        *out = json_null();
    } else {
        return sheaf__scan_fail(scan, "a JSON value");
    }
    return st == NULL && *out == NULL ? sheaf__no_memory(memory_for) : st;
}

static sheaf_status *parse_value(json_t **out, sheaf_json_scan *scan, int depth)
{
    const char c = sheaf__scan_peek(scan);
    return c == '{' || c == '[' ? parse_container(out, scan, depth, c == '{')
                                : parse_scalar(out, scan, c);
}

/* The only value of the text. */
static sheaf_status *parse_all(json_t **out, sheaf_json_scan *scan)
{
    json_t *root = NULL;
    sheaf_status *st = parse_value(&root, scan, 0);
    TRY(st, sheaf__scan_end(scan));
    if (st == NULL)
        *out = root;
    else
        json_decref(root);
    return st;
}

sheaf_status *sheaf__json_parse(json_t **out, const char *text, size_t size)
{
    sheaf_json_scan scan;
    json_t *root = NULL;
    sheaf_status *st = sheaf__scan_init(&scan, text, size, true);
    TRY(st, parse_all(&root, &scan));
    if (st != NULL)
        return st;
    if (json_is_object(root)) {
        *out = root;
        return NULL;
    }
    char shown[96];
    st = sheaf_fail(SHEAF_E_FORMAT, "top level of the JSON");
    sheaf_found(sheaf_expected(st, "an object"), "%s", sheaf__json_show(shown, root));
    json_decref(root);
    return st;
}

sheaf_status *sheaf__json_parse_line(json_t **out, const char *text, size_t size)
{
    sheaf_json_scan scan;
    sheaf_status *why = sheaf__scan_init_line(&scan, text, size);
    if (why == NULL)
        why = parse_all(out, &scan);
    if (why == NULL || sheaf_status_code(why) == SHEAF_E_MEMORY)
        return why;
    sheaf_status *st = sheaf_fail(SHEAF_E_DATA, "not a record");
    sheaf_expected(st, "one JSON object; at %s: %s", sheaf_status_where(why),
                   sheaf_status_expected(why));
    sheaf_found(st, "%s", sheaf_status_found(why));
    sheaf_status_free(why);
    return st;
}

sheaf_status *sheaf__json_parse_value(json_t **out, sheaf_json_scan *scan)
{
    return parse_value(out, scan, 0);
}

sheaf_status *sheaf__json_load(json_t **out, const char *path)
{
    char *text = NULL;
    size_t size = 0;
    sheaf_status *st = sheaf__file_read_all(&text, &size, path, SHEAF_JSON_MAX_BYTES);
    TRY(st, sheaf_in(sheaf__json_parse(out, text, size), "%s", path));
    free(text);
    return st;
}

sheaf_status *sheaf__json_text(char **out, const json_t *value, size_t flags)
{
    char *text = json_dumps(value, flags | JSON_ENCODE_ANY);
    json_t *again = NULL;
    sheaf_status *st = text == NULL ? sheaf__no_memory("out of memory while writing JSON")
                                    : sheaf__json_parse_line(&again, text, strlen(text));
    if (st != NULL ? sheaf_status_code(st) != SHEAF_E_MEMORY : !json_equal(value, again)) {
        sheaf_status_free(st);
        st = sheaf__no_memory("out of memory while writing JSON");
    }
    json_decref(again);
    if (st == NULL)
        *out = text;
    else
        free(text);
    return st;
}

const char *sheaf__json_show(char buffer[96], const json_t *value)
{
    enum { CAPACITY = 96, SHOWN = 60 };
    if (value == NULL)
        return "nothing";
    switch (json_typeof(value)) {
    case JSON_NULL: return "null";
    case JSON_TRUE: return "true (a boolean)";
    case JSON_FALSE: return "false (a boolean)";
    case JSON_OBJECT:
        snprintf(buffer, CAPACITY, "an object of %zu key%s", json_object_size(value),
                 json_object_size(value) == 1 ? "" : "s");
        return buffer;
    case JSON_ARRAY:
        snprintf(buffer, CAPACITY, "a list of %zu value%s", json_array_size(value),
                 json_array_size(value) == 1 ? "" : "s");
        return buffer;
    case JSON_INTEGER:
        snprintf(buffer, CAPACITY, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
        return buffer;
    case JSON_REAL: {
        char number[SHEAF__JSON_NUMBER];
        const double x = json_real_value(value);
        /* "1" would hide why 1.0 was refused */
        snprintf(buffer, CAPACITY, "%s%s (a fraction)", sheaf__number_json(number, x),
                 x == trunc(x) && fabs(x) < 1e15 ? ".0" : "");
        return buffer;
    }
    case JSON_STRING:
        snprintf(buffer, CAPACITY, "\"%.*s\"%s (a string)", SHOWN, json_string_value(value),
                 json_string_length(value) > SHOWN ? "..." : "");
        return buffer;
    }
    return "nothing";
}

sheaf_status *sheaf__json_fail(sheaf_json_reader *r, sheaf_code code, const char *key,
                               const char *expected, ...)
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

int64_t sheaf__json_int(sheaf_json_reader *r, const char *key, int64_t min, int64_t max,
                        int64_t absent)
{
    const json_t *value = value_of(r, key);
    if (value == NULL && absent != SHEAF_JSON_NEEDED)
        return absent;
    if (value == NULL || !json_is_integer(value) || json_integer_value(value) < min ||
        json_integer_value(value) > max) {
        sheaf__json_fail(r, SHEAF_E_FORMAT, key, "a whole number from %" PRId64 " to %" PRId64, min,
                         max);
        return absent == SHEAF_JSON_NEEDED ? 0 : absent;
    }
    return json_integer_value(value);
}

double sheaf__json_real(sheaf_json_reader *r, const char *key, double min, double max,
                        double absent)
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
