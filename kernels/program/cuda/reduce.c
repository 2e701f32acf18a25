#include "kernels/program/cuda/code.h"

/* ---- reductions ---------------------------------------------------------- */

static int is_lse(int op) { return op == DFGNN_NODE_LSE; }
static int is_max(int op) { return op == DFGNN_NODE_MAX_EDGES; }

/* Numbers of a lane of a reduction whose elements lanes share. */
int dfgnn__code_shared_numbers(const writer *w, int32_t n) {
  return (int)((extent(w, n)->all + w->p->lanes - 1) / w->p->lanes);
}

void dfgnn__code_declare_state(writer *w, int32_t n) {
  const int op = at(w, n)->op;
  value_class c = plan_class(w->p, n);
  const char *names[] = {"z", "s"};
  for (int k = 0; k < 1 + is_lse(op); k++) {
    if (c == CLASS_OTHER)
      P("A %s%d[%d];\n", names[k], n, dfgnn__code_shared_numbers(w, n));
    else
      dfgnn__code_declare(w, names[k], n, c, "");
  }
}

/* Runs a statement for each number of a reduction's state; %s are that number,
 * twice the same for the sums of a log-sum-exp. */
void dfgnn__code_begin_state(writer *w, int32_t n, value_class c, place *x) {
  if (c == CLASS_OTHER) {
    P("{ _Pragma(\"unroll\") for (int t = 0; t < %d; ++t) {\n"
      "const int j = lane + t * kLanes; (void)j;\n",
      dfgnn__code_shared_numbers(w, n));
    *x = (place){.c = c, .level = DFGNN_LEVEL_EDGE, .flat = "j"};
    return;
  }
  *x = dfgnn__code_begin_loop(w, c, extent(w, n), DFGNN_LEVEL_EDGE, "", "");
}

const char *dfgnn__code_state_number(writer *w, const char *of,
                                     const char *name, int32_t n,
                                     value_class c) {
  const char *number = c == CLASS_OTHER
                           ? dfgnn__code_text(w, "%s%d[t]", name, n)
                           : dfgnn__code_own_number(w, name, n, c);
  return dfgnn__code_text(w, "%s%s", of, number);
}

void dfgnn__code_write_start(writer *w, int32_t n) {
  const int op = at(w, n)->op;
  value_class c = plan_class(w->p, n);
  place x;
  dfgnn__code_begin_state(w, n, c, &x);
  P("%s = %s;\n", dfgnn__code_state_number(w, "z.", "z", n, c),
    is_lse(op)   ? "lowest<A>()"
    : is_max(op) ? "-A(INFINITY)"
                 : "A(0)");
  if (is_lse(op))
    P("%s = A(0);\n", dfgnn__code_state_number(w, "z.", "s", n, c));
  dfgnn__code_end_loop(w, c);
}

int dfgnn__code_state_size(const writer *w, int32_t n) {
  const walk_plan *p = w->p;
  const int64_t row = (p->shape[2] + p->vector - 1) / p->vector;
  int64_t head = 1;
  while (head < row)
    head *= 2;
  const int64_t chunks = (p->heads * head + p->lanes - 1) / p->lanes;
  const int64_t numbers[] = {[CLASS_ONE] = 1,
                             [CLASS_HEADS] = chunks,
                             [CLASS_MAIN] = chunks * p->vector,
                             [CLASS_OTHER] = dfgnn__code_shared_numbers(w, n)};
  return (int)numbers[plan_class(p, n)] * (1 + is_lse(at(w, n)->op));
}

void dfgnn__code_write_numbers(writer *w, int32_t n) {
  const int op = at(w, n)->op;
  value_class c = plan_class(w->p, n);
  place x;
  dfgnn__code_begin_state(w, n, c, &x);
  P("each(%s, k++);\n", dfgnn__code_state_number(w, "z.", "z", n, c));
  if (is_lse(op))
    P("each(%s, k++);\n", dfgnn__code_state_number(w, "z.", "s", n, c));
  dfgnn__code_end_loop(w, c);
}

/* The logsumexp that a sum goes along with; -1: none. */
int32_t dfgnn__code_lse_beside(const writer *w, int32_t n) {
  int32_t weight = w->p->soft[n];
  return weight < 0 ? -1 : dfgnn__plan_lse_of(w->p, weight);
}

/* The weight that sums take of a logsumexp of this stage; -1: none. */
static int32_t weight_of(const writer *w, int32_t lse) {
  for (int32_t n = 0; n < w->dag->count; n++)
    if (w->p->soft[n] >= 0 && dfgnn__code_lse_beside(w, n) == lse)
      return w->p->soft[n];
  return -1;
}

/* The products between a weight and the sum that takes it. */
static void write_products(writer *w, int32_t n, int32_t weight) {
  if (n == weight || at(w, n)->op != DFGNN_NODE_MUL || w->written[n])
    return;
  for (int i = 0; i < at(w, n)->count; i++)
    write_products(w, argument(w, n, i), weight);
  int has_weight = 0;
  for (int i = 0; i < at(w, n)->count; i++)
    has_weight |= argument(w, n, i) == weight || w->written[argument(w, n, i)];
  if (!has_weight)
    return;
  w->written[n] = 1;
  dfgnn__code_write_made(w, n, DFGNN_LEVEL_EDGE);
}

/* ---- softmaxes ------------------------------------------------------------
 */

void dfgnn__code_declare_score(writer *w, int32_t n) {
  value_class c = plan_class(w->p, n);
  if (!is_lse(at(w, n)->op))
    return;
  if (c == CLASS_OTHER)
    P("A e%d[%d];\n", n, dfgnn__code_shared_numbers(w, n));
  else
    dfgnn__code_declare(w, "e", n, c, "");
}

void dfgnn__code_write_score(writer *w, int32_t n) {
  const int32_t a = argument(w, n, 0);
  value_class c = plan_class(w->p, n);
  place x;
  dfgnn__code_begin_state(w, n, c, &x);
  const char *term = c == CLASS_OTHER ? dfgnn__code_element(w, a, &x, "j", 0)
                                      : dfgnn__code_operand(w, a, &x);
  P("%s = live%s ? A(%s) : -A(INFINITY);\n",
    dfgnn__code_state_number(w, "y.", "e", n, c),
    c == CLASS_OTHER
        ? dfgnn__code_text(w, " && j < %lld", (long long)extent(w, n)->all)
        : "",
    term);
  dfgnn__code_end_loop(w, c);
}

void dfgnn__code_write_top(writer *w, int32_t n) {
  value_class c = plan_class(w->p, n);
  place x;
  if (c == CLASS_OTHER)
    P("A g%d[%d];\n", n, dfgnn__code_shared_numbers(w, n));
  else
    dfgnn__code_declare(w, "g", n, c, "");
  dfgnn__code_begin_state(w, n, c, &x);
  const char *top = dfgnn__code_state_number(w, "", "g", n, c);
  P("%s = y[0].%s;\n"
    "_Pragma(\"unroll\") for (int u = 1; u < N; ++u) %s = f_max(%s, y[u].%s);\n"
    "raised |= %s > %s + A(kSlack);\n",
    top, dfgnn__code_state_number(w, "", "e", n, c), top, top,
    dfgnn__code_state_number(w, "", "e", n, c), top,
    dfgnn__code_state_number(w, "z.", "z", n, c));
  dfgnn__code_end_loop(w, c);
}

/* g is the largest score, and then the factor of what was relative to the
 * maximum before. */
void dfgnn__code_write_raise(writer *w, int32_t n) {
  const int32_t lse = dfgnn__code_lse_beside(w, n);
  value_class c = plan_class(w->p, n);
  place x;
  if (lse < 0 && !is_lse(at(w, n)->op))
    return;
  dfgnn__code_begin_state(w, n, c, &x);
  const char *z = dfgnn__code_state_number(w, "z.", "z", n, c);
  const char *g = dfgnn__code_state_number(w, "", "g", n, c);
  if (lse >= 0)
    P("%s *= %s;\n", z,
      dfgnn__code_own_number(w, "g", lse, plan_class(w->p, lse)));
  else
    P("{ const A old = %s; %s = f_max(old, %s); %s = f_soften(old - %s);\n"
      "%s *= %s; }\n",
      z, z, g, g, z, dfgnn__code_state_number(w, "z.", "s", n, c), g);
  dfgnn__code_end_loop(w, c);
}

void dfgnn__code_write_weight(writer *w, int32_t n) {
  value_class c = plan_class(w->p, n);
  int32_t weight = weight_of(w, n);
  place x;
  if (weight >= 0) {
    w->written[weight] = 1;
    dfgnn__code_declare(w, "n", weight, c, "");
  }
  dfgnn__code_begin_state(w, n, c, &x);
  P("{ const A e = f_soften(%s - %s); %s += e;\n",
    dfgnn__code_state_number(w, "y.", "e", n, c),
    dfgnn__code_state_number(w, "z.", "z", n, c),
    dfgnn__code_state_number(w, "z.", "s", n, c));
  if (weight >= 0)
    P("%s = e;\n", dfgnn__code_own_number(w, "n", weight, c));
  P("}\n");
  dfgnn__code_end_loop(w, c);
}

/* of, name: the state, "z." and "z", or a total's, "" and "t". */
void dfgnn__code_write_reduce(writer *w, int32_t n, const char *of,
                              const char *name, const char *live) {
  const int op = at(w, n)->op;
  const int32_t a = argument(w, n, 0), lse = dfgnn__code_lse_beside(w, n);
  value_class c = plan_class(w->p, n);
  place x;
  if (lse >= 0)
    write_products(w, a, w->p->soft[n]);
  dfgnn__code_begin_state(w, n, c, &x);
  const char *term = c == CLASS_OTHER ? dfgnn__code_element(w, a, &x, "j", 0)
                                      : dfgnn__code_operand(w, a, &x);
  const char *z = dfgnn__code_state_number(w, of, name, n, c);
  const char *there = c == CLASS_OTHER
                          ? dfgnn__code_text(w, "%s && j < %lld", live,
                                             (long long)extent(w, n)->all)
                          : live;
  if (is_max(op))
    P("if (%s) %s = f_max(A(%s), %s);\n", there, z, term, z);
  else
    P("if (%s) %s += %s;\n", there, z, term);
  dfgnn__code_end_loop(w, c);
}

/* Sums that are relative to a side's maximum are brought to that of all. */
void dfgnn__code_write_join(writer *w, int32_t n) {
  const int op = at(w, n)->op;
  const int32_t lse = dfgnn__code_lse_beside(w, n);
  value_class c = plan_class(w->p, n);
  const int softens = is_lse(op) && weight_of(w, n) >= 0;
  place x;
  if (softens)
    dfgnn__code_declare(w, "g", n, c, "");
  dfgnn__code_begin_state(w, n, c, &x);
  const char *z = dfgnn__code_state_number(w, "z.", "z", n, c);
  if (is_lse(op)) {
    const char *sum = dfgnn__code_state_number(w, "z.", "s", n, c);
    P("A most = %s; how.max(most);\n"
      "const A g = %s == most ? A(1) : f_exp(%s - most);\n"
      "%s = most; %s *= g; how.sum(%s);\n",
      z, z, z, z, sum, sum);
    if (softens)
      P("%s = g;\n", dfgnn__code_own_number(w, "g", n, c));
  } else if (lse >= 0) {
    P("%s *= %s; how.sum(%s);\n", z,
      dfgnn__code_own_number(w, "g", lse, plan_class(w->p, lse)), z);
  } else {
    P("how.%s(%s);\n", is_max(op) ? "max" : "sum", z);
  }
  dfgnn__code_end_loop(w, c);
}

void dfgnn__code_write_finish(writer *w, int32_t n) {
  const int op = at(w, n)->op;
  const int32_t lse = dfgnn__code_lse_beside(w, n);
  value_class c = plan_class(w->p, n);
  place x;
  dfgnn__code_begin_state(w, n, c, &x);
  const char *z = dfgnn__code_state_number(w, "z.", "z", n, c), *y = z;
  if (is_lse(op))
    y = dfgnn__code_text(w, "lse_of(%s, %s)", z,
                         dfgnn__code_state_number(w, "z.", "s", n, c));
  else if (lse >= 0)
    y = dfgnn__code_text(
        w, "(degree ? %s / %s : A(0))", z,
        dfgnn__code_state_number(w, "z.", "s", lse, plan_class(w->p, lse)));
  else if (is_max(op))
    y = dfgnn__code_text(w, "(degree ? %s : A(0))", z);
  if (c == CLASS_OTHER)
    P("if (j < %lld && group_lane < kLanes) own_shared[%d + j] = %s;\n",
      (long long)extent(w, n)->all, w->p->slot[n], y);
  else
    P("%s = %s;\n", dfgnn__code_own_number(w, "n", n, c), y);
  dfgnn__code_end_loop(w, c);
  if (c == CLASS_OTHER)
    P("__syncwarp();\n");
  dfgnn__code_write_spill(w, n);
}
