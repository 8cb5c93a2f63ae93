// SPDX-License-Identifier: Apache-2.0

#include <base/elf_symbols.h>

#include <elf.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>

#include <base/file_descriptor.h>

namespace verge::detail {

namespace {

/// A file in memory, as long as it lives. Every access is checked: the file may be damaged.
class mapped_file {
 public:
  explicit mapped_file(const char* path) noexcept {
    const file_descriptor fd(::open(path, O_RDONLY | O_CLOEXEC));
    struct stat about {};
    if (fd.get() < 0 || ::fstat(fd.get(), &about) != 0 || about.st_size <= 0) return;
    const auto size = static_cast<std::size_t>(about.st_size);
    void* const p = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd.get(), 0);
    if (p == MAP_FAILED) return;
    bytes_ = static_cast<const std::byte*>(p);
    size_ = size;
  }
  ~mapped_file() {
    if (bytes_ != nullptr) ::munmap(const_cast<std::byte*>(bytes_), size_);
  }
  mapped_file(const mapped_file&) = delete;
  mapped_file& operator=(const mapped_file&) = delete;

  template <class T>
  bool read(std::uint64_t at, T& to) const noexcept {
    if (size_ < sizeof(T) || at > size_ - sizeof(T)) return false;
    std::memcpy(&to, bytes_ + at, sizeof(T));
    return true;
  }
  std::string text(std::uint64_t at) const {
    if (at >= size_) return {};
    const char* const begin = reinterpret_cast<const char*>(bytes_ + at);
    return {begin, ::strnlen(begin, size_ - at)};
  }

 private:
  const std::byte* bytes_{nullptr};
  std::size_t size_{0};
};

/// In the tables of one kind.
std::optional<elf_symbol> find_in(const mapped_file& elf, const Elf64_Ehdr& header,
                                  std::uint32_t kind, std::uint64_t wanted) {
  for (unsigned i = 0; i < header.e_shnum; ++i) {
    Elf64_Shdr table;
    Elf64_Shdr strings;
    if (!elf.read(header.e_shoff + std::uint64_t{i} * sizeof table, table)) break;
    if (table.sh_type != kind) continue;
    if (!elf.read(header.e_shoff + std::uint64_t{table.sh_link} * sizeof strings, strings)) break;
    for (std::uint64_t at = 0; at + sizeof(Elf64_Sym) <= table.sh_size; at += sizeof(Elf64_Sym)) {
      Elf64_Sym symbol;
      if (!elf.read(table.sh_offset + at, symbol)) break;
      if (ELF64_ST_TYPE(symbol.st_info) != STT_FUNC || wanted < symbol.st_value ||
          wanted - symbol.st_value >= symbol.st_size) {
        continue;
      }
      return elf_symbol{.name = elf.text(strings.sh_offset + symbol.st_name),
                        .offset = wanted - symbol.st_value};
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<elf_symbol> find_elf_symbol(const char* file, std::uint64_t address,
                                          std::uint64_t base) {
  const mapped_file elf(file);
  Elf64_Ehdr header;
  if (!elf.read(0, header) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
      header.e_ident[EI_CLASS] != ELFCLASS64) {
    return std::nullopt;
  }
  // A program that is not position-independent has addresses, everything else offsets.
  const std::uint64_t wanted = header.e_type == ET_EXEC ? address : address - base;
  auto found = find_in(elf, header, SHT_SYMTAB, wanted);
  return found ? found : find_in(elf, header, SHT_DYNSYM, wanted);
}

}  // namespace verge::detail
