/* feature_program.c - what a model sees of an edge program or an MLP: what it
 * does, not its name, so that what is learnt of one serves another */
#include <math.h>

#include "kernels/program/make.h"
#include "lib/edge_mlp.h"
#include "lib/edge_program.h"
#include "lib/feature.h"

/* ---- MLPs ---------------------------------------------------------------- */

static const dfgnn_mlp_form *mlp_of(const dfgnn_setting *s) {
  return s->problem->mlp ? &s->problem->mlp->form : NULL;
}

/* Numbers of a row of those tensors of an MLP that are read, or written. */
static double mlp_numbers(const dfgnn_mlp_form *form, int reads, int edges) {
  double sum = 0;
  for (const dfgnn_mlp_tensor *t = dfgnn__mlp_tensors; t->name; t++)
    if (dfgnn__mlp_tensor_used(t, form) && t->rows != DFGNN_MLP_ROWS_ONE &&
        dfgnn__mlp_tensor_read(t, form) == reads &&
        (t->rows == DFGNN_MLP_ROWS_EDGE) == edges)
      sum += (double)dfgnn__mlp_tensor_width(t, &form->mlp);
  return sum;
}

static double mlp_products(const dfgnn_mlp_form *form) {
  double sum = 0;
  for (int l = 0; l < form->mlp.layers; l++)
    sum += (double)(dfgnn__mlp_in_width(&form->mlp, l) * form->mlp.width[l]);
  return sum;
}

static double mlp_functions(const dfgnn_mlp_form *form) {
  const int last = form->mlp.layers - 1;
  double sum = form->mlp.last ? (double)form->mlp.width[last] : 0;
  for (int l = 0; l < last; l++)
    sum += (double)form->mlp.width[l];
  return sum;
}

/* ---- programs ------------------------------------------------------------ */

/* Sums what the values of a program have, of the operations first to last, at a
 * place, or at sources, destinations and relations alike. */
static double numbers(const dfgnn_setting *s, int first, int last, int edges) {
  const dfgnn_program_job *job = dfgnn__edge_program_job(s->problem);
  double sum = 0;
  if (!job)
    return NAN;
  for (int32_t n = 0; n < job->lowered->dag->count; n++) {
    const dfgnn_node *node = &job->lowered->dag->nodes[n];
    const int of_edges = node->place == DFGNN_PLACE_EDGE;
    const int of_nodes = dfgnn__place_rank(node->place) == 2;
    if (job->lowered->needed[n] && node->op >= first && node->op <= last &&
        (edges ? of_edges : of_nodes))
      sum += (double)job->extents[n].all;
  }
  return sum;
}

double dfgnn__program_edge_numbers(const dfgnn_setting *s) {
  const dfgnn_mlp_form *mlp = mlp_of(s);
  return mlp ? mlp_numbers(mlp, 1, 1)
             : numbers(s, DFGNN_NODE_INPUT, DFGNN_NODE_INPUT, 1);
}
double dfgnn__program_node_numbers(const dfgnn_setting *s) {
  const dfgnn_mlp_form *mlp = mlp_of(s);
  return mlp ? mlp_numbers(mlp, 1, 0)
             : numbers(s, DFGNN_NODE_INPUT, DFGNN_NODE_INPUT, 0);
}
double dfgnn__program_operations(const dfgnn_setting *s) {
  const dfgnn_mlp_form *mlp = mlp_of(s);
  return mlp ? mlp_products(mlp)
             : numbers(s, DFGNN_NODE_ADD, DFGNN_NODE_MATMUL, 1);
}
double dfgnn__program_functions(const dfgnn_setting *s) {
  const dfgnn_mlp_form *mlp = mlp_of(s);
  return mlp ? mlp_functions(mlp)
             : numbers(s, DFGNN_NODE_POW, DFGNN_NODE_COS, 1);
}
double dfgnn__program_sums(const dfgnn_setting *s) {
  const dfgnn_mlp_form *mlp = mlp_of(s);
  return mlp ? mlp_numbers(mlp, 0, 0)
             : numbers(s, DFGNN_NODE_SUM, DFGNN_NODE_SUM_ALL, 0);
}
double dfgnn__program_softmaxes(const dfgnn_setting *s) {
  return numbers(s, DFGNN_NODE_LSE, DFGNN_NODE_LSE, 0);
}

double dfgnn__program_walks(const dfgnn_setting *s) {
  const dfgnn_program_job *job = dfgnn__edge_program_job(s->problem);
  return job ? job->lowered->walk_count : NAN;
}

/* The numbers of edges that are written: gradients of edge inputs. */
double dfgnn__program_written(const dfgnn_setting *s) {
  const dfgnn_program_job *job = dfgnn__edge_program_job(s->problem);
  const dfgnn_mlp_form *mlp = mlp_of(s);
  double sum = 0;
  if (mlp)
    return mlp_numbers(mlp, 0, 1);
  if (!job)
    return NAN;
  for (int i = 0; i < job->lowered->dag->output_count; i++) {
    const dfgnn_port *port = &job->lowered->dag->outputs[i];
    if (port->place == DFGNN_PLACE_EDGE)
      sum += (double)dfgnn__bind_port(port, job->binding).all;
  }
  return sum;
}
