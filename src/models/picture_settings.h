/* picture_settings.h - the settings for pictures that lie beside a model's config.json:
 *
 *   processor_config.json     of transformers 5, which nests them in "image_processor"
 *   preprocessor_config.json  of earlier versions; where the first has them, transformers does not
 *                             look at this one */
#pragma once

#include "base/events.h"
#include "schema/config.h"

/* sheaf__picture_settings_read - takes the settings that the family's program takes from there, and
 * refuses by name what it would do otherwise than is done here. Warns where two files differ, notes
 * where settings are needed and there are none.
 *   folder  NULL or "": none
 *   config  the config's own file, whose folder is looked at where `folder` has no such file; NULL
 * Errors: SHEAF_E_FORMAT, SHEAF_E_UNSUPPORTED, SHEAF_E_LAYOUT, with file and key. */
sheaf_status *sheaf__picture_settings_read(sheaf_config *c, const char *folder, const char *config,
                                           const sheaf_events *events);
