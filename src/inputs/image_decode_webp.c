/* image_decode_webp.c - WebP by libwebp: a still picture, or the first frame of an animation on its
 * canvas, which is black around it (white, if transparency is laid on white); see image.h. */
#include "inputs/image_decode.h"

#include <webp/decode.h>
#include <webp/demux.h>

#include "base/base.h"

static sheaf_status *damaged(VP8StatusCode code)
{
    static const char *const words[] = {
        [VP8_STATUS_INVALID_PARAM] = "invalid parameter",
        [VP8_STATUS_BITSTREAM_ERROR] = "bitstream error",
        [VP8_STATUS_UNSUPPORTED_FEATURE] = "unsupported feature",
        [VP8_STATUS_SUSPENDED] = "the data ends early",
        [VP8_STATUS_USER_ABORT] = "stopped",
        [VP8_STATUS_NOT_ENOUGH_DATA] = "the data ends early",
    };
    const char *reason = (size_t)code < sizeof words / sizeof *words ? words[code] : NULL;
    if (code == VP8_STATUS_OUT_OF_MEMORY)
        return sheaf__no_memory("out of memory");
    return sheaf__image_damaged("WebP", "libwebp", reason == NULL ? "not a picture" : reason);
}

/* Decodes it at its place on the canvas.
 *   clear  the canvas is white, and what is transparent in the frame too */
static sheaf_status *decode_frame(const sheaf_image *canvas, const WebPIterator *frame, bool clear)
{
    WebPDecoderConfig config;
    if (!WebPInitDecoderConfig(&config))
        return damaged(VP8_STATUS_INVALID_PARAM);
    const VP8StatusCode known =
        WebPGetFeatures(frame->fragment.bytes, frame->fragment.size, &config.input);
    if (known != VP8_STATUS_OK)
        return damaged(known);
    if (config.input.width != frame->width || config.input.height != frame->height ||
        frame->x_offset < 0 || frame->y_offset < 0 ||
        frame->x_offset > canvas->width - frame->width ||
        frame->y_offset > canvas->height - frame->height)
        return damaged(VP8_STATUS_BITSTREAM_ERROR);
    const int64_t stride = canvas->width * 3;
    const int64_t begin = frame->y_offset * stride + frame->x_offset * INT64_C(3);
    if (frame->width < canvas->width || frame->height < canvas->height)
        memset(canvas->pixels, clear ? 255 : 0, (size_t)(stride * canvas->height));
    config.output.colorspace = clear ? MODE_RGBA : MODE_RGB;
    config.output.is_external_memory = !clear;
    config.output.u.RGBA.rgba = clear ? NULL : canvas->pixels + begin;
    config.output.u.RGBA.stride = clear ? 0 : (int)stride;
    config.output.u.RGBA.size = clear ? 0 : (size_t)(stride * canvas->height - begin);
    const VP8StatusCode code = WebPDecode(frame->fragment.bytes, frame->fragment.size, &config);
    for (int y = 0; code == VP8_STATUS_OK && clear && y < frame->height; y++)
        sheaf__image_lay(canvas->pixels + begin + y * stride,
                         config.output.u.RGBA.rgba + (int64_t)y * config.output.u.RGBA.stride,
                         frame->width);
    WebPFreeDecBuffer(&config.output);
    return code == VP8_STATUS_OK ? NULL : damaged(code);
}

static sheaf_status *decode(sheaf_image *out, int *orientation, const WebPDemuxer *file,
                            const sheaf__image_in *in)
{
    WebPIterator frame = { 0 };
    WebPChunkIterator chunk = { 0 };
    sheaf_status *st = sheaf__image_new(out, WebPDemuxGetI(file, WEBP_FF_CANVAS_WIDTH),
                                        WebPDemuxGetI(file, WEBP_FF_CANVAS_HEIGHT), in);
    if (st == NULL && !WebPDemuxGetFrame(file, 1, &frame))
        st = damaged(VP8_STATUS_BITSTREAM_ERROR);
    if (!in->size_only)
        TRY(st, decode_frame(out, &frame,
                             in->on_white &&
                                 (WebPDemuxGetI(file, WEBP_FF_FORMAT_FLAGS) & ALPHA_FLAG) != 0));
    WebPDemuxReleaseIterator(&frame);
    if (WebPDemuxGetChunk(file, "EXIF", 1, &chunk))
        *orientation = sheaf__image_orientation(chunk.chunk.bytes, chunk.chunk.size);
    WebPDemuxReleaseChunkIterator(&chunk);
    return st;
}

sheaf_status *sheaf__image_webp(sheaf_image *out, int *orientation, const sheaf__image_in *in)
{
    const WebPData data = { in->bytes, in->size };
    WebPDemuxState state = WEBP_DEMUX_PARSE_ERROR;
    WebPDemuxer *file = WebPDemuxPartial(&data, &state);
    sheaf_status *st = state == WEBP_DEMUX_PARSE_ERROR || (file == NULL && state == WEBP_DEMUX_DONE)
                           ? damaged(VP8_STATUS_BITSTREAM_ERROR)
                       : file == NULL || state != WEBP_DEMUX_DONE
                           ? sheaf__image_cut_short(in, 0, 0)
                           : decode(out, orientation, file, in);
    WebPDemuxDelete(file);
    return st;
}
