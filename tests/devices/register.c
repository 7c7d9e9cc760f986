/* register.c - the command with two devices more: `checked` and `copied`. */
#include "tests/devices/checked.h"
#include "tests/devices/copied.h"

__attribute__((constructor)) static void register_devices(void)
{
    sheaf__device_register(&checked_device);
    sheaf__device_register(&copied_device);
}
