/* alike_folders.c - see alike_folders.h. */
#include "library/alike_folders.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/status.h"
#include "base/text.h"
#include "comm/doing.h"
#include "comm/process.h"
#include "train/alike.h"

enum { DEEP = 3, PLACES = 16, PIECE = 4096 };
static const char memory_for[] = "what processes compare";

typedef struct look {
    sheaf_text *text;
    const sheaf__alike_folder *of;
    sheaf_hasher *hasher;
    char piece[PIECE];
} look;

/* What may differ, or change while it is looked at. DCP hides what it is about. */
static bool is_passed_over(const char *name)
{
    static const char *const ends[] = { ".jsonl", ".log", ".lock", "run.json" };
    static const char *const whole[] = { "lock", "checkpoints", "cache" };
    bool is = (name[0] == '.' && strcmp(name, ".metadata") != 0) ||
              strncmp(name, "events.out.", 11) == 0 || sheaf__path_is_partial(name);
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++)
        is |= strcmp(name, whole[i]) == 0;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        is |= sheaf__ends_with(name, ends[i]);
    return is;
}

/* "config.json of SRC", tab: a name of a file may hold anything. */
static void add_name(const look *l, const char *name)
{
    for (; *name != '\0'; name++)
        sheaf__text_bytes(l->text, *name == '\t' || *name == '\n' ? "?" : name, 1);
    sheaf__text_add(l->text, " of %s", l->of->word);
    if (l->of->number > 0)
        sheaf__text_add(l->text, " %d", l->of->number);
    sheaf__text_add(l->text, "\t");
}

/* A small file as a whole, of another pieces at even distances. */
static sheaf_status *sample(char out[33], look *l, int fd, int64_t size, const char *path)
{
    sheaf_status *st = NULL;
    const int64_t places =
        (size + PIECE - 1) / PIECE < PLACES ? (size + PIECE - 1) / PIECE : PLACES;
    for (int64_t i = 0; i < places && st == NULL; i++) {
        const int64_t at = places < PLACES  ? i * PIECE
                           : i + 1 < PLACES ? (size - PIECE) / (PLACES - 1) * i
                                            : size - PIECE,
                      n = size - at < PIECE ? size - at : PIECE;
        st = sheaf__file_read_at(fd, l->piece, (size_t)n, at, path);
        if (st == NULL)
            sheaf__hasher_add(l->hasher, l->piece, (size_t)n);
    }
    sheaf__hash_text(out, sheaf__hasher_end(l->hasher));
    return st;
}

/* One that cannot be read may be none that is needed: whoever needs it says so. */
static void add_file(look *l, const char *path, const char *name)
{
    char hash[33] = "";
    int64_t size = 0;
    int fd = -1;
    sheaf__doing_item(sheaf__process_doing(), name);
    sheaf_status *st = sheaf__file_open_read(&fd, &size, path);
    TRY(st, sample(hash, l, fd, size, path));
    if (fd >= 0)
        close(fd);
    add_name(l, name);
    if (st == NULL)
        sheaf__text_add(l->text, "%" PRId64 " bytes, sample %.16s\n", size, hash);
    else
        sheaf__text_add(l->text, "not readable\n");
    sheaf_status_free(st);
}

static sheaf_status *add_folder(look *l, const char *path, const char *below, int deep);

static sheaf_status *add_inside(look *l, const char *path, const char *name, int deep)
{
    char *below = NULL;
    if (asprintf(&below, "%s/", name) < 0)
        return sheaf__no_memory(memory_for);
    sheaf_status *st = add_folder(l, path, below, deep);
    free(below);
    return st;
}

static sheaf_status *add_folder(look *l, const char *path, const char *below, int deep)
{
    char **names = NULL;
    int64_t n = 0;
    sheaf_status *st = sheaf__list_dir(&names, &n, path);
    for (int64_t i = 0; i < n && st == NULL; i++) {
        char *file = NULL, *name = NULL;
        if (is_passed_over(names[i]))
            continue;
        st = sheaf__path_join(&file, path, names[i]);
        if (st == NULL && asprintf(&name, "%s%s", below, names[i]) < 0) {
            name = NULL;
            st = sheaf__no_memory(memory_for);
        }
        const sheaf_path_kind kind = st == NULL ? sheaf__path_kind(file) : SHEAF_PATH_NONE;
        if (st == NULL && kind == SHEAF_PATH_FILE)
            add_file(l, file, name);
        if (st == NULL && kind == SHEAF_PATH_DIR && deep > 1)
            st = add_inside(l, file, name, deep - 1);
        free(file);
        free(name);
    }
    sheaf__names_free(names, n);
    return st;
}

static sheaf_status *describe(sheaf_text *text, const sheaf__alike_folder *folder, int count)
{
    look l = { .text = text, .hasher = sheaf__hasher_new() };
    sheaf_status *st = l.hasher == NULL ? sheaf__no_memory(memory_for) : NULL;
    sheaf__text_add(text, "the version of sheaf\t%s\n", SHEAF_VERSION);
    for (int i = 0; i < count && st == NULL; i++) {
        l.of = &folder[i];
        if (l.of->path == NULL)
            continue;
        const sheaf_path_kind kind = sheaf__path_kind(l.of->path);
        add_name(&l, "what lies there");
        sheaf__text_add(text, "%s\n",
                        kind == SHEAF_PATH_DIR    ? "a folder"
                        : kind == SHEAF_PATH_FILE ? "a file"
                                                  : "nothing");
        if (kind == SHEAF_PATH_FILE)
            add_file(&l, l.of->path, "the file");
        if (kind == SHEAF_PATH_DIR)
            st = add_folder(&l, l.of->path, "", DEEP);
    }
    sheaf__hasher_free(l.hasher);
    sheaf__doing_item(sheaf__process_doing(), NULL);
    return st == NULL && text->failed ? sheaf__no_memory(memory_for) : st;
}

sheaf_status *sheaf__alike_folders(const sheaf__alike_folder *folder, int count)
{
    sheaf_text text = { 0 };
    if (sheaf__process_count() == 1)
        return NULL;
    sheaf__doing_phase(sheaf__process_doing(), "comparing");
    sheaf_status *st = sheaf__process_agree(describe(&text, folder, count));
    TRY(st, sheaf__alike_lines(text.at));
    sheaf__text_release(&text);
    sheaf__doing_phase(sheaf__process_doing(), "reading");
    return st;
}
