/* jinja_test.c - small templates against what Jinja made of them (tests/data/templates/jinja.json,
 * or the file that SHEAF_JINJA_CASES names), and templates that mean harm. */
#include "tests/check.h"
#include "tests/sources.h"

#include "base/status.h"
#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "inputs/chat/jinja.h"

static sheaf_status *render(char **out, size_t *size, const char *text, size_t length,
                            const json_t *variables)
{
    sheaf__jinja *program = NULL;
    sheaf__jinja_text written = { 0 };
    sheaf_status *st = sheaf__jinja_parse(&program, text, length);
    TRY(st, sheaf__jinja_render(&written, program, variables, NULL));
    *out = written.text;
    *size = written.size;
    written.text = NULL;
    sheaf__jinja_text_release(&written);
    sheaf__jinja_free(program);
    return st;
}

static json_t *cases(void)
{
    const char *given = getenv("SHEAF_JINJA_CASES");
    char *text = NULL;
    size_t size = 0;
    json_t *all = NULL;
    if (given == NULL)
        given = in_sources("tests/data/templates/jinja.json");
    CHECK_OK(sheaf__file_read_all(&text, &size, given, 64 << 20));
    CHECK_OK(sheaf__json_parse_line(&all, text, size));
    free(text);
    return all;
}

/* 1: equal. 0: refused by name, which passes only for generated cases. -1: other. */
static int outcome(const json_t *template, const json_t *want, const json_t *variables)
{
    char *out = NULL;
    size_t size = 0;
    sheaf_status *st =
        render(&out, &size, json_string_value(template), json_string_length(template), variables);
    const bool refused = st != NULL && sheaf_status_code(st) == SHEAF_E_UNSUPPORTED;
    const bool same = st == NULL && json_is_string(want) && size == json_string_length(want) &&
                      memcmp(out, json_string_value(want), size) == 0;
    const int as_wanted = json_is_null(want) ? st != NULL : same;
    if (!as_wanted && !refused)
        printf("# template: %s\n# got:      %s\n# wanted:   %s\n", json_string_value(template),
               st != NULL ? sheaf_status_where(st) : out,
               json_is_null(want) ? "(raises)" : json_string_value(want));
    else if (!as_wanted)
        printf("# template: %s\n# refused:  %s\n", json_string_value(template),
               sheaf_status_where(st));
    sheaf_status_free(st);
    free(out);
    return as_wanted ? 1 : refused ? 0 : -1;
}

TEST(test_jinja__gives_what_jinja_gave)
{
    json_t *all = cases();
    const json_t *list = json_object_get(all, "cases");
    int refused = 0, wrong = 0;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *one = json_array_get(list, i);
        const int how = outcome(json_array_get(one, 0), json_array_get(one, 1),
                                json_object_get(all, "variables"));
        refused += how == 0;
        wrong += how < 0;
    }
    printf("# %zu templates, %d refused\n", json_array_size(list), refused);
    assert_true(json_array_size(list) > 140);
    assert_int_equal(wrong, 0);
    if (getenv("SHEAF_JINJA_CASES") == NULL)
        assert_int_equal(refused, 0);
    json_decref(all);
}

static sheaf_status *run(const char *text)
{
    char *out = NULL;
    size_t size = 0;
    json_t *variables = json_pack("{s:s}", "s", "xx");
    sheaf_status *st = render(&out, &size, text, strlen(text), variables);
    json_decref(variables);
    free(out);
    return st;
}

TEST(test_jinja__work_memory_and_depth_are_bounded)
{
    static const struct {
        const char *text, *found;
    } hostile[] = {
        { "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
          "more than" },
        { "{% set ns = namespace(a='x') %}{% for a in range(99) %}{% set ns.a = ns.a + ns.a %}"
          "{% endfor %}",
          "memory" },
        { "{{ 'x' * 999999999999 }}", "" },
        { "{{ [0] * 999999999999 }}", "" },
        { "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "levels" },
        { "{% macro f() %}{{ f() }}{{ f() }}{% endmacro %}{{ f() }}", "levels" },
        { "{% set ns = namespace(a=[]) %}{% for a in range(9999) %}{% set ns.a = [ns.a] %}"
          "{% endfor %}{{ ns.a == [ns.a] }}{{ ns.a }}",
          "levels" },
        { "{% set ns = namespace(a=[]) %}{% for a in range(9999) %}{% set ns.a = (ns.a,) %}"
          "{% endfor %}{{ {ns.a: 1} }}",
          "levels" },
        { "{% set ns = namespace(a=[]) %}{% for a in range(9999) %}{% set ns.a = [ns.a] %}"
          "{% endfor %}{{ ns.a|tojson }}",
          "levels" },
        { "{{ 2 ** 64 }}", "64 bits" },
        { "{{ 9223372036854775807 + 1 }}", "64 bits" },
        { "{{ 99999999999999999999 }}", "64 bits" },
        { "{{ strftime_now('%Y') }}", "the day" },
        { "{% include 'x' %}", "statement include" },
        { "{{ s|nosuch }}", "filter nosuch" },
        { "{{ s is nosuch }}", "test nosuch" },
        { "{{ s|pprint }}", "filter pprint" },
        { "{{ 'é'.encode() }}", "the method encode of a str" },
        { "{{ '%999999999d' % 1 }}", "" },
        { "{{ '%e' % 1 }}", "the format %e" },
        { "{{ '%.2d' % 1 }}", "the precision of a whole number" },
        { "{{ '{:>5}'.format(1) }}", "':' in a field" },
        { "{{ '%s'|format(a=1) }}", "format with names" },
        { "{{ 'x'.center(9) }}", "the method center of a str" },
        { "{{ 'a b c'.rsplit(none, 1) }}", "rsplit at some of the blanks" },
        { "{{ [1]|batch(2) }}", "the filter batch" },
        { "{{ '7'|int(0, 8) }}", "another base" },
        { "{{ 1.5|round(1, 'ceil') }}", "round by such a method" },
        { "{{ ('a'|safe) + '<' }}", "a sum that escapes a text" },
        { "{{ '<' + ('a'|safe) }}", "a sum that escapes a text" },
        { "{{ ('a'|safe).upper() }}", "the method upper of a text" },
        { "{{ cycler('a') }}", "the function cycler" },
        { "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}", "levels" },
        { "{{ s.__class__ }}", "" },
        { "{{ (('a' * 99999) * 99).rfind('a' * 9999) }}", "" },
        { "{{ range(99999)|map('string')|join|length }}{{ range(99999)|list|sort(reverse=true) }}",
          "more than" },
    };
    for (size_t i = 0; i < ARRAY_LEN(hostile); i++) {
        sheaf_status *st = run(hostile[i].text);
        if (st == NULL)
            fail_msg("rendered: %s", hostile[i].text);
        CHECK_FAILS(st, SHEAF_E_UNSUPPORTED, hostile[i].found);
    }
    sheaf_text deep = { 0 };
    static const char *const repeated[][2] = {
        { "{{ ", "(" },    { "{{ ", "[" },       { "{{ ", "-" },
        { "{{ ", "not " }, { "", "{% if 1 %}" }, { "{{ 1", "+1" },
        { "{{ s", ".a" },  { "{{ s", "|trim" },  { "{% if 1 %}", "{% elif 1 %}" }
    };
    for (size_t i = 0; i < ARRAY_LEN(repeated); i++) {
        sheaf__text_add(&deep, "%s", repeated[i][0]);
        for (int k = 0; k < 20000; k++)
            sheaf__text_add(&deep, "%s", repeated[i][1]);
        sheaf__text_add(&deep, "%s",
                        repeated[i][0][0] == '{' && repeated[i][0][1] == '{' ? " }}" : "");
        sheaf_status *st = run(deep.at);
        assert_non_null(st);
        sheaf_status_free(st);
        sheaf__text_release(&deep);
    }
}

/* A template that evaluates the expression 5,000 times. */
static sheaf_status *repeat(const char *expression)
{
    sheaf_text text = { 0 };
    sheaf__text_add(&text,
                    "{%% set ns = namespace(t=(1, 2)) %%}{%% for i in range(50) %%}"
                    "{%% set ns.t = (ns.t, ns.t) %%}{%% endfor %%}{%% set d = '1' * 90000 %%}"
                    "{%% set b = ' ' * 90000 %%}{%% set l = 'a' * 90000 %%}{%% set g = range(30000)"
                    "|list %%}{%% set p = 'a' * 90000 %%}{%% set k = g|map('string')|list %%}"
                    "{%% for i in range(5000) %%}{%% if %s %%}{%% endif %%}{%% endfor %%}",
                    expression);
    sheaf_status *st = run(text.at);
    sheaf__text_release(&text);
    return st;
}

/* The expressions, which "; " divides, are refused as too much work, or are not. */
static void each(const char *expressions, bool refused)
{
    char *copy = strdup(expressions), *rest = copy;
    int count = 0;
    for (char *one; (one = rest) != NULL;) {
        if ((rest = strstr(one, "; ")) != NULL) {
            *rest = '\0';
            rest += 2;
        }
        if ((count++ + every(3)) % in_soak(1, 4) != 0) /* of each build another quarter */
            continue;
        sheaf_status *st = repeat(one);
        if (refused ? st == NULL || strstr(sheaf_status_where(st), "more than") == NULL
                    : st != NULL)
            fail_msg("%s: %s", one, st == NULL ? "rendered" : sheaf_status_where(st));
        sheaf_status_free(st);
    }
    free(copy);
}

TEST(test_jinja__what_goes_over_a_value_is_charged_by_its_size)
{
    static const char dear[] =
        "g|sum; g|list; g|reverse; g|join; g|sort; "
        "g|map('int'); g|select; g|select('odd'); g|reject('odd'); g|map('string')|list; "
        "g|selectattr('a'); g|rejectattr('a'); g|map(attribute='a'); g|string; g ~ ''; "
        "g|tojson; g + g; g * 2; g[1:]; g == g[:]; g|last in g; -1 in g; g is in [g[1:]]; "
        "g is eq(g); g <= g; [g] == [g]; k|join('')|length; ''.join(k); loop.changed(g); "
        "(g, g) < (g, g); d|trim; b|trim; d|trim('1'); d.strip('1'); b.strip(); b.lstrip(); "
        "b.rstrip(); '1'.strip(d ~ '1'); '2'.strip(d); d|upper; d|lower; d|capitalize; "
        "d|title; l.upper(); l.lower(); l.title(); l.capitalize(); l|replace('b', ''); "
        "l.replace('b', ''); l|replace(l, ''); b|int; l|length; l|count; l|indent; "
        "l|list; l|first; l|last; l|reverse; l|tojson; [l]|string; l|map('int')|list; "
        "l|sort; l == p; l != p; l is eq(p); l is ne(p); l < p; l is ge(p); p in [l]; "
        "{l: 1}[p]; {l: 1}.get(p); 'b' in l; 'b' is in(l); l in l; "
        "l.startswith(p); l.startswith(('b', p)); l.endswith(p); l.removeprefix(p); "
        "l.removesuffix(p); l.split('b'); l.split(); l.split(p); l.rsplit('b', 1); "
        "l.rsplit('b'); l.splitlines(); l.find('b'); l.find(p); l.rfind('b'); l.rfind(''); "
        "l.rfind(p); l.index('a' * 9999); l.count('b'); l.count(''); l.count(p); "
        "d.isdigit(); l[1:]; l[1]; l * 2; l + l; l ~ l; "
        "g|map('lower')|join; {}.get(ns.t); {ns.t: 1}; ns.t == ns.t; ns.t < ns.t; "
        "[{}]|map(attribute='a' ~ '.a' * 20000, default={})|list; "
        "[1.1, 2.2, 3.3, 4.4, 5.5, 6.6]|string";
    static const char cheap[] =
        "g|length; g|count; g|first; g|last; g is defined; l is string; g is iterable; "
        "g is sequence; g is not none; l is number; g|default(0); l.startswith('a'); "
        "l.endswith('b'); l.removeprefix('aa'); l.removesuffix('b'); g[1]; l|default(''); "
        "{'a': g}.get('a'); g is mapping; loop.cycle(g, l); not g";
    each(dear, true);
    each(cheap, false);
}

/* Nor do they count as such: each was refused for its memory once. */
TEST(test_jinja__parts_of_a_long_text_are_no_copies)
{
    CHECK_OK(
        run("{% set l = 'é' * 90000 %}{% for i in range(40) %}{{ l[i] ~ l[-i:] ~ l[:-9]|length "
            "}}{% endfor %}"));
    CHECK_OK(run("{% if 'aé€b'[1:-1] != 'é€' or 'é€'[-1] != '€' or 'é'[1:] or 'é€'[:-2] or "
                 "'é'[-9:9] != 'é' or 'é'[1] is defined or 'é€'[1:0] %}{{ 1 / 0 }}{% endif %}"));
}

/* As Python 3.11 writes them. */
TEST(test_jinja__case_beyond_ascii)
{
    static const struct {
        const char *text, *want;
    } cases[] = {
        { "{{ 'straße ﬃ ǆ ŉ'.upper() }}", "STRASSE FFI Ǆ ʼN" },
        { "{{ 'ÄÖİ ΑΣ ΣΑ.Σ Σ'.lower() }}", "äöi\u0307 ας σα.ς σ" },
        { "{{ 'éa ǆß 1ßa α\u0301Σ'.title() }}", "Éa ǅß 1Ssa Α\u0301Σ" },
        { "{{ 'ßÉΣ'.capitalize() }}", "Sséς" },
        { "{{ 'élan-ǆ(ßA\u00a0ΣΣ'|title }}", "Élan-Ǆ(SSa\u00a0Σσ" },
        { "{{ 'ÀÉ'|lower }}{{ 'àÿ'|capitalize }}{{ 'ª'|upper }}", "àéÀÿª" },
        { "{{ ['é', 'Z', 'Ā', 'b']|sort }}", "['b', 'Z', 'é', 'Ā']" },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char *out = NULL;
        size_t size = 0;
        CHECK_OK(render(&out, &size, cases[i].text, strlen(cases[i].text), NULL));
        assert_string_equal(out, cases[i].want);
        free(out);
    }
}

TEST(test_jinja__failures_name_the_line)
{
    CHECK_FAILS(run("a\n{{ 1 }}\n{% if %}"), SHEAF_E_FORMAT, "line 3");
    CHECK_FAILS(run("a\n\n{{ raise_exception('no ' ~ 1) }}"), SHEAF_E_DATA, "line 3: no 1");
    CHECK_FAILS(run("{% macro f() %}\n{{ 1 / 0 }}{% endmacro %}\n\n{{ f() }}"), SHEAF_E_DATA,
                "line 2: division by zero");
    CHECK_FAILS(run("{{ a.b }}"), SHEAF_E_DATA, "'a' is undefined");
}
