# SPDX-License-Identifier: Apache-2.0
#
# cmake -DBUILD=<build folder> -DSOURCE=<project folder> -DCONFIG=<type> -P run.cmake: installs into
# BUILD/consumer, then configures, builds and runs the consumer against that and nothing else.
set(work ${BUILD}/consumer)
file(REMOVE_RECURSE ${work})

function(run_expecting expected)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE text ERROR_VARIABLE text)
  if(NOT status EQUAL expected)
    string(JOIN " " command ${ARGN})
    message(FATAL_ERROR "${status}, not ${expected}, from: ${command}\n${text}")
  endif()
  set(text "${text}" PARENT_SCOPE)
endfunction()

function(run)
  run_expecting(0 ${ARGN})
  set(text "${text}" PARENT_SCOPE)
endfunction()

run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${work}/prefix --config ${CONFIG})
run(${CMAKE_COMMAND} -S ${SOURCE} -B ${work}/build -G Ninja -DCMAKE_BUILD_TYPE=${CONFIG}
    -DCMAKE_PREFIX_PATH=${work}/prefix -DCMAKE_FIND_USE_PACKAGE_REGISTRY=OFF
    -DCMAKE_CXX_COMPILER=${CXX} -DCMAKE_CXX_COMPILER_LAUNCHER=${LAUNCHER})
run(${CMAKE_COMMAND} --build ${work}/build)
run(${work}/build/consumer ${work}/one_step.h5)
message(STATUS "${text}")
run(${work}/build/own_kernel)
message(STATUS "${text}")
run(${work}/build/matrix)
message(STATUS "${text}")
# It was written by hand, from no case line: digests are checked, values cannot be recomputed.
run_expecting(2 ${work}/prefix/bin/goldenrule recompute ${work}/one_step.h5)
message(STATUS "${text}")
if(NOT text MATCHES "schema and digests are right")
  message(FATAL_ERROR "recompute does not say what it recomputed:\n${text}")
endif()

# The GPU library alone, by CMake and by pkg-config, and no C++ in the program that uses it.
if(HAS_GPU)
  set(gpu ${work}/gpu)
  run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${gpu} --config ${CONFIG} --component gpu)
  run(${CMAKE_COMMAND} -S ${GPU_SOURCE} -B ${work}/gpu_build -G Ninja -DCMAKE_BUILD_TYPE=${CONFIG}
      -DCMAKE_PREFIX_PATH=${gpu} -DCMAKE_FIND_USE_PACKAGE_REGISTRY=OFF -DCMAKE_C_COMPILER=${C})
  run(${CMAKE_COMMAND} --build ${work}/gpu_build)
  run(${work}/gpu_build/engine)
  message(STATUS "${text}")
  find_program(PKG_CONFIG pkg-config)
  if(PKG_CONFIG)
    file(GLOB_RECURSE file ${gpu}/goldenrule_gpu.pc)
    cmake_path(GET file PARENT_PATH directory)
    set(ENV{PKG_CONFIG_PATH} ${directory})
    run(${PKG_CONFIG} --cflags --libs goldenrule_gpu)
    string(REGEX MATCHALL "[^ \n]+" flags "${text}")
    run(${PKG_CONFIG} --variable=libdir goldenrule_gpu)
    string(STRIP "${text}" libdir)
    run(${C} ${GPU_SOURCE}/engine.c ${flags} -Wl,-rpath,${libdir} -o ${work}/engine)
    run(${work}/engine)
    message(STATUS "by pkg-config: ${text}")
  else()
    message(STATUS "no pkg-config here: goldenrule_gpu.pc was not tried")
  endif()
endif()
