/* picture_settings.c - see picture_settings.h. */
#include "models/picture_settings.h"

#include "base/base.h"
#include "base/file.h"
#include "base/json.h"
#include "inputs/viewing.h"
#include "schema/picture_keys.h"

static const char NESTED[] = "image_processor", NESTED_VIDEO[] = "video_processor";
enum { FILES = 3 };
static const char *const names[FILES] = { "processor_config.json", "preprocessor_config.json",
                                          "video_preprocessor_config.json" };

/* A file's settings; object NULL: it is not there, or has none. */
typedef struct settings {
    const char *name;
    json_t *root; /* owned */
    const json_t *object;
} settings;

/* The files of a folder, in the order of `names`. */
static sheaf_status *load(settings out[FILES], const char *folder)
{
    char path[SHEAF_PATH_SIZE];
    sheaf_status *st = NULL;
    for (int i = 0; i < FILES && st == NULL; i++) {
        out[i].name = names[i];
        if (sheaf__path_kind(sheaf__path_in(path, folder, names[i])) == SHEAF_PATH_FILE)
            st = sheaf__json_load(&out[i].root, path);
        const json_t *inner = json_object_get(out[i].root, NESTED);
        out[i].object = i > 0 ? out[i].root : json_is_object(inner) ? inner : NULL;
    }
    return st;
}

static void release(settings files[FILES])
{
    for (int i = 0; i < FILES; i++) {
        json_decref(files[i].root);
        files[i] = (settings){ 0 };
    }
}

static sheaf_status *take(sheaf_config *c, const settings *from, const char *folder)
{
    const sheaf__family *family = sheaf__family_for(c);
    sheaf_json_reader r = { from->object, from->name == names[0] ? "image_processor." : NULL,
                            NULL };
    sheaf__viewing viewing;
    sheaf__picture_keys(&r);
    if (family->beside != NULL) {
        family->beside(&r, c);
    } else {
        sheaf__viewing_of(&viewing, c);
        sheaf__picture_keys_fixed(&r, &viewing.tower[0]);
        sheaf__picture_keys_same(&r, "image_mean", viewing.scale.mean);
        sheaf__picture_keys_same(&r, "image_std", viewing.scale.std);
    }
    return sheaf_in(r.st, "%s/%s", folder, from->name);
}

/* Would the second file of two have given other pictures? */
static bool differs(const sheaf_config *c, const sheaf_config *before, const settings *second)
{
    sheaf_config other = *before; /* borrows */
    sheaf__viewing is, would;
    sheaf_status *st = take(&other, second, "");
    const bool bad = st != NULL;
    sheaf_status_free(st);
    sheaf__viewing_of(&is, c);
    sheaf__viewing_of(&would, &other);
    return bad || is.form.least != would.form.least || is.form.most != would.form.most ||
           memcmp(&is.scale, &would.scale, sizeof is.scale) != 0;
}

static void note_defaults(const sheaf_config *c, const char *folder, const sheaf_events *events)
{
    sheaf__viewing v;
    sheaf__viewing_of(&v, c);
    if (v.form.most > 0)
        sheaf_note(events,
                   "%s: no %s and no %s: pictures have %" PRId64 " to %" PRId64
                   " pixels, mean %g, %g, %g, deviation %g, %g, %g, the defaults",
                   folder, names[0], names[1], v.form.least, v.form.most, (double)v.scale.mean[0],
                   (double)v.scale.mean[1], (double)v.scale.mean[2], (double)v.scale.std[0],
                   (double)v.scale.std[1], (double)v.scale.std[2]);
}

/* transformers takes the first of these that is there, the last of them (`pictures`) as it is for
 * these. What is not supported is refused to records with videos, not to others. */
static void read_videos(sheaf_config *c, const settings files[FILES], const settings *pictures)
{
    const sheaf__family *family = sheaf__family_for(c);
    const json_t *inner = json_object_get(files[0].root, NESTED_VIDEO);
    const settings *from = json_is_object(inner)     ? &files[0]
                           : files[2].object != NULL ? &files[2]
                                                     : pictures;
    sheaf_json_reader r = { json_is_object(inner) ? inner : from->object,
                            json_is_object(inner) ? "video_processor." : NULL, NULL };
    sheaf__viewing viewing;
    if (family->videos_beside == NULL || r.object == NULL)
        return;
    sheaf__viewing_of(&viewing, c);
    sheaf__picture_keys(&r);
    sheaf__picture_keys_same(&r, "image_mean", viewing.scale.mean);
    sheaf__picture_keys_same(&r, "image_std", viewing.scale.std);
    family->videos_beside(&r, c);
    if (r.st != NULL)
        snprintf(c->qwen_vit.video.refused, sizeof c->qwen_vit.video.refused,
                 "%s: %s: %s, where it should be %s", from->name, sheaf_status_where(r.st),
                 sheaf_status_found(r.st), sheaf_status_expected(r.st));
    sheaf_status_free(r.st);
}

static sheaf_status *read(sheaf_config *c, settings files[FILES], const char *folder,
                          const sheaf_events *events)
{
    const sheaf__family *family = sheaf__family_for(c);
    const settings *from = files[0].object != NULL ? &files[0] : &files[1];
    const sheaf_config before = *c;
    sheaf_text text = { 0 };
    if (family->disagree != NULL)
        family->disagree(&text, c, from->object, from->name);
    if (text.size > 0 && !text.failed)
        sheaf_warn(events, "how pictures are cut: %s", text.at);
    sheaf__text_release(&text);
    if (from->object == NULL) {
        note_defaults(c, folder, events);
        read_videos(c, files, from);
        return NULL;
    }
    sheaf_status *st = take(c, from, folder);
    if (st == NULL && from == &files[0] && files[1].object != NULL &&
        differs(c, &before, &files[1]))
        sheaf_warn(events, "%s: %s counts, as in transformers 5; %s says otherwise", folder,
                   names[0], names[1]);
    if (st == NULL)
        read_videos(c, files, from);
    return st;
}

sheaf_status *sheaf__picture_settings_read(sheaf_config *c, const char *folder, const char *config,
                                           const sheaf_events *events)
{
    sheaf__tower tower[SHEAF__MOST_TOWERS];
    settings files[FILES] = { { 0 } };
    char *beside = NULL;
    sheaf_status *st = NULL;
    if (sheaf__towers_of(tower, c) == 0)
        return NULL;
    const bool there = folder != NULL && sheaf__path_kind(folder) == SHEAF_PATH_DIR;
    if (there)
        st = load(files, folder);
    if (st == NULL && files[0].object == NULL && files[1].object == NULL && config != NULL &&
        config[0] != '\0') {
        release(files);
        st = sheaf__path_parent(&beside, config);
        TRY(st, load(files, beside));
    }
    if (st == NULL && (there || beside != NULL))
        st = read(c, files, beside != NULL ? beside : folder, events);
    release(files);
    free(beside);
    return st;
}
