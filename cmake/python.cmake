# SPDX-License-Identifier: Apache-2.0
#
# Python tests. The first python3 in PATH may be a version manager's without the packages that a
# test needs, so an interpreter counts as found only when it can import them.
include_guard(GLOBAL)

function(goldenrule_imports_modules result interpreter)
  get_property(modules GLOBAL PROPERTY goldenrule_python_modules)
  list(JOIN modules "," modules)
  execute_process(COMMAND ${interpreter} -c "import ${modules}" RESULT_VARIABLE status OUTPUT_QUIET
                                                                                       ERROR_QUIET)
  if(NOT status EQUAL 0)
    set(${result} FALSE PARENT_SCOPE)
  endif()
endfunction()

# goldenrule_find_python(VARIABLE modules...): cache variable with a python3 that imports them all.
function(goldenrule_find_python variable)
  set_property(GLOBAL PROPERTY goldenrule_python_modules "${ARGN}")
  find_program(${variable} NAMES python3 VALIDATOR goldenrule_imports_modules
               DOC "python3 with ${ARGN}")
  if(NOT ${variable})
    message(WARNING "no python3 with ${ARGN}: tools/install_dependencies; its tests are skipped")
  endif()
endfunction()

# goldenrule_python_test(NAME script [arguments...] [ENVIRONMENT var=value...]): exit code 77 means
# skipped, and so does a missing interpreter: it is said, not passed over.
function(goldenrule_python_test name script)
  cmake_parse_arguments(arg "" "" "ENVIRONMENT" ${ARGN})
  if(GOLDENRULE_PYTHON)
    add_test(NAME "${name}" COMMAND ${GOLDENRULE_PYTHON} -B ${script} ${arg_UNPARSED_ARGUMENTS})
  else()
    add_test(NAME "${name}" COMMAND ${CMAKE_COMMAND} -E echo "SKIPPED: no python3 with h5py, numpy")
  endif()
  set_tests_properties(
    "${name}" PROPERTIES SKIP_RETURN_CODE 77 SKIP_REGULAR_EXPRESSION "^SKIPPED: no python3"
                         TIMEOUT 1800 ENVIRONMENT "${arg_ENVIRONMENT}")
endfunction()
