# The compile options of all targets.

set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

# The interface target `verge_options` carries warnings and sanitizers; it is never installed.
add_library(verge_options INTERFACE)
target_compile_features(verge_options INTERFACE cxx_std_20)
target_compile_options(verge_options INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wnon-virtual-dtor
  # What g++ does not warn of: signs by -Wconversion, long strings by -Wpedantic, captures, constants.
  $<$<CXX_COMPILER_ID:Clang>:-Wno-sign-conversion;-Wno-overlength-strings;-Wno-unused-lambda-capture;-Wno-unused-const-variable>
  $<$<BOOL:${VERGE_WERROR}>:-Werror>
  # The compiler does not collect garbage before it has half a gigabyte: that takes a tenth of its time.
  $<$<CXX_COMPILER_ID:GNU>:--param=ggc-min-heapsize=524288;--param=ggc-min-expand=200>)

# Not vptr: it opens a pipe to check whether memory can be read, and reports a broken object if no
# descriptor is left, which tests cause on purpose. Nor -Wmaybe-uninitialized: with the address
# sanitizer g++ 12 reports the standard library's std::stop_source(); without sanitizers the warning
# stays on.
if(VERGE_SANITIZE)
  target_compile_options(verge_options INTERFACE
    -fsanitize=${VERGE_SANITIZE} -fno-sanitize=vptr -fno-sanitize-recover=all
    -fno-omit-frame-pointer $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  target_link_options(verge_options INTERFACE -fsanitize=${VERGE_SANITIZE})
endif()

# Noise in every atomic operation (tests/noise). The code is compiled as for the thread sanitizer, and
# linked with hooks of our own in its place.
if(VERGE_NOISE)
  add_library(verge_noise STATIC ${PROJECT_SOURCE_DIR}/tests/noise/noise.cc)
  target_compile_features(verge_noise PRIVATE cxx_std_20)
  target_include_directories(verge_noise PRIVATE
    ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
  target_compile_options(verge_options INTERFACE -fsanitize=thread)
  target_compile_definitions(verge_options INTERFACE VERGE_COHERENCE)
  target_link_libraries(verge_options INTERFACE verge_noise)
endif()
