# The rules of `cmake --install`: headers, the libraries, the package for find_package and the
# pkg-config file. All paths are relative to their own location, so that a prefix can be moved.
include(CMakePackageConfigHelpers)

install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/verge
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  FILES_MATCHING PATTERN "*.h" PATTERN "*.inc")
if(VERGE_LIBRARIES STREQUAL "both")
  set(VERGE_INSTALLED verge_static verge_shared)
else()
  set(VERGE_INSTALLED verge_${VERGE_LIBRARIES})
endif()
install(TARGETS ${VERGE_INSTALLED} EXPORT verge_targets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})

set(VERGE_PACKAGE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/verge)
install(EXPORT verge_targets
  NAMESPACE verge::
  FILE verge-targets.cmake
  DESTINATION ${VERGE_PACKAGE_DIR})
# Before 1.0 a minor version may be incompatible, and the package tells find_package.
if(PROJECT_VERSION_MAJOR EQUAL 0)
  set(VERGE_COMPATIBILITY SameMinorVersion)
else()
  set(VERGE_COMPATIBILITY SameMajorVersion)
endif()
write_basic_package_version_file(${PROJECT_BINARY_DIR}/verge-config-version.cmake
  COMPATIBILITY ${VERGE_COMPATIBILITY})
configure_file(${PROJECT_SOURCE_DIR}/cmake/verge-config.cmake.in
  ${PROJECT_BINARY_DIR}/verge-config.cmake @ONLY)
install(FILES
  ${PROJECT_BINARY_DIR}/verge-config.cmake
  ${PROJECT_BINARY_DIR}/verge-config-version.cmake
  DESTINATION ${VERGE_PACKAGE_DIR})

file(RELATIVE_PATH VERGE_PC_TO_PREFIX
  ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
configure_file(${PROJECT_SOURCE_DIR}/cmake/verge.pc.in ${PROJECT_BINARY_DIR}/verge.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/verge.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# `cpack` makes an archive of what is installed. The packages of distributions are made otherwise
# (debian/, packaging/).
if(PROJECT_IS_TOP_LEVEL)
  set(CPACK_GENERATOR TGZ)
  set(CPACK_PACKAGE_VENDOR "The verge authors")
  set(CPACK_PACKAGE_FILE_NAME verge-${PROJECT_VERSION}-${CMAKE_SYSTEM_NAME}-${CMAKE_SYSTEM_PROCESSOR})
  set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSES/Apache-2.0.txt)
  set(CPACK_STRIP_FILES ON)
  include(CPack)
endif()
