# find_package(verge) gives three targets:
#   verge::verge   the one to link unless there is a reason not to: it is verge::static
#   verge::static  libverge.a
#   verge::shared  libverge.so
# Link one of the two libraries into a program, not both: each would have a runtime of its own.
include(CMakeFindDependencyMacro)
find_dependency(Threads)

include(${CMAKE_CURRENT_LIST_DIR}/verge-targets.cmake)
if(NOT TARGET verge::verge)
  add_library(verge::verge INTERFACE IMPORTED)
  target_link_libraries(verge::verge INTERFACE verge::static)
endif()
