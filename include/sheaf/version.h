/* version.h - which sheaf a program was compiled against, and which one it runs with. */
#pragma once

#include "sheaf/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Of these headers. */
#define SHEAF_VERSION_MAJOR 0
#define SHEAF_VERSION_MINOR 1
#define SHEAF_VERSION_PATCH 0

/* sheaf_version - of the library: "0.1.0". Static. */
SHEAF_API const char *sheaf_version(void);

#ifdef __cplusplus
}
#endif
