vcpkg_from_git(
  OUT_SOURCE_PATH SOURCE_PATH
  URL https://example.org/verge.git
  REF "v${VERSION}"
)

vcpkg_cmake_configure(
  SOURCE_PATH "${SOURCE_PATH}"
  OPTIONS
    -DVERGE_BUILD_TESTS=OFF
    -DVERGE_BUILD_BENCH=OFF
    -DVERGE_BUILD_EXAMPLES=OFF
    -DVERGE_BUILD_TOOLS=OFF
    -DVERGE_BUILD_SERVER=OFF
    -DVERGE_BUILD_C=OFF
)
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(CONFIG_PATH lib/cmake/verge)
vcpkg_fixup_pkgconfig()

file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/debug/include")
file(INSTALL "${CMAKE_CURRENT_LIST_DIR}/usage" DESTINATION "${CURRENT_PACKAGES_DIR}/share/${PORT}")
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSES/Apache-2.0.txt")
