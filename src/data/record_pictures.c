/* record_pictures.c - see record_pictures.h. */
#include "data/record_pictures.h"

#include <strings.h>

#include "base/base.h"
#include "base/file.h"
#include "base/json.h"
#include "data/complaints.h"
#include "data/data_images.h"
#include "data/text_inner.h"

enum { MOST = 1000, GROUPS = 180 }; /* pictures, and groups of frames, of a record */

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

sheaf__chat_picture sheaf__picture_shown(const sheaf__viewed *viewed, const char *name,
                                         const sheaf__viewing *viewing)
{
    const sheaf__sliced *s = &viewed->pieces;
    return (sheaf__chat_picture){ .name = viewed->joins ? NULL : name,
                                  .columns = s->columns,
                                  .rows = s->rows,
                                  .frame = viewed->frame > 0,
                                  .joins = viewed->joins,
                                  .gives = sheaf__view_gives(s, viewing) };
}

static sheaf_status *add(sheaf__record_pictures *p, const char *name, const char *path,
                         const sheaf__viewing *viewing)
{
    if (!SHEAF_GROW(&p->shown, NULL, p->count + 1) || !SHEAF_GROW(&p->viewed, NULL, p->count + 1))
        return sheaf__no_memory("pictures");
    sheaf_status *st = sheaf__view_file(&p->viewed[p->count], path, viewing);
    if (st != NULL)
        return st;
    p->shown[p->count] = sheaf__picture_shown(&p->viewed[p->count], name, viewing);
    p->count++;
    return NULL;
}

sheaf_status *sheaf__record_pictures_add(sheaf__record_pictures *p, const char *path,
                                         const sheaf__viewing *viewing)
{
    return add(p, "<image>", path, viewing);
}

static const json_t *value_of(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_null(value) ? NULL : value;
}

/* One picture of several keys, the first that an object has. */
static const json_t *first_of(const json_t *object, const char *const *keys, size_t n)
{
    const json_t *value = NULL;
    for (size_t i = 0; i < n && value == NULL; i++)
        value = value_of(object, keys[i]);
    return value;
}

static const char *const encoded[] = { "bytes", "base64" }, *const named[] = { "path", "url" };

static bool is_one(const json_t *value)
{
    return json_is_string(value) || first_of(value, encoded, 2) != NULL ||
           first_of(value, named, 2) != NULL;
}

static bool is_text(const json_t *value)
{
    return json_is_string(value) && json_string_length(value) > 0 &&
           strlen(json_string_value(value)) == json_string_length(value);
}

sheaf_status *sheaf__picture_path(char **out, const json_t *value, const char *field)
{
    static const char file[] = "file://";
    const json_t *bytes = first_of(value, encoded, 2), *given = bytes != NULL ? bytes
                                                                : json_is_object(value)
                                                                    ? first_of(value, named, 2)
                                                                    : value;
    if (!is_text(given))
        return bad_image(given == NULL ? value : given, field);
    const char *text = json_string_value(given);
    if (strncmp(text, file, sizeof file - 1) == 0)
        text += sizeof file - 1;
    const bool data = sheaf__image_is_data(text);
    if (bytes == NULL && !data && strstr(text, "://") != NULL)
        return sheaf__bad_field(field,
                                "the path of a file, or data:image/png;base64,...: nothing is "
                                "fetched from an address",
                                "%.60s%s", text, strlen(text) > 60 ? "..." : "");
    if (asprintf(out, "%s%s", bytes != NULL && !data ? "data:;base64," : "", text) >= 0)
        return NULL;
    *out = NULL;
    return sheaf__no_memory("pictures");
}

sheaf_status *sheaf__picture_of_part(const json_t **out, const json_t *part, const char *field)
{
    static const char *const keys[] = { "image", "image_url" }, *const sizes[] = {
        "min_pixels", "max_pixels", "resized_height", "resized_width"
    };
    const json_t *inner = first_of(part, keys, 2);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (value_of(part, sizes[i]) != NULL)
            return sheaf_try_this(
                sheaf__bad_field(field, "a picture without a size of its own", "%s", sizes[i]),
                "the sizes of all pictures, beside the model's config (docs/images.md)");
    *out = inner != NULL ? inner : is_one(part) ? part : NULL;
    return NULL;
}

/* The path of a field's value, malloc'd, and whether it is seen from the folder. */
static sheaf_status *whole_path(char **out, bool *seen, const json_t *value, const place *in)
{
    char *stated = NULL;
    *seen = false;
    sheaf_status *st = sheaf__picture_path(&stated, value, in->field);
    *seen = st == NULL && in->folder != NULL && stated[0] != '/' && !sheaf__image_is_data(stated);
    if (!*seen) {
        *out = stated;
        return st;
    }
    st = sheaf__path_join(out, in->folder, stated);
    free(stated);
    return st;
}

static sheaf_status *missing(sheaf_status *st, const char *whole, bool seen)
{
    if (st == NULL || !seen || sheaf_status_code(st) != SHEAF_E_IO ||
        sheaf__path_kind(whole) != SHEAF_PATH_NONE)
        return st;
    return sheaf_try_this(st, "paths are seen from the folder of the file; give absolute ones or "
                              "move the JSON");
}

static sheaf_status *add_path(sheaf__record_pictures *p, const char *name, const json_t *path,
                              const place *in)
{
    char *whole = NULL;
    bool seen;
    sheaf_status *st = whole_path(&whole, &seen, path, in);
    TRY(st, missing(add(p, name, whole, in->viewing), whole, seen));
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
    static const char *const names[] = { "image", "images", "video" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const json_t *value = json_object_get(record, names[i]);
        if (value != NULL && !json_is_null(value) &&
            !(json_is_array(value) && json_array_size(value) == 0) &&
            !(json_is_string(value) && json_string_length(value) == 0))
            return names[i];
    }
    return NULL;
}

/* ---- videos ---- */

static const char video_name[] = "<video>",
                  groups_form[] = "a list of groups, each a list of numbers: [[0, 3, 7], [12]]";

static sheaf_status *bad_ids(const char *expected, const json_t *found)
{
    char text[96];
    return sheaf__bad_field("temporal_ids", expected, "%s", sheaf__json_show(text, found));
}

/* Pictures [first, count) are frames of these groups. */
static sheaf_status *set_groups(sheaf__record_pictures *p, int64_t first, const json_t *groups,
                                const place *in)
{
    const int64_t most = in->viewing->tower[0].frames;
    const size_t n = json_array_size(groups);
    int64_t at = first, all = 0;
    char expected[128];
    if (!json_is_array(groups))
        return bad_ids(groups_form, groups);
    for (size_t g = 0; g < n; g++) {
        const json_t *group = json_array_get(groups, g);
        if (!json_is_array(group))
            return bad_ids(groups_form, group);
        all += (int64_t)json_array_size(group);
    }
    if (all != p->count - first) {
        snprintf(expected, sizeof expected, "%" PRId64 " numbers in all, one for each of the %s",
                 p->count - first, strcmp(in->field, "video") == 0 ? "frames" : in->field);
        return sheaf__bad_field("temporal_ids", expected, "%" PRId64, all);
    }
    for (size_t g = 0; g < n; g++) {
        const json_t *group = json_array_get(groups, g);
        const int64_t size = (int64_t)json_array_size(group);
        if (size < 1 || size > most) {
            snprintf(expected, sizeof expected, "groups of 1 to %" PRId64 " frames", most);
            return sheaf__bad_field("temporal_ids", expected, "%" PRId64, size);
        }
        for (int64_t i = 0; i < size; i++, at++) {
            const json_t *id = json_array_get(group, (size_t)i);
            const int64_t number = json_is_integer(id) ? json_integer_value(id) : -2;
            if (number < (size == 1 ? -1 : 0) || number >= SHEAF__MOST_FRAME)
                return bad_ids("numbers of frames from 0 on; -1 alone for a picture", id);
            p->viewed[at].frame = (int32_t)(number + 1);
            p->viewed[at].joins = i > 0;
        }
    }
    return NULL;
}

/* Numbers of frames that are so many in a second, in groups of one size. */
static sheaf_status *set_times(sheaf__record_pictures *p, int64_t first, const json_t *fps,
                               const place *in)
{
    const int64_t n = p->count - first, size = (n + GROUPS - 1) / GROUPS;
    const double each = fps == NULL ? 5 : json_number_value(fps);
    char text[96];
    if (each <= 0 || each > 1000)
        return sheaf__bad_field("fps", "frames in a second, above 0 and at most 1000", "%s",
                                sheaf__json_show(text, fps));
    if (size > in->viewing->tower[0].frames)
        return sheaf__bad_field("video", "at most 1080 frames", "%" PRId64, n);
    for (int64_t i = 0; i < n; i++) {
        const double tenth = (double)i * 10 / each + 0.5;
        if (tenth >= SHEAF__MOST_FRAME)
            return sheaf__bad_field("fps", "a video of at most 19 days", "%s",
                                    sheaf__json_show(text, fps));
        p->viewed[first + i].frame = (int32_t)tenth + 1;
        p->viewed[first + i].joins = i % size != 0;
    }
    return NULL;
}

static bool is_picture_file(const char *name)
{
    static const char *const ends[] = { ".jpg", ".jpeg", ".png", ".webp" };
    bool is = false;
    for (size_t i = 0; i < sizeof ends / sizeof *ends && name[0] != '.'; i++) {
        const size_t n = strlen(ends[i]), size = strlen(name);
        is = is || (size > n && strcasecmp(name + size - n, ends[i]) == 0);
    }
    return is;
}

/* The pictures of a folder. */
static sheaf_status *add_folder(sheaf__record_pictures *p, const json_t *value, const place *in)
{
    char *whole = NULL, **names = NULL;
    int64_t n = 0, before = p->count;
    bool seen;
    sheaf_status *st = whole_path(&whole, &seen, value, in);
    if (st == NULL && sheaf__path_kind(whole) == SHEAF_PATH_FILE) {
        st = sheaf__bad_field(in->field, "a folder of frames, or a list of pictures", "the file %s",
                              whole);
        sheaf_try_this(st, "ffmpeg -i %s -vf fps=5 FOLDER/%%05d.png", whole);
    }
    TRY(st, missing(sheaf__list_dir(&names, &n, whole), whole, seen));
    for (int64_t i = 0; i < n && st == NULL; i++) {
        char *path = NULL;
        if (!is_picture_file(names[i]))
            continue;
        if (p->count - before == MOST)
            st = sheaf__bad_field(in->field, "at most 1000 frames", "more in %s", whole);
        TRY(st, sheaf__path_join(&path, whole, names[i]));
        TRY(st, add(p, NULL, path, in->viewing));
        free(path);
    }
    if (st == NULL && p->count == before)
        st = sheaf__bad_field(in->field, "a folder with frames: .png, .jpg, .jpeg or .webp",
                              "none in %s", whole);
    sheaf__names_free(names, n);
    free(whole);
    return st;
}

/* How frames stand in the text; `name` is that of the video, or of each group. */
static void show_frames(sheaf__record_pictures *p, int64_t first, const char *name, bool video)
{
    for (int64_t i = first; i < p->count; i++) {
        sheaf__chat_picture *shown = &p->shown[i];
        shown->frame = p->viewed[i].frame > 0;
        shown->joins = p->viewed[i].joins;
        shown->follows = video && i > first && !shown->joins;
        shown->name = shown->joins || shown->follows ? NULL : name;
    }
}

static sheaf_status *read_video(sheaf__record_pictures *p, const json_t *video,
                                const json_t *record, const char *folder,
                                const sheaf__viewing *viewing)
{
    sheaf__viewing whole = *viewing; /* frames are not sliced */
    const place in = { "video", folder, &whole };
    const json_t *ids = json_object_get(record, "temporal_ids");
    const int64_t first = p->count;
    const size_t n = json_array_size(video);
    sheaf_status *st = NULL;
    whole.form.slices = 1;
    if (viewing->tower[0].frames == 0)
        return sheaf_try_this(
            sheaf__bad_field("video", "none: this model reads pictures alone", "one"),
            "\"images\": the frames as pictures, each for itself");
    if (n > MOST)
        return sheaf__bad_field("video", "at most 1000 frames", "%zu", n);
    if (!json_is_array(video))
        st = add_folder(p, video, &in);
    else if (n == 0)
        st =
            sheaf__bad_field("video", "a folder of frames, or a list of pictures", "an empty list");
    for (size_t i = 0; i < n && st == NULL; i++)
        st = add_path(p, NULL, json_array_get(video, i), &in);
    TRY(st, ids != NULL ? set_groups(p, first, ids, &in)
                        : set_times(p, first, json_object_get(record, "fps"), &in));
    if (st == NULL)
        show_frames(p, first, video_name, true);
    return st;
}

/* temporal_ids of a list of pictures: frames are read whole. */
static sheaf_status *group_pictures(sheaf__record_pictures *p, const json_t *ids, const place *in)
{
    if (in->viewing->tower[0].frames == 0)
        return sheaf__bad_field("temporal_ids", "none: this model reads pictures alone", "some");
    if (p->own_names)
        return sheaf__bad_field("temporal_ids", "a list of pictures beside it", "named ones");
    sheaf__viewing whole = *in->viewing;
    whole.form.slices = 1;
    sheaf_status *st = set_groups(p, 0, ids, in);
    for (int64_t i = 0; i < p->count && st == NULL; i++) {
        sheaf__viewed *v = &p->viewed[i];
        if (v->frame == 0 || v->pieces.columns == 0)
            continue;
        sheaf__viewed again;
        st = sheaf__view_file(&again, v->path, &whole);
        if (st != NULL)
            break;
        again.frame = v->frame;
        again.joins = v->joins;
        sheaf__viewed_release(v);
        *v = again;
        p->shown[i].columns = p->shown[i].rows = 0;
    }
    if (st == NULL)
        show_frames(p, 0, "<image>", false);
    return st;
}

/* Pictures of a record's messages. */
static sheaf_status *add_of_messages(sheaf__record_pictures *p, const json_t *record, place *in)
{
    const json_t *list = json_object_get(record, "messages"), *entry;
    sheaf_status *st = NULL;
    char field[48];
    size_t i;
    json_array_foreach(list, i, entry)
    {
        const json_t *path = json_object_get(entry, "image");
        if (path == NULL || json_is_null(path) || st != NULL)
            continue;
        snprintf(field, sizeof field, "messages[%zu].image", i);
        in->field = field;
        p->listed = (int64_t)json_array_size(list);
        st = add_path(p, "<image>", path, in);
        if (st == NULL)
            p->shown[p->count - 1].message = (int64_t)i;
    }
    return st;
}

/* ---- parts of contents ---- */

typedef struct walk {
    sheaf__record_pictures *out;
    place in;
    const json_t *beside; /* pictures beside the messages: one, or a list; NULL: none */
    size_t next;          /* of these */
} walk;

static const json_t *next_beside(walk *w)
{
    if (!json_is_array(w->beside))
        return w->next++ == 0 ? w->beside : NULL;
    return json_array_get(w->beside, w->next++);
}

/* A picture that has its place; value NULL: the next one beside the messages, if there is one. */
static sheaf_status *add_placed(walk *w, const json_t *value, const char *field)
{
    if (value == NULL && (value = next_beside(w)) == NULL)
        return NULL; /* its place is found to be empty */
    w->in.field = field;
    return w->out->count == MOST ? sheaf__bad_field(field, "at most 1000 pictures", "more")
                                 : add_path(w->out, "<image>", value, &w->in);
}

/* A picture for each name of one in a text; nothing for what is no text. */
static sheaf_status *add_marks(walk *w, const json_t *text, const char *field)
{
    int64_t left = json_is_string(text)
                       ? sheaf__picture_names_in(json_string_value(text), json_string_length(text))
                       : 0;
    sheaf_status *st = NULL;
    for (; left > 0 && st == NULL; left--)
        st = add_placed(w, NULL, field);
    return st;
}

static sheaf_status *add_part(walk *w, const json_t *part, bool user, const char *field)
{
    const char *type = sheaf__text_part_type(part);
    const json_t *text = json_object_get(part, "text"), *value = NULL;
    if (sheaf__text_is_picture(type)) {
        if (!user)
            return sheaf__bad_field(field, "pictures in messages of the user only", "one here");
        sheaf_status *st = sheaf__picture_of_part(&value, part, field);
        return TRY(st, add_placed(w, value, field));
    }
    return user ? add_marks(w, text, field) : NULL;
}

static sheaf_status *add_content(walk *w, const json_t *entry, const char *list, size_t index)
{
    const json_t *content = value_of(entry, "content"), *role = value_of(entry, "role"), *part;
    const char *who = json_string_value(role != NULL ? role : value_of(entry, "from"));
    const char *is = who == NULL ? NULL : sheaf__text_role(who);
    const bool user = is != NULL && is[0] == 'u';
    char field[96];
    sheaf_status *st = NULL;
    size_t i;
    content = content != NULL ? content : value_of(entry, "value");
    snprintf(field, sizeof field, "%s[%zu]", list, index);
    if (value_of(entry, "image") != NULL)
        return sheaf__bad_field(field, "pictures as parts of its content", "\"image\" beside it");
    if (user)
        st = add_marks(w, content, field);
    json_array_foreach(content, i, part)
    {
        snprintf(field, sizeof field, "%s[%zu].content[%zu]", list, index, i);
        TRY(st, add_part(w, part, user, field));
    }
    return st;
}

/* The lists of messages of a record, in the order of the text. */
static int lists_of(const char *out[2], const json_t *record)
{
    static const char *const names[] = { "messages", "conversations", "prompt" },
                             completion[] = "completion";
    int n = 0;
    for (int i = 0; i < 3 && n == 0; i++)
        if (json_is_array(json_object_get(record, names[i])))
            out[n++] = names[i];
    if ((n == 0 || out[0] == names[2]) && json_is_array(json_object_get(record, completion)))
        out[n++] = completion;
    return n;
}

static bool has_parts(const json_t *record, const char *const *list, int n)
{
    bool any = false;
    size_t i, k;
    const json_t *entry, *part;
    for (int l = 0; l < n; l++)
        json_array_foreach(json_object_get(record, list[l]), i, entry)
        {
            const json_t *content = value_of(entry, "content");
            json_array_foreach(content != NULL ? content : value_of(entry, "value"), k, part) any =
                any || sheaf__text_is_picture(sheaf__text_part_type(part));
        }
    return any;
}

static sheaf_status *add_of_parts(sheaf__record_pictures *out, const json_t *record,
                                  const json_t *beside, const place *in, const char *const *list,
                                  int n)
{
    walk w = { out, *in, beside, 0 };
    const json_t *entry, *left;
    sheaf_status *st = NULL;
    size_t i;
    if (json_is_object(beside) && !is_one(beside))
        return sheaf__bad_field(in->field, "a list of pictures, which parts of contents place",
                                "an object of names");
    for (int l = 0; l < n; l++)
        json_array_foreach(json_object_get(record, list[l]), i, entry)
            TRY(st, add_content(&w, entry, list[l], i));
    while (st == NULL && (left = next_beside(&w)) != NULL) /* it is found to have no place */
        st = add_placed(&w, left, in->field);
    return st;
}

static sheaf_status *read_images(sheaf__record_pictures *out, const json_t *record,
                                 const char *folder, const sheaf__viewing *viewing)
{
    json_t *one = json_object_get(record, "image"), *many = json_object_get(record, "images"),
           *images = one == NULL ? many : one;
    place in = { one == NULL ? "images" : "image", folder, viewing };
    const char *list[2];
    const int lists = lists_of(list, record);
    if (one != NULL && many != NULL)
        return sheaf__bad_field("images", "either \"image\" or \"images\"", "both in one record");
    if (has_parts(record, list, lists))
        return add_of_parts(out, record, json_is_null(images) ? NULL : images, &in, list, lists);
    if (images == NULL)
        return add_of_messages(out, record, &in);
    if (json_is_null(images) || (json_is_string(images) && json_string_length(images) == 0))
        return NULL;
    const size_t n = json_is_array(images)                       ? json_array_size(images)
                     : json_is_object(images) && !is_one(images) ? json_object_size(images)
                                                                 : 1;
    if (n > MOST)
        return sheaf__bad_field(in.field, "at most 1000 pictures", "%zu", n);
    if (json_is_object(images) && !is_one(images))
        return add_named(out, images, &in);
    if (!json_is_array(images))
        return add_path(out, "<image>", images, &in);
    sheaf_status *st = NULL;
    for (size_t i = 0; i < n && st == NULL; i++)
        st = add_path(out, "<image>", json_array_get(images, i), &in);
    return st;
}

sheaf_status *sheaf__record_pictures_read(sheaf__record_pictures *out, const json_t *record,
                                          const char *folder, const sheaf__viewing *viewing)
{
    const json_t *video = value_of(record, "video"), *ids = value_of(record, "temporal_ids");
    *out = (sheaf__record_pictures){ .unread = sheaf__record_pictures_meant(record) };
    sheaf_status *st = read_images(out, record, folder, viewing);
    if (st == NULL && video != NULL)
        return read_video(out, video, record, folder, viewing);
    const place in = { "pictures", folder, viewing };
    return TRY(st, ids != NULL ? group_pictures(out, ids, &in) : NULL);
}

void sheaf__record_pictures_from(sheaf__record_pictures *p, const sheaf__message *message,
                                 int64_t messages)
{
    int64_t first = 0;
    while (first < messages && strcmp(message[first].role, "user") != 0)
        first++;
    for (int64_t i = 0; i < p->count; i++) /* a system message may stand beside the list */
        p->shown[i].message = p->listed > 0 ? p->shown[i].message + messages - p->listed : first;
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

sheaf_status *sheaf__record_pictures_said(const sheaf__record_pictures *p,
                                          const sheaf__text_record *record)
{
    const int64_t at = p->count == 0 ? -1 : sheaf__text_said_picture(record);
    int64_t placed = 0;
    for (int64_t i = 0; i < record->messages; i++)
        if (record->message[i].role[0] == 'u')
            placed += sheaf__picture_names_in(record->message[i].content, record->message[i].size);
    if (at < 0 || placed > 0)
        return NULL;
    sheaf_status *st = sheaf_fail(SHEAF_E_DATA, "message %" PRId64, at + 1);
    sheaf_expected(st, "the picture's name in a message of the user, where pictures stand");
    sheaf_found(st, "in one of the %s alone", record->message[at].role);
    return sheaf_try_this(st, "\"<image>\" in the question; in the answer it is text");
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
