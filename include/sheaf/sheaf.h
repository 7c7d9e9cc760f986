/* sheaf.h - the library: fine-tuning, storing, repairing, merging and running models that are
 * divided over devices. Functions that can fail return a status (status.h); structs of options
 * begin with their size (options.h). */
#pragma once

#include "sheaf/checkpoint.h"
#include "sheaf/control.h"
#include "sheaf/cut.h"
#include "sheaf/dtype.h"
#include "sheaf/evaluate.h"
#include "sheaf/events.h"
#include "sheaf/finding.h"
#include "sheaf/generate.h"
#include "sheaf/machine.h"
#include "sheaf/options.h"
#include "sheaf/owner.h"
#include "sheaf/plan.h"
#include "sheaf/progress.h"
#include "sheaf/foreign.h"
#include "sheaf/report.h"
#include "sheaf/schema.h"
#include "sheaf/source.h"
#include "sheaf/status.h"
#include "sheaf/text.h"
#include "sheaf/train.h"
#include "sheaf/version.h"
