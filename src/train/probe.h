/* probe.h - what this machine's arithmetic gives, in a few hundred microseconds. */
#ifndef SHEAF_TRAIN_PROBE_H
#define SHEAF_TRAIN_PROBE_H

#include "train/options.h"

/* sheaf__probe - a hash of small results: products in the dtype and the order of sums of a run,
 * norms, activations, exponentials, an optimizer step, roundings to each dtype. Machines that give
 * the bytes of the contract give the same hash, whatever instructions they compute it with. */
sheaf_status *sheaf__probe(char out[33], const sheaf_train_options *options);

#endif
