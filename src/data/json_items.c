/* json_items.c - see json_items.h. */
#include "data/json_items.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"

static const size_t MOST = (size_t)1 << 30; /* bytes of a record */

/* ---- characters ---- */

static int next_byte(sheaf__json_items *it)
{
    const int c = getc_unlocked(it->file);
    it->column++;
    if (c == '\n') {
        it->line++;
        it->column = 0;
    }
    return c;
}

static void put_back(sheaf__json_items *it, int c)
{
    if (c == EOF)
        return;
    it->line -= c == '\n';
    it->column -= c != '\n';
    ungetc(c, it->file);
}

static bool is_blank(int c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

static int next_visible(sheaf__json_items *it)
{
    int c;
    do
        c = next_byte(it);
    while (is_blank(c));
    return c;
}

static sheaf_status *keep(sheaf__json_items *it, int c)
{
    if (it->size == it->capacity) {
        const size_t capacity = it->capacity * 2 + 4096;
        char *more = it->size >= MOST ? NULL : realloc(it->buffer, capacity);
        if (more == NULL && it->size < MOST)
            return sheaf_fail(SHEAF_E_MEMORY, "%s: %s %" PRId64, it->path, it->unit, it->place);
        if (more == NULL)
            return sheaf_expected(
                sheaf_fail(SHEAF_E_FORMAT, "%s: %s %" PRId64, it->path, it->unit, it->place),
                "a record of at most a gigabyte");
        it->buffer = more;
        it->capacity = capacity;
    }
    it->buffer[it->size++] = (char)c;
    return NULL;
}

static sheaf_status *read_error(const sheaf__json_items *it)
{
    return ferror(it->file) ? sheaf_found(sheaf_fail(SHEAF_E_IO, "%s: cannot read", it->path), "%s",
                                          strerror(errno))
                            : NULL;
}

/* ---- opening ---- */

/* A picture, an archive, UTF-16: a complaint about each of its lines would help nobody. */
static sheaf_status *no_text(const char *path, int first)
{
    sheaf_status *st = sheaf_fail(SHEAF_E_FORMAT, "%s", path);
    sheaf_expected(
        st, "JSON Lines or a JSON array in UTF-8, a .safetensors file, or a folder of images");
    return sheaf_found(st, "a file that begins with byte 0x%02x", (unsigned)first);
}

/* The first bytes are looked at, and read again if they are no mark: a file can be read from its
 * beginning. */
static void pass_mark(sheaf__json_items *it)
{
    unsigned char mark[3];
    if (fread(mark, 1, 3, it->file) != 3 || memcmp(mark, "\xEF\xBB\xBF", 3) != 0)
        rewind(it->file);
}

sheaf_status *sheaf__json_items_open(sheaf__json_items *it, const char *path)
{
    int fd;
    int64_t size;
    *it = (sheaf__json_items){ .path = path, .unit = "line", .line = 1 };
    sheaf_status *st = sheaf__file_open_read(&fd, &size, path);
    if (st != NULL)
        return st;
    it->file = fdopen(fd, "rb");
    if (it->file == NULL) {
        close(fd);
        return sheaf_fail(SHEAF_E_MEMORY, "%s", path);
    }
    pass_mark(it);
    const int first = next_visible(it);
    if (first != EOF && (first < 0x20 || first > 0x7e))
        return no_text(path, first);
    it->array = first == '[';
    it->unit = it->array ? "entry" : "line";
    if (!it->array)
        put_back(it, first);
    return read_error(it);
}

void sheaf__json_items_close(sheaf__json_items *it)
{
    if (it->file != NULL)
        fclose(it->file);
    free(it->buffer);
    *it = (sheaf__json_items){ 0 };
}

/* ---- lines ---- */

/* The next line with something in it, without the blanks around. */
static sheaf_status *next_line(bool *more, sheaf__json_items *it)
{
    const int first = next_visible(it);
    sheaf_status *st = NULL;
    *more = first != EOF;
    it->place = it->line;
    for (int c = first; c != EOF && st == NULL; c = getc_unlocked(it->file)) {
        if (c == '\n') {
            it->line++;
            break;
        }
        st = keep(it, c);
    }
    while (it->size > 0 && is_blank((unsigned char)it->buffer[it->size - 1]))
        it->size--;
    return st == NULL ? read_error(it) : st;
}

/* ---- entries ---- */

static sheaf_status *broken(const sheaf__json_items *it, const char *expected, int c)
{
    sheaf_status *st = sheaf_fail(SHEAF_E_FORMAT, "%s: line %" PRId64 ", column %" PRId64, it->path,
                                  it->line, it->column);
    if (it->place > 0)
        sheaf_expected(st, "%s after entry %" PRId64 " of the list", expected, it->place);
    else
        sheaf_expected(st, "%s, as the file begins with [", expected);
    if (c == EOF)
        return sheaf_found(st, "the end of the file");
    return c > 0x20 && c < 0x7f ? sheaf_found(st, "%c", c)
                                : sheaf_found(st, "byte 0x%02x", (unsigned)c);
}

/* The rest of a text in quotes. */
static sheaf_status *keep_string(sheaf__json_items *it)
{
    sheaf_status *st = NULL;
    for (int c = 0; st == NULL && c != '"';) {
        c = next_byte(it);
        if (c == EOF)
            return broken(it, "the end of a text that begins", c);
        st = keep(it, c);
        if (st == NULL && c == '\\' && (c = next_byte(it)) != EOF) {
            st = keep(it, c);
            c = 0; /* a quote here is none */
        }
    }
    return st;
}

/* A value from its first character on: what stands between brackets, or up to a comma, bracket or
 * blank. */
static sheaf_status *keep_value(sheaf__json_items *it, int c)
{
    sheaf_status *st = NULL;
    for (int depth = 0; st == NULL; c = next_byte(it)) {
        if (c == EOF)
            return depth == 0 ? NULL : broken(it, "the end of what begins", c);
        if (depth == 0 && it->size > 0 && (c == ',' || c == ']' || c == '}' || is_blank(c))) {
            put_back(it, c);
            return NULL;
        }
        st = keep(it, c);
        if (st == NULL && c == '"')
            st = keep_string(it);
        depth += (c == '{' || c == '[') - (c == '}' || c == ']');
        if (depth == 0 && (c == '"' || c == '}' || c == ']'))
            return st;
    }
    return st;
}

static sheaf_status *next_entry(bool *more, sheaf__json_items *it)
{
    int c = next_visible(it);
    *more = false;
    if (c == ']') {
        it->ended = true;
        c = next_visible(it);
        return c == EOF ? read_error(it) : broken(it, "nothing", c);
    }
    if (it->place > 0 && c != ',')
        return broken(it, "',' or ']'", c);
    if (it->place > 0)
        c = next_visible(it);
    if (c == EOF || c == ',' || c == ']' || c == '}' || c == ':')
        return broken(it, it->place == 0 ? "an entry or ']'" : "another entry", c);
    it->place++;
    *more = true;
    sheaf_status *st = keep_value(it, c);
    return st == NULL ? read_error(it) : st;
}

sheaf_status *sheaf__json_items_next(bool *more, sheaf__json_items *it)
{
    it->size = 0;
    *more = false;
    sheaf_status *st = it->ended ? NULL : it->array ? next_entry(more, it) : next_line(more, it);
    it->text = it->buffer;
    *more = *more && st == NULL;
    return st;
}
