# How tests are compiled: quickly. That takes longer than to run them.
#
# Without sanitizers they are not optimized; the library that they test is compiled as ever. Tests
# that compute are optimized a little (verge_compile_test), those that measure as the library is.
#
# With the address sanitizer tests are not checked for null pointers, which it finds as well, nor for
# alignment: that is half of their code. The library is.
#
# GoogleTest's headers and the library's are compiled once for all: they take longer than some tests.
# Not with a compiler cache, which does better without; and not where g++ 12 optimizes, as it gives false
# warnings about what was compiled before.
if(NOT TARGET verge_test_headers)
  add_library(verge_test_options INTERFACE)
  target_link_libraries(verge_test_options INTERFACE verge_options)
  if(NOT VERGE_SANITIZE)
    target_compile_options(verge_test_options INTERFACE $<$<CONFIG:Release>:-O0>)
  endif()
  if(VERGE_SANITIZE MATCHES "undefined")
    target_compile_options(verge_test_options INTERFACE -fno-sanitize=null,alignment,object-size)
  endif()
  file(WRITE ${PROJECT_BINARY_DIR}/test_headers.cc "")
  add_library(verge_test_headers OBJECT ${PROJECT_BINARY_DIR}/test_headers.cc)
  target_link_libraries(verge_test_headers PRIVATE verge_test_options GTest::gmock)
  if(NOT CMAKE_CXX_COMPILER_LAUNCHER AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU"
     AND (VERGE_SANITIZE OR CMAKE_BUILD_TYPE STREQUAL "Release"))
    target_include_directories(verge_test_headers PRIVATE ${PROJECT_SOURCE_DIR}/include)
    target_precompile_headers(verge_test_headers PRIVATE <gmock/gmock.h> <gtest/gtest.h>
      <filesystem> <fstream> <map> <random> <sstream> <thread> <verge/verge.h>)
  endif()
endif()

function(verge_compile_test target)
  if(NOT VERGE_SANITIZE AND target MATCHES
     "arithmetic|explorer|heap|history|model|mutants|queue|slab|state_machine|weak_memory|wheel")
    target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
    return()
  endif()
  target_link_libraries(${target} PRIVATE verge_test_options)
  get_target_property(headers verge_test_headers PRECOMPILE_HEADERS)
  if(headers)
    target_precompile_headers(${target} REUSE_FROM verge_test_headers)
  endif()
endfunction()
