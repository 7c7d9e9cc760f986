/* data_rollouts.c - data sets that a run makes itself: the prompts that it answers, and the
 * completions of a step. */
#include "base/base.h"
#include "base/hash.h"
#include "base/json.h"
#include "data/data_images.h"
#include "data/rollout.h"

static sheaf_status *new_data(sheaf_data **out, const sheaf_config *config)
{
    *out = calloc(1, sizeof **out);
    if (*out == NULL)
        return sheaf__no_memory("completions");
    (*out)->vocab = config->vocab;
    (*out)->pad = config->pad >= 0 && config->pad < config->vocab ? config->pad : 0;
    return NULL;
}

/* Closes it after a failure. */
static sheaf_status *finish(sheaf_data **out, const sheaf_config *config, sheaf_status *st)
{
    TRY(st, sheaf__data_count(*out, true));
    if (st == NULL)
        (*out)->seq = (*out)->longest;
    TRY(st, sheaf__data_images_check(*out, config));
    TRY(st, sheaf__data_hash(*out));
    if (st != NULL) {
        sheaf_data_close(*out);
        *out = NULL;
    }
    return st;
}

/* Of the data's own hash and the answers and judges that there are. */
static sheaf_status *hash_answers(sheaf_data *data, const sheaf_data_prompt *prompt,
                                  const char *judges)
{
    sheaf_hasher *hasher = sheaf__hasher_new();
    bool any = judges != NULL;
    if (hasher == NULL)
        return sheaf__no_memory("prompts");
    sheaf__hasher_add(hasher, data->hash, sizeof data->hash);
    if (judges != NULL)
        sheaf__hasher_add(hasher, judges, strlen(judges));
    for (int64_t i = 0; i < data->rows; i++) {
        if (prompt[i].answer == NULL)
            continue;
        any = true;
        sheaf__hasher_add(hasher, &i, sizeof i);
        sheaf__hasher_add(hasher, prompt[i].answer, strlen(prompt[i].answer) + 1);
    }
    if (any)
        sheaf__hash_text(data->hash, sheaf__hasher_end(hasher));
    sheaf__hasher_free(hasher);
    return NULL;
}

/* ---- prompts ---- */

/* Pictures of prompts. */
typedef struct seen {
    sheaf_data_pictures from;
    int64_t *first;          /* [rows + 1] pictures of a row in `picture` */
    sheaf__picture *picture; /* without pixels; NULL: all of the towers' own sizes */
    const sheaf__data_images *images;
} seen;

static sheaf__picture seen_at(const void *self, int64_t row, int64_t i)
{
    const seen *s = self;
    return s->picture[s->first[row] + i];
}

static sheaf_status *seen_load(void *self, int64_t row, const sheaf__picture *picture)
{
    const seen *s = self;
    return s->from.load(s->from.self, row, picture, sheaf__data_images_of(s->images, row));
}

static void seen_close(void *self)
{
    seen *s = self;
    free(s->first);
    free(s->picture);
    free(s);
}

static sheaf_status *keep_pictures(sheaf_data *data, const sheaf_data_prompt *prompt,
                                   const sheaf_data_pictures *from)
{
    sheaf__data_images *images = data->images;
    int64_t all = 0;
    seen *s = images == NULL || from == NULL ? NULL : calloc(1, sizeof *s);
    if (images == NULL)
        return NULL;
    sheaf_status *st = sheaf__data_images_rows_new(data);
    if (st != NULL || from == NULL)
        return st;
    for (int64_t r = 0; r < data->rows; r++)
        all += prompt[r].picture == NULL ? 0 : prompt[r].pictures;
    if (s != NULL) {
        *s = (seen){ .from = *from,
                     .first = calloc((size_t)data->rows + 1, sizeof *s->first),
                     .picture = all == 0 ? NULL : malloc((size_t)all * sizeof *s->picture),
                     .images = images };
        images->self = s;
        images->close = seen_close;
        images->load = seen_load;
        images->at = all == 0 ? NULL : seen_at;
    }
    if (s == NULL || s->first == NULL || (all > 0 && s->picture == NULL))
        return sheaf__no_memory("prompts");
    for (int64_t r = 0; r < data->rows; r++) {
        const int64_t n = prompt[r].picture == NULL ? 0 : prompt[r].pictures;
        if (n > 0)
            memcpy(s->picture + s->first[r], prompt[r].picture, (size_t)n * sizeof *s->picture);
        s->first[r + 1] = images->first[r + 1] = s->first[r] + n;
        images->hash[r] = prompt[r].hash;
    }
    images->memory = all * (int64_t)sizeof *s->picture + data->rows * (int64_t)sizeof *s->first;
    return NULL;
}

/* The marks of n positions: those there are, and none behind them. */
static void put_marks(uint8_t *to, const uint8_t *marks, int64_t marked, int64_t n)
{
    if (marks != NULL)
        memcpy(to, marks, (size_t)marked);
    else
        marked = 0;
    memset(to + marked, 0, (size_t)(n - marked));
}

static void put_positions(int32_t *to, const int32_t *position, int64_t known, int64_t n)
{
    for (int64_t t = 0; t < n; t++)
        to[t] = position != NULL && t < known ? position[t] : t == 0 ? 0 : to[t - 1] + 1;
}

static sheaf_status *put_prompt(sheaf_data *data, const sheaf_data_prompt *prompt, bool placed)
{
    const int64_t n = prompt->n, at = data->tokens;
    sheaf_status *st =
        sheaf__data_reserve(data, n, SHEAF__WITH_TRAINED | (placed ? SHEAF__WITH_POSITION : 0));
    if (st != NULL)
        return st;
    memcpy(data->token + at, prompt->ids, (size_t)n * sizeof *prompt->ids);
    memset(data->trained + at, 0, (size_t)n);
    if (placed)
        put_positions(data->position + at, prompt->position, n, n);
    if (data->images != NULL) {
        put_marks(data->images->embed + at, prompt->embed, n, n);
        put_marks(data->images->expert + at, prompt->expert, n, n);
    }
    data->tokens += n;
    data->begin[++data->rows] = data->tokens;
    return NULL;
}

sheaf_status *sheaf_data_prompts(sheaf_data **out, const sheaf_config *config,
                                 const sheaf_data_prompt *prompt, int64_t rows, const char *judges,
                                 const sheaf_data_pictures *pictures)
{
    bool placed = false;
    sheaf_status *st = new_data(out, config);
    TRY(st, sheaf__data_images_new(&(*out)->images, config));
    if (st == NULL)
        (*out)->repeats = true;
    for (int64_t i = 0; i < rows; i++)
        placed = placed || prompt[i].position != NULL;
    for (int64_t i = 0; i < rows && st == NULL; i++)
        st = put_prompt(*out, &prompt[i], placed);
    TRY(st, keep_pictures(*out, prompt, pictures));
    st = finish(out, config, st);
    if (st == NULL && (st = hash_answers(*out, prompt, judges)) != NULL) {
        sheaf_data_close(*out);
        *out = NULL;
    }
    return st;
}

/* ---- their completions ---- */

/* Pictures of completions: those of their prompts. */
typedef struct borrowed {
    const sheaf__data_images *from;
    int64_t *row; /* [rows] of the prompts */
} borrowed;

static sheaf__picture borrowed_at(const void *self, int64_t row, int64_t i)
{
    const borrowed *b = self;
    return b->from->at(b->from->self, b->row[row], i);
}

static sheaf_status *borrowed_load(void *self, int64_t row, const sheaf__picture *picture)
{
    const borrowed *b = self;
    return b->from->load(b->from->self, b->row[row], picture);
}

static void borrowed_close(void *self)
{
    borrowed *b = self;
    free(b->row);
    free(b);
}

static sheaf_status *borrow_pictures(sheaf_data *data, const sheaf_data *prompts,
                                     const int64_t *prompt, int64_t each)
{
    sheaf__data_images *images = data->images;
    const sheaf__data_images *from = prompts->images;
    borrowed *b = calloc(1, sizeof *b);
    if (b == NULL || (b->row = calloc((size_t)data->rows + 1, sizeof *b->row)) == NULL) {
        free(b);
        return sheaf__no_memory("completions");
    }
    b->from = from;
    images->self = b;
    images->close = borrowed_close;
    images->load = borrowed_load;
    images->at = from->at == NULL ? NULL : borrowed_at;
    sheaf_status *st = sheaf__data_images_rows_new(data);
    for (int64_t r = 0; r < data->rows && st == NULL; r++) {
        b->row[r] = prompt[r / each];
        images->first[r + 1] = images->first[r] + sheaf__data_images_of(from, b->row[r]);
        images->hash[r] = from->hash[b->row[r]];
    }
    return st;
}

/* Positions and pictures of each row are those of its prompt, as far as that goes. */
static sheaf_status *see_prompts(sheaf_data *data, const sheaf_data *prompts, const int64_t *prompt,
                                 int64_t each)
{
    if (prompts->position != NULL)
        data->position = malloc(((size_t)data->tokens + 1) * sizeof *data->position);
    if (prompts->position != NULL && data->position == NULL)
        return sheaf__no_memory("completions");
    for (int64_t r = 0; r < data->rows; r++) {
        const int64_t p = prompt[r / each], at = data->begin[r], from = prompts->begin[p],
                      n = sheaf__data_row_length(data, r),
                      known = sheaf__data_row_length(prompts, p);
        if (n <= known || memcmp(data->token + at, prompts->token + from,
                                 (size_t)known * sizeof *data->token) != 0)
            return sheaf_try_this(
                sheaf_expected(sheaf_fail(SHEAF_E_DATA, "completion %" PRId64 " of a batch", r + 1),
                               "a completion of prompt %" PRId64 " of the data", p + 1),
                "take its line out, with all behind it: they are made again");
        if (data->position != NULL)
            put_positions(data->position + at, prompts->position + from, known, n);
        if (data->images != NULL) {
            put_marks(data->images->embed + at, prompts->images->embed + from, known, n);
            put_marks(data->images->expert + at, prompts->images->expert + from, known, n);
        }
    }
    return data->images == NULL ? NULL : borrow_pictures(data, prompts, prompt, each);
}

sheaf_status *sheaf_data_rollouts(sheaf_data **out, const sheaf_config *config, const char *text,
                                  size_t size, const sheaf_data *prompts, const int64_t *prompt,
                                  int64_t count, int64_t each)
{
    const sheaf__text_encoder encoder = { .config = config, .eos_id = -1 };
    const sheaf_data_options options = { .config = config };
    sheaf__text_counts counts = { .limit = INT64_MAX };
    sheaf_status *st = new_data(out, config);
    TRY(st, sheaf__data_images_new(&(*out)->images, config));
    sheaf__row_writer writer = { .data = *out };
    for (const char *at = text, *stop; at < text + size && st == NULL; at = stop + 1) {
        json_t *line = NULL;
        sheaf__text_record record = { 0 };
        sheaf__rollouts of = { 0 };
        stop = memchr(at, '\n', (size_t)(text + size - at));
        if (stop == NULL)
            break;
        st = sheaf__json_parse_line(&line, at, (size_t)(stop - at));
        TRY(st, sheaf__rollouts_read(&of, &record, line, &encoder));
        TRY(st, sheaf__rollouts_put(&of, &writer, &counts, &options, 0));
        sheaf__rollouts_release(&of);
        sheaf__text_record_release(&record);
        json_decref(line);
    }
    if (st == NULL && (*out)->rows != count * each)
        st = sheaf_try_this(
            sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_DATA, "completions"),
                                       "a completion on each line of its batch, %" PRId64,
                                       count * each),
                        "%" PRId64, (*out)->rows),
            "take the line out, with all behind it: they are made again");
    TRY(st, see_prompts(*out, prompts, prompt, each));
    return finish(out, config, st);
}

/* The record of a completion; its messages are in room[of->messages + 1]. */
static sheaf__text_record record_of(sheaf__text_message *room, const sheaf__to_score *of)
{
    const size_t size = strlen(of->completion);
    if (of->messages == 0)
        return (sheaf__text_record){ .form = SHEAF__FORM_PROMPT,
                                     .prompt = of->prompt,
                                     .prompt_size = strlen(of->prompt),
                                     .text = of->completion,
                                     .text_size = size };
    for (int64_t i = 0; i < of->messages; i++)
        room[i] = (sheaf__text_message){ .role = of->message[i].role,
                                         .content = of->message[i].content,
                                         .size = of->message[i].size,
                                         .json = of->message[i].json };
    room[of->messages] = (sheaf__text_message){ "assistant", of->completion, size, true, NULL };
    return (sheaf__text_record){ .form = SHEAF__FORM_MESSAGES,
                                 .message = room,
                                 .messages = of->messages + 1 };
}

sheaf_status *sheaf__data_to_score(sheaf_data **out, const sheaf__text_encoder *encoder,
                                   const sheaf__to_score *of, int64_t n)
{
    const sheaf_data_options options = { .config = encoder->config };
    sheaf__text_counts counts = { .limit = INT64_MAX };
    sheaf_status *st = new_data(out, encoder->config);
    sheaf__row_writer writer = { .data = *out };
    if (st == NULL) {
        (*out)->scores = true;
        (*out)->ignored = encoder->config->pad;
    }
    for (int64_t i = 0; i < n && st == NULL; i++) {
        sheaf__text_message *room = malloc((size_t)(of[i].messages + 1) * sizeof *room);
        sheaf__text_row row = { 0 };
        st = room == NULL ? sheaf__no_memory("completions") : NULL;
        if (st == NULL) {
            const sheaf__text_record record = record_of(room, &of[i]);
            st = sheaf__text_encode(&row, encoder, &record);
        }
        TRY(st, sheaf__row_writer_put(&writer, &counts, &options, &row, 1, 0));
        sheaf__text_row_release(&row);
        free(room);
    }
    return finish(out, encoder->config, st);
}
