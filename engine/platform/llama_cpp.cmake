# Read after project(ggml) when set-up compiles llama.cpp; engine/platform/toolchain.py passes its path.
#
# GCC orders instructions when registers are already given out. The kernels for 4-bit weights hold
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
