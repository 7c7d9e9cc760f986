/* json_schema.c - a JSON Schema as a program of grammar.h.
 *
 * Followed are type (also a list), enum, const, properties, required, additionalProperties, items,
 * minItems, maxItems, minLength, maxLength, anyOf, allOf of one, and $ref within the schema, also
 * to itself. Words that only describe are passed over; any other is refused by name, as an answer
 * that ignores it would look as if it had been checked.
 *
 * Properties are written in the order of the schema, others behind them: where `properties` are
 * named and `additionalProperties` is not, none, as with llama.cpp. */
#include "infer/grammar.h"

#include "base/base.h"
#include "base/json.h"
#include "base/json_write.h"

enum {
    MOST_CODE = 1 << 18,
    MOST_PARTS = 4096,
    MOST_LISTED = 1 << 16, /* entries of lists, of all parts together */
    MOST_TEXT = 1 << 20,
    MOST_TYPES = 7,    /* of `kinds` */
    MOST_VALUES = 256, /* of enum */
    MOST_NAME = 1000,  /* bytes of a property's name */
    MOST_HOPS = 64,    /* from $ref to $ref, and of anyOf in anyOf */
    BLANKS = 20,       /* behind a line feed */
};

/* A schema that has a part. */
typedef struct part {
    const json_t *schema; /* NULL: any value */
    char path[128];
} part;

typedef struct compiler {
    sheaf__grammar_program *out;
    const json_t *root;
    part *part; /* [out->parts] */
    int64_t capacity;
    const char *path; /* of the schema that is compiled, for messages */
    int32_t blanks;   /* the part of blanks between tokens */
    size_t listed;    /* MOST_LISTED */
    sheaf_status *st;
} compiler;

/* ---- failures ---- */

static sheaf_status *fail(compiler *c, sheaf_code code, const char *key)
{
    if (c->st == NULL)
        c->st = sheaf_fail(code, "schema %s: '%.60s'", c->path, key);
    return c->st;
}

static void wrong(compiler *c, const char *key, const char *expected)
{
    if (c->st == NULL)
        sheaf_expected(fail(c, SHEAF_E_DATA, key), "%s", expected);
}

static void too_many(compiler *c, const char *key, int most, const char *what)
{
    if (c->st == NULL)
        sheaf_expected(fail(c, SHEAF_E_DATA, key), "at most %d %s", most, what);
}

static void too_large(compiler *c)
{
    if (c->st == NULL)
        c->st = sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "the schema"), "a smaller one");
}

static void no_memory(compiler *c)
{
    if (c->st == NULL)
        c->st = sheaf__no_memory("the form of an answer");
}

/* ---- code ---- */

static int32_t emit(compiler *c, sheaf__grammar_code code)
{
    sheaf__grammar_program *p = c->out;
    if (p->n == MOST_CODE)
        too_large(c);
    if (c->st == NULL && !SHEAF_GROW(&p->code, &p->capacity, p->n + 1))
        no_memory(c);
    if (c->st != NULL)
        return 0;
    p->code[p->n] = code;
    return (int32_t)p->n++;
}

static int32_t emit_op(compiler *c, sheaf__grammar_op op, int32_t to)
{
    return emit(c, (sheaf__grammar_code){ .op = (uint8_t)op, .to = to });
}

static void emit_bytes(compiler *c, const char *text, size_t size)
{
    for (size_t i = 0; i < size; i++)
        emit(c, (sheaf__grammar_code){ .op = SHEAF__G_BYTE, .byte = (uint8_t)text[i] });
}

static void emit_text(compiler *c, const char *text)
{
    emit_bytes(c, text, strlen(text));
}

/* Lets a jump lead to the next place that is emitted. */
static void land(compiler *c, int32_t from)
{
    if (c->st == NULL)
        c->out->code[from].to = (int32_t)c->out->n;
}

static void emit_steps(compiler *c, sheaf__grammar_code code, int n)
{
    for (int i = 0; i < n; i++) {
        code.step = (uint8_t)i;
        emit(c, code);
    }
}

static void emit_blanks(compiler *c)
{
    emit_op(c, SHEAF__G_CALL, c->blanks);
}

/* The part of a schema, which is compiled in its turn. */
static int32_t part_of(compiler *c, const json_t *schema, const char *word, const char *name)
{
    sheaf__grammar_program *p = c->out;
    for (int64_t i = 0; i < p->parts; i++)
        if (c->part[i].schema == schema && i > c->blanks)
            return (int32_t)i;
    if (p->parts == MOST_PARTS)
        too_large(c);
    if (c->st == NULL && (!SHEAF_GROW(&c->part, &c->capacity, p->parts + 1) ||
                          !SHEAF_GROW(&p->part, &p->parts_capacity, p->parts + 1)))
        no_memory(c);
    if (c->st != NULL)
        return 0;
    part *one = &c->part[p->parts];
    one->schema = schema;
    snprintf(one->path, sizeof one->path, "%s%s%s%s%.40s", c->path, *c->path == '\0' ? "" : "/",
             word, *name == '\0' ? "" : "/", name);
    return (int32_t)p->parts++;
}

static int32_t name_of(compiler *c, char *name)
{
    sheaf__grammar_program *p = c->out;
    if (c->st == NULL && !SHEAF_GROW(&p->name, &p->names_capacity, p->names + 1))
        no_memory(c);
    if (c->st != NULL) {
        free(name);
        return 0;
    }
    p->name[p->names] = name;
    return (int32_t)p->names++;
}

/* ---- words ---- */

/* Those that are followed, for each kind of value; and those that only describe. */
static const char
    of_all
        [] = "type enum const anyOf allOf $ref",
  of_object[] = "properties required additionalProperties", of_array[] = "items minItems maxItems",
  of_string[] = "minLength maxLength",
  describing[] =
      "title description default examples example deprecated readOnly writeOnly $schema $id $anchor "
      "$comment $defs definitions";

static bool is_among(const char *list, const char *word)
{
    return sheaf__is_listed(list, word, strlen(word));
}

/* Has it one of these words? */
static bool has_any(const json_t *schema, const char *list)
{
    const char *word;
    json_t *value;
    json_object_foreach((json_t *)schema, word, value) if (is_among(list, word)) return true;
    return false;
}

static void check_words(compiler *c, const json_t *schema)
{
    const char *word;
    json_t *value;
    json_object_foreach((json_t *)schema, word, value)
    {
        const bool followed = is_among(of_all, word) || is_among(of_object, word) ||
                              is_among(of_array, word) || is_among(of_string, word);
        if (followed || is_among(describing, word) ||
            (json_is_false(value) && strcmp(word, "uniqueItems") == 0))
            continue;
        if (c->st == NULL)
            sheaf_expected(fail(c, SHEAF_E_UNSUPPORTED, word),
                           "none: answers cannot be held to it here (%s, %s, %s, %s are followed)",
                           of_all, of_object, of_array, of_string);
    }
}

/* Before loops that compare entries of lists with each other. */
static void check_lists(compiler *c, const json_t *schema)
{
    const json_t *all = json_object_get(schema, "properties"),
                 *required = json_object_get(schema, "required");
    const size_t types = json_array_size(json_object_get(schema, "type")),
                 names = json_object_size(all) + json_array_size(required),
                 values = json_array_size(json_object_get(schema, "enum"));
    c->listed += types + names + values;
    if (values > MOST_VALUES)
        too_many(c, "enum", MOST_VALUES, "values");
    if (types > MOST_TYPES || names > MOST_PARTS || c->listed > MOST_LISTED)
        too_large(c);
    if (all != NULL && !json_is_object(all))
        wrong(c, "properties", "an object: names and their schemas");
    if (required != NULL && !json_is_array(required))
        wrong(c, "required", "a list of names that an object may have");
}

/* Beside `word` may be those `with` it, and words that describe. */
static void check_alone(compiler *c, const json_t *schema, const char *word, const char *with)
{
    const char *other;
    json_t *value;
    json_object_foreach((json_t *)schema, other,
                        value) if (strcmp(other, word) != 0 && !is_among(with, other) &&
                                   !is_among(describing, other)) if (c->st == NULL)
        sheaf_expected(fail(c, SHEAF_E_UNSUPPORTED, word), "no '%.60s' beside it", other);
}

/* The target of $ref: "#", "#/$defs/NAME"; of a pointer ~0, ~1 and %XX are not read. */
static const json_t *find(compiler *c, const char *ref)
{
    const json_t *at = c->root;
    char word[MOST_NAME];
    if (ref == NULL || *ref++ != '#')
        at = NULL;
    while (at != NULL && *ref == '/') {
        const size_t n = strcspn(++ref, "/");
        snprintf(word, sizeof word, "%.*s", (int)(n < sizeof word ? n : 0), ref);
        at = n >= sizeof word    ? NULL
             : json_is_array(at) ? json_array_get(at, strtoul(word, NULL, 10))
                                 : json_object_get(at, word);
        ref += n;
    }
    if (at == NULL || *ref != '\0')
        wrong(c, "$ref", "\"#\" or \"#/...\", a part of this schema");
    return at;
}

/* ---- values ---- */

static int64_t bound(compiler *c, const json_t *schema, const char *word, int64_t absent)
{
    sheaf_json_reader r = { .object = schema };
    const int64_t n = sheaf__json_int(&r, word, 0, 1000000, absent);
    if (r.st != NULL && c->st == NULL)
        c->st = sheaf_in(r.st, "schema %s", c->path);
    else
        sheaf_status_free(r.st);
    return n;
}

static void bounds(compiler *c, const json_t *schema, const char *least, const char *most,
                   sheaf__grammar_code *to)
{
    to->min = (int32_t)bound(c, schema, least, 0);
    to->max = (int32_t)bound(c, schema, most, -1);
    if (to->max >= 0 && to->max < to->min)
        wrong(c, most, "a number that is not below the least one");
}

static void add_string(compiler *c, const json_t *schema)
{
    sheaf__grammar_code code = { .op = SHEAF__G_STRING };
    bounds(c, schema, "minLength", "maxLength", &code);
    emit_text(c, "\"");
    emit_steps(c, code, SHEAF__G_STRING_STEPS);
}

static void add_number(compiler *c, bool whole)
{
    emit_steps(c,
               (sheaf__grammar_code){ .op = SHEAF__G_NUMBER, .byte = whole ? SHEAF__G_WHOLE : 0 },
               SHEAF__G_NUMBER_STEPS);
}

/* A schema inside: an object, or true, which is any value. */
static int32_t inner(compiler *c, const json_t *schema, const char *word, const char *name)
{
    if (schema != NULL && !json_is_object(schema) && !json_is_true(schema))
        wrong(c, word, "a schema: an object, or true");
    return part_of(c, json_is_object(schema) ? schema : NULL, word, name);
}

static void add_array(compiler *c, const json_t *schema)
{
    sheaf__grammar_code code = { .op = SHEAF__G_COUNT };
    bounds(c, schema, "minItems", "maxItems", &code);
    const int32_t item = inner(c, json_object_get(schema, "items"), "items", "");
    emit_text(c, "[");
    emit_blanks(c);
    if (code.max != 0) {
        const int32_t none = code.min == 0 ? emit_op(c, SHEAF__G_SPLIT, 0) : 0,
                      again = emit(c, code);
        emit_op(c, SHEAF__G_CALL, item);
        emit_blanks(c);
        code.op = SHEAF__G_MORE;
        const int32_t more = emit(c, code);
        emit_text(c, ",");
        emit_blanks(c);
        emit_op(c, SHEAF__G_JUMP, again);
        land(c, more);
        if (code.min == 0)
            land(c, none);
    }
    emit_text(c, "]");
}

/* One property: its name as JSON, and its value. */
typedef struct property {
    const char *name;
    const json_t *schema;
    bool required;
} property;

static bool is_listed(const property *p, int n, const char *name)
{
    for (int i = 0; i < n; i++)
        if (strcmp(p[i].name, name) == 0)
            return true;
    return false;
}

static bool is_required(const json_t *list, const char *name)
{
    size_t i;
    const json_t *one;
    json_array_foreach((json_t *)list, i,
                       one) if (json_is_string(one) &&
                                strcmp(json_string_value(one), name) == 0) return true;
    return false;
}

/* Those of `properties`, then those that are only required, which are as others. */
static int list_properties(compiler *c, property *out, const json_t *schema)
{
    const json_t *others = json_object_get(schema, "additionalProperties"),
                 *all = json_object_get(schema, "properties"),
                 *required = json_object_get(schema, "required"), *one;
    const char *name;
    json_t *value;
    size_t i;
    int n = 0;
    json_object_foreach((json_t *)all, name, value) out[n++] =
        (property){ name, value, is_required(required, name) };
    json_array_foreach((json_t *)required, i, one)
    {
        if (json_is_string(one) && is_listed(out, n, json_string_value(one)))
            continue;
        if (!json_is_string(one) || json_is_false(others)) {
            wrong(c, "required", "a list of names that an object may have");
            return n;
        }
        out[n++] = (property){ json_string_value(one), others, true };
    }
    return n;
}

static void add_key(compiler *c, const property *p)
{
    sheaf_text quoted = { 0 };
    if (strlen(p->name) > MOST_NAME)
        too_many(c, "properties", MOST_NAME, "bytes in a name");
    sheaf__text_json(&quoted, p->name);
    if (quoted.failed)
        no_memory(c);
    else
        emit_bytes(c, quoted.at, quoted.size);
    sheaf__text_release(&quoted);
}

/* Names that are none of `n`, and their values. */
static void add_others(compiler *c, const property *p, int n, const json_t *schema)
{
    sheaf__grammar_code code = { .op = SHEAF__G_STRING, .max = -1 };
    code.first = (int32_t)c->out->names;
    code.names = n;
    for (int i = 0; i < n; i++) {
        char *name = strdup(p[i].name);
        if (name == NULL)
            no_memory(c);
        else
            name_of(c, name);
    }
    emit_text(c, "\"");
    emit_steps(c, code, SHEAF__G_STRING_STEPS);
    emit_text(c, ":");
    emit_blanks(c);
    emit_op(c, SHEAF__G_CALL, inner(c, schema, "additionalProperties", ""));
    emit_blanks(c);
}

/* Each property has three places: where nothing was written before it, where something was, and its
 * key. Until they are known, jumps have their numbers. */
enum { NOTHING, SOMETHING, KEY, PLACES };

static void place(compiler *c, int32_t *places, int i, int which)
{
    places[PLACES * i + which] = (int32_t)c->out->n;
}

/* Property i begins; it may be left out. */
static void begin_property(compiler *c, int32_t *places, int i, bool optional, int32_t without)
{
    place(c, places, i, NOTHING);
    if (optional)
        emit_op(c, SHEAF__G_SPLIT, without + NOTHING);
    emit_op(c, SHEAF__G_JUMP, PLACES * i + KEY);
    place(c, places, i, SOMETHING);
    if (optional)
        emit_op(c, SHEAF__G_SPLIT, without + SOMETHING);
    emit_text(c, ",");
    emit_blanks(c);
    place(c, places, i, KEY);
}

static void add_properties(compiler *c, int32_t *places, const property *p, int n,
                           const json_t *schema)
{
    const json_t *others = json_object_get(schema, "additionalProperties");
    const bool more = others != NULL ? !json_is_false(others) : n == 0;
    emit_text(c, "{");
    emit_blanks(c);
    const int64_t begin = c->out->n;
    for (int i = 0; i < n; i++) {
        begin_property(c, places, i, !p[i].required, PLACES * (i + 1));
        add_key(c, &p[i]);
        emit_text(c, ":");
        emit_blanks(c);
        emit_op(c, SHEAF__G_CALL, inner(c, p[i].schema, "properties", p[i].name));
        emit_blanks(c);
        emit_op(c, SHEAF__G_JUMP, PLACES * (i + 1) + SOMETHING);
    }
    if (more) {
        begin_property(c, places, n, true, PLACES * (n + 1));
        add_others(c, p, n, others);
        emit_op(c, SHEAF__G_JUMP, PLACES * n + SOMETHING);
    }
    for (int i = more ? n + 1 : n; i <= n + 1; i++)
        for (int k = 0; k < PLACES; k++)
            place(c, places, i, k);
    for (int64_t at = begin; at < c->out->n && c->st == NULL; at++) {
        sheaf__grammar_code *code = &c->out->code[at];
        if (code->op == SHEAF__G_SPLIT || code->op == SHEAF__G_JUMP)
            code->to = places[code->to];
    }
    emit_text(c, "}");
}

static void add_object(compiler *c, const json_t *schema)
{
    const size_t n = json_object_size(json_object_get(schema, "properties")) +
                     json_array_size(json_object_get(schema, "required"));
    property *p = malloc((n + 1) * sizeof *p);
    int32_t *places = malloc((n + 2) * PLACES * sizeof *places);
    if (p == NULL || places == NULL)
        no_memory(c);
    else
        add_properties(c, places, p, list_properties(c, p, schema), schema);
    free(p);
    free(places);
}

/* ---- alternatives ---- */

static const char kinds[] = "object array string number integer boolean null";

static bool is_of(const json_t *value, const char *kind)
{
    return strcmp(kind, "object") == 0    ? json_is_object(value)
           : strcmp(kind, "array") == 0   ? json_is_array(value)
           : strcmp(kind, "string") == 0  ? json_is_string(value)
           : strcmp(kind, "number") == 0  ? json_is_number(value)
           : strcmp(kind, "integer") == 0 ? json_is_integer(value)
           : strcmp(kind, "boolean") == 0 ? json_is_boolean(value)
                                          : json_is_null(value);
}

/* Is the value one that "type", a name or a list of some, allows? */
static bool is_allowed(const json_t *type, const json_t *value)
{
    size_t i;
    const json_t *one;
    bool any = type == NULL || (json_is_string(type) && is_of(value, json_string_value(type)));
    json_array_foreach((json_t *)type, i, one) any =
        any || (json_is_string(one) && is_of(value, json_string_value(one)));
    return any;
}

/* An alternative of a part: behind the RETURN that ends it the next one is tried. */
static int32_t begin_alternative(compiler *c)
{
    return emit_op(c, SHEAF__G_SPLIT, 0);
}

static void end_alternative(compiler *c, int32_t begun)
{
    emit_op(c, SHEAF__G_RETURN, 0);
    land(c, begun);
}

static void add_word(compiler *c, const char *word)
{
    const int32_t begun = begin_alternative(c);
    emit_text(c, word);
    end_alternative(c, begun);
}

static void add_literal(compiler *c, const json_t *value)
{
    char number[SHEAF__JSON_NUMBER], *text = NULL;
    if (json_is_real(value)) {
        add_word(c, sheaf__number_json(number, json_real_value(value)));
        return;
    }
    if (c->st == NULL)
        c->st = sheaf__json_text(&text, value, JSON_COMPACT | JSON_ENCODE_ANY);
    if (c->st == NULL)
        add_word(c, text);
    free(text);
}

/* The values of enum, or the one of const, that "type" allows. */
static void add_values(compiler *c, const json_t *schema)
{
    const json_t *type = json_object_get(schema, "type"), *list = json_object_get(schema, "enum"),
                 *only = json_object_get(schema, "const"), *value;
    size_t i;
    int n = 0;
    check_alone(c, schema, only != NULL ? "const" : "enum", "type enum const");
    json_array_foreach((json_t *)list, i, value)
    {
        if (!is_allowed(type, value) || (only != NULL && !json_equal(only, value)))
            continue;
        add_literal(c, value);
        n++;
    }
    if (list == NULL && is_allowed(type, only)) {
        add_literal(c, only);
        n++;
    }
    if (n == 0)
        wrong(c, only != NULL ? "const" : "enum", "a value that the schema allows");
}

static void add_kind(compiler *c, const json_t *schema, const char *kind)
{
    if (strcmp(kind, "boolean") == 0) {
        add_word(c, "true");
        add_word(c, "false");
        return;
    }
    const int32_t begun = begin_alternative(c);
    if (strcmp(kind, "object") == 0)
        add_object(c, schema);
    else if (strcmp(kind, "array") == 0)
        add_array(c, schema);
    else if (strcmp(kind, "string") == 0)
        add_string(c, schema);
    else if (strcmp(kind, "null") == 0)
        emit_text(c, "null");
    else if (is_among(kinds, kind))
        add_number(c, strcmp(kind, "integer") == 0);
    else
        wrong(c, "type", kinds);
    end_alternative(c, begun);
}

/* Without a type it is that which the words are about; without these, any. */
static void add_kinds(compiler *c, const json_t *schema)
{
    const json_t *type = json_object_get(schema, "type"), *one;
    char word[16];
    size_t i;
    if (json_is_string(type)) {
        add_kind(c, schema, json_string_value(type));
    } else if (json_is_array(type) && json_array_size(type) > 0) {
        json_array_foreach((json_t *)type, i, one)
            add_kind(c, schema, json_is_string(one) ? json_string_value(one) : "");
    } else if (type != NULL) {
        wrong(c, "type", kinds);
    } else if (has_any(schema, of_object)) {
        add_kind(c, schema, "object");
    } else if (has_any(schema, of_array)) {
        add_kind(c, schema, "array");
    } else if (has_any(schema, of_string)) {
        add_kind(c, schema, "string");
    } else {
        for (const char *at = kinds; *at != '\0'; at += strcspn(at, " "), at += *at == ' ') {
            snprintf(word, sizeof word, "%.*s", (int)strcspn(at, " "), at);
            add_kind(c, schema, word);
        }
    }
}

/* All that a schema allows; NULL: any value. */
static void add_alternatives(compiler *c, const json_t *schema, int hops)
{
    const json_t *ref = json_object_get(schema, "$ref"), *any = json_object_get(schema, "anyOf"),
                 *all = json_object_get(schema, "allOf"), *list = any != NULL ? any : all, *one;
    const char *word = ref != NULL ? "$ref" : any != NULL ? "anyOf" : "allOf";
    size_t i;
    if (c->st != NULL)
        return;
    check_words(c, schema);
    check_lists(c, schema);
    if (hops > MOST_HOPS)
        wrong(c, word, "a schema that does not refer to itself before a value begins");
    if (c->st != NULL)
        return;
    if (ref != NULL || list != NULL)
        check_alone(c, schema, word, "");
    if (ref != NULL) {
        one = find(c, json_string_value(ref));
        if (!json_is_object(one) && !json_is_true(one))
            wrong(c, word, "a schema");
        add_alternatives(c, json_is_object(one) ? one : NULL, hops + 1);
    } else if (list != NULL) {
        if (json_array_size(list) == 0 || (any == NULL && json_array_size(list) > 1))
            wrong(c, word, any != NULL ? "a list of schemas" : "a list of one schema");
        json_array_foreach((json_t *)list, i, one)
        {
            if (!json_is_object(one))
                wrong(c, word, "schemas");
            add_alternatives(c, one, hops + 1);
        }
    } else if (json_object_get(schema, "enum") != NULL ||
               json_object_get(schema, "const") != NULL) {
        add_values(c, schema);
    } else {
        add_kinds(c, schema);
    }
}

/* Nothing, a blank, or a line feed and some more: a model that has no end of blanks never writes
 * its answer. */
static void add_blanks(compiler *c)
{
    int32_t begun = begin_alternative(c);
    end_alternative(c, begun);
    add_word(c, " ");
    emit_text(c, "\n");
    const int32_t end = (int32_t)c->out->n + BLANKS;
    for (int i = 0; i < BLANKS; i++)
        emit_op(c, SHEAF__G_BLANK, end);
    emit_op(c, SHEAF__G_RETURN, 0);
}

static void compile(compiler *c, const sheaf__answer_form *form)
{
    sheaf__grammar_program *p = c->out;
    char path[sizeof c->part->path];
    c->blanks = 1;
    p->parts = 2;
    p->part[0] = 0;
    emit_text(c, form->before == NULL ? "" : form->before);
    emit_op(c, SHEAF__G_CALL, part_of(c, c->root, "#", ""));
    emit_text(c, form->after == NULL ? "" : form->after);
    emit_op(c, SHEAF__G_RETURN, 0);
    p->part[1] = (int32_t)p->n;
    add_blanks(c);
    for (int64_t i = 2; i < p->parts && c->st == NULL; i++) {
        p->part[i] = (int32_t)p->n;
        memcpy(path, c->part[i].path, sizeof path);
        c->path = path;
        add_alternatives(c, c->part[i].schema, 0);
        emit_op(c, SHEAF__G_NOTHING, 0); /* the last alternative has no other */
    }
}

sheaf_status *sheaf__grammar_compile(sheaf__grammar_program *out, const sheaf__answer_form *form)
{
    json_t *root = NULL;
    compiler c = { .out = out, .path = "" };
    *out = (sheaf__grammar_program){ 0 };
    const size_t size = strlen(form->schema);
    if (size > MOST_TEXT)
        too_large(&c);
    sheaf_status *st =
        c.st != NULL ? c.st : sheaf_in(sheaf__json_parse(&root, form->schema, size), "schema");
    if (st != NULL)
        return st;
    c.root = root;
    if (SHEAF_GROW(&out->part, &out->parts_capacity, 2) && SHEAF_GROW(&c.part, &c.capacity, 2))
        compile(&c, form);
    else
        no_memory(&c);
    free(c.part);
    json_decref(root);
    return c.st;
}

void sheaf__grammar_program_release(sheaf__grammar_program *p)
{
    for (int64_t i = 0; i < p->names; i++)
        free(p->name[i]);
    free(p->name);
    free(p->code);
    free(p->part);
    *p = (sheaf__grammar_program){ 0 };
}
