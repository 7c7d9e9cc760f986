"""record_jinja.py - what Jinja makes of small templates, for src/inputs/chat/jinja_test.c.

    python3 tests/data/templates/record_jinja.py [OUT]     # default: jinja.json beside it

Rendered by the environment that transformers compiles chat templates with. Each entry of "cases" is
[template, text], the text null where Jinja raised. With a second argument, that many random
templates are recorded too (tests/soak.sh).
"""
import copy, json, os, random, sys

from transformers.utils.chat_template_utils import _compile_jinja_template

variables = {
    "messages": [
        {"role": "system", "content": "Be  brief."},
        {"role": "user", "content": " Hi <b>\n"},
        {"role": "assistant", "content": "é你好 \u00a0", "tool_calls": []},
    ],
    "tools": None, "yes": True, "no": False, "n": 7, "x": 2.5, "s": "a-b c", "empty": "", "l": [3, 1, 2],
    "d": {"a": 1, "b": [1, {"c": None}], "é": "\"q\"\n"}, "words": ["b", "A", "c"],
    "bos_token": "<s>", "eos_token": "</s>", "add_generation_prompt": False,
}

expressions = """
1 + 2 * 3
(1 + 2) * 3
7 // 2, -7 // 2, 7 % 3, -7 % 3, 7 % -3, 2 ** 3 ** 2, 2 ** 3
7 / 2, 6 / 2, 1e3, 1.5e-7, 1e16, 123456789.125, 0.1 + 0.2, 1_000, 3.0
-2 ** 2, -n, +n, - 3 | int, -3|int
7.5 // 2, 7.5 % 2, -7.5 % 2, 1 % 5e-7, 1 // 0.1, -1 // 3.0, 6.0 % -3, -6.0 // 4
"a" + 'b' ~ 1 ~ none ~ true ~ 1.0
"a" 'b' "c"
'\\n\\t\\x41\\u00e9\\U0001F600\\'\\"\\\\ \\q \\101'
"ab" * 3, 2 * "xy", [1] * 2
[1, 2] + [3], (1, 2), (1,), (), [], {}, {'a': 1, "b": [1, 'x']}
{'a': 1, 1: 2, true: 3, none: 4}
n == 7, n != 7, n < 8 <= 9, n > 8, 1 == 1.0, 1 == true, '1' == 1, none == false, [1] == [1.0], {'a': 1} == {'a': true}
'a' < 'b', [1, 2] < [1, 3], 'Z' < 'a'
1 in l, 4 in l, 4 not in l, 'a' in s, 'b' in d, 'z' in missing, '' in ''
not yes, not not yes, yes and n, no or 'x', no and missing.y, '' or 'b'
'a' if yes else 'b', 'a' if no else 'b', 'a' if no, ('a' if no) is defined
1 if no else 2 if no else 3
messages[0].role, messages[-1]['role'], messages[9] is defined, messages['x'] is undefined, messages[0].nothing is undefined
messages[1:]|length, messages[:-1]|length, l[::-1], l[1:], l[-2:], l[::2], l[5:], 'abcdef'[1:4], 'abcdef'[::-2], 'héllo'[1], 'abcdef'[-1:1:-1], l[:0:-1]
s.split('-'), s.split(), 'a,b,c'.split(',', 1), 'a,,b'.split(','), ' a  b '.split(), ''.split(), ''.split(','), 'a b c'.split(none, 1)
'a,b,c'.rsplit(',', 1), 'abc'.rsplit(',', 1), 'a.b'.rsplit('.')
' x '.strip() ~ '|' ~ ' x '.lstrip() ~ '|' ~ ' x '.rstrip() ~ '|' ~ 'xyaxy'.strip('xy') ~ '|' ~ messages[2].content.strip() ~ '|' ~ '\\nx\\n'.strip('\\n')
s.startswith('a'), s.endswith('c'), s.startswith(('x', 'a')), s.upper(), s.title(), s.capitalize(), 'ABC'.lower()
s.replace('-', '+'), 'aaa'.replace('a', 'b', 2), s.find('b'), s.find('z'), s.rfind('c'), s.index('b'), 'aaa'.count('a'), 'é.x'.find('x')
', '.join(['a', 'b']), ''.join([]), 'ab'.join('xyz')
'prefix-x'.removeprefix('prefix-'), 'x.py'.removesuffix('.py'), '12'.isdigit(), 'a\\nb\\r\\nc'.splitlines()
d.keys()|list, d.values()|list, d.items()|list, d.get('a'), d.get('z'), d.get('z', 5), d.a, d['b'][1].c is none
'x' | upper, s|title, s|capitalize, ' a '|trim, 'xax'|trim('x'), 5|string + 'a', 3|trim
messages|length, s|length, 'é你'|length, d|length, l|count, missing|length
l|first, l|last, l|sort, words|sort, words|sort(case_sensitive=true), l|sort(reverse=true), l|reverse|list, 'abc'|reverse
l|join, l|join(', '), messages|join('/', attribute='role'), messages|map(attribute='role')|join(',')
l|sum, [1, 1.5]|sum
messages|selectattr('role', 'equalto', 'user')|list|length, messages|selectattr('tool_calls', 'defined')|map(attribute='role')|list
messages|rejectattr('role', '==', 'user')|map(attribute='role')|list, l|select('gt', 1)|list, l|reject('odd')|list, [0, 1, '']|select|list
words|map('upper')|list, words|map('default', 'x')|list, [[1], []]|map('length')|list, messages|map(attribute='zz', default='q')|list, messages|map(attribute='zz.y', default='q')|list, messages|map(attribute='zz', default=none)|list
missing|default('x'), none|default('x'), ''|default('x'), ''|default('x', true), none|d('y', true), missing|default
d|tojson, l|tojson, 'é"\\n<>&\\''|tojson, none|tojson, true|tojson, 1.0|tojson, 1e20|tojson, {}|tojson, []|tojson, (1, 2)|tojson
d|tojson(indent=2), []|tojson(indent=2), {'a': {}}|tojson(indent=4)
d|tojson(ensure_ascii=true), {'b': 1, 'a': 2}|tojson(sort_keys=true), l|tojson(separators=(',', ':')), '😀'|tojson(ensure_ascii=true)
{1: 2, none: 3, true: 4}|tojson
'3'|int, 'x'|int, 'x'|int(9), 3.9|int, -3.9|int, ' 4 '|int, '3.7'|int, true|int, none|int, '1e2'|int
'a\\nb\\n\\nc'|indent, 'a\\nb'|indent(2, true), 'a\\n\\nb'|indent(1, blank=true), 'a\\nb'|indent('> ')
{'b': 1, 'a': 2}|dictsort, {'a': 1}|items|list, 'abc'|list, d|list
n is defined, missing is defined, none is none, n is number, x is float, n is integer, true is integer, true is number, yes is boolean
s is string, d is mapping, l is iterable, s is iterable, 5 is iterable, l is sequence, d is sequence, missing is iterable, l is mapping
n is odd, n is even, n is divisibleby 7, n is divisibleby(2), n is eq 7, n is equalto(8), n is ne 8, n is gt 3, n is in [7]
yes is true, no is false, 1 is true, n is not none, n is not defined
range(3)|list, range(1, 4)|list, range(5, 0, -2)|list, range(0)|list
dict(a=1, b='x'), dict({'z': 1}, a=2), namespace(a=1).a
'%' ~ 1, loop is defined, messages is defined and messages
1 ~ 2 + 3, 1 + 2 ~ 3, 2 * 3 ~ 4
'a' 'b'|upper ~ 'c', -1.5|int, not 1 == 2, 1 < 2 and 2 < 3 or no
messages[1].content.strip().split('<')[0] + '!'
(messages|last).role, (messages[0].content if messages else 'x')|trim
{'a': {'b': {'c': 1}}}.a.b.c, [[1, 2], [3]][1][0], {"a": 1}["a"], d.b.1.c is none
none|selectattr('a')|list, none|select|list, false|reject('odd')|list, 0|rejectattr('a')|list, ''|map('upper')|list, none|map(attribute='a')|list, missing|select|list, none|selectattr|list, none|map('nosuch')|list
l|min, l|max, words|min, words|max(case_sensitive=true), []|min is defined, messages|max(attribute='role'), 'hello'|max, d|min, [2.5, 1]|min, [[2], [1, 5]]|min
2.5|round, 3.5|round, 2.675|round(2), n|round, n|round(2), -0.4|round, 1234.5678|round(1), true|round, 1e300|round(1)
'%s is %d of %.2f%%'|format('a', 3, 1.5), '%5s|%-5s|%05d|%x|%i'|format('a', 'b', 42, 255, -7), '%-05d|%05s|%06.1f|%-8.2f|%04x|%.f' % (42, 'x', -2.25, 1.5, -10, 2.5), '%s' % 'x', '%s %s' % (1, 2), '%.3s' % 'abcdef', '%s' % [1], '%%' % (), 'a' % [1], '%d' % -3.9, '%d' % true, '%x' % -255, '%3f' % 1e20, '%s' % none
'Hello {}'.format('x'), '{} {}'.format(1, 2), '{1} {0} {1}'.format(1, 2), '{a}'.format(a=3), '{{}}'.format(), '{} {a}'.format([1, 'x'], a=none)
'a-b-c'.partition('-'), 'abc'.partition('-'), 'a-b-c'.rpartition('-'), 'abc'.rpartition('-')
'abcabc'.find('c', 3), 'abcabc'.find('a', 1, 3), 'abcabc'.rfind('b', 0, 3), 'abcabc'.index('b', 2), 'abcabc'.rindex('a'), 'abcabc'.count('b', 2), 'abc'.startswith('b', 1), 'abc'.endswith('b', 0, 2), 'abc'.find('', 3), 'abc'.find('', 4), 'abc'.find('c', -1), 'héh'.rfind('h')
' a  b '.rsplit(), 'a,b,c,d'.rsplit(',', 2), 'a,b'.rsplit(',', 0), 'a\\nb\\r\\nc\\x0bd\\x1ce'.splitlines(), 'a\\n\\nb\\n'.splitlines(true), 'a\\u2028b\\x85c'.splitlines()
'abc'.isalpha(), 'ab1'.isalnum(), 'é'.isascii(), ''.isascii(), '٣'.isdigit(), '²'.isdigit(), 'ab'.islower(), 'aB'.islower(), 'AB1'.isupper(), ' \\t'.isspace(), ''.isalpha(), '1'.isupper()
'aaa'.replace('', '-'), 'aaa'.replace('', '-', 2), 'abc'|replace('', '.')
l.index(2), l.count(3), l.copy(), (1, 2, 1).count(1), (1, 2).index(2), d.copy(), [1, 2, 1].index(1, 1), range(5).index(3), range(3)[1], range(9)[2:5]|list, range(3) is sequence, range(0) == range(2, 1)
'%s' is string, 'abc' is lower, 'ABC' is upper, 'aB' is lower, 5 is lower, n is in [7, 8], 'a' is in 'abc', yes is sameas true, none is sameas none, d is sameas d, 'map' is filter, 'nosuch' is filter, 'odd' is test, 'x' is test, d.keys() is sequence, d.items is callable, l.append is defined, s.upper is defined, missing is callable
['A', 'b']|select('upper')|list, ['A', 'b']|select('in', ['b'])|list, [1, 2, 3]|select('divisibleby', 2)|list, [none, 1]|reject('none')|list
('a'|safe) + 'b', ['<'|safe], ('a'|safe) ~ '<', '<'|safe, '<'|safe|trim|upper, ('<b'|safe)[1:], ('<'|safe) * 2 + ('>'|safe)
'3.5'|float, 'x'|float, 'x'|float(1.5), 3|float, none|float, '1e3'|float, ' 7 '|float, '1_0'|int, 'inf'|float, 'nan'|int(5)
-5|abs, (-5)|abs, (-2.5)|abs, true|abs, ['b', 'B', 'a', 'A']|unique|list, [1, 1.0, true, 2]|unique|list, messages|unique(attribute='role')|map(attribute='role')|list
{'b': 1, 'a': 3, 'C': 2}|dictsort, {'b': 1, 'a': 3}|dictsort(by='value'), {'b': 1, 'a': 3}|dictsort(reverse=true), {'b': 1, 'A': 3}|dictsort(true)
[{'a': 1, 'b': 2}, {'a': 1, 'b': 1}]|sort(attribute='a,b'), [[2, 1], [1, 5]]|sort(attribute=0), words|join(attribute=none), l|sort(attribute=none)
0x1F, 0o17, 0b101, 0xf_f, 2 ** -1, 2.0 ** 0.5, 2 ** 0.5, 0.5 ** 2, 10 ** 2
d.keys(), d.values(), {}.items(), d.items()|first, dict([('a', 1)]), dict(d.items()).a, dict(a=1).keys()|list, d.keys()[0] is defined, {(1, 2): 3}[1, 2]
range(3)|sum, range(3)|last, range(3)|reverse|list, 2 in range(3), range(3)|join('-'), range(3)|length
'a'.join(d), 'abc'.upper is callable
'inf'|float|tojson, nan is defined, {1.5: 2}|tojson
'é'.encode is defined, 'a'.center is defined, 'ab'.strip('a').title(), 'a{}b'.format(none), '{}'.format(true)
""".strip().split("\n")

raising = """
missing.x
missing + 1
'a' + 1
1 + 'a'
none.x.y
missing()
'a'()
1 / 0
1 % 0
'a' < 1
{}['a'].b
raise_exception('no')
raise_exception()
5|length
none|length
[1, 2].x.y
'a' * 'b'
{[]: 1}
range(1000000000)|length
[01]|length
messages|map(attribute='zz', defaults='q')|list
l[::0]
-'a'
'abc'.index('z')
'a'.split('')
n is defined l
n is eq(1, 2)
[0]|select|length
[].append(1)
d.update({})
d.pop('a')
l.sort()
none|list
none|join
none|items|list
none|sort
none|first
5|select|list
true|map('upper')|list
none|min
'abc'.find()
'abc'.find('a', 1, 2, 3)
'abc'.partition('')
'%d' % 'x'
'%s %s' % (1,)
'%s' % (1, 2)
'%z' % 1
'{'.format()
'}'.format()
'{}'.format()
'{a}'.format()
'{0} {}'.format(1, 2)
'a'|round
l.index(9)
n is divisibleby
n is upper(1)
0 ** -1
missing|dictsort
missing|float
missing|abs
[1, 'a']|min
f(**{1: 2})
range(3, **{'a': 1})
dict([1])
[[1], [2]]|unique|list
{'a': 1}|dictsort(by='x')
1|abs(2)
dict(*[{'a': 1}], **{'a': 2}).b.c
loop()
""".strip().split("\n")

templates = [
    "a\n{% if yes %}\nb\n{% endif %}\nc\n",
    "a\n  {% if yes %}  \n  b\n  {% endif %}  \nc",
    "a  {%- if yes -%}  b  {%- endif -%}  c",
    "a  {%+ if yes +%}  \n b  {% endif %}  c",
    "  {% if yes +%}\nb{% endif %}",
    "  {{ 1 }}\n  {{- 2 -}}  \n 3",
    "a\n   {# c #}\n  b {#- d -#}\n c {# e +#}\nf",
    "x {# {{ never }} {% if %} #} y\r\nz\r\n",
    "{% raw %}{{ a }}{% if %}{% endraw %}b",
    "a {%- raw -%}  {{ x }}\n  {%- endraw -%}  b\n  {% raw %}\n {{y}} {% endraw %}\nc",
    "{{ '%}' }}{{ '}}' }}{% set a = '%}' %}{{ a }}{{ {'a': {'b': 1}} }}",
    "{% for m in messages %}{{ loop.index }}/{{ loop.length }}:{{ m.role }}{% if not loop.last %},{% endif %}{% endfor %}",
    "{% for m in messages %}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.depth }}{% endfor %}",
    "{% for m in messages %}{{ loop.previtem.role if loop.previtem }}<{{ loop.nextitem.role if loop.nextitem is defined }} {% endfor %}",
    "{% for m in messages if m.role != 'system' %}{{ loop.index }}{{ m.role }}{{ loop.length }}{% endfor %}",
    "{% for m in [] %}a{% else %}b{% endfor %}{% for m in missing %}a{% else %}c{% endfor %}",
    "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}{% for (k, v) in d|items %}{{ k }}{% endfor %}",
    "{% for k in d %}{{ k }}{% endfor %}{% for c in 'hé' %}[{{ c }}]{% endfor %}",
    "{% for i in range(10) %}{% if i == 3 %}{% continue %}{% endif %}{% if i == 6 %}{% break %}{% endif %}{{ i }}{% endfor %}x",
    "{% for i in l %}{% for j in l %}{{ i * j }}{{ loop.index }}{% endfor %}|{{ loop.index }}{% endfor %}",
    "{% for i in l %}{{ loop.cycle('a', 'b') }}{{ loop.changed(i > 1) }}{% endfor %}",
    "{% set a = 1 %}{% for i in l %}{% set a = a + i %}{{ a }}{% endfor %}{{ a }}",
    "{% set ns = namespace(a=0, b='x') %}{% for i in l %}{% set ns.a = ns.a + i %}{% set ns.c = i %}{% endfor %}{{ ns.a }}{{ ns.b }}{{ ns.c }}",
    "{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set (c, d2) = [3, 4] %}{{ c }}{{ d2 }}",
    "{% set a %}x{{ 1 }}{% endset %}[{{ a }}]{% set b | upper | trim %} yz {% endset %}[{{ b }}]",
    "{% if no %}a{% elif n == 7 %}b{% else %}c{% endif %}{% if no %}a{% elif no %}b{% else %}c{% endif %}",
    "{% if yes %}{% set z = 1 %}{% endif %}{{ z }}{% if no %}{% set w = 1 %}{% endif %}{{ w is defined }}",
    "{% set messages = messages[1:] %}{{ messages|length }}{% for m in messages %}{{ m.role }}{% endfor %}",
    "{% macro f(a, b=2, c='x') %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ f(1) }}|{{ f(1, c=3) }}|{{ f(a=1, b=f(2)) }}|{{ f() }}",
    "{% macro f(n) %}{% if n > 0 %}{{ n }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(5) }}",
    "{% macro f(a) %}<{{ caller() }}{{ caller('x') if a }}>{% endmacro %}{% call(q) f(1) %}in{{ q }}{% endcall %}",
    "{% set v = 1 %}{% macro f() %}{{ v }}{{ messages|length }}{% endmacro %}{{ f() }}{% set v = 2 %}{{ f() }}",
    "{% macro f(a) %}{{ a }}{% endmacro %}{{ f(1, 2) }}",
    "{% macro f(a) %}{{ a }}{% endmacro %}{{ f(b=2) }}",
    "{% filter upper %}abc{{ s }}{% endfilter %}{% filter replace('a', 'b')|trim %} aa {% endfilter %}",
    "{% with a = 1, b = 2 %}{{ a }}{{ b }}{% set c = 3 %}{{ c }}{% endwith %}{{ c is defined }}{{ a is defined }}",
    "a{% generation %}b{{ n }}{% endgeneration %}c",
    "{% generation %}\n  x\n{% endgeneration %}\n",
    "{{ messages }}{{ missing }}{{ none }}{{ yes }}{{ 1, 2 }}",
    "{{- bos_token }}\n{%- for m in messages %}\n    {{- m.role + '\\n' }}\n    {%- if loop.last %}\n        {{- eos_token }}\n    {%- endif %}\n{%- endfor %}\n",
    "{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}{{ add_generation_prompt }}",
    "{% set d2 = dict(a=1) %}{{ d2.a }}{{ d2['a'] }}{{ d2 | length }}",
    "{{ '{{' }}{{ \"{%\" }} { { % } }} {",
    "",
    "\n",
    "\n\n",
    "{% if yes %}\n\n{% endif %}\n\n",
    "{%if yes%}a{%endif%}{{1}}{{-1}}{{+ 1}}",
    "{% for a in l -%}\n  {{ a }}\n{%- endfor %}\n\n",
    "{% set x = [] %}{{ x is sequence and x is not string }}{{ x.append is defined if no else 1 }}",
    "{{ raise_exception('a' ~ n) if n > 8 else 'fine' }}",
    "{% for m in messages %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('order') }}{% endif %}{% endfor %}",
    "{% set g = l|select('odd') %}{{ 'T' if g }}{{ g|list }}{{ g|list }}{{ 'T' if [0]|select }}",
    "{% set g = l|map('string') %}{{ g|first }}{{ g|join }}{% for k in d.keys() %}{{ k }}{% endfor %}{{ 'T' if {}.items() }}",
    "{% set (a,) = [1] %}{{ a }}", "{{ [00, 0_0, 01.5, 0] }}", "{{ []|map(attribute='a', z=1)|list, []|map|list }}",
    "{% set j = joiner() %}{% for i in l %}{{ j() }}{{ i }}{% endfor %}{% set k = joiner('|') %}{{ k() }}{{ k() }}{{ k() }}",
    "{% macro f(a, b=2) %}{{ a }}-{{ b }}-{{ varargs }}-{{ kwargs }};{% endmacro %}{{ f(1, 2, 3, 4, z=5) }}{{ f(*[1, 2, 3]) }}{{ f(**{'a': 7, 'q': 8}) }}{{ f(1, *[9], **{'w': 0}) }}{{ f(*l, x=1) }}",
    "{% macro f(a) %}{{ a }}{% endmacro %}{{ f(*[1]) }}{{ f(**{'a': 2}) }}{{ 'abc'.replace(*['b', 'x']) }}{{ range(*[1, 4])|list }}{{ [1, 2]|join(*['-']) }}{{ dict(*[{'a': 1}], **{'b': 2}) }}",
    "{% macro f() %}{{ caller is defined }}{% endmacro %}{{ f() }}{% call f() %}x{% endcall %}",
    "{% macro f() %}x{% endmacro %}{% call f() %}y{% endcall %}",
    "{% macro f(a) %}x{% endmacro %}{{ f(1, b=2) }}",
    "{% set t = [{'n': 1, 'c': [{'n': 2, 'c': [{'n': 3}]}]}, {'n': 4}] %}{% for x in t recursive %}{{ x.n }}/{{ loop.depth }}{{ loop.depth0 }}{% if x.c %}({{ loop(x.c) }}){% endif %}{{ ',' if not loop.last }}{% endfor %}",
    "{% for x in l %}{{ loop(l) }}{% endfor %}",
    "{% set x = '<'|safe %}{{ x + 'a' }}{{ 'a' + x }}{% set y %}<{% endset %}{{ y + '<' }}{% macro m() %}<{% endmacro %}{{ m() + '<' }}",
    "{% set f = s.upper %}{{ f() }}{% set g = d.items %}{{ g()|list }}{{ 'y' if d.get is defined else 'n' }}{% for i in l %}{{ loop.cycle is callable }}{% endfor %}",
    "{{ f(1, a=2, 3) }}",
    "{{ f(*a, *b) }}",
    "{{ f(**a, **b) }}",
    "{{ f(**a, b=1) }}",
    "{{ f(a=1, a=2) }}",
    "{{ f(*a, 1) }}",
    "{{ '' if true else f(a=1, *b) }}",
    "{% set ns = namespace({'a': 1}, b=2) %}{{ ns.a }}{{ ns.b }}{% set ns2 = namespace([('z', 3)]) %}{{ ns2.z }}",
    "{% filter format(3) %}%d{% endfilter %}",
    "{% for k in d %}{{ '%-3s=%s' % (k, d[k]) }};{% endfor %}{{ '%s' % d }}",
    # syntax that is none
    "{% for m, in l %}{% endfor %}", "{% set a, = [1] %}{{ a }}", "{% set (not,) = [1] %}",
    "{% if %}", "{{ 1", "{% for a b %}", "{{ a b }}", "{% endif %}", "{% if 1 %}", "{{ (1 }}", "{{ 'a }}", "{% nothing %}", "{{ 1 + }}", "{# a", "{{ [1, }}", "{{ a is b is c }}", "{% set 1 = 2 %}", "{{ a. }}", "{% for x in y %}{% endif %}{% endfor %}",
]


class Undecided(Exception):
    """Jinja leaves it to Python, and that to its version: how deep it recurses, and what sorted() takes for `reverse`
    (since 3.12 the truth of anything, before that a number)."""


def render(template):
    try:
        return _compile_jinja_template(template).render(**copy.deepcopy(variables))  # a list|indent changes the list
    except RecursionError as error:
        raise Undecided(template) from error
    except Exception as error:
        if "object cannot be interpreted as an integer" in str(error) and "reverse" in template:
            raise Undecided(template) from error
        return None


def cases_of(todo, drawn):
    """Of templates that nobody chose those are left out that Jinja does not decide, and names of Python's objects."""
    for template in todo:
        try:
            text = render(template)
        except Undecided:
            if not drawn:
                raise
            continue
        if " at 0x" not in (text or ""):
            yield [template, text]


def random_templates(count):
    """Pieces that are valid alone, joined; and some with a character changed."""
    rng = random.Random(int(sys.argv[3]) if len(sys.argv) > 3 else 5)
    pieces = ["{{ %s }}" % e for e in expressions + raising] + templates + ["\n", " ", "  x", "\n  "]
    marks = list("{}%#-+ \n()[]|.,'\"~=<>") + ["{%", "%}", "{{", "}}", "{%-", "-%}", "if", "else", "not", "is", "in", "1"]
    for i in range(count):
        text = "".join(rng.choice(pieces) for _ in range(rng.randint(1, 3)))
        for _ in range(rng.choice([0, 1, 1, 2])):
            at = rng.randint(0, len(text))
            text = text[:at] + rng.choice(marks + [""]) + text[at + rng.randint(0, 1) :]
        yield text


if __name__ == "__main__":
    out = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "jinja.json")
    todo = ["{{ %s }}" % e for e in expressions + raising] + templates
    if len(sys.argv) > 2:
        todo = list(random_templates(int(sys.argv[2])))
    with open(out, "w", encoding="utf-8") as f:
        f.write('{"variables": ' + json.dumps(variables, ensure_ascii=False) + ',\n"cases": [\n')
        f.write(",\n".join(json.dumps(c, ensure_ascii=False) for c in cases_of(todo, len(sys.argv) > 2)))
        f.write("\n]}\n")
