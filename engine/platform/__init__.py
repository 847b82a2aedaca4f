"""Tricks that depend on the inside of a library, the compiler or the operating system.

Each file says what it does, what that gains and when it can be deleted; the test of the same name in
``tests/engine/platform`` shows whether it still applies to this machine and these versions.

file              what it touches
device_memory     the text of torch's OutOfMemoryError
huge_pages        Linux: MADV_COLLAPSE, /proc/self/pagemap
numpy_forward     none: it avoids torch's call overhead
onednn_linear     torch.ops.mkldnn._linear_pointwise, _reorder_linear_weight
threads           GOMP_SPINCOUNT, torch's thread count, OpenBLAS symbols in numpy.libs
toolchain         GCC flags for llama.cpp (also llama_cpp.cmake), marks in its libraries
upcast_linear     the order in which torch multiplies 16-bit rows
"""
