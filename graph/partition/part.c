/* part.c - one rank's part of a partitioned graph: its rows, whose columns are
 * its own nodes and then its halo, and the rows it sends to and gets from
 * others
 */
#include "graph/partition/partition.h"
#include "kernels/common/fingerprint.h"
#include "lib/base/error.h"

#include <stdlib.h>
#include <string.h>

/* A part with the arrays that its descriptor shows. */
typedef struct owned_part {
  dfgnn_part shown;
  int64_t *node, *halo, *receive, *send, *send_row, *first_edge, *offset;
  int32_t *index;
} owned_part;

void dfgnn_part_free(dfgnn_part *part) {
  owned_part *p = (owned_part *)part;
  if (!p)
    return;
  free(p->node);
  free(p->halo);
  free(p->receive);
  free(p->send);
  free(p->send_row);
  free(p->first_edge);
  free(p->offset);
  free(p->index);
  free(p);
}

/* ---- hashes, the same on all ranks --------------------------------------- */

static uint64_t fingerprint_of(const dfgnn_csr *csr) {
  uint64_t sum = dfgnn__mix((uint64_t)csr->destinations) +
                 dfgnn__mix(~(uint64_t)csr->sources);
#pragma omp parallel for reduction(+ : sum)
  for (int64_t i = 0; i <= csr->destinations; i++)
    sum += dfgnn__offset_term((uint64_t)i, (uint64_t)dfgnn__csr_offset(csr, i));
#pragma omp parallel for reduction(+ : sum)
  for (int64_t e = 0; e < csr->edges; e++)
    sum += dfgnn__index_term((uint64_t)e, (uint64_t)dfgnn__csr_index(csr, e));
  return sum;
}

static uint64_t digest_of(const int32_t *owner, int64_t nodes, int parts,
                          uint64_t fingerprint) {
  uint64_t sum = dfgnn__mix(fingerprint ^ (uint64_t)parts);
  for (int64_t i = 0; i < nodes; i++)
    sum += dfgnn__index_term((uint64_t)i, (uint64_t)owner[i]);
  return sum;
}

/* ---- creation ------------------------------------------------------------ */

typedef struct maker {
  const dfgnn_csr *csr;
  const int32_t *owner;
  int parts, rank;
  int32_t *mark;    /* [nodes] the last rank that needs the node, plus 1 */
  int32_t *place;   /* [nodes] number among the part's own nodes or its halo */
  int64_t *begin;   /* [parts + 1] the first row of each part */
  int32_t *by_part; /* [nodes] rows, part after part, rising */
  int32_t *found;   /* [nodes] scratch: nodes that were found */
  owned_part *to;
} maker;

static int list_rows(maker *m) {
  int64_t n = m->csr->destinations;
  m->mark = calloc((size_t)n + 1, sizeof *m->mark);
  m->place = malloc(((size_t)n + 1) * sizeof *m->place);
  m->begin = calloc((size_t)m->parts + 2, sizeof *m->begin);
  m->by_part = malloc(((size_t)n + 1) * sizeof *m->by_part);
  m->found = malloc(((size_t)n + 1) * sizeof *m->found);
  if (!m->mark || !m->place || !m->begin || !m->by_part || !m->found)
    return 0;
  for (int64_t i = 0; i < n; i++)
    m->begin[m->owner[i] + 2]++;
  for (int p = 1; p <= m->parts; p++)
    m->begin[p + 1] += m->begin[p];
  for (int64_t i = 0; i < n; i++)
    m->by_part[m->begin[m->owner[i] + 1]++] = (int32_t)i;
  return 1;
}

static int rising(const void *a, const void *b) {
  int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
  return (x > y) - (x < y);
}

/* Lists the nodes of part `from` that rows of part `to` read, rising, in
 * m->found; returns how many. */
static int64_t needed(maker *m, int to, int from) {
  const dfgnn_csr *csr = m->csr;
  int64_t count = 0;
  int32_t stamp = to + 1;
  for (int64_t k = m->begin[to]; k < m->begin[to + 1]; k++)
    for (int64_t e = dfgnn__csr_offset(csr, m->by_part[k]);
         e < dfgnn__csr_offset(csr, m->by_part[k] + 1); e++) {
      int64_t j = dfgnn__csr_index(csr, e);
      if (m->owner[j] != from || m->mark[j] == stamp)
        continue;
      m->mark[j] = stamp;
      m->found[count++] = (int32_t)j;
    }
  qsort(m->found, (size_t)count, sizeof *m->found, rising);
  return count;
}

static int number_nodes(maker *m) {
  owned_part *p = m->to;
  const int32_t *rows = m->by_part + m->begin[m->rank];
  int64_t n = p->shown.nodes = m->begin[m->rank + 1] - m->begin[m->rank];
  p->node = malloc(((size_t)n + 1) * sizeof *p->node);
  for (int64_t k = 0; k < n && p->node; k++) {
    p->node[k] = rows[k];
    m->place[rows[k]] = (int32_t)k;
  }
  return p->node != NULL;
}

static int append(int64_t **list, int64_t *count, const maker *m, int64_t more,
                  int by_place) {
  int64_t *longer =
      realloc(*list, ((size_t)(*count + more) + 1) * sizeof **list);
  if (!longer)
    return 0;
  *list = longer;
  for (int64_t k = 0; k < more; k++)
    longer[*count + k] = by_place ? m->place[m->found[k]] : m->found[k];
  *count += more;
  return 1;
}

static int list_sends(maker *m) {
  owned_part *p = m->to;
  p->send = calloc((size_t)m->parts + 1, sizeof *p->send);
  for (int q = 0; q < m->parts && p->send; q++) {
    p->send[q] = q == m->rank ? 0 : needed(m, q, m->rank);
    if (!append(&p->send_row, &p->shown.sends, m, p->send[q], 1))
      return 0;
  }
  return p->send != NULL;
}

/* Lists the halo, by owner. */
static int list_halo(maker *m) {
  const dfgnn_csr *csr = m->csr;
  owned_part *p = m->to;
  int64_t count = 0;
  p->receive = calloc((size_t)m->parts + 1, sizeof *p->receive);
  if (!p->receive)
    return 0;
  for (int64_t k = 0; k < p->shown.nodes; k++)
    for (int64_t e = dfgnn__csr_offset(csr, p->node[k]);
         e < dfgnn__csr_offset(csr, p->node[k] + 1); e++) {
      int64_t j = dfgnn__csr_index(csr, e);
      if (m->owner[j] == m->rank || m->mark[j])
        continue;
      m->mark[j] = 1;
      p->receive[m->owner[j]]++;
      m->found[count++] = (int32_t)j;
    }
  p->halo = malloc(((size_t)count + 1) * sizeof *p->halo);
  if (!p->halo)
    return 0;
  qsort(m->found, (size_t)count, sizeof *m->found, rising);
  int64_t at = 0;
  for (int q = 0; q < m->parts; q++) { /* sorted, then stably by owner */
    m->begin[q] = at;
    at += p->receive[q];
  }
  for (int64_t k = 0; k < count; k++)
    p->halo[m->begin[m->owner[m->found[k]]]++] = m->found[k];
  for (int64_t k = 0; k < count; k++)
    m->place[p->halo[k]] = (int32_t)(p->shown.nodes + k);
  p->shown.halo = count;
  return 1;
}

static int fill_rows(maker *m) {
  const dfgnn_csr *csr = m->csr;
  owned_part *p = m->to;
  int64_t n = p->shown.nodes, edges = 0, at = 0;
  for (int64_t k = 0; k < n; k++)
    edges += dfgnn__csr_offset(csr, p->node[k] + 1) -
             dfgnn__csr_offset(csr, p->node[k]);
  p->offset = malloc(((size_t)n + 1) * sizeof *p->offset);
  p->first_edge = malloc(((size_t)n + 1) * sizeof *p->first_edge);
  p->index = malloc(((size_t)edges + 1) * sizeof *p->index);
  if (!p->offset || !p->first_edge || !p->index)
    return 0;
  for (int64_t k = 0; k < n; k++) {
    int64_t begin = dfgnn__csr_offset(csr, p->node[k]);
    int64_t end = dfgnn__csr_offset(csr, p->node[k] + 1);
    int far = 0;
    p->offset[k] = at;
    p->first_edge[k] = begin;
    for (int64_t e = begin; e < end; e++) {
      int32_t j = m->place[dfgnn__csr_index(csr, e)];
      p->index[at++] = j;
      p->shown.cut += j >= n;
      far |= j >= n;
    }
    p->shown.boundary += far;
  }
  p->offset[n] = p->shown.edges = at;
  return 1;
}

static void show(owned_part *p) {
  p->shown.node = p->node;
  p->shown.halo_node = p->halo;
  p->shown.receive = p->receive;
  p->shown.send = p->send;
  p->shown.send_row = p->send_row;
  p->shown.first_edge = p->first_edge;
  p->shown.offset = p->offset;
  p->shown.index = p->index;
}

static dfgnn_status check(const dfgnn_csr *csr, const int32_t *owner, int parts,
                          int rank) {
  if (!owner)
    return dfgnn__fail(DFGNN_ERROR_INVALID, "owner is NULL");
  if (parts < 1 || parts > DFGNN_PARTS_MAX || rank < 0 || rank >= parts)
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "found rank %d of %d parts, expected 1..%d parts and a "
                       "rank below them",
                       rank, parts, DFGNN_PARTS_MAX);
  if (csr->destinations != csr->sources || csr->destinations >= INT32_MAX / 2)
    return dfgnn__fail(DFGNN_ERROR_UNSUPPORTED,
                       "found a matrix of %lld x %lld, expected a square one "
                       "of less than 1073741823 rows",
                       (long long)csr->destinations, (long long)csr->sources);
  for (int64_t i = 0; i < csr->destinations; i++)
    if (owner[i] < 0 || owner[i] >= parts)
      return dfgnn__fail(DFGNN_ERROR_INVALID,
                         "owner[%lld] is %d, expected 0..%d", (long long)i,
                         owner[i], parts - 1);
  return DFGNN_OK;
}

dfgnn_status dfgnn_part_create(dfgnn_part **part, const dfgnn_csr *csr,
                               const int32_t *owner, int parts, int rank) {
  dfgnn_csr whole;
  if (!part)
    return dfgnn__fail(DFGNN_ERROR_INVALID, "part is NULL");
  DFGNN_TRY(dfgnn__csr_take(&whole, csr));
  csr = &whole;
  DFGNN_TRY(check(csr, owner, parts, rank));
  dfgnn_status status = DFGNN_OK;
  maker m = {.csr = csr, .owner = owner, .parts = parts, .rank = rank};
  m.to = calloc(1, sizeof *m.to);
  if (!m.to || !list_rows(&m) || !number_nodes(&m) || !list_sends(&m)) {
    status = DFGNN_ERROR_MEMORY;
  } else {
    memset(m.mark, 0, (size_t)csr->destinations * sizeof *m.mark);
    if (!list_halo(&m) || !fill_rows(&m))
      status = DFGNN_ERROR_MEMORY;
  }
  free(m.mark);
  free(m.place);
  free(m.begin);
  free(m.by_part);
  free(m.found);
  if (status) {
    dfgnn_part_free(m.to ? &m.to->shown : NULL);
    return dfgnn__fail(status, "cannot hold part %d of %lld edges", rank,
                       (long long)csr->edges);
  }
  dfgnn_part *shown = &m.to->shown;
  shown->struct_size = sizeof *shown;
  shown->parts = parts;
  shown->rank = rank;
  shown->total_nodes = csr->destinations;
  shown->total_edges = csr->edges;
  shown->fingerprint = fingerprint_of(csr);
  shown->digest =
      digest_of(owner, csr->destinations, parts, shown->fingerprint);
  show(m.to);
  *part = shown;
  return DFGNN_OK;
}

/* ---- the file ------------------------------------------------------------ */

/* Counts that may be, with an array for each that is not 0. */
static dfgnn_status check_part(const dfgnn_part *p) {
  const struct {
    const char *name;
    int64_t count;
    const char *array;
    const void *data;
  } arrays[] = {{"nodes", p->nodes, "node", p->node},
                {"nodes", p->nodes, "first_edge", p->first_edge},
                {"halo", p->halo, "halo_node", p->halo_node},
                {"parts", p->parts, "receive", p->receive},
                {"parts", p->parts, "send", p->send},
                {"sends", p->sends, "send_row", p->send_row},
                {"edges", p->edges, "index", p->index},
                {"nodes + 1", 1, "offset", p->offset}};
  if (p->parts < 1 || p->parts > DFGNN_PARTS_MAX || p->rank < 0 ||
      p->rank >= p->parts)
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "part.rank is %d of part.parts %d, expected 1..%d parts "
                       "and a rank below them",
                       p->rank, p->parts, DFGNN_PARTS_MAX);
  for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) {
    if (arrays[i].count < 0 || arrays[i].count > (int64_t)1 << 40)
      return dfgnn__fail(DFGNN_ERROR_INVALID,
                         "part.%s is %lld, expected 0..2^40", arrays[i].name,
                         (long long)arrays[i].count);
    if (arrays[i].count && !arrays[i].data)
      return dfgnn__fail(
          DFGNN_ERROR_INVALID, "part.%s is NULL, but part.%s is %lld",
          arrays[i].array, arrays[i].name, (long long)arrays[i].count);
  }
  if (p->offset[0] != 0 || p->offset[p->nodes] != p->edges)
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "part.offset goes from %lld to %lld, expected 0 to "
                       "part.edges, %lld",
                       (long long)p->offset[0], (long long)p->offset[p->nodes],
                       (long long)p->edges);
  return DFGNN_OK;
}

dfgnn_status dfgnn_part_write(const dfgnn_part *given, const char *path) {
  static const dfgnn_descriptor_kind kind =
      DFGNN_DESCRIPTOR("part", dfgnn_part, "DFGNN_INIT(dfgnn_part)");
  dfgnn_part whole = DFGNN_INIT(dfgnn_part);
  const dfgnn_part *part = &whole;
  if (!path)
    return dfgnn__fail(DFGNN_ERROR_INVALID, "path is NULL");
  DFGNN_TRY(dfgnn__take(&whole, given, &kind));
  DFGNN_TRY(check_part(part));
  const int64_t head[] = {DFGNN_PART_FORMAT,    part->parts,
                          part->rank,           part->total_nodes,
                          part->total_edges,    (int64_t)part->fingerprint,
                          (int64_t)part->digest};
  const dfgnn__array arrays[] = {
      {.name = "part", .data = head, .count = sizeof head / sizeof *head},
      {.name = "node", .data = part->node, .count = part->nodes},
      {.name = "halo", .data = part->halo_node, .count = part->halo},
      {.name = "receive", .data = part->receive, .count = part->parts},
      {.name = "send", .data = part->send, .count = part->parts},
      {.name = "send_row", .data = part->send_row, .count = part->sends},
      {.name = "first_edge", .data = part->first_edge, .count = part->nodes},
      {.name = "offset", .data = part->offset, .count = part->nodes + 1},
      {.name = "index", .data = part->index, .count = part->edges, .narrow = 1},
      {.name = NULL}};
  return dfgnn__arrays_write(path, "a part of a graph", arrays);
}
