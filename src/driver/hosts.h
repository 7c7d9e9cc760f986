/* hosts.h - the hosts of --hosts ("a:2,b:2") or --hostfile (a host a line: "a slots=2", "a:2"). */
#pragma once

#include "base/base.h"
#include "sheaf/cut.h"
#include "sheaf/status.h"

typedef struct driver_host {
    char *name;
    int slots; /* 1 where none are named; those of all lines with this name */
    bool lost;
} driver_host;

typedef struct driver_hosts {
    driver_host *host; /* owned, each name once */
    int count;
} driver_hosts;

/* driver_hosts_read - from the words of --hosts, or where they are empty from the file of
 * --hostfile. Neither: no host. Errors: SHEAF_E_ARG: a list or a file without one; SHEAF_E_IO. */
sheaf_status *driver_hosts_read(driver_hosts *out, const char *list, const char *file);
void driver_hosts_release(driver_hosts *hosts);

/* driver_hosts_slots - those of each host, ended by 0. */
void driver_hosts_slots(int slots[SHEAF_MAX_SLICES + 1], const driver_hosts *hosts);

/* driver_hosts_left - how many of `ranks` ranks fit on the hosts that are not lost: one for each of
 * their slots; if all slots together are too few, their share of the ranks. */
int driver_hosts_left(const driver_hosts *hosts, int ranks);

/* driver_hosts_words - the hosts that are not lost, for --hosts, with their slots, or their share
 * of `ranks` where all have too few. The caller frees it; NULL: no memory. */
char *driver_hosts_words(const driver_hosts *hosts, int ranks);
