/* token.h - the token that requests must have at an address. */
#pragma once

#include "base/base.h"

/* sheaf__http_token - the first line of `file` (malloc'd); NULL where file is NULL. Errors name the
 * flags --host and --token-file: SHEAF_E_ARG where no token is given for an address that other
 * machines reach; SHEAF_E_IO; SHEAF_E_DATA for a line that is no token, or too short. */
sheaf_status *sheaf__http_token(char **out, const char *host, const char *file);
