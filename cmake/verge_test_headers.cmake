# GoogleTest's headers, compiled once for all tests with sanitizers: they take longer than most
# tests. Not with a compiler cache, which does better without; and not where g++ 12 optimizes, as it
# gives false warnings about what was compiled before.
if(VERGE_SANITIZE AND NOT TARGET verge_test_headers AND NOT CMAKE_CXX_COMPILER_LAUNCHER
   AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  file(WRITE ${PROJECT_BINARY_DIR}/test_headers.cc "")
  add_library(verge_test_headers OBJECT ${PROJECT_BINARY_DIR}/test_headers.cc)
  target_link_libraries(verge_test_headers PRIVATE verge_options GTest::gmock)
  target_precompile_headers(verge_test_headers PRIVATE <gmock/gmock.h> <gtest/gtest.h>)
endif()

function(verge_use_test_headers target)
  if(TARGET verge_test_headers)
    target_precompile_headers(${target} REUSE_FROM verge_test_headers)
  endif()
endfunction()
