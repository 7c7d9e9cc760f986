/* serve_test.c - a server of a small model in this process: its paths, the forms of its replies,
 * and the line of its log for each. tests/cli/serve.sh holds answers beside those of generate. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/files.h"
#include "tests/parts.h"

#include "serve/serve.h"
#include "sheaf/checkpoint.h"

static struct {
    sheaf__serve_options o;
    sheaf_control *control;
    sheaf_status *st;
    pthread_t thread;
    sem_t listens, logged;
    int port;
    char line[512]; /* the newest of the log, behind the address */
} server;

static sheaf_status *ready(void *self, const sheaf__http *http, int models, const char *const *name)
{
    server.port = sheaf__http_port(http);
    assert_int_equal(models, 1);
    assert_string_equal(name[0], "bytes");
    sem_post(&server.listens);
    return NULL;
}

static void write_log(void *self, const char *line)
{
    snprintf(server.line, sizeof server.line, "%s", strstr(line, " 127.0.0.1 ") + 11);
    sem_post(&server.logged);
}

static void *run(void *self)
{
    server.st = sheaf__serve(&server.o);
    sem_post(&server.listens); /* also where it never did */
    return NULL;
}

static int begin(void **state)
{
    static sheaf_model_open_options model;
    make_scratch(state);
    sheaf_weights_init_options made = { .size = sizeof made,
                                        .spec = "tiny-bytes",
                                        .dst = at("bytes") };
    sheaf_weights_init_report report = { .size = sizeof report };
    SHEAF_INIT(&model);
    CHECK_OK(sheaf_weights_init(&report, &made));
    model.model = made.dst;
    model.positions = 300;
    CHECK_OK(sheaf_control_new(&server.control));
    server.o = (sheaf__serve_options){ .model = &model,
                                       .batch = 2,
                                       .queue = 4,
                                       .most_body = 10000,
                                       .host = "localhost",
                                       .ready = ready,
                                       .log = write_log,
                                       .control = server.control };
    sem_init(&server.listens, 0, 0);
    sem_init(&server.logged, 0, 0);
    assert_int_equal(pthread_create(&server.thread, NULL, run, NULL), 0);
    sem_wait(&server.listens);
    return server.port == 0;
}

static int end(void **state)
{
    sheaf_control_stop(server.control);
    pthread_join(server.thread, NULL);
    sheaf_control_free(server.control);
    CHECK_OK(server.st);
    return remove_scratch(state);
}

/* All of a reply, head and body; free it. */
static char *ask(const char *method, const char *path, const char *body)
{
    const struct sockaddr_in to = { .sin_family = AF_INET,
                                    .sin_port = htons((uint16_t)server.port),
                                    .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sheaf_text text = { 0 };
    char bytes[4096], *reply;
    sheaf__text_add(&text,
                    "%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                    "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
                    method, path, strlen(body), body);
    assert_int_equal(connect(fd, (const struct sockaddr *)&to, sizeof to), 0);
    assert_int_equal(send(fd, text.at, text.size, MSG_NOSIGNAL), text.size);
    text.size = 0;
    for (ssize_t n; (n = recv(fd, bytes, sizeof bytes, 0)) > 0;)
        sheaf__text_bytes(&text, bytes, (size_t)n);
    close(fd);
    sem_wait(&server.logged);
    CHECK_OK(sheaf__text_take(&reply, &text));
    return reply;
}

#define TWO "'max_tokens': 3, 'temperature': 0"
#define TEXT "POST /v1/completions {'prompt': 'ab', " TWO
#define CHAT "POST /v1/chat/completions {"
#define SAY CHAT "'messages': [{'role': 'user', 'content': 'hi'}], " TWO

/* Quotes are ' in place of ". Texts that a reply and the end of its line in the log have, in this
 * order, are divided by *. */
static const struct {
    const char *request;
    int status;
    const char *reply, *log;
} rows[] = {
    { "GET / ", 200, "Content-Type: text/html*frame-ancestors 'none'*<!doctype html>",
      "GET / 200" },
    { "GET /chat.html ", 200, "<!doctype html>", "" },
    { "GET /chat.css ", 200, "Content-Type: text/css*color-scheme", "" },
    { "GET /chat.js ", 200, "Content-Type: text/javascript*use strict", "" },
    { "HEAD /chat.js ", 200, "Content-Type: text/javascript", "HEAD /chat.js 200" },
    { "GET /report.html ", 404, "'expected': *a file of the page", "" },
    { "GET /..%2fchat.js ", 404, "'expected': ", "GET /../chat.js 404" },
    { "POST /chat.js {}", 405, "GET", "" },
    { "GET /health ", 200, "{'status': 'ok', 'running': 0, 'waiting': 0}", "" },
    { "GET /v1/models ", 200, "{'object': 'list', 'data': [{'id': 'bytes', 'object': 'model'*}]}",
      "" },
    { "GET /v1/models/%62ytes ", 200,
      "{'id': 'bytes', 'object': 'model', 'created': *, 'owned_by': 'sheaf', 'family': *"
      "'adapter': false, 'chat': true, 'pictures': 0, 'positions': ",
      "" },
    { "GET /v1/models/owner/gpt%2f4 ", 404,
      "'type': 'invalid_request_error'*'param': 'model'*'code': 'model_not_found'*bytes", "" },
    { "GET /v1/models/ ", 404, "model_not_found", "" },
    { "POST /v1/models/bytes {}", 405, "GET", "" },
    { "POST /v1/embeddings {}", 404, "/v1/chat/completions", "" },
    { "GET /v1/completions ", 405, "POST", "GET /v1/completions 405" },
    { "POST /v1/completions {'model': ", 400, "'type': 'invalid_request_error'*'expected': ", "" },
    { TEXT ", 'model': 'gpt-4'}", 404, "model_not_found*bytes", "" },
    { TEXT ", 'seed': 7}", 200,
      "'id': 'cmpl-*'object': 'text_completion'*'model': 'bytes'*'seed': 7*'text': '*'logprobs': "
      "null, 'finish_reason': 'length'}]*'completion_tokens': 3, 'total_tokens': 6}}",
      " 200 model=bytes prompt_tokens=3 answer_tokens=3 first_token_ms=* tokens_per_s=* finish=length" },
    { "POST /v1/completions {'prompt': [[1, 2], [3]], 'n': 2, 'max_tokens': 1}", 200,
      "'index': 0*'token_ids': [*'index': 3*'prompt_tokens': 3, 'completion_tokens': 4",
      "prompt_tokens=3 answer_tokens=4" },
    { TEXT ", 'logprobs': 2}", 200,
      "'logprobs': {'tokens': ['*'token_logprobs': [-*'top_logprobs': [{'*'text_offset': [0", "" },
    { TEXT ", 'stream': true, 'stream_options': {'include_usage': true}}", 200,
      "Content-Type: text/event-stream*data: {'id': 'cmpl-*'finish_reason': 'length'}], 'usage': "
      "null}*'choices': [], 'usage': {'prompt_tokens': 3*data: [DONE]\n\n",
      "finish=length" },
    { "POST /v1/completions {'prompt': [99999]}", 400, "token ids from 0", "completions 400" },
    { SAY "}", 200,
      "'id': 'chatcmpl-*'object': 'chat.completion'*'message': {'role': 'assistant', 'content': "
      "'*'refusal': null}*'finish_reason': 'length'",
      "finish=length" },
    { SAY ", 'logprobs': true, 'top_logprobs': 1}", 200,
      "'logprobs': {'content': [{'token': '*'logprob': -*'bytes': [*'top_logprobs': [{'token': '*"
      "'refusal': null}",
      "" },
    { SAY ", 'stream': true}", 200,
      "'object': 'chat.completion.chunk'*'delta': {'role': 'assistant', 'content': '*"
      "'finish_reason': 'length'*data: [DONE]\n\n",
      "model=bytes" },
    { CHAT "}", 400, "'where': '\\'messages\\''", "" },
    { CHAT "'messages': [{'role': 'user', 'content': 'a'}, {'role': 'assistant', 'content': 'b'}]}",
      400, "user's at the end", "" },
    { CHAT "'messages': [{'role': 'tool', 'content': 'x'}]}", 400, "message 1", "" },
    { CHAT "'messages': [{'role': 'user', 'content': 'a'}, {'role': 'assistant', 'content': null, "
           "'tool_calls': [{}]}]}",
      400, "message 2: 'tool_calls'", "" },
};

TEST(test_serve__a_reply_has_its_form)
{
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        char request[400];
        snprintf(request, sizeof request, "%s", rows[i].request);
        swap_quotes(request, '\'', '"');
        char *path = strchr(request, ' ') + 1, *body = strchr(path, ' ') + 1;
        path[-1] = body[-1] = '\0';
        char *reply = ask(request, path, body);
        swap_quotes(reply, '"', '\'');
        if (atoi(reply + 9) != rows[i].status || !has_parts(reply, rows[i].reply))
            fail_msg("%s: %s", rows[i].request, reply);
        if (!has_parts(server.line, rows[i].log))
            fail_msg("%s: log '%s', wanted '%s'", rows[i].request, server.line, rows[i].log);
        free(reply);
    }
}

/* Bytes and positions at their limits, which are those of each prompt. */
TEST(test_serve__a_request_has_its_size)
{
    static const struct {
        size_t size;
        int status;
        const char *part;
    } sizes[] = {
        { 298, 200, "\"completion_tokens\": 3" },
        { 299, 400, "\"code\": \"context_length_exceeded\"" },
        { 9900, 400, "positions" },
        { 10000, 413, "at most 10000 bytes" },
    };
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        char letters[10001] = "", body[10100];
        memset(letters, 'a', sizes[i].size);
        snprintf(body, sizeof body,
                 "{\"prompt\": [\"%s\", \"ab\"], \"max_tokens\": 2, \"temperature\": 0}", letters);
        char *reply = ask("POST", "/v1/completions", body);
        if (atoi(reply + 9) != sizes[i].status || strstr(reply, sizes[i].part) == NULL)
            fail_msg("%zu: %s", sizes[i].size, reply);
        free(reply);
    }
}

FIXTURE(begin, end);
