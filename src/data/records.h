/* records.h - data sets with images: which image, which turns, nothing decoded yet.
 *
 * Read are
 *   a folder          every *.jpg, *.jpeg, *.png, *.webp (in any case) below it, in the order of
 *                     their paths' bytes. The answer is the file's name up to its first dot, the
 *                     query the same for all ("CAPTCHA:"). Links are followed; a folder that is
 *                     reached twice is read once, so links in a circle end. Where a folder of
 *                     labels lies beside one of images, these are the records (upstream's SFT data)
 *   JSON Lines, or a file that is one JSON array; a record is one of
 *     {"image": PATH, "prompt": P, "completion": C}          or "answer"
 *     {"image": PATH, "conversations": [{"from": "human", "value": "<image>\nQ"},
 *                                       {"from": "gpt", "value": A}, ...]}
 *     {"messages": [{"role": "user",
 *                    "content": [{"type": "image_url", "image_url": {"url": PATH}},
 *                                {"type": "text", "text": Q}]},
 *                   {"role": "assistant", "content": A}, ...]}
 *     Paths are relative to the file's folder. "images" with one path is as "image", and
 *     {"type": "image"} without a path stands for it; a record may have none. Each list may have
 *     the words of the other. "<image>" in a user's text is the mark of the image: it is taken
 *     out, the image being first always; without an image it is an error
 * Every record is checked; errors are collected, so that one pass reports all of them. */
#pragma once

#include "base/base.h"
#include "base/events.h"
#include "data/complaints.h"
#include "data/fields.h"
#include "inputs/template.h"
#include "sheaf/status.h"

typedef struct sheaf__record {
    int64_t place;           /* line of JSON Lines, entry of an array, from 1; 0 in a folder */
    const char *image;       /* path, or NULL */
    const sheaf__turn *turn; /* [turns], at least 1; the last is the one to answer */
    int64_t turns;  /* its answer is NULL when there is none (only with answers_optional) */
    bool desirable; /* of judged records: is that answer? */
} sheaf__record;

typedef struct sheaf__records {
    int64_t count, capacity;
    sheaf__record *record;
    int64_t looked_at; /* records that were checked, bad ones included */
    int64_t memory;    /* bytes held */
    const char *unit;  /* "line", "entry", "image" */
} sheaf__records;

typedef struct sheaf__records_options {
    const char *query;     /* of a folder; NULL: "CAPTCHA:" */
    const char *fields;    /* as sheaf_data_options has it */
    bool answers_optional; /* for inference; file names need no answer either */
    bool pairs;            /* records of two answers, of which each gives two: chosen, rejected; */
    bool judged;           /* or of one that is judged (data/preference.h) */
    const sheaf_events *events; /* may be NULL */
} sheaf__records_options;

/* sheaf__records_read - good records only; the errors of others go to `complaints`, to which a
 * caller may add its own (an image that cannot be decoded, a text too long) before it takes the
 * verdict. NULL: the first bad record is this function's failure. Errors: SHEAF_E_IO,
 * SHEAF_E_FORMAT (a JSON array that is broken as a whole), SHEAF_E_DATA (no records),
 * SHEAF_E_MEMORY. Release also after a failure. */
sheaf_status *sheaf__records_read(sheaf__records *out, const char *path,
                                  const sheaf__records_options *options,
                                  sheaf__complaints *complaints);
void sheaf__records_release(sheaf__records *records);

/* sheaf__turn_marks - number of picture marks in the questions; *where: the last question with
 * one. */
int64_t sheaf__turn_marks(int64_t *where, const sheaf__turn *turn, int64_t turns);
/* sheaf__record_in - puts "line 7" (or the image's path) before a status about record `index`. */
sheaf_status *sheaf__record_in(sheaf_status *st, const sheaf__records *records, int64_t index);

/* ---- private to its readers ---- */

typedef struct sheaf__records_reader {
    sheaf__records *out;
    const char *path; /* of the data set */
    const sheaf__records_options *options;
    sheaf__complaints *complaints;
    sheaf__fields fields; /* parsed options->fields */
    bool reported;        /* the note on an unread field of a label was given */
} sheaf__records_reader;

/* Puts `path` before its own failures, but not before complaints. */
sheaf_status *sheaf__records_read_json(sheaf__records_reader *in);

/* sheaf__records_take_label - the record of `image` that the JSON file `label` holds; a bad one is
 * a complaint. */
sheaf_status *sheaf__records_take_label(sheaf__records_reader *in, const char *image,
                                        const char *label);

/* sheaf__records_put - copies all of it. Errors: SHEAF_E_MEMORY. */
sheaf_status *sheaf__records_put(sheaf__records *out, const sheaf__record *record);
/* sheaf__records_move - all of `from` behind those of `to`. Errors: SHEAF_E_MEMORY. */
sheaf_status *sheaf__records_move(sheaf__records *to, sheaf__records *from);
