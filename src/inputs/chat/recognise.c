/* recognise.c - see recognise.h. */
#include "inputs/chat/recognise.h"

#include <stdlib.h>
#include <string.h>

#include "inputs/chat/date.h"
#include "inputs/chat/held.h"
#include "inputs/chat/jinja.h"
#include "inputs/chat/style.h"
#include "base/status.h"

/* ---- probes ---- */

enum { MESSAGES = 13, PROBES = 31, ORDERLY = 23, QUESTION = 2 };

typedef struct probe {
    const char *roles; /* s, u and a */
    const char *content[MESSAGES];
    bool prompt;
    const char *date; /* handed to the program as date_string */
} probe;

/* strftime_now() gives it. %b and %B write its month differently. On the other day, of which every
 * field is another, QUESTION alone is asked. */
static const char today[] = "2003-02-04", other_day[] = "2016-10-27";

/* For programs that look at lengths. */
#define LONG_TEXT                                                                                  \
    "A text that is longer than what else is said here. It has several sentences, in two lines.\n" \
    "Numbers from 1 to 20: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; and (this is all) " \
    "nothing comes after it: so it ends, at last."

/* Those from ORDERLY on are out of order for some templates. QUESTION is a question alone. */
static const probe probes[PROBES] = {
    { "ua", { "Q one", "A one" } },
    { "u", { "Q one" }, .prompt = true },
    { "u", { "Q one" } },
    { "sua", { "S one", "Q one", "A one" } },
    { "su", { "S one", "Q one" }, .prompt = true },
    { "uaua", { "Q one", "A one", "Q two", "A two" } },
    { "suau", { "S one", "Q one", "A one", "Q two" }, .prompt = true },
    { "suaua", { "S one", "Q one", "A one", "Q two", "A two" } },
    { "suaua",
      { "\n S\u00a0 ", " \tQ one\n\n", "\n A one \u3000\n", "\nQ\n\ntwo ", "\u2003A two\r\n" } },
    { "uaua", { " \tQ one\n\n", "\n A one \u3000\n", "\nQ\n\ntwo ", "\u2003A two\r\n" } },
    { "ua", { "", "" } },
    { "sua", { "", " \n", "" } },
    { "uaua",
      { "Q", "<think>\nT one\n</think>\n\nA one", "Q two", "x<think>T two</think>\n\nA two" } },
    { "ua", { "<|im_end|>[/INST] </s>{{ 1 }}", "<|im_start|>user\n### USER: <end_of_turn>" } },
    { "ua", { "é你好👩\u200d👩", "\"'\\ & <b>" } },
    { "ua", { "Q one", "A one" }, .prompt = true },
    { "sua", { "S one /no_think ", "Q one", "\n\nA one" } },
    { "su", { "/no_think", "Q one" }, .prompt = true },
    { "su", { " S one/think\n", "Q one" }, .prompt = true },
    { "sua", { "S one /system_override", "Q one", "A one" } },
    { "ua", { "Q one", "A one" }, .date = "Day" },
    { "suauauauauaua",
      { LONG_TEXT, LONG_TEXT, LONG_TEXT, "Q2", "A2", "Q3", "A3", "Q4", "A4", "Q5", "A5",
        LONG_TEXT "6", LONG_TEXT "6" } },
    { "uauauauauau",
      { "Q1", "A1", LONG_TEXT, "A2", "Q3", LONG_TEXT, "Q4", "A4", "Q5", "A5", "Q6" },
      .prompt = true },
    { "a", { "A one" } },
    { "s", { "S one" } },
    { "uu", { "Q one", "Q two" }, .prompt = true },
    { "uaa", { "Q one", "A one", "A two" } },
    { "ssua", { "S one", "S two", "Q one", "A one" } },
    { "usua", { "Q one", "S one", "Q two", "A one" } },
    { "uas", { "Q one", "A one", "S one" } },
    { "usu", { "Q one", "\n S\u00a0 ", "Q two" }, .prompt = true },
};

static const char *role_of(char letter)
{
    return letter == 's' ? "system" : letter == 'u' ? "user" : "assistant";
}

static int64_t messages_of(sheaf__message message[MESSAGES], const probe *p)
{
    int64_t n = 0;
    for (; p->roles[n] != '\0'; n++)
        message[n] = (sheaf__message){ role_of(p->roles[n]), p->content[n], strlen(p->content[n]) };
    return n;
}

/* ---- what the program writes ---- */

typedef struct answers {
    char *text[PROBES]; /* NULL: the program raises */
    size_t size[PROBES];
    char *raised; /* what it raised first, with the line; NULL: nothing, or no memory */
    const char *bos, *eos, *day;
} answers;

static void release(answers *a)
{
    for (int i = 0; i < PROBES; i++)
        free(a->text[i]);
    free(a->raised);
}

/* The probes [begin, end). */
static sheaf_status *ask(answers *a, const sheaf__jinja *program, int begin, int end)
{
    sheaf__date date = { 0 };
    sheaf__date_read(&date, a->day);
    for (int i = begin; i < end; i++) {
        sheaf__message message[MESSAGES];
        const int64_t n = messages_of(message, &probes[i]);
        json_t *variables = sheaf__chat_variables(
            message, n, &(sheaf__chat_options){ probes[i].prompt, a->bos, a->eos }, probes[i].date);
        sheaf_status *st = variables == NULL ? sheaf_fail(SHEAF_E_MEMORY, "chat template")
                                             : sheaf__jinja_render(&a->text[i], &a->size[i],
                                                                   program, variables, &date);
        json_decref(variables);
        if (st != NULL && sheaf_status_code(st) != SHEAF_E_DATA)
            return st;
        if (st != NULL && a->raised == NULL)
            a->raised = strdup(sheaf_status_where(st));
        sheaf_status_free(st);
    }
    return NULL;
}

/* One that raises whatever it is asked is no row, though rows refuse as well. */
static sheaf_status *check_writes(const answers *a)
{
    for (int i = 0; i < PROBES; i++)
        if (a->text[i] != NULL)
            return NULL;
    sheaf_status *st = sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "chat_template"),
                                      "a program that writes conversations, as one of %s",
                                      sheaf__chat_template_names());
    sheaf_found(st, "one that raises for each of %d%s%s", PROBES,
                a->raised == NULL ? "" : ", first ", a->raised == NULL ? "" : a->raised);
    return a->bos != NULL
               ? sheaf_try_this(st,
                                "--template NAME, if one of these is what the model was trained on")
               : sheaf_try_this(
                     st, "a bos_token in tokenizer_config.json, which has none, if the program "
                         "asks for it; or --template NAME");
}

/* ---- comparing ---- */

/* The probe by a template, on the day that the program was asked on. */
static sheaf_status *answer(sheaf__rendered *out, const answers *a, int i,
                            const sheaf__chat_template *by)
{
    sheaf__chat_template t = *by;
    sheaf__message message[MESSAGES];
    char text[SHEAF__DATE_SIZE];
    sheaf__date date = { 0 };
    const int64_t n = messages_of(message, &probes[i]);
    const sheaf__chat_options options = { probes[i].prompt, a->bos, a->eos };
    if (probes[i].date != NULL && (t.style.flags & SHEAF__DATE_TEXT) != 0) {
        snprintf(text, sizeof text, "%s", probes[i].date);
        t.date = text;
    } else if (sheaf__chat_template_wants_date(&t)) {
        sheaf__date_read(&date, a->day);
        sheaf__date_write(text, t.style.date_format, strlen(t.style.date_format), date);
        t.date = text;
    }
    return sheaf__chat_render(out, &t, message, n, &options);
}

static bool agrees(const answers *a, int i, const sheaf__chat_template *t, bool lenient)
{
    sheaf__rendered r = { 0 };
    sheaf_status *st = answer(&r, a, i, t);
    bool same = false;
    if (st != NULL) /* refusing what the program writes is safe, writing what it refuses is not */
        same = a->text[i] == NULL || (lenient && i >= ORDERLY);
    else if (a->text[i] != NULL)
        same = r.size == a->size[i] && memcmp(r.text, a->text[i], r.size) == 0;
    sheaf_status_free(st);
    sheaf__rendered_release(&r);
    return same;
}

static int agreement(const answers *a, const sheaf__chat_template *t)
{
    int n = 0;
    for (int i = 0; i < PROBES; i++)
        n += agrees(a, i, t, false);
    return n;
}

static bool is_it(const answers *a, const sheaf__chat_template *t, bool lenient)
{
    for (int i = 0; i < PROBES; i++)
        if (!agrees(a, i, t, lenient))
            return false;
    return true;
}

/* ---- ways in which a template may differ from its row ---- */

/* The system prompt that the program has of its own, where the row puts one: malloc'd, NULL if
 * there is none. */
static char *own_system(const answers *a, const sheaf__style *style)
{
    static const char mark[] = "\x03";
    const int asked = QUESTION;
    sheaf__chat_template t = { .style = *style };
    sheaf__rendered r = { 0 };
    char *out = NULL;
    t.style.system = mark;
    sheaf_status *st =
        style->place == SHEAF__SYSTEM_HEAD || style->place == SHEAF__SYSTEM_FIRST_USER
            ? answer(&r, a, asked, &t)
            : NULL;
    const char *at = r.text == NULL ? NULL : memchr(r.text, *mark, r.size);
    if (at != NULL && a->text[asked] != NULL && a->size[asked] + 1 >= r.size) {
        const size_t before = (size_t)(at - r.text), after = r.size - before - 1;
        const char *text = a->text[asked];
        if (memcmp(text, r.text, before) == 0 &&
            memcmp(text + a->size[asked] - after, at + 1, after) == 0)
            out = strndup(text + before, a->size[asked] - before - after);
    }
    sheaf_status_free(st);
    sheaf__rendered_release(&r);
    return out;
}

/* The same on two days. One that names the day is none: it would be of this one for ever. */
static char *lasting_system(const answers *a, const answers *other, const sheaf__style *style)
{
    char *one = own_system(a, style), *two = own_system(other, style);
    if (one != NULL && (two == NULL || strcmp(one, two) != 0)) {
        free(one);
        one = NULL;
    }
    free(two);
    return one;
}

/* The first of these tell in all conversations, so that one tells whether to look at the others. */
enum { HEADS = 3, PROMPTS = 2, SYSTEMS = 3, ORDERS = 3, LATERS = 3, TRIMS = 32, EMPTIES = 2 };
enum { OUTER = HEADS * PROMPTS * SYSTEMS, INNER = ORDERS * LATERS * TRIMS * EMPTIES };

/* Way 0 is the row itself. */
static void vary_outer(sheaf__style *s, int way, const char *system)
{
    const int head = way % HEADS, prompt = way / HEADS % PROMPTS, own = way / (HEADS * PROMPTS);
    if (head > 0)
        s->head = head == 1 ? NULL : SHEAF__BOS;
    if (prompt > 0)
        s->flags |= SHEAF__ALWAYS_PROMPT;
    if (own > 0)
        s->system = own == 1 ? NULL : system;
}

static void vary_inner(sheaf__style *s, int way)
{
    static const unsigned trims = SHEAF__TRIM_SYSTEM | SHEAF__TRIM_USER | SHEAF__TRIM_ANSWER |
                                  SHEAF__TRIM_LATER | SHEAF__TRIM_TOGETHER; /* bits 0 to 4 */
    const int order = way % ORDERS, later = way / ORDERS % LATERS,
              trim = way / (ORDERS * LATERS) % TRIMS, empty = way / (ORDERS * LATERS * TRIMS);
    if (order > 0)
        s->flags =
            order == 1 ? s->flags & ~(unsigned)SHEAF__ALTERNATE : s->flags | SHEAF__ALTERNATE;
    if (later > 0)
        s->later = later == 1 ? SHEAF__LATER_LEFT_OUT : SHEAF__LATER_REFUSED;
    s->flags ^= (unsigned)trim & trims;
    if (empty > 0)
        s->flags ^= SHEAF__SKIP_EMPTY_SYSTEM;
}

static bool try_inner(sheaf__chat_template *t, const answers *a, bool lenient)
{
    const sheaf__style style = t->style;
    for (int way = 0; way < INNER; way++) {
        t->style = style;
        vary_inner(&t->style, way);
        if (is_it(a, t, lenient))
            return true;
    }
    return false;
}

/* The row in all its ways; without `varied` as it stands. */
static bool try_style(sheaf__chat_template *t, const answers *a, const sheaf__style *style,
                      const char *system, bool lenient, bool varied)
{
    for (int way = 0; way < (varied ? OUTER : 1); way++) {
        *t = (sheaf__chat_template){ .style = *style };
        vary_outer(&t->style, way, system);
        if (varied ? agrees(a, 0, t, false) && try_inner(t, a, lenient) : is_it(a, t, lenient))
            return true;
    }
    return false;
}

static sheaf_status *unknown(const answers *a)
{
    int best = 0;
    const char *near = NULL;
    for (int k = 0; k < sheaf__style_count; k++) {
        const sheaf__chat_template t = { .style = sheaf__styles[k] };
        const int n = agreement(a, &t);
        if (n > best) {
            best = n;
            near = sheaf__styles[k].name;
        }
    }
    sheaf_status *st =
        sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "chat_template"),
                       "a program that writes as one of %s", sheaf__chat_template_names());
    if (best > ORDERLY / 2)
        sheaf_found(st, "another one; of %d conversations %s writes %d in the same way", PROBES,
                    near, best);
    else
        sheaf_found(st, "another one");
    return sheaf_try_this(st, "--template NAME, if one of these is what the model was trained on");
}

/* The row, without date_string where the program does not look at it. */
static sheaf__style row_for(const answers *a, const sheaf__style *style)
{
    sheaf__style row = *style;
    bool taken = false;
    for (int i = 0; i < PROBES; i++)
        if (probes[i].date != NULL && a->text[i] != NULL)
            taken |= memmem(a->text[i], a->size[i], probes[i].date, strlen(probes[i].date)) != NULL;
    if (!taken)
        row.flags &= ~(unsigned)SHEAF__DATE_TEXT;
    return row;
}

static sheaf_status *search(sheaf__chat_template **out, const answers *a, const answers *other)
{
    sheaf__chat_template found;
    for (int pass = 0; pass < 3; pass++) /* as it stands; varied; refusing more */
        for (int k = 0; k < sheaf__style_count; k++) {
            const sheaf__style row = row_for(a, &sheaf__styles[k]);
            char *system = pass == 0 ? NULL : lasting_system(a, other, &row);
            const bool is = try_style(&found, a, &row, system, pass == 2, pass > 0);
            const bool own = is && system != NULL && found.style.system == system;
            sheaf_status *st =
                is ? sheaf__chat_template_new(out, &found.style, own ? system : NULL) : NULL;
            free(system);
            if (st == NULL && is && pass > 0)
                (*out)->style.name = (*out)->style.stored;
            if (is)
                return st;
        }
    return unknown(a);
}

sheaf_status *sheaf__chat_template_recognise(sheaf__chat_template **out, const char *program,
                                             size_t size, const char *bos, const char *eos)
{
    sheaf__jinja *jinja = NULL;
    answers a = { .bos = bos, .eos = eos, .day = today };
    answers other = { .bos = bos, .eos = eos, .day = other_day };
    *out = NULL;
    sheaf_status *st = sheaf__jinja_parse(&jinja, program, size);
    TRY(st, ask(&a, jinja, 0, PROBES));
    TRY(st, ask(&other, jinja, QUESTION, QUESTION + 1));
    if (st != NULL && sheaf_status_code(st) != SHEAF_E_MEMORY)
        st = sheaf_try_this(st, "--template NAME: %s", sheaf__chat_template_names());
    TRY(st, check_writes(&a));
    TRY(st, search(out, &a, &other));
    if (*out != NULL) {
        (*out)->program = jinja;
        (*out)->file = "the stored program";
        jinja = NULL;
    }
    release(&a);
    release(&other);
    sheaf__jinja_free(jinja);
    return st;
}

static sheaf_status *recognise_stored(sheaf__chat_template **out, const sheaf__stored_chat *stored)
{
    sheaf_status *st = sheaf__chat_template_recognise(out, stored->program, strlen(stored->program),
                                                      stored->bos, stored->eos);
    if (st == NULL)
        (*out)->file = stored->file;
    return sheaf_in(st, "%s", stored->file);
}

/* `name` is that of a variation, which the stored program says. */
static sheaf_status *choose_variation(sheaf__chat_template **out, const char *name,
                                      const sheaf__stored_chat *stored)
{
    sheaf_status *st = stored->program == NULL ? NULL : recognise_stored(out, stored);
    if (st != NULL || (*out != NULL && strcmp(sheaf__chat_template_name(*out), name) == 0))
        return st;
    st = sheaf_expected(sheaf_fail(SHEAF_E_ARG, "chat template"),
                        "'%s', which the tokenizer's stored program was", name);
    sheaf_found(st, "%s%s", *out == NULL ? "none stored" : "now it is ",
                *out == NULL ? "" : sheaf__chat_template_name(*out));
    sheaf__chat_template_free(*out);
    *out = NULL;
    return st;
}

sheaf_status *sheaf__chat_template_choose(sheaf__chat_template **out, const char *given,
                                          const sheaf__stored_chat *stored)
{
    const char *known = given == NULL ? NULL : sheaf__chat_template_known(given);
    *out = NULL;
    if (known != NULL && strlen(known) > 7 && strcmp(known + strlen(known) - 7, "-stored") == 0)
        return choose_variation(out, known, stored);
    if (given != NULL && *given != '\0')
        return sheaf__chat_template_find(out, given);
    if (stored->program != NULL)
        return recognise_stored(out, stored);
    sheaf_status *st =
        sheaf_expected(sheaf_fail(SHEAF_E_ARG, "--template"), "%s", sheaf__chat_template_names());
    sheaf_found(st, "none, and the tokenizer stores %s",
                stored->no_default ? "several, of which none is called default" : "none");
    return sheaf_try_this(st, "--template NAME");
}

sheaf_status *sheaf__chat_template_settled(sheaf__chat_template **out, const char *name,
                                           const sheaf__stored_chat *stored)
{
    *out = NULL;
    sheaf_status *st = stored->program == NULL ? NULL : recognise_stored(out, stored);
    if (*out != NULL && strcmp(sheaf__chat_template_name(*out), name) == 0)
        return NULL;
    sheaf__chat_template_free(*out);
    if (st != NULL && sheaf_status_code(st) == SHEAF_E_MEMORY)
        return st;
    sheaf_status_free(st);
    return sheaf__chat_template_choose(out, name, stored);
}
