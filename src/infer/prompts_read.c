/* prompts_read.c - sheaf__prompts_read() of prompts.h: prompts from options or files of records. */
#include "base/base.h"
#include "base/file.h"
#include "base/json.h"
#include "data/data_sets.h"
#include "data/json_items.h"
#include "data/records.h"
#include "data/record_pictures.h"
#include "data/text_rows.h"
#include "data/text_sources.h"
#include "infer/prompts.h"
#include "schema/family.h"
#include "infer/codec.h"

/* ---- the prompt of a record, in any form of data sets ---- */

/* The messages up to the one to answer, and the expected answer. */
typedef struct request {
    sheaf__message *message;   /* [n], the last one is the question; borrowed from the record */
    int64_t n, first;          /* first: of those of the record */
    const char *expected;      /* NULL: none */
    bool text;                 /* a plain prompt, the last of them, not a conversation */
    sheaf__text_record record; /* `ignored` is allowed in each form */
} request;

static bool has(const json_t *record, const char *name)
{
    return json_object_get(record, name) != NULL;
}

static bool is_list(const json_t *record)
{
    return has(record, "messages") || has(record, "conversations");
}

/* Others have tokens, or no known form. */
static bool asks(const json_t *record)
{
    return is_list(record) || has(record, "instruction") || has(record, "prompt");
}

/* A NUL would end the C string early. */
static sheaf_status *whole_text(const char *text, size_t size, const char *what)
{
    return text == NULL || strlen(text) == size
               ? NULL
               : sheaf_expected(sheaf_fail(SHEAF_E_DATA, "%s", what), "text without NUL (\\u0000)");
}

/* A final answer is the expected one, unless it is empty, which training refuses. Prompts and
 * answers are C strings. */
static sheaf_status *take_expected(request *out, const char *field)
{
    const sheaf__message *last = &out->message[out->n - 1];
    sheaf__text_piece answer = { last->content, last->size };
    if (out->n < 2 || strcmp(last->role, SHEAF__ASSISTANT) != 0)
        return NULL;
    sheaf__utf8_strip(&answer.at, &answer.size);
    out->expected = answer.size == 0 ? NULL : last->content;
    out->n--;
    return whole_text(last->content, last->size, field);
}

static bool is_system(const char *role)
{
    return strcmp(role, SHEAF__SYSTEM) == 0 || strcmp(role, SHEAF__DEVELOPER) == 0;
}

/* `record` and `system` (for messages without a system message) must outlive *out. Release also
 * after a failure. If a record has several forms, the first counts, as in training; tokens beside
 * them are ambiguous. `whole`: an answer at the end is not the expected one. */
static sheaf_status *read_request(request *out, json_t *record, const char *system,
                                  const sheaf__codec *w, bool whole)
{
    const sheaf__picture_parts pictures =
        sheaf__picture_parts_of(w->placed ? &w->chat_encoder.form : NULL);
    const sheaf__text_record *r = &out->record;
    *out = (request){ 0 };
    if (has(record, "tokens") && asks(record))
        return sheaf_try_this(
            sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_DATA, "field 'tokens'"),
                                       "a prompt as text or as tokens, one of the two"),
                        "both in one record"),
            "take one of them out: only one can be answered");
    sheaf_status *st = is_list(record)
                           ? sheaf__text_record_list(&out->record, record, pictures, whole)
                           : sheaf__text_record_prompt(&out->record, record, pictures);
    if (st == NULL && r->tools != NULL && !whole)
        st = sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "'tools'"),
                            "no tools: prompts have none");
    if (st == NULL &&
        (out->message = malloc((size_t)(r->messages + 2) * sizeof *out->message)) == NULL)
        st = sheaf__no_memory("prompts");
    if (st != NULL)
        return st;
    out->text = r->messages == 0;
    if (system != NULL && (out->text || !is_system(r->message[0].role)))
        out->message[out->n++] = (sheaf__message){ SHEAF__SYSTEM, system, strlen(system) };
    out->first = out->n;
    if (!out->text) {
        sheaf__text_chat_messages(out->message + out->n, r);
        out->n += r->messages;
        for (int64_t i = 0; i < out->n; i++) /* most templates know the older name only */
            if (strcmp(out->message[i].role, SHEAF__DEVELOPER) == 0 &&
                (w->chat == NULL || !sheaf__chat_knows_role(w->chat, SHEAF__DEVELOPER)))
                out->message[i].role = SHEAF__SYSTEM;
        return whole ? NULL : take_expected(out, sheaf__text_form_name(r->form));
    }
    out->message[out->n++] = (sheaf__message){ SHEAF__USER, r->prompt, r->prompt_size };
    out->expected = r->text_size == 0 ? NULL : r->text;
    TRY(st, whole_text(r->prompt, r->prompt_size, "field 'prompt'"));
    return TRY(st, whole_text(r->text, r->text_size, "field 'completion'"));
}

static void release_request(request *r)
{
    free(r->message);
    sheaf__text_record_release(&r->record);
}

sheaf_status *sheaf__prompts_messages(sheaf__prompts *p, const sheaf__codec *w, json_t *record,
                                      bool whole, const char *system, const char *const *image,
                                      int64_t images)
{
    request a;
    sheaf_status *st = read_request(&a, record, system, w, whole);
    sheaf__codec with = *w;
    with.chat_encoder.tools = a.record.tools;
    w = &with;
    if (whole)
        TRY(st,
            sheaf__codec_open_arguments(w, json_object_get(record, "messages"), a.message, a.n));
    TRY(st, sheaf__prompts_add(p, w, a.message, a.n, false, a.expected, image, images));
    release_request(&a);
    return st;
}

/* ---- lines, in any form ---- */

/* The state of reading a file. */
typedef struct lines {
    sheaf__prompts *prompts;
    const sheaf__codec *codec;
    const sheaf_prompts_options *from;
    sheaf__json_items items;
    sheaf__complaints complaints;
    char *folder; /* pictures are relative to it */
    int64_t count;
    sheaf__ignored ignored, lost;
    sheaf__fields fields; /* of from->fields */
} lines;

static void ignore(lines *l, const char *field, const char *lost)
{
    sheaf__ignored_keep(&l->ignored, field, l->items.unit, l->items.place);
    sheaf__ignored_keep(&l->lost, lost, l->items.unit, l->items.place);
}

/* Of a message, as the record names it. */
static const char *role_of(const request *a, int64_t i)
{
    return i < a->first ? a->message[i].role : a->record.message[i - a->first].role;
}

/* Copies of the messages of a conversation, with the record's names of roles: a reward model's
 * template may know those that this one does not. */
static sheaf_status *keep_messages(sheaf__prompt_about *about, const request *a)
{
    size_t size = (size_t)a->n * sizeof *a->message;
    for (int64_t i = 0; i < a->n; i++)
        size += strlen(role_of(a, i)) + 1 + a->message[i].size;
    sheaf__message *message = about->message = malloc(size);
    if (message == NULL)
        return sheaf__no_memory("prompts");
    char *at = (char *)(message + a->n);
    for (int64_t i = 0; i < a->n; i++) {
        message[i] = a->message[i];
        message[i].role = strcpy(at, role_of(a, i));
        at += strlen(at) + 1;
        if (message[i].content != NULL)
            message[i].content = memcpy(at, a->message[i].content, message[i].size);
        at += message[i].size;
        json_incref((json_t *)message[i].json);
    }
    about->messages = a->n;
    return NULL;
}

/* The prompt of a record, with its pictures at their places. */
static sheaf_status *add_asked(lines *l, json_t *record)
{
    sheaf__prompts *p = l->prompts;
    const sheaf__codec *w = l->codec;
    const char *system = l->from->system;
    sheaf__viewing viewing;
    sheaf__record_pictures pictures = { 0 };
    request a = { 0 };
    char *expected = NULL;
    sheaf_status *st = NULL;
    if (w->placed) {
        sheaf__viewing_of(&viewing, w->config);
        st = sheaf__record_pictures_read(&pictures, record, l->folder, &viewing);
    }
    TRY(st, read_request(&a, record, system, w, false));
    TRY(st, sheaf__record_pictures_said(&pictures, &a.record));
    ignore(l, a.record.ignored, a.record.lost);
    TRY(st, sheaf__codec_expected(&expected, w, w->templated || !a.text, a.expected));
    if (expected != NULL)
        a.expected = expected;
    if (st == NULL && w->placed)
        st = sheaf__prompts_add_pictures(p, w, a.message, a.n, a.expected, &pictures);
    else if (st == NULL)
        st = sheaf__prompts_add(p, w, a.message, a.n, a.text, a.expected, NULL, 0);
    if (st == NULL && !a.text && w->keeps)
        st = keep_messages(&p->about[p->count - 1], &a);
    sheaf__record_pictures_release(&pictures);
    free(expected);
    release_request(&a);
    return st;
}

static sheaf_status *add_tokens(lines *l, json_t *record)
{
    static const char *const known[] = { "tokens", "completion" };
    char shown[96];
    const char *field = sheaf__record_pictures_field(record);
    const json_t *completion = json_object_get(record, "completion");
    const char *expected = json_string_value(completion);
    if (field != NULL)
        return sheaf_try_this(sheaf__bad_field(field, "no picture beside \"tokens\"", "one"),
                              "\"prompt\" or \"messages\" with the picture, or a .safetensors file "
                              "with the ids and the pictures' numbers");
    if (completion != NULL && !json_is_null(completion) && expected == NULL)
        return sheaf__bad_field("completion", "a string", "%s",
                                sheaf__json_show(shown, completion));
    sheaf_status *st = whole_text(expected, json_string_length(completion), "field 'completion'");
    ignore(l, sheaf__text_other_field(record, known, 2), NULL);
    return st == NULL
               ? sheaf__prompts_add_ids(l->prompts, json_object_get(record, "tokens"), expected)
               : st;
}

static sheaf_status *add_json(lines *l, json_t *record)
{
    if (json_is_string(record)) {
        const char *text = json_string_value(record);
        sheaf_status *st = whole_text(text, json_string_length(record), "record");
        return st == NULL
                   ? sheaf__prompts_add_text(l->prompts, l->codec, text, l->from->system, NULL, 0)
                   : st;
    }
    if (asks(record))
        return add_asked(l, record);
    if (json_is_array(json_object_get(record, "tokens")))
        return add_tokens(l, record);
    return sheaf_expected(sheaf_fail(SHEAF_E_DATA, "record"),
                          "a text, \"prompt\", \"instruction\", a list \"messages\" or "
                          "\"conversations\", or a list \"tokens\"");
}

static void add_line(lines *l)
{
    json_t *record = NULL;
    const sheaf__json_items *items = &l->items;
    sheaf_status *st = sheaf__record_parse(&record, items->text, items->size, &l->fields);
    TRY(st, add_json(l, record));
    json_decref(record);
    l->count++;
    sheaf__complain(&l->complaints, sheaf_in(st, "%s %" PRId64, items->unit, items->place));
}

/* All bad records are reported together; other failures end the reading. */
static sheaf_status *add_file(lines *l, const char *path)
{
    bool more = true;
    l->count = 0;
    sheaf_status *st = sheaf__json_items_open(&l->items, path);
    TRY(st, sheaf__path_parent(&l->folder, path));
    while (st == NULL && l->complaints.fatal == NULL &&
           (st = sheaf__json_items_next(&more, &l->items)) == NULL && more)
        add_line(l);
    TRY(st, sheaf__complaints_verdict(&l->complaints, path, l->count));
    free(l->folder);
    l->folder = NULL;
    sheaf__complaints_release(&l->complaints);
    sheaf__json_items_close(&l->items);
    return st;
}

/* A file, or the files of a folder. */
static sheaf_status *add_lines(sheaf__prompts *p, const sheaf__codec *w,
                               const sheaf_prompts_options *from)
{
    lines l = { .prompts = p,
                .codec = w,
                .from = from,
                .complaints = { .skip = from->on_bad == SHEAF_BAD_SKIP, .events = from->events } };
    sheaf__text_sources sources = { 0 };
    sheaf_status *st = sheaf__fields_read(&l.fields, from->fields);
    TRY(st, sheaf__text_sources_files(&sources, from->data));
    for (int64_t i = 0; i < sources.paths && st == NULL; i++)
        st = add_file(&l, sources.path[i]);
    sheaf__text_sources_release(&sources);
    sheaf__fields_release(&l.fields);
    if (st == NULL)
        sheaf__ignored_warn(&l.ignored, from->data, from->events);
    if (st == NULL)
        sheaf__lost_warn(&l.lost, from->data, w->config, from->events);
    return st;
}

/* ---- plain lines ---- */

/* Is it JSON Lines or an array of objects by its first bytes, in spite of the name *.txt? */
static bool holds_objects(const char *text)
{
    static const char blanks[] = " \t\r\n";
    text += strspn(text, blanks);
    if (*text == '[')
        text += 1 + strspn(text + 1, blanks);
    return *text == '{';
}

/* Each line of `text` is a prompt, unchanged; empty lines are skipped. */
static sheaf_status *add_plain(sheaf__prompts *p, const sheaf__codec *w,
                               const sheaf_prompts_options *from, char *text, const char *behind)
{
    int64_t number = 0;
    sheaf__ignored lost = { 0 };
    sheaf__complaints complaints = { .skip = from->on_bad == SHEAF_BAD_SKIP,
                                     .events = from->events };
    for (char *line = text, *end; line < behind; line = end + 1) {
        end = memchr(line, '\n', (size_t)(behind - line));
        end = end == NULL ? text + (behind - text) : end;
        size_t n = (size_t)(end - line);
        n -= n > 0 && line[n - 1] == '\r';
        number++;
        if (n == 0)
            continue;
        line[n] = '\0'; /* also after the last: file_read_all() */
        sheaf_status *bad = whole_text(line, n, "prompt");
        if (bad == NULL && !sheaf__is_utf8(line))
            bad = sheaf_expected(sheaf_fail(SHEAF_E_DATA, "prompt"), "UTF-8");
        if (bad == NULL)
            bad = sheaf__prompts_add_text(p, w, line, from->system, NULL, 0);
        if (bad == NULL && sheaf__record_pictures_spells(line))
            sheaf__ignored_keep(&lost, SHEAF__PICTURE_SPELLED, "line", number);
        sheaf__complain(&complaints, sheaf_in(bad, "line %" PRId64, number));
    }
    sheaf_status *st = sheaf__complaints_verdict(&complaints, from->data, number);
    if (st == NULL)
        sheaf__lost_warn(&lost, from->data, w->config, from->events);
    return st;
}

/* ---- of CogVLM and CogAgent ---- */

static sheaf_status *add_records(sheaf__prompts *p, const sheaf__codec *w,
                                 const sheaf_prompts_options *from)
{
    sheaf__records records = { 0 };
    sheaf__complaints complaints = { .skip = from->on_bad == SHEAF_BAD_SKIP,
                                     .events = from->events };
    sheaf_status *st = sheaf__records_read(&records, from->data,
                                           &(sheaf__records_options){ .query = from->query,
                                                                      .fields = from->fields,
                                                                      .answers_optional = true,
                                                                      .events = from->events },
                                           &complaints);
    for (int64_t i = 0; i < records.count && st == NULL && complaints.fatal == NULL; i++) {
        const sheaf__record *r = &records.record[i];
        sheaf_status *bad =
            r->image != NULL ? sheaf__prompts_picture(&(sheaf__picture){ 0 }, r->image) : NULL;
        if (r->image != NULL)
            sheaf_emit(from->events, &(sheaf_event){ .kind = SHEAF_EVENT_PROGRESS,
                                                     .text = "images checked",
                                                     .done = i + 1,
                                                     .total = records.count });
        if (bad == NULL)
            bad = sheaf__prompts_add_turns(p, w, r->turn, r->turns, r->image);
        else if (r->place == 0) { /* an image of a folder has only its path */
            sheaf__complain(&complaints, bad);
            continue;
        }
        sheaf__complain(&complaints, sheaf__record_in(bad, &records, i));
    }
    TRY(st, sheaf__complaints_verdict(&complaints, from->data, records.looked_at));
    sheaf__complaints_release(&complaints);
    sheaf__records_release(&records);
    return st;
}

/* ---- rows of .safetensors ---- */

/* Buffers for one row of a data set. */
typedef struct one_row {
    sheaf_batch batch;
    int64_t seq, begin, context; /* tokens [begin, context) are the prompt; before them padding */
    int64_t images, image_rows;  /* and the positions that they take */
    int64_t expert_rows;
} one_row;

/* All arrays are in one block, which begins with the tokens. */
static sheaf_status *make_row(one_row *r, const sheaf_data *data)
{
    const size_t n = (size_t)sheaf_data_seq(data);
    int32_t *all = malloc(n * (6 * sizeof *all + 1) + 1);
    *r = (one_row){ .seq = (int64_t)n };
    if (all == NULL)
        return sheaf_fail(SHEAF_E_MEMORY, "a row of %zu tokens", n);
    r->batch = (sheaf_batch){ .tokens = all,
                              .labels = all + n,
                              .position = all + 2 * n,
                              .image_row = all + 3 * n,
                              .stream = { all + 4 * n, all + 5 * n },
                              .mask = (uint8_t *)(all + 6 * n) };
    return NULL;
}

/* A label is the next token. Padding before the places of an image would move them. */
static sheaf_status *find_context(one_row *r)
{
    int64_t n = 0;
    while (n < r->seq && r->batch.labels[n] < 0)
        n++;
    r->begin = 0;
    r->context = n + 1;
    if (n == r->seq) /* without labels the whole row is the question */
        for (r->context = r->seq; r->context > 1 && r->batch.mask[r->context - 1] == 0;)
            r->context--;
    while (r->image_rows == 0 && r->begin < r->context - 1 && r->batch.mask[r->begin] == 0)
        r->begin++;
    for (int64_t t = r->begin; t < r->context; t++)
        if (r->batch.mask[t] == 0)
            return sheaf_found(
                sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "attention_mask"), "no padding %s",
                               r->image_rows > 0 ? "before the answer"
                                                 : "between the tokens of the prompt"),
                "0 at position %" PRId64, t + 1);
    return NULL;
}

/* How many of these images take the first `rows` positions of images. */
static int64_t images_in(const sheaf_config *config, const sheaf__picture *picture, int64_t n,
                         int64_t rows)
{
    int64_t k = 0;
    for (; k < n && (rows > 0 || picture[k].joins); k++) {
        const sheaf__picture_counts one = sheaf__counts_of(&picture[k], 1, config);
        if (!picture[k].joins)
            rows -= sheaf__counts_positions(config, &one);
    }
    return k;
}

/* Allocates the prompt's ids, position, embed, expert and the sizes of its images in one block. */
static sheaf_status *copy_context(sheaf__prompt *out, void **block, const one_row *r,
                                  const sheaf_config *config, const sheaf_data *data, int64_t row)
{
    const size_t n = (size_t)(r->context - r->begin);
    int64_t rows = 0; /* positions of images before the answer */
    while (rows < r->image_rows && r->batch.image_row[rows] < r->context)
        rows++;
    const bool any = r->image_rows > 0,
               sizes = sheaf__family_for(config)->image.most > 1 && rows > 0;
    const int64_t most = sizes ? r->images : 0; /* of the row */
    sheaf__picture *picture = malloc((size_t)most * sizeof *picture + n * 10);
    if (picture == NULL)
        return sheaf_fail(SHEAF_E_MEMORY, "a prompt of %zu tokens", n);
    sheaf_data_row_sizes(picture, most, data, row);
    const int64_t images = images_in(config, picture, most, rows);
    int32_t *ids = (int32_t *)(picture + most);
    uint8_t *embed = (uint8_t *)(ids + 2 * n), *expert = embed + n;
    memcpy(ids, r->batch.tokens + r->begin, n * 4);
    const int32_t shift = r->begin > 0 ? r->batch.position[r->begin] : 0;
    for (size_t i = 0; i < n; i++) /* padding in front does not shift positions */
        ids[n + i] = r->batch.position[r->begin + (int64_t)i] - shift;
    memset(embed, 0, 2 * n);
    for (int64_t i = 0; i < rows; i++)
        embed[r->batch.image_row[i]] = 1;
    for (int64_t i = 0; i < r->expert_rows; i++)
        if (r->batch.stream[1][i] < r->context)
            expert[r->batch.stream[1][i]] = 1;
    *out = (sheaf__prompt){ .ids = ids,
                            .n = (int64_t)n,
                            .position = ids + n,
                            .embed = rows > 0 ? embed : NULL,
                            .expert = any ? expert : NULL,
                            .picture = images > 0 ? picture : NULL,
                            .pictures = images };
    *block = picture;
    return NULL;
}

/* The labels from the first one to the end of the answer, which also shows whether a template laid
 * out the row. */
static sheaf_status *expected_text(char **out, bool *laid_out, const one_row *r,
                                   const sheaf__codec *w)
{
    int64_t first = 0, n = 0;
    while (first < r->seq && r->batch.labels[first] < 0)
        first++;
    const int32_t *label = r->batch.labels + first;
    while (first + n < r->seq && label[n] >= 0 && !sheaf__codec_is_stop(w, label[n], true))
        n++;
    *laid_out = first + n < r->seq && w->end >= 0 && label[n] == w->end;
    sheaf_status *st = first == r->seq ? NULL : sheaf__codec_decode(out, w, label, n);
    char *end =
        st == NULL && *out != NULL && w->end_text != NULL ? strstr(*out, w->end_text) : NULL;
    if (end != NULL) {
        *laid_out = true;
        *end = '\0';
    }
    return st;
}

static sheaf_status *add_row(sheaf__prompts *out, one_row *r, const sheaf__codec *w,
                             const sheaf_data *data, int64_t row)
{
    const sheaf_batch_images images = sheaf_data_images(data, &row, 1);
    sheaf__prompt prompt;
    sheaf__prompt_about about = { 0 };
    bool laid_out = false;
    sheaf_status *st = sheaf_data_batch(&r->batch, data, &row, 1);
    r->images = images.pictures.images;
    r->image_rows = sheaf__counts_positions(w->config, &images.pictures);
    r->expert_rows = images.image_rows;
    TRY(st, find_context(r));
    TRY(st, expected_text(&about.expected, &laid_out, r, w));
    TRY(st, copy_context(&prompt, &about.block, r, w->config, data, row));
    prompt.laid_out = laid_out;
    if (st == NULL)
        return sheaf__prompts_append(out, &prompt, &about);
    free(about.expected);
    return st;
}

/* A row up to its first label is a prompt; the text of its labels, if any and if the model has
 * text, is the expected answer. A row without labels is a prompt as a whole. */
static sheaf_status *add_rows(sheaf__prompts *out, const sheaf__codec *w, const sheaf_data *data)
{
    one_row r;
    if (sheaf_data_is_packed(data)) {
        sheaf_status *st = sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "position_ids"),
                                          "one record in each row that is to be answered");
        return sheaf_try_this(sheaf_found(st, "positions that restart within a row"),
                              "write each record in a row of its own");
    }
    sheaf_status *st = make_row(&r, data);
    out->rows = data;
    for (int64_t row = 0; row < sheaf_data_rows(data) && st == NULL; row++)
        st = sheaf_in(add_row(out, &r, w, data, row), "row %" PRId64, row + 1);
    free(r.batch.tokens);
    return st;
}

/* ---- sheaf__prompts_read ---- */

/* A model trained with --specials, or inside a template, expects special tokens, not their text. */
static void warn_of_written(const sheaf__prompts *p, const sheaf_events *events)
{
    const char *first = NULL;
    int64_t count = 0;
    for (int64_t i = 0; i < p->count; i++) {
        count += p->prompt[i].written != NULL;
        first = first == NULL ? p->prompt[i].written : first;
    }
    if (count > 0)
        sheaf_warn(
            events,
            "%" PRId64 " of %" PRId64 " prompts write special tokens as text ('%s'): they "
            "are read as letters; `specials` makes tokens of them; a conversation belongs in "
            "\"messages\", or `template` lays it out",
            count, p->count, first);
}

static sheaf_status *read_rows(sheaf__prompts *p, const sheaf__codec *w,
                               const sheaf_prompts_options *from)
{
    const sheaf_data_options how = { .config = w->config, .events = from->events, .prompts = true };
    sheaf_status *st = sheaf_data_open(&p->own, from->data, &how);
    return TRY(st, sheaf_in(add_rows(p, w, p->own), "%s", from->data));
}

static sheaf_status *read_file(sheaf__prompts *p, const sheaf__codec *w,
                               const sheaf_prompts_options *from)
{
    if (sheaf__ends_with(from->data, ".txt") && sheaf__path_kind(from->data) == SHEAF_PATH_FILE) {
        char *text = NULL;
        size_t size = 0;
        sheaf_status *st = sheaf__file_read_all(&text, &size, from->data, SHEAF__RECORD_MAX);
        if (st != NULL)
            return st;
        char *behind_mark = text + (strncmp(text, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0);
        const bool plain = !holds_objects(behind_mark);
        if (plain)
            st = add_plain(p, w, from, behind_mark, text + size);
        free(text);
        if (plain)
            return st;
    }
    return w->images && sheaf__pictures_of(w->config) == NULL ? add_records(p, w, from)
                                                              : add_lines(p, w, from);
}

/* Only training reads a list of files. */
static sheaf_status *check_one(const char *data)
{
    sheaf__data_list list;
    sheaf_status *st = NULL;
    sheaf_status_free(sheaf__data_list_read(&list, data, true)); /* its weights do not matter */
    if (list.count > 1)
        st = sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "`data %s`", data),
                                        "one file or folder of prompts to answer"),
                         "%d", list.count);
    sheaf__data_list_release(&list);
    return st;
}

sheaf_status *sheaf__prompts_read(sheaf__prompts *out, const sheaf__codec *w,
                                  const sheaf_prompts_options *from)
{
    *out = (sheaf__prompts){ .config = w->config };
    if ((from->text != NULL) + (from->tokens != NULL) + (from->data != NULL) != 1)
        return sheaf_expected(sheaf_fail(SHEAF_E_ARG, "prompts"),
                              "one of `prompt TEXT`, `tokens 1,2,3` and `data FILE`");
    if (from->nimages > 0 && from->text == NULL)
        return sheaf_expected(sheaf_fail(SHEAF_E_ARG, "`image`"), "a `prompt` that asks about it");
    sheaf_status *st = from->data == NULL ? NULL : check_one(from->data);
    if (st != NULL)
        return st;
    if (from->data != NULL && sheaf__ends_with(from->data, ".safetensors"))
        return read_rows(out, w, from);
    st = from->data != NULL     ? read_file(out, w, from)
         : from->tokens != NULL ? sheaf__prompts_add_list(out, from->tokens)
                                : sheaf__prompts_add_text(out, w, from->text, from->system,
                                                          from->images, from->nimages);
    if (st == NULL && out->count == 0)
        st = sheaf_found(
            sheaf_expected(sheaf_fail(SHEAF_E_DATA, "%s", from->data), "at least one prompt"),
            "none");
    if (st == NULL)
        warn_of_written(out, from->events);
    const bool texts = from->tokens == NULL && w->templated;
    if (st == NULL)
        sheaf__codec_note_date(w, texts || out->laid_out, from->events);
    return st;
}
