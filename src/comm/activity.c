/* activity.c - see activity.h. */
#include "comm/activity.h"

#include <unistd.h>

#include "base/base.h"

void sheaf__activity_init(sheaf__activity *activity, int rank)
{
    memset(activity, 0, sizeof *activity);
    if (gethostname(activity->host, sizeof activity->host - 1) != 0)
        memcpy(activity->host, "?", 2);
    SHEAF__STORE(activity->rank, rank);
    SHEAF__STORE(activity->layer, -1);
    SHEAF__STORE(activity->since, sheaf__activity_now());
}

void sheaf__activity_item(sheaf__activity *d, const char *item)
{
    if (d == NULL || atomic_flag_test_and_set_explicit(&d->naming, memory_order_acquire))
        return;
    size_t i = 0;
    for (; item != NULL && item[i] != '\0' && i < SHEAF__ITEM - 1; i++) /* names of files' */
        SHEAF__STORE(d->item[i], item[i] >= ' ' && item[i] < 0x7f ? item[i] : '?');
    SHEAF__STORE(d->item[i], '\0');
    atomic_flag_clear_explicit(&d->naming, memory_order_release);
    sheaf__activity_tick(d);
}

void sheaf__activity_number(sheaf__activity *d, const char *what, int64_t number)
{
    char text[SHEAF__ITEM];
    if (d == NULL)
        return;
    snprintf(text, sizeof text, "%s %" PRId64, what, number);
    sheaf__activity_item(d, text);
}

static void take(char *to, size_t size, const char *text)
{
    snprintf(to, size, "%s", text == NULL ? "" : text);
}

void sheaf__activity_report(sheaf__report *out, const sheaf__activity *d)
{
    memset(out, 0, sizeof *out);
    out->rank = SHEAF__LOAD(d->rank);
    out->layer = SHEAF__LOAD(d->layer);
    out->step = SHEAF__LOAD(d->step);
    out->micro = SHEAF__LOAD(d->micro);
    out->calls = SHEAF__LOAD(d->calls);
    out->ticks = SHEAF__LOAD(d->ticks);
    out->idle = SHEAF__LOAD(d->idle);
    for (int i = 0; i < SHEAF__ITEM - 1; i++)
        if ((out->item[i] = SHEAF__LOAD(d->item[i])) == '\0')
            break;
    out->for_ms = sheaf__activity_now() - SHEAF__LOAD(d->since);
    take(out->host, sizeof out->host, d->host);
    take(out->call, sizeof out->call, SHEAF__LOAD(d->call));
    take(out->phase, sizeof out->phase, SHEAF__LOAD(d->phase));
    take(out->op, sizeof out->op, SHEAF__LOAD(d->op));
}

/* ---- shown ---- */

/* The place in the run: step, micro-batch, layer, op. */
static void add_place(sheaf_text *out, const sheaf__report *t)
{
    const char *before = "; ";
    if (t->step > 0) {
        sheaf__text_add(out, "; step %" PRId64, t->step);
        before = ", ";
    }
    if (t->micro > 0)
        sheaf__text_add(out, ", micro-batch %" PRId64, t->micro);
    if (t->layer >= 0) {
        sheaf__text_add(out, "%slayer %d", before, (int)t->layer);
        before = ", ";
    }
    if (t->phase[0] != '\0') {
        sheaf__text_add(out, "%s%s%s%s", before, t->phase, t->op[0] != '\0' ? " of " : "", t->op);
        before = ", ";
    }
    if (t->item[0] != '\0')
        sheaf__text_add(out, "%s%s", before, t->item);
}

void sheaf__report_show(sheaf_text *out, const sheaf__report *t)
{
    sheaf__text_add(out, "rank %d (host %s): ", (int)t->rank, t->host);
    if (t->call[0] != '\0')
        sheaf__text_add(out, "in %s, call %" PRIu64, t->call, t->calls);
    else
        sheaf__text_add(out, "in no call, after call %" PRIu64, t->calls);
    sheaf__text_add(out, ", for %" PRId64 " s", t->for_ms / 1000);
    add_place(out, t);
}
