/* shapes.c - the kernels of sums, reductions and messages, and their shapes */
#include "kernels/sums/cuda/sums.h"

enum {
  MOST_FIELDS = 64
}; /* of an edge, that blocks of the gradient kernels
    * hold in shared memory */

/* ---- operators ----------------------------------------------------------- */

int dfgnn__sums_found(const dfgnn_problem *problem) {
  switch (problem->op) {
  case DFGNN_OP_REDUCE_MIN:
    return REDUCE_MIN;
  case DFGNN_OP_REDUCE_MAX:
    return REDUCE_MAX;
  case DFGNN_OP_REDUCE_PNA:
    return REDUCE_ALL;
  case DFGNN_OP_REDUCE_VAR:
  case DFGNN_OP_REDUCE_STD:
    return REDUCE_MOMENTS;
  default:
    return 0;
  }
}

int dfgnn__sums_walks_rows(const dfgnn_problem *problem) {
  return dfgnn__sums_backward(problem) &&
         (dfgnn__sums_gated(problem) ||
          dfgnn__sums_found(problem) == REDUCE_MOMENTS);
}

/* ---- lists --------------------------------------------------------------- */

/* Lanes, vectors, edges in flight of shapes with vectors.  Those of eight
 * numbers lack the registers for the shapes behind the first LIGHT_... of a
 * list. */
/* clang-format off */
static const gather_choice sum_shapes[] = {
    {32, 1, 4}, {32, 1, 8}, {32, 2, 2}, {16, 1, 4}, {16, 1, 8}, {16, 2, 1},
    {16, 2, 2}, {8, 1, 4}, {8, 2, 2}, {4, 1, 4}, {4, 2, 2},
    {32, 2, 4}, {16, 2, 4}, {8, 2, 4}, {8, 4, 1}, {8, 4, 2}, {4, 2, 4}, {0}};
static const gather_choice extreme_shapes[] = {
    {32, 1, 4}, {32, 1, 8}, {32, 2, 4}, {16, 1, 4}, {16, 2, 1}, {16, 2, 2},
    {16, 2, 4}, {8, 1, 4}, {8, 2, 4}, {8, 4, 1}, {8, 4, 2}, {4, 1, 4},
    {4, 2, 4}, {0}};
/* Extremes with their edges take more registers: this list sets the edges in
 * flight of a shape, whatever the variant asks for. */
static const gather_choice edge_shapes[] = {
    {32, 1, 4}, {32, 2, 2}, {16, 1, 4}, {16, 2, 2}, {8, 1, 4}, {8, 2, 2},
    {8, 4, 1}, {4, 1, 4}, {4, 2, 2}, {0}};
static const gather_choice moment_shapes[] = {
    {32, 1, 4}, {16, 1, 4}, {16, 2, 2}, {8, 1, 4}, {8, 2, 2}, {4, 1, 4}, {0}};
static const gather_choice gradient_shapes[] = {
    {32, 1, 2}, {32, 1, 4}, {16, 1, 2}, {16, 1, 4}, {8, 1, 4}, {4, 1, 4}, {0}};
static const gather_choice message_shapes[] = {
    {32, 1, 2}, {32, 1, 4}, {32, 2, 2}, {16, 1, 2}, {16, 1, 4}, {16, 2, 2},
    {8, 1, 2}, {8, 1, 4}, {8, 2, 2}, {4, 1, 4}, {4, 2, 2}, {0}};
/* clang-format on */
enum { LIGHT_SUMS = 11 };

int dfgnn__sums_listed(sums_group group, int narrow, int lanes, int vectors,
                       int unroll) {
  static const gather_choice *const lists[][4] = {
      [SUMS_OF_SPMM] = {sum_shapes},
      [SUMS_OF_REDUCE] = {extreme_shapes, moment_shapes, gradient_shapes},
      [SUMS_OF_MESSAGE] = {message_shapes}};
  for (int i = 0; lists[group][i]; i++)
    if (dfgnn__gather_listed(lists[group][i], lanes, vectors, unroll))
      return 1;
  if (!narrow)
    return 0;
  /* reduce-mean is a sum */
  return (group == SUMS_OF_REDUCE &&
          dfgnn__gather_listed(sum_shapes, lanes, vectors, unroll)) ||
         dfgnn__gather_listed(dfgnn__gather_narrow_shapes, lanes, vectors,
                              unroll);
}

/* ---- edges in flight; 0: a kernel has no such shape ---------------------- */

static int listed(const gather_choice *list, const gather_shape *shape) {
  if (shape->vector == 1)
    list = dfgnn__gather_narrow_shapes;
  return dfgnn__gather_listed(list, shape->lanes, shape->vectors, shape->unroll)
             ? shape->unroll
             : 0;
}

static int sum_unroll(const gather_choice *list, int light,
                      const gather_shape *shape) {
  for (int i = 0; shape->vector > 1 && list[i].lanes; i++)
    if (list[i].lanes == shape->lanes && list[i].vectors == shape->vectors &&
        list[i].unroll == shape->unroll)
      return i < light || shape->vector < 8 ? shape->unroll : 0;
  return shape->vector == 1 ? listed(list, shape) : 0;
}

static int found_unroll(int found, const gather_shape *shape) {
  if (found & REDUCE_MOMENTS || shape->vector == 1)
    return listed(moment_shapes, shape);
  if (!(found & REDUCE_ARG))
    return listed(extreme_shapes, shape);
  for (const gather_choice *c = edge_shapes; c->lanes; c++)
    if (c->lanes == shape->lanes && c->vectors == shape->vectors)
      return c->unroll;
  return 0;
}

/* REDUCE_BOTH reads seven rows an edge, hence fewer edges in flight. */
static int gradient_unroll(int gathered, const gather_shape *shape) {
  const int any_strides = shape->vector == 1;
  const int unroll = any_strides ? 4 : shape->unroll;
  if (any_strides ? shape->lanes != 4 && shape->lanes != 32
                  : !listed(gradient_shapes, shape))
    return 0;
  if (gathered != REDUCE_BOTH)
    return unroll;
  return shape->vector > 4 ? 1 : unroll / 2;
}

/* PNA takes so many registers an edge and row that its lanes have one vector
 * and fewer edges in flight. */
static int message_unroll(const sums_kernel *k, const gather_shape *shape) {
  const int unroll = listed(message_shapes, shape);
  if (shape->vector == 1 ||
      !(k->found & REDUCE_MOMENTS || k->what & MESSAGE_MOMENTS))
    return unroll;
  return shape->vectors > 1 ? 0 : shape->vector > 4 ? unroll > 0 : unroll / 2;
}

/* ---- programs ------------------------------------------------------------ */

#define FILE_OF(name) "kernels/sums/cuda/" name ".cuh"

int dfgnn__sums_program(dfgnn_program *program, dfgnn_dtype dtype,
                        const void *kernel, const gather_shape *shape,
                        int width) {
  const sums_kernel *k = kernel;
  const int type = DFGNN_TYPE(dtype), vector = shape->vector,
            lanes = shape->lanes, vectors = shape->vectors;
  int unroll;
  switch (k->kind) {
  case SUMS_ADD:
    unroll = sum_unroll(sum_shapes, LIGHT_SUMS, shape);
    *program = (dfgnn_program)DFGNN_PROGRAM(FILE_OF("sum"), "dfgnn::spmm_rows",
                                            type, vector, lanes, vectors,
                                            unroll, k->factor, width);
    break;
  case SUMS_BLOCK:
    unroll = sum_unroll(sum_shapes, LIGHT_SUMS, shape);
    *program = (dfgnn_program)DFGNN_PROGRAM(
        FILE_OF("block"), "dfgnn::spmm_blocks", type, vector, lanes, vectors,
        unroll, k->factor, width);
    break;
  case SUMS_FIND:
    unroll = found_unroll(k->found, shape);
    *program = (dfgnn_program)DFGNN_PROGRAM(
        FILE_OF("extremes"), "dfgnn::reduce_rows", type, vector, lanes, vectors,
        unroll, k->found, width);
    break;
  case SUMS_GRADE:
    unroll = gradient_unroll(k->gathered, shape);
    *program = (dfgnn_program)DFGNN_PROGRAM(
        FILE_OF("gradient"), "dfgnn::reduce_gradients", type, vector, lanes,
        unroll, k->gathered, width);
    break;
  case SUMS_ADD_MESSAGES:
    unroll = message_unroll(k, shape);
    *program = (dfgnn_program)DFGNN_PROGRAM(
        FILE_OF("message"), "dfgnn::message_rows", type, vector, lanes, vectors,
        unroll, k->what, k->fields, width);
    break;
  default:
    unroll = message_unroll(k, shape);
    *program = (dfgnn_program)DFGNN_PROGRAM(
        FILE_OF("message_extremes"), "dfgnn::reduce_messages", type, vector,
        lanes, vectors, unroll, k->found, k->what, k->fields, width);
  }
  return unroll > 0;
}

/* ---- the kernel of a pass ------------------------------------------------ */

static int per_head(const dfgnn_problem *problem) {
  return problem->op == DFGNN_OP_SPMM_WEIGHTED && problem->heads > 1;
}

/* Features of an edge that one load can read. */
static int together(const dfgnn_problem *problem, const void *attr) {
  const int64_t size = (int64_t)dfgnn_dtype_size(problem->dtype);
  int count = dfgnn__wide_vector(problem->dtype);
  while (count > 1 && (problem->edge_dim % count != 0 ||
                       (uintptr_t)attr % (uintptr_t)(count * size) != 0))
    count /= 2;
  return count;
}

int dfgnn__sums_message_bits(const dfgnn_problem *problem) {
  const int found = dfgnn__sums_found(problem);
  const int grade = !found || !dfgnn__sums_backward(problem) ? 0
                    : found == REDUCE_ALL                    ? MESSAGE_MOMENTS
                                                             : MESSAGE_PICK;
  return (dfgnn__sums_gated(problem) ? MESSAGE_GATED : 0) |
         (dfgnn__message_parts(problem->message) > 1 ? MESSAGE_VALUE : 0) |
         grade;
}

static sums_kernel message_kernel(const dfgnn_problem *problem, int pass,
                                  const void *attr) {
  const int found = pass == SUMS_FORWARD && dfgnn__sums_found(problem)
                        ? dfgnn__sums_found(problem) | REDUCE_ARG
                        : 0;
  return (sums_kernel){.kind = found ? SUMS_FIND_MESSAGES : SUMS_ADD_MESSAGES,
                       .found = found,
                       .what = pass | dfgnn__sums_message_bits(problem) |
                               (problem->edge_dim > 0
                                    ? MESSAGE_TOGETHER * together(problem, attr)
                                    : 0),
                       .fields = (int)problem->edge_dim};
}

sums_kernel dfgnn__sums_kernel(const dfgnn_problem *problem, int pass,
                               sums_walk walk, const gather_params *p) {
  const int found = dfgnn__sums_found(problem);
  const int args = p && (p->arg_min || p->arg_max) ? REDUCE_ARG : 0;
  const int factors = !p || p->weights || p->gathered_scale;
  if (!dfgnn__sums_copies(problem))
    return message_kernel(problem, pass, p ? p->attr : NULL);
  if (!found)
    return (sums_kernel){.kind =
                             walk == SUMS_OVER_BLOCKS ? SUMS_BLOCK : SUMS_ADD,
                         .factor = !factors            ? FACTOR_NONE
                                   : per_head(problem) ? FACTOR_HEADS
                                                       : FACTOR_EDGE};
  if (pass == SUMS_COLUMNS)
    return (sums_kernel){.kind = SUMS_GRADE,
                         .gathered = found == REDUCE_ALL       ? REDUCE_BOTH
                                     : found == REDUCE_MOMENTS ? REDUCE_SPREAD
                                                               : REDUCE_PICK};
  return (sums_kernel){.kind = SUMS_FIND, .found = found | args};
}

/* ---- refusals ------------------------------------------------------------ */

/* The features of which a vector has to be a part: all of a node, or a head
 * where each has weights of its own.  Edge features that the caller projected
 * have heads first, so where the layout has heads last no vector of theirs fits
 * one of nodes. */
static int64_t run_of_features(const dfgnn_problem *problem) {
  if (problem->layout == DFGNN_LAYOUT_NDH &&
      (per_head(problem) || problem->edge_dim == DFGNN_EDGE_PROJECTED))
    return 1;
  return per_head(problem) ? problem->dim : problem->heads * problem->dim;
}

const char *dfgnn__sums_refusal(gather_shape *shape,
                                const dfgnn_setting *setting, sums_walk walk,
                                int lanes, int vectors, int unroll) {
  const dfgnn_problem *problem = setting->problem;
  const dfgnn_matrix *m = setting->matrix;
  const sums_kernel kernel = dfgnn__sums_kernel(
      problem, dfgnn__sums_backward(problem) ? SUMS_COLUMNS : SUMS_FORWARD,
      walk, NULL);
  if (problem->edge_dim > MOST_FIELDS)
    return "more than 64 features an edge: pass them projected";
  if (m->max_degree > INT32_MAX - 65536 ||
      m->destinations > INT32_MAX - 65536 || m->sources > INT32_MAX - 65536)
    return "a row or the number of rows exceeds 2^31";
  return dfgnn__gather_refusal(shape, setting, dfgnn__sums_program, &kernel,
                               run_of_features(problem), lanes, vectors,
                               unroll);
}
