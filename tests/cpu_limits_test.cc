// SPDX-License-Identifier: Apache-2.0

// The default number of processors: what the affinity mask and control groups allow.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>
#include <verge/runtime.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <sched/cpu_limits.h>

namespace verge {
namespace {

using detail::choose_processors;
using detail::cpu_group;
using detail::cpus_of_cpu_max;
using detail::cpus_of_quota;
using detail::find_cpu_groups;
using detail::read_processor_limits;
using testing::ElementsAre;
using testing::IsEmpty;

TEST(cpu_quota, is_rounded_up_to_whole_processors) {
  EXPECT_EQ(cpus_of_cpu_max("100000 100000\n"), 1u);
  EXPECT_EQ(cpus_of_cpu_max("150000 100000\n"), 2u);
  EXPECT_EQ(cpus_of_cpu_max("200000 100000"), 2u);
  EXPECT_EQ(cpus_of_cpu_max("1000 100000\n"), 1u);
  EXPECT_EQ(cpus_of_cpu_max("6400000 100000\n"), 64u);
  EXPECT_EQ(cpus_of_quota("50000\n", "100000\n"), 1u);
  EXPECT_EQ(cpus_of_quota("100001\n", "100000\n"), 2u);
}

TEST(cpu_quota, is_absent_if_the_text_has_none_or_is_invalid) {
  for (const char* text : {"max 100000\n", "max", "", "\n", "100000", "100000 ", "100000 0\n",
                           "0 100000\n", "-5 100000\n", "x 100000\n", "100000 x\n", "1e5 100000\n",
                           "99999999999999999999999 100000\n"}) {
    EXPECT_EQ(cpus_of_cpu_max(text), 0u) << text;
  }
  EXPECT_EQ(cpus_of_quota("-1\n", "100000\n"), 0u);
  EXPECT_EQ(cpus_of_quota("", ""), 0u);
}

constexpr const char* v2_mount =
    "25 30 0:23 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
constexpr const char* v1_mounts =
    "31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n"
    "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw shared:8 shared:9 - cgroup cgroup rw,cpu,cpuacct\n"
    "34 31 0:31 / /sys/fs/cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset\n"
    "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";

TEST(cpu_group, is_found_in_the_texts_of_the_kernel) {
  EXPECT_THAT(find_cpu_groups("0::/user.slice/a.scope\n", v2_mount),
              ElementsAre(cpu_group{true, "/sys/fs/cgroup", "/user.slice/a.scope"}));
  EXPECT_THAT(find_cpu_groups("4:cpuset:/x\n2:cpu,cpuacct:/docker/y\n0::/\n", v1_mounts),
              ElementsAre(cpu_group{false, "/sys/fs/cgroup/cpu,cpuacct", "/docker/y"},
                          cpu_group{true, "/sys/fs/cgroup/unified", ""}));
}

/// A container sees its own group where the hierarchy is mounted, and maybe a path of the host's.
TEST(cpu_group, of_a_container_is_where_its_part_of_the_hierarchy_is_mounted) {
  const std::string part = "25 30 0:23 /docker/y /sys/fs/cgroup ro - cgroup2 cgroup rw\n";
  EXPECT_THAT(find_cpu_groups("0::/docker/y\n", part),
              ElementsAre(cpu_group{true, "/sys/fs/cgroup", ""}));
  EXPECT_THAT(find_cpu_groups("0::/docker/y/z\n", part),
              ElementsAre(cpu_group{true, "/sys/fs/cgroup", "/z"}));
  EXPECT_THAT(find_cpu_groups("0::/docker/yy\n", part),
              ElementsAre(cpu_group{true, "/sys/fs/cgroup", ""}));
  EXPECT_THAT(find_cpu_groups("0::/../../x\n", v2_mount),
              ElementsAre(cpu_group{true, "/sys/fs/cgroup", ""}));
  EXPECT_THAT(find_cpu_groups("0::/a\n", "1 2 0:3 / /with\\040blank rw - cgroup2 c rw\n"),
              ElementsAre(cpu_group{true, "/with blank", "/a"}));
}

TEST(cpu_group, is_not_found_where_there_is_none) {
  EXPECT_THAT(find_cpu_groups("", ""), IsEmpty());
  EXPECT_THAT(find_cpu_groups("0::/a\n", ""), IsEmpty());
  EXPECT_THAT(find_cpu_groups("", v2_mount), IsEmpty());
  EXPECT_THAT(find_cpu_groups("1:cpuset:/a\n", v1_mounts), IsEmpty());
  EXPECT_THAT(find_cpu_groups("::::\n\n0\n", "no dash here\n\n - \n"), IsEmpty());
}

/// Files in a folder that stands for /.
class fake_root : public testing::Test {
 protected:
  fake_root() {
    std::string name = std::filesystem::temp_directory_path() / "verge_root_XXXXXX";
    root_ = ::mkdtemp(name.data());
  }
  ~fake_root() override { std::filesystem::remove_all(root_); }

  void write(const std::string& path, const std::string& text) {
    const std::filesystem::path file(root_ + path);
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  unsigned cgroup_limit() { return read_processor_limits(root_).cgroup; }

 private:
  std::string root_;
};

TEST_F(fake_root, the_lowest_quota_up_to_the_root_counts) {
  EXPECT_EQ(cgroup_limit(), 0u) << "no /proc at all";
  write("/proc/self/mountinfo", v2_mount);
  write("/proc/self/cgroup", "0::/a/b/c\n");
  EXPECT_EQ(cgroup_limit(), 0u) << "no file with a quota";
  write("/sys/fs/cgroup/a/b/c/cpu.max", "max 100000\n");
  EXPECT_EQ(cgroup_limit(), 0u);
  write("/sys/fs/cgroup/a/cpu.max", "350000 100000\n");
  EXPECT_EQ(cgroup_limit(), 4u) << "that of a group above";
  write("/sys/fs/cgroup/a/b/c/cpu.max", "20000 10000\n");
  EXPECT_EQ(cgroup_limit(), 2u) << "its own is lower";
  write("/sys/fs/cgroup/cpu.max", "100000 100000\n");
  EXPECT_EQ(cgroup_limit(), 1u) << "and that of the first that can be seen is lowest";
}

TEST_F(fake_root, a_quota_of_version_1_counts_as_well) {
  write("/proc/self/mountinfo", v1_mounts);
  write("/proc/self/cgroup", "2:cpu,cpuacct:/docker/y\n0::/\n");
  write("/sys/fs/cgroup/cpu,cpuacct/docker/y/cpu.cfs_quota_us", "-1\n");
  write("/sys/fs/cgroup/cpu,cpuacct/docker/y/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cgroup_limit(), 0u);
  write("/sys/fs/cgroup/cpu,cpuacct/docker/y/cpu.cfs_quota_us", "250000\n");
  EXPECT_EQ(cgroup_limit(), 3u);
}

TEST_F(fake_root, of_two_hierarchies_the_lower_quota_counts) {
  write("/proc/self/mountinfo", v1_mounts);
  write("/proc/self/cgroup", "2:cpu,cpuacct:/docker/y\n0::/z\n");
  write("/sys/fs/cgroup/cpu,cpuacct/docker/y/cpu.cfs_quota_us", "250000\n");
  write("/sys/fs/cgroup/cpu,cpuacct/docker/y/cpu.cfs_period_us", "100000\n");
  write("/sys/fs/cgroup/unified/z/cpu.max", "200000 100000\n");
  EXPECT_EQ(cgroup_limit(), 2u);
  write("/sys/fs/cgroup/unified/z/cpu.max", "400000 100000\n");
  EXPECT_EQ(cgroup_limit(), 3u);
  write("/sys/fs/cgroup/unified/z/cpu.max", "max 100000\n");
  EXPECT_EQ(cgroup_limit(), 3u);
}

TEST_F(fake_root, a_file_of_any_length_is_read) {
  std::string mounts;
  while (mounts.size() < 10'000) mounts += "34 31 0:31 / /sys/fs/cgroup/cpuset rw - cgroup c rw\n";
  write("/proc/self/mountinfo", mounts + v2_mount);
  write("/proc/self/cgroup", "0::/a\n");
  write("/sys/fs/cgroup/a/cpu.max", "200000 100000\n");
  EXPECT_EQ(cgroup_limit(), 2u);
}

TEST(cpu_group, has_its_path_without_escapes_and_what_only_looks_like_one_as_it_is) {
  const auto mounted = [](const std::string& at) {
    const auto found = find_cpu_groups("0::/a\n", "1 2 0:3 / " + at + " rw - cgroup2 c rw\n");
    return found.size() == 1 ? found[0].mounted_at : "";
  };
  EXPECT_EQ(mounted("/\\040"), "/ ") << "at the end";
  EXPECT_EQ(mounted("\\057x\\134\\040y"), "/x\\ y");
  EXPECT_EQ(mounted("/\\04"), "/\\04") << "too short";
  EXPECT_EQ(mounted("/\\049x"), "/\\049x") << "not octal";
  EXPECT_EQ(mounted("/a\\"), "/a\\");
}

TEST(processors_by_default, are_as_many_as_the_lowest_limit_allows) {
  const auto chosen = [](unsigned online, unsigned affinity, unsigned cgroup) {
    const auto c =
        choose_processors({.online = online, .affinity = affinity, .cgroup = cgroup}, 256);
    return std::pair(c.number, c.from);
  };
  using enum processors_from;
  EXPECT_EQ(chosen(64, 64, 0), std::pair(64u, online));
  EXPECT_EQ(chosen(64, 0, 0), std::pair(64u, online));
  EXPECT_EQ(chosen(64, 3, 0), std::pair(3u, affinity));
  EXPECT_EQ(chosen(64, 64, 1), std::pair(1u, cgroup));
  EXPECT_EQ(chosen(64, 3, 4), std::pair(3u, affinity));
  EXPECT_EQ(chosen(64, 4, 3), std::pair(3u, cgroup));
  EXPECT_EQ(chosen(0, 0, 0).first, 1u);
  EXPECT_EQ(chosen(1000, 1000, 0).first, 256u);
}

TEST(processors_by_default, are_one_for_a_thread_that_may_run_on_one_core) {
  std::thread([] {
    cpu_set_t allowed;
    ASSERT_EQ(::sched_getaffinity(0, sizeof allowed, &allowed), 0);
    int first = 0;
    while (!CPU_ISSET(first, &allowed)) ++first;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    ASSERT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
    runtime rt;
    EXPECT_EQ(rt.processors(), 1u);
    const auto s = rt.stats();
    EXPECT_EQ(s.limits.affinity, 1u);
    EXPECT_GE(s.limits.online, 1u);
    if (s.limits.online > 1) {
      EXPECT_EQ(s.taken_from, processors_from::affinity);
    }
    rt.set_processors(2);
    EXPECT_EQ(rt.stats().taken_from, processors_from::option);
    EXPECT_EQ(runtime({.processors = 3}).stats().taken_from, processors_from::option);
  }).join();
}

std::string contents(const std::string& path) {
  std::ifstream in(path);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

/// In a real group with half a processor, if one can be created.
TEST(processors_by_default, are_one_in_a_control_group_with_half_a_processor) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "this sanitizer supports no new threads in the child of a fork";
#endif
  const auto groups =
      find_cpu_groups(contents("/proc/self/cgroup"), contents("/proc/self/mountinfo"));
  std::string made;
  for (const auto& group : groups) {
    const std::string path =
        group.mounted_at + group.below + "/verge_test_" + std::to_string(::getpid());
    std::error_code error;
    if (!std::filesystem::create_directory(path, error)) continue;
    if (group.v2) {
      std::ofstream(path + "/cpu.max") << "50000 100000" << std::flush;
    } else {
      std::ofstream(path + "/cpu.cfs_quota_us") << "50000" << std::flush;
    }
    const unsigned quota = group.v2 ? cpus_of_cpu_max(contents(path + "/cpu.max"))
                                    : cpus_of_quota(contents(path + "/cpu.cfs_quota_us"),
                                                    contents(path + "/cpu.cfs_period_us"));
    if (quota == 1) {
      made = path;
      break;
    }
    std::filesystem::remove(path, error);
  }
  if (made.empty()) GTEST_SKIP() << "no control group with a quota can be created here";

  const pid_t pid = ::fork();
  if (pid == 0) {
    std::ofstream(made + "/cgroup.procs") << ::getpid() << std::flush;
    const runtime rt;
    const auto s = rt.stats();
    const bool decides =
        s.limits.online == 1 || s.limits.affinity == 1 || s.taken_from == processors_from::cgroup;
    std::_Exit(rt.processors() == 1 && s.limits.cgroup == 1 && decides ? 20 : 10);
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  std::error_code error;
  for (int i = 0; i < 1000 && !std::filesystem::remove(made, error); ++i) ::usleep(1000);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 20);
}

}  // namespace
}  // namespace verge
