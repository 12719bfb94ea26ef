# SPDX-License-Identifier: Apache-2.0
#
# The executable, the static libraries with the headers that are their interface, and a package
# that find_package(goldenrule) finds. Headers that mention HDF5 or serve one library only stay
# out; tests/consumer proves that the others are enough.
include(CMakePackageConfigHelpers)

set(config_dir ${CMAKE_INSTALL_LIBDIR}/cmake/goldenrule)
set(include_dir ${CMAKE_INSTALL_INCLUDEDIR}/goldenrule)

set(libraries goldenrule_call goldenrule_random goldenrule_schema goldenrule_cases goldenrule_reference goldenrule_report goldenrule_suites goldenrule_arbiter)
if(TARGET goldenrule_gpu)
  list(APPEND libraries goldenrule_gpu)
  include(cmake/install_gpu.cmake)
endif()
install(TARGETS ${libraries} EXPORT goldenrule-targets)
install(TARGETS goldenrule)

install(DIRECTORY fixtures/call DESTINATION ${include_dir}/fixtures FILES_MATCHING PATTERN "*.hpp")
# tile_walk.hpp loops in parallel: it serves the library alone.
install(DIRECTORY reference DESTINATION ${include_dir} FILES_MATCHING PATTERN "*.hpp"
        PATTERN "tile_walk.hpp" EXCLUDE)
install(FILES fixtures/schema/fixture.hpp fixtures/schema/read.hpp fixtures/schema/write.hpp
        DESTINATION ${include_dir}/fixtures/schema)
install(FILES fixtures/cases/case.hpp fixtures/cases/attention_keys.hpp fixtures/cases/delta_keys.hpp
              fixtures/cases/backward_keys.hpp fixtures/cases/draft_keys.hpp fixtures/cases/length_run.hpp fixtures/cases/delta_patterns.hpp
              fixtures/cases/delta_scenario.hpp fixtures/cases/suite.hpp
        DESTINATION ${include_dir}/fixtures/cases)
install(FILES fixtures/random/philox.hpp fixtures/random/portable_math.hpp
        DESTINATION ${include_dir}/fixtures/random)

install(EXPORT goldenrule-targets NAMESPACE goldenrule:: DESTINATION ${config_dir})
configure_package_config_file(cmake/goldenrule-config.cmake.in goldenrule-config.cmake
                              INSTALL_DESTINATION ${config_dir})
write_basic_package_version_file(goldenrule-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/goldenrule-config.cmake
              ${PROJECT_BINARY_DIR}/goldenrule-config-version.cmake DESTINATION ${config_dir})
