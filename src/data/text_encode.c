/* text_encode.c - see text_encode.h. */
#include "data/text_encode.h"

#include "base/base.h"
#include "data/complaints.h"
#include "data/data_rows.h"
#include "inputs/chat/stored.h"
#include "inputs/viewing.h"

/* ---- ids and their ranges of text ---- */

typedef struct ids {
    int32_t *id;
    sheaf__text_range *where;
    int64_t count, capacity;
} ids;

static void release(ids *x)
{
    free(x->id);
    free(x->where);
    *x = (ids){ 0 };
}

static sheaf_status *put(ids *x, int32_t id, size_t begin, size_t end)
{
    int64_t capacity = x->capacity;
    if (!SHEAF_GROW(&x->id, &capacity, x->count + 1) ||
        !SHEAF_GROW(&x->where, &x->capacity, x->count + 1))
        return sheaf__no_memory("data set");
    x->id[x->count] = id;
    x->where[x->count++] = (sheaf__text_range){ begin, end };
    return NULL;
}

/* A vocabulary of bytes has no special tokens in texts. */
static sheaf_status *encode_bytes(ids *out, const sheaf__text_encoder *e, const char *text,
                                  size_t size)
{
    const size_t room = size + 1;
    if (size > INT32_MAX - 2)
        return sheaf__bad_field("text", "fewer than 2^31 bytes", "%zu", size);
    out->id = malloc(room * sizeof *out->id);
    out->where = malloc(room * sizeof *out->where);
    if (out->id == NULL || out->where == NULL)
        return sheaf__no_memory("data set");
    out->capacity = (int64_t)room;
    if (e->config->bos >= 0)
        put(out, (int32_t)e->config->bos, 0, 0);
    for (size_t i = 0; i < size; i++) {
        out->id[out->count] = (unsigned char)text[i];
        out->where[out->count++] = (sheaf__text_range){ i, i + 1 };
    }
    return NULL;
}

static sheaf_status *encode(ids *out, const sheaf__text_encoder *e, const char *text, size_t size,
                            const sheaf__encode_options *how)
{
    *out = (ids){ 0 };
    if (e->tokenizer == NULL)
        return encode_bytes(out, e, text, size);
    sheaf_status *st =
        sheaf__tokenizer_encode(&out->id, &out->where, &out->count, e->tokenizer, text, size, how);
    out->capacity = out->count;
    return st;
}

/* ---- labels ---- */

/* [*first, *end): the ids with a byte in [begin, stop). `from`: first candidate. */
static void across(int64_t *first, int64_t *end, const ids *x, size_t begin, size_t stop,
                   int64_t from)
{
    int64_t i = from;
    while (i < x->count && (x->where[i].end <= begin || x->where[i].begin == x->where[i].end))
        i++;
    *first = i;
    *end = i;
    for (; i < x->count && x->where[i].begin < stop; i++)
        if (x->where[i].end > begin && x->where[i].begin < x->where[i].end)
            *end = i + 1;
}

static sheaf_status *give(sheaf__text_row *out, ids *x)
{
    if (out->trained == NULL && (out->trained = calloc((size_t)x->count + 1, 1)) == NULL)
        return sheaf__no_memory("data set");
    out->id = x->id;
    out->count = x->count;
    x->id = NULL;
    return NULL;
}

/* ---- conversations ---- */

/* No fault of the record: it ends the reading. */
static sheaf_status *no_template(const sheaf__text_encoder *e, const sheaf__text_record *record)
{
    sheaf_status *st =
        sheaf_fail(SHEAF_E_ARG, "a conversation ('%s')", sheaf__text_form_name(record->form));
    sheaf_expected(st, "a chat template");
    sheaf_found(st, e->tokenizer == NULL ? "none: the vocabulary of this model is bytes"
                                         : "none: the model's tokenizer stores none");
    return sheaf__chat_template_advise(st, e->tokenizer);
}

static sheaf_status *render(sheaf__rendered *out, const sheaf__text_encoder *e,
                            const sheaf__text_record *record)
{
    sheaf__message *message = malloc((size_t)record->messages * sizeof *message);
    if (message == NULL)
        return sheaf__no_memory("data set");
    sheaf__text_chat_messages(message, record);
    for (int64_t i = 0; i < record->messages; i++)
        message[i].unlearnt = !record->message[i].trained ||
                              (e->loss_on == SHEAF_LOSS_LAST && i + 1 < record->messages);
    sheaf_status *st =
        sheaf__chat_render(out, e->chat, message, record->messages,
                           &(sheaf__chat_options){ .answers = e->loss_on != SHEAF_LOSS_ALL,
                                                   .tools = record->tools,
                                                   .kwargs = record->kwargs,
                                                   .bos = e->bos,
                                                   .eos = e->eos });
    free(message);
    return st;
}

/* The first special token in `range` of `text`, where it is encoded as text. */
static const char *written(const sheaf__text_encoder *e, const char *text, sheaf__text_range range)
{
    return e->specials || e->tokenizer == NULL
               ? NULL
               : sheaf__tokenizer_written(e->tokenizer, text + range.begin,
                                          range.end - range.begin);
}

static sheaf_status *encode_rendered(ids *out, const char **spelled, const sheaf__text_encoder *e,
                                     const sheaf__rendered *text)
{
    sheaf__text_range *plain = malloc(((size_t)text->spans + 1) * sizeof *plain);
    int64_t n = 0;
    if (plain == NULL)
        return sheaf__no_memory("data set");
    for (int64_t i = 0; i < text->spans && !e->specials; i++)
        if (text->span[i].kind == SHEAF_SPAN_CONTENT && text->span[i].begin < text->span[i].end)
            plain[n++] = (sheaf__text_range){ text->span[i].begin, text->span[i].end };
    sheaf_status *st = encode(out, e, text->text, text->size,
                              &(sheaf__encode_options){ .plain_range = plain, .plain_ranges = n });
    for (int64_t i = 0; i < n && *spelled == NULL; i++)
        *spelled = written(e, text->text, plain[i]);
    free(plain);
    return st;
}

/* An answer whose end the template does not write ends with eos: the label in the place of what
 * follows, which stays as it is for the next messages; at the end of the text, a token. */
static sheaf_status *learn_answers(sheaf__text_row *row, const sheaf__text_encoder *e, ids *x,
                                   const sheaf__rendered *text)
{
    int64_t from = 0;
    row->trained = calloc((size_t)x->count + 2, 1);
    sheaf_status *st = row->trained == NULL ? sheaf__no_memory("data set") : NULL;
    for (int64_t i = 0; i < text->spans && st == NULL; i++) {
        const sheaf_span *span = &text->span[i];
        int64_t first, end;
        if (span->kind != SHEAF_SPAN_ANSWER)
            continue;
        across(&first, &end, x, span->begin, span->end, from);
        from = first;
        memset(row->trained + first, 1, (size_t)(end - first));
        if (first == end || e->eos_id < 0 || !sheaf__chat_is_open(e->chat, text, i))
            continue;
        row->trained[end] = end == x->count || x->id[end] == e->eos_id ? 1 : SHEAF__END_HERE;
        if (end == x->count)
            st = put(x, e->eos_id, text->size, text->size);
    }
    return st;
}

/* So is what stands behind the first answer. */
static void learn_behind(sheaf__text_row *row, int64_t count)
{
    const uint8_t *first = memchr(row->trained, 1, (size_t)count);
    for (int64_t i = first == NULL ? count : first - row->trained; i < count; i++)
        row->trained[i] += row->trained[i] == 0;
}

/* All of a conversation is learnt, and the end of its last answer. */
static sheaf_status *learn_all(sheaf__text_row *row, const sheaf__text_encoder *e, ids *x,
                               const sheaf__text_record *record)
{
    const bool open = e->eos_id >= 0 && sheaf__chat_template_stop(e->chat, e->eos) == NULL &&
                      strcmp(record->message[record->messages - 1].role, "assistant") == 0;
    sheaf_status *st = open ? put(x, e->eos_id, 0, 0) : NULL;
    row->trained = malloc((size_t)x->count + 1);
    if (row->trained == NULL && st == NULL)
        st = sheaf__no_memory("data set");
    if (row->trained != NULL)
        memset(row->trained, 1, (size_t)x->count);
    return st;
}

static sheaf_status *encode_conversation(sheaf__text_row *out, const sheaf__text_encoder *e,
                                         const sheaf__text_record *record)
{
    sheaf__rendered text = { 0 };
    ids x = { 0 };
    if (e->chat == NULL)
        return no_template(e, record);
    sheaf_status *st = render(&text, e, record);
    TRY(st, encode_rendered(&x, &out->written, e, &text));
    TRY(st, e->loss_on == SHEAF_LOSS_ALL ? learn_all(out, e, &x, record)
                                         : learn_answers(out, e, &x, &text));
    if (st == NULL && e->loss_on == SHEAF_LOSS_BEHIND)
        learn_behind(out, x.count);
    TRY(st, give(out, &x));
    out->left_out = st == NULL ? text.left_out : 0;
    sheaf__rendered_release(&text);
    release(&x);
    return st;
}

/* ---- prompt and completion, text ---- */

static sheaf_status *joined(char **out, size_t *size, const sheaf__text_record *r)
{
    *size = r->prompt_size + r->text_size;
    *out = malloc(*size + 1);
    if (*out == NULL)
        return sheaf__no_memory("data set");
    if (r->prompt_size > 0)
        memcpy(*out, r->prompt, r->prompt_size);
    memcpy(*out + r->prompt_size, r->text, r->text_size);
    return NULL;
}

void sheaf__text_leave_second(int32_t *id, sheaf__text_range *where, int64_t *n)
{
    if (*n < 2 || id[0] != id[1] || where[0].begin < where[0].end || where[1].begin == where[1].end)
        return;
    *n -= 1;
    const size_t rest = (size_t)*n;
    memmove(id, id + 1, rest * sizeof *id);
    memmove(where, where + 1, rest * sizeof *where);
}

static sheaf_status *encode_text(sheaf__text_row *out, const sheaf__text_encoder *e,
                                 const sheaf__text_record *record)
{
    char *text = NULL;
    size_t size = 0;
    ids x = { 0 };
    int64_t first = 0, end;
    sheaf_status *st = joined(&text, &size, record);
    TRY(st, encode(&x, e, text, size,
                   &(sheaf__encode_options){ .add_special = true, .plain = !e->specials }));
    if (st == NULL && e->specials)
        sheaf__text_leave_second(x.id, x.where, &x.count);
    if (st == NULL && record->prompt != NULL && e->loss_on != SHEAF_LOSS_ALL)
        across(&first, &end, &x, record->prompt_size, size, 0);
    if (st == NULL && e->eos_id >= 0 && (x.count == 0 || x.id[x.count - 1] != e->eos_id))
        st = put(&x, e->eos_id, size, size);
    TRY(st, give(out, &x));
    if (st == NULL) {
        memset(out->trained + first, 1, (size_t)(out->count - first));
        out->written = written(e, text, (sheaf__text_range){ 0, size });
    }
    free(text);
    release(&x);
    return st;
}

sheaf_status *sheaf__text_encode(sheaf__text_row *out, const sheaf__text_encoder *encoder,
                                 const sheaf__text_record *record)
{
    *out = (sheaf__text_row){ 0 };
    sheaf_status *st = record->messages > 0 ? encode_conversation(out, encoder, record)
                                            : encode_text(out, encoder, record);
    /* the first token is never predicted */
    if (st == NULL &&
        (out->count < 2 || memchr(out->trained + 1, 1, (size_t)out->count - 1) == NULL))
        st = sheaf__text_nothing_learned(record, encoder->loss_on == SHEAF_LOSS_LAST);
    if (st != NULL)
        sheaf__text_row_release(out);
    return st;
}

void sheaf__text_row_release(sheaf__text_row *row)
{
    for (int64_t i = 0; i < row->pictures; i++)
        sheaf__viewed_release(&row->picture[i]);
    free(row->picture);
    free(row->id);
    free(row->trained);
    free(row->label);
    free(row->place);
    *row = (sheaf__text_row){ 0 };
}
