/* watched.c - see watched.h. */
#include "library/watched.h"

#include "base/base.h"
#include "comm/process.h"
#include "comm/watch/self.h"

static sheaf_status *begin_records(sheaf__watched *out, const sheaf__watched_options *o)
{
    const bool alone = sheaf__all_count(o->all) == 1;
    const int count = alone ? o->ranks : 1;
    out->doing = aligned_alloc(_Alignof(sheaf__doing), (size_t)count * sizeof *out->doing);
    if (out->doing == NULL)
        return sheaf__no_memory("watching the ranks");
    for (int i = 0; i < count; i++) {
        sheaf__doing_begin(&out->doing[i], alone ? i : sheaf__all_number(o->all));
        sheaf__doing_phase(&out->doing[i], o->phase);
    }
    sheaf__process_tell(o->all, out->doing);
    return NULL;
}

/* Where the first process listens, told to all. */
static sheaf_status *meet(int *listens, sheaf__line_place *place, const sheaf__watched_options *o)
{
    uint64_t machine[SHEAF_MAX_SLICES];
    sheaf__self self;
    bool here = true;
    *listens = -1;
    if (sheaf__all_count(o->all) == 1)
        return NULL;
    sheaf__self_look(&self);
    machine[sheaf__all_number(o->all)] = self.machine;
    sheaf_status *st = sheaf__all_gather(o->all, machine, sizeof *machine);
    for (int i = 0; i < sheaf__all_count(o->all) && st == NULL; i++)
        here = here && machine[i] == self.machine &&
               strcmp(sheaf__all_host(o->all, i), sheaf__all_host(o->all, 0)) == 0;
    if (st == NULL && sheaf__all_first(o->all))
        st = sheaf__line_listen(listens, place, here);
    st = sheaf__all_agree(o->all, st);
    return st == NULL ? sheaf__all_broadcast(o->all, place, sizeof *place) : st;
}

static void warn(const sheaf_events *events, sheaf_status *st)
{
    sheaf_warn(events,
               "%s: %s; a process that dies or stops is noticed by what started it alone: %s",
               sheaf_status_where(st), sheaf_status_found(st), sheaf_status_try(st));
    sheaf_status_free(st);
}

static sheaf_status *open_watch(sheaf__watched *out, const sheaf__watched_options *o)
{
    const int processes = sheaf__all_count(o->all);
    const sheaf__watch_hooks *hooks = o->hooks;
    sheaf__line_place place = { 0 };
    int listens;
    *out = (sheaf__watched){ .all = o->all };
    sheaf_status *st = sheaf__all_agree(o->all, begin_records(out, o));
    if (st != NULL || hooks == NULL ||
        (o->hang_after == 0 && (processes == 1 || o->heartbeat == 0)))
        return st;
    st = meet(&listens, &place, o);
    TRY(st,
        sheaf__watch_open(&out->watch, listens, &place,
                          &(sheaf__watch_options){ .process = sheaf__all_number(o->all),
                                                   .processes = processes,
                                                   .ranks = processes > 1 ? processes : o->ranks,
                                                   .in_group = o->in_group,
                                                   .doing = out->doing,
                                                   .heartbeat = o->heartbeat,
                                                   .hang_after = o->hang_after,
                                                   .stop = o->stop,
                                                   .cure = o->cure,
                                                   .end = hooks->end,
                                                   .self = hooks->self }));
    st = sheaf__all_agree(o->all, st);
    if (st != NULL && sheaf_status_code(st) == SHEAF_E_IO) {
        if (sheaf__all_first(o->all))
            warn(o->events, st);
        else
            sheaf_status_free(st);
        sheaf__watch_close(out->watch); /* where only some are watched, all would seem to hang */
        out->watch = NULL;
        st = NULL;
    }
    return st;
}

sheaf_status *sheaf__watched_open(sheaf__watched *out, const sheaf__watched_options *o)
{
    sheaf_status *st = open_watch(out, o);
    if (st == NULL && o->hooks != NULL && o->hooks->begun != NULL)
        o->hooks->begun();
    return st;
}

void sheaf__watched_close(sheaf__watched *watched)
{
    sheaf__watch_close(watched->watch);
    sheaf__process_tell(watched->all, NULL);
    free(watched->doing);
    *watched = (sheaf__watched){ 0 };
}
