/* Rows of floats times a weight of bfloat16, in passes of any width: see native_linear.py.

   The rows are rounded to bfloat16, sums are float32 and run over the inputs in one order, whatever rows
   lie beside: a row gets the same bits in every pass.
   Weights are stored in blocks of LANES outputs; in a block, two inputs of every output lie together. */
#include <immintrin.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tiles.h"

#define LANES 16
#define INPUTS 32 /* of a row are filled up to a multiple of this: a tile's width */
#if defined(__AMX_BF16__)
#define ROWS (2 * TILE) /* at once */
int runs_here(void) { return tiles_are_permitted(); }
#elif defined(__AVX512BF16__)
#define ROWS 16 /* at once: their sums stay in registers */
int runs_here(void) { return 1; }
#else
#error "no products of bfloat16"
#endif

int lanes_of_a_block(void) { return LANES; }
int inputs_of_a_block(void) { return INPUTS; }

/* one row x -> q, filled up with 0 */
static void round_row(const float *x, long inputs, long stride, uint16_t *q) {
    for (long i = 0; i < stride; i += 16) {
        long left = inputs - i;
        __mmask16 there = left >= 16 ? 0xffff : left > 0 ? (1u << left) - 1 : 0;
        __m256bh rounded = _mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(there, x + i));
        memcpy(q + i, &rounded, sizeof rounded);
    }
}

#if defined(__AMX_BF16__)
/* a block's sums for 16 rows, or for 32 of them, which reads the weights once */
static void sum_rows(const uint16_t *w, const uint16_t *q, long n, long stride, float sums[][LANES]) {
    int both = n > TILE;
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
#else
/* a block's sums for at most ROWS rows; each row adds its products in the same order */
static void sum_rows(const uint16_t *w, const uint16_t *q, long n, long stride, float sums[][LANES]) {
    __m512 sum[ROWS];
    for (long r = 0; r < ROWS; r++) sum[r] = _mm512_setzero_ps();
#define OVER(count)                                                                     \
    for (long k = 0; k < stride; k += 2, w += 2 * LANES) {                              \
        __m512bh weights = (__m512bh)_mm512_loadu_si512(w);                             \
        _mm_prefetch((const char *)w + 2048, _MM_HINT_T0);                              \
        _Pragma("GCC unroll 16") for (long r = 0; r < count; r++) {                     \
            int32_t pair;                                                               \
            memcpy(&pair, q + r * stride + k, 4);                                       \
            sum[r] = _mm512_dpbf16_ps(sum[r], (__m512bh)_mm512_set1_epi32(pair), weights); \
        }                                                                               \
    }
    switch (n) { /* a loop of known length keeps its sums in registers */
    case 1: OVER(1) break; case 2: OVER(2) break; case 3: OVER(3) break; case 4: OVER(4) break;
    case 5: OVER(5) break; case 6: OVER(6) break; case 7: OVER(7) break; case 8: OVER(8) break;
    case 9: OVER(9) break; case 10: OVER(10) break; case 11: OVER(11) break; case 12: OVER(12) break;
    case 13: OVER(13) break; case 14: OVER(14) break; case 15: OVER(15) break; case 16: OVER(16) break;
    }
    for (long r = 0; r < n; r++) _mm512_storeu_ps(sums[r], sum[r]);
}
#endif

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
            for (long r = 0; r < n; r += ROWS) {
                float sums[ROWS][LANES];
                long some = n - r < ROWS ? n - r : ROWS;
                sum_rows(w + b * stride * LANES, q + r * stride, some, stride, sums);
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
