/* joined.c - see joined.h. */
#include "dialects/common/joined.h"

#include <stdlib.h>
#include <string.h>

#include "base/no_memory.h"
#include "comm/process.h"

static const char memory_for[] = "a file of several processes";

static sheaf_status *not_seen(sheaf_status *st)
{
    if (sheaf_status_code(st) != SHEAF_E_IO)
        return st;
    return sheaf_try_this(st, "an output on a file system that all hosts share, or one process: "
                              "without --transport mpi");
}

sheaf_status *sheaf__joined_begin(sheaf_safetensors_writer **out, const char *path, bool writes,
                                  const sheaf_safetensors_spec *specs, int64_t count,
                                  const sheaf_safetensors_pair *metadata, int64_t npairs,
                                  sheaf_faults *faults)
{
    const bool first = sheaf__process_first();
    char *told = NULL;
    sheaf_status *st =
        first ? sheaf__safetensors_begin(out, path, specs, count, metadata, npairs, faults) : NULL;
    if (sheaf__process_count() == 1)
        return st;
    if (st == NULL && first && (told = strdup(path)) == NULL)
        st = sheaf__no_memory(memory_for);
    st = sheaf__process_agree(st);
    if (st == NULL)
        st = sheaf__process_share(&told);
    if (st == NULL && !first && writes) {
        st = sheaf__safetensors_join(out, told, specs, count, metadata, npairs, faults);
        if (st != NULL)
            st = not_seen(st);
    }
    free(told);
    st = sheaf__process_agree(st);
    if (st != NULL) {
        sheaf__safetensors_abandon(*out);
        *out = NULL;
    }
    return st;
}

/* The first hears what the others wrote. */
static sheaf_status *gather(sheaf_safetensors_writer *w, int64_t count)
{
    const int processes = sheaf__process_count(), me = sheaf__process_number();
    const size_t each = 2 * (size_t)count;
    uint64_t *all = calloc(each * (size_t)processes + 1, sizeof *all);
    sheaf_status *st = sheaf__process_agree(all == NULL ? sheaf__no_memory(memory_for) : NULL);
    if (st == NULL && w != NULL)
        sheaf__safetensors_tell(all + each * (size_t)me, w);
    if (st == NULL)
        st = sheaf__process_gather(all, each * sizeof *all);
    for (int i = 1; i < processes && st == NULL && me == 0; i++)
        sheaf__safetensors_hear(w, all + each * (size_t)i);
    free(all);
    return st;
}

sheaf_status *sheaf__joined_finish(sheaf_status *st, sheaf_safetensors_writer *w, int64_t count)
{
    const bool first = sheaf__process_first();
    st = sheaf__process_agree(st);
    if (st == NULL && sheaf__process_count() > 1)
        st = gather(w, count);
    if (!first) {
        sheaf_status *left = sheaf__safetensors_leave(w);
        if (st == NULL)
            st = left;
        else
            sheaf_status_free(left);
    }
    st = sheaf__process_agree(st);
    if (first && st == NULL)
        st = sheaf__safetensors_finish(w);
    else if (first)
        sheaf__safetensors_abandon(w);
    return sheaf__process_agree(st);
}
