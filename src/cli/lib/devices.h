/* devices.h - the devices that --device can name, for people. */
#pragma once

#include <jansson.h>
#include <stdio.h>

#include "cli.h"

/* cli_gpus - sheaf_machine_gpus(), read. */
sheaf_status *cli_gpus(json_t **out);
/* cli_print_gpus - lines of it. */
void cli_print_gpus(FILE *to, const json_t *gpus);
/* cli_list_devices - what --device list prints. */
sheaf_status *cli_list_devices(cli *cli);
