/* common_options.c - the option table of all tools, and the setting of options
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "base/error.h"
#include "reorder/reorder.h"
#include "tools/common.h"
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

const tool_option tool_options[OPTION_COUNT] = {
    [OPTION_OP] = {"op", 0, "LIST",
                   "operators: gt, agnn, gat, gatv2, spmm-sum, spmm-mean, "
                   "spmm-weighted, reduce-min, reduce-max, reduce-mean, "
                   "reduce-var, reduce-std, reduce-pna (default gt)"},
    [OPTION_PASS] = {"pass", 0, "LIST",
                     "passes: forward, backward (default forward)"},
    [OPTION_DIM] = {"dim", 0, "LIST", "features per head (default 64)"},
    [OPTION_HEADS] = {"heads", 0, "LIST", "attention heads (default 1)"},
    [OPTION_DTYPE] = {"dtype", 0, "LIST",
                      "storage of the features: f32, f16, bf16, f64 (default "
                      "f32)"},
    [OPTION_MATH] = {"math", 0, "LIST",
                     "exactness of f32 products: f32, tf32 (default f32)"},
    [OPTION_LAYOUT] = {"layout", 0, "LIST",
                       "order of dimensions: nhd for [nodes, heads, dim] or "
                       "ndh (default nhd)"},
    [OPTION_DEVICE] = {"device", 0, "LIST",
                       "auto, cpu, cuda, cuda:N or all (default auto: a GPU "
                       "if there is one)"},
    [OPTION_COLD] = {"cold", 0, NULL,
                     "measure with flushed caches, and choose by such "
                     "measurements"},
    [OPTION_NO_DETERMINISTIC] = {"no-deterministic", 0, NULL,
                                 "also consider variants whose results differ "
                                 "in the last bits from run to run"},
    [OPTION_WEIGHTS] = {"weights", 0, NULL,
                        "write the attention weights [E,H] too"},
    [OPTION_BIAS] = {"bias", 0, NULL,
                     "add a bias [E,H] to the attention scores"},
    [OPTION_DROPOUT] = {"dropout", 0, NULL,
                        "drop attention weights, as in training; the "
                        "probability does not matter"},
    [OPTION_EDGE_DIM] = {"edge-dim", 0, "LIST",
                         "features per edge; projected: they are [E,H,D] "
                         "already, of gat a scalar [E,H] (default 0: none)"},
    [OPTION_EDGE_USE] = {"edge-use", 0, "LIST",
                         "what gt adds edge features to: both, keys, values "
                         "(default both)"},
    [OPTION_QK_NORM] = {"qk-norm", 0, "LIST",
                        "how gt normalises queries and keys: none, rms, layer "
                        "(default none)"},
    [OPTION_MESSAGE] = {"message", 0, "LIST",
                        "what an edge carries in spmm and reduce: copy, relu, "
                        "gate, gate-value (default copy)"},
    [OPTION_EFFORT] = {"effort", 0, "NAME",
                       "stored, estimate, measure, race or paper (default "
                       "DFGNN_EFFORT, else estimate)"},
    [OPTION_THREADS] = {"threads", 0, "N",
                        "threads of the CPU backend (default: what OpenMP "
                        "uses)"},
    [OPTION_STORE] = {"store", 0, "FILE",
                      "the one store read and written; without it the layers "
                      "are read and the user's store is written"},
    [OPTION_BUDGET] = {"budget", 0, "TIME",
                       "wall time per problem, such as 10s, 500ms or 2m "
                       "(default 10s)"},
    [OPTION_TIME_LIMIT] =
        {"time-limit", 0, "TIME",
         "wall time of the whole run; the next run measures the problems "
         "that are missing then"},
    [OPTION_SEED] = {"seed", 0, "N",
                     "seed of the input values and of the order of "
                     "measurements (default 1)"},
    [OPTION_JOB] = {"job", 0, "FILE",
                    "a YAML job file, dfgnn-job(5); options given here "
                    "override it"},
    [OPTION_DRY_RUN] = {"dry-run", 'n', NULL,
                        "list the problems that would be measured, with an "
                        "estimate of the time"},
    [OPTION_EXHAUSTIVE] = {"exhaustive", 0, NULL,
                           "measure every candidate to the end"},
    [OPTION_REMEASURE] = {"remeasure", 0, NULL,
                          "measure again what is stored already"},
    [OPTION_ANONYMOUS] = {"anonymous", 0, NULL,
                          "store neither the names of graphs and families nor "
                          "of the host"},
    [OPTION_VARIANTS] = {"variants", 0, "LIST",
                         "all, tuned, rule, paper, unfused, smmf-pmf (the "
                         "better of the two), or names; * matches any text"},
    [OPTION_REPEATS] = {"repeats", 0, "N",
                        "calls per sample (default: enough that the timer is "
                        "negligible)"},
    [OPTION_ROUNDS] = {"rounds", 0, "N",
                       "interleaved rounds of samples (default 15)"},
    [OPTION_CHECK] = {"check", 0, NULL,
                      "compare each variant with the float64 "
                      "reference first (the default)"},
    [OPTION_NO_CHECK] = {"no-check", 0, NULL,
                         "do not compare the variants with the reference"},
    [OPTION_DISPATCH] = {"dispatch", 0, NULL,
                         "measure the cost of dispatch instead of the kernels"},
    [OPTION_REGRET] = {"regret", 0, NULL,
                       "measure the regret of the stored decisions, exact and "
                       "leaving one graph out, instead"},
    [OPTION_ALL] = {"all", 'a', NULL, "every variant, not the best alone"},
    [OPTION_ONLY_WINNERS] = {"only-winners", 0, NULL,
                             "only rows of winners and of the variants they "
                             "were compared with"},
    [OPTION_BEST] = {"best", 0, "N",
                     "only rows of the N fastest variants of each problem "
                     "and of the variants they were compared with"},
    [OPTION_FROM_ARCH] = {"from-arch", 0, "LIST",
                          "only rows of these architectures, such as sm_90"},
    [OPTION_ARCH] = {"arch", 0, "LIST",
                     "architectures to compile for, such as sm_80,sm_90"},
    [OPTION_PACK] = {"pack", 0, "FILE",
                     "write the compiled kernels to a pack as well"},
    [OPTION_KERNELS] = {"kernels", 0, NULL,
                        "the cache of compiled kernels instead of a store"},
    [OPTION_SINCE] = {"since", 0, "TIME",
                      "only rows measured since a date such as 2026-11-30 (in "
                      "UTC), or in the last 12h or 30d"},
    [OPTION_SKIP_INVALID] = {"skip-invalid", 0, NULL,
                             "skip lines that are no measurement, instead of "
                             "refusing the file"},
    [OPTION_KEY] = {"key", 0, "FILE",
                    "the secret key that signs; to verify, the public key, "
                    "or a directory of *.pub files, one of which must have "
                    "signed"},
    [OPTION_GENERATE_KEY] = {"generate-key", 0, "NAME",
                             "make the keys NAME.key, which signs and is to "
                             "be kept secret, and NAME.pub"},
    [OPTION_SHARD] = {"shard", 0, "I/N",
                      "measure only every N-th problem, from the I-th on: "
                      "the shards 1/N to N/N (or 0/N to N-1/N) together are "
                      "all problems"},
    [OPTION_REMOVE] = {"remove", 0, NULL, "remove the pin instead"},
    [OPTION_METHOD] = {"method", 0, "LIST",
                       "degree, rcm, metis, community or all (default "
                       "community)"},
    [OPTION_MAP] = {"map", 0, "FILE",
                    "write the old numbers of nodes and edges to FILE, an "
                    ".npz of arrays rows, columns and edges"},
    [OPTION_EDGE_ATTR] = {"edge-attr", 0, "FILE",
                          "write edge_attr [edges, 3] to FILE, an .npz: the "
                          "length of an edge, and the direction of its "
                          "source to the east and to the north"},
    [OPTION_BY] = {"by", 0, "METHOD",
                   "metis, range, or a file with the part of each node, one "
                   "number per line, as gpmetis writes it (default metis)"},
    [OPTION_REORDER] = {"reorder", 0, "LIST",
                        "measure instead how much these orders of the nodes "
                        "gain: degree, rcm, metis, community or all"},
    [OPTION_AGAINST] = {"against", 0, "FILE",
                        "a store to compare with: what became faster or "
                        "slower, and which winners changed"},
    [OPTION_COPY_GBPS] = {"copy-gbps", 0, "N",
                          "copy bandwidth of the device in GB/s, for floors "
                          "(default: the known bandwidth of its model)"},
    [OPTION_REPORT] = {"report", 0, "FILE",
                       "also write a page of HTML about the run to FILE"},
    [OPTION_OUTPUT] = {"output", 'o', "FILE",
                       "write to FILE instead of standard output"},
    [OPTION_JSON] = {"json", 0, NULL, "print one flat JSON array of objects"},
    [OPTION_QUIET] = {"quiet", 'q', NULL, "show no progress"},
    [OPTION_HELP] = {"help", 'h', NULL, "print this help"},
    [OPTION_VERSION] = {"version", 'V', NULL, "print the version"},
};

typedef dfgnn_status (*item_function)(void *slot, const char *text);

/* Splits at commas and parses each part into consecutive slots. */
static dfgnn_status set_list(void *slots, size_t size, int *count,
                             const char *value, item_function parse) {
  char *copy = strdup(value), *rest = copy, *item;
  dfgnn_status status = copy ? DFGNN_OK : DFGNN_ERROR_MEMORY;
  int n = 0;
  while (!status && (item = strsep(&rest, ","))) {
    if (n == TOOL_MAX_LIST)
      status = dfgnn__fail(DFGNN_ERROR_INVALID, "more than %d values in a list",
                           TOOL_MAX_LIST);
    else
      status = parse((char *)slots + size * (size_t)n++, item);
  }
  free(copy);
  if (!status)
    *count = n;
  return status;
}

static dfgnn_status item_op(void *slot, const char *text) {
  return dfgnn_op_parse(slot, text);
}
static dfgnn_status item_pass(void *slot, const char *text) {
  return dfgnn_pass_parse(slot, text);
}
static dfgnn_status item_dtype(void *slot, const char *text) {
  return dfgnn_dtype_parse(slot, text);
}
static dfgnn_status item_math(void *slot, const char *text) {
  return dfgnn_math_parse(slot, text);
}
static dfgnn_status item_layout(void *slot, const char *text) {
  return dfgnn_layout_parse(slot, text);
}

static dfgnn_status item_edge_use(void *slot, const char *text) {
  return dfgnn_edge_use_parse(slot, text);
}
static dfgnn_status item_qk_norm(void *slot, const char *text) {
  return dfgnn_qk_norm_parse(slot, text);
}
static dfgnn_status item_message(void *slot, const char *text) {
  return dfgnn_message_parse(slot, text);
}

static dfgnn_status whole(int64_t *out, const char *text, int64_t least,
                          int64_t most) {
  char *end;
  errno = 0;
  long long x = strtoll(text, &end, 10);
  if (end == text || *end || errno || x < least || x > most)
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "found '%s', expected a whole number from %lld to %lld",
                       text, (long long)least, (long long)most);
  *out = x;
  return DFGNN_OK;
}

static dfgnn_status item_size(void *slot, const char *text) {
  return whole(slot, text, 1, 1 << 20);
}

static dfgnn_status item_edge_dim(void *slot, const char *text) {
  if (!strcmp(text, "projected")) {
    *(int64_t *)slot = DFGNN_EDGE_PROJECTED;
    return DFGNN_OK;
  }
  return whole(slot, text, DFGNN_EDGE_PROJECTED, 65536);
}

#define MOST_THREADS 4096 /* the limit of dfgnn_options.threads */

static dfgnn_status set_int(int *out, const char *text, int least, int most) {
  int64_t x = least;
  dfgnn_status status = whole(&x, text, least, most);
  if (!status)
    *out = (int)x;
  return status;
}

#define MOST_SECONDS 36e6 /* 10000 hours */

static dfgnn_status set_seconds(double *out, const char *text) {
  static const struct {
    const char *suffix;
    double seconds;
  } units[] = {{"", 1}, {"s", 1}, {"ms", 1e-3}, {"m", 60}, {"h", 3600}};
  char *end;
  double x = strtod(text, &end);
  for (size_t i = 0; i < sizeof units / sizeof *units; i++)
    if (end != text && !strcmp(end, units[i].suffix) && x > 0 &&
        x * units[i].seconds <= MOST_SECONDS) {
      *out = x * units[i].seconds;
      return DFGNN_OK;
    }
  return dfgnn__fail(DFGNN_ERROR_INVALID,
                     "found '%s', expected a time above zero such as 500ms, "
                     "10s, 2m or 1h, and at most %.0fh",
                     text, MOST_SECONDS / 3600);
}

static dfgnn_status set_bandwidth(double *out, const char *text) {
  char *end;
  const double x = strtod(text, &end);
  if (end == text || *end || !(x > 0) || !(x <= 1e6))
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "found '%s', expected GB/s above zero, such as 4236",
                       text);
  *out = x;
  return DFGNN_OK;
}

/* Reads a date, or a time before now. */
static dfgnn_status set_since(int64_t *out, const char *text) {
  struct tm day = {0};
  char *end = strptime(text, "%Y-%m-%d", &day);
  if (end && *end == 'T')
    end = strptime(end, "T%H:%M:%S", &day);
  if (end && (!*end || !strcmp(end, "Z"))) {
    *out = (int64_t)timegm(&day);
    return DFGNN_OK;
  }
  double x = strtod(text, &end);
  const char *const units = "smhd";
  static const double seconds[] = {1, 60, 3600, 86400};
  const char *unit = end != text && *end && !end[1] ? strchr(units, *end) : 0;
  if (!unit || !isfinite(x) || x < 0 || x > 1e9)
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "found '%s', expected a date such as 2026-11-30 or a "
                       "time ago such as 12h or 30d",
                       text);
  *out = (int64_t)((double)time(NULL) - x * seconds[unit - units]);
  return DFGNN_OK;
}

static dfgnn_status set_shard(tool_settings *s, const char *text) {
  int i, n, length = 0;
  if (sscanf(text, "%5d/%5d%n", &i, &n, &length) != 2 || text[length] ||
      !isdigit((unsigned char)*text) || n < 1 || i > n)
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "found '%s', expected I/N with I from 1 to N (or from 0 "
                       "to N-1), such as 2/8",
                       text);
  s->shard = i ? i : n;
  s->shards = n;
  return DFGNN_OK;
}

static dfgnn_status set_device(const char **out, const char *text) {
  char *copy = strdup(text), *rest = copy, *item;
  int good = copy != NULL;
  while (good && (item = strsep(&rest, ",")))
    good = !strcmp(item, "auto") || !strcmp(item, "cpu") ||
           !strcmp(item, "cuda") || !strcmp(item, "all") ||
           (!strncmp(item, "cuda:", 5) && isdigit((unsigned char)item[5]) &&
            strspn(item + 5, "0123456789") == strlen(item + 5));
  free(copy);
  if (!good)
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "found '%s', expected auto, cpu, cuda, cuda:N or all",
                       text);
  *out = text;
  return DFGNN_OK;
}

/* Reads names of orders; "all" means all that the library was built with. */
static dfgnn_status set_orders(unsigned *out, const char *text) {
  char *copy = strdup(text), *rest = copy, *item;
  unsigned orders = 0;
  dfgnn_status status =
      copy ? DFGNN_OK : dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  while (!status && (item = strsep(&rest, ","))) {
    dfgnn_order order = DFGNN_ORDER_COUNT;
    if (!strcmp(item, "all"))
      for (int o = 0; o < DFGNN_ORDER_COUNT; o++)
        orders |= (unsigned)dfgnn__order_built((dfgnn_order)o) << o;
    else if (!(status = dfgnn_order_parse(&order, item)))
      orders |= 1u << order;
  }
  free(copy);
  if (!status)
    *out = orders;
  return status;
}

#define LIST(field, item)                                                      \
  set_list(s->field, sizeof *s->field, &s->field##_count, value, item)

static dfgnn_status set(tool_settings *s, int option, const char *value) {
  int64_t x = 0;
  dfgnn_status status = DFGNN_OK;
  switch (option) {
  case OPTION_OP:
    return LIST(op, item_op);
  case OPTION_PASS:
    return LIST(pass, item_pass);
  case OPTION_DIM:
    return LIST(dim, item_size);
  case OPTION_HEADS:
    return LIST(heads, item_size);
  case OPTION_DTYPE:
    return LIST(dtype, item_dtype);
  case OPTION_MATH:
    return LIST(math, item_math);
  case OPTION_LAYOUT:
    return LIST(layout, item_layout);
  case OPTION_EDGE_DIM:
    return LIST(edge_dim, item_edge_dim);
  case OPTION_EDGE_USE:
    return LIST(edge_use, item_edge_use);
  case OPTION_QK_NORM:
    return LIST(qk_norm, item_qk_norm);
  case OPTION_MESSAGE:
    return LIST(message, item_message);
  case OPTION_DEVICE:
    return set_device(&s->device, value);
  case OPTION_EFFORT:
    return dfgnn_effort_parse(&s->effort, value);
  case OPTION_THREADS:
    return set_int(&s->threads, value, 1, MOST_THREADS);
  case OPTION_BUDGET:
    return set_seconds(&s->budget_s, value);
  case OPTION_TIME_LIMIT:
    return set_seconds(&s->time_limit_s, value);
  case OPTION_REPEATS:
    return set_int(&s->repeats, value, 1, 1 << 30);
  case OPTION_ROUNDS:
    return set_int(&s->rounds, value, 2, 1 << 30);
  case OPTION_SEED:
    status = whole(&x, value, 0, INT64_MAX);
    if (!status)
      s->seed = (uint64_t)x;
    return status;
  case OPTION_STORE:
    s->store = value;
    break;
  case OPTION_JOB:
    s->job = value;
    break;
  case OPTION_AGAINST:
    s->against = value;
    break;
  case OPTION_COPY_GBPS:
    return set_bandwidth(&s->copy_gbps, value);
  case OPTION_REPORT:
    s->report = value;
    break;
  case OPTION_OUTPUT:
    s->output = value;
    break;
  case OPTION_VARIANTS:
    s->variants = value;
    break;
  case OPTION_COLD:
    s->cold = 1;
    break;
  case OPTION_NO_DETERMINISTIC:
    s->deterministic = 0;
    break;
  case OPTION_WEIGHTS:
    s->weights = 1;
    break;
  case OPTION_BIAS:
    s->bias = 1;
    break;
  case OPTION_DROPOUT:
    s->dropout = 1;
    break;
  case OPTION_DRY_RUN:
    s->dry_run = 1;
    break;
  case OPTION_EXHAUSTIVE:
    s->exhaustive = 1;
    break;
  case OPTION_REMEASURE:
    s->remeasure = 1;
    break;
  case OPTION_ANONYMOUS:
    s->anonymous = 1;
    break;
  case OPTION_CHECK:
    s->no_check = 0;
    break;
  case OPTION_NO_CHECK:
    s->no_check = 1;
    break;
  case OPTION_DISPATCH:
    s->dispatch = 1;
    break;
  case OPTION_REGRET:
    s->regret = 1;
    break;
  case OPTION_ARCH:
    s->arch = value;
    break;
  case OPTION_KERNELS:
    s->kernels = 1;
    break;
  case OPTION_PACK:
    s->pack = value;
    break;
  case OPTION_FROM_ARCH:
    s->from_arch = value;
    break;
  case OPTION_SINCE:
    return set_since(&s->since, value);
  case OPTION_SKIP_INVALID:
    s->skip_invalid = 1;
    break;
  case OPTION_KEY:
    s->key = value;
    break;
  case OPTION_GENERATE_KEY:
    s->generate_key = value;
    break;
  case OPTION_SHARD:
    return set_shard(s, value);
  case OPTION_METHOD:
  case OPTION_REORDER:
    return set_orders(&s->orders, value);
  case OPTION_EDGE_ATTR:
    s->edge_attr = value;
    break;
  case OPTION_MAP:
    s->map = value;
    break;
  case OPTION_BY:
    s->by = value;
    break;
  case OPTION_REMOVE:
    s->remove = 1;
    break;
  case OPTION_ALL:
    s->all = 1;
    break;
  case OPTION_ONLY_WINNERS:
    s->best = 1;
    break;
  case OPTION_BEST:
    return set_int(&s->best, value, 1, 1 << 30);
  case OPTION_JSON:
    s->json = 1;
    break;
  case OPTION_QUIET:
    s->quiet = 1;
    break;
  }
  return status;
}

dfgnn_status tool_set(tool_settings *settings, int option, const char *value) {
  if (tool_options[option].argument && !*value)
    return dfgnn__fail(DFGNN_ERROR_INVALID, "--%s: empty, expected %s",
                       tool_options[option].name,
                       tool_options[option].argument);
  dfgnn_status status = set(settings, option, value);
  if (status)
    dfgnn__fail_prefix(status, "--%s: ", tool_options[option].name);
  return status;
}
