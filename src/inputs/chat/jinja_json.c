/* jinja_json.c - the filter tojson, which in transformers is Python's json.dumps(). */
#include "base/base.h"
#include "inputs/chat/jinja_core.h"
#include "inputs/tokenizer/unicode.h"

typedef struct writer {
    sheaf__j *j;
    sheaf__jbuffer *b;
    bool ascii, sort;
    sheaf__jtext indent; /* of one level */
    bool lines;
    sheaf__jtext item, key; /* separators */
} writer;

static void put(writer *w, sheaf__jtext text)
{
    sheaf__j_put(w->j, w->b, text.at, text.size);
}

static void put_escape(writer *w, uint32_t c, const char *at)
{
    char text[16];
    int n = 0;
    if (c >= 0x10000)
        n = snprintf(text, sizeof text, "\\u%04x\\u%04x", 0xd800 + ((c - 0x10000) >> 10),
                     0xdc00 + ((c - 0x10000) & 0x3ff));
    else
        n = snprintf(text, sizeof text, "\\u%04x", c);
    sheaf__j_put_for(w->j, w->b, text, (size_t)n, at);
}

static void put_text(writer *w, sheaf__jtext text)
{
    static const char special[] = "\"\\\n\r\t\f\b", letter[] = "\"\\nrtfb";
    put(w, SHEAF__J_WORD("\""));
    sheaf__j_work(w->j, text.size / 8);
    for (size_t i = 0, n; i < text.size; i += n) {
        const char *at = text.at + i;
        const char *known = *at == '\0' ? NULL : strchr(special, *at);
        n = sheaf__utf8_length(at, text.size - i);
        if (known != NULL) {
            const char both[2] = { '\\', letter[known - special] };
            sheaf__j_put_for(w->j, w->b, both, 2, at);
        } else if (n > 0 && ((unsigned char)*at < 0x20 || (w->ascii && (n > 1 || *at == 0x7f)))) {
            if (*at == 0x7f)
                sheaf__j_put(w->j, w->b, at, 1);
            else
                put_escape(w, sheaf__unicode_take(at, n, NULL), at);
        } else {
            sheaf__j_put(w->j, w->b, at, n > 0 ? n : 1);
        }
        n = n > 0 ? n : 1;
    }
    put(w, SHEAF__J_WORD("\""));
}

static void put_line(writer *w, int depth)
{
    if (!w->lines)
        return;
    put(w, SHEAF__J_WORD("\n"));
    for (int i = 0; i < depth; i++)
        put(w, w->indent);
}

static void put_value(writer *w, sheaf__jvalue v, int depth);

static void put_list(writer *w, const sheaf__jlist *list, int depth)
{
    put(w, SHEAF__J_WORD("["));
    for (size_t i = 0; i < list->count; i++) {
        if (i > 0)
            put(w, w->item);
        put_line(w, depth + 1);
        put_value(w, list->at[i], depth + 1);
    }
    if (list->count > 0)
        put_line(w, depth);
    put(w, SHEAF__J_WORD("]"));
}

static void put_key(writer *w, sheaf__jvalue key)
{
    if (key.kind == SHEAF__J_TEXT) {
        put_text(w, key.u.text);
    } else if (key.kind == SHEAF__J_NONE || sheaf__j_is_number(key)) {
        put(w, SHEAF__J_WORD("\""));
        put_value(w, key, 0);
        put(w, SHEAF__J_WORD("\""));
    } else {
        sheaf__j_refuse(w->j, "a %s as key of JSON", sheaf__j_kind(key));
    }
}

static void put_dict(writer *w, const sheaf__jdict *dict, int depth)
{
    const sheaf__jlist keys =
        w->sort ? *sheaf__j_sort(w->j, &dict->keys, &dict->keys, false).u.list : dict->keys;
    put(w, SHEAF__J_WORD("{"));
    for (size_t i = 0; i < keys.count; i++) {
        if (i > 0)
            put(w, w->item);
        put_line(w, depth + 1);
        put_key(w, keys.at[i]);
        put(w, w->key);
        put_value(w, w->sort ? *sheaf__j_get(w->j, dict, keys.at[i]) : dict->values.at[i],
                  depth + 1);
    }
    if (keys.count > 0)
        put_line(w, depth);
    put(w, SHEAF__J_WORD("}"));
}

static void put_value(writer *w, sheaf__jvalue v, int depth)
{
    char number[32];
    sheaf__j_work(w->j, 1);
    sheaf__j_down(w->j);
    switch (v.kind) {
    case SHEAF__J_NONE: put(w, SHEAF__J_WORD("null")); break;
    case SHEAF__J_BOOL: put(w, v.u.truth ? SHEAF__J_WORD("true") : SHEAF__J_WORD("false")); break;
    case SHEAF__J_INT:
        sheaf__j_put(w->j, w->b, number,
                     (size_t)snprintf(number, sizeof number, "%" PRId64, v.u.whole));
        break;
    case SHEAF__J_FLOAT:
        if (v.u.real - v.u.real != 0)
            put(w, v.u.real > 0   ? SHEAF__J_WORD("Infinity")
                   : v.u.real < 0 ? SHEAF__J_WORD("-Infinity")
                                  : SHEAF__J_WORD("NaN"));
        else
            sheaf__j_put_float(w->j, w->b, v.u.real);
        break;
    case SHEAF__J_TEXT: put_text(w, v.u.text); break;
    case SHEAF__J_LIST:
    case SHEAF__J_TUPLE: put_list(w, v.u.list, depth); break;
    case SHEAF__J_DICT: put_dict(w, v.u.dict, depth); break;
    default: sheaf__j_raise(w->j, "Object of type %s is not JSON serializable", sheaf__j_kind(v));
    }
    w->j->depth--;
}

static void read_separators(writer *w, const sheaf__jvalue *v)
{
    if (v == NULL || v->kind == SHEAF__J_NONE)
        return;
    if (!sheaf__j_is_list(*v) || v->u.list->count != 2)
        sheaf__j_raise(w->j, "separators are two strings");
    w->item = sheaf__j_text_argument(w->j, &v->u.list->at[0], w->item);
    w->key = sheaf__j_text_argument(w->j, &v->u.list->at[1], w->key);
}

/* tojson(ensure_ascii=false, indent=none, separators=none, sort_keys=false) */
sheaf__jvalue sheaf__j_json(sheaf__jcall *c)
{
    sheaf__j *j = c->j;
    sheaf__jbuffer b = { 0 };
    const sheaf__jvalue *indent = c->at[1];
    writer w = { .j = j, .b = &b, .item = SHEAF__J_WORD(", "), .key = SHEAF__J_WORD(": ") };
    w.ascii = sheaf__j_bool_argument(c->at[0]);
    w.sort = sheaf__j_bool_argument(c->at[3]);
    if (indent != NULL && indent->kind != SHEAF__J_NONE) {
        static const char blanks[] = "                ";
        w.lines = true;
        w.item = SHEAF__J_WORD(",");
        if (indent->kind == SHEAF__J_TEXT) {
            w.indent = indent->u.text;
        } else {
            const int64_t n = sheaf__j_int_argument(j, indent, 0);
            if (n > (int64_t)sizeof blanks - 1)
                sheaf__j_refuse(j, "an indent of more than %zu", sizeof blanks - 1);
            w.indent = (sheaf__jtext){ blanks, n > 0 ? (size_t)n : 0 };
        }
    }
    read_separators(&w, c->at[2]);
    put_value(&w, c->of, 0);
    return sheaf__j_buffer_text(&b);
}
