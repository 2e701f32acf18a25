/* descriptor.h - public structs that begin with their own size
 *
 * A program may be built against another header than the library: an older one,
 * whose structs end earlier, or a newer one, whose structs go on.  A member
 * never moves or changes its type, and new ones come last, beyond the padding
 * of what was there. */
#ifndef DFGNN_BASE_DESCRIPTOR_H
#define DFGNN_BASE_DESCRIPTOR_H

#include "dfgnn.h"

typedef struct dfgnn_descriptor_kind {
  const char *name;  /* of the argument, for messages */
  const char *macro; /* that initialises one */
  size_t size;       /* of this library's struct */
  size_t least;      /* of the struct in the oldest release that has it */
} dfgnn_descriptor_kind;

/* A kind whose struct has not grown since the last release. */
#define DFGNN_DESCRIPTOR(name_, type, macro_)                                  \
  {                                                                            \
    .name = name_, .macro = macro_, .size = sizeof(type),                      \
    .least = sizeof(type)                                                      \
  }

/* Copies a caller's struct to *whole, whose members have their defaults: those
 * that the caller's header lacks keep them.  What the library does not know has
 * to be 0, else DFGNN_ERROR_INVALID names the byte. */
dfgnn_status dfgnn__take(void *whole, const void *given,
                         const dfgnn_descriptor_kind *kind);

/* Checks that a caller's struct can be written. */
dfgnn_status dfgnn__can_give(const void *given,
                             const dfgnn_descriptor_kind *kind);

/* Copies *whole to a struct that can be written, as far as the caller's size
 * goes; members that the library does not know become 0. */
void dfgnn__give(void *given, const void *whole,
                 const dfgnn_descriptor_kind *kind);

#endif
