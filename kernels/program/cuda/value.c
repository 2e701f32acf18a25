#include "kernels/program/cuda/code.h"

/* ---- loops over the elements of a value ---------------------------------- */

/* Begins a loop over what a lane has of a value, and says where it is.  other:
 * how many lanes share the elements of others, and which of them this is. */
place dfgnn__code_begin_loop(writer *w, value_class c, const dfgnn_extent *e,
                             int level, const char *lane, const char *lanes) {
  place x = {.c = c, .level = level, .axis = {"0", "0", "0"}, .flat = "0"};
  const char *head = "M::head(lane, c)";
  P("{\n");
  if (c == CLASS_OTHER) {
    P("for (int j = %s; j < %lld; j += %s) {\n", lane, (long long)e->all,
      lanes);
    x.axis[0] =
        dfgnn__code_text(w, "j / %lld", (long long)(e->axis[1] * e->axis[2]));
    x.axis[1] = dfgnn__code_text(w, "j / %lld %% %lld", (long long)e->axis[2],
                                 (long long)e->axis[1]);
    x.axis[2] = dfgnn__code_text(w, "j %% %lld", (long long)e->axis[2]);
    x.flat = "j";
    return x;
  }
  if (c == CLASS_ONE) {
    P("{\n");
    return x;
  }
  P("_Pragma(\"unroll\") for (int c = 0; c < M::kChunks; ++c) {\n");
  x.axis[0] = w->p->shape[0] == 1 ? "0"
                                  : dfgnn__code_text(w, "%s / %lld", head,
                                                     (long long)w->p->shape[1]);
  x.axis[1] = w->p->shape[0] == 1 ? head
                                  : dfgnn__code_text(w, "%s %% %lld", head,
                                                     (long long)w->p->shape[1]);
  x.flat = head;
  if (c == CLASS_MAIN) {
    P("_Pragma(\"unroll\") for (int i = 0; i < M::VEC; ++i)\n{\n");
    x.axis[2] = "M::safe(lane, c, i)";
    x.flat = dfgnn__code_text(w, "%s * %lld + M::safe(lane, c, i)", head,
                              (long long)w->p->shape[2]);
  }
  return x;
}

void dfgnn__code_end_loop(writer *w, value_class c) {
  P(c == CLASS_MAIN ? "}\n}\n}\n" : "}\n}\n");
}

/* A lane's number of a value in registers, at a loop's place. */
const char *dfgnn__code_own_number(writer *w, const char *name, int32_t n,
                                   value_class c) {
  if (c == CLASS_ONE)
    return dfgnn__code_text(w, "%s%d", name, n);
  return dfgnn__code_text(w, "%s%d[%s]", name, n,
                          c == CLASS_HEADS ? "c" : "c * M::VEC + i");
}

/* Whether the lane is the one that writes the element at a loop's place. */
const char *dfgnn__code_is_writer(value_class c) {
  switch (c) {
  case CLASS_ONE:
    return "lane == 0";
  case CLASS_HEADS:
    return "M::begins(lane, c)";
  case CLASS_MAIN:
    return "M::has(lane, c, i)";
  default:
    return "true";
  }
}

void dfgnn__code_declare(writer *w, const char *name, int32_t n, value_class c,
                         const char *start) {
  if (c == CLASS_ONE)
    P("A %s%d%s;\n", name, n, start);
  else
    P("A %s%d[M::%s]%s;\n", name, n, c == CLASS_MAIN ? "kMain" : "kChunks",
      *start ? " = {}" : "");
}

/* ---- values -------------------------------------------------------------- */

static const char *shared_of(const writer *w, int32_t n) {
  return w->p->made[n] == 1 + DFGNN_LEVEL_OWN ? "own" : "edge";
}

/* Puts a value in registers where other lanes read it. */
void dfgnn__code_write_spill(writer *w, int32_t n) {
  if (!w->p->spilled[n])
    return;
  value_class c = plan_class(w->p, n);
  place x = dfgnn__code_begin_loop(w, c, extent(w, n), 0, "", "");
  P("if (%s) %s_shared[%d + %s] = %s;\n", dfgnn__code_is_writer(c),
    shared_of(w, n), w->p->slot[n], x.flat,
    dfgnn__code_own_number(w, "n", n, c));
  dfgnn__code_end_loop(w, c);
  P("__syncwarp();\n");
}

static void write_fold(writer *w, int32_t n) {
  const char *max = at(w, n)->op == DFGNN_NODE_FMAX ? "true" : "false";
  int32_t a = argument(w, n, 0);
  const char *owner = !w->p->made[a] && w->p->loaded[a] ? "x." : "";
  if (plan_class(w->p, n) == CLASS_ONE)
    P("{ A y[M::kChunks]; M::template fold<%s>(y, %sn%d, lane);\n"
      "n%d = __shfl_sync(kFullMask, y[0], 0, M::L); }\n",
      max, owner, a, n);
  else
    P("M::template fold<%s>(n%d, %sn%d, lane);\n", max, n, owner, a);
}

/* Computes a value into n<number>, which is declared, or into shared memory. */
void dfgnn__code_write_value(writer *w, int32_t n, int level) {
  value_class c = plan_class(w->p, n);
  const int own = level == DFGNN_LEVEL_OWN;
  if (dfgnn__plan_folds_lanes(w->p, n) &&
      dfgnn__code_in_registers(w, argument(w, n, 0))) {
    write_fold(w, n);
    dfgnn__code_write_spill(w, n);
    return;
  }
  place x = dfgnn__code_begin_loop(w, c, extent(w, n), level,
                                   own ? "group_lane" : "lane",
                                   own ? "kGroup" : "kLanes");
  dfgnn__code_write_element(w, n, &x);
  if (c == CLASS_OTHER)
    P("%s_shared[%d + j] = y;\n", shared_of(w, n), w->p->slot[n]);
  else
    P("%s = y;\n", dfgnn__code_own_number(w, "n", n, c));
  dfgnn__code_end_loop(w, c);
  if (c == CLASS_OTHER)
    P("__syncwarp();\n");
  dfgnn__code_write_spill(w, n);
}

/* Computes a value of an edge, which is declared here, and before it the
 * products and features that it alone reads. */
void dfgnn__code_write_made(writer *w, int32_t n, int level) {
  value_class c = plan_class(w->p, n);
  if (level == DFGNN_LEVEL_EDGE && c != CLASS_OTHER)
    dfgnn__code_declare(w, "n", n, c, "");
  dfgnn__code_write_value(w, n, level);
}

/* The fused products, and a leaf whose features are folded, that a step reads.
 */
void dfgnn__code_write_parts(writer *w, int32_t n, int level) {
  for (int i = 0; i < at(w, n)->count; i++) {
    int32_t a = argument(w, n, i);
    if (!w->job->lowered->fused[a] || w->written[a])
      continue;
    w->written[a] = 1;
    dfgnn__code_write_made(w, a, level);
  }
}

/* ---- outputs ------------------------------------------------------------- */

void dfgnn__code_write_array(writer *w, int32_t n, const dfgnn_extent *e,
                             const char *type, int array, const char *item,
                             const char *condition) {
  value_class c = dfgnn__plan_class_of(w->p, e);
  P("if (%s) {\n%s *const to = out<%s>(%d) + %s * int64_t(%lld);\n", condition,
    type, type, array, item, (long long)e->all);
  if (c == CLASS_MAIN && plan_class(w->p, n) == CLASS_MAIN && w->p->made[n]) {
    P("M::store(to, n%d, lane);\n}\n", n);
    return;
  }
  place x = dfgnn__code_begin_loop(w, c, e, DFGNN_LEVEL_OWN, "lane", "kLanes");
  P("if (%s) write(to, %s, %s);\n", dfgnn__code_is_writer(c), x.flat,
    dfgnn__code_operand(w, n, &x));
  dfgnn__code_end_loop(w, c);
  P("}\n");
}

void dfgnn__code_write_output(writer *w, int index, const char *item,
                              const char *condition) {
  const dfgnn_port *port = &w->dag->outputs[index];
  dfgnn_extent e = dfgnn__bind_port(port, w->job->binding);
  dfgnn__code_write_array(w, port->node, &e,
                          dfgnn__code_type_name(w->job->outputs[index].dtype),
                          w->dag->input_count + index, item, condition);
}
