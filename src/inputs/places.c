/* places.c - see places.h. */
#include "inputs/places.h"

#include "base/base.h"

enum { NAME_MOST = 64 }; /* most bytes of a name */

typedef struct placing {
    sheaf__placed *out;
    const sheaf__picture_form *form;
    const sheaf__chat_picture *shown;
    int64_t pictures;
    const sheaf__place_options *options;
    bool *used;       /* [pictures] */
    bool video;       /* among them */
    int64_t numbered; /* pictures with a number */
    int64_t message;  /* that is being written, */
    sheaf_text text;  /* its content */
    bool failed;
} placing;

/* ---- one picture ---- */

static void put_mark(placing *p, sheaf__mark which)
{
    sheaf__placed *out = p->out;
    const char *token = which == SHEAF__MARKS ? NULL : p->form->mark[which].token;
    const size_t begin = p->text.size;
    if (token == NULL || !SHEAF_GROW(&out->mark, NULL, out->marks + 1)) {
        p->failed |= token != NULL;
        return;
    }
    sheaf__text_add(&p->text, "%s", token);
    out->mark[out->marks++] = (sheaf__placed_mark){ p->message, begin, p->text.size, which };
}

static void put_piece(placing *p, const sheaf__chat_picture *picture, sheaf__mark begin,
                      sheaf__mark end)
{
    const int64_t rows = p->form->rows > 0 ? p->form->rows : picture->gives;
    const bool frame = picture->frame && p->form->mark[SHEAF__MARK_FRAME].token != NULL;
    put_mark(p, begin);
    for (int64_t i = 0; i < rows; i++)
        put_mark(p, frame ? SHEAF__MARK_FRAME : SHEAF__MARK_ROW);
    put_mark(p, end);
}

static void put_slices(placing *p, const sheaf__chat_picture *picture)
{
    const bool together = p->form->together;
    if (together)
        put_mark(p, SHEAF__MARK_SLICE);
    for (int64_t r = 0; r < picture->rows; r++) {
        if (r > 0)
            sheaf__text_add(&p->text, "\n");
        for (int64_t c = 0; c < picture->columns; c++)
            put_piece(p, picture, together ? SHEAF__MARK_BEGIN : SHEAF__MARK_SLICE,
                      together ? SHEAF__MARK_END : SHEAF__MARK_SLICE_END);
    }
    if (together)
        put_mark(p, SHEAF__MARK_SLICE_END);
}

/* Does another group of its video stand behind? */
static bool goes_on(const placing *p, int64_t which)
{
    do
        which++;
    while (which < p->pictures && p->shown[which].joins);
    return which < p->pictures && p->shown[which].follows;
}

static void put_one(placing *p, int64_t which)
{
    const sheaf__chat_picture *picture = &p->shown[which];
    const bool sliced = picture->columns > 0, together = p->form->video.together;
    p->used[which] = true;
    p->out->order[p->out->pictures++] = which;
    if (picture->joins)
        return;
    if (!p->video && p->form->mark[SHEAF__MARK_NUMBER].token != NULL &&
        (sliced || p->options->number_all)) {
        put_mark(p, SHEAF__MARK_NUMBER);
        sheaf__text_add(&p->text, "%" PRId64, p->numbered++);
        put_mark(p, SHEAF__MARK_NUMBER_END);
    }
    if (picture->frame && p->form->video.timed)
        sheaf__text_add(&p->text, "<%.1f seconds>", picture->second);
    put_piece(p, picture, together && picture->follows ? SHEAF__MARKS : SHEAF__MARK_BEGIN,
              together && goes_on(p, which) ? SHEAF__MARKS : SHEAF__MARK_END);
    if (sliced)
        put_slices(p, picture);
}

/* With the rest of its video. */
static void put_picture(placing *p, int64_t which)
{
    const bool close = p->form->joined || p->form->video.together;
    put_one(p, which);
    for (which++; which < p->pictures && (p->shown[which].joins || p->shown[which].follows);
         which++) {
        sheaf__text_add(&p->text, "%s", p->shown[which].joins || close ? "" : "\n");
        put_one(p, which);
    }
}

/* ---- names ---- */

size_t sheaf__is_picture_name(const char *text, size_t size)
{
    static const char begin[] = "<image";
    size_t n = sizeof begin - 1;
    if (size <= n || memcmp(text, begin, n) != 0)
        return 0;
    if (text[n] == '_' && n + 1 < size && text[n + 1] >= '0' && text[n + 1] <= '9')
        for (n++; n < size && text[n] >= '0' && text[n] <= '9';)
            n++;
    return n < size && text[n] == '>' ? n + 1 : 0;
}

int64_t sheaf__picture_names_in(const char *text, size_t size)
{
    int64_t n = 0;
    for (size_t at = 0; at < size; at++)
        n += text[at] == '<' && sheaf__is_picture_name(text + at, size - at) > 0;
    return n;
}

int64_t sheaf__picture_names(const char *text)
{
    return sheaf__picture_names_in(text, strlen(text));
}

void sheaf__picture_name_remove(char *text)
{
    static const char blanks[] = " \t\n\v\f\r";
    char *at = text;
    while ((at = strchr(at, '<')) != NULL &&
           sheaf__is_picture_name(at, strnlen(at, NAME_MOST)) == 0)
        at++;
    if (at == NULL)
        return;
    const char *rest = at + sheaf__is_picture_name(at, strnlen(at, NAME_MOST));
    memmove(at, rest, strlen(rest) + 1);
    const size_t skip = strspn(text, blanks);
    size_t n = strlen(text + skip);
    memmove(text, text + skip, n + 1);
    while (n > 0 && strchr(blanks, text[n - 1]) != NULL)
        text[--n] = '\0';
}

/* The picture whose name begins `text`, of several the first without a place, and the length of the
 * name; -1: none. */
static int64_t named_here(size_t *length, const placing *p, const char *text, size_t size)
{
    int64_t found = -1;
    for (int64_t i = 0; i < p->pictures; i++) {
        const char *name = p->shown[i].name;
        const size_t n = name == NULL ? 0 : strlen(name);
        if (n == 0 || n > size || memcmp(text, name, n) != 0 || (found >= 0 && p->used[i]))
            continue;
        if (found < 0 || p->used[found])
            found = i;
        *length = n;
    }
    return found;
}

static sheaf_status *no_picture(const placing *p, const char *name, size_t size)
{
    const char *unread = p->options->unread;
    sheaf_status *st = sheaf_fail(SHEAF_E_DATA, "message %" PRId64, p->message + 1);
    if (p->pictures > 0) {
        sheaf_expected(st, "names of the pictures that were given (%" PRId64 "), each once",
                       p->pictures);
        sheaf_found(st, "another '%.*s'", (int)size, name);
        return sheaf_try_this(st, "\"<image>\" for the one picture, or for each in turn of a "
                                  "list; \"<image_00>\" where each is given with its name");
    }
    sheaf_expected(st, "a picture for '%.*s'", (int)size, name);
    if (unread != NULL && unread[0] != '\0')
        sheaf_found(st, "none: a field '%s', which is not read", unread);
    else
        sheaf_found(st, "none");
    return sheaf_try_this(
        st,
        "give the picture (`image FILE`, or \"image\" in the record), or write another text: "
        "'%.*s' is the place of a picture",
        (int)size, name);
}

/* The length of a name of a picture, or of a video where they are read; 0: none. */
static size_t name_at(const placing *p, const char *text, size_t size)
{
    static const char video[] = SHEAF__VIDEO_HERE;
    const size_t n = sizeof video - 1;
    const bool is = p->form->video.fps > 0 && size >= n && memcmp(text, video, n) == 0;
    return is ? n : sheaf__is_picture_name(text, size);
}

/* Writes a user's content with pictures in place of their names. A name without its picture is an
 * error: the picture was lost. */
static sheaf_status *put_content(placing *p, const sheaf__message *m)
{
    size_t done = 0;
    for (size_t at = 0; at < m->size;) {
        size_t n = 0;
        const int64_t which =
            m->content[at] == '<' ? named_here(&n, p, m->content + at, m->size - at) : -1;
        if (m->content[at] == '<' && which < 0)
            n = name_at(p, m->content + at, m->size - at);
        if (n > 0 && (which < 0 || p->used[which]))
            return no_picture(p, m->content + at, n);
        if (which < 0) {
            at++;
            continue;
        }
        sheaf__text_bytes(&p->text, m->content + done, at - done);
        sheaf__text_add(&p->text, "%s", p->options->lines ? "\n" : "");
        put_picture(p, which);
        sheaf__text_add(&p->text, "%s", p->options->lines ? "\n" : "");
        done = at += n;
    }
    sheaf__text_bytes(&p->text, m->content + done, m->size - done);
    return NULL;
}

/* ---- a conversation ---- */

static bool is_user(const sheaf__message *m)
{
    return strcmp(m->role, "user") == 0;
}

static bool is_named(const placing *p, const sheaf__message *m)
{
    size_t n;
    for (size_t at = 0; at < m->size; at++)
        if (m->content[at] == '<' && named_here(&n, p, m->content + at, m->size - at) >= 0)
            return true;
    return false;
}

static sheaf_status *put_message(placing *p, bool named)
{
    sheaf__message *m = &p->out->message[p->message];
    if (!is_user(m))
        return NULL;
    p->text = (sheaf_text){ 0 };
    for (int64_t i = 0; i < p->pictures && !named; i++)
        if (p->shown[i].message == p->message && !p->used[i]) {
            put_picture(p, i);
            sheaf__text_add(&p->text, "%s", p->form->joined ? "" : "\n");
        }
    sheaf_status *st = put_content(p, m);
    if (st == NULL && p->pictures > 0) {
        m->size = p->text.size;
        st = sheaf__text_take(&p->out->owned[p->message], &p->text);
        m->content = p->out->owned[p->message];
    }
    sheaf__text_release(&p->text);
    return st;
}

static sheaf_status *check_used(const placing *p)
{
    int64_t missing = 0, first = -1;
    for (int64_t i = p->pictures - 1; i >= 0; i--)
        if (!p->used[i]) {
            missing++;
            first = i;
        }
    if (missing == 0)
        return NULL;
    sheaf_status *st = sheaf_fail(SHEAF_E_DATA, "pictures");
    const char *name = p->shown[first].name;
    sheaf_expected(st, "each to stand in a user's message, or none (then all stand in front)");
    sheaf_found(st, "%" PRId64 " of %" PRId64 " that do not, first '%s'", missing, p->pictures,
                name == NULL ? "one without a name" : name);
    return sheaf_try_this(st, "write the name of each in the text, or that of none");
}

sheaf_status *sheaf__place_pictures(sheaf__placed *out, const sheaf__picture_form *form,
                                    const sheaf__message *message, int64_t messages,
                                    const sheaf__chat_picture *shown, int64_t pictures,
                                    const sheaf__place_options *options)
{
    placing p = { .out = out,
                  .form = form,
                  .shown = shown,
                  .pictures = pictures,
                  .options = options,
                  .used = calloc((size_t)pictures + 1, sizeof *p.used) };
    *out = (sheaf__placed){ .message = malloc(((size_t)messages + 1) * sizeof *out->message),
                            .owned = calloc((size_t)messages + 1, sizeof *out->owned),
                            .messages = messages,
                            .order = malloc(((size_t)pictures + 1) * sizeof *out->order) };
    sheaf_status *st =
        p.used == NULL || out->message == NULL || out->owned == NULL || out->order == NULL
            ? sheaf__no_memory("conversation")
            : NULL;
    bool named = false;
    for (int64_t i = 0; i < pictures; i++)
        p.video = p.video || shown[i].frame;
    for (int64_t i = 0; i < messages && st == NULL; i++) {
        out->message[i] = message[i];
        named = named || (is_user(&message[i]) && is_named(&p, &message[i]));
    }
    for (p.message = 0; p.message < messages && st == NULL; p.message++)
        st = put_message(&p, named || options->lines);
    if (st == NULL && options->lines && out->pictures == 0 && pictures > 0) {
        /* none is named: all are put in front */
        free(p.used);
        sheaf__placed_release(out);
        return sheaf__place_pictures(out, form, message, messages, shown, pictures,
                                     &(sheaf__place_options){ .number_all = options->number_all });
    }
    TRY(st, p.failed ? sheaf__no_memory("conversation") : check_used(&p));
    free(p.used);
    return st;
}

void sheaf__placed_release(sheaf__placed *p)
{
    for (int64_t i = 0; p->owned != NULL && i < p->messages; i++)
        free(p->owned[i]);
    free(p->owned);
    free(p->message);
    free(p->mark);
    free(p->order);
    *p = (sheaf__placed){ 0 };
}
