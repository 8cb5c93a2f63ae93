# Checks that every header compiles on its own: for each one a source file is generated that
# includes only this header, twice. Public headers are compiled without access to internal ones, so
# none of them can depend on a header that is not installed. clang-tidy reads the same sources and
# so sees every header (./dev check tidy). Internal headers are left to that: to compile them all
# takes a minute. Public ones are compiled by ./dev check builds, which CI runs, and not for every test.
#
# Whether a header compiles does not depend on sanitizers: their builds omit this.
if(VERGE_SANITIZE)
  return()
endif()

# Not those that need another library (CONTRIBUTING.md): their tests and examples include them
# first.
function(verge_check_headers target folder)
  file(GLOB_RECURSE headers CONFIGURE_DEPENDS RELATIVE ${folder} ${folder}/*.h)
  list(FILTER headers EXCLUDE REGEX
    "^verge/(asio|boost_asio|execution|glib|libev|libevent|uv)\\.h$")
  set(sources)
  foreach(header ${headers})
    string(REPLACE "/" "_" name ${header})
    set(source ${PROJECT_BINARY_DIR}/${target}/${name}.cc)
    file(CONFIGURE OUTPUT ${source}
      CONTENT "#include <${header}>\n#include <${header}>  // NOLINT: again, as it guards itself\n")
    list(APPEND sources ${source})
  endforeach()
  if(sources)
    add_library(${target} OBJECT EXCLUDE_FROM_ALL ${sources})
    target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/include)
    target_link_libraries(${target} PRIVATE verge_options)
  endif()
endfunction()

verge_check_headers(verge_public_headers ${PROJECT_SOURCE_DIR}/include)
verge_check_headers(verge_internal_headers ${PROJECT_SOURCE_DIR}/src)
if(TARGET verge_internal_headers)
  target_include_directories(verge_internal_headers PRIVATE ${PROJECT_SOURCE_DIR}/src)
endif()
