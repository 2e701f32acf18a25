/* portfolio.c - which members a problem has, and which is their default */
#include "select/portfolio.h"

#include <math.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/common/cuda_host.h"
#include "lib/key.h"
#include "select/portfolio_table.h"

/* ---- how unlike problems and devices are --------------------------------- */

/* How many times as wide one thing is as another, in powers of two. */
static double apart(double a, double b) {
  return fabs(log2((a > 0 ? a : 1) / (b > 0 ? b : 1)));
}

/* Up to 16 features of an edge are held in registers; GAT's scalar of an edge
 * costs next to nothing. */
static int edge_class(const dfgnn_problem *p) {
  return p->edge_dim == 0 || p->op == DFGNN_OP_GAT ? 0
         : p->edge_dim == DFGNN_EDGE_PROJECTED     ? 1
         : p->edge_dim <= 16                       ? 2
                                                   : 3;
}

/* Operators that gather two rows of features and multiply them; their settings
 * serve each other better than those of other operators. */
static int is_product(dfgnn_op op) {
  return op == DFGNN_OP_GT || op == DFGNN_OP_AGNN;
}

static int16_t bits_of(const dfgnn_problem *p) {
  return (int16_t)(8 * dfgnn_dtype_size(p->dtype));
}

/* Can the members of a cell be asked for the problem at all? */
static int is_of_kind(const dfgnn_cell *c, const dfgnn_problem *p) {
  if (c->problem.pass != p->pass)
    return 0;
  for (int m = 0; m < c->members; m++) {
    const dfgnn_family *f = c->member[m].family;
    if (f && f->ops >> p->op & 1 && f->passes >> p->pass & 1)
      return 1;
  }
  return 0;
}

/* What matters most weighs most: features of edges, the message, the width of
 * numbers, one head or several, the operator, the bytes of a row and of a
 * head. */
static double unlike_problem(const dfgnn_problem *a, const dfgnn_problem *b) {
  const size_t a_bytes = dfgnn_dtype_size(a->dtype);
  const size_t b_bytes = dfgnn_dtype_size(b->dtype);
  double sum = 0;
  sum += (edge_class(a) != edge_class(b)) *
         ((a->edge_dim != 0) != (b->edge_dim != 0) ? 64 : 8);
  sum += 16 * (a->message != b->message);
  sum += 4 * (bits_of(a) != bits_of(b));
  sum += 3 * ((a->heads > 1) != (b->heads > 1));
  sum += a->op == b->op                           ? 0
         : is_product(a->op) && is_product(b->op) ? 0.5
                                                  : 1.6;
  sum += apart((double)(a->heads * a->dim) * (double)a_bytes,
               (double)(b->heads * b->dim) * (double)b_bytes);
  sum += 0.5 * apart((double)a->dim * (double)a_bytes,
                     (double)b->dim * (double)b_bytes);
  return sum;
}

static double unlike_device(const dfgnn_device_info *a,
                            const dfgnn_device_info *b) {
  return apart(a->units, b->units) +
         apart((double)a->cache_bytes, (double)b->cache_bytes);
}

/* ---- the variant of a member --------------------------------------------- */

/* The lanes of a GPU that load a row, or a head of it, at once: at most a warp.
 * Lanes load up to 16 bytes at a time, as many features as divide the width
 * (kernels/attention/cuda/plans.h): 24 floats are 6 loads, 17 are 17. Attention
 * gives lanes to each head; sums see the heads as one row. */
static int lanes_that_load(const dfgnn_problem *p, int of_row) {
  const int64_t heads = DFGNN_OPS_ATTENTION >> p->op & 1 ? p->heads : 1;
  const int64_t features = p->heads * p->dim / heads;
  int64_t width = dfgnn__wide_vector(p->dtype);
  while (features % width)
    width /= 2;
  const int64_t head = dfgnn__ceil_power(features / width);
  const int64_t row = of_row ? dfgnn__ceil_power(heads * head) : head;
  return row < 32 ? (int)row : 32;
}

static int number_of(const dfgnn_wanted *w, const dfgnn_problem *p) {
  if (w->as == DFGNN_WANTED_NUMBER || w->as == DFGNN_WANTED_LABEL)
    return w->times;
  const int lanes =
      lanes_that_load(p, w->as == DFGNN_WANTED_ROW) * w->times / w->over;
  return lanes > 1 ? lanes : 1;
}

/* 0 for the same value, 1/2 for twice as much, near 1 for another label; labels
 * are in an order: AVX2 comes nearer to AVX-512 than portable code does. */
static double unlike_value(const dfgnn_wanted *w, int wanted, int value) {
  if (wanted == value)
    return 0;
  if (w->as == DFGNN_WANTED_LABEL)
    return 0.9 - 0.1 / abs(wanted - value);
  if (wanted <= 0 || value <= 0)
    return 0.9;
  const double more =
      wanted > value ? (double)wanted / value : (double)value / wanted;
  return 1 - 1 / more;
}

int dfgnn__variant_runs(const dfgnn_variant *v, const dfgnn_setting *setting,
                        const unsigned char *broken) {
  return !(broken && broken[dfgnn__variant_index(v)]) &&
         !dfgnn__variant_refusal(v, setting);
}

/* The first parameters weigh most; those that the member does not name are to
 * have the family's first value.  It stops counting at `enough`. */
static double unlike_variant(const dfgnn_member *m, const int *wanted,
                             const dfgnn_variant *v, double enough) {
  double sum = 0, weight = 1;
  for (int k = 0; k < m->count && sum < enough; k++, weight /= 2)
    sum += weight * unlike_value(&m->wanted[k], wanted[k],
                                 v->parameter[m->wanted[k].parameter]);
  for (int p = 0; p < DFGNN_MAX_PARAMETERS && sum < enough &&
                  m->family->parameters[p].name;
       p++)
    sum += 1e-4 * (v->parameter[p] != m->family->parameters[p].values[0]);
  return sum;
}

static const dfgnn_variant *find_variant(const dfgnn_member *member,
                                         const dfgnn_setting *setting,
                                         const unsigned char *broken) {
  const dfgnn_variant *best = NULL;
  double least = HUGE_VAL;
  int wanted[DFGNN_MAX_PARAMETERS];
  for (int k = 0; k < member->count; k++)
    wanted[k] = number_of(&member->wanted[k], setting->problem);
  const dfgnn_variant *v = dfgnn__variant(member->first);
  const dfgnn_variant *end = dfgnn__variant(0) + dfgnn__variant_count();
  for (; v < end && v->family == member->family && least > 0; v++) {
    const double unlike = unlike_variant(member, wanted, v, least);
    if (unlike < least && dfgnn__variant_runs(v, setting, broken)) {
      best = v;
      least = unlike;
    }
  }
  return best;
}

static uint64_t fold_bytes(uint64_t hash, const void *data, size_t size) {
  const unsigned char *at = data;
  uint64_t word = 0;
  for (; size >= sizeof word; size -= sizeof word, at += sizeof word) {
    memcpy(&word, at, sizeof word);
    hash = dfgnn__fold(hash, word);
  }
  word = 0;
  memcpy(&word, at, size);
  return dfgnn__fold(hash, word);
}

/* A member that was measured has one variant for a problem, whatever the graph:
 * it is kept, since to find it takes longer than all else of a choice.  Where a
 * graph's arrays lie is no part of the key. */
static const dfgnn_variant *kept_variant(const dfgnn_member *member,
                                         const dfgnn_setting *setting) {
  enum { KEPT = 256 };
  static _Thread_local struct {
    uint64_t key;
    const dfgnn_variant *variant;
  } kept[KEPT];
  const dfgnn_matrix *m = setting->matrix;
  uint64_t key = fold_bytes(1, setting->problem, sizeof *setting->problem);
  key = fold_bytes(key, setting->device, sizeof *setting->device);
  key = fold_bytes(key, member, sizeof *member);
  key = fold_bytes(key, m, offsetof(dfgnn_matrix, offsets64)); /* sizes */
  key = dfgnn__fold(key, (uint64_t)m->relations);
  key = dfgnn__fold(key, m->offsets64 != 0);
  key = dfgnn__fold(key, m->refilled != 0);
  key = dfgnn__fold(key, m->edge_order != NULL);
  if (kept[key % KEPT].key != key) {
    kept[key % KEPT].variant = find_variant(member, setting, NULL);
    kept[key % KEPT].key = key;
  }
  return kept[key % KEPT].variant;
}

const dfgnn_variant *dfgnn__member_variant(const dfgnn_member *member,
                                           const dfgnn_setting *setting,
                                           const unsigned char *broken) {
  if (!member->family)
    return NULL;
  if (!member->measured)
    return find_variant(member, setting, broken);
  const dfgnn_signature *s = member->measured;
  dfgnn_setting there = *setting;
  dfgnn_matrix matrix = setting->matrix ? *setting->matrix : (dfgnn_matrix){0};
  there.signature = s;
  matrix.destinations = s->destinations;
  matrix.sources = s->sources;
  matrix.edges = s->edges;
  matrix.max_degree = s->max_degree;
  there.matrix = &matrix;
  const dfgnn_variant *v = broken || setting->program
                               ? find_variant(member, &there, broken)
                               : kept_variant(member, &there);
  return v && dfgnn__variant_runs(v, setting, broken) ? v : NULL;
}

/* ---- the cell that serves ------------------------------------------------ */

static int any_member_runs(const dfgnn_cell *c, const dfgnn_setting *setting) {
  for (int m = 0; m < c->members; m++)
    if (dfgnn__member_variant(&c->member[m], setting, NULL))
      return 1;
  return 0;
}

/* What a cell loses to one that is alike: if it was measured on another
 * architecture, and if it was not measured. */
static double unlike_cell(const dfgnn_cell *c, const dfgnn_setting *setting) {
  const double other_arch = 2, by_hand = 8;
  return unlike_problem(&c->problem, setting->problem) +
         other_arch * !!strcmp(c->device->info.arch, setting->device->arch) +
         by_hand * !c->graphs;
}

/* A cell is less alike, the more often a graph has twice the edges of the
 * cell's largest one.  On 15 graphs of 6 to 115 M edges cells that knew as
 * large ones served others (418 pairs up to 2.3 unlike) at 1.14 of the best
 * variant, cells that knew none themselves at 1.28. */
static double uncovered(const dfgnn_cell *c, const dfgnn_setting *setting) {
  const double twice = 0.25;
  const int64_t edges = setting->signature ? setting->signature->edges : 0;
  return c->graphs && edges > c->most_edges
             ? twice * log2((double)edges / (double)c->most_edges)
             : 0;
}

dfgnn_cell *dfgnn__portfolios_cell(double *unlike, const dfgnn_portfolios *all,
                                   const dfgnn_setting *setting,
                                   const dfgnn_cell *without) {
  dfgnn_cell *best = NULL;
  double least = HUGE_VAL, least_device = HUGE_VAL;
  *unlike = HUGE_VAL;
  for (size_t i = 0; i < all->cells; i++) {
    dfgnn_cell *c = all->cell[i];
    if (c == without ||
        strcmp(c->device->info.backend, setting->device->backend) ||
        !is_of_kind(c, setting->problem))
      continue;
    const double by_cell = unlike_cell(c, setting) + uncovered(c, setting);
    const double by_device = unlike_device(&c->device->info, setting->device);
    if ((by_cell < least || (by_cell <= least && by_device < least_device)) &&
        any_member_runs(c, setting)) {
      best = c;
      least = by_cell;
      least_device = by_device;
    }
  }
  if (best)
    *unlike = unlike_cell(best, setting);
  return best;
}

static dfgnn_cell *cell_of(double *unlike, const dfgnn_setting *setting) {
  return dfgnn__portfolios_cell(unlike, dfgnn__portfolios(), setting, NULL);
}

/* Where no cell was measured for the problem itself, the members of two are
 * tried.  The best of one cell's were at 1.03 to 1.27 times the best variant of
 * five such problems, of 94 graphs each, those of two at 1.01 to 1.03. */
static dfgnn_cell *second_of(const dfgnn_cell *first,
                             const dfgnn_setting *setting) {
  double unlike;
  return first && unlike_problem(&first->problem, setting->problem) > 0
             ? dfgnn__portfolios_cell(&unlike, dfgnn__portfolios(), setting,
                                      first)
             : NULL;
}

/* ---- the default --------------------------------------------------------- */

static int holds(const dfgnn_default *d, const dfgnn_setting *setting) {
  for (int k = 0; k < d->conditions; k++) {
    const dfgnn_condition *c = &d->condition[k];
    if ((dfgnn__quantity(&c->quantity, setting) > c->limit) != c->above)
      return 0;
  }
  return 1;
}

static const dfgnn_variant *default_of(const dfgnn_cell *c,
                                       const dfgnn_setting *setting,
                                       const unsigned char *broken,
                                       const char **because) {
  for (int d = 0; d < c->defaults; d++) {
    const dfgnn_variant *v =
        holds(&c->by[d], setting)
            ? dfgnn__member_variant(&c->member[c->by[d].member], setting,
                                    broken)
            : NULL;
    if (v) {
      *because = c->by[d].text;
      return v;
    }
  }
  for (int m = 0; m < c->members; m++) {
    const dfgnn_variant *v =
        dfgnn__member_variant(&c->member[m], setting, broken);
    *because = "the default does not run";
    if (v)
      return v;
  }
  return NULL;
}

/* Offered variants come first; a paper's serves where nothing else does. */
static const dfgnn_variant *first_that_runs(const dfgnn_setting *setting,
                                            const unsigned char *broken) {
  for (int paper = 0; paper < 2; paper++)
    for (size_t i = 0; i < dfgnn__variant_count(); i++) {
      const dfgnn_variant *v = dfgnn__variant(i);
      if (v->family->paper == paper && dfgnn__variant_runs(v, setting, broken))
        return v;
    }
  return NULL;
}

const dfgnn_variant *dfgnn__portfolio_default(const dfgnn_setting *setting,
                                              const unsigned char *broken,
                                              const char **because) {
  static _Thread_local char text[256];
  double unlike;
  const char *why = "";
  const dfgnn_cell *c = cell_of(&unlike, setting);
  const dfgnn_variant *v = c ? default_of(c, setting, broken, &why) : NULL;
  *because = text;
  snprintf(text, sizeof text, "the default of %s%s%s",
           dfgnn__portfolio_cell(setting), *why ? ": " : "", why);
  if (v)
    return v;
  snprintf(text, sizeof text, "the first variant that runs");
  return first_that_runs(setting, broken);
}

const char *dfgnn__portfolio_cell(const dfgnn_setting *setting) {
  static _Thread_local char text[80];
  double unlike;
  const dfgnn_cell *c = cell_of(&unlike, setting);
  snprintf(text, sizeof text, "%s%s%s", c ? c->name : "", c ? " of " : "",
           c ? c->device->info.arch : "");
  return text;
}

const char *dfgnn__portfolio_digest(void) {
  return dfgnn__portfolios()->digest;
}

/* ---- members ------------------------------------------------------------- */

static int add(const dfgnn_variant **member, int count, int capacity,
               const dfgnn_variant *v) {
  for (int i = 0; i < count; i++)
    if (member[i] == v)
      return count;
  if (v && count < capacity)
    member[count++] = v;
  return count;
}

static int is_known(const dfgnn_family *family) {
  const dfgnn_portfolios *all = dfgnn__portfolios();
  for (size_t i = 0; i < all->cells; i++)
    for (int m = 0; m < all->cell[i]->members; m++)
      if (all->cell[i]->member[m].family == family)
        return 1;
  for (size_t i = 0; i < all->unused; i++)
    if (all->unused_family[i] == family)
      return 1;
  return 0;
}

/* A family that was surveyed and has no member anywhere would have left the
 * library, so one that no portfolio knows is new. */
enum { NEW_FAMILIES = 64 };
static struct {
  size_t first, end; /* of its variants */
} new_family[NEW_FAMILIES];
static int new_families;

static void find_new_families(void) {
  const size_t count = dfgnn__variant_count();
  for (size_t i = 0, end; i < count && new_families < NEW_FAMILIES; i = end) {
    const dfgnn_family *f = dfgnn__variant(i)->family;
    for (end = i; end < count && dfgnn__variant(end)->family == f;)
      end++;
    if (dfgnn__variant_offered(dfgnn__variant(i)) && !is_known(f)) {
      new_family[new_families].first = i;
      new_family[new_families++].end = end;
    }
  }
}

/* A few settings of each new family, spread over all, come along. */
static int add_new_families(const dfgnn_variant **member, int count,
                            int capacity, const dfgnn_setting *setting,
                            const unsigned char *broken) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  enum { SETTINGS = 4 };
  pthread_once(&once, find_new_families);
  for (int n = 0; n < new_families; n++) {
    const size_t first = new_family[n].first, end = new_family[n].end;
    const dfgnn_family *f = dfgnn__variant(first)->family;
    const size_t step = (end - first + SETTINGS - 1) / SETTINGS;
    if (!strcmp(f->backend, setting->device->backend) &&
        f->ops >> setting->problem->op & 1)
      for (size_t i = first; i < end; i += step)
        if (dfgnn__variant_runs(dfgnn__variant(i), setting, broken))
          count = add(member, count, capacity, dfgnn__variant(i));
  }
  return count;
}

static int add_members(const dfgnn_variant **member, int count, int capacity,
                       const dfgnn_cell *c, const dfgnn_setting *setting,
                       const unsigned char *broken) {
  for (int m = 0; c && m < c->members; m++)
    count = add(member, count, capacity,
                dfgnn__member_variant(&c->member[m], setting, broken));
  return count;
}

int dfgnn__portfolio(const dfgnn_variant **member, int capacity,
                     const dfgnn_setting *setting,
                     const unsigned char *broken) {
  double unlike;
  const char *because;
  const dfgnn_cell *c = cell_of(&unlike, setting);
  const dfgnn_variant *v = c ? default_of(c, setting, broken, &because) : NULL;
  int count =
      add(member, 0, capacity, v ? v : first_that_runs(setting, broken));
  count = add_members(member, count, capacity, c, setting, broken);
  count = add_members(member, count, capacity, second_of(c, setting), setting,
                      broken);
  return add_new_families(member, count, capacity, setting, broken);
}

/* ---- ranking ------------------------------------------------------------- */

/* Writes what a cell predicts of its members, `more` than it says; 0: nothing.
 */
static int predict(double *log_ratio, const dfgnn_variant *const *member,
                   int count, dfgnn_cell *c, const dfgnn_setting *setting,
                   double more) {
  double predicted[DFGNN_CELL_MEMBERS];
  if (!c || c->unranked ||
      !dfgnn__cell_predict(predicted, c, dfgnn__portfolios(), setting, -1))
    return 0;
  for (int m = c->members - 1; m >= 0; m--) {
    const dfgnn_variant *v =
        dfgnn__member_variant(&c->member[m], setting, NULL);
    for (int i = 0; i < count; i++)
      if (member[i] == v)
        log_ratio[i] = predicted[m] + more;
  }
  return 1;
}

int dfgnn__portfolio_rank(double *log_ratio, const dfgnn_variant *const *member,
                          int count, const dfgnn_setting *setting) {
  /* Where cells that differ by more served each other, their times misled more
   * than their defaults did (select/make_portfolio.py's cells, each without
   * itself). */
  const double furthest = 2.25;
  const double new = 0.4;    /* of a variant that is no member */
  const double second = 0.2; /* more than the second cell says */
  double unlike;
  dfgnn_cell *c = cell_of(&unlike, setting);
  if (unlike > furthest)
    return 0;
  for (int i = 0; i < count; i++)
    log_ratio[i] = new;
  (void)predict(log_ratio, member, count, second_of(c, setting), setting,
                second);
  return predict(log_ratio, member, count, c, setting, 0);
}
