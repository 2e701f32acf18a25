/* pack_trust.c - packs of compiled kernels are judged as stores are: where keys
 * are set, one of them must have signed the file */
#include <stdlib.h>

#include "db/store.h"
#include "engine/cache.h"
#include "lib/context.h"

static dfgnn_status judge(const char *path, const unsigned char *bytes,
                          size_t size) {
  const char *trusted = getenv("DFGNN_TRUSTED_KEYS");
  dfgnn_keys *keys = NULL;
  if (!trusted || !*trusted)
    return DFGNN_ERROR_UNSUPPORTED; /* the file's owner decides */
  dfgnn_status status = dfgnn__keys_load(&keys, trusted);
  if (!status)
    status = dfgnn__signature_check(path, keys, bytes, size);
  dfgnn__keys_free(keys);
  return status;
}

void dfgnn__pack_trust_keys(void) { dfgnn__pack_trust(judge); }
