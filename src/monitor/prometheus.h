/* prometheus.h - the numbers of a run for Prometheus, at http://127.0.0.1:PORT/metrics.
 *
 * In its text format 0.0.4: `# HELP` and `# TYPE` of each metric, then its samples,
 * `name{label="x"} value`. What is not known yet has none. Events are kept as numbers, and a reader
 * gets a copy of them: a step waits for no reader.
 *
 * Source: prometheus.io/docs/instrumenting/exposition_formats. */
#pragma once

#include "base/events.h"

typedef struct sheaf__prometheus sheaf__prometheus;

/* sheaf__prometheus_open - errors: SHEAF_E_UNSUPPORTED where libmicrohttpd is not installed;
 * SHEAF_E_IO for a port that cannot be had; SHEAF_E_MEMORY. */
sheaf_status *sheaf__prometheus_open(sheaf__prometheus **out, int port);
/* sheaf__prometheus_take - of steps and evaluations; any thread. Nothing for NULL. */
void sheaf__prometheus_take(sheaf__prometheus *prometheus, const sheaf_event *event);
/* sheaf__prometheus_close - closes the port; accepts NULL. */
void sheaf__prometheus_close(sheaf__prometheus *prometheus);
