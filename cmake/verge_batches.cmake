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
