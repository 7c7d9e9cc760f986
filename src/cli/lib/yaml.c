/* yaml.c - see yaml.h. */
#include "cli/lib/yaml.h"

#include <yaml.h>

#include "base/base.h"
#include "base/file.h"

enum { MOST_ENTRIES = 4096, DEEPEST = 16, MOST_BYTES = 1 << 20 };

typedef struct reader {
    yaml_parser_t parser;
    yaml_event_t event;
    const char *path;
    cli_yaml *out;
    bool held; /* `event` is to be deleted */
} reader;

static sheaf_status *at_line(const reader *r, size_t line, const char *expected, const char *found)
{
    sheaf_status *st = sheaf_fail(SHEAF_E_DATA, "%s: line %zu", r->path, line + 1);
    return sheaf_found(sheaf_expected(st, "%s", expected), "%s", found);
}

static sheaf_status *next(reader *r)
{
    if (r->held)
        yaml_event_delete(&r->event);
    r->held = yaml_parser_parse(&r->parser, &r->event) != 0;
    if (!r->held)
        return at_line(r, r->parser.problem_mark.line, "YAML",
                       r->parser.problem != NULL ? r->parser.problem : "something else");
    const bool anchored =
        r->event.type == YAML_ALIAS_EVENT ||
        (r->event.type == YAML_SCALAR_EVENT && r->event.data.scalar.anchor != NULL) ||
        (r->event.type == YAML_MAPPING_START_EVENT && r->event.data.mapping_start.anchor != NULL) ||
        (r->event.type == YAML_SEQUENCE_START_EVENT && r->event.data.sequence_start.anchor != NULL);
    return anchored ? at_line(r, r->event.start_mark.line, "values written out where they count",
                              "an anchor or an alias")
                    : NULL;
}

static sheaf_status *add(reader *r, const char *key, const char *value, size_t line)
{
    cli_yaml *out = r->out;
    for (int i = 0; i < out->count; i++)
        if (strcmp(out->entry[i].key, key) == 0)
            return at_line(r, line, "each key once", key);
    if (out->count >= MOST_ENTRIES)
        return at_line(r, line, "at most 4096 settings", "more");
    if (!SHEAF_GROW(&out->entry, NULL, out->count + 1))
        return sheaf__no_memory(r->path);
    sheaf_foreign_setting *e = &out->entry[out->count++];
    *e = (sheaf_foreign_setting){ strdup(key), strdup(value), (int)line + 1 };
    return e->key == NULL || e->value == NULL ? sheaf__no_memory(r->path) : NULL;
}

static const char *scalar(const reader *r)
{
    const char *text = (const char *)r->event.data.scalar.value;
    const bool plain = r->event.data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    static const char *const nothing[] = { "null", "Null", "NULL", "~" };
    for (size_t i = 0; plain && i < sizeof nothing / sizeof *nothing; i++)
        if (strcmp(text, nothing[i]) == 0)
            return "";
    return text;
}

static sheaf_status *read_value(reader *r, const char *key, size_t line, int depth);

static sheaf_status *read_map(reader *r, const char *key, int depth)
{
    sheaf_status *st = next(r);
    while (st == NULL && r->event.type != YAML_MAPPING_END_EVENT) {
        const size_t line = r->event.start_mark.line;
        sheaf_text name = { 0 };
        if (r->event.type != YAML_SCALAR_EVENT)
            return at_line(r, line, "a key that is a word", "a list or a map");
        if (strlen((const char *)r->event.data.scalar.value) != r->event.data.scalar.length)
            return at_line(r, line, "a key without NUL", "one with it");
        sheaf__text_add(&name, "%s%s%s", key, key[0] != '\0' ? "." : "",
                        (const char *)r->event.data.scalar.value);
        st = name.failed ? sheaf__no_memory(r->path) : next(r);
        TRY(st, read_value(r, name.at, line, depth + 1));
        sheaf__text_release(&name);
        TRY(st, next(r));
    }
    return st;
}

/* Plain values are joined; maps and lists get entries of their own. */
static sheaf_status *read_list(reader *r, const char *key, size_t line, int depth)
{
    sheaf_text all = { 0 };
    int count = 0, plain = 0;
    sheaf_status *st = next(r);
    while (st == NULL && r->event.type != YAML_SEQUENCE_END_EVENT) {
        if (r->event.type == YAML_SCALAR_EVENT) {
            sheaf__text_add(&all, "%s%s", plain++ > 0 ? "," : "", scalar(r));
        } else {
            sheaf_text name = { 0 };
            sheaf__text_add(&name, "%s[%d]", key, count);
            st = name.failed ? sheaf__no_memory(r->path)
                             : read_value(r, name.at, r->event.start_mark.line, depth + 1);
            sheaf__text_release(&name);
        }
        count++;
        TRY(st, next(r));
    }
    if (st == NULL && (plain > 0 || count == 0))
        st = all.failed ? sheaf__no_memory(r->path)
                        : add(r, key, all.at != NULL ? all.at : "", line);
    sheaf__text_release(&all);
    return st;
}

static sheaf_status *read_value(reader *r, const char *key, size_t line, int depth)
{
    if (depth > DEEPEST)
        return at_line(r, line, "settings at most 16 levels deep", "more");
    switch (r->event.type) {
    case YAML_SCALAR_EVENT:
        if (strlen((const char *)r->event.data.scalar.value) != r->event.data.scalar.length)
            return at_line(r, line, "a value without NUL", "one with it");
        return add(r, key, scalar(r), line);
    case YAML_MAPPING_START_EVENT: return read_map(r, key, depth);
    case YAML_SEQUENCE_START_EVENT: return read_list(r, key, line, depth);
    default: return at_line(r, line, "a value", "something else");
    }
}

static sheaf_status *read_document(reader *r)
{
    sheaf_status *st = NULL;
    for (int i = 0; i < 3 && st == NULL; i++) { /* stream, document, its value */
        st = next(r);
        if (st == NULL && r->event.type == YAML_STREAM_END_EVENT)
            return at_line(r, 0, "settings", "an empty file");
    }
    if (st == NULL && r->event.type != YAML_MAPPING_START_EVENT)
        return at_line(r, r->event.start_mark.line, "a map of settings", "something else");
    TRY(st, read_map(r, "", 0));
    TRY(st, next(r)); /* the document's end */
    TRY(st, next(r));
    if (st == NULL && r->event.type != YAML_STREAM_END_EVENT)
        st = at_line(r, r->event.start_mark.line, "one document", "another one");
    return st;
}

sheaf_status *cli_yaml_read(cli_yaml *out, const char *path)
{
    char *text = NULL;
    size_t size = 0;
    reader r = { .path = path, .out = out };
    *out = (cli_yaml){ 0 };
    sheaf_status *st = sheaf__file_read_all(&text, &size, path, MOST_BYTES);
    if (st == NULL && yaml_parser_initialize(&r.parser) == 0)
        st = sheaf__no_memory(path);
    else if (st == NULL) {
        yaml_parser_set_input_string(&r.parser, (const unsigned char *)text, size);
        st = read_document(&r);
        if (r.held)
            yaml_event_delete(&r.event);
        yaml_parser_delete(&r.parser);
    }
    free(text);
    return st;
}

void cli_yaml_release(cli_yaml *yaml)
{
    for (int i = 0; i < yaml->count; i++) {
        free((char *)yaml->entry[i].key);
        free((char *)yaml->entry[i].value);
    }
    free(yaml->entry);
    *yaml = (cli_yaml){ 0 };
}

sheaf_status *cli_yaml_translate(sheaf_status *st, const char *path)
{
    cli_yaml yaml = { 0 };
    sheaf_translation *t = NULL;
    if (sheaf__path_kind(path) != SHEAF_PATH_FILE)
        return st;
    sheaf_status_free(cli_yaml_read(&yaml, path));
    sheaf_status_free(sheaf_translation_new(&t, yaml.entry, yaml.count));
    if (t != NULL) {
        sheaf_text word = { 0 };
        sheaf__text_word(&word, path);
        sheaf_found(st, "a file of %s", sheaf_translation_program(t));
        sheaf_try_this(st, "sheaf translate %s >my.recipe, then sheaf train --recipe my.recipe",
                       word.failed ? "FILE" : word.at);
        sheaf__text_release(&word);
    }
    sheaf_translation_free(t);
    cli_yaml_release(&yaml);
    return st;
}
