# SPDX-License-Identifier: Apache-2.0
#
# How every target of this project is compiled. Both interface targets are linked PRIVATE, so that
# a user of the library never inherits a warning flag.

# The sources of a unity build lie in the build folder. To the cache they are the same in every build folder
# of one depth (build/release, build/wheel), because it takes paths within the project as relative ones.
find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM)
  set(CMAKE_CXX_COMPILER_LAUNCHER
      ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_ABSSTDERR=1 ${CCACHE_PROGRAM})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
endif()

add_library(goldenrule_warnings INTERFACE)
target_compile_options(
  goldenrule_warnings
  INTERFACE
    "$<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wshadow;-Wconversion;-Wdouble-promotion;-Wcast-align;-Wnon-virtual-dtor>"
    # 64-byte vectors are passed between inlined functions only: no ABI is at stake.
    "$<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-psabi>"
    "$<$<AND:$<BOOL:${GOLDENRULE_WERROR}>,$<COMPILE_LANGUAGE:CXX>>:-Werror>")

# The arithmetic of the reference is the arithmetic that is written: no contraction of a*b+c, no
# reassociation, no flushed subnormals. tests/delta/rule/test_arithmetic.cpp proves that these flags hold.
add_library(goldenrule_fp_strict INTERFACE)
target_compile_options(
  goldenrule_fp_strict
  INTERFACE
    "$<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off;-fno-fast-math;-fno-associative-math;-fno-unsafe-math-optimizations>"
)

if(GOLDENRULE_TIDY)
  find_program(CLANG_TIDY_PROGRAM clang-tidy REQUIRED)
  set(CMAKE_CXX_CLANG_TIDY ${CLANG_TIDY_PROGRAM} --warnings-as-errors=*)
endif()

# goldenrule_library(NAME sources...): a static library of one top-level folder, alias
# goldenrule::NAME, whose headers are included from the project root ("fixtures/call/record.hpp").
function(goldenrule_library name)
  add_library(goldenrule_${name} STATIC ${ARGN})
  add_library(goldenrule::${name} ALIAS goldenrule_${name})
  set_target_properties(goldenrule_${name} PROPERTIES EXPORT_NAME ${name})
  target_include_directories(
    goldenrule_${name} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>
                              $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/goldenrule>)
  target_compile_features(goldenrule_${name} PUBLIC cxx_std_20)
  target_link_libraries(
    goldenrule_${name} PRIVATE $<BUILD_INTERFACE:goldenrule_warnings>
                               $<BUILD_INTERFACE:goldenrule_fp_strict>)
endfunction()
