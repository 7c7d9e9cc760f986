/* request.c - see request.h. */
#include "serve/request.h"

#include "base/base.h"
#include "base/json.h"
#include "base/text.h"
#include "library/settings.h"
#include "serve/responses.h"

enum { MOST_PICTURES = 1000, TEXT = 1, CHAT = 2, BOTH = 3, ITEMS = 4, ALL = 7 };

/* Fields, which requests have them, bits by their kind, and of OpenAI's that have one value here
 * that value.
 */
static const struct {
    const char *name;
    int of;
    const char *only; /* as JSON; NULL: any */
} fields[] = {
    { "model", ALL },
    { "messages", CHAT },
    { "prompt", TEXT },
    { "input", ITEMS },
    { "instructions", ITEMS },
    { "max_output_tokens", ITEMS },
    { "text", ITEMS },
    { "stream", ALL },
    { "stream_options", BOTH },
    { "n", BOTH },
    { "max_tokens", BOTH },
    { "max_completion_tokens", CHAT },
    { "temperature", ALL },
    { "top_p", ALL },
    { "top_k", ALL },
    { "repetition_penalty", ALL },
    { "seed", ALL },
    { "stop", ALL },
    { "logprobs", BOTH },
    { "top_logprobs", CHAT },
    { "response_format", BOTH },
    { "tools", CHAT | ITEMS },
    { "tools", TEXT, "[]" },
    { "tool_choice", CHAT | ITEMS },
    { "tool_choice", TEXT, "\"none\"" },
    /* these do not change an answer: the user, and what other servers store */
    { "user", ALL },
    { "metadata", ALL },
    { "store", ALL },
    { "service_tier", ALL },
    { "safety_identifier", ALL },
    { "prompt_cache_key", ALL },
    { "parallel_tool_calls", CHAT | ITEMS },
    { "presence_penalty", BOTH, "0" },
    { "frequency_penalty", BOTH, "0" },
    { "logit_bias", BOTH, "{}" },
    { "functions", BOTH, "[]" },
    { "function_call", BOTH, "\"none\"" },
    { "add_generation_prompt", BOTH, "true" },
    { "continue_final_message", BOTH, "false" },
    { "modalities", BOTH, "[\"text\"]" },
    { "echo", BOTH, "false" },
    { "best_of", BOTH, "1" },
    { "suffix", BOTH, "\"\"" },
    { "background", ITEMS, "false" },
    { "conversation", ITEMS, "null" },
    { "include", ITEMS, "[]" },
    { "max_tool_calls", ITEMS, "null" },
    { "previous_response_id", ITEMS, "null" },
    { "prompt", ITEMS, "null" },
    { "reasoning", ITEMS, "{}" },
    { "stream_options", ITEMS, "{}" },
    { "top_logprobs", ITEMS, "0" },
    { "truncation", ITEMS, "\"disabled\"" },
};
enum { FIELDS = sizeof fields / sizeof *fields };

/* ---- fields ---- */

static bool is_only(const json_t *value, const char *only)
{
    json_t *want = json_loads(only, JSON_DECODE_ANY, NULL);
    const bool same =
        json_equal(value, want) || (json_is_real(value) && json_is_integer(want) &&
                                    json_real_value(value) == (double)json_integer_value(want));
    json_decref(want);
    return same;
}

bool sheaf__request_has(const char *name, size_t size)
{
    int i = 0;
    while (i < FIELDS && (strncmp(fields[i].name, name, size) != 0 || fields[i].name[size] != '\0'))
        i++;
    return i < FIELDS && fields[i].only == NULL;
}

static sheaf_status *unknown_field(const char *name, sheaf__request_kind kind)
{
    const char *names[FIELDS];
    int n = 0;
    for (int i = 0; i < FIELDS; i++)
        if (fields[i].only == NULL && (fields[i].of >> kind & 1) != 0)
            names[n++] = fields[i].name;
    const char *near = sheaf__nearest(name, names, n);
    sheaf_status *st = sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "'%.60s'", name),
                                      "a field that is known here (docs/serve.md lists them)");
    return near == NULL ? st : sheaf_try_this(st, "'%s'", near);
}

static sheaf_status *check_fields(json_t *body, sheaf__request_kind kind)
{
    const char *name;
    json_t *value;
    json_object_foreach(body, name, value)
    {
        char text[96];
        int i = 0;
        while (i < FIELDS && (strcmp(fields[i].name, name) != 0 || (fields[i].of >> kind & 1) == 0))
            i++;
        if (json_is_null(value)) /* as if it was not there */
            continue;
        if (i == FIELDS)
            return unknown_field(name, kind);
        if (fields[i].only != NULL && !is_only(value, fields[i].only))
            return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "'%s'", name),
                                              "%s: nothing else is done here", fields[i].only),
                               "%s", sheaf__json_show(text, value));
    }
    return NULL;
}

static sheaf_status *no_memory(void)
{
    return sheaf__no_memory("a request");
}

/* One text, or a list of some. */
static sheaf_status *read_stop(sheaf__request *r)
{
    const json_t *stop = json_object_get(r->body, "stop");
    const bool one = json_is_string(stop);
    const size_t n = one ? 1 : json_array_size(stop);
    if (stop == NULL || json_is_null(stop))
        return NULL;
    if ((!one && !json_is_array(stop)) || n > SHEAF__MOST_STOP_TEXTS)
        return sheaf_expected(sheaf_fail(SHEAF_E_DATA, "`stop`"), "a text, or a list of at most %d",
                              SHEAF__MOST_STOP_TEXTS);
    if ((r->stop = calloc(n + 1, sizeof *r->stop)) == NULL)
        return no_memory();
    for (size_t i = 0; i < n; i++) {
        const json_t *text = one ? stop : json_array_get(stop, i);
        if (!json_is_string(text) || json_string_length(text) == 0 ||
            json_string_length(text) != strlen(json_string_value(text)))
            return sheaf_expected(sheaf_fail(SHEAF_E_DATA, "`stop`"),
                                  "texts that are not empty, without NUL");
        r->stop[r->nstop++] = json_string_value(text);
    }
    return NULL;
}

static sheaf_status *read_prompt(sheaf__request *r)
{
    const json_t *prompt = json_object_get(r->body, "prompt");
    const size_t n = json_array_size(prompt);
    const bool list = json_is_array(prompt) && n > 0,
               ids = list && json_is_integer(json_array_get(prompt, 0));
    bool good = json_is_string(prompt) || list;
    for (size_t i = 0; i < n && good; i++) {
        const json_t *one = json_array_get(prompt, i), *first = json_array_get(prompt, 0);
        good = json_typeof(one) == json_typeof(first) &&
               (json_is_string(one) || json_is_integer(one) || json_is_array(one));
    }
    if (good && !ids && n > SHEAF__MOST_ANSWERS)
        good = false;
    r->prompt = prompt;
    return good ? NULL
                : sheaf_expected(sheaf_fail(SHEAF_E_DATA, "`prompt`"),
                                 "a text or a list of token ids, or at most %d of one kind",
                                 SHEAF__MOST_ANSWERS);
}

/* Chat: true or false, and "top_logprobs"; else a number. */
static void read_logprobs(sheaf__request *r, sheaf_json_reader *in)
{
    if (r->chat) {
        r->logprobs = sheaf__json_bool(in, "logprobs", false);
        r->top = sheaf__json_int(in, "top_logprobs", 0, SHEAF__MOST_TOP, 0);
        if (r->top > 0 && !r->logprobs)
            sheaf__json_fail(in, SHEAF_E_DATA, "top_logprobs", "\"logprobs\": true beside it");
    } else {
        const int64_t top = sheaf__json_int(in, "logprobs", 0, SHEAF__MOST_TOP, -1);
        r->logprobs = top >= 0;
        r->top = top > 0 ? top : 0;
    }
}

static void read_numbers(sheaf__request *r, sheaf_json_reader *in)
{
    sheaf_model_generate_options *o = &r->how;
    const double temperature = sheaf__json_real(in, "temperature", 0, SHEAF__MOST_SAMPLING, -1);
    SHEAF_INIT(o);
    o->model_defaults = o->program_defaults = true;
    o->sampled = temperature == 0 ? -1 : 0;
    o->temperature = temperature > 0 ? temperature : 0;
    if (temperature > 0 && temperature < SHEAF__LEAST_SAMPLING)
        sheaf__json_fail(in, SHEAF_E_DATA, "temperature", "0, or 1e-6 or more");
    o->top_p = sheaf__json_real(in, "top_p", SHEAF__LEAST_SAMPLING, 1, 0);
    o->repetition_penalty =
        sheaf__json_real(in, "repetition_penalty", SHEAF__LEAST_SAMPLING, SHEAF__MOST_SAMPLING, 0);
    const int64_t top_k = sheaf__json_int(in, "top_k", -1, SHEAF__MOST_TOP_K, -2);
    o->top_k = top_k == -2 ? 0 : top_k <= 0 ? -1 : top_k;
    const int64_t seed = sheaf__json_int(in, "seed", INT64_MIN + 1, INT64_MAX, INT64_MIN + 1);
    r->seeded = seed != INT64_MIN + 1;
    o->seed = r->seeded ? (uint64_t)seed : 0;
    o->max_new = sheaf__json_int(in, "max_tokens", 1, SHEAF__MOST_NEW, 0);
    if (r->chat)
        o->max_new =
            sheaf__json_int(in, r->asked != NULL ? "max_output_tokens" : "max_completion_tokens", 1,
                            SHEAF__MOST_NEW, o->max_new);
    r->one_call = !sheaf__json_bool(in, "parallel_tool_calls", true);
    r->each = sheaf__json_int(in, "n", 1, SHEAF__MOST_ANSWERS, 1);
    r->stream = sheaf__json_bool(in, "stream", false);
    const json_t *stream = sheaf__json_object(in, "stream_options");
    sheaf_json_reader inner = { .object = stream, .inside = "stream_options." };
    r->usage = stream != NULL && sheaf__json_bool(&inner, "include_usage", false);
    in->st = sheaf__first_of(in->st, inner.st);
    r->model = sheaf__json_string(in, "model");
    read_logprobs(r, in);
}

/* {"type": "json_object"}, or "json_schema" with a "json_schema" that has one as "schema". */
static sheaf_status *read_format(sheaf__request *r)
{
    const json_t *format = json_object_get(r->body, "response_format"),
                 *schema = json_object_get(json_object_get(format, "json_schema"), "schema");
    const char *type = json_string_value(json_object_get(format, "type"));
    if (format == NULL || json_is_null(format) || (type != NULL && strcmp(type, "text") == 0))
        return NULL;
    if (type != NULL && strcmp(type, "json_object") == 0)
        return (r->schema = strdup("{\"type\": \"object\"}")) == NULL ? no_memory() : NULL;
    if (type == NULL || strcmp(type, "json_schema") != 0)
        return sheaf_expected(sheaf_fail(SHEAF_E_DATA, "`response-format`"),
                              "\"type\" text, json_object or json_schema");
    if (!json_is_object(schema))
        return sheaf_expected(sheaf_fail(SHEAF_E_DATA, "`response-format`"),
                              "\"json_schema\": {\"name\": ..., \"schema\": {...}}");
    return sheaf__json_text(&r->schema, schema, JSON_COMPACT);
}

/* With a choice of "none" the model sees no tools. */
static sheaf_status *read_tools(sheaf__request *r)
{
    const json_t *tools = json_object_get(r->body, "tools"), *tool,
                 *choice = json_object_get(r->body, "tool_choice"),
                 *named = json_object_get(json_object_get(choice, "function"), "name");
    const char *word = json_string_value(choice);
    size_t i;
    if (tools != NULL && !json_is_null(tools) && !json_is_array(tools))
        return sheaf_expected(sheaf_fail(SHEAF_E_DATA, "`tools`"), "a list");
    json_array_foreach((json_t *)tools, i, tool)
    {
        const json_t *function = json_object_get(tool, "function");
        const char *type = json_string_value(json_object_get(tool, "type"));
        if (type == NULL || strcmp(type, "function") != 0 ||
            !json_is_string(json_object_get(function, "name")))
            return sheaf_expected(sheaf_fail(SHEAF_E_DATA, "`tools`"),
                                  "{\"type\": \"function\", \"function\": {\"name\": ...}}");
    }
    if (choice != NULL && !json_is_null(choice) && !json_is_string(named) &&
        (word == NULL || !sheaf__is_listed("none auto required", word, strlen(word))))
        return sheaf_expected(sheaf_fail(SHEAF_E_DATA, "`tool-choice`"),
                              "none, auto, required, or {\"type\": \"function\", \"function\": "
                              "{\"name\": ...}}");
    r->tool = json_string_value(named);
    r->calls = named != NULL || (word != NULL && strcmp(word, "required") == 0);
    if (json_array_size(tools) > 0 && (word == NULL || strcmp(word, "none") != 0))
        r->tools = tools;
    if (r->calls && r->tools == NULL)
        return sheaf_expected(sheaf_fail(SHEAF_E_DATA, "`tool-choice`"), "`tools` beside it");
    return r->calls && r->schema != NULL
               ? sheaf_expected(sheaf_fail(SHEAF_E_DATA, "`response-format`"),
                                "none beside a call that must be")
               : NULL;
}

sheaf_status *sheaf__request_read(sheaf__request *r, const char *body, size_t size,
                                  sheaf__request_kind kind)
{
    const bool chat = kind != SHEAF__ASKS_TEXT;
    *r = (sheaf__request){ .chat = chat };
    sheaf_status *st = sheaf_in(sheaf__json_parse(&r->body, body, size), "request");
    TRY(st, check_fields(r->body, kind));
    if (st == NULL && kind == SHEAF__ASKS_RESPONSE) {
        r->asked = r->body;
        r->body = NULL;
        st = sheaf__responses_request(&r->body, r->asked);
    }
    sheaf_json_reader in = { .object = r->body };
    if (st == NULL) {
        read_numbers(r, &in);
        st = in.st;
    }
    TRY(st, read_stop(r));
    TRY(st, read_format(r));
    TRY(st, read_tools(r));
    if (st == NULL && !chat)
        st = read_prompt(r);
    if (st == NULL) {
        r->how.stop = r->stop;
        r->how.nstop = r->nstop;
        r->how.json_schema = r->schema;
        r->how.logprobs = r->logprobs;
        r->how.top_logprobs = r->top;
    }
    return st;
}

/* ---- pictures ---- */

static sheaf_status *bad_picture(const char *url)
{
    return sheaf_try_this(
        sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_DATA, "'image_url'"),
                                   "a picture in the request, data:image/png;base64,... (or jpeg, "
                                   "webp)"),
                    "%.40s%s", url, strlen(url) > 40 ? "..." : ""),
        "its bytes as base64: nothing is fetched from an address, nor read from a file");
}

static sheaf_status *add_picture(sheaf__request *r, const char *url)
{
    static const char *const kinds[] = { "data:image/png;base64,", "data:image/jpeg;base64,",
                                         "data:image/jpg;base64,", "data:image/webp;base64," };
    size_t i = 0;
    while (i < sizeof kinds / sizeof *kinds && strncmp(url, kinds[i], strlen(kinds[i])) != 0)
        i++;
    if (i == sizeof kinds / sizeof *kinds)
        return bad_picture(url);
    if (r->images == MOST_PICTURES)
        return sheaf_expected(sheaf_fail(SHEAF_E_DATA, "%s", sheaf__request_asks(r)),
                              "at most %d pictures", MOST_PICTURES);
    const char *text = url + strlen(kinds[i]);
    const size_t size = strlen(text);
    unsigned char *bytes = malloc(size / 4 * 3 + 1);
    char *name = NULL;
    const size_t n = bytes == NULL ? 0 : sheaf__base64_decode(bytes, text, size);
    sheaf_status *st =
        bytes == NULL || asprintf(&name, "picture %lld", (long long)r->images + 1) < 0
            ? sheaf__no_memory("a picture")
        : n == 0 ? bad_picture(url)
                 : NULL;
    if (st != NULL) {
        free(bytes);
        free(name);
        return st;
    }
    r->picture[r->images] = (sheaf__picture_bytes){ bytes, n };
    r->image[r->images++] = name;
    return NULL;
}

/* ---- messages ---- */

static sheaf_status *bad_content(void)
{
    return sheaf_expected(
        sheaf_fail(SHEAF_E_DATA, "'content'"),
        "a text, or a list of {\"type\": \"text\", \"text\": ...}, "
        "{\"type\": \"image_url\", \"image_url\": {\"url\": ...}} and "
        "{\"type\": \"video\", \"video\": [URL of each frame, ...], \"fps\": ...}");
}

/* The frames of a video, as pictures are given. */
static sheaf_status *add_video(sheaf__request *r, const json_t *part)
{
    const json_t *list = json_object_get(part, "video"), *one;
    sheaf_status *st = NULL;
    size_t i;
    if (!SHEAF_GROW(&r->video, NULL, r->videos + 1))
        return no_memory();
    r->video[r->videos++] = (sheaf__frames){ .first = r->images,
                                             .count = (int64_t)json_array_size(list),
                                             .about = { [1] = json_incref((json_t *)part) },
                                             .field = "video" };
    if (json_array_size(list) == 0)
        return sheaf_try_this(
            sheaf_expected(sheaf_fail(SHEAF_E_DATA, "'video'"),
                           "a list of frames, data:image/jpeg;base64,... (or png, webp) each"),
            "ffmpeg -i FILE -vf fps=2 %%05d.jpg makes frames of a file");
    json_array_foreach(list, i, one)
    {
        const json_t *url = json_is_object(one) ? json_object_get(one, "url") : one;
        TRY(st, json_is_string(url) ? add_picture(r, json_string_value(url)) : bad_content());
        st = sheaf_in(st, "'video': frame %zu", i + 1);
    }
    return st;
}

/* One part of a content; *plain: it is a text. */
static sheaf_status *add_part(sheaf_text *to, bool *plain, sheaf__request *r, const json_t *part,
                              bool placed)
{
    const char *type = json_string_value(json_object_get(part, "type"));
    const bool refusal = type != NULL && strcmp(type, "refusal") == 0; /* of an assistant */
    const json_t *text = json_object_get(part, refusal ? "refusal" : "text"),
                 *image = json_object_get(part, "image_url");
    *plain = type != NULL && strcmp(type, "text") == 0;
    if ((*plain || refusal) && json_is_string(text)) {
        sheaf__text_bytes(to, json_string_value(text), json_string_length(text));
        return NULL;
    }
    const char *url =
        json_string_value(json_is_object(image) ? json_object_get(image, "url") : image);
    if (type != NULL && strcmp(type, "video") == 0) {
        sheaf__text_add(to, "%s", placed ? SHEAF__VIDEO_HERE : "");
        return add_video(r, part);
    }
    if (type == NULL || strcmp(type, "image_url") != 0 || url == NULL)
        return bad_content();
    if (placed)
        sheaf__text_add(to, "<image>");
    return add_picture(r, url);
}

/* Once pictures have places, a text that says "<image>" would move them. */
static sheaf_status *check_marks(const json_t *messages, const sheaf__request *r,
                                 const sheaf__picture_form *form)
{
    const bool videos = form->video.fps > 0; /* else "<video>" is a text */
    int64_t marks = 0;
    size_t i;
    const json_t *message;
    json_array_foreach(messages, i, message)
    {
        const char *text = json_string_value(json_object_get(message, "content"));
        marks += text == NULL ? 0
                              : sheaf__text_count(text, SHEAF__PICTURE_HERE) +
                                    (videos ? sheaf__text_count(text, SHEAF__VIDEO_HERE) : 0);
    }
    int64_t shown = r->images + r->videos;
    for (int64_t k = 0; k < r->videos; k++)
        shown -= r->video[k].count + !videos;
    return r->images == 0 || marks == shown
               ? NULL
               : sheaf_expected(sheaf_fail(SHEAF_E_DATA, "'content'"),
                                "texts without \"<image>\" or \"<video>\" beside pictures: it "
                                "marks their places");
}

/* Clients send messages back with every field of theirs: null is none, and so are no calls, which
 * some programs look for by name. */
static void drop_nulls(json_t *message)
{
    const char *key;
    json_t *value;
    void *next;
    json_object_foreach_safe(message, next, key, value)
    {
        const bool calls = strcmp(key, "tool_calls") == 0 && json_is_array(value);
        if (calls ? json_array_size(value) == 0
                  : json_is_null(value) && strcmp(key, "content") != 0)
            json_object_del(message, key);
    }
}

/* A list of parts that are no mere texts becomes one text. */
static sheaf_status *join_parts(json_t *message, sheaf__request *r, bool placed)
{
    json_t *content = json_object_get(message, "content"), *part;
    sheaf_text text = { 0 };
    sheaf_status *st = NULL;
    bool plain = !placed;
    size_t i;
    json_array_foreach(content, i, part)
    {
        bool one = false;
        TRY(st, add_part(&text, &one, r, part, placed));
        plain = plain && one;
    }
    if (st == NULL &&
        (text.failed ||
         (!plain && json_object_set_new(message, "content",
                                        json_stringn(text.at == NULL ? "" : text.at, text.size)))))
        st = no_memory();
    sheaf__text_release(&text);
    return st;
}

/* Thoughts that the template would not read go back to where the answer had them. */
static sheaf_status *put_thoughts(json_t *message)
{
    static const char *const fields[] = { "reasoning_content", "reasoning", "thinking" };
    json_t *content = json_object_get(message, "content");
    sheaf_text text = { 0 };
    for (int i = 0; i < 3; i++) {
        const char *thoughts = json_string_value(json_object_get(message, fields[i]));
        if (thoughts != NULL && thoughts[0] != '\0' && text.size == 0)
            sheaf__text_add(&text, SHEAF__THINK "\n%s\n" SHEAF__THOUGHT "\n\n", thoughts);
        if (thoughts != NULL)
            json_object_del(message, fields[i]);
    }
    if (text.size == 0 && !text.failed)
        return NULL;
    sheaf__text_add(&text, "%s", json_is_string(content) ? json_string_value(content) : "");
    json_t *all = text.failed ? NULL : json_stringn(text.at, text.size);
    const int failed = json_is_array(content)
                           ? json_array_insert_new(
                                 content, 0, json_pack("{s:s, s:o}", "type", "text", "text", all))
                           : json_object_set_new(message, "content", all);
    sheaf__text_release(&text);
    return failed ? no_memory() : NULL;
}

/* The whole message, for the template. An assistant's may have calls instead of a content. */
static sheaf_status *take_message(json_t *to, sheaf__request *r, const json_t *message, bool placed,
                                  bool thoughts)
{
    const char *role = json_string_value(json_object_get(message, "role"));
    const json_t *content = json_object_get(message, "content");
    if (role == NULL)
        return sheaf_expected(sheaf_fail(SHEAF_E_DATA, "`messages`"),
                              "objects with \"role\" and \"content\"");
    if (!json_is_string(content) && !json_is_array(content) &&
        ((content != NULL && !json_is_null(content)) || strcmp(role, "assistant") != 0))
        return bad_content();
    json_t *one = json_deep_copy(message);
    if (one == NULL || json_array_append_new(to, one) != 0)
        return no_memory();
    drop_nulls(one);
    sheaf_status *st = json_is_array(content) ? join_parts(one, r, placed) : NULL;
    return thoughts || strcmp(role, SHEAF__ASSISTANT) != 0 ? st : TRY(st, put_thoughts(one));
}

const char *sheaf__request_asks(const sheaf__request *r)
{
    return r->asked != NULL ? "`input`" : r->chat ? "`messages`" : "`prompt`";
}

sheaf_status *sheaf__request_take_messages(sheaf__request *r, const sheaf__picture_form *form,
                                           bool thoughts)
{
    const bool placed = form != NULL;
    const json_t *given = json_object_get(r->body, "messages"), *message;
    size_t i;
    if (!json_is_array(given) || json_array_size(given) == 0)
        return sheaf_expected(sheaf_fail(SHEAF_E_DATA, "`messages`"),
                              "a list of at least one message");
    json_t *list = json_array();
    r->image = calloc(MOST_PICTURES, sizeof *r->image);
    r->picture = calloc(MOST_PICTURES, sizeof *r->picture);
    sheaf_status *st = list == NULL || r->image == NULL || r->picture == NULL ? no_memory() : NULL;
    json_array_foreach(given, i, message)
        TRY(st, sheaf_in(take_message(list, r, message, placed, thoughts), "message %zu", i + 1));
    if (st == NULL && placed)
        st = check_marks(list, r, form);
    if (st == NULL)
        r->messages = r->tools == NULL
                          ? json_pack("{s:O}", "messages", list)
                          : json_pack("{s:O, s:O}", "messages", list, "tools", (json_t *)r->tools);
    json_decref(list);
    return sheaf_in(st == NULL && r->messages == NULL ? no_memory() : st, "%s",
                    sheaf__request_asks(r));
}

void sheaf__request_release(sheaf__request *r)
{
    for (int64_t i = 0; i < r->images; i++) {
        free((void *)r->picture[i].at);
        free((char *)r->image[i]);
    }
    for (int64_t i = 0; i < r->videos; i++)
        json_decref((json_t *)r->video[i].about[1]);
    free(r->image);
    free(r->picture);
    free(r->video);
    free(r->stop);
    free(r->schema);
    json_decref(r->messages);
    json_decref(r->body);
    json_decref(r->asked);
    *r = (sheaf__request){ 0 };
}
