/* portfolio_table.h - portfolios as their text has them
 *
 * data/portfolios/README.md describes the text; a line is a statement.  */
#ifndef DFGNN_SELECT_PORTFOLIO_TABLE_H
#define DFGNN_SELECT_PORTFOLIO_TABLE_H

#include "dfgnn_tune.h"
#include "lib/registry.h"

enum {
  DFGNN_CELL_MEMBERS = 16,
  DFGNN_CELL_DEFAULTS = 6,
  DFGNN_CONDITIONS = 4, /* of a default */
  DFGNN_FACTORS = 6,    /* of a quantity */
  DFGNN_QUANTITIES = 48 /* of a device, by which its graphs are compared */
};

/* A product and quotient of numbers of a graph, a problem and a device, as
 * "max_degree*units/edges". */
typedef struct dfgnn_quantity {
  char text[64];
  int factors;
  struct {
    unsigned char number; /* its place in the table of portfolio_quantity.c */
    signed char power;    /* 1 or -1 */
  } factor[DFGNN_FACTORS];
} dfgnn_quantity;

/* 0: the text is none. */
int dfgnn__quantity_parse(dfgnn_quantity *quantity, const char *text);
double dfgnn__quantity(const dfgnn_quantity *quantity,
                       const dfgnn_setting *setting);

/* The members of a signature that the text has a column for, in its order. */
size_t dfgnn__signature_columns(void);
const char *dfgnn__signature_column(size_t i);
void dfgnn__signature_set(dfgnn_signature *signature, size_t i, double value);

/* The value of a member's parameter. */
typedef enum dfgnn_wanted_as {
  DFGNN_WANTED_NUMBER, /* lanes=16 */
  DFGNN_WANTED_LABEL,  /* order=place */
  DFGNN_WANTED_ROW,    /* lanes=row/2: of the lanes that load a row at once */
  DFGNN_WANTED_HEAD    /* lanes=head/2: that load a row of one head */
} dfgnn_wanted_as;

typedef struct dfgnn_wanted {
  int parameter; /* of the family */
  dfgnn_wanted_as as;
  int times, over; /* of a number: its value, 1 */
} dfgnn_wanted;

typedef struct dfgnn_member {
  const dfgnn_family *family; /* NULL: of a backend that is not built in */
  size_t first;               /* variant of the family; the others follow */
  int count;
  dfgnn_wanted wanted[DFGNN_MAX_PARAMETERS]; /* the most important first */
  const int16_t *time; /* [graphs] 100 times the logarithm of the time over the
                        * best variant's; DFGNN_TIME_NONE: it does not run */
  const dfgnn_signature *measured; /* of the graph on which it was best; NULL:
                                    * it was measured on none */
} dfgnn_member;
#define DFGNN_TIME_NONE INT16_MAX

typedef struct dfgnn_condition {
  dfgnn_quantity quantity;
  int above; /* 1: holds above the limit, 0: at or below */
  double limit;
} dfgnn_condition;

typedef struct dfgnn_default {
  int member, conditions;
  dfgnn_condition condition[DFGNN_CONDITIONS];
  char text[160]; /* "degree_cv > 0.7"; of the last default "" */
} dfgnn_default;

typedef struct dfgnn_device_portfolio dfgnn_device_portfolio;

typedef struct dfgnn_cell {
  char name[32];
  const dfgnn_device_portfolio *device;
  dfgnn_problem problem; /* that was surveyed */
  int members, defaults;
  dfgnn_member member[DFGNN_CELL_MEMBERS];
  dfgnn_default by[DFGNN_CELL_DEFAULTS];
  int unranked; /* trees did no better than the defaults on graphs left out */
  int graphs;   /* 0: written by hand, nothing was measured */
  const int16_t *graph;      /* [graphs] which of the table's */
  int64_t most_edges;        /* of these */
  struct dfgnn_grove *grove; /* portfolio_rank.c; NULL: not grown yet */
} dfgnn_cell;

struct dfgnn_device_portfolio {
  dfgnn_device_info info; /* backend, arch, units, cache */
  int quantities;
  dfgnn_quantity quantity[DFGNN_QUANTITIES];
};

typedef struct dfgnn_known_graph {
  char name[48];
  dfgnn_signature signature;
} dfgnn_known_graph;

typedef struct dfgnn_portfolios {
  size_t graphs, devices, cells, unused;
  dfgnn_known_graph *graph;
  dfgnn_device_portfolio **device;
  dfgnn_cell **cell;
  const dfgnn_family **unused_family; /* surveyed, and in no portfolio */
  char digest[DFGNN_DIGEST_SIZE];
} dfgnn_portfolios;

/* DFGNN_ERROR_FORMAT says which line is wrong, and what was expected; nothing
 * in the text is trusted.  name stands for the text in messages. */
dfgnn_status dfgnn__portfolios_read(dfgnn_portfolios *all, const char *name,
                                    const char *text, size_t size);
void dfgnn__portfolios_free(dfgnn_portfolios *all);

/* The text that travels in the library. */
const char *dfgnn__portfolios_text(size_t *size);

/* The portfolios in use: of that text, or of the file that DFGNN_PORTFOLIOS
 * names; read at the first call.  None if they cannot be read:
 * dfgnn__portfolios_open() says why. */
const dfgnn_portfolios *dfgnn__portfolios(void);

/* The cell that serves a problem, and how unlike the two are: 0 for the same
 * problem, 1 for twice the width; NULL: none is of its kind.  It is the most
 * alike of which a member runs, and among those that are as much alike that of
 * the device that is most like the setting's; `without` is passed over. */
dfgnn_cell *dfgnn__portfolios_cell(double *unlike, const dfgnn_portfolios *all,
                                   const dfgnn_setting *setting,
                                   const dfgnn_cell *without);

/* The variant that comes nearest to a member for the problem, on a graph that
 * the member was measured on; NULL: it does not run on this one, and the times
 * of the member say nothing of others. */
const dfgnn_variant *dfgnn__member_variant(const dfgnn_member *member,
                                           const dfgnn_setting *setting,
                                           const unsigned char *broken);

void dfgnn__grove_free(struct dfgnn_grove *grove);
/* portfolio_rank.c: predicted log ratios of a cell's members; 0 if its graphs
 * are too few.  leave_out: a known graph that takes no part, -1: none. */
int dfgnn__cell_predict(double *log_ratio, dfgnn_cell *cell,
                        const dfgnn_portfolios *all,
                        const dfgnn_setting *setting, int leave_out);

#endif
