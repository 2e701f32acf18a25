/* collect_graph.c - the programs that graphs need, listed by the functions that
 * launch them */

#include "kernels/common/device_graph.h"
#include "kernels/common/device_tiles.h"
#include "lib/collect.h"

#define GO(call)                                                               \
  do {                                                                         \
    dfgnn_status status_ = (call);                                             \
    if (status_)                                                               \
      return status_;                                                          \
  } while (0)

/* Sizes on both sides of each limit that launches decide by: one block or more,
 * digits of 8 or 9 bits, counts and numbers of 32 or 64 bits. */
static dfgnn_status sorts(const dfgnn_queue *queue) {
  static const struct {
    int64_t count;
    int bits, wide;
  } sorts[] = {{.count = 100, .bits = 7},
               {.count = 100000, .bits = 16},
               {.count = 100000, .bits = 17},
               {.count = 100000, .bits = 16, .wide = 1},
               {.count = 100000, .bits = 17, .wide = 1},
               {.count = INT64_C(1) << 30, .bits = 16},
               {.count = INT64_C(1) << 30, .bits = 17},
               {.count = INT64_C(1) << 31, .bits = 16, .wide = 1},
               {.count = INT64_C(1) << 31, .bits = 17, .wide = 1}};
  for (size_t i = 0; i < sizeof sorts / sizeof *sorts; i++)
    GO(dfgnn__cuda_sort(queue, NULL, NULL, NULL, sorts[i].count, sorts[i].bits,
                        sorts[i].wide, NULL));
  return DFGNN_OK;
}

static dfgnn_status edge_lists(const dfgnn_queue *queue) {
  for (int wide = 0; wide < 2; wide++) {
    GO(dfgnn__cuda_read_edges(queue, &(dfgnn_read_edges){.edges = 100}, wide));
    GO(dfgnn__cuda_list_offsets(queue, NULL, NULL, wide, 100, 100));
    GO(dfgnn__cuda_list_offsets(queue, NULL, NULL, wide, INT64_C(1) << 31,
                                100));
    GO(dfgnn__cuda_short_list(queue, (dfgnn_short_list){.edges = 100}, wide));
  }
  GO(dfgnn__cuda_sort_edges(queue, NULL, NULL, NULL, NULL, NULL, 100, 100,
                            NULL));
  return dfgnn__cuda_sort_edges(queue, NULL, NULL, NULL, NULL, NULL,
                                INT64_C(1) << 31, 100, NULL);
}

static dfgnn_status tiles(const dfgnn_queue *queue, const dfgnn_matrix *m) {
  const dfgnn_tile_counts counts = {.windows = 2, .chunks = 4, .most = 3};
  for (int dense = 0; dense < 2; dense++) {
    const int64_t parameter = dfgnn__tiles_parameter(64, dense);
    GO(dfgnn__cuda_count_tiles(queue, m, parameter, NULL));
    GO(dfgnn__cuda_fill_tiles(queue, NULL, NULL, NULL, &counts, m, parameter,
                              NULL, NULL));
  }
  return DFGNN_OK;
}

static dfgnn_status structures(const dfgnn_queue *queue,
                               const dfgnn_matrix *m) {
  GO(dfgnn__cuda_analyze(queue, m, 0, NULL, 100, NULL));
  GO(dfgnn__cuda_analyze(queue, m, 2, NULL, 100, NULL));
  GO(dfgnn__cuda_row_of_edge(queue, NULL, m));
  for (int by_place = 0; by_place < 2; by_place++)
    GO(dfgnn__cuda_order(queue, NULL, m, by_place, NULL));
  GO(dfgnn__cuda_count_items(queue, NULL, NULL, NULL, m, 32, NULL));
  GO(dfgnn__cuda_fill_items(queue, NULL, NULL, NULL, 100, m, 32));
  GO(dfgnn__cuda_pad_items(queue, &(dfgnn_pad_items){.rows = 100},
                           m->offsets64));
  GO(dfgnn__cuda_transpose(queue, NULL, NULL, NULL, NULL, m, NULL));
  GO(dfgnn__cuda_mirror(queue, NULL, NULL, NULL, NULL, m));
  return tiles(queue, m);
}

dfgnn_status dfgnn__collect_graph_programs(dfgnn_programs *list) {
  const dfgnn_queue queue = {.list = list};
  for (int wide = 0; wide < 2; wide++)
    for (int64_t sources = 10000; sources <= 1000000; sources *= 100) {
      const dfgnn_matrix m = {.destinations = sources,
                              .sources = sources,
                              .edges = 100000,
                              .max_degree = 700,
                              .offsets64 = wide};
      GO(structures(&queue, &m));
    }
  GO(dfgnn__cuda_narrow(&queue, NULL, NULL, 1, NULL));
  GO(sorts(&queue));
  return edge_lists(&queue);
}
