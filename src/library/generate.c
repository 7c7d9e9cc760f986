/* generate.c - prompts of a program, one or many: sheaf/generate.h. */
#include <jansson.h>

#include "base/base.h"
#include "base/inside.h"
#include "base/json.h"
#include "infer/prompts.h"
#include "library/model.h"
#include "library/take.h"

static sheaf_status *read_messages(sheaf__prompts *prompts, const sheaf_model *m,
                                   const sheaf_model_prompt *p, const char *system,
                                   const char *const *image, int64_t images)
{
    json_t *list = NULL;
    sheaf_status *st = sheaf__json_parse_line(&list, p->messages, strlen(p->messages));
    if (st != NULL)
        return sheaf_in(st, "messages");
    json_t *record = json_pack("{s:o}", "messages", list);
    st = record == NULL
             ? sheaf__no_memory("messages")
             : sheaf__prompts_messages(prompts, &m->wording, record, system, image, images);
    json_decref(record);
    return st;
}

static sheaf_status *read_tokens(sheaf__prompts *prompts, const sheaf_model_prompt *p)
{
    json_t *list = json_array();
    for (int64_t i = 0; i < p->ntokens; i++)
        json_array_append_new(list, json_integer(p->tokens[i]));
    sheaf_status *st = json_array_size(list) < (size_t)p->ntokens
                           ? sheaf__no_memory("prompt")
                           : sheaf__prompts_add_ids(prompts, list, NULL);
    json_decref(list);
    return st;
}

/* What is asked, as one more of *prompts. */
static sheaf_status *read_prompt(sheaf__prompts *prompts, const sheaf_model *m,
                                 const sheaf_model_prompt *p, const char *system)
{
    const char *const what = "a prompt";
    const int kinds = (p->text != NULL) + (p->tokens != NULL) + (p->messages != NULL);
    const char *const *const image = p->image != NULL ? &p->image : p->images;
    const int64_t images = p->image != NULL ? 1 : p->nimages;
    if (kinds != 1 || (p->tokens != NULL && p->ntokens < 1))
        return sheaf_expected(sheaf_fail(SHEAF_E_ARG, what), "a text, or tokens, or messages");
    if (p->nimages < 0 || (p->nimages > 0 && (p->images == NULL || p->image != NULL)))
        return sheaf_found(
            sheaf_expected(sheaf_fail(SHEAF_E_ARG, what), "an image, or nimages of images"),
            "%s, nimages %" PRId64, p->image != NULL ? "an image" : "no image", p->nimages);
    if (p->tokens != NULL && (images > 0 || system != NULL))
        return sheaf_expected(sheaf_fail(SHEAF_E_ARG, what), "a text%s",
                              images > 0 ? " that asks about the image"
                                         : " with the system message");
    if (p->tokens != NULL)
        return read_tokens(prompts, p);
    if (p->messages != NULL)
        return read_messages(prompts, m, p, system, image, images);
    return sheaf__prompts_add_text(prompts, &m->wording, p->text, NULL, system, image, images);
}

static sheaf_status *ask(sheaf_answer **out, sheaf_model *m, const sheaf__prompts *prompts,
                         sheaf__asking *a)
{
    sheaf_status *st = NULL;
    for (int64_t i = 0; i < prompts->count && st == NULL; i++) {
        st = sheaf__model_room(m, &prompts->prompt[i], a);
        if (prompts->count > 1)
            st = sheaf_in(st, "prompt %" PRId64, i + 1);
    }
    if (st != NULL)
        return st;
    a->load = sheaf__prompts_load;
    a->self = (void *)prompts;
    return sheaf__model_answer(out, m, prompts->prompt, prompts->count, a);
}

sheaf_status *sheaf_model_generate(sheaf_answer **out, sheaf_model *m,
                                   const sheaf_model_generate_options *options)
{
    SHEAF__INSIDE;
    sheaf_model_generate_options o;
    sheaf__asking a;
    sheaf__prompts prompts = { .config = &m->opened.config };
    *out = NULL;
    sheaf_status *st = sheaf__take_options(&o, sizeof o, options, "sheaf_model_generate_options");
    TRY(st, sheaf__model_asking(&a, m, &o));
    TRY(st, read_prompt(&prompts, m,
                        &(sheaf_model_prompt){ .text = o.text,
                                               .tokens = o.tokens,
                                               .ntokens = o.ntokens,
                                               .image = o.image,
                                               .images = o.images,
                                               .nimages = o.nimages },
                        o.system));
    TRY(st, ask(out, m, &prompts, &a));
    sheaf__prompts_release(&prompts);
    return st;
}

sheaf_status *sheaf_model_generate_all(sheaf_answer **out, sheaf_model *m,
                                       const sheaf_model_prompt *prompt, int64_t count,
                                       const sheaf_model_generate_options *options)
{
    SHEAF__INSIDE;
    const char *const what = "sheaf_model_generate_options";
    sheaf_model_generate_options o;
    sheaf__asking a;
    sheaf__prompts prompts = { .config = &m->opened.config };
    for (int64_t i = 0; i < count; i++)
        out[i] = NULL;
    sheaf_status *st = sheaf__take_options(&o, sizeof o, options, what);
    if (st == NULL && (o.text != NULL || o.tokens != NULL || o.image != NULL || o.nimages != 0))
        st = sheaf_expected(sheaf_fail(SHEAF_E_ARG, what),
                            "neither text nor tokens nor images: the prompts have them");
    if (st == NULL && count < 1)
        st = sheaf_expected(sheaf_fail(SHEAF_E_ARG, "prompts"), "at least one");
    TRY(st, sheaf__model_asking(&a, m, &o));
    for (int64_t i = 0; i < count && st == NULL; i++) {
        sheaf_model_prompt p;
        st = sheaf__take_options(&p, sizeof p, (const char *)prompt + (size_t)i * prompt->size,
                                 "sheaf_model_prompt");
        TRY(st, sheaf_in(read_prompt(&prompts, m, &p, o.system), "prompt %" PRId64, i + 1));
    }
    TRY(st, ask(out, m, &prompts, &a));
    sheaf__prompts_release(&prompts);
    return st;
}
