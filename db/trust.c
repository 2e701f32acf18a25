/* trust.c - opening a store as DFGNN_TRUSTED_KEYS asks: the one gate that every
 * reader passes */
#include <stdlib.h>

#include "db/internal.h"
#include "lib/base/error.h"

dfgnn_status dfgnn__trusted_keys(dfgnn_keys **keys) {
  const char *path = getenv("DFGNN_TRUSTED_KEYS");
  dfgnn_status status = DFGNN_OK;
  *keys = NULL;
  if (!path)
    return DFGNN_OK;
  if (*path)
    status = dfgnn__keys_load(keys, path);
  else
    status = dfgnn__fail(DFGNN_ERROR_INVALID,
                         "found an empty value, expected a public key or a "
                         "folder of them; unset it to read every store");
  if (!status)
    status = dfgnn__keys_check(*keys);
  if (!status)
    return DFGNN_OK;
  dfgnn__keys_free(*keys);
  *keys = NULL;
  return dfgnn__fail_prefix(status, "DFGNN_TRUSTED_KEYS: ");
}

dfgnn_status dfgnn__store_open(dfgnn_store **store, const char *path,
                               dfgnn_store_mode mode) {
  dfgnn_keys *keys = NULL;
  dfgnn_status status = DFGNN_OK;
  if (mode == DFGNN_STORE_READ)
    status = dfgnn__trusted_keys(&keys);
  if (!status)
    status = keys ? dfgnn__store_open_signed(store, path, keys)
                  : dfgnn__store_open_unsigned(store, path, mode);
  dfgnn__keys_free(keys);
  return status;
}
