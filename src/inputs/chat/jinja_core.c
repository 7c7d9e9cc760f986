/* jinja_core.c - see jinja_core.h: memory and failures, and values as Python has them. */
#include "inputs/chat/jinja_core.h"

#include <stdarg.h>
#include <utf8proc.h>

#include "base/base.h"
#include "inputs/tokenizer/unicode.h"

/* ---- memory and failures ---- */

typedef struct sheaf__j_block {
    struct sheaf__j_block *next;
    size_t used, size;
    char at[];
} block;

static sheaf_status *message(sheaf_code code, const char *fmt, va_list args)
{
    char words[256];
    vsnprintf(words, sizeof words, fmt, args);
    sheaf_text text = { 0 };
    char *shown = NULL;
    sheaf__text_utf8(&text, words);
    sheaf_status *st = sheaf__text_take(&shown, &text);
    TRY(st, sheaf_fail(code, "%s", shown));
    free(shown);
    return st;
}

void sheaf__j_raise(sheaf__j *j, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    sheaf_status *st = message(SHEAF_E_DATA, fmt, args);
    va_end(args);
    sheaf__j_fail(j, st);
}

void sheaf__j_refuse(sheaf__j *j, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    sheaf_status *st = message(SHEAF_E_UNSUPPORTED, fmt, args);
    va_end(args);
    sheaf__j_fail(j, st);
}

void *sheaf__j_take(sheaf__j *j, size_t size)
{
    enum { LEAST = 1 << 14 };
    const size_t most = SHEAF__J_MEMORY + SHEAF__J_MEMORY_EACH * j->given;
    if (j->used >= most || size > most - j->used)
        sheaf__j_refuse(j, "more than %zu MiB of memory", most >> 20);
    size = (size + 15) & ~(size_t)15;
    block *b = j->blocks;
    if (b == NULL || size > b->size - b->used) {
        const size_t room = size > LEAST ? size : LEAST;
        b = calloc(1, sizeof *b + room);
        if (b == NULL)
            sheaf__j_no_memory(j);
        b->size = room;
        b->next = j->blocks;
        j->blocks = b;
        j->used += room;
        sheaf__j_add_region(j, b->at, room);
    }
    char *at = b->at + b->used;
    b->used += size;
    return at;
}

void sheaf__j_work(sheaf__j *j, size_t units)
{
    j->steps += (int64_t)units;
    const int64_t most = SHEAF__J_STEPS + SHEAF__J_STEPS_EACH * (int64_t)j->given;
    if (j->steps > most)
        sheaf__j_refuse(j, "more than %" PRId64 " steps", most);
}

void sheaf__j_release(sheaf__j *j)
{
    for (block *b = j->blocks, *next; b != NULL; b = next) {
        next = b->next;
        free(b);
    }
    j->blocks = NULL;
    sheaf__j_release_regions(j);
}

/* ---- making values ---- */

bool sheaf__j_is(sheaf__jtext text, const char *word)
{
    return strlen(word) == text.size && memcmp(text.at, word, text.size) == 0;
}
bool sheaf__j_same(sheaf__jtext a, sheaf__jtext b)
{
    return a.size == b.size && (a.size == 0 || memcmp(a.at, b.at, a.size) == 0);
}

sheaf__jvalue sheaf__j_undefined(sheaf__jtext what)
{
    return (sheaf__jvalue){ SHEAF__J_UNDEFINED, .u = { .text = what } };
}
sheaf__jvalue sheaf__j_none(void)
{
    return (sheaf__jvalue){ SHEAF__J_NONE, .u = { .whole = 0 } };
}
sheaf__jvalue sheaf__j_bool(bool truth)
{
    return (sheaf__jvalue){ SHEAF__J_BOOL, .u = { .truth = truth } };
}
sheaf__jvalue sheaf__j_int(int64_t whole)
{
    return (sheaf__jvalue){ SHEAF__J_INT, .u = { .whole = whole } };
}
sheaf__jvalue sheaf__j_float(double real)
{
    return (sheaf__jvalue){ SHEAF__J_FLOAT, .u = { .real = real } };
}
sheaf__jvalue sheaf__j_text(const char *at, size_t size)
{
    return (sheaf__jvalue){ SHEAF__J_TEXT, .u = { .text = { at, size } } };
}
sheaf__jvalue sheaf__j_list(sheaf__j *j)
{
    return (sheaf__jvalue){ SHEAF__J_LIST,
                            .u = { .list = sheaf__j_take(j, sizeof(sheaf__jlist)) } };
}
sheaf__jvalue sheaf__j_dict(sheaf__j *j)
{
    return (sheaf__jvalue){ SHEAF__J_DICT,
                            .u = { .dict = sheaf__j_take(j, sizeof(sheaf__jdict)) } };
}

sheaf__jvalue sheaf__j_as(sheaf__jkind kind, sheaf__jlist *list)
{
    return (sheaf__jvalue){ kind, .u = { .list = list } };
}

sheaf__jvalue sheaf__j_pair(sheaf__j *j, sheaf__jvalue a, sheaf__jvalue b)
{
    sheaf__jvalue pair = sheaf__j_list(j);
    pair.kind = SHEAF__J_TUPLE;
    sheaf__j_append(j, pair.u.list, a);
    sheaf__j_append(j, pair.u.list, b);
    return pair;
}

void sheaf__j_append(sheaf__j *j, sheaf__jlist *list, sheaf__jvalue value)
{
    if (list->count == list->capacity) {
        const size_t capacity = list->capacity * 2 + 4;
        sheaf__jvalue *more = sheaf__j_take(j, capacity * sizeof *more);
        if (list->count > 0)
            memcpy(more, list->at, list->count * sizeof *more);
        list->at = more;
        list->capacity = capacity;
    }
    list->at[list->count++] = value;
}

void sheaf__j_down(sheaf__j *j)
{
    if (++j->depth > SHEAF__J_DEPTH)
        sheaf__j_refuse(j, "more than %d levels", SHEAF__J_DEPTH);
}

static bool is_hashable(sheaf__j *j, sheaf__jvalue v)
{
    bool yes = v.kind != SHEAF__J_LIST && v.kind != SHEAF__J_DICT;
    sheaf__j_work(j, 1);
    sheaf__j_down(j);
    for (size_t i = 0; v.kind == SHEAF__J_TUPLE && i < v.u.list->count && yes; i++)
        yes = is_hashable(j, v.u.list->at[i]);
    j->depth--;
    return yes;
}

sheaf__jvalue *sheaf__j_get(sheaf__j *j, const sheaf__jdict *dict, sheaf__jvalue key)
{
    if (!is_hashable(j, key))
        sheaf__j_raise(j, "unhashable type: '%s'", sheaf__j_kind(key));
    sheaf__j_work(j, dict->keys.count / 8);
    for (size_t i = 0; i < dict->keys.count; i++)
        if (sheaf__j_equal(j, dict->keys.at[i], key))
            return &dict->values.at[i];
    return NULL;
}

void sheaf__j_set(sheaf__j *j, sheaf__jdict *dict, sheaf__jvalue key, sheaf__jvalue value)
{
    sheaf__jvalue *at = sheaf__j_get(j, dict, key);
    if (at != NULL) {
        *at = value;
        return;
    }
    sheaf__j_append(j, &dict->keys, key);
    sheaf__j_append(j, &dict->values, value);
}

sheaf__jvalue sheaf__j_of_json(sheaf__j *j, const json_t *json)
{
    sheaf__jvalue out = sheaf__j_none();
    j->given += SHEAF__J_VALUE + (json_is_string(json) ? json_string_length(json) : 0);
    switch (json_typeof(json)) {
    case JSON_OBJECT: {
        const char *key;
        json_t *value;
        out = sheaf__j_dict(j);
        json_object_foreach((json_t *)json, key, value)
        {
            sheaf__j_append(j, &out.u.dict->keys, sheaf__j_text(key, strlen(key)));
            sheaf__j_append(j, &out.u.dict->values, sheaf__j_of_json(j, value));
        }
        return out;
    }
    case JSON_ARRAY:
        out = sheaf__j_list(j);
        for (size_t i = 0; i < json_array_size(json); i++)
            sheaf__j_append(j, out.u.list, sheaf__j_of_json(j, json_array_get(json, i)));
        return out;
    case JSON_STRING: return sheaf__j_text(json_string_value(json), json_string_length(json));
    case JSON_INTEGER: return sheaf__j_int(json_integer_value(json));
    case JSON_REAL: return sheaf__j_float(json_real_value(json));
    case JSON_TRUE: return sheaf__j_bool(true);
    case JSON_FALSE: return sheaf__j_bool(false);
    default: return out;
    }
}

void sheaf__j_put(sheaf__j *j, sheaf__jbuffer *b, const char *at, size_t size)
{
    sheaf__j_work(j, size / 32);
    if (b->at == NULL || size > b->capacity - b->size) {
        const size_t capacity = (b->size + size) * 2 + 64;
        char *more = sheaf__j_take(j, capacity + 1); /* texts must not touch */
        if (b->size > 0) {
            memcpy(more, b->at, b->size);
            sheaf__j_copy_source(j, more, b->at, b->size);
        }
        b->at = more;
        b->capacity = capacity;
    }
    if (size > 0)
        memcpy(b->at + b->size, at, size);
    sheaf__j_copy_source(j, b->at + b->size, at, size);
    b->size += size;
}

void sheaf__j_put_for(sheaf__j *j, sheaf__jbuffer *b, const char *bytes, size_t size,
                      const char *at)
{
    const int64_t message = sheaf__j_message_at(j, at);
    sheaf__j_put(j, b, bytes, size);
    if (message >= 0)
        sheaf__j_set_source(j, b->at + b->size - size, size, message);
}

sheaf__jvalue sheaf__j_buffer_text(const sheaf__jbuffer *b)
{
    return sheaf__j_text(b->size == 0 ? "" : b->at, b->size);
}

/* ---- reading values ---- */

void sheaf__j_defined(sheaf__j *j, sheaf__jvalue v)
{
    if (v.kind == SHEAF__J_UNDEFINED)
        sheaf__j_raise(j, "'%.*s' is undefined", (int)v.u.text.size, v.u.text.at);
}

bool sheaf__j_truth(sheaf__jvalue v)
{
    switch (v.kind) {
    case SHEAF__J_UNDEFINED:
    case SHEAF__J_NONE: return false;
    case SHEAF__J_BOOL: return v.u.truth;
    case SHEAF__J_INT: return v.u.whole != 0;
    case SHEAF__J_FLOAT: return v.u.real != 0;
    case SHEAF__J_TEXT: return v.u.text.size > 0;
    case SHEAF__J_LIST:
    case SHEAF__J_VIEW:
    case SHEAF__J_RANGE:
    case SHEAF__J_TUPLE: return v.u.list->count > 0;
    case SHEAF__J_DICT: return v.u.dict->keys.count > 0;
    default: return true;
    }
}

bool sheaf__j_is_list(sheaf__jvalue v)
{
    return v.kind == SHEAF__J_LIST || v.kind == SHEAF__J_TUPLE;
}
bool sheaf__j_is_number(sheaf__jvalue v)
{
    return v.kind == SHEAF__J_BOOL || v.kind == SHEAF__J_INT || v.kind == SHEAF__J_FLOAT;
}
double sheaf__j_real(sheaf__jvalue v)
{
    return v.kind == SHEAF__J_FLOAT ? v.u.real : (double)sheaf__j_whole(v);
}
int64_t sheaf__j_whole(sheaf__jvalue v)
{
    return v.kind == SHEAF__J_BOOL ? v.u.truth : v.u.whole;
}

const char *sheaf__j_kind(sheaf__jvalue v)
{
    static const char *const names[] = { "Undefined", "NoneType",  "bool",  "int",
                                         "float",     "str",       "list",  "tuple",
                                         "dict",      "Namespace", "Macro", "LoopContext",
                                         "function",  "generator", "view",  "range",
                                         "method",    "Joiner" };
    return names[v.kind];
}

static bool equal_lists(sheaf__j *j, const sheaf__jlist *a, const sheaf__jlist *b)
{
    if (a->count != b->count)
        return false;
    for (size_t i = 0; i < a->count; i++)
        if (!sheaf__j_equal(j, a->at[i], b->at[i]))
            return false;
    return true;
}

static bool equal_dicts(sheaf__j *j, const sheaf__jdict *a, const sheaf__jdict *b)
{
    if (a->keys.count != b->keys.count)
        return false;
    for (size_t i = 0; i < a->keys.count; i++) {
        const sheaf__jvalue *other = sheaf__j_get(j, b, a->keys.at[i]);
        if (other == NULL || !sheaf__j_equal(j, a->values.at[i], *other))
            return false;
    }
    return true;
}

static bool are_equal(sheaf__j *j, sheaf__jvalue a, sheaf__jvalue b)
{
    if (sheaf__j_is_number(a) && sheaf__j_is_number(b))
        return a.kind == SHEAF__J_FLOAT || b.kind == SHEAF__J_FLOAT
                   ? sheaf__j_real(a) == sheaf__j_real(b)
                   : sheaf__j_whole(a) == sheaf__j_whole(b);
    if (a.kind != b.kind)
        return false;
    switch (a.kind) {
    case SHEAF__J_UNDEFINED:
    case SHEAF__J_NONE: return true;
    case SHEAF__J_TEXT:
        sheaf__j_work(j, a.u.text.size / 64);
        return sheaf__j_same(a.u.text, b.u.text);
    case SHEAF__J_LIST:
    case SHEAF__J_RANGE:
    case SHEAF__J_TUPLE: return equal_lists(j, a.u.list, b.u.list);
    case SHEAF__J_DICT: return equal_dicts(j, a.u.dict, b.u.dict);
    case SHEAF__J_FUNCTION: return sheaf__j_same(a.u.text, b.u.text);
    default: return a.u.dict == b.u.dict;
    }
}

bool sheaf__j_equal(sheaf__j *j, sheaf__jvalue a, sheaf__jvalue b)
{
    sheaf__j_work(j, 1);
    sheaf__j_down(j);
    const bool yes = are_equal(j, a, b);
    j->depth--;
    return yes;
}

static int compare_lists(sheaf__j *j, const sheaf__jlist *a, const sheaf__jlist *b)
{
    int order = a->count < b->count ? -1 : a->count > b->count;
    sheaf__j_down(j);
    for (size_t i = 0; i < a->count && i < b->count; i++)
        if (!sheaf__j_equal(j, a->at[i], b->at[i])) {
            order = sheaf__j_compare(j, a->at[i], b->at[i]);
            break;
        }
    j->depth--;
    return order;
}

int sheaf__j_compare(sheaf__j *j, sheaf__jvalue a, sheaf__jvalue b)
{
    sheaf__j_work(j, 1);
    if (sheaf__j_is_number(a) && sheaf__j_is_number(b)) {
        if (a.kind == SHEAF__J_FLOAT || b.kind == SHEAF__J_FLOAT) {
            const double x = sheaf__j_real(a), y = sheaf__j_real(b);
            return x < y ? -1 : x > y;
        }
        return sheaf__j_whole(a) < sheaf__j_whole(b) ? -1 : sheaf__j_whole(a) > sheaf__j_whole(b);
    }
    if (a.kind == SHEAF__J_TEXT && b.kind == SHEAF__J_TEXT) {
        const size_t n = a.u.text.size < b.u.text.size ? a.u.text.size : b.u.text.size;
        sheaf__j_work(j, n / 64);
        const int order = n == 0 ? 0 : memcmp(a.u.text.at, b.u.text.at, n);
        return order != 0 ? order : (a.u.text.size > n) - (b.u.text.size > n);
    }
    if (sheaf__j_is_list(a) && a.kind == b.kind)
        return compare_lists(j, a.u.list, b.u.list);
    sheaf__j_raise(j, "'%s' and '%s' have no order", sheaf__j_kind(a), sheaf__j_kind(b));
}

const char *sheaf__j_search(sheaf__j *j, sheaf__jtext in, sheaf__jtext what)
{
    const char *at = what.size == 0 ? in.at : memmem(in.at, in.size, what.at, what.size);
    sheaf__j_work(j, 1 + ((at != NULL ? (size_t)(at - in.at) : in.size) + what.size) / 16);
    return at;
}

bool sheaf__j_contains(sheaf__j *j, sheaf__jvalue in, sheaf__jvalue what)
{
    if (in.kind == SHEAF__J_TEXT) {
        if (what.kind != SHEAF__J_TEXT)
            sheaf__j_raise(j, "'in <string>' requires string, not %s", sheaf__j_kind(what));
        return sheaf__j_search(j, in.u.text, what.u.text) != NULL;
    }
    if (in.kind == SHEAF__J_DICT)
        return sheaf__j_get(j, in.u.dict, what) != NULL;
    const sheaf__jlist items = sheaf__j_items(j, in);
    for (size_t i = 0; i < items.count; i++)
        if (sheaf__j_equal(j, items.at[i], what))
            return true;
    return false;
}

/* Bytes of the character at `at`; stray bytes stand for themselves. */
size_t sheaf__j_character(const char *at, size_t left)
{
    const size_t n = sheaf__utf8_length(at, left);
    return n > 0 ? n : 1;
}

size_t sheaf__j_characters(sheaf__jtext text)
{
    size_t n = 0;
    for (size_t i = 0; i < text.size; i += sheaf__j_character(text.at + i, text.size - i))
        n++;
    return n;
}

sheaf__jlist sheaf__j_items(sheaf__j *j, sheaf__jvalue v)
{
    sheaf__jlist out = { 0 };
    if (v.kind == SHEAF__J_UNDEFINED)
        return out;
    if (sheaf__j_is_list(v) || v.kind == SHEAF__J_VIEW || v.kind == SHEAF__J_RANGE)
        return *v.u.list;
    if (v.kind == SHEAF__J_GENERATOR) {
        out = *v.u.list;
        v.u.list->count = 0;
        return out;
    }
    if (v.kind == SHEAF__J_DICT)
        return v.u.dict->keys;
    if (v.kind != SHEAF__J_TEXT)
        sheaf__j_raise(j, "'%s' object is not iterable", sheaf__j_kind(v));
    for (size_t i = 0, n; i < v.u.text.size; i += n) {
        n = sheaf__j_character(v.u.text.at + i, v.u.text.size - i);
        sheaf__j_append(j, &out, sheaf__j_text(v.u.text.at + i, n));
    }
    sheaf__j_work(j, out.count);
    return out;
}

/* ---- as text ---- */

void sheaf__j_put_float(sheaf__j *j, sheaf__jbuffer *b, double real)
{
    enum { WORK = 64 }; /* of up to 17 attempts */
    char digits[40], shown[64];
    sheaf__j_work(j, WORK);
    if (real != real || real - real != 0) {
        const char *word = real != real ? "nan" : real > 0 ? "inf" : "-inf";
        sheaf__j_put(j, b, word, strlen(word));
        return;
    }
    int most = 1;
    for (; most < 17; most++) { /* the shortest that reads back the same, as repr() has it */
        snprintf(digits, sizeof digits, "%.*e", most - 1, real);
        if (strtod(digits, NULL) == real)
            break;
    }
    snprintf(digits, sizeof digits, "%.*e", most - 1, real);
    const int exponent = atoi(strchr(digits, 'e') + 1);
    if (exponent >= 16 || exponent < -4)
        snprintf(shown, sizeof shown, "%s", digits);
    else
        snprintf(shown, sizeof shown, "%.*f", most - 1 - exponent > 1 ? most - 1 - exponent : 1,
                 real);
    sheaf__j_put(j, b, shown, strlen(shown));
}

static void put_int(sheaf__j *j, sheaf__jbuffer *b, int64_t whole)
{
    char shown[32];
    sheaf__j_put(j, b, shown, (size_t)snprintf(shown, sizeof shown, "%" PRId64, whole));
}

/* Blanks, controls and private characters, which repr() escapes; those that no Unicode has assigned
 * it escapes too, and here they stand as they are. */
static bool is_printable(uint32_t c)
{
    switch (utf8proc_category((utf8proc_int32_t)c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP: return false;
    case UTF8PROC_CATEGORY_ZS: return c == ' ';
    default: return true;
    }
}

static void put_character(sheaf__j *j, sheaf__jbuffer *b, const char *at, size_t n, char quote)
{
    const uint32_t c = sheaf__unicode_take(at, n, NULL);
    const char *letter = c == '\n' ? "\\n" : c == '\r' ? "\\r" : c == '\t' ? "\\t" : NULL;
    char escaped[16];
    if (letter != NULL)
        sheaf__j_put(j, b, letter, 2);
    else if (c == (unsigned char)quote || c == '\\')
        sheaf__j_put(j, b, escaped, (size_t)snprintf(escaped, sizeof escaped, "\\%c", (char)c));
    else if (!is_printable(c))
        sheaf__j_put(j, b, escaped,
                     (size_t)snprintf(escaped, sizeof escaped,
                                      c < 0x100     ? "\\x%02x"
                                      : c < 0x10000 ? "\\u%04x"
                                                    : "\\U%08x",
                                      c));
    else
        sheaf__j_put(j, b, at, n);
}

/* Quotes as repr() chooses them. */
static void put_quoted(sheaf__j *j, sheaf__jbuffer *b, sheaf__jtext text)
{
    const bool twice =
        memchr(text.at, '\'', text.size) != NULL && memchr(text.at, '"', text.size) == NULL;
    const char quote = twice ? '"' : '\'';
    sheaf__j_work(j, text.size / 8);
    sheaf__j_put(j, b, &quote, 1);
    for (size_t i = 0, n; i < text.size; i += n) {
        n = sheaf__utf8_length(text.at + i, text.size - i);
        if (n == 0)
            sheaf__j_refuse(j, "bytes that are no UTF-8");
        put_character(j, b, text.at + i, n, quote);
    }
    sheaf__j_put(j, b, &quote, 1);
}

static void put_repr(sheaf__j *j, sheaf__jbuffer *b, sheaf__jvalue v);

static void put_list(sheaf__j *j, sheaf__jbuffer *b, sheaf__jvalue v)
{
    const bool tuple = v.kind == SHEAF__J_TUPLE;
    sheaf__j_put(j, b, tuple ? "(" : "[", 1);
    for (size_t i = 0; i < v.u.list->count; i++) {
        sheaf__j_put(j, b, ", ", i > 0 ? 2 : 0);
        put_repr(j, b, v.u.list->at[i]);
    }
    sheaf__j_put(j, b, ",", tuple && v.u.list->count == 1);
    sheaf__j_put(j, b, tuple ? ")" : "]", 1);
}

static void put_repr(sheaf__j *j, sheaf__jbuffer *b, sheaf__jvalue v)
{
    sheaf__j_work(j, 1);
    sheaf__j_down(j);
    switch (v.kind) {
    case SHEAF__J_NONE: sheaf__j_put(j, b, "None", 4); break;
    case SHEAF__J_UNDEFINED: sheaf__j_put(j, b, "Undefined", 9); break;
    case SHEAF__J_BOOL: sheaf__j_put(j, b, v.u.truth ? "True" : "False", 5 - v.u.truth); break;
    case SHEAF__J_INT: put_int(j, b, v.u.whole); break;
    case SHEAF__J_FLOAT: sheaf__j_put_float(j, b, v.u.real); break;
    case SHEAF__J_TEXT:
        sheaf__j_put(j, b, "Markup(", v.form == SHEAF__J_MARKUP ? 7 : 0);
        put_quoted(j, b, v.u.text);
        sheaf__j_put(j, b, ")", v.form == SHEAF__J_MARKUP);
        break;
    case SHEAF__J_VIEW: {
        static const char *const of[] = { [SHEAF__J_KEYS] = "dict_keys(",
                                          [SHEAF__J_VALUES] = "dict_values(",
                                          [SHEAF__J_ITEMS] = "dict_items(" };
        sheaf__j_put(j, b, of[v.form], strlen(of[v.form]));
        put_list(j, b, v);
        sheaf__j_put(j, b, ")", 1);
        break;
    }
    case SHEAF__J_LIST:
    case SHEAF__J_TUPLE: put_list(j, b, v); break;
    case SHEAF__J_DICT:
        sheaf__j_put(j, b, "{", 1);
        for (size_t i = 0; i < v.u.dict->keys.count; i++) {
            sheaf__j_put(j, b, ", ", i > 0 ? 2 : 0);
            put_repr(j, b, v.u.dict->keys.at[i]);
            sheaf__j_put(j, b, ": ", 2);
            put_repr(j, b, v.u.dict->values.at[i]);
        }
        sheaf__j_put(j, b, "}", 1);
        break;
    default: sheaf__j_refuse(j, "a %s as text", sheaf__j_kind(v));
    }
    j->depth--;
}

sheaf__jtext sheaf__j_str(sheaf__j *j, sheaf__jvalue v)
{
    sheaf__jbuffer b = { 0 };
    if (v.kind == SHEAF__J_TEXT)
        return v.u.text;
    if (v.kind != SHEAF__J_UNDEFINED)
        put_repr(j, &b, v);
    return sheaf__j_buffer_text(&b).u.text;
}
