/* run_export.h - exports a checkpoint of training for other programs: as an adapter, or as the base
 * with its trained tensors. */
#pragma once

#include "base/events.h"
#include "schema/config.h"
#include "checkpoint/merge/merge.h"
#include "sheaf/options.h"
#include "sheaf/status.h"

typedef struct sheaf__run_export_options {
    const char *path;   /* OUT/checkpoints/step-N, also outside of OUT; OUT: its newest one */
    const char *base;   /* the run's base model; NULL: from the run's settings */
    const char *config; /* its config, if its folder has none; NULL: from the settings */
    const char *dst;    /* must not exist, or be an empty folder */
    const sheaf_events *events;
} sheaf__run_export_options;

typedef struct sheaf__run_export_result {
    bool adapter; /* a PEFT adapter was written, method lora; else a Hugging Face model */
    int64_t step;
    sheaf_family family;
    sheaf_quantize quantize; /* how the run quantised its base */
    char *base, *config;     /* paths as given or found; config NULL: none; owned */
} sheaf__run_export_result;

/* sheaf__run_export_is - *is: a run, or a checkpoint of training; *adapter: of method lora. */
sheaf_status *sheaf__run_export_is(bool *is, bool *adapter, const char *path);
/* sheaf__run_export - errors: those of the run, the base and the output; SHEAF_E_LAYOUT for another
 * base than the run's. */
sheaf_status *sheaf__run_export(sheaf__run_export_result *out,
                                const sheaf__run_export_options *options);
/* sheaf__run_export_count - tensors and bytes of what was written to a folder. */
sheaf_status *sheaf__run_export_count(int64_t *tensors, int64_t *bytes, const char *dst);
void sheaf__run_export_result_release(sheaf__run_export_result *exported);

/* Temporary exports, and what each was made from: messages to `events` about them, or by a
 * status, names that. A path that another one begins with stands behind it. */
typedef struct sheaf__run_export_names {
    const sheaf_events *to;
    int count;
    const char *temporary[SHEAF_MERGE_ADAPTERS], *path[SHEAF_MERGE_ADAPTERS]; /* borrowed */
    sheaf_events events;
} sheaf__run_export_names;

/* sheaf__run_export_named - one more; first zero all but `to`. It must not move afterwards. */
void sheaf__run_export_named(sheaf__run_export_names *names, const char *temporary,
                             const char *path);
/* sheaf__run_export_status - `st`, with the names in it replaced. */
sheaf_status *sheaf__run_export_status(const sheaf__run_export_names *names, sheaf_status *st);
