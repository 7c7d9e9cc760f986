/* recorded.h - folders of recorded models, and the files in them. */
#pragma once

#include "tests/check.h"

#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "formats/safetensors.h"
#include "sheaf/events.h"

enum { MAX_MODELS = 64 };
static char *model_dir[MAX_MODELS];
static int models;

/* "dir/name"; the last sixteen results stay valid. */
static inline const char *in_dir(const char *dir, const char *name)
{
    static char *ring[16];
    static int next;
    char *joined = NULL;
    if (asprintf(&joined, "%s/%s", dir, name) < 0)
        fail_msg("out of memory");
    char **slot = &ring[next++ % 16];
    free(*slot);
    return *slot = joined;
}

static inline bool exists(const char *path)
{
    return access(path, R_OK) == 0;
}

/* The folders of `root` that hold both files (other NULL: the one), at the end of model_dir. */
static inline void find_in(const char *root, const char *file, const char *other)
{
    char **names;
    int64_t count;
    CHECK_OK(sheaf__list_dir(&names, &count, root));
    for (int64_t i = 0; i < count && models < MAX_MODELS; i++) {
        char *dir = strdup(in_dir(root, names[i]));
        if (exists(in_dir(dir, file)) && (other == NULL || exists(in_dir(dir, other))))
            model_dir[models++] = dir;
        else
            free(dir);
    }
    sheaf__names_free(names, count);
}

static inline sheaf_safetensors *record_of(const char *dir, const char *name)
{
    sheaf_safetensors *file;
    CHECK_OK(sheaf__safetensors_open(&file, in_dir(dir, name)));
    return file;
}

static inline json_t *json_of(const char *dir, const char *name)
{
    json_t *object = json_load_file(in_dir(dir, name), 0, NULL);
    if (object == NULL)
        fail_msg("%s/%s: not JSON", dir, name);
    return object;
}

/* The recorded steps of a run, in the order of its events. */
typedef struct trace {
    const json_t *steps;
    double tolerance; /* of a step's loss */
    int seen;
} trace;

static inline double number_in(const json_t *object, const char *name)
{
    return json_number_value(json_object_get(object, name));
}

/* The step that an event reports, whose loss is the recorded; NULL for any other event. */
static inline const json_t *recorded_step(trace *t, const sheaf_event *event)
{
    if (event->kind != SHEAF_EVENT_STEP)
        return NULL;
    const json_t *want = json_array_get(t->steps, (size_t)t->seen++);
    CHECK_NEAR("loss", event->step.loss, number_in(want, "loss"), t->tolerance);
    return want;
}
