#include "kernels/program/dag.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static dfgnn_status out_of_memory(void) {
  return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory for an edge program");
}

void dfgnn__dag_fail(dfgnn_dag *dag, dfgnn_status status, const char *format,
                     ...) {
  char text[512];
  va_list args;
  if (dag->status)
    return;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  dag->status = dfgnn__fail(status, "%s", text);
}

/* ---- hashes -------------------------------------------------------------- */

static uint64_t mix(uint64_t hash, uint64_t x) {
  uint64_t z = hash * 0x9e3779b97f4a7c15u + x + 0x632be59bd9b4e019u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

static uint64_t mix_size(uint64_t hash, dfgnn_size size) {
  uint64_t times;
  memcpy(&times, size.times, sizeof times);
  return mix(mix(hash, (uint64_t)size.constant), times);
}

static uint64_t hash_of(const dfgnn_dag *dag, const dfgnn_node *node,
                        const int32_t *arguments) {
  uint64_t number, hash;
  memcpy(&number, &node->number, sizeof number);
  hash = mix(node->op, (uint64_t)node->place << 16 | (uint64_t)node->axis << 8 |
                           node->flags);
  hash = mix(mix(hash, (uint64_t)node->index), number);
  for (int i = 0; i < DFGNN_DAG_AXES; i++)
    hash = mix_size(hash, node->shape[i]);
  hash = mix_size(hash, node->at);
  for (int32_t i = 0; i < node->count; i++)
    hash = mix(hash, dag->nodes[arguments[i]].hash);
  return hash;
}

static int same(const dfgnn_dag *dag, const dfgnn_node *a, const dfgnn_node *b,
                const int32_t *arguments) {
  int alike = a->hash == b->hash && a->op == b->op && a->place == b->place &&
              a->axis == b->axis && a->flags == b->flags &&
              a->count == b->count && a->index == b->index &&
              memcmp(&a->number, &b->number, sizeof a->number) == 0 &&
              dfgnn__size_same(a->at, b->at) &&
              dfgnn__shape_same(a->shape, b->shape);
  for (int32_t i = 0; alike && i < a->count; i++)
    alike = dag->arguments[a->first + i] == arguments[i];
  return alike;
}

uint64_t dfgnn__dag_hash(const dfgnn_dag *dag) {
  uint64_t hash = mix(1, (uint64_t)dag->input_count);
  for (int i = 0; i < dag->input_count; i++)
    hash = mix(hash, dag->nodes[dag->inputs[i].node].hash);
  for (int i = 0; i < dag->output_count; i++) {
    const dfgnn_port *port = &dag->outputs[i];
    hash = mix(mix(hash, dag->nodes[port->node].hash), (uint64_t)port->place);
    for (int axis = 0; axis < DFGNN_DAG_AXES; axis++)
      hash = mix_size(hash, port->shape[axis]);
  }
  return hash;
}

/* ---- finite values --------------------------------------------------------
 */

#define LARGEST 3e38 /* of a number in f32 */
#define LEAST 1e-15  /* whose square has an inverse in f32 */

/* Is a value finite, and so far from 0 that its powers are? */
static int is_positive(const dfgnn_dag *dag, int32_t n) {
  const dfgnn_node *node = &dag->nodes[n];
  switch (node->op) {
  case DFGNN_NODE_SIZE:
    return 1;
  case DFGNN_NODE_NUMBER:
    return node->number >= LEAST && node->number <= 1 / LEAST;
  case DFGNN_NODE_MAX:
    return node->finite && (is_positive(dag, dfgnn__dag_argument(dag, n, 0)) ||
                            is_positive(dag, dfgnn__dag_argument(dag, n, 1)));
  default:
    return 0;
  }
}

static int is_finite(const dfgnn_dag *dag, const dfgnn_node *node,
                     const int32_t *arguments) {
  int all = 1;
  for (int32_t i = 0; i < node->count; i++)
    all &= dag->nodes[arguments[i]].finite;
  switch (node->op) {
  case DFGNN_NODE_NUMBER:
    return node->number >= -LARGEST && node->number <= LARGEST;
  case DFGNN_NODE_SIZE:
  case DFGNN_NODE_COUNT:
  case DFGNN_NODE_DEGREE:
  case DFGNN_NODE_KEEP:
  case DFGNN_NODE_LT:
  case DFGNN_NODE_LE:
  case DFGNN_NODE_EQ:
    return 1;
  case DFGNN_NODE_POW:
    return node->number >= -2 && node->number <= 2 &&
           is_positive(dag, arguments[0]);
  case DFGNN_NODE_WHERE: /* the condition alone may be anything */
    return dag->nodes[arguments[1]].finite && dag->nodes[arguments[2]].finite;
  case DFGNN_NODE_MAX:
  case DFGNN_NODE_DETACH:
  case DFGNN_NODE_EXPAND:
  case DFGNN_NODE_RESHAPE:
  case DFGNN_NODE_SWAP:
  case DFGNN_NODE_SLICE:
    return all;
  default:
    return 0;
  }
}

/* ---- the table of nodes -------------------------------------------------- */

static int grow_table(dfgnn_dag *dag) {
  int32_t size = dag->table_size ? 2 * dag->table_size : 256;
  int32_t *table = malloc((size_t)size * sizeof *table);
  if (!table)
    return 0;
  for (int32_t i = 0; i < size; i++)
    table[i] = -1;
  for (int32_t n = 0; n < dag->count; n++) {
    uint64_t at = dag->nodes[n].hash & (uint64_t)(size - 1);
    while (table[at] >= 0)
      at = (at + 1) & (uint64_t)(size - 1);
    table[at] = n;
  }
  free(dag->table);
  dag->table = table;
  dag->table_size = size;
  return 1;
}

static int reserve(void **array, int32_t *capacity, int32_t need,
                   size_t element) {
  if (need <= *capacity)
    return 1;
  int32_t size = *capacity ? 2 * *capacity : 64;
  while (size < need)
    size *= 2;
  void *grown = realloc(*array, (size_t)size * element);
  if (!grown)
    return 0;
  *array = grown;
  *capacity = size;
  return 1;
}

static int32_t add_node(dfgnn_dag *dag, const dfgnn_node *node,
                        const int32_t *arguments) {
  if (dag->count >= DFGNN_DAG_NODES) {
    dfgnn__dag_fail(dag, DFGNN_ERROR_UNSUPPORTED,
                    "the program has more than %d values; make part of it "
                    "outside, or take fewer derivatives at once",
                    DFGNN_DAG_NODES);
    return 0;
  }
  if (dag->argument_count + node->count > DFGNN_DAG_ARGUMENTS) {
    dfgnn__dag_fail(dag, DFGNN_ERROR_UNSUPPORTED,
                    "the values of the program have more than %d factors and "
                    "terms together; make part of it outside",
                    DFGNN_DAG_ARGUMENTS);
    return 0;
  }
  if ((2 * dag->count >= dag->table_size && !grow_table(dag)) ||
      !reserve((void **)&dag->nodes, &dag->capacity, dag->count + 1,
               sizeof *dag->nodes) ||
      !reserve((void **)&dag->arguments, &dag->argument_capacity,
               dag->argument_count + node->count, sizeof *dag->arguments)) {
    dag->status = out_of_memory();
    return 0;
  }
  uint64_t at = node->hash & (uint64_t)(dag->table_size - 1);
  while (dag->table[at] >= 0)
    at = (at + 1) & (uint64_t)(dag->table_size - 1);
  dag->table[at] = dag->count;
  dag->nodes[dag->count] = *node;
  dag->nodes[dag->count].finite = is_finite(dag, node, arguments);
  dag->nodes[dag->count].first = dag->argument_count;
  if (node->count)
    memcpy(dag->arguments + dag->argument_count, arguments,
           (size_t)node->count * sizeof *arguments);
  dag->argument_count += node->count;
  return dag->count++;
}

int32_t dfgnn__dag_intern(dfgnn_dag *dag, const dfgnn_node *node,
                          const int32_t *arguments) {
  dfgnn_node found = *node;
  if (dag->status)
    return 0;
  found.hash = hash_of(dag, &found, arguments);
  if (dag->table_size) {
    uint64_t mask = (uint64_t)(dag->table_size - 1), at = found.hash & mask;
    for (; dag->table[at] >= 0; at = (at + 1) & mask)
      if (same(dag, &dag->nodes[dag->table[at]], &found, arguments))
        return dag->table[at];
  }
  return add_node(dag, &found, arguments);
}

/* ---- programs ------------------------------------------------------------ */

dfgnn_dag *dfgnn__dag_new(void) {
  dfgnn_dag *dag = calloc(1, sizeof *dag);
  if (!dag) {
    out_of_memory();
    return NULL;
  }
  dag->inputs = calloc(DFGNN_DAG_INPUTS, sizeof *dag->inputs);
  dag->outputs = calloc(DFGNN_DAG_OUTPUTS, sizeof *dag->outputs);
  const dfgnn_node zero = {
      .op = DFGNN_NODE_NUMBER,
      .shape = {dfgnn__size(1), dfgnn__size(1), dfgnn__size(1)}};
  if (dag->inputs && dag->outputs) {
    dfgnn__dag_intern(dag, &zero, NULL);
    if (!dag->status)
      return dag;
  }
  out_of_memory();
  dfgnn__dag_free(dag);
  return NULL;
}

void dfgnn__dag_free(dfgnn_dag *dag) {
  if (!dag)
    return;
  free(dag->nodes);
  free(dag->arguments);
  free(dag->table);
  free(dag->inputs);
  free(dag->outputs);
  free(dag);
}

int dfgnn__dag_find(const dfgnn_port *ports, int count, const char *name) {
  for (int i = 0; i < count; i++)
    if (!strcmp(ports[i].name, name))
      return i;
  return -1;
}

int32_t dfgnn__dag_input(dfgnn_dag *dag, const dfgnn_port *port) {
  if (dag->input_count == DFGNN_DAG_INPUTS) {
    dfgnn__dag_fail(dag, DFGNN_ERROR_UNSUPPORTED,
                    "%s is one input too many: a program has at most %d",
                    port->name, DFGNN_DAG_INPUTS);
    return 0;
  }
  if (dfgnn__dag_find(dag->inputs, dag->input_count, port->name) >= 0) {
    dfgnn__dag_fail(dag, DFGNN_ERROR_INVALID, "%s is declared twice",
                    port->name);
    return 0;
  }
  dfgnn_node node = {
      .op = DFGNN_NODE_INPUT, .place = port->place, .index = dag->input_count};
  memcpy(node.shape, port->shape, sizeof node.shape);
  int32_t made = dfgnn__dag_intern(dag, &node, NULL);
  if (dag->status)
    return 0;
  dag->inputs[dag->input_count] = *port;
  dag->inputs[dag->input_count++].node = made;
  return made;
}

void dfgnn__dag_output(dfgnn_dag *dag, const dfgnn_port *port) {
  if (dag->status)
    return;
  if (dag->output_count == DFGNN_DAG_OUTPUTS)
    dfgnn__dag_fail(dag, DFGNN_ERROR_UNSUPPORTED,
                    "%s is one output too many: a program has at most %d",
                    port->name, DFGNN_DAG_OUTPUTS);
  else if (dfgnn__dag_find(dag->outputs, dag->output_count, port->name) >= 0)
    dfgnn__dag_fail(dag, DFGNN_ERROR_INVALID, "%s is returned twice",
                    port->name);
  else
    dag->outputs[dag->output_count++] = *port;
}

dfgnn_port dfgnn__dag_port(const dfgnn_dag *dag, const char *name, int rank,
                           int32_t node) {
  const dfgnn_node *value = &dag->nodes[node];
  dfgnn_port port = {.node = node, .rank = rank};
  snprintf(port.name, sizeof port.name, "%s", name);
  port.place = value->place ? value->place : DFGNN_PLACE_PARAM;
  memcpy(port.shape, value->shape, sizeof port.shape);
  for (int i = 0; i < DFGNN_DAG_AXES; i++)
    if (!dfgnn__size_is(port.shape[i], 1) && port.rank < DFGNN_DAG_AXES - i)
      port.rank = DFGNN_DAG_AXES - i;
  return port;
}

int dfgnn__dag_name(dfgnn_dag *dag, const char *name) {
  for (int i = 0; i < dag->name_count; i++)
    if (!strcmp(dag->names[i], name))
      return i;
  if (dag->name_count == DFGNN_SIZE_NAMES) {
    dfgnn__dag_fail(dag, DFGNN_ERROR_UNSUPPORTED,
                    "%s is one name of a size too many: a program has at most "
                    "%d; write the others as numbers",
                    name, DFGNN_SIZE_NAMES);
    return 0;
  }
  snprintf(dag->names[dag->name_count], DFGNN_DAG_NAME, "%s", name);
  return dag->name_count++;
}

uint8_t *dfgnn__dag_needed(const dfgnn_dag *dag, const int32_t *roots,
                           int count, const uint8_t *stops) {
  uint8_t *needed = calloc((size_t)dag->count, 1);
  if (!needed) {
    out_of_memory();
    return NULL;
  }
  for (int i = 0; i < count; i++)
    needed[roots[i]] = 1;
  for (int32_t n = dag->count - 1; n >= 0; n--)
    if (needed[n] && !(stops && stops[n]))
      for (int i = 0; i < dag->nodes[n].count; i++)
        needed[dfgnn__dag_argument(dag, n, i)] = 1;
  return needed;
}

int32_t *dfgnn__dag_unnumbered(const dfgnn_dag *dag) {
  int32_t *number = malloc((size_t)dag->count * sizeof *number);
  for (int32_t n = 0; number && n < dag->count; n++)
    number[n] = -1;
  return number;
}

void dfgnn__dag_remake(dfgnn_dag *to, const dfgnn_dag *from, int32_t *number,
                       dfgnn_remake make, const void *data) {
  int32_t *arguments =
      malloc(((size_t)from->argument_count + 1) * sizeof *arguments);
  if (!arguments && !to->status)
    to->status = out_of_memory();
  for (int32_t n = 0; n < from->count && !to->status; n++) {
    if (number[n] >= 0)
      continue;
    for (int i = 0; i < from->nodes[n].count; i++)
      arguments[i] = number[dfgnn__dag_argument(from, n, i)];
    number[n] = make(to, from, n, arguments, data);
  }
  free(arguments);
}

/* Makes a node as it is, if it is needed. */
static int32_t copy(dfgnn_dag *to, const dfgnn_dag *from, int32_t n,
                    int32_t *arguments, const void *data) {
  const uint8_t *needed = data;
  return needed[n] ? dfgnn__dag_intern(to, &from->nodes[n], arguments) : 0;
}

static void copy_ports(dfgnn_port *to, int *count, const dfgnn_port *from,
                       int from_count, const int32_t *number) {
  *count = from_count;
  for (int i = 0; i < from_count; i++) {
    to[i] = from[i];
    to[i].node = number[from[i].node];
  }
}

void dfgnn__dag_take_ports(dfgnn_dag *to, const dfgnn_dag *from,
                           const int32_t *number) {
  memcpy(to->names, from->names, sizeof to->names);
  to->name_count = from->name_count;
  to->dropouts = from->dropouts;
  to->as_written = from->as_written;
  copy_ports(to->inputs, &to->input_count, from->inputs, from->input_count,
             number);
  copy_ports(to->outputs, &to->output_count, from->outputs, from->output_count,
             number);
}

dfgnn_dag *dfgnn__dag_compact(const dfgnn_dag *dag) {
  int count = dag->input_count + dag->output_count;
  int32_t roots[DFGNN_DAG_INPUTS + DFGNN_DAG_OUTPUTS];
  for (int i = 0; i < count; i++)
    roots[i] = i < dag->input_count ? dag->inputs[i].node
                                    : dag->outputs[i - dag->input_count].node;
  dfgnn_dag *made = dfgnn__dag_new();
  uint8_t *needed = dfgnn__dag_needed(dag, roots, count, NULL);
  int32_t *number = dfgnn__dag_unnumbered(dag);
  if (made && needed && number) {
    dfgnn__dag_remake(made, dag, number, copy, needed);
    dfgnn__dag_take_ports(made, dag, number);
  }
  if (!made || !needed || !number || made->status) {
    dfgnn__dag_free(made);
    made = NULL;
    out_of_memory();
  }
  free(needed);
  free(number);
  return made;
}

/* ---- words of messages --------------------------------------------------- */

const char *dfgnn__place_name(int place) {
  static const char *const names[] = {"const", "param", "dst",
                                      "src",   "edge",  "rel"};
  return place >= 0 && place < DFGNN_PLACES ? names[place] : "?";
}

static char *next_buffer(void) {
  static _Thread_local char buffers[4][256];
  static _Thread_local unsigned turn;
  return buffers[turn++ % 4];
}

/* Writes a size of at most 256 characters, and returns how many. */
static int write_size(char *text, const dfgnn_dag *dag, dfgnn_size size) {
  int used = 0;
  for (int i = 0; i < DFGNN_SIZE_NAMES && used < 200; i++) {
    int times = size.times[i];
    if (!times)
      continue;
    used += snprintf(text + used, 256 - (size_t)used, "%s",
                     times < 0 ? "-" : (used ? "+" : ""));
    if (times != 1 && times != -1)
      used += snprintf(text + used, 256 - (size_t)used, "%d*", abs(times));
    used += snprintf(text + used, 256 - (size_t)used, "%.40s", dag->names[i]);
  }
  if (!used || (size.constant && used < 240))
    used += snprintf(text + used, 256 - (size_t)used, used ? "%+d" : "%d",
                     size.constant);
  return used;
}

const char *dfgnn__size_text(const dfgnn_dag *dag, dfgnn_size size) {
  char *text = next_buffer();
  write_size(text, dag, size);
  return text;
}

const char *dfgnn__shape_text(const dfgnn_dag *dag, const dfgnn_size *shape) {
  char *text = next_buffer();
  int first = 0;
  while (first < DFGNN_DAG_AXES && dfgnn__size_is(shape[first], 1))
    first++;
  if (first == DFGNN_DAG_AXES)
    return "a number";
  int used = snprintf(text, 256, "[");
  for (int i = first; i < DFGNN_DAG_AXES; i++) {
    char size[256];
    write_size(size, dag, shape[i]);
    used += snprintf(text + used, 256 - (size_t)used, "%s%.70s",
                     i > first ? "," : "", size);
  }
  snprintf(text + used, 256 - (size_t)used, "]");
  return text;
}
