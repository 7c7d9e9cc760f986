/* 06_generate.c - tokens that continue a prompt.
 *
 *   06_generate MODEL TEXT
 *   06_generate MODEL ID ID...
 *
 * MODEL may also be the OUT of a training run. The most probable token is taken each time. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include <sheaf/sheaf.h>

enum { MOST = 256 };

static int print_answer(sheaf_answer *answer)
{
    int64_t n = 0;
    const int32_t *tokens = sheaf_answer_tokens(answer, &n);
    for (int64_t i = 0; i < n; i++)
        printf("%s%" PRId32, i == 0 ? "tokens: " : " ", tokens[i]);
    printf("\n");
    if (sheaf_answer_text(answer) != NULL)
        printf("text: %s\n", sheaf_answer_text(answer));
    sheaf_answer_free(answer);
    return 0;
}

int main(int argc, char **argv)
{
    int32_t ids[MOST];
    if (argc < 3 || argc - 2 > MOST) {
        fprintf(stderr, "usage: 06_generate MODEL TEXT, or MODEL ID ID...\n");
        return 2;
    }
    sheaf_model_open_options open;
    SHEAF_INIT(&open);
    open.model = argv[1];
    open.tp = 2; /* ranks; one of them, or eight, would say the same */
    sheaf_model *model = NULL;
    sheaf_answer *answer = NULL;
    sheaf_model_generate_options how;
    SHEAF_INIT(&how);
    how.max_new = 12;
    for (int i = 2; i < argc && argc > 3; i++)
        ids[how.ntokens++] = (int32_t)strtol(argv[i], NULL, 10);
    if (argc > 3)
        how.tokens = ids;
    else
        how.text = argv[2];
    sheaf_status *st = sheaf_model_open(&model, &open);
    if (st == NULL)
        st = sheaf_model_generate(&answer, model, &how);
    sheaf_model_close(model);
    if (st == NULL)
        return print_answer(answer);
    sheaf_status_print(st, stderr);
    sheaf_status_free(st);
    return 3;
}
