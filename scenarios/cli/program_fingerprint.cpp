#include "scenarios/cli/program_fingerprint.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string_view>

#include <elf.h>
#include <fmt/format.h>
#include <link.h>

namespace tidemark::cli {
namespace {

std::size_t padded(std::size_t size) { return (size + 3) / 4 * 4; }

// Notes are a header each, its name and its description, both padded to four bytes.
std::string build_id_in(const char* notes, std::size_t size) {
  for (std::size_t at = 0; at + sizeof(ElfW(Nhdr)) <= size;) {
    ElfW(Nhdr) note;
    std::memcpy(&note, notes + at, sizeof note);
    const std::size_t name = at + sizeof note, description = name + padded(note.n_namesz);
    if (description + note.n_descsz > size) break;
    if (note.n_type == NT_GNU_BUILD_ID && std::string_view(notes + name, note.n_namesz) == std::string_view("GNU", 4)) {
      std::string id;
      for (std::size_t i = 0; i < note.n_descsz; ++i)
        id += fmt::format("{:02x}", static_cast<unsigned char>(notes[description + i]));
      return id;
    }
    at = description + padded(note.n_descsz);
  }
  return {};
}

// Of the program, which is the first object that the loader names.
std::string build_id() {
  std::string id;
  dl_iterate_phdr(
      [](dl_phdr_info* its, std::size_t, void* found) {
        for (std::size_t i = 0; i < its->dlpi_phnum; ++i) {
          const ElfW(Phdr)& part = its->dlpi_phdr[i];
          auto& text = *static_cast<std::string*>(found);
          if (part.p_type == PT_NOTE && text.empty())
            text = build_id_in(reinterpret_cast<const char*>(its->dlpi_addr + part.p_vaddr), part.p_memsz);
        }
        return 1;
      },
      &id);
  return id;
}

std::string hash_of_file(const char* path) {
  std::ifstream file(path, std::ios::binary);
  std::uint64_t hash = 0xcbf29ce484222325ULL;  // FNV-1a
  for (std::istreambuf_iterator<char> at(file), end; at != end; ++at)
    hash = (hash ^ static_cast<unsigned char>(*at)) * 0x100000001b3ULL;
  if (!file) throw std::runtime_error(fmt::format("{} cannot be read, which identifies this build of Tidemark", path));
  return fmt::format("{:016x}", hash);
}

}  // namespace

std::string program_fingerprint() {
  const std::string id = build_id();
  return fmt::format("tidemark {} {}", TIDEMARK_VERSION, id.empty() ? hash_of_file("/proc/self/exe") : id);
}

}  // namespace tidemark::cli
