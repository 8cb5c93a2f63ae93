# What vcpkg's functions do, as far as this port needs it: vcpkg is not in Debian, so packaging/check.sh
# runs the port with these. They are as strict as vcpkg's are: a REF that is no commit is refused, and
# so are the files that vcpkg's checks after an installation refuse.
#
#   cmake -DPORT_DIR=.. -DWORK=.. -DGIT=.. -DVCPKG_LIBRARY_LINKAGE=static|dynamic [-DREAD_ONLY=ON] -P
#
# GIT is a repository to fetch from in place of URL. READ_ONLY: nothing is fetched or built; what the
# port asks for is printed.
cmake_minimum_required(VERSION 3.25)
set(PORT verge)
file(READ ${PORT_DIR}/vcpkg.json manifest)
string(JSON VERSION GET "${manifest}" version)
set(CURRENT_PACKAGES_DIR ${WORK}/packages)
set(VCPKG_ROOT_FOR_TEST ${WORK}/installed)
if(NOT VCPKG_LIBRARY_LINKAGE MATCHES "^(static|dynamic)$")
  message(FATAL_ERROR "VCPKG_LIBRARY_LINKAGE is '${VCPKG_LIBRARY_LINKAGE}'")
endif()

function(run)
  execute_process(COMMAND ${ARGN} COMMAND_ERROR_IS_FATAL ANY OUTPUT_QUIET)
endfunction()

# The arguments of a call, each known and given at most once.
macro(arguments function single multiple)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "${single}" "${multiple}")
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "${function}: what is ${arg_UNPARSED_ARGUMENTS}?")
  endif()
  set(given ARGV)  # those of the function: a macro's own would stand here otherwise
  message("${function} ${${given}}")
endmacro()

function(vcpkg_from_git)
  arguments(vcpkg_from_git "OUT_SOURCE_PATH;URL;REF;FETCH_REF;HEAD_REF" "PATCHES")
  foreach(needed OUT_SOURCE_PATH URL REF)
    if(NOT arg_${needed})
      message(FATAL_ERROR "vcpkg_from_git needs ${needed}")
    endif()
  endforeach()
  if(NOT arg_REF MATCHES "^[0-9a-f]+$" OR NOT "${arg_REF}" MATCHES "^........................................$")
    message(FATAL_ERROR "vcpkg_from_git: REF is '${arg_REF}', which is no commit's full id")
  endif()
  set(SOURCE_PATH ${WORK}/source PARENT_SCOPE)
  if(READ_ONLY)
    return()
  endif()
  set(fetch ${arg_REF})
  if(arg_FETCH_REF)
    set(fetch ${arg_FETCH_REF})
  endif()
  file(MAKE_DIRECTORY ${WORK}/git ${WORK}/source)
  run(git -C ${WORK}/git init --quiet)
  run(git -C ${WORK}/git fetch --quiet ${GIT} ${fetch})
  execute_process(COMMAND git -C ${WORK}/git rev-parse ${arg_REF}^{commit}
    COMMAND_ERROR_IS_FATAL ANY OUTPUT_VARIABLE found OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(NOT found STREQUAL arg_REF)
    message(FATAL_ERROR "vcpkg_from_git: REF ${arg_REF} is ${found} after ${fetch} was fetched")
  endif()
  run(git -C ${WORK}/git archive ${arg_REF} -o ${WORK}/source.tar)
  run(${CMAKE_COMMAND} -E chdir ${WORK}/source ${CMAKE_COMMAND} -E tar xf ${WORK}/source.tar)
endfunction()

# Both configurations, as for every triplet; here only the first is built.
function(vcpkg_cmake_configure)
  arguments(vcpkg_cmake_configure "SOURCE_PATH" "OPTIONS")
  if(READ_ONLY)
    return()
  endif()
  set(shared OFF)
  if(VCPKG_LIBRARY_LINKAGE STREQUAL "dynamic")
    set(shared ON)
  endif()
  run(${CMAKE_COMMAND} -S ${arg_SOURCE_PATH} -B ${WORK}/build -G Ninja -DCMAKE_BUILD_TYPE=Release
    -DCMAKE_INSTALL_PREFIX=${CURRENT_PACKAGES_DIR} -DCMAKE_INSTALL_LIBDIR=lib -DBUILD_SHARED_LIBS=${shared}
    ${arg_OPTIONS})
endfunction()

function(vcpkg_cmake_install)
  arguments(vcpkg_cmake_install "" "")
  if(NOT READ_ONLY)
    run(${CMAKE_COMMAND} --build ${WORK}/build --target install)
  endif()
endfunction()

# The package for find_package moves to share/PORT.
function(vcpkg_cmake_config_fixup)
  arguments(vcpkg_cmake_config_fixup "CONFIG_PATH;PACKAGE_NAME" "")
  if(READ_ONLY)
    return()
  endif()
  file(MAKE_DIRECTORY ${CURRENT_PACKAGES_DIR}/share)
  file(RENAME ${CURRENT_PACKAGES_DIR}/${arg_CONFIG_PATH} ${CURRENT_PACKAGES_DIR}/share/${PORT})
  file(REMOVE_RECURSE ${CURRENT_PACKAGES_DIR}/lib/cmake)
  # One level less above it.
  file(GLOB files ${CURRENT_PACKAGES_DIR}/share/${PORT}/*-targets.cmake)
  foreach(file ${files})
    file(READ ${file} text)
    string(REPLACE [[get_filename_component(_IMPORT_PREFIX "${_IMPORT_PREFIX}" PATH)
get_filename_component(_IMPORT_PREFIX "${_IMPORT_PREFIX}" PATH)]]
      [[get_filename_component(_IMPORT_PREFIX "${_IMPORT_PREFIX}" PATH)]] text "${text}")
    file(WRITE ${file} "${text}")
  endforeach()
endfunction()

# Every file for pkg-config stands where its prefix is two levels above, and names libraries that are
# there.
function(vcpkg_fixup_pkgconfig)
  arguments(vcpkg_fixup_pkgconfig "" "")
  if(READ_ONLY)
    return()
  endif()
  file(GLOB files ${CURRENT_PACKAGES_DIR}/lib/pkgconfig/*.pc)
  if(NOT files)
    message(FATAL_ERROR "vcpkg_fixup_pkgconfig: there is nothing in lib/pkgconfig")
  endif()
  foreach(file ${files})
    file(READ ${file} text)
    string(REGEX REPLACE "prefix=[^\n]*" "prefix=\${pcfiledir}/../.." text "${text}")
    file(WRITE ${file} "${text}")
  endforeach()
endfunction()

function(vcpkg_install_copyright)
  arguments(vcpkg_install_copyright "COMMENT" "FILE_LIST")
  if(NOT READ_ONLY)
    file(READ ${arg_FILE_LIST} text)
    file(WRITE ${CURRENT_PACKAGES_DIR}/share/${PORT}/copyright "${text}")
  endif()
endfunction()

include(${PORT_DIR}/portfile.cmake)
if(READ_ONLY)
  return()
endif()

# What vcpkg looks at afterwards.
foreach(file include/verge/verge.h share/verge/copyright share/verge/usage share/verge/verge-config.cmake)
  if(NOT EXISTS ${CURRENT_PACKAGES_DIR}/${file})
    message(FATAL_ERROR "the port has not installed ${file}")
  endif()
endforeach()
file(GLOB static ${CURRENT_PACKAGES_DIR}/lib/*.a)
file(GLOB dynamic ${CURRENT_PACKAGES_DIR}/lib/*.so*)
if((VCPKG_LIBRARY_LINKAGE STREQUAL "static" AND dynamic) OR
   (VCPKG_LIBRARY_LINKAGE STREQUAL "dynamic" AND static))
  message(FATAL_ERROR "a ${VCPKG_LIBRARY_LINKAGE} triplet, and the port has installed ${static} ${dynamic}")
endif()
