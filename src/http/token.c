/* token.c - see token.h. */
#include "http/token.h"

#include "base/file.h"
#include "http/http.h"

enum { LEAST_TOKEN = 16 };

static sheaf_status *check_host(const char *host)
{
    return sheaf__http_is_loopback(host)
               ? NULL
               : sheaf_try_this(
                     sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "`host`"),
                                                "an address that only this machine reaches, or "
                                                "`token-file`, which others must show"),
                                 "%s", host),
                     "openssl rand -hex 24 > token, and `token-file token`");
}

sheaf_status *sheaf__http_token(char **out, const char *host, const char *path)
{
    char *text = NULL;
    size_t size = 0;
    *out = NULL;
    if (path == NULL)
        return check_host(host);
    sheaf_status *st = sheaf__file_read_all(&text, &size, path, 4096);
    if (st != NULL)
        return sheaf_in(st, "`token-file`");
    text[strcspn(text, "\r\n")] = '\0';
    for (const char *c = text; *c != '\0' && st == NULL; c++)
        if (*c <= ' ' || *c > '~')
            st = sheaf_expected(sheaf_fail(SHEAF_E_DATA, "`token-file %s`", path),
                                "a line of ASCII letters, digits and signs");
    if (st == NULL && strlen(text) < LEAST_TOKEN)
        st = sheaf_try_this(
            sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_DATA, "`token-file %s`", path),
                                       "a token of %d characters or more", LEAST_TOKEN),
                        "%zu", strlen(text)),
            "openssl rand -hex 24 > %s", path);
    if (st == NULL)
        *out = text;
    else
        free(text);
    return st;
}
