/* describe.h - what is known of the GPUs of this machine. */
#pragma once

#include <stddef.h>

#include "sheaf/status.h"

typedef struct sheaf__gpu_facts {
    char name[64], address[16]; /* on the PCI bus */
    int major, minor, processors;
    size_t memory, left;
    const char *sums;   /* the order of its tensor cores; static */
    char problem[1024]; /* why it cannot be used, what the probe found included; "": it can */
} sheaf__gpu_facts;

typedef enum sheaf__gpu_link {
    SHEAF__LINK_HOST, /* no access to each other's memory: through the host's */
    SHEAF__LINK_PCI,
    SHEAF__LINK_NVLINK
} sheaf__gpu_link;

/* sheaf__gpus_count - and the version of the driver. Errors: those of sheaf__driver_get(). */
sheaf_status *sheaf__gpus_count(int *count, char driver[32]);
/* sheaf__gpu_look - opens it for a moment. */
sheaf_status *sheaf__gpu_look(sheaf__gpu_facts *out, int number);
/* sheaf__gpu_link_of - how one reads the memory of another. */
sheaf__gpu_link sheaf__gpu_link_of(int from, int to);
