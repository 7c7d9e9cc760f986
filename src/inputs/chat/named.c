/* named.c - chat templates by their names, and the date that one writes. */
#include "inputs/chat/style.h"

#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "inputs/chat/date.h"

sheaf_status *sheaf__chat_template_new(sheaf__chat_template **out, const sheaf__style *style,
                                       const char *system)
{
    sheaf__chat_template *t = calloc(1, sizeof *t);
    if (t == NULL)
        return sheaf_fail(SHEAF_E_MEMORY, "chat template");
    t->style = *style;
    if (system != NULL) {
        t->system = strdup(system);
        t->style.system = t->system;
    }
    if (system != NULL && t->system == NULL) {
        free(t);
        return sheaf_fail(SHEAF_E_MEMORY, "chat template");
    }
    *out = t;
    return NULL;
}

void sheaf__chat_template_free(sheaf__chat_template *t)
{
    if (t == NULL)
        return;
    free(t->system);
    free(t->date);
    sheaf__jinja_free(t->program);
    free(t);
}

const char *sheaf__chat_template_name(const sheaf__chat_template *t)
{
    return t->style.name;
}

const char *sheaf__chat_template_known(const char *name)
{
    for (int i = 0; i < sheaf__style_count; i++)
        if (strcmp(name, sheaf__styles[i].name) == 0)
            return sheaf__styles[i].name;
        else if (strcmp(name, sheaf__styles[i].stored) == 0)
            return sheaf__styles[i].stored;
    return NULL;
}

const char *sheaf__chat_template_names(void)
{
    return "llama2, llama3, llama3.1, llama3.2, mistral-v1, mistral-v3, mistral-nemo, mistral-2023, "
           "mistral-2023-spaced, chatml, qwen2, qwen2.5, qwen3, smollm2, smollm3, zephyr, "
           "vicuna, vicuna-lines, gemma, gemma3, phi3, phi3-2024, phi3.5, phi4, phi4-2024, phi4-mini, olmo2, qwen3-thoughts, minicpm or plain";
}

sheaf_status *sheaf__chat_template_find(sheaf__chat_template **out, const char *name)
{
    enum { MOST = 64 };
    const char *names[MOST];
    *out = NULL;
    for (int i = 0; i < sheaf__style_count && i < MOST; i++) {
        names[i] = sheaf__styles[i].name;
        if (strcmp(name, names[i]) == 0)
            return sheaf__chat_template_new(out, &sheaf__styles[i], NULL);
    }
    sheaf_status *st = sheaf_fail(SHEAF_E_ARG, "chat template");
    sheaf_expected(st, "%s", sheaf__chat_template_names());
    sheaf_found(st, "'%s'", name);
    const char *near = sheaf__nearest(name, names, sheaf__style_count);
    return near == NULL ? st : sheaf_try_this(st, "%s", near);
}

const char *sheaf__chat_template_stop(const sheaf__chat_template *t, const char *eos)
{
    const char *end = t->style.last_end != NULL ? t->style.last_end : t->style.answer_end;
    if (end == NULL)
        return NULL;
    end += strspn(end, " ");
    return strcmp(end, SHEAF__EOS) == 0 ? eos : end;
}

/* ---- the date ---- */

const char *sheaf__chat_template_date(const sheaf__chat_template *t)
{
    return t->date != NULL ? t->date : t->style.date;
}

bool sheaf__chat_template_wants_date(const sheaf__chat_template *t)
{
    return t->style.date_format != NULL && sheaf__chat_template_date(t) == NULL;
}

static sheaf_status *keep_date(sheaf__chat_template *t, const char *text)
{
    char *copy = strdup(text);
    if (copy == NULL)
        return sheaf_fail(SHEAF_E_MEMORY, "--date");
    free(t->date);
    t->date = copy;
    t->day = (sheaf__date){ 0 };
    return NULL;
}

static sheaf_status *write_date(sheaf__chat_template *t, sheaf__date date)
{
    char text[SHEAF__DATE_SIZE];
    sheaf__date_write(text, t->style.date_format, strlen(t->style.date_format), date);
    sheaf_status *st = keep_date(t, text);
    t->day = date;
    return st;
}

static sheaf_status *no_place(const sheaf__chat_template *t, const char *date)
{
    sheaf_status *st = sheaf_fail(SHEAF_E_ARG, "--date %.60s", date);
    sheaf_expected(st, "a chat template that writes a date: llama3.1, llama3.2 or smollm3");
    if (t->style.date != NULL)
        return sheaf_found(st, "%s, of which the stored program always writes %s", t->style.name,
                           t->style.date);
    return sheaf_found(st, "%s, which writes none", t->style.name);
}

sheaf_status *sheaf__chat_template_set_date(sheaf__chat_template *t, const char *date)
{
    sheaf__date day;
    const bool any = (t->style.flags & SHEAF__DATE_TEXT) != 0;
    if (date == NULL || date[0] == '\0')
        return NULL;
    if (t->style.date_format == NULL || (t->style.date != NULL && !any))
        return no_place(t, date);
    if (sheaf__date_read(&day, date))
        return write_date(t, day);
    const bool today = strcasecmp(date, "today") == 0 || strcasecmp(date, "now") == 0;
    if (any && !today && !sheaf__date_looks(date))
        return keep_date(t, date);
    sheaf_status *st = sheaf_fail(SHEAF_E_ARG, "--date");
    sheaf_expected(st, "a day as YYYY-MM-DD%s",
                   any ? ", or the text that the template takes as its date_string" : "");
    return sheaf_try_this(sheaf_found(st, "'%.60s'", date),
                          today
                              ? "--date $(date +%%F), the day itself: later runs must not change it"
                              : "--date 2024-07-26");
}

sheaf_status *sheaf__chat_template_set_today(sheaf__chat_template *t)
{
    return sheaf__chat_template_wants_date(t) ? write_date(t, sheaf__date_today()) : NULL;
}

sheaf_status *sheaf__chat_template_undated(const char *name)
{
    sheaf_status *st = sheaf_fail(SHEAF_E_ARG, "chat template %s", name);
    sheaf_expected(st, "the date that it writes: a result must not depend on the day");
    return sheaf_try_this(sheaf_found(st, "none"), "--date 2024-07-26, or another day");
}
