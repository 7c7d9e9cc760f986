/* json_write.h - JSON written key by key, on one line: all that is written and was not read before,
 * as a failed allocation is remembered here, while jansson's builders leave out what they have no
 * memory for. Reading is json.h's. */
#pragma once

#include "base/base.h"
#include "sheaf/finding.h"

/* All zero begins with an empty text; a text that has something is gone on with. A failed
 * allocation is remembered in the text. */
typedef struct sheaf_json_writer {
    sheaf_text text;
    int depth, count[8]; /* entries so far at each depth */
    bool compact;        /* without blanks, and reals with 17 digits, as jansson writes them */
} sheaf_json_writer;

/* sheaf__json_put - several entries: "step:d loss:f sent:[ { rank:i } ]" and their values. Behind
 * the key (none inside a list) stands what it is: s a text, or null; i an int; d an int64_t; f a
 * real, null where it is not finite; b a bool; { and [ open, } and ] close. */
void sheaf__json_put(sheaf_json_writer *j, const char *form, ...);

/* The outermost object. */
void sheaf__json_begin(sheaf_json_writer *j);
void sheaf__json_end(sheaf_json_writer *j);
/* A list or an object inside; `key` is NULL inside a list, here and below. */
void sheaf__json_open(sheaf_json_writer *j, const char *key, char bracket);
void sheaf__json_close(sheaf_json_writer *j, char bracket);

void sheaf__json_put_text(sheaf_json_writer *j, const char *key, const char *value); /* or null */
void sheaf__json_put_int(sheaf_json_writer *j, const char *key, int64_t value);
/* As sheaf__number_json() writes it. */
void sheaf__json_put_real(sheaf_json_writer *j, const char *key, double value);
void sheaf__json_put_bool(sheaf_json_writer *j, const char *key, bool value);
/* A value that is JSON already; as a string where it is not. */
void sheaf__json_put_raw(sheaf_json_writer *j, const char *key, const char *json);

/* "defect", "warning", "note" */
const char *sheaf__severity_name(sheaf_severity severity);
/* An object of a list. */
void sheaf__json_put_finding(sheaf_json_writer *j, const sheaf_finding *finding);

enum { SHEAF__JSON_NUMBER = 32 };
/* sheaf__number_json - the shortest decimal that reads back as the same double; "null" when not
 * finite (JSON has no other word). A point whatever the locale. */
const char *sheaf__number_json(char buffer[SHEAF__JSON_NUMBER], double x);
