/* jinja_expression.c - expressions of a template, with the precedence of Jinja's parser:
 *
 *   a if b else c, or, and, not, comparison (in, not in too), + -, ~, * / // %, **, sign, then what
 *   follows a value: .name [..] (..), and after these |filter and is test */
#include "inputs/chat/jinja_core.h"

#include <errno.h>

#include "base/base.h"

/* ---- tokens ---- */

void sheaf__j_syntax(sheaf__jparser *p, const char *expected)
{
    static const char *const marks[] = { "the end", "text", "{%", "%}", "{{", "}}" };
    const sheaf__jtoken *t = p->at;
    p->j->line = t->line;
    sheaf_status *st = sheaf_expected(sheaf_fail(SHEAF_E_FORMAT, "chat template"), "%s", expected);
    if (t->kind < SHEAF__T_NAME)
        st = sheaf_found(st, "%s", marks[t->kind]);
    else
        st = sheaf_found(st, "'%.*s'", t->text.size > 40 ? 40 : (int)t->text.size, t->text.at);
    sheaf__j_fail(p->j, st);
}

bool sheaf__j_at(const sheaf__jparser *p, const char *sign)
{
    return p->at->kind == SHEAF__T_SIGN && sheaf__j_is(p->at->text, sign);
}
bool sheaf__j_at_name(const sheaf__jparser *p, const char *name)
{
    return p->at->kind == SHEAF__T_NAME && sheaf__j_is(p->at->text, name);
}
bool sheaf__j_at_one(const sheaf__jparser *p, const char *list)
{
    return (p->at->kind == SHEAF__T_NAME || p->at->kind == SHEAF__T_SIGN) &&
           sheaf__is_listed(list, p->at->text.at, p->at->text.size);
}
bool sheaf__j_skip(sheaf__jparser *p, const char *sign)
{
    const bool there = sheaf__j_at(p, sign);
    p->at += there;
    return there;
}
bool sheaf__j_skip_name(sheaf__jparser *p, const char *name)
{
    const bool there = sheaf__j_at_name(p, name);
    p->at += there;
    return there;
}
void sheaf__j_expect(sheaf__jparser *p, const char *sign)
{
    if (!sheaf__j_skip(p, sign))
        sheaf__j_syntax(p, sign);
}
sheaf__jtext sheaf__j_expect_name(sheaf__jparser *p)
{
    if (p->at->kind != SHEAF__T_NAME)
        sheaf__j_syntax(p, "a name");
    return (p->at++)->text;
}

sheaf__jnode *sheaf__j_node(sheaf__jparser *p, sheaf__jnode_kind kind)
{
    sheaf__jnode *n = sheaf__j_take(p->j, sizeof *n);
    n->kind = kind;
    n->line = p->at->line;
    return n;
}

sheaf__jnode *sheaf__j_append_node(sheaf__jparser *p, sheaf__jnode ***last)
{
    sheaf__jnode *n = **last = sheaf__j_node(p, SHEAF__E_ARGUMENT);
    *last = &n->next;
    return n;
}

void sheaf__j_deeper(sheaf__jparser *p)
{
    p->j->line = p->at->line;
    if (++p->nesting > SHEAF__J_NESTING)
        sheaf__j_refuse(p->j, "more than %d levels", SHEAF__J_NESTING);
}

/* ---- values ---- */

enum { OR, AND, NOT, COMPARISON, SUM, UNARY = 8 };
static sheaf__jnode *parse_rank(sheaf__jparser *p, int rank);

static sheaf__jnode *constant(sheaf__jparser *p, sheaf__jvalue value)
{
    sheaf__jnode *n = sheaf__j_node(p, SHEAF__E_CONST);
    n->value = value;
    return n;
}

/* Digits without underscores, ended by NUL. */
static const char *digits(sheaf__jparser *p, sheaf__jtext text)
{
    char *to = sheaf__j_take(p->j, text.size + 1);
    size_t n = 0;
    for (size_t i = 0; i < text.size; i++)
        if (text.at[i] != '_')
            to[n++] = text.at[i];
    return to;
}

static sheaf__jnode *parse_number(sheaf__jparser *p)
{
    const char *text = digits(p, p->at->text);
    sheaf__jvalue value;
    errno = 0;
    static const char prefix[] = "xob";
    const char *base = text[0] == '0' && text[1] != '\0' ? strchr(prefix, text[1] | 0x20) : NULL;
    if (p->at->kind == SHEAF__T_INT)
        value = sheaf__j_int(strtoll(base != NULL ? text + 2 : text, NULL,
                                     base == NULL   ? 10
                                     : *base == 'x' ? 16
                                     : *base == 'o' ? 8
                                                    : 2));
    else
        value = sheaf__j_float(strtod(text, NULL));
    if (errno == ERANGE && p->at->kind == SHEAF__T_INT)
        sheaf__j_refuse(p->j, "a number beyond 64 bits");
    sheaf__jnode *n = constant(p, value);
    p->at++;
    return n;
}

static sheaf__jnode *parse_string(sheaf__jparser *p)
{
    sheaf__jbuffer b = { 0 };
    sheaf__jnode *n = sheaf__j_node(p, SHEAF__E_CONST);
    n->value = sheaf__j_text(p->at->text.at, p->at->text.size);
    if (p->at[1].kind != SHEAF__T_TEXT) {
        p->at++;
        return n;
    }
    for (; p->at->kind == SHEAF__T_TEXT; p->at++) /* neighbours are one string */
        sheaf__j_put(p->j, &b, p->at->text.at, p->at->text.size);
    n->value = sheaf__j_buffer_text(&b);
    return n;
}

static sheaf__jnode *parse_name(sheaf__jparser *p)
{
    if (sheaf__j_at_one(p, "true True false False none None")) {
        const char first = (char)(*p->at->text.at | 0x20);
        sheaf__jnode *n = constant(p, first == 'n' ? sheaf__j_none() : sheaf__j_bool(first == 't'));
        p->at++;
        return n;
    }
    p->specials |= sheaf__j_at_name(p, "varargs")  ? SHEAF__J_VARARGS
                   : sheaf__j_at_name(p, "kwargs") ? SHEAF__J_KWARGS
                   : sheaf__j_at_name(p, "caller") ? SHEAF__J_CALLER
                                                   : 0;
    sheaf__jnode *n = sheaf__j_node(p, SHEAF__E_NAME);
    n->name = sheaf__j_expect_name(p);
    return n;
}

/* Entries between commas up to `close`; dicts: key: value. */
static sheaf__jnode *parse_entries(sheaf__jparser *p, sheaf__jnode_kind kind, const char *close)
{
    sheaf__jnode *n = sheaf__j_node(p, kind), **last = &n->args;
    p->at++;
    while (!sheaf__j_at(p, close)) {
        if (n->args != NULL) {
            sheaf__j_expect(p, ",");
            if (sheaf__j_at(p, close))
                break;
        }
        sheaf__jnode *entry = sheaf__j_append_node(p, &last);
        entry->a = sheaf__j_parse_expression(p);
        if (kind == SHEAF__E_DICT) {
            sheaf__j_expect(p, ":");
            entry->b = sheaf__j_parse_expression(p);
        }
    }
    sheaf__j_expect(p, close);
    return n;
}

static sheaf__jnode *parse_brackets(sheaf__jparser *p)
{
    p->at++;
    if (sheaf__j_skip(p, ")"))
        return sheaf__j_node(p, SHEAF__E_TUPLE);
    sheaf__jnode *n = sheaf__j_parse_tuple(p, true);
    sheaf__j_expect(p, ")");
    return n;
}

static sheaf__jnode *parse_primary(sheaf__jparser *p)
{
    if (p->at->kind == SHEAF__T_NAME)
        return parse_name(p);
    if (p->at->kind == SHEAF__T_TEXT)
        return parse_string(p);
    if (p->at->kind == SHEAF__T_INT || p->at->kind == SHEAF__T_FLOAT)
        return parse_number(p);
    if (sheaf__j_at(p, "("))
        return parse_brackets(p);
    if (sheaf__j_at(p, "["))
        return parse_entries(p, SHEAF__E_LIST, "]");
    if (sheaf__j_at(p, "{"))
        return parse_entries(p, SHEAF__E_DICT, "}");
    sheaf__j_syntax(p, "a value");
}

/* ---- what follows a value ---- */

/* The rank of an argument: by place, by keyword, *list, **dict. Jinja takes a keyword behind a
 * *list, and one of each of these. */
enum { BY_PLACE, BY_KEYWORD, FROM_LIST, FROM_DICT };

static bool may_follow(int rank, const bool seen[4])
{
    return !seen[FROM_DICT] && (rank == BY_PLACE    ? !seen[BY_KEYWORD] && !seen[FROM_LIST]
                                : rank == FROM_LIST ? !seen[FROM_LIST]
                                                    : true);
}

/* From "(" on. */
static sheaf__jnode *parse_arguments(sheaf__jparser *p)
{
    sheaf__jnode *first = NULL, **last = &first;
    bool seen[4] = { false };
    sheaf__j_expect(p, "(");
    while (!sheaf__j_at(p, ")")) {
        if (first != NULL) {
            sheaf__j_expect(p, ",");
            if (sheaf__j_at(p, ")"))
                break;
        }
        sheaf__jnode *n = sheaf__j_append_node(p, &last);
        int rank = sheaf__j_at(p, "*") ? FROM_LIST : sheaf__j_at(p, "**") ? FROM_DICT : BY_PLACE;
        if (rank != BY_PLACE) {
            n->name = (p->at++)->text;
        } else if (p->at->kind == SHEAF__T_NAME && p->at[1].kind == SHEAF__T_SIGN &&
                   sheaf__j_is(p->at[1].text, "=")) {
            rank = BY_KEYWORD;
            n->name = p->at->text;
            p->at += 2;
        }
        if (!may_follow(rank, seen))
            sheaf__j_syntax(p, "arguments by place, then by keyword, *list and **dict");
        for (const sheaf__jnode *k = first; rank == BY_KEYWORD && k != n; k = k->next)
            if (sheaf__j_same(k->name, n->name))
                sheaf__j_syntax(p, "each keyword once");
        seen[rank] = true;
        n->a = sheaf__j_parse_expression(p);
    }
    sheaf__j_expect(p, ")");
    return first;
}

static sheaf__jnode *bound(sheaf__jparser *p)
{
    return sheaf__j_at(p, ":") || sheaf__j_at(p, "]") ? NULL : sheaf__j_parse_expression(p);
}

static sheaf__jnode *parse_subscript(sheaf__jparser *p, sheaf__jnode *of)
{
    sheaf__jnode *n = sheaf__j_node(p, SHEAF__E_ITEM);
    n->a = of;
    p->at++;
    n->b = bound(p);
    if (sheaf__j_skip(p, ":")) {
        n->kind = SHEAF__E_SLICE;
        n->c = bound(p);
        if (sheaf__j_skip(p, ":"))
            n->d = bound(p);
    } else if (n->b == NULL) { /* a[] is a[()] */
        n->b = sheaf__j_node(p, SHEAF__E_TUPLE);
    } else if (sheaf__j_at(p, ",")) { /* a[b, c] is a[(b, c)] */
        sheaf__jnode *tuple = sheaf__j_node(p, SHEAF__E_TUPLE), **last = &tuple->args;
        sheaf__j_append_node(p, &last)->a = n->b;
        while (sheaf__j_skip(p, ","))
            sheaf__j_append_node(p, &last)->a = sheaf__j_parse_expression(p);
        n->b = tuple;
    }
    sheaf__j_expect(p, "]");
    return n;
}

static sheaf__jnode *parse_member(sheaf__jparser *p, sheaf__jnode *of)
{
    sheaf__jnode *n = sheaf__j_node(p, SHEAF__E_MEMBER);
    p->at++;
    n->a = of;
    if (p->at->kind == SHEAF__T_INT) { /* a.0 is a[0] */
        n->kind = SHEAF__E_ITEM;
        n->b = parse_number(p);
    } else {
        n->name = sheaf__j_expect_name(p);
    }
    return n;
}

static sheaf__jnode *parse_call(sheaf__jparser *p, sheaf__jnode *of)
{
    sheaf__jnode *n = sheaf__j_node(p, SHEAF__E_CALL);
    n->a = of;
    n->args = parse_arguments(p);
    return n;
}

static sheaf__jnode *parse_postfix(sheaf__jparser *p, sheaf__jnode *n)
{
    for (;;) {
        if (sheaf__j_at(p, "."))
            n = parse_member(p, n);
        else if (sheaf__j_at(p, "["))
            n = parse_subscript(p, n);
        else if (sheaf__j_at(p, "("))
            n = parse_call(p, n);
        else
            return n;
    }
}

static sheaf__jnode *parse_filter(sheaf__jparser *p, sheaf__jnode *of)
{
    sheaf__jnode *n = sheaf__j_node(p, SHEAF__E_FILTER);
    n->a = of;
    n->name = sheaf__j_expect_name(p);
    if (sheaf__j_at(p, "."))
        sheaf__j_refuse(p->j, "filters with a point in their name");
    if (sheaf__j_at(p, "("))
        n->args = parse_arguments(p);
    return n;
}

sheaf__jnode *sheaf__j_parse_filters(sheaf__jparser *p, sheaf__jnode *of)
{
    do
        of = parse_filter(p, of);
    while (sheaf__j_skip(p, "|"));
    return of;
}

static bool begins_value(const sheaf__jparser *p)
{
    if (p->at->kind == SHEAF__T_NAME)
        return !sheaf__j_at_one(p, "else or and");
    return p->at->kind == SHEAF__T_TEXT || p->at->kind == SHEAF__T_INT ||
           p->at->kind == SHEAF__T_FLOAT || sheaf__j_at(p, "[") || sheaf__j_at(p, "{");
}

static sheaf__jnode *parse_test(sheaf__jparser *p, sheaf__jnode *of)
{
    const bool not = sheaf__j_skip_name(p, "not");
    sheaf__jnode *n = sheaf__j_node(p, SHEAF__E_TEST);
    n->a = of;
    n->name = sheaf__j_expect_name(p);
    if (sheaf__j_at(p, "(")) {
        n->args = parse_arguments(p);
    } else if (begins_value(p)) { /* is divisibleby 3 */
        if (sheaf__j_at_name(p, "is"))
            sheaf__j_syntax(p, "one test: a is b is c means nothing");
        n->args = sheaf__j_node(p, SHEAF__E_ARGUMENT);
        n->args->a = parse_postfix(p, parse_primary(p));
    }
    if (!not )
        return n;
    sheaf__jnode *negated = sheaf__j_node(p, SHEAF__E_NOT);
    negated->a = n;
    return negated;
}

static sheaf__jnode *parse_filters_and_tests(sheaf__jparser *p, sheaf__jnode *n)
{
    for (;;) {
        if (sheaf__j_skip(p, "|"))
            n = parse_filter(p, n);
        else if (sheaf__j_skip_name(p, "is"))
            n = parse_test(p, n);
        else if (sheaf__j_at(p, "("))
            n = parse_call(p, n);
        else
            return n;
    }
}

/* ---- operators ---- */

static sheaf__jnode *parse_unary(sheaf__jparser *p, bool filters)
{
    sheaf__jnode *n;
    sheaf__j_deeper(p);
    if (sheaf__j_at_one(p, "- +")) {
        n = sheaf__j_node(p, SHEAF__E_SIGN);
        n->name = (p->at++)->text;
        n->a = parse_unary(p, false);
    } else {
        n = parse_primary(p);
    }
    n = parse_postfix(p, n);
    if (filters)
        n = parse_filters_and_tests(p, n);
    p->nesting--;
    return n;
}

static sheaf__jnode *parse_not(sheaf__jparser *p)
{
    if (!sheaf__j_at_name(p, "not"))
        return parse_rank(p, COMPARISON);
    sheaf__j_deeper(p);
    sheaf__jnode *n = sheaf__j_node(p, SHEAF__E_NOT);
    p->at++;
    n->a = parse_not(p);
    p->nesting--;
    return n;
}

static sheaf__jnode *parse_comparison(sheaf__jparser *p)
{
    sheaf__jnode *n = parse_rank(p, SUM), **last = NULL;
    while (sheaf__j_at_one(p, "== != < <= > >= in") ||
           (sheaf__j_at_name(p, "not") && p->at[1].kind == SHEAF__T_NAME &&
            sheaf__j_is(p->at[1].text, "in"))) {
        if (last == NULL) {
            sheaf__jnode *comparison = sheaf__j_node(p, SHEAF__E_COMPARE);
            comparison->a = n;
            n = comparison;
            last = &n->args;
        }
        sheaf__jnode *with = sheaf__j_append_node(p, &last);
        with->name = p->at->text; /* "not" for not in */
        p->at += sheaf__j_at_name(p, "not") ? 2 : 1;
        with->a = parse_rank(p, SUM);
    }
    return n;
}

/* Operators of this rank and above; all bind to the left, as in Jinja ** too. */
static sheaf__jnode *parse_rank(sheaf__jparser *p, int rank)
{
    static const char *const signs[UNARY] = { [OR] = "or", [AND] = "and", [SUM] = "+ -",
                                              "~",         "* / // %",    "**" };
    if (rank == NOT)
        return parse_not(p);
    if (rank == COMPARISON)
        return parse_comparison(p);
    if (rank == UNARY)
        return parse_unary(p, true);
    sheaf__jnode *n = parse_rank(p, rank + 1);
    while (sheaf__j_at_one(p, signs[rank])) {
        sheaf__jnode *binary = sheaf__j_node(p, SHEAF__E_BINARY);
        binary->name = (p->at++)->text;
        binary->a = n;
        binary->b = parse_rank(p, rank + 1);
        n = binary;
    }
    return n;
}

sheaf__jnode *sheaf__j_parse_expression(sheaf__jparser *p)
{
    sheaf__j_deeper(p);
    sheaf__jnode *n = parse_rank(p, OR);
    while (sheaf__j_at_name(p, "if")) {
        sheaf__jnode *choice = sheaf__j_node(p, SHEAF__E_CHOICE);
        p->at++;
        choice->a = n;
        choice->b = parse_rank(p, OR);
        if (sheaf__j_skip_name(p, "else"))
            choice->c = sheaf__j_parse_expression(p);
        n = choice;
    }
    p->nesting--;
    return n;
}

sheaf__jnode *sheaf__j_parse_tuple(sheaf__jparser *p, bool choice)
{
    sheaf__jnode *first = choice ? sheaf__j_parse_expression(p) : parse_rank(p, OR);
    if (!sheaf__j_at(p, ","))
        return first;
    sheaf__jnode *tuple = sheaf__j_node(p, SHEAF__E_TUPLE), **last = &tuple->args;
    for (sheaf__jnode *entry = first; entry != NULL;) {
        sheaf__j_append_node(p, &last)->a = entry;
        const bool ends = !sheaf__j_skip(p, ",") || p->at->kind == SHEAF__T_BLOCK_END ||
                          p->at->kind == SHEAF__T_PRINT_END || sheaf__j_at(p, ")");
        entry = ends ? NULL : choice ? sheaf__j_parse_expression(p) : parse_rank(p, OR);
    }
    return tuple;
}
