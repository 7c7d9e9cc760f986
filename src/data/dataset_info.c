/* dataset_info.c - see dataset_info.h. The list is an object; each of its keys names a data set,
 * {"file_name": "alpaca.json", ...}, with the path from the list's own folder. */
#include "data/dataset_info.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/text.h"

#define LIST "dataset_info.json"

static sheaf_status *refuse(const char *path, const char *found, const char *list,
                            const json_t *entry)
{
    const char *name = json_string_value(json_object_get(entry, "file_name"));
    char *folder = NULL, *file = NULL;
    sheaf_status *st = sheaf__path_parent(&folder, list);
    if (st == NULL && name != NULL)
        st = strcmp(folder, ".") == 0 ? ((file = strdup(name)), NULL)
                                      : sheaf__path_join(&file, folder, name);
    free(folder);
    if (st != NULL)
        return st;
    st = sheaf_expected(sheaf_fail(SHEAF_E_DATA, "%s", path), "a file of records");
    sheaf_found(st, "%s", found);
    if (file != NULL)
        sheaf_try_this(st, "the file of the data set itself: --data %s", file);
    else
        sheaf_try_this(st, "the file of the data set itself, which %s does not name", list);
    free(file);
    return st;
}

static json_t *read_list(const char *path)
{
    char *text = NULL;
    size_t size = 0;
    if (sheaf__path_kind(path) != SHEAF_PATH_FILE)
        return NULL;
    sheaf_status_free(sheaf__file_read_all(&text, &size, path, 1 << 24));
    json_t *list = text == NULL ? NULL : json_loadb(text, size, 0, NULL);
    free(text);
    return list;
}

sheaf_status *sheaf__dataset_info_check(const char *path)
{
    static const char *const lists[] = { LIST, "data/" LIST };
    sheaf_status *st = NULL;
    const char *slash = strrchr(path, '/');
    if (strcmp(slash == NULL ? path : slash + 1, LIST) == 0) {
        json_t *list = read_list(path), *entry = NULL;
        const char *name;
        json_object_foreach(list, name, entry) /* the first that has a file */
            if (json_object_get(entry, "file_name") != NULL) break;
        if (json_object_size(list) > 0)
            st = refuse(path, "LLaMA-Factory's list of data sets", path, entry);
        json_decref(list);
        return st;
    }
    if (sheaf__path_kind(path) != SHEAF_PATH_NONE)
        return NULL;
    for (size_t i = 0; i < 2 && st == NULL; i++) {
        json_t *list = read_list(lists[i]);
        const json_t *entry = json_object_getn(list, path, strcspn(path, ",")); /* one of several */
        char found[80];
        snprintf(found, sizeof found, "a name in %s", lists[i]);
        if (entry != NULL)
            st = refuse(path, found, lists[i], entry);
        json_decref(list);
    }
    if (st == NULL) {
        st = sheaf_expected(sheaf_fail(SHEAF_E_IO, "%s", path), "a file or folder of records");
        sheaf__path_hub(sheaf_found(st, "nothing there"), path);
        if (sheaf_status_try(st)[0] == '\0') { /* whoever opens it says more */
            sheaf_status_free(st);
            st = NULL;
        }
    }
    return st;
}
