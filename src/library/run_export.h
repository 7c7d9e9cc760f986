/* run_export.h - a checkpoint of training in a form that other programs read: the adapter, or the
 * base with the tensors that were trained in place of its own. */
#pragma once

#include "base/events.h"
#include "schema/config.h"
#include "sheaf/status.h"

typedef struct sheaf__run_export_options {
    const char *path;   /* OUT/checkpoints/step-N, alone too; OUT: its newest one */
    const char *base;   /* the model that was trained on; NULL: as the run's settings name it */
    const char *config; /* its config, where its folder has none; NULL: as the settings say */
    const char *dst;    /* must not exist, or be an empty folder */
    const sheaf_events *events;
} sheaf__run_export_options;

typedef struct sheaf__run_export_result {
    bool adapter; /* a PEFT adapter was written, method lora; else a Hugging Face model */
    int64_t step;
    sheaf_family family;
    char *base, *config; /* as given, or found; config NULL: none; owned */
} sheaf__run_export_result;

/* sheaf__run_export_is - is it a run, or a checkpoint of training? *adapter: of method lora. */
sheaf_status *sheaf__run_export_is(bool *is, bool *adapter, const char *path);
/* sheaf__run_export - errors: those of the run, the base and the output; SHEAF_E_LAYOUT for a base
 * that is not the one of the run. */
sheaf_status *sheaf__run_export(sheaf__run_export_result *out,
                                const sheaf__run_export_options *options);
/* sheaf__run_export_count - tensors and bytes of what was written to a folder. */
sheaf_status *sheaf__run_export_count(int64_t *tensors, int64_t *bytes, const char *dst);
/* sheaf__run_export_remove - what was only a step on the way. Accepts NULL. */
void sheaf__run_export_remove(const char *path);
void sheaf__run_export_result_release(sheaf__run_export_result *exported);

/* sheaf__run_export_beside - "DST.export-PID" (malloc'd): for what is only a step on the way to
 * DST. */
sheaf_status *sheaf__run_export_beside(char **out, const char *dst);
