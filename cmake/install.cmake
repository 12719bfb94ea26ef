# SPDX-License-Identifier: Apache-2.0
include(CMakePackageConfigHelpers)

set(config_dir ${CMAKE_INSTALL_LIBDIR}/cmake/goldenrule)
install(TARGETS goldenrule_call EXPORT goldenrule-targets)
install(DIRECTORY fixtures DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/goldenrule
        FILES_MATCHING PATTERN "*.hpp")
install(EXPORT goldenrule-targets NAMESPACE goldenrule:: DESTINATION ${config_dir})
configure_package_config_file(cmake/goldenrule-config.cmake.in goldenrule-config.cmake
                              INSTALL_DESTINATION ${config_dir})
write_basic_package_version_file(goldenrule-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/goldenrule-config.cmake
              ${PROJECT_BINARY_DIR}/goldenrule-config-version.cmake DESTINATION ${config_dir})
