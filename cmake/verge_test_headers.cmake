# How tests are compiled: quickly. That takes longer than to run them.
#
# Without sanitizers at -O1, as half of the time goes into optimizing; the library that they test is
# compiled as ever. Tests that compute for long, or measure, are optimized as the library is
# (verge_use_test_headers is not called for them).
#
# With the address sanitizer tests are not checked for null pointers, which it finds as well, nor for
# alignment: that is half of their code. The library is.
#
# With sanitizers GoogleTest's headers are compiled once for all: they take longer than most tests.
# Not with a compiler cache, which does better without; and not where g++ 12 optimizes, as it gives
# false warnings about what was compiled before.
if(NOT TARGET verge_test_headers)
  add_library(verge_test_options INTERFACE)
  target_link_libraries(verge_test_options INTERFACE verge_options)
  if(NOT VERGE_SANITIZE)
    target_compile_options(verge_test_options INTERFACE $<$<CONFIG:Release>:-O1>)
  endif()
  if(VERGE_SANITIZE MATCHES "undefined")
    target_compile_options(verge_test_options INTERFACE -fno-sanitize=null,alignment,object-size)
  endif()
  file(WRITE ${PROJECT_BINARY_DIR}/test_headers.cc "")
  add_library(verge_test_headers OBJECT ${PROJECT_BINARY_DIR}/test_headers.cc)
  target_link_libraries(verge_test_headers PRIVATE verge_test_options GTest::gmock)
  if(VERGE_SANITIZE AND NOT CMAKE_CXX_COMPILER_LAUNCHER
     AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_precompile_headers(verge_test_headers PRIVATE <gmock/gmock.h> <gtest/gtest.h>)
  endif()
endif()

function(verge_use_test_headers target)
  target_link_libraries(${target} PRIVATE verge_test_options)
  get_target_property(headers verge_test_headers PRECOMPILE_HEADERS)
  if(headers)
    target_precompile_headers(${target} REUSE_FROM verge_test_headers)
  endif()
endfunction()
