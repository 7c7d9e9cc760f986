/* terminal.c - see terminal.h. */
#include "base/terminal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

static bool is_set(const char *name)
{
    const char *value = getenv(name);
    return value != NULL && *value != '\0';
}

bool sheaf__terminal_rewrites(FILE *stream)
{
    return isatty(fileno(stream)) && is_set("TERM") && strcmp(getenv("TERM"), "dumb") != 0;
}

bool sheaf__terminal_steers(FILE *stream)
{
    return sheaf__terminal_rewrites(stream) && !is_set("NO_COLOR");
}

int sheaf__terminal_columns(FILE *stream)
{
    enum { LEAST = 2, USUAL = 80, MOST = 10000 };
    struct winsize size = { 0 };
    const char *text = getenv("COLUMNS");
    const long requested = text == NULL ? 0 : strtol(text, NULL, 10);
    const bool known = ioctl(fileno(stream), TIOCGWINSZ, &size) == 0 && size.ws_col >= LEAST;
    const long columns = known                                     ? size.ws_col
                         : requested >= LEAST && requested <= MOST ? requested
                                                                   : USUAL;
    return (int)(requested >= LEAST && requested < columns ? requested : columns);
}
