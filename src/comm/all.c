/* all.c - see all.h. */
#include "comm/all.h"

#include "base/base.h"
#include "comm/transport.h"

int sheaf__all_count(const sheaf_comm *all)
{
    return all == NULL ? 1 : all->ranks;
}
int sheaf__all_number(const sheaf_comm *all)
{
    return all == NULL ? 0 : all->rank;
}
bool sheaf__all_first(const sheaf_comm *all)
{
    return sheaf__all_number(all) == 0;
}

const char *sheaf__all_host(const sheaf_comm *all, int number)
{
    return all == NULL || all->host == NULL ? "" : all->host[number];
}

sheaf_status *sheaf__all_agree(sheaf_comm *all, sheaf_status *mine)
{
    return all == NULL ? mine : sheaf_comm_agree(all, mine);
}

sheaf_status *sheaf__all_broadcast(sheaf_comm *all, void *bytes, size_t size)
{
    return all == NULL ? NULL : sheaf_comm_broadcast(all, bytes, size, 0);
}

sheaf_status *sheaf__all_gather(sheaf_comm *all, void *bytes, size_t size)
{
    size_t sizes[SHEAF_MAX_SLICES];
    for (int i = 0; i < sheaf__all_count(all); i++)
        sizes[i] = size;
    return all == NULL ? NULL : sheaf_comm_gather(all, bytes, sizes);
}

sheaf_status *sheaf__all_share(sheaf_comm *all, char **text)
{
    const bool first = sheaf__all_first(all);
    if (all == NULL)
        return NULL;
    uint64_t size = first && *text != NULL ? strlen(*text) + 1 : 0;
    sheaf_status *st = sheaf__all_broadcast(all, &size, sizeof size);
    if (st == NULL && !first) {
        free(*text);
        *text = size == 0 ? NULL : malloc(size);
        if (size > 0 && *text == NULL)
            st = sheaf__no_memory("a text of the first process");
    }
    st = sheaf__all_agree(all, st);
    return st != NULL || size == 0 ? st : sheaf__all_broadcast(all, *text, size);
}
