/* browser.c - drives a headless Chromium over its DevTools pipe, for tests/cli/browser.sh:
 *
 *     browser FOLDER <STEPS
 *
 * FOLDER is one that it may fill. Each line of STEPS is a word and what it is about:
 *
 *     size WIDTH HEIGHT    of the page, in CSS pixels
 *     scheme light|dark    what the system prefers
 *     open ADDRESS         and wait until it is loaded
 *     load FILE            runs a script in the page
 *     run EXPRESSION       in the page; a promise is awaited
 *     wait EXPRESSION      until it is true; a minute at most
 *     type TEXT            into what has the focus
 *     key NAME             pressed: Enter, Tab, Escape
 *     click SELECTOR       with the pointer, in the middle of the first such element
 *     hover SELECTOR AT    the pointer is over it, at this share of its width, and half its height
 *     drag SELECTOR FROM TO   from one share of its width to another
 *     allow NAME...        permissions, and no others: clipboardReadWrite
 *     file SELECTOR PATH   is chosen in a field for files
 *     do COMMAND           of the shell
 *     shot FILE            a PNG of what is to be seen
 *     check NAME: EXPRESSION   a case: it is true, or an empty list of what is wrong
 *     told NAME: TEXT      a case: the console has errors, each with TEXT; they are forgotten
 *     quiet NAME           a case: the console has no other error so far
 *
 * Prints "ok - NAME" or "not ok - NAME" for each case; a step that fails is one, and ends it. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <jansson.h>

enum { PATIENCE = 60, TO_BROWSER = 3, FROM_BROWSER = 4 };

static struct {
    pid_t process;
    int to, from;
    char *got; /* bytes that were read and are no whole message yet */
    size_t size, capacity;
    long long last;      /* id of a command */
    const char *session; /* of the page; NULL: commands are the browser's */
    bool loaded;         /* the page, since it was last opened */
    json_t *errors;      /* texts of the console */
    int failures;
} b;

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void pass(const char *name)
{
    printf("ok - %s\n", name);
    fflush(stdout);
}

static void fail(const char *name, const char *detail)
{
    printf("not ok - %s\n# %s\n", name, detail);
    fflush(stdout);
    b.failures++;
}

/* ---- the browser ---- */

static void end_browser(void)
{
    if (b.process > 0) {
        kill(-b.process, SIGKILL);
        waitpid(b.process, NULL, 0);
    }
    b.process = 0;
}

static void give_up(const char *what, const char *detail)
{
    fail(what, detail);
    end_browser();
    exit(1);
}

static void start_browser(const char *folder)
{
    char data[4096], log[4096];
    int there[2], back[2];
    snprintf(data, sizeof data, "--user-data-dir=%s/profile", folder);
    snprintf(log, sizeof log, "%s/chromium.log", folder);
    if (pipe(there) != 0 || pipe(back) != 0)
        give_up("two pipes", strerror(errno));
    b.process = fork();
    if (b.process == 0) {
        /* above 4 first, as any of the four may be 3 or 4 */
        const int in = fcntl(there[0], F_DUPFD, 10), out = fcntl(back[1], F_DUPFD, 10);
        const int errors = open(log, O_WRONLY | O_CREAT | O_TRUNC, 0600);
        setpgid(0, 0);
        setenv("HOME", folder, 1);
        dup2(errors, 1);
        dup2(errors, 2);
        dup2(in, TO_BROWSER);
        dup2(out, FROM_BROWSER);
        for (int i = FROM_BROWSER + 1; i < 64; i++)
            close(i);
        execlp("chromium", "chromium", "--headless", "--remote-debugging-pipe", data,
               "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-extensions",
               "--disable-background-networking", "--disable-sync", "--disable-component-update",
               "--hide-scrollbars", "--mute-audio", "--force-device-scale-factor=1", "--lang=en-US",
               geteuid() == 0 ? "--no-sandbox" : "about:blank", (char *)NULL);
        _exit(127);
    }
    setpgid(b.process, b.process);
    close(there[0]);
    close(back[1]);
    b.to = there[1];
    b.from = back[0];
}

/* ---- messages: JSON, each ended by a zero byte ---- */

static void remember_error(json_t *text)
{
    if (json_is_string(text))
        json_array_append(b.errors, text);
}

/* Takes note of an event. */
static void hear(json_t *message)
{
    const char *method = json_string_value(json_object_get(message, "method"));
    json_t *p = json_object_get(message, "params");
    if (method == NULL)
        return;
    if (strcmp(method, "Page.loadEventFired") == 0)
        b.loaded = true;
    if (strcmp(method, "Runtime.exceptionThrown") == 0) {
        json_t *d = json_object_get(p, "exceptionDetails");
        json_t *said = json_object_get(json_object_get(d, "exception"), "description");
        remember_error(said != NULL ? said : json_object_get(d, "text"));
    }
    if (strcmp(method, "Log.entryAdded") == 0) {
        json_t *entry = json_object_get(p, "entry");
        const char *level = json_string_value(json_object_get(entry, "level"));
        if (level != NULL && (strcmp(level, "error") == 0 || strcmp(level, "warning") == 0))
            remember_error(json_object_get(entry, "text"));
    }
    if (strcmp(method, "Runtime.consoleAPICalled") == 0) {
        const char *type = json_string_value(json_object_get(p, "type"));
        json_t *first = json_array_get(json_object_get(p, "args"), 0);
        if (type != NULL && (strcmp(type, "error") == 0 || strcmp(type, "warning") == 0 ||
                             strcmp(type, "assert") == 0)) {
            json_t *said = json_object_get(first, "value");
            remember_error(said != NULL ? said : json_object_get(first, "description"));
        }
    }
}

/* The next message, or NULL where none comes before `until`. */
static json_t *receive(double until)
{
    for (;;) {
        char *end = b.size > 0 ? memchr(b.got, 0, b.size) : NULL;
        if (end != NULL) {
            json_error_t why;
            json_t *message = json_loads(b.got, 0, &why);
            const size_t used = (size_t)(end - b.got) + 1;
            memmove(b.got, end + 1, b.size - used);
            b.size -= used;
            if (message == NULL)
                give_up("a message of Chromium's", why.text);
            return message;
        }
        struct pollfd p = { .fd = b.from, .events = POLLIN };
        const double left = until - seconds();
        if (left <= 0 || poll(&p, 1, (int)(left * 1000) + 1) == 0)
            return NULL;
        if (b.capacity - b.size < 65536) {
            b.capacity = 2 * b.capacity + 65536;
            b.got = realloc(b.got, b.capacity);
            if (b.got == NULL)
                abort();
        }
        const ssize_t n = read(b.from, b.got + b.size, b.capacity - b.size);
        if (n <= 0)
            give_up("Chromium runs", "it ended: see chromium.log; as Debian has it: "
                                     "apt-get install chromium");
        b.size += (size_t)n;
    }
}

/* Sends a command; takes `parameters`. Its result, which the caller releases. */
static json_t *command(const char *method, json_t *parameters)
{
    const long long id = ++b.last;
    json_t *m = json_pack("{s:I, s:s, s:o}", "id", (json_int_t)id, "method", method, "params",
                          parameters != NULL ? parameters : json_object());
    if (b.session != NULL)
        json_object_set_new(m, "sessionId", json_string(b.session));
    char *text = json_dumps(m, JSON_COMPACT);
    json_decref(m);
    const size_t size = strlen(text) + 1;
    for (size_t done = 0; done < size;) {
        const ssize_t n = write(b.to, text + done, size - done);
        if (n <= 0)
            give_up("Chromium runs", "it does not listen: see chromium.log; as Debian has it: "
                                     "apt-get install chromium");
        done += (size_t)n;
    }
    free(text);
    for (const double until = seconds() + PATIENCE;;) {
        json_t *message = receive(until);
        if (message == NULL)
            give_up(method, "Chromium does not answer");
        if (json_integer_value(json_object_get(message, "id")) != id) {
            hear(message);
            json_decref(message);
            continue;
        }
        json_t *error = json_object_get(message, "error");
        if (error != NULL)
            give_up(method, json_string_value(json_object_get(error, "message")));
        json_t *result = json_incref(json_object_get(message, "result"));
        json_decref(message);
        return result;
    }
}

static void tell(const char *method, json_t *parameters)
{
    json_decref(command(method, parameters));
}

/* What an expression is in the page; the caller releases it. */
static json_t *value_of(const char *expression)
{
    json_t *result = command("Runtime.evaluate",
                             json_pack("{s:s, s:b, s:b, s:b}", "expression", expression,
                                       "awaitPromise", 1, "returnByValue", 1, "userGesture", 1));
    json_t *wrong = json_object_get(result, "exceptionDetails");
    if (wrong != NULL) {
        json_t *said = json_object_get(json_object_get(wrong, "exception"), "description");
        fprintf(stdout, "# %s\n", expression);
        give_up("an expression", said != NULL ? json_string_value(said) : "throws");
    }
    json_t *value = json_incref(json_object_get(json_object_get(result, "result"), "value"));
    json_decref(result);
    return value;
}

/* ---- steps ---- */

static void open_page(const char *address)
{
    b.loaded = false;
    json_t *result = command("Page.navigate", json_pack("{s:s}", "url", address));
    if (json_object_get(result, "errorText") != NULL)
        give_up(address, json_string_value(json_object_get(result, "errorText")));
    json_decref(result);
    for (const double until = seconds() + PATIENCE; !b.loaded;) {
        json_t *message = receive(until);
        if (message == NULL)
            give_up("open", address);
        hear(message);
        json_decref(message);
    }
}

static void wait_for(const char *expression)
{
    for (const double until = seconds() + PATIENCE; seconds() < until;) {
        json_t *value = value_of(expression);
        const bool yes = json_is_true(value);
        json_decref(value);
        if (yes)
            return;
        nanosleep(&(struct timespec){ .tv_nsec = 20000000 }, NULL);
    }
    give_up("wait", expression);
}

static void press(const char *name)
{
    static const struct {
        const char *name, *text;
        int code;
    } keys[] = { { "Enter", "\r", 13 }, { "Tab", "", 9 }, { "Escape", "", 27 } };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (strcmp(keys[i].name, name) == 0) {
            for (int up = 0; up < 2; up++)
                tell("Input.dispatchKeyEvent",
                     json_pack("{s:s, s:s, s:s, s:i, s:s}", "type",
                               up                        ? "keyUp"
                               : keys[i].text[0] != '\0' ? "keyDown"
                                                         : "rawKeyDown",
                               "key", name, "code", name, "windowsVirtualKeyCode", keys[i].code,
                               "text", up ? "" : keys[i].text));
            return;
        }
    give_up("key", name);
}

/* Where the pointer is, in CSS pixels. */
typedef struct place {
    double x, y;
} place;

/* At a share of the width of the first such element, in the middle of its height. */
static place find(const char *selector, double share)
{
    char *expression = NULL;
    json_t *quoted = json_string(selector);
    char *text = json_dumps(quoted, JSON_ENCODE_ANY);
    json_decref(quoted);
    if (asprintf(&expression,
                 "(() => { const e = document.querySelector(%s); if (!e) return null; "
                 "e.scrollIntoView({ block: 'nearest' }); const r = e.getBoundingClientRect(); "
                 "return [r.x + r.width * %.6f, r.y + r.height / 2]; })()",
                 text, share) < 0)
        abort();
    free(text);
    json_t *at = value_of(expression);
    free(expression);
    if (!json_is_array(at))
        give_up("no such element", selector);
    const place found = { json_number_value(json_array_get(at, 0)),
                          json_number_value(json_array_get(at, 1)) };
    json_decref(at);
    return found;
}

static void point(const char *type, place at, bool held)
{
    const bool moved = strcmp(type, "mouseMoved") == 0;
    tell("Input.dispatchMouseEvent",
         json_pack("{s:s, s:f, s:f, s:s, s:i, s:i}", "type", type, "x", at.x, "y", at.y, "button",
                   moved && !held ? "none" : "left", "buttons", held, "clickCount", !moved));
}

static void click(const char *selector)
{
    const place at = find(selector, 0.5);
    point("mouseMoved", at, false);
    point("mousePressed", at, true);
    point("mouseReleased", at, false);
}

static void drag(const char *selector, double from, double to)
{
    point("mouseMoved", find(selector, from), false);
    point("mousePressed", find(selector, from), true);
    for (int i = 1; i <= 4; i++)
        point("mouseMoved", find(selector, from + (to - from) * i / 4), true);
    point("mouseReleased", find(selector, to), false);
}

/* Takes the last word of `text` as a number. */
static double last_number(char *text)
{
    char *space = strrchr(text, ' '), *end = NULL;
    const double number = space == NULL ? 0 : strtod(space + 1, &end);
    if (space == NULL || end == space + 1 || *end != '\0')
        give_up("a number behind", text);
    *space = '\0';
    return number;
}

static void allow(char *names)
{
    const char *page = b.session;
    json_t *list = json_array();
    char *rest = NULL;
    for (char *name = strtok_r(names, " ", &rest); name != NULL; name = strtok_r(NULL, " ", &rest))
        json_array_append_new(list, json_string(name));
    b.session = NULL;
    tell("Browser.grantPermissions", json_pack("{s:o}", "permissions", list));
    b.session = page;
}

static void choose_file(char *selector)
{
    char *path = strrchr(selector, ' ');
    if (path == NULL)
        give_up("file", selector);
    *path++ = '\0';
    json_t *document = command("DOM.getDocument", NULL);
    json_t *node = command("DOM.querySelector",
                           json_pack("{s:O, s:s}", "nodeId",
                                     json_object_get(json_object_get(document, "root"), "nodeId"),
                                     "selector", selector));
    tell("DOM.setFileInputFiles",
         json_pack("{s:O, s:[s]}", "nodeId", json_object_get(node, "nodeId"), "files", path));
    json_decref(node);
    json_decref(document);
}

static void take_picture(const char *path)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    json_t *result = command("Page.captureScreenshot", json_pack("{s:s}", "format", "png"));
    FILE *file = fopen(path, "wb");
    unsigned bits = 0, n = 0;
    if (file == NULL)
        give_up("shot", path);
    for (const char *c = json_string_value(json_object_get(result, "data")); *c != '\0'; c++) {
        const char *digit = strchr(digits, *c);
        if (digit == NULL)
            break;
        bits = bits << 6 | (unsigned)(digit - digits);
        n += 6;
        if (n >= 8) {
            n -= 8;
            fputc((int)(bits >> n & 255), file);
        }
    }
    if (fclose(file) != 0)
        give_up("shot", path);
    json_decref(result);
}

static void check(const char *name, const char *expression)
{
    json_t *value = value_of(expression);
    if (json_is_true(value) || (json_is_array(value) && json_array_size(value) == 0)) {
        pass(name);
    } else {
        char *text = value == NULL ? NULL : json_dumps(value, JSON_ENCODE_ANY);
        fail(name, text == NULL ? expression : text);
        free(text);
        printf("# %s\n", expression);
    }
    json_decref(value);
}

/* What the console said by now: a command's answer comes after what happened before it. */
static void quiet(const char *name)
{
    json_decref(value_of("new Promise((done) => setTimeout(done, 100))"));
    if (json_array_size(b.errors) == 0) {
        pass(name);
        return;
    }
    char *text = json_dumps(b.errors, 0);
    fail(name, text);
    free(text);
    json_array_clear(b.errors);
}

static void told(const char *name, const char *with)
{
    size_t had = 0;
    json_decref(value_of("new Promise((done) => setTimeout(done, 100))"));
    for (size_t i = json_array_size(b.errors); i-- > 0;)
        if (strstr(json_string_value(json_array_get(b.errors, i)), with) != NULL) {
            json_array_remove(b.errors, i);
            had++;
        }
    if (had > 0)
        pass(name);
    else
        fail(name, with);
}

static void load(const char *path)
{
    FILE *file = fopen(path, "rb");
    char text[65536];
    const size_t n = file == NULL ? 0 : fread(text, 1, sizeof text - 1, file);
    text[n] = '\0';
    if (n == 0 || n == sizeof text - 1)
        give_up("load", path);
    fclose(file);
    json_decref(value_of(text));
}

static void step(char *line)
{
    const size_t n = strcspn(line, " ");
    char *rest = line[n] == '\0' ? line + n : line + n + 1;
    line[n] = '\0';
    char *second = strstr(rest, ": ");
    if (strcmp(line, "size") == 0) {
        int width = 0, height = 0;
        if (sscanf(rest, "%d %d", &width, &height) != 2)
            give_up("size", rest);
        tell("Emulation.setDeviceMetricsOverride",
             json_pack("{s:i, s:i, s:i, s:b}", "width", width, "height", height,
                       "deviceScaleFactor", 1, "mobile", 0));
    } else if (strcmp(line, "scheme") == 0) {
        tell("Emulation.setEmulatedMedia", json_pack("{s:[{s:s, s:s}]}", "features", "name",
                                                     "prefers-color-scheme", "value", rest));
    } else if (strcmp(line, "open") == 0) {
        open_page(rest);
    } else if (strcmp(line, "load") == 0) {
        load(rest);
    } else if (strcmp(line, "run") == 0) {
        json_decref(value_of(rest));
    } else if (strcmp(line, "wait") == 0) {
        wait_for(rest);
    } else if (strcmp(line, "type") == 0) {
        tell("Input.insertText", json_pack("{s:s}", "text", rest));
    } else if (strcmp(line, "key") == 0) {
        press(rest);
    } else if (strcmp(line, "click") == 0) {
        click(rest);
    } else if (strcmp(line, "hover") == 0) {
        const double share = last_number(rest);
        point("mouseMoved", find(rest, share), false);
    } else if (strcmp(line, "drag") == 0) {
        const double to = last_number(rest), from = last_number(rest);
        drag(rest, from, to);
    } else if (strcmp(line, "allow") == 0) {
        allow(rest);
    } else if (strcmp(line, "file") == 0) {
        choose_file(rest);
    } else if (strcmp(line, "do") == 0) {
        if (system(rest) != 0)
            give_up("do", rest);
    } else if (strcmp(line, "shot") == 0) {
        take_picture(rest);
    } else if (strcmp(line, "quiet") == 0) {
        quiet(rest);
    } else if (strcmp(line, "check") == 0 && second != NULL) {
        *second = '\0';
        check(rest, second + 2);
    } else if (strcmp(line, "told") == 0 && second != NULL) {
        *second = '\0';
        told(rest, second + 2);
    } else {
        give_up("a step", line);
    }
}

int main(int argc, char **argv)
{
    char *line = NULL;
    size_t capacity = 0;
    ssize_t n;
    if (argc != 2) {
        fprintf(stderr, "usage: browser FOLDER <STEPS\n");
        return 2;
    }
    signal(SIGPIPE, SIG_IGN);
    b.errors = json_array();
    start_browser(argv[1]);
    json_t *page = command("Target.createTarget", json_pack("{s:s}", "url", "about:blank"));
    json_t *attached = command(
        "Target.attachToTarget",
        json_pack("{s:O, s:b}", "targetId", json_object_get(page, "targetId"), "flatten", 1));
    b.session = json_string_value(json_object_get(attached, "sessionId"));
    static const char *const parts[] = { "Page.enable", "Runtime.enable", "Log.enable",
                                         "DOM.enable" };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        tell(parts[i], NULL);
    while ((n = getline(&line, &capacity, stdin)) > 0) {
        line[strcspn(line, "\n")] = '\0';
        if (line[0] != '\0' && line[0] != '#')
            step(line);
    }
    b.session = NULL;
    end_browser();
    json_decref(attached);
    json_decref(page);
    json_decref(b.errors);
    free(b.got);
    free(line);
    return b.failures > 0;
}
