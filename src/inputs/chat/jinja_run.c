/* jinja_run.c - runs the statements of a template.
 *
 * Scopes are Jinja's: a turn of a loop, a macro, a with and a block have one of their own, an if
 * has none. A name is set in the innermost scope and looked up from there outwards. */
#include "base/base.h"
#include "inputs/chat/jinja_core.h"

static void assign_member(sheaf__jrun *r, const sheaf__jnode *target, sheaf__jvalue value)
{
    sheaf__jvalue of = sheaf__j_evaluate(r, target->a);
    if (of.kind != SHEAF__J_SPACE)
        sheaf__j_raise(r->j, "cannot assign attribute on non-namespace object");
    if (target->name.size > 0 && *target->name.at == '_')
        sheaf__j_raise(r->j, "names of a namespace may not begin with _");
    sheaf__j_set(r->j, of.u.dict, sheaf__j_text(target->name.at, target->name.size), value);
}

static void assign(sheaf__jrun *r, const sheaf__jnode *target, sheaf__jvalue value)
{
    if (target->kind == SHEAF__E_NAME) {
        sheaf__j_define(r, target->name, value);
    } else if (target->kind == SHEAF__E_MEMBER) {
        assign_member(r, target, value);
    } else {
        const sheaf__jlist items = sheaf__j_items(r->j, value);
        size_t n = 0;
        for (const sheaf__jnode *t = target->args; t != NULL; t = t->next)
            n++;
        if (n != items.count)
            sheaf__j_raise(r->j, "%zu values to unpack, expected %zu", items.count, n);
        n = 0;
        for (const sheaf__jnode *t = target->args; t != NULL; t = t->next)
            assign(r, t->a, items.at[n++]);
    }
}

/* ---- statements ---- */

static void execute_all(sheaf__jrun *r, const sheaf__jnode *body);

/* The output of `body`, in a scope of its own with `parent` around it. */
static sheaf__jvalue written(sheaf__jrun *r, const sheaf__jnode *body, sheaf__jscope *parent)
{
    sheaf__jbuffer b = { 0 }, *const out = r->out;
    sheaf__jscope *const before = sheaf__j_enter(r, parent);
    r->out = &b;
    execute_all(r, body);
    r->out = out;
    r->scope = before;
    return sheaf__j_buffer_text(&b);
}

/* The entries that the loop's condition lets through. */
static sheaf__jlist loop_items(sheaf__jrun *r, const sheaf__jnode *n, sheaf__jvalue of)
{
    const sheaf__jlist all = sheaf__j_items(r->j, of);
    sheaf__jlist some = { 0 };
    if (n->c == NULL)
        return all;
    for (size_t i = 0; i < all.count; i++) {
        sheaf__jscope *before = sheaf__j_enter(r, r->scope);
        assign(r, n->a, all.at[i]);
        if (sheaf__j_truth(sheaf__j_evaluate(r, n->c)))
            sheaf__j_append(r->j, &some, all.at[i]);
        r->scope = before;
    }
    return some;
}

static void cut(sheaf__jrun *r)
{
    sheaf__jinja_text *t = r->result;
    if (!SHEAF_GROW(&t->cut, &t->cut_capacity, t->cuts + 1))
        sheaf__j_no_memory(r->j);
    t->cut[t->cuts++] = r->out->size;
}

static void run_loop(sheaf__jrun *r, const sheaf__jnode *n, sheaf__jvalue of, int depth)
{
    sheaf__jloop *loop = sheaf__j_take(r->j, sizeof *loop);
    sheaf__jscope *const around = r->scope;
    *loop = (sheaf__jloop){ .items = loop_items(r, n, of),
                            .node = n->value.u.truth ? n : NULL,
                            .scope = around,
                            .depth = depth };
    const int loops = r->loops++;
    for (; loop->index < loop->items.count && r->leaving != SHEAF__J_BREAK; loop->index++) {
        sheaf__j_enter(r, around);
        assign(r, n->a, loop->items.at[loop->index]);
        sheaf__j_define(r, SHEAF__J_WORD("loop"),
                        (sheaf__jvalue){ SHEAF__J_LOOP, .u = { .loop = loop } });
        r->leaving = SHEAF__J_ON;
        execute_all(r, n->body);
        r->scope = around;
        if (loops == 0 && r->out == r->whole)
            cut(r);
    }
    r->leaving = SHEAF__J_ON;
    r->loops = loops;
    if (loop->items.count == 0)
        execute_all(r, n->other);
}

static void run_for(sheaf__jrun *r, const sheaf__jnode *n)
{
    run_loop(r, n, sheaf__j_evaluate(r, n->b), 0);
}

/* loop(items), of a recursive loop: what its body writes for them. */
static sheaf__jvalue call_loop(sheaf__jrun *r, const sheaf__jloop *loop,
                               const sheaf__jarguments *args)
{
    if (loop->node == NULL)
        sheaf__j_raise(r->j, "The loop must have the 'recursive' marker to be called recursively.");
    if (args->at.count != 1 || args->named.keys.count > 0)
        sheaf__j_raise(r->j, "loop() takes one argument");
    sheaf__j_down(r->j);
    sheaf__jbuffer b = { 0 }, *const out = r->out;
    sheaf__jscope *const before = r->scope;
    const int line = r->j->line;
    r->out = &b;
    r->scope = loop->scope;
    run_loop(r, loop->node, args->at.at[0], loop->depth + 1);
    r->out = out;
    r->scope = before;
    r->j->line = line;
    r->j->depth--;
    return sheaf__j_buffer_text(&b);
}

/* The output of the block, through its filters. */
static sheaf__jvalue filter_body(sheaf__jrun *r, const sheaf__jnode *n)
{
    const sheaf__jvalue body = r->body;
    sheaf__jvalue value = r->body = written(r, n->body, r->scope);
    if (n->b != NULL)
        value = sheaf__j_evaluate(r, n->b);
    r->body = body;
    return value;
}

static sheaf__jmacro *macro_of(sheaf__jrun *r, const sheaf__jnode *n)
{
    sheaf__jmacro *macro = sheaf__j_take(r->j, sizeof *macro);
    *macro = (sheaf__jmacro){ n, r->scope };
    return macro;
}

static void put(sheaf__jrun *r, sheaf__jvalue v)
{
    const sheaf__jtext text = sheaf__j_str(r->j, v);
    sheaf__j_put(r->j, r->out, text.at, text.size);
}

static sheaf__jvalue call_macro(sheaf__jrun *r, const sheaf__jmacro *macro,
                                const sheaf__jarguments *args, const sheaf__jmacro *caller);

/* {% call(a) m(b) %}: m is called with a macro `caller` that writes the body. */
static void run_call_block(sheaf__jrun *r, const sheaf__jnode *n)
{
    const sheaf__jvalue callee = sheaf__j_evaluate(r, n->a->a);
    if (callee.kind != SHEAF__J_MACRO)
        sheaf__j_refuse(r->j, "a call block of what is no macro");
    const sheaf__jarguments args = sheaf__j_arguments(r, n->a->args);
    put(r, call_macro(r, callee.u.macro, &args, macro_of(r, n)));
}

static void run_with(sheaf__jrun *r, const sheaf__jnode *n)
{
    sheaf__jlist values = { 0 };
    for (const sheaf__jnode *a = n->args; a != NULL; a = a->next)
        sheaf__j_append(r->j, &values, sheaf__j_evaluate(r, a->b));
    sheaf__jscope *const before = sheaf__j_enter(r, r->scope);
    size_t i = 0;
    for (const sheaf__jnode *a = n->args; a != NULL; a = a->next)
        assign(r, a->a, values.at[i++]);
    execute_all(r, n->body);
    r->scope = before;
}

static void run_generation(sheaf__jrun *r, const sheaf__jnode *n)
{
    sheaf__jinja_text *t = r->result;
    if (r->out != r->whole)
        sheaf__j_refuse(r->j, "a generation block inside a macro or another block");
    const size_t begin = r->out->size;
    put(r, written(r, n->body, r->scope));
    if (!SHEAF_GROW(&t->mark, NULL, t->marks + 1))
        sheaf__j_no_memory(r->j);
    t->mark[t->marks++] = (sheaf__jpiece){ begin, r->out->size, -1 };
}

static void leave(sheaf__jrun *r, const sheaf__jnode *n)
{
    if (r->loops == 0)
        sheaf__j_raise(r->j, "break or continue outside of a loop");
    r->leaving = n->kind == SHEAF__N_BREAK ? SHEAF__J_BREAK : SHEAF__J_CONTINUE;
}

static void execute(sheaf__jrun *r, const sheaf__jnode *n)
{
    switch (n->kind) {
    case SHEAF__N_DATA: put(r, n->value); break;
    case SHEAF__N_PRINT: put(r, sheaf__j_evaluate(r, n->a)); break;
    case SHEAF__N_IF:
        execute_all(r, sheaf__j_truth(sheaf__j_evaluate(r, n->a)) ? n->body : n->other);
        break;
    case SHEAF__N_FOR: run_for(r, n); break;
    case SHEAF__N_SET: assign(r, n->a, sheaf__j_evaluate(r, n->b)); break;
    case SHEAF__N_SET_BLOCK: assign(r, n->a, filter_body(r, n)); break;
    case SHEAF__N_MACRO:
        sheaf__j_define(r, n->name,
                        (sheaf__jvalue){ SHEAF__J_MACRO, .u = { .macro = macro_of(r, n) } });
        break;
    case SHEAF__N_CALL_BLOCK: run_call_block(r, n); break;
    case SHEAF__N_FILTER: put(r, filter_body(r, n)); break;
    case SHEAF__N_WITH: run_with(r, n); break;
    case SHEAF__N_GENERATION: run_generation(r, n); break;
    default: leave(r, n);
    }
}

static void execute_all(sheaf__jrun *r, const sheaf__jnode *body)
{
    sheaf__j_down(r->j);
    for (; body != NULL && r->leaving == SHEAF__J_ON; body = body->next) {
        sheaf__j_work(r->j, 1);
        r->j->line = body->line;
        execute(r, body);
    }
    r->j->depth--;
}

/* ---- macros ---- */

static const sheaf__jnode *parameter(const sheaf__jmacro *macro, sheaf__jvalue name)
{
    for (const sheaf__jnode *p = macro->node->args; p != NULL; p = p->next)
        if (sheaf__j_same(p->name, name.u.text))
            return p;
    return NULL;
}

static sheaf__jvalue caller_of(sheaf__j *j, const sheaf__jarguments *args,
                               const sheaf__jmacro *caller)
{
    const sheaf__jvalue *given =
        sheaf__j_get(j, &args->named, sheaf__j_text("caller", strlen("caller")));
    return caller != NULL
               ? (sheaf__jvalue){ SHEAF__J_MACRO, .u = { .macro = (sheaf__jmacro *)caller } }
           : given != NULL ? *given
                           : sheaf__j_undefined(SHEAF__J_WORD("caller"));
}

static void define_parameters(sheaf__jrun *r, const sheaf__jmacro *macro,
                              const sheaf__jarguments *args, const sheaf__jmacro *caller)
{
    size_t i = 0;
    for (const sheaf__jnode *p = macro->node->args; p != NULL; p = p->next, i++) {
        const sheaf__jvalue *named =
            sheaf__j_get(r->j, &args->named, sheaf__j_text(p->name.at, p->name.size));
        if (i < args->at.count && named != NULL)
            sheaf__j_raise(r->j, "macro got two values for one argument");
        sheaf__j_define(r, p->name,
                        i < args->at.count ? args->at.at[i]
                        : named != NULL    ? *named
                        : p->b != NULL     ? sheaf__j_evaluate(r, p->b)
                                           : sheaf__j_undefined(p->name));
    }
    const int64_t specials = macro->node->value.u.whole;
    sheaf__jvalue varargs = sheaf__j_list(r->j), kwargs = sheaf__j_dict(r->j);
    varargs.kind = SHEAF__J_TUPLE;
    if (args->at.count > i && (specials & SHEAF__J_VARARGS) == 0)
        sheaf__j_raise(r->j, "macro takes not more than %zu arguments", i);
    for (; i < args->at.count; i++)
        sheaf__j_append(r->j, varargs.u.list, args->at.at[i]);
    for (i = 0; i < args->named.keys.count; i++) {
        const sheaf__jvalue key = args->named.keys.at[i];
        if (parameter(macro, key) != NULL ||
            ((specials & SHEAF__J_CALLER) != 0 && sheaf__j_is(key.u.text, "caller")))
            continue;
        if ((specials & SHEAF__J_KWARGS) == 0)
            sheaf__j_raise(r->j, "macro takes no keyword argument '%.*s'", (int)key.u.text.size,
                           key.u.text.at);
        sheaf__j_set(r->j, kwargs.u.dict, key, args->named.values.at[i]);
    }
    if ((specials & SHEAF__J_VARARGS) != 0)
        sheaf__j_define(r, SHEAF__J_WORD("varargs"), varargs);
    if ((specials & SHEAF__J_KWARGS) != 0)
        sheaf__j_define(r, SHEAF__J_WORD("kwargs"), kwargs);
    if ((specials & SHEAF__J_CALLER) != 0)
        sheaf__j_define(r, SHEAF__J_WORD("caller"), caller_of(r->j, args, caller));
    else if (caller != NULL)
        sheaf__j_raise(r->j, "macro takes no keyword argument 'caller'");
}

static sheaf__jvalue call_macro(sheaf__jrun *r, const sheaf__jmacro *macro,
                                const sheaf__jarguments *args, const sheaf__jmacro *caller)
{
    sheaf__j_down(r->j);
    const int line = r->j->line, loops = r->loops;
    sheaf__jscope *const before = sheaf__j_enter(r, macro->scope);
    r->loops = 0;
    define_parameters(r, macro, args, caller);
    sheaf__jbuffer b = { 0 }, *const out = r->out;
    r->out = &b;
    execute_all(r, macro->node->body);
    r->out = out;
    r->scope = before;
    r->loops = loops;
    r->j->line = line;
    r->j->depth--;
    return sheaf__j_buffer_text(&b);
}

/* ---- all of it ---- */

static void run_all(sheaf__j *j, sheaf__jbuffer *b, sheaf__jinja_text *result,
                    const sheaf__jinja *program, const json_t *variables, const sheaf__date *today)
{
    sheaf__jrun r = { .j = j,
                      .out = b,
                      .whole = b,
                      .call_macro = call_macro,
                      .call_loop = call_loop,
                      .today = today,
                      .result = result };
    const char *key;
    json_t *value;
    j->is_method = sheaf__j_is_method;
    j->is_unsafe = sheaf__j_is_unsafe;
    sheaf__j_read_messages(j, json_object_get(variables, "messages"));
    sheaf__j_enter(&r, NULL);
    json_object_foreach((json_t *)variables, key, value)
        sheaf__j_define(&r, (sheaf__jtext){ key, strlen(key) }, sheaf__j_of_json(j, value));
    sheaf__j_enter(&r, r.scope);
    execute_all(&r, program->body);
}

/* Out of the arena. */
static sheaf_status *keep(sheaf__jinja_text *out, const sheaf__j *j, const sheaf__jbuffer *b)
{
    out->text = malloc(b->size + 1);
    out->piece = sheaf__j_pieces(j, b->at, b->size, &out->pieces);
    if (out->text == NULL || out->piece == NULL)
        return sheaf__no_memory("chat template");
    if (b->size > 0)
        memcpy(out->text, b->at, b->size);
    out->text[b->size] = '\0';
    out->size = b->size;
    return NULL;
}

sheaf_status *sheaf__jinja_render(sheaf__jinja_text *out, const sheaf__jinja *program,
                                  const json_t *variables, const sheaf__date *today)
{
    sheaf__j *j = calloc(1, sizeof *j);
    sheaf__jbuffer *b = calloc(1, sizeof *b);
    *out = (sheaf__jinja_text){ 0 };
    if (j == NULL || b == NULL) {
        free(j), free(b);
        return sheaf__no_memory("chat template");
    }
    if (setjmp(j->escape) == 0)
        run_all(j, b, out, program, variables, today);
    sheaf_status *st = j->st;
    TRY(st, keep(out, j, b));
    if (st != NULL)
        sheaf__jinja_text_release(out);
    sheaf__j_release(j);
    free(j), free(b);
    return st;
}

void sheaf__jinja_text_release(sheaf__jinja_text *t)
{
    free(t->text);
    free(t->piece);
    free(t->mark);
    free(t->cut);
    *t = (sheaf__jinja_text){ 0 };
}

bool sheaf__jinja_has_marks(const sheaf__jinja *program)
{
    return program->marks;
}
