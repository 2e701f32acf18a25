/* print.c - a program as text
 *
 * A value that is used more than once, or deep inside others, gets a name; the
 * others stand where they are used. */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernels/program/dag.h"
#include "lib/base/locale.h"

enum { DEEP = 12 }; /* values inside one another on a line */

/* How tightly the place where a value stands binds. */
enum { LOOSE, FACTOR, TIGHT };

typedef struct printer {
  const dfgnn_dag *dag;
  FILE *out;
  uint8_t *needed, *named, *depth;
  int32_t *number; /* of named values */
  char prefix[DFGNN_DAG_NAME];
} printer;

static void print(printer *p, int32_t n, int binding);

/* ---- leaves -------------------------------------------------------------- */

static void print_number(FILE *out, double x) {
  char text[40];
  for (int digits = 15; digits <= 17; digits++) {
    snprintf(text, sizeof text, "%.*g", digits, x);
    if (strtod(text, NULL) == x || x != x)
      break;
  }
  fputs(x != x ? "nan" : text, out);
}

static void print_shape(printer *p, const dfgnn_size *shape) {
  fputc('[', p->out);
  for (int i = 0; i < DFGNN_DAG_AXES; i++)
    fprintf(p->out, "%s%s", i ? ", " : "", dfgnn__size_text(p->dag, shape[i]));
  fputc(']', p->out);
}

static void print_leaf(printer *p, const dfgnn_node *node) {
  switch (node->op) {
  case DFGNN_NODE_NUMBER:
    print_number(p->out, node->number);
    break;
  case DFGNN_NODE_SIZE:
    fprintf(p->out, "size([%s])", dfgnn__size_text(p->dag, node->at));
    break;
  case DFGNN_NODE_COUNT:
    fprintf(p->out, "count(%s)", dfgnn__place_name(node->index));
    break;
  case DFGNN_NODE_DEGREE:
    fprintf(p->out, "degree(%s)", dfgnn__place_name(node->place));
    break;
  case DFGNN_NODE_INPUT:
    fputs(p->dag->inputs[node->index].name, p->out);
    break;
  default: /* KEEP */
    fprintf(p->out, "keep(%d, ", node->index);
    print_number(p->out, node->number);
    fprintf(p->out, ", %s", dfgnn__place_name(node->place));
    print_shape(p, node->shape);
    fputc(')', p->out);
  }
}

/* ---- operations ---------------------------------------------------------- */

static const char *const functions[DFGNN_NODE_OPS] = {
    [DFGNN_NODE_POW] = "pow",          [DFGNN_NODE_EXP] = "exp",
    [DFGNN_NODE_EXPM1] = "expm1",      [DFGNN_NODE_LOG] = "log",
    [DFGNN_NODE_LOG1P] = "log1p",      [DFGNN_NODE_TANH] = "tanh",
    [DFGNN_NODE_SIGMOID] = "sigmoid",  [DFGNN_NODE_SOFTPLUS] = "softplus",
    [DFGNN_NODE_ERF] = "erf",          [DFGNN_NODE_SIN] = "sin",
    [DFGNN_NODE_COS] = "cos",          [DFGNN_NODE_ABS] = "abs",
    [DFGNN_NODE_SIGN] = "sign",        [DFGNN_NODE_RELU] = "relu",
    [DFGNN_NODE_LEAKY] = "leaky_relu", [DFGNN_NODE_DETACH] = "detach",
    [DFGNN_NODE_ATAN2] = "atan2",      [DFGNN_NODE_MAX] = "max",
    [DFGNN_NODE_WHERE] = "where",      [DFGNN_NODE_FSUM] = "sum",
    [DFGNN_NODE_FMAX] = "amax",        [DFGNN_NODE_CAT] = "cat",
    [DFGNN_NODE_RESHAPE] = "reshape",  [DFGNN_NODE_EXPAND] = "expand",
    [DFGNN_NODE_SWAP] = "transpose",   [DFGNN_NODE_MATMUL] = "matmul",
    [DFGNN_NODE_SUM] = "sum_",         [DFGNN_NODE_MAX_EDGES] = "max_",
    [DFGNN_NODE_LSE] = "logsumexp_",   [DFGNN_NODE_SUM_ALL] = "sum_all"};

/* The endings of "sum_", by the place of the result. */
static const char *const ends[DFGNN_PLACES] = {[DFGNN_PLACE_PARAM] = "",
                                               [DFGNN_PLACE_DST] = "in",
                                               [DFGNN_PLACE_SRC] = "out",
                                               [DFGNN_PLACE_REL] = "rel"};

static int32_t argument(const printer *p, int32_t n, int i) {
  return dfgnn__dag_argument(p->dag, n, i);
}

static void print_call(printer *p, int32_t n) {
  const dfgnn_node *node = &p->dag->nodes[n];
  const char *name = functions[node->op];
  double more = node->number;
  int has_more = node->op == DFGNN_NODE_POW || node->op == DFGNN_NODE_LEAKY;
  if (node->op == DFGNN_NODE_POW && fabs(more) == .5) {
    name = more > 0 ? "sqrt" : "rsqrt";
    has_more = 0;
  }
  fprintf(p->out, "%s%s(", name,
          dfgnn__node_reduces(node->op) ? ends[node->place] : "");
  for (int i = 0; i < node->count; i++) {
    if (i)
      fputs(", ", p->out);
    print(p, argument(p, n, i), LOOSE);
  }
  if (has_more) {
    fputs(", ", p->out);
    print_number(p->out, more);
  }
  if ((node->op == DFGNN_NODE_FSUM || node->op == DFGNN_NODE_FMAX) &&
      node->axis != DFGNN_DAG_AXES - 1)
    fprintf(p->out, ", %d", node->axis - DFGNN_DAG_AXES);
  if (node->op == DFGNN_NODE_SWAP)
    fprintf(p->out, ", %d, %d", node->axis - DFGNN_DAG_AXES,
            node->flags - DFGNN_DAG_AXES);
  if (node->op == DFGNN_NODE_RESHAPE || node->op == DFGNN_NODE_EXPAND) {
    fputs(", ", p->out);
    print_shape(p, node->shape);
  }
  if (node->op == DFGNN_NODE_MATMUL && node->flags)
    fprintf(p->out, ", %d, %d", !!(node->flags & DFGNN_MATMUL_FIRST),
            !!(node->flags & DFGNN_MATMUL_SECOND));
  fputc(')', p->out);
}

static int is_inverse(const printer *p, int32_t n) {
  const dfgnn_node *node = &p->dag->nodes[n];
  return node->op == DFGNN_NODE_POW && node->number == -1 && !p->named[n];
}

/* The factors from `first` on, those that divide last. */
static void print_factors(printer *p, int32_t n, int first) {
  const dfgnn_node *node = &p->dag->nodes[n];
  int printed = 0;
  for (int i = first; i < node->count; i++) {
    if (is_inverse(p, argument(p, n, i)))
      continue;
    fputs(printed++ ? " * " : "", p->out);
    print(p, argument(p, n, i), FACTOR);
  }
  if (!printed)
    fputc('1', p->out);
  for (int i = first; i < node->count; i++) {
    if (!is_inverse(p, argument(p, n, i)))
      continue;
    fputs(" / ", p->out);
    print(p, argument(p, argument(p, n, i), 0), TIGHT);
  }
}

static int is_negative(const printer *p, int32_t n) {
  const dfgnn_node *node = &p->dag->nodes[n];
  if (node->op != DFGNN_NODE_MUL || p->named[n])
    return 0;
  const dfgnn_node *first = &p->dag->nodes[argument(p, n, 0)];
  return first->op == DFGNN_NODE_NUMBER && first->number == -1;
}

static void print_sum(printer *p, int32_t n) {
  int32_t a = argument(p, n, 0), b = argument(p, n, 1);
  if (is_negative(p, a) && !is_negative(p, b)) {
    int32_t swapped = a;
    a = b;
    b = swapped;
  }
  print(p, a, LOOSE);
  fputs(is_negative(p, b) ? " - " : " + ", p->out);
  if (is_negative(p, b))
    print_factors(p, b, 1);
  else
    print(p, b, FACTOR);
}

static void print_compared(printer *p, int32_t n, const char *sign) {
  fputc('(', p->out);
  print(p, argument(p, n, 0), LOOSE);
  fprintf(p->out, " %s ", sign);
  print(p, argument(p, n, 1), LOOSE);
  fputc(')', p->out);
}

static void print_slice(printer *p, int32_t n) {
  const dfgnn_node *node = &p->dag->nodes[n];
  dfgnn_size end = node->at;
  dfgnn__size_add(&end, end, 1, node->shape[2]);
  print(p, argument(p, n, 0), TIGHT);
  fprintf(p->out, "[%s:%s]", dfgnn__size_text(p->dag, node->at),
          dfgnn__size_text(p->dag, end));
}

static void print_value(printer *p, int32_t n, int binding) {
  const dfgnn_node *node = &p->dag->nodes[n];
  int brackets = (node->op == DFGNN_NODE_ADD && binding > LOOSE) ||
                 (node->op == DFGNN_NODE_MUL && binding > FACTOR) ||
                 (is_inverse(p, n) && binding > LOOSE);
  if (brackets)
    fputc('(', p->out);
  if (dfgnn__node_is_leaf(node->op)) {
    print_leaf(p, node);
  } else if (node->op == DFGNN_NODE_ADD) {
    print_sum(p, n);
  } else if (is_negative(p, n)) {
    fputc('-', p->out);
    print_factors(p, n, 1);
  } else if (node->op == DFGNN_NODE_MUL) {
    print_factors(p, n, 0);
  } else if (node->op == DFGNN_NODE_POW && node->number == -1) {
    fputs("1 / ", p->out);
    print(p, argument(p, n, 0), TIGHT);
  } else if (node->op == DFGNN_NODE_LT) {
    print_compared(p, n, "<");
  } else if (node->op == DFGNN_NODE_LE) {
    print_compared(p, n, "<=");
  } else if (node->op == DFGNN_NODE_EQ) {
    print_compared(p, n, "==");
  } else if (node->op == DFGNN_NODE_SLICE) {
    print_slice(p, n);
  } else {
    print_call(p, n);
  }
  if (brackets)
    fputc(')', p->out);
}

static void print(printer *p, int32_t n, int binding) {
  if (p->named[n])
    fprintf(p->out, "%s%d", p->prefix, p->number[n]);
  else
    print_value(p, n, binding);
}

/* ---- the whole ----------------------------------------------------------- */

/* A prefix with which no name of the program becomes that of a value. */
static void choose_prefix(printer *p) {
  const dfgnn_dag *dag = p->dag;
  strcpy(p->prefix, "t");
  for (int clash = 1; clash && strlen(p->prefix) < 32;) {
    size_t size = strlen(p->prefix);
    clash = 0;
    for (int i = 0; i < dag->input_count; i++)
      clash |= !strncmp(dag->inputs[i].name, p->prefix, size) &&
               isdigit((unsigned char)dag->inputs[i].name[size]);
    for (int i = 0; i < dag->name_count; i++)
      clash |= !strncmp(dag->names[i], p->prefix, size) &&
               isdigit((unsigned char)dag->names[i][size]);
    if (clash)
      strcat(p->prefix, "_");
  }
}

static void choose_named(printer *p) {
  const dfgnn_dag *dag = p->dag;
  int32_t next = 1;
  for (int32_t n = 0; n < dag->count; n++)
    for (int i = 0; p->needed[n] && i < dag->nodes[n].count; i++) {
      int32_t a = argument(p, n, i);
      p->named[a] = (uint8_t)(p->named[a] < 2 ? p->named[a] + 1 : 2);
    }
  for (int32_t n = 0; n < dag->count; n++) {
    int depth = 0;
    for (int i = 0; i < dag->nodes[n].count; i++)
      if (!p->named[argument(p, n, i)] && p->depth[argument(p, n, i)] >= depth)
        depth = p->depth[argument(p, n, i)] + 1;
    p->depth[n] = (uint8_t)depth;
    p->named[n] = p->needed[n] && !dfgnn__node_is_leaf(dag->nodes[n].op) &&
                  (p->named[n] > 1 || depth >= DEEP);
    if (p->named[n])
      p->number[n] = next++;
  }
}

static void print_port_shape(printer *p, const dfgnn_port *port) {
  if (!port->rank)
    return;
  fputc('[', p->out);
  for (int i = DFGNN_DAG_AXES - port->rank; i < DFGNN_DAG_AXES; i++)
    fprintf(p->out, "%s%s", i > DFGNN_DAG_AXES - port->rank ? "," : "",
            dfgnn__size_text(p->dag, port->shape[i]));
  fputc(']', p->out);
}

static void print_inputs(printer *p) {
  const dfgnn_dag *dag = p->dag;
  for (int i = 0; i < dag->input_count; i++) {
    const dfgnn_port *port = &dag->inputs[i];
    int again = i && dag->inputs[i - 1].place == port->place;
    fprintf(p->out, "%s%s %s", i ? (again ? "" : "\n") : "",
            again ? "," : dfgnn__place_name(port->place), port->name);
    print_port_shape(p, port);
  }
  if (dag->input_count)
    fputc('\n', p->out);
}

static void print_output(printer *p, const dfgnn_port *port) {
  dfgnn_port usual = dfgnn__dag_port(p->dag, port->name, 0, port->node);
  fprintf(p->out, "%s = ", port->name);
  print(p, port->node, LOOSE);
  if (usual.place == port->place && usual.rank == port->rank &&
      !memcmp(usual.shape, port->shape, sizeof usual.shape))
    return;
  fprintf(p->out, " as %s", dfgnn__place_name(port->place));
  print_port_shape(p, port);
}

static void print_all(printer *p) {
  const dfgnn_dag *dag = p->dag;
  choose_prefix(p);
  choose_named(p);
  print_inputs(p);
  for (int32_t n = 0; n < dag->count; n++) {
    if (!p->named[n])
      continue;
    fprintf(p->out, "%s%d = ", p->prefix, p->number[n]);
    print_value(p, n, LOOSE);
    fputc('\n', p->out);
  }
  fputs("return ", p->out);
  for (int i = 0; i < dag->output_count; i++) {
    fputs(i ? ",\n       " : "", p->out);
    print_output(p, &dag->outputs[i]);
  }
  fputc('\n', p->out);
}

char *dfgnn__dag_text(const dfgnn_dag *dag) {
  char *text = NULL;
  size_t size = 0, count = (size_t)dag->count;
  int32_t roots[DFGNN_DAG_OUTPUTS];
  for (int i = 0; i < dag->output_count; i++)
    roots[i] = dag->outputs[i].node;
  printer p = {.dag = dag,
               .out = open_memstream(&text, &size),
               .needed = dfgnn__dag_needed(dag, roots, dag->output_count, NULL),
               .named = calloc(count, 1),
               .depth = calloc(count, 1),
               .number = calloc(count, sizeof *p.number)};
  int ready = p.out && p.needed && p.named && p.depth && p.number;
  const locale_t before = dfgnn__locale_begin();
  if (ready)
    print_all(&p);
  dfgnn__locale_end(before);
  if (p.out && fclose(p.out))
    ready = 0;
  free(p.needed);
  free(p.named);
  free(p.depth);
  free(p.number);
  if (ready)
    return text;
  free(text);
  dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  return NULL;
}
