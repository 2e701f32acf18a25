/* check.c - checks that arrays in host memory are a matrix */
#include "graph/io/io.h"
#include "lib/base/error.h"

static dfgnn_status check_rows(const dfgnn_csr *csr) {
  int64_t end = dfgnn__csr_offset(csr, 0);
  if (end)
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "csr.offsets[0] is %lld, expected "
                       "0",
                       (long long)end);
  for (int64_t i = 0; i < csr->destinations; i++) {
    int64_t begin = end;
    end = dfgnn__csr_offset(csr, i + 1);
    if (end < begin || end > csr->edges)
      return dfgnn__fail(DFGNN_ERROR_INVALID,
                         "csr.offsets[%lld] is %lld, expected %lld..%lld",
                         (long long)i + 1, (long long)end, (long long)begin,
                         (long long)csr->edges);
    for (int64_t e = begin; e < end; e++) {
      int64_t j = dfgnn__csr_index(csr, e);
      if (j < 0 || j >= csr->sources)
        return dfgnn__fail(DFGNN_ERROR_INVALID,
                           "row %lld: csr.indices[%lld] is %lld, expected "
                           "0..%lld",
                           (long long)i, (long long)e, (long long)j,
                           (long long)csr->sources - 1);
    }
  }
  if (end != csr->edges)
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "csr.offsets end at %lld, expected %lld edges",
                       (long long)end, (long long)csr->edges);
  return DFGNN_OK;
}

static dfgnn_status check_batch(const dfgnn_csr *csr) {
  const int64_t *ptr = csr->graph_ptr;
  if (!ptr)
    return DFGNN_OK;
  int ok = csr->graphs > 0 && csr->destinations == csr->sources &&
           ptr[0] == 0 && ptr[csr->graphs] == csr->destinations;
  for (int64_t g = 0; ok && g < csr->graphs; g++)
    ok = ptr[g] <= ptr[g + 1];
  for (int64_t g = 0; ok && g < csr->graphs; g++)
    for (int64_t e = dfgnn__csr_offset(csr, ptr[g]);
         ok && e < dfgnn__csr_offset(csr, ptr[g + 1]); e++) {
      int64_t j = dfgnn__csr_index(csr, e);
      ok = j >= ptr[g] && j < ptr[g + 1];
    }
  return ok ? DFGNN_OK
            : dfgnn__fail(DFGNN_ERROR_INVALID,
                          "csr.graph_ptr is not a rising list from 0 to the "
                          "nodes of a square matrix, or an edge leaves its "
                          "graph");
}

const dfgnn_descriptor_kind dfgnn__csr_kind =
    DFGNN_DESCRIPTOR("csr", dfgnn_csr, "DFGNN_CSR_INIT");

dfgnn_status dfgnn__csr_take(dfgnn_csr *whole, const dfgnn_csr *given) {
  *whole = (dfgnn_csr)DFGNN_CSR_INIT;
  dfgnn_status status = dfgnn__take(whole, given, &dfgnn__csr_kind);
  return status ? status : dfgnn__csr_check(whole);
}

dfgnn_status dfgnn__csr_check(const dfgnn_csr *csr) {
  if (csr->on_device)
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "csr.on_device is set, expected host arrays");
  if (csr->destinations < 0 || csr->destinations > INT32_MAX ||
      csr->sources < 0 || csr->sources > INT32_MAX || csr->edges < 0)
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "csr is %lld x %lld with %lld edges, expected at most "
                       "2147483647 rows and columns",
                       (long long)csr->destinations, (long long)csr->sources,
                       (long long)csr->edges);
  if ((unsigned)csr->offset_type > DFGNN_INDEX_I64 ||
      (unsigned)csr->index_type > DFGNN_INDEX_I64)
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "csr.offset_type is %d and csr.index_type %d, expected "
                       "DFGNN_INDEX_I32 or DFGNN_INDEX_I64",
                       (int)csr->offset_type, (int)csr->index_type);
  if (!csr->offsets || (csr->edges && !csr->indices))
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "csr.offsets or csr.indices is NULL");
  dfgnn_status status = check_rows(csr);
  return status ? status : check_batch(csr);
}
