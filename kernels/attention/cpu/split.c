/* split.c - rows cut into items of at most `edges` edges, shared out to
 * threads; the partial softmax and sum of each item of a long row are merged in
 * the order of the items */
#include "kernels/attention/cpu/families.h"
#include "kernels/attention/cpu/online.h"

enum { SIMD, EDGES, PREFETCH };
/* Edges of a chunk; items and cut rows of a task. */
enum { CHUNK = 64, ITEMS = 16, HEAVY = 4 };

/* Bytes of a partial result: its softmax, then a head's sum. */
static size_t partial_bytes(const dfgnn_problem *problem) {
  return sizeof(dfgnn_cpu_softmax) +
         (size_t)dfgnn__cpu_most_dim(problem) * sizeof(double);
}

/* The first partial result of a row, for a head.  A row of k > 1 items has
 * k - 1 items more than one, and k <= 2 (k - 1).  So the results of a row begin
 * at twice the number of items before it that exceed one a row, and all rows
 * have at most 2 edges / EDGES. */
static int64_t first_partial(const dfgnn_view *items, int64_t row) {
  return 2 * (((const int32_t *)items->array[2])[row] - row);
}

static dfgnn_cpu_choice choice(const dfgnn_setting *setting) {
  const int *p = setting->parameter;
  const dfgnn_problem *problem = setting->problem;
  int64_t partials = 2 * (setting->matrix->edges / p[EDGES]) * problem->heads;
  return (dfgnn_cpu_choice){
      .simd = p[SIMD],
      .schedule = DFGNN_CPU_DYNAMIC,
      .prefetch = p[PREFETCH],
      .pads = 1,
      .thread_bytes = dfgnn__cpu_online_bytes(setting, CHUNK),
      .shared_bytes = (size_t)partials * partial_bytes(problem),
  };
}

DFGNN_CPU_WORKSPACE(split, choice)

static const char *applicable(const dfgnn_setting *setting) {
  const int *p = setting->parameter;
  if (setting->matrix->max_degree <= p[EDGES])
    return "no row has more edges than an item: nothing to split";
  return dfgnn__cpu_runs(setting);
}

static int views(const dfgnn_setting *setting, dfgnn_view_request *requests) {
  requests[0] = (dfgnn_view_request){.kind = DFGNN_VIEW_WORK_ITEMS,
                                     .parameter = setting->parameter[EDGES]};
  return 1;
}

static int split_legal(const int *p) {
  return dfgnn__cpu_fetches(p[SIMD], p[PREFETCH]);
}

typedef struct plan {
  const dfgnn_view *items;
  char *partials;
  size_t partial_bytes;
} plan;

static char *partial(const plan *p, const dfgnn_cpu_job *job, int64_t slot,
                     int64_t head) {
  return p->partials + (size_t)(slot * job->heads + head) * p->partial_bytes;
}

static void attend_item(const dfgnn_cpu_job *job, const plan *p, char *memory,
                        int64_t item, int64_t head) {
  const int32_t *first_item = p->items->array[2];
  const int64_t *edge = p->items->array[1];
  int64_t row = ((const int32_t *)p->items->array[0])[item];
  int64_t begin = edge[item], end = dfgnn__cpu_offset(job, row + 1);
  int64_t length = p->items->request.parameter;
  int whole = first_item[row + 1] - first_item[row] == 1;
  dfgnn_cpu_softmax state = DFGNN_CPU_SOFTMAX_INIT;

  if (end - begin > length)
    end = begin + length;
  dfgnn__cpu_online(job, row, head, begin, end, CHUNK, memory, &state, whole);
  if (whole)
    return;
  char *to = partial(
      p, job, first_partial(p->items, row) + item - first_item[row], head);
  memcpy(to, &state, sizeof state);
  memcpy(to + sizeof state, dfgnn__cpu_online_sum(job, CHUNK, memory),
         (size_t)job->dim * job->scalar_size);
}

static void attend_items(const dfgnn_cpu_job *job, void *data, char *memory,
                         int64_t begin, int64_t end) {
  const plan *p = data;
  const int32_t *first_item = p->items->array[2];
  for (int64_t item = begin; item < end; item++) {
    int64_t row = ((const int32_t *)p->items->array[0])[item];
    if (job->all_heads && first_item[row + 1] - first_item[row] == 1)
      job->kernels->attend(job, row, row + 1, memory);
    else
      for (int64_t h = 0; h < job->heads; h++)
        attend_item(job, p, memory, item, h);
  }
}

/* Merges softmax `from` into `to`; a and b become the factors of their sums. */
static void merge_softmax(dfgnn_cpu_softmax *to, const dfgnn_cpu_softmax *from,
                          double *a, double *b) {
  double shift = from->shift > to->shift ? from->shift : to->shift;
  *a = to->shift == shift ? 1 : exp(to->shift - shift);
  *b = from->shift == shift ? 1 : exp(from->shift - shift);
  to->shift = shift;
  to->sum = *a * to->sum + *b * from->sum;
}

static void merge_row(const dfgnn_cpu_job *job, const plan *p, int64_t row,
                      int64_t head) {
  const int32_t *first_item = p->items->array[2];
  int64_t slot = first_partial(p->items, row);
  int64_t end = slot + first_item[row + 1] - first_item[row];
  char *to = partial(p, job, slot, head);
  dfgnn_cpu_softmax state, next;

  memcpy(&state, to, sizeof state);
  for (slot++; slot < end; slot++) {
    const char *from = partial(p, job, slot, head);
    double a, b;
    memcpy(&next, from, sizeof next);
    merge_softmax(&state, &next, &a, &b);
    job->kernels->combine(to + sizeof state, a, from + sizeof next, b,
                          job->dim);
  }
  double after = dfgnn__cpu_finish(job, row, head, &state);
  if (after != 0)
    job->kernels->store(job, row, head, to + sizeof state, after);
  if (job->weights)
    dfgnn__cpu_normalize(job, head, dfgnn__cpu_offset(job, row),
                         dfgnn__cpu_offset(job, row + 1), &state);
}

static void merge_rows(const dfgnn_cpu_job *job, void *data, char *memory,
                       int64_t begin, int64_t end) {
  const plan *p = data;
  const int32_t *heavy = p->items->array[3];
  (void)memory;
  for (int64_t k = begin; k < end; k++)
    for (int64_t h = 0; h < job->heads; h++)
      merge_row(job, p, heavy[k], h);
}

static dfgnn_status split_launch(const dfgnn_launch *launch) {
  dfgnn_cpu_choice c = choice(&launch->setting);
  dfgnn_cpu_job job;
  plan p = {.items = launch->views[0],
            .partials = dfgnn__cpu_begin(&job, launch, &c),
            .partial_bytes = partial_bytes(launch->setting.problem)};
  dfgnn__cpu_range(&job, c.schedule, p.items->count, ITEMS, attend_items, &p);
  dfgnn__cpu_range(&job, c.schedule, p.items->extra, HEAVY, merge_rows, &p);
  return DFGNN_OK;
}

DFGNN_FAMILIES(attention_cpu_split) = {
    {DFGNN_CPU_FORWARD(split), .revision = 5, .legal = split_legal,
     .applicable = applicable, .views = views,
     .parameters = {DFGNN_CPU_SIMD,
                    {"edges", 2, {128, 1024}, {0}},
                    DFGNN_CPU_PREFETCH_PARAMETER}},
    DFGNN_FAMILIES_END};
