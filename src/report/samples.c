/* samples.c - see samples.h. */
#include "report/samples.h"

#include <math.h>

static void release(sheaf__sample *sample)
{
    free(sample->prompt);
    free(sample->text);
    *sample = (sheaf__sample){ 0 };
}

void sheaf__samples_release(sheaf__samples *samples)
{
    release(&samples->best);
    release(&samples->worst);
    release(&samples->newest);
    for (int i = 0; i < samples->kept; i++)
        release(&samples->over[i]);
    *samples = (sheaf__samples){ 0 };
}

/* The beginning of a text, whole characters of it; NULL: no text. */
static char *text_of(const json_t *line, const char *key)
{
    const char *text = json_string_value(json_object_get(line, key));
    sheaf_text own = { 0 };
    if (text == NULL)
        return NULL;
    size_t size = strlen(text), n = size < SHEAF__SAMPLE_TEXT ? size : SHEAF__SAMPLE_TEXT;
    while (n < size && ((unsigned char)text[n] & 0xC0) == 0x80)
        n--;
    sheaf__text_bytes(&own, text, n);
    sheaf__text_add(&own, "%s", n < size ? "\u2026" : "");
    return own.at;
}

static sheaf_status *take(sheaf__sample *to, const json_t *line, int64_t step)
{
    const json_t *reward = json_object_get(line, "reward");
    release(to);
    *to = (sheaf__sample){ .step = step,
                           .reward = json_is_number(reward) ? json_number_value(reward) : NAN,
                           .truncated = json_is_true(json_object_get(line, "truncated")),
                           .prompt = text_of(line, "prompt"),
                           .text = text_of(line, "text") };
    return to->text == NULL ? sheaf__no_memory("samples") : NULL;
}

/* The first completion of a batch. */
static sheaf_status *add_batch(sheaf__samples *s, const json_t *line, int64_t step)
{
    s->step = step;
    sheaf_status *st = take(&s->newest, line, step);
    if (st != NULL || s->batches++ % s->every != 0)
        return st;
    if (s->kept == SHEAF__SAMPLES_OVER) { /* each other one stays */
        for (int i = 0; i < SHEAF__SAMPLES_OVER; i++) {
            if (i % 2 > 0)
                release(&s->over[i]);
            else if (i > 0) {
                s->over[i / 2] = s->over[i];
                s->over[i] = (sheaf__sample){ 0 };
            }
        }
        s->kept /= 2;
        s->every *= 2;
    }
    return take(&s->over[s->kept++], line, step);
}

static sheaf_status *take_line(void *self, const json_t *line, int64_t number, const char *odd)
{
    sheaf__samples *s = self;
    const json_t *reward = json_object_get(line, "reward");
    const int64_t step = json_integer_value(json_object_get(line, "step"));
    const double value = json_number_value(reward);
    sheaf_status *st = NULL;
    (void)number;
    (void)odd;
    if (step < 1 || step < s->step || !json_is_string(json_object_get(line, "text")))
        return NULL;
    if (step > s->step)
        st = add_batch(s, line, step);
    if (!json_is_number(reward))
        return st;
    if (s->best.step == 0 || value > s->best.reward)
        TRY(st, take(&s->best, line, step));
    if (s->worst.step == 0 || value < s->worst.reward)
        TRY(st, take(&s->worst, line, step));
    return st;
}

static void begin(void *self)
{
    sheaf__samples *s = self;
    sheaf__samples_release(s);
    s->every = 1;
}

sheaf_status *sheaf__samples_read(sheaf__samples *samples, const char *path)
{
    return sheaf__lines_read(&samples->at, path,
                             &(sheaf__lines_reader){ samples, begin, take_line });
}
