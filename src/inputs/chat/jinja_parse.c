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
            *last = sheaf__j_node(p, SHEAF__E_ARGUMENT);
            (*last)->a = entry;
            last = &(*last)->next;
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

static sheaf__jnode *parse_for(sheaf__jparser *p)
{
    static const char *const ends[] = { "else", "endfor", NULL };
    sheaf__jnode *n = sheaf__j_node(p, SHEAF__N_FOR);
    n->a = parse_target(p, false);
    if (!sheaf__j_skip_name(p, "in"))
        sheaf__j_syntax(p, "in");
    n->b = sheaf__j_parse_tuple(p, false);
    if (sheaf__j_skip_name(p, "if"))
        n->c = sheaf__j_parse_expression(p);
    if (sheaf__j_at_name(p, "recursive"))
        sheaf__j_refuse(p->j, "recursive loops");
    expect_end(p);
    n->body = parse_body(p, ends);
    if (sheaf__j_skip_name(p, "else")) {
        n->other = body_until(p, "endfor");
        return n;
    }
    p->at++;
    expect_end(p);
    return n;
}

static sheaf__jnode *parse_if(sheaf__jparser *p)
{
    static const char *const ends[] = { "elif", "else", "endif", NULL };
    sheaf__jnode *n = sheaf__j_node(p, SHEAF__N_IF), *last = n;
    for (;;) {
        last->a = sheaf__j_parse_tuple(p, false);
        if (sheaf__j_at_name(p, "if")) /* an inline if needs brackets here */
            sheaf__j_syntax(p, "%}");
        expect_end(p);
        last->body = parse_body(p, ends);
        if (sheaf__j_skip_name(p, "elif")) {
            last->other = sheaf__j_node(p, SHEAF__N_IF);
            last = last->other;
        } else if (sheaf__j_skip_name(p, "else")) {
            last->other = body_until(p, "endif");
            return n;
        } else {
            p->at++;
            expect_end(p);
            return n;
        }
    }
}

static sheaf__jnode *parse_set(sheaf__jparser *p)
{
    sheaf__jnode *n = sheaf__j_node(p, SHEAF__N_SET);
    n->a = parse_target(p, true);
    if (sheaf__j_skip(p, "=")) {
        n->b = sheaf__j_parse_tuple(p, true);
        expect_end(p);
        return n;
    }
    n->kind = SHEAF__N_SET_BLOCK;
    if (sheaf__j_skip(p, "|"))
        n->b = sheaf__j_parse_filters(p, sheaf__j_node(p, SHEAF__E_BODY));
    n->body = body_until(p, "endset");
    return n;
}

/* (a, b=1) */
static sheaf__jnode *parse_signature(sheaf__jparser *p)
{
    sheaf__jnode *first = NULL, **last = &first;
    sheaf__j_expect(p, "(");
    while (!sheaf__j_at(p, ")")) {
        if (first != NULL)
            sheaf__j_expect(p, ",");
        sheaf__jnode *n = sheaf__j_node(p, SHEAF__E_ARGUMENT);
        n->name = sheaf__j_expect_name(p);
        if (sheaf__j_skip(p, "="))
            n->b = sheaf__j_parse_expression(p);
        *last = n;
        last = &n->next;
    }
    sheaf__j_expect(p, ")");
    return first;
}

static sheaf__jnode *parse_macro(sheaf__jparser *p)
{
    sheaf__jnode *n = sheaf__j_node(p, SHEAF__N_MACRO);
    n->name = sheaf__j_expect_name(p);
    n->args = parse_signature(p);
    n->body = body_until(p, "endmacro");
    return n;
}

static sheaf__jnode *parse_call_block(sheaf__jparser *p)
{
    sheaf__jnode *n = sheaf__j_node(p, SHEAF__N_CALL_BLOCK);
    if (sheaf__j_at(p, "("))
        n->args = parse_signature(p);
    n->name = SHEAF__J_WORD("caller");
    n->a = sheaf__j_parse_expression(p);
    if (n->a->kind != SHEAF__E_CALL)
        sheaf__j_syntax(p, "a call of a macro");
    n->body = body_until(p, "endcall");
    return n;
}

static sheaf__jnode *parse_filter_block(sheaf__jparser *p)
{
    sheaf__jnode *n = sheaf__j_node(p, SHEAF__N_FILTER);
    n->a = sheaf__j_parse_filters(p, sheaf__j_node(p, SHEAF__E_BODY));
    n->body = body_until(p, "endfilter");
    return n;
}

static sheaf__jnode *parse_with(sheaf__jparser *p)
{
    sheaf__jnode *n = sheaf__j_node(p, SHEAF__N_WITH), **last = &n->args;
    while (p->at->kind != SHEAF__T_BLOCK_END) {
        if (n->args != NULL)
            sheaf__j_expect(p, ",");
        *last = sheaf__j_node(p, SHEAF__E_ARGUMENT);
        (*last)->a = parse_target_name(p, false);
        sheaf__j_expect(p, "=");
        (*last)->b = sheaf__j_parse_expression(p);
        last = &(*last)->next;
    }
    n->body = body_until(p, "endwith");
    return n;
}

static sheaf__jnode *parse_generation(sheaf__jparser *p)
{
    sheaf__jnode *n = sheaf__j_node(p, SHEAF__N_GENERATION);
    p->marks = true;
    n->body = body_until(p, "endgeneration");
    return n;
}

static sheaf__jnode *parse_break(sheaf__jparser *p)
{
    sheaf__jnode *n = sheaf__j_node(p, SHEAF__N_BREAK);
    expect_end(p);
    return n;
}
static sheaf__jnode *parse_continue(sheaf__jparser *p)
{
    sheaf__jnode *n = sheaf__j_node(p, SHEAF__N_CONTINUE);
    expect_end(p);
    return n;
}

static sheaf__jnode *parse_statement(sheaf__jparser *p)
{
    static const struct {
        const char *name;
        sheaf__jnode *(*parse)(sheaf__jparser *p);
    } statements[] = {
        { "for", parse_for },         { "if", parse_if },
        { "set", parse_set },         { "macro", parse_macro },
        { "call", parse_call_block }, { "filter", parse_filter_block },
        { "with", parse_with },       { "generation", parse_generation },
        { "break", parse_break },     { "continue", parse_continue },
    };
    static const char *const others[] = { "include", "import",     "from", "extends", "block",
                                          "print",   "autoescape", "do",   "trans" };
    for (size_t i = 0; i < sizeof statements / sizeof *statements; i++)
        if (sheaf__j_skip_name(p, statements[i].name))
            return statements[i].parse(p);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (sheaf__j_at_name(p, others[i]))
            sheaf__j_refuse(p->j, "the statement %s", others[i]);
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
