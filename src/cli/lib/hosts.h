/* hosts.h - which hosts of a run are left: those of --hosts or --hostfile on which the MPI's mpirun
 * can start a process now. */
#pragma once

#include <stdbool.h>

#include "sheaf/cut.h"
#include "sheaf/status.h"

typedef struct cli_host {
    char *name;  /* as it is written there */
    char *words; /* "a:2", as --hosts has it; NULL: a line of a file */
    int slots;   /* 0: not said */
    bool lost;
} cli_host;

typedef struct cli_hosts {
    cli_host *host; /* owned; one that is named twice is there twice */
    int count;
} cli_hosts;

/* cli_hosts_read - from the words of --hosts ("a:2,b:2"), or where they are empty from the file of
 * --hostfile, a host a line ("a slots=2", "a:2", "#"). Neither: no host. */
sheaf_status *cli_hosts_read(cli_hosts *out, const char *list, const char *file);
void cli_hosts_release(cli_hosts *hosts);

/* cli_hosts_ask - sets `lost` of those that do not answer within 15 seconds; where none does it is
 * not the hosts, and none is lost. How many names are lost: 0 too where none answers, so that
 * the caller goes on with them all.
 *   mpi  as sheaf__plugin_find() takes it */
int cli_hosts_ask(cli_hosts *hosts, const char *mpi);

/* cli_hosts_slots - those of each host, ended by 0. */
void cli_hosts_slots(int slots[SHEAF_MAX_SLICES + 1], const cli_hosts *hosts);

/* cli_hosts_left - how many of `ranks` ranks those that are left take: as many as they have slots;
 * where the slots of all are too few, as if they were no matter, their share of the ranks. */
int cli_hosts_left(const cli_hosts *hosts, int ranks);

/* cli_hosts_words - those that are left, for --hosts: as they were written there, and those of a
 * file with their slots, or their share of `ranks` where all have too few. The caller frees it;
 * NULL: no memory. */
char *cli_hosts_words(const cli_hosts *hosts, int ranks);
