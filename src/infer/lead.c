/* lead.c - see lead.h. */
#include "infer/lead.h"

#include "base/base.h"

size_t sheaf__lead_move(char *block, void *const *array, const size_t *bytes, size_t n, bool out)
{
    size_t at = 0;
    for (size_t i = 0; i < n; at += bytes[i++])
        if (block != NULL && bytes[i] > 0)
            memcpy(out ? array[i] : block + at, out ? block + at : array[i], bytes[i]);
    return at;
}

sheaf_status *sheaf__lead_send(const sheaf__context *c, sheaf__order *o, const void *bytes)
{
    sheaf_comm *comm = sheaf__model_comm(c);
    const bool fits = o->size <= sizeof o->bytes;
    if (comm == NULL)
        return NULL;
    if (fits && o->size > 0)
        memcpy(o->bytes, bytes, o->size);
    sheaf_status *st = sheaf_comm_broadcast(comm, o, sizeof *o, 0);
    return st != NULL || fits ? st : sheaf_comm_broadcast(comm, (void *)bytes, o->size, 0);
}

sheaf_status *sheaf__lead_receive(sheaf__order *o, char **bytes, const sheaf__context *c)
{
    sheaf_comm *comm = sheaf__model_comm(c);
    *bytes = NULL;
    sheaf_status *st = sheaf_comm_broadcast(comm, o, sizeof *o, 0);
    if (st != NULL || o->size <= sizeof o->bytes)
        return st;
    *bytes = malloc(o->size);
    return *bytes == NULL ? sheaf__no_memory("a pass")
                          : sheaf_comm_broadcast(comm, *bytes, o->size, 0);
}

sheaf_status *sheaf__lead_stopped(bool *over, const sheaf__context *c, const atomic_int *stop)
{
    int flag = stop != NULL && atomic_load(stop) != 0;
    sheaf_status *st =
        sheaf__model_comm(c) == NULL ? NULL : sheaf_comm_any(sheaf__model_comm(c), &flag);
    *over = flag != 0;
    return st;
}

sheaf_status *sheaf__lead_settle(const sheaf__context *c, sheaf_status *st)
{
    return st == NULL ? NULL : sheaf__agree_all(c, st);
}

sheaf_status *sheaf__lead_order(const sheaf__context *c, sheaf__order *o)
{
    sheaf_status *st = sheaf__lead_settle(c, sheaf__lead_send(c, o, NULL));
    if (st == NULL || sheaf_status_code(st) == SHEAF_E_PEER)
        return st;
    sheaf_status *lost = sheaf__lead_send(c, o, NULL); /* after the failure of a pass */
    return sheaf__first_of(lost, st);
}

sheaf_status *sheaf__lead_close(const sheaf__context *c)
{
    return sheaf__lead_order(c, &(sheaf__order){ .kind = SHEAF__ORDER_CLOSE });
}

sheaf_status *sheaf__lead_wait(bool *over, const sheaf__context *c, const atomic_int *stop)
{
    sheaf__order order = { .kind = SHEAF__ORDER_WAIT };
    *over = false;
    sheaf_status *st = sheaf__lead_order(c, &order);
    TRY(st, sheaf__lead_stopped(over, c, stop));
    return sheaf__lead_settle(c, st);
}
