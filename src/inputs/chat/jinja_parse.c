/* jinja_parse.c - the statements of a template as a tree; see jinja.h for which there are. */
#include "base/base.h"
#include "inputs/chat/jinja_core.h"

typedef const char *const *names; /* of statements that end a body; ends with NULL */

static sheaf__jnode *parse_body(sheaf__jparser *p, names ends);

static void expect_end(sheaf__jparser *p)
{
    if (p->at->kind != SHEAF__T_BLOCK_END)
        sheaf__j_syntax(p, "%}");
    p->at++;
}

static void expect_end_of(sheaf__jparser *p, sheaf__jnode *n)
{
    expect_end(p);
}

/* The body up to {% END %}, which is passed. */
static sheaf__jnode *body_until(sheaf__jparser *p, const char *end)
{
    const char *const ends[] = { end, NULL };
    expect_end(p);
    sheaf__jnode *body = parse_body(p, ends);
    p->at++;
    expect_end(p);
    return body;
}

/* ---- targets ---- */

static sheaf__jnode *parse_target_name(sheaf__jparser *p, bool member)
{
    sheaf__jnode *n = sheaf__j_node(p, SHEAF__E_NAME);
    n->name = sheaf__j_expect_name(p);
    if (!member || !sheaf__j_at(p, "."))
        return n;
    sheaf__jnode *of = sheaf__j_node(p, SHEAF__E_MEMBER);
    p->at++;
    of->a = n;
    of->name = sheaf__j_expect_name(p);
    return of;
}

/* One of several. Within brackets it is an expression first, so `not` is no name there. */
static sheaf__jnode *parse_target_of(sheaf__jparser *p, bool member, bool brackets)
{
    if (brackets && sheaf__j_at_name(p, "not"))
        sheaf__j_syntax(p, "a name");
    return parse_target_name(p, member);
}

/* a, or a, b, or (a, b); with `member` also a.b. A last comma stands only within brackets, and
 * behind another one `in` is a name. */
static sheaf__jnode *parse_target(sheaf__jparser *p, bool member)
{
    const bool brackets = sheaf__j_skip(p, "(");
    sheaf__jnode *n = parse_target_of(p, member, brackets);
    if (sheaf__j_at(p, ",")) {
        sheaf__jnode *tuple = sheaf__j_node(p, SHEAF__E_TUPLE), **last = &tuple->args;
        for (sheaf__jnode *entry = n; entry != NULL;) {
            sheaf__j_append_node(p, &last)->a = entry;
            entry = sheaf__j_skip(p, ",") && !(brackets && sheaf__j_at(p, ")"))
                        ? parse_target_of(p, member, brackets)
                        : NULL;
        }
        n = tuple;
    }
    if (brackets)
        sheaf__j_expect(p, ")");
    return n;
}

/* ---- statements ---- */

static void parse_for(sheaf__jparser *p, sheaf__jnode *n)
{
    static const char *const ends[] = { "else", "endfor", NULL };
    n->a = parse_target(p, false);
    if (!sheaf__j_skip_name(p, "in"))
        sheaf__j_syntax(p, "in");
    n->b = sheaf__j_parse_tuple(p, false);
    if (sheaf__j_skip_name(p, "if"))
        n->c = sheaf__j_parse_expression(p);
    n->value = sheaf__j_bool(sheaf__j_skip_name(p, "recursive"));
    expect_end(p);
    n->body = parse_body(p, ends);
    if (sheaf__j_skip_name(p, "else")) {
        n->other = body_until(p, "endfor");
        return;
    }
    p->at++;
    expect_end(p);
}

static void parse_if(sheaf__jparser *p, sheaf__jnode *n)
{
    static const char *const ends[] = { "elif", "else", "endif", NULL };
    for (;; n = n->other) {
        n->a = sheaf__j_parse_tuple(p, false);
        if (sheaf__j_at_name(p, "if")) /* an inline if needs brackets here */
            sheaf__j_syntax(p, "%}");
        expect_end(p);
        n->body = parse_body(p, ends);
        if (sheaf__j_skip_name(p, "else")) {
            n->other = body_until(p, "endif");
            return;
        }
        if (!sheaf__j_skip_name(p, "elif"))
            break;
        n->other = sheaf__j_node(p, SHEAF__N_IF);
    }
    p->at++;
    expect_end(p);
}

static void parse_set(sheaf__jparser *p, sheaf__jnode *n)
{
    n->a = parse_target(p, true);
    if (sheaf__j_skip(p, "=")) {
        n->b = sheaf__j_parse_tuple(p, true);
        expect_end(p);
        return;
    }
    n->kind = SHEAF__N_SET_BLOCK;
    if (sheaf__j_skip(p, "|"))
        n->b = sheaf__j_parse_filters(p, sheaf__j_node(p, SHEAF__E_BODY));
    n->body = body_until(p, "endset");
}

/* (a, b=1) */
static sheaf__jnode *parse_signature(sheaf__jparser *p)
{
    sheaf__jnode *first = NULL, **last = &first;
    sheaf__j_expect(p, "(");
    while (!sheaf__j_at(p, ")")) {
        if (first != NULL)
            sheaf__j_expect(p, ",");
        sheaf__jnode *n = sheaf__j_append_node(p, &last);
        n->name = sheaf__j_expect_name(p);
        if (sheaf__j_skip(p, "="))
            n->b = sheaf__j_parse_expression(p);
    }
    sheaf__j_expect(p, ")");
    return first;
}

static void parse_macro(sheaf__jparser *p, sheaf__jnode *n)
{
    n->name = sheaf__j_expect_name(p);
    n->args = parse_signature(p);
}

static void parse_call_block(sheaf__jparser *p, sheaf__jnode *n)
{
    if (sheaf__j_at(p, "("))
        n->args = parse_signature(p);
    n->name = SHEAF__J_WORD("caller");
    n->a = sheaf__j_parse_expression(p);
    if (n->a->kind != SHEAF__E_CALL)
        sheaf__j_syntax(p, "a call of a macro");
}

static void parse_filter_block(sheaf__jparser *p, sheaf__jnode *n)
{
    n->b = sheaf__j_parse_filters(p, sheaf__j_node(p, SHEAF__E_BODY));
}

static void parse_with(sheaf__jparser *p, sheaf__jnode *n)
{
    sheaf__jnode **last = &n->args;
    while (p->at->kind != SHEAF__T_BLOCK_END) {
        if (n->args != NULL)
            sheaf__j_expect(p, ",");
        sheaf__jnode *one = sheaf__j_append_node(p, &last);
        one->a = parse_target_name(p, false);
        sheaf__j_expect(p, "=");
        one->b = sheaf__j_parse_expression(p);
    }
}

static void parse_generation(sheaf__jparser *p, sheaf__jnode *n)
{
    p->marks = true;
}

static sheaf__jnode *parse_statement(sheaf__jparser *p)
{
    static const struct {
        const char *name;
        sheaf__jnode_kind kind;
        void (*parse)(sheaf__jparser *p, sheaf__jnode *n); /* reads between the name and %} */
        const char *end; /* of its body; NULL: `parse` goes to the end */
    } statements[] = {
        { "for", SHEAF__N_FOR, parse_for },
        { "if", SHEAF__N_IF, parse_if },
        { "set", SHEAF__N_SET, parse_set },
        { "macro", SHEAF__N_MACRO, parse_macro, "endmacro" },
        { "call", SHEAF__N_CALL_BLOCK, parse_call_block, "endcall" },
        { "filter", SHEAF__N_FILTER, parse_filter_block, "endfilter" },
        { "with", SHEAF__N_WITH, parse_with, "endwith" },
        { "generation", SHEAF__N_GENERATION, parse_generation, "endgeneration" },
        { "break", SHEAF__N_BREAK, expect_end_of },
        { "continue", SHEAF__N_CONTINUE, expect_end_of },
    };
    for (size_t i = 0; i < sizeof statements / sizeof *statements; i++)
        if (sheaf__j_skip_name(p, statements[i].name)) {
            sheaf__jnode *n = sheaf__j_node(p, statements[i].kind);
            const unsigned specials = p->specials;
            p->specials = 0;
            statements[i].parse(p, n);
            if (statements[i].end != NULL)
                n->body = body_until(p, statements[i].end);
            if (n->kind == SHEAF__N_MACRO || n->kind == SHEAF__N_CALL_BLOCK)
                n->value = sheaf__j_int(p->specials);
            p->specials |= specials;
            return n;
        }
    if (sheaf__j_at_one(p, "include import from extends block print autoescape do trans"))
        sheaf__j_refuse(p->j, "the statement %.*s", (int)p->at->text.size, p->at->text.at);
    sheaf__j_syntax(p, "a statement");
}

static bool at_end(const sheaf__jparser *p, names ends)
{
    for (int i = 0; ends != NULL && ends[i] != NULL; i++)
        if (sheaf__j_at_name(p, ends[i]))
            return true;
    return false;
}

/* Up to a statement of `ends` (NULL: to the end of the template), at whose name it stops. */
static sheaf__jnode *parse_body(sheaf__jparser *p, names ends)
{
    sheaf__jnode *first = NULL, **last = &first;
    sheaf__j_deeper(p);
    for (;;) {
        sheaf__jnode *n = NULL;
        p->j->line = p->at->line;
        if (p->at->kind == SHEAF__T_DATA) {
            n = sheaf__j_node(p, SHEAF__N_DATA);
            n->value = sheaf__j_text(p->at->text.at, p->at->text.size);
            p->at++;
        } else if (p->at->kind == SHEAF__T_PRINT) {
            n = sheaf__j_node(p, SHEAF__N_PRINT);
            p->at++;
            n->a = sheaf__j_parse_tuple(p, true);
            if (p->at->kind != SHEAF__T_PRINT_END)
                sheaf__j_syntax(p, "}}");
            p->at++;
        } else if (p->at->kind == SHEAF__T_BLOCK) {
            p->at++;
            if (at_end(p, ends))
                break;
            n = parse_statement(p);
        } else if (ends == NULL) {
            break;
        } else {
            sheaf__j_syntax(p, ends[0]);
        }
        *last = n;
        last = &n->next;
    }
    p->nesting--;
    return first;
}

void sheaf__jinja_free(sheaf__jinja *program)
{
    if (program == NULL)
        return;
    sheaf__j_release(&program->j);
    free(program);
}

sheaf_status *sheaf__jinja_parse(sheaf__jinja **out, const char *text, size_t size)
{
    *out = NULL;
    if (size > SHEAF__J_SOURCE)
        return sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "chat template"), "at most %d bytes",
                              SHEAF__J_SOURCE);
    sheaf__jinja *program = calloc(1, sizeof *program);
    if (program == NULL)
        return sheaf__no_memory("chat template");
    program->j.line = 1;
    if (setjmp(program->j.escape) != 0) {
        sheaf_status *st = program->j.st;
        sheaf__jinja_free(program);
        return st;
    }
    sheaf__jparser p = { .j = &program->j };
    p.at = sheaf__j_tokens(p.j, text, size);
    program->body = parse_body(&p, NULL);
    program->marks = p.marks;
    *out = program;
    return NULL;
}
