/* hosts.c - see hosts.h. */
#include "driver/hosts.h"

#include "base/file.h"

enum { MOST_BYTES = 1 << 20 };

/* A line or a word: name, then ":2" or "slots=2" somewhere behind it. */
static bool add(driver_hosts *h, int64_t *capacity, const char *at, size_t size)
{
    const size_t name = strcspn(at, ": \t,\n\r");
    char *words = strndup(at, size);
    int i = 0;
    if (words == NULL || !SHEAF_GROW(&h->host, capacity, h->count + 1)) {
        free(words);
        return false;
    }
    const char *slots = strstr(words, "slots=");
    int n = slots != NULL && name < size     ? atoi(slots + 6)
            : name < size && at[name] == ':' ? atoi(words + name + 1)
                                             : 1;
    n = n < 1 ? 1 : n > SHEAF_MAX_SLICES ? SHEAF_MAX_SLICES : n;
    words[name < size ? name : size] = '\0';
    while (i < h->count && strcmp(h->host[i].name, words) != 0)
        i++;
    if (i < h->count) {
        h->host[i].slots += n;
        free(words);
    } else {
        h->host[h->count++] = (driver_host){ .name = words, .slots = n };
    }
    return true;
}

static bool split(driver_hosts *h, const char *text, const char *ends)
{
    int64_t capacity = 0;
    for (const char *at = text; *at != '\0';) {
        at += strspn(at, " \t");
        const size_t n = strcspn(at, ends);
        if (n > 0 && *at != '#' && !add(h, &capacity, at, n))
            return false;
        at += n + (at[n] != '\0');
    }
    return true;
}

sheaf_status *driver_hosts_read(driver_hosts *out, const char *list, const char *file)
{
    char *text = NULL;
    size_t size = 0;
    const bool is_list = sheaf__is_given(list);
    *out = (driver_hosts){ 0 };
    if (!is_list && !sheaf__is_given(file))
        return NULL;
    sheaf_status *st = is_list ? NULL : sheaf__file_read_all(&text, &size, file, MOST_BYTES);
    if (st == NULL && !split(out, is_list ? list : text, is_list ? "," : "\n\r")) {
        driver_hosts_release(out);
        st = sheaf__no_memory("the list of hosts");
    } else if (st == NULL && out->count == 0) {
        st = is_list ? sheaf_fail(SHEAF_E_ARG, "--hosts '%s'", list)
                     : sheaf_fail(SHEAF_E_ARG, "--hostfile %s", file);
        sheaf_found(sheaf_expected(st, "the name of one host at least"), "none");
    }
    free(text);
    return st;
}

void driver_hosts_release(driver_hosts *hosts)
{
    for (int i = 0; i < hosts->count; i++)
        free(hosts->host[i].name);
    free(hosts->host);
    *hosts = (driver_hosts){ 0 };
}

void driver_hosts_slots(int slots[SHEAF_MAX_SLICES + 1], const driver_hosts *h)
{
    int n = 0;
    for (; n < h->count && n < SHEAF_MAX_SLICES; n++)
        slots[n] = h->host[n].slots;
    slots[n] = 0;
}

static int slots_of_all(const driver_hosts *h, bool also_lost)
{
    int all = 0;
    for (int i = 0; i < h->count; i++)
        all += also_lost || !h->host[i].lost ? h->host[i].slots : 0;
    return all;
}

int driver_hosts_left(const driver_hosts *hosts, int ranks)
{
    const int all = slots_of_all(hosts, true), left = slots_of_all(hosts, false),
              share = all < ranks ? ranks * left / all : left;
    return share < ranks ? share : ranks;
}

char *driver_hosts_words(const driver_hosts *hosts, int ranks)
{
    const int all = slots_of_all(hosts, true);
    sheaf_text text = { 0 };
    char *words = NULL;
    for (int i = 0; i < hosts->count; i++) {
        const driver_host *h = &hosts->host[i];
        if (!h->lost)
            sheaf__text_add(&text, "%s%s:%d", text.size == 0 ? "" : ",", h->name,
                            all < ranks ? (h->slots * ranks + all - 1) / all : h->slots);
    }
    sheaf_status_free(sheaf__text_take(&words, &text));
    return words;
}
