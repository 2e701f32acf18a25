#include "kernels/attention/cuda/passes.h"

#include <string.h>

size_t dfgnn__passes_scalar(dfgnn_dtype dtype) {
  return dtype == DFGNN_F64 ? sizeof(double) : sizeof(float);
}

size_t dfgnn__passes_score_bytes(const dfgnn_setting *setting) {
  const dfgnn_problem *p = setting->problem;
  return (size_t)setting->matrix->edges * (size_t)p->heads *
         dfgnn__passes_scalar(p->dtype);
}

static dfgnn_operand operand(const void *data, const dfgnn_strides *s) {
  return (dfgnn_operand){data, s->node, s->head, s->feature};
}

/* Can 16-byte words be loaded from x? */
static int takes_words(const dfgnn_operand *x, int64_t vector) {
  return (uintptr_t)x->data % 16 == 0 && x->feature == 1 &&
         x->node % vector == 0 && x->head % vector == 0;
}

static int widest(const dfgnn_passes *p) {
  int vector = (int)(16 / dfgnn_dtype_size(p->dtype));
  const dfgnn_operand *used[] = {&p->value, &p->out, NULL, NULL};
  if (p->op != DFGNN_OP_GAT)
    used[2] = &p->query;
  if (p->op == DFGNN_OP_GT)
    used[3] = &p->key;
  for (int i = 0; i < 4; i++)
    if (used[i] && !takes_words(used[i], vector))
      return 1;
  if (p->op == DFGNN_OP_GATV2 && (uintptr_t)p->att % 16)
    return 1;
  return p->dim % vector == 0 ? vector : 1;
}

void dfgnn__passes_fill(dfgnn_passes *passes, const dfgnn_launch *launch,
                        int scalar) {
  const dfgnn_problem *problem = launch->setting.problem;
  const dfgnn_matrix *matrix = launch->setting.matrix;
  const dfgnn_args *args = launch->args;
  memset(passes, 0, sizeof *passes);
  passes->op = problem->op;
  passes->dtype = problem->dtype;
  passes->rows = matrix->destinations;
  passes->edges = matrix->edges;
  passes->heads = (int)problem->heads;
  passes->dim = (int)problem->dim;
  /* Few rows leave room to split them; many keep every warp busy. */
  passes->heavy = matrix->destinations < 65536 ? 96 : 256;
  passes->offsets64 = matrix->offsets64;
  passes->offsets = matrix->offsets;
  passes->indices = matrix->indices;
  if (launch->views && launch->views[0])
    passes->row_of_edge = launch->views[0]->array[0];
  passes->query = operand(args->query, &args->query_strides);
  passes->key = operand(args->key, &args->key_strides);
  passes->value = operand(args->value, &args->value_strides);
  passes->out = operand(args->out, &args->out_strides);
  passes->score_dst = args->score_dst;
  passes->score_src = args->score_src;
  passes->att = args->att;
  passes->beta = args->beta;
  passes->lse = args->lse;
  passes->weights = problem->weights ? args->weights : NULL;
  passes->scores = launch->workspace;
  passes->scale = args->scale;
  passes->slope = args->slope;
  passes->stream = launch->stream;
  passes->vector = scalar ? 1 : widest(passes);
}
