/* jinja_predicate.c - tests, `x is defined`: all that Jinja has but escaped. */
#include "base/base.h"
#include "inputs/chat/jinja_core.h"

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
    { "sequence",
      KIND(TEXT) | KIND(DICT) | KIND(LIST) | KIND(TUPLE) | KIND(UNDEFINED) | KIND(RANGE) },
    { "iterable", KIND(TEXT) | KIND(DICT) | KIND(LIST) | KIND(TUPLE) | KIND(UNDEFINED) |
                      KIND(LOOP) | KIND(GENERATOR) | KIND(VIEW) | KIND(RANGE) },
    { "callable",
      KIND(MACRO) | KIND(FUNCTION) | KIND(METHOD) | KIND(JOINER) | KIND(LOOP) | KIND(UNDEFINED) },
};

static const struct {
    const char *names, *sign;
} comparisons[] = { { "eq equalto ==", "==" },
                    { "ne !=", "!=" },
                    { "lt lessthan <", "<" },
                    { "le <=", "<=" },
                    { "gt greaterthan >", ">" },
                    { "ge >=", ">=" },
                    { "in", "in" } };

static bool is_same(sheaf__j *j, sheaf__jvalue a, sheaf__jvalue b)
{
    if (a.kind != b.kind)
        return false;
    if (a.kind == SHEAF__J_INT || a.kind == SHEAF__J_FLOAT || a.kind == SHEAF__J_TEXT)
        sheaf__j_refuse(j, "the test sameas of a %s", sheaf__j_kind(a));
    return a.kind == SHEAF__J_NONE ||
           (a.kind == SHEAF__J_BOOL ? a.u.truth == b.u.truth : a.u.list == b.u.list);
}

static bool t_odd(sheaf__jcall *c)
{
    const sheaf__jvalue by = c->at[0] != NULL ? *c->at[0] : sheaf__j_int(2);
    return sheaf__j_equal(c->j, sheaf__j_binary(c->j, SHEAF__J_WORD("%"), c->of, by),
                          sheaf__j_int(c->how));
}
static bool t_true(sheaf__jcall *c)
{
    return c->of.kind == SHEAF__J_BOOL && c->of.u.truth == (c->how != 0);
}
static bool t_same(sheaf__jcall *c)
{
    return is_same(c->j, c->of, *c->at[0]);
}
/* str(x).islower(), isupper() */
static bool t_case(sheaf__jcall *c)
{
    const sheaf__jtext of = sheaf__j_str(c->j, c->of);
    const sheaf__jarguments none = { { 0 }, { { 0 }, { 0 } } };
    return sheaf__j_call_method(c->r, sheaf__j_text(of.at, of.size),
                                c->how == 'u' ? SHEAF__J_WORD("isupper") : SHEAF__J_WORD("islower"),
                                &none)
        .u.truth;
}
static bool t_known(sheaf__jcall *c)
{
    if (c->of.kind == SHEAF__J_LIST || c->of.kind == SHEAF__J_DICT)
        sheaf__j_raise(c->j, "unhashable type: '%s'", sheaf__j_kind(c->of));
    const sheaf__jtext name = c->of.kind == SHEAF__J_TEXT ? c->of.u.text : SHEAF__J_WORD("");
    return sheaf__j_is_test(name);
}

static const struct {
    const char *name, *arguments;
    bool (*run)(sheaf__jcall *c);
    int how;
} others[] = {
    { "odd", "", t_odd, 1 },
    { "even", "", t_odd, 0 },
    { "divisibleby", "num!", t_odd, 0 },
    { "true", "", t_true, true },
    { "false", "", t_true, false },
    { "sameas", "other!", t_same, 0 },
    { "upper", "", t_case, 'u' },
    { "lower", "", t_case, 'l' },

    { "test", "", t_known },
};
enum {
    COMPARISONS = sizeof comparisons / sizeof *comparisons,
    KINDS = sizeof kinds / sizeof *kinds,
    OTHERS = sizeof others / sizeof *others
};

bool sheaf__j_is_test(sheaf__jtext name)
{
    bool is = sheaf__j_is(name, "filter"); /* jinja_evaluate.c's */
    for (int i = 0; i < COMPARISONS; i++)
        is |= sheaf__is_listed(comparisons[i].names, name.at, name.size);
    for (int i = 0; i < KINDS; i++)
        is |= sheaf__j_is(name, kinds[i].name);
    for (int i = 0; i < OTHERS; i++)
        is |= sheaf__j_is(name, others[i].name);
    return is;
}

bool sheaf__j_test(sheaf__jrun *r, sheaf__jtext name, sheaf__jvalue of,
                   const sheaf__jarguments *args)
{
    sheaf__jcall c = { .r = r, .j = r->j, .of = of, .name = name, .args = args };
    for (int i = 0; i < COMPARISONS; i++)
        if (sheaf__is_listed(comparisons[i].names, name.at, name.size)) {
            const char *sign = comparisons[i].sign;
            sheaf__j_bind(&c, sign[0] == 'i' ? "seq!" : ".other!");
            return sheaf__j_relation(r->j, (sheaf__jtext){ sign, strlen(sign) }, of, *c.at[0]);
        }
    for (int i = 0; i < OTHERS; i++)
        if (sheaf__j_is(name, others[i].name)) {
            c.how = others[i].how;
            sheaf__j_bind(&c, others[i].arguments);
            return others[i].run(&c);
        }
    for (int i = 0; i < KINDS; i++)
        if (sheaf__j_is(name, kinds[i].name)) {
            sheaf__j_bind(&c, "");
            return (kinds[i].kinds >> of.kind & 1) != 0;
        }
    sheaf__j_refuse(r->j, "the test %.*s", (int)name.size, name.at);
}
