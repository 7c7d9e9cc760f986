/* world.c - see world.h. */
#include "tests/fuzz/folders/world.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "checkpoint/convert/convert.h"
#include "tests/recordings.h"

enum { MOST_FILES = 400, MOST_BYTES = 4 << 20 };

static void need(sheaf_status *st)
{
    if (st != NULL) {
        sheaf_status_print(st, stderr);
        abort();
    }
}

/* ---- loading ---- */

static void path_of(char out[1400], const world *w, const char *name)
{
    snprintf(out, 1400, "%s/%s", w->dir, name);
}

static void clear_place(const char *path)
{
    if (unlink(path) != 0)
        rmdir(path);
}

static void put_file(const world *w, const char *name, const fuzz_bytes *b)
{
    char path[1400];
    path_of(path, w, name);
    if (sheaf__path_kind(path) !=
        SHEAF_PATH_FILE) /* what another change put there; a pipe would wait */
        clear_place(path);
    FILE *to = fopen(path, "wb");
    if (to == NULL || fwrite(b->at, 1, b->size, to) != b->size || fclose(to) != 0) {
        perror(path);
        abort();
    }
}

static void take_files(world *w, const char *from, const char *below)
{
    char **names = NULL, path[1800], inner[700];
    int64_t n = 0;
    snprintf(path, sizeof path, "%s/%s", from, below);
    need(sheaf__list_dir(&names, &n, path));
    for (int64_t i = 0; i < n && w->count < MOST_FILES; i++) {
        snprintf(path, sizeof path, "%s/%s%s", from, below, names[i]);
        snprintf(inner, sizeof inner, "%s%s", below, names[i]);
        const sheaf_path_kind kind = sheaf__path_kind(path);
        if (kind == SHEAF_PATH_DIR) {
            char dir[1400];
            snprintf(dir, sizeof dir, "%s/%s", w->dir, inner);
            need(sheaf__make_dirs(dir));
            strcat(inner, "/");
            take_files(w, from, inner);
        } else if (kind == SHEAF_PATH_FILE && strncmp(names[i], "expected", 8) != 0) {
            world_file *f = &w->file[w->count++];
            snprintf(f->name, sizeof f->name, "%.299s", inner);
            need(sheaf__file_read_all(&f->was.at, &f->was.size, path, MOST_BYTES));
            f->format = fuzz_format_of(f->name, f->was.at, f->was.size);
        }
    }
    sheaf__names_free(names, n);
}

/* A folder, or a file of a folder, as a world before `next`. */
static world *add(world *next, const char *name, const char *from, const char *scratch)
{
    static int number;
    world *w = calloc(1, sizeof *w);
    if (w == NULL || (w->file = calloc(MOST_FILES, sizeof *w->file)) == NULL)
        abort();
    snprintf(w->name, sizeof w->name, "%s", name);
    snprintf(w->dir, sizeof w->dir, "%s/w%d", scratch, number++);
    snprintf(w->path, sizeof w->path, "%s", w->dir);
    need(sheaf__make_dirs(w->dir));
    if (sheaf__path_kind(from) == SHEAF_PATH_DIR)
        take_files(w, from, "");
    else {
        world_file *f = &w->file[w->count++];
        snprintf(f->name, sizeof f->name, "%s", strrchr(from, '/') + 1);
        need(sheaf__file_read_all(&f->was.at, &f->was.size, from, MOST_BYTES));
        f->format = fuzz_format_of(f->name, f->was.at, f->was.size);
        snprintf(w->path, sizeof w->path, "%s/%s", w->dir, f->name);
    }
    for (int i = 0; i < w->count; i++)
        put_file(w, w->file[i].name, &w->file[i].was);
    w->next = next;
    return w;
}

/* Each entry of a folder of recordings; `files`: its .pt files. */
static world *add_each(world *next, const char *golden, const char *parent, bool files,
                       const char *scratch)
{
    char **names = NULL, path[1200], name[700];
    int64_t n = 0;
    snprintf(path, sizeof path, "%s/%s", golden, parent);
    sheaf_status_free(sheaf__list_dir(&names, &n, path));
    for (int64_t i = n - 1; i >= 0; i--) {
        snprintf(path, sizeof path, "%s/%s/%s", golden, parent, names[i]);
        snprintf(name, sizeof name, "%s/%s", parent, names[i]);
        const size_t length = strlen(names[i]);
        if (files ? length > 3 && strcmp(names[i] + length - 3, ".pt") == 0
                  : sheaf__path_kind(path) == SHEAF_PATH_DIR)
            next = add(next, name, path, scratch);
    }
    sheaf__names_free(names, n);
    return next;
}

/* What sheaf itself writes, of a model of the recordings. */
static world *add_made(world *next, const char *name, const char *golden, const char *model,
                       const char *to, int tp, const char *scratch)
{
    char from[1200], dst[700];
    sheaf_weights_convert_report report;
    snprintf(from, sizeof from, "%s/%s", golden, model);
    if (sheaf__path_kind(from) != SHEAF_PATH_DIR)
        return next;
    snprintf(dst, sizeof dst, "%s/made", scratch);
    need(sheaf_convert(&report,
                       &(sheaf_weights_convert_options){
                           .src = from, .dst = dst, .to = to, .tp = tp, .shard_bytes = 200000 }));
    next = add(next, name, dst, scratch);
    need(sheaf__remove_tree(dst));
    return next;
}

/* Recorded folders of quantized models, which are beside the other recordings. */
static world *add_quantised(world *next, const char *scratch)
{
    static const char *const folders[] = {
        "quant/tiny_llama/bnb_nf4_double",
        "quant/tiny_llama/bnb_int8",
        "quant/tiny_llama/bnb_nf4_storage_bf16",
        "quant/tiny_llama_gptq_asym_actorder",
        "quant/tiny_llama_awq",
        "quant/tiny_llama_ct_pack_asym",
    };
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
        if (sheaf__path_kind(recording(folders[i])) == SHEAF_PATH_DIR)
            next = add(next, folders[i], recording(folders[i]), scratch);
    return next;
}

/* GGUF models that are small: more than half of each is what it says of itself. */
static world *add_gguf(world *next, const char *scratch)
{
    static const char *const files[] = { "blocks", "k_blocks", "experts", "gemma3" };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char path[100], name[100];
        snprintf(path, sizeof path, "tests/fuzz/gguf/%s", files[i]);
        snprintf(name, sizeof name, "gguf/%s", files[i]);
        next = add(next, name, path, scratch);
    }
    return next;
}

world *world_load(const char *golden, const char *scratch)
{
    static const char *const parents[] = { "llama/deepspeed", "llama/megatron", "llama/torch_dcp",
                                           "llama/colossalai_tiny_llama" };
    static const char *const folders[] = {
        "llama/tiny_llama/hf",
        "llama/tiny_llama/hf_sharded",
        "llama/tiny_qwen2/hf",
        "llama/tiny_llama/lora/adapter_final",
        "llama/tiny_llama/lora_variants/dora/adapter",
        "llama/tiny_llama/lora_variants/embedding_target/adapter",
        "llama/tiny_llama/lora_variants/modules_to_save/adapter",
        "llama/tiny_llama/lora_variants/rank_pattern/adapter",
        "llama/tiny_qwen2/lora_variants/bias_all/adapter",
        "cogvlm/mp1_bf16",
        "cogvlm/mp2",
        "cogvlm/mp4",
        "cogvlm/lora_mp2",
        "cogagent/mp1",
        "cogagent/mp2",
        "cogagent/broken_timestamp"
    };
    world *all = add_each(NULL, golden, "llama/torch_pickle", true, scratch);
    for (size_t i = 0; i < sizeof parents / sizeof *parents; i++)
        all = add_each(all, golden, parents[i], false, scratch);
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        char path[1200];
        snprintf(path, sizeof path, "%s/%s", golden, folders[i]);
        if (sheaf__path_kind(path) == SHEAF_PATH_DIR)
            all = add(all, folders[i], path, scratch);
    }
    all = add_made(all, "made/own", golden, "llama/tiny_llama/hf", "sheaf", 0, scratch);
    all = add_made(all, "made/sat4", golden, "cogagent/mp1", "sat", 4, scratch);
    return add_gguf(add_quantised(all, scratch), scratch);
}

void world_free(world *w)
{
    while (w != NULL) {
        world *next = w->next;
        for (int i = 0; i < w->count; i++)
            free(w->file[i].was.at);
        free(w->file);
        free(w->finding);
        free(w);
        w = next;
    }
}

/* ---- changing ---- */

void world_restore(world *w)
{
    char path[1400];
    for (int i = 0; i < w->nmade; i++)
        clear_place(w->made[i]);
    w->nmade = 0;
    for (int i = 0; i < w->count; i++) {
        struct stat about;
        path_of(path, w, w->file[i].name);
        /* what was not touched has the time of the epoch */
        if (stat(path, &about) == 0 && S_ISREG(about.st_mode) && about.st_mtime == 0)
            continue;
        clear_place(path);
        put_file(w, w->file[i].name, &w->file[i].was);
        const struct timespec epoch[2] = { { 0, 0 }, { 0, 0 } };
        utimensat(AT_FDCWD, path, epoch, 0);
    }
}

/* Another name of the same folder: the first, second or last number in it counts on, or a word
 * more. */
static void other_name(char out[700], const char *name, const uint32_t n[4])
{
    snprintf(out, 700, "%s%s", name, n[0] % 4 == 3 ? ".old" : "");
    char *digit[64];
    int digits = 0;
    const char *slash = strrchr(out, '/');
    for (char *p = slash == NULL ? out : out + (slash - out); *p != '\0' && digits < 64; p++)
        if (*p >= '0' && *p <= '9')
            digit[digits++] = p;
    if (n[0] % 4 != 3 && digits > 0)
        *digit[n[1] % (uint32_t)digits] = (char)('0' + n[2] % 10);
    else if (n[0] % 4 != 3)
        strcat(out, "2");
}

static void remember(world *w, const char *path)
{
    if (w->nmade < 64)
        snprintf(w->made[w->nmade++], sizeof w->made[0], "%s", path);
}

static bool change_content(world *w, const world_file *f, const char *path, const change *c,
                           bool *consistent)
{
    fuzz_bytes b = { 0 };
    if (sheaf__path_kind(path) != SHEAF_PATH_FILE)
        return false;
    need(sheaf__file_read_all(&b.at, &b.size, path, 4 * MOST_BYTES));
    bool made = false;
    if (c->kind == CHANGE_BYTES)
        made = fuzz_change_bytes(&b, c->n, consistent);
    else if (f->format == FUZZ_SAFETENSORS)
        made = fuzz_change_safetensors(&b, c->n, consistent);
    else if (f->format == FUZZ_TORCH)
        made = fuzz_change_torch(&b, path, c->n, consistent);
    else if (f->format == FUZZ_PICKLE)
        made = fuzz_change_pickle(&b, c->n, consistent);
    else if (f->format == FUZZ_JSON)
        made = fuzz_change_json(&b, c->n, consistent);
    else if (c->n[0] != FUZZ_NO_CHANGE)
        made = fuzz_change_bytes(&b, c->n, consistent);
    if (made)
        put_file(w, f->name, &b);
    free(b.at);
    return made;
}

bool world_change(world *w, const change *c, bool *consistent)
{
    const world_file *f = &w->file[c->file % (uint32_t)w->count],
                     *g = &w->file[c->n[0] % (uint32_t)w->count];
    char path[1400], other[1400], name[700];
    path_of(path, w, f->name);
    path_of(other, w, g->name);
    const bool there = sheaf__path_kind(path) == SHEAF_PATH_FILE;
    switch (c->kind % CHANGE_KINDS) {
    case CHANGE_REMOVE: clear_place(path); return true;
    case CHANGE_SWAP:
        put_file(w, f->name, &g->was);
        put_file(w, g->name, &f->was);
        return f != g;
    case CHANGE_COPY: put_file(w, f->name, &g->was); return f != g;
    case CHANGE_EMPTY: put_file(w, f->name, &(fuzz_bytes){ path, 0 }); return true;
    case CHANGE_RENAME:
        other_name(name, f->name, c->n);
        path_of(other, w, name);
        if (!there || rename(path, other) != 0)
            return false;
        remember(w, other);
        return true;
    case CHANGE_TWICE:
        other_name(name, f->name, c->n);
        path_of(other, w, name);
        put_file(w, name, &f->was);
        remember(w, other);
        return true;
    case CHANGE_FOLDER: clear_place(path); return mkdir(path, 0700) == 0;
    case CHANGE_PIPE: clear_place(path); return mkfifo(path, 0600) == 0;
    case CHANGE_CUT:
        put_file(w, f->name, &(fuzz_bytes){ f->was.at, f->was.size * (c->n[0] % 16) / 16 });
        return f->was.size > 0;
    default: return change_content(w, f, path, c, consistent);
    }
}
