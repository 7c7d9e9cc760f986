/* verdict.c - see verdict.h. */
#include "comm/watch/verdict.h"

#include "base/base.h"

enum { FINISHING = 6 }; /* times as long */

/* Do a and b both belong to the group in whose call a is? */
static bool together(const sheaf__ranks *r, int a, int b)
{
    switch (r->report[a].group) {
    case SHEAF__ITS_GROUP:
    case SHEAF__ITS_STAGE: return a / r->in_group == b / r->in_group;
    case SHEAF__ITS_PEERS: return a % r->in_group == b % r->in_group;
    default: return true;
    }
}

/* Calls of a group have the same number on all its ranks. */
bool sheaf__waits_for(const sheaf__ranks *r, int a, int b)
{
    const sheaf__report *x = &r->report[a], *y = &r->report[b];
    if (a == b || !r->known[a] || x->call[0] == '\0' || !together(r, a, b))
        return false;
    return !r->known[b] || y->made[x->group] < x->made[x->group];
}

bool sheaf__blocking(const sheaf__ranks *r, int rank)
{
    bool awaited = false;
    for (int i = 0; i < r->count; i++) {
        if (sheaf__waits_for(r, rank, i))
            return false;
        awaited = awaited || sheaf__waits_for(r, i, rank);
    }
    return awaited;
}

/* Those that wait for none of these do not belong to them: what is left in the end waits in a
 * circle. */
bool sheaf__deadlock(const sheaf__ranks *r, int least_ms, int *a, int *b)
{
    bool stuck[SHEAF_MAX_SLICES];
    for (int i = 0; i < r->count; i++)
        stuck[i] = r->known[i] && r->report[i].call[0] != '\0' && r->report[i].for_ms >= least_ms;
    for (bool fewer = true; fewer;) {
        fewer = false;
        for (int i = 0; i < r->count; i++) {
            int k = 0;
            while (k < r->count && !(stuck[k] && sheaf__waits_for(r, i, k)))
                k++;
            if (stuck[i] && k == r->count) {
                stuck[i] = false;
                fewer = true;
            } else if (stuck[i]) {
                *a = i;
                *b = k;
            }
        }
    }
    for (int i = 0; i < r->count; i++)
        if (stuck[i])
            return true;
    return false;
}

double sheaf__hang_limit(const sheaf__ranks *r, double hang_after)
{
    for (int i = 0; i < r->count; i++)
        if (r->known[i] && r->report[i].call[0] == '\0' &&
            strcmp(r->report[i].phase, "finishing") == 0)
            return FINISHING * hang_after;
    return hang_after;
}

static void show_apart(sheaf_text *out, const sheaf__ranks *r)
{
    int a = 0, b = 0;
    if (sheaf__deadlock(r, 0, &a, &b))
        sheaf__text_add(out,
                        "sheaf: rank %d (host %s) and rank %d (host %s) do not make the same "
                        "call, and wait for each other\n",
                        a, r->report[a].host, b, r->report[b].host);
}

static void show_waiting(sheaf_text *out, const sheaf__ranks *r, int rank)
{
    int n = 0;
    for (int i = 0; i < r->count; i++)
        if (sheaf__waits_for(r, rank, i))
            sheaf__text_add(out, "%s %d", n++ == 0 ? "; waits for rank" : ",", i);
}

/* All but rank `but`. Where that is 0 another process says so, which knows of itself alone. */
static void show_others(sheaf_text *out, const sheaf__ranks *r, int but)
{
    for (int i = 0; i < r->count; i++) {
        if (i == but || (but == 0 && !r->known[i]))
            continue;
        if (!r->known[i]) {
            sheaf__text_add(out, "  rank %d: nothing is known of it\n", i);
            continue;
        }
        sheaf__text_add(out, "  ");
        sheaf__report_show(out, &r->report[i]);
        if (but != 0)
            show_waiting(out, r, i);
        sheaf__text_add(out, "\n");
    }
}

static void show_blocking(sheaf_text *out, const sheaf__ranks *r)
{
    int n = 0;
    for (int i = 0; i < r->count; i++)
        if (sheaf__blocking(r, i))
            sheaf__text_add(out, "%s %d (host %s)", n++ == 0 ? ": others wait for rank" : ", rank",
                            i, r->report[i].host);
}

static const char *words_of(sheaf__verdict_kind kind)
{
    switch (kind) {
    case SHEAF__DIED: return "has died";
    case SHEAF__LOST: return "has lost its connection: it died, or the network failed";
    case SHEAF__STOPPED: return "is silent: it was stopped, or its host is gone; it is killed";
    case SHEAF__HANGS:
    case SHEAF__DEADLOCK: break;
    }
    return "hangs";
}

void sheaf__verdict_text(sheaf_text *out, sheaf__verdict_kind kind, const sheaf__ranks *r, int rank,
                         double s, const sheaf__self *self, const char *cure)
{
    if (kind == SHEAF__DEADLOCK) {
        show_apart(out, r);
    } else if (kind == SHEAF__HANGS) {
        sheaf__text_add(out, "sheaf: the run hangs: no rank got on for %.0f s", s);
        show_blocking(out, r);
        sheaf__text_add(out, "\n");
    } else {
        if (rank == 0)
            sheaf__text_add(out, "sheaf: the first process (rank 0, ");
        else
            sheaf__text_add(out, "sheaf: rank %d of %d (", rank, r->count);
        sheaf__text_add(out, "host %s, process %" PRId64 ") %s", self->host, self->pid,
                        words_of(kind));
        if (kind == SHEAF__STOPPED)
            sheaf__text_add(out, " (%.0f s)", s);
        sheaf__text_add(out, "\n");
        if (r->known[rank]) {
            sheaf__text_add(out, "  last:     ");
            sheaf__report_show(out, &r->report[rank]);
            sheaf__text_add(out, "\n");
        }
    }
    show_others(out, r, rank);
    sheaf__text_add(out, "  try:      %s (docs/my-run-died.md)\n",
                    cure != NULL ? cure
                                 : "the newest checkpoint is whole: go on with --resume, or begin "
                                   "with --restarts N");
}
