# Compiles a target's sources several at a time: most of what they compile is headers that they have in
# common, so that a clean build takes a third of the time. Names in unnamed namespaces must differ
# within a target. Tools that want to see each file turn VERGE_BATCHES off.
function(verge_in_batches target size)
  if(VERGE_BATCHES)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${size})
    # g++ takes a file of a batch for a header, and warns of coroutines with local types in it.
    target_compile_options(${target} PRIVATE
      $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
  endif()
endfunction()

# Compiles headers once for all sources of a target, in a build with tests: g++ makes the same code,
# in two thirds of the time. Other builds, as those of packages, show whether each file includes all
# that it needs. Not with a compiler cache, which does better without.
function(verge_precompile target)  # headers
  if(VERGE_BATCHES AND VERGE_BUILD_TESTS AND NOT VERGE_SANITIZE AND NOT CMAKE_CXX_COMPILER_LAUNCHER
     AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_BUILD_TYPE STREQUAL "Release")
    target_precompile_headers(${target} PRIVATE ${ARGN})
  endif()
endfunction()

# Links the programs of a folder, in which nothing is measured, with gold where it is: in half the
# time.
macro(verge_link_quickly)
  if(VERGE_BUILD_TESTS AND NOT VERGE_SANITIZE AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    include(CheckLinkerFlag)
    check_linker_flag(CXX -fuse-ld=gold VERGE_HAS_GOLD)
    if(VERGE_HAS_GOLD)
      add_link_options(-fuse-ld=gold)
    endif()
  endif()
endmacro()
