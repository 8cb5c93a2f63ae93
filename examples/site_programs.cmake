# Each FOLDER/NAME.cc of the folders below is the program FOLDER_NAME; site_programs builds them all.
# They are compiled without optimization, and the library's headers once for all of them, as there are
# many: nothing here is measured.
add_custom_target(site_programs)
file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/site_headers.cc "")
add_library(site_headers OBJECT ${CMAKE_CURRENT_BINARY_DIR}/site_headers.cc)
target_compile_options(site_headers PRIVATE -O0)
target_link_libraries(site_headers PRIVATE verge::verge verge_options)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_precompile_headers(site_headers PRIVATE <verge/verge.h>)
endif()

file(GLOB sources CONFIGURE_DEPENDS guide/*.cc cookbook/*.cc migrating/*.cc)
foreach(source ${sources})
  get_filename_component(name ${source} NAME_WE)
  get_filename_component(folder ${source} DIRECTORY)
  get_filename_component(folder ${folder} NAME)
  set(libraries verge::verge verge_options)
  if(name STREQUAL asio_before)
    set(libraries verge_with_boost_asio)
  elseif(name STREQUAL libevent_before)
    set(libraries verge_with_libevent)
  endif()
  list(GET libraries 0 library)
  if(NOT TARGET ${library})
    continue()  # verge_adapters.cmake has said what is missing
  endif()
  add_executable(example_${folder}_${name} ${source})
  set_target_properties(example_${folder}_${name} PROPERTIES OUTPUT_NAME ${folder}_${name})
  target_compile_options(example_${folder}_${name} PRIVATE -O0)
  target_link_libraries(example_${folder}_${name} PRIVATE ${libraries})
  if(NOT name MATCHES "_before$" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_precompile_headers(example_${folder}_${name} REUSE_FROM site_headers)
  endif()
  add_dependencies(site_programs example_${folder}_${name})
  if(VERGE_BUILD_TESTS)
    add_test(NAME example.${folder}_${name} COMMAND example_${folder}_${name})
    set_tests_properties(example.${folder}_${name} PROPERTIES TIMEOUT 300)
  endif()
endforeach()

# What the site requires of pages and headers, without mkdocs: ./dev docs makes all of it.
find_package(Python3 COMPONENTS Interpreter QUIET)
find_program(VERGE_GO go)
if(VERGE_BUILD_TESTS AND Python3_FOUND)
  add_test(NAME site.has_a_comment_for_every_name_and_an_end_for_every_link
    COMMAND Python3::Interpreter -B ${PROJECT_SOURCE_DIR}/docs/site/build.py
      ${CMAKE_CURRENT_BINARY_DIR}/site --examples ${CMAKE_CURRENT_BINARY_DIR} --check)
  add_test(NAME site.checks_can_fail
    COMMAND Python3::Interpreter -B ${PROJECT_SOURCE_DIR}/docs/site/build_test.py)
  add_test(NAME site.readme_has_the_figures_of_the_benchmarks
    COMMAND Python3::Interpreter -B ${PROJECT_SOURCE_DIR}/docs/site/figures.py)
  add_test(NAME site.picture_has_the_figures_of_the_benchmarks
    COMMAND Python3::Interpreter -B ${PROJECT_SOURCE_DIR}/docs/site/picture.py --check)
  set_tests_properties(site.has_a_comment_for_every_name_and_an_end_for_every_link
    site.checks_can_fail site.readme_has_the_figures_of_the_benchmarks
    site.picture_has_the_figures_of_the_benchmarks PROPERTIES TIMEOUT 60 SKIP_RETURN_CODE 77)
endif()
# The Go that docs/migrating.md shows.
if(VERGE_BUILD_TESTS AND VERGE_GO)
  add_test(NAME example.migrating_go_before
    COMMAND ${VERGE_GO} run ${CMAKE_CURRENT_SOURCE_DIR}/migrating/go_before.go)
  add_test(NAME example.migrating_go_before_vetted
    COMMAND ${VERGE_GO} vet ${CMAKE_CURRENT_SOURCE_DIR}/migrating/go_before.go)
  set_tests_properties(example.migrating_go_before example.migrating_go_before_vetted PROPERTIES
    TIMEOUT 120 ENVIRONMENT "GOCACHE=${CMAKE_CURRENT_BINARY_DIR}/go;GO111MODULE=off")
endif()
