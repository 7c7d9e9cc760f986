/* base.h - what nearly every file needs: C's own types, strings and memory, statuses, growing
 * texts and arrays. */
#pragma once

#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/status.h"
#include "base/text.h"
