/* batch_images.h - the images of a batch of prompts. */
#pragma once

#include "infer/batch_rows.h"
#include "infer/next_token.h"

typedef struct sheaf__batch_images {
    sheaf__picture_counts pictures;
    int64_t rows, embedded;  /* rows of the image stream, rows that hold images */
    sheaf__picture *picture; /* [pictures.images], followed by their pixels: the host's */
} sheaf__batch_images;

/* sheaf__prompt_images - number of images of a prompt: its own, or those that options->load reads.
 */
int64_t sheaf__prompt_images(const sheaf__prompt *prompt, const sheaf_config *config,
                             const sheaf__generate_options *options);
/* sheaf__prompts_images - the most in any batch of these prompts; frames count as groups. */
sheaf__picture_counts sheaf__prompts_images(const sheaf__prompt *prompt, int64_t count,
                                            int64_t batch, const sheaf_config *config);
/* sheaf__batch_images_check - does every image have pixels of a size that the towers take, and has
 * a prompt one where the model requires it? Errors: SHEAF_E_DATA naming prompt `index`. */
sheaf_status *sheaf__batch_images_check(const sheaf__model *model, const sheaf__prompt *prompt,
                                        int64_t index, const sheaf__generate_options *options);
/* sheaf__batch_images_lay_out - sets the rows of the images in n sequences of `longest` rows each,
 * the host's side of `rows`. */
void sheaf__batch_images_lay_out(sheaf__batch_images *images, const sheaf__batch_rows *rows,
                                 const sheaf_config *config, sheaf__sequence *const *sequence,
                                 int64_t n, int64_t longest);
/* sheaf__batch_images_fill - loads the pixels of these n sequences. */
sheaf_status *sheaf__batch_images_fill(sheaf__batch_images *images, const sheaf__model *model,
                                       sheaf__sequence *const *sequence, int64_t n);
/* sheaf__batch_images_release - also where none were filled. */
void sheaf__batch_images_release(sheaf__batch_images *images);
