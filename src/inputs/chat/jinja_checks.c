/* jinja_checks.c - tests: `x is defined`. */
#include "inputs/chat/jinja_core.h"

typedef bool check(sheaf__jrun *r, sheaf__jvalue v, const sheaf__jarguments *args);

static sheaf__jvalue other(sheaf__jrun *r, const sheaf__jarguments *args)
{
    if (args->at.count != 1 || args->named.keys.count > 0)
        sheaf__j_raise(r->j, "this test takes one argument");
    return args->at.at[0];
}

static bool c_true(sheaf__jrun *r, sheaf__jvalue v, const sheaf__jarguments *args)
{
    return v.kind == SHEAF__J_BOOL && v.u.truth;
}
static bool c_false(sheaf__jrun *r, sheaf__jvalue v, const sheaf__jarguments *args)
{
    return v.kind == SHEAF__J_BOOL && !v.u.truth;
}
static bool c_sequence(sheaf__jrun *r, sheaf__jvalue v, const sheaf__jarguments *args)
{
    if (v.kind == SHEAF__J_VIEW)
        sheaf__j_refuse(r->j, "the test sequence of a range or of a dict's view");
    return v.kind == SHEAF__J_TEXT || v.kind == SHEAF__J_DICT || sheaf__j_is_list(v) ||
           v.kind == SHEAF__J_UNDEFINED;
}
static bool c_odd(sheaf__jrun *r, sheaf__jvalue v, const sheaf__jarguments *args)
{
    const sheaf__jvalue rest = sheaf__j_binary(r->j, SHEAF__J_WORD("%"), v, sheaf__j_int(2));
    return sheaf__j_equal(r->j, rest, sheaf__j_int(1));
}
static bool c_even(sheaf__jrun *r, sheaf__jvalue v, const sheaf__jarguments *args)
{
    const sheaf__jvalue rest = sheaf__j_binary(r->j, SHEAF__J_WORD("%"), v, sheaf__j_int(2));
    return sheaf__j_equal(r->j, rest, sheaf__j_int(0));
}
static bool c_divisibleby(sheaf__jrun *r, sheaf__jvalue v, const sheaf__jarguments *args)
{
    const sheaf__jvalue rest = sheaf__j_binary(r->j, SHEAF__J_WORD("%"), v, other(r, args));
    return sheaf__j_equal(r->j, rest, sheaf__j_int(0));
}
static bool c_eq(sheaf__jrun *r, sheaf__jvalue v, const sheaf__jarguments *args)
{
    return sheaf__j_equal(r->j, v, other(r, args));
}
static bool c_ne(sheaf__jrun *r, sheaf__jvalue v, const sheaf__jarguments *args)
{
    return !sheaf__j_equal(r->j, v, other(r, args));
}
static bool c_lt(sheaf__jrun *r, sheaf__jvalue v, const sheaf__jarguments *args)
{
    return sheaf__j_compare(r->j, v, other(r, args)) < 0;
}
static bool c_le(sheaf__jrun *r, sheaf__jvalue v, const sheaf__jarguments *args)
{
    return sheaf__j_compare(r->j, v, other(r, args)) <= 0;
}
static bool c_gt(sheaf__jrun *r, sheaf__jvalue v, const sheaf__jarguments *args)
{
    return sheaf__j_compare(r->j, v, other(r, args)) > 0;
}
static bool c_ge(sheaf__jrun *r, sheaf__jvalue v, const sheaf__jarguments *args)
{
    return sheaf__j_compare(r->j, v, other(r, args)) >= 0;
}
static bool c_in(sheaf__jrun *r, sheaf__jvalue v, const sheaf__jarguments *args)
{
    return sheaf__j_contains(r->j, other(r, args), v);
}
/* By what kind of value it is: True is a number to Python. */
#define KIND(K) (1u << SHEAF__J_##K)
static const struct {
    const char *name;
    unsigned kinds;
} kinds[] = {
    { "defined", ~KIND(UNDEFINED) },
    { "undefined", KIND(UNDEFINED) },
    { "none", KIND(NONE) },
    { "boolean", KIND(BOOL) },
    { "integer", KIND(INT) },
    { "float", KIND(FLOAT) },
    { "number", KIND(BOOL) | KIND(INT) | KIND(FLOAT) },
    { "string", KIND(TEXT) },
    { "mapping", KIND(DICT) },
    { "iterable", KIND(TEXT) | KIND(DICT) | KIND(LIST) | KIND(TUPLE) | KIND(UNDEFINED) |
                      KIND(LOOP) | KIND(GENERATOR) | KIND(VIEW) },
    { "callable", KIND(MACRO) | KIND(FUNCTION) },
};

static const struct {
    const char *name;
    size_t arguments;
    check *run;
} checks[] = {
    { "true", 0, c_true }, { "false", 0, c_false },    { "sequence", 0, c_sequence },
    { "odd", 0, c_odd },   { "even", 0, c_even },      { "divisibleby", 1, c_divisibleby },
    { "eq", 1, c_eq },     { "equalto", 1, c_eq },     { "ne", 1, c_ne },
    { "lt", 1, c_lt },     { "lessthan", 1, c_lt },    { "le", 1, c_le },
    { "gt", 1, c_gt },     { "greaterthan", 1, c_gt }, { "ge", 1, c_ge },
    { "in", 1, c_in },     { "==", 1, c_eq },          { "!=", 1, c_ne },
    { "<", 1, c_lt },      { "<=", 1, c_le },          { ">", 1, c_gt },
    { ">=", 1, c_ge },
};

static void check_count(sheaf__jrun *r, const char *name, const sheaf__jarguments *args,
                        size_t most)
{
    if (args->at.count + args->named.keys.count > most)
        sheaf__j_raise(r->j, "the test %s takes %zu arguments", name, most);
}

bool sheaf__j_test(sheaf__jrun *r, sheaf__jtext name, sheaf__jvalue of,
                   const sheaf__jarguments *args)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (sheaf__j_is(name, kinds[i].name)) {
            check_count(r, kinds[i].name, args, 0);
            return (kinds[i].kinds >> of.kind & 1) != 0;
        }
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++)
        if (sheaf__j_is(name, checks[i].name)) {
            check_count(r, checks[i].name, args, checks[i].arguments);
            return checks[i].run(r, of, args);
        }
    sheaf__j_refuse(r->j, "the test %.*s", (int)name.size, name.at);
}
