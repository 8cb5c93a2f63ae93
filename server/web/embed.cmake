# Writes files into a C++ source: cmake -DPAGE=page.html -DOPENAPI=openapi.json -DOUT=embedded.cc -P
# embed.cmake. The digests of the page's script and style are computed here, so the policy that names
# them is always that of the page.
file(READ ${PAGE} page)
file(READ ${OPENAPI} openapi)

# CMake gives digests in hexadecimal, and browsers want base64.
function(base64 hex out)
  set(letters "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")
  string(LENGTH "${hex}" digits)
  set(result "")
  set(at 0)
  while(at LESS digits)
    string(SUBSTRING "${hex}" ${at} 6 group)
    string(LENGTH "${group}" size)
    string(SUBSTRING "${group}000000" 0 6 group)
    math(EXPR value "0x${group}")
    foreach(shift 18 12 6 0)
      math(EXPR index "(${value} >> ${shift}) & 63")
      string(SUBSTRING "${letters}" ${index} 1 letter)
      string(APPEND result "${letter}")
    endforeach()
    # Of the last group only as many letters count as it has bytes, and one more.
    if(size LESS 6)
      math(EXPR missing "(6 - ${size}) / 2")
      string(LENGTH "${result}" length)
      math(EXPR length "${length} - ${missing}")
      string(SUBSTRING "${result}" 0 ${length} result)
      string(REPEAT "=" ${missing} padding)
      string(APPEND result "${padding}")
    endif()
    math(EXPR at "${at} + 6")
  endwhile()
  set(${out} "${result}" PARENT_SCOPE)
endfunction()

# What stands between <TAG> and </TAG>, of which the page has one each.
function(digest_of tag out)
  string(FIND "${page}" "<${tag}>" begin)
  string(FIND "${page}" "</${tag}>" end)
  if(begin LESS 0 OR end LESS begin)
    message(FATAL_ERROR "${PAGE} has no <${tag}>")
  endif()
  string(LENGTH "<${tag}>" skip)
  math(EXPR begin "${begin} + ${skip}")
  math(EXPR size "${end} - ${begin}")
  string(SUBSTRING "${page}" ${begin} ${size} text)
  string(SHA256 hex "${text}")
  base64("${hex}" digest)
  set(${out} "'sha256-${digest}'" PARENT_SCOPE)
endfunction()

digest_of(script script_digest)
digest_of(style style_digest)
file(WRITE ${OUT} "#include \"embedded.h\"

namespace verge::server::web::embedded {

const std::string_view page = R\"verge(${page})verge\";
const std::string_view openapi = R\"verge(${openapi})verge\";
const std::string_view script_digest = \"${script_digest}\";
const std::string_view style_digest = \"${style_digest}\";

}  // namespace verge::server::web::embedded
")
