/* page.c - see page.h.
 *
 * report.html by itself loads style, script and numbers from its server; here they take the places
 * of the elements that name them. */
#include "report/page.h"

#include <assert.h>

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

sheaf_status *sheaf__report_page(char **html, const char *json)
{
    static const struct {
        const char *of, *before, *file, *after; /* file: NULL: the data */
    } parts[] = {
        { "<link rel=\"stylesheet\" href=\"report.css\">",
          "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
          "'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; base-uri 'none'; "
          "form-action 'none'\">\n<style>\n",
          "report.css", "</style>" },
        { "null</script>", "", NULL, "</script>" },
        { "<script src=\"report.js\"></script>", "<script>\n", "report.js", "</script>" },
    };
    sheaf_text page = { 0 };
    const char *at = sheaf__embedded_find(sheaf__pages, "report.html")->text;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        const char *found = strstr(at, parts[i].of);
        const sheaf__embedded *file =
            parts[i].file == NULL ? NULL : sheaf__embedded_find(sheaf__pages, parts[i].file);
        assert(found != NULL);
        sheaf__text_bytes(&page, at, (size_t)(found - at));
        sheaf__text_add(&page, "%s", parts[i].before);
        if (file == NULL)
            put_data(&page, json);
        else
            sheaf__text_bytes(&page, file->text, file->size);
        sheaf__text_add(&page, "%s", parts[i].after);
        at = found + strlen(parts[i].of);
    }
    sheaf__text_add(&page, "%s", at);
    return sheaf__text_take(html, &page);
}
