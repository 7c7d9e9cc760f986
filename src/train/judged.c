/* judged.c - see judged.h. */
#include "train/judged.h"

#include <math.h>

#include "base/base.h"
#include "base/file.h"

bool sheaf__judged_add(sheaf__judged *j, int64_t step, double loss, double min_delta)
{
    const bool better = isfinite(loss) && (j->best == 0 || loss < j->best_loss),
               clearly = better && (j->best == 0 || j->best_loss - loss > min_delta);
    j->last = step;
    j->worse = clearly ? 0 : j->worse + 1;
    if (better) {
        j->best = step;
        j->best_loss = loss;
    }
    return better;
}

void sheaf__judged_text(sheaf_text *text, const sheaf__judged *j)
{
    sheaf__text_add(text,
                    "{\"last\": %" PRId64 ", \"best\": %" PRId64 ", \"best_loss\": %.17g, "
                    "\"worse\": %" PRId64 "}",
                    j->last, j->best, j->best_loss, j->worse);
}

void sheaf__judged_read(sheaf__judged *out, const json_t *object)
{
    *out = (sheaf__judged){ .last = json_integer_value(json_object_get(object, "last")),
                            .best = json_integer_value(json_object_get(object, "best")),
                            .best_loss = json_number_value(json_object_get(object, "best_loss")),
                            .worse = json_integer_value(json_object_get(object, "worse")) };
}

sheaf_status *sheaf__judged_write(const sheaf__judged *j, const char *out)
{
    char *path = NULL;
    sheaf_text text = { 0 };
    sheaf__text_add(&text,
                    "{\"step\": %" PRId64 ", \"eval_loss\": %.17g, "
                    "\"checkpoint\": \"checkpoints/step-%08" PRId64 "\"}\n",
                    j->best, j->best_loss, j->best);
    sheaf_status *st = sheaf__path_join(&path, out, "best.json");
    if (st == NULL && text.failed)
        st = sheaf__no_memory(path);
    if (st == NULL && j->best == 0)
        remove(path); /* of steps that will be done again */
    else if (st == NULL)
        st = sheaf__file_write_whole(path, text.at, text.size);
    sheaf__text_release(&text);
    free(path);
    return st;
}
