/* regex.c - see regex.h. */
#include "base/regex.h"

#include "base/base.h"

enum {
    MATCH_STEPS = 1000000
}; /* of the matcher: limits a hostile pattern to well under a second */

static sheaf_status *compile(pcre2_code **out, const char *pattern, bool whole)
{
    int code;
    size_t at;
    const uint32_t how = PCRE2_ANCHORED | (whole ? PCRE2_ENDANCHORED : 0);
    *out = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, how, &code, &at, NULL);
    if (*out != NULL)
        return NULL;
    if (sheaf__regex_starved(code))
        return sheaf_fail(SHEAF_E_MEMORY, "pattern '%s'", pattern);
    PCRE2_UCHAR message[128] = "";
    pcre2_get_error_message(code, message, sizeof message);
    sheaf_status *st = sheaf_fail(SHEAF_E_ARG, "pattern '%s'", pattern);
    return sheaf_found(sheaf_expected(st, "a regular expression"), "%s, at character %zu",
                       (char *)message, at);
}

static sheaf_status *run(bool *out, int64_t *group, const pcre2_code *code, const char *pattern,
                         const char *subject)
{
    pcre2_match_data *data = pcre2_match_data_create_from_pattern(code, NULL);
    pcre2_match_context *context = pcre2_match_context_create(NULL);
    sheaf_status *st = NULL;
    if (data == NULL || context == NULL) {
        st = sheaf_fail(SHEAF_E_MEMORY, "pattern '%s'", pattern);
        goto done;
    }
    pcre2_set_match_limit(context, MATCH_STEPS);
    const int n = pcre2_match(code, (PCRE2_SPTR)subject, strlen(subject), 0, 0, data, context);
    if (sheaf__regex_starved(n)) {
        st = sheaf_fail(SHEAF_E_MEMORY, "pattern '%s'", pattern);
        goto done;
    }
    if (n < 0 && n != PCRE2_ERROR_NOMATCH) {
        PCRE2_UCHAR message[128] = "";
        pcre2_get_error_message(n, message, sizeof message);
        st = sheaf_found(sheaf_fail(SHEAF_E_ARG, "pattern '%s' on '%s'", pattern, subject), "%s",
                         (char *)message);
        goto done;
    }
    *out = n >= 0;
    if (group != NULL) {
        const size_t *span = pcre2_get_ovector_pointer(data);
        *group = n > 1 && span[2] != PCRE2_UNSET ? strtoll(subject + span[2], NULL, 10) : -1;
    }
done:
    pcre2_match_data_free(data);
    pcre2_match_context_free(context);
    return st;
}

sheaf_status *sheaf__regex_match(bool *out, int64_t *group, const char *before, const char *pattern,
                                 const char *after, const char *subject, bool whole)
{
    char *text = NULL;
    if (asprintf(&text, "%s%s%s", before, pattern, after) < 0)
        return sheaf_fail(SHEAF_E_MEMORY, "pattern '%s'", pattern);
    pcre2_code *code = NULL;
    sheaf_status *st = compile(&code, text, whole);
    TRY(st, run(out, group, code, text, subject));
    pcre2_code_free(code);
    free(text);
    return st;
}
