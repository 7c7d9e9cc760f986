/* joined.c - see joined.h. */
#include "dialects/common/joined.h"

#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "comm/process.h"

static const char memory_for[] = "a file of several processes";

/* A writer of either form; both NULL: this process writes nothing. */
typedef struct file {
    sheaf_safetensors_writer *safetensors;
    sheaf_torch_writer *torch;
} file;

/* How it is begun, or joined where another process has begun it. */
typedef struct opening {
    sheaf_status *(*open)(file *out, const char *path, bool joins, const struct opening *how);
    const sheaf_safetensors_spec *specs;
    int64_t count;
    const sheaf_safetensors_pair *metadata;
    int64_t npairs;
    const sheaf_pickle_doc *doc;
} opening;

static sheaf_status *open_safetensors(file *out, const char *path, bool joins, const opening *o)
{
    return (joins ? sheaf__safetensors_join : sheaf__safetensors_begin)(
        &out->safetensors, path, o->specs, o->count, o->metadata, o->npairs);
}

static sheaf_status *open_torch(file *out, const char *path, bool joins, const opening *o)
{
    return (joins ? sheaf__torch_join : sheaf__torch_begin)(&out->torch, path, o->doc);
}

static void abandon(file f)
{
    sheaf__safetensors_abandon(f.safetensors);
    sheaf__torch_abandon(f.torch);
}

static sheaf_status *not_seen(sheaf_status *st)
{
    if (sheaf_status_code(st) != SHEAF_E_IO)
        return st;
    return sheaf_try_this(st, "an output on a file system that all hosts share, or one process: "
                              "without --transport mpi");
}

static sheaf_status *begin(file *out, const char *path, bool writes, const opening *how)
{
    const bool first = sheaf__process_first();
    char *told = NULL;
    sheaf_status *st = first ? how->open(out, path, false, how) : NULL;
    if (sheaf__process_count() == 1)
        return st;
    if (st == NULL && first && (told = strdup(path)) == NULL)
        st = sheaf__no_memory(memory_for);
    st = sheaf__process_agree(st);
    TRY(st, sheaf__process_share(&told));
    if (st == NULL && !first && writes) {
        st = how->open(out, told, true, how);
        if (st != NULL)
            st = not_seen(st);
    }
    free(told);
    st = sheaf__process_agree(st);
    if (st != NULL) {
        abandon(*out);
        *out = (file){ 0 };
    }
    return st;
}

sheaf_status *sheaf__joined_begin(sheaf_safetensors_writer **out, const char *path, bool writes,
                                  const sheaf_safetensors_spec *specs, int64_t count,
                                  const sheaf_safetensors_pair *metadata, int64_t npairs)
{
    file f = { 0 };
    sheaf_status *st = begin(&f, path, writes,
                             &(opening){ .open = open_safetensors,
                                         .specs = specs,
                                         .count = count,
                                         .metadata = metadata,
                                         .npairs = npairs });
    *out = f.safetensors;
    return st;
}

sheaf_status *sheaf__joined_torch_begin(sheaf_torch_writer **out, const char *path,
                                        const sheaf_pickle_doc *doc)
{
    file f = { 0 };
    sheaf_status *st = begin(&f, path, true, &(opening){ .open = open_torch, .doc = doc });
    *out = f.torch;
    return st;
}

/* The first hears what the others wrote: `each` numbers of every process. */
static sheaf_status *gather(file f, size_t each)
{
    const int processes = sheaf__process_count(), me = sheaf__process_number();
    uint64_t *all = calloc(each * (size_t)processes + 1, sizeof *all);
    sheaf_status *st = sheaf__process_agree(all == NULL ? sheaf__no_memory(memory_for) : NULL);
    if (st == NULL && f.safetensors != NULL)
        sheaf__safetensors_tell(all + each * (size_t)me, f.safetensors);
    if (st == NULL && f.torch != NULL)
        sheaf__torch_tell(all + each * (size_t)me, f.torch);
    TRY(st, sheaf__process_gather(all, each * sizeof *all));
    for (int i = 1; i < processes && st == NULL && me == 0; i++) {
        if (f.safetensors != NULL)
            sheaf__safetensors_hear(f.safetensors, all + each * (size_t)i);
        else
            sheaf__torch_hear(f.torch, all + each * (size_t)i);
    }
    free(all);
    return st;
}

static sheaf_status *leave(file f)
{
    return f.torch != NULL ? sheaf__torch_leave(f.torch) : sheaf__safetensors_leave(f.safetensors);
}

static sheaf_status *finish(sheaf_status *st, file f, size_t each)
{
    const bool first = sheaf__process_first();
    st = sheaf__process_agree(st);
    if (st == NULL && sheaf__process_count() > 1)
        st = gather(f, each);
    if (!first) {
        sheaf_status *left = leave(f);
        if (st == NULL)
            st = left;
        else
            sheaf_status_free(left);
    }
    st = sheaf__process_agree(st);
    if (first && st == NULL)
        st = f.torch != NULL ? sheaf__torch_finish(f.torch)
                             : sheaf__safetensors_finish(f.safetensors);
    else if (first)
        abandon(f);
    return sheaf__process_agree(st);
}

sheaf_status *sheaf__joined_finish(sheaf_status *st, sheaf_safetensors_writer *w, int64_t count)
{
    return finish(st, (file){ .safetensors = w }, 2 * (size_t)count);
}

sheaf_status *sheaf__joined_torch_finish(sheaf_status *st, sheaf_torch_writer *w, int64_t count)
{
    return finish(st, (file){ .torch = w }, SHEAF__TORCH_TOLD * (size_t)count);
}
