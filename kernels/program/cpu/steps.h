/* steps.h - the steps of a walk on a block, or on a long row stage by stage */
#ifndef DFGNN_KERNELS_PROGRAM_CPU_STEPS_H
#define DFGNN_KERNELS_PROGRAM_CPU_STEPS_H

#include "kernels/program/cpu/block.h"

/* ---- reductions ---------------------------------------------------------- */

/* The block as compiled bodies see it. */
static body_block view_of(const block *b, void *const *at) {
  return (body_block){.at = at,
                      .row = b->row,
                      .index = {[DFGNN_PLACE_DST] = b->end[DFGNN_PLACE_DST],
                                [DFGNN_PLACE_SRC] = b->end[DFGNN_PLACE_SRC],
                                [DFGNN_PLACE_REL] = b->end[DFGNN_PLACE_REL],
                                [DFGNN_PLACE_EDGE] = b->id},
                      .starts = b->starts,
                      .rows = b->rows,
                      .begin = b->begin,
                      .count = b->count,
                      .edges = b->e->room,
                      .scratch = b->scratch};
}

static int is_lse(int op) { return op == DFGNN_NODE_LSE; }
static int is_max(int op) { return op == DFGNN_NODE_MAX_EDGES; }

static void begin_reduction(block *b, int32_t n) {
  const int op = b->e->dag->nodes[n].op;
  const int64_t size = extent(b->e, n)->all * b->rows;
  REAL *out = own_value(b, n);
  REAL start = is_max(op) || is_lse(op) ? (REAL)-INFINITY : 0;
  loop_copy(size, out, &start, 0, 0);
  if (is_lse(op)) /* its sums stand behind its maxima */
    memset(out + extent(b->e, n)->all * b->e->room, 0,
           (size_t)size * sizeof *out);
}

static void add_products(block *b, int32_t n, int32_t product) {
  const dfgnn_extent *to = extent(b->e, n);
  REAL *out = own_value(b, n);
  operand a[2];
  operands(b, product, DFGNN_LEVEL_EDGE, a);
  nest shape = nest_of(1, to, a, 2);
  for (int64_t edge = 0; edge < b->count; edge++) {
    REAL *to_row = out + b->row[edge] * to->all;
    const REAL *x = item_of(&a[0], edge), *y = item_of(&a[1], edge);
    for (int64_t i0 = 0; i0 < shape.outer; i0++)
      for (int64_t i1 = 0; i1 < shape.middle; i1++, to_row += shape.inner)
        loop_mul_add(
            shape.inner, to_row,
            x + i0 * shape.outer_stride[0] + i1 * shape.middle_stride[0],
            shape.inner_stride[0],
            y + i0 * shape.outer_stride[1] + i1 * shape.middle_stride[1],
            shape.inner_stride[1]);
  }
}

static void reduce_rows(block *b, int32_t n, int max) {
  const int64_t size = extent(b->e, n)->all;
  REAL *out = own_value(b, n);
  operand a = operand_of(b, argument(b->e, n, 0), DFGNN_LEVEL_EDGE);
  for (int64_t edge = 0; edge < b->count; edge++) {
    REAL *to = out + b->row[edge] * size;
    const REAL *x = item_of(&a, edge);
    if (max)
      max_row(size, to, x);
    else
      add_row(size, to, x);
  }
}

/* Adds edges to running maxima and sums of exp(x - maximum). */
static void reduce_lse(block *b, int32_t n) {
  const int64_t size = extent(b->e, n)->all;
  REAL *max = own_value(b, n);
  operand a = operand_of(b, argument(b->e, n, 0), DFGNN_LEVEL_EDGE);
  const body_block view = view_of(b, NULL);
  reduce_scores(&view, size, a.base, a.index, a.item, max,
                max + size * b->e->room, b->scratch);
}

static void end_reduction(block *b, int32_t n, const int64_t *degrees) {
  const int op = b->e->dag->nodes[n].op;
  const int64_t size = extent(b->e, n)->all;
  REAL *out = own_value(b, n);
  const REAL *sum = out + size * b->e->room;
  LOOP_VECTOR
  for (int64_t i = 0; i < (is_lse(op) ? b->rows * size : 0); i++)
    out[i] = (isinf(out[i]) ? 0 : out[i]) + real_log(sum[i]);
  for (int64_t row = 0; is_max(op) && row < b->rows; row++)
    for (int64_t i = row * size; !degrees[row] && i < (row + 1) * size; i++)
      out[i] = 0;
}

/* Adds what edges, or rows, have to the sums over everything. */
static void add_all(block *b, int32_t n, int level) {
  const int64_t size = extent(b->e, n)->all;
  double *to = b->all + b->e->all_at[n];
  operand a = operand_of(b, argument(b->e, n, 0), level);
  const int64_t items = level == DFGNN_LEVEL_OWN ? b->rows : b->count;
  for (int64_t item = 0; item < items; item++)
    add_total(size, to, item_of(&a, item));
}

static void reduce(block *b, int32_t n) {
  const engine *e = b->e;
  const int op = e->dag->nodes[n].op;
  int32_t a = argument(e, n, 0);
  if (e->lowered->fused[a])
    add_products(b, n, a);
  else if (is_lse(op))
    reduce_lse(b, n);
  else
    reduce_rows(b, n, is_max(op));
}

/* ---- steps --------------------------------------------------------------- */

/* Writes a value of the block's rows, or edges, spread to a shape. */
static void write_value(block *b, int32_t n, int level,
                        const dfgnn_extent *shape,
                        const dfgnn_program_array *to) {
  const engine *e = b->e;
  const int64_t items = level == DFGNN_LEVEL_OWN ? b->rows : b->count;
  operand a = operand_of(b, n, level);
  const REAL *rows = a.base;
  if (!whole(&a, shape)) {
    run_unary(loop_copy, 0, items, shape, b->scratch, &a);
    rows = b->scratch;
  }
  if (level == DFGNN_LEVEL_OWN || !e->edge_ids) {
    int64_t at = level == DFGNN_LEVEL_OWN ? b->first : b->begin;
    store_row(to->data, to->dtype, at * shape->all, rows, items * shape->all);
    return;
  }
  for (int64_t edge = 0; edge < b->count; edge++)
    store_row(to->data, to->dtype, b->id[edge] * shape->all,
              rows + edge * shape->all, shape->all);
}

/* Elements of an output's row that are put together before they are written:
 * none where they lie as they are written. */
static int64_t spread_elements(const engine *e, const dfgnn_step *step) {
  const dfgnn_port *port = &e->dag->outputs[step->node];
  const dfgnn_extent to = dfgnn__bind_port(port, e->job->binding);
  const int lies = step->level == DFGNN_LEVEL_OWN &&
                   e->dag->nodes[port->node].place == own_place(e) &&
                   extent(e, port->node)->all == to.all;
  return lies ? 0 : to.all;
}

/* Where a step writes values of rows, if they lie there as blocks have them. */
static REAL *rows_of(const engine *e, const dfgnn_step *step) {
  if (step->kind == DFGNN_STEP_COMPUTE || step->level != DFGNN_LEVEL_OWN)
    return NULL;
  if (step->kind == DFGNN_STEP_KEEP)
    return e->arrays[step->node];
  return e->job->outputs[step->node].dtype == REAL_DTYPE &&
                 !spread_elements(e, step)
             ? e->job->outputs[step->node].data
             : NULL;
}

/* Writes an output, or what later walks read, unless it was made there. */
static void write_step(block *b, const dfgnn_step *step) {
  const engine *e = b->e;
  if (!b->is_part && rows_of(e, step) &&
      rows_of(e, step) == e->values[dfgnn__step_value(e->dag, step)].rows)
    return;
  if (step->kind == DFGNN_STEP_KEEP) {
    const dfgnn_program_array to = {e->arrays[step->node], REAL_DTYPE};
    write_value(b, step->node, step->level, extent(e, step->node), &to);
    return;
  }
  const dfgnn_port *port = &e->dag->outputs[step->node];
  const dfgnn_extent shape = dfgnn__bind_port(port, e->job->binding);
  write_value(b, port->node, step->level, &shape, &e->job->outputs[step->node]);
}

static void make_loads(block *b, int level) {
  const engine *e = b->e;
  for (int i = 0; i < e->load_count; i++) {
    const load *l = &e->loads[i];
    if (l->level != level)
      continue;
    const dfgnn_node *node = &e->dag->nodes[l->node];
    const int64_t size = extent(e, l->node)->all;
    const int64_t items = level == DFGNN_LEVEL_OWN ? b->rows : b->count;
    REAL *out = level == DFGNN_LEVEL_OWN
                    ? own_value(b, l->node)
                    : b->edge + e->values[l->node].slot * e->room;
    for (int64_t k = 0; k < items; k++, out += size) {
      int64_t item = level == DFGNN_LEVEL_OWN          ? b->first + k
                     : node->place == DFGNN_PLACE_EDGE ? b->id[k]
                                                       : b->end[node->place][k];
      if (node->op == DFGNN_NODE_KEEP)
        fill_keep(e, l->node, item, out);
      else
        load_row(out, e->job->inputs[node->index].data,
                 e->job->inputs[node->index].dtype, item * size, size);
    }
  }
}

/* Does a step reduce the values of edges? */
static int reduces_edges(const engine *e, const dfgnn_step *step) {
  int op = e->dag->nodes[step->node].op;
  return step->kind == DFGNN_STEP_COMPUTE && dfgnn__node_reduces(op) &&
         (op != DFGNN_NODE_SUM_ALL || step->level == DFGNN_LEVEL_EDGE);
}

static void own_step(block *b, const dfgnn_step *step) {
  const engine *e = b->e;
  if (step->kind != DFGNN_STEP_COMPUTE) {
    write_step(b, step);
  } else if (e->dag->nodes[step->node].op == DFGNN_NODE_SUM_ALL) {
    add_all(b, step->node, DFGNN_LEVEL_OWN);
  } else {
    compute_step(b, step->node, DFGNN_LEVEL_OWN, own_value(b, step->node));
  }
}

static void edge_step(block *b, const dfgnn_step *step) {
  if (step->kind != DFGNN_STEP_COMPUTE)
    write_step(b, step);
  else if (b->e->dag->nodes[step->node].op == DFGNN_NODE_SUM_ALL)
    add_all(b, step->node, DFGNN_LEVEL_EDGE);
  else if (reduces_edges(b->e, step))
    reduce(b, step->node);
  else
    compute_step(b, step->node, DFGNN_LEVEL_EDGE,
                 b->edge + b->e->values[step->node].slot * b->e->room);
}

static int is_own(const engine *e, const dfgnn_step *step) {
  return step->level == DFGNN_LEVEL_OWN && !reduces_edges(e, step);
}

/* The far nodes of the block's edges.  What the matrix has as indices are
 * sources of rows, and destinations of the others. */
static void find_ends(block *b) {
  const engine *e = b->e;
  const int own = own_place(e);
  int64_t *indices =
      b->end[own == DFGNN_PLACE_DST ? DFGNN_PLACE_SRC : DFGNN_PLACE_DST];
  const int32_t *of_matrix = e->matrix->indices + b->begin;
  LOOP_VECTOR
  for (int64_t k = 0; k < b->count; k++)
    indices[k] = of_matrix[k];
  if (own == DFGNN_PLACE_REL)
    for (int64_t k = 0; k < b->count; k++)
      b->end[DFGNN_PLACE_SRC][k] = e->job->rows.indices[b->id[k]];
  else if (e->job->relation_of)
    for (int64_t k = 0; k < b->count; k++)
      b->end[DFGNN_PLACE_REL][k] = e->job->relation_of[b->id[k]];
}

static void find_ids(block *b) {
  const void *ids = b->e->edge_ids;
  const int64_t begin = b->begin;
  int64_t *restrict id = b->id;
  if (ids && b->e->matrix->offsets64) {
    memcpy(id, (const int64_t *)ids + begin, (size_t)b->count * sizeof *id);
    return;
  }
  LOOP_VECTOR
  for (int64_t k = 0; k < b->count; k++)
    id[k] = ids ? ((const int32_t *)ids)[begin + k] : begin + k;
}

/* Takes `count` edges from `begin` on; row r of the block has those from
 * starts[r] to starts[r + 1]. */
static void take_edges(block *b, int64_t begin, int64_t count) {
  const engine *e = b->e;
  b->begin = begin;
  b->count = count;
  if (!e->walk->edges)
    return;
  const body_block view = view_of(b, NULL);
  for (int64_t row = 0; e->looks_at_rows && row < b->rows; row++)
    for (int64_t k = body_begin(&view, row); k < body_end(&view, row); k++)
      b->row[k] = row;
  find_ids(b);
  find_ends(b);
  make_loads(b, DFGNN_LEVEL_EDGE);
}

static void begin_row_values(block *b) {
  make_loads(b, DFGNN_LEVEL_OWN);
  for (int i = 0; i < b->e->walk->count; i++) {
    const dfgnn_step *step = &b->e->walk->steps[i];
    if (reduces_edges(b->e, step) &&
        b->e->dag->nodes[step->node].op != DFGNN_NODE_SUM_ALL)
      begin_reduction(b, step->node);
  }
}

/* ---- compiled bodies ----------------------------------------------------- */

static void run_function(block *b, int number) {
  const engine *e = b->e;
  const dfgnn_body_function *f = &e->job->body->functions[number];
  void *at[BODY_NODES];
  for (int i = 0; i < f->count; i++) {
    const int32_t n = e->job->body->nodes[f->first + i];
    at[i] = e->all_at[n] >= 0 ? (void *)(b->all + e->all_at[n])
                              : (void *)base_of(b, n);
  }
  const body_block view = view_of(b, at);
  e->job->functions[number](&view);
}

/* Runs the steps of a stage that look at edges, except outputs. */
static void run_functions(block *b, int stage, int long_row) {
  const engine *e = b->e;
  const int walk = (int)(e->walk - e->lowered->walks);
  for (const int32_t *call =
           dfgnn__body_calls(e->job->body, walk, stage, long_row);
       *call >= 0; call++)
    run_function(b, *call);
}

static void end_step(block *b, const dfgnn_step *step, const int64_t *degrees) {
  if (reduces_edges(b->e, step) &&
      b->e->dag->nodes[step->node].op != DFGNN_NODE_SUM_ALL)
    end_reduction(b, step->node, degrees);
}

/* A stage of whole rows: values of rows, then those of edges, then what is
 * written. */
static void run_compiled(block *b, int stage, const int64_t *degrees) {
  const dfgnn_walk *walk = b->e->walk;
  for (int i = 0; i < walk->count; i++)
    if (walk->steps[i].stage == stage && is_own(b->e, &walk->steps[i]) &&
        walk->steps[i].kind == DFGNN_STEP_COMPUTE)
      own_step(b, &walk->steps[i]);
  run_functions(b, stage, 0);
  for (int i = 0; i < walk->count; i++) {
    const dfgnn_step *step = &walk->steps[i];
    if (step->stage != stage)
      continue;
    if (step->kind == DFGNN_STEP_COMPUTE)
      end_step(b, step, degrees);
    else if (is_own(b->e, step))
      own_step(b, step);
    else
      edge_step(b, step);
  }
}

static void run_block(block *b, int64_t *degrees) {
  const engine *e = b->e;
  begin_row_values(b);
  take_edges(b, b->starts[0], b->starts[b->rows] - b->starts[0]);
  for (int64_t row = 0; row < b->rows; row++)
    degrees[row] = b->starts[row + 1] - b->starts[row];
  for (int stage = 0; e->job->body && stage < e->walk->stages; stage++)
    run_compiled(b, stage, degrees);
  for (int i = 0; !e->job->body && i < e->walk->count; i++) {
    const dfgnn_step *step = &e->walk->steps[i];
    if (is_own(e, step)) {
      own_step(b, step);
      continue;
    }
    edge_step(b, step);
    end_step(b, step, degrees);
  }
}

/* ---- long rows ----------------------------------------------------------- */

/* Does a step add up own values of rows, which one part of a row does? */
static int sums_rows(const engine *e, const dfgnn_step *step) {
  return is_own(e, step) && step->kind == DFGNN_STEP_COMPUTE &&
         e->dag->nodes[step->node].op == DFGNN_NODE_SUM_ALL;
}

/* Own values of a stage, before its edges are looked at. */
static void own_values(block *b, int stage, int first_part) {
  for (int i = 0; i < b->e->walk->count; i++) {
    const dfgnn_step *step = &b->e->walk->steps[i];
    if (step->stage == stage && is_own(b->e, step) &&
        step->kind == DFGNN_STEP_COMPUTE &&
        (first_part || !sums_rows(b->e, step)))
      own_step(b, step);
  }
}

/* Adds the edges of a part of a row to the reductions of a stage. */
static void add_edges(block *b, int stage, int64_t begin, int64_t end) {
  const engine *e = b->e;
  const dfgnn_walk *walk = e->walk;
  const uint64_t bit = 1ull << stage;
  int some = 0;
  for (int i = 0; i < walk->count; i++)
    some |= !is_own(e, &walk->steps[i]) && (walk->steps[i].stages & bit) != 0;
  for (int64_t at = begin; some && at < end; at += e->edges) {
    take_edges(b, at, end - at < e->edges ? end - at : e->edges);
    if (e->job->body)
      run_functions(b, stage, 1);
    for (int i = 0; i < walk->count; i++)
      if (!is_own(e, &walk->steps[i]) && (walk->steps[i].stages & bit) &&
          !(e->job->body && walk->steps[i].kind == DFGNN_STEP_COMPUTE))
        edge_step(b, &walk->steps[i]);
  }
}

/* Joins what the parts of a row have of a reduction, in their order, and tells
 * all of them. */
static void join_parts(block *parts, int count, int32_t n) {
  const engine *e = parts->e;
  const int op = e->dag->nodes[n].op;
  const int64_t size = extent(e, n)->all, sums = size * e->room;
  REAL *to = own_value(&parts[0], n);
  for (int part = 1; part < count; part++) {
    const REAL *from = own_value(&parts[part], n);
    for (int64_t i = 0; i < size; i++) {
      if (!is_lse(op)) {
        to[i] = is_max(op) ? real_max(from[i], to[i]) : to[i] + from[i];
        continue;
      }
      /* an infinite maximum stands for 0, as in reduce_lse */
      REAL most = real_max(from[i], to[i]), shift = isinf(most) ? 0 : most;
      to[sums + i] = to[sums + i] * rescale(to[i], shift) +
                     from[sums + i] * rescale(from[i], shift);
      to[i] = most;
    }
  }
  for (int part = 1; part < count; part++) {
    REAL *other = own_value(&parts[part], n);
    memcpy(other, to, (size_t)size * sizeof *to);
    if (is_lse(op))
      memcpy(other + sums, to + sums, (size_t)size * sizeof *to);
  }
}

/* A stage of a row whose edges are shared out to parts. */
typedef struct long_row {
  block *parts;
  int count, stage;
  int64_t begin, degree;
} long_row;

static void run_parts(void *data, int64_t begin, int64_t end) {
  const long_row *r = data;
  for (int64_t part = begin; part < end; part++) {
    own_values(&r->parts[part], r->stage, part == 0);
    add_edges(&r->parts[part], r->stage, r->begin + r->degree * part / r->count,
              r->begin + r->degree * (part + 1) / r->count);
  }
}

/* The row of parts[0], stage by stage, its edges in `count` parts side by
 * side. */
static void run_long_row(block *parts, int count, int threads) {
  const engine *e = parts->e;
  const dfgnn_walk *walk = e->walk;
  const int64_t begin = parts->starts[0], end = parts->starts[1];
  const int64_t degree = end - begin;
  for (int part = 0; part < count; part++) {
    parts[part].first = parts->first;
    parts[part].is_part = count > 1;
    parts[part].rows = 1;
    parts[part].starts[0] = begin;
    parts[part].starts[1] = end;
    begin_row_values(&parts[part]);
  }
  for (int stage = 0; stage < walk->stages; stage++) {
    long_row row = {parts, count, stage, begin, degree};
    dfgnn__cpu_for(threads, count, 1, run_parts, &row);
    for (int i = 0; i < walk->count; i++) {
      const dfgnn_step *step = &walk->steps[i];
      if (step->stage != stage)
        continue;
      if (reduces_edges(e, step) &&
          e->dag->nodes[step->node].op != DFGNN_NODE_SUM_ALL) {
        join_parts(parts, count, step->node);
        for (int part = 0; part < count; part++)
          end_reduction(&parts[part], step->node, &degree);
      } else if (is_own(e, step) && step->kind != DFGNN_STEP_COMPUTE) {
        own_step(parts, step);
      }
    }
  }
}

/* Rows that many threads share. */
static int is_giant(const engine *e, int64_t edges) {
  return e->walk->edges && edges > FEW && edges > GIANT_BLOCKS * e->edges;
}

#endif
