/* evaluate.h - the walks of a program, in blocks of edges
 *
 * A block is some rows with all their edges, or a part of one long row.  Values
 * of edges have a slot of the block's memory each, which is taken again when no
 * later step reads it; values of the rows have one of their own.  A long row
 * goes through the stages of its walk one after the other, and each computes
 * the values of its edges again; threads share the longest. */
#ifndef DFGNN_KERNELS_PROGRAM_CPU_EVALUATE_H
#define DFGNN_KERNELS_PROGRAM_CPU_EVALUATE_H

#include "kernels/program/cpu/steps.h"

/* ---- the memory of a walk ------------------------------------------------ */

/* The first gap of `size` elements between the slots that are taken. */
static int64_t find_slot(const place_of_value *values, const int32_t *live,
                         const engine *e, int count, int64_t size) {
  int64_t at = 0;
  for (int moved = 1; moved;) {
    moved = 0;
    for (int i = 0; i < count; i++) {
      int64_t begin = values[live[i]].slot;
      int64_t end = begin + extent(e, live[i])->all;
      if (at < end && begin < at + size) {
        at = end;
        moved = 1;
      }
    }
  }
  return at;
}

static void read_by(const engine *e, const dfgnn_step *step, int32_t i,
                    int32_t *last) {
  if (step->kind != DFGNN_STEP_COMPUTE) {
    last[dfgnn__step_value(e->dag, step)] = i;
    return;
  }
  for (int k = 0; k < e->dag->nodes[step->node].count; k++) {
    int32_t a = argument(e, step->node, k);
    last[a] = i;
    for (int j = 0; e->lowered->fused[a] && j < e->dag->nodes[a].count; j++)
      last[argument(e, a, j)] = i;
  }
}

static int64_t wider(int64_t a, int64_t b) { return a > b ? a : b; }

/* Slots of the values that the walk makes. */
static dfgnn_status place_values(engine *e) {
  const dfgnn_walk *walk = e->walk;
  const size_t nodes = (size_t)e->dag->count;
  int32_t *last = calloc(nodes, sizeof *last);
  int32_t *live = malloc((nodes + 1) * sizeof *live);
  int count = 0;
  if (!last || !live) {
    free(last);
    free(live);
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  }
  for (int i = 0; i < walk->count; i++)
    read_by(e, &walk->steps[i], i, last);
  int64_t loaded = e->edge_elements; /* these stay as long as the block does */
  int64_t peak = 0;
  for (int i = 0; i < walk->count; i++) {
    const dfgnn_step *step = &walk->steps[i];
    int made = step->kind == DFGNN_STEP_COMPUTE;
    int32_t n = step->node;
    int lse = made && is_lse(e->dag->nodes[n].op);
    int64_t size = made                              ? extent(e, n)->all
                   : step->kind == DFGNN_STEP_OUTPUT ? spread_elements(e, step)
                                                     : 0;
    if (lse || !made)
      e->scratch_elements = wider(e->scratch_elements, size);
    if (!made || e->dag->nodes[n].op == DFGNN_NODE_SUM_ALL)
      continue;
    if (step->level == DFGNN_LEVEL_OWN) {
      e->values[n] = (place_of_value){.home = OWN, .slot = e->own_elements};
      e->own_elements += lse ? 2 * size : size;
      continue;
    }
    int left = 0;
    for (int k = 0; k < count; k++)
      if (last[live[k]] >= i)
        live[left++] = live[k];
    count = left;
    e->values[n] = (place_of_value){.home = EDGE};
    e->values[n].slot = find_slot(e->values, live, e, count, size);
    peak = wider(peak, e->values[n].slot + size);
    live[count++] = n;
  }
  e->edge_elements = loaded + peak;
  e->room_elements = e->slots ? loaded : e->edge_elements;
  for (int i = 0; i < walk->count; i++) {
    const dfgnn_step *step = &walk->steps[i];
    place_of_value *v = &e->values[step->node];
    if (step->kind != DFGNN_STEP_COMPUTE || v->home != EDGE)
      continue;
    v->slot += loaded;
    if (e->slots && e->slots[step->node]) {
      v->slot = e->room_elements;
      e->room_elements += extent(e, step->node)->all;
    }
  }
  for (int i = 0; i < walk->count; i++) {
    const int32_t n = dfgnn__step_value(e->dag, &walk->steps[i]);
    place_of_value *v = &e->values[n];
    if (v->home == OWN && !v->rows && !is_lse(e->dag->nodes[n].op))
      v->rows = rows_of(e, &walk->steps[i]);
  }
  free(last);
  free(live);
  return DFGNN_OK;
}

/* Inputs, degrees and what earlier walks have stored. */
static void place_leaves(engine *e) {
  for (int32_t n = 0; n < e->dag->count; n++) {
    const dfgnn_node *node = &e->dag->nodes[n];
    place_of_value *v = &e->values[n];
    int level = dfgnn__level(node->place, own_place(e));
    *v = (place_of_value){.home = NOWHERE, .place = node->place};
    if (!e->lowered->needed[n])
      continue;
    if (node->place <= DFGNN_PLACE_PARAM) {
      v->home = ONCE;
      v->base = e->arrays[n];
    } else if (node->op == DFGNN_NODE_DEGREE) {
      v->home = GLOBAL;
      v->base = e->degrees[node->place];
    } else if (e->arrays[n]) { /* stored, or converted */
      v->home = GLOBAL;
      v->base = e->arrays[n];
    } else if (node->op == DFGNN_NODE_INPUT &&
               e->job->inputs[node->index].dtype == REAL_DTYPE) {
      v->home = GLOBAL;
      v->base = e->job->inputs[node->index].data;
    } else if (node->op == DFGNN_NODE_INPUT || node->op == DFGNN_NODE_KEEP) {
      int64_t *at =
          level == DFGNN_LEVEL_OWN ? &e->own_elements : &e->edge_elements;
      v->home = level == DFGNN_LEVEL_OWN ? OWN : EDGE;
      v->slot = *at;
      *at += extent(e, n)->all;
      e->loads[e->load_count++] = (load){.node = n, .level = level};
    }
  }
}

/* ---- running a walk ------------------------------------------------------ */

/* Rows of the chunks, each with about as many edges and rows. */
static void cut(engine *e) {
  const dfgnn_matrix *m = e->matrix;
  const int64_t rows = m->destinations, total = rows + m->edges;
  for (int c = 0; c <= e->chunks; c++) {
    int64_t goal = total / e->chunks * c + total % e->chunks * c / e->chunks;
    int64_t low = 0, high = rows;
    while (low < high) {
      int64_t middle = (low + high) / 2;
      if (middle + dfgnn__offset_at(m, middle) < goal)
        low = middle + 1;
      else
        high = middle;
    }
    e->bounds[c] = c == e->chunks ? rows : low;
  }
}

static int make_block(block *b, engine *e) {
  const size_t edges = (size_t)e->room;
  *b = (block){.e = e};
  b->own = malloc(((size_t)e->own_elements + 1) * edges * sizeof(REAL));
  b->edge = malloc(((size_t)e->room_elements + 1) * edges * sizeof(REAL));
  b->scratch = malloc(((size_t)e->scratch_elements + 1) * edges * sizeof(REAL));
  b->row = malloc((7 * edges + 1) * sizeof *b->row);
  if (!b->row)
    return 0;
  b->id = b->row + edges;
  b->end[DFGNN_PLACE_DST] = b->id + edges;
  b->end[DFGNN_PLACE_SRC] = b->id + 2 * edges;
  b->end[DFGNN_PLACE_REL] = b->id + 3 * edges;
  b->starts = b->id + 4 * edges;
  return b->own && b->edge && b->scratch;
}

static void free_block(block *b) {
  free(b->own);
  free(b->edge);
  free(b->scratch);
  free(b->row);
}

static void run_chunk(block *b, int chunk) {
  engine *e = b->e;
  int64_t row = e->bounds[chunk], end = e->bounds[chunk + 1];
  int64_t *degrees = b->starts + e->room + 1;
  b->all = e->all ? e->all + chunk * e->all_elements : NULL;
  while (row < end) {
    const int64_t begin = dfgnn__offset_at(e->matrix, row);
    int64_t longest = 0;
    b->first = row;
    b->rows = 0;
    b->starts[0] = begin;
    while (row < end && b->rows < e->room) {
      const int64_t next = dfgnn__offset_at(e->matrix, row + 1);
      longest = wider(longest, next - b->starts[b->rows]);
      if (b->rows && (next - begin > e->room || longest > e->edges))
        break;
      b->starts[++b->rows] = next;
      row++;
    }
    const int64_t edges = b->starts[b->rows] - begin;
    if (!e->walk->edges || b->rows > 1 || edges <= e->edges)
      run_block(b, degrees);
    else if (!is_giant(e, edges))
      run_long_row(b, 1, 1);
  }
}

/* The rows that the chunks have left, one after the other. */
static int run_giants(engine *e) {
  const dfgnn_matrix *m = e->matrix;
  block parts[PARTS];
  int made = 0, enough = 1;
  if (!is_giant(e, m->max_degree))
    return 1;
  for (int64_t row = 0; enough && row < m->destinations; row++) {
    const int64_t begin = dfgnn__offset_at(m, row),
                  end = dfgnn__offset_at(m, row + 1);
    if (!is_giant(e, end - begin))
      continue;
    for (; enough && made < PARTS; made++) {
      enough = make_block(&parts[made], e);
      parts[made].all =
          e->all ? e->all + (e->chunks + made) * e->all_elements : NULL;
    }
    parts->first = row;
    parts->starts[0] = begin;
    parts->starts[1] = end;
    if (enough)
      run_long_row(parts, PARTS, e->job->threads);
  }
  for (int part = 0; part < made; part++)
    free_block(&parts[part]);
  return enough;
}

/* Adds up what the chunks have summed over everything. */
static void end_sums(engine *e) {
  for (int32_t n = 0; e->all && n < e->dag->count; n++) {
    if (e->all_at[n] < 0)
      continue;
    for (int64_t i = 0; i < extent(e, n)->all; i++) {
      double sum = 0;
      for (int c = 0; c < e->chunks + PARTS; c++)
        sum += e->all[c * e->all_elements + e->all_at[n] + i];
      e->arrays[n][i] = (REAL)sum;
    }
  }
}

/* Does a step that no body has, or a body's log-sum-exp, spread values of rows
 * to their edges? */
static int looks_at_rows(const engine *e, const dfgnn_step *step) {
  if (step->kind != DFGNN_STEP_COMPUTE)
    return step->level == DFGNN_LEVEL_EDGE;
  return is_lse(e->dag->nodes[step->node].op) &&
         e->dag->nodes[argument(e, step->node, 0)].place == own_place(e);
}

/* Edges of a block whose values of an edge are so many. */
static int64_t edges_of(const engine *e, int64_t elements) {
  const int64_t bytes =
      (elements + e->scratch_elements + 1) * (int64_t)sizeof(REAL);
  const int64_t edges = e->job->blocks.block_bytes / bytes;
  return edges < 8 ? 8 : edges > BLOCK_EDGES ? BLOCK_EDGES : edges;
}

static dfgnn_status prepare_walk(engine *e, const dfgnn_walk *walk) {
  e->walk = walk;
  e->slots = NULL;
  if (e->job->body)
    e->slots = e->job->body->slots +
               (walk - e->lowered->walks) * (int64_t)e->dag->count;
  e->matrix = dfgnn__program_matrix(e->job, walk->own);
  e->edge_ids = dfgnn__program_edges(e->job, walk->own);
  e->own_elements = e->edge_elements = e->scratch_elements = 0;
  e->load_count = 0;
  place_leaves(e);
  DFGNN_TRY(place_values(e));
  e->all_elements = 0;
  e->looks_at_rows = !e->job->body;
  for (int32_t n = 0; n < e->dag->count; n++)
    e->all_at[n] = -1;
  for (int i = 0; i < walk->count; i++) {
    const dfgnn_step *step = &walk->steps[i];
    e->looks_at_rows |= looks_at_rows(e, step);
    if (step->kind != DFGNN_STEP_COMPUTE ||
        e->dag->nodes[step->node].op != DFGNN_NODE_SUM_ALL)
      continue;
    e->all_at[step->node] = e->all_elements;
    e->all_elements += extent(e, step->node)->all;
  }
  e->edges = edges_of(e, e->edge_elements);
  e->room = wider(e->edges, edges_of(e, e->room_elements));
  cut(e);
  free(e->all);
  e->all = NULL;
  if (e->all_elements &&
      !(e->all = calloc((size_t)((e->chunks + PARTS) * e->all_elements),
                        sizeof *e->all)))
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  return DFGNN_OK;
}

static void run_chunks(void *data, int64_t begin, int64_t end) {
  block *blocks = data;
  for (int64_t chunk = begin; chunk < end; chunk++)
    run_chunk(&blocks[dfgnn__cpu_thread()], (int)chunk);
}

static dfgnn_status run_walk(engine *e, const dfgnn_walk *walk) {
  dfgnn_status status = prepare_walk(e, walk);
  int made = 0, threads = e->job->threads;
  if (status)
    return status;
  if (e->matrix->edges + e->matrix->destinations < FEW)
    threads = 1; /* waking the others takes longer */
  block *blocks = calloc((size_t)threads, sizeof *blocks);
  int enough = blocks != NULL;
  for (; enough && made < threads; made++)
    enough = make_block(&blocks[made], e);
  if (enough)
    dfgnn__cpu_for(threads, e->chunks, 1, run_chunks, blocks);
  for (int t = 0; t < made; t++)
    free_block(&blocks[t]);
  free(blocks);
  if (!enough || !run_giants(e))
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory for a block");
  end_sums(e);
  return DFGNN_OK;
}

/* ---- values of no place -------------------------------------------------- */

/* Computes values of PARAM level that are known before walk w. */
static void run_params(engine *e, int w) {
  for (int32_t n = 0; n < e->dag->count; n++) {
    const dfgnn_node *node = &e->dag->nodes[n];
    if (!e->lowered->needed[n] || node->place > DFGNN_PLACE_PARAM ||
        e->lowered->before[n] != w || node->op == DFGNN_NODE_SUM_ALL)
      continue;
    REAL *out = e->arrays[n];
    operand a[DFGNN_DAG_CAT];
    switch (node->op) {
    case DFGNN_NODE_NUMBER:
      *out = (REAL)node->number;
      break;
    case DFGNN_NODE_SIZE:
      *out = (REAL)dfgnn__size_value(node->at, e->job->binding->names);
      break;
    case DFGNN_NODE_COUNT:
      *out = (REAL)e->job->binding->counts[node->index];
      break;
    case DFGNN_NODE_INPUT:
      load_row(out, e->job->inputs[node->index].data,
               e->job->inputs[node->index].dtype, 0, extent(e, n)->all);
      break;
    case DFGNN_NODE_KEEP:
      fill_keep(e, n, 0, out);
      break;
    default:
      for (int i = 0; i < node->count; i++) {
        int32_t from = argument(e, n, i);
        a[i] = (operand){.base = e->arrays[from]};
        set_strides(&a[i], extent(e, from));
      }
      compute(e, n, 1, out, a);
    }
  }
}

static void write_params(engine *e) {
  for (int i = 0; i < e->dag->output_count; i++) {
    const dfgnn_port *port = &e->dag->outputs[i];
    const dfgnn_program_array *to = &e->job->outputs[i];
    if (port->place != DFGNN_PLACE_PARAM)
      continue;
    dfgnn_extent shape = dfgnn__bind_port(port, e->job->binding);
    operand a = {.base = e->arrays[port->node]};
    set_strides(&a, extent(e, port->node));
    REAL row[64];
    for (int64_t i0 = 0, at = 0; i0 < shape.axis[0]; i0++)
      for (int64_t i1 = 0; i1 < shape.axis[1]; i1++)
        for (int64_t i2 = 0; i2 < shape.axis[2];) {
          int64_t n = 0;
          for (; n < 64 && i2 < shape.axis[2]; n++, i2++)
            row[n] =
                a.base[i0 * a.stride[0] + i1 * a.stride[1] + i2 * a.stride[2]];
          store_row(to->data, to->dtype, at, row, n);
          at += n;
        }
  }
}

static REAL *degrees_of(const dfgnn_matrix *m) {
  REAL *degrees = malloc(((size_t)m->destinations + 1) * sizeof *degrees);
  for (int64_t i = 0; degrees && i < m->destinations; i++)
    degrees[i] = (REAL)(dfgnn__offset_at(m, i + 1) - dfgnn__offset_at(m, i));
  return degrees;
}

/* Is it an input of nodes whose numbers are of another type?  Edges gather
 * each several times. */
static int is_converted(const engine *e, int32_t n) {
  const dfgnn_node *node = &e->dag->nodes[n];
  return node->op == DFGNN_NODE_INPUT && node->place > DFGNN_PLACE_PARAM &&
         node->place != DFGNN_PLACE_EDGE &&
         e->job->inputs[node->index].dtype != REAL_DTYPE;
}

/* An input that becomes an array of numbers. */
typedef struct conversion {
  REAL *to;
  const dfgnn_program_array *from;
} conversion;

static void convert_some(void *data, int64_t begin, int64_t end) {
  const conversion *c = data;
  load_row(c->to + begin, c->from->data, c->from->dtype, begin, end - begin);
}

static void convert_inputs(engine *e) {
  enum { STEP = 4096 };
  for (int32_t n = 0; n < e->dag->count; n++) {
    const dfgnn_node *node = &e->dag->nodes[n];
    if (!e->lowered->needed[n] || !is_converted(e, n))
      continue;
    conversion c = {e->arrays[n], &e->job->inputs[node->index]};
    dfgnn__cpu_for(e->job->threads,
                   e->job->binding->counts[node->place] * extent(e, n)->all,
                   STEP, convert_some, &c);
  }
}

static dfgnn_status allocate(engine *e) {
  const size_t nodes = (size_t)e->dag->count;
  e->arrays = calloc(nodes, sizeof *e->arrays);
  e->values = calloc(nodes, sizeof *e->values);
  e->loads = calloc(nodes, sizeof *e->loads);
  e->all_at = calloc(nodes, sizeof *e->all_at);
  int enough = e->arrays && e->values && e->loads && e->all_at;
  for (int32_t n = 0; enough && n < e->dag->count; n++) {
    const dfgnn_node *node = &e->dag->nodes[n];
    if (!e->lowered->needed[n])
      continue;
    if (node->op == DFGNN_NODE_DEGREE) {
      REAL **degrees = &e->degrees[node->place];
      *degrees = degrees_of(dfgnn__program_matrix(e->job, node->place));
      enough = *degrees != NULL;
    } else if (node->place <= DFGNN_PLACE_PARAM || e->lowered->stored[n] ||
               is_converted(e, n)) {
      int64_t items = node->place > DFGNN_PLACE_PARAM
                          ? e->job->binding->counts[node->place]
                          : 1;
      e->arrays[n] = malloc((size_t)(items * extent(e, n)->all + 1) *
                            sizeof *e->arrays[n]);
      enough = e->arrays[n] != NULL;
    }
  }
  return enough ? DFGNN_OK : dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
}

static dfgnn_status evaluate(const dfgnn_program_job *job) {
  engine e = {.job = job,
              .dag = job->lowered->dag,
              .lowered = job->lowered,
              .chunks = job->blocks.chunks};
  dfgnn_status status = allocate(&e);
  if (!status)
    convert_inputs(&e);
  for (int w = 0; !status && w < job->lowered->walk_count; w++) {
    run_params(&e, w);
    status = run_walk(&e, &job->lowered->walks[w]);
  }
  if (!status) {
    run_params(&e, job->lowered->walk_count);
    write_params(&e);
  }
  for (int32_t n = 0; e.arrays && n < e.dag->count; n++)
    free(e.arrays[n]);
  free(e.arrays);
  free(e.values);
  free(e.loads);
  free(e.all_at);
  free(e.all);
  for (int place = 0; place < DFGNN_PLACES; place++)
    free(e.degrees[place]);
  return status;
}

#endif
