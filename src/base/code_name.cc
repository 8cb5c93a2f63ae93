// SPDX-License-Identifier: Apache-2.0

#include <base/code_name.h>

#include <cxxabi.h>
#include <dlfcn.h>
#include <link.h>
#include <sys/auxv.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>

#include <base/elf_symbols.h>

namespace verge::detail {

namespace {

std::string demangled(const char* name) {
  const std::unique_ptr<char, void (*)(void*)> text(
      abi::__cxa_demangle(name, nullptr, nullptr, nullptr), &std::free);
  return text != nullptr ? text.get() : name;
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

namespace {

/// A file in memory: which one, and where it lies.
struct loaded_file {
  std::string name;  ///< empty: the program's own
  std::uintptr_t base{0};
};

/// By the dynamic linker's lock.
bool find_with_lock(const void* address, loaded_file& to) {
  Dl_info info{};
  if (::dladdr(address, &info) == 0) return false;
  // The program's own name may be relative to where it was started.
  Dl_info own{};
  const bool is_program =
      ::dladdr(reinterpret_cast<const void*>(::getauxval(AT_ENTRY)), &own) != 0 &&
      own.dli_fbase == info.dli_fbase;
  to.name = is_program ? "" : info.dli_fname;
  to.base = reinterpret_cast<std::uintptr_t>(info.dli_fbase);
  return true;
}

#if defined(DLFO_STRUCT_HAS_EH_DBASE)
#pragma weak _dl_find_object

bool find_file(const void* address, loaded_file& to) {
  if (&_dl_find_object == nullptr) return find_with_lock(address, to);
  dl_find_object found{};
  if (_dl_find_object(const_cast<void*>(address), &found) != 0) return false;
  to.name = found.dlfo_link_map->l_name;
  to.base = found.dlfo_link_map->l_addr;
  return true;
}
#else
bool find_file(const void* address, loaded_file& to) { return find_with_lock(address, to); }
#endif

std::string find_name(const void* address) {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  loaded_file file;
  if (!find_file(address, file)) return hexadecimal(at);
  const char* const path = file.name.empty() ? "/proc/self/exe" : file.name.c_str();
  if (const auto found = find_elf_symbol(path, at, file.base)) {
    return demangled(found->name.c_str()) + '+' + hexadecimal(found->offset);
  }
  const std::string name =
      file.name.empty() ? program_invocation_short_name : std::string(last_part(file.name));
  return name + '+' + hexadecimal(at - file.base);
}

/// Names that were found: to look one up reads a file.
struct known_names {
  std::mutex lock;
  std::map<const void*, std::string> names;
  static constexpr std::size_t most = 10'000;

  /// Never destroyed: threads may outlive static objects.
  static known_names& get() {
    static known_names& all = *std::make_unique<known_names>().release();
    return all;
  }
};

}  // namespace

std::string name_of_code(const void* address) {
  known_names& known = known_names::get();
  {
    std::lock_guard held(known.lock);
    const auto found = known.names.find(address);
    if (found != known.names.end()) return found->second;
  }
  std::string name = find_name(address);
  std::lock_guard held(known.lock);
  // A library may have been unloaded, and another be there: what is old is dropped now and then.
  if (known.names.size() >= known_names::most) known.names.clear();
  known.names.emplace(address, name);
  return name;
}

std::string function_at(const void* address) {
  std::string name = name_of_code(address);
  constexpr std::string_view none = "+0x0";
  if (name.ends_with(none)) name.erase(name.size() - none.size());
  // Parameters are long, and those of a coroutine's body say nothing. A name may begin with
  // "(anonymous namespace)::".
  constexpr std::string_view unnamed = "(anonymous namespace)::";
  std::size_t from = 0;
  while (name.compare(from, unnamed.size(), unnamed) == 0) from += unnamed.size();
  if (const auto open = name.find('(', from); open != std::string::npos && open != from) {
    name.erase(open);
  }
  return name;
}

std::string short_name(std::string_view function) {
  // "... [with T = int]"
  if (const auto with = function.find(" [with "); with != std::string_view::npos) {
    function = function.substr(0, with);
  }
  const auto is_open = [](char c) { return c == '(' || c == '<' || c == '{'; };
  const auto is_close = [](char c) { return c == ')' || c == '>' || c == '}'; };
  // From the end: the parameters, with what may follow them, and then the name, up to a blank that
  // is not in brackets.
  std::size_t end = function.size();
  if (const auto close = function.rfind(')');
      close != std::string_view::npos && function.find('>', close) == std::string_view::npos) {
    int depth = 0;
    for (std::size_t i = close + 1; i-- > 0;) {
      depth += is_close(function[i]) ? 1 : is_open(function[i]) ? -1 : 0;
      if (depth == 0) {
        end = i;
        break;
      }
    }
  }
  std::size_t begin = 0;
  int depth = 0;
  for (std::size_t i = end; i-- > 0;) {
    depth += is_close(function[i]) ? 1 : is_open(function[i]) ? -1 : 0;
    if (depth == 0 && function[i] == ' ') {
      begin = i + 1;
      break;
    }
  }
  return std::string(function.substr(begin, end - begin));
}

std::string name_of_work(const char* label, const char* written, const void* code) {
  if (label != nullptr) return label;
  if (code != nullptr) return function_at(code);
  const std::string_view type = type_in(written);
  return type.empty() ? std::string("?") : std::string(type);
}

}  // namespace verge::detail
