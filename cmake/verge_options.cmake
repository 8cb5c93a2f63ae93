# What every target of the project is compiled with.

set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

# The interface target `verge_options` carries warnings and sanitizers; it is never installed.
add_library(verge_options INTERFACE)
target_compile_features(verge_options INTERFACE cxx_std_20)
target_compile_options(verge_options INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wnon-virtual-dtor
  $<$<BOOL:${VERGE_WERROR}>:-Werror>)

# Not vptr: it opens a pipe to see whether memory can be read, and takes the object for a broken one
# where no descriptor is left - which tests bring about on purpose. Nor -Wmaybe-uninitialized: with
# the address sanitizer g++ 12 takes the standard library's own std::stop_source() for one; without
# sanitizers the warning stays on.
if(VERGE_SANITIZE)
  target_compile_options(verge_options INTERFACE
    -fsanitize=${VERGE_SANITIZE} -fno-sanitize=vptr -fno-sanitize-recover=all
    -fno-omit-frame-pointer -Wno-maybe-uninitialized)
  target_link_options(verge_options INTERFACE -fsanitize=${VERGE_SANITIZE})
endif()
