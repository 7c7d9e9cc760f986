/* fields.c - see fields.h. */
#include "data/fields.h"

#include "base/base.h"
#include "data/complaints.h"

static const char *const records[] = { "prompt",   "completion",    "answer",      "text",
                                       "messages", "conversations", "instruction", "input",
                                       "output",   "system",        "history",     "image",
                                       "images",   "tokens" };
static const char *const entries[] = { "role", "content", "from", "value", "weight" };
enum { RECORDS = sizeof records / sizeof *records, ENTRIES = sizeof entries / sizeof *entries };

static const char *find(const char *const *names, int n, const char *name, size_t size)
{
    for (int i = 0; i < n; i++)
        if (strlen(names[i]) == size && memcmp(names[i], name, size) == 0)
            return names[i];
    return NULL;
}

static sheaf_status *bad(const char *item, size_t size)
{
    sheaf_status *st = sheaf_fail(SHEAF_E_ARG, "`fields`");
    sheaf_expected(st,
                   "THEIRS=OURS,...; ours are prompt, completion, text, messages, conversations, "
                   "instruction, input, output, system, history, image, images, tokens, and in "
                   "lists of messages role, content, from, value, weight");
    return sheaf_found(st, "%.*s", (int)size, item);
}

static sheaf_status *add(sheaf__fields *out, const char *item, size_t size)
{
    const char *equals = memchr(item, '=', size);
    const size_t from = equals == NULL ? 0 : (size_t)(equals - item);
    if (from == 0 || out->n == SHEAF__MOST_FIELDS)
        return bad(item, size);
    const char *own = find(records, RECORDS, equals + 1, size - from - 1),
               *inner = find(entries, ENTRIES, equals + 1, size - from - 1);
    if (own == NULL && inner == NULL)
        return bad(item, size);
    out->of[out->n].from = strndup(item, from);
    if (out->of[out->n].from == NULL)
        return sheaf__no_memory("`fields`");
    out->of[out->n].to = own != NULL ? own : inner;
    out->of[out->n].inside = own == NULL;
    const char *to = out->of[out->n++].to;
    for (int i = 0; i < out->n - 1; i++)
        if (strcmp(out->of[i].to, to) == 0 ||
            strcmp(out->of[i].from, out->of[out->n - 1].from) == 0)
            return bad(item, size);
    return NULL;
}

sheaf_status *sheaf__fields_read(sheaf__fields *out, const char *list)
{
    sheaf_status *st = NULL;
    *out = (sheaf__fields){ 0 };
    for (const char *at = list; at != NULL && *at != '\0' && st == NULL;) {
        at += strspn(at, " "); /* behind a comma */
        const size_t size = strcspn(at, ",");
        st = add(out, at, size);
        at += size;
        if (*at == ',' && *++at == '\0' && st == NULL)
            st = bad("", 0);
    }
    return st;
}

void sheaf__fields_release(sheaf__fields *fields)
{
    for (int i = 0; i < fields->n; i++)
        free(fields->of[i].from);
    *fields = (sheaf__fields){ 0 };
}

/* Removes all before it adds one, as two fields may swap their names. */
static sheaf_status *rename_all(const sheaf__fields *f, json_t *object, bool inside)
{
    json_t *value[SHEAF__MOST_FIELDS] = { NULL };
    sheaf_status *st = NULL;
    for (int i = 0; i < f->n; i++)
        if (f->of[i].inside == inside)
            value[i] = json_incref(json_object_get(object, f->of[i].from));
    for (int i = 0; i < f->n; i++)
        if (value[i] != NULL)
            json_object_del(object, f->of[i].from);
    for (int i = 0; i < f->n; i++) {
        if (value[i] != NULL && st == NULL && json_object_get(object, f->of[i].to) != NULL)
            st = sheaf__bad_field(f->of[i].to,
                                  "no field of this name, which `fields` gives to another", "one");
        if (value[i] != NULL && st == NULL && json_object_set(object, f->of[i].to, value[i]) != 0)
            st = sheaf__no_memory("data set");
        json_decref(value[i]);
    }
    return st;
}

sheaf_status *sheaf__fields_apply(const sheaf__fields *fields, json_t *record)
{
    static const char *const lists[] = { "messages", "conversations", "prompt", "completion" };
    if (fields == NULL || fields->n == 0 || !json_is_object(record))
        return NULL;
    sheaf_status *st = rename_all(fields, record, false);
    for (size_t k = 0; k < sizeof lists / sizeof *lists; k++) {
        const json_t *list = json_object_get(record, lists[k]);
        for (size_t i = 0; i < json_array_size(list) && st == NULL; i++)
            if (json_is_object(json_array_get(list, i)))
                st = rename_all(fields, json_array_get(list, i), true);
    }
    return st;
}
