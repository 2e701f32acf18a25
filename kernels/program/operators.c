/* operators.c - the library's operators as programs */
#include <pthread.h>
#include <stdio.h>

#include "kernels/program/match.h"

typedef struct known {
  dfgnn_op op;
  dfgnn_message message;
  dfgnn_edge_use edge_use;
  unsigned optional;
  const char *inputs, *formula;
} known;

/* ---- attention ----------------------------------------------------------- */

/* In the formulas s is the score and y the value.  Projected edge features are
 * e = W e + b already, others become e by W [H D, F] and b. */
#define ATTENTION(label, ports, text, options)                                 \
  {                                                                            \
    .op = DFGNN_OP_##label, .inputs = "edge bias[H,1]; " ports,                \
    .formula = text,                                                           \
    .optional = DFGNN_MATCH_BIAS | DFGNN_MATCH_DROPOUT |                       \
                DFGNN_MATCH_EDGE_BIAS | (options)                              \
  }
#define GT "dst query[H,D]; src key[H,D], value[H,D]; param scale"
#define GATV2 "dst query[H,D]; src value[H,D]; param att[H,D]"
#define AGNN "dst query[H,D]; src value[H,D]"
#define LINEAR                                                                 \
  "; edge edge_attr[F]; param edge_weight[K,F], edge_bias[K]\n"                \
  "e = reshape(linear(edge_attr, edge_weight, edge_bias), [H,D])"
/* GT's edges by where they are added. */
#define GT_EDGES(use, features, key, value)                                    \
  {                                                                            \
    .op = DFGNN_OP_GT, .edge_use = DFGNN_EDGE_##use,                           \
    .inputs = "edge bias[H,1]; " GT features,                                  \
    .formula = "s = scale * sum(query * " key "); y = " value,                 \
    .optional = DFGNN_MATCH_BIAS | DFGNN_MATCH_DROPOUT | DFGNN_MATCH_EDGE_BIAS \
  }
#define GT_ALL_EDGES(use, key, value)                                          \
  GT_EDGES(use, "; edge edge_attr[H,D]\ne = edge_attr", key, value),           \
      GT_EDGES(use, LINEAR, key, value)

static const known attention[] = {
    ATTENTION(GT, GT, "s = scale * sum(query * key); y = value", 0),
    GT_ALL_EDGES(BOTH, "(key + e)", "value + e"),
    GT_ALL_EDGES(KEYS, "(key + e)", "value"),
    GT_ALL_EDGES(VALUES, "key", "value + e"),
    ATTENTION(GAT,
              "src value[H,D]; dst score_dst[H,1]; src score_src[H,1]; "
              "edge score_edge[H,1]",
              "s = leaky_relu(score_dst + score_src + score_edge, 0.2)\n"
              "y = value",
              DFGNN_MATCH_EDGES),
    ATTENTION(GATV2, GATV2 "; edge edge_attr[H,D]",
              "s = sum(att * leaky_relu(query + value + edge_attr, 0.2))\n"
              "y = value",
              DFGNN_MATCH_EDGES),
    ATTENTION(GATV2, GATV2 LINEAR,
              "s = sum(att * leaky_relu(query + value + e, 0.2)); y = value",
              0),
    /* the cosine of torch's normalize, in two spellings */
    ATTENTION(AGNN, AGNN "; param beta",
              "s = beta * sum(query * value)"
              " * rsqrt(max(sum(query * query), 1e-24))"
              " * rsqrt(max(sum(value * value), 1e-24)); y = value",
              0),
    ATTENTION(AGNN, AGNN "; param beta",
              "s = beta * sum(query * value)"
              " / max(sqrt(sum(query * query)), 1e-12)"
              " / max(sqrt(sum(value * value)), 1e-12); y = value",
              0),
    ATTENTION(AGNN, AGNN,
              "s = sum(query * value) / max(sqrt(sum(query * query)), 1e-12)"
              " / max(sqrt(sum(value * value)), 1e-12); y = value",
              0)};

/* ---- sums and extremes --------------------------------------------------- */

/* Messages of which each feature is computed alone: A, B and D are all axes
 * that a row has. */
#define MESSAGE(label, ports, text, options)                                   \
  {                                                                            \
    .message = DFGNN_MESSAGE_##label, .inputs = ports, .formula = text,        \
    .optional = DFGNN_MATCH_EDGE_BIAS | (options)                              \
  }
#define X "src value[A,B,D]"
#define GATES "dst gate_dst[A,B,D]; src gate_src[A,B,D], value[A,B,D]"
#define ROW                                                                    \
  "; edge edge_attr[F]; param edge_weight[D,F], edge_bias[D]\n"                \
  "e = linear(edge_attr, edge_weight, edge_bias)"

static const known messages[] = {
    MESSAGE(COPY, X, "m = value", 0),
    MESSAGE(RELU, X "; edge edge_attr[A,B,D]", "m = relu(value + edge_attr)",
            0),
    MESSAGE(RELU, "src value[D]" ROW, "m = relu(value + e)", 0),
    MESSAGE(GATE, GATES "; edge edge_attr[A,B,D]",
            "m = sigmoid(gate_dst + gate_src + edge_attr) * value",
            DFGNN_MATCH_EDGES),
    MESSAGE(GATE, "dst gate_dst[D]; src gate_src[D], value[D]" ROW,
            "m = sigmoid(gate_dst + gate_src + e) * value", 0)};

static const struct {
  dfgnn_op op;
  const char *reduction;
} reductions[] = {{DFGNN_OP_SPMM_SUM, "sum_in(scale_dst * scale_src * m)"},
                  {DFGNN_OP_SPMM_MEAN, "mean_in(scale_dst * scale_src * m)"},
                  {DFGNN_OP_REDUCE_MAX, "max_in(m)"},
                  {DFGNN_OP_REDUCE_MIN, "min_in(m)"}};

static const known weighted[] = {
    {.op = DFGNN_OP_SPMM_WEIGHTED,
     .inputs = "src value[H,D]; edge edge_weight[H,1]"},
    {.op = DFGNN_OP_SPMM_WEIGHTED, .inputs = X "; edge edge_weight"}};

/* ---- the table ----------------------------------------------------------- */

enum {
  ATTENTIONS = sizeof attention / sizeof *attention,
  MESSAGES = sizeof messages / sizeof *messages,
  REDUCTIONS = sizeof reductions / sizeof *reductions,
  WEIGHTED = sizeof weighted / sizeof *weighted,
  SUMS = MESSAGES * REDUCTIONS,
  KNOWN = ATTENTIONS + SUMS + WEIGHTED
};

/* The i-th operator with its text; 0 beyond the last. */
static int describe(known *about, char *text, size_t size, int i) {
  static const char scales[] = "dst scale_dst; src scale_src; ";
  if (i < ATTENTIONS) {
    *about = attention[i];
    snprintf(text, size,
             "%s\n%s\nw = softmax_in(s + bias)\n"
             "return out = sum_in(dropout(w, 0.5) * y), "
             "lse = logsumexp_in(s + bias), weights = w",
             about->inputs, about->formula);
    return 1;
  }
  i -= ATTENTIONS;
  if (i < SUMS) {
    *about = messages[i % MESSAGES];
    about->op = reductions[i / MESSAGES].op;
    about->optional |= DFGNN_MATCH_SCALES;
    snprintf(text, size, "%s%s\n%s\nout = %s", scales, about->inputs,
             about->formula, reductions[i / MESSAGES].reduction);
    return 1;
  }
  i -= SUMS;
  if (i < WEIGHTED) {
    *about = weighted[i];
    about->optional = DFGNN_MATCH_SCALES;
    snprintf(text, size,
             "%s%s\nout = sum_in(scale_dst * scale_src * edge_weight * value)",
             scales, about->inputs);
    return 1;
  }
  return 0;
}

static struct {
  known about;
  dfgnn_dag *dag; /* NULL: out of memory, and such programs run themselves */
} table[KNOWN];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void make_table(void) {
  char text[DFGNN_OPERATOR_TEXT];
  for (int i = 0; i < KNOWN && describe(&table[i].about, text, sizeof text, i);
       i++)
    if (dfgnn__dag_parse(&table[i].dag, text))
      table[i].dag = NULL;
}

int dfgnn__operator_text(char text[DFGNN_OPERATOR_TEXT], dfgnn_op *op, int i) {
  known about;
  if (!describe(&about, text, DFGNN_OPERATOR_TEXT, i))
    return 0;
  *op = about.op;
  return 1;
}

int dfgnn__dag_match(dfgnn_match *match, const dfgnn_dag *dag) {
  pthread_once(&once, make_table);
  for (int i = 0; i < KNOWN; i++) {
    const known *about = &table[i].about;
    *match = (dfgnn_match){.op = about->op,
                           .message = about->message,
                           .edge_use = about->edge_use};
    if (table[i].dag &&
        dfgnn__match_pattern(match, dag, table[i].dag, about->optional))
      return 1;
  }
  return 0;
}
