/* named.c - chat templates by name and from a folder, the properties of their programs, and their
 * dates. */
#include "inputs/chat/named.h"

#include "base/base.h"

/* ---- probing a program ---- */

/* Its output for messages of these roles: s, u and a. */
static sheaf_status *look(sheaf__jinja_text *out, const sheaf__chat_template *t, const char *roles,
                          bool prompt)
{
    static const char *const user[] = { " \tQ one\n\n", "Q two", "Q three" }, *const answer[] = {
        "\n <think>\nT\n</think>\n\nA one \u3000\n", "A two", "A <think>three"
    };
    sheaf__message message[8] = { { 0 } };
    int64_t n = 0, users = 0, answers = 0;
    for (; roles[n] != '\0'; n++) {
        const char *content = roles[n] == 's'   ? "\n S\u00a0 "
                              : roles[n] == 'e' ? ""
                              : roles[n] == 'u' ? user[users++]
                                                : answer[answers++];
        message[n] = (sheaf__message){ roles[n] == 'u'   ? "user"
                                       : roles[n] == 'a' ? "assistant"
                                                         : "system",
                                       content, strlen(content),
                                       json_pack("{s:[{s:s, s:s}]}", "content", "type", "text",
                                                 "text", content) };
    }
    static const char tool[] =
        "[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"description\": \"d\", "
        "\"parameters\": {\"type\": \"object\", \"properties\": {\"a\": {\"type\": \"string\", "
        "\"description\": \"d\"}}, \"required\": [\"a\"]}}}]";
    json_t *tools = t->wants_tools ? json_loads(tool, 0, NULL) : NULL;
    sheaf_status *st = sheaf__chat_run(
        out, t, message, n,
        &(sheaf__chat_options){
            .generation_prompt = prompt, .bos = SHEAF__BOS, .eos = SHEAF__EOS, .tools = tools });
    while (n-- > 0)
        json_decref((json_t *)message[n].json);
    json_decref(tools);
    return st;
}

/* Keeps "\2" and the like as the end mark. */
static sheaf_status *keep_end(sheaf__chat_template *t, const sheaf__jinja_text *text)
{
    const sheaf__jpiece *last = text->pieces > 0 ? &text->piece[text->pieces - 1] : NULL;
    if (last == NULL)
        return NULL;
    const size_t end = sheaf__chat_answer_end(text, last->end, last->end, text->size);
    const char *at = text->text + last->end;
    size_t size = end - last->end;
    sheaf__utf8_strip(&at, &size);
    t->end = size == 0 ? NULL : strndup(at, size);
    return size > 0 && t->end == NULL ? sheaf__no_memory("chat template") : NULL;
}

static bool begins(const sheaf__jinja_text *text, const sheaf__jinja_text *with)
{
    return text->size >= with->size && memcmp(text->text, with->text, with->size) == 0;
}

/* Is a prompt always a prefix of the longer conversation? */
static sheaf_status *find_steady(sheaf__chat_template *t)
{
    static const char *const prompts[] = { "u", "uau", "uauau" };
    sheaf__jinja_text whole = { 0 };
    sheaf_status *st = sheaf__unless_raised(look(&whole, t, "uauaua", false));
    t->unsteady = whole.text == NULL;
    for (int i = 0; i < 3 && st == NULL && !t->unsteady; i++) {
        sheaf__jinja_text prompt = { 0 };
        st = sheaf__unless_raised(look(&prompt, t, prompts[i], true));
        t->unsteady = prompt.text == NULL || !begins(&whole, &prompt);
        sheaf__jinja_text_release(&prompt);
    }
    sheaf__jinja_text_release(&whole);
    return st;
}

/* Finds which dates it takes, and its default, by setting another text. */
static sheaf_status *find_date(sheaf__chat_template *t)
{
    static const char some[] = "\3";
    sheaf__jinja_text own = { 0 }, given = { 0 };
    sheaf_status *st = look(&own, t, "u", false);
    t->takes_date = true;
    t->date = (char *)some;
    TRY(st, look(&given, t, "u", false));
    t->date = NULL;
    t->clock = st == NULL && own.date[0] != '\0';
    const char *at = st != NULL ? NULL : memchr(given.text, *some, given.size);
    t->takes_date = at != NULL;
    if (at != NULL && !t->clock && own.size + 1 >= given.size) {
        t->own_date = strndup(own.text + (at - given.text), own.size + 1 - given.size);
        st = t->own_date == NULL ? sheaf__no_memory("chat template") : NULL;
    }
    sheaf__jinja_text_release(&own);
    sheaf__jinja_text_release(&given);
    return sheaf__unless_raised(st);
}

/* The name of our template with the same output; the program itself is run all the same. */
static sheaf_status *find_name(sheaf__chat_template *t);

/* A question and an answer; some programs want a system message before them. */
static sheaf_status *look_first(sheaf__jinja_text *out, const sheaf__chat_template *t)
{
    sheaf_status *st = look(out, t, "ua", false);
    if (st == NULL || sheaf_status_code(st) != SHEAF_E_DATA)
        return st;
    sheaf_status *with_system = look(out, t, "sua", false);
    if (with_system == NULL) {
        sheaf_status_free(st);
        return NULL;
    }
    sheaf_status_free(with_system);
    return st;
}

/* If no text is written: tries contents as lists of parts, tools, and both; *out is the first
 * output, and the program gets these forms. A program that writes none of the conversations here
 * may write those of a record, so its errors are dropped. */
static sheaf_status *look_again(sheaf__jinja_text *out, sheaf__chat_template *t)
{
    sheaf_status *st = NULL;
    for (int i = 1; i < 4 && st == NULL && out->pieces == 0; i++) {
        t->parts = (i & 1) != 0;
        t->wants_tools = (i & 2) != 0;
        sheaf__jinja_text_release(out);
        st = sheaf__unless_raised(look_first(out, t));
    }
    if (out->pieces == 0)
        t->parts = t->wants_tools = false;
    return st;
}

static sheaf_status *learn(sheaf__chat_template *t)
{
    static const sheaf__date some_day = { 2003, 2, 4 };
    sheaf__jinja_text text = { 0 };
    t->day = some_day;
    t->thinks = strstr(t->source, "</think>") != NULL;
    t->divides = strstr(t->source, "split('</think>')") != NULL;
    sheaf_status *st = sheaf__unless_raised(look_first(&text, t));
    TRY(st, look_again(&text, t));
    TRY(st, keep_end(t, &text));
    sheaf__jinja_text_release(&text);
    TRY(st, find_steady(t));
    TRY(st, find_date(t));
    if (t->file != NULL) {
        t->day = some_day;
        TRY(st, find_name(t));
    }
    t->day = (sheaf__date){ 0 };
    return st;
}

static sheaf_status *new_template(sheaf__chat_template **out, const char *name, const char *source,
                                  const char *file, bool to_be_run)
{
    sheaf__chat_template *t = calloc(1, sizeof *t);
    *out = NULL;
    if (t == NULL)
        return sheaf__no_memory("chat template");
    t->name = name;
    t->file = file;
    t->source = strdup(source);
    sheaf_status *st = t->source == NULL ? sheaf__no_memory("chat template")
                                         : sheaf__jinja_parse(&t->program, source, strlen(source));
    if (st != NULL && file != NULL)
        st = sheaf_in(st, "%s", file);
    if (to_be_run)
        TRY(st, learn(t));
    if (st != NULL && file != NULL && sheaf_status_code(st) != SHEAF_E_MEMORY)
        st = sheaf_try_this(st,
                            "another template, if the model was trained on that: `template "
                            "NAME`: %s",
                            sheaf__chat_template_names());
    if (st == NULL)
        *out = t;
    else
        sheaf__chat_template_free(t);
    return st;
}

static sheaf_status *find_name(sheaf__chat_template *t)
{
    static const char *const talks[] = { "u", "ua", "uaua", "suaua", "euaua", "suaus" };
    enum { TALKS = sizeof talks / sizeof *talks };
    sheaf__jinja_text mine[TALKS] = { { 0 } };
    sheaf_status *st = NULL;
    for (int i = 0; i < TALKS; i++)
        TRY(st, sheaf__unless_raised(look(&mine[i], t, talks[i], i == 0)));
    for (int k = 0; k < sheaf__named_count && st == NULL && strcmp(t->name, "stored") == 0; k++) {
        sheaf__chat_template *other = NULL;
        bool same = true;
        st = new_template(&other, sheaf__named_programs[k].name, sheaf__named_programs[k].text,
                          NULL, false);
        for (int i = 0; i < TALKS && st == NULL && same; i++) {
            sheaf__jinja_text text = { 0 };
            other->day = t->day;
            st = sheaf__unless_raised(look(&text, other, talks[i], i == 0));
            same = (text.text == NULL) == (mine[i].text == NULL) && text.size == mine[i].size &&
                   (text.size == 0 || memcmp(text.text, mine[i].text, text.size) == 0);
            sheaf__jinja_text_release(&text);
        }
        if (st == NULL && same)
            t->name = other->name;
        sheaf__chat_template_free(other);
    }
    for (int i = 0; i < TALKS; i++)
        sheaf__jinja_text_release(&mine[i]);
    return st;
}

sheaf_status *sheaf__chat_template_stored(sheaf__chat_template **out, const char *program,
                                          const char *file)
{
    return new_template(out, "stored", program, file, true);
}

sheaf_status *sheaf__chat_template_stored_pair(sheaf__chat_template **out, const char *program,
                                               const char *tools, const char *file)
{
    sheaf_status *st = sheaf__chat_template_stored(out, program != NULL ? program : tools, file);
    if (st == NULL && program == NULL)
        (*out)->only_with_tools = true;
    else if (st == NULL && tools != NULL)
        st = sheaf__chat_template_stored(&(*out)->with_tools, tools, file);
    if (st != NULL) {
        sheaf__chat_template_free(*out);
        *out = NULL;
    }
    return st;
}

void sheaf__chat_template_free(sheaf__chat_template *t)
{
    if (t == NULL)
        return;
    sheaf__chat_template_free(t->with_tools);
    free(t->source);
    free(t->end);
    free(t->own_date);
    free(t->date);
    sheaf__jinja_free(t->program);
    free(t);
}

/* ---- names ---- */

const char *sheaf__chat_template_name(const sheaf__chat_template *t)
{
    return t->name;
}

const char *sheaf__chat_template_known(const char *name)
{
    for (int i = 0; i < sheaf__named_count; i++)
        if (strcmp(name, sheaf__named_programs[i].name) == 0)
            return sheaf__named_programs[i].name;
    return strcmp(name, "stored") == 0 ? "stored" : NULL;
}

const char *sheaf__chat_template_names(void)
{
    return sheaf__named_names;
}

sheaf_status *sheaf__chat_template_find(sheaf__chat_template **out, const char *name)
{
    enum { MOST = 64 };
    const char *names[MOST];
    *out = NULL;
    for (int i = 0; i < sheaf__named_count && i < MOST; i++) {
        names[i] = sheaf__named_programs[i].name;
        if (strcmp(name, names[i]) == 0)
            return new_template(out, names[i], sheaf__named_programs[i].text, NULL, true);
    }
    sheaf_status *st = sheaf_fail(SHEAF_E_ARG, "chat template");
    sheaf_expected(st, "%s", sheaf__chat_template_names());
    sheaf_found(st, "'%s'", name);
    const char *near = sheaf__nearest(name, names, sheaf__named_count);
    return near == NULL ? st : sheaf_try_this(st, "%s", near);
}

const char *sheaf__chat_template_program(const sheaf__chat_template *t)
{
    return t->source;
}

/* ---- thoughts ---- */

static void lines_off(sheaf__text_piece *p, bool left, bool right)
{
    for (; left && p->size > 0 && *p->at == '\n'; p->at++)
        p->size--;
    while (right && p->size > 0 && p->at[p->size - 1] == '\n')
        p->size--;
}

/* The text behind the last `word`, if there is one. */
static sheaf__text_piece behind_last(sheaf__text_piece p, const char *word)
{
    const size_t n = strlen(word);
    for (const char *at; (at = memmem(p.at, p.size, word, n)) != NULL; p.at = at + n)
        p.size -= (size_t)(at - p.at) + n;
    return p;
}

/* Divides an answer into thoughts and the rest, as Qwen3's program splits and strips it. */
static void divide_thoughts(sheaf__text_piece *thoughts, sheaf__text_piece *rest)
{
    static const char close[] = "</think>";
    const char *end = memmem(rest->at, rest->size, close, sizeof close - 1);
    *thoughts = (sheaf__text_piece){ rest->at, end == NULL ? 0 : (size_t)(end - rest->at) };
    if (end == NULL)
        return;
    *rest = behind_last(*rest, close);
    lines_off(thoughts, false, true);
    *thoughts = behind_last(*thoughts, "<think>");
    lines_off(thoughts, true, true);
    lines_off(rest, true, false);
}

void sheaf__chat_divide(sheaf__text_piece *thoughts, sheaf__text_piece *rest,
                        const sheaf__chat_template *t)
{
    bool more;
    const size_t lead = sheaf__chat_no_thoughts(&more, t, rest->at, rest->size);
    *thoughts = (sheaf__text_piece){ rest->at, 0 };
    rest->at += lead;
    rest->size -= lead;
    if (t->divides)
        divide_thoughts(thoughts, rest);
}

size_t sheaf__chat_no_thoughts(bool *more, const sheaf__chat_template *t, const char *text,
                               size_t size)
{
    static const char *const words[] = { "<think>", "</think>" };
    size_t at = 0;
    *more = false;
    for (int i = 0; i < 2; i++) {
        while (at < size && strchr(" \t\n\v\f\r", text[at]) != NULL && text[at] != '\0')
            at++;
        const size_t n = strlen(words[i]), left = size - at < n ? size - at : n;
        if (!t->thinks || memcmp(text + at, words[i], left) != 0)
            return 0;
        if (left < n) {
            *more = true;
            return 0;
        }
        at += n;
    }
    return at;
}

/* ---- the date ---- */

static sheaf_status *keep_date(sheaf__chat_template *t, const char *text)
{
    char *copy = strdup(text);
    if (copy == NULL)
        return sheaf__no_memory("`date`");
    free(t->date);
    t->date = copy;
    t->day = (sheaf__date){ 0 };
    return NULL;
}

/* In the program's own format if it calls strftime_now(), else in the usual one. */
static sheaf_status *write_date(sheaf__chat_template *t, sheaf__date day)
{
    static const char usual[] = "%d %b %Y";
    char written[SHEAF__DATE_SIZE];
    sheaf__jinja_text text = { 0 };
    sheaf_status *st = NULL;
    sheaf__date_write(written, usual, sizeof usual - 1, day);
    if (t->clock) {
        t->day = day;
        st = look(&text, t, "u", false);
        snprintf(written, sizeof written, "%s", text.date);
        sheaf__jinja_text_release(&text);
    }
    TRY(st, keep_date(t, written));
    t->day = day;
    return st;
}

sheaf_status *sheaf__chat_template_set_date(sheaf__chat_template *t, const char *date)
{
    sheaf__date day;
    if (date == NULL || date[0] == '\0')
        return NULL;
    if (t->with_tools != NULL && (t->with_tools->clock || t->with_tools->takes_date)) {
        sheaf_status *st = sheaf__chat_template_set_date(t->with_tools, date);
        if (st != NULL || (!t->clock && !t->takes_date))
            return st;
    }
    if (!t->clock && !t->takes_date) {
        sheaf_status *st = sheaf_fail(SHEAF_E_ARG, "`date %.60s`", date);
        sheaf_expected(st, "a chat template that writes a date, as llama3.1, llama3.2 or smollm3");
        return sheaf_found(st, "%s, which writes none", t->name);
    }
    if (sheaf__date_read(&day, date))
        return write_date(t, day);
    const bool today = strcasecmp(date, "today") == 0 || strcasecmp(date, "now") == 0;
    if (t->takes_date && !today && !sheaf__date_looks(date))
        return keep_date(t, date);
    sheaf_status *st = sheaf_fail(SHEAF_E_ARG, "`date`");
    sheaf_expected(st, "a day as YYYY-MM-DD%s",
                   t->takes_date ? ", or the text that the template takes as its date_string" : "");
    return sheaf_try_this(sheaf_found(st, "'%.60s'", date),
                          today
                              ? "`date $(date +%%F)`, the day itself: later runs must not change it"
                              : "`date 2024-07-26`");
}

sheaf_status *sheaf__chat_template_set_today(sheaf__chat_template *t)
{
    sheaf_status *st = t->with_tools != NULL ? sheaf__chat_template_set_today(t->with_tools) : NULL;
    return st == NULL && t->clock && t->date == NULL && t->own_date == NULL
               ? write_date(t, sheaf__date_today())
               : st;
}
