/* json_items.c - see json_items.h. */
#include "data/json_items.h"

#include "base/base.h"
#include "base/json.h"
#include "data/complaints.h"

/* ---- characters ---- */

enum { END = -1 }; /* of the file, or of what could be read: it->failed says which */

static int byte_of(sheaf__json_items *it)
{
    sheaf__byte_source *s = &it->source;
    if (s->at == s->end && !s->ended && it->failed == NULL)
        it->failed = sheaf__byte_source_fill(s);
    return s->at == s->end ? END : (unsigned char)*s->at++;
}

static int next_byte(sheaf__json_items *it)
{
    const int c = byte_of(it);
    it->column++;
    if (c == '\n') {
        it->line++;
        it->column = 0;
    }
    return c;
}

static void put_back(sheaf__json_items *it, int c)
{
    if (c == END)
        return;
    it->line -= c == '\n';
    it->column -= c != '\n';
    it->source.at--; /* a window is only replaced on the next read */
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

static sheaf_status *keep_bytes(sheaf__json_items *it, const char *bytes, size_t n)
{
    if (n > SHEAF__RECORD_MAX - it->size) {
        sheaf_status *st =
            sheaf_fail(SHEAF_E_FORMAT, "%s: %s %" PRId64, it->path, it->unit, it->place);
        return sheaf_found(sheaf_expected(st, "a record of at most 64 MiB"), "a longer one");
    }
    int64_t capacity = (int64_t)it->capacity;
    if (!SHEAF_GROW(&it->buffer, &capacity, (int64_t)(it->size + n)))
        return sheaf_fail(SHEAF_E_MEMORY, "%s: %s %" PRId64, it->path, it->unit, it->place);
    it->capacity = (size_t)capacity;
    if (n > 0)
        memcpy(it->buffer + it->size, bytes, n);
    it->size += n;
    return NULL;
}

static sheaf_status *keep(sheaf__json_items *it, int c)
{
    if (it->size < it->capacity && it->size < SHEAF__RECORD_MAX) {
        it->buffer[it->size++] = (char)c;
        return NULL;
    }
    return keep_bytes(it, &(char){ (char)c }, 1);
}

/* A failure to read comes before errors of the text. */
static sheaf_status *read_error(sheaf__json_items *it)
{
    sheaf_status *st = it->failed;
    it->failed = NULL;
    return st;
}

/* ---- opening ---- */

/* A picture, an archive, UTF-16: one failure, not one for each line. */
static sheaf_status *no_text(const sheaf__json_items *it, int first)
{
    sheaf_status *st = sheaf_fail(SHEAF_E_FORMAT, "%s", it->path);
    sheaf_expected(
        st, "JSON Lines or a JSON array in UTF-8, a .safetensors file, or a folder of images");
    sheaf_found(st, "a file that begins with byte 0x%02x", (unsigned)first);
    if ((first != 0xff && first != 0xfe) || it->source.packing != 0)
        return st;
    /* a mark of UTF-16, as PowerShell's > writes it */
    return sheaf__try_path(st, "if it is UTF-16: iconv -f UTF-16 -t UTF-8 ", it->path,
                           " >NEW.jsonl");
}

sheaf_status *sheaf__json_items_open(sheaf__json_items *it, const char *path)
{
    *it = (sheaf__json_items){ .path = path, .unit = "line", .line = 1 };
    sheaf__byte_source *s = &it->source;
    sheaf_status *st = sheaf__byte_source_open(s, path);
    if (st != NULL)
        return st;
    it->failed = sheaf__byte_source_fill(s);
    if (s->end - s->at >= 3 && memcmp(s->at, "\xEF\xBB\xBF", 3) == 0)
        s->at += 3;
    const int first = next_visible(it);
    if (it->failed != NULL)
        return read_error(it);
    if (first != END && (first < 0x20 || first > 0x7e))
        return no_text(it, first);
    it->array = first == '[';
    it->unit = it->array ? "entry" : "line";
    if (!it->array)
        put_back(it, first);
    return NULL;
}

void sheaf__json_items_close(sheaf__json_items *it)
{
    sheaf_status_free(it->failed);
    sheaf__byte_source_close(&it->source);
    free(it->buffer);
    *it = (sheaf__json_items){ 0 };
}

/* ---- lines ---- */

/* The next line that is not blank, without the blanks around it. */
static sheaf_status *next_line(bool *more, sheaf__json_items *it)
{
    sheaf__byte_source *s = &it->source;
    sheaf_status *st = NULL;
    const int first = next_visible(it);
    *more = first != END;
    it->place = it->line;
    put_back(it, first);
    for (bool whole = first == END; !whole && st == NULL && it->failed == NULL;) {
        const char *end = memchr(s->at, '\n', (size_t)(s->end - s->at));
        const size_t n = (size_t)((end == NULL ? s->end : end) - s->at);
        st = keep_bytes(it, s->at, n);
        s->at += n;
        if (end != NULL) {
            s->at++;
            it->line++;
        } else if (s->at == s->end && st == NULL) {
            it->failed = sheaf__byte_source_fill(s);
        }
        whole = end != NULL || s->ended;
    }
    while (it->size > 0 && is_blank((unsigned char)it->buffer[it->size - 1]))
        it->size--;
    return st == NULL ? read_error(it) : st;
}

/* ---- entries ---- */

static sheaf_status *broken(sheaf__json_items *it, const char *expected, int c)
{
    if (it->failed != NULL)
        return read_error(it);
    sheaf_status *st = sheaf_fail(SHEAF_E_FORMAT, "%s: line %" PRId64 ", column %" PRId64, it->path,
                                  it->line, it->column);
    if (it->place > 0)
        sheaf_expected(st, "%s after entry %" PRId64 " of the list", expected, it->place);
    else
        sheaf_expected(st, "%s, as the file begins with [", expected);
    if (c == END)
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
        if (c == END)
            return broken(it, "the end of a text that begins", c);
        st = keep(it, c);
        if (st == NULL && c == '\\' && (c = next_byte(it)) != END) {
            st = keep(it, c);
            c = 0; /* not the closing quote */
        }
    }
    return st;
}

/* The rest of a value: up to its closing bracket, or to a comma, bracket or blank. */
static sheaf_status *keep_value(sheaf__json_items *it, int c)
{
    sheaf_status *st = NULL;
    for (int depth = 0; st == NULL; c = next_byte(it)) {
        if (c == END)
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
        return c == END && it->failed == NULL ? NULL : broken(it, "nothing", c);
    }
    if (it->place > 0 && c != ',')
        return broken(it, "',' or ']'", c);
    if (it->place > 0)
        c = next_visible(it);
    if (c == END || c == ',' || c == ']' || c == '}' || c == ':')
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

/* ---- one record ---- */

void sheaf__record_tidy(json_t *record)
{
    const char *key;
    json_t *value;
    void *next;
    json_object_foreach_safe(record, next, key, value)
    {
        if (json_is_null(value))
            json_object_del(record, key);
    }
}

sheaf_status *sheaf__record_parse(json_t **out, const char *text, size_t size,
                                  const sheaf__fields *fields)
{
    sheaf_status *st = sheaf__json_parse_line(out, text, size);
    if (st == NULL)
        sheaf__record_tidy(*out);
    return st == NULL ? sheaf__fields_apply(fields, *out) : st;
}
