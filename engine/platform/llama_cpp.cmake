# Read after project(ggml) when set-up compiles llama.cpp; engine/platform/toolchain.py passes its path.
#
# Where K-quants are rounded on x86. One row of a pass goes through other kernels than four or eight.
# Both add the same whole numbers, yet one multiplies by the scales after a block of 256 weights and
# the other after a part of it, or in eight lanes. So a drafted token got other bits than a plain one,
# and near ties were decided differently. Here the kernels for one row round where the wide ones do.
# Where one of these texts is not found, nothing is changed: the engine compares rows at load.

set(x86 "${CMAKE_CURRENT_SOURCE_DIR}/src/ggml-cpu/arch/x86")

# repack.cpp, Q4_K and Q2_K: gemm multiplies by the scales after each part.
set(repack_before [=[
                    iacc_b = _mm256_add_epi32(iacc_b, iacc_sb);
                    iacc_min_b = _mm256_add_epi32(iacc_min_b, iacc_min_sb);
]=])
set(repack_after [=[
                    acc_row = _mm256_fmadd_ps(_mm256_cvtepi32_ps(iacc_sb), _mm256_mul_ps(col_scale_f32, row_scale_f32), acc_row);
                    acc_min_rows = _mm256_fmadd_ps(_mm256_cvtepi32_ps(iacc_min_sb), _mm256_mul_ps(col_dmin_f32, row_scale_f32), acc_min_rows);
]=])

# quants.c: the tiled kernels add up a block before they multiply by its scales.
set(helper_before [=[
// horizontally add 4 int32_t
]=])
set(helper_after [=[
const char slipstream_rounding[] = "slipstream: one row of K-quants rounds as eight do"; // its mark

#if defined(__AVX2__)
// acc + d1 * (d0 * sums - dmin * mins) in the lowest lane
static inline __m256 slipstream_add(__m256 acc, __m256i sums, float d0, int mins, float dmin, float d1) {
    __m128 one = _mm_mul_ss(_mm_set_ss((float) hsum_i32_8(sums)), _mm_set_ss(d0));
    one = _mm_fnmadd_ss(_mm_set_ss(dmin), _mm_set_ss((float) mins), one);
    one = _mm_fmadd_ss(one, _mm_set_ss(d1), _mm256_castps256_ps128(acc));
    return _mm256_insertf128_ps(_mm256_setzero_ps(), one, 0);
}
#endif

// horizontally add 4 int32_t
]=])
set(q4_before [=[
        acc = _mm256_fmadd_ps(vd, _mm256_cvtepi32_ps(sumi), acc);

    }

    acc_m = _mm_add_ps(acc_m, _mm_movehl_ps(acc_m, acc_m));
    acc_m = _mm_add_ss(acc_m, _mm_movehdup_ps(acc_m));

    *s = hsum_float_8(acc) + _mm_cvtss_f32(acc_m);
]=])
set(q4_after [=[
        acc = slipstream_add(acc, sumi, GGML_CPU_FP16_TO_FP32(x[i].d), hsum_i32_4(prod), GGML_CPU_FP16_TO_FP32(x[i].dmin), y[i].d);
        UNUSED(vd);
    }

    UNUSED(acc_m);
    *s = hsum_float_8(acc);
]=])
set(q5_before [=[
        acc = _mm256_fmadd_ps(vd, _mm256_cvtepi32_ps(sumi), acc);

    }

    *s = hsum_float_8(acc) + summs;
]=])
set(q5_after [=[
        acc = slipstream_add(acc, sumi, GGML_CPU_FP16_TO_FP32(x[i].d), _mm_extract_epi32(hsum, 0), GGML_CPU_FP16_TO_FP32(x[i].dmin), y[i].d);
        UNUSED(vd);
    }

    UNUSED(summs);
    *s = hsum_float_8(acc);
]=])
set(q6_before [=[
        sumi = _mm256_sub_epi32(sumi, q8sclsub);
        acc = _mm256_fmadd_ps(_mm256_broadcast_ss(&d), _mm256_cvtepi32_ps(sumi), acc);
]=])
set(q6_after [=[
        sumi = _mm256_sub_epi32(sumi, q8sclsub);
        acc = slipstream_add(acc, sumi, GGML_CPU_FP16_TO_FP32(x[i].d), 0, 0.0f, y[i].d);
        UNUSED(d);
]=])

# llamafile/sgemm.cpp: kernels of our own for Q4_1, Q5_0 and Q8_0.
file(READ "${CMAKE_CURRENT_LIST_DIR}/llama_cpp_rows.h" own_kernels)
set(kernels_before [=[
bool llamafile_sgemm(const struct ggml_compute_params * params, int64_t m, int64_t n, int64_t k,
                     const void *A, int64_t lda, const void *B, int64_t ldb, void *C,
                     int64_t ldc, int Atype, int Btype, int Ctype) {
]=])
set(kernels_after "${own_kernels}${kernels_before}")
set(call_before [=[
    if (Ctype != GGML_TYPE_F32)
        return false;

    switch (Atype) {
]=])
set(call_after [=[
    if (Ctype != GGML_TYPE_F32)
        return false;

#if defined(SLIPSTREAM_ROWS)
    if (slipstream::multiplied(Atype, Btype, m, n, k, A, lda, B, ldb, C, ldc, params->ith, params->nth))
        return true;
#endif

    switch (Atype) {
]=])

# llamafile/sgemm.cpp, weights of F32, F16 and BF16 (routers of experts, RWKV's small maps, whole files):
# several rows add up in one order, and one row was left to a kernel with another.
set(single_before [=[
    bool matmul(int64_t m, int64_t n) {
        if (k % KN != 0)
            return false;
]=])
set(single_after [=[
    // Each sum in the same order as in a pass of several rows. Four rows of weights side by side would
    // take up to twice as long: the processor fetches one stream ahead, and not four.
    bool one_row(int64_t m) {
        const int64_t end = m * (params->ith + 1) / params->nth;
        for (int64_t ii = m * params->ith / params->nth; ii < end; ++ii)
            gemm_bloc<1, 1>(ii, 0);
        return true;
    }

    bool matmul(int64_t m, int64_t n) {
        if (k % KN != 0)
            return false;
        if (n == 1)
            return m % 4 == 0 && one_row(m);
]=])
set(narrow_before [=[
#if !defined(__MMA__)
    if (n < 2)
        return false;
#endif
]=])
set(narrow_after [=[
#if defined(SLIPSTREAM_ROWS)
    if (n < 2 && Atype != GGML_TYPE_F32 && Atype != GGML_TYPE_F16 && Atype != GGML_TYPE_BF16)
        return false;
#elif !defined(__MMA__)
    if (n < 2)
        return false;
#endif
]=])

# ops.cpp: attention of our own over a float16 cache.
file(READ "${CMAKE_CURRENT_LIST_DIR}/llama_cpp_attention.h" own_attention)
set(flash_before [=[
static void ggml_compute_forward_flash_attn_ext_f16(
        const ggml_compute_params * params,
        ggml_tensor * dst) {

]=])
set(flash_after "${own_attention}${flash_before}")
set(way_before [=[
    const bool use_ref = params->use_ref;
]=])
set(way_after [=[
    const bool use_ref = params->use_ref;
#if defined(SLIPSTREAM_ATTENTION)
    if (slipstream::attended(params, dst))
        return;
#endif
]=])

# amx/mmq.cpp: AMX's tiles were set up once in a thread. Torch sets them up, too, for products of bfloat16, and
# leaves none: the next product of llama.cpp in that thread ended the process (an illegal instruction).
set(tiles_before [=[
    static thread_local bool done = false;

    if (done) {
        return;
    }

    alignas(64) tile_config_t tc = {};
]=])
set(tiles_after [=[
    bool done = false;  // slipstream: always, since other libraries of the process change the tiles

    alignas(64) tile_config_t tc = {};
]=])

# llama.cpp's own src/models/delta-net-base.cpp: a pass writes the convolution's inputs behind each of the
# last 17 rows, of a plain pass sixteen times the old ones, to which nothing goes back. Each layer takes
# so many small copies. Going back 16 rows cost 14 to 19 % of a pass of 110 M weights, and 4 to 6 without.
set(planes_before [=[
        for (int64_t t = 1; t <= K; ++t) {
]=])
set(planes_after [=[
        const int64_t slipstream_written = std::min<int64_t>(K, conv_input->ne[0] - conv_states->ne[0]);
        for (int64_t t = K - slipstream_written + 1; t <= K; ++t) {
]=])

# ggml-backend.cpp: a new cache is as long as the longest conversations that were planned, and zeros were
# written into all of it. On Linux its pages are given back instead: they read as zeros, and take memory as
# conversations grow. Locked memory stays, and is written.
set(clear_before [=[
static void ggml_backend_cpu_buffer_clear(ggml_backend_buffer_t buffer, uint8_t value) {
    GGML_ASSERT(buffer);
    memset(buffer->context, value, buffer->size);
}
]=])
set(clear_after [=[
#if defined(__linux__)
#include <sys/mman.h>
#include <unistd.h>

// Whether memory of malloc was zeroed by giving back its whole pages.
static bool slipstream_given_back(char * data, size_t size) {
    const size_t page = (size_t) sysconf(_SC_PAGESIZE);
    const size_t head = (page - (uintptr_t) data % page) % page;
    const size_t whole = size > head ? (size - head) / page * page : 0;
    if (whole < ((size_t) 1 << 21) || madvise(data + head, whole, MADV_DONTNEED) != 0)
        return false;
    memset(data, 0, head);
    memset(data + head + whole, 0, size - head - whole);
    return true;
}
#endif

static void ggml_backend_cpu_buffer_clear(ggml_backend_buffer_t buffer, uint8_t value) {
    GGML_ASSERT(buffer);
#if defined(__linux__)
    const bool own = buffer->iface.free_buffer == ggml_backend_cpu_buffer_free_buffer;
    if (own && value == 0 && slipstream_given_back((char *) buffer->context, buffer->size))
        return;
#endif
    memset(buffer->context, value, buffer->size);
}
]=])

# Reads ``file`` into ``text``, with all of these changes made; ``changed`` is false where one was not.
function(slipstream_change file text changed)
  set(all TRUE)
  file(READ "${file}" content)
  foreach(name IN LISTS ARGN)
    string(FIND "${content}" "${${name}_before}" place)
    if(place EQUAL -1)
      set(all FALSE)
    endif()
    string(REPLACE "${${name}_before}" "${${name}_after}" content "${content}")
  endforeach()
  set(${text} "${content}" PARENT_SCOPE)
  set(${changed} ${all} PARENT_SCOPE)
endfunction()

set(sgemm "${CMAKE_CURRENT_SOURCE_DIR}/src/ggml-cpu/llamafile/sgemm.cpp")
if(EXISTS "${x86}/repack.cpp" AND EXISTS "${x86}/quants.c" AND EXISTS "${sgemm}")
  slipstream_change("${x86}/repack.cpp" repack blocks repack)
  slipstream_change("${x86}/quants.c" quants rows helper q4 q5 q6)
  slipstream_change("${sgemm}" products calls kernels call single narrow)
  if(blocks AND rows AND calls)
    file(WRITE "${x86}/repack.cpp" "${repack}")
    file(WRITE "${x86}/quants.c" "${quants}")
    file(WRITE "${sgemm}" "${products}")
  endif()
endif()

# The same with one file, which is written where every change was made.
function(slipstream_change_file file)
  if(EXISTS "${file}")
    slipstream_change("${file}" text changed ${ARGN})
    if(changed)
      file(WRITE "${file}" "${text}")
    endif()
  endif()
endfunction()

slipstream_change_file("${CMAKE_CURRENT_SOURCE_DIR}/src/ggml-cpu/ops.cpp" flash way)
slipstream_change_file("${CMAKE_CURRENT_SOURCE_DIR}/src/ggml-cpu/amx/mmq.cpp" tiles)
slipstream_change_file("${CMAKE_CURRENT_SOURCE_DIR}/src/ggml-backend.cpp" clear)
slipstream_change_file("${CMAKE_CURRENT_SOURCE_DIR}/../src/models/delta-net-base.cpp" planes)

# Flags. GCC orders instructions when registers are already given out. The kernels for 4-bit weights hold
# dozens of sums at once, and those went to the stack and back in their innermost loops. Ordered
# before that, with an eye on how many registers are left, four rows take a third less and sixteen a
# quarter less; what is computed, and in which order sums are added, stays the same. The kernels for
# float and 8-bit weights (llamafile/sgemm.cpp) are faster as they are.

if(CMAKE_VERSION VERSION_LESS 3.19 OR NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU" OR
   NOT CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  return()
endif()

include(CheckCXXCompilerFlag)
check_cxx_compiler_flag("--param=sched-pressure-algorithm=2" SLIPSTREAM_ORDERS_FIRST)

# The target is made in a folder below, which is read later.
function(slipstream_order_first)
  if(NOT SLIPSTREAM_ORDERS_FIRST OR NOT TARGET ggml-cpu)
    return()
  endif()
  file(GLOB kernels
    "${CMAKE_CURRENT_SOURCE_DIR}/src/ggml-cpu/arch/x86/repack.cpp"
    "${CMAKE_CURRENT_SOURCE_DIR}/src/ggml-cpu/tiled/*.cpp")
  # The last one leaves the others in the library, for those who want to know.
  set_property(SOURCE ${kernels} TARGET_DIRECTORY ggml-cpu APPEND PROPERTY COMPILE_OPTIONS
    -fschedule-insns -fsched-pressure --param=sched-pressure-algorithm=2 -frecord-gcc-switches)
endfunction()
cmake_language(DEFER CALL slipstream_order_first)
