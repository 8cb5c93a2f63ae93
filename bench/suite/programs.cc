// SPDX-License-Identifier: Apache-2.0

#include "programs.h"

#include <cstdlib>
#include <filesystem>
#include <stdexcept>

#include "child_process.h"

namespace verge::bench {
namespace {

namespace fs = std::filesystem;

const fs::path sources = VERGE_BENCH_PEERS_SOURCE;
const fs::path built = VERGE_BENCH_PEERS_BINARY;

void build(const std::vector<std::string>& words, const fs::path& folder) {
  if (!run_program(words, folder.string())) {
    throw std::runtime_error(words[0] + " could not build it in " + folder.string() +
                             "; it says why above");
  }
}

/// A folder in which a compiler may keep things, also where there is no home.
fs::path folder_for(const char* name) {
  fs::path folder = built / name;
  fs::create_directories(folder);
  return folder;
}

}  // namespace

/// Needs no network: the programs use nothing but Go's standard library.
std::vector<std::string> build_go_program(const fs::path& source, const fs::path& binary) {
  setenv("GO111MODULE", "on", 1);
  setenv("GOFLAGS", "-mod=mod", 1);
  setenv("GOTOOLCHAIN", "local", 1);
  setenv("GOPROXY", "off", 1);
  if (getenv("HOME") == nullptr) setenv("GOCACHE", (binary.parent_path() / "cache").c_str(), 0);
  build({"go", "build", "-o", binary.string(), "."}, source);
  return {binary.string()};
}

std::vector<std::string> build_go() {
  return build_go_program(sources / "go", folder_for("go") / "peer");
}

std::vector<std::string> build_netty() {
  const fs::path jar = "/usr/share/java/netty-common.jar";
  if (!fs::exists(jar)) throw std::runtime_error(jar.string() + " is missing");
  const fs::path classes = folder_for("netty");
  build({"javac", "-d", classes.string(), "-cp", jar.string(), "Peer.java", "Measure.java",
         "Workloads.java"},
        sources / "netty");
  // Threads of the virtual machine that end would take their processor time with them.
  return {"java", "-XX:-UseDynamicNumberOfCompilerThreads", "-XX:-UseDynamicNumberOfGCThreads",
          "-cp",  classes.string() + ":" + jar.string(),    "Peer"};
}

/// Debian's crates stand in a folder; cargo takes them from there instead of from the network, as
/// the configuration beside the program says. They want Debian's own compiler.
std::vector<std::string> build_tokio() {
  if (!fs::exists("/usr/share/cargo/registry")) {
    throw std::runtime_error("/usr/share/cargo/registry is missing");
  }
  const fs::path target = folder_for("tokio");
  const fs::path copy = folder_for("tokio/source");  // cargo writes beside what it builds
  fs::copy(sources / "tokio", copy,
           fs::copy_options::recursive | fs::copy_options::update_existing);
  const bool of_debian = fs::exists("/usr/bin/cargo") && fs::exists("/usr/bin/rustc");
  if (of_debian) setenv("RUSTC", "/usr/bin/rustc", 1);
  setenv("CARGO_HOME", (target / "home").c_str(), 1);
  build({of_debian ? "/usr/bin/cargo" : "cargo", "build", "--release", "--offline", "--quiet",
         "--target-dir", target.string()},
        copy);
  return {(target / "release" / "peer").string()};
}

}  // namespace verge::bench
