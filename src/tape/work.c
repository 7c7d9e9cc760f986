/* work.c - see work.h. */
#include "tape/work.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/array.h"

const char *sheaf__work_kind_name(sheaf__work_kind kind)
{
    static const char *const name[SHEAF__WORK_KINDS] = { "products", "attention", "head",
                                                         "elements" };
    return name[kind];
}

const char *sheaf__work_way_name(sheaf__work_way way)
{
    static const char *const name[SHEAF__WORK_WAYS] = { "forward", "forward again", "backward" };
    return name[way];
}

void sheaf__work_clear(sheaf__work *work)
{
    work->n = 0;
    work->update = work->update_waiting = 0;
}

void sheaf__work_release(sheaf__work *work)
{
    free(work->entry);
    *work = (sheaf__work){ .processor = work->processor };
}

double sheaf__work_now(const sheaf__work *work)
{
    struct timespec t;
    clock_gettime(work->processor ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void sheaf__work_name(char out[SHEAF__WORK_NAME], const char *name)
{
    size_t n = 0;
    for (bool begins = true; *name != '\0' && n + 1 < SHEAF__WORK_NAME; begins = name[-1] == '.') {
        const char *end = name;
        while (begins && isdigit((unsigned char)*end))
            end++;
        const bool number = end > name && (*end == '.' || *end == '\0');
        out[n++] = number ? '*' : *name;
        name = number ? end : name + 1;
    }
    out[n] = '\0';
}

static bool agree(const sheaf__work_entry *a, const sheaf__work_entry *b)
{
    return a->way == b->way && a->kind == b->kind && a->flops == b->flops &&
           strcmp(a->name, b->name) == 0 && strcmp(a->shape, b->shape) == 0;
}

void sheaf__work_add(sheaf__work *work, const sheaf__work_entry *entry)
{
    for (int64_t i = 0; i < work->n; i++)
        if (agree(&work->entry[i], entry)) {
            work->entry[i].count += entry->count;
            work->entry[i].seconds += entry->seconds;
            work->entry[i].waiting += entry->waiting;
            return;
        }
    if (SHEAF_GROW(&work->entry, &work->capacity, work->n + 1))
        work->entry[work->n++] = *entry;
    else
        work->no_memory = true;
}
