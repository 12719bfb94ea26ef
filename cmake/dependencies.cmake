# SPDX-License-Identifier: Apache-2.0
#
# Everything comes from Debian packages (tools/install_dependencies lists them); nothing downloads.
set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)
find_package(OpenMP REQUIRED COMPONENTS CXX)
find_package(Eigen3 3.4 REQUIRED NO_MODULE)
find_package(Boost 1.74 REQUIRED)
find_package(HDF5 1.10 REQUIRED COMPONENTS C)
find_package(OpenSSL REQUIRED COMPONENTS Crypto)
find_package(CLI11 REQUIRED)
find_package(fmt 9 REQUIRED)
find_package(nlohmann_json 3.11 REQUIRED)

# The functions of binary128 (reference/scalar/binary128.hpp): those of long double where that is the type, and
# libquadmath elsewhere. g++ for aarch64 has no libquadmath.
include(CheckCXXSourceCompiles)
check_cxx_source_compiles("#include <cfloat>
static_assert(LDBL_MANT_DIG == 113);
int main() {}" GOLDENRULE_LONG_DOUBLE_IS_BINARY128)
set(GOLDENRULE_QUADMATH)
if(NOT GOLDENRULE_LONG_DOUBLE_IS_BINARY128)
  set(CMAKE_REQUIRED_LIBRARIES quadmath)
  check_cxx_source_compiles("#include <quadmath.h>
int main(int count, char**) { return expq(count) > 0 ? 0 : 1; }" GOLDENRULE_HAS_QUADMATH)
  unset(CMAKE_REQUIRED_LIBRARIES)
  if(NOT GOLDENRULE_HAS_QUADMATH)
    message(FATAL_ERROR "Expected binary128 as long double or as __float128 with libquadmath, "
                        "actual: ${CMAKE_CXX_COMPILER} has neither")
  endif()
  set(GOLDENRULE_QUADMATH quadmath)
endif()

set(GOLDENRULE_HAS_CUDA OFF)
if(NOT GOLDENRULE_CUDA STREQUAL "OFF")
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
      set(CMAKE_CUDA_ARCHITECTURES 90a)
    endif()
    enable_language(CUDA)
    set(GOLDENRULE_HAS_CUDA ON)
  elseif(GOLDENRULE_CUDA STREQUAL "ON")
    message(FATAL_ERROR "GOLDENRULE_CUDA=ON, but no CUDA compiler was found")
  endif()
endif()
