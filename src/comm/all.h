/* all.h - the processes of a run as an argument: the group of all of them, one rank each; NULL
 * stands for a process that is alone, and then nothing here waits or fails.
 *
 * Outside of the ranks' bodies the first process alone prints, writes and decides; the others wait
 * at the next agreement. */
#pragma once

#include "base/base.h"
#include "comm/comm.h"

int sheaf__all_count(const sheaf_comm *all);
int sheaf__all_number(const sheaf_comm *all);
bool sheaf__all_first(const sheaf_comm *all);
/* The name of the host that process `number` runs on. Borrowed. */
const char *sheaf__all_host(const sheaf_comm *all, int number);

/* Collective: all processes call them.
 * sheaf__all_agree - as sheaf_comm_agree(). Consumes `mine`. */
sheaf_status *sheaf__all_agree(sheaf_comm *all, sheaf_status *mine);
/* sheaf__all_broadcast - the first's bytes to all. */
sheaf_status *sheaf__all_broadcast(sheaf_comm *all, void *bytes, size_t size);
/* sheaf__all_gather - `size` bytes of each, which it has put at its number, to all. */
sheaf_status *sheaf__all_gather(sheaf_comm *all, void *bytes, size_t size);
/* sheaf__all_share - the first's text, which may be NULL, to all: *text of the others is replaced
 * and owned by the caller. */
sheaf_status *sheaf__all_share(sheaf_comm *all, char **text);
