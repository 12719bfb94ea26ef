# SPDX-License-Identifier: Apache-2.0
#
# The shared GPU library for who wants nothing else of the project: its header, a package that
# find_package(goldenrule_gpu) finds, and the same for pkg-config. One component, so that
# cmake --install BUILD --component gpu installs these alone.
set(gpu_config_dir ${CMAKE_INSTALL_LIBDIR}/cmake/goldenrule_gpu)

install(FILES gpu/goldenrule_gpu.h DESTINATION ${include_dir}/gpu COMPONENT gpu)
install(TARGETS goldenrule_gpu_shared EXPORT goldenrule_gpu-targets
        LIBRARY COMPONENT gpu NAMELINK_COMPONENT gpu)
install(EXPORT goldenrule_gpu-targets NAMESPACE goldenrule:: DESTINATION ${gpu_config_dir}
        COMPONENT gpu)
configure_package_config_file(cmake/goldenrule_gpu-config.cmake.in goldenrule_gpu-config.cmake
                              INSTALL_DESTINATION ${gpu_config_dir})
write_basic_package_version_file(goldenrule_gpu-config-version.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/goldenrule_gpu-config.cmake
              ${PROJECT_BINARY_DIR}/goldenrule_gpu-config-version.cmake
        DESTINATION ${gpu_config_dir} COMPONENT gpu)

# Written when it is installed: only then is the prefix known.
install(CODE "
  set(PROJECT_VERSION \"${PROJECT_VERSION}\")
  cmake_path(ABSOLUTE_PATH CMAKE_INSTALL_PREFIX NORMALIZE)
  cmake_path(APPEND CMAKE_INSTALL_PREFIX \"${CMAKE_INSTALL_LIBDIR}\" OUTPUT_VARIABLE PKG_CONFIG_LIBDIR)
  cmake_path(APPEND CMAKE_INSTALL_PREFIX \"${CMAKE_INSTALL_INCLUDEDIR}\"
             OUTPUT_VARIABLE PKG_CONFIG_INCLUDEDIR)
  configure_file(\"${PROJECT_SOURCE_DIR}/cmake/goldenrule_gpu.pc.in\"
                 \"\$ENV{DESTDIR}\${PKG_CONFIG_LIBDIR}/pkgconfig/goldenrule_gpu.pc\" @ONLY)"
  COMPONENT gpu)
