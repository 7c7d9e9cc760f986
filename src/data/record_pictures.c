/* record_pictures.c - see record_pictures.h. */
#include "data/record_pictures.h"

#include "base/base.h"
#include "base/file.h"
#include "base/json.h"
#include "data/complaints.h"
#include "data/text_inner.h"

enum { MOST = 1000 };

/* The place of the pictures' names. */
typedef struct place {
    const char *field;  /* of the record */
    const char *folder; /* that paths are relative to; NULL: the working folder */
    const sheaf__viewing *viewing;
} place;

static sheaf_status *bad_image(const json_t *found, const char *field)
{
    char text[96];
    return sheaf__bad_field(field,
                            "a path, a list of paths, or an object of names "
                            "(\"<image_00>\") and paths",
                            "%s", sheaf__json_show(text, found));
}

static sheaf_status *add(sheaf__record_pictures *p, const char *name, const char *path,
                         const sheaf__viewing *viewing)
{
    if (!SHEAF_GROW(&p->shown, NULL, p->count + 1) || !SHEAF_GROW(&p->viewed, NULL, p->count + 1))
        return sheaf__no_memory("pictures");
    sheaf_status *st = sheaf__view_file(&p->viewed[p->count], path, viewing);
    if (st != NULL)
        return st;
    const sheaf__sliced *s = &p->viewed[p->count].pieces;
    p->shown[p->count++] =
        (sheaf__chat_picture){ .name = name, .columns = s->columns, .rows = s->rows };
    return NULL;
}

sheaf_status *sheaf__record_pictures_add(sheaf__record_pictures *p, const char *path,
                                         const sheaf__viewing *viewing)
{
    return add(p, "<image>", path, viewing);
}

sheaf_status *sheaf__picture_path(const char **out, const char *given, const char *field)
{
    static const char file[] = "file://";
    if (strncmp(given, file, sizeof file - 1) == 0)
        given += sizeof file - 1;
    *out = given;
    if (strncmp(given, "data:", 5) != 0 && strstr(given, "://") == NULL)
        return NULL;
    return sheaf__bad_field(field, "the path of a file: nothing is fetched or decoded from text",
                            "%.60s%s", given, strlen(given) > 60 ? "..." : "");
}

static sheaf_status *add_path(sheaf__record_pictures *p, const char *name, const json_t *path,
                              const place *in)
{
    char *whole = NULL;
    if (!json_is_string(path) || json_string_length(path) != strlen(json_string_value(path)) ||
        json_string_length(path) == 0)
        return bad_image(path, in->field);
    const char *stated;
    sheaf_status *st = sheaf__picture_path(&stated, json_string_value(path), in->field);
    if (st == NULL && in->folder != NULL && stated[0] != '/')
        st = sheaf__path_join(&whole, in->folder, stated);
    TRY(st, add(p, name, whole == NULL ? stated : whole, in->viewing));
    if (st != NULL && whole != NULL && sheaf_status_code(st) == SHEAF_E_IO &&
        sheaf__path_kind(whole) == SHEAF_PATH_NONE)
        sheaf_try_this(st, "paths are seen from the folder of the file; give absolute ones or "
                           "move the JSON");
    free(whole);
    return st;
}

static sheaf_status *add_named(sheaf__record_pictures *p, json_t *images, const place *in)
{
    const char *name;
    json_t *path;
    sheaf_status *st = NULL;
    p->own_names = json_object_get(images, "<image>") == NULL;
    json_object_foreach(images, name, path)
    {
        const bool sound = strcmp(name, "<image>") == 0
                               ? json_object_size(images) == 1
                               : sheaf__is_picture_name(name, strlen(name)) == strlen(name);
        if (st == NULL && !sound)
            st = sheaf__bad_field(in->field, "names as \"<image_00>\", or one \"<image>\" alone",
                                  "'%.60s'", name);
        TRY(st, add_path(p, name, path, in));
    }
    return st;
}

const char *sheaf__record_pictures_meant(const json_t *record)
{
    static const char *const names[] = { "image",   "images",      "img",        "imgs",
                                         "picture", "pictures",    "image_path", "image_file",
                                         "photo",   "pixel_values" };
    const char *key;
    json_t *value;
    if (json_object_get(record, "image") != NULL || json_object_get(record, "images") != NULL)
        return NULL;
    json_object_foreach((json_t *)record, key, value)
    {
        if (sheaf__nearest(key, names, sizeof names / sizeof *names) != NULL)
            return key;
    }
    return NULL;
}

bool sheaf__record_pictures_spells(const char *text)
{
    const char *at = strstr(text, "<img>");
    return at != NULL && strstr(at, "</img>") != NULL;
}

/* Also in a list of parts, and in messages other than answers. */
static bool spells(const json_t *value)
{
    if (json_is_string(value) && sheaf__record_pictures_spells(json_string_value(value)))
        return true;
    for (size_t i = 0; i < json_array_size(value); i++) {
        static const char *const keys[] = { "content", "value", "text" };
        const json_t *one = json_array_get(value, i), *role = json_object_get(one, "role");
        const char *who = json_string_value(role != NULL ? role : json_object_get(one, "from"));
        const char *is = who == NULL ? NULL : sheaf__text_role(who);
        for (size_t k = 0; k < 3 && (is == NULL || is[0] != 'a'); k++)
            if (spells(json_object_get(one, keys[k])))
                return true;
    }
    return false;
}

bool sheaf__record_pictures_spelled(const json_t *record)
{
    static const char *const asks[] = { "prompt", "instruction", "input", "messages",
                                        "conversations" };
    for (size_t i = 0; i < sizeof asks / sizeof *asks; i++)
        if (spells(json_object_get(record, asks[i])))
            return true;
    return false;
}

const char *sheaf__record_pictures_field(const json_t *record)
{
    static const char *const names[] = { "image", "images" };
    for (size_t i = 0; i < 2; i++) {
        const json_t *value = json_object_get(record, names[i]);
        if (value != NULL && !json_is_null(value) &&
            !(json_is_array(value) && json_array_size(value) == 0) &&
            !(json_is_string(value) && json_string_length(value) == 0))
            return names[i];
    }
    return NULL;
}

sheaf_status *sheaf__record_pictures_read(sheaf__record_pictures *out, const json_t *record,
                                          const char *folder, const sheaf__viewing *viewing)
{
    json_t *one = json_object_get(record, "image"), *many = json_object_get(record, "images"),
           *images = one == NULL ? many : one;
    const place in = { one == NULL ? "images" : "image", folder, viewing };
    *out = (sheaf__record_pictures){ .unread = sheaf__record_pictures_meant(record) };
    if (one != NULL && many != NULL)
        return sheaf__bad_field("images", "either \"image\" or \"images\"", "both in one record");
    if (images == NULL || json_is_null(images) ||
        (json_is_string(images) && json_string_length(images) == 0))
        return NULL;
    const size_t n = json_is_array(images)    ? json_array_size(images)
                     : json_is_object(images) ? json_object_size(images)
                                              : 1;
    if (n > MOST)
        return sheaf__bad_field(in.field, "at most 1000 pictures", "%zu", n);
    if (json_is_object(images))
        return add_named(out, images, &in);
    if (!json_is_array(images))
        return add_path(out, "<image>", images, &in);
    sheaf_status *st = NULL;
    for (size_t i = 0; i < n && st == NULL; i++)
        st = add_path(out, "<image>", json_array_get(images, i), &in);
    return st;
}

void sheaf__record_pictures_from(sheaf__record_pictures *p, const sheaf__message *message,
                                 int64_t messages)
{
    int64_t first = 0;
    while (first < messages && strcmp(message[first].role, "user") != 0)
        first++;
    for (int64_t i = 0; i < p->count; i++)
        p->shown[i].message = first;
}

sheaf_status *sheaf__record_pictures_place(sheaf__placed *out, const sheaf__picture_form *form,
                                           const sheaf__message *message, int64_t messages,
                                           const sheaf__record_pictures *p, bool number_all)
{
    return sheaf__place_pictures(out, form, message, messages, p->shown, p->count,
                                 &(sheaf__place_options){ .lines = p->own_names,
                                                          .number_all = number_all,
                                                          .unread = p->unread });
}

sheaf_status *sheaf__record_pictures_take(sheaf__viewed **out, sheaf__record_pictures *p,
                                          const int64_t *order)
{
    sheaf__viewed *list = *out = calloc((size_t)p->count + 1, sizeof *list);
    if (list == NULL)
        return sheaf__no_memory("pictures");
    for (int64_t i = 0; i < p->count; i++) {
        list[i] = p->viewed[order[i]];
        p->viewed[order[i]].path = NULL;
    }
    return NULL;
}

void sheaf__record_pictures_release(sheaf__record_pictures *p)
{
    for (int64_t i = 0; i < p->count; i++)
        sheaf__viewed_release(&p->viewed[i]);
    free(p->viewed);
    free(p->shown);
    *p = (sheaf__record_pictures){ 0 };
}
