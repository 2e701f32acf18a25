#include "db/field.h"

#include <float.h>
#include <limits.h>
#include <math.h>
#include <string.h>

static const char *const index_types[] = {"i32", "i64", NULL};
static const char *const statuses[] = {"ok", "wrong", "failed", "refused",
                                       NULL};

#define COUNT_MAX 1e15 /* exact in a double, far above any file or memory */
#define GRAPH_MAX                                                              \
  0x1p40 /* nodes and edges; their products fit into 64 bits                   \
          */
#define HEADS_MAX 65535
#define DIM_MAX 65536
#define TIME_MIN 1e-9 /* ms; both ends lie beyond what clocks measure */
#define TIME_MAX 1e9

#define AT(member) .offset = offsetof(dfgnn_measurement, member)
#define NAME(n, member, longest)                                               \
  .name = n, AT(member), .kind = DFGNN_FIELD_NAME, .low = 1, .high = longest
#define CHOICE(n, member, names) NAME(n, member, 32), .choice = names
#define TEXT(n, member, longest)                                               \
  .name = n, AT(member), .kind = DFGNN_FIELD_TEXT, .high = longest
#define INT(n, member, least, most)                                            \
  .name = n, AT(member), .kind = DFGNN_FIELD_INT, .low = least, .high = most
#define INT64(n, member, least, most)                                          \
  .name = n, AT(member), .kind = DFGNN_FIELD_INT64, .low = least, .high = most
#define COUNT(n, member) INT64(n, member, 0, COUNT_MAX)
#define SIZE(n, member) INT64(n, member, 0, GRAPH_MAX)
#define UINT64(n, member) .name = n, AT(member), .kind = DFGNN_FIELD_UINT64
#define REAL(n, member, most)                                                  \
  .name = n, AT(member), .kind = DFGNN_FIELD_REAL, .high = most
#define TIME(n, member) REAL(n, member, TIME_MAX), .least = TIME_MIN
#define RATIO(n, member)                                                       \
  REAL(n, member, TIME_MAX / TIME_MIN), .least = TIME_MIN / TIME_MAX
#define IN_PROBLEM(member) .in_problem = offsetof(dfgnn_problem, member)

static const dfgnn_field device[] = {
    {NAME("backend", backend, 32), .key = DFGNN_KEY_DEVICE},
    {NAME("arch", arch, 64), .key = DFGNN_KEY_DEVICE},
    {TEXT("model", model, 255), .key = DFGNN_KEY_DEVICE},
    {INT("units", units, 0, INT_MAX), .key = DFGNN_KEY_DEVICE},
    {COUNT("cache_bytes", cache_bytes), .key = DFGNN_KEY_DEVICE},
    {COUNT("memory_bytes", memory_bytes)},
    {COUNT("shared_bytes", shared_bytes), .key = DFGNN_KEY_DEVICE},
    {TEXT("driver", driver, 255)},
    {TEXT("runtime", runtime, 255)},
    {TEXT("library", library, 255)},
};

/* THE table of the fields of a problem. */
static const dfgnn_field problem[] = {
    {NAME("op", op, 32), .word = "operator", .key = DFGNN_KEY_GATE,
     IN_PROBLEM(op), .names = DFGNN_NAMES_OP},
    {NAME("pass", pass, 32), .word = "pass", .key = DFGNN_KEY_GATE,
     IN_PROBLEM(pass), .names = DFGNN_NAMES_PASS},
    {NAME("dtype", dtype, 32), .word = "dtype", .key = DFGNN_KEY_GATE,
     IN_PROBLEM(dtype), .names = DFGNN_NAMES_DTYPE},
    {NAME("math", math, 32), .word = "math", .key = DFGNN_KEY_GATE,
     IN_PROBLEM(math), .names = DFGNN_NAMES_MATH},
    {NAME("layout", layout, 32), .word = "layout", .key = DFGNN_KEY_GATE,
     IN_PROBLEM(layout), .names = DFGNN_NAMES_LAYOUT},
    {CHOICE("index_type", index, index_types), .json = "index",
     .word = "offsets", .key = DFGNN_KEY_GATE},
    {INT64("heads", heads, 1, HEADS_MAX), .word = "heads",
     .key = DFGNN_KEY_SIZE, IN_PROBLEM(heads)},
    {INT64("dim", dim, 1, DIM_MAX), .word = "dim", .key = DFGNN_KEY_SIZE,
     IN_PROBLEM(dim)},
    {INT("deterministic", deterministic, 0, 1), .word = "determinism",
     .key = DFGNN_KEY_GATE, IN_PROBLEM(deterministic)},
    {INT("weights", weights, 0, 1), .word = "weights", .key = DFGNN_KEY_GATE,
     IN_PROBLEM(weights)},
    {INT("bias", bias, 0, 1), .word = "bias", .key = DFGNN_KEY_GATE,
     IN_PROBLEM(bias), .optional = 1},
    {INT("dropout", dropout, 0, 1), .word = "dropout", .key = DFGNN_KEY_GATE,
     IN_PROBLEM(dropout), .optional = 1},
    {INT64("edge_dim", edge_dim, DFGNN_EDGE_PROJECTED, 65536),
     .word = "edge features", .key = DFGNN_KEY_GATE, IN_PROBLEM(edge_dim),
     .optional = 1},
    {INT("edge_use", edge_use, 0, DFGNN_EDGE_USE_COUNT - 1),
     .word = "edge features of", .key = DFGNN_KEY_GATE, IN_PROBLEM(edge_use),
     .names = DFGNN_NAMES_EDGE_USE, .optional = 1},
    {INT("message", message, 0, DFGNN_MESSAGE_COUNT - 1), .word = "message",
     .key = DFGNN_KEY_GATE, IN_PROBLEM(message), .names = DFGNN_NAMES_MESSAGE,
     .optional = 1},
    {.name = "program",
     AT(program),
     .kind = DFGNN_FIELD_NAME,
     .high = 16,
     .word = "program",
     .key = DFGNN_KEY_GATE,
     .optional = 1},
    {TEXT("program_text", program_text, DFGNN_PROGRAM_TEXT),
     .word = "the program's text", .optional = 1},
};

static const dfgnn_field graph[] = {
    {TEXT("graph", graph, 255)},
    {TEXT("family", family, 255)},
    {SIZE("destinations", signature.destinations)},
    {SIZE("sources", signature.sources)},
    {SIZE("edges", signature.edges)},
    {SIZE("max_degree", signature.max_degree)},
    {REAL("mean_degree", signature.mean_degree, COUNT_MAX)},
    {SIZE("p50_degree", signature.p50_degree)},
    {SIZE("p90_degree", signature.p90_degree)},
    {SIZE("p99_degree", signature.p99_degree)},
    {REAL("degree_cv", signature.degree_cv, COUNT_MAX)},
    {REAL("isolated", signature.isolated, 1)},
    {.name = "histogram",
     AT(signature.histogram),
     .kind = DFGNN_FIELD_REALS,
     .high = 1},
    {REAL("reuse", signature.reuse, 1)},
    {REAL("locality", signature.locality, 1)},
    {SIZE("graphs", signature.graphs)},
    {SIZE("largest_graph", signature.largest_graph)},
    {REAL("density", signature.density, COUNT_MAX)},
    {UINT64("fingerprint", signature.fingerprint), .key = DFGNN_KEY_GRAPH},
    {SIZE("max_source_degree", signature.max_source_degree), .optional = 1},
    {SIZE("p50_source_degree", signature.p50_source_degree), .optional = 1},
    {SIZE("p99_source_degree", signature.p99_source_degree), .optional = 1},
    {REAL("source_cv", signature.source_cv, COUNT_MAX), .optional = 1},
    {REAL("isolated_sources", signature.isolated_sources, 1), .optional = 1},
};

static const dfgnn_field run[] = {
    {TEXT("tool", tool, 255)},
    {TEXT("host", host, 255)},
    {TEXT("job", job, 255)},
    {NAME("protocol", protocol, 255), .key = DFGNN_KEY_WORD},
    {NAME("run", run, 32)},
    {UINT64("seed", seed)},
    {REAL("copy_gbps", copy_gbps, 1e6), .optional = 1},
};

static const dfgnn_field measurement[] = {
    {NAME("variant", variant, 255)},
    {INT("revision", revision, 0, INT_MAX)},
    {COUNT("time", time)},
    {CHOICE("status", status, statuses)},
    {TEXT("reason", reason, 1023)},
    {.name = "anchor", AT(anchor), .kind = DFGNN_FIELD_NAME, .high = 255},
    {INT("anchor_revision", anchor_revision, 0, INT_MAX)},
    {TIME("median_ms", median_ms)},
    {TIME("ci_low_ms", ci_low_ms)},
    {TIME("ci_high_ms", ci_high_ms)},
    {RATIO("ratio", ratio)},
    {RATIO("ratio_low", ratio_low)},
    {RATIO("ratio_high", ratio_high)},
    {COUNT("samples", samples)},
    {REAL("rel_error", rel_error, DBL_MAX)},
    {COUNT("workspace_bytes", workspace_bytes)},
    {COUNT("disturbed", disturbed), .optional = 1},
    {TEXT("noise", noise, 255), .optional = 1},
};

#define FIELDS(name)                                                           \
  { #name, sizeof name / sizeof *name, name }
const dfgnn_fields dfgnn__fields[DFGNN_GROUP_COUNT] = {
    [DFGNN_GROUP_DEVICE] = FIELDS(device),
    [DFGNN_GROUP_PROBLEM] = FIELDS(problem),
    [DFGNN_GROUP_GRAPH] = FIELDS(graph),
    [DFGNN_GROUP_RUN] = FIELDS(run),
    [DFGNN_GROUP_MEASUREMENT] = FIELDS(measurement),
};

/* Bytes of the well-formed and harmless UTF-8 character at s, 0 if it is none:
 * no control characters, no line separators, no marks that reorder text. */
static size_t utf8_length(const unsigned char *s) {
  if (s[0] < 0x80)
    return s[0] >= 0x20 && s[0] != 0x7f;
  size_t length = s[0] >= 0xf0 ? 4 : s[0] >= 0xe0 ? 3 : 2;
  if (s[0] < 0xc2 || s[0] > 0xf4)
    return 0;
  uint32_t c = s[0] & (0x7fu >> length);
  for (size_t i = 1; i < length; i++) {
    if ((s[i] & 0xc0) != 0x80)
      return 0;
    c = c << 6 | (s[i] & 0x3f);
  }
  static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
  if (c < least[length] || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff) ||
      c < 0xa0 || (c >= 0x2028 && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069))
    return 0;
  return length;
}

static const char *text_refusal(const char *s) {
  while (*s) {
    size_t n = utf8_length((const unsigned char *)s);
    if (n == 0)
      return "expected UTF-8 without control characters";
    s += n;
  }
  return NULL;
}

static const char *name_refusal(const dfgnn_field *field, const char *s) {
  for (const char *c = s; *c; c++)
    if (*c < 0x21 || *c > 0x7e || *c == '"' || *c == '\\')
      return "expected printable ASCII without spaces and quotes";
  if (field->choice) {
    for (const char *const *c = field->choice; *c; c++)
      if (strcmp(*c, s) == 0)
        return NULL;
    return "not one of the known names";
  }
  return NULL;
}

static const char *real_refusal(const dfgnn_field *field, double x) {
  if (!isfinite(x))
    return "expected a finite number";
  if (field->least > 0 && x != 0 && !(x >= field->least && x <= field->high))
    return field->high == TIME_MAX ? "expected 0, or 1e-9 to 1e9 ms"
                                   : "expected 0, or 1e-18 to 1e18";
  return x >= field->low && x <= field->high ? NULL : "out of range";
}

const char *dfgnn__field_refusal(const dfgnn_field *field,
                                 const dfgnn_measurement *row) {
  const void *value = dfgnn__field_get(field, row);
  switch (field->kind) {
  case DFGNN_FIELD_NAME:
  case DFGNN_FIELD_TEXT: {
    const char *s = *(const char *const *)value;
    size_t length = s ? strnlen(s, (size_t)field->high + 1) : 0;
    if (length < (size_t)field->low)
      return "expected a name";
    if (length > (size_t)field->high)
      return "too long";
    if (length == 0)
      return NULL;
    return field->kind == DFGNN_FIELD_NAME ? name_refusal(field, s)
                                           : text_refusal(s);
  }
  case DFGNN_FIELD_INT:
  case DFGNN_FIELD_INT64: {
    int64_t x = dfgnn__field_whole(field, value);
    return x >= (int64_t)field->low && x <= (int64_t)field->high
               ? NULL
               : "out of range";
  }
  case DFGNN_FIELD_UINT64:
    return NULL;
  case DFGNN_FIELD_REAL:
    return real_refusal(field, *(const double *)value);
  case DFGNN_FIELD_REALS: {
    const char *refusal = NULL;
    for (size_t i = 0; i < DFGNN_HISTOGRAM_BINS && !refusal; i++)
      refusal = real_refusal(field, ((const double *)value)[i]);
    return refusal;
  }
  }
  return "the field is of no known kind";
}

int dfgnn__field_is_left_out(const dfgnn_field *field,
                             const dfgnn_measurement *row) {
  const void *value = dfgnn__field_get(field, row);
  if (!field->optional)
    return 0;
  switch (field->kind) {
  case DFGNN_FIELD_NAME:
  case DFGNN_FIELD_TEXT:
    return !*(const char *const *)value || !**(const char *const *)value;
  case DFGNN_FIELD_INT:
  case DFGNN_FIELD_INT64:
  case DFGNN_FIELD_UINT64:
    return dfgnn__field_whole(field, value) == 0;
  case DFGNN_FIELD_REAL:
    return *(const double *)value == 0;
  case DFGNN_FIELD_REALS:
    return 0;
  }
  return 0;
}

static const char *run_refusal(const dfgnn_measurement *row) {
  return strspn(row->run, "0123456789abcdef") == 32
             ? NULL
             : "expected 32 lower-case hexadecimal digits";
}

/* Checks the figures of a row against each other. */
static const char *figures_refusal(const dfgnn_measurement *row,
                                   const char **field) {
  int ok = strcmp(row->status, "ok") == 0;
  *field = "median_ms";
  if (ok && !(row->median_ms > 0))
    return "expected a time above 0 with status ok";
  *field = "ci_high_ms";
  if (row->ci_low_ms > row->ci_high_ms)
    return "expected ci_low_ms <= ci_high_ms";
  *field = "ratio_high";
  if (row->ratio_low > row->ratio_high)
    return "expected ratio_low <= ratio_high";
  *field = "disturbed";
  if (row->disturbed > row->samples)
    return "expected at most as many disturbed samples as samples";
  *field = "ratio";
  if (ok && *row->anchor && !(row->ratio > 0 && row->ratio_low > 0))
    return "expected a ratio and an interval above 0 where an anchor is named";
  return NULL;
}

const char *dfgnn__group_refusal(dfgnn_field_group group,
                                 const dfgnn_measurement *row,
                                 const char **field) {
  const dfgnn_fields *fields = &dfgnn__fields[group];
  const char *name = "", *refusal = NULL;
  for (size_t i = 0; i < fields->count && !refusal; i++) {
    name = fields->field[i].name;
    refusal = dfgnn__field_refusal(&fields->field[i], row);
  }
  if (!refusal && group == DFGNN_GROUP_RUN) {
    name = "run";
    refusal = run_refusal(row);
  }
  if (!refusal && group == DFGNN_GROUP_MEASUREMENT)
    refusal = figures_refusal(row, &name);
  if (field)
    *field = name;
  return refusal;
}

static int compare_real(double a, double b) { return (a > b) - (a < b); }

int dfgnn__field_compare(const dfgnn_field *field, const dfgnn_measurement *a,
                         const dfgnn_measurement *b) {
  const void *x = dfgnn__field_get(field, a), *y = dfgnn__field_get(field, b);
  switch (field->kind) {
  case DFGNN_FIELD_NAME:
  case DFGNN_FIELD_TEXT: {
    const char *s = *(const char *const *)x, *t = *(const char *const *)y;
    return s == t ? 0 : strcmp(s ? s : "", t ? t : "");
  }
  case DFGNN_FIELD_INT:
  case DFGNN_FIELD_INT64: {
    const int64_t i = dfgnn__field_whole(field, x);
    const int64_t j = dfgnn__field_whole(field, y);
    return (i > j) - (i < j);
  }
  case DFGNN_FIELD_UINT64: {
    uint64_t i = *(const uint64_t *)x, j = *(const uint64_t *)y;
    return (i > j) - (i < j);
  }
  case DFGNN_FIELD_REAL:
    return compare_real(*(const double *)x, *(const double *)y);
  case DFGNN_FIELD_REALS:
    for (size_t i = 0; i < DFGNN_HISTOGRAM_BINS; i++) {
      int c = compare_real(((const double *)x)[i], ((const double *)y)[i]);
      if (c)
        return c;
    }
  }
  return 0;
}

static int compare_word(const char *a, const char *b) {
  if (a == b)
    return 0;
  size_t m = strcspn(a, ","), n = strcspn(b, ",");
  int c = memcmp(a, b, m < n ? m : n);
  return c ? c : (m > n) - (m < n);
}

int dfgnn__problem_compare(const dfgnn_measurement *a,
                           const dfgnn_measurement *b) {
  for (int group = 0; group < DFGNN_GROUP_MEASUREMENT; group++) {
    const dfgnn_fields *fields = &dfgnn__fields[group];
    for (size_t i = 0; i < fields->count; i++) {
      const dfgnn_field *field = &fields->field[i];
      if (field->key == DFGNN_KEY_NONE)
        continue;
      int c = field->key == DFGNN_KEY_WORD
                  ? compare_word(dfgnn__field_string(field, a),
                                 dfgnn__field_string(field, b))
                  : dfgnn__field_compare(field, a, b);
      if (c)
        return c;
    }
  }
  return 0;
}

int dfgnn__same_problem(const dfgnn_measurement *a,
                        const dfgnn_measurement *b) {
  return dfgnn__problem_compare(a, b) == 0;
}

int dfgnn__measurement_compare(const dfgnn_measurement *a,
                               const dfgnn_measurement *b) {
  for (int group = DFGNN_GROUP_COUNT; group-- > 0;) {
    const dfgnn_fields *fields = &dfgnn__fields[group];
    for (size_t i = 0; i < fields->count; i++) {
      int c = dfgnn__field_compare(&fields->field[i], a, b);
      if (c)
        return c;
    }
  }
  return 0;
}

/* Cuts text to the limit, between characters, and replaces the characters that
 * text_refusal refuses. */
static char *clean_text(const char **text, size_t limit, char *buffer,
                        const char *end) {
  const unsigned char *s = (const unsigned char *)*text;
  char *out = buffer;
  while (*s) {
    size_t n = utf8_length(s);
    size_t bytes = n ? n : 1;
    if ((size_t)(out - buffer) + bytes > limit || out + bytes + 1 > end)
      break;
    if (n)
      memcpy(out, s, n);
    else
      *out = '?';
    out += bytes;
    s += bytes;
  }
  *out = 0;
  *text = buffer;
  return out + 1;
}

static void clean_zero(double *x) {
  if (*x == 0)
    *x = 0;
}

void dfgnn__measurement_clean(dfgnn_measurement *clean,
                              const dfgnn_measurement *row,
                              char buffer[DFGNN_CLEAN_BYTES]) {
  char *next = buffer;
  *clean = *row;
  clean->signature.struct_size = sizeof clean->signature;
  if (!isfinite(clean->rel_error))
    clean->rel_error = DBL_MAX;
  for (int group = 0; group < DFGNN_GROUP_COUNT; group++)
    for (size_t i = 0; i < dfgnn__fields[group].count; i++) {
      const dfgnn_field *field = &dfgnn__fields[group].field[i];
      void *slot = dfgnn__field_slot(field, clean);
      switch (field->kind) {
      case DFGNN_FIELD_NAME:
        if (!*(const char **)slot)
          *(const char **)slot = "";
        break;
      case DFGNN_FIELD_TEXT:
        if (!*(const char **)slot)
          *(const char **)slot = "";
        else if (dfgnn__field_refusal(field, clean))
          next = clean_text(slot, (size_t)field->high, next,
                            buffer + DFGNN_CLEAN_BYTES);
        break;
      case DFGNN_FIELD_REAL:
        clean_zero(slot);
        break;
      case DFGNN_FIELD_REALS:
        for (size_t j = 0; j < DFGNN_HISTOGRAM_BINS; j++)
          clean_zero((double *)slot + j);
        break;
      default:
        break;
      }
    }
}
