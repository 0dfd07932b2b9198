/* What profile.c and profile_cmyk.c share. Thread-safety: functions without state. */
#ifndef SERVER_IMAGE_PROFILE_PRIVATE_H
#define SERVER_IMAGE_PROFILE_PRIVATE_H

#ifdef RESTORED_LCMS
#include <lcms2.h>

#include "server/image/profile.h"

/* Writes the profile, which is closed. NULL: there is no memory. */
enum error_code profile_save(cmsHPROFILE profile, struct image_blob *out, struct error *err) MUST_CHECK;
#endif

#endif
