/* pack_trust.c - packs of compiled kernels are judged as stores are: where keys
 * are set, one of them must have signed the file */
#include "db/store.h"
#include "kernels/engine/cache.h"
#include "lib/context.h"

static dfgnn_status judge(const char *path, const unsigned char *bytes,
                          size_t size) {
  dfgnn_keys *keys = NULL;
  dfgnn_status status = dfgnn__trusted_keys(&keys);
  if (!status && !keys)
    return DFGNN_ERROR_UNSUPPORTED; /* the file's owner decides */
  if (!status)
    status = dfgnn__signature_check(path, keys, bytes, size);
  dfgnn__keys_free(keys);
  return status;
}

void dfgnn__pack_trust_keys(void) { dfgnn__pack_trust(judge); }
