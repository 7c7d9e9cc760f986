/* data_pictures.h - private: the pictures of a data set that stay files.
 *
 * Each is decoded once when the data set is read (inputs/viewing.h), and again whenever a batch
 * needs it: by worker threads for announced rows, else by the calling thread. A fixed number of
 * slots, shared by all ranks of a process, caches the decoded pieces; the numbers do not depend on
 * the thread that decoded them. A file that changed since the first time is an error. */
#pragma once

#include "data/data_images.h"
#include "inputs/viewing.h"

typedef struct sheaf__pictures sheaf__pictures;

/* sheaf__pictures_new - without rows. threads: that decode in parallel; 0: every core this process
 * may use. */
sheaf_status *sheaf__pictures_new(sheaf__pictures **out, const sheaf_config *config, int threads);
/* sheaf__pictures_viewing - how they are divided; thread-safe. */
const sheaf__viewing *sheaf__pictures_viewing(const sheaf__pictures *pictures);
/* sheaf__pictures_put - appends a row of `n` pictures, which are moved out of `viewed`. */
sheaf_status *sheaf__pictures_put(sheaf__pictures *pictures, sheaf__viewed *viewed, int64_t n);
/* sheaf__pictures_keep - after the last row: data->images owns `pictures`, reads from it, and gets
 * sizes and hashes. Slots are for three micro-batches: this one, the next one, and one more for a
 * rank that lags. */
sheaf_status *sheaf__pictures_keep(sheaf__pictures *pictures, sheaf_data *data,
                                   int64_t micro_batch);
void sheaf__pictures_free(void *pictures); /* accepts NULL */
/* sheaf__pictures_held - rows that are cached in slots; for tests. */
int64_t sheaf__pictures_held(sheaf__pictures *pictures);
