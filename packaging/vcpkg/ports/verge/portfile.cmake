# The port of a release. vcpkg takes the full id of a commit as REF, and no tag: it is not known before
# the commit is made, so packaging/release.sh fills it in when the tag is there (CONTRIBUTING.md). FETCH_REF
# is what is fetched, as a server need not give out a commit by its id.
vcpkg_from_git(
  OUT_SOURCE_PATH SOURCE_PATH
  URL https://example.org/verge.git
  REF 0000000000000000000000000000000000000000
  FETCH_REF "v${VERSION}"
  HEAD_REF main
)

# Of the two libraries the one that the triplet asks for.
if(VCPKG_LIBRARY_LINKAGE STREQUAL "dynamic")
  set(VERGE_LIBRARIES shared)
else()
  set(VERGE_LIBRARIES static)
endif()
vcpkg_cmake_configure(
  SOURCE_PATH "${SOURCE_PATH}"
  OPTIONS
    -DVERGE_LIBRARIES=${VERGE_LIBRARIES}
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
