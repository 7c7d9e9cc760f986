/* jinja_core.h - private: memory, failures, values and the tree of a template.
 *
 * All memory of a parse or a run comes from one arena, which is freed as a whole; so a failure is a
 * longjmp() to the entry (sheaf__j_fail) that skips no clean-up. */
#pragma once

#include <jansson.h>
#include <setjmp.h>

#include "base/base.h"
#include "inputs/chat/jinja.h"

/* The bounds of one parse or run. Those of memory and steps grow with the input, so that long
 * conversations are not refused. */
enum {
    SHEAF__J_MEMORY = 32 << 20, /* bytes */
    SHEAF__J_MEMORY_EACH = 32,  /* in addition for each byte of the variables */
    SHEAF__J_STEPS = 2000000,   /* nodes visited; long texts and lists count by their size */
    SHEAF__J_STEPS_EACH = 16,
    SHEAF__J_VALUE = 64,          /* bytes charged for a value without its text */
    SHEAF__J_DEPTH = 400,         /* nested calls of the evaluator */
    SHEAF__J_NESTING = 150,       /* nested brackets and blocks */
    SHEAF__J_SOURCE = 1 << 20,    /* bytes of a template */
    SHEAF__J_RANGE_SIZE = 100000, /* entries of range(), as in Jinja's sandbox */
};

struct sheaf__jvalue;
struct sheaf__jtext;

typedef struct sheaf__j {
    jmp_buf escape;
    sheaf_status *st;
    struct sheaf__j_block *blocks;
    struct sheaf__jregion *region; /* [regions] by address: jinja_source.c */
    int64_t regions, region_capacity;
    size_t used, given; /* bytes */
    int64_t steps;
    int depth, line; /* of the template, for messages */
    /* jinja_method.c's, for jinja_operate.c below it. Would it change its receiver? Jinja's sandbox
     * has no such method. */
    bool (*is_method)(struct sheaf__jvalue of, struct sheaf__jtext name);
    bool (*is_unsafe)(struct sheaf__jvalue of, struct sheaf__jtext name);
} sheaf__j;

static inline _Noreturn void sheaf__j_fail(sheaf__j *j, sheaf_status *st)
{
    j->st = sheaf_in(st, "line %d", j->line);
    longjmp(j->escape, 1);
}
static inline _Noreturn void sheaf__j_no_memory(sheaf__j *j)
{
    sheaf__j_fail(j, sheaf__no_memory("chat template"));
}
/* An exception, as in Jinja; a refusal of an unsupported feature. */
_Noreturn void sheaf__j_raise(sheaf__j *j, const char *fmt, ...) SHEAF_PRINTF(2, 3);
_Noreturn void sheaf__j_refuse(sheaf__j *j, const char *fmt, ...) SHEAF_PRINTF(2, 3);
void *sheaf__j_take(sheaf__j *j, size_t size); /* zeroed */
void sheaf__j_work(sheaf__j *j, size_t units);
void sheaf__j_down(sheaf__j *j); /* enters a level; j->depth-- leaves it */
void sheaf__j_release(sheaf__j *j);

/* ---- values ---- */

typedef enum sheaf__jkind {
    SHEAF__J_UNDEFINED,
    SHEAF__J_NONE,
    SHEAF__J_BOOL,
    SHEAF__J_INT,
    SHEAF__J_FLOAT,
    SHEAF__J_TEXT,
    SHEAF__J_LIST,
    SHEAF__J_TUPLE,
    SHEAF__J_DICT,
    SHEAF__J_SPACE, /* a namespace */
    SHEAF__J_MACRO,
    SHEAF__J_LOOP,
    SHEAF__J_FUNCTION,  /* of the globals: text names it */
    SHEAF__J_GENERATOR, /* list: result of map, select and the like; true in a test, iterable once
                         */
    SHEAF__J_VIEW,      /* list: of a dict; `form` says of what */
    SHEAF__J_RANGE,     /* list */
    SHEAF__J_METHOD,    /* a method without its call */
    SHEAF__J_JOINER,    /* list: of joiner() what is next, and its separator */
} sheaf__jkind;

typedef enum sheaf__jform {
    SHEAF__J_PLAIN,
    SHEAF__J_MARKUP, /* a text of the filter safe, Python's Markup, which escapes what is added */
    SHEAF__J_KEYS,   /* a view of a dict's keys, values or items */
    SHEAF__J_VALUES,
    SHEAF__J_ITEMS,
} sheaf__jform;

typedef struct sheaf__jtext {
    const char *at; /* borrowed from the source, the variables or the arena; no NUL behind it */
    size_t size;
} sheaf__jtext;

typedef struct sheaf__jvalue {
    sheaf__jkind kind;
    sheaf__jform form;
    union {
        bool truth;
        int64_t whole;
        double real;
        sheaf__jtext text; /* of UNDEFINED: the undefined name */
        struct sheaf__jlist *list;
        struct sheaf__jdict *dict; /* of SPACE too */
        struct sheaf__jmacro *macro;
        struct sheaf__jloop *loop;
        struct sheaf__jmethod *method;
    } u;
} sheaf__jvalue;

typedef struct sheaf__jlist {
    sheaf__jvalue *at;
    size_t count, capacity;
} sheaf__jlist;

typedef struct sheaf__jdict {
    sheaf__jlist keys, values;
} sheaf__jdict;

typedef struct sheaf__jloop {
    sheaf__jlist items;
    size_t index;
    sheaf__jvalue changed;           /* arguments of the last loop.changed() */
    bool has_changed;                /* it was called */
    const struct sheaf__jnode *node; /* of a recursive one, which templates may call; or NULL */
    struct sheaf__jscope *scope;     /* around it */
    int depth;                       /* loops of the same node around it */
} sheaf__jloop;

typedef struct sheaf__jmethod {
    sheaf__jvalue of;
    sheaf__jtext name;
} sheaf__jmethod;

typedef struct sheaf__jmacro {
    const struct sheaf__jnode *node;
    struct sheaf__jscope *scope; /* of its definition */
} sheaf__jmacro;

typedef struct sheaf__jbuffer { /* a growing text in the arena */
    char *at;
    size_t size, capacity;
} sheaf__jbuffer;

typedef struct sheaf__jsource {
    const char *at;
    size_t size;
    int64_t message; /* from 0: the message that the text belongs to */
} sheaf__jsource;

#define SHEAF__J_WORD(s) ((sheaf__jtext){ (s), sizeof(s) - 1 })
bool sheaf__j_is(sheaf__jtext text, const char *word);
bool sheaf__j_same(sheaf__jtext a, sheaf__jtext b);

sheaf__jvalue sheaf__j_undefined(sheaf__jtext what);
sheaf__jvalue sheaf__j_none(void);
sheaf__jvalue sheaf__j_bool(bool truth);
sheaf__jvalue sheaf__j_int(int64_t whole);
sheaf__jvalue sheaf__j_float(double real);
sheaf__jvalue sheaf__j_text(const char *at, size_t size);
sheaf__jvalue sheaf__j_list(sheaf__j *j); /* empty */
sheaf__jvalue sheaf__j_dict(sheaf__j *j);
sheaf__jvalue sheaf__j_pair(sheaf__j *j, sheaf__jvalue a, sheaf__jvalue b);
sheaf__jvalue sheaf__j_as(sheaf__jkind kind, sheaf__jlist *list);
sheaf__jvalue sheaf__j_of_json(sheaf__j *j, const json_t *json);
/* Charges the steps of iterating over a value once: its text or its entries, without their
 * contents. */
void sheaf__j_read(sheaf__j *j, sheaf__jvalue v);

void sheaf__j_append(sheaf__j *j, sheaf__jlist *list, sheaf__jvalue value);
/* NULL: no such key. */
sheaf__jvalue *sheaf__j_get(sheaf__j *j, const sheaf__jdict *dict, sheaf__jvalue key);
void sheaf__j_set(sheaf__j *j, sheaf__jdict *dict, sheaf__jvalue key, sheaf__jvalue value);
void sheaf__j_put(sheaf__j *j, sheaf__jbuffer *b, const char *at, size_t size);
sheaf__jvalue sheaf__j_buffer_text(const sheaf__jbuffer *b);

void sheaf__j_put_for(sheaf__j *j, sheaf__jbuffer *b, const char *bytes, size_t size,
                      const char *at); /* with the source of the bytes at `at`, as for upper case */

/* Sources of bytes (jinja_source.c). */
void sheaf__j_read_messages(sheaf__j *j, const json_t *messages);
void sheaf__j_add_region(sheaf__j *j, const char *at, size_t size);
void sheaf__j_copy_source(sheaf__j *j, const char *to, const char *at, size_t size);
void sheaf__j_set_source(sheaf__j *j, const char *at, size_t size, int64_t message);
int64_t sheaf__j_message_at(const sheaf__j *j, const char *at); /* -1: none */
sheaf__jpiece *sheaf__j_pieces(const sheaf__j *j, const char *at, size_t size, int64_t *n);
void sheaf__j_release_regions(sheaf__j *j);

void sheaf__j_defined(sheaf__j *j, sheaf__jvalue v); /* raises if it is undefined */
bool sheaf__j_truth(sheaf__jvalue v);
bool sheaf__j_is_list(sheaf__jvalue v);   /* or a tuple */
bool sheaf__j_is_number(sheaf__jvalue v); /* or a truth value, as in Python */
double sheaf__j_real(sheaf__jvalue v);    /* of a number */
int64_t sheaf__j_whole(sheaf__jvalue v);  /* of an int or a truth value */
bool sheaf__j_equal(sheaf__j *j, sheaf__jvalue a, sheaf__jvalue b);
int sheaf__j_compare(sheaf__j *j, sheaf__jvalue a,
                     sheaf__jvalue b); /* raises for unordered kinds */
bool sheaf__j_contains(sheaf__j *j, sheaf__jvalue in, sheaf__jvalue what);
const char *sheaf__j_kind(sheaf__jvalue v); /* Python's name of it */
/* The items of a loop: entries, keys, characters; raises for other kinds. */
sheaf__jlist sheaf__j_items(sheaf__j *j, sheaf__jvalue v);
size_t sheaf__j_characters(sheaf__jtext text);
size_t sheaf__j_character(const char *at,
                          size_t left); /* its length in bytes; an invalid byte has length 1 */
/* Python's str(). */
sheaf__jtext sheaf__j_str(sheaf__j *j, sheaf__jvalue v);
void sheaf__j_put_float(sheaf__j *j, sheaf__jbuffer *b, double real);

/* ---- tokens ---- */

typedef enum sheaf__jtoken_kind {
    SHEAF__T_END,
    SHEAF__T_DATA,
    SHEAF__T_BLOCK,     /* {% */
    SHEAF__T_BLOCK_END, /* %} */
    SHEAF__T_PRINT,     /* {{ */
    SHEAF__T_PRINT_END, /* }} */
    SHEAF__T_NAME,
    SHEAF__T_TEXT, /* a string, its escapes read */
    SHEAF__T_INT,
    SHEAF__T_FLOAT,
    SHEAF__T_SIGN, /* an operator or a bracket: text */
} sheaf__jtoken_kind;

typedef struct sheaf__jtoken {
    sheaf__jtoken_kind kind;
    int line;
    sheaf__jtext text;
} sheaf__jtoken;

sheaf__jtoken *sheaf__j_tokens(sheaf__j *j, const char *source, size_t size);

/* ---- the tree ---- */

typedef enum sheaf__jnode_kind {
    SHEAF__N_DATA,       /* value */
    SHEAF__N_PRINT,      /* a */
    SHEAF__N_IF,         /* a, body, other */
    SHEAF__N_FOR,        /* a target, b items, c condition, body, other; value: is it recursive? */
    SHEAF__N_SET,        /* a target, b value */
    SHEAF__N_SET_BLOCK,  /* a target, b filters over N_BODY or NULL, body */
    SHEAF__N_MACRO,      /* name, args (name, b default), body; value: SHEAF__J_SPECIALS in it */
    SHEAF__N_CALL_BLOCK, /* a call, args, body; value: as of a macro */
    SHEAF__N_FILTER,     /* b filters over N_BODY, body */
    SHEAF__N_WITH,       /* args (a target, b value), body */
    SHEAF__N_GENERATION, /* body */
    SHEAF__N_BREAK,
    SHEAF__N_CONTINUE,
    SHEAF__E_CONST,    /* value */
    SHEAF__E_BODY,     /* output of the filtered block */
    SHEAF__E_NAME,     /* name */
    SHEAF__E_ITEM,     /* a[b] */
    SHEAF__E_MEMBER,   /* a.name */
    SHEAF__E_SLICE,    /* a[b:c:d] */
    SHEAF__E_CALL,     /* a(args) */
    SHEAF__E_FILTER,   /* a|name(args) */
    SHEAF__E_TEST,     /* a is name(args) */
    SHEAF__E_NOT,      /* a */
    SHEAF__E_SIGN,     /* name a */
    SHEAF__E_BINARY,   /* a name b */
    SHEAF__E_COMPARE,  /* a, args (name the sign, a) */
    SHEAF__E_CHOICE,   /* a if b else c */
    SHEAF__E_LIST,     /* args */
    SHEAF__E_TUPLE,    /* args */
    SHEAF__E_DICT,     /* args (a key, b value) */
    SHEAF__E_ARGUMENT, /* name of a keyword, "*", "**" or empty, a */
} sheaf__jnode_kind;

typedef struct sheaf__jnode {
    sheaf__jnode_kind kind;
    int line;
    sheaf__jtext name;
    sheaf__jvalue value;
    struct sheaf__jnode *a, *b, *c, *d, *args, *body, *other;
    struct sheaf__jnode *next; /* in a list */
} sheaf__jnode;

struct sheaf__jinja {
    sheaf__j j; /* its arena holds the source and the tree */
    sheaf__jnode *body;
    bool marks; /* it has {% generation %} */
};

typedef struct sheaf__jparser {
    sheaf__j *j;
    const sheaf__jtoken *at;
    int nesting;
    bool marks;
    unsigned specials; /* SHEAF__J_SPECIALS since the statement began */
} sheaf__jparser;

/* Names that a macro has only if it mentions them. */
enum sheaf__jspecials { SHEAF__J_VARARGS = 1, SHEAF__J_KWARGS = 2, SHEAF__J_CALLER = 4 };

/* Parsers of expressions. A tuple needs no brackets; `choice`: allow a if b else c. */
sheaf__jnode *sheaf__j_parse_tuple(sheaf__jparser *p, bool choice);
sheaf__jnode *sheaf__j_parse_expression(sheaf__jparser *p);
sheaf__jnode *sheaf__j_parse_filters(sheaf__jparser *p, sheaf__jnode *of);
sheaf__jnode *sheaf__j_node(sheaf__jparser *p, sheaf__jnode_kind kind);
/* Appends a new E_ARGUMENT to a list. */
sheaf__jnode *sheaf__j_append_node(sheaf__jparser *p, sheaf__jnode ***last);
void sheaf__j_deeper(sheaf__jparser *p);
bool sheaf__j_at(const sheaf__jparser *p, const char *sign); /* an operator or bracket */
bool sheaf__j_at_name(const sheaf__jparser *p, const char *name);
bool sheaf__j_at_one(const sheaf__jparser *p,
                     const char *list); /* one of a list, separated by blanks */
bool sheaf__j_skip(sheaf__jparser *p, const char *sign);
bool sheaf__j_skip_name(sheaf__jparser *p, const char *name);
void sheaf__j_expect(sheaf__jparser *p, const char *sign);
sheaf__jtext sheaf__j_expect_name(sheaf__jparser *p);
_Noreturn void sheaf__j_syntax(sheaf__jparser *p, const char *expected);

/* ---- a run ---- */

typedef struct sheaf__jscope {
    struct sheaf__jscope *parent;
    struct sheaf__jvariable *variables;
} sheaf__jscope;

typedef struct sheaf__jarguments {
    sheaf__jlist at; /* by position */
    sheaf__jdict named;
} sheaf__jarguments;

typedef struct sheaf__jrun {
    sheaf__j *j;
    sheaf__jscope *scope;
    sheaf__jbuffer *out, *whole; /* the current output; the output of the whole template */
    sheaf__jvalue body;          /* value of E_BODY */
    /* jinja_run.c's, for jinja_evaluate.c below it; `caller` may be NULL */
    sheaf__jvalue (*call_macro)(struct sheaf__jrun *r, const sheaf__jmacro *macro,
                                const sheaf__jarguments *args, const sheaf__jmacro *caller);
    sheaf__jvalue (*call_loop)(struct sheaf__jrun *r, const sheaf__jloop *loop,
                               const sheaf__jarguments *args);
    const sheaf__date *today; /* of strftime_now(), or NULL */
    sheaf__jinja_text *result;
    int loops; /* around the statement */
    enum { SHEAF__J_ON, SHEAF__J_BREAK, SHEAF__J_CONTINUE } leaving;
} sheaf__jrun;

sheaf__jvalue sheaf__j_evaluate(sheaf__jrun *r, const sheaf__jnode *e);
sheaf__jscope *sheaf__j_enter(sheaf__jrun *r, sheaf__jscope *parent); /* the scope before */
sheaf__jvalue *sheaf__j_find(sheaf__jrun *r, sheaf__jtext name);
void sheaf__j_define(sheaf__jrun *r, sheaf__jtext name, sheaf__jvalue value);
sheaf__jarguments sheaf__j_arguments(sheaf__jrun *r, const sheaf__jnode *args);
int64_t sheaf__j_int_argument(sheaf__j *j, const sheaf__jvalue *v, int64_t absent);
bool sheaf__j_bool_argument(const sheaf__jvalue *v); /* absent: false */
sheaf__jtext sheaf__j_text_argument(sheaf__j *j, const sheaf__jvalue *v, sheaf__jtext absent);

/* A call of a filter, a test, a method or a function. */
typedef struct sheaf__jcall {
    sheaf__jrun *r;
    sheaf__j *j;
    sheaf__jtext name; /* of what is called */
    sheaf__jvalue of;
    const sheaf__jarguments *args;
    const sheaf__jvalue *at[4]; /* the arguments in the order of the row's names; NULL: not given */
    int how;                    /* of the row */
} sheaf__jcall;

/* A row of a table of them, which ends with a NULL name. */
typedef struct sheaf__jbuiltin {
    const char *name, *arguments; /* for sheaf__j_bind() */
    sheaf__jvalue (*run)(sheaf__jcall *c);
    int how;           /* variant, where `run` serves several rows */
    sheaf__jkind kind; /* of a method: its receiver */
    bool reads;        /* reads the whole value: charged by its size */
} sheaf__jbuiltin;

/* sheaf__j_bind - fills c->at by names, separated by blanks; "!" behind a name: required; "."
 * before it: positional only; "*" alone: any arguments, c->at is not filled. Raises for
 * other arguments. */
void sheaf__j_bind(sheaf__jcall *c, const char *names);
/* NULL: there is no such row. */
const sheaf__jbuiltin *sheaf__j_builtin(const sheaf__jbuiltin *list, sheaf__jkind kind,
                                        sheaf__jtext name);
sheaf__jvalue sheaf__j_call(const sheaf__jbuiltin *what, sheaf__jrun *r, sheaf__jvalue of,
                            const sheaf__jarguments *args);
const sheaf__jbuiltin *sheaf__j_function(sheaf__jtext name); /* NULL: there is none */
sheaf__jvalue sheaf__j_call_method(sheaf__jrun *r, sheaf__jvalue of, sheaf__jtext name,
                                   const sheaf__jarguments *args);
bool sheaf__j_is_method(sheaf__jvalue of, sheaf__jtext name);
bool sheaf__j_is_unsafe(sheaf__jvalue of, sheaf__jtext name);
extern const sheaf__jbuiltin sheaf__j_text_methods[], sheaf__j_scalar_filters[];
/* of.name and of[key]: UNDEFINED where there is none. */
sheaf__jvalue sheaf__j_member(sheaf__j *j, sheaf__jvalue of, sheaf__jtext name);
sheaf__jvalue sheaf__j_item(sheaf__j *j, sheaf__jvalue of, sheaf__jvalue key);
sheaf__jvalue sheaf__j_slice(sheaf__j *j, sheaf__jvalue of, const sheaf__jvalue bounds[3]);
sheaf__jvalue sheaf__j_binary(sheaf__j *j, sheaf__jtext sign, sheaf__jvalue a, sheaf__jvalue b);
sheaf__jvalue sheaf__j_filter(sheaf__jrun *r, sheaf__jtext name, sheaf__jvalue of,
                              const sheaf__jarguments *args);
bool sheaf__j_test(sheaf__jrun *r, sheaf__jtext name, sheaf__jvalue of,
                   const sheaf__jarguments *args);
bool sheaf__j_is_filter(sheaf__jtext name);
bool sheaf__j_is_test(sheaf__jtext name);
/* Sorts items by keys, one for each; stable in both directions. */
sheaf__jvalue sheaf__j_sort(sheaf__j *j, const sheaf__jlist *items, const sheaf__jlist *keys,
                            bool down);
sheaf__jvalue sheaf__j_json(sheaf__jcall *c);
sheaf__jvalue sheaf__j_pairs(sheaf__j *j, const sheaf__jdict *dict); /* its items() */
bool sheaf__j_relation(sheaf__j *j, sheaf__jtext sign, sheaf__jvalue a, sheaf__jvalue b);
/* An index of a slice, as Python bounds it; `v` NULL or none: `absent`. */
int64_t sheaf__j_bound(sheaf__j *j, const sheaf__jvalue *v, int64_t absent, int64_t count,
                       int64_t step);
/* Upper, lower, title, capitalize: the first letter of each. */
sheaf__jvalue sheaf__j_case(sheaf__j *j, sheaf__jtext text, char how);
typedef enum sheaf__jcased {
    SHEAF__J_UNCASED,
    SHEAF__J_LOWER,
    SHEAF__J_UPPER,
    SHEAF__J_TITLED
} sheaf__jcased;
sheaf__jcased sheaf__j_cased(int32_t c);
/* The character that begins at text.at[*at], and behind it. */
int32_t sheaf__j_next(sheaf__jtext text, size_t *at);
/* The first line of *rest, which goes behind its end; *end: the bytes of that. */
sheaf__jtext sheaf__j_line(sheaf__jtext *rest, size_t *end);
sheaf__jvalue sheaf__j_replace(sheaf__j *j, sheaf__jtext text, sheaf__jtext from, sheaf__jtext to,
                               int64_t most);
sheaf__jvalue sheaf__j_strip(sheaf__j *j, sheaf__jtext text, const sheaf__jvalue *chars, bool left,
                             bool right);
/* format % arguments, and format.format(arguments). */
sheaf__jvalue sheaf__j_percent(sheaf__j *j, sheaf__jtext format, sheaf__jvalue args);
sheaf__jvalue sheaf__j_fill_in(sheaf__j *j, sheaf__jtext format, const sheaf__jarguments *args);
/* The first occurrence of `what`; charges the bytes read. */
const char *sheaf__j_search(sheaf__j *j, sheaf__jtext in, sheaf__jtext what);
