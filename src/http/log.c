/* log.c - see log.h. */
#include "http/log.h"

enum { MOST = 200 }; /* bytes of a word: a client chooses how long its path is */

void sheaf__log_word(sheaf_text *to, const char *word)
{
    const size_t size = strlen(word), n = size < MOST ? size : MOST;
    for (size_t i = 0; i < n; i++)
        sheaf__text_add(to, word[i] > ' ' && word[i] <= '~' && word[i] != '%' ? "%c" : "%%%02X",
                        (unsigned char)word[i]);
    sheaf__text_add(to, "%s", n < size ? "..." : "");
}

void sheaf__log_line(sheaf_text *to, const sheaf__log_entry *entry)
{
    char time[32] = "", status[16] = "closed";
    struct tm utc;
    if (gmtime_r(&entry->arrived, &utc) != NULL)
        strftime(time, sizeof time, "%Y-%m-%dT%H:%M:%SZ", &utc);
    if (entry->status != 0)
        snprintf(status, sizeof status, "%d", entry->status);
    sheaf__text_add(to, "%s", time);
    const char *const words[] = { entry->client, entry->method, entry->path, status };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        sheaf__text_add(to, " ");
        sheaf__log_word(to, words[i]);
    }
    sheaf__text_add(to, "%s", entry->note == NULL ? "" : entry->note);
}
