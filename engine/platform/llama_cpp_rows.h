// Products of several rows with weights of Q4_1, Q5_0 and Q8_0; llama_cpp.cmake puts this into
// llamafile/sgemm.cpp. llama.cpp decodes Q4_1 anew for every row, and signs Q5_0 and Q8_0 anew.
// Here four rows of weights are decoded once for all rows of the pass. Each number is summed as in
// ggml_vec_dot_*, which multiplies a single row: a block's whole numbers in eight lanes, then one
// multiply-add a block and lane, and the same sum of the lanes. So a row has the same bits in every pass.

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#define SLIPSTREAM_ROWS 1

#include <vector>

namespace slipstream {

constexpr int WEIGHTS = 4; // rows of weights that are decoded at once
#if defined(__AVX512VL__)
constexpr int ROWS = 3; // rows of the pass whose sums are held in registers; with 4 GCC spills
#else
constexpr int ROWS = 2;
#endif

// sums + u * s, four neighbours in each lane; u from 0 to 255 with VNNI, to 127 without
inline __m256i dot(__m256i sums, __m256i u, __m256i s) {
#if defined(__AVX512VNNI__) && defined(__AVX512VL__)
    return _mm256_dpbusd_epi32(sums, u, s);
#elif defined(__AVXVNNI__)
    return _mm256_dpbusd_avx_epi32(sums, u, s);
#else
    return _mm256_add_epi32(sums, _mm256_madd_epi16(_mm256_set1_epi16(1), _mm256_maddubs_epi16(u, s)));
#endif
}

inline __m256i nibbles(const uint8_t * p) {
    const __m128i x = _mm_loadu_si128((const __m128i *) p);
    return _mm256_and_si256(_mm256_set1_epi8(15), _mm256_set_m128i(_mm_srli_epi16(x, 4), x));
}

// A type of weights: ``bytes`` are a block's from 0 on, ``BIAS`` what has to be taken from each again.
struct Q4_1 {
    typedef block_q4_1 A;
    typedef block_q8_1 B;
    static constexpr int BIAS = 0;
    static __m256i bytes(const A & x) { return nibbles(x.qs); }
    static float low(const A & x) { return unhalf(x.m); }
    static float sum(const B & y) { return unhalf(y.s); }
};

struct Q5_0 {
    typedef block_q5_0 A;
    typedef block_q8_0 B;
    static constexpr int BIAS = 16;
    static __m256i bytes(const A & x) {
        uint32_t high;
        memcpy(&high, x.qh, sizeof(high));
        const __m256i each = _mm256_set_epi64x(0x0303030303030303, 0x0202020202020202, 0x0101010101010101, 0);
        const __m256i bit = _mm256_set1_epi64x((long long) 0x8040201008040201ULL);
        const __m256i bits = _mm256_and_si256(_mm256_shuffle_epi8(_mm256_set1_epi32((int) high), each), bit);
        const __m256i set = _mm256_and_si256(_mm256_cmpeq_epi8(bits, bit), _mm256_set1_epi8(16));
        return _mm256_or_si256(nibbles(x.qs), set);
    }
    static float low(const A &) { return 0.0f; }
    static float sum(const B &) { return 0.0f; }
};

struct Q8_0 {
    typedef block_q8_0 A;
    typedef block_q8_0 B;
    static constexpr int BIAS = 128;
    static __m256i bytes(const A & x) {
        return _mm256_xor_si256(_mm256_loadu_si256((const __m256i *) x.qs), _mm256_set1_epi8((char) 128));
    }
    static float low(const A &) { return 0.0f; }
    static float sum(const B &) { return 0.0f; }
};

// Four rows of weights: as they are stored, and decoded where more than one tile reads them.
template <typename K>
struct Weights {
    const typename K::A * row[WEIGHTS];
    const typename K::A * next[WEIGHTS]; // of the four rows after these, which are fetched meanwhile
    std::vector<__m256i> bytes; // [blocks][WEIGHTS]
    std::vector<float> scales, lows;

    explicit Weights(int64_t decoded) : bytes(decoded), scales(decoded), lows(decoded) {}

    void point(const void * a, int64_t lda, int64_t first, int64_t m) {
        for (int i = 0; i < WEIGHTS; ++i) {
            const int64_t at = first + i, after = at + WEIGHTS;
            row[i] = (const typename K::A *) a + lda * (at < m ? at : first);
            next[i] = (const typename K::A *) a + lda * (after < m ? after : first);
        }
    }

    void decode(int64_t k) {
        for (int i = 0; i < WEIGHTS; ++i) {
            for (int64_t l = 0; l < k; ++l) {
                bytes[l * WEIGHTS + i] = K::bytes(row[i][l]);
                scales[l * WEIGHTS + i] = unhalf(row[i][l].d);
                lows[l * WEIGHTS + i] = K::low(row[i][l]);
            }
        }
    }
};

template <typename K, int N, bool DECODED>
NOINLINE void tile(const Weights<K> & w, int64_t k, const void * b, int64_t ldb, float * c, int64_t ldc, int valid) {
    __m256 acc[N][WEIGHTS] = {};
    __m128 low[N] = {};
    for (int64_t l = 0; l < k; ++l) {
        __m256i q[WEIGHTS];
        __m128 scales, lows = _mm_setzero_ps();
        if constexpr (DECODED) {
            for (int i = 0; i < WEIGHTS; ++i) {
                q[i] = w.bytes[l * WEIGHTS + i];
            }
            scales = _mm_loadu_ps(&w.scales[l * WEIGHTS]);
            lows = _mm_loadu_ps(&w.lows[l * WEIGHTS]);
        } else {
            for (int i = 0; i < WEIGHTS; ++i) {
                q[i] = K::bytes(w.row[i][l]);
                _mm_prefetch((const char *) (w.next[i] + l), _MM_HINT_T0);
            }
            scales = _mm_set_ps(unhalf(w.row[3][l].d), unhalf(w.row[2][l].d), unhalf(w.row[1][l].d), unhalf(w.row[0][l].d));
            if constexpr (K::BIAS == 0) {
                lows = _mm_set_ps(K::low(w.row[3][l]), K::low(w.row[2][l]), K::low(w.row[1][l]), K::low(w.row[0][l]));
            }
        }
        for (int j = 0; j < N; ++j) {
            const typename K::B & y = ((const typename K::B *) b)[ldb * j + l];
            const __m256i s = _mm256_loadu_si256((const __m256i *) y.qs);
            __m256i less = _mm256_setzero_si256();
            if constexpr (K::BIAS != 0) {
                less = _mm256_sub_epi32(less, dot(less, _mm256_set1_epi8((char) K::BIAS), s));
            }
            const __m128 both = _mm_mul_ps(scales, _mm_set1_ps(unhalf(y.d)));
            const __m256 d = _mm256_set_m128(both, both);
            acc[j][0] = _mm256_fmadd_ps(_mm256_shuffle_ps(d, d, 0x00), _mm256_cvtepi32_ps(dot(less, q[0], s)), acc[j][0]);
            acc[j][1] = _mm256_fmadd_ps(_mm256_shuffle_ps(d, d, 0x55), _mm256_cvtepi32_ps(dot(less, q[1], s)), acc[j][1]);
            acc[j][2] = _mm256_fmadd_ps(_mm256_shuffle_ps(d, d, 0xAA), _mm256_cvtepi32_ps(dot(less, q[2], s)), acc[j][2]);
            acc[j][3] = _mm256_fmadd_ps(_mm256_shuffle_ps(d, d, 0xFF), _mm256_cvtepi32_ps(dot(less, q[3], s)), acc[j][3]);
            if constexpr (K::BIAS == 0) {
                low[j] = _mm_fmadd_ps(lows, _mm_set1_ps(K::sum(y)), low[j]);
            }
        }
    }
    for (int j = 0; j < N; ++j) {
        float lows[WEIGHTS];
        _mm_storeu_ps(lows, low[j]);
        for (int i = 0; i < valid; ++i) {
            c[ldc * j + i] = K::BIAS == 0 ? hsum(acc[j][i]) + lows[i] : hsum(acc[j][i]);
        }
    }
}

template <typename K, bool DECODED>
void rows(int64_t m, int64_t n, int64_t k, const void * a, int64_t lda, const void * b, int64_t ldb, void * c,
          int64_t ldc, int ith, int nth) {
    const int64_t tiles = (m + WEIGHTS - 1) / WEIGHTS;
    Weights<K> w(DECODED ? k * WEIGHTS : 0);
    for (int64_t at = tiles * ith / nth; at < tiles * (ith + 1) / nth; ++at) {
        const int64_t first = at * WEIGHTS;
        const int valid = (int) (m - first < WEIGHTS ? m - first : WEIGHTS);
        w.point(a, lda, first, m);
        if constexpr (DECODED) {
            w.decode(k);
        }
        for (int64_t j = 0; j < n; j += ROWS) {
            const void * y = (const typename K::B *) b + ldb * j;
            float * out = (float *) c + ldc * j + first;
            switch (n - j < ROWS ? n - j : ROWS) {
                case 1: tile<K, 1, DECODED>(w, k, y, ldb, out, ldc, valid); break;
                case 2: tile<K, 2, DECODED>(w, k, y, ldb, out, ldc, valid); break;
                default: tile<K, ROWS, DECODED>(w, k, y, ldb, out, ldc, valid);
            }
        }
    }
}

// Decoding into memory pays where more than four tiles read it, and there is something to decode.
template <typename K>
bool product(int64_t m, int64_t n, int64_t k, const void * a, int64_t lda, const void * b, int64_t ldb, void * c,
             int64_t ldc, int ith, int nth) {
    if (n > 4 * ROWS && K::BIAS != 128) {
        rows<K, true>(m, n, k, a, lda, b, ldb, c, ldc, ith, nth);
    } else {
        rows<K, false>(m, n, k, a, lda, b, ldb, c, ldc, ith, nth);
    }
    return true;
}

// Whether there is a kernel for these types here; then this thread's part of the product is done.
inline bool multiplied(int type, int other, int64_t m, int64_t n, int64_t k, const void * a, int64_t lda,
                       const void * b, int64_t ldb, void * c, int64_t ldc, int ith, int nth) {
    if (type == GGML_TYPE_Q4_1 && other == GGML_TYPE_Q8_1) {
        return product<Q4_1>(m, n, k, a, lda, b, ldb, c, ldc, ith, nth);
    }
    if (type == GGML_TYPE_Q5_0 && other == GGML_TYPE_Q8_0) {
        return product<Q5_0>(m, n, k, a, lda, b, ldb, c, ldc, ith, nth);
    }
#if (defined(__AVX512VNNI__) && defined(__AVX512VL__)) || defined(__AVXVNNI__)
    if (type == GGML_TYPE_Q8_0 && other == GGML_TYPE_Q8_0) {
        return product<Q8_0>(m, n, k, a, lda, b, ldb, c, ldc, ith, nth);
    }
#endif
    return false;
}

} // namespace slipstream

extern "C" const char slipstream_floats[] = "slipstream: one row of float weights rounds as many do"; // the build's mark
#endif

