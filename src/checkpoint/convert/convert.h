/* convert.h - a checkpoint of any dialect becomes one of another: joined, divided, unpadded, in
 * another dtype.
 *
 * Tensors stream from the pieces that were found to the places that are wanted, some megabytes for
 * each thread; that nothing is missing is proven before the first byte is written, and the output
 * appears by one rename. */
#pragma once

#include "base/control.h"
#include "sheaf/checkpoint.h"

/* sheaf_convert - sheaf_weights_convert() of what is no run, by one thread where options->threads
 * is 0. Warnings and notes of the reader go to events. */
sheaf_status *sheaf_convert(sheaf_weights_convert_report *report,
                            const sheaf_weights_convert_options *options);
