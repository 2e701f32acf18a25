#include "lib/halves.h"

#include <string.h>

#include "kernels/common/cpu_halves.h"
#include "kernels/common/cpu_walk.h"
#include "lib/operator.h"

static int widens(const dfgnn_family *family, const dfgnn_problem *problem) {
  return family->widened &&
         (problem->dtype == DFGNN_F16 || problem->dtype == DFGNN_BF16);
}

/* ---- the copy of a tensor ------------------------------------------------ */

/* A tensor of `rows` rows.  wide is dense in the problem's layout. */
typedef struct copying {
  dfgnn_dtype dtype;
  uint16_t *narrow;
  float *wide;
  int64_t rows, heads, dim; /* of a row: the numbers of a node or edge */
  dfgnn_strides from, to;   /* of narrow, of wide; in numbers */
  int adjacent;             /* are a row's numbers adjacent, in order? */
  int narrows;              /* from wide to narrow */
} copying;

static void copy_numbers(const copying *c, uint16_t *narrow, float *wide,
                         int64_t count) {
  if (c->narrows)
    dfgnn__narrow_row(c->dtype, narrow, wide, count);
  else
    dfgnn__widen_row(c->dtype, wide, narrow, count);
}

static void copy_rows(void *data, int64_t begin, int64_t end) {
  const copying *c = data;
  const int64_t row = c->heads * c->dim;
  if (c->adjacent && c->from.node == row) {
    copy_numbers(c, c->narrow + begin * row, c->wide + begin * row,
                 (end - begin) * row);
    return;
  }
  for (int64_t i = begin; i < end; i++) {
    uint16_t *narrow = c->narrow + i * c->from.node;
    float *wide = c->wide + i * row;
    if (c->adjacent) {
      copy_numbers(c, narrow, wide, row);
      continue;
    }
    for (int64_t h = 0; h < c->heads; h++)
      for (int64_t d = 0; d < c->dim; d++)
        copy_numbers(c, narrow + h * c->from.head + d * c->from.feature,
                     wide + h * c->to.head + d * c->to.feature, 1);
  }
}

static void copy(const dfgnn_setting *setting, copying *c, int narrows) {
  enum { NUMBERS = 1 << 14 }; /* of a task */
  const int64_t row = c->heads * c->dim;
  c->narrows = narrows;
  dfgnn__cpu_for(dfgnn__cpu_threads(setting), c->rows,
                 row < NUMBERS ? NUMBERS / row : 1, copy_rows, c);
}

static int same_strides(const dfgnn_strides *a, const dfgnn_strides *b,
                        int64_t heads, int64_t dim) {
  return (heads == 1 || a->head == b->head) &&
         (dim == 1 || a->feature == b->feature);
}

/* The strides of a dense tensor in the problem's layout. */
static dfgnn_strides dense_strides(const dfgnn_problem *p) {
  const int ndh = p->layout == DFGNN_LAYOUT_NDH;
  return (dfgnn_strides){p->heads * p->dim, ndh ? 1 : p->dim,
                         ndh ? p->heads : 1};
}

static copying copying_of(const dfgnn_tensor *t, const dfgnn_setting *setting,
                          const dfgnn_args *args, char *wide) {
  const dfgnn_problem *p = setting->problem;
  const dfgnn_matrix *m = setting->matrix;
  const int64_t width = dfgnn__tensor_width(t, p);
  copying c = {.dtype = p->dtype,
               .narrow = *dfgnn__tensor_slot(t, (dfgnn_args *)args),
               .wide = (float *)wide,
               .rows = t->shape & DFGNN_DIM_N   ? m->destinations
                       : t->shape & DFGNN_DIM_M ? m->sources
                       : t->shape & DFGNN_DIM_E ? m->edges
                                                : 1,
               .heads = 1,
               .dim = width,
               .from = {width, width, 1},
               .to = {width, width, 1}};
  if (t->strides) {
    c.heads = p->heads;
    c.dim = p->dim;
    c.from = *(const dfgnn_strides *)((const char *)args + t->strides);
    c.to = dense_strides(p);
  }
  c.adjacent = same_strides(&c.from, &c.to, c.heads, c.dim);
  return c;
}

static size_t wide_bytes(const copying *c) {
  return dfgnn__cpu_aligned((size_t)(c->rows * c->heads * c->dim) *
                            sizeof(float));
}

/* ---- a problem ----------------------------------------------------------- */

static int is_copied(const dfgnn_tensor *t, const dfgnn_problem *problem) {
  return t->element == DFGNN_ELEMENT_STORAGE && dfgnn__tensor_used(t, problem);
}

size_t dfgnn__family_workspace(const dfgnn_family *family,
                               const dfgnn_setting *setting) {
  const dfgnn_args none = {0};
  dfgnn_problem problem = *setting->problem;
  dfgnn_setting wide = *setting;
  size_t bytes = 0;
  if (!widens(family, &problem))
    return family->workspace ? family->workspace(setting) : 0;
  const dfgnn_operator *op = dfgnn__operator(problem.op, problem.pass);
  for (const dfgnn_tensor *t = op->tensors; t->name; t++)
    if (is_copied(t, &problem)) {
      const copying c = copying_of(t, setting, &none, NULL);
      bytes += wide_bytes(&c);
    }
  problem.dtype = DFGNN_F32;
  wide.problem = &problem;
  return bytes + (family->workspace ? family->workspace(&wide) : 0);
}

/* The number of a copy of the same rows, or count: one array may be two inputs,
 * which families see by the address. */
static int find_same(const copying *copies, int count, const copying *c) {
  int i = 0;
  while (i < count &&
         !(copies[i].narrow == c->narrow && copies[i].rows >= c->rows &&
           copies[i].heads == c->heads && copies[i].dim == c->dim &&
           !memcmp(&copies[i].from, &c->from, sizeof c->from)))
    i++;
  return i;
}

static dfgnn_status launch_widened(const dfgnn_family *family,
                                   const dfgnn_launch *given) {
  const dfgnn_setting *setting = &given->setting;
  const dfgnn_operator *op =
      dfgnn__operator(setting->problem->op, setting->problem->pass);
  copying inputs[DFGNN_MAX_TENSORS], results[DFGNN_MAX_TENSORS];
  int input_count = 0, result_count = 0;
  dfgnn_problem problem = *setting->problem;
  dfgnn_args args = *given->args;
  dfgnn_launch launch = *given;
  char *memory = given->workspace;
  for (const dfgnn_tensor *t = op->tensors; t->name; t++) {
    void **slot = dfgnn__tensor_slot(t, &args);
    if (!is_copied(t, &problem))
      continue;
    copying c = copying_of(t, setting, given->args, memory);
    memory += wide_bytes(&c);
    if (t->strides)
      *(dfgnn_strides *)((char *)&args + t->strides) = c.to;
    if (*slot && dfgnn__role_reads(t->role)) {
      const int i = find_same(inputs, input_count, &c);
      if (i == input_count) {
        copy(setting, &c, 0);
        inputs[input_count++] = c;
      }
      *slot = inputs[i].wide;
    } else if (*slot) {
      if (dfgnn__tensor_added_to(t, &problem))
        copy(setting, &c, 0);
      results[result_count++] = c;
      *slot = c.wide;
    }
  }
  problem.dtype = DFGNN_F32;
  launch.setting.problem = &problem;
  launch.args = &args;
  launch.workspace = memory;
  const dfgnn_status status = family->launch(&launch);
  for (int i = 0; i < result_count && !status; i++)
    copy(setting, &results[i], 1);
  return status;
}

dfgnn_status dfgnn__family_launch(const dfgnn_family *family,
                                  const dfgnn_launch *launch) {
  return widens(family, launch->setting.problem)
             ? launch_widened(family, launch)
             : family->launch(launch);
}
