/* data_pictures.h - private: the pictures of a data set that stay files.
 *
 * Each is looked at once when the data set is read (inputs/viewing.h), and decoded again whenever a
 * batch needs it: by worker threads for rows that were announced, else by the one who asks. What is
 * decoded is held, as bytes of the pieces that the towers see, in a fixed number of slots that all
 * ranks of a process share; whichever way a row's pictures came, their numbers are the same. A file
 * whose bytes are not those of the first look is an error. */
#pragma once

#include "data/data_images.h"
#include "inputs/viewing.h"

typedef struct sheaf__pictures sheaf__pictures;

/* sheaf__pictures_new - without rows. threads: that may decode at once; 0: every core this process
 * may use. */
sheaf_status *sheaf__pictures_new(sheaf__pictures **out, const sheaf_config *config, int threads);
/* sheaf__pictures_viewing - how they are looked at, by any thread. */
const sheaf__viewing *sheaf__pictures_viewing(const sheaf__pictures *pictures);
/* sheaf__pictures_put - one more row, of `n` pictures, which are moved out of `viewed`. */
sheaf_status *sheaf__pictures_put(sheaf__pictures *pictures, sheaf__viewed *viewed, int64_t n);
/* sheaf__pictures_keep - all rows are there: data->images reads them from here from now on, and
 * owns `pictures`; it gets their sizes and hashes. Slots are for three micro-batches: this one, the
 * next one, and one more for a rank that lags. */
sheaf_status *sheaf__pictures_keep(sheaf__pictures *pictures, sheaf_data *data,
                                   int64_t micro_batch);
void sheaf__pictures_free(void *pictures); /* accepts NULL */
/* sheaf__pictures_held - rows in slots just now; for tests. */
int64_t sheaf__pictures_held(sheaf__pictures *pictures);
