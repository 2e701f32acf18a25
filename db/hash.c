/* hash.c - the hash of a group's fields, so that any program can compute the
 * same.  Hashed are, in this order:
 *
 *   the table's name, a byte 0,
 *   (measurement only) the hashes of its device, problem, graph and run,
 *   each field that is not optional, in the order of db/field.c:
 *     strings    their bytes, a byte 0
 *     integers   8 bytes, little-endian two's complement
 *     reals      8 bytes, little-endian IEEE 754 (never -0 or NaN)
 *     histogram  24 reals
 *
 *   each optional field in that order, unless its value is the default 0:
 *     its name, a byte 0, its value as above
 *
 * BLAKE2b of 16 bytes without a key.
 */
#include "db/field.h"

#include <sodium.h>
#include <string.h>

typedef struct buffer {
  unsigned char bytes[DFGNN_CLEAN_BYTES];
  size_t count;
} buffer;

/* The longest valid group is below 20 KiB; a row is validated before. */
static void put(buffer *b, const void *bytes, size_t count) {
  if (count > sizeof b->bytes - b->count)
    count = sizeof b->bytes - b->count;
  memcpy(b->bytes + b->count, bytes, count);
  b->count += count;
}

static void put_uint64(buffer *b, uint64_t x) {
  unsigned char bytes[8];
  for (int i = 0; i < 8; i++)
    bytes[i] = (unsigned char)(x >> (8 * i));
  put(b, bytes, sizeof bytes);
}

static void put_real(buffer *b, double x) {
  uint64_t bits;
  memcpy(&bits, &x, sizeof bits);
  put_uint64(b, bits);
}

static void put_field(buffer *b, const dfgnn_field *field,
                      const dfgnn_measurement *row) {
  const void *value = dfgnn__field_get(field, row);
  switch (field->kind) {
  case DFGNN_FIELD_NAME:
  case DFGNN_FIELD_TEXT: {
    const char *s = *(const char *const *)value;
    put(b, s, strlen(s) + 1);
    break;
  }
  case DFGNN_FIELD_INT:
  case DFGNN_FIELD_INT64:
  case DFGNN_FIELD_UINT64:
    put_uint64(b, (uint64_t)dfgnn__field_whole(field, value));
    break;
  case DFGNN_FIELD_REAL:
    put_real(b, *(const double *)value);
    break;
  case DFGNN_FIELD_REALS:
    for (size_t i = 0; i < DFGNN_HISTOGRAM_BINS; i++)
      put_real(b, ((const double *)value)[i]);
    break;
  }
}

void dfgnn__group_hash(unsigned char hash[DFGNN_HASH_BYTES],
                       dfgnn_field_group group, const dfgnn_measurement *row,
                       unsigned char parts[][DFGNN_HASH_BYTES]) {
  const dfgnn_fields *fields = &dfgnn__fields[group];
  buffer b;
  b.count = 0;
  put(&b, fields->table, strlen(fields->table) + 1);
  if (group == DFGNN_GROUP_MEASUREMENT)
    put(&b, parts, (size_t)DFGNN_PART_COUNT * DFGNN_HASH_BYTES);
  for (size_t i = 0; i < fields->count; i++)
    if (!fields->field[i].optional)
      put_field(&b, &fields->field[i], row);
  for (size_t i = 0; i < fields->count; i++) {
    const dfgnn_field *field = &fields->field[i];
    if (!field->optional || dfgnn__field_is_left_out(field, row))
      continue;
    put(&b, field->name, strlen(field->name) + 1);
    put_field(&b, field, row);
  }
  crypto_generichash(hash, DFGNN_HASH_BYTES, b.bytes, b.count, NULL, 0);
}
