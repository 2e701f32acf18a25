/* sphere.h - points on the sphere: grids of weather models and icospheres
 *
 * Coordinates are whole numbers, DFGNN__SPHERE to the radius, and so are all
 * steps that lead to them: the points are the same on every machine. */
#ifndef DFGNN_IO_SPHERE_H
#define DFGNN_IO_SPHERE_H

#include "graph/io/build.h"

#define DFGNN__SPHERE ((int64_t)1 << 30)

typedef struct dfgnn__place {
  int32_t x, y, z;
} dfgnn__place;

typedef struct dfgnn__places {
  dfgnn__place *place;
  int64_t count;
} dfgnn__places;

typedef enum dfgnn__sphere_grid {
  DFGNN__OCTAHEDRAL, /* size rings per hemisphere, of 20, 24, 28 ... points */
  DFGNN__LATITUDE,   /* size points on rings, on each by its length */
  DFGNN__ICOSPHERE   /* an icosahedron whose triangles were quartered size
                      * times */
} dfgnn__sphere_grid;

void dfgnn__places_free(dfgnn__places *places);

/* The points of a grid; fails where size is out of its range. */
dfgnn_status dfgnn__sphere_places(dfgnn__places *places,
                                  dfgnn__sphere_grid grid, int64_t size);

/* The icosphere of a level, with the edges of levels coarsest .. level in both
 * directions. */
dfgnn_status dfgnn__icosphere(dfgnn__places *places, dfgnn__edges *edges,
                              int64_t level, int64_t coarsest);

/* Writes three numbers of each edge into parts: the length from row to source,
 * and the direction of the source from the row, to the east and to the north.
 */
dfgnn_status dfgnn__sphere_attributes(dfgnn__parts *parts,
                                      const dfgnn__places *rows,
                                      const dfgnn__places *sources);

#endif
