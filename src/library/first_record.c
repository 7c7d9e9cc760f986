/* first_record.c - see session.h. */
#include "base/base.h"
#include "library/session.h"

#include "data/data.h"
#include "infer/codec.h"

enum { SEGMENTS = 12, SAME = 8, FRONT = 64, BACK = 24 }; /* most tokens shown */

typedef struct shown {
    const sheaf__codec *codec;
    const int32_t *row; /* its tokens begin here */
    sheaf_text text;
    int segments;
} shown;

/* Line feeds would end the note. */
static void put_text(sheaf_text *to, const char *text)
{
    for (size_t n; *text != '\0'; text += n + (text[n] != '\0')) {
        n = strcspn(text, "\n");
        sheaf__text_bytes(to, text, n);
        if (text[n] != '\0')
            sheaf__text_add(to, "\\n");
    }
}

static sheaf_status *decode(char **out, const sheaf__codec *w, const int32_t *ids, int64_t n)
{
    return w->tokenizer != NULL ? sheaf__tokenizer_decode(out, NULL, w->tokenizer, ids, n, false)
                                : sheaf__codec_decode(out, w, ids, n);
}

/* Ids beyond the bytes have no text. */
static bool has_text(const sheaf__codec *w, int32_t id)
{
    return w->tokenizer != NULL || (w->config->byte_vocab && id < 256);
}

/* NULL: none, or it cannot be read. */
static char *text_of(const shown *s, const int32_t *ids, int64_t n)
{
    char *text = NULL;
    if (ids[0] >= 0 && has_text(s->codec, ids[0]))
        sheaf_status_free(decode(&text, s->codec, ids, n));
    return text;
}

/* Decoded after the previous token, as decoders drop a leading blank (Llama 2's). */
static void put_run(shown *s, const int32_t *ids, int64_t n)
{
    if (n == 0)
        return;
    char *before = ids > s->row ? text_of(s, ids - 1, 1) : NULL,
         *text = before == NULL ? NULL : text_of(s, ids - 1, n + 1);
    size_t skip = text == NULL ? 0 : strlen(before);
    if (text == NULL || strncmp(text, before, skip) != 0) {
        free(text);
        text = text_of(s, ids, n);
        skip = 0;
    }
    for (int64_t i = 0; i < n && text == NULL; i++)
        sheaf__text_add(&s->text, "<%d>", (int)ids[i]);
    if (text != NULL)
        put_text(&s->text, text + skip);
    free(before);
    free(text);
}

/* Repeated tokens, as in the places of a picture, are counted. */
static void put_ids(shown *s, const int32_t *ids, int64_t n)
{
    int64_t begin = 0, end;
    for (int64_t i = 0; i < n; i = end) {
        for (end = i + 1; end < n && ids[end] == ids[i];)
            end++;
        if (end - i < SAME &&
            (i == 0 || has_text(s->codec, ids[i]) == has_text(s->codec, ids[i - 1])))
            continue;
        put_run(s, ids + begin, i - begin);
        begin = i;
        if (end - i >= SAME) {
            put_run(s, ids + i, 1);
            sheaf__text_add(&s->text, "(x%lld)", (long long)(end - i));
            begin = end;
        }
    }
    put_run(s, ids + begin, n - begin);
}

static void put_segment(shown *s, const int32_t *ids, int64_t n, bool learnt)
{
    if (n == 0 || s->segments > SEGMENTS)
        return;
    if (s->segments++ == SEGMENTS) {
        sheaf__text_add(&s->text, " ...");
        return;
    }
    sheaf__text_add(&s->text, "%s", learnt ? ">>>" : "");
    if (n <= FRONT + BACK) {
        put_ids(s, ids, n);
    } else {
        put_ids(s, ids, FRONT);
        sheaf__text_add(&s->text, " ... ");
        put_ids(s, ids + n - BACK, BACK);
    }
    sheaf__text_add(&s->text, "%s", learnt ? "<<<" : "");
}

/* label[t] belongs to token t + 1; if it differs, the label is learnt. */
static void put_row(shown *s, const int32_t *token, const int32_t *label, int64_t n)
{
    int64_t begin = 0;
    bool learnt = false;
    for (int64_t t = 0; t < n; t++) {
        const bool other = t > 0 && label[t - 1] >= 0 && label[t - 1] != token[t],
                   now = t > 0 && label[t - 1] == token[t];
        if (now != learnt || other) {
            put_segment(s, token + begin, t - begin, learnt);
            begin = t;
            learnt = now;
        }
        if (other)
            put_segment(s, label + t - 1, 1, true);
    }
    put_segment(s, token + begin, n - begin, learnt);
    if (n > 0 && label[n - 1] >= 0)
        put_segment(s, label + n - 1, 1, true);
}

static sheaf_status *show(shown *s, const sheaf_data *data, int64_t row)
{
    const int64_t n = sheaf_data_used(data, &row, 1);
    int32_t *token = malloc(2 * (size_t)n * sizeof *token);
    if (token == NULL)
        return sheaf__no_memory("the first record");
    sheaf_status *st = sheaf_data_batch(
        &(sheaf_batch){ .tokens = token, .labels = token + n, .seq = n }, data, &row, 1);
    s->row = token;
    if (st == NULL)
        put_row(s, token, token + n, n);
    free(token);
    return st;
}

void sheaf__first_record_note(const sheaf__job *job, const sheaf_events *events)
{
    const sheaf_train_options *o = job->options;
    const bool given = o->tokens_in == NULL && o->tokenizer != NULL && o->tokenizer[0] != '\0';
    const char *name = sheaf_data_template(job->train.data);
    sheaf__codec codec;
    shown s = { .codec = &codec };
    sheaf_status *st = sheaf__codec_open(
        &codec, &job->schema->config,
        &(sheaf__codec_options){ .folder = o->tokens_in != NULL ? o->tokens_in : o->model,
                                 .tokenizer = given ? o->tokenizer : NULL });
    sheaf_status_free(st); /* shows ids then */
    st = show(&s, job->train.data, job->train.row == NULL ? 0 : job->train.row[0]);
    if (st == NULL && s.text.size > 0 && !s.text.failed)
        sheaf_note(events,
                   "%s%s; the first record as the model sees it, with what is learnt between >>> "
                   "and <<<: %s",
                   name == NULL ? "no prompt template" : "prompt template ",
                   name == NULL ? "" : name, s.text.at);
    sheaf_status_free(st);
    sheaf__text_release(&s.text);
    sheaf__codec_close(&codec);
}
