/* hosts.c - see launch.h. */
#include "driver/launch.h"

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "base/clock.h"
#include "base/file.h"

enum { ANSWER_S = 15, MOST_BYTES = 1 << 20 };

/* ---- the list ---- */

static bool add(driver_hosts *h, int64_t *capacity, const char *at, size_t size, bool is_list)
{
    const size_t name = strcspn(at, ": \t,\n\r");
    char *words = strndup(at, size);
    if (words == NULL || !SHEAF_GROW(&h->host, capacity, h->count + 1)) {
        free(words);
        return false;
    }
    const char *slots = strstr(words, "slots="), *number = slots != NULL        ? slots + 6
                                                           : words[name] == ':' ? words + name + 1
                                                                                : "0";
    driver_host *one = &h->host[h->count];
    *one = (driver_host){ .name = strndup(at, name < size ? name : size), .slots = atoi(number) };
    while (one->name != NULL && one->first < h->count &&
           strcmp(h->host[one->first].name, one->name) != 0)
        one->first++;
    h->count++;
    if (is_list)
        one->words = words;
    else
        free(words);
    return one->name != NULL;
}

static bool split(driver_hosts *h, const char *text, bool is_list)
{
    const char *ends = is_list ? "," : "\n\r";
    int64_t capacity = 0;
    for (const char *at = text; *at != '\0';) {
        at += strspn(at, " \t");
        const size_t n = strcspn(at, ends);
        if (n > 0 && *at != '#' && !add(h, &capacity, at, n, is_list))
            return false;
        at += n + (at[n] != '\0');
    }
    return true;
}

sheaf_status *driver_hosts_read(driver_hosts *out, const char *list, const char *file)
{
    char *text = NULL;
    size_t size = 0;
    const bool is_list = list != NULL && *list != '\0';
    *out = (driver_hosts){ 0 };
    if (!is_list && (file == NULL || *file == '\0'))
        return NULL;
    sheaf_status *st = is_list ? NULL : sheaf__file_read_all(&text, &size, file, MOST_BYTES);
    if (st != NULL)
        return st;
    if (!split(out, is_list ? list : text, is_list)) {
        driver_hosts_release(out);
        st = sheaf__no_memory("the list of hosts");
    } else if (out->count == 0) {
        st = is_list ? sheaf_fail(SHEAF_E_ARG, "--hosts '%s'", list)
                     : sheaf_fail(SHEAF_E_ARG, "--hostfile %s", file);
        sheaf_found(sheaf_expected(st, "the name of one host at least"), "none");
    }
    free(text);
    return st;
}

void driver_hosts_release(driver_hosts *hosts)
{
    for (int i = 0; i < hosts->count; i++) {
        free(hosts->host[i].name);
        free(hosts->host[i].words);
    }
    free(hosts->host);
    *hosts = (driver_hosts){ 0 };
}

static int slots_of(const driver_host *host)
{
    return host->slots < 1 ? 1 : host->slots > SHEAF_MAX_SLICES ? SHEAF_MAX_SLICES : host->slots;
}

void driver_hosts_slots(int slots[SHEAF_MAX_SLICES + 1], const driver_hosts *h)
{
    int n = 0;
    for (int i = 0; i < h->count && n < SHEAF_MAX_SLICES; i++) {
        slots[n] = 0;
        for (int j = i; j < h->count && h->host[i].first == i; j++)
            slots[n] += h->host[j].first == i ? slots_of(&h->host[j]) : 0;
        n += slots[n] > 0;
    }
    slots[n] = 0;
}

int driver_hosts_left(const driver_hosts *hosts, int ranks)
{
    int64_t all = 0, left = 0;
    for (int i = 0; i < hosts->count; i++) {
        const int slots = slots_of(&hosts->host[i]);
        all += slots;
        left += hosts->host[i].lost ? 0 : slots;
    }
    if (all < ranks)
        left = ranks * left / all;
    return (int)(left < ranks ? left : ranks);
}

char *driver_hosts_words(const driver_hosts *hosts, int ranks)
{
    sheaf_text text = { 0 };
    char *words = NULL;
    int all = 0;
    for (int i = 0; i < hosts->count; i++)
        all += slots_of(&hosts->host[i]);
    for (int i = 0; i < hosts->count; i++) {
        const driver_host *h = &hosts->host[i];
        const int slots = slots_of(h);
        if (h->lost)
            continue;
        sheaf__text_add(&text, "%s%s", text.size == 0 ? "" : ",", h->words ? h->words : h->name);
        if (h->words == NULL)
            sheaf__text_add(&text, ":%d", all < ranks ? (slots * ranks + all - 1) / all : slots);
    }
    sheaf_status_free(sheaf__text_take(&words, &text));
    return words;
}

/* ---- who answers ---- */

/* In a new process, with a group of its own: what it starts in turn is killed with it. */
static void ask(const char *mpirun, bool is_open, const char *host, const char *self)
{
    char *const words[] = { (char *)mpirun,      (char *)"-n",
                            (char *)"1",         (char *)(is_open ? "--host" : "-hosts"),
                            (char *)host,        (char *)self,
                            (char *)"--version", NULL };
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const int nothing = open("/dev/null", O_RDWR);
    for (int fd = 0; fd <= 2 && nothing >= 0; fd++)
        dup2(nothing, fd);
    execv(mpirun, words);
    _exit(127);
}

/* *pid: 0 afterwards, unless it has not ended by then. */
static bool answered(pid_t *pid, double until)
{
    int status = 0;
    pid_t ended;
    while ((ended = waitpid(*pid, &status, WNOHANG)) == 0 && sheaf__seconds() < until)
        usleep(20000);
    const bool yes = ended == *pid && WIFEXITED(status) && WEXITSTATUS(status) == 0;
    *pid = ended == 0 ? *pid : 0;
    return yes;
}

int driver_hosts_ask(driver_hosts *hosts, const char *mpi)
{
    char *mpirun = NULL, self[PATH_MAX];
    bool is_open = false;
    int lost = 0, asked = 0;
    pid_t *pid = calloc((size_t)hosts->count + 1, sizeof *pid);
    const ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    sheaf_status *st = driver_launch_mpirun(&mpirun, &is_open, mpi);
    if (st != NULL || n <= 0 || pid == NULL)
        goto done;
    self[n] = '\0';
    for (int i = 0; i < hosts->count; i++) /* all at once */
        if (hosts->host[i].first == i && (pid[i] = fork()) == 0)
            ask(mpirun, is_open, hosts->host[i].name, self);
    const double until = sheaf__seconds() + ANSWER_S;
    for (int i = 0; i < hosts->count; i++)
        if (pid[i] > 0) {
            hosts->host[i].lost = !answered(&pid[i], until);
            lost += hosts->host[i].lost;
            asked++;
        }
    driver_launch_kill(pid, hosts->count);
    for (int i = 0; i < hosts->count; i++)
        if (pid[i] > 0)
            waitpid(pid[i], NULL, 0);
    for (int i = 0; i < hosts->count; i++) /* the first of a name comes first */
        hosts->host[i].lost = lost < asked && hosts->host[hosts->host[i].first].lost;
done:
    sheaf_status_free(st);
    free(mpirun);
    free(pid);
    return lost < asked ? lost : 0;
}
