/* dfgnn_csr_partition and dfgnn_part_create: every node and edge is in one
 * part, parts fit together, and a grouped graph is divided well */
#include "graph/partition/partition.h"
#include "tests/unit/fixture.h"

OWNED(part, dfgnn_part, dfgnn_part_free)

static dfgnn_part *part_of(const dfgnn_csr *csr, const int32_t *owner,
                           int parts, int rank) {
  dfgnn_part *part = NULL;
  ck_ok(dfgnn_part_create(&part, csr, owner, parts, rank));
  return own_part(part);
}

static void check_parts(const dfgnn_csr *csr, const int32_t *owner, int parts) {
  dfgnn_part *part[16];
  int64_t edges = 0, nodes = 0, sent = 0, received = 0;
  for (int r = 0; r < parts; r++) {
    int64_t boundary = 0, cut = 0;
    part[r] = part_of(csr, owner, parts, r);
    edges += part[r]->edges;
    nodes += part[r]->nodes;
    sent += part[r]->sends;
    received += part[r]->halo;
    ck_assert(part[r]->digest == part[0]->digest);
    for (int64_t k = 0; k < part[r]->nodes; k++) {
      int64_t i = part[r]->node[k], begin = dfgnn__csr_offset(csr, i);
      ck_assert_int_eq(owner[i], r);
      int64_t far = 0;
      ck_assert_int_eq(part[r]->first_edge[k], begin);
      for (int64_t e = part[r]->offset[k]; e < part[r]->offset[k + 1]; e++) {
        int32_t j = part[r]->index[e];
        int64_t whole = j < part[r]->nodes
                            ? part[r]->node[j]
                            : part[r]->halo_node[j - part[r]->nodes];
        ck_assert_int_eq(whole,
                         dfgnn__csr_index(csr, begin + e - part[r]->offset[k]));
        far += owner[whole] != r;
      }
      cut += far;
      boundary += far > 0;
    }
    ck_assert_int_eq(part[r]->cut, cut);
    ck_assert_int_eq(part[r]->boundary, boundary);
  }
  ck_assert_int_eq(edges, csr->edges);
  ck_assert_int_eq(nodes, csr->destinations);
  ck_assert_int_eq(sent, received);
  for (int a = 0; a < parts; a++)
    for (int b = 0, at = 0; b < parts; at += (int)part[a]->send[b++]) {
      int64_t begin = 0;
      for (int q = 0; q < a; q++)
        begin += part[b]->receive[q];
      ck_assert_int_eq(part[a]->send[b], part[b]->receive[a]);
      for (int64_t k = 0; k < part[a]->send[b]; k++)
        ck_assert_int_eq(part[a]->node[part[a]->send_row[at + k]],
                         part[b]->halo_node[begin + k]);
    }
}

TEST(parts_hold_all_and_fit_together) {
  dfgnn_csr *csr = generated("powerlaw:nodes=500,edges=6000,max-degree=90");
  int32_t owner[500];
  for (int how = 0; how < DFGNN_PARTITION_COUNT; how++)
    for (int parts = 1; parts <= 7; parts += 3) {
      if (how == DFGNN_PARTITION_METIS &&
          !dfgnn__order_built(DFGNN_ORDER_METIS))
        continue;
      ck_assert_int_eq(
          dfgnn_csr_partition(owner, csr, parts, (dfgnn_partitioning)how), 0);
      check_parts(csr, owner, parts);
    }
  for (int i = 0; i < 500; i++) /* parts 0 and 2 have no node */
    owner[i] = i % 2 ? 1 : 3;
  check_parts(csr, owner, 4);
}

static uint64_t digest_of(const dfgnn_csr *csr, const int32_t *owner,
                          int parts) {
  return part_of(csr, owner, parts, 0)->digest;
}

TEST(each_division_has_its_digest) {
  dfgnn_csr *csr = generated("uniform:nodes=60,edges=300");
  dfgnn_csr *other = generated("uniform:nodes=60,edges=300,seed=2");
  int32_t owner[60] = {0};
  const uint64_t digest = digest_of(csr, owner, 2);
  ck_assert_uint_eq(digest_of(csr, owner, 2), digest);
  ck_assert_uint_ne(digest_of(csr, owner, 3), digest);
  ck_assert_uint_ne(digest_of(other, owner, 2), digest);
  owner[59] = 1;
  ck_assert_uint_ne(digest_of(csr, owner, 2), digest);
}

static double cut_share(const dfgnn_csr *csr, const int32_t *owner) {
  int64_t cut = 0;
  for (int64_t i = 0; i < csr->destinations; i++)
    for (int64_t e = dfgnn__csr_offset(csr, i);
         e < dfgnn__csr_offset(csr, i + 1); e++)
      cut += owner[i] != owner[dfgnn__csr_index(csr, e)];
  return (double)cut / (double)csr->edges;
}

/* A mesh of 600 x 600 nodes: four squares cut 1/600 of its edges. */
TEST(a_grouped_graph_is_cut_where_it_is_thin) {
  dfgnn_csr *csr = generated("grid:rows=600,columns=600");
  int32_t *owner = zeros_of(csr->destinations, sizeof *owner);
  int64_t work[4] = {0}, total = 0;
  if (!dfgnn__order_built(DFGNN_ORDER_METIS))
    return;
  ck_assert_int_gt(csr->edges, 1 << 20); /* else it is not grouped */
  ck_assert_int_eq(dfgnn_csr_partition(owner, csr, 4, DFGNN_PARTITION_METIS),
                   0);
  for (int64_t i = 0; i < csr->destinations; i++) {
    work[owner[i]] += dfgnn__row_work(csr, i);
    total += dfgnn__row_work(csr, i);
  }
  for (int p = 0; p < 4; p++)
    ck_assert_msg(work[p] < 1.06 * (double)total / 4, "part %d has %.3f", p,
                  4.0 * (double)work[p] / (double)total);
  ck_assert_msg(cut_share(csr, owner) < 0.02, "cut %.4f",
                cut_share(csr, owner));
}

TEST(the_fingerprint_is_the_signature_s) {
  dfgnn_csr *csr = generated("uniform:nodes=60,edges=300");
  dfgnn_context *ctx = cpu_context("");
  dfgnn_signature signature = DFGNN_SIGNATURE_INIT;
  int32_t owner[60] = {0};
  dfgnn_graph *graph = graph_on(ctx, csr);
  ck_ok(dfgnn_graph_signature(&signature, graph));
  ck_assert_uint_eq(part_of(csr, owner, 1, 0)->fingerprint,
                    signature.fingerprint);
}

TEST(mistakes_are_named) {
  dfgnn_csr *csr = generated("uniform:nodes=60,edges=300");
  dfgnn_csr *wide = generated("uniform:nodes=60,sources=80,edges=300");
  int32_t owner[80] = {0};
  dfgnn_part *part;
  ck_invalid(dfgnn_csr_partition(owner, csr, 0, DFGNN_PARTITION_RANGE),
             "parts is 0");
  ck_fails(dfgnn_csr_partition(owner, wide, 2, DFGNN_PARTITION_RANGE),
           DFGNN_ERROR_UNSUPPORTED, "60 x 80");
  owner[7] = 2;
  ck_invalid(dfgnn_part_create(&part, csr, owner, 2, 0), "owner[7] is 2");
  owner[7] = 1;
  ck_invalid(dfgnn_part_create(NULL, csr, owner, 2, 0), "part is NULL");
  dfgnn_partitioning how;
  ck_assert_int_eq(dfgnn_parse((int *)&how, DFGNN_NAMES_PARTITIONING, "random"),
                   DFGNN_ERROR_INVALID);
}

TEST(a_part_that_cannot_be_is_not_written) {
  dfgnn_csr *csr = generated("uniform:nodes=60,edges=300");
  int32_t owner[60] = {0};
  owner[7] = 1;
  dfgnn_part *part = part_of(csr, owner, 2, 0), wrong;
#define REFUSED(why, assignment)                                               \
  wrong = *part;                                                               \
  wrong.assignment;                                                            \
  ck_fails(dfgnn_part_write(&wrong, "/proc/none/part.npz"),                    \
           DFGNN_ERROR_INVALID, why);
  REFUSED("part.nodes is -1", nodes = -1)
  REFUSED("part.halo is -5", halo = -5)
  REFUSED("part.sends is", sends = INT64_MIN)
  REFUSED("part.edges is", edges = INT64_MAX)
  REFUSED("part.parts 0", parts = 0)
  REFUSED("part.rank is 2", rank = 2)
  REFUSED("part.node is NULL", node = NULL)
  REFUSED("part.offset is NULL", offset = NULL)
  REFUSED("part.offset goes from 0", edges = part->edges - 1)
  REFUSED("part.struct_size is 8", struct_size = 8)
  ck_invalid(dfgnn_part_write(part, NULL), "path is NULL");
  ck_invalid(dfgnn_part_write(NULL, "x"), "part is NULL");
}

TEST(a_part_replaces_a_part_and_no_other_archive) {
  char path[] = "/tmp/dfgnn-part-XXXXXX.npz";
  int fd = mkstemps(path, 4);
  ck_assert_int_ge(fd, 0);
  close(fd);
  dfgnn_csr *csr = generated("uniform:nodes=60,edges=300");
  int32_t owner[60] = {0};
  dfgnn_part *part = part_of(csr, owner, 1, 0);
  ck_ok(dfgnn_part_write(part, path)); /* over an empty file */
  ck_ok(dfgnn_part_write(part, path));
  ck_invalid(dfgnn_csr_write(csr, path),
             "not a matrix in an .npz archive is there");
  unlink(path);
  ck_ok(dfgnn_csr_write(csr, path));
  ck_invalid(dfgnn_part_write(part, path), "not a part of a graph is there");
  unlink(path);
}

TEST_MAIN("partition", .timeout = 60)
