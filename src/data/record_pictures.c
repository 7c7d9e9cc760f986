/* record_pictures.c - see record_pictures.h. */
#include "data/record_pictures.h"

#include <ctype.h>
#include <math.h>

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
    const json_t *record;
    bool one; /* "video" is beside it, not a list "videos" */
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

sheaf_status *sheaf__record_pictures_add(sheaf__record_pictures *p, const char *name,
                                         const char *path, const sheaf__viewing *viewing)
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
    TRY(st, missing(sheaf__record_pictures_add(p, name, whole, in->viewing), whole, seen));
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
    static const char *const names[] = { "image", "images", "video", "videos" };
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

static const char groups_form[] = "a list of groups, each a list of numbers: [[0, 3, 7], [12]]";

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

/* Frames of a video, before some are taken. */
typedef struct frames {
    const sheaf__frames *from;
    const sheaf__video_form *form;
    const char *field;
    double fps, *second;  /* [from->count]; fps 0: they are given one by one */
    int64_t *kept, count; /* numbers of those that are taken */
} frames;

static sheaf_status *bad_times(const json_t *found, int64_t n)
{
    char expected[96], text[96];
    snprintf(expected, sizeof expected,
             "%" PRId64 " ascending seconds from 0 on, one for each of the frames", n);
    return sheaf__bad_field("times", expected, "%s", sheaf__json_show(text, found));
}

/* What is said of a video. */
static const json_t *said(const frames *f, const char *key)
{
    const json_t *value = NULL;
    for (int i = 0; i < 3 && value == NULL; i++)
        value = value_of(f->from->about[i], key);
    return value;
}

/* A number of frames in a second; otherwise: without one. */
static sheaf_status *rate(double *out, const frames *f, const char *key, double otherwise)
{
    const json_t *value = said(f, key);
    char text[96];
    *out = value == NULL ? otherwise : json_number_value(value);
    return value == NULL || (*out > 0 && *out <= 1000)
               ? NULL
               : sheaf__bad_field(key, "frames in a second, above 0 and at most 1000", "%s",
                                  sheaf__json_show(text, value));
}

/* The second of each frame. */
static sheaf_status *find_seconds(frames *f)
{
    const json_t *times = said(f, "times");
    const int64_t n = f->from->count;
    sheaf_status *st = rate(&f->fps, f, "fps", f->form->fps);
    if (st == NULL && times != NULL && said(f, "fps") != NULL)
        st = sheaf__bad_field("times", "either \"fps\" or \"times\"", "both");
    if (st == NULL && times != NULL && json_array_size(times) != (size_t)n)
        st = bad_times(times, n);
    for (int64_t i = 0; i < n && st == NULL; i++) {
        const json_t *one = times == NULL ? NULL : json_array_get(times, (size_t)i);
        f->second[i] = times == NULL ? (double)i / f->fps : json_number_value(one);
        if (times != NULL && (!json_is_number(one) || !(f->second[i] >= 0) ||
                              (i > 0 && !(f->second[i] > f->second[i - 1]))))
            st = bad_times(one, n);
        else if (f->second[i] * 10 + 0.5 >= SHEAF__MOST_FRAME)
            st = sheaf__bad_field(f->field, "a video of at most 19 days", "%g seconds",
                                  f->second[i]);
    }
    f->fps = times == NULL ? f->fps : 0;
    return st;
}

/* Those that the model's program would take of so many in a second; without a rate all. */
static sheaf_status *take_frames(frames *f, int64_t group)
{
    const int64_t n = f->from->count, many = f->form->many < n ? f->form->many : n;
    double sampled = f->form->sampled, few = (double)f->form->few;
    sheaf_status *st = rate(&sampled, f, "target_fps", sampled);
    f->count = n;
    if (st == NULL && f->form->many == 0 && said(f, "target_fps") != NULL)
        st = sheaf__bad_field("target_fps", "none: this model takes all frames", "one");
    for (int64_t i = 0; i < n; i++)
        f->kept[i] = i;
    if (st != NULL || sampled == 0 || f->fps == 0 || n < 2)
        return st;
    double wanted = (double)n / f->fps * sampled;
    if (f->form->whole) {
        wanted = floor(wanted) > few ? floor(wanted) : few;
        f->count = wanted < (double)many ? (int64_t)wanted : many;
        const double step = (double)(n - 1) / (double)(f->count > 1 ? f->count - 1 : 1);
        for (int64_t i = 0; i < f->count; i++)
            f->kept[i] = sheaf__rounded((double)i * step);
        return NULL;
    }
    const int64_t most = many / group * group;
    wanted = wanted > few ? wanted : few;
    f->count = (wanted < (double)most ? (int64_t)wanted : most) / group * group;
    for (int64_t i = 0; i < f->count; i++)
        f->kept[i] = (int64_t)(float)((double)i * ((double)n / (double)f->count));
    return NULL;
}

/* Groups of one size, and the numbers of their frames. */
static sheaf_status *number_frames(sheaf__record_pictures *p, int64_t first, const frames *f,
                                   const sheaf__tower *tower)
{
    const int64_t n = f->count, few = (n + GROUPS - 1) / GROUPS,
                  size = tower->frames == 0   ? 1
                         : tower->repeats > 0 ? tower->frames
                                              : few;
    const double taken = f->fps > 0 ? (double)n / (double)f->from->count * f->fps
                         : n > 1    ? (double)(n - 1) / (f->second[n - 1] - f->second[0])
                                    : 1;
    const bool all = n == f->from->count && said(f, "target_fps") == NULL;
    if (tower->frames > 0 && size > tower->frames)
        return sheaf__bad_field(f->field, "at most 1080 frames", "%" PRId64, n);
    for (int64_t i = 0; i < n; i++) {
        sheaf__viewed *v = &p->viewed[first + i];
        const float step = (float)((double)size / taken), /* seconds between two groups */
            at = (float)(i / size) * step * (float)f->form->steps;
        v->second = f->second[f->kept[i]];
        v->fps = all ? f->fps : 0;
        if (!(at < SHEAF__MOST_FRAME))
            return sheaf__bad_field(f->field, "a video of at most 19 days", "another");
        v->frame = tower->frames == 0   ? 0
                   : f->form->steps > 0 ? 1 + (int32_t)at
                                        : 1 + (int32_t)(v->second * 10 + 0.5);
        v->joins = i % size != 0;
    }
    return NULL;
}

/* How frames stand in the text; `name` is that of the video, or of each group. */
static void show_frames(sheaf__record_pictures *p, int64_t first, const char *name, bool video)
{
    for (int64_t i = first; i < p->count; i++) {
        sheaf__chat_picture *shown = &p->shown[i];
        int64_t last = i;
        while (last + 1 < p->count && p->viewed[last + 1].joins)
            last++;
        shown->frame = video || p->viewed[i].frame > 0;
        shown->second = (p->viewed[i].second + p->viewed[last].second) / 2;
        shown->joins = p->viewed[i].joins;
        shown->follows = video && i > first && !shown->joins;
        shown->name = shown->joins || shown->follows ? NULL : name;
    }
}

/* All frames of a patch and of a video are equally large. */
static sheaf_status *check_sizes(const sheaf__record_pictures *p, int64_t first, const char *field)
{
    const sheaf__sliced *s = &p->viewed[first].pieces;
    for (int64_t i = first + 1; i < p->count; i++) {
        const sheaf__sliced *other = &p->viewed[i].pieces;
        if (other->width != s->width || other->height != s->height)
            return sheaf__bad_field(field, "frames of one size, as the first", "%s: another",
                                    p->viewed[i].path);
    }
    return NULL;
}

static sheaf_status *add_frames(sheaf__record_pictures *p, frames *f, const sheaf__viewing *viewing)
{
    const sheaf__tower *tower = &viewing->tower[0];
    const json_t *ids = said(f, "temporal_ids");
    const int64_t first = p->count;
    sheaf__viewing own = *viewing;
    sheaf_status *st = find_seconds(f);
    TRY(st, take_frames(f, tower->frames));
    if (st == NULL && f->count < (f->form->whole ? tower->frames : 1))
        st = sheaf__bad_field(f->field, "at least as many frames as one patch holds", "%" PRId64,
                              f->count);
    if (f->form->slices > 0)
        own.form.slices = f->form->slices;
    if (f->form->most > 0) {
        own.form.least = f->form->least;
        own.form.most = f->form->most;
        own.frames = f->form->whole ? f->count : 0;
    }
    for (int64_t i = 0; i < f->count && st == NULL; i++) {
        const int64_t k = f->kept[i];
        if (f->from->bytes != NULL)
            own.bytes = f->from->bytes[k];
        st = missing(sheaf__record_pictures_add(p, NULL, f->from->path[k], &own), f->from->path[k],
                     f->from->seen);
    }
    if (st == NULL && tower->repeats > 0)
        st = check_sizes(p, first, f->field);
    if (st == NULL && ids != NULL && (tower->frames == 0 || tower->repeats > 0))
        st = sheaf__bad_field("temporal_ids",
                              "\"fps\" or \"times\": this model groups frames itself", "some");
    TRY(st, number_frames(p, first, f, tower));
    if (ids != NULL)
        TRY(st, set_groups(p, first, ids, &(place){ .field = "video", .viewing = viewing }));
    if (st == NULL)
        show_frames(p, first, SHEAF__VIDEO_HERE, true);
    return st;
}

static sheaf_status *no_video(const char *field)
{
    return sheaf_try_this(sheaf__bad_field(field, "none: this model reads pictures alone", "one"),
                          "\"images\": the frames as pictures, each for itself");
}

/* Refuses other keys of a video: of its part, or (own) of its object. */
static sheaf_status *check_video(const json_t *value, bool own, const char *field)
{
    static const char *const known[] = { "type",         "video",  "fps",  "times", "target_fps",
                                         "temporal_ids", "frames", "path", "url" };
    enum { PART = 6, KNOWN = sizeof known / sizeof *known };
    const char *key;
    json_t *one;
    json_object_foreach((json_t *)value, key, one)
    {
        size_t i = own ? 2 : 0;
        while (i < (own ? KNOWN : PART) && strcmp(key, known[i]) != 0)
            i++;
        if (i == (own ? KNOWN : PART) && !json_is_null(one))
            return sheaf__bad_field(field, "frames, with fps, times, target_fps or temporal_ids",
                                    "'%.40s'", key);
    }
    return NULL;
}

sheaf_status *sheaf__record_pictures_video(sheaf__record_pictures *p, const sheaf__frames *from,
                                           const sheaf__viewing *viewing)
{
    frames f = { .from = from, .form = &viewing->form.video, .field = from->field };
    if (f.form->fps == 0)
        return no_video(f.field);
    if (f.form->refused != NULL && f.form->refused[0] != '\0')
        return sheaf__bad_field(f.field, "a model whose settings for videos are supported", "%s",
                                f.form->refused);
    if (from->count < 1 || p->count + from->count > MOST)
        return sheaf__bad_field(f.field, "1 to 1000 frames", "%" PRId64, from->count);
    f.second = malloc((size_t)from->count * sizeof *f.second);
    f.kept = malloc((size_t)from->count * sizeof *f.kept);
    sheaf_status *st = f.second == NULL || f.kept == NULL ? sheaf__no_memory("a video") : NULL;
    for (int i = 0; i < 2; i++)
        TRY(st, check_video(from->about[i], i == 0, from->field));
    TRY(st, add_frames(p, &f, viewing));
    free(f.second);
    free(f.kept);
    return st;
}

bool sheaf__has_extension(const char *name, const char *list)
{
    char lower[8] = "";
    const char *dot = strrchr(name, '.');
    const size_t n = dot == NULL ? 0 : strlen(dot);
    for (size_t i = 0; i < n && n < sizeof lower; i++)
        lower[i] = (char)tolower((unsigned char)dot[i]);
    return lower[0] != '\0' && sheaf__is_listed(list, lower, n);
}

/* Paths of the pictures of a folder. */
static sheaf_status *list_folder(char ***out, int64_t *count, const json_t *value, const place *in)
{
    char *whole = NULL, **names = NULL;
    int64_t n = 0;
    bool seen;
    sheaf_status *st = whole_path(&whole, &seen, value, in);
    if (st == NULL && sheaf__path_kind(whole) == SHEAF_PATH_FILE) {
        st = sheaf__bad_field(in->field, "a folder of frames, or a list of pictures", "the file %s",
                              whole);
        sheaf_try_this(st, "ffmpeg -i %s -vf fps=%g FOLDER/%%05d.png", whole,
                       in->viewing->form.video.fps);
    }
    TRY(st, missing(sheaf__list_dir(&names, &n, whole), whole, seen));
    for (int64_t i = 0; i < n && st == NULL; i++) {
        if (names[i][0] == '.' || !sheaf__has_extension(names[i], SHEAF__OF_PICTURES))
            continue;
        st = SHEAF_GROW(out, NULL, *count + 1) ? sheaf__path_join(&(*out)[*count], whole, names[i])
                                               : sheaf__no_memory("a video");
        *count += st == NULL;
    }
    if (st == NULL && *count == 0)
        st = sheaf__bad_field(in->field, "a folder with frames: .png, .jpg, .jpeg or .webp",
                              "none in %s", whole);
    sheaf__names_free(names, n);
    free(whole);
    return st;
}

static sheaf_status *list_frames(char ***out, int64_t *count, const json_t *value, const place *in)
{
    const size_t n = json_array_size(value);
    bool seen;
    sheaf_status *st = NULL;
    if (!json_is_array(value))
        return list_folder(out, count, value, in);
    if (n == 0 || n > MOST)
        return sheaf__bad_field(in->field, "a folder of frames, or a list of 1 to 1000 pictures",
                                "%zu", n);
    if (!SHEAF_GROW(out, NULL, (int64_t)n))
        return sheaf__no_memory("a video");
    for (size_t i = 0; i < n && st == NULL; i++) {
        st = whole_path(&(*out)[*count], &seen, json_array_get(value, i), in);
        *count += st == NULL;
    }
    return st;
}

/* part: what says the rest beside the record; NULL. */
static sheaf_status *add_video(sheaf__record_pictures *p, const json_t *value, const json_t *part,
                               const place *in)
{
    const json_t *inner = value_of(value, "frames");
    char **path = NULL;
    int64_t n = 0;
    sheaf_status *st = NULL;
    if (in->viewing->form.video.fps > 0)
        st = list_frames(&path, &n, inner == NULL ? value : inner, in);
    const sheaf__frames from = { .path = (const char *const *)path,
                                 .count = n,
                                 .about = { value, part, in->record },
                                 .field = in->field,
                                 .seen = in->folder != NULL };
    TRY(st, sheaf__record_pictures_video(p, &from, in->viewing));
    sheaf__names_free(path, n);
    return st;
}

/* temporal_ids of a list of pictures: frames are read whole. */
static sheaf_status *group_pictures(sheaf__record_pictures *p, const json_t *ids, const place *in)
{
    if (in->viewing->tower[0].frames == 0 || in->viewing->tower[0].repeats > 0)
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
    const json_t
        *beside[2]; /* pictures, and videos, beside the messages: one, or a list; or NULL */
    size_t next[2]; /* of these */
} walk;

static const json_t *next_beside(walk *w, bool video)
{
    const json_t *beside = w->beside[video];
    if (video ? w->in.one : !json_is_array(beside))
        return w->next[video]++ == 0 ? beside : NULL;
    return json_array_get(beside, w->next[video]++);
}

/* A picture or a video that has its place, of which the part (NULL: it is a name in a text) says
 * the rest; value NULL: the next one beside the messages, if there is one. */
static sheaf_status *add_placed(walk *w, const json_t *value, const json_t *part, bool video,
                                const char *field)
{
    if (value == NULL && (value = next_beside(w, video)) == NULL)
        return NULL; /* its place is found to be empty */
    w->in.field = field;
    if (video)
        return add_video(w->out, value, part, &w->in);
    return w->out->count == MOST ? sheaf__bad_field(field, "at most 1000 pictures", "more")
                                 : add_path(w->out, SHEAF__PICTURE_HERE, value, &w->in);
}

/* A picture for each name of one in a text, and a video; nothing for what is no text. */
static sheaf_status *add_marks(walk *w, const json_t *text, const char *field)
{
    const char *at = json_is_string(text) ? json_string_value(text) : "";
    int64_t left[2] = { sheaf__picture_names_in(at, json_string_length(text)),
                        sheaf__text_count(at, SHEAF__VIDEO_HERE) };
    sheaf_status *st = NULL;
    for (int video = 0; video < 2; video++)
        for (; left[video] > 0 && st == NULL; left[video]--)
            st = add_placed(w, NULL, NULL, video, field);
    return st;
}

static sheaf_status *add_part(walk *w, const json_t *part, bool user, const char *field)
{
    const char *type = sheaf__text_part_type(part), *here = sheaf__text_stands_for(type);
    const json_t *text = json_object_get(part, "text"), *value = NULL;
    if (here == NULL)
        return user ? add_marks(w, text, field) : NULL;
    if (!user)
        return sheaf__bad_field(field, "pictures in messages of the user only", "one here");
    const bool video = strcmp(here, SHEAF__VIDEO_HERE) == 0;
    if (video && w->in.viewing->form.video.fps == 0)
        return no_video(field);
    sheaf_status *st = sheaf__picture_of_part(&value, part, field);
    return TRY(st, add_placed(w, video ? value_of(part, "video") : value, part, video, field));
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
                any || sheaf__text_stands_for(sheaf__text_part_type(part)) != NULL;
        }
    return any;
}

/* "videos" is a list of them, "video" one. */
static sheaf_status *videos_of(const json_t **out, place *in)
{
    const json_t *one = value_of(in->record, "video"), *many = value_of(in->record, "videos");
    char text[96];
    in->one = one != NULL;
    *out = one != NULL ? one : many;
    if (one != NULL && many != NULL)
        return sheaf__bad_field("videos", "either \"video\" or \"videos\"", "both in one record");
    return many == NULL || json_is_array(many)
               ? NULL
               : sheaf__bad_field("videos", "a list of videos", "%s", sheaf__json_show(text, many));
}

static sheaf_status *add_of_parts(sheaf__record_pictures *out, const json_t *record,
                                  const json_t *beside, const json_t *videos, const place *in,
                                  const char *const *list, int n)
{
    walk w = { out, *in, { beside, videos }, { 0 } };
    const json_t *entry, *left;
    sheaf_status *st = NULL;
    size_t i;
    if (json_is_object(beside) && !is_one(beside))
        return sheaf__bad_field(in->field, "a list of pictures, which parts of contents place",
                                "an object of names");
    for (int l = 0; l < n; l++)
        json_array_foreach(json_object_get(record, list[l]), i, entry)
            TRY(st, add_content(&w, entry, list[l], i));
    for (int video = 0; video < 2; video++)
        while (st == NULL && (left = next_beside(&w, video)) != NULL) /* found to have no place */
            st = add_placed(&w, left, NULL, video,
                            !video    ? in->field
                            : in->one ? "video"
                                      : "videos");
    return st;
}

static sheaf_status *read_images(sheaf__record_pictures *out, const json_t *record,
                                 const json_t *videos, place in)
{
    json_t *one = json_object_get(record, "image"), *many = json_object_get(record, "images"),
           *images = one == NULL ? many : one;
    const char *list[2];
    const int lists = lists_of(list, record);
    in.field = one == NULL ? "images" : "image";
    if (one != NULL && many != NULL)
        return sheaf__bad_field("images", "either \"image\" or \"images\"", "both in one record");
    out->parts = has_parts(record, list, lists);
    if (out->parts)
        return add_of_parts(out, record, json_is_null(images) ? NULL : images, videos, &in, list,
                            lists);
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

static bool has_video(const sheaf__record_pictures *p)
{
    int64_t i = 0;
    while (i < p->count && !sheaf__shows_video(&p->shown[i]))
        i++;
    return i < p->count;
}

sheaf_status *sheaf__record_pictures_read(sheaf__record_pictures *out, const json_t *record,
                                          const char *folder, const sheaf__viewing *viewing)
{
    const json_t *ids = value_of(record, "temporal_ids"), *videos = NULL;
    place in = { "pictures", folder, viewing, record, false };
    *out = (sheaf__record_pictures){ .unread = sheaf__record_pictures_meant(record) };
    sheaf_status *st = videos_of(&videos, &in);
    TRY(st, read_images(out, record, videos, in));
    if (st == NULL && videos == NULL && ids != NULL && !has_video(out)) /* else they are its own */
        st = group_pictures(out, ids, &in);
    in.field = in.one ? "video" : "videos";
    const size_t n = out->parts || videos == NULL ? 0 : in.one ? 1 : json_array_size(videos);
    for (size_t i = 0; i < n && st == NULL; i++)
        st = add_video(out, in.one ? videos : json_array_get(videos, i), NULL, &in);
    return st;
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
