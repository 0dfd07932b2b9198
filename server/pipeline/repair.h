/* Damage of the picture itself: where it is (repair_find.c, repair_screen.c), and pixels in its place (repair_fill.c).
 * Thread-safety: as step.h. */
#ifndef SERVER_PIPELINE_REPAIR_H
#define SERVER_PIPELINE_REPAIR_H

#include "server/image/defect.h"
#include "server/pipeline/step.h"

/* Whether the step has anything to do on the device, and so must be over before other steps begin. */
bool repair_wanted(const struct step *step);

/* Runs the damage detector on the step's picture or one made from it, which has RGB in 8 bits (deep.h), in windows around
 * cores of that many px a side (0: as suits the device), which does not change what it finds. level and kind: a byte a
 * pixel, as in defect.h. */
enum error_code repair_find(struct step *step, const struct image *picture, int core, uint8_t *level, uint8_t *kind,
                            struct error *err) MUST_CHECK;

/* Whether a picture in 8 bits is printed in a screen of dots. */
bool repair_is_screen(const struct image *picture);

/* Clears `level`, which repair_find has set for the step's picture, where that at half its size shows no damage. room: a
 * byte a pixel. */
enum error_code repair_find_halved(struct step *step, uint8_t *level, uint8_t *room, struct error *err) MUST_CHECK;

/* At least *bytes of memory, which become as many as there are; they may be another picture's afterwards
 * (device_take_room). NULL: there are none, and none are to be kept. */
void *repair_take_room(const struct step *step, size_t *bytes);
void repair_keep_room(const struct step *step, void *room, size_t bytes);

/* A run of a role's network on planes or pictures, which these outlive. */
struct run_io repair_io(const struct step *step, enum model_role role, const struct run_input *inputs,
                        const struct run_output *output);

/* Does it and waits; results that are not finite are refused as in
 * step_network. */
enum error_code repair_network(struct step *step, enum model_role role, const struct session_shape *shape,
                               const struct run_input *inputs, const struct run_output *output,
                               struct error *err) MUST_CHECK;

/* Fills the picture where the mask (a byte a pixel) is not 0; `strength` is how much of that is used, 0..1. Beyond the
 * mask it changes pixels that are at most REPAIR_FEATHER px away, and no others. unknown: a mask that covers that one,
 * and what else is not to be seen while it is filled; NULL: nothing else. */
#define REPAIR_FEATHER 2
enum error_code repair_fill(struct step *step, const uint8_t *mask, const uint8_t *unknown, double strength,
                            struct error *err) MUST_CHECK;

/* Of a picture with holes everywhere: how many megapixels its windows have, counted with what they share. info: the
 * filler's. */
double repair_fill_most(int width, int height, const struct model_info *info);

/* A row's pixels [x, x + count) as RGB on the 8-bit scale. */
void repair_row(const struct image *image, int y, int x, int count, float *rgb);

#endif
