/* descriptor.c - public structs that begin with their own size */
#include "lib/base/descriptor.h"

#include <string.h>

#include "lib/base/error.h"

/* No header to come adds more than this to a struct: a larger size is no size,
 * and memory behind the struct must not be read for it. */
enum { MOST_NEW_BYTES = 4096 };

static size_t size_of(const void *given) {
  size_t size;
  memcpy(&size, given, sizeof size);
  return size;
}

dfgnn_status dfgnn__can_give(const void *given,
                             const dfgnn_descriptor_kind *kind) {
  if (!given)
    return dfgnn__fail(DFGNN_ERROR_INVALID, "%s is NULL", kind->name);
  const size_t size = size_of(given);
  if (size >= kind->least && size <= kind->size + MOST_NEW_BYTES)
    return DFGNN_OK;
  return dfgnn__fail(DFGNN_ERROR_INVALID,
                     "%s.struct_size is %zu, expected %zu: use %s", kind->name,
                     size, kind->size, kind->macro);
}

dfgnn_status dfgnn__take(void *whole, const void *given,
                         const dfgnn_descriptor_kind *kind) {
  DFGNN_TRY(dfgnn__can_give(given, kind));
  const size_t size = size_of(given);
  for (size_t i = kind->size; i < size; i++)
    if (((const unsigned char *)given)[i])
      return dfgnn__fail(DFGNN_ERROR_INVALID,
                         "%s has a member at byte %zu that is set and that "
                         "this library, version %s, does not know: its struct "
                         "has %zu bytes, the program's %zu; update dfgnn, or "
                         "leave the member 0",
                         kind->name, i, dfgnn_version(), kind->size, size);
  memcpy(whole, given, size < kind->size ? size : kind->size);
  memcpy(whole, &kind->size, sizeof kind->size);
  return DFGNN_OK;
}

void dfgnn__give(void *given, const void *whole,
                 const dfgnn_descriptor_kind *kind) {
  const size_t size = size_of(given);
  memcpy(given, whole, size < kind->size ? size : kind->size);
  if (size > kind->size)
    memset((char *)given + kind->size, 0, size - kind->size);
  memcpy(given, &size, sizeof size);
}
