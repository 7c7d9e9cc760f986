/* peft.c - see peft.h. */
#include "peft.h"

#include "base/base.h"
#include "base/file.h"
#include "dialects/common/save.h"
#include "schema/paths.h"

static const char prefix[] = "base_model.model.";
static const char weights[] = "adapter_model.safetensors", pickled[] = "adapter_model.bin";

/* In memory PEFT puts the adapter's name after these; the file may or may not have it. */
static const char *const named_parts[] = {
    ".lora_A.",           ".lora_B.",           ".lora_magnitude_vector.",
    ".lora_embedding_A.", ".lora_embedding_B.", ".trainable_tokens_delta.",
    ".modules_to_save."
};
static const char first[] = "default."; /* the name of an adapter where none was given */
enum { PARTS = sizeof named_parts / sizeof *named_parts, BARE_FROM = 2, SAVED = 6 };

/* The rest behind the part: "default.weight" or "weight" give "weight"; "default" or "" give "". */
static const char *after_adapter_name(const char *rest)
{
    static const char *const last[] = { "weight", "bias" };
    const char *dot = strchr(rest, '.');
    for (int i = 0; i < 2; i++)
        if (strcmp(rest, last[i]) == 0 || (dot != NULL && strcmp(dot + 1, last[i]) == 0))
            return last[i];
    return dot == NULL ? "" : rest; /* an unknown form is kept, to be reported as it is */
}

static void spell(sheaf_text *name, const char *stored)
{
    for (int i = 0; i < PARTS; i++) {
        const char *part = strstr(stored, named_parts[i]);
        if (part == NULL)
            continue;
        const char *rest = after_adapter_name(part + strlen(named_parts[i]));
        sheaf__text_bytes(name, stored, (size_t)(part - stored));
        if (i == SAVED) /* a full copy has the plain name of what it replaces */
            sheaf__text_add(
                name, ".%s",
                rest + (strncmp(rest, first, sizeof first - 1) == 0 ? sizeof first - 1 : 0));
        else if (i >= BARE_FROM &&
                 (strcmp(rest, "weight") == 0 || *rest == '\0')) /* these have no ".weight" */
            sheaf__text_bytes(name, named_parts[i], strlen(named_parts[i]) - 1);
        else
            sheaf__text_add(name, "%s%s", named_parts[i], rest);
        return;
    }
    sheaf__text_add(name, "%s", stored);
}

sheaf_status *sheaf__peft_name(char **out, const char *stored)
{
    sheaf_text name = { 0 };
    char *plain = strdup(stored), *rest = plain;
    if (plain == NULL)
        return sheaf_fail(SHEAF_E_MEMORY, "'%s'", stored);
    sheaf__unwrap(plain);
    if (strncmp(plain, prefix, sizeof prefix - 1) == 0) {
        rest += sizeof prefix - 1;
        sheaf__unwrap(rest); /* of the model inside */
    }
    sheaf__text_add(&name, "%s", prefix);
    spell(&name, rest);
    free(plain);
    return sheaf__text_take(out, &name);
}

/* PEFT before 0.6, and save_pretrained(safe_serialization=False) since, write the second; where
 * both lie, PEFT reads the first. */
static bool has_weights(const char *dir)
{
    return sheaf__has_file(dir, weights) || sheaf__has_file(dir, pickled);
}

sheaf_status *sheaf_peft_base_print(char out[33], const char *dir)
{
    sheaf_safetensors *file = NULL;
    char path[SHEAF_PATH_SIZE];
    sheaf_status *st = NULL;
    out[0] = '\0';
    if (sheaf__path_kind(sheaf__path_in(path, dir, weights)) == SHEAF_PATH_FILE)
        sheaf_status_free(sheaf__safetensors_open(&file, path));
    const char *print = file != NULL ? sheaf__safetensors_metadata(file, SHEAF__BASE_PRINT) : NULL;
    if (print != NULL && strlen(print) != 32)
        st = sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "%s: metadata '%s'", path,
                                                   SHEAF__BASE_PRINT),
                                        "a fingerprint of 32 digits"),
                         "'%.80s'", print);
    else if (print != NULL)
        memcpy(out, print, 33);
    if (file != NULL)
        sheaf__safetensors_close(file);
    return st;
}

/* Why a folder without weights cannot be opened. */
static sheaf_status *explain(const char *dir)
{
    char **names = NULL;
    int64_t n = 0;
    sheaf_status *st = sheaf__list_dir(&names, &n, dir);
    if (st != NULL)
        return st;
    st = sheaf_expected(sheaf_fail(SHEAF_E_IO, "%s: no adapter here", dir), "%s", weights);
    if (sheaf__has_file(dir, "model.safetensors") ||
        sheaf__has_file(dir, "model.safetensors.index.json"))
        sheaf_try_this(sheaf_found(st, "a whole model"),
                       "give it as the model, with `model` or in front of the adapter; an adapter "
                       "is a folder with adapter_config.json");
    if (sheaf__has_file(dir, "latest") || sheaf__has_file(dir, "mp_rank_00_model_states.pt"))
        sheaf_try_this(
            sheaf_found(st, "a checkpoint of a whole model (SAT, DeepSpeed)"),
            "give it as the model: LoRA that lies in it is read with it; sheaf info %s shows what is there",
            dir);
    for (int64_t i = 0; i < n; i++) { /* PEFT puts several adapters into folders of their names */
        char inner[SHEAF_PATH_SIZE];
        if (has_weights(sheaf__path_in(inner, dir, names[i])))
            sheaf_try_this(sheaf_found(st, "an adapter in the folder %s", names[i]), "%s", inner);
    }
    sheaf__names_free(names, n);
    return st;
}

sheaf_status *sheaf_peft_config_path(char **out, const char *dir)
{
    if (sheaf__path_kind(dir) == SHEAF_PATH_NONE) {
        sheaf_status *st = sheaf_expected(
            sheaf_fail(SHEAF_E_IO, "%s", dir),
            "an adapter: a folder with adapter_config.json and adapter_model.safetensors");
        sheaf_try_this(sheaf_found(st, "nothing there"),
                       "check the path; a run of method lora leaves one in OUT/adapter");
        return sheaf__path_hub(st, dir);
    }
    if (sheaf__path_kind(dir) == SHEAF_PATH_FILE) {
        sheaf_status *st = sheaf_fail(SHEAF_E_IO, "%s: no adapter here", dir);
        sheaf_expected(st, "a folder with adapter_config.json and %s", weights);
        return sheaf_try_this(sheaf_found(st, "a file"), "the folder that it is in");
    }
    if (sheaf__path_kind(dir) == SHEAF_PATH_DIR && !sheaf__has_file(dir, "adapter_config.json") &&
        !has_weights(dir))
        return explain(dir);
    return sheaf__path_join(out, dir, "adapter_config.json");
}
