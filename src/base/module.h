/* module.h - where the modules lie that are loaded when they are needed: sheaf-NAME.so. */
#pragma once

#include "sheaf/status.h"

/* sheaf__module_find - the path of sheaf-NAME.so, to free(): in the folder that SHEAF_PLUGINS
 * names, beside the program, or in the library's folder. NULL: it is in none (or no memory). */
char *sheaf__module_find(const char *name);
/* sheaf__module_searched - adds to a status that it was in none of them. */
sheaf_status *sheaf__module_searched(sheaf_status *st);
