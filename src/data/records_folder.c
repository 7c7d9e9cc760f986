/* records_folder.c - a folder of images whose names are the answers (upstream:
 * utils/utils/dataset.py). */
#include "data/records_read.h"

#include <errno.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "base/array.h"
#include "base/file.h"

enum { DEEPEST = 200, MOST = 1 << 28 };

typedef struct walk {
    char **path; /* of the images, owned */
    int64_t count, capacity;
    void *seen; /* folders that were read, a tree of tsearch() */
} walk;

typedef struct folder_id {
    dev_t device;
    ino_t inode;
} folder_id;

static int compare_ids(const void *a, const void *b)
{
    const folder_id *x = a, *y = b;
    return x->device != y->device ? (x->device > y->device) - (x->device < y->device)
                                  : (x->inode > y->inode) - (x->inode < y->inode);
}

/* *is_new is false when this folder was read already, by whatever path. */
static sheaf_status *remember(bool *is_new, walk *w, const struct stat *about)
{
    folder_id *id = malloc(sizeof *id);
    if (id == NULL)
        return sheaf_fail(SHEAF_E_MEMORY, "list of folders");
    *id = (folder_id){ about->st_dev, about->st_ino };
    folder_id **at = tsearch(id, &w->seen, compare_ids);
    *is_new = at != NULL && *at == id;
    if (!*is_new)
        free(id);
    return at == NULL ? sheaf_fail(SHEAF_E_MEMORY, "list of folders") : NULL;
}

static bool is_image_name(const char *name)
{
    static const char *const ending[] = { ".jpg", ".jpeg", ".png", ".webp" };
    const char *dot = strrchr(name, '.');
    for (size_t i = 0; dot != NULL && i < sizeof ending / sizeof *ending; i++)
        if (strcasecmp(dot, ending[i]) == 0)
            return true;
    return false;
}

static sheaf_status *add_image(walk *w, char *path)
{
    if (w->count >= MOST || !SHEAF_GROW(&w->path, &w->capacity, w->count + 1)) {
        free(path);
        return sheaf_fail(SHEAF_E_MEMORY, "list of images");
    }
    w->path[w->count++] = path;
    return NULL;
}

static sheaf_status *read_folder(walk *w, const char *path, int depth);

/* `path` is owned. A link that leads nowhere counts as what its name says: that is told later. */
static sheaf_status *read_entry(walk *w, char *path, const char *name, int depth)
{
    struct stat about;
    if (stat(path, &about) == 0 && S_ISDIR(about.st_mode)) {
        bool is_new = false;
        sheaf_status *st = remember(&is_new, w, &about);
        if (st == NULL && is_new)
            st = read_folder(w, path, depth + 1);
        free(path);
        return st;
    }
    if (is_image_name(name))
        return add_image(w, path);
    free(path);
    return NULL;
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
        if (st == NULL)
            st = read_entry(w, inside, names[i], depth);
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

static sheaf_status *check_image(const char *path, const char *answer, bool answers_optional)
{
    struct stat about;
    if (stat(path, &about) != 0)
        return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_DATA, "%s", path), "an image"), "%s",
                           strerror(errno));
    if (!S_ISREG(about.st_mode))
        return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_DATA, "%s", path), "an image"),
                           "neither a file nor a folder");
    if (!answers_optional && sheaf__is_blank(answer))
        return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_DATA, "%s", path),
                                          "an answer before the first dot of the name"),
                           "none");
    if (!sheaf__is_utf8(answer))
        return sheaf_expected(sheaf_fail(SHEAF_E_DATA, "%s", path),
                              "a name in UTF-8, which is the answer");
    return NULL;
}

static sheaf_status *take_image(sheaf__records_reader *in, const char *path)
{
    const char *name = base_name(path);
    char *answer = strndup(name, strcspn(name, "."));
    if (answer == NULL)
        return sheaf_fail(SHEAF_E_MEMORY, "data set");
    in->out->looked_at++;
    sheaf_status *bad = check_image(path, answer, in->options->answers_optional), *st = NULL;
    if (bad == NULL) {
        const char *query = in->options->query == NULL ? "CAPTCHA:" : in->options->query;
        const sheaf__turn turn = { query, sheaf__is_blank(answer) ? NULL : answer };
        st = sheaf__records_put(in->out, 0, path, &turn, 1);
    }
    sheaf__complain(in->complaints, bad);
    free(answer);
    return st;
}

sheaf_status *sheaf__records_read_folder(sheaf__records_reader *in)
{
    walk w = { 0 };
    bool is_new;
    struct stat about;
    in->out->unit = "image";
    sheaf_status *st = stat(in->path, &about) != 0
                           ? sheaf__io_fail(errno, in->path, "cannot look at")
                           : remember(&is_new, &w, &about);
    if (st == NULL)
        st = read_folder(&w, in->path, 0);
    if (w.count > 0)
        qsort(w.path, (size_t)w.count, sizeof *w.path, sheaf__by_name);
    for (int64_t i = 0; i < w.count && st == NULL; i++)
        st = take_image(in, w.path[i]);
    for (int64_t i = 0; i < w.count; i++)
        free(w.path[i]);
    free(w.path);
    tdestroy(w.seen, free);
    return st;
}
