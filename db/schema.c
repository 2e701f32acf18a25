#include "db/schema.h"

/* Never edit a version that was released: its text is compared with the files.
 * Add a version with its upgrade; it shares the tables that it does not change.
 * Hashes are BLAKE2b of the content as db/hash.c writes it.  fingerprint and
 * seed are unsigned, kept in two's complement; histogram is 24 little-endian
 * doubles. */

static const char device_1[] =
    "CREATE TABLE device (\n"
    "  hash BLOB NOT NULL PRIMARY KEY CHECK (length(hash) = 16),\n"
    "  backend TEXT NOT NULL CHECK (length(backend) BETWEEN 1 AND 32),\n"
    "  arch TEXT NOT NULL CHECK (length(arch) BETWEEN 1 AND 64),\n"
    "  model TEXT NOT NULL CHECK (length(model) <= 255),\n"
    "  units INTEGER NOT NULL CHECK (units >= 0),\n"
    "  cache_bytes INTEGER NOT NULL CHECK (cache_bytes >= 0),\n"
    "  memory_bytes INTEGER NOT NULL CHECK (memory_bytes >= 0),\n"
    "  shared_bytes INTEGER NOT NULL CHECK (shared_bytes >= 0),\n"
    "  driver TEXT NOT NULL CHECK (length(driver) <= 255),\n"
    "  runtime TEXT NOT NULL CHECK (length(runtime) <= 255),\n"
    "  library TEXT NOT NULL CHECK (length(library) <= 255)\n"
    ") STRICT, WITHOUT ROWID";

/* The columns that every version of the table has. */
#define GRAPH_COLUMNS                                                          \
  "CREATE TABLE graph (\n"                                                     \
  "  hash BLOB NOT NULL PRIMARY KEY CHECK (length(hash) = 16),\n"              \
  "  graph TEXT NOT NULL CHECK (length(graph) <= 255),\n"                      \
  "  family TEXT NOT NULL CHECK (length(family) <= 255),\n"                    \
  "  destinations INTEGER NOT NULL CHECK (destinations >= 0),\n"               \
  "  sources INTEGER NOT NULL CHECK (sources >= 0),\n"                         \
  "  edges INTEGER NOT NULL CHECK (edges >= 0),\n"                             \
  "  max_degree INTEGER NOT NULL CHECK (max_degree >= 0),\n"                   \
  "  mean_degree REAL NOT NULL CHECK (mean_degree >= 0),\n"                    \
  "  p50_degree INTEGER NOT NULL CHECK (p50_degree >= 0),\n"                   \
  "  p90_degree INTEGER NOT NULL CHECK (p90_degree >= 0),\n"                   \
  "  p99_degree INTEGER NOT NULL CHECK (p99_degree >= 0),\n"                   \
  "  degree_cv REAL NOT NULL CHECK (degree_cv >= 0),\n"                        \
  "  isolated REAL NOT NULL CHECK (isolated BETWEEN 0 AND 1),\n"               \
  "  histogram BLOB NOT NULL CHECK (length(histogram) = 192),\n"               \
  "  reuse REAL NOT NULL CHECK (reuse BETWEEN 0 AND 1),\n"                     \
  "  locality REAL NOT NULL CHECK (locality BETWEEN 0 AND 1),\n"               \
  "  graphs INTEGER NOT NULL CHECK (graphs >= 0),\n"                           \
  "  largest_graph INTEGER NOT NULL CHECK (largest_graph >= 0),\n"             \
  "  density REAL NOT NULL CHECK (density >= 0),\n"                            \
  "  fingerprint INTEGER NOT NULL"

static const char graph_1[] = GRAPH_COLUMNS "\n) STRICT, WITHOUT ROWID";

/* The columns that every version of the table has. */
#define MEASUREMENT_COLUMNS                                                    \
  "CREATE TABLE measurement (\n"                                               \
  "  hash BLOB NOT NULL PRIMARY KEY CHECK (length(hash) = 16),\n"              \
  "  device BLOB NOT NULL REFERENCES device (hash),\n"                         \
  "  problem BLOB NOT NULL REFERENCES problem (hash),\n"                       \
  "  graph BLOB NOT NULL REFERENCES graph (hash),\n"                           \
  "  run BLOB NOT NULL REFERENCES run (hash),\n"                               \
  "  variant TEXT NOT NULL CHECK (length(variant) BETWEEN 1 AND 255),\n"       \
  "  revision INTEGER NOT NULL CHECK (revision >= 0),\n"                       \
  "  time INTEGER NOT NULL CHECK (time >= 0),\n"                               \
  "  status TEXT NOT NULL\n"                                                   \
  "    CHECK (status IN ('ok', 'wrong', 'failed', 'refused')),\n"              \
  "  reason TEXT NOT NULL CHECK (length(reason) <= 1023),\n"                   \
  "  anchor TEXT NOT NULL CHECK (length(anchor) <= 255),\n"                    \
  "  anchor_revision INTEGER NOT NULL CHECK (anchor_revision >= 0),\n"         \
  "  median_ms REAL NOT NULL CHECK (median_ms >= 0),\n"                        \
  "  ci_low_ms REAL NOT NULL CHECK (ci_low_ms >= 0),\n"                        \
  "  ci_high_ms REAL NOT NULL CHECK (ci_high_ms >= ci_low_ms),\n"              \
  "  ratio REAL NOT NULL CHECK (ratio >= 0),\n"                                \
  "  ratio_low REAL NOT NULL CHECK (ratio_low >= 0),\n"                        \
  "  ratio_high REAL NOT NULL CHECK (ratio_high >= ratio_low),\n"              \
  "  samples INTEGER NOT NULL CHECK (samples >= 0),\n"                         \
  "  rel_error REAL NOT NULL CHECK (rel_error >= 0),\n"                        \
  "  workspace_bytes INTEGER NOT NULL CHECK (workspace_bytes >= 0)"

static const char measurement_1[] =
    MEASUREMENT_COLUMNS "\n) STRICT, WITHOUT ROWID";

static const char pin_1[] =
    "CREATE TABLE pin (\n"
    "  op TEXT NOT NULL CHECK (length(op) BETWEEN 1 AND 32),\n"
    "  pass TEXT NOT NULL CHECK (length(pass) BETWEEN 1 AND 32),\n"
    "  dtype TEXT NOT NULL CHECK (length(dtype) BETWEEN 1 AND 32),\n"
    "  fingerprint INTEGER NOT NULL,\n"
    "  variant TEXT NOT NULL CHECK (length(variant) BETWEEN 1 AND 255),\n"
    "  PRIMARY KEY (op, pass, dtype, fingerprint)\n"
    ") STRICT, WITHOUT ROWID";

static const char problem_1[] =
    "CREATE TABLE problem (\n"
    "  hash BLOB NOT NULL PRIMARY KEY CHECK (length(hash) = 16),\n"
    "  op TEXT NOT NULL CHECK (length(op) BETWEEN 1 AND 32),\n"
    "  pass TEXT NOT NULL CHECK (length(pass) BETWEEN 1 AND 32),\n"
    "  dtype TEXT NOT NULL CHECK (length(dtype) BETWEEN 1 AND 32),\n"
    "  math TEXT NOT NULL CHECK (length(math) BETWEEN 1 AND 32),\n"
    "  layout TEXT NOT NULL CHECK (length(layout) BETWEEN 1 AND 32),\n"
    "  index_type TEXT NOT NULL CHECK (index_type IN ('i32', 'i64')),\n"
    "  heads INTEGER NOT NULL CHECK (heads >= 1),\n"
    "  dim INTEGER NOT NULL CHECK (dim >= 1),\n"
    "  deterministic INTEGER NOT NULL CHECK (deterministic IN (0, 1)),\n"
    "  weights INTEGER NOT NULL CHECK (weights IN (0, 1))\n"
    ") STRICT, WITHOUT ROWID";

static const char run_1[] =
    "CREATE TABLE run (\n"
    "  hash BLOB NOT NULL PRIMARY KEY CHECK (length(hash) = 16),\n"
    "  tool TEXT NOT NULL CHECK (length(tool) <= 255),\n"
    "  host TEXT NOT NULL CHECK (length(host) <= 255),\n"
    "  job TEXT NOT NULL CHECK (length(job) <= 255),\n"
    "  protocol TEXT NOT NULL CHECK (length(protocol) BETWEEN 1 AND "
    "255),\n"
    "  run TEXT NOT NULL CHECK (length(run) = 32),\n"
    "  seed INTEGER NOT NULL\n"
    ") STRICT, WITHOUT ROWID";

/* Version 2: bias, dropout and edge features belong to the problem. */

static const char pin_2[] =
    "CREATE TABLE pin (\n"
    "  op TEXT NOT NULL CHECK (length(op) BETWEEN 1 AND 32),\n"
    "  pass TEXT NOT NULL CHECK (length(pass) BETWEEN 1 AND 32),\n"
    "  dtype TEXT NOT NULL CHECK (length(dtype) BETWEEN 1 AND 32),\n"
    "  bias INTEGER NOT NULL CHECK (bias IN (0, 1)),\n"
    "  dropout INTEGER NOT NULL CHECK (dropout IN (0, 1)),\n"
    "  fingerprint INTEGER NOT NULL,\n"
    "  variant TEXT NOT NULL CHECK (length(variant) BETWEEN 1 AND 255),\n"
    "  PRIMARY KEY (op, pass, dtype, bias, dropout, fingerprint)\n"
    ") STRICT, WITHOUT ROWID";

static const char problem_2[] =
    "CREATE TABLE problem (\n"
    "  hash BLOB NOT NULL PRIMARY KEY CHECK (length(hash) = 16),\n"
    "  op TEXT NOT NULL CHECK (length(op) BETWEEN 1 AND 32),\n"
    "  pass TEXT NOT NULL CHECK (length(pass) BETWEEN 1 AND 32),\n"
    "  dtype TEXT NOT NULL CHECK (length(dtype) BETWEEN 1 AND 32),\n"
    "  math TEXT NOT NULL CHECK (length(math) BETWEEN 1 AND 32),\n"
    "  layout TEXT NOT NULL CHECK (length(layout) BETWEEN 1 AND 32),\n"
    "  index_type TEXT NOT NULL CHECK (index_type IN ('i32', 'i64')),\n"
    "  heads INTEGER NOT NULL CHECK (heads >= 1),\n"
    "  dim INTEGER NOT NULL CHECK (dim >= 1),\n"
    "  deterministic INTEGER NOT NULL CHECK (deterministic IN (0, 1)),\n"
    "  weights INTEGER NOT NULL CHECK (weights IN (0, 1)),\n"
    "  bias INTEGER NOT NULL CHECK (bias IN (0, 1)),\n"
    "  dropout INTEGER NOT NULL CHECK (dropout IN (0, 1)),\n"
    "  edge_dim INTEGER NOT NULL CHECK (edge_dim >= 0)\n"
    ") STRICT, WITHOUT ROWID";

static const char upgrade_2[] =
    "INSERT INTO device SELECT * FROM old_device;"
    "INSERT INTO graph SELECT * FROM old_graph;"
    "INSERT INTO problem SELECT hash, op, pass, dtype, math, layout,"
    "  index_type, heads, dim, deterministic, weights, 0, 0, 0"
    "  FROM old_problem;"
    "INSERT INTO run SELECT * FROM old_run;"
    "INSERT INTO measurement SELECT * FROM old_measurement;"
    "INSERT INTO pin SELECT op, pass, dtype, 0, 0, fingerprint, variant"
    "  FROM old_pin;";

/* Version 3: the use of edge features, normalised queries and keys, and
 * messages belong to the problem. */

/* The columns of all versions from here on. */
#define PROBLEM_COLUMNS                                                        \
  "CREATE TABLE problem (\n"                                                   \
  "  hash BLOB NOT NULL PRIMARY KEY CHECK (length(hash) = 16),\n"              \
  "  op TEXT NOT NULL CHECK (length(op) BETWEEN 1 AND 32),\n"                  \
  "  pass TEXT NOT NULL CHECK (length(pass) BETWEEN 1 AND 32),\n"              \
  "  dtype TEXT NOT NULL CHECK (length(dtype) BETWEEN 1 AND 32),\n"            \
  "  math TEXT NOT NULL CHECK (length(math) BETWEEN 1 AND 32),\n"              \
  "  layout TEXT NOT NULL CHECK (length(layout) BETWEEN 1 AND 32),\n"          \
  "  index_type TEXT NOT NULL CHECK (index_type IN ('i32', 'i64')),\n"         \
  "  heads INTEGER NOT NULL CHECK (heads >= 1),\n"                             \
  "  dim INTEGER NOT NULL CHECK (dim >= 1),\n"                                 \
  "  deterministic INTEGER NOT NULL CHECK (deterministic IN (0, 1)),\n"        \
  "  weights INTEGER NOT NULL CHECK (weights IN (0, 1)),\n"                    \
  "  bias INTEGER NOT NULL CHECK (bias IN (0, 1)),\n"                          \
  "  dropout INTEGER NOT NULL CHECK (dropout IN (0, 1)),\n"                    \
  "  edge_dim INTEGER NOT NULL CHECK (edge_dim >= -1),\n"                      \
  "  edge_use INTEGER NOT NULL CHECK (edge_use BETWEEN 0 AND 2),\n"
#define QK_NORM_COLUMN                                                         \
  "  qk_norm INTEGER NOT NULL CHECK (qk_norm BETWEEN 0 AND 2),\n"

static const char problem_3[] = PROBLEM_COLUMNS QK_NORM_COLUMN
    "  message INTEGER NOT NULL CHECK (message BETWEEN 0 AND 2)\n"
    ") STRICT, WITHOUT ROWID";

static const char upgrade_3[] =
    "INSERT INTO device SELECT * FROM old_device;"
    "INSERT INTO graph SELECT * FROM old_graph;"
    "INSERT INTO problem SELECT hash, op, pass, dtype, math, layout,"
    "  index_type, heads, dim, deterministic, weights, bias, dropout,"
    "  edge_dim, 0, 0, 0 FROM old_problem;"
    "INSERT INTO run SELECT * FROM old_run;"
    "INSERT INTO measurement SELECT * FROM old_measurement;"
    "INSERT INTO pin SELECT * FROM old_pin;";

/* Version 4: the degrees of sources belong to the signature.  For graphs that
 * were stored before they are 0, which says that they are not known. */

static const char graph_4[] = GRAPH_COLUMNS
    ",\n"
    "  max_source_degree INTEGER NOT NULL CHECK (max_source_degree >= 0),\n"
    "  p50_source_degree INTEGER NOT NULL CHECK (p50_source_degree >= 0),\n"
    "  p99_source_degree INTEGER NOT NULL CHECK (p99_source_degree >= 0),\n"
    "  source_cv REAL NOT NULL CHECK (source_cv >= 0),\n"
    "  isolated_sources REAL NOT NULL\n"
    "    CHECK (isolated_sources BETWEEN 0 AND 1)\n"
    ") STRICT, WITHOUT ROWID";

static const char upgrade_4[] =
    "INSERT INTO device SELECT * FROM old_device;"
    "INSERT INTO graph SELECT *, 0, 0, 0, 0, 0 FROM old_graph;"
    "INSERT INTO problem SELECT * FROM old_problem;"
    "INSERT INTO run SELECT * FROM old_run;"
    "INSERT INTO measurement SELECT * FROM old_measurement;"
    "INSERT INTO pin SELECT * FROM old_pin;";

/* Version 5: there is one message more, GATE_VALUE. */

static const char problem_5[] = PROBLEM_COLUMNS QK_NORM_COLUMN
    "  message INTEGER NOT NULL CHECK (message BETWEEN 0 AND 3)\n"
    ") STRICT, WITHOUT ROWID";

static const char upgrade_5[] =
    "INSERT INTO device SELECT * FROM old_device;"
    "INSERT INTO graph SELECT * FROM old_graph;"
    "INSERT INTO problem SELECT * FROM old_problem;"
    "INSERT INTO run SELECT * FROM old_run;"
    "INSERT INTO measurement SELECT * FROM old_measurement;"
    "INSERT INTO pin SELECT * FROM old_pin;";

/* Version 6: a run tells the copy bandwidth of its device, for floors. */

static const char run_6[] =
    "CREATE TABLE run (\n"
    "  hash BLOB NOT NULL PRIMARY KEY CHECK (length(hash) = 16),\n"
    "  tool TEXT NOT NULL CHECK (length(tool) <= 255),\n"
    "  host TEXT NOT NULL CHECK (length(host) <= 255),\n"
    "  job TEXT NOT NULL CHECK (length(job) <= 255),\n"
    "  protocol TEXT NOT NULL CHECK (length(protocol) BETWEEN 1 AND "
    "255),\n"
    "  run TEXT NOT NULL CHECK (length(run) = 32),\n"
    "  seed INTEGER NOT NULL,\n"
    "  copy_gbps REAL NOT NULL CHECK (copy_gbps >= 0)\n"
    ") STRICT, WITHOUT ROWID";

static const char upgrade_6[] =
    "INSERT INTO device SELECT * FROM old_device;"
    "INSERT INTO graph SELECT * FROM old_graph;"
    "INSERT INTO problem SELECT * FROM old_problem;"
    "INSERT INTO run SELECT *, 0 FROM old_run;"
    "INSERT INTO measurement SELECT * FROM old_measurement;"
    "INSERT INTO pin SELECT * FROM old_pin;";

/* Version 7: queries and keys are no longer normalised inside, so that what was
 * measured of such problems answers no question. */

static const char problem_7[] = PROBLEM_COLUMNS
    "  message INTEGER NOT NULL CHECK (message BETWEEN 0 AND 3)\n"
    ") STRICT, WITHOUT ROWID";

static const char upgrade_7[] =
    "INSERT INTO device SELECT * FROM old_device;"
    "INSERT INTO graph SELECT * FROM old_graph;"
    "INSERT INTO problem SELECT hash, op, pass, dtype, math, layout,"
    "  index_type, heads, dim, deterministic, weights, bias, dropout,"
    "  edge_dim, edge_use, message FROM old_problem WHERE qk_norm = 0;"
    "INSERT INTO run SELECT * FROM old_run;"
    "INSERT INTO measurement SELECT * FROM old_measurement"
    "  WHERE problem IN (SELECT hash FROM problem);"
    "INSERT INTO pin SELECT * FROM old_pin;";

/* Version 8: a measurement says how many of its samples were disturbed, and by
 * what. */

static const char measurement_8[] =
    MEASUREMENT_COLUMNS ",\n"
                        "  disturbed INTEGER NOT NULL CHECK (disturbed >= 0),\n"
                        "  noise TEXT NOT NULL CHECK (length(noise) <= 255)\n"
                        ") STRICT, WITHOUT ROWID";

static const char upgrade_8[] =
    "INSERT INTO device SELECT * FROM old_device;"
    "INSERT INTO graph SELECT * FROM old_graph;"
    "INSERT INTO problem SELECT * FROM old_problem;"
    "INSERT INTO run SELECT * FROM old_run;"
    "INSERT INTO measurement SELECT *, 0, '' FROM old_measurement;"
    "INSERT INTO pin SELECT * FROM old_pin;";

/* Version 9: a problem may be an edge program. */

static const char problem_9[] = PROBLEM_COLUMNS
    "  message INTEGER NOT NULL CHECK (message BETWEEN 0 AND 3),\n"
    "  program TEXT NOT NULL CHECK (length(program) <= 16),\n"
    "  program_text TEXT NOT NULL CHECK (length(program_text) <= 16383)\n"
    ") STRICT, WITHOUT ROWID";

static const char upgrade_9[] =
    "INSERT INTO device SELECT * FROM old_device;"
    "INSERT INTO graph SELECT * FROM old_graph;"
    "INSERT INTO problem SELECT *, '', '' FROM old_problem;"
    "INSERT INTO run SELECT * FROM old_run;"
    "INSERT INTO measurement SELECT * FROM old_measurement;"
    "INSERT INTO pin SELECT * FROM old_pin;";

#define NAMES                                                                  \
  { "device", "graph", "measurement", "pin", "problem", "run" }

static const dfgnn_schema versions[] = {
    {.name = NAMES,
     .sql = {device_1, graph_1, measurement_1, pin_1, problem_1, run_1}},
    {.name = NAMES,
     .sql = {device_1, graph_1, measurement_1, pin_2, problem_2, run_1},
     .upgrade = upgrade_2},
    {.name = NAMES,
     .sql = {device_1, graph_1, measurement_1, pin_2, problem_3, run_1},
     .upgrade = upgrade_3},
    {.name = NAMES,
     .sql = {device_1, graph_4, measurement_1, pin_2, problem_3, run_1},
     .upgrade = upgrade_4},
    {.name = NAMES,
     .sql = {device_1, graph_4, measurement_1, pin_2, problem_5, run_1},
     .upgrade = upgrade_5},
    {.name = NAMES,
     .sql = {device_1, graph_4, measurement_1, pin_2, problem_5, run_6},
     .upgrade = upgrade_6},
    {.name = NAMES,
     .sql = {device_1, graph_4, measurement_1, pin_2, problem_7, run_6},
     .upgrade = upgrade_7},
    {.name = NAMES,
     .sql = {device_1, graph_4, measurement_8, pin_2, problem_7, run_6},
     .upgrade = upgrade_8},
    {.name = NAMES,
     .sql = {device_1, graph_4, measurement_8, pin_2, problem_9, run_6},
     .upgrade = upgrade_9}};

const dfgnn_schemas dfgnn__schemas = {sizeof versions / sizeof *versions,
                                      versions};
