#include "kernels/program/bind.h"

/* A size of one name once: n * times + constant.  Larger forms wait for other
 * inputs to name their parts, and are compared. */
static dfgnn_status bind_axis(dfgnn_binding *binding, const dfgnn_dag *dag,
                              const dfgnn_port *port, dfgnn_size size,
                              int64_t have) {
  int unknown = -1;
  if (have < 1)
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "%s: found an axis of size %lld, expected at least 1",
                       port->name, (long long)have);
  for (int i = 0; i < DFGNN_SIZE_NAMES; i++) {
    if (!size.times[i] || binding->names[i])
      continue;
    if (unknown >= 0)
      return dfgnn__fail(DFGNN_ERROR_INVALID,
                         "%s: the axis %s has two names that no input before "
                         "it gives a number",
                         port->name, dfgnn__size_text(dag, size));
    unknown = i;
  }
  if (unknown >= 0) {
    int64_t rest = have - dfgnn__size_value(size, binding->names);
    int64_t value = rest / size.times[unknown];
    binding->names[unknown] = value > 0 ? value : 0;
  }
  if (dfgnn__size_value(size, binding->names) == have)
    return DFGNN_OK;
  return dfgnn__fail(DFGNN_ERROR_INVALID,
                     "%s: found an axis of size %lld, expected %s = %lld",
                     port->name, (long long)have, dfgnn__size_text(dag, size),
                     (long long)dfgnn__size_value(size, binding->names));
}

dfgnn_status dfgnn__bind_input(dfgnn_binding *binding, const dfgnn_dag *dag,
                               const dfgnn_port *port, const int64_t *axes) {
  dfgnn_status status = DFGNN_OK;
  for (int i = 0; !status && i < DFGNN_DAG_AXES; i++)
    status = bind_axis(binding, dag, port, port->shape[i], axes[i]);
  return status;
}

dfgnn_extent dfgnn__bind_port(const dfgnn_port *port,
                              const dfgnn_binding *binding) {
  dfgnn_extent extent = {.all = 1};
  for (int i = 0; i < DFGNN_DAG_AXES; i++) {
    extent.axis[i] = dfgnn__size_value(port->shape[i], binding->names);
    extent.all *= extent.axis[i];
  }
  return extent;
}

static dfgnn_status check_operation(const dfgnn_extent *extents,
                                    const dfgnn_dag *dag,
                                    const dfgnn_binding *binding, int32_t n) {
  const dfgnn_node *node = &dag->nodes[n];
  if (node->op == DFGNN_NODE_INPUT || !node->count)
    return DFGNN_OK;
  const dfgnn_extent *e = &extents[n];
  const dfgnn_extent *a = &extents[dfgnn__dag_argument(dag, n, 0)];
  if (node->op == DFGNN_NODE_RESHAPE && a->all != e->all)
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "reshape from %lld elements to %s, which are %lld",
                       (long long)a->all, dfgnn__shape_text(dag, node->shape),
                       (long long)e->all);
  if (node->op == DFGNN_NODE_SLICE) {
    int64_t begin = dfgnn__size_value(node->at, binding->names);
    if (begin < 0 || begin + e->axis[2] > a->axis[2])
      return dfgnn__fail(DFGNN_ERROR_INVALID,
                         "a slice from %lld to %lld of a row of %lld",
                         (long long)begin, (long long)(begin + e->axis[2]),
                         (long long)a->axis[2]);
  }
  if (node->op == DFGNN_NODE_MATMUL) {
    int64_t inner = a->axis[node->flags & DFGNN_MATMUL_FIRST ? 1 : 2];
    if (e->all * inner > DFGNN_BIND_PRODUCTS)
      return dfgnn__fail(
          DFGNN_ERROR_UNSUPPORTED,
          "a linear map from %lld to %s takes %lld products an edge, at most "
          "%d are made inline; apply a wide map to nodes, outside, or run it "
          "as a layer of an MLP on edges (dfgnn_mlp.h)",
          (long long)inner, dfgnn__shape_text(dag, node->shape),
          (long long)(e->all * inner), DFGNN_BIND_PRODUCTS);
  }
  return DFGNN_OK;
}

dfgnn_status dfgnn__bind_nodes(dfgnn_extent *extents, const dfgnn_dag *dag,
                               const dfgnn_binding *binding) {
  for (int32_t n = 0; n < dag->count; n++) {
    const dfgnn_node *node = &dag->nodes[n];
    extents[n].all = 1;
    for (int i = 0; i < DFGNN_DAG_AXES; i++) {
      int64_t size = dfgnn__size_value(node->shape[i], binding->names);
      if (size < 1 || size > DFGNN_SIZE_MAX)
        return dfgnn__fail(DFGNN_ERROR_INVALID,
                           "a value of shape %s has an axis of size %lld, "
                           "expected 1 to %d, from the axes of tensors",
                           dfgnn__shape_text(dag, node->shape), (long long)size,
                           DFGNN_BIND_ROW);
      extents[n].axis[i] = size;
      extents[n].all *= size;
    }
    const int64_t most =
        node->place > DFGNN_PLACE_PARAM ? DFGNN_BIND_ROW : DFGNN_SIZE_MAX;
    if (extents[n].all > most)
      return dfgnn__fail(DFGNN_ERROR_UNSUPPORTED,
                         "a value of shape %s has %lld elements, expected at "
                         "most %lld",
                         dfgnn__shape_text(dag, node->shape),
                         (long long)extents[n].all, (long long)most);
    DFGNN_TRY(check_operation(extents, dag, binding, n));
  }
  return DFGNN_OK;
}
