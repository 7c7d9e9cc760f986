/* data_pictures.h - private: the pictures of a data set that stay files.
 *
 * Each is read and decoded once when the data set is checked, and again whenever a batch needs it:
 * by worker threads for rows that were announced, else by the one who asks. What is decoded is
 * held, as bytes at the towers' sizes, in a fixed number of slots that all ranks of a process
 * share; whichever way a row's image came, its numbers are the same. A file whose bytes are not
 * those of the check is an error. Conversations (data_talks.c) bring a source of their own, which
 * reads all pictures of a row, each at its own size. */
#ifndef SHEAF_DATA_DATA_PICTURES_H
#define SHEAF_DATA_DATA_PICTURES_H

#include "data/records.h"
#include "data/data_images.h"

typedef struct sheaf__pictures sheaf__pictures;

typedef struct sheaf__pictures_options {
    int64_t slots;          /* images held at a time, at least 1 */
    int threads;            /* that may decode at once; 0 = every core this process may use */
    const atomic_int *stop; /* ends the check; may be NULL */
} sheaf__pictures_options;

/* Pictures of another kind, as bytes of their rows. */
typedef struct sheaf__pictures_source {
    size_t (*size)(const void *self, int64_t row); /* of a row's bytes; 0: it has no picture */
    sheaf_status *(*prepare)(const void *self, int64_t row, uint8_t *bytes); /* reads them */
    void (*show)(const void *self, int64_t row, const sheaf__picture *picture,
                 const uint8_t *bytes); /* as pixels */
    void (*close)(void *self);
    void *self;
} sheaf__pictures_source;

/* sheaf__pictures_of - of rows that a source has, checked already; takes the source's self, but
 * after a failure. */
sheaf_status *sheaf__pictures_of(sheaf__pictures **out, int64_t rows,
                                 const sheaf__pictures_source *source,
                                 const sheaf__pictures_options *options);
/* sheaf__pictures_new - of each record that has one; row r is record r. shape->hash must have come
 * to life before the first load. */
sheaf_status *sheaf__pictures_new(sheaf__pictures **out, const sheaf__records *records,
                                  const sheaf__data_images *shape,
                                  const sheaf__pictures_options *options);
void sheaf__pictures_free(void *pictures);

/* sheaf__pictures_check - reads and decodes all of them, several at once.
 *   hash  [rows] of each file's bytes
 *   bad   [rows] NULL, or what is wrong, with the path; the caller frees them
 * Errors: a failure that is not a picture's own (SHEAF_E_MEMORY), SHEAF_E_STOPPED. */
sheaf_status *sheaf__pictures_check(sheaf__pictures *pictures, sheaf_hash *hash, sheaf_status **bad,
                                    const sheaf_events *events);

/* sheaf__pictures_load, _announce - as in sheaf__data_images; self is the sheaf__pictures. */
sheaf_status *sheaf__pictures_load(void *self, int64_t row, const sheaf__picture *picture);
void sheaf__pictures_announce(void *self, const int64_t *row, int64_t n);
/* sheaf__pictures_memory - bytes when every slot is in use. */
int64_t sheaf__pictures_memory(const sheaf__pictures *pictures);
/* sheaf__pictures_held - decoded images in slots just now; for tests. */
int64_t sheaf__pictures_held(sheaf__pictures *pictures);

#endif
