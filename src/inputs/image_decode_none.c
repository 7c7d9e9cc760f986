/* image_decode_none.c - the decoders of a build without images, which refuse every picture. */
#include "inputs/image_decode.h"

static sheaf_status *refuse(void)
{
    sheaf_status *st = sheaf_fail(SHEAF_E_UNSUPPORTED, "this build has no images");
    return sheaf_try_this(st, "build sheaf with -Dimages=enabled");
}

sheaf_status *sheaf__image_jpeg(sheaf_image *out, int *orientation, const sheaf__image_in *in)
{
    return refuse();
}

sheaf_status *sheaf__image_png(sheaf_image *out, int *orientation, const sheaf__image_in *in)
{
    return refuse();
}

sheaf_status *sheaf__image_webp(sheaf_image *out, int *orientation, const sheaf__image_in *in)
{
    return refuse();
}
