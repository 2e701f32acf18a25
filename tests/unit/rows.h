/* rows.h - measurements for the tests of db/ */
#ifndef DFGNN_TESTS_ROWS_H
#define DFGNN_TESTS_ROWS_H

#include <string.h>

#include "db/store.h"

#define RUN_A "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define RUN_B "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
#define RUN_C "cccccccccccccccccccccccccccccccc"

/* A valid measurement of a variant against the anchor "base". */
static inline dfgnn_measurement row_of(const char *run, const char *variant,
                                       double ratio) {
  dfgnn_measurement row;
  memset(&row, 0, sizeof row);
  row.backend = "cuda";
  row.arch = "sm_90";
  row.model = "NVIDIA H200";
  row.units = 132;
  row.cache_bytes = 50 << 20;
  row.memory_bytes = 1ll << 37;
  row.shared_bytes = 227 << 10;
  row.driver = row.runtime = "13.0";
  row.library = "0.1.0";
  row.op = "gt";
  row.pass = "forward";
  row.dtype = "f32";
  row.math = "f32";
  row.layout = "nhd";
  row.index = "i32";
  row.heads = 1;
  row.dim = 128;
  row.deterministic = 1;
  row.graph = "cora";
  row.family = "";
  row.signature.struct_size = sizeof row.signature;
  row.signature.destinations = row.signature.sources = 2708;
  row.signature.edges = 10556;
  row.signature.max_degree = 168;
  row.signature.mean_degree = 10556 / 2708.;
  row.signature.histogram[1] = row.signature.histogram[2] = .5;
  row.signature.graphs = 1;
  row.signature.fingerprint = 0xfedcba9876543210u;
  row.variant = variant;
  row.revision = 1;
  row.tool = "dfgnn-tune 0.1.0";
  row.host = "node17";
  row.job = "";
  row.protocol = "warm,graph";
  row.run = run;
  row.seed = 1;
  row.time = 1795230000;
  row.status = "ok";
  row.reason = "";
  row.anchor = "base";
  row.median_ms = .01 * ratio;
  row.ci_low_ms = .00995 * ratio;
  row.ci_high_ms = .01005 * ratio;
  row.ratio = ratio;
  row.ratio_low = .995 * ratio;
  row.ratio_high = 1.005 * ratio;
  row.samples = 50;
  row.rel_error = 1e-6;
  row.noise = "";
  row.program = row.program_text = "";
  return row;
}

static inline dfgnn_measurement
rejected_of(const char *run, const char *variant, const char *status) {
  dfgnn_measurement row = row_of(run, variant, 1);
  row.status = status;
  row.reason = "row 17: 3.5, expected 1";
  row.anchor = "";
  row.median_ms = row.ci_low_ms = row.ci_high_ms = 0;
  row.ratio = row.ratio_low = row.ratio_high = 0;
  row.samples = 0;
  return row;
}

/* SplitMix64 */
static inline uint64_t random_next(uint64_t *state) {
  uint64_t x = *state += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

#endif
