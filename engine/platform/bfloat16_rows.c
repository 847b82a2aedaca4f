/* Rows of floats times a weight of bfloat16, in passes of any width: see native_linear.py.

   The rows are rounded to bfloat16, sums are float32 and run over the inputs in one order, whatever rows
   lie beside: a row gets the same bits in every pass.
   Weights are stored in blocks of LANES outputs; in a block, two inputs of every output lie together. */
#include <immintrin.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tiles.h"

#if !defined(__AMX_BF16__)
#error "no tiles of bfloat16"
#endif
#define LANES 16
#define INPUTS 32 /* of a row are filled up to a multiple of this: a tile's width */

int lanes_of_a_block(void) { return LANES; }
int inputs_of_a_block(void) { return INPUTS; }
int has_tiles(void) { return tiles_are_permitted(); }

/* one row x -> q, filled up with 0 */
static void round_row(const float *x, long inputs, long stride, uint16_t *q) {
    for (long i = 0; i < stride; i += 16) {
        long left = inputs - i;
        __mmask16 there = left >= 16 ? 0xffff : left > 0 ? (1u << left) - 1 : 0;
        __m256bh rounded = _mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(there, x + i));
        memcpy(q + i, &rounded, sizeof rounded);
    }
}

/* a block's sums for 16 rows, or for 32 of them, which reads the weights once */
static void sum_rows(const uint16_t *w, const uint16_t *q, long stride, float sums[][LANES], int both) {
    _tile_zero(0);
    _tile_zero(1);
    for (long k = 0; k < stride; k += INPUTS) {
        _tile_loadd(4, w + k * LANES, 64);
        _tile_loadd(2, q + k, 2 * stride);
        _tile_dpbf16ps(0, 2, 4);
        if (both) {
            _tile_loadd(3, q + TILE * stride + k, 2 * stride);
            _tile_dpbf16ps(1, 3, 4);
        }
    }
    _tile_stored(0, sums, 64);
    if (both) _tile_stored(1, sums[TILE], 64);
}

/* x [n, inputs] -> y [n, outputs], and whether there was memory for it. w: blocks of
   [inputs / 2, filled up][LANES][2]; bias [outputs] or NULL */
int linear(const float *x, long n, long inputs, long outputs, const uint16_t *w, const float *bias, float *y,
           int threads) {
    long stride = (inputs + INPUTS - 1) / INPUTS * INPUTS, blocks = (outputs + LANES - 1) / LANES;
    long rows = (n + TILE - 1) / TILE * TILE;
    uint16_t *q = malloc(2 * rows * stride);
    if (!q) return 0;
    for (long r = 0; r < n; r++) round_row(x + r * inputs, inputs, stride, q + r * stride);
    memset(q + n * stride, 0, 2 * (rows - n) * stride);
    __asm__ volatile("" : : "r"(q) : "memory"); /* GCC 12 takes what is written here for unused */
#pragma omp parallel num_threads(threads)
    {
        tile_shapes before = configure_tiles();
#pragma omp for schedule(static)
        for (long b = 0; b < blocks; b++) {
            long first = b * LANES, count = outputs - first < LANES ? outputs - first : LANES;
            for (long r = 0; r < n; r += 2 * TILE) {
                float sums[2 * TILE][LANES];
                long some = n - r < 2 * TILE ? n - r : 2 * TILE;
                sum_rows(w + b * stride * LANES, q + r * stride, stride, sums, some > TILE);
                for (long i = 0; i < some; i++)
                    for (long o = 0; o < count; o++)
                        y[(r + i) * outputs + first + o] = sums[i][o] + (bias ? bias[first + o] : 0.0f);
            }
        }
        restore_tiles(before);
    }
    free(q);
    return 1;
}
