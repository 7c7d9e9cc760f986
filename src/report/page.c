/* page.c - see page.h. */
#include "report/page.h"

#include "pages/pages.h"

/* JSON has these characters in strings alone, where each may be an escape. */
static void put_data(sheaf_text *to, const char *json)
{
    for (const char *at = json;;) {
        const size_t plain = strcspn(at, "<>&");
        sheaf__text_bytes(to, at, plain);
        if (at[plain] == '\0')
            return;
        sheaf__text_add(to, "\\u%04x", (unsigned)at[plain]);
        at += plain + 1;
    }
}

/* What stands for a mark of report.html. */
static void put_part(sheaf_text *to, const char *mark, size_t size, const char *json)
{
    static const char data[] = "data";
    const sheaf__page *file = NULL;
    char name[32];
    if (size == sizeof data - 1 && memcmp(mark, data, size) == 0)
        put_data(to, json);
    else if (size < sizeof name) {
        memcpy(name, mark, size);
        name[size] = '\0';
        file = sheaf__page_find(name);
    }
    if (file != NULL)
        sheaf__text_bytes(to, file->text, file->size);
}

sheaf_status *sheaf__report_page(char **html, const char *json)
{
    static const char begin[] = "{{", end[] = "}}";
    sheaf_text page = { 0 };
    const char *at = sheaf__page_find("report.html")->text, *mark;
    while ((mark = strstr(at, begin)) != NULL) {
        const char *name = mark + strlen(begin), *close = strstr(name, end);
        sheaf__text_bytes(&page, at, (size_t)(mark - at));
        put_part(&page, name, (size_t)(close - name), json);
        at = close + strlen(end);
    }
    sheaf__text_add(&page, "%s", at);
    return sheaf__text_take(html, &page);
}
