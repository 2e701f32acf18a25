#include "tuner/mlp.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/error.h"
#include "lib/edge_mlp.h"
#include "lib/signature.h"
#include "tuner/guarded.h"
#include "tuner/tensors.h"

enum {
  MOST_PRODUCTS = 1 << 26, /* of a check's evaluation in double */
  LEAST_EDGES = 256        /* that are checked */
};

/* Tensors for a graph, as in dfgnn__mlp_tensors. */
typedef struct instance {
  dfgnn_graph *graph;
  dfgnn_guarded tensor[DFGNN_MLP_TENSORS];
  dfgnn_edge_mlp_args args;
} instance;

struct dfgnn_mlp_harness {
  dfgnn_context *ctx;
  dfgnn_problem problem;
  const dfgnn_mlp_form *form;
  dfgnn_edge_mlp mlp;
  uint64_t seed;
  instance whole, part;  /* part.graph NULL: the whole graph is checked */
  dfgnn_part cut;        /* the graph of `part` */
  dfgnn_host_graph host; /* of the graph that is checked */
  int prepared;          /* the part was made, with the status: */
  dfgnn_status outcome;
};

/* ---- tensors ------------------------------------------------------------- */

static int64_t rows_of(const dfgnn_graph *graph, dfgnn_mlp_rows rows) {
  const dfgnn_matrix *m = &graph->matrix;
  return rows == DFGNN_MLP_ROWS_DST    ? m->destinations
         : rows == DFGNN_MLP_ROWS_SRC  ? m->sources
         : rows == DFGNN_MLP_ROWS_EDGE ? m->edges
                                       : 1;
}

/* Weights are as layers start them, so that values stay near 1. */
static double scale_of(const dfgnn_mlp_harness *h, const dfgnn_mlp_tensor *t) {
  return t->columns == DFGNN_MLP_COLUMNS_WEIGHT
             ? sqrt(3.0 / (double)dfgnn__mlp_in_width(&h->mlp, t->layer))
             : 1;
}

static dfgnn_status make_tensor(dfgnn_mlp_harness *h, instance *x, int i) {
  const dfgnn_mlp_tensor *t = &dfgnn__mlp_tensors[i];
  dfgnn_guarded *g = &x->tensor[i];
  const size_t bytes =
      dfgnn__mlp_tensor_bytes(t, h->form, rows_of(x->graph, t->rows));
  dfgnn_status status = dfgnn__guarded_make(g, h->ctx, t->name, bytes);
  if (status)
    return status;
  *dfgnn__mlp_tensor_slot(t, &x->args) = dfgnn__guarded_data(g);
  if (!dfgnn__mlp_tensor_read(t, h->form) || t->use == DFGNN_MLP_SAVED)
    return DFGNN_OK;
  return dfgnn__guarded_fill(g, h->ctx, dfgnn__mlp_tensor_type(t, h->mlp.dtype),
                             scale_of(h, t),
                             dfgnn__mix(h->seed + (uint64_t)i) << 20);
}

/* The forward pass, for the edges that a maximum or minimum took. */
static dfgnn_status save(dfgnn_mlp_harness *h, instance *x) {
  dfgnn_edge_mlp_args args = DFGNN_EDGE_MLP_ARGS_INIT;
  dfgnn_guarded lent[DFGNN_MLP_TENSORS] = {{0}};
  dfgnn_mlp_form forward = *h->form;
  dfgnn_status status = DFGNN_OK;
  forward.pass = DFGNN_PASS_FORWARD;
  for (int i = 0; !status && dfgnn__mlp_tensors[i].name; i++) {
    const dfgnn_mlp_tensor *t = &dfgnn__mlp_tensors[i];
    if (!dfgnn__mlp_tensor_used(t, &forward))
      continue;
    if (!x->tensor[i].memory)
      status = dfgnn__guarded_make(
          &lent[i], h->ctx, t->name,
          dfgnn__mlp_tensor_bytes(t, &forward, rows_of(x->graph, t->rows)));
    if (!status)
      *dfgnn__mlp_tensor_slot(t, &args) =
          dfgnn__guarded_data(x->tensor[i].memory ? &x->tensor[i] : &lent[i]);
  }
  if (!status)
    status = dfgnn_edge_mlp_execute(&h->mlp, x->graph, &args,
                                    DFGNN_PASS_FORWARD, NULL);
  if (!status)
    status = h->ctx->backend->synchronize(h->ctx->device, NULL);
  for (int i = 0; i < DFGNN_MLP_TENSORS; i++)
    dfgnn__guarded_free(&lent[i], h->ctx);
  return status ? dfgnn__fail_prefix(status, "the forward pass") : status;
}

static dfgnn_status make_instance(dfgnn_mlp_harness *h, instance *x,
                                  dfgnn_graph *graph) {
  dfgnn_status status = DFGNN_OK;
  int saved = 0;
  x->graph = graph;
  x->args = (dfgnn_edge_mlp_args)DFGNN_EDGE_MLP_ARGS_INIT;
  for (int i = 0; !status && dfgnn__mlp_tensors[i].name; i++)
    if (dfgnn__mlp_tensor_used(&dfgnn__mlp_tensors[i], h->form)) {
      status = make_tensor(h, x, i);
      saved |= dfgnn__mlp_tensors[i].use == DFGNN_MLP_SAVED &&
               h->form->pass == DFGNN_PASS_BACKWARD;
    }
  if (!status && saved)
    status = save(h, x);
  for (int i = 0; !status && saved && dfgnn__mlp_tensors[i].name; i++)
    if (dfgnn__mlp_tensors[i].use == DFGNN_MLP_SAVED && x->tensor[i].memory)
      status = dfgnn__guarded_read(&x->tensor[i], h->ctx);
  return status;
}

/* ---- creation ------------------------------------------------------------ */

dfgnn_status dfgnn__mlp_harness_create(dfgnn_mlp_harness **harness,
                                       dfgnn_args *args, dfgnn_graph *graph,
                                       const dfgnn_problem *problem,
                                       uint64_t seed) {
  dfgnn_mlp_harness *h = calloc(1, sizeof *h);
  if (!h)
    return dfgnn__harness_memory(sizeof *h);
  h->ctx = graph->ctx;
  h->problem = *problem;
  h->form = &problem->mlp->form;
  h->mlp = h->form->mlp;
  h->mlp.slope = 0.1;
  h->mlp.epsilon = 1e-5;
  h->seed = seed;
  *harness = h;
  args->mlp = &h->mlp;
  args->mlp_args = &h->whole.args;
  return make_instance(h, &h->whole, graph);
}

void dfgnn__mlp_harness_free(dfgnn_mlp_harness *h) {
  if (!h)
    return;
  for (int i = 0; i < DFGNN_MLP_TENSORS; i++) {
    dfgnn__guarded_free(&h->whole.tensor[i], h->ctx);
    dfgnn__guarded_free(&h->part.tensor[i], h->ctx);
  }
  dfgnn__part_free(&h->cut);
  dfgnn__host_graph_free(&h->host);
  free(h);
}

/* ---- the check ----------------------------------------------------------- */

static const instance *checked(const dfgnn_mlp_harness *h) {
  return h->part.graph ? &h->part : &h->whole;
}

static int64_t products_of_edge(const dfgnn_edge_mlp *mlp) {
  int64_t products = 1;
  for (int l = 0; l < mlp->layers; l++)
    products += dfgnn__mlp_in_width(mlp, l) * mlp->width[l];
  return products;
}

/* Makes a part of the graph if the whole has too many edges to be checked. */
static dfgnn_status prepare(dfgnn_mlp_harness *h) {
  const int64_t products = MOST_PRODUCTS / products_of_edge(&h->mlp);
  const int64_t most = products < LEAST_EDGES ? LEAST_EDGES : products;
  dfgnn_status status =
      dfgnn__host_graph_read(&h->host, h->ctx, h->whole.graph);
  if (status || h->host.matrix.edges <= most)
    return status;
  status = dfgnn__part_create(&h->cut, h->ctx, &h->host.matrix, most);
  if (!status)
    status = make_instance(h, &h->part, h->cut.graph);
  if (!status)
    status = dfgnn__host_graph_read(&h->host, h->ctx, h->cut.graph);
  return status;
}

/* Compares what is in the host's memory. */
static dfgnn_status compare(dfgnn_accuracy *accuracy,
                            const dfgnn_mlp_harness *h, const instance *x) {
  dfgnn_mlp_job job = {.mlp = h->mlp,
                       .args = x->args,
                       .pass = h->form->pass,
                       .rows = h->host.matrix,
                       .threads = 1,
                       .exact = !strcmp(h->ctx->backend->name, "cpu") &&
                                dfgnn__mlp_amx_missing(h->mlp.dtype)};
  dfgnn_mlp_errors errors;
  for (int i = 0; dfgnn__mlp_tensors[i].name; i++)
    if (x->tensor[i].memory)
      *dfgnn__mlp_tensor_slot(&dfgnn__mlp_tensors[i], &job.args) =
          x->tensor[i].host;
  dfgnn_status status = dfgnn__mlp_compare(&errors, &job);
  if (status)
    return status;
  accuracy->of_bound = errors.of_bound;
  accuracy->rel_error = errors.relative;
  if (errors.of_bound <= 1)
    return DFGNN_OK;
  return dfgnn__fail(DFGNN_ERROR_WRONG,
                     "%s: a number has an error of %.2g bounds", errors.where,
                     errors.of_bound);
}

/* Executes over poisoned outputs, and looks at guards and, of the graph that is
 * checked, at numbers. */
static dfgnn_status run(dfgnn_accuracy *accuracy, dfgnn_mlp_harness *h,
                        instance *x, const dfgnn_plan *plan, void *workspace) {
  dfgnn_args args = DFGNN_ARGS_INIT;
  dfgnn_status status = DFGNN_OK;
  args.mlp = &h->mlp;
  args.mlp_args = &x->args;
#define EACH_OUTPUT(i)                                                         \
  for (int i = 0; !status && dfgnn__mlp_tensors[i].name; i++)                  \
    if (x->tensor[i].memory &&                                                 \
        !dfgnn__mlp_tensor_read(&dfgnn__mlp_tensors[i], h->form))
  EACH_OUTPUT(i)
  status = dfgnn__guarded_poison(&x->tensor[i], h->ctx);
  if (!status)
    status = dfgnn_execute(plan, &args, workspace, NULL);
  if (!status)
    status = h->ctx->backend->synchronize(h->ctx->device, NULL);
  EACH_OUTPUT(i) {
    status = dfgnn__guarded_check(&x->tensor[i], h->ctx);
    if (!status && x == checked(h))
      status = dfgnn__guarded_read(&x->tensor[i], h->ctx);
  }
#undef EACH_OUTPUT
  return status || x != checked(h) ? status : compare(accuracy, h, x);
}

/* Runs the plan's variant on the part. */
static dfgnn_status run_part(dfgnn_accuracy *accuracy, dfgnn_mlp_harness *h,
                             const char *variant) {
  dfgnn_readied part;
  dfgnn_status status =
      dfgnn__part_ready(&part, h->ctx, &h->cut, &h->problem, variant);
  if (!status)
    status = run(accuracy, h, &h->part, part.plan, part.workspace);
  dfgnn__readied_free(&part, h->ctx);
  return status;
}

dfgnn_status dfgnn__mlp_harness_check(dfgnn_accuracy *accuracy,
                                      dfgnn_mlp_harness *h,
                                      const dfgnn_plan *plan, void *workspace) {
  *accuracy = (dfgnn_accuracy){0, 0};
  if (!h->prepared) {
    h->outcome = prepare(h);
    h->prepared = 1;
  }
  if (h->outcome)
    return dfgnn__fail_prefix(h->outcome, "no reference");
  dfgnn_status status = DFGNN_OK;
  if (h->part.graph)
    status = run_part(accuracy, h, plan->variant->name);
  return status ? status : run(accuracy, h, &h->whole, plan, workspace);
}
