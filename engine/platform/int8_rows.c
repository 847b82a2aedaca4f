/* Rows of floats times a weight of bytes, for passes of few rows: see native_linear.py.

   A row x is q * step + low with q in 0..255, so x . w = scale * (step * sum(q * w) + low * sum(w)).
   Sums of integers are exact: a row gets the same bits beside any others.
   Weights are stored in blocks of LANES outputs; in a block, four inputs of every output lie together. */
#include <immintrin.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tiles.h"

#if defined(__AVX512VNNI__)
#define LANES 16
#define ROWS 16 /* at once: their sums stay in registers */
typedef __m512i lanes;
#define ZERO() _mm512_setzero_si512()
#define SPREAD(word) _mm512_set1_epi32(word)
#define ADD_PRODUCTS(sum, q, w) _mm512_dpbusd_epi32(sum, q, w)
#define LOAD(from) _mm512_loadu_si512(from)
#define STORE(to, sum) _mm512_storeu_si512(to, sum)
#elif defined(__AVXVNNI__)
#define LANES 8
#define ROWS 8
typedef __m256i lanes;
#define ZERO() _mm256_setzero_si256()
#define SPREAD(word) _mm256_set1_epi32(word)
#define ADD_PRODUCTS(sum, q, w) _mm256_dpbusd_avx_epi32(sum, q, w)
#define LOAD(from) _mm256_loadu_si256((const __m256i *)(from))
#define STORE(to, sum) _mm256_storeu_si256((__m256i *)(to), sum)
#else
#error "no products of bytes"
#endif

#define INPUTS 64 /* of a row are filled up to a multiple of this: a tile's width */

int lanes_of_a_block(void) { return LANES; }
int inputs_of_a_block(void) { return INPUTS; }
int has_tiles(void) { return tiles_are_permitted(); }

/* one row x -> q, filled up with 0; not a number in it makes low one */
static void round_row(const float *x, long inputs, long stride, uint8_t *q, float *low, float *step) {
    float least[16], most[16];
    int missing[16] = {0};
    for (long j = 0; j < 16; j++) least[j] = most[j] = x[0];
    for (long i = 0; i < inputs; i += 16) {
        long count = inputs - i < 16 ? inputs - i : 16;
        for (long j = 0; j < count; j++) {
            float each = x[i + j];
            least[j] = each < least[j] ? each : least[j];
            most[j] = each > most[j] ? each : most[j];
            missing[j] |= each != each;
        }
    }
    int any = missing[0];
    for (long j = 1; j < 16; j++) {
        least[0] = least[j] < least[0] ? least[j] : least[0];
        most[0] = most[j] > most[0] ? most[j] : most[0];
        any |= missing[j];
    }
    float range = most[0] - least[0];
    float each = (range > 1e-30f ? range : 1e-30f) / 255.0f, inverse = 1.0f / each, from = least[0];
    for (long i = 0; i < inputs; i++) {
        float level = (x[i] - from) * inverse + 0.5f;
        q[i] = (uint8_t)(int)(level < 255.0f ? level : 255.0f);
    }
    memset(q + inputs, 0, stride - inputs);
    *low = any ? NAN : from;
    *step = each;
}

static void block(const int8_t *w, const uint8_t *q, long n, long stride, int32_t sums[][LANES]) {
    lanes sum[ROWS];
    for (long r = 0; r < ROWS; r++) sum[r] = ZERO();
#define OVER(count)                                                         \
    for (long k = 0; k < stride; k += 4, w += 4 * LANES) {                  \
        lanes weights = LOAD(w);                                            \
        _mm_prefetch((const char *)w + 2048, _MM_HINT_T0);                  \
        _Pragma("GCC unroll 16") for (long r = 0; r < count; r++) {         \
            int32_t word;                                                   \
            memcpy(&word, q + r * stride + k, 4);                           \
            sum[r] = ADD_PRODUCTS(sum[r], SPREAD(word), weights);           \
        }                                                                   \
    }
    switch (n) { /* a loop of known length keeps its sums in registers */
    case 1: OVER(1) break; case 2: OVER(2) break; case 3: OVER(3) break; case 4: OVER(4) break;
    case 5: OVER(5) break; case 6: OVER(6) break; case 7: OVER(7) break; case 8: OVER(8) break;
#if ROWS == 16
    case 9: OVER(9) break; case 10: OVER(10) break; case 11: OVER(11) break; case 12: OVER(12) break;
    case 13: OVER(13) break; case 14: OVER(14) break; case 15: OVER(15) break; case 16: OVER(16) break;
#endif
    }
    for (long r = 0; r < n; r++) STORE(sums[r], sum[r]);
}

#if defined(__AMX_INT8__)
/* the same as ``block`` for up to 16 rows, of which all 16 are read */
static void tiled(const int8_t *w, const uint8_t *q, long stride, int32_t sums[][LANES]) {
    _tile_zero(0);
    for (long k = 0; k < stride; k += INPUTS) {
        _tile_loadd(1, q + k, stride);
        _tile_loadd(2, w + k * LANES, 64);
        _tile_dpbusd(0, 1, 2);
    }
    _tile_stored(0, sums, 64);
}
#else
static void tiled(const int8_t *w, const uint8_t *q, long stride, int32_t sums[][LANES]) {}
#endif
#define FEW 2 /* rows up to which tiles take longer */

/* x [n, inputs] -> y [n, outputs], and whether there was memory for it. w: blocks of
   [inputs / 4, filled up][LANES][4]; scale and total [outputs], total: the sum of an output's weights;
   bias [outputs] or NULL; tiles: whether ``has_tiles`` */
int linear(const float *x, long n, long inputs, long outputs, const int8_t *w, const float *scale,
           const float *total, const float *bias, float *y, int threads, int tiles) {
    long stride = (inputs + INPUTS - 1) / INPUTS * INPUTS, blocks = (outputs + LANES - 1) / LANES;
    long rows = (n + TILE - 1) / TILE * TILE;
    int wide = tiles && n > FEW;
    uint8_t *q = malloc(rows * stride + 2 * n * sizeof(float));
    if (!q) return 0;
    float *low = (float *)(q + rows * stride), *step = low + n;
    for (long r = 0; r < n; r++) round_row(x + r * inputs, inputs, stride, q + r * stride, low + r, step + r);
    memset(q + n * stride, 0, (rows - n) * stride);
    __asm__ volatile("" : : "r"(q) : "memory");
#pragma omp parallel num_threads(threads)
    {
        tile_shapes before;
        if (wide) before = configure_tiles();
#pragma omp for schedule(static)
        for (long b = 0; b < blocks; b++) {
            long first = b * LANES, count = outputs - first < LANES ? outputs - first : LANES;
            for (long r = 0; r < n; r += ROWS) {
                int32_t sums[ROWS][LANES];
                long some = n - r < ROWS ? n - r : ROWS;
                if (wide)
                    tiled(w + b * stride * LANES, q + r * stride, stride, sums);
                else
                    block(w + b * stride * LANES, q + r * stride, some, stride, sums);
                for (long i = 0; i < some; i++)
                    for (long o = 0; o < count; o++) {
                        float found = (float)sums[i][o] * step[r + i] + low[r + i] * total[first + o];
                        float added = bias ? bias[first + o] : 0.0f;
                        y[(r + i) * outputs + first + o] = found * scale[first + o] + added;
                    }
            }
        }
        if (wide) restore_tiles(before);
    }
    free(q);
    return 1;
}
