/* records_folder.c - a folder of images whose names are the answers (upstream:
 * utils/utils/dataset.py), or with labels beside them (upstream's SFT data: images/REST.jpg and
 * labels/REST.json, or one labels_...), which are then the records. Also decides whether a path is
 * a folder or a file. */
#include "data/records.h"

#include <errno.h>
#include <sys/stat.h>

#include "base/base.h"
#include "base/file.h"
#include "data/record_pictures.h"
#include "data/text_inner.h"

enum { DEEPEST = 200, MOST = 1 << 28 };

typedef struct paths {
    char **at; /* [count], owned */
    int64_t count, capacity;
} paths;

typedef struct folder_id {
    dev_t device;
    ino_t inode;
} folder_id;

typedef struct walk {
    paths images, labels; /* labels: every *.json, possibly a label */
    bool *used;           /* [labels.count] is the record of an image */
    folder_id *seen;      /* [folders] that were read */
    int64_t folders, room;
    int64_t passed;      /* unread entries, */
    char first[256];     /* and one of them */
    char *base, *beside; /* of the previous image: BASE/images, and BASE/labels... or NULL */
} walk;

/* *is_new is false if this folder was read already, by any path. */
static sheaf_status *remember(bool *is_new, walk *w, const struct stat *about)
{
    *is_new = true;
    for (int64_t i = 0; i < w->folders && *is_new; i++)
        *is_new = w->seen[i].device != about->st_dev || w->seen[i].inode != about->st_ino;
    if (!*is_new)
        return NULL;
    if (!SHEAF_GROW(&w->seen, &w->room, w->folders + 1))
        return sheaf__no_memory("list of folders");
    w->seen[w->folders++] = (folder_id){ about->st_dev, about->st_ino };
    return NULL;
}

static sheaf_status *add_path(paths *to, char *path)
{
    if (to->count >= MOST || !SHEAF_GROW(&to->at, &to->capacity, to->count + 1)) {
        free(path);
        return sheaf__no_memory("list of images");
    }
    to->at[to->count++] = path;
    return NULL;
}

static void pass(walk *w, const char *path)
{
    if (w->passed++ == 0)
        snprintf(w->first, sizeof w->first, "%s", path);
}

static sheaf_status *read_folder(walk *w, const char *path, int depth);

/* `path` is owned. A broken link counts by its name; reading it fails. */
static sheaf_status *read_entry(walk *w, char *path, const char *name, int depth)
{
    struct stat about;
    const bool folder = stat(path, &about) == 0 && S_ISDIR(about.st_mode);
    sheaf_status *st = NULL;
    if (folder && name[0] != '.') {
        bool is_new = false;
        st = remember(&is_new, w, &about);
        if (st == NULL && is_new)
            st = read_folder(w, path, depth + 1);
    } else if (!folder && sheaf__has_extension(name, SHEAF__OF_PICTURES)) {
        return add_path(&w->images, path);
    } else if (!folder && sheaf__has_extension(name, ".json")) {
        return add_path(&w->labels, path);
    } else { /* .ipynb_checkpoints, scan.tiff */
        pass(w, path);
    }
    free(path);
    return st;
}

static sheaf_status *read_folder(walk *w, const char *path, int depth)
{
    if (depth > DEEPEST)
        return sheaf_expected(sheaf_fail(SHEAF_E_DATA, "%s", path),
                              "at most %d folders one in the other", (int)DEEPEST);
    char **names = NULL;
    int64_t n = 0;
    sheaf_status *st = sheaf__list_dir(&names, &n, path);
    for (int64_t i = 0; i < n && st == NULL; i++) {
        char *inside;
        st = sheaf__path_join(&inside, path, names[i]);
        TRY(st, read_entry(w, inside, names[i], depth));
    }
    sheaf__names_free(names, n);
    return st;
}

/* ---- images to records ---- */

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash == NULL ? path : slash + 1;
}

static sheaf_status *bad(const char *path, const char *expected, const char *found)
{
    sheaf_status *st = sheaf_expected(sheaf_fail(SHEAF_E_DATA, "%s", path), "%s", expected);
    return found == NULL ? st : sheaf_found(st, "%s", found);
}

static sheaf_status *check_image(const char *path, const char *answer, bool answers_optional)
{
    struct stat about;
    if (stat(path, &about) != 0)
        return sheaf__found_errno(bad(path, "an image", NULL), errno);
    if (!S_ISREG(about.st_mode))
        return bad(path, "an image", "neither a file nor a folder");
    if (!answers_optional && sheaf__text_blank(answer, strlen(answer)))
        return bad(path, "an answer before the first dot of the name", "none");
    return sheaf__is_utf8(answer) ? NULL : bad(path, "a name in UTF-8, which is the answer", NULL);
}

static sheaf_status *take_image(sheaf__records_reader *in, const char *path)
{
    const char *name = base_name(path);
    char *answer = strndup(name, strcspn(name, "."));
    if (answer == NULL)
        return sheaf__no_memory("data set");
    in->out->looked_at++;
    sheaf_status *is = check_image(path, answer, in->options->answers_optional), *st = NULL;
    if (is == NULL) {
        const char *query = in->options->query == NULL ? "CAPTCHA:" : in->options->query;
        const sheaf__turn turn = { query,
                                   sheaf__text_blank(answer, strlen(answer)) ? NULL : answer };
        st = sheaf__records_put(in->out,
                                &(sheaf__record){ .image = path, .turn = &turn, .turns = 1 });
    }
    sheaf__complain(in->complaints, is);
    free(answer);
    return st;
}

/* ---- labels ---- */

/* The part of a path below the data set's folder, from the '/' on. */
static const char *below(const char *path, const char *root)
{
    const char *at = path + strlen(root);
    return at > path && at[-1] == '/' ? at - 1 : at;
}

/* The last folder `images` below the data set's: its parent, as bytes of the path; 0: none. */
static size_t base_of(const char *path, const char *root)
{
    static const char images[] = "/images/";
    size_t base = 0;
    const char *at = below(path, root);
    while ((at = strstr(at, images)) != NULL)
        base = (size_t)(at++ - path);
    return base;
}

/* BASE/labels, or the only folder BASE/labels_...; *out NULL: neither. */
static sheaf_status *find_labels(char **out, const char *base)
{
    char **names = NULL, *found = NULL, also[96] = "";
    int64_t n = 0, count = 0;
    sheaf_status *st = sheaf__list_dir(&names, &n, base);
    for (int64_t i = 0; i < n && st == NULL; i++) { /* "labels" comes first */
        char *path = NULL;
        if (strncmp(names[i], "labels", 6) != 0 || (found != NULL && count == 0))
            continue;
        st = sheaf__path_join(&path, base, names[i]);
        const bool folder = st == NULL && sheaf__path_kind(path) == SHEAF_PATH_DIR;
        count += folder && names[i][6] != '\0';
        if (folder && found == NULL)
            found = path;
        else
            free(path);
        if (folder && count == 2)
            snprintf(also, sizeof also, "%s", names[i]);
    }
    if (st == NULL && count > 1) {
        st = sheaf_expected(sheaf_fail(SHEAF_E_DATA, "%s", base),
                            "one folder of labels beside images");
        sheaf_found(st, "%s and %s", base_name(found), also);
        sheaf_try_this(st, "call the one that is to be read labels");
    }
    sheaf__names_free(names, n);
    if (st != NULL)
        free(found);
    else
        *out = found;
    return st;
}

/* Finds the labels beside the image's folder: sets w->base and w->beside. */
static sheaf_status *find_beside(walk *w, const char *path, size_t base)
{
    if (w->base != NULL && strlen(w->base) == base && strncmp(w->base, path, base) == 0)
        return NULL;
    free(w->base);
    free(w->beside);
    w->beside = NULL;
    w->base = strndup(path, base);
    if (w->base == NULL)
        return sheaf__no_memory("list of images");
    return sheaf__path_has(w->base, "images", SHEAF_PATH_DIR) ? find_labels(&w->beside, w->base)
                                                              : NULL;
}

static int64_t label_at(const walk *w, const char *path)
{
    char *const *at = w->labels.count == 0 ? NULL
                                           : bsearch(&path, w->labels.at, (size_t)w->labels.count,
                                                     sizeof *w->labels.at, sheaf__by_name);
    return at == NULL ? -1 : at - w->labels.at;
}

/* BASE/images/REST.jpg has BASE/labels/REST.json. */
static sheaf_status *take_labelled(sheaf__records_reader *in, walk *w, const char *path)
{
    const char *rest = path + strlen(w->base) + strlen("/images/");
    char *label = NULL;
    if (asprintf(&label, "%s/%.*s.json", w->beside, (int)(strrchr(rest, '.') - rest), rest) < 0)
        return sheaf__no_memory("list of images");
    const int64_t at = label_at(w, label);
    sheaf_status *st = NULL;
    if (at >= 0) {
        w->used[at] = true;
        st = sheaf__records_take_label(in, path, label);
    } else {
        in->out->looked_at++;
        sheaf__complain(in->complaints,
                        sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_DATA, "%s", path),
                                                   "its label, %s", label),
                                    "no such file"));
    }
    free(label);
    return st;
}

static sheaf_status *take_path(sheaf__records_reader *in, walk *w, const char *path)
{
    const size_t base = base_of(path, in->path);
    sheaf_status *st = base == 0 ? NULL : find_beside(w, path, base);
    return TRY(st,
               base > 0 && w->beside != NULL ? take_labelled(in, w, path) : take_image(in, path));
}

/* A label without an image is an error; any other *.json is not read. */
static sheaf_status *take_left(sheaf__records_reader *in, walk *w)
{
    sheaf_status *st = NULL;
    for (int64_t i = 0; i < w->labels.count && st == NULL; i++) {
        const char *path = w->labels.at[i], *at = strstr(below(path, in->path), "/labels"), *slash;
        bool paired = false;
        if (w->used[i])
            continue;
        if (at != NULL && (slash = strchr(at + 1, '/')) != NULL) {
            st = find_beside(w, path, (size_t)(at - path));
            paired = st == NULL && w->beside != NULL &&
                     strncmp(w->beside, path, (size_t)(slash - path)) == 0;
        }
        if (!paired)
            pass(w, path);
        else
            sheaf__complain(
                in->complaints,
                sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_DATA, "%s", path),
                                           "an image of this name in %s/images", w->base),
                            "none"));
        in->out->looked_at += paired;
    }
    return st;
}

/* Warns of other entries, and of labels beside the folder, which may be meant as data. */
static sheaf_status *warn_of_unread_entries(const sheaf__records_reader *in, const walk *w)
{
    char *parent = NULL, *labels = NULL;
    size_t end = strlen(in->path);
    if (w->passed > 0)
        sheaf_warn(in->options->events,
                   "%s: %" PRId64 " of its entries %s not read, '%s'%s: images are files that end "
                   "in .jpg, .jpeg, .png or .webp",
                   in->path, w->passed, w->passed == 1 ? "is" : "are", w->first,
                   w->passed == 1 ? "" : " and others");
    while (end > 1 && in->path[end - 1] == '/')
        end--;
    if (end < 6 || strncmp(in->path + end - 6, "images", 6) != 0 ||
        (end > 6 && in->path[end - 7] != '/'))
        return NULL;
    sheaf_status *st = sheaf__path_parent(&parent, in->path);
    if (st == NULL)
        sheaf_status_free(find_labels(&labels, parent)); /* several: ambiguous, ignore */
    if (labels != NULL)
        sheaf_warn(in->options->events,
                   "%s lies beside the images and is not read, their names are the answers: "
                   "`data %s` reads it",
                   labels, parent);
    free(labels);
    free(parent);
    return st;
}

static void release(walk *w)
{
    paths *const lists[] = { &w->images, &w->labels };
    for (int k = 0; k < 2; k++) {
        for (int64_t i = 0; i < lists[k]->count; i++)
            free(lists[k]->at[i]);
        free(lists[k]->at);
    }
    free(w->used);
    free(w->base);
    free(w->beside);
    free(w->seen);
}

static sheaf_status *read_images(sheaf__records_reader *in)
{
    walk w = { 0 };
    bool is_new;
    struct stat about;
    in->out->unit = "image";
    sheaf_status *st = stat(in->path, &about) != 0
                           ? sheaf__io_fail(errno, in->path, "cannot look at")
                           : remember(&is_new, &w, &about);
    TRY(st, read_folder(&w, in->path, 0));
    w.used = calloc((size_t)w.labels.count + 1, sizeof *w.used);
    if (st == NULL && w.used == NULL)
        st = sheaf__no_memory("list of images");
    paths *const lists[] = { &w.images, &w.labels };
    for (int k = 0; k < 2; k++)
        if (lists[k]->count > 0)
            qsort(lists[k]->at, (size_t)lists[k]->count, sizeof *lists[k]->at, sheaf__by_name);
    for (int64_t i = 0; i < w.images.count && st == NULL; i++)
        st = take_path(in, &w, w.images.at[i]);
    TRY(st, take_left(in, &w));
    TRY(st, warn_of_unread_entries(in, &w));
    release(&w);
    return st;
}

/* ---- a folder or a file ---- */

sheaf_status *sheaf__records_read(sheaf__records *out, const char *path,
                                  const sheaf__records_options *options,
                                  sheaf__complaints *complaints)
{
    *out = (sheaf__records){ 0 };
    sheaf__complaints own = { 0 };
    sheaf__records_reader in = { out, path, options, complaints == NULL ? &own : complaints };
    const bool folder = sheaf__path_kind(path) == SHEAF_PATH_DIR;
    sheaf_status *st = sheaf__fields_read(&in.fields, options->fields);
    if (folder && (options->pairs || options->judged))
        TRY(st, sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "%s", path),
                                           "a file of records that name their picture: JSON Lines, "
                                           "or a JSON array"),
                            "a folder of pictures"));
    TRY(st, folder ? read_images(&in) : sheaf__records_read_json(&in));
    sheaf__fields_release(&in.fields);
    if (st == NULL && out->looked_at == 0) {
        st = sheaf_fail(SHEAF_E_DATA, "%s", path);
        if (folder)
            sheaf_found(sheaf_expected(st, "images (*.jpg, *.jpeg, *.png, *.webp) in it or below"),
                        "none");
        else
            sheaf_found(sheaf_expected(st, "at least one record"), "none");
    }
    if (st == NULL && complaints == NULL)
        return sheaf__complaints_verdict(&own, path, out->looked_at);
    sheaf__complaints_release(&own);
    return st;
}
