// Attention over a float16 cache whose rows have the same bits in every pass; see llama_cpp.cmake, which puts
// this text before ggml-cpu/ops.cpp's flash attention. That one rounds a row by how many rows there are.
//
// A row's scores are found first, so its largest one is known before any is raised to a power: no sum is
// ever scaled again, and each is added up cell by cell in their order. Cells that a row does not see change
// nothing. Up to eight rows and heads of one key share what is read and converted of it.
#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#define SLIPSTREAM_ATTENTION

#include <immintrin.h>

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <vector>

extern "C" const char slipstream_attention[];
const char slipstream_attention[] = "slipstream: rows of attention over float16 are alike";  // its mark

namespace slipstream {

constexpr int LANES = 8;           // rows of one tile: a vector has one number of each
constexpr int AT_ONCE = 4096;      // numbers of values that are float32 at once: half of a level 1 cache
constexpr uint16_t HIDDEN = 0xFC00;  // minus infinity, in a mask

// exp of numbers up to 0, with an error of some 1e-7 of it; 0 below -87. What is no number stays none.
static inline __m256 exp_of(__m256 x) {
    const __m256 there = _mm256_cmp_ps(x, _mm256_set1_ps(-87.0f), _CMP_NLT_UQ);
    const __m256 n = _mm256_round_ps(_mm256_mul_ps(x, _mm256_set1_ps(1.44269504f)), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0.693359375f), x);
    r = _mm256_fnmadd_ps(n, _mm256_set1_ps(-2.12194440e-4f), r);
    __m256 y = _mm256_set1_ps(1.9875691500e-4f);
    for (const float next : {1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f})
        y = _mm256_fmadd_ps(y, r, _mm256_set1_ps(next));
    y = _mm256_fmadd_ps(y, _mm256_mul_ps(r, r), _mm256_add_ps(r, _mm256_set1_ps(1.0f)));
    const __m256i power = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
    return _mm256_and_ps(_mm256_mul_ps(y, _mm256_castsi256_ps(power)), there);
}

static inline __m256 halves(const char * at) {
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *) at));
}

static inline float total(__m256 v) {
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    four = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(four, _mm_movehdup_ps(four)));
}

constexpr size_t AHEAD = 12;  // cells: their heads lie apart, which the processor does not fetch by itself

static inline void fetch(const char * at, int numbers) {
    for (int d = 0; d < numbers; d += 32)
        _mm_prefetch(at + 2 * d, _MM_HINT_T0);
}

struct Tile {
    int rows;
    const float * q[LANES];
    const uint16_t * mask[LANES];  // of each row, and then of the first again; all or none are null
    bool shared;                   // all have one mask
    float * out[LANES];
    alignas(32) float slope[LANES];
    float sink[LANES];
};

struct Cache {
    const char * k;
    const char * v;
    size_t k_stride, v_stride;  // bytes from cell to cell
    int64_t cells;
    int dk, dv;
    float scale, softcap;
    bool sinks;
};

struct Scratch {
    std::vector<int32_t> seen;    // cells that a row of the tile sees
    std::vector<float> scores;    // [cells][LANES]
    std::vector<float> values;    // [cells at once][dv]
    std::vector<float> sums;      // [LANES][dv]
};

static void look(const Tile & tile, const Cache & cache, std::vector<int32_t> & seen) {
    seen.clear();
    if (!tile.mask[0]) {
        for (int64_t c = 0; c < cache.cells; ++c)
            seen.push_back((int32_t) c);
        return;
    }
    const __m256i hidden = _mm256_set1_epi16((short) HIDDEN);
    int64_t c = 0;
    for (; c + 16 <= cache.cells; c += 16) {
        __m256i none = _mm256_set1_epi16(-1);
        for (int t = 0; t < tile.rows; ++t)
            if (!t || tile.mask[t] != tile.mask[t - 1])
                none = _mm256_and_si256(none, _mm256_cmpeq_epi16(_mm256_loadu_si256((const __m256i *) (tile.mask[t] + c)), hidden));
        for (uint32_t some = ~(uint32_t) _mm256_movemask_epi8(none); some; some &= some - 1) {
            const int bit = __builtin_ctz(some);
            some &= some - 1;  // two bits a cell
            seen.push_back((int32_t) (c + bit / 2));
        }
    }
    for (; c < cache.cells; ++c) {
        bool one = false;
        for (int t = 0; t < tile.rows; ++t)
            one = one || tile.mask[t][c] != HIDDEN;
        if (one)
            seen.push_back((int32_t) c);
    }
}

template <int ROWS, int CELLS>
static inline void multiply_some(const Tile & tile, const Cache & cache, const int32_t * cells, float * scores) {
    __m256 sums[ROWS * CELLS];
    for (int i = 0; i < ROWS * CELLS; ++i)
        sums[i] = _mm256_setzero_ps();
    for (int d = 0; d < cache.dk; d += 8) {
        for (int c = 0; c < CELLS; ++c) {
            const __m256 part = halves(cache.k + cells[c] * cache.k_stride + 2 * d);
            for (int t = 0; t < ROWS; ++t)
                sums[c * ROWS + t] = _mm256_fmadd_ps(_mm256_loadu_ps(tile.q[t] + d), part, sums[c * ROWS + t]);
        }
    }
    for (int i = 0; i < ROWS * CELLS; ++i)
        scores[i / ROWS * LANES + i % ROWS] = total(sums[i]);
}

// Few rows take several cells at once: each sum waits for its last product.
template <int ROWS>
static void multiply(const Tile & tile, const Cache & cache, const std::vector<int32_t> & seen, float * scores) {
    constexpr int CELLS = ROWS < 3 ? 4 : ROWS < 5 ? 2 : 1;
    size_t i = 0;
    for (; i + CELLS <= seen.size(); i += CELLS) {
        for (size_t c = i + AHEAD; c < std::min(i + AHEAD + CELLS, seen.size()); ++c)
            fetch(cache.k + seen[c] * cache.k_stride, cache.dk);
        multiply_some<ROWS, CELLS>(tile, cache, seen.data() + i, scores + i * LANES);
    }
    for (; i < seen.size(); ++i)
        multiply_some<ROWS, 1>(tile, cache, seen.data() + i, scores + i * LANES);
}

static void score(const Tile & tile, const Cache & cache, const std::vector<int32_t> & seen, float * scores) {
    switch (tile.rows) {
        case 1: return multiply<1>(tile, cache, seen, scores);
        case 2: return multiply<2>(tile, cache, seen, scores);
        case 3: return multiply<3>(tile, cache, seen, scores);
        case 4: return multiply<4>(tile, cache, seen, scores);
        case 5: return multiply<5>(tile, cache, seen, scores);
        case 6: return multiply<6>(tile, cache, seen, scores);
        case 7: return multiply<7>(tile, cache, seen, scores);
        default: return multiply<8>(tile, cache, seen, scores);
    }
}

// What the mask adds to the scores of one cell.
static inline __m256 biases(const Tile & tile, int32_t cell) {
    const auto & m = tile.mask;
    const __m128i found = tile.shared ? _mm_set1_epi16((short) m[0][cell])
        : _mm_setr_epi16(m[0][cell], m[1][cell], m[2][cell], m[3][cell], m[4][cell], m[5][cell], m[6][cell], m[7][cell]);
    return _mm256_mul_ps(_mm256_load_ps(tile.slope), _mm256_cvtph_ps(found));
}

// Scores with scale and mask; returns the largest of each row.
static __m256 finish(const Tile & tile, const Cache & cache, const std::vector<int32_t> & seen, float * scores) {
    __m256 most = _mm256_set1_ps(-INFINITY);
    for (size_t i = 0; i < seen.size(); ++i) {
        __m256 s = _mm256_mul_ps(_mm256_loadu_ps(scores + i * LANES), _mm256_set1_ps(cache.scale));
        if (cache.softcap != 0.0f) {
            alignas(32) float each[LANES];
            _mm256_store_ps(each, s);
            for (int t = 0; t < tile.rows; ++t)
                each[t] = cache.softcap * tanhf(each[t]);
            s = _mm256_load_ps(each);
        }
        if (tile.mask[0])
            s = _mm256_add_ps(s, biases(tile, seen[i]));
        most = _mm256_max_ps(most, s);
        _mm256_storeu_ps(scores + i * LANES, s);
    }
    return most;
}

// Powers of the scores in their place; returns each row's sum.
static __m256 raise(__m256 most, size_t cells, float * scores) {
    const __m256 least = _mm256_max_ps(most, _mm256_set1_ps(-FLT_MAX));  // of a row that sees nothing
    __m256 sum = _mm256_setzero_ps();
    for (size_t i = 0; i < cells; ++i) {
        const __m256 p = exp_of(_mm256_sub_ps(_mm256_loadu_ps(scores + i * LANES), least));
        sum = _mm256_add_ps(sum, p);
        _mm256_storeu_ps(scores + i * LANES, p);
    }
    return sum;
}

template <int WIDE>
static void add(const float * values, int dv, const float * powers, size_t cells, float * sums) {
    __m256 part[WIDE];
    for (int j = 0; j < WIDE; ++j)
        part[j] = _mm256_loadu_ps(sums + 8 * j);
    for (size_t i = 0; i < cells; ++i) {
        if (powers[i * LANES] == 0.0f)
            continue;
        const __m256 p = _mm256_set1_ps(powers[i * LANES]);
        for (int j = 0; j < WIDE; ++j)
            part[j] = _mm256_fmadd_ps(p, _mm256_loadu_ps(values + i * dv + 8 * j), part[j]);
    }
    for (int j = 0; j < WIDE; ++j)
        _mm256_storeu_ps(sums + 8 * j, part[j]);
}

static void mix(const Tile & tile, const Cache & cache, Scratch & own) {
    const int dv = cache.dv;
    const size_t together = std::max(AT_ONCE / dv, 1);
    own.values.resize(together * dv);
    own.sums.assign((size_t) LANES * dv, 0.0f);
    for (size_t first = 0; first < own.seen.size(); first += together) {
        const size_t cells = std::min(together, own.seen.size() - first);
        for (size_t i = 0; i < cells; ++i) {
            const char * value = cache.v + own.seen[first + i] * cache.v_stride;
            if (first + i + AHEAD < own.seen.size())
                fetch(cache.v + own.seen[first + i + AHEAD] * cache.v_stride, dv);
            for (int d = 0; d < dv; d += 8)
                _mm256_storeu_ps(own.values.data() + i * dv + d, halves(value + 2 * d));
        }
        for (int t = 0; t < tile.rows; ++t) {
            const float * powers = own.scores.data() + first * LANES + t;
            float * sums = own.sums.data() + (size_t) t * dv;
            int d = 0;
            for (; d + 64 <= dv; d += 64)
                add<8>(own.values.data() + d, dv, powers, cells, sums + d);
            for (; d + 32 <= dv; d += 32)
                add<4>(own.values.data() + d, dv, powers, cells, sums + d);
            for (; d < dv; d += 8)
                add<1>(own.values.data() + d, dv, powers, cells, sums + d);
        }
    }
}

static void attend(const Tile & tile, const Cache & cache, Scratch & own) {
    look(tile, cache, own.seen);
    own.scores.resize(std::max(own.scores.size(), own.seen.size() * LANES));
    score(tile, cache, own.seen, own.scores.data());
    alignas(32) float most[LANES], sum[LANES];
    const __m256 largest = finish(tile, cache, own.seen, own.scores.data());
    _mm256_store_ps(most, largest);
    _mm256_store_ps(sum, raise(largest, own.seen.size(), own.scores.data()));
    mix(tile, cache, own);
    for (int t = 0; t < tile.rows; ++t) {
        float whole = sum[t], factor = 1.0f;
        if (cache.sinks) {  // one more score, without a value
            const float top = std::max(most[t], tile.sink[t]);
            factor = expf(most[t] - top);
            whole = whole * factor + expf(tile.sink[t] - top);
        }
        factor = whole == 0.0f ? 0.0f : factor / whole;
        for (int d = 0; d < cache.dv; ++d)
            tile.out[t][d] = own.sums[(size_t) t * cache.dv + d] * factor;
    }
}

// Whether the attention was computed here.
static bool attended(const ggml_compute_params * params, ggml_tensor * dst) {
    const ggml_tensor * q = dst->src[0], * k = dst->src[1], * v = dst->src[2], * mask = dst->src[3], * sinks = dst->src[4];
    const bool halved = k->type == GGML_TYPE_F16 && v->type == GGML_TYPE_F16 && q->type == GGML_TYPE_F32;
    if (params->use_ref || !halved || k->ne[0] % 8 || v->ne[0] % 8 || k->ne[2] != v->ne[2] || k->ne[3] != v->ne[3])
        return false;
    float scale, max_bias, softcap;
    memcpy(&scale, (const float *) dst->op_params + 0, sizeof(float));
    memcpy(&max_bias, (const float *) dst->op_params + 1, sizeof(float));
    memcpy(&softcap, (const float *) dst->op_params + 2, sizeof(float));
    const int64_t rows = q->ne[1], heads = q->ne[2], shared = heads / k->ne[2], streams = q->ne[3] / k->ne[3];
    const int64_t pairs = rows * shared, groups = k->ne[2] * q->ne[3];  // rows and heads of one key
    const uint32_t level = 1u << (uint32_t) floor(log2((double) heads));
    const float m0 = powf(2.0f, -max_bias / level), m1 = powf(2.0f, -max_bias / 2.0f / level);
    static thread_local Scratch own;

    const auto compute = [&](int64_t group, int64_t first, int64_t end) {
        const int64_t i3 = group / k->ne[2], ik = group % k->ne[2], k3 = i3 / streams;
        const Cache cache = {
            (const char *) k->data + ik * k->nb[2] + k3 * k->nb[3], (const char *) v->data + ik * v->nb[2] + k3 * v->nb[3],
            k->nb[1], v->nb[1], k->ne[1], (int) k->ne[0], (int) v->ne[0], softcap != 0.0f ? scale / softcap : scale, softcap, sinks != nullptr,
        };
        Tile tile = {};
        tile.rows = (int) (end - first);
        for (int t = 0; t < tile.rows; ++t) {
            const int64_t row = (first + t) / shared, head = ik * shared + (first + t) % shared;
            tile.q[t] = (const float *) ((const char *) q->data + row * q->nb[1] + head * q->nb[2] + i3 * q->nb[3]);
            tile.out[t] = (float *) ((char *) dst->data + (i3 * dst->ne[2] * dst->ne[1] + head + row * dst->ne[1]) * dst->nb[1]);
            tile.slope[t] = max_bias <= 0.0f ? 1.0f : head < level ? powf(m0, head + 1) : powf(m1, 2 * (head - level) + 1);
            if (mask)
                tile.mask[t] = (const uint16_t *) ((const char *) mask->data + row * mask->nb[1] + (head % mask->ne[2]) * mask->nb[2] + (i3 % mask->ne[3]) * mask->nb[3]);
            if (sinks)
                tile.sink[t] = ((const float *) sinks->data)[head];
        }
        tile.shared = true;
        for (int t = 0; t < LANES; ++t) {
            tile.mask[t] = tile.mask[t < tile.rows ? t : 0];
            tile.shared = tile.shared && tile.mask[t] == tile.mask[0];
        }
        attend(tile, cache, own);
    };

    const int64_t tiles = (pairs + LANES - 1) / LANES, all = groups * pairs;
    if (all >= 4 * LANES * params->nth) {  // later rows of a prompt see more: every thread gets some of each
        for (int64_t u = params->ith; u < groups * tiles; u += params->nth)
            compute(u / tiles, u % tiles * LANES, std::min(u % tiles * LANES + LANES, pairs));
        return true;
    }
    const int64_t end = all * (params->ith + 1) / params->nth;
    for (int64_t at = all * params->ith / params->nth; at < end;) {
        const int64_t next = std::min({end, (at / pairs + 1) * pairs, at + LANES});
        compute(at / pairs, at % pairs, at % pairs + next - at);
        at = next;
    }
    return true;
}

}  // namespace slipstream
#endif

