/* chat.c - a conversation with a loaded model: sheaf/generate.h. */
#include <stdlib.h>

#include "infer/conversation.h"
#include "library/model.h"
#include "library/take.h"

struct sheaf_chat {
    sheaf_model *model;     /* borrowed */
    sheaf__wording wording; /* always by a template */
    sheaf__conversation talk;
    int64_t answers;
};

sheaf_status *sheaf_chat_open(sheaf_chat **out, sheaf_model *m, const char *image)
{
    sheaf_chat *c = calloc(1, sizeof *c);
    *out = NULL;
    if (c == NULL)
        return sheaf_fail(SHEAF_E_MEMORY, "a chat");
    c->model = m;
    c->talk.wording = &c->wording;
    sheaf_status *st = sheaf__wording_open(&c->wording, &m->opened.config,
                                           &(sheaf__wording_options){ .folder = m->run.folder,
                                                                      .tokenizer = m->tokenizer,
                                                                      .version = m->version,
                                                                      .conversation = true,
                                                                      .max_length = m->positions });
    if (st == NULL)
        st = sheaf__wording_needed(&c->wording);
    if (st == NULL && image != NULL)
        st = sheaf__conversation_look(&c->talk, image);
    if (st == NULL)
        *out = c;
    else
        sheaf_chat_close(c);
    return st;
}

void sheaf_chat_close(sheaf_chat *c)
{
    if (c == NULL)
        return;
    sheaf__conversation_release(&c->talk);
    sheaf__wording_close(&c->wording);
    free(c);
}

sheaf_status *sheaf_chat_look(sheaf_chat *c, const char *image)
{
    return sheaf__conversation_look(&c->talk, image);
}

void sheaf_chat_reset(sheaf_chat *c)
{
    sheaf__conversation_reset(&c->talk);
}

sheaf_status *sheaf_chat_ask(sheaf_answer **out, sheaf_chat *c, const char *question,
                             const sheaf_model_generate_options *options)
{
    sheaf_model_generate_options o;
    sheaf_answer *answer = NULL;
    sheaf__prompt prompt;
    void *block = NULL;
    *out = NULL;
    sheaf_status *st = sheaf__take_options(&o, sizeof o, options, "sheaf_model_generate_options");
    if (st == NULL)
        st = sheaf__model_check(&o);
    if (st == NULL && (o.text != NULL || o.tokens != NULL || o.image != NULL))
        st = sheaf_expected(sheaf_fail(SHEAF_E_ARG, "sheaf_model_generate_options"),
                            "neither text nor tokens nor image: the chat has them");
    if (st == NULL)
        st = sheaf__conversation_ask(&prompt, &block, &c->talk, question);
    if (st == NULL)
        st = sheaf__model_ask(&answer, c->model, &prompt, &o, NULL, NULL, c->answers);
    free(block);
    if (st == NULL)
        st = sheaf__wording_answer(&answer->text, &c->wording, answer->said.ids, answer->said.n);
    if (st == NULL)
        st = sheaf__conversation_keep(&c->talk, question, answer->text);
    if (st == NULL) {
        c->answers++;
        *out = answer;
    } else {
        sheaf_answer_free(answer);
    }
    return st;
}
