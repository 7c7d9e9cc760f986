/* generated.h - greedy answers of a model at some number of ranks. */
#pragma once

#include "infer/generate.h"
#include "models/team.h"
#include "tests/check.h"

enum { MOST_PROMPTS = 16, MOST_IDS = 512 };

typedef struct answers {
    const sheaf__prompt *prompt;
    int64_t count;
    sheaf__generate_options how; /* but for sampling */
    sheaf__continuation out[MOST_PROMPTS];
    int32_t ids[MOST_PROMPTS][MOST_IDS];
} answers;

static inline sheaf_status *generate_rank(void *self, sheaf__model *model)
{
    answers *a = self;
    sheaf__continuation own[MOST_PROMPTS];
    int32_t ids[MOST_PROMPTS][MOST_IDS];
    for (int i = 0; i < MOST_PROMPTS; i++)
        own[i] = (sheaf__continuation){ ids[i], 0 };
    return sheaf__generate(model->context->rank == 0 ? a->out : own, model, a->prompt, a->count,
                           &a->how);
}

/* Fills a->out, for prompts and answers in so many positions. */
static inline void answer(answers *a, const sheaf__opened *opened, int ranks, int64_t positions)
{
    const float penalty = a->how.sampling.repetition_penalty;
    assert_true(a->count <= MOST_PROMPTS && a->how.max_new <= MOST_IDS);
    a->how.sampling = (sheaf__sampling){ .greedy = true,
                                         .temperature = 1,
                                         .top_p = 1,
                                         .repetition_penalty = penalty > 0 ? penalty : 1 };
    a->how.batch = a->how.batch > 0 ? a->how.batch : MOST_PROMPTS;
    for (int i = 0; i < MOST_PROMPTS; i++)
        a->out[i] = (sheaf__continuation){ a->ids[i], 0 };
    CHECK_OK(sheaf__team_run(
        opened,
        &(sheaf__team_options){
            .ranks = ranks, .threads = 2, .dtype = SHEAF_F32, .positions = positions },
        generate_rank, a));
}
