/* verify_joint.c - are several folders parts of one checkpoint? See verify.h. */
#include "base/base.h"
#include "checkpoint/store/look.h"
#include "checkpoint/tools/verify.h"

/* What was read of `path`, or NULL where it could not be looked at, which is reported when it is
 * verified. */
static sheaf_status *look(sheaf_catalog **out, const char *path,
                          const sheaf_weights_verify_options *o, const char *const *also)
{
    const sheaf_dialect_hints hints = { .from = o->dialect, .config = o->config, .also = also };
    sheaf_status *st = sheaf__any_read(out, path, &hints);
    *out = st == NULL ? *out : NULL;
    return sheaf__only_memory(st);
}

/* Does a file of the catalog lie at or under `path`? */
static bool takes_from(const sheaf_catalog *c, const char *path)
{
    char *root = realpath(path, NULL);
    const size_t n = root == NULL ? 0 : strlen(root);
    bool yes = false;
    for (int i = 0; !yes && n > 0 && i < c->nfiles; i++) {
        char *file = realpath(c->file[i].path, NULL);
        yes = file != NULL && strncmp(file, root, n) == 0 && (file[n] == '/' || file[n] == '\0');
        free(file);
    }
    free(root);
    return yes;
}

sheaf_status *sheaf_verify_joint(bool *joint, const char *const *paths, int count,
                                 const sheaf_weights_verify_options *o)
{
    sheaf_catalog *alone = NULL, *all = NULL;
    *joint = false;
    if (count < 2)
        return NULL;
    sheaf_status *st = look(&alone, paths[0], o, NULL);
    const bool broken = st == NULL && alone != NULL && sheaf__catalog_defects(alone) > 0;
    sheaf__catalog_free(alone);
    const char **also = broken ? calloc((size_t)count, sizeof *also) : NULL;
    if (!broken)
        return st;
    if (also == NULL)
        return sheaf__no_memory(paths[0]);
    memcpy(also, paths + 1, (size_t)(count - 1) * sizeof *also);
    st = look(&all, paths[0], o, also);
    *joint = st == NULL && all != NULL && sheaf__catalog_defects(all) == 0;
    for (int i = 0; *joint && i < count; i++)
        *joint = takes_from(all, paths[i]);
    sheaf__catalog_free(all);
    free(also);
    return st;
}
