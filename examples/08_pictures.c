/* 08_pictures.c - a question about several pictures, or a conversation about them.
 *
 *   08_pictures MODEL QUESTION PICTURE...
 *   08_pictures MODEL '[{"role": "user", "content": "<image> or <image>?"}, ...]' PICTURE...
 *
 * MODEL reads several pictures in a prompt: an OmniLMM, a MiniCPM-V or a Qwen-VL, or the OUT of a
 * training run of one. `sheaf generate --greedy` says the same. */
#include <inttypes.h>
#include <stdio.h>

#include <sheaf/sheaf.h>

static int print_answer(sheaf_answer *answer)
{
    int64_t n = 0;
    const int32_t *tokens = sheaf_answer_tokens(answer, &n);
    for (int64_t i = 0; i < n; i++)
        printf("%s%" PRId32, i == 0 ? "tokens: " : ",", tokens[i]);
    printf("\n");
    if (sheaf_answer_text(answer) != NULL)
        printf("text: %s\n", sheaf_answer_text(answer));
    sheaf_answer_free(answer);
    return 0;
}

/* A list of messages is a prompt of its own; a question goes with the options. */
static sheaf_status *ask(sheaf_answer **out, sheaf_model *model, const char *question,
                         const char *const *pictures, int64_t n)
{
    sheaf_model_generate_options how;
    sheaf_model_prompt talk;
    SHEAF_INIT(&how);
    SHEAF_INIT(&talk);
    how.max_new = 12;
    if (question[0] == '[') {
        talk.messages = question;
        talk.images = pictures;
        talk.nimages = n;
        return sheaf_model_generate_all(out, model, &talk, 1, &how);
    }
    how.text = question;
    how.images = pictures;
    how.nimages = n;
    return sheaf_model_generate(out, model, &how);
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: 08_pictures MODEL QUESTION PICTURE...\n");
        return 2;
    }
    sheaf_model_open_options open;
    SHEAF_INIT(&open);
    open.model = argv[1];
    sheaf_model *model = NULL;
    sheaf_answer *answer = NULL;
    sheaf_status *st = sheaf_model_open(&model, &open);
    if (st == NULL)
        st = ask(&answer, model, argv[2], (const char *const *)argv + 3, argc - 3);
    sheaf_model_close(model);
    if (st == NULL)
        return print_answer(answer);
    sheaf_status_print(st, stderr);
    sheaf_status_free(st);
    return 3;
}
