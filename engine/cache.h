/* cache.h - compiled kernels that outlive a process: the user's kernels.db and
 * packs */
#ifndef DFGNN_ENGINE_CACHE_H
#define DFGNN_ENGINE_CACHE_H

#include "engine/compiler.h"

/* 1 and the image if a pack or the user's cache has the key's code.  What is
 * damaged is a miss. */
int dfgnn__cache_find(dfgnn_image *image,
                      const unsigned char key[DFGNN_KEY_BYTES]);
/* Keeps an image; what cannot be written is left out. */
void dfgnn__cache_store(const unsigned char key[DFGNN_KEY_BYTES],
                        const dfgnn_image *image, const char *target,
                        const char *expression);
/* Forgets an image that the driver refused. */
void dfgnn__cache_forget(const unsigned char key[DFGNN_KEY_BYTES]);

#endif
