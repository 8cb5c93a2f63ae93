#include <base/code_name.h>

#include <cxxabi.h>
#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>

namespace verge::detail {

namespace {

std::string demangled(const char* name) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> text(
      abi::__cxa_demangle(name, nullptr, nullptr, &status), &std::free);
  return status == 0 && text != nullptr ? std::string(text.get()) : std::string(name);
}

std::string hexadecimal(std::uintptr_t n) {
  char text[2 + 2 * sizeof n + 1];
  std::snprintf(text, sizeof text, "0x%jx", static_cast<std::uintmax_t>(n));
  return text;
}

std::string_view last_part(std::string_view path) {
  const auto slash = path.rfind('/');
  return slash == std::string_view::npos ? path : path.substr(slash + 1);
}

}  // namespace

std::string_view type_in(const char* written) noexcept {
  if (written == nullptr) return {};
  // gcc: "... [with F = TYPE]", clang: "... [F = TYPE]"
  const std::string_view text = written;
  constexpr std::string_view before = "F = ";
  const auto begin = text.find(before);
  if (begin == std::string_view::npos || !text.ends_with(']')) return text;
  return text.substr(begin + before.size(), text.size() - begin - before.size() - 1);
}

std::string name_of_code(const void* address) {
  Dl_info info{};
  if (::dladdr(address, &info) == 0) return hexadecimal(reinterpret_cast<std::uintptr_t>(address));
  const bool named = info.dli_sname != nullptr;
  std::string name = named ? demangled(info.dli_sname) : std::string(last_part(info.dli_fname));
  name += '+';
  name += hexadecimal(reinterpret_cast<std::uintptr_t>(address) -
                      reinterpret_cast<std::uintptr_t>(named ? info.dli_saddr : info.dli_fbase));
  return name;
}

std::string function_at(const void* address) {
  std::string name = name_of_code(address);
  if (const auto plus = name.rfind("+0x0"); plus != std::string::npos && plus + 4 == name.size()) {
    name.erase(plus);
  }
  // The parameters of a coroutine's body say nothing, and are long.
  if (const auto open = name.find('('); open != std::string::npos && open != 0) name.erase(open);
  return name;
}

std::string name_of_work(const char* label, const char* written, const void* code) {
  if (label != nullptr) return label;
  if (code != nullptr) return function_at(code);
  const std::string_view type = type_in(written);
  return type.empty() ? std::string("?") : std::string(type);
}

}  // namespace verge::detail
