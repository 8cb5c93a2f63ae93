# Proves that every header compiles on its own: for each one a source file is made that includes it
# first, and twice, and nothing else. Public headers are compiled without the inside in reach, so none
# of them can lean on an internal header that is not installed. clang-tidy reads the same sources and
# so sees every header (./dev check tidy).
#
# Sanitizers have no say in whether a header compiles: their builds leave this out.
if(VERGE_SANITIZE)
  return()
endif()

function(verge_check_headers target folder)
  file(GLOB_RECURSE headers CONFIGURE_DEPENDS RELATIVE ${folder} ${folder}/*.h)
  set(sources)
  foreach(header ${headers})
    string(REPLACE "/" "_" name ${header})
    set(source ${PROJECT_BINARY_DIR}/${target}/${name}.cc)
    file(CONFIGURE OUTPUT ${source}
      CONTENT "#include <${header}>\n#include <${header}>  // NOLINT: again, as it guards itself\n")
    list(APPEND sources ${source})
  endforeach()
  if(sources)
    add_library(${target} OBJECT ${sources})
    target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/include)
    target_link_libraries(${target} PRIVATE verge_options)
  endif()
endfunction()

verge_check_headers(verge_public_headers ${PROJECT_SOURCE_DIR}/include)
verge_check_headers(verge_internal_headers ${PROJECT_SOURCE_DIR}/src)
if(TARGET verge_internal_headers)
  target_include_directories(verge_internal_headers PRIVATE ${PROJECT_SOURCE_DIR}/src)
endif()
