/* cublaslt.c - stands for cuBLASLt: products on the host, as steps of the
 * emulated driver's streams.  The numbers of members and types are those
 * of NVIDIA's cublasLt.h that kernels/common/cublaslt.c names. */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tests/emulator/stream.h"

#define API __attribute__((visibility("default")))

enum { OK = 0, NO_MEMORY = 3, INVALID = 7, FAILED = 13, NOT_SUPPORTED = 15 };
enum { F32 = 0, F16 = 2, BF16 = 14, TF32_SUMS = 77 };
enum { TRANSPOSE_A = 3, TRANSPOSE_B = 4, EPILOGUE = 7, BIAS = 8 };
enum { EPILOGUE_BIAS = 4, ALIGNMENT = 16, MAGIC = 1234 };

typedef struct product {
  int sums, transpose_a, transpose_b, epilogue;
  const void *bias;
} product;

typedef struct matrix {
  int type;
  uint64_t rows, columns;
  int64_t leading;
} matrix;

typedef struct choice {
  uint64_t data[8];
  size_t workspace;
  int state;
  float waves;
  int reserved[4];
} choice;

/* ---- numbers ------------------------------------------------------------- */

static float from_bits(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

static float get(const void *from, int type, int64_t i) {
  if (type == F32)
    return ((const float *)from)[i];
  if (type == BF16)
    return from_bits((uint32_t)((const uint16_t *)from)[i] << 16);
  return (float)((const _Float16 *)from)[i];
}

static void put(void *to, int type, int64_t i, float x) {
  uint32_t bits;
  if (type == F32) {
    ((float *)to)[i] = x;
  } else if (type == F16) {
    ((_Float16 *)to)[i] = (_Float16)x;
  } else {
    memcpy(&bits, &x, sizeof bits);
    if (!isnan(x))
      bits += 0x7fff + (bits >> 16 & 1);
    ((uint16_t *)to)[i] = (uint16_t)(bits >> 16 | (isnan(x) ? 0x40 : 0));
  }
}

/* Tensor cores cut off what TF32 does not hold. */
static float operand(const product *p, const matrix *m, const void *from,
                     int transposed, int64_t row, int64_t column) {
  const int64_t r = transposed ? column : row, c = transposed ? row : column;
  float x = get(from, m->type, c * m->leading + r);
  uint32_t bits;
  if (p->sums == TF32_SUMS) {
    memcpy(&bits, &x, sizeof bits);
    x = from_bits(bits & 0xffffe000u);
  }
  return x;
}

/* ---- descriptions -------------------------------------------------------- */

static int copy_of(void **to, const void *from, size_t size) {
  *to = malloc(size);
  if (!*to)
    return NO_MEMORY;
  memcpy(*to, from, size);
  return OK;
}

API int cublasLtCreate(void **handle) {
  const int magic = MAGIC;
  return copy_of(handle, &magic, sizeof magic);
}

API int cublasLtMatmulDescCreate(void **to, int sums, int scale) {
  const product p = {.sums = sums, .epilogue = 1};
  return scale == F32 ? copy_of(to, &p, sizeof p) : NOT_SUPPORTED;
}

API int cublasLtMatmulDescDestroy(void *p) {
  free(p);
  return OK;
}

API int cublasLtMatmulDescSetAttribute(product *p, int member,
                                       const void *value, size_t size) {
  void *to = member == TRANSPOSE_A   ? (void *)&p->transpose_a
             : member == TRANSPOSE_B ? (void *)&p->transpose_b
             : member == EPILOGUE    ? (void *)&p->epilogue
             : member == BIAS        ? (void *)&p->bias
                                     : NULL;
  if (!to || size != (member == BIAS ? sizeof p->bias : sizeof(int)))
    return INVALID;
  memcpy(to, value, size);
  return OK;
}

API int cublasLtMatrixLayoutCreate(void **to, int type, uint64_t rows,
                                   uint64_t columns, int64_t leading) {
  const matrix m = {type, rows, columns, leading};
  return leading < (int64_t)rows ? INVALID : copy_of(to, &m, sizeof m);
}

API int cublasLtMatrixLayoutDestroy(void *m) {
  free(m);
  return OK;
}

API int cublasLtMatmulPreferenceCreate(void **to) {
  const int nothing = 0;
  return copy_of(to, &nothing, sizeof nothing);
}

API int cublasLtMatmulPreferenceDestroy(void *p) {
  free(p);
  return OK;
}

API int cublasLtMatmulPreferenceSetAttribute(void *p, int member,
                                             const void *value, size_t size) {
  (void)value;
  return p && (member == 1                 ? size == 8
               : member >= 5 && member < 9 ? size == 4
                                           : 0)
             ? OK
             : INVALID;
}

/* ---- products ------------------------------------------------------------ */

/* D = op(A) op(B) + beta C, of columns. */
static int fits(const product *p, const matrix *a, const matrix *b,
                const matrix *d) {
  const uint64_t rows = p->transpose_a ? a->columns : a->rows;
  const uint64_t inner = p->transpose_a ? a->rows : a->columns;
  const uint64_t columns = p->transpose_b ? b->rows : b->columns;
  return rows == d->rows && columns == d->columns && rows && columns && inner &&
         inner == (p->transpose_b ? b->columns : b->rows);
}

API int cublasLtMatmulAlgoGetHeuristic(void *handle, const product *p,
                                       const matrix *a, const matrix *b,
                                       const matrix *c, const matrix *d,
                                       void *wanted, int count, choice *to,
                                       int *found) {
  if (!wanted || count < 1 || c != d || *(int *)handle != MAGIC ||
      !fits(p, a, b, d))
    return INVALID;
  *to = (choice){.data = {MAGIC}};
  *found = 1;
  return OK;
}

static int is_aligned(const void *p) { return (uintptr_t)p % ALIGNMENT == 0; }

/* A product that was asked for. */
typedef struct asked {
  product p;
  matrix a_of, b_of, d_of;
  const void *a, *b;
  void *d, *workspace;
  size_t bytes;
  float alpha, beta;
} asked;

static void run(const void *values) {
  const asked *x = values;
  const product *p = &x->p;
  const matrix *d = &x->d_of;
  const int64_t inner =
      (int64_t)(p->transpose_a ? x->a_of.rows : x->a_of.columns);
  memset(x->workspace, 0xff, x->bytes < 4096 ? x->bytes : 4096);
  for (int64_t column = 0; column < (int64_t)d->columns; column++)
    for (int64_t row = 0; row < (int64_t)d->rows; row++) {
      const int64_t at = column * d->leading + row;
      float sum = 0;
      for (int64_t k = 0; k < inner; k++)
        sum += operand(p, &x->a_of, x->a, p->transpose_a, row, k) *
               operand(p, &x->b_of, x->b, p->transpose_b, k, column);
      sum *= x->alpha;
      if (x->beta != 0)
        sum += x->beta * get(x->d, d->type, at);
      if (p->epilogue == EPILOGUE_BIAS)
        sum += get(p->bias, d->type, row);
      put(x->d, d->type, at, sum);
    }
}

API int cublasLtMatmul(void *handle, const product *p, const float *alpha,
                       const void *a, const matrix *a_of, const void *b,
                       const matrix *b_of, const float *beta, const void *c,
                       const matrix *c_of, void *d, const matrix *d_of,
                       const choice *chosen, void *workspace, size_t bytes,
                       void *stream) {
  if (*(int *)handle != MAGIC || chosen->data[0] != MAGIC || c != d ||
      c_of != d_of || !fits(p, a_of, b_of, d_of) || !is_aligned(a) ||
      !is_aligned(b) || !is_aligned(d) || !is_aligned(p->bias) || !bytes)
    return INVALID;
  const asked x = {*p, *a_of,     *b_of, *d_of,  a,    b,
                   d,  workspace, bytes, *alpha, *beta};
  return emulated_call(stream, run, &x, sizeof x) ? FAILED : OK;
}
